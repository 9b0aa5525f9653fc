//! The condition of a Node whose route the cloud refuses: no Pod may be scheduled onto it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use provider_mock::Cloud;
use serde_json::Value;
use tokio::time::Instant;

use super::fields::{NETWORK_UNAVAILABLE, condition, is_known};
use super::model::pod_cidr;
use crate::api_server::store::Object;

/// A write that nothing hinders is done within this.
const TOLD_WITHIN: Duration = Duration::from_secs(15);
/// Failures that concern the route alone, and not all calls alike.
const OF_ITSELF: [&str; 2] = ["failed:INTERNAL", "failed:PRECONDITION"];

/// Routes that the cloud refused, by their Node's UID.
#[derive(Default)]
pub(super) struct Refused {
    seen: u64,
    since: BTreeMap<String, (Instant, String)>,
}

impl Refused {
    /// Takes in what the cloud answered lately, for the present leader; answers the Nodes that hide
    /// for too long that they have no route.
    pub(super) fn hidden(
        &mut self,
        cloud: &Cloud,
        nodes: &[Arc<Object>],
        leader: Option<&String>,
        hindered: Option<Instant>,
    ) -> Vec<String> {
        for call in cloud.calls(Some("CreateRoutes")) {
            if call.number <= self.seen {
                continue;
            }
            self.seen = call.number;
            let refused = OF_ITSELF.contains(&call.outcome.as_str());
            // One of several routes may have been the reason: the ccm sends each alone, when it is its turn.
            if refused && call.names.len() > 1 {
                continue;
            }
            // For a Node without a provider ID no route is made: the call was for an earlier Node with its Pods' addresses.
            let named = |node: &&Arc<Object>| {
                is_known(node)
                    && pod_cidr(node).is_some_and(|cidr| call.names.iter().any(|name| name == cidr))
            };
            for node in nodes.iter().filter(named) {
                let uid = uid(node).to_owned();
                // Where the process ended meanwhile, nobody is left to say so.
                if let Some(leader) = leader.filter(|_| refused) {
                    let first = (Instant::now(), leader.clone());
                    self.since.entry(uid).or_insert(first);
                } else {
                    self.since.remove(&uid);
                }
            }
        }
        let mut hidden = Vec::new();
        self.since.retain(|uid, (since, by)| {
            let there = nodes.iter().find(|node| self::uid(node) == uid);
            let Some(node) = there.filter(|_| leader == Some(by)) else {
                return false;
            };
            if hindered.is_some_and(|at| at >= *since) {
                return false;
            }
            // It said so: what it says later may be of a route that was made all the same.
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

fn uid(node: &Value) -> &str {
    node["metadata"]["uid"].as_str().unwrap_or_default()
}
