//! The cloud's YAML file: its fields, its parser and its checks.

mod capabilities;
mod load;
mod places;

pub use capabilities::{
    Capabilities, DEFAULT_CLASS, Feature, InstanceCapability, LoadBalancerCapability, Offer,
    RouteCapability, TargetScope, Targets, VolumeCapability, Zones,
};
pub(crate) use load::is_rpc;

use std::collections::BTreeMap;
use std::time::Duration;

use provider_sdk::{Failure, FailureCode};
use serde::{Deserialize, Serialize};

use crate::duration::HumanDuration;
use crate::faults::Fault;
use crate::instances::{Address, Instance, Power};
use crate::load_balancers::LoadBalancer;
use crate::pool::Pool;
use crate::routes::Route;

/// The YAML file. `examples/cloud.yaml` shows most keys with comments. Every top-level key has a
/// default. An unknown key is an error.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Fixture {
    /// The provider's identity.
    pub provider: ProviderSettings,
    /// The services that the provider offers; all by default.
    pub capabilities: Capabilities,
    /// The addresses of load balancers.
    pub addressing: Addressing,
    /// How long the creation and the deletion of a load balancer take.
    pub provisioning: Provisioning,
    /// The latency of each RPC, by its name. `default` is for RPCs that are not named.
    pub latency: BTreeMap<String, HumanDuration>,
    /// Scripted faults.
    pub faults: Vec<Fault>,
    /// The instances.
    pub instances: Vec<Instance>,
    /// Many similar instances.
    pub instance_templates: Vec<InstanceTemplate>,
    /// Load balancers that exist from the start, for example foreign and unmarked ones.
    pub load_balancers: Vec<LoadBalancer>,
    /// Routes that exist from the start.
    pub routes: Vec<Route>,
    /// The treatment of single Services, by `namespace/name`.
    pub services: BTreeMap<String, ServiceBehaviour>,
    /// Nodes that cannot be attached to load balancers, by name.
    pub target_errors: BTreeMap<String, FailureSpec>,
    /// The places of Nodes for LookupZones, by name. The default is the place of the Node's
    /// instance.
    pub zones: BTreeMap<String, Place>,
    /// Clusters and the addresses of their control planes.
    pub clusters: BTreeMap<String, String>,
    /// Disks and their labels, by the value of any field of the volume's source, for example its
    /// `volumeID`.
    pub volumes: BTreeMap<String, BTreeMap<String, String>>,
}

/// The provider's identity.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ProviderSettings {
    /// Its name: lower-case letters, digits and dashes.
    pub name: String,
    /// Its version.
    pub version: String,
    /// The prefixes of its provider IDs. An instance without a provider ID gets one with the first
    /// prefix.
    pub provider_id_prefixes: Vec<String>,
    /// The account, project and region that its credentials reach.
    pub cloud_scope: String,
    /// The cloud's own ID of the cluster.
    pub cluster_id: Option<String>,
    /// The largest request and answer in bytes.
    pub max_request_bytes: usize,
    /// The lowest minor of the contract that the controller must speak.
    pub min_controller_minor: u32,
    /// The labels of Nodes that it wants to see.
    pub node_labels: Vec<String>,
    /// Whether it wants to see if Nodes are Ready.
    pub node_readiness: bool,
}

impl Default for ProviderSettings {
    fn default() -> Self {
        Self {
            name: "mock".into(),
            version: env!("CARGO_PKG_VERSION").into(),
            provider_id_prefixes: vec!["mock://".into()],
            cloud_scope: "mock account, mock region".into(),
            cluster_id: None,
            max_request_bytes: 16 * 1024 * 1024,
            min_controller_minor: 0,
            node_labels: Vec::new(),
            node_readiness: false,
        }
    }
}

/// The addresses of load balancers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Addressing {
    /// The pools, IPv4 and IPv6.
    pub pools: Vec<Pool>,
    /// The content of the Service's status.
    pub mode: AddressMode,
    /// The domain of the host names.
    pub hostname_domain: String,
    /// The value of `ipMode`; not set if absent.
    pub ip_mode: Option<IpMode>,
}

impl Default for Addressing {
    fn default() -> Self {
        let pools = ["192.0.2.0/24", "2001:db8::/112"];
        Self {
            pools: pools.iter().filter_map(|pool| pool.parse().ok()).collect(),
            mode: AddressMode::Ip,
            hostname_domain: "lb.mock.example".into(),
            ip_mode: None,
        }
    }
}

/// The content of a Service's status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AddressMode {
    /// The addresses.
    #[default]
    Ip,
    /// A host name.
    Hostname,
    /// The addresses, each with the host name.
    Both,
}

/// A value of `ipMode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum IpMode {
    /// `VIP`.
    Vip,
    /// `Proxy`.
    Proxy,
}

/// How long the creation and the deletion of a load balancer take. It is pending in that time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Provisioning {
    /// The time of a creation.
    pub load_balancer: HumanDuration,
    /// The time of a deletion.
    pub deletion: HumanDuration,
}

/// Many similar instances. In every text except the keys of labels, `%d` stands for the number,
/// from `first` on.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InstanceTemplate {
    /// How many.
    pub count: u32,
    /// The first number.
    #[serde(default)]
    pub first: u32,
    /// The name, for example `node-%d`.
    pub name: String,
    /// The ID; the name by default.
    #[serde(default)]
    pub id: String,
    /// The type.
    #[serde(default, rename = "type")]
    pub instance_type: Option<String>,
    /// The zones, in rotation.
    #[serde(default)]
    pub zones: Vec<String>,
    /// The region.
    #[serde(default)]
    pub region: Option<String>,
    /// The pools of InternalIP addresses. Each instance gets the next address of each pool.
    #[serde(default)]
    pub internal_pools: Vec<Pool>,
    /// Further addresses.
    #[serde(default)]
    pub addresses: Vec<Address>,
    /// Labels.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Their power state.
    #[serde(default)]
    pub power: Power,
}

/// The treatment of a Service.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ServiceBehaviour {
    /// Whether its load balancer is kept when the Service is deleted. The annotation
    /// `mock.grpc-ccm.io/retain: "true"` has the same effect.
    pub retain: bool,
    /// Whether another component serves it. The annotation
    /// `mock.grpc-ccm.io/handled-elsewhere: "true"` has the same effect.
    pub handled_elsewhere: bool,
    /// Annotations to set in answers about it.
    pub set_annotations: BTreeMap<String, String>,
    /// Annotations to remove in answers about it.
    pub remove_annotations: Vec<String>,
    /// Events in answers about it.
    pub events: Vec<EventSpec>,
}

/// An event in answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EventSpec {
    /// Whether its type is Warning. Otherwise it is Normal.
    #[serde(default)]
    pub warning: bool,
    /// One word in CamelCase.
    pub reason: String,
    /// One sentence.
    #[serde(default)]
    pub message: String,
}

/// The place of a Node.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Place {
    /// Its zone.
    pub zone: Option<String>,
    /// Its region.
    pub region: Option<String>,
}

/// A failure of the contract.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FailureSpec {
    /// Its code, for example `THROTTLED`.
    #[serde(with = "failure_code")]
    pub code: FailureCode,
    /// Its reason. The default depends on the code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Its message: one sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The delay before the next attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after: Option<HumanDuration>,
}

impl FailureSpec {
    /// A failure with only this code.
    pub fn new(code: FailureCode) -> Self {
        Self {
            code,
            reason: None,
            message: None,
            retry_after: None,
        }
    }

    /// Asks the controller to wait.
    #[must_use]
    pub fn retry_after(mut self, delay: Duration) -> Self {
        self.retry_after = Some(delay.into());
        self
    }

    /// The failure in the SDK's type.
    pub fn to_failure(&self) -> Failure {
        let message = self.message.as_deref().unwrap_or("scripted by the mock");
        let mut failure = Failure::new(self.code, message);
        if let Some(reason) = &self.reason {
            failure = failure.with_reason(reason);
        }
        match self.retry_after {
            Some(delay) => failure.retry_after(delay.0),
            None => failure,
        }
    }
}

/// All failure codes of the contract.
pub(crate) const FAILURE_CODES: [FailureCode; 10] = [
    FailureCode::Invalid,
    FailureCode::Precondition,
    FailureCode::NotFound,
    FailureCode::Conflict,
    FailureCode::Busy,
    FailureCode::Throttled,
    FailureCode::Credentials,
    FailureCode::Unavailable,
    FailureCode::NotInitialized,
    FailureCode::Internal,
];

/// Parses a code of the contract, for example `THROTTLED`.
pub(crate) fn failure_code(text: &str) -> Result<FailureCode, String> {
    let found = FAILURE_CODES.into_iter().find(|code| code.as_str() == text);
    found.ok_or_else(|| {
        let names = FAILURE_CODES.map(FailureCode::as_str).join(", ");
        format!("{text:?} is no failure code; write one of {names}")
    })
}

mod failure_code {
    use serde::{Deserialize, Deserializer, Serializer, de};

    use super::FailureCode;

    #[allow(clippy::trivially_copy_pass_by_ref)] // serde asks for a reference
    pub(super) fn serialize<S: Serializer>(code: &FailureCode, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(code.as_str())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<FailureCode, D::Error> {
        super::failure_code(&String::deserialize(from)?).map_err(de::Error::custom)
    }
}
