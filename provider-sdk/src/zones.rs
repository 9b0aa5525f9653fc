//! The zones of Nodes, for clouds whose instances do not have them (`zone.proto`; Go's Zones).

use async_trait::async_trait;

use crate::instances::one_by_one;
use crate::{Answers, Call, Failure, Node};

/// The zones of Nodes. The controller asks only if an instance lacks zone or region.
#[async_trait]
pub trait Zones: Send + Sync {
    /// The zone and region of this Node.
    ///
    /// Failures: INVALID, PRECONDITION, THROTTLED, CREDENTIALS, UNAVAILABLE, INTERNAL. Deadline of
    /// the whole batch: 60 s.
    async fn zone(&self, call: &Call, node: &Node) -> Result<Zone, Failure>;

    /// The same for several Nodes. The answers have [`Node::name`] as their keys. The default calls
    /// [`Zones::zone`] for each, 16 at a time. If such a call panics, the answer for its Node alone
    /// is `failed: INTERNAL`.
    async fn zone_batch(&self, call: &Call, nodes: &[Node]) -> Result<Answers<Zone>, Failure> {
        let each = |node| self.zone(call, node);
        Ok(one_by_one(call, nodes, 16, |node| &node.name, each).await)
    }
}

/// A place in a cloud. `None` in a field means that the provider does not know the value, or that
/// the cloud has none. The SDK logs and leaves out a value that is no label value (ZONE-2).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Zone {
    /// The failure domain: a valid label value.
    pub zone: Option<String>,
    /// The region: a valid label value.
    pub region: Option<String>,
}
