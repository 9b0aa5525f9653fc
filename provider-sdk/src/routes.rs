//! Routes to the Pods of each Node (`route.proto`; Go's Routes).

use async_trait::async_trait;

use crate::instances::one_by_one;
use crate::{Answers, Call, Failure, NodeAddress, Ownership};

/// Routes of the network that the cluster uses.
///
/// While a call works on a destination, another call for the same one is answered `failed: BUSY` for that route by the SDK.
#[async_trait]
pub trait Routes: Send + Sync {
    /// All routes of the network that this cluster uses, also those of others, each with its ownership. It must be complete, or fail, and include routes whose
    /// target no longer exists (`blackhole`) (ROUTE-1). Deadline 5 min.
    async fn list(&self, call: &Call) -> Result<Vec<Route>, Failure>;

    /// Makes one route and marks it with the cluster's owner ID where the cloud can (ROUTE-3). A route that already is as asked is done (ROUTE-2), also an unmarked one. A blackhole of ours is
    /// replaced; where something else leads to the destination it is CONFLICT (ROUTE-9).
    ///
    /// Failures: all but NOT_FOUND. Deadline of the whole batch: 2 min.
    async fn create(&self, call: &Call, route: &Route) -> Result<(), Failure>;

    /// Removes the route with this name and destination (ROUTE-8), as [`Routes::list`] gave it. A route that does not exist is done; a foreign one is CONFLICT (ROUTE-4). The SDK has answered one
    /// without a name with INVALID (ROUTE-10).
    ///
    /// Failures: all but NOT_FOUND. Deadline of the whole batch: 2 min.
    async fn delete(&self, call: &Call, route: &Route) -> Result<(), Failure>;

    /// The same as [`Routes::create`] for several routes; answers go by [`Route::key`]. Unless overridden: one by one,
    /// [`RouteOptions::at_once`] at a time.
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

    /// The same as [`Routes::delete`] for several routes; answers go by [`Route::key`].
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

    /// What the controller is told about this service.
    fn options(&self) -> RouteOptions {
        RouteOptions::default()
    }
}

/// What the controller is told about the routes service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RouteOptions {
    /// The most routes that one call takes; 100 by default and where 0. A call with more is answered `failed: INVALID`.
    pub max_batch: u32,
    /// A route depends on its Node's addresses: it is made anew when they change. `false` by default.
    pub tracks_node_addresses: bool,
    /// How many calls of this service may run at once; 8 by default.
    pub max_in_flight: u32,
    /// How many single creates or deletes of one call run at once; 8 by default. Not sent.
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
/// Limits: name 253 bytes, provider ID 1,024 bytes, `next_hop` an IP address; in a listing `ownership` must be set, and where it is ours a target unless `blackhole`. A listing
/// with a route that breaks one fails as a whole: it would not be complete. What leads to a gateway or a peering has no target (ROUTE-11).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Route {
    /// In requests: names this route among those of the request. Empty in listings.
    pub key: String,
    /// The cloud's name of the route; empty when one is to be made.
    pub name: String,
    /// When one is to be made: something unique to the Node (its UID) that the cloud's name may be made of.
    pub name_hint: String,
    /// Where packets go to: a CIDR, for example `10.0.1.0/24`.
    pub destination_cidr: String,
    /// The target by the Node's name.
    pub node_name: Option<String>,
    /// The target by provider ID.
    pub provider_id: Option<String>,
    /// The target by IP address.
    pub next_hop: Option<String>,
    /// The target's addresses; with [`RouteOptions::tracks_node_addresses`].
    pub node_addresses: Vec<NodeAddress>,
    /// The target does not exist any more.
    pub blackhole: bool,
    /// Whose the route is; set in listings.
    pub ownership: Option<Ownership>,
}
