//! What to do with a Service next. Pure.

use cloud_provider_api::v1alpha1::LoadBalancerCapability;
use k8s_openapi::api::core::v1::{LoadBalancerStatus, Service};

use super::fingerprint::{Fingerprint, service_inputs};
use super::handle::{self, Stored};
use super::record::{Cloud, Progress, Record, Seen, version};
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
    /// The Service is gone from the API server (B-S9): only its load balancer is left.
    pub(super) departed: bool,
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
pub(super) fn class(service: &Service) -> &str {
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
    record: Option<&Record>,
    me: &str,
) -> Option<String> {
    record
        .and_then(|record| record.unsaved_handle.as_ref())
        .filter(|(by, _)| by == me)
        .map(|(_, handle)| handle.clone())
        .or_else(|| Stored::of(service).handle_of(me).map(str::to_owned))
}

/// Decides. `record` is what this process knows of it; `targets` the set that it should have, `None` where the Service needs none.
pub(super) fn next_step(
    service: &Service,
    record: Option<&Record>,
    targets: Option<&TargetSet>,
    facts: &Facts<'_>,
) -> Step {
    let cloud = record.map_or(&Cloud::Unknown, |record| &record.cloud);
    let known = cloud.by().is_some();
    if facts.departed {
        return if known { Step::Delete } else { Step::Ignore };
    }
    let stored = Stored::of(service);
    let other = stored.provider().filter(|provider| *provider != facts.me);
    // Another ccm, whose provider has the same name, may serve the class that is written down.
    let theirs = stored.class().filter(|class| !facts.serves(class));
    let theirs = theirs.filter(|_| !known && !planted!(OtherClassIsMine));
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
        return wanted(service, &stored, record, targets, facts);
    }

    let changed = planted!(ReleasedOnTypeChange) && service.metadata.deletion_timestamp.is_none();
    if changed && has_finalizer(service) && stored.provider() == Some(facts.me) {
        return release(service, *cloud == Cloud::Kept, left);
    }
    match cloud {
        Cloud::Deleted | Cloud::Kept => return release(service, *cloud == Cloud::Kept, left),
        Cloud::MayStand { by } if by != facts.me => return blocked(by, None),
        Cloud::MayStand { .. } => {}
        Cloud::Unknown if !has_finalizer(service) || theirs.is_some() => return Step::Ignore,
        Cloud::Unknown => match other {
            Some(other) if facts.owner => return blocked(other, None),
            Some(_) => return Step::Ignore,
            None if stored.provider().is_none() && !facts.owner => return Step::Ignore,
            None => {}
        },
    }
    unsaved(service, record).map_or(Step::Delete, Step::StoreHandle)
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
    record: Option<&Record>,
    targets: Option<&TargetSet>,
    facts: &Facts<'_>,
) -> Step {
    if !has_finalizer(service) {
        return Step::AddFinalizer(add_finalizer(service, facts.me));
    }
    if let Some(patch) = unsaved(service, record) {
        return Step::StoreHandle(patch);
    }
    // Whose it is must be known when the class has vanished with the type; what cannot be read is left to whoever edited it.
    let known = *stored == Stored::Garbage || stored.class_of(facts.me) == Some(class(service));
    if !known && !planted!(ClassIsWrittenOnce) {
        let handle = stored.handle_of(facts.me);
        return Step::StoreHandle(annotate(service, facts.me, Some(class(service)), handle));
    }
    let Some(record) = record.filter(|record| !record.check) else {
        return if facts.capability.in_sync {
            Step::Get
        } else {
            Step::Ensure
        };
    };
    let asked = service_inputs(service);
    let confirmed = match record.progress {
        Progress::Elsewhere { inputs } if inputs == asked => return Step::Ignore,
        Progress::Confirmed { inputs, targets } if inputs == asked => targets,
        Progress::Pending { inputs } if inputs == Some(asked) => None,
        _ => return Step::Ensure,
    };
    let wanted = targets.map(|targets| targets.fingerprint);
    if wanted.is_none() || wanted == confirmed || facts.capability.ignores_nodes {
        Step::Ignore
    } else {
        Step::Update
    }
}

/// The patch that stores a handle which is not on the Service yet, in the name of who gave it.
fn unsaved(service: &Service, record: Option<&Record>) -> Option<ServicePatch> {
    let (by, handle) = record?.unsaved_handle.as_ref()?;
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
    annotate(service, me, class, handle)
}

fn annotate(
    service: &Service,
    me: &str,
    class: Option<&str>,
    handle: Option<&str>,
) -> ServicePatch {
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
            annotate(service, me, Some(class(service)), stored.handle_of(me))
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
pub(super) fn is_news(service: &Service, record: Option<&Record>) -> bool {
    match record {
        Some(record) if record.uid() == uid(service) => {
            // Older than what we wrote: the watch is behind.
            let stale = version(service) < version(&record.latest);
            !stale && Seen::of(service) != record.seen
        }
        Some(_) => true,
        None => asks(service) || has_finalizer(service),
    }
}

/// Whether a changed target set is a reason to call the provider for this Service now. A set that was tried waits for its retry; one that was not does not wait for
/// another's (B-S7), unless the provider is at it and has said when to ask again.
pub(super) fn wants_targets(record: &Record, targets: Fingerprint) -> bool {
    let concerned = match &record.progress {
        Progress::Confirmed { targets: now, .. } => *now != Some(targets),
        Progress::Rejected => true,
        Progress::Unconfirmed { .. } | Progress::Pending { .. } | Progress::Elsewhere { .. } => {
            false
        }
    };
    concerned && record.tried != Some(targets)
}

/// `metadata.uid`; empty where the API server gave none.
pub(super) fn uid(service: &Service) -> &str {
    service.metadata.uid.as_deref().unwrap_or_default()
}

#[cfg(test)]
mod tests;
