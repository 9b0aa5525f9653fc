//! One provider ID, one Node. An ID is written once and for ever: a Node with another one's ID would be deleted with that one's instance.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use cloud_provider_api::v1alpha1 as api;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;

use super::{name, plan};
use crate::cluster::Store;
use crate::core::{is_ready, lock, ready_condition};
use crate::provider::CallError;
use crate::provider::lookup::Lookup;

/// A Node that has not been Ready for so long is no obstacle to another one with its instance: the machine came back under another name.
const STALE: Duration = Duration::from_mins(5);

/// The provider IDs that are being written, until the watch shows them: after the ID the Node's name.
#[derive(Debug, Default)]
pub(super) struct Claims(Mutex<BTreeMap<String, String>>);

impl Claims {
    /// This Node is about to get this ID. `Err`: it must not, another one has it or is about to.
    pub(super) fn claim(
        &self,
        node: &Node,
        id: &str,
        nodes: &Store<Node>,
        wall: Timestamp,
    ) -> Result<(), CallError> {
        // Held over the look at the store: what leaves the claims is there already.
        let mut claims = self.claims();
        if let Some(other) = claims.get(id)
            && other != name(node)
        {
            return Err(taken(id, other));
        }
        let holders = nodes.found_by(id);
        if let Some(holder) = holders
            .iter()
            .find(|holder| name(holder) != name(node) && is_in_the_way(holder, wall))
        {
            return Err(taken(id, name(holder)));
        }
        // It has one at a time: an earlier answer may have been another one.
        claims.retain(|_, claimant| claimant != name(node));
        claims.insert(id.to_owned(), name(node).to_owned());
        Ok(())
    }

    /// The watch shows that this Node has an ID, or is gone.
    pub(super) fn settled(&self, name: &str) {
        let mut claims = self.claims();
        if !claims.is_empty() {
            claims.retain(|_, claimant| claimant != name);
        }
    }

    fn claims(&self) -> MutexGuard<'_, BTreeMap<String, String>> {
        lock(&self.0)
    }
}

/// Refuses an ID that the answers of one call give to several new Nodes: which one of them is meant nobody knows.
pub(super) fn refuse_what_is_given_twice(found: &mut [Lookup<api::Instance>], wall: Timestamp) {
    let mut given: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (place, lookup) in found.iter().enumerate() {
        if let Ok(instance) = &lookup.answer
            && let Some(id) = instance.provider_id.as_deref().filter(|id| !id.is_empty())
            && plan::gets_id(&lookup.node)
            && is_in_the_way(&lookup.node, wall)
        {
            given.entry(id.to_owned()).or_default().push(place);
        }
    }
    for (id, places) in given.into_iter().filter(|(_, places)| places.len() > 1) {
        let nodes: Vec<Arc<Node>> = places
            .iter()
            .filter_map(|place| Some(Arc::clone(&found.get(*place)?.node)))
            .collect();
        for (turn, place) in places.into_iter().enumerate() {
            let other = nodes.get(usize::from(turn == 0));
            if let (Some(lookup), Some(other)) = (found.get_mut(place), other) {
                lookup.answer = Err(taken(&id, name(other)));
            }
        }
    }
}

fn taken(id: &str, other: &str) -> CallError {
    let short: String = id.chars().take(100).collect();
    CallError::fault(format!(
        "the provider reports the provider ID {short:?}, which Node {other} has: this Node gets it when Node {other} is gone or has not been Ready for {} min",
        STALE.as_secs() / 60
    ))
}

/// Whether a Node with this ID keeps another one from having it too. One that goes does not, nor one that nobody has heard of for long.
fn is_in_the_way(holder: &Node, wall: Timestamp) -> bool {
    if holder.metadata.deletion_timestamp.is_some() {
        return false;
    }
    if is_ready(holder) {
        return true;
    }
    let since = ready_condition(holder)
        .and_then(|ready| ready.last_transition_time.as_ref())
        .or(holder.metadata.creation_timestamp.as_ref());
    // Whoever does not say since when may have been Ready just now.
    since.is_none_or(|since| {
        let ago = Duration::try_from(wall.duration_since(since.0));
        ago.map_or(true, |ago| ago < STALE)
    })
}

#[cfg(test)]
mod tests;
