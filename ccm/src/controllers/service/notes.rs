//! The events on a Service (B-S3): upstream's, the ccm's own and the provider's. Pure.

use std::borrow::Cow;

use cloud_provider_api::v1alpha1 as api;
use k8s_openapi::api::core::v1::Service;

use super::answer::Theirs;
use super::targets::TargetSet;
use crate::writes::{EventType, reason};

/// An event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Note {
    pub(super) kind: EventType,
    pub(super) reason: Cow<'static, str>,
    pub(super) message: String,
}

/// The calls about one load balancer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Op {
    Get,
    Ensure,
    Update,
    Delete,
}

impl Op {
    /// The RPC's name.
    pub(super) fn rpc(self) -> &'static str {
        match self {
            Self::Get => "GetLoadBalancer",
            Self::Ensure => "EnsureLoadBalancer",
            Self::Update => "UpdateLoadBalancer",
            Self::Delete => "DeleteLoadBalancer",
        }
    }
}

/// The reason of an event about a waiting Service.
pub(super) const PENDING: &str = reason::LOAD_BALANCER_PENDING;

fn normal(reason: &'static str, message: impl Into<String>) -> Note {
    Note {
        kind: EventType::Normal,
        reason: reason.into(),
        message: message.into(),
    }
}

fn warning(reason: &'static str, message: impl Into<String>) -> Note {
    Note {
        kind: EventType::Warning,
        reason: reason.into(),
        message: message.into(),
    }
}

pub(super) fn ensuring() -> Note {
    normal(reason::ENSURING_LOAD_BALANCER, "Ensuring load balancer")
}

pub(super) fn ensured() -> Note {
    normal(reason::ENSURED_LOAD_BALANCER, "Ensured load balancer")
}

pub(super) fn updated() -> Note {
    normal(
        reason::UPDATED_LOAD_BALANCER,
        "Updated load balancer with new hosts",
    )
}

pub(super) fn deleting() -> Note {
    normal(reason::DELETING_LOAD_BALANCER, "Deleting load balancer")
}

/// The provider is still working: the load balancer is not ready, or (▲S18) not deleted.
pub(super) fn pending(op: Op, what: &str) -> Note {
    let (reason, doing) = match op {
        Op::Delete => (reason::DELETING_LOAD_BALANCER, "Deleting load balancer"),
        Op::Get | Op::Ensure => (PENDING, "The load balancer is not ready yet"),
        Op::Update => (PENDING, "The load balancer's new hosts are not ready yet"),
    };
    let message = match what {
        "" => doing.to_owned(),
        what => format!("{doing}: {what}"),
    };
    normal(reason, message)
}

pub(super) fn deleted() -> Note {
    normal(reason::DELETED_LOAD_BALANCER, "Deleted load balancer")
}

pub(super) fn no_nodes() -> Note {
    warning(
        reason::UNAVAILABLE_LOAD_BALANCER,
        "There are no available nodes for LoadBalancer",
    )
}

/// The provider does not accept all targets.
pub(super) fn targets_cut(targets: &TargetSet, service: &Service) -> Note {
    let policy = service.spec.as_ref();
    let policy = policy.and_then(|spec| spec.external_traffic_policy.as_deref());
    let (chosen, all) = (targets.nodes.len(), targets.nodes.len() + targets.left_out);
    let next = if policy == Some("Local") {
        ". Only those of them that have a Pod of this Service serve it (externalTrafficPolicy: Local): choose such Nodes by the annotation grpc-ccm.io/node-selector"
    } else {
        ""
    };
    warning(
        reason::LOAD_BALANCER_TARGETS_CUT,
        format!(
            "The provider takes {chosen} targets for a load balancer, and {all} Nodes qualify: the ccm chose {chosen}, Ready ones first{next}"
        ),
    )
}

/// Delete: the provider kept the load balancer on purpose.
pub(super) fn retained(why: &str) -> Note {
    warning(
        reason::RETAINED_LOAD_BALANCER,
        format!("The provider keeps the load balancer in the cloud: {why}"),
    )
}

/// Delete: another component serves the Service, but this provider gave it a handle.
pub(super) fn orphaned() -> Note {
    sync_failed(
        "failed to delete load balancer: the provider reports that another component handles it, but this provider made a load balancer before (annotation grpc-ccm.io/load-balancer): delete that load balancer in the cloud by hand, then the annotation",
    )
}

/// The load balancer belongs to another provider, or to a class that is not served here.
pub(super) fn blocked(by: &str, class: Option<&str>, me: &str) -> Note {
    let class = class.map_or_else(String::new, |class| match class {
        "" => " when it had no class".to_owned(),
        class => format!(" when it had the class {class:?}"),
    });
    sync_failed(&format!(
        "provider {by:?} made a load balancer for this Service{class}, this is provider {me:?}: the ccm creates and deletes nothing. If that load balancer is gone from the cloud, remove the annotation grpc-ccm.io/load-balancer"
    ))
}

/// The load balancer belongs to another provider, and its Service no longer exists.
pub(super) fn left_behind(by: &str, me: &str) -> Note {
    let why = format!(
        "provider {by:?} made it, this is provider {me:?}: the ccm deletes nothing. Bring provider {by:?} back, or delete the load balancer in the cloud by hand and restart the ccm"
    );
    failed(Op::Delete, true, None, &why)
}

/// The load balancer's Service no longer exists (▲S16).
pub(super) fn without_service(load_balancer: &str, deletes: bool) -> Note {
    let next = if deletes {
        "the ccm deletes it, unless the API server still has the Service"
    } else {
        "it stays, and costs, until it is deleted in the cloud or by --orphaned-load-balancers=delete"
    };
    warning(
        reason::ORPHANED_LOAD_BALANCER,
        format!(
            "Load balancer {load_balancer:?} is marked for this Service, which does not exist any more: {next}"
        ),
    )
}

/// Further load balancers are marked for the Service.
pub(super) fn several(others: &[String]) -> Note {
    const NAMED: usize = 5;
    let names: Vec<_> = others
        .iter()
        .take(NAMED)
        .map(|it| format!("{it:?}"))
        .collect();
    let (count, names) = (others.len(), names.join(", "));
    let more = if count > NAMED { " and more" } else { "" };
    warning(
        reason::DUPLICATE_LOAD_BALANCER,
        format!(
            "Beside the load balancer that this Service uses (annotation grpc-ccm.io/load-balancer) the provider lists {count} marked for it: {names}{more}. They may cost money; check whether one serves traffic before you delete it"
        ),
    )
}

/// The provider's list lacks a load balancer that it confirmed.
pub(super) fn unlisted() -> Note {
    warning(
        reason::LOAD_BALANCER_NOT_LISTED,
        "The provider reported this Service's load balancer as ready, but its complete list of load balancers lacks it: it may be gone from the cloud; the ccm checks it",
    )
}

/// Ensure answered `ready` with an address of a load balancer that Get reported as not ours.
pub(super) fn taken_over(theirs: &Theirs) -> Note {
    let (whose, without) = if theirs.foreign {
        ("marked for somebody else", "")
    } else {
        ("not marked", " without --adopt-unmarked-load-balancers")
    };
    warning(
        reason::LOAD_BALANCER_TAKEN_OVER,
        format!(
            "The provider reported that load balancer {:?} at {} is {whose}, and then made this Service ready at the same address{without}: unless load balancers share that address, it took over that load balancer, and its owner should check",
            theirs.name,
            theirs.addresses.join(", ")
        ),
    )
}

pub(super) fn garbage() -> Note {
    warning(
        reason::INVALID_LOAD_BALANCER_HANDLE,
        "Cannot read the annotation grpc-ccm.io/load-balancer: the provider finds the load balancer by its own marks",
    )
}

/// Fields that the provider does not support (▲S15).
pub(super) fn unsupported(fields: &[&str], me: &str) -> Note {
    warning(
        reason::UNSUPPORTED_SERVICE_FIELD,
        format!("Provider {me:?} does not honour {}", fields.join(", ")),
    )
}

/// Annotations that the provider may not write. `flag` would allow those whose only fault is their
/// prefix.
pub(super) fn annotations_refused(keys: &[String], flag: Option<&str>) -> Note {
    const SHOWN: usize = 5;
    let shown: Vec<_> = keys
        .iter()
        .take(SHOWN)
        .map(|key| key.chars().take(100).collect::<String>())
        .collect();
    let next = match flag {
        Some(flag) => format!("; to allow it set {flag}"),
        None => String::new(),
    };
    warning(
        reason::ANNOTATIONS_REFUSED,
        format!(
            "The provider may not write {} annotation(s), such as {}{next}",
            keys.len(),
            shown.join(", ")
        ),
    )
}

pub(super) fn targets_failed(nodes: &[String], why: &str) -> Note {
    warning(
        reason::UPDATE_LOAD_BALANCER_FAILED,
        format!(
            "Error updating load balancer with new hosts [{}]: {why}",
            nodes.join(" ")
        ),
    )
}

/// A call failed. `departed`: the Service is gone from the API server.
pub(super) fn failed(op: Op, departed: bool, targets: Option<&TargetSet>, why: &str) -> Note {
    const SHOWN: usize = 20;
    match op {
        Op::Get => sync_failed(&format!("failed to get load balancer: {why}")),
        Op::Ensure => sync_failed(&format!("failed to ensure load balancer: {why}")),
        Op::Delete if departed => warning(
            reason::DELETE_LOAD_BALANCER_FAILED,
            format!("Error deleting load balancer: {why}"),
        ),
        Op::Delete => sync_failed(&format!("failed to delete load balancer: {why}")),
        Op::Update => {
            let nodes = targets.map_or(&[][..], |targets| &targets.nodes);
            let mut names: Vec<_> = nodes
                .iter()
                .take(SHOWN)
                .map(|node| node.name.clone())
                .collect();
            if nodes.len() > SHOWN {
                names.push(format!("<{} more>", nodes.len() - SHOWN));
            }
            warning(
                reason::UPDATE_LOAD_BALANCER_FAILED,
                format!(
                    "Error updating load balancer with new hosts [{}] [node names limited, total number of nodes: {}], error: {why}",
                    names.join(" "),
                    nodes.len()
                ),
            )
        }
    }
}

/// The cloud refuses the provider's credentials. One Service gets this event for all.
pub(super) fn credentials(provider: &str, why: &str) -> Note {
    warning(
        reason::PROVIDER_CREDENTIALS_REFUSED,
        format!(
            "The cloud refuses the credentials of provider {provider:?}: {why}. All its load balancers wait until the cloud accepts the credentials, not only this one"
        ),
    )
}

pub(super) fn sync_failed(what: &str) -> Note {
    warning(
        reason::SYNC_LOAD_BALANCER_FAILED,
        format!("Error syncing load balancer: {what}"),
    )
}

/// The provider's own events.
pub(super) fn of_provider(events: Vec<api::Event>) -> Vec<Note> {
    events
        .into_iter()
        .map(|event| {
            let word = !event.reason.is_empty()
                && event.reason.len() <= 128
                && event.reason.chars().all(|c| c.is_ascii_alphanumeric())
                // A provider may not use the ccm's reasons: stricter limits hold for its events.
                && !reason::is_ours(&event.reason);
            let kind = match event.severity() {
                api::EventSeverity::Warning => EventType::Warning,
                api::EventSeverity::Normal | api::EventSeverity::Unspecified => EventType::Normal,
            };
            Note {
                kind,
                reason: if word {
                    event.reason.into()
                } else {
                    reason::PROVIDER_EVENT.into()
                },
                message: event.message,
            }
        })
        .collect()
}
