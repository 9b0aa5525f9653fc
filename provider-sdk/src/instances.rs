//! What the cloud knows of the machines behind the Nodes (`instance.proto`; Go's InstancesV2).

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use async_trait::async_trait;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};

use crate::{Answers, Call, Failure, Node, NodeAddress};

/// The machines behind the Nodes.
///
/// **Only [`Instance::absent`] means gone** (INST-1): the controller deletes Nodes on the strength of it. Answer it only when the cloud itself said so, for that
/// instance, in an answer that was complete. In doubt: a failure.
#[async_trait]
pub trait Instances: Send + Sync {
    /// What is this Node's instance? It is identified by [`Node::provider_id`] where that is set, else by the Node's name (INST-3).
    ///
    /// Failures: INVALID, PRECONDITION, THROTTLED, CREDENTIALS, UNAVAILABLE, INTERNAL. Deadline of the whole batch: 60 s.
    async fn lookup(
        &self,
        call: &Call,
        node: &Node,
        query: &InstanceQuery,
    ) -> Result<Instance, Failure>;

    /// The same for several Nodes at once, at most [`InstanceOptions::max_batch`]; answers go by [`Node::name`].
    ///
    /// Unless overridden it calls [`Instances::lookup`] for each, [`InstanceOptions::lookups_at_once`] at a time; a panic in one is `failed: INTERNAL` for that
    /// Node alone. Clouds with a batch API override it. An error fails the call as a whole.
    async fn lookup_batch(
        &self,
        call: &Call,
        nodes: &[Node],
        query: &InstanceQuery,
    ) -> Result<Answers<Instance>, Failure> {
        let each = |node| self.lookup(call, node, query);
        Ok(one_by_one(
            call,
            nodes,
            self.options().lookups_at_once,
            |node| &node.name,
            each,
        )
        .await)
    }

    /// What the controller is told about this service.
    fn options(&self) -> InstanceOptions {
        InstanceOptions::default()
    }

    /// Listing, where the cloud can list completely.
    fn listing(&self) -> Option<&dyn ListInstances> {
        None
    }
}

/// Lists all instances; a separate trait, so that the capability `listing` follows from implementing it.
#[async_trait]
pub trait ListInstances: Send + Sync {
    /// All instances that the provider sees for this cluster, each with its provider ID. It must be complete, or fail (INST-6): the controller uses it to keep
    /// a Node from being deleted. Deadline 5 min.
    async fn list(&self, call: &Call, facets: &[InstanceFacet]) -> Result<Vec<Instance>, Failure>;
}

/// What the controller is told about the instances service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstanceOptions {
    /// The most Nodes that one call takes; 100 by default and where 0. A call with more is answered `failed: INVALID`.
    pub max_batch: u32,
    /// The states running and stopped are told apart; without it the shutdown taint is never set. `false` by default.
    pub power_state: bool,
    /// How many calls of this service may run at once; 8 by default.
    pub max_in_flight: u32,
    /// How many [`Instances::lookup`] of one call run at once; 16 by default. Not sent.
    pub lookups_at_once: usize,
}

impl Default for InstanceOptions {
    fn default() -> Self {
        Self {
            max_batch: 100,
            power_state: false,
            max_in_flight: 8,
            lookups_at_once: 16,
        }
    }
}

/// What is asked of an instance. A provider may leave out what was not asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum InstanceFacet {
    /// Whether it exists.
    Existence,
    /// Whether it runs or is stopped.
    Power,
    /// Provider ID, type, addresses, zone, region, labels.
    Metadata,
}

/// What is asked of every Node of a lookup.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct InstanceQuery {
    /// What is asked.
    pub facets: Vec<InstanceFacet>,
    /// How old an answer from the provider's cache may be; zero means: ask the cloud (INST-5).
    pub max_age: Duration,
}

impl InstanceQuery {
    /// Asks for these facets, from the cloud itself.
    pub fn new(facets: impl Into<Vec<InstanceFacet>>) -> Self {
        Self {
            facets: facets.into(),
            max_age: Duration::ZERO,
        }
    }

    /// Whether this facet is asked for.
    pub fn wants(&self, facet: InstanceFacet) -> bool {
        self.facets.contains(&facet)
    }
}

/// What the cloud says of an instance. There is no default: see the constructors of [`Instance`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum InstanceState {
    /// It exists; whether it runs is not known.
    Present,
    /// It exists and runs, or is starting.
    Running,
    /// It exists and is shut down.
    Stopped,
    /// The cloud said, for certain, that it does not exist.
    Absent,
    /// The cloud does not show it yet.
    Pending,
    /// It is not this cloud's.
    Unmanaged,
}

/// An instance, or its absence. Made by one of its constructors, one per state of the contract.
///
/// Limits: provider ID 1 to 1,024 bytes and beginning with one of the provider's prefixes (PROV-8), names 253 bytes, each address as its kind asks. An instance that
/// breaks one is answered `failed: INTERNAL` for its Node and logged.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Instance {
    /// What the cloud says.
    pub state: InstanceState,
    /// Its provider ID: unique and stable for the life of the instance.
    pub provider_id: Option<String>,
    /// Its type, for example `m5.large`: a valid label value.
    pub instance_type: Option<String>,
    /// Its addresses in the order in which the Node shall show them. Empty changes nothing at the Node.
    pub addresses: Vec<NodeAddress>,
    /// Its zone: a valid label value.
    pub zone: Option<String>,
    /// Its region: a valid label value.
    pub region: Option<String>,
    /// Further labels for the Node. Keys in the `kubernetes.io` and `k8s.io` namespaces are dropped by the controller.
    pub labels: BTreeMap<String, String>,
    /// With [`InstanceState::Pending`]: when to ask again.
    pub retry_after: Option<Duration>,
}

impl Instance {
    fn with_state(state: InstanceState, provider_id: Option<String>) -> Self {
        Self {
            state,
            provider_id,
            instance_type: None,
            addresses: Vec::new(),
            zone: None,
            region: None,
            labels: BTreeMap::new(),
            retry_after: None,
        }
    }

    /// It exists; whether it runs is not known.
    pub fn present(provider_id: impl Into<String>) -> Self {
        Self::with_state(InstanceState::Present, Some(provider_id.into()))
    }

    /// It exists and runs, or is starting.
    pub fn running(provider_id: impl Into<String>) -> Self {
        Self::with_state(InstanceState::Running, Some(provider_id.into()))
    }

    /// It exists and is shut down. With [`InstanceOptions::power_state`] the Node gets the shutdown taint.
    pub fn stopped(provider_id: impl Into<String>) -> Self {
        Self::with_state(InstanceState::Stopped, Some(provider_id.into()))
    }

    /// **The cloud said, for certain, that this instance does not exist: its Node may be deleted** (INST-1).
    ///
    /// Only for a complete answer of the cloud's API about exactly this instance. Not for an error, an empty page, a timeout, a refused
    /// credential, an instance missing from a cache or from a list of another account or region: those are a [`Failure`]. An instance that was asked for so soon
    /// that the cloud may not show it yet is [`Instance::pending`]; a machine that is not this cloud's is [`Instance::unmanaged`].
    pub fn absent() -> Self {
        Self::with_state(InstanceState::Absent, None)
    }

    /// The cloud does not show it yet: nothing is deleted, the Node stays tainted, the controller asks again after `retry_after` (clamped to 1 s..10 min).
    pub fn pending(retry_after: Duration) -> Self {
        let mut instance = Self::with_state(InstanceState::Pending, None);
        instance.retry_after = Some(retry_after);
        instance
    }

    /// It is not this cloud's: the Node is left alone.
    pub fn unmanaged() -> Self {
        Self::with_state(InstanceState::Unmanaged, None)
    }

    /// Sets the type.
    #[must_use]
    pub fn instance_type(mut self, instance_type: impl Into<String>) -> Self {
        self.instance_type = Some(instance_type.into());
        self
    }

    /// Adds an address.
    #[must_use]
    pub fn address(mut self, address: NodeAddress) -> Self {
        self.addresses.push(address);
        self
    }

    /// Sets the zone.
    #[must_use]
    pub fn zone(mut self, zone: impl Into<String>) -> Self {
        self.zone = Some(zone.into());
        self
    }

    /// Sets the region.
    #[must_use]
    pub fn region(mut self, region: impl Into<String>) -> Self {
        self.region = Some(region.into());
        self
    }

    /// Adds a label.
    #[must_use]
    pub fn label(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.labels.insert(key.into(), value.into());
        self
    }
}

/// Asks for each item on its own, `at_once` at a time, so that one item's panic is that item's failure.
pub(crate) async fn one_by_one<'a, I: Sync, T: Send>(
    call: &Call,
    items: &'a [I],
    at_once: usize,
    key: impl Fn(&'a I) -> &'a str,
    each: impl Fn(&'a I) -> BoxFuture<'a, Result<T, Failure>>,
) -> Answers<T> {
    let ask = |item: &'a I| {
        let key = key(item);
        // A panic can come out of making the future (a method written without `async`) as well as out of polling it.
        let made = std::panic::catch_unwind(AssertUnwindSafe(|| each(item)));
        async move {
            let answer = match made {
                Ok(future) => AssertUnwindSafe(future).catch_unwind().await,
                Err(panic) => Err(panic),
            };
            (key, answer)
        }
    };
    let mut rest = items.iter();
    let mut running: FuturesUnordered<_> = rest.by_ref().take(at_once.max(1)).map(ask).collect();
    let mut answers = Answers::new();
    while let Some((key, answer)) = running.next().await {
        let answer = answer.unwrap_or_else(|panic| {
            let text = crate::wrap::run::panic_text(&*panic);
            tracing::error!(
                rpc = call.rpc(),
                item = key,
                panic = text,
                "the provider's code panicked"
            );
            Err(
                Failure::internal(format!("the provider's code panicked: {text}"))
                    .with_reason("ProviderPanicked"),
            )
        });
        answers.set(key, answer);
        if let Some(item) = rest.next() {
            running.push(ask(item));
        }
    }
    answers
}
