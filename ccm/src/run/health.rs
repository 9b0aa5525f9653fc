//! What `/healthz` and `/readyz` say.

use super::status::Page;
use crate::cluster::Cluster;
use crate::serve::{Health, Probe};

/// B-M4: ready is who has its caches and its provider; healthy is who, leading, renews the Lease.
///
/// Who was ready stays so when the API server goes away later, as upstream's components do: all replicas would turn at once, nobody is
/// routed to one of them, and the caches are as good as before. That a leader cannot renew, `/healthz` tells; it ends by itself then.
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
