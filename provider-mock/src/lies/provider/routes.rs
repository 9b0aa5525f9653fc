//! Routes.

use std::collections::BTreeMap;

use provider_sdk::{
    Answers, Call, Failure, FailureCode, Ownership, Route, RouteOptions, Routes, async_trait,
};

use super::Twisted;
use crate::lies::Twist;
use crate::provider::{not_saved, one, wanted};
use crate::routes as cloud;

impl Twisted {
    /// The routes of the cloud by name.
    fn by_name(&self) -> BTreeMap<String, cloud::Route> {
        self.cloud.state().objects.routes.by_name.clone()
    }

    /// Writes the route, or removes it if `None`.
    fn write(&self, name: &str, route: Option<cloud::Route>) -> Result<(), Failure> {
        self.cloud.count_lie();
        let now_ms = self.cloud.now_ms();
        let mut state = self.cloud.state();
        let line = match &route {
            Some(route) => format!("put route {name} to {}", route.destination_cidr),
            None => format!("remove route {name}"),
        };
        let before = state.set_route(name, route);
        state
            .save_routes(vec![(name.to_owned(), before)], now_ms)
            .map_err(|error| not_saved(&error))?;
        state.wrote(line);
        Ok(())
    }

    /// Applies the twists to one route of a CreateRoutes, after its honest answer.
    fn created(
        &self,
        call: &Call,
        route: &Route,
        before: &BTreeMap<String, cloud::Route>,
        honest: Result<(), Failure>,
    ) -> Result<(), Failure> {
        if honest
            .as_ref()
            .is_err_and(|failure| failure.code() != FailureCode::Conflict)
        {
            return honest;
        }
        let routes = self.by_name();
        let to = |one: &&cloud::Route| one.destination_cidr == route.destination_cidr;
        let Some(there) = routes.values().find(to) else {
            return honest;
        };
        let turns = match there.owner_id {
            Some(_) => Twist::RoutesTurned,
            None => Twist::UnmarkedRoutesTaken,
        };
        if self.has(turns) {
            let mut turned = cloud::Route {
                name: there.name.clone(),
                ..wanted(call, route)
            };
            if !Routes::options(&self.honest).tracks_node_addresses {
                turned.node_addresses.clear();
            }
            if turned != *there {
                self.write(&there.name, Some(turned))?;
            } else if honest.is_err() {
                self.cloud.count_lie();
            }
            return Ok(());
        }
        honest?;
        if self.has(Twist::RouteExistsFails) && before.get(&there.name) == Some(there) {
            self.cloud.count_lie();
            return Err(Failure::internal("the route exists already"));
        }
        if self.has(Twist::RouteNoMark) && there.owner_id.is_some() {
            let unmarked = cloud::Route {
                owner_id: None,
                ..there.clone()
            };
            self.write(&there.name, Some(unmarked))?;
        }
        Ok(())
    }

    /// Applies the twists to one route of a DeleteRoutes, after its honest answer.
    fn deleted(
        &self,
        route: &Route,
        before: &BTreeMap<String, cloud::Route>,
        honest: Result<(), Failure>,
    ) -> Result<(), Failure> {
        let there = before.get(&route.name);
        let there = there.filter(|one| one.destination_cidr == route.destination_cidr);
        match honest {
            Err(failure)
                if failure.code() == FailureCode::Conflict
                    && there.is_some()
                    && self.has(Twist::ForeignRouteRemoved) =>
            {
                self.write(&route.name, None)
            }
            Ok(()) if there.is_none() && self.has(Twist::RouteOfAbsentFails) => {
                self.cloud.count_lie();
                Err(Failure::internal("there is no such route"))
            }
            honest => honest,
        }
    }
}

#[async_trait]
impl Routes for Twisted {
    async fn list(&self, call: &Call) -> Result<Vec<Route>, Failure> {
        let honest = Routes::list(&self.honest, call).await?;
        let mut routes = honest.clone();
        if self.has(Twist::GatewaysLeftOut) {
            let all = self.by_name();
            let to_gateway =
                |route: &Route| all.get(&route.name).is_some_and(|it| it.gateway.is_some());
            routes.retain(|route| !to_gateway(route));
        }
        if self.has(Twist::UnmarkedRoutesOurs) {
            for route in &mut routes {
                if route.ownership == Some(Ownership::Unmarked) {
                    route.ownership = Some(Ownership::Ours);
                }
            }
        }
        if routes != honest {
            self.cloud.count_lie();
        }
        Ok(routes)
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
        if self.is_honest() {
            return self.honest.create_batch(call, routes).await;
        }
        let before = self.by_name();
        let honest = self.honest.create_batch(call, routes).await?;
        let twisted = routes.iter().filter_map(|route| {
            let honest = honest.get(&route.key)?.clone();
            Some((
                route.key.clone(),
                self.created(call, route, &before, honest),
            ))
        });
        Ok(twisted.collect())
    }

    async fn delete_batch(&self, call: &Call, routes: &[Route]) -> Result<Answers<()>, Failure> {
        if self.is_honest() {
            return self.honest.delete_batch(call, routes).await;
        }
        let before = self.by_name();
        let mut asked = routes.to_vec();
        if self.has(Twist::RouteByDestination) {
            for route in &mut asked {
                let to = |one: &&cloud::Route| one.destination_cidr == route.destination_cidr;
                if let Some(there) = before.values().find(to) {
                    route.name.clone_from(&there.name);
                }
            }
        }
        if asked != routes {
            self.cloud.count_lie();
        }
        let honest = self.honest.delete_batch(call, &asked).await?;
        let twisted = asked.iter().filter_map(|route| {
            let honest = honest.get(&route.key)?.clone();
            Some((route.key.clone(), self.deleted(route, &before, honest)))
        });
        Ok(twisted.collect())
    }

    fn options(&self) -> RouteOptions {
        Routes::options(&self.honest)
    }
}
