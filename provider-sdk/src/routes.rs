//! Routes to the Pods of each Node (`route.proto`; Go's Routes).

use async_trait::async_trait;

use crate::instances::one_by_one;
use crate::{Answers, Call, Failure, NodeAddress, Ownership};

/// Routes in the network of the cluster.
///
/// While one call creates or deletes routes to a destination, the SDK refuses a route to the same
/// destination in another such call: it answers `failed: BUSY` for that route.
#[async_trait]
pub trait Routes: Send + Sync {
    /// All routes in the network of this cluster, including those of other owners, each with its
    /// ownership. The list must be complete; otherwise return a failure. It includes routes whose
    /// target no longer exists (`blackhole`) (ROUTE-1). Deadline 5 min.
    async fn list(&self, call: &Call) -> Result<Vec<Route>, Failure>;

    /// Creates one route, and marks it with the cluster's owner ID if the cloud supports marks
    /// (ROUTE-3). If the route exists as requested, return `Ok` (ROUTE-2), also if it is unmarked.
    /// Replace a blackhole of this cluster. If another route has the destination, return CONFLICT.
    /// ROUTE-9 has the exceptions.
    ///
    /// Failures: all but NOT_FOUND. Deadline of the whole batch: 2 min.
    async fn create(&self, call: &Call, route: &Route) -> Result<(), Failure>;

    /// Deletes the route with this name and destination (ROUTE-8), as [`Routes::list`] returned it.
    /// If the route does not exist, return `Ok`. If it is foreign, return CONFLICT (ROUTE-4). The
    /// SDK answers INVALID for a route without a name (ROUTE-10).
    ///
    /// Failures: all but NOT_FOUND. Deadline of the whole batch: 2 min.
    async fn delete(&self, call: &Call, route: &Route) -> Result<(), Failure>;

    /// The same as [`Routes::create`] for several routes. The answers have [`Route::key`] as their
    /// keys. The default runs [`Routes::create`] for each, [`RouteOptions::at_once`] at a time.
    async fn create_batch(&self, call: &Call, routes: &[Route]) -> Result<Answers<()>, Failure> {
        let each = |route| self.create(call, route);
        Ok(one_by_one(
            call,
            routes,
            self.options().at_once,
            |route| &route.key,
            each,
        )
        .await)
    }

    /// The same as [`Routes::delete`] for several routes. The answers have [`Route::key`] as their
    /// keys. The default runs [`Routes::delete`] for each, [`RouteOptions::at_once`] at a time.
    async fn delete_batch(&self, call: &Call, routes: &[Route]) -> Result<Answers<()>, Failure> {
        let each = |route| self.delete(call, route);
        Ok(one_by_one(
            call,
            routes,
            self.options().at_once,
            |route| &route.key,
            each,
        )
        .await)
    }

    /// The capabilities of this service.
    fn options(&self) -> RouteOptions {
        RouteOptions::default()
    }
}

/// The capabilities of the routes service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RouteOptions {
    /// The most routes in one call; 100 by default and if 0. The SDK answers a larger call with
    /// `failed: INVALID`.
    pub max_batch: u32,
    /// Whether a route depends on its Node's addresses, so that the controller creates it again
    /// when they change. `false` by default.
    pub tracks_node_addresses: bool,
    /// How many calls of this service may run at once; 8 by default.
    pub max_in_flight: u32,
    /// How many single creates or deletes of one call run at once; 8 by default. The controller
    /// does not see this.
    pub at_once: usize,
}

impl Default for RouteOptions {
    fn default() -> Self {
        Self {
            max_batch: 100,
            tracks_node_addresses: false,
            max_in_flight: 8,
            at_once: 8,
        }
    }
}

/// A route: packets to the destination go to the Node.
///
/// Limits: a name has at most 253 bytes, a provider ID at most 1,024 bytes, and `next_hop` is an IP
/// address. In a listing, name, destination and `ownership` must be set, and a route of this
/// cluster needs a target unless it is a `blackhole`. If one route violates a limit, the whole
/// listing fails, because it would be incomplete. A route to a gateway or a peering has no target
/// (ROUTE-11).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Route {
    /// In requests: a key that is unique within the request. Empty in listings.
    pub key: String,
    /// The cloud's name of the route. Empty in a create.
    pub name: String,
    /// In a create: a text unique to the Node (its UID), from which the cloud's name may be built.
    pub name_hint: String,
    /// The destination of the packets: a CIDR, for example `10.0.1.0/24`.
    pub destination_cidr: String,
    /// The target by the Node's name.
    pub node_name: Option<String>,
    /// The target by provider ID.
    pub provider_id: Option<String>,
    /// The target by IP address.
    pub next_hop: Option<String>,
    /// The target's addresses. Without [`RouteOptions::tracks_node_addresses`], other addresses
    /// alone do not make a route differ from the requested one.
    pub node_addresses: Vec<NodeAddress>,
    /// The target no longer exists.
    pub blackhole: bool,
    /// The owner of the route; set in listings.
    pub ownership: Option<Ownership>,
}
