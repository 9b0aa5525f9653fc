//! The Nodes that load balancers send traffic to (B-S6, B-S7, ▲S12, ▲S14, ▲S17). Pure.

mod pool;
mod selector;

use std::collections::BTreeMap;
use std::sync::Arc;

use cloud_provider_api::v1alpha1 as api;
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use prost::Message;
use tokio::time::Instant;

pub(super) use pool::Pool;
pub(super) use selector::NodeSelector;

use crate::core::{is_ready, provider_id, taints};
use crate::planted::planted;

use super::fingerprint::{Digest, Fingerprint, rank};

const EXCLUDE_LABEL: &str = "node.kubernetes.io/exclude-from-external-load-balancers";
/// Values of that label that do not exclude a Node: those that Go parses as false. Any other value
/// excludes it.
const NOT_EXCLUDED: [&str; 6] = ["0", "f", "F", "false", "False", "FALSE"];
const AUTOSCALER_TAINT: &str = "ToBeDeletedByClusterAutoscaler";

/// The targets of all Services with one selector. Those Services share one set.
#[derive(Debug)]
pub(super) struct TargetSet {
    /// In the order of their names. Sets share them: there may be many sets of many Nodes.
    pub(super) nodes: Vec<Arc<api::NodeView>>,
    /// Covers the fields that identify targets: names, UIDs, provider IDs, addresses, and those
    /// that the provider names (B-S7, ▲S14).
    pub(super) fingerprint: Fingerprint,
    /// The version of the candidates that it was built from.
    pub(super) version: u64,
    /// How many more Nodes would be targets if the provider accepted them.
    pub(super) left_out: usize,
}

impl TargetSet {
    pub(super) fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// The set in the format of a request.
    pub(super) fn to_request(&self) -> api::TargetSet {
        api::TargetSet {
            set: Some(api::target_set::Set::Inline(api::TargetList {
                nodes: self.nodes.iter().map(|node| (**node).clone()).collect(),
            })),
        }
    }
}

/// Whether a Node can be a target (B-S6, ▲S14). `owned`: it belongs to this provider.
pub(super) fn eligible(node: &Node, scope: api::TargetScope, owned: bool) -> bool {
    if node.metadata.deletion_timestamp.is_some() {
        return false;
    }
    let excluded = node.labels().get(EXCLUDE_LABEL);
    let excluded = excluded.is_some_and(|value| !NOT_EXCLUDED.contains(&value.as_str()));
    let leaving = taints(node)
        .iter()
        .any(|taint| taint.key == AUTOSCALER_TAINT);
    if excluded || leaving {
        return false;
    }
    match scope {
        api::TargetScope::All => true,
        api::TargetScope::Owned | api::TargetScope::Unspecified => {
            owned && provider_id(node).is_some()
        }
    }
}

/// A Node that can be a target.
#[derive(Debug)]
pub(super) struct Candidate {
    ready: bool,
    node: Arc<Node>,
    view: Arc<api::NodeView>,
    fingerprint: Fingerprint,
}

impl Candidate {
    /// `view` is the Node in a request. `identity` has the fields whose change is a change of the
    /// target.
    pub(super) fn new(node: Arc<Node>, view: api::NodeView, identity: &api::NodeView) -> Self {
        let mut digest = Digest::new();
        digest.part(&identity.encode_to_vec());
        if planted!(ReadyFlapIsAnUpdate) {
            digest.part(&[u8::from(is_ready(&node))]);
        }
        Self {
            ready: is_ready(&node),
            node,
            view: Arc::new(view),
            fingerprint: digest.finish(),
        }
    }
}

/// All Nodes that can be targets, before any selector.
#[derive(Debug, Default)]
pub(super) struct Candidates {
    nodes: BTreeMap<String, Candidate>,
    /// Changes with each change of a Node that a set or a request can show.
    version: u64,
    /// The most targets of one load balancer.
    most: Option<usize>,
}

impl Candidates {
    /// Stores the current state of a Node. `None`: it is gone or no target. Returns whether that
    /// can change a set. A change that only affects the request's view cannot.
    pub(super) fn observe(&mut self, name: &str, now: Option<Candidate>) -> bool {
        let Some(now) = now else {
            let was = self.nodes.remove(name).is_some();
            self.version += u64::from(was);
            return was;
        };
        let before = self.nodes.get(name);
        let cut = self.most.is_some_and(|most| self.nodes.len() > most);
        let relevant = before.is_none_or(|before| {
            before.fingerprint != now.fingerprint
                || cut && before.ready != now.ready
                // A selector may use labels that the provider does not see.
                || before.node.metadata.labels != now.node.metadata.labels
        });
        let other = relevant || before.is_none_or(|before| before.view != now.view);
        self.version += u64::from(other);
        self.nodes.insert(name.to_owned(), now);
        relevant
    }

    /// Forgets all Nodes, and sets the most targets of a set; zero: no limit.
    pub(super) fn clear(&mut self, most: Option<u32>) {
        self.nodes.clear();
        self.most = most.filter(|most| *most > 0).map(|most| most as usize);
        self.version += 1;
    }

    /// Whether the set was built from the current Nodes.
    pub(super) fn is_current(&self, set: &TargetSet) -> bool {
        set.version == self.version
    }

    pub(super) fn select(&self, selector: &NodeSelector) -> TargetSet {
        let mut chosen: Vec<(&String, &Candidate)> = self
            .nodes
            .iter()
            .filter(|(_, candidate)| selector.matches(&candidate.node))
            .collect();
        let most = self.most.unwrap_or(usize::MAX);
        let left_out = chosen.len().saturating_sub(most);
        if left_out > 0 {
            chosen.sort_by_cached_key(|(name, node)| (!node.ready, rank(name), (*name).clone()));
            chosen.truncate(most);
            chosen.sort_by_key(|(name, _)| *name);
        }
        let mut digest = Digest::new();
        for (name, candidate) in &chosen {
            digest.part(name.as_bytes());
            digest.bytes(&candidate.fingerprint.0.to_le_bytes());
        }
        TargetSet {
            nodes: chosen
                .iter()
                .map(|(_, candidate)| Arc::clone(&candidate.view))
                .collect(),
            fingerprint: digest.finish(),
            version: self.version,
            left_out,
        }
    }
}

/// The sets in use, one for each selector.
#[derive(Debug, Default)]
pub(super) struct Sets {
    published: BTreeMap<NodeSelector, Arc<TargetSet>>,
    /// The selectors whose set is empty, which the API server has to confirm, and the earliest time
    /// of the next question. `None`: the API server was not asked yet.
    doubtful: BTreeMap<NodeSelector, Option<Instant>>,
}

impl Sets {
    /// The set for Services with this selector. `None`: not known yet.
    pub(super) fn get(&self, selector: &NodeSelector) -> Option<&Arc<TargetSet>> {
        self.published.get(selector)
    }

    /// Stores a newly built set. An empty set waits until the API server confirms it, unless the
    /// set before was empty too.
    pub(super) fn offer(&mut self, selector: &NodeSelector, set: TargetSet) {
        let before = self.published.get(selector);
        if set.is_empty() && before.is_none_or(|before| !before.is_empty()) {
            self.doubtful.entry(selector.clone()).or_default();
            return;
        }
        self.doubtful.remove(selector);
        self.published.insert(selector.clone(), Arc::new(set));
    }

    /// The selectors to ask the API server about now.
    pub(super) fn to_ask(&self, now: Instant) -> Vec<NodeSelector> {
        self.doubtful
            .iter()
            .filter(|(_, again)| again.is_none_or(|again| again <= now))
            .map(|(selector, _)| selector.clone())
            .collect()
    }

    /// The next time to ask about a selector again.
    pub(super) fn next_ask(&self) -> Option<Instant> {
        self.doubtful.values().copied().flatten().min()
    }

    /// The API server disagrees, or did not answer: ask again at `again`. Returns whether the set
    /// is still in doubt.
    pub(super) fn ask_again(&mut self, selector: &NodeSelector, again: Instant) -> bool {
        let doubt = self.doubtful.get_mut(selector);
        doubt.map(|doubt| *doubt = Some(again)).is_some()
    }

    /// The API server confirms that no Node matches. Returns whether `get` changed.
    pub(super) fn confirm_empty(&mut self, selector: &NodeSelector) -> bool {
        let in_doubt = self.doubtful.remove(selector).is_some();
        if in_doubt {
            let empty = Candidates::default().select(selector);
            self.published.insert(selector.clone(), Arc::new(empty));
        }
        in_doubt
    }

    pub(super) fn retain(&mut self, mut used: impl FnMut(&NodeSelector) -> bool) {
        self.published.retain(|selector, _| used(selector));
        self.doubtful.retain(|selector, _| used(selector));
    }
}

#[cfg(test)]
mod tests;
