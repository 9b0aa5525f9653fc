//! The places for lookups of Nodes. Lookups that may hang get a part of them.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use tokio::sync::OwnedSemaphorePermit;

use crate::controller::{Permits, lowered};
use crate::provider::Session;
use crate::provider::lookup::IsolatedKeys;

/// Limits the lookups under way.
#[derive(Default)]
pub(super) struct Places {
    /// `--concurrent-node-syncs`.
    flag: Option<usize>,
    all: Permits,
    hung: Permits,
    suspects: Permits,
    refreshes: Permits,
}

impl Places {
    /// At most this many lookups run at once, or fewer if the provider takes fewer. `None`: as many
    /// as the provider takes.
    pub(super) fn new(flag: Option<usize>) -> Self {
        Self {
            flag,
            ..Self::default()
        }
    }

    /// How many lookups may run at once.
    pub(super) fn most(&self, session: &Arc<Session>) -> usize {
        self.all.of(session, || self.width(session)).0
    }

    fn width(&self, session: &Session) -> usize {
        lowered(session.limiters.instances.width, self.flag)
    }

    /// The places of refreshes, except those of Nodes that hung: half of the lookups, but at least
    /// one.
    pub(super) fn refreshes(&self, session: &Arc<Session>) -> usize {
        (self.most(session) / 2).max(1)
    }

    /// The places of Nodes that hung: a quarter of the lookups, but at least one.
    pub(super) fn hung(&self, session: &Arc<Session>) -> usize {
        (self.most(session) / 4).max(1)
    }

    /// Waits for the permits of a lookup. Calls about Nodes that hung take at most a quarter of the
    /// places, and LookupInstances of other refreshes at most half, but at least one each. So new
    /// Nodes find a place, unless there are few. Other calls about one isolated Node take at most
    /// half of the places, but at least two: one Node of a late batch may hang, and the others must
    /// not wait for it.
    pub(super) async fn take(
        &self,
        session: &Arc<Session>,
        isolated: &IsolatedKeys,
        nodes: &[Arc<Node>],
        refreshes: bool,
    ) -> [Option<OwnedSemaphorePermit>; 2] {
        let few = if isolated.are_hung(nodes) {
            Some(self.hung.of(session, || self.hung(session)))
        } else if refreshes {
            Some(self.refreshes.of(session, || self.refreshes(session)))
        } else if isolated.are_alone(nodes) {
            let most = || (self.most(session) / 2).max(2);
            Some(self.suspects.of(session, most))
        } else {
            None
        };
        // The semaphores are never closed.
        let few = match few {
            Some((_, few)) => few.acquire_owned().await.ok(),
            None => None,
        };
        let (_, all) = self.all.of(session, || self.width(session));
        [few, all.acquire_owned().await.ok()]
    }
}
