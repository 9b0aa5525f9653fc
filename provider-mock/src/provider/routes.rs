//! Routes.

use provider_sdk::{Answers, Call, Failure, Route, RouteOptions, Routes, async_trait};

use super::instances::{address, address_from};
use super::{MockProvider, not_saved};
use crate::cloud::State;
use crate::routes::{self as cloud, RouteWrite};

#[async_trait]
impl Routes for MockProvider {
    async fn list(&self, call: &Call) -> Result<Vec<Route>, Failure> {
        self.reach(call).await?;
        let state = self.cloud.state();
        let instances = &state.objects.instances;
        let all = state.objects.routes.by_name.values();
        let shown = all.map(|route| Route {
            name: route.name.clone(),
            destination_cidr: route.destination_cidr.clone(),
            node_name: route.node_name.clone(),
            provider_id: route.provider_id.clone(),
            next_hop: route.next_hop.clone(),
            node_addresses: route.node_addresses.iter().map(address).collect(),
            blackhole: route.is_blackhole(instances),
            ownership: Some(route.ownership(|owner| call.owns(owner))),
            ..Route::default()
        });
        Ok(shown.collect())
    }

    async fn create(&self, call: &Call, route: &Route) -> Result<(), Failure> {
        one(
            &self.create_batch(call, std::slice::from_ref(route)).await?,
            route,
        )
    }

    async fn delete(&self, call: &Call, route: &Route) -> Result<(), Failure> {
        one(
            &self.delete_batch(call, std::slice::from_ref(route)).await?,
            route,
        )
    }

    async fn create_batch(&self, call: &Call, routes: &[Route]) -> Result<Answers<()>, Failure> {
        let tracks_node_addresses = self.options().tracks_node_addresses;
        self.write(call, routes, |state, route| {
            let mut wanted = wanted(call, route);
            if !tracks_node_addresses {
                wanted.node_addresses.clear();
            }
            let instances = &state.objects.instances;
            let routes = &state.objects.routes;
            routes.plan_create(wanted, instances, |owner| call.owns(owner))
        })
        .await
    }

    async fn delete_batch(&self, call: &Call, routes: &[Route]) -> Result<Answers<()>, Failure> {
        self.write(call, routes, |state, route| {
            let (name, cidr) = (&route.name, &route.destination_cidr);
            let routes = &state.objects.routes;
            routes.plan_delete(name, cidr, |owner| call.owns(owner))
        })
        .await
    }

    fn options(&self) -> RouteOptions {
        let settings = self.cloud.settings();
        let capability = &settings.capabilities.routes;
        RouteOptions {
            max_batch: capability.max_batch,
            tracks_node_addresses: capability.tracks_node_addresses,
            max_in_flight: capability.max_in_flight,
            ..RouteOptions::default()
        }
    }
}

impl MockProvider {
    /// Plans and writes each route. Writes the state file at most once.
    async fn write(
        &self,
        call: &Call,
        routes: &[Route],
        plan: impl Fn(&State, &Route) -> Result<RouteWrite, Failure>,
    ) -> Result<Answers<()>, Failure> {
        self.reach(call).await?;
        call.before_write().await?;
        let now_ms = self.cloud.now_ms();
        let mut answers = Answers::new();
        let mut lines = Vec::new();
        let mut before = Vec::new();
        let mut state = self.cloud.state();
        for route in routes {
            let written = plan(&state, route).map(|planned| match planned {
                RouteWrite::Nothing => {}
                RouteWrite::Put(route) => {
                    let name = route.name.clone();
                    lines.push(format!("put route {name} to {}", route.destination_cidr));
                    let replaced = state.set_route(&name, Some(route));
                    before.push((name, replaced));
                }
                RouteWrite::Remove(name) => {
                    lines.push(format!("remove route {name}"));
                    let removed = state.set_route(&name, None);
                    before.push((name, removed));
                }
            });
            answers.set(&route.key, written);
        }
        if !before.is_empty() {
            state
                .save_routes(before, now_ms)
                .map_err(|error| not_saved(&error))?;
        }
        for line in lines {
            state.wrote(line);
        }
        Ok(answers)
    }
}

/// The answer for this route.
pub(crate) fn one(answers: &Answers<()>, route: &Route) -> Result<(), Failure> {
    answers
        .get(&route.key)
        .cloned()
        .unwrap_or_else(|| Err(Failure::internal("the cloud did not answer for the route")))
}

/// The route to create: marked, and named after the cluster, the hint and the destination.
pub(crate) fn wanted(call: &Call, route: &Route) -> cloud::Route {
    let cluster = call.cluster();
    let destination = route.destination_cidr.replace(['/', ':', '.'], "-");
    cloud::Route {
        name: format!("{}-{}-{destination}", cluster.name, route.name_hint),
        destination_cidr: route.destination_cidr.clone(),
        node_name: route.node_name.clone(),
        provider_id: route.provider_id.clone(),
        next_hop: route.next_hop.clone(),
        gateway: None,
        node_addresses: route
            .node_addresses
            .iter()
            .filter_map(address_from)
            .collect(),
        owner_id: Some(cluster.owner_id.clone()),
    }
}
