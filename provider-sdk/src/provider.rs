//! A provider's identity, its services and its health.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;

use crate::{
    Call, Changes, Clusters, Failure, Instances, LoadBalancerOptions, LoadBalancers,
    NodeProjection, Routes, Volumes, Zones,
};

/// A cloud. A vendor implements this trait, and the trait of each service that its cloud has. The
/// SDK offers a service if this trait's method for the service returns `Some`.
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
/// Several calls of a method may run at once, except of [`Provider::initialize`]. Every method MUST
/// be safe to repeat (CORE-6). The SDK logs a panic, and ends that one call with gRPC status
/// INTERNAL, which the controller reads as "unknown". In the default implementation of a batch
/// method, a panic about one item fails only that item.
#[async_trait]
pub trait Provider: Send + Sync + 'static {
    /// The provider's identity. This method makes no call to the cloud (PROV-1), and must always
    /// return the same value.
    fn info(&self) -> ProviderInfo;

    /// Prepares the provider for the cluster of this call. The elected leader calls it, also after
    /// every reconnect. Verify the credentials, and fail with CREDENTIALS if the cloud refuses
    /// them. Calls of this method never overlap. Until the first success, the SDK answers other
    /// calls for a cluster with NOT_INITIALIZED.
    ///
    /// Failures: INVALID, PRECONDITION, THROTTLED, CREDENTIALS, UNAVAILABLE, INTERNAL. Deadline 60
    /// s.
    async fn initialize(
        &self,
        call: &Call,
        request: &InitializeRequest,
    ) -> Result<Initialized, Failure>;

    /// The provider's health, from memory. The SDK calls this method for each `Probe`, which the
    /// controller sends at least every 10 s. The method must not block (PROV-4).
    fn health(&self) -> Health {
        Health::ready()
    }

    /// The time of the cloud's last successful answer, as the vendor knows it (see
    /// [`CloudContact`](crate::CloudContact)). The SDK reports the later of this and the last
    /// [`Call::cloud_answered`].
    fn last_cloud_success(&self) -> Option<SystemTime> {
        None
    }

    /// Instances, if the cloud has them.
    fn instances(&self) -> Option<&dyn Instances> {
        None
    }

    /// Zones, for clouds whose instances do not have them.
    fn zones(&self) -> Option<&dyn Zones> {
        None
    }

    /// Load balancers, if the cloud has them.
    fn load_balancers(&self) -> Option<&dyn LoadBalancers> {
        None
    }

    /// Routes, if the cloud has them.
    fn routes(&self) -> Option<&dyn Routes> {
        None
    }

    /// Clusters, if the cloud knows them.
    fn clusters(&self) -> Option<&dyn Clusters> {
        None
    }

    /// Labels for persistent volumes.
    fn volumes(&self) -> Option<&dyn Volumes> {
        None
    }

    /// Hints about changes, if the cloud sends them.
    fn changes(&self) -> Option<&dyn Changes> {
        None
    }
}

/// A provider's identity: `GetProviderInfoResponse` without the fields that the SDK sets (boot ID,
/// contract minor, request size, capabilities).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProviderInfo {
    /// The cloud's short name: 1 to 63 lower-case letters, digits and dashes.
    pub name: String,
    /// The provider's own version; never empty.
    pub version: String,
    /// The prefixes of its provider IDs, for example `aws://`. At least one if instances are
    /// offered; at most 16 of at most 253 bytes, none twice. Each contains `://`. The characters
    /// are ASCII letters, digits and `._:/@+-` (PROV-8).
    pub provider_id_prefixes: Vec<String>,
    /// The fields of each Node that it wants to see.
    pub node_projection: NodeProjection,
    /// The lowest minor version of the contract that the controller must support; 0 by default.
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

    /// Sets the fields of each Node that the provider wants to see.
    #[must_use]
    pub fn node_projection(mut self, projection: NodeProjection) -> Self {
        self.node_projection = projection;
        self
    }

    /// The first error in the name, the version, the prefixes, or the classes of load balancers
    /// that the provider offers. If there is one, the server does not start.
    pub(crate) fn fault(
        &self,
        offers_instances: bool,
        balancers: Option<&LoadBalancerOptions>,
    ) -> Option<String> {
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
        if self.version.is_empty() {
            return Some(
                "the provider's version \"\" is empty; right would be one such as \"1.2.3\"".into(),
            );
        }
        if offers_instances && self.provider_id_prefixes.is_empty() {
            return Some(
                "the provider offers instances without a provider_id_prefix; state the prefix of its provider IDs, such as \"mycloud://\"".into(),
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
            .find_map(|prefix| prefix_fault(prefix))
            .or_else(|| twice_fault(&self.provider_id_prefixes))
            .or_else(|| balancers.and_then(classes_fault))
    }
}

/// The error in a prefix of provider IDs (PROV-8). The controller refuses a provider with such a
/// prefix.
fn prefix_fault(prefix: &str) -> Option<String> {
    let no_scheme = || (!prefix.contains("://")).then_some("does not contain ://");
    let wrong = claim_fault(prefix).or_else(no_scheme)?;
    Some(format!(
        "the provider_id_prefix {prefix:?} {wrong}; right would be one such as \"mycloud://\" (PROV-8)"
    ))
}

/// The first prefix that is there twice (PROV-10).
fn twice_fault(prefixes: &[String]) -> Option<String> {
    let mut seen = BTreeSet::new();
    let twice = prefixes.iter().find(|prefix| !seen.insert(*prefix))?;
    Some(format!(
        "the provider_id_prefix {twice:?} is there twice; right would be each prefix once (PROV-10)"
    ))
}

/// The first error in the classes of load balancers. The contract forbids such classes, and the
/// controller refuses the provider because of most of them.
fn classes_fault(balancers: &LoadBalancerOptions) -> Option<String> {
    const MOST: usize = 64;
    let classes = &balancers.classes;
    if classes.is_empty() && !balancers.default_class {
        return Some(
            "LoadBalancerOptions::default_class is false and LoadBalancerOptions::classes is [], so no Service would get a load balancer; right would be default_class: true, or a class such as \"mycloud.example/lb\" (PROV-10)".into(),
        );
    }
    if classes.len() > MOST {
        return Some(format!(
            "LoadBalancerOptions::classes has {} classes; right would be at most {MOST}",
            classes.len()
        ));
    }
    let mut seen = BTreeSet::new();
    classes.iter().find_map(|class| {
        let wrong = if let Some(wrong) = claim_fault(class) {
            wrong
        } else if class == "default" {
            "stands for Services without a class, which default_class is for"
        } else if !seen.insert(class) {
            "is there twice"
        } else {
            return None;
        };
        Some(format!(
            "the class {class:?} in LoadBalancerOptions::classes {wrong}; right would be names such as \"mycloud.example/lb\", each once"
        ))
    })
}

/// The error that a prefix of provider IDs and a class can both have (PROV-8).
fn claim_fault(text: &str) -> Option<&'static str> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._:/@+-".contains(&byte);
    if text.is_empty() {
        Some("is empty")
    } else if text.len() > 253 {
        Some("is longer than 253 bytes")
    } else if !text.bytes().all(allowed) {
        Some("has characters other than ASCII letters, digits and ._:/@+-")
    } else {
        None
    }
}

/// Request of [`Provider::initialize`]. [`Call::cluster`] names the cluster, and
/// [`Call::previous_owner_ids`] has its former owner IDs. If `initialize` fails, the cluster of the
/// last success stays (PROV-17).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct InitializeRequest {
    /// The cluster's Pod CIDRs; empty if none are configured.
    pub cluster_cidrs: Vec<String>,
    /// The version of the API server, for example `v1.36.3`; empty if not known.
    pub kubernetes_version: String,
    /// The provider must write nothing to the cloud until an Initialize without this field succeeds
    /// (PROV-20). The SDK refuses the RPCs that write. Other writes, for example in `initialize`,
    /// are the provider's responsibility.
    pub read_only: bool,
}

/// The provider is initialised.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Initialized {
    /// Names the account, project and region that the credentials reach. Every process must return
    /// the same scope for the same account, project and region (PROV-9). When the scope changes,
    /// the controllers change nothing in the cloud and delete no Node until an operator accepts the
    /// new scope. 1 to 253 ASCII letters, digits, spaces and `. _ : / , @ = + -`.
    pub cloud_scope: String,
    /// The cloud's own ID of this cluster, if it has one. At most 253 bytes.
    pub cluster_id: Option<String>,
    /// Requests for longer deadlines.
    pub deadlines: DeadlineHints,
}

impl Initialized {
    /// Initialised, with credentials that reach this scope.
    pub fn new(cloud_scope: impl Into<String>) -> Self {
        Self {
            cloud_scope: cloud_scope.into(),
            cluster_id: None,
            deadlines: DeadlineHints::default(),
        }
    }

    /// Sets the cloud's own ID of this cluster.
    #[must_use]
    pub fn cluster_id(mut self, id: impl Into<String>) -> Self {
        self.cluster_id = Some(id.into());
        self
    }

    /// Requests longer deadlines.
    #[must_use]
    pub fn deadlines(mut self, hints: DeadlineHints) -> Self {
        self.deadlines = hints;
        self
    }
}

/// Requests for longer deadlines. Each can raise the controller's default up to the operator's
/// limit, and never lowers it. `None` or zero: no request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DeadlineHints {
    /// Lookups of instances, zones and labels of volumes; default 60 s.
    pub lookup: Option<Duration>,
    /// Listings; default 5 min.
    pub list: Option<Duration>,
    /// Calls about one load balancer; default 5 min.
    pub load_balancer: Option<Duration>,
    /// Creating and deleting routes; default 2 min.
    pub routes: Option<Duration>,
}

/// The state of a provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HealthState {
    /// Not ready yet: the controllers pause.
    Starting,
    /// All is well.
    Ready,
    /// It works with problems: the controllers work, but delete no Node and no route.
    Degraded,
    /// It cannot work: the controllers pause.
    Broken,
}

/// The state of a provider and the reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Health {
    /// The state.
    pub state: HealthState,
    /// The reason, for people; empty if ready. At most 1,024 bytes; cut beyond.
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

    /// It works with problems: the controllers work, but delete no Node and no route.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// PROV-8.
    #[test]
    fn a_prefix_that_the_controller_would_refuse_is_named_at_the_start() {
        let fault = |prefix: &str| {
            let info = ProviderInfo::new("mycloud", "1").provider_id_prefix(prefix);
            info.fault(true, None)
        };
        for good in ["aws://", "mycloud://zone_1.a/@+-"] {
            assert_eq!(fault(good), None);
        }
        let long = format!("{}://", "m".repeat(251));
        for (prefix, wrong) in [
            ("", "is empty"),
            (long.as_str(), "is longer than 253 bytes"),
            ("mycloud:", "does not contain ://"),
            ("my cloud://", "has characters other than"),
            ("wölkchen://", "has characters other than"),
        ] {
            let said = fault(prefix).unwrap();
            let expected = format!("the provider_id_prefix {prefix:?} {wrong}");
            assert!(said.starts_with(&expected), "{said}");
            assert!(said.contains("right would be"), "{said}");
        }
    }

    #[test]
    fn prov_10_a_prefix_that_is_there_twice_is_named_at_the_start() {
        let info = ProviderInfo::new("mycloud", "1");
        let info = info.provider_id_prefix("a://").provider_id_prefix("b://");
        assert_eq!(info.fault(true, None), None);
        let said = info
            .provider_id_prefix("a://")
            .fault(true, None)
            .unwrap_or_default();
        let expected = "the provider_id_prefix \"a://\" is there twice; right would be";
        assert!(said.starts_with(expected), "{said}");
    }

    #[test]
    fn prov_10_load_balancers_of_no_service_are_named_at_the_start() {
        let fault = |classes: &[&str], default_class| {
            let options = LoadBalancerOptions {
                classes: classes.iter().map(ToString::to_string).collect(),
                default_class,
                ..LoadBalancerOptions::default()
            };
            ProviderInfo::new("mycloud", "1").fault(false, Some(&options))
        };
        for (classes, default_class) in [(&["a.example/lb"][..], false), (&[], true)] {
            assert_eq!(fault(classes, default_class), None);
        }
        let said = fault(&[], false).unwrap_or_default();
        for words in [
            "LoadBalancerOptions::default_class is false",
            "LoadBalancerOptions::classes is []",
            "right would be default_class: true, or a class such as \"mycloud.example/lb\"",
        ] {
            assert!(said.contains(words), "{said}");
        }
    }

    #[test]
    fn an_empty_version_is_named_at_the_start() {
        let said = ProviderInfo::new("mycloud", "").fault(false, None).unwrap();
        for word in ["version", "\"\"", "right would be"] {
            assert!(said.contains(word), "{said}");
        }
    }

    /// PROV-8, PROV-10.
    #[test]
    fn a_class_that_the_contract_forbids_is_named_at_the_start() {
        let fault = |classes: &[String]| {
            let options = LoadBalancerOptions {
                classes: classes.to_vec(),
                ..LoadBalancerOptions::default()
            };
            ProviderInfo::new("mycloud", "1").fault(false, Some(&options))
        };
        let most: Vec<String> = (0..64)
            .map(|number| format!("a.example/{number}"))
            .collect();
        for good in [&[][..], &most, &["Default".into(), "c".repeat(253)]] {
            assert_eq!(fault(good), None);
        }
        let long = "c".repeat(254);
        for (class, wrong) in [
            ("", "is empty"),
            (long.as_str(), "is longer than 253 bytes"),
            ("a b", "has characters other than"),
            ("default", "stands for Services without a class"),
            ("a.example/lb", "is there twice"),
        ] {
            let said = fault(&["a.example/lb".into(), class.into()]).unwrap();
            let expected = format!("the class {class:?} in LoadBalancerOptions::classes {wrong}");
            assert!(said.starts_with(&expected), "{said}");
            assert!(said.contains("right would be"), "{said}");
        }
        let said = fault(&[most, vec!["one more".into()]].concat()).unwrap();
        assert!(
            said.contains("has 65 classes; right would be at most 64"),
            "{said}"
        );
    }
}
