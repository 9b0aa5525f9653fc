//! The meaning of a provider's answer, and the writes and events that follow. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use api::{
    delete_load_balancer_response as delete, ensure_load_balancer_response as ensure,
    get_load_balancer_response as get, update_load_balancer_response as update,
};
use cloud_provider_api::v1alpha1 as api;
use ipnet::IpNet;
use k8s_openapi::api::core::v1::{LoadBalancerStatus, Service};
use kube::ResourceExt;

use super::handle::Stored;
use super::notes::{self, Note, Op};
use super::plan::store_handle;
use super::targets::TargetSet;
use crate::core::is_valid_key;
use crate::core::text::TEXT_LIMIT;
use crate::planted::planted;
use crate::provider::{
    BalancerAnswer, CallError, CallErrorCode, cut, load_balancer_status, pending_after,
};
use crate::writes::ServicePatch;

/// A call of the provider: the inputs of the request, and the limits for its answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Call<'a> {
    pub(super) op: Op,
    /// The name that the called provider states.
    pub(super) me: &'a str,
    /// The Service is gone from the API server (▲S9).
    pub(super) departed: bool,
    /// The Service in the request.
    pub(super) service: &'a Service,
    /// The known handle. If the provider may adopt unmarked load balancers, the requests of Ensure
    /// and Delete leave it out.
    pub(super) handle: Option<&'a str>,
    /// The targets in the request.
    pub(super) targets: Option<&'a TargetSet>,
    /// The operator allows the provider to adopt unmarked load balancers.
    pub(super) adopt_unmarked: bool,
    /// Prefixes of annotation keys that the provider may write.
    pub(super) prefixes: &'a [String],
    /// The ranges of the cluster's Services. A load balancer's address must not be in them.
    pub(super) service_ranges: &'a [IpNet],
}

/// The result of a call.
#[derive(Debug)]
pub(super) struct Answer {
    /// A handle that is not stored yet. `metadata` stores it.
    pub(super) new_handle: Option<String>,
    /// To write before the next call.
    pub(super) metadata: Option<ServicePatch>,
    /// Events to record, even if the writes fail.
    pub(super) notes: Vec<Note>,
    pub(super) verdict: Verdict,
}

/// The meaning of an answer.
#[derive(Debug, PartialEq)]
pub(super) enum Verdict {
    /// Get: the load balancer is in sync. With its status, if the provider gave it.
    InSync(Option<LoadBalancerStatus>),
    /// Get: Ensure is needed. `exists`: a load balancer of ours, or parts of one, exist.
    OutOfSync {
        exists: bool,
        /// A load balancer in its place that is not ours.
        theirs: Option<Theirs>,
    },
    /// Ensure succeeded.
    Ready(LoadBalancerStatus, Troubled),
    /// Update succeeded.
    Updated(Troubled),
    /// Update: the load balancer is gone (B-S10).
    Missing,
    /// Ensure, Update: another component serves the Service (B-S8).
    Elsewhere,
    /// Delete: nothing of this provider is left (▲S18), or the provider kept the load balancer on
    /// purpose (`retained`).
    Gone { retained: bool },
    /// Delete: another component serves the Service, but a handle is known, or the answer has one
    /// (▲S8).
    Orphaned,
    /// Ask again after this time. The text is the provider's description of its progress.
    Pending(Duration, String),
    /// The call failed. Its effect may be unknown.
    Failed(CallError),
}

/// A load balancer that is not this Service's, according to the provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Theirs {
    /// Whether it is marked for somebody else. Otherwise it is unmarked.
    pub(super) foreign: bool,
    /// Its name in the cloud.
    pub(super) name: String,
    /// Its first addresses.
    pub(super) addresses: Vec<String>,
}

impl Theirs {
    fn of(found: &api::LoadBalancer) -> Option<Self> {
        let foreign = match found.ownership() {
            api::Ownership::Foreign => true,
            api::Ownership::Unmarked => false,
            api::Ownership::Ours | api::Ownership::Unspecified => return None,
        };
        let ingress = found.status.as_ref().map(|status| &status.ingress[..]);
        let addresses = ingress
            .unwrap_or_default()
            .iter()
            .flat_map(|point| [&point.ip, &point.hostname])
            .flatten()
            .filter(|address| !address.is_empty())
            .take(Self::SHOWN)
            .cloned()
            .collect();
        Some(Self {
            foreign,
            name: found.load_balancer_name.clone(),
            addresses,
        })
    }

    const SHOWN: usize = 10;

    /// Whether the provider seems to have taken it over without permission: `ready` has one of its
    /// addresses that the Service did not ask for (`spec.loadBalancerIP`). `adopt_unmarked` is the
    /// permission for unmarked load balancers.
    pub(super) fn taken_by(
        &self,
        ready: &LoadBalancerStatus,
        asked_for: Option<&str>,
        adopt_unmarked: bool,
    ) -> bool {
        let granted = adopt_unmarked && !self.foreign;
        let now = ready.ingress.iter().flatten();
        !granted
            && now
                .flat_map(|point| [&point.ip, &point.hostname])
                .flatten()
                .filter(|address| asked_for != Some(address))
                .any(|address| self.addresses.contains(address))
    }
}

/// Targets that the provider could not attach.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Troubled {
    /// The names of the first few.
    pub(super) nodes: Vec<String>,
    /// The error of the first one.
    pub(super) message: String,
    /// The longest delay that the provider asked for.
    pub(super) retry_after: Option<Duration>,
}

impl Troubled {
    const SHOWN: usize = 10;

    fn of(errors: Vec<api::TargetError>) -> Self {
        let mut all = Self::default();
        for error in errors {
            if planted!(TargetErrorsAreDropped) {
                break;
            }
            let trouble = error.failure.map(CallError::from);
            if all.nodes.is_empty() {
                all.message = trouble.as_ref().map_or_else(String::new, CallError::why);
            }
            all.retry_after = all
                .retry_after
                .max(trouble.and_then(|trouble| trouble.retry_after));
            if all.nodes.len() < Self::SHOWN {
                all.nodes.push(error.node_name);
            }
        }
        all
    }

    pub(super) fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }
}

impl Answer {
    /// The call itself failed.
    pub(super) fn failed(trouble: CallError) -> Self {
        Self {
            new_handle: None,
            metadata: None,
            notes: Vec::new(),
            verdict: Verdict::Failed(trouble),
        }
    }
}

pub(super) fn after_get(call: &Call<'_>, answered: BalancerAnswer<get::Outcome>) -> Answer {
    use get::Outcome;
    answer(call, answered, |outcome, target_errors| {
        let found = match outcome? {
            Outcome::Failed(failure) => return Err(failure.into()),
            Outcome::Found(found) => found,
        };
        let shown = |status| load_balancer_status(status, call.service_ranges);
        let status = found.status.as_ref().map(shown).transpose()?;
        let written = call.service.status.as_ref();
        let written = written.and_then(|status| status.load_balancer.as_ref());
        let present = found.presence() == api::LoadBalancerPresence::Present;
        let ours = found.ownership() == api::Ownership::Ours;
        // A load balancer that is in sync has an address (LB-14, LB-19) and no target errors. If
        // the answer has no status, the address is the one in the Service's status.
        let in_sync = present
            && ours
            && found.in_sync == Some(true)
            && target_errors.is_empty()
            && (planted!(InSyncWithoutStatus) || !status.as_ref().or(written).is_none_or(nowhere));
        if in_sync {
            return Ok(Verdict::InSync(status));
        }
        Ok(Verdict::OutOfSync {
            exists: ours && found.presence() != api::LoadBalancerPresence::Absent,
            theirs: Theirs::of(&found).filter(|_| present),
        })
    })
}

pub(super) fn after_ensure(call: &Call<'_>, answered: BalancerAnswer<ensure::Outcome>) -> Answer {
    use ensure::Outcome;
    answer(call, answered, |outcome, target_errors| {
        let ready = match outcome? {
            Outcome::Failed(failure) => return Err(failure.into()),
            Outcome::Pending(pending) => return Ok(waits(&pending)),
            Outcome::HandledElsewhere(_) => return Ok(Verdict::Elsewhere),
            Outcome::Ready(ready) => ready,
        };
        // A missing status does not mean an empty one, so the controller writes no status.
        let Some(status) = &ready.status else {
            let what = "EnsureLoadBalancer answered ready without a status";
            return Err(CallError::fault(what));
        };
        let status = load_balancer_status(status, call.service_ranges)?;
        // Upstream would overwrite the old address with the empty status. A provider without an
        // address must answer `pending` (LB-19).
        if nowhere(&status) {
            let what = "EnsureLoadBalancer answered ready without an address or host name";
            return Err(CallError::fault(what));
        }
        Ok(Verdict::Ready(status, Troubled::of(target_errors)))
    })
}

pub(super) fn after_update(call: &Call<'_>, answered: BalancerAnswer<update::Outcome>) -> Answer {
    use update::Outcome;
    answer(call, answered, |outcome, target_errors| match outcome {
        Err(trouble) if trouble.code == CallErrorCode::NotFound => Ok(Verdict::Missing),
        Err(trouble) => Err(trouble),
        Ok(Outcome::Failed(failure)) => Err(failure.into()),
        Ok(Outcome::Pending(pending)) => Ok(waits(&pending)),
        Ok(Outcome::HandledElsewhere(_)) => Ok(Verdict::Elsewhere),
        Ok(Outcome::Done(_)) => Ok(Verdict::Updated(Troubled::of(target_errors))),
    })
}

pub(super) fn after_delete(call: &Call<'_>, answered: BalancerAnswer<delete::Outcome>) -> Answer {
    use delete::Outcome;
    let given = answered.handle.as_ref();
    let has_handle = call.handle.is_some() || given.is_some_and(|handle| !handle.is_empty());
    let mut note = None;
    let mut answer = answer(call, answered, |outcome, _| match outcome? {
        Outcome::Failed(failure) => Err(failure.into()),
        Outcome::Pending(_) if planted!(ReleasedTooEarly) => Ok(Verdict::Gone { retained: false }),
        Outcome::Pending(pending) => Ok(waits(&pending)),
        Outcome::Retained(retained) => {
            note = Some(notes::retained(&cut(&retained.reason)));
            Ok(Verdict::Gone { retained: true })
        }
        Outcome::HandledElsewhere(_) if has_handle => {
            note = Some(notes::orphaned());
            Ok(Verdict::Orphaned)
        }
        Outcome::HandledElsewhere(_) | Outcome::Done(_) => Ok(Verdict::Gone { retained: false }),
    });
    answer.notes.extend(note);
    answer
}

fn nowhere(status: &LoadBalancerStatus) -> bool {
    status.ingress.as_ref().is_none_or(Vec::is_empty)
}

fn waits(pending: &api::Pending) -> Verdict {
    // The message is cut, because the controller keeps it while the Service waits.
    Verdict::Pending(pending_after(pending), cut(&pending.message))
}

/// `read` makes the verdict of the outcome and the target errors.
fn answer<O>(
    call: &Call<'_>,
    answered: BalancerAnswer<O>,
    read: impl FnOnce(Result<O, CallError>, Vec<api::TargetError>) -> Result<Verdict, CallError>,
) -> Answer {
    let verdict = read(answered.outcome, answered.target_errors);
    let verdict = verdict.unwrap_or_else(Verdict::Failed);
    let mut reported: Vec<Note> = notes::of_provider(answered.events);
    let mut patch = ServicePatch::default();
    let mut new_handle = None;
    let handle = answered.handle.filter(|handle| !handle.is_empty());
    // A deleted load balancer has no handle.
    if let Some(handle) = handle.filter(|_| verdict != Verdict::Gone { retained: false }) {
        if handle.len() > TEXT_LIMIT {
            return Answer::failed(CallError::fault(format!(
                "the handle is {} bytes long, {TEXT_LIMIT} are allowed",
                handle.len()
            )));
        }
        let stored = Stored::of(call.service);
        if stored.handle_of(call.me) != Some(handle.as_str()) && !planted!(HandleIsNotStored) {
            patch = store_handle(call.service, call.me, Some(&handle));
            new_handle = Some(handle);
        }
    }
    if let Some(changes) = answered.annotations {
        let (granted, refused) = annotations(call, changes);
        patch.annotations.extend(granted);
        if !refused.is_empty() {
            let flag = flag_for(&refused, call.prefixes);
            reported.push(notes::annotations_refused(&refused, flag.as_deref()));
        }
    }
    Answer {
        new_handle,
        metadata: (patch != ServicePatch::default()).then_some(patch),
        notes: reported,
        verdict,
    }
}

/// Returns the requested annotation changes that are to be written, and the keys that are refused.
fn annotations(
    call: &Call<'_>,
    changes: api::AnnotationChanges,
) -> (BTreeMap<String, Option<String>>, Vec<String>) {
    /// All annotations of an object may have 256 KiB in total. The provider may not make those that
    /// it may write grow beyond this much, so that the rest is left to other writers.
    const MOST_BYTES: usize = 64 * 1024;
    let now = call.service.annotations();
    let size = |key: &str, value: Option<&String>| value.map_or(0, |it| key.len() + it.len());
    let own = now.iter().filter(|(key, _)| may_write(key, call.prefixes));
    let mut sizes: BTreeMap<String, usize> = own
        .map(|(key, value)| (key.clone(), size(key, Some(value))))
        .collect();
    let mut bytes: usize = sizes.values().sum();
    let mut granted = BTreeMap::new();
    let mut refused = Vec::new();
    let wishes = changes.remove.into_iter().map(|key| (key, None)).chain(
        changes
            .set
            .into_iter()
            .map(|(key, value)| (key, Some(value))),
    );
    // What makes room comes first.
    let mut wishes: Vec<_> = wishes.collect();
    wishes.sort_by_key(|(key, value)| {
        let before = sizes.get(key).copied().unwrap_or(0);
        value.is_some() && size(key, value.as_ref()) > before
    });
    for (key, value) in wishes {
        let (size, before) = (size(&key, value.as_ref()), sizes.get(&key).copied());
        let before = before.unwrap_or(0);
        let after = bytes - before + size;
        if !may_write(&key, call.prefixes) || size > before && after > MOST_BYTES {
            refused.push(key);
            continue;
        }
        bytes = after;
        sizes.insert(key.clone(), size);
        if now.get(&key) == value.as_ref() {
            granted.remove(&key);
        } else {
            granted.insert(key, value);
        }
    }
    (granted, refused)
}

/// The flag with the prefixes that the refused keys need. `None` if no further prefix would allow a
/// key, or if the text would be too long.
fn flag_for(refused: &[String], prefixes: &[String]) -> Option<String> {
    const LONGEST: usize = 500;
    let mut wanted = prefixes.to_vec();
    for key in refused {
        let prefix = match key.split_once('/') {
            Some((domain, _)) => format!("{domain}/"),
            None => key.clone(),
        };
        // A key with a granted prefix is refused for its size.
        let granted = may_write(key, &wanted);
        if !granted && may_write(key, std::slice::from_ref(&prefix)) {
            wanted.push(prefix);
        }
    }
    let flag = format!("--provider-annotation-prefixes={}", wanted.join(","));
    (wanted.len() > prefixes.len() && flag.len() <= LONGEST).then_some(flag)
}

fn may_write(key: &str, prefixes: &[String]) -> bool {
    !key.starts_with(crate::core::DOMAIN)
        && prefixes
            .iter()
            .any(|prefix| key.starts_with(prefix.as_str()))
        && is_annotation_key(key)
}

/// Whether the API server accepts this annotation key: in lower case, it must have the syntax of a
/// label key. One invalid key would make the API server refuse the whole patch, including the
/// handle.
fn is_annotation_key(key: &str) -> bool {
    is_valid_key(&key.to_ascii_lowercase())
}

#[cfg(test)]
mod tests;
