//! What the controllers hold of a provider: who it is, and the way to call it (the calls are in `calls`).

use std::sync::Arc;
use std::time::Duration;

use cloud_provider_api::v1alpha1 as api;
use tokio_util::sync::CancellationToken;

use super::Projection;
use super::call_log::CallLog;
use super::calls::CallLimiters;
use super::connect::Link;
use super::handshake::Deadlines;
use super::limits::DEFAULT_REQUEST_BYTES;
use crate::ownership::Ownership;

/// `InstanceCapability.max_batch` where the provider states none.
pub(crate) const DEFAULT_MAX_BATCH: usize = 100;

/// An initialised session with a provider: all calls of the controllers go through one. It ends with its connection, and with our
/// lead; calls after that are `Disconnected`.
pub(crate) struct Session {
    /// What `GetProviderInfo` answered, validated.
    pub(crate) info: api::GetProviderInfoResponse,
    /// What it wants to see of Nodes.
    pub(crate) projections: Projections,
    /// Who owns which Node and Service.
    pub(crate) ownership: Arc<Ownership>,
    pub(super) cluster: api::ClusterRef,
    pub(super) link: Link,
    pub(super) deadlines: Deadlines,
    pub(super) limiters: Arc<CallLimiters>,
    pub(super) max_request_bytes: usize,
    pub(super) log: CallLog,
    /// Cancelled when the session is over.
    pub(super) over: CancellationToken,
    /// Cancelled when the provider says that it was not initialised.
    pub(super) uninitialized: CancellationToken,
}

/// What a provider wants to see of Nodes, and when.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Projections {
    /// What it wants to see of Nodes.
    pub(crate) nodes: Projection,
    /// What it wants to see of targets of load balancers.
    pub(crate) targets: Projection,
    /// What of that is a reason to update them (`LoadBalancerCapability.target_projection`).
    pub(crate) target_identity: Projection,
}

impl Projections {
    fn of(info: &api::GetProviderInfoResponse) -> Self {
        let read =
            |wanted: Option<&api::NodeProjection>| wanted.map(Projection::from).unwrap_or_default();
        let nodes = read(info.node_projection.as_ref());
        let offered = info.capabilities.as_ref();
        let balancers = offered.and_then(|offered| offered.load_balancers.as_ref());
        let target_identity = read(balancers.and_then(|c| c.target_projection.as_ref()));
        Self {
            targets: nodes.and(&target_identity),
            target_identity,
            nodes,
        }
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

    /// `InstanceCapability.max_batch`, with its default.
    pub(crate) fn max_batch(&self) -> usize {
        self.info
            .capabilities
            .as_ref()
            .and_then(|offered| offered.instances.as_ref()?.max_batch)
            .filter(|batch| *batch > 0)
            .map_or(DEFAULT_MAX_BATCH, |batch| batch as usize)
    }

    /// How long a lookup is waited for.
    pub(crate) fn lookup_deadline(&self) -> Duration {
        self.deadlines.lookup
    }

    /// How long a call about a load balancer is waited for.
    pub(crate) fn load_balancer_deadline(&self) -> Duration {
        self.deadlines.load_balancer
    }

    /// How many lookups of instances may run at once: its `max_in_flight`, with its default and our limit.
    pub(crate) fn max_lookups(&self) -> usize {
        self.limiters.instances.width()
    }

    /// How many calls about load balancers may run at once: as `max_lookups`.
    pub(crate) fn max_load_balancer_calls(&self) -> usize {
        self.limiters.load_balancers.width()
    }

    /// How many calls about routes may run at once: as `max_lookups`.
    pub(crate) fn max_route_calls(&self) -> usize {
        self.limiters.routes.width()
    }

    /// How many calls about volumes may run at once: as `max_lookups`.
    pub(crate) fn max_volume_calls(&self) -> usize {
        self.limiters.volumes.width()
    }

    /// For people: that the cloud refuses the provider's credentials, and where.
    pub(crate) fn refused_credentials(&self) -> Option<String> {
        self.log.refused_credentials()
    }

    /// Whether the provider offers something.
    pub(crate) fn offers(&self, what: impl FnOnce(&api::Capabilities) -> bool) -> bool {
        self.info.capabilities.as_ref().is_some_and(what)
    }

    /// Returns when the session is over for calls in flight too: its connection is gone, or we do not lead any more.
    pub(crate) async fn ended(&self) {
        tokio::select! {
            biased;
            () = self.over.cancelled() => {}
            () = self.link.ended() => {}
        }
    }

    /// Returns when the session takes no new calls: it is over, its provider is shutting down or forgot the Initialize.
    pub(super) async fn closing(&self) {
        tokio::select! {
            biased;
            () = self.over.cancelled() => {}
            () = self.uninitialized.cancelled() => {}
            () = self.link.closing() => {}
        }
    }

    /// Whether the session takes no new calls.
    pub(crate) fn is_over(&self) -> bool {
        self.over.is_cancelled() || self.uninitialized.is_cancelled() || self.link.is_closing()
    }
}
