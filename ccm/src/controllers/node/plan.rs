//! The changes to a Node that follow from the provider's answer. Pure.

use std::collections::BTreeSet;
use std::time::Duration;

use cloud_provider_api::v1alpha1 as api;
use k8s_openapi::api::core::v1::{Node, NodeAddress};
use kube::ResourceExt;

use super::{addresses, labels};
use crate::core::text::TEXT_LIMIT;
use crate::core::{provider_id, taints};
use crate::ownership::PROVIDER_LABEL;
use crate::planted::planted;
use crate::provider::{CallError, node_view};
use crate::writes::reason::{INVALID_NODE_LABEL, NODE_ADDRESS_MISMATCH, SYNCED};
use crate::writes::{EventType, NodePatch};

/// The taint of a Node that no cloud controller has initialised yet (B-N1).
const UNINITIALIZED: &str = "node.cloudprovider.kubernetes.io/uninitialized";
/// The delay after PENDING, unless the provider gives one.
const PENDING_DELAY: Duration = Duration::from_secs(5);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NodeEvent {
    pub(super) kind: EventType,
    pub(super) reason: &'static str,
    pub(super) message: String,
}

/// How the attempt ends after the writes.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) enum Then {
    /// Nothing is left to do.
    #[default]
    Done,
    /// The writes initialised the Node.
    Initialized,
    /// The Node is not this cloud's, or is being deleted: leave it alone (B-N9).
    LeftAlone,
    /// Not ready yet: try again after this time. The text is the reason, for people.
    After(Duration, String),
    /// It failed: try again with backoff. The text is the reason, for people.
    Retry(String),
    /// As `Retry`, but the reason seldom passes by itself: report it at once.
    Lasting(String),
    CallError(CallError),
}

/// The writes, in this order: the addresses, `main`, the events. After them `then` applies.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct NodePlan {
    /// The addresses in the status. They are written before the taint is removed (▲N7).
    pub(super) addresses: Option<Vec<NodeAddress>>,
    /// Provider ID, labels and, in the same write, the removal of the taint.
    pub(super) main: Option<NodePatch>,
    /// Recorded after the writes.
    pub(super) events: Vec<NodeEvent>,
    /// For a Node that is being initialised: labels that the provider may not set (B-N4), as text
    /// for people.
    pub(super) reserved: Vec<String>,
    /// A label differs: read the Node's managed fields and plan again (▲N12).
    pub(super) needs_managed: bool,
    pub(super) then: Then,
}

impl NodePlan {
    /// The provider ID that the Node gets.
    pub(super) fn new_id(&self) -> Option<&str> {
        self.main.as_ref()?.provider_id.as_deref()
    }
}

/// The inputs of a decision besides the Node and the answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known<'a> {
    /// The prefixes of this provider's IDs.
    pub(super) prefixes: &'a [String],
    /// The label keys that this controller wrote last. `None`: the managed fields were not read.
    pub(super) managed: Option<&'a BTreeSet<String>>,
}

/// The changes to the Node for this answer. The Node must not belong to another provider.
pub(super) fn changes(
    node: &Node,
    answer: &Result<api::Instance, CallError>,
    known: Known<'_>,
) -> NodePlan {
    if node.metadata.deletion_timestamp.is_some() {
        nothing(Then::LeftAlone)
    } else if is_uninitialized(node) {
        initialize(node, answer, known).unwrap_or_else(nothing)
    } else {
        refresh(node, answer.as_ref().ok(), known)
    }
}

/// Whether the Node has the taint that this controller removes.
pub(super) fn is_uninitialized(node: &Node) -> bool {
    taints(node).iter().any(|taint| taint.key == UNINITIALIZED)
}

/// The key by which the provider looks the Node up, as text for people.
pub(super) fn asked_for(node: &Node) -> String {
    /// This many characters of a provider ID are enough to recognise it.
    const SHOWN: usize = 200;
    if let Some(id) = provider_id(node) {
        let id: String = id.chars().take(SHOWN).collect();
        return format!("provider ID {id:?}");
    }
    let name = node.metadata.name.as_deref().unwrap_or_default();
    format!("the name {name:?}, without a provider ID")
}

/// Whether the Node gets the provider ID of the answer.
pub(super) fn gets_id(node: &Node) -> bool {
    is_uninitialized(node) && provider_id(node).is_none()
}

/// Whether a change makes a Node with the taint due at once. It does if the Node or its taint is
/// new. It also does if a field that the provider sees, the kubelet's node IP or the provider label
/// changed. Heartbeats do not count, nor do the addresses that this controller wrote (`own`).
pub(super) fn wakes(
    old: Option<&Node>,
    new: &Node,
    projection: &api::NodeProjection,
    own: Option<&[NodeAddress]>,
) -> bool {
    is_uninitialized(new)
        && old.is_none_or(|old| {
            let (mut before, mut now) = (node_view(old, projection), node_view(new, projection));
            if own.is_some_and(|own| own == addresses::current(new)) {
                before.addresses.clear();
                now.addresses.clear();
            }
            !is_uninitialized(old)
                || before != now
                || addresses::provided_node_ip(old) != addresses::provided_node_ip(new)
                || old.labels().get(PROVIDER_LABEL) != new.labels().get(PROVIDER_LABEL)
        })
}

/// Whether the instance's metadata lacks a zone or region that LookupZones could give.
pub(super) fn lacks_zone(instance: &api::Instance) -> bool {
    let given = |value: &Option<String>| value.as_deref().is_some_and(|value| !value.is_empty());
    exists(instance) && !(given(&instance.zone) && given(&instance.region))
}

/// Adds the result of LookupZones to the answer. For an uninitialised Node, a failure of
/// LookupZones fails the whole answer. For other Nodes, the answer stays as it is.
pub(super) fn with_zone(
    node: &Node,
    mut instance: api::Instance,
    zone: Result<api::Zone, CallError>,
) -> Result<api::Instance, CallError> {
    match zone {
        Ok(zone) => {
            let given = |value: &String| !value.is_empty();
            instance.zone = instance.zone.filter(given).or(zone.zone);
            instance.region = instance.region.filter(given).or(zone.region);
            Ok(instance)
        }
        Err(trouble) if is_uninitialized(node) => Err(trouble),
        Err(_) => Ok(instance),
    }
}

fn initialize(
    node: &Node,
    answer: &Result<api::Instance, CallError>,
    known: Known<'_>,
) -> Result<NodePlan, Then> {
    let instance = existing_instance(answer)?;
    let new_id = match (provider_id(node), instance.provider_id.as_deref()) {
        (Some(_), _) => None,
        (None, Some(id)) if !id.is_empty() => Some(checked_id(id, known.prefixes)?),
        (None, _) => {
            return Err(Then::Lasting(
                "the provider reports no provider ID, and the Node has none".to_owned(),
            ));
        }
    };
    let wanted = addresses::wanted(node, &instance.addresses).map_err(Then::Lasting)?;
    let labels = labels::initial(node.labels(), instance);

    let mut events: Vec<NodeEvent> = dropped_event(&labels.dropped).into_iter().collect();
    events.push(NodeEvent {
        kind: EventType::Normal,
        reason: SYNCED,
        message: "Node synced successfully".to_owned(),
    });
    Ok(NodePlan {
        addresses: addresses::change(node, wanted),
        main: Some(NodePatch {
            provider_id: new_id,
            labels: labels.set,
            taints: Some(
                taints(node)
                    .iter()
                    .filter(|taint| taint.key != UNINITIALIZED && !planted!(AllTaintsGo))
                    .cloned()
                    .collect(),
            ),
        }),
        events,
        reserved: labels.reserved,
        needs_managed: false,
        then: Then::Initialized,
    })
}

fn refresh(node: &Node, answer: Option<&api::Instance>, known: Known<'_>) -> NodePlan {
    let mut plan = NodePlan::default();
    // The lifecycle controller handles a missing instance. Without an existing instance, this
    // function only makes the labels equal their beta labels (B-N10).
    let instance = answer.filter(|instance| exists(instance));
    if let Some(instance) = instance.filter(|instance| !instance.addresses.is_empty()) {
        match addresses::wanted(node, &instance.addresses) {
            Ok(wanted) => plan.addresses = addresses::change(node, wanted),
            Err(message) => plan.events.push(NodeEvent {
                kind: EventType::Warning,
                reason: NODE_ADDRESS_MISMATCH,
                message,
            }),
        }
    }
    let labels = labels::refreshed(node.labels(), instance, known.managed);
    plan.needs_managed = labels.needs_managed;
    if !labels.set.is_empty() {
        plan.main = Some(NodePatch {
            labels: labels.set,
            ..NodePatch::default()
        });
    }
    plan
}

fn existing_instance(answer: &Result<api::Instance, CallError>) -> Result<&api::Instance, Then> {
    let instance = answer
        .as_ref()
        .map_err(|trouble| Then::CallError(trouble.clone()))?;
    match instance.state() {
        api::InstanceState::Present | api::InstanceState::Running | api::InstanceState::Stopped => {
            Ok(instance)
        }
        api::InstanceState::Absent => Err(Then::Retry(
            "the provider says that this Node's instance does not exist".to_owned(),
        )),
        api::InstanceState::Pending => Err(Then::After(
            pending_delay(instance),
            "the cloud does not report this Node's instance yet".to_owned(),
        )),
        api::InstanceState::Unmanaged => Err(Then::LeftAlone),
        // Includes states of a newer contract.
        api::InstanceState::Unspecified => Err(Then::CallError(CallError::fault(format!(
            "the provider answered the unknown instance state {}",
            instance.state
        )))),
    }
}

fn exists(instance: &api::Instance) -> bool {
    use api::InstanceState::{Present, Running, Stopped};
    matches!(instance.state(), Present | Running | Stopped)
}

fn pending_delay(instance: &api::Instance) -> Duration {
    instance
        .retry_after
        .and_then(|delay| Duration::try_from(delay).ok())
        .map_or(PENDING_DELAY, |delay| {
            delay.clamp(Duration::from_secs(1), Duration::from_mins(10))
        })
}

/// A provider ID is immutable, and the ccm asks a provider only about IDs with one of its prefixes.
/// So the controller writes no other ID.
fn checked_id(id: &str, prefixes: &[String]) -> Result<String, Then> {
    if prefixes.iter().any(|prefix| id.starts_with(prefix)) && id.len() <= TEXT_LIMIT {
        Ok(id.to_owned())
    } else {
        let short: String = id.chars().take(100).collect();
        Err(Then::Lasting(format!(
            "the provider reports the provider ID {short:?}, which begins with none of its own prefixes or is too long"
        )))
    }
}

fn dropped_event(dropped: &[String]) -> Option<NodeEvent> {
    let (shown, more) = dropped.split_at(dropped.len().min(5));
    (!shown.is_empty()).then(|| NodeEvent {
        kind: EventType::Warning,
        reason: INVALID_NODE_LABEL,
        message: format!(
            "not valid as a label, and left out: {}{}",
            shown.join(", "),
            if more.is_empty() { "" } else { " and more" }
        ),
    })
}

fn nothing(then: Then) -> NodePlan {
    NodePlan {
        then,
        ..NodePlan::default()
    }
}

#[cfg(test)]
mod tests;
