//! Who a provider is, what it offers and how it is.

use std::time::{Duration, SystemTime};

use async_trait::async_trait;

use crate::{
    Call, Changes, Clusters, Failure, Instances, LoadBalancers, NodeProjection, Routes, Volumes,
    Zones,
};

/// A cloud. A vendor implements this trait and, of the others, only what its cloud has: a service is offered exactly where its accessor here returns
/// `Some`, and the capabilities that the controller sees follow from that.
///
/// ```
/// # use provider_sdk::*;
/// struct MyCloud;
///
/// #[async_trait]
/// impl Provider for MyCloud {
///     fn info(&self) -> ProviderInfo {
///         ProviderInfo::new("mycloud", "1.2.3").provider_id_prefix("mycloud://")
///     }
///     async fn initialize(&self, _: &Call, _: &InitializeRequest) -> Result<Initialized, Failure> {
///         Ok(Initialized::new("account 1234, region eu-1"))
///     }
///     fn instances(&self) -> Option<&dyn Instances> {
///         Some(self)
///     }
/// }
///
/// #[async_trait]
/// impl Instances for MyCloud {
///     async fn lookup(&self, _: &Call, node: &Node, _: &InstanceQuery) -> Result<Instance, Failure> {
///         Ok(Instance::running(format!("mycloud://{}", node.name)))
///     }
/// }
/// ```
///
/// Every method may be called many times at once and MUST be safe to repeat (CORE-6). A panic in any of them fails that one call with gRPC status INTERNAL, which
/// the controller reads as "unknown", and is logged; nothing else is harmed.
#[async_trait]
pub trait Provider: Send + Sync + 'static {
    /// Who the provider is. Makes no call to the cloud (PROV-1); must always return the same.
    fn info(&self) -> ProviderInfo;

    /// The elected leader says for which cluster the provider works from here on; again after every reconnect. Should verify the credentials and
    /// fail with CREDENTIALS where they are refused. Calls of this method never overlap. Until it has succeeded once, the SDK answers every other call that carries a
    /// cluster with NOT_INITIALIZED.
    ///
    /// Failures: INVALID, PRECONDITION, THROTTLED, CREDENTIALS, UNAVAILABLE, INTERNAL. Deadline 60 s.
    async fn initialize(
        &self,
        call: &Call,
        request: &InitializeRequest,
    ) -> Result<Initialized, Failure>;

    /// How the provider is, from memory: asked every 10 s, must not block (PROV-4).
    fn health(&self) -> Health {
        Health::ready()
    }

    /// When the cloud last answered, as the vendor knows it (see [`CloudContact`](crate::CloudContact)). The SDK reports the later of this and the last
    /// [`Call::cloud_answered`].
    fn last_cloud_success(&self) -> Option<SystemTime> {
        None
    }

    /// Instances, where the cloud has them.
    fn instances(&self) -> Option<&dyn Instances> {
        None
    }

    /// Zones, for clouds whose instances do not tell.
    fn zones(&self) -> Option<&dyn Zones> {
        None
    }

    /// Load balancers, where the cloud has them.
    fn load_balancers(&self) -> Option<&dyn LoadBalancers> {
        None
    }

    /// Routes, where the cloud has them.
    fn routes(&self) -> Option<&dyn Routes> {
        None
    }

    /// Clusters, where the cloud knows them.
    fn clusters(&self) -> Option<&dyn Clusters> {
        None
    }

    /// Labels for persistent volumes.
    fn volumes(&self) -> Option<&dyn Volumes> {
        None
    }

    /// Hints about changes, where the cloud tells.
    fn changes(&self) -> Option<&dyn Changes> {
        None
    }
}

/// Who a provider is (`GetProviderInfoResponse` without what the SDK fills in: boot ID, contract minor, request size, capabilities).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProviderInfo {
    /// The cloud's short name: lower-case letters, digits and dashes, at most 63 bytes.
    pub name: String,
    /// The provider's own version.
    pub version: String,
    /// What its provider IDs begin with, for example `aws://`: at least one where instances are offered, at most 16 of at most 253 bytes.
    pub provider_id_prefixes: Vec<String>,
    /// What it wants to see of each Node.
    pub node_projection: NodeProjection,
    /// The lowest minor of the contract that the controller must speak; 0 unless set.
    pub min_controller_minor: u32,
}

impl ProviderInfo {
    /// A provider with this name and version.
    pub fn new(name: impl Into<String>, version: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            version: version.into(),
            provider_id_prefixes: Vec::new(),
            node_projection: NodeProjection::default(),
            min_controller_minor: 0,
        }
    }

    /// Adds a prefix of provider IDs.
    #[must_use]
    pub fn provider_id_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.provider_id_prefixes.push(prefix.into());
        self
    }

    /// Says what the provider wants to see of each Node.
    #[must_use]
    pub fn node_projection(mut self, projection: NodeProjection) -> Self {
        self.node_projection = projection;
        self
    }

    /// What is wrong with it, if anything; the server refuses to start then.
    pub(crate) fn fault(&self, offers_instances: bool) -> Option<String> {
        let name_ok = !self.name.is_empty()
            && self.name.len() <= 63
            && self
                .name
                .bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
        if !name_ok {
            return Some(format!(
                "the provider's name {:?} is not 1 to 63 lower-case letters, digits and dashes",
                self.name
            ));
        }
        if offers_instances && self.provider_id_prefixes.is_empty() {
            return Some(
                "instances are offered without a provider_id_prefix; state what the provider IDs begin with, such as \"mycloud://\"".into(),
            );
        }
        if self.provider_id_prefixes.len() > 16 {
            return Some(format!(
                "{} provider ID prefixes are more than 16",
                self.provider_id_prefixes.len()
            ));
        }
        self.provider_id_prefixes
            .iter()
            .find(|prefix| prefix.is_empty() || prefix.len() > 253)
            .map(|prefix| {
                format!("the provider ID prefix {prefix:?} is empty or longer than 253 bytes")
            })
    }
}

/// For which cluster the provider works from here on. The cluster itself stands in [`Call::cluster`], its former owner IDs in
/// [`Call::previous_owner_ids`]. Where `initialize` fails, all stays as it was (PROV-17).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct InitializeRequest {
    /// The cluster's Pod CIDRs; empty where not configured.
    pub cluster_cidrs: Vec<String>,
    /// The version of the API server, for example `v1.36.3`.
    pub kubernetes_version: String,
    /// Nothing may be written to the cloud until an Initialize without it (PROV-20). The SDK refuses
    /// the calls that would write; what a provider writes elsewhere, in `initialize` for example, is
    /// its own to leave.
    pub read_only: bool,
}

/// The provider is ready for calls.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Initialized {
    /// Names the account, project and region that the credentials reach. Must be the same for the same three, whatever process answers (PROV-9): when it
    /// differs from the one last seen the controller creates and deletes nothing until an operator accepts it. 1 to 253 ASCII letters, digits, spaces and `. _ : / , @ = + -`.
    pub cloud_scope: String,
    /// The cloud's own ID of this cluster, where it has one.
    pub cluster_id: Option<String>,
    /// Wishes for longer deadlines.
    pub deadlines: DeadlineHints,
}

impl Initialized {
    /// Ready, with credentials that reach this scope.
    pub fn new(cloud_scope: impl Into<String>) -> Self {
        Self {
            cloud_scope: cloud_scope.into(),
            cluster_id: None,
            deadlines: DeadlineHints::default(),
        }
    }

    /// Names the cloud's own ID of this cluster.
    #[must_use]
    pub fn cluster_id(mut self, id: impl Into<String>) -> Self {
        self.cluster_id = Some(id.into());
        self
    }

    /// Wishes for longer deadlines.
    #[must_use]
    pub fn deadlines(mut self, hints: DeadlineHints) -> Self {
        self.deadlines = hints;
        self
    }
}

/// Wishes for longer deadlines; each raises the controller's default up to the operator's cap and never lowers it. `None` is no wish.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DeadlineHints {
    /// Lookups of instances and zones; default 60 s.
    pub lookup: Option<Duration>,
    /// Listings; default 5 min.
    pub list: Option<Duration>,
    /// Calls about one load balancer; default 5 min.
    pub load_balancer: Option<Duration>,
    /// Creating and deleting routes; default 2 min.
    pub routes: Option<Duration>,
}

/// How a provider is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HealthState {
    /// It is not ready yet: the controllers pause.
    Starting,
    /// All is well.
    Ready,
    /// It works with trouble: the controllers work and delete no Node.
    Degraded,
    /// It cannot work: the controllers pause.
    Broken,
}

/// How a provider is, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Health {
    /// How it is.
    pub state: HealthState,
    /// Why, for people; empty when ready. At most 1,024 bytes; cut beyond.
    pub message: String,
}

impl Health {
    /// All is well.
    pub fn ready() -> Self {
        Self {
            state: HealthState::Ready,
            message: String::new(),
        }
    }

    /// Not ready yet: the controllers pause.
    pub fn starting(why: impl Into<String>) -> Self {
        Self {
            state: HealthState::Starting,
            message: why.into(),
        }
    }

    /// It works with trouble: the controllers work and delete no Node.
    pub fn degraded(why: impl Into<String>) -> Self {
        Self {
            state: HealthState::Degraded,
            message: why.into(),
        }
    }

    /// It cannot work: the controllers pause.
    pub fn broken(why: impl Into<String>) -> Self {
        Self {
            state: HealthState::Broken,
            message: why.into(),
        }
    }
}
