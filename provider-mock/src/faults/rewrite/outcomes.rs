//! The shapes of answers: one outcome, one result for each item, the parts of a listing.

use cloud_provider_api::v1alpha1 as pb;
use prost::Message;

use super::failure_of;
use crate::faults::{Fault, FaultKind};

/// Makes the message and the reason of a failure too long.
fn long(failure: &mut pb::Failure) {
    failure.message = "m".repeat(2000);
    failure.reason = "R".repeat(2000);
}

/// A message with one outcome: an answer, a result of a batch, a part of a listing, or a message of
/// WatchChanges.
pub(super) trait SingleOutcome: Message + Default {
    fn fail(&mut self, failure: pb::Failure);
    fn failure(&mut self) -> Option<&mut pb::Failure>;
    fn unset(&mut self);
}

macro_rules! single_outcome {
    ($($message:ident, $field:ident, $oneof:path;)*) => {
        $(impl SingleOutcome for pb::$message {
            fn fail(&mut self, failure: pb::Failure) {
                use $oneof as Of;
                self.$field = Some(Of::Failed(failure));
            }
            fn failure(&mut self) -> Option<&mut pb::Failure> {
                use $oneof as Of;
                match &mut self.$field {
                    Some(Of::Failed(failure)) => Some(failure),
                    _ => None,
                }
            }
            fn unset(&mut self) {
                self.$field = None;
            }
        })*
    };
}

single_outcome! {
    InitializeResponse, outcome, pb::initialize_response::Outcome;
    WatchChangesResponse, change, pb::watch_changes_response::Change;
    GetLoadBalancerResponse, outcome, pb::get_load_balancer_response::Outcome;
    EnsureLoadBalancerResponse, outcome, pb::ensure_load_balancer_response::Outcome;
    UpdateLoadBalancerResponse, outcome, pb::update_load_balancer_response::Outcome;
    DeleteLoadBalancerResponse, outcome, pb::delete_load_balancer_response::Outcome;
    GetControlPlaneAddressResponse, outcome, pb::get_control_plane_address_response::Outcome;
    GetVolumeLabelsResponse, outcome, pb::get_volume_labels_response::Outcome;
    LookupInstanceResult, outcome, pb::lookup_instance_result::Outcome;
    LookupZoneResult, outcome, pb::lookup_zone_result::Outcome;
    RouteResult, outcome, pb::route_result::Outcome;
    ListInstancesResponse, part, pb::list_instances_response::Part;
    ListLoadBalancersResponse, part, pb::list_load_balancers_response::Part;
    ListRoutesResponse, part, pb::list_routes_response::Part;
    ListClustersResponse, part, pb::list_clusters_response::Part;
}

pub(super) fn single<M: SingleOutcome>(fault: &Fault, answer: &mut M) {
    match fault.kind {
        FaultKind::FailureAfter => answer.fail(failure_of(fault)),
        FaultKind::UnsetOutcome => answer.unset(),
        FaultKind::LongText => {
            if answer.failure().is_none() {
                answer.fail(failure_of(fault));
            }
            answer.failure().into_iter().for_each(long);
        }
        _ => {}
    }
}

/// An answer with one result for each item.
pub(super) trait Batch: Message + Default {
    type Item: SingleOutcome + Clone;
    fn failed(&mut self) -> &mut Option<pb::Failure>;
    fn results(&mut self) -> &mut Vec<Self::Item>;
    fn key(item: &mut Self::Item) -> &mut String;
    /// The item's UID, if it has one.
    fn uid(item: &mut Self::Item) -> Option<&mut String>;
}

macro_rules! batches {
    ($($message:ident, $item:ident, $key:ident, $($uid:ident)?;)*) => {
        $(impl Batch for pb::$message {
            type Item = pb::$item;
            fn failed(&mut self) -> &mut Option<pb::Failure> {
                &mut self.failed
            }
            fn results(&mut self) -> &mut Vec<Self::Item> {
                &mut self.results
            }
            fn key(item: &mut Self::Item) -> &mut String {
                &mut item.$key
            }
            #[allow(unused_variables)] // The results of routes have no UID.
            fn uid(item: &mut Self::Item) -> Option<&mut String> {
                let uid: Option<&mut String> = None;
                $(let uid = Some(&mut item.$uid);)?
                uid
            }
        })*
    };
}

batches! {
    LookupInstancesResponse, LookupInstanceResult, node_name, node_uid;
    LookupZonesResponse, LookupZoneResult, node_name, node_uid;
    CreateRoutesResponse, RouteResult, route_key, ;
    DeleteRoutesResponse, RouteResult, route_key, ;
}

/// Applies the fault to the answer of a batch. Kinds that concern single items apply to the items
/// with these `keys`; `None`: to all.
pub(super) fn batch<M: Batch>(fault: &Fault, keys: Option<&[String]>, answer: &mut M) {
    let value = |default: &str| fault.value.clone().unwrap_or_else(|| default.into());
    let ours = |item: &mut M::Item| keys.is_none_or(|keys| keys.contains(M::key(item)));
    match fault.kind {
        FaultKind::FailureAfter if keys.is_none() => {
            answer.results().clear();
            *answer.failed() = Some(failure_of(fault));
        }
        FaultKind::ResultsMissing => answer.results().retain_mut(|item| !ours(item)),
        FaultKind::ResultsReordered => answer.results().reverse(),
        FaultKind::ResultsDuplicated => {
            let twice: Vec<_> = answer
                .results()
                .iter_mut()
                .filter_map(|item| ours(item).then(|| item.clone()))
                .collect();
            answer.results().extend(twice);
        }
        FaultKind::ResultsUnasked => {
            let mut item = answer.results().first().cloned().unwrap_or_default();
            *M::key(&mut item) = value("not-asked");
            answer.results().push(item);
        }
        FaultKind::ResultsSwapped => {
            let mut keys: Vec<_> = answer
                .results()
                .iter_mut()
                .map(|item| (M::key(item).clone(), M::uid(item).cloned()))
                .collect();
            if !keys.is_empty() {
                keys.rotate_left(1);
            }
            for (item, (key, uid)) in answer.results().iter_mut().zip(keys) {
                *M::key(item) = key;
                if let (Some(to), Some(uid)) = (M::uid(item), uid) {
                    *to = uid;
                }
            }
        }
        FaultKind::WrongUid => {
            for item in answer.results().iter_mut() {
                if ours(item)
                    && let Some(uid) = M::uid(item)
                {
                    *uid = value("wrong-uid");
                }
            }
        }
        FaultKind::Failure | FaultKind::FailureAfter => {
            answer
                .results()
                .iter_mut()
                .filter_map(|item| ours(item).then_some(item))
                .for_each(|item| item.fail(failure_of(fault)));
        }
        FaultKind::UnsetOutcome | FaultKind::LongText => {
            answer
                .results()
                .iter_mut()
                .filter_map(|item| ours(item).then_some(item))
                .for_each(|item| single(fault, item));
            // A call that failed as a whole has no results.
            let whole = answer.failed().as_mut();
            whole
                .filter(|_| fault.kind == FaultKind::LongText)
                .into_iter()
                .for_each(long);
        }
        _ => {}
    }
}

/// A part of a listing.
pub(super) trait Part: SingleOutcome {
    fn end(&mut self) -> Option<&mut pb::ListEnd>;
    fn ended(total: u64) -> Self;
}

macro_rules! parts {
    ($($message:ident, $part:path;)*) => {
        $(impl Part for pb::$message {
            fn end(&mut self) -> Option<&mut pb::ListEnd> {
                use $part as Of;
                match &mut self.part {
                    Some(Of::End(end)) => Some(end),
                    _ => None,
                }
            }
            fn ended(total: u64) -> Self {
                use $part as Of;
                Self { part: Some(Of::End(pb::ListEnd { total })) }
            }
        })*
    };
}

parts! {
    ListInstancesResponse, pb::list_instances_response::Part;
    ListLoadBalancersResponse, pb::list_load_balancers_response::Part;
    ListRoutesResponse, pb::list_routes_response::Part;
    ListClustersResponse, pb::list_clusters_response::Part;
}

pub(super) fn listing<M: Part>(fault: &Fault, messages: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let mut parts: Vec<M> = messages
        .iter()
        .filter_map(|bytes| M::decode(bytes.as_slice()).ok())
        .collect();
    match fault.kind {
        FaultKind::EndMissing => parts.retain_mut(|part| part.end().is_none()),
        FaultKind::WrongTotal => parts
            .iter_mut()
            .filter_map(Part::end)
            .for_each(|end| end.total += 1),
        FaultKind::ListEmpty => parts = vec![M::ended(0)],
        FaultKind::UnsetOutcome => parts.iter_mut().for_each(SingleOutcome::unset),
        FaultKind::FailedMidway => {
            parts.retain_mut(|part| part.end().is_none());
            let mut failed = M::default();
            failed.fail(failure_of(fault));
            parts.push(failed);
        }
        FaultKind::FailureAfter | FaultKind::LongText => {
            let mut failed = M::default();
            single(fault, &mut failed);
            parts = vec![failed];
        }
        _ => {}
    }
    parts.iter().map(Message::encode_to_vec).collect()
}
