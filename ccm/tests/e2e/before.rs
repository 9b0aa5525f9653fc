//! A snapshot before an action that must not change anything.

use kube::ResourceExt as _;

use crate::world::World;

/// State that must not change while containers start and stop.
pub struct Before {
    node: Option<String>,
    changes: Vec<String>,
    writes: usize,
    pub load_balancers: Vec<(String, String)>,
}

impl Before {
    pub async fn of(world: &World) -> Self {
        Self {
            node: world.node("node-a").await.uid(),
            changes: world.changes(),
            writes: world.cloud.writes(),
            load_balancers: world.cloud.load_balancers(),
        }
    }

    /// Checks that the Node is the same one, that the cloud is as before, and that the ccm wrote to
    /// no Node and no Service meanwhile.
    pub async fn assert_untouched(&self, world: &World) {
        assert_eq!(
            world.changes(),
            self.changes,
            "no Node and no Service is touched"
        );
        assert_eq!(
            world.cloud.writes(),
            self.writes,
            "nothing is written to the cloud"
        );
        assert_eq!(world.cloud.load_balancers(), self.load_balancers);
        self.assert_same_node(world).await;
    }

    /// Checks that the Node was not deleted and created again.
    pub async fn assert_same_node(&self, world: &World) {
        assert_eq!(world.node("node-a").await.uid(), self.node);
    }
}
