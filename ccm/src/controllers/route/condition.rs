//! The condition `NetworkUnavailable` (B-R4).

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, NodeCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use tokio_util::sync::CancellationToken;

use crate::core::{WallClock, millis};
use crate::writes::{WriteError, Writes};

const TYPE: &str = "NetworkUnavailable";
/// How often a write is tried before the condition waits for a later look.
const TRIES: u32 = 6;
const FIRST_WAIT: Duration = Duration::from_millis(500);

/// Status and reason, as users know them.
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

/// The condition that is to be written; `None`: the Node has it. The message is not looked at (the stores drop it).
pub(super) fn change(node: &Node, created: bool, now: Timestamp) -> Option<NodeCondition> {
    let (status, reason, message) = wanted(created);
    let conditions = node
        .status
        .as_ref()
        .and_then(|status| status.conditions.as_ref());
    let old = conditions
        .into_iter()
        .flatten()
        .find(|condition| condition.type_ == TYPE);
    if old.is_some_and(|old| old.status == status && old.reason.as_deref() == Some(reason)) {
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

/// Writes it where the Node has another one. `false`: it could not be written, and a later look must try again.
pub(super) async fn write(
    writes: &Writes,
    wall: &WallClock,
    stop: &CancellationToken,
    mut node: Arc<Node>,
    created: bool,
) -> bool {
    let name = node.metadata.name.clone().unwrap_or_default();
    let mut wait = FIRST_WAIT;
    for _ in 0..TRIES {
        if stop.is_cancelled() {
            return true;
        }
        let Some(condition) = change(&node, created, wall()) else {
            return true;
        };
        let error = match writes.set_node_condition(&node, &condition).await {
            Ok(_) => {
                tracing::info!(
                    node = name,
                    status = condition.status,
                    reason = condition.reason,
                    "condition NetworkUnavailable set"
                );
                return true;
            }
            Err(WriteError::Gone | WriteError::Fenced(_)) => return true,
            // Somebody wrote in between: as it is now.
            Err(WriteError::Conflict) => match writes.read_node(&name).await {
                Ok(Some(fresh)) if fresh.metadata.uid == node.metadata.uid => {
                    node = Arc::new(fresh);
                    continue;
                }
                Ok(_) => return true,
                Err(error) => error,
            },
            Err(error @ (WriteError::Refused(_) | WriteError::Unavailable(_))) => error,
        };
        // To read it may be refused as well.
        if let WriteError::Refused(text) = error {
            tracing::warn!(
                node = name,
                error = text,
                "condition NetworkUnavailable not set"
            );
            return false;
        }
        tracing::debug!(node = name, %error, retry_in_ms = millis(wait), "condition NetworkUnavailable not set yet");
        if stop
            .run_until_cancelled(tokio::time::sleep(wait))
            .await
            .is_none()
        {
            return true;
        }
        wait *= 2;
    }
    tracing::warn!(
        node = name,
        "condition NetworkUnavailable not set: the API server did not take it"
    );
    false
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
        // What is there, what the routes say, and what is written.
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
