//! Keeps this controller from giving a Node the provider ID of another Node. A Node that has the ID
//! does not count if it is being deleted or has not been Ready for `STALE`. A provider ID is
//! immutable. The lifecycle controller may delete a Node once the instance with its ID is gone. So
//! with the ID of another Node's instance, that controller could delete the wrong Node.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use cloud_provider_api::v1alpha1 as api;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;

use super::{name, plan};
use crate::cluster::Store;
use crate::core::{Key, is_ready, lock, provider_id, ready_condition};
use crate::provider::CallError;
use crate::provider::lookup::Lookup;

/// After this time without being Ready, a Node no longer keeps its provider ID from other Nodes:
/// the machine may have returned under another name.
const STALE: Duration = Duration::from_mins(STALE_MINUTES);
const STALE_MINUTES: u64 = 5;

/// The provider IDs in writes that the watch has not shown yet: the Node's name by ID.
#[derive(Debug, Default)]
pub(super) struct Claims(Mutex<BTreeMap<String, String>>);

impl Claims {
    /// Reserves this ID for this Node before the write. `Err`: another Node keeps the ID from it,
    /// or has reserved it.
    pub(super) fn claim(
        &self,
        node: &Node,
        id: &str,
        nodes: &Store<Node>,
        wall: Timestamp,
    ) -> Result<(), CallError> {
        // Locked while the store is read. Otherwise an ID could move from the claims to the store
        // between the two checks.
        let mut claims = self.claims();
        let waits = |other: &String| {
            let other = nodes.get(&Key::node(other));
            other.is_some_and(|other| {
                plan::gets_id(&other) && other.metadata.deletion_timestamp.is_none()
            })
        };
        // The claim of a Node that is gone could stay for ever. A Node that is being deleted keeps
        // no ID from others.
        if let Some(other) = claims.get(id)
            && other != name(node)
            && waits(other)
        {
            let why = format!("which the ccm is giving to Node {other}");
            return Err(taken(id, &why));
        }
        let holders = nodes.found_by(id);
        if let Some(holder) = holders
            .iter()
            .find(|holder| name(holder) != name(node) && is_in_the_way(holder, wall))
        {
            let other = name(holder);
            let why = format!(
                "which Node {other} has: this Node gets it when Node {other} is being deleted, is gone or has not been Ready for {STALE_MINUTES} min"
            );
            return Err(taken(id, &why));
        }
        // A Node has one claim at a time. An earlier answer may have had another ID.
        claims.retain(|_, claimant| claimant != name(node));
        claims.insert(id.to_owned(), name(node).to_owned());
        Ok(())
    }

    /// Whether this Node has a claim.
    pub(super) fn holds(&self, name: &str) -> bool {
        self.claims().values().any(|claimant| claimant == name)
    }

    /// Ends this Node's claim, for example because the watch shows that the Node has an ID or is
    /// gone.
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

/// Refuses an ID that the answers of one call give to several Nodes without an ID, because the ccm
/// cannot decide which Node is right. Only Nodes for which `is_in_the_way` is true count.
pub(super) fn refuse_what_is_given_twice(found: &mut [Lookup<api::Instance>], wall: Timestamp) {
    let mut given: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (place, lookup) in found.iter().enumerate() {
        if let Ok(instance) = &lookup.answer
            && let Some(id) = instance.provider_id.as_deref().filter(|id| !id.is_empty())
            && plan::gets_id(&lookup.item)
            && is_in_the_way(&lookup.item, wall)
        {
            given.entry(id.to_owned()).or_default().push(place);
        }
    }
    for (id, places) in given.into_iter().filter(|(_, places)| places.len() > 1) {
        let nodes: Vec<Arc<Node>> = places
            .iter()
            .filter_map(|place| Some(Arc::clone(&found.get(*place)?.item)))
            .collect();
        for (turn, place) in places.into_iter().enumerate() {
            let other = nodes.get(usize::from(turn == 0));
            if let (Some(lookup), Some(other)) = (found.get_mut(place), other) {
                let why = format!(
                    "and the same for Node {}: no Node gets it until the provider reports it for one only. A Node that is being deleted or has not been Ready for {STALE_MINUTES} min does not count",
                    name(other)
                );
                lookup.answer = Err(taken(&id, &why));
            }
        }
    }
}

/// Refuses each answer for a Node with an ID that names another Node's instance, because the answer
/// may mix the Nodes up. An ID that no Node has may be another spelling of the Node's own ID. Only
/// Nodes for which `is_in_the_way` is true count: the machine of another one may have come back
/// under this Node's name.
pub(super) fn refuse_what_is_mixed_up(
    found: &mut [Lookup<api::Instance>],
    nodes: &Store<Node>,
    wall: Timestamp,
) {
    for lookup in found {
        let Some(own) = provider_id(&lookup.item) else {
            continue;
        };
        if let Ok(instance) = &lookup.answer
            && let Some(id) = instance.provider_id.as_deref().filter(|id| *id != own)
            && let holders = nodes.found_by(id)
            && let Some(other) = holders
                .iter()
                .find(|other| name(other) != name(&lookup.item) && is_in_the_way(other, wall))
        {
            let why = format!(
                "which is not that of this Node, but that of Node {}",
                name(other)
            );
            lookup.answer = Err(taken(id, &why));
        }
    }
}

fn taken(id: &str, why: &str) -> CallError {
    let short: String = id.chars().take(100).collect();
    CallError::fault(format!(
        "the provider reports the provider ID {short:?}, {why}"
    ))
}

/// Whether this Node keeps its provider ID from other Nodes.
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
    // Without any of these times, the Node may have been Ready just now.
    since.is_none_or(|since| {
        let ago = Duration::try_from(wall.duration_since(since.0));
        ago.map_or(true, |ago| ago < STALE)
    })
}

#[cfg(test)]
mod tests;
