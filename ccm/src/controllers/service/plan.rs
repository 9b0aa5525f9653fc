//! What to do with a Service next. Pure.

mod applied;

use cloud_provider_api::v1alpha1::LoadBalancerCapability;
use k8s_openapi::api::core::v1::{LoadBalancerStatus, Service};

pub(super) use applied::{Applied, Seen, version};

use super::fingerprint::{Fingerprint, service_inputs};
use super::handle::{self, Stored};
use super::support::without_condition;
use super::targets::TargetSet;
use crate::planted::planted;
use crate::writes::{ServicePatch, ServiceStatusPatch};

/// The finalizer that keeps a Service until its load balancer is gone (B-S2).
pub(super) const FINALIZER: &str = "service.kubernetes.io/load-balancer-cleanup";

/// What the decision is made with, beside the Service itself.
#[derive(Clone, Copy, Debug)]
pub(super) struct Facts<'a> {
    /// The name that the provider states.
    pub(super) me: &'a str,
    /// Whether this provider serves the Service's class (B-S1).
    pub(super) owner: bool,
    /// What the provider's LoadBalancerService can do.
    pub(super) capability: &'a LoadBalancerCapability,
}

impl Facts<'_> {
    /// Whether this provider serves Services of this class; empty: of none.
    fn serves(&self, class: &str) -> bool {
        match class {
            "" => self.capability.default_class,
            class => self.capability.classes.iter().any(|ours| ours == class),
        }
    }
}

/// What comes next.
#[derive(Debug, PartialEq)]
pub(super) enum Step {
    /// Nothing.
    Ignore,
    /// Somebody else is written down: nothing is made or deleted behind the user's back.
    Blocked {
        /// The provider that is named there.
        by: String,
        /// The class, where it is that which is not ours.
        class: Option<String>,
    },
    /// Before the first Ensure (B-S2).
    AddFinalizer(ServicePatch),
    /// Before any other call (▲S19).
    StoreHandle(ServicePatch),
    /// Ask whether all is in sync (▲S13).
    Get,
    /// Make it as asked.
    Ensure,
    /// Give it these targets.
    Update,
    /// Take it away (▲S18).
    Delete,
    /// It is gone: let the Service go (B-S5).
    Release {
        /// First this.
        status: Option<ServiceStatusPatch>,
        /// Then this.
        metadata: Option<ServicePatch>,
    },
}

/// Whether the Service asks for a load balancer, whoever makes it.
pub(super) fn asks(service: &Service) -> bool {
    service.metadata.deletion_timestamp.is_none() && is_load_balancer(service)
}

fn is_load_balancer(service: &Service) -> bool {
    let spec = service.spec.as_ref();
    spec.is_some_and(|spec| spec.type_.as_deref() == Some("LoadBalancer"))
}

/// The Service's class; empty where it has none.
fn class(service: &Service) -> &str {
    let spec = service.spec.as_ref();
    spec.and_then(|spec| spec.load_balancer_class.as_deref())
        .unwrap_or_default()
}

/// Whether our finalizer is on the Service.
pub(super) fn has_finalizer(service: &Service) -> bool {
    service
        .metadata
        .finalizers
        .as_ref()
        .is_some_and(|finalizers| finalizers.iter().any(|name| name == FINALIZER))
}

/// The handle to send with the next call.
pub(super) fn handle_to_send(
    service: &Service,
    applied: Option<&Applied>,
    me: &str,
) -> Option<String> {
    applied
        .and_then(|applied| applied.unsaved_handle.as_ref())
        .filter(|(by, _)| by == me)
        .map(|(_, handle)| handle.clone())
        .or_else(|| Stored::of(service).handle_of(me).map(str::to_owned))
}

/// Decides. `applied` is what this process knows of it; `targets` the set that it should have, `None` where the Service needs none.
pub(super) fn next_step(
    service: &Service,
    applied: Option<&Applied>,
    targets: Option<&TargetSet>,
    facts: &Facts<'_>,
) -> Step {
    let stored = Stored::of(service);
    let other = stored.provider().filter(|provider| *provider != facts.me);
    let touched = applied.filter(|applied| applied.touched);
    // Another ccm, whose provider has the same name, may serve the class that is written down.
    let theirs = stored.class().filter(|class| !facts.serves(class));
    let theirs = theirs.filter(|_| touched.is_none() && !planted!(OtherClassIsMine));
    let left = theirs.is_none() && left(service, &stored, facts);
    if asks(service) && !left {
        if !facts.owner {
            return Step::Ignore;
        }
        if let Some(by) = other {
            return blocked(by, None);
        }
        if theirs.is_some() {
            return blocked(facts.me, theirs);
        }
        return wanted(service, &stored, applied, targets, facts);
    }

    let gone = applied.is_some_and(|applied| applied.gone);
    let changed = planted!(ReleasedOnTypeChange) && service.metadata.deletion_timestamp.is_none();
    if gone || changed && has_finalizer(service) && stored.provider() == Some(facts.me) {
        let retained = applied.is_some_and(|applied| applied.retained);
        return release(service, retained, left);
    }
    let by = touched.and_then(|applied| applied.by.as_deref());
    if let Some(by) = by.filter(|by| *by != facts.me) {
        return blocked(by, None);
    }
    if touched.is_none() {
        if !has_finalizer(service) || theirs.is_some() {
            return Step::Ignore;
        }
        match other {
            Some(other) if facts.owner => return blocked(other, None),
            Some(_) => return Step::Ignore,
            None if stored.provider().is_none() && !facts.owner => return Step::Ignore,
            None => {}
        }
    }
    unsaved(service, applied).map_or(Step::Delete, Step::StoreHandle)
}

fn blocked(by: &str, class: Option<&str>) -> Step {
    Step::Blocked {
        by: by.to_owned(),
        class: class.map(str::to_owned),
    }
}

/// Whether a Service that we took on went to somebody else meanwhile, with our finalizer still on it: its class is another one than was written down then. That its
/// class is not ours says nothing by itself: it may be the provider that serves fewer classes than before.
fn left(service: &Service, stored: &Stored, facts: &Facts<'_>) -> bool {
    let typed = is_load_balancer(service);
    let before = stored.class_of(facts.me);
    typed
        && !facts.owner
        && has_finalizer(service)
        && before.is_some_and(|before| before != class(service))
}

fn wanted(
    service: &Service,
    stored: &Stored,
    applied: Option<&Applied>,
    targets: Option<&TargetSet>,
    facts: &Facts<'_>,
) -> Step {
    if !has_finalizer(service) {
        return Step::AddFinalizer(add_finalizer(service, facts.me));
    }
    if let Some(patch) = unsaved(service, applied) {
        return Step::StoreHandle(patch);
    }
    // Whose it is must be known when the class has vanished with the type; what cannot be read is left to whoever edited it.
    let known = *stored == Stored::Garbage || stored.class_of(facts.me) == Some(class(service));
    if !known && !planted!(ClassIsWrittenOnce) {
        let handle = stored.handle_of(facts.me);
        return Step::StoreHandle(record(service, facts.me, Some(class(service)), handle));
    }
    let look = if facts.capability.in_sync {
        Step::Get
    } else {
        Step::Ensure
    };
    let Some(applied) = applied else {
        return look;
    };
    if applied.look {
        return look;
    }
    if applied.mend || applied.inputs != Some(service_inputs(service)) {
        return Step::Ensure;
    }
    let settled = facts.capability.ignores_nodes || applied.elsewhere;
    match targets {
        Some(targets) if !settled && applied.targets != Some(targets.fingerprint) => Step::Update,
        _ => Step::Ignore,
    }
}

/// The patch that stores a handle which is not on the Service yet, in the name of who gave it.
fn unsaved(service: &Service, applied: Option<&Applied>) -> Option<ServicePatch> {
    let (by, handle) = applied?.unsaved_handle.as_ref()?;
    (Stored::of(service).handle_of(by) != Some(handle.as_str()))
        .then(|| store_handle(service, by, Some(handle)))
}

/// The patch that stores this handle.
pub(super) fn store_handle(service: &Service, me: &str, handle: Option<&str>) -> ServicePatch {
    let stored = Stored::of(service);
    // What was written down when we took it on stays: the Service may have gone to somebody else since.
    let class = stored
        .class_of(me)
        .or_else(|| is_load_balancer(service).then(|| class(service)));
    record(service, me, class, handle)
}

fn record(service: &Service, me: &str, class: Option<&str>, handle: Option<&str>) -> ServicePatch {
    let value = handle::render(me, service.metadata.uid.as_deref(), class, handle);
    ServicePatch {
        annotations: [(handle::ANNOTATION.to_owned(), Some(value))].into(),
        ..ServicePatch::default()
    }
}

fn add_finalizer(service: &Service, me: &str) -> ServicePatch {
    let mut finalizers = service.metadata.finalizers.clone().unwrap_or_default();
    finalizers.push(FINALIZER.to_owned());
    let stored = Stored::of(service);
    let mut patch = match stored {
        Stored::Garbage => ServicePatch::default(),
        // The class vanishes when the type changes; whose the load balancer is, and whether it still is, must be known then.
        Stored::Nothing | Stored::By { .. } => {
            record(service, me, Some(class(service)), stored.handle_of(me))
        }
    };
    patch.finalizers = Some(finalizers);
    patch
}

/// What is left to write when the load balancer is gone.
fn release(service: &Service, retained: bool, left: bool) -> Step {
    let finalizers = service.metadata.finalizers.as_deref().unwrap_or_default();
    let others: Vec<String> = finalizers
        .iter()
        .filter(|name| *name != FINALIZER)
        .cloned()
        .collect();
    let ours = others.len() < finalizers.len();
    // Then the whole object goes with our finalizer, status and all.
    let vanishes = service.metadata.deletion_timestamp.is_some() && others.is_empty();
    // Of a Service that went to somebody else the status is theirs.
    let status = if vanishes || left {
        None
    } else {
        cleared(service)
    };
    let mut patch = ServicePatch::default();
    if ours {
        patch.finalizers = Some(others);
    }
    let annotated = Stored::of(service) != Stored::Nothing;
    if annotated && !retained && !vanishes {
        patch
            .annotations
            .insert(handle::ANNOTATION.to_owned(), None);
    }
    let metadata = (patch != ServicePatch::default()).then_some(patch);
    if status.is_none() && metadata.is_none() {
        Step::Ignore
    } else {
        Step::Release { status, metadata }
    }
}

/// The patch that leaves nothing of ours in the Service's status; `None`: there is nothing.
fn cleared(service: &Service) -> Option<ServiceStatusPatch> {
    let addresses = status_patch(service, &LoadBalancerStatus::default());
    match without_condition(service) {
        None => addresses,
        conditions => Some(ServiceStatusPatch {
            conditions,
            ..addresses.unwrap_or_default()
        }),
    }
}

/// The patch that makes the Service's status this; `None`: it is.
pub(super) fn status_patch(
    service: &Service,
    status: &LoadBalancerStatus,
) -> Option<ServiceStatusPatch> {
    let now = service
        .status
        .as_ref()
        .and_then(|status| status.load_balancer.clone())
        .unwrap_or_default();
    (comparable(now) != comparable(status.clone())).then(|| ServiceStatusPatch {
        load_balancer: Some(status.clone()),
        ..ServiceStatusPatch::default()
    })
}

/// With the API server's defaults filled in, and empty as absent.
fn comparable(mut status: LoadBalancerStatus) -> LoadBalancerStatus {
    status.ingress = status.ingress.filter(|ingress| !ingress.is_empty());
    for ingress in status.ingress.iter_mut().flatten() {
        ingress.ip = ingress.ip.take().filter(|ip| !ip.is_empty());
        ingress.hostname = ingress.hostname.take().filter(|name| !name.is_empty());
        ingress.ports = ingress.ports.take().filter(|ports| !ports.is_empty());
        if ingress.ip.is_some() && ingress.ip_mode.is_none() {
            ingress.ip_mode = Some("VIP".to_owned());
        }
    }
    status
}

/// Whether a Service that the watch shows now can need work: not our own write come back, not a label, not a status (B-S4).
pub(super) fn is_news(service: &Service, applied: Option<&Applied>) -> bool {
    match applied {
        Some(applied) if applied.uid == uid(service) => {
            // Older than what we wrote: the watch is behind.
            let stale = version(service) < version(&applied.latest);
            !stale && Seen::of(service) != applied.seen
        }
        Some(_) => true,
        None => asks(service) || has_finalizer(service),
    }
}

/// Whether a changed target set is a reason to call the provider for this Service now. A set that was tried waits for its retry; one that was not does not wait for
/// another's (B-S7), unless the provider is at it and has said when to ask again.
pub(super) fn wants_targets(applied: &Applied, targets: Fingerprint) -> bool {
    (applied.inputs.is_some() || applied.wrong || applied.mend)
        && !applied.pending
        && !applied.elsewhere
        && applied.targets != Some(targets)
        && applied.tried != Some(targets)
}

/// `metadata.uid`; empty where the API server gave none.
pub(super) fn uid(service: &Service) -> &str {
    service.metadata.uid.as_deref().unwrap_or_default()
}

#[cfg(test)]
mod tests;
