//! Where Nodes are, for clouds whose instances do not tell (`zone.proto`; Go's Zones).

use async_trait::async_trait;

use crate::instances::one_by_one;
use crate::{Answers, Call, Failure, Node};

/// Where Nodes are. Asked only where an instance left zone or region out.
#[async_trait]
pub trait Zones: Send + Sync {
    /// In which zone and region is this Node?
    ///
    /// Failures: INVALID, PRECONDITION, THROTTLED, CREDENTIALS, UNAVAILABLE, INTERNAL. Deadline of the whole batch: 60 s.
    async fn zone(&self, call: &Call, node: &Node) -> Result<Zone, Failure>;

    /// The same for several Nodes at once; answers go by [`Node::name`]. Unless overridden it calls [`Zones::zone`] for each, 16 at a time; a panic in
    /// one is `failed: INTERNAL` for that Node alone.
    async fn zone_batch(&self, call: &Call, nodes: &[Node]) -> Result<Answers<Zone>, Failure> {
        let each = |node| self.zone(call, node);
        Ok(one_by_one(call, nodes, 16, |node| &node.name, each).await)
    }
}

/// A place in a cloud. What is `None` is not known or does not exist there.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Zone {
    /// The failure domain: a valid label value.
    pub zone: Option<String>,
    /// The region: a valid label value.
    pub region: Option<String>,
}
