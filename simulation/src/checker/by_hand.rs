//! Objects that people created in the cloud. No ccm may touch them.

use provider_mock::{Cloud, LoadBalancer, Route};

/// The objects as they were created.
#[derive(Default)]
pub(super) struct ByHand {
    pub(super) balancers: Vec<LoadBalancer>,
    pub(super) routes: Vec<Route>,
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

    /// The objects that are missing or changed.
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
        missing
            .chain(routes)
            .map(|what| format!("{what} is somebody else's, and was changed or removed"))
            .collect()
    }
}
