//! The next step for a Service. Pure.

use cloud_provider_api::v1alpha1::LoadBalancerCapability;
use k8s_openapi::api::core::v1::{LoadBalancerStatus, Service};
use kube::ResourceExt;

use super::fingerprint::{Fingerprint, service_inputs};
use super::handle::{self, Stored};
use super::record::{Cloud, Progress, Record, Seen, version};
use super::support::without_condition;
use super::targets::TargetSet;
use crate::planted::planted;
use crate::writes::{ServicePatch, ServiceStatusPatch};

/// The finalizer that keeps a Service until its load balancer is gone (B-S2).
pub(super) const FINALIZER: &str = "service.kubernetes.io/load-balancer-cleanup";

/// The inputs of the decision besides the Service, its record and its targets.
#[derive(Clone, Copy, Debug)]
pub(super) struct Facts<'a> {
    /// The name that the provider states.
    pub(super) me: &'a str,
    /// Whether this provider serves the Service's class (B-S1).
    pub(super) owner: bool,
    /// The Service is gone from the API server (▲S9), and only its load balancer is left.
    pub(super) departed: bool,
    /// The capability of the provider's LoadBalancerService.
    pub(super) capability: &'a LoadBalancerCapability,
}

impl Facts<'_> {
    /// Whether this provider serves Services of this class. An empty class stands for Services
    /// without a class.
    fn serves(&self, class: &str) -> bool {
        match class {
            "" => self.capability.default_class,
            class => self.capability.classes.iter().any(|ours| ours == class),
        }
    }
}

/// The next step.
#[derive(Debug, PartialEq)]
pub(super) enum Step {
    /// Do nothing.
    Ignore,
    /// The load balancer belongs to another provider, or to a class that is not served here. The
    /// ccm creates and deletes nothing.
    Blocked {
        /// The provider that owns the load balancer.
        by: String,
        /// The class in the annotation, if that is the reason.
        class: Option<String>,
    },
    /// Add the finalizer, before the first Ensure (B-S2).
    AddFinalizer(ServicePatch),
    /// Store the handle or the class, before any other call (▲S19).
    StoreHandle(ServicePatch),
    /// Ask whether everything is in sync (▲S13).
    Get,
    /// Create or correct the load balancer.
    Ensure,
    /// Set its targets.
    Update,
    /// Delete it (▲S18).
    Delete,
    /// The load balancer is deleted or kept: release the Service (B-S5).
    Release {
        /// Write this first.
        status: Option<ServiceStatusPatch>,
        /// Write this second.
        metadata: Option<ServicePatch>,
    },
}

/// Whether the Service wants a load balancer, from any provider.
pub(super) fn asks(service: &Service) -> bool {
    service.metadata.deletion_timestamp.is_none() && is_load_balancer(service)
}

fn is_load_balancer(service: &Service) -> bool {
    let spec = service.spec.as_ref();
    spec.is_some_and(|spec| spec.type_.as_deref() == Some("LoadBalancer"))
}

/// The Service's class; empty if it has none.
pub(super) fn class(service: &Service) -> &str {
    let spec = service.spec.as_ref();
    spec.and_then(|spec| spec.load_balancer_class.as_deref())
        .unwrap_or_default()
}

/// Whether the Service has our finalizer.
pub(super) fn has_finalizer(service: &Service) -> bool {
    service.finalizers().iter().any(|name| name == FINALIZER)
}

/// The handle for the next call.
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

/// Decides the next step. `record` is this process's knowledge. `targets` is the wanted set; `None`
/// if the Service needs none.
pub(super) fn next_step(
    service: &Service,
    record: Option<&Record>,
    targets: Option<&TargetSet>,
    facts: &Facts<'_>,
) -> Step {
    let cloud = record.map_or(&Cloud::Unknown, |record| &record.cloud);
    let known = cloud.by().is_some();
    if facts.departed {
        return match cloud.by() {
            Some(by) if by != facts.me => blocked(by, None),
            Some(_) => Step::Delete,
            None => Step::Ignore,
        };
    }
    let stored = Stored::of(service);
    let other = stored.provider().filter(|provider| *provider != facts.me);
    // Another ccm with a provider of the same name may serve the recorded class.
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
    if changed && has_finalizer(service) && stored.provider().is_some() {
        return release(service, false, left);
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

/// Whether a Service that this provider took on went to another component, with our finalizer still
/// on it. The class of such a Service differs from the recorded one. An unserved class alone is no
/// proof: the provider may serve fewer classes than before.
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
    // The annotation must show the owner after the class has vanished with the type. This step
    // leaves an unreadable annotation as it is.
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

/// The patch that stores a new handle, with the provider that gave it.
pub(super) fn unsaved(service: &Service, record: Option<&Record>) -> Option<ServicePatch> {
    let (by, handle) = record?.unsaved_handle.as_ref()?;
    (Stored::of(service).handle_of(by) != Some(handle.as_str()))
        .then(|| store_handle(service, by, Some(handle)))
}

pub(super) fn store_handle(service: &Service, me: &str, handle: Option<&str>) -> ServicePatch {
    let stored = Stored::of(service);
    // The recorded class stays: the Service may have gone to another component since.
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
    let mut finalizers = service.finalizers().to_vec();
    finalizers.push(FINALIZER.to_owned());
    let stored = Stored::of(service);
    let mut patch = match stored {
        Stored::Garbage => ServicePatch::default(),
        // The class vanishes when the type changes. After that, the annotation must still show the
        // load balancer's owner.
        Stored::Nothing | Stored::By(_) => {
            annotate(service, me, Some(class(service)), stored.handle_of(me))
        }
    };
    patch.finalizers = Some(finalizers);
    patch
}

/// The writes that are left after the load balancer is deleted or kept.
fn release(service: &Service, retained: bool, left: bool) -> Step {
    let finalizers = service.finalizers();
    let others: Vec<String> = finalizers
        .iter()
        .filter(|name| *name != FINALIZER)
        .cloned()
        .collect();
    let ours = others.len() < finalizers.len();
    // The whole object vanishes with our finalizer, including its status.
    let vanishes = service.metadata.deletion_timestamp.is_some() && others.is_empty();
    // If another component serves the Service now, the status is that component's.
    let status = cleared(service).filter(|_| !vanishes && !left);
    let mut patch = ServicePatch::default();
    if ours {
        patch.finalizers = Some(others);
    }
    let annotated = Stored::of(service) != Stored::Nothing;
    if annotated && !retained && !vanishes {
        patch.annotations = [(handle::ANNOTATION.to_owned(), None)].into();
    }
    let metadata = (patch != ServicePatch::default()).then_some(patch);
    if status.is_none() && metadata.is_none() {
        Step::Ignore
    } else {
        Step::Release { status, metadata }
    }
}

/// The patch that removes our part of the Service's status. `None`: there is none.
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

/// The patch that sets the Service's status. `None`: the Service has this status already.
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

/// Fills in the API server's defaults, and treats empty fields as absent.
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

/// Whether this version of a Service can need work. Our own writes, labels and the status do not
/// count (B-S4).
pub(super) fn is_news(service: &Service, record: Option<&Record>) -> bool {
    match record {
        Some(record) if record.uid() == uid(service) => {
            // Older than the version that this process last read or wrote: the watch is behind.
            let stale = version(service) < version(&record.latest);
            !stale && Seen::of(service) != record.seen
        }
        Some(_) => true,
        None => asks(service) || has_finalizer(service),
    }
}

/// Whether a changed target set is a reason for a call now. A set that was tried waits for its
/// retry. A new set does not wait in [`Progress::Confirmed`] and [`Progress::Rejected`] (B-S7). In
/// other states it causes no call by itself.
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

/// `metadata.uid`, or an empty string.
pub(super) fn uid(service: &Service) -> &str {
    service.metadata.uid.as_deref().unwrap_or_default()
}

#[cfg(test)]
mod tests;
