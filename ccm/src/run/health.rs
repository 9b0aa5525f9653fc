//! The checks of `/healthz` and `/readyz`.

use super::identity::Identity;
use super::status::Page;
use crate::cluster::Cluster;
use crate::serve::Probe;

/// B-M4: a ready process has the cluster's identity, its caches and its provider. A healthy leader
/// renews its Leases.
///
/// With complete caches it stays ready when the API server fails, like upstream's components.
/// Otherwise all replicas would become unready at once, although their caches are as good as
/// before. A leader that cannot renew in time ends by itself; until it has, `/healthz` fails.
pub(super) fn checks(cluster: &Cluster, identity: &Identity, page: &Page) {
    let health = &page.health;
    page.leases.checks(health);
    let identity = identity.clone();
    health.check(Probe::Ready, "identity", move || identity.ready());
    if let Some(nodes) = cluster.watched_nodes().cloned() {
        health.check(Probe::Ready, "nodes", move || nodes.ready());
    }
    if let Some(services) = cluster.watched_services().cloned() {
        health.check(Probe::Ready, "services", move || services.ready());
    }
    if let Some(ranges) = cluster.watched_service_cidrs().cloned() {
        let ready = move || ranges.ready_or_refused();
        health.check(Probe::Ready, "servicecidrs", ready);
    }
    let status = page.status.clone();
    health.check(Probe::Ready, page.provider_check(), move || {
        let status = status.borrow();
        if status.reachable() {
            Ok(())
        } else {
            Err(status.complaint().to_owned())
        }
    });
}
