//! Routes.

use provider_sdk::{Answers, Call, Failure, Ownership, Route, RouteOptions, Routes, async_trait};

use super::instances::{address, address_from};
use super::{MockProvider, not_saved};
use crate::cloud::State;
use crate::lies::Twist;
use crate::routes::{self as cloud, RouteWrite};

#[async_trait]
impl Routes for MockProvider {
    async fn list(&self, call: &Call) -> Result<Vec<Route>, Failure> {
        self.reach(call).await?;
        let state = self.cloud.state();
        let instances = &state.objects.instances;
        let left_out = |route: &&cloud::Route| {
            route.gateway.is_some() && state.twists.has(Twist::GatewaysLeftOut)
        };
        let all = state.objects.routes.by_name.values();
        let shown = all.filter(|route| !left_out(route)).map(|route| Route {
            name: route.name.clone(),
            destination_cidr: route.destination_cidr.clone(),
            node_name: route.node_name.clone(),
            provider_id: route.provider_id.clone(),
            next_hop: route.next_hop.clone(),
            node_addresses: route.node_addresses.iter().map(address).collect(),
            blackhole: route.is_blackhole(instances),
            ownership: Some(match route.ownership(|owner| call.owns(owner)) {
                Ownership::Unmarked if state.twists.has(Twist::UnmarkedRoutesOurs) => {
                    Ownership::Ours
                }
                ownership => ownership,
            }),
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
        let tracks = self
            .cloud
            .settings()
            .capabilities
            .routes
            .tracks_node_addresses;
        self.write(call, routes, |state, route| {
            let mut wanted = wanted(call, route);
            if !tracks {
                // Sent all the same, and no concern of this cloud's.
                wanted.node_addresses.clear();
            }
            if state.twists.has(Twist::RouteNoMark) {
                wanted.owner_id = None;
            }
            let instances = &state.objects.instances;
            let taken = |one: &&cloud::Route| {
                let twist = match one.owner_id {
                    Some(_) => Twist::RoutesTurned,
                    None => Twist::UnmarkedRoutesTaken,
                };
                one.destination_cidr == wanted.destination_cidr && state.twists.has(twist)
            };
            if let Some(there) = state.objects.routes.by_name.values().find(taken) {
                wanted.name.clone_from(&there.name);
                return Ok(RouteWrite::Put(wanted));
            }
            let plan = state
                .objects
                .routes
                .plan_create(wanted, instances, |owner| call.owns(owner))?;
            if plan == RouteWrite::Nothing && state.twists.has(Twist::RouteExistsFails) {
                return Err(Failure::internal("the route exists already"));
            }
            Ok(plan)
        })
        .await
    }

    async fn delete_batch(&self, call: &Call, routes: &[Route]) -> Result<Answers<()>, Failure> {
        self.write(call, routes, |state, route| {
            let (mut name, cidr) = (&route.name, &route.destination_cidr);
            let all = || state.objects.routes.by_name.values();
            if state.twists.has(Twist::RouteByDestination) {
                let to = all().find(|one| one.destination_cidr == *cidr);
                name = to.map_or(name, |one| &one.name);
            }
            let any = state.twists.has(Twist::ForeignRouteRemoved);
            let plan = state
                .objects
                .routes
                .plan_delete(name, cidr, |owner| any || call.owns(owner))?;
            if plan == RouteWrite::Nothing && state.twists.has(Twist::RouteOfAbsentFails) {
                return Err(Failure::internal("there is no such route"));
            }
            Ok(plan)
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
    /// Plans and writes each route, and the state file once.
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

fn one(answers: &Answers<()>, route: &Route) -> Result<(), Failure> {
    answers
        .get(&route.key)
        .cloned()
        .unwrap_or_else(|| Err(Failure::internal("the route was not answered")))
}

/// The route as the cloud is to have it: marked, and named after the cluster, the hint and the destination.
fn wanted(call: &Call, route: &Route) -> cloud::Route {
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
