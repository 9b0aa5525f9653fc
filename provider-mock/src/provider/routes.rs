//! Routes.

use provider_sdk::{Answers, Call, Failure, Route, RouteOptions, Routes, async_trait};

use super::{MockProvider, not_saved};
use crate::cloud::State;
use crate::routes::{self as cloud, RouteWrite};
use crate::store::Section;

#[async_trait]
impl Routes for MockProvider {
    async fn list(&self, call: &Call) -> Result<Vec<Route>, Failure> {
        call.cloud_answered();
        let state = self.cloud.state();
        let instances = &state.objects.instances;
        let shown = state.objects.routes.by_name.values().map(|route| Route {
            name: route.name.clone(),
            destination_cidr: route.destination_cidr.clone(),
            node_name: route.node_name.clone(),
            provider_id: route.provider_id.clone(),
            next_hop: route.next_hop.clone(),
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
        self.write(call, routes, |state, route| {
            let wanted = wanted(call, route);
            let instances = &state.objects.instances;
            state
                .objects
                .routes
                .plan_create(wanted, instances, |owner| call.owns(owner))
        })
        .await
    }

    async fn delete_batch(&self, call: &Call, routes: &[Route]) -> Result<Answers<()>, Failure> {
        self.write(call, routes, |state, route| {
            let (name, cidr) = (&route.name, &route.destination_cidr);
            state
                .objects
                .routes
                .plan_delete(name, cidr, |owner| call.owns(owner))
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
        call.before_write().await?;
        call.cloud_answered();
        let now_ms = self.cloud.now_ms();
        let mut answers = Answers::new();
        let mut wrote = false;
        let mut state = self.cloud.state();
        for route in routes {
            let planned = plan(&state, route);
            wrote |= matches!(planned, Ok(RouteWrite::Put(_) | RouteWrite::Remove(_)));
            answers.set(&route.key, planned.map(|planned| state.apply(planned)));
        }
        if wrote {
            state
                .save(Section::Routes, now_ms)
                .map_err(|error| not_saved(&error))?;
        }
        Ok(answers)
    }
}

impl State {
    fn apply(&mut self, write: RouteWrite) {
        match write {
            RouteWrite::Nothing => {}
            RouteWrite::Put(route) => {
                self.wrote(format!(
                    "put route {} to {}",
                    route.name, route.destination_cidr
                ));
                self.objects
                    .routes
                    .by_name
                    .insert(route.name.clone(), route);
            }
            RouteWrite::Remove(name) => {
                self.wrote(format!("remove route {name}"));
                self.objects.routes.by_name.remove(&name);
            }
        }
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
    let addresses = route.node_addresses.iter();
    cloud::Route {
        name: format!("{}-{}-{destination}", cluster.name, route.name_hint),
        destination_cidr: route.destination_cidr.clone(),
        node_name: route.node_name.clone(),
        provider_id: route.provider_id.clone(),
        next_hop: route.next_hop.clone(),
        node_addresses: addresses.map(|address| address.address.clone()).collect(),
        owner_id: Some(cluster.owner_id.clone()),
    }
}
