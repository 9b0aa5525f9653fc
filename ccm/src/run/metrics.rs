//! All metrics of a process.

use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::args::Controller;
use crate::cluster::Store;
use crate::core::registered;
use crate::serve::{Health, Probe};
use crate::writes::EventMetrics;
use crate::{kube_client, lease, provider, serve};

/// `running_managed_controllers` and the metrics of the loops.
#[derive(Clone)]
pub(crate) struct LoopMetrics {
    pub(crate) node: crate::controllers::node::Metrics,
    pub(crate) node_lifecycle: crate::controllers::node_lifecycle::Metrics,
    pub(crate) service: crate::controllers::service::Metrics,
    pub(crate) route: crate::controllers::route::Metrics,
    running: Family<[(&'static str, &'static str); 2], Gauge>,
    health: Health,
}

impl LoopMetrics {
    pub(super) fn register(registry: &mut Registry, health: &Health) -> Self {
        Self {
            running: registered(
                registry,
                "running_managed_controllers",
                "Whether a controller runs in this process: 1 or 0",
                Family::default(),
            ),
            node: crate::controllers::node::Metrics::register(registry),
            node_lifecycle: crate::controllers::node_lifecycle::Metrics::register(registry),
            service: crate::controllers::service::Metrics::register(registry),
            route: crate::controllers::route::Metrics::register(registry),
            health: health.clone(),
        }
    }

    /// Reports that a controller started or stopped: in the metric and, like a Go CCM, in the list
    /// of `/healthz?verbose`. A controller that ends by itself ends the process, so a running one
    /// is healthy.
    pub(super) fn running(&self, controller: Controller, runs: bool) {
        let labels = [
            ("manager", "cloud-controller-manager"),
            ("name", controller.alias()),
        ];
        self.running.get_or_create(&labels).set(i64::from(runs));
        if runs {
            self.health
                .check(Probe::Health, controller.name(), || Ok(()));
        } else {
            self.health.no_check(Probe::Health, controller.name());
        }
    }

    /// Makes `/readyz` wait for the first list of objects that only this loop watches, while the
    /// loop runs.
    pub(super) fn awaits<K: Send + Sync + 'static>(
        &self,
        objects: &'static str,
        store: &Store<K>,
    ) -> Awaited {
        let store = store.clone();
        self.health
            .check(Probe::Ready, objects, move || store.ready());
        Awaited {
            health: self.health.clone(),
            objects,
        }
    }
}

/// A check of `/readyz` that ends with its loop.
pub(super) struct Awaited {
    health: Health,
    objects: &'static str,
}

impl Drop for Awaited {
    fn drop(&mut self) {
        self.health.no_check(Probe::Ready, self.objects);
    }
}

/// All families of `/metrics`.
pub(super) struct Metrics {
    pub(super) queues: crate::queue::Metrics,
    pub(super) loops: LoopMetrics,
    pub(super) events: EventMetrics,
    pub(super) provider: provider::Metrics,
    pub(super) lease: lease::Metrics,
    pub(super) kube: kube_client::Metrics,
    pub(super) webhooks: serve::WebhookMetrics,
}

impl Metrics {
    pub(super) fn register(registry: &mut Registry, health: &Health) -> Self {
        serve::register_process(registry);
        Self {
            queues: crate::queue::Metrics::register(registry),
            loops: LoopMetrics::register(registry, health),
            events: EventMetrics::register(registry),
            provider: provider::Metrics::register(registry),
            lease: lease::Metrics::register(registry),
            kube: kube_client::Metrics::register(registry),
            webhooks: serve::WebhookMetrics::register(registry),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn b_m4_healthz_lists_the_controllers_that_run_as_a_go_ccm_does() {
        let health = Health::default();
        health.check(Probe::Health, "leaderElection", || Ok(()));
        let metrics = LoopMetrics::register(&mut Registry::default(), &health);
        let listed = || -> Vec<String> {
            let results = health.results(Probe::Health).into_iter();
            results.map(|(name, _)| name.to_string()).collect()
        };
        metrics.running(Controller::CloudNode, true);
        metrics.running(Controller::ServiceLb, true);
        let names = [
            "leaderElection",
            "cloud-node-controller",
            "service-lb-controller",
        ];
        assert_eq!(listed(), names);
        metrics.running(Controller::CloudNode, false);
        assert_eq!(listed(), ["leaderElection", "service-lb-controller"]);
        assert!(health.results(Probe::Ready).is_empty());
    }
}
