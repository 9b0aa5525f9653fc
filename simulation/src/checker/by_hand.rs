//! Objects that people created in the cloud. No ccm may touch them.

use std::collections::BTreeSet;

use provider_mock::{Cloud, LoadBalancer, Route};

/// The objects as they were created.
#[derive(Default)]
pub(super) struct ByHand {
    pub(super) balancers: Vec<LoadBalancer>,
    pub(super) routes: Vec<Route>,
    /// The names of the routes to a Node's Pods. A ccm may delete its own routes to these.
    pub(super) shared: BTreeSet<String>,
}

impl ByHand {
    /// The handles of the load balancers that were changed. One whose name is gone does not count.
    pub(super) fn changed<'a>(&'a self, all: &'a [LoadBalancer]) -> impl Iterator<Item = &'a str> {
        let is_changed = move |planted: &&LoadBalancer| {
            let now = all.iter().find(|one| one.name == planted.name);
            now.is_some_and(|now| now != *planted)
        };
        self.balancers
            .iter()
            .filter(is_changed)
            .map(|planted| planted.handle.as_str())
    }

    /// The objects that are missing or changed, and the routes that a ccm asked to delete.
    pub(super) fn touched(&self, cloud: &Cloud) -> Vec<String> {
        let (balancers, routes) = (cloud.load_balancers(), cloud.routes());
        let missing = self
            .balancers
            .iter()
            .filter(|planted| !balancers.contains(planted))
            .map(|planted| format!("the load balancer {}", planted.handle));
        let routes = self
            .routes
            .iter()
            .filter(|planted| !routes.contains(planted))
            .map(|planted| format!("the route {}", planted.name));
        let mut touched: Vec<_> = missing
            .chain(routes)
            .map(|what| format!("{what} is somebody else's, and was changed or removed"))
            .collect();
        // The cloud refuses to delete another cluster's route, so its state does not show the call.
        let calls = cloud.calls(Some("DeleteRoutes"));
        let asked = |planted: &&Route| {
            let destination = &planted.destination_cidr;
            calls.iter().any(|call| call.names.contains(destination))
        };
        let all = self
            .routes
            .iter()
            .filter(|one| !self.shared.contains(&one.name));
        touched.extend(all.filter(asked).map(|planted| {
            format!(
                "a ccm asked to delete the route {}, which is somebody else's",
                planted.name
            )
        }));
        touched
    }
}
