//! The machines behind the Nodes (`instance.proto`; Go's InstancesV2).

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
/// **Only [`Instance::absent`] means that an instance does not exist** (INST-1). It permits the
/// controller to delete the Node. Return it only if the cloud itself said so, about that instance,
/// in a complete answer. When in doubt, return a failure.
#[async_trait]
pub trait Instances: Send + Sync {
    /// Looks up this Node's instance. [`Node::provider_id`] identifies it if set, else the Node's
    /// name (INST-3).
    ///
    /// Failures: INVALID, PRECONDITION, CONFLICT (a name that fits several instances), THROTTLED,
    /// CREDENTIALS, UNAVAILABLE, INTERNAL. Deadline of the whole batch: 60 s.
    async fn lookup(
        &self,
        call: &Call,
        node: &Node,
        query: &InstanceQuery,
    ) -> Result<Instance, Failure>;

    /// Looks up several Nodes, at most [`InstanceOptions::max_batch`]. The answers have
    /// [`Node::name`] as their keys.
    ///
    /// The default calls [`Instances::lookup`] for each Node, [`InstanceOptions::lookups_at_once`]
    /// at a time. If a lookup panics, the answer for its Node alone is `failed: INTERNAL`. Override
    /// this method for a cloud with a batch API. If it returns `Err`, the whole call fails.
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

    /// The capabilities of this service.
    fn options(&self) -> InstanceOptions {
        InstanceOptions::default()
    }

    /// The listing, if the cloud can list all instances.
    fn listing(&self) -> Option<&dyn ListInstances> {
        None
    }
}

/// Lists all instances. It is a separate trait: the provider has the capability `listing` if
/// [`Instances::listing`] returns `Some`.
#[async_trait]
pub trait ListInstances: Send + Sync {
    /// All instances of this cluster that the provider sees, each with its provider ID. The list
    /// must be complete; otherwise return a failure (INST-6). The controller keeps a Node that the
    /// list shows. Deadline 5 min.
    async fn list(&self, call: &Call, facets: &[InstanceFacet]) -> Result<Vec<Instance>, Failure>;
}

/// The capabilities of the instances service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstanceOptions {
    /// The most Nodes in one call; 100 by default and if 0. The SDK answers a larger call with
    /// `failed: INVALID`.
    pub max_batch: u32,
    /// Whether the provider distinguishes the states running and stopped. If it does not, the
    /// controller never sets the shutdown taint. `false` by default.
    pub power_state: bool,
    /// How many calls of this service may run at once; 8 by default.
    pub max_in_flight: u32,
    /// How many [`Instances::lookup`] of one call run at once; 16 by default. The controller does
    /// not see this.
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

/// The facts that a lookup can request. A provider may omit facts that are not requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum InstanceFacet {
    /// Whether it exists.
    Existence,
    /// Whether it runs or is stopped.
    Power,
    /// Provider ID, type, addresses, zone, region, labels.
    Metadata,
}

/// The parameters of a lookup, the same for each Node in it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct InstanceQuery {
    /// The requested facts.
    pub facets: Vec<InstanceFacet>,
    /// The greatest age of an answer from the provider's cache. Zero means: ask the cloud (INST-5).
    pub max_age: Duration,
}

impl InstanceQuery {
    /// Requests these facets, from the cloud itself.
    pub fn new(facets: impl Into<Vec<InstanceFacet>>) -> Self {
        Self {
            facets: facets.into(),
            max_age: Duration::ZERO,
        }
    }

    /// Whether this facet is requested.
    pub fn wants(&self, facet: InstanceFacet) -> bool {
        self.facets.contains(&facet)
    }
}

/// The state of an instance. There is no default: see the constructors of [`Instance`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum InstanceState {
    /// It exists. Whether it runs is unknown.
    Present,
    /// It exists and runs, or is starting.
    Running,
    /// It exists and is shut down.
    Stopped,
    /// The cloud said with certainty that it does not exist.
    Absent,
    /// The cloud is making it, and does not show it completely yet (INST-13, INST-14).
    Pending,
    /// It does not belong to this cloud.
    Unmanaged,
}

/// An instance, or its absence. There is one constructor for each state of the contract.
///
/// Limits: a provider ID has 1 to 1,024 bytes and begins with one of the provider's prefixes
/// (PROV-8). An address of an IP kind parses as an IP address (INST-8). If an instance violates a
/// limit, the SDK logs it and answers `failed: INTERNAL`: for its Node in a lookup, for the whole
/// listing in ListInstances. The SDK logs and leaves out a type, zone or region that is no label
/// value. It does the same with an address of another kind that is no DNS name of at most 253 bytes
/// (INST-15).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Instance {
    /// Its state.
    pub state: InstanceState,
    /// Its provider ID, unique and stable for the life of the instance.
    pub provider_id: Option<String>,
    /// Its type, for example `m5.large`: a valid label value.
    pub instance_type: Option<String>,
    /// Its addresses, in the order for the Node's status. If the list is empty, the controller does
    /// not change the Node's addresses.
    pub addresses: Vec<NodeAddress>,
    /// Its zone: a valid label value.
    pub zone: Option<String>,
    /// Its region: a valid label value.
    pub region: Option<String>,
    /// Further labels for the Node. The controller drops keys in the domains `kubernetes.io`,
    /// `k8s.io` and `grpc-ccm.io`, and their subdomains.
    pub labels: BTreeMap<String, String>,
    /// With [`InstanceState::Pending`]: the delay before the controller asks again.
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

    /// It exists. Whether it runs is unknown.
    pub fn present(provider_id: impl Into<String>) -> Self {
        Self::with_state(InstanceState::Present, Some(provider_id.into()))
    }

    /// It exists and runs, or is starting.
    pub fn running(provider_id: impl Into<String>) -> Self {
        Self::with_state(InstanceState::Running, Some(provider_id.into()))
    }

    /// It exists and is shut down. With [`InstanceOptions::power_state`] a Node that is not Ready
    /// gets the shutdown taint.
    pub fn stopped(provider_id: impl Into<String>) -> Self {
        Self::with_state(InstanceState::Stopped, Some(provider_id.into()))
    }

    /// **The cloud said with certainty that this instance does not exist: the controller may delete
    /// its Node** (INST-1).
    ///
    /// Only for a complete answer of the cloud's API about exactly this instance. An error, an
    /// empty page, a timeout or refused credentials are a [`Failure`]. So is an instance that is
    /// missing in a cache, or in a list of another account or region. An instance that the cloud is
    /// known to be making is [`Instance::pending`]. A machine that is not this cloud's is
    /// [`Instance::unmanaged`].
    pub fn absent() -> Self {
        Self::with_state(InstanceState::Absent, None)
    }

    /// The cloud is making it, and does not show it completely yet (INST-13, INST-14). The
    /// controller deletes nothing, keeps the taint of an uninitialised Node, and asks again after
    /// `retry_after` (clamped to 1 s..10 min).
    pub fn pending(retry_after: Duration) -> Self {
        let mut instance = Self::with_state(InstanceState::Pending, None);
        instance.retry_after = Some(retry_after);
        instance
    }

    /// It does not belong to this cloud. The controller leaves the Node alone.
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

/// Runs `each` for every item, `at_once` at a time. A panic fails only its own item.
pub(crate) async fn one_by_one<'a, I: Sync, T: Send>(
    call: &Call,
    items: &'a [I],
    at_once: usize,
    key: impl Fn(&'a I) -> &'a str,
    each: impl Fn(&'a I) -> BoxFuture<'a, Result<T, Failure>>,
) -> Answers<T> {
    let ask = |item: &'a I| {
        let key = key(item);
        // Creating the future can panic (a method without `async`), and so can polling it.
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
