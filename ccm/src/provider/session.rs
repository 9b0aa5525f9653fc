//! A controller's handle on a provider: its identity, and the means to call it (the calls are in
//! `calls`).

use std::collections::BTreeSet;
use std::sync::Arc;

use cloud_provider_api::v1alpha1 as api;
use tokio_util::sync::CancellationToken;

use super::call_log::CallLog;
use super::calls::CallLimiters;
use super::connect::Link;
use super::handshake::Deadlines;
use super::limits::DEFAULT_REQUEST_BYTES;
use super::{CallError, CallErrorCode};
use crate::ownership::Ownership;

/// The default of `InstanceCapability.max_batch`.
pub(crate) const DEFAULT_MAX_BATCH: usize = 100;

/// An initialised session with a provider. All calls of the controllers go through one. It ends
/// with its connection, when this process stops leading, and when another session must replace it.
/// Calls after that are `Disconnected`.
pub(crate) struct Session {
    /// The validated answer of `GetProviderInfo`, with the claims that count.
    pub(crate) info: api::GetProviderInfoResponse,
    /// The parts of Nodes that the provider reads.
    pub(crate) projections: Projections,
    /// Which provider owns which Node and Service.
    pub(crate) ownership: Arc<Ownership>,
    pub(super) cluster: api::ClusterRef,
    pub(super) link: Link,
    pub(crate) deadlines: Deadlines,
    pub(crate) limiters: Arc<CallLimiters>,
    pub(super) max_request_bytes: usize,
    pub(super) log: CallLog,
    /// Cancelled when the session ends and its calls in flight must end too.
    pub(super) over: CancellationToken,
    /// Cancelled when the provider says that it was not initialised, and when other claims count.
    pub(super) uninitialized: CancellationToken,
}

/// The parts of Nodes that a provider reads, and the parts whose change is a reason for an Update.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Projections {
    /// The parts of a Node.
    pub(crate) nodes: api::NodeProjection,
    /// The parts of a load balancer's target.
    pub(crate) targets: api::NodeProjection,
    /// The parts of a target whose change is a reason for UpdateLoadBalancer
    /// (`LoadBalancerCapability.target_projection`).
    pub(crate) target_identity: api::NodeProjection,
}

impl Projections {
    fn of(info: &api::GetProviderInfoResponse) -> Self {
        let nodes = info.node_projection.as_ref();
        let offered = info.capabilities.as_ref();
        let balancers = offered.and_then(|offered| offered.load_balancers.as_ref());
        let target_identity = balancers.and_then(|c| c.target_projection.as_ref());
        Self {
            nodes: joined(nodes),
            targets: joined(nodes.into_iter().chain(target_identity)),
            target_identity: joined(target_identity),
        }
    }
}

/// A projection that shows the parts of all these. Equal parts make equal projections, in whatever
/// order the provider names them.
fn joined<'a>(
    all: impl IntoIterator<Item = &'a api::NodeProjection, IntoIter: Clone>,
) -> api::NodeProjection {
    let all = all.into_iter();
    let all_labels = all.clone().any(|one| one.all_labels);
    let labels = all.clone().filter(|_| !all_labels);
    let labels: BTreeSet<_> = labels.flat_map(|one| &one.label_keys).collect();
    let annotations: BTreeSet<_> = all.clone().flat_map(|one| &one.annotation_keys).collect();
    let groups: BTreeSet<_> = all.flat_map(|one| one.field_groups()).collect();
    api::NodeProjection {
        all_labels,
        label_keys: labels.into_iter().cloned().collect(),
        annotation_keys: annotations.into_iter().cloned().collect(),
        field_groups: groups.into_iter().map(i32::from).collect(),
    }
}

impl Session {
    pub(super) fn new(
        info: api::GetProviderInfoResponse,
        ownership: Arc<Ownership>,
        cluster: api::ClusterRef,
        link: Link,
        limiters: Arc<CallLimiters>,
        deadlines: Deadlines,
        log: CallLog,
    ) -> Self {
        let max_request_bytes = info.max_request_bytes.unwrap_or(DEFAULT_REQUEST_BYTES);
        Self {
            projections: Projections::of(&info),
            max_request_bytes: usize::try_from(max_request_bytes).unwrap_or(usize::MAX),
            info,
            ownership,
            cluster,
            link,
            deadlines,
            limiters,
            log,
            over: CancellationToken::new(),
            uninitialized: CancellationToken::new(),
        }
    }

    /// `InstanceCapability.max_batch`, or its default.
    pub(crate) fn max_batch(&self) -> usize {
        self.info
            .capabilities
            .as_ref()
            .and_then(|offered| offered.instances.as_ref()?.max_batch)
            .filter(|batch| *batch > 0)
            .map_or(DEFAULT_MAX_BATCH, |batch| batch as usize)
    }

    /// For people: the latest refusal of the provider's credentials, with its RPC.
    pub(crate) fn refused_credentials(&self) -> Option<String> {
        self.log.refused_credentials()
    }

    /// Whether the provider offers a capability.
    pub(crate) fn offers(&self, what: impl FnOnce(&api::Capabilities) -> bool) -> bool {
        self.info.capabilities.as_ref().is_some_and(what)
    }

    /// Returns when calls in flight end too: the connection is gone, or this process leads no more.
    pub(crate) async fn ended(&self) {
        tokio::select! {
            biased;
            () = self.over.cancelled() => {}
            () = self.link.ended() => {}
        }
    }

    /// Returns when the session takes no new calls. Either it is over, or the provider shuts down,
    /// or the session must be initialised again.
    pub(super) async fn closing(&self) {
        tokio::select! {
            biased;
            () = self.over.cancelled() => {}
            () = self.uninitialized.cancelled() => {}
            () = self.link.closing() => {}
        }
    }

    /// After NOT_INITIALIZED the session takes no new calls, so that the provider is initialised
    /// again.
    pub(super) fn failed(&self, trouble: &CallError) {
        if trouble.code == CallErrorCode::NotInitialized {
            self.uninitialized.cancel();
        }
    }

    /// Whether the session takes no new calls.
    pub(crate) fn is_over(&self) -> bool {
        self.over.is_cancelled() || self.uninitialized.is_cancelled() || self.link.is_closing()
    }
}
