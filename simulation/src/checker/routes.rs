//! Checks the condition of a Node whose route the cloud refuses: it must keep Pods off the Node.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use provider_mock::Cloud;
use serde_json::Value;
use tokio::time::Instant;

use super::fields::{self, NETWORK_UNAVAILABLE, condition, is_known, uid};
use super::model::pod_cidr;
use crate::api_server::store::Object;

/// After this time a ccm repeats a write that the API server refused.
const REFUSED_AGAIN: Duration = Duration::from_mins(1);
/// A leader without hindrance sets a condition within this time.
const TOLD_WITHIN: Duration = Duration::from_secs(15);
/// Failures that concern one route and not all calls.
const OF_ITSELF: [&str; 2] = ["failed:INTERNAL", "failed:PRECONDITION"];

/// What kept a leader from setting a condition.
#[derive(Clone, Copy, Debug, Default)]
pub struct Hindered {
    /// Until when requests to the API server failed or were late, as far as is known.
    pub until: Option<Instant>,
    /// When the API server last refused a request of the kinds that set a condition.
    pub condition_refused: Option<Instant>,
}

/// Routes that the cloud refused, by their Node's UID.
#[derive(Default)]
pub(super) struct Refused {
    seen: u64,
    /// When a Node got its provider ID, in the cloud's time.
    known: BTreeMap<String, u64>,
    since: BTreeMap<String, (Instant, String)>,
}

impl Refused {
    /// Notes that this Node has its provider ID now.
    pub(super) fn is_known(&mut self, cloud: &Cloud, node: &Value) {
        self.known.insert(uid(node).to_owned(), cloud.now_ms());
    }

    /// Takes the cloud's latest answers, for the present leader. Returns the Nodes whose condition
    /// did not show in time that the cloud refused their route.
    pub(super) fn hidden(
        &mut self,
        cloud: &Cloud,
        nodes: &[Arc<Object>],
        leader: Option<&str>,
        hindered: Hindered,
    ) -> Vec<String> {
        let lists = cloud.calls(Some("ListRoutes"));
        for call in cloud.calls(Some("CreateRoutes")) {
            if call.number <= self.seen {
                continue;
            }
            self.seen = call.number;
            let refused = OF_ITSELF.contains(&call.outcome.as_str());
            // If the call has several routes, one of them may be the reason. After INTERNAL the ccm
            // repeats the call in halves, and so finds that route.
            if refused && call.names.len() > 1 {
                continue;
            }
            // The ccm creates no route for a Node without a provider ID, and plans after a list. So
            // a call before the provider ID or the list was for an earlier Node with the same Pod
            // CIDR.
            let named = |node: &&Arc<Object>| {
                let known = self.known.get(uid(node)).copied().unwrap_or(0);
                let mut since = lists.iter().filter(|list| list.at_ms >= known);
                is_known(node)
                    && since.any(|list| list.at_ms + list.duration_ms <= call.at_ms)
                    && pod_cidr(node).is_some_and(|cidr| call.names.iter().any(|name| name == cidr))
            };
            for node in nodes.iter().filter(named) {
                let uid = uid(node).to_owned();
                // If the process has ended meanwhile, no process knows of the refusal.
                if let Some(leader) = leader.filter(|_| refused) {
                    let first = (Instant::now(), leader.to_owned());
                    self.since.entry(uid).or_insert(first);
                } else {
                    self.since.remove(&uid);
                }
            }
        }
        let mut hidden = Vec::new();
        self.since.retain(|uid, (since, by)| {
            let there = nodes.iter().find(|node| fields::uid(node) == uid);
            let Some(node) = there.filter(|_| leader == Some(by.as_str())) else {
                return false;
            };
            let refused = hindered.condition_refused;
            if hindered.until.is_some_and(|at| at >= *since)
                || refused.is_some_and(|at| at + REFUSED_AGAIN >= *since)
            {
                return false;
            }
            // The condition was set. If it changes later, the cloud may have created the route
            // despite its answer.
            if condition(node, NETWORK_UNAVAILABLE) == Some("True") {
                return false;
            }
            if since.elapsed() >= TOLD_WITHIN {
                hidden.push(node["metadata"]["name"].to_string());
                return false;
            }
            true
        });
        hidden
    }
}
