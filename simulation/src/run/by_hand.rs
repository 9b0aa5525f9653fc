//! Objects that people create in the cloud.

use std::net::{IpAddr, Ipv4Addr};

use provider_mock::{LoadBalancer, Mark, Route};

use super::steps::{node, pod_cidr};
use super::{FOREIGN_OWNER, Run};
use crate::plan::ByHand;

impl Run {
    pub(super) fn plant_balancer(&mut self, whose: ByHand) {
        self.number += 1;
        let name = format!("hand-made-{}", self.number);
        let balancer = LoadBalancer {
            name: name.clone(),
            addresses: vec![IpAddr::V4(Ipv4Addr::new(198, 51, 100, self.machines))],
            owner: (whose == ByHand::Foreign).then(|| Mark {
                owner_id: FOREIGN_OWNER.to_owned(),
                namespace: "default".to_owned(),
                name: "web-0".to_owned(),
                uid: name,
            }),
            ..LoadBalancer::default()
        };
        if let Ok(handle) = self.cloud.plant_load_balancer(balancer.clone()) {
            self.checker.planted(LoadBalancer { handle, ..balancer });
        }
    }

    pub(super) fn plant_route(&mut self, i: u8, whose: ByHand) {
        // If a route has the same wrong target again after its repair, the ccm accepts it.
        if whose == ByHand::Stray && !self.strays.insert(i) {
            return;
        }
        self.number += 1;
        let name = format!("hand-made-{}", self.number);
        let number = u8::try_from(self.number % 50).unwrap_or_default();
        let odd = self.number % 2 == 1;
        let shared = odd && whose == ByHand::Foreign;
        let (route, stays) = match whose {
            ByHand::Foreign => {
                let cidr = if shared {
                    pod_cidr(i)
                } else {
                    format!("10.244.{}.0/24", 200 + number)
                };
                let owner_id = Some(FOREIGN_OWNER.to_owned());
                let node_name = Some(node(i));
                let route = Route::new(name, cidr);
                (
                    Route {
                        owner_id,
                        node_name,
                        ..route
                    },
                    true,
                )
            }
            ByHand::Unmarked => {
                // Inside the cluster's network such a route stays too, if no Node has it (▲R10).
                let cidr = if odd {
                    format!("10.244.{}.0/24", 150 + number)
                } else {
                    format!("10.77.{number}.0/24")
                };
                let mut route = Route::new(name, cidr);
                route.next_hop = Some("10.9.9.9".to_owned());
                (route, true)
            }
            ByHand::Stray => {
                let mut route = Route::new(name, pod_cidr(i));
                route.next_hop = Some("10.9.9.9".to_owned());
                (route, false)
            }
            ByHand::WrongNode => {
                let mut route = Route::new(name, pod_cidr(i));
                route.node_name = Some(node(i + 1));
                (route, false)
            }
        };
        if !stays || shared {
            self.remove_routes(i);
        }
        // The cloud would not take two routes to the same Pods.
        let mut all = self.cloud.routes().into_iter();
        if all.any(|one| one.destination_cidr == route.destination_cidr) {
            return;
        }
        if self.cloud.plant_route(route.clone()).is_ok() && stays {
            self.checker.planted_route(route, shared);
        }
    }
    /// Removes the routes to the Node's Pods, except another cluster's.
    pub(super) fn remove_routes(&self, i: u8) {
        let routes = self.cloud.routes().into_iter();
        let own = |route: &Route| {
            let owner = route.owner_id.as_deref();
            route.destination_cidr == pod_cidr(i) && owner != Some(FOREIGN_OWNER)
        };
        for route in routes.filter(own) {
            // The route may be gone already.
            let _ = self.cloud.remove_route(&route.name);
        }
    }
}
