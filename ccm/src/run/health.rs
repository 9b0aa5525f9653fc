//! The checks of `/healthz` and `/readyz`.

use super::status::Page;
use crate::cluster::Cluster;
use crate::serve::{Health, Probe};

/// B-M4: a ready process has its caches and its provider. A healthy leader renews the Lease.
///
/// A ready process stays ready when the API server fails later, like upstream's components.
/// Otherwise all replicas would become unready at once, although their caches are as good as
/// before. If a leader cannot renew, `/healthz` says so, and the leader ends by itself.
pub(super) fn checks(health: &Health, cluster: &Cluster, page: &Page) {
    page.leases.checks(health);
    if let Some(nodes) = cluster.watched_nodes().cloned() {
        health.check(Probe::Ready, "nodes", move || nodes.ready());
    }
    if let Some(services) = cluster.watched_services().cloned() {
        health.check(Probe::Ready, "services", move || services.ready());
    }
    let status = page.status.clone();
    let name = format!("provider-{}", page.provider);
    health.check(Probe::Ready, name, move || {
        let status = status.borrow();
        if status.reachable() {
            Ok(())
        } else {
            Err(status.complaint().to_owned())
        }
    });
}
