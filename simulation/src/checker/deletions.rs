//! The deletions of Nodes, which a brake limits.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;

use super::fields::{self, is_known};
use crate::api_server::store::Object;

/// The requests that delete Nodes.
#[derive(Default)]
pub(super) struct Deletions {
    /// When each process sent the requests that were carried out.
    sent: BTreeMap<String, Vec<Instant>>,
    /// When processes last asked for the deletion of each Node, by UID. They cannot know whether a
    /// request without an answer deleted it.
    asked: BTreeMap<String, Instant>,
}

/// How many Nodes have no instance.
pub(super) struct Absences {
    /// Nodes with a provider ID that are not Ready and have no instance, and recent deletions.
    pub(super) gone: usize,
    /// All Nodes with a provider ID, and recent deletions.
    pub(super) all: usize,
    /// How many Nodes may go at once.
    pub(super) limit: usize,
}

impl Deletions {
    pub(super) fn asked(&mut self, node: &Value) {
        let uid = fields::uid(node).to_owned();
        self.asked.insert(uid, Instant::now());
    }

    pub(super) fn refused(&mut self, node: &Value) {
        self.asked.remove(fields::uid(node));
    }

    /// Takes a deletion that was carried out. Returns how many the process sent within a window of
    /// the brake.
    pub(super) fn sent(&mut self, identity: &str, at: Instant) -> usize {
        // The brake counts a deletion before the ccm sends the first request, so the brake's ten
        // minutes begin earlier.
        const WINDOW: Duration = Duration::from_mins(9);
        let all = self.sent.entry(identity.to_owned()).or_default();
        all.retain(|before| at.saturating_duration_since(*before) < WINDOW);
        all.push(at);
        all.len()
    }

    /// How many Nodes the ccms deleted within this time. A Node that still exists does not count.
    fn count(&self, nodes: &[Arc<Object>], within: Duration) -> usize {
        let exists = |uid: &String| nodes.iter().any(|node| fields::uid(node) == uid);
        let all = self.asked.iter();
        all.filter(|(uid, at)| at.elapsed() < within && !exists(uid))
            .count()
    }

    /// What a brake may count now. `exists`: the Node has an instance.
    pub(super) fn absences(
        &self,
        nodes: &[Arc<Object>],
        exists: impl Fn(&Value) -> bool,
    ) -> Absences {
        const WINDOW: Duration = Duration::from_mins(12);
        let deleted = self.count(nodes, WINDOW);
        let mut nodes = nodes.iter().filter(|node| is_known(node));
        let gone = nodes
            .clone()
            .filter(|node| !fields::is_ready(node) && !exists(node))
            .count();
        let all = nodes.clone().count() + deleted;
        let others_ready = nodes.all(|node| fields::is_ready(node) || !exists(node));
        let limit = match all {
            0 | 1 => 0,
            2 => usize::from(others_ready),
            3 | 4 => 1,
            _ => 2,
        };
        Absences {
            gone: gone + deleted,
            all,
            limit,
        }
    }

    /// Whether at least half of the known Nodes have no instance or were deleted. One of two Nodes
    /// is not enough.
    pub(super) fn are_most(&self, nodes: &[Arc<Object>], exists: impl Fn(&Value) -> bool) -> bool {
        let deleted = self.count(nodes, Duration::MAX);
        let nodes = nodes.iter().filter(|node| is_known(node));
        let gone = nodes.clone().filter(|node| !exists(node)).count() + deleted;
        let all = nodes.count() + deleted;
        gone * 2 >= all && (gone, all) != (1, 2)
    }
}
