//! The condition `NetworkUnavailable` (B-R4). The ccm writes it even without a provider, so its
//! keys are in a queue without a driver.

use std::time::Duration;

use futures::stream::{StreamExt, unfold};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, NodeCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use tokio::time::Instant;

use super::ledger::NodeName;
use super::{Routes, State};
use crate::cluster::Change;
use crate::core::{Backoff, millis};
use crate::queue::Requeue;
use crate::writes::WriteError;

const TYPE: &str = "NetworkUnavailable";
/// The limit for concurrent writes of conditions.
const WRITERS: usize = 16;
/// The delays after a failed write of a condition.
pub(super) const BACKOFF: Backoff =
    Backoff::new(Duration::from_millis(500), Duration::from_secs(30));
/// The delay after a failure that only a person can fix (a missing right, a policy).
const REFUSED_AGAIN: Duration = Duration::from_mins(1);
/// The pause before the controller changes a status that another program wrote. That program may
/// write it again at once.
const CONTESTED: Duration = Duration::from_secs(10);
/// Unless the API server refuses the write, the log warns once: at this many failed attempts in a
/// row.
const WARNED_AT: u32 = 6;
/// An attempt ends after this many conflicts.
const MOST_CONFLICTS: u32 = 6;

/// Status, reason and message, as upstream has them.
fn wanted(created: bool) -> (&'static str, &'static str, &'static str) {
    if created {
        ("False", "RouteCreated", "RouteController created a route")
    } else {
        (
            "True",
            "NoRouteCreated",
            "RouteController failed to create a route",
        )
    }
}

/// The status and reason of the Node's condition.
fn shown(node: &Node) -> Option<(&str, Option<&str>)> {
    let conditions = node.status.as_ref()?.conditions.as_ref()?;
    let own = conditions.iter().find(|one| one.type_ == TYPE)?;
    Some((&own.status, own.reason.as_deref()))
}

/// The status that another program gave the Node's condition. `None`: its reason is one of ours, or
/// the Node has no such condition.
fn anothers(node: &Node) -> Option<&str> {
    let (status, reason) = shown(node)?;
    let ours = [true, false].map(|created| Some(wanted(created).1));
    (!ours.contains(&reason)).then_some(status)
}

/// The condition to write. `None`: the Node has it. The message does not count, because the stores
/// drop it.
pub(super) fn change(node: &Node, created: bool, now: Timestamp) -> Option<NodeCondition> {
    let (status, reason, message) = wanted(created);
    if shown(node) == Some((status, Some(reason))) {
        return None;
    }
    Some(NodeCondition {
        type_: TYPE.to_owned(),
        status: status.to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message.to_owned()),
        last_heartbeat_time: Some(Time(now)),
        last_transition_time: Some(Time(now)),
    })
}

impl Routes {
    /// Compares the Node's condition with its routes when the condition has changed, because the
    /// routes may have changed while the store still lacked the last written condition. If another
    /// program wrote the right status with its own reason, only the next pass or call writes ours:
    /// some network plugins write theirs again at once.
    pub(super) fn follow_condition(&self, change: &Change<Node>) {
        let Some(node) = change.new.as_deref() else {
            return;
        };
        if change.old.as_deref().and_then(shown) == shown(node) {
            return;
        }
        if let (Some(name), Some(uid)) = (&node.metadata.name, &node.metadata.uid) {
            let (name, uid) = (name.clone(), uid.clone());
            let (name, state) = (NodeName { name, uid }, self.state());
            match (anothers(node), state.ledger.verdict(&name.uid)) {
                (Some(status), Some(created)) => {
                    if status != wanted(created).0 && self.conditions.due(&name).is_none() {
                        let later = Instant::now() + CONTESTED;
                        self.conditions.add_at(name, later);
                    }
                }
                _ => self.conclude(&state, &name),
            }
        }
    }

    /// Queues the Node if the state of its routes differs from its condition. An unknown state
    /// changes nothing.
    pub(super) fn conclude(&self, state: &State, node: &NodeName) {
        let Some(created) = state.ledger.verdict(&node.uid) else {
            return;
        };
        let Some(object) = self.node(node) else {
            return;
        };
        let differs = change(&object, created, (self.context().wall)()).is_some();
        // A Node that waits, after a failed write or because another program changed the condition,
        // is compared when it is due.
        if differs && self.conditions.due(node).is_none() {
            self.conditions.add(node.clone());
        }
    }

    /// Writes conditions. Returns after the stop, when the writes in flight have ended.
    pub(super) async fn write_conditions(&self) {
        let due = unfold((), |()| async {
            let nodes = self.conditions.next_batch(1, Duration::ZERO).await;
            Some((nodes, ()))
        });
        due.take_until(self.context().stop.cancelled())
            .for_each_concurrent(WRITERS, |nodes| async move {
                for node in nodes {
                    let outcome = self.set_condition(&node).await;
                    self.conditions.done(&node, outcome);
                }
            })
            .await;
    }

    /// Writes the condition if the Node's differs.
    async fn set_condition(&self, name: &NodeName) -> Requeue {
        let (Some(created), Some(mut node)) =
            (self.state().ledger.verdict(&name.uid), self.node(name))
        else {
            return Requeue::Forget;
        };
        let (context, node_name) = (self.context(), name.name.as_str());
        let mut error = WriteError::Conflict;
        for _ in 0..MOST_CONFLICTS {
            let Some(condition) = change(&node, created, (context.wall)()) else {
                return Requeue::Forget;
            };
            error = match context.writes.set_node_condition(&node, &condition).await {
                Ok(_) => {
                    tracing::info!(
                        node = node_name,
                        status = condition.status,
                        reason = condition.reason,
                        "condition NetworkUnavailable set"
                    );
                    return Requeue::Forget;
                }
                Err(WriteError::Gone | WriteError::Fenced(_)) => return Requeue::Forget,
                // Another writer changed the Node, so its current version is compared.
                Err(WriteError::Conflict) => match context.writes.read_node(node_name).await {
                    Ok(Some(fresh)) if fresh.metadata.uid == node.metadata.uid => {
                        node = fresh.into();
                        continue;
                    }
                    Ok(_) => return Requeue::Forget,
                    Err(error) => error,
                },
                Err(error) => error,
            };
            break;
        }
        // The API server may refuse the read as well.
        if let WriteError::Refused(error) = error {
            tracing::warn!(
                node = node_name,
                error,
                retry_in_ms = millis(REFUSED_AGAIN),
                "condition NetworkUnavailable not set"
            );
            return Requeue::At(Instant::now() + REFUSED_AGAIN);
        }
        if self.conditions.failures(name) + 1 == WARNED_AT {
            tracing::warn!(node = node_name, %error, "condition NetworkUnavailable not set: the write keeps failing");
        } else {
            tracing::debug!(node = node_name, %error, "condition NetworkUnavailable not set yet");
        }
        Requeue::Retry
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn b_r4_the_condition_is_written_only_on_a_change() {
        let set = |status: &str, reason: &str| {
            Some(NodeCondition {
                type_: TYPE.to_owned(),
                status: status.to_owned(),
                reason: Some(reason.to_owned()),
                ..NodeCondition::default()
            })
        };
        // The Node's condition, whether the routes exist, and the condition to write.
        let rows = [
            (None, true, Some(("False", "RouteCreated"))),
            (None, false, Some(("True", "NoRouteCreated"))),
            (set("False", "RouteCreated"), true, None),
            (
                set("False", "CniIsUp"),
                true,
                Some(("False", "RouteCreated")),
            ),
            (
                set("False", "Elsewhere"),
                true,
                Some(("False", "RouteCreated")),
            ),
            (
                set("True", "Elsewhere"),
                false,
                Some(("True", "NoRouteCreated")),
            ),
            (
                set("False", "RouteCreated"),
                false,
                Some(("True", "NoRouteCreated")),
            ),
            (set("True", "NoRouteCreated"), false, None),
            (
                set("True", "NoRouteCreated"),
                true,
                Some(("False", "RouteCreated")),
            ),
        ];
        for (old, created, written) in rows {
            let mut node = Node::default();
            let ready = NodeCondition {
                type_: "Ready".to_owned(),
                ..NodeCondition::default()
            };
            let conditions = [Some(ready), old.clone()];
            node.status.get_or_insert_default().conditions =
                Some(conditions.into_iter().flatten().collect());
            let change = change(&node, created, Timestamp::UNIX_EPOCH);
            let shown = change.as_ref().map(|change| {
                (
                    change.status.as_str(),
                    change.reason.as_deref().unwrap_or_default(),
                )
            });
            assert_eq!(shown, written, "{old:?} {created}");
            if let Some(change) = change {
                let text = change.message.unwrap();
                assert!(text.starts_with("RouteController "), "{text}");
                assert!(change.last_transition_time.is_some());
            }
        }
    }
}
