//! Types that several services share: the cluster, its Nodes, addresses, pending answers, and
//! answers by key.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::time::{Duration, SystemTime};

use crate::Failure;

/// The cluster of a call.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Cluster {
    /// The cluster's name, for people and as a part of names in the cloud. Not unique.
    pub name: String,
    /// The cluster's identity as an owner of cloud objects. The provider marks the cluster's
    /// objects with it (CORE-14). 1 to 253 bytes.
    pub owner_id: String,
}

impl Cluster {
    /// A cluster with this name and owner ID.
    pub fn new(name: impl Into<String>, owner_id: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            owner_id: owner_id.into(),
        }
    }
}

/// A Node of the cluster, with the fields that [`NodeProjection`](crate::NodeProjection) requests.
/// Name, UID, provider ID and addresses are always included. A field that was not requested is
/// empty or `None`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Node {
    /// `metadata.name`.
    pub name: String,
    /// `metadata.uid`.
    pub uid: String,
    /// `spec.providerID`; `None` while the Node has none, and for one of more than 1,024 bytes. It
    /// identifies the instance. Without it, the Node's name does (INST-3).
    pub provider_id: Option<String>,
    /// `status.addresses` in their order, without those that the contract cannot express.
    pub addresses: Vec<NodeAddress>,
    /// The labels that the projection names.
    pub labels: BTreeMap<String, String>,
    /// The annotations that the projection names.
    pub annotations: BTreeMap<String, String>,
    /// `spec.podCIDRs`; with [`NodeFieldGroup::PodCidrs`].
    pub pod_cidrs: Vec<String>,
    /// `spec.taints`; with [`NodeFieldGroup::Taints`].
    pub taints: Vec<Taint>,
    /// From `status.nodeInfo`; with [`NodeFieldGroup::NodeInfo`].
    pub info: Option<NodeInfo>,
    /// Whether the Ready condition is True; with [`NodeFieldGroup::Readiness`].
    pub ready: Option<bool>,
    /// `metadata.creationTimestamp`; with [`NodeFieldGroup::CreationTime`].
    pub created: Option<SystemTime>,
}

impl Node {
    /// A Node with only name and UID, for tests.
    pub fn new(name: impl Into<String>, uid: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            uid: uid.into(),
            ..Self::default()
        }
    }
}

/// The kinds of a Node's addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AddressKind {
    /// `Hostname`.
    Hostname,
    /// `InternalIP`: reachable inside the cluster's network.
    InternalIp,
    /// `ExternalIP`: reachable from outside.
    ExternalIp,
    /// `InternalDNS`.
    InternalDns,
    /// `ExternalDNS`.
    ExternalDns,
}

/// One address of a Node or an instance: an IPv4 or IPv6 address without a prefix length, or a DNS
/// name, according to its kind.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeAddress {
    /// The kind of address.
    pub kind: AddressKind,
    /// The address. For the IP kinds it must parse as an IP address. For the other kinds it is a
    /// DNS name of at most 253 bytes; if it is not, the SDK leaves it out of an instance.
    pub address: String,
}

impl NodeAddress {
    /// An address of this kind.
    pub fn new(kind: AddressKind, address: impl Into<String>) -> Self {
        Self {
            kind,
            address: address.into(),
        }
    }

    /// A host name.
    pub fn hostname(name: impl Into<String>) -> Self {
        Self::new(AddressKind::Hostname, name)
    }

    /// An address inside the cluster's network.
    pub fn internal_ip(address: impl Into<String>) -> Self {
        Self::new(AddressKind::InternalIp, address)
    }

    /// An address that is reachable from outside.
    pub fn external_ip(address: impl Into<String>) -> Self {
        Self::new(AddressKind::ExternalIp, address)
    }
}

/// A taint of a Node.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Taint {
    /// Its key.
    pub key: String,
    /// Its value, if it has one.
    pub value: Option<String>,
    /// `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
    pub effect: String,
}

/// The kubelet's information about its machine (`status.nodeInfo`).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct NodeInfo {
    /// `machineID`.
    pub machine_id: String,
    /// `systemUUID`.
    pub system_uuid: String,
    /// `bootID`.
    pub boot_id: String,
    /// `architecture`, as Go names it: `amd64`, `arm64`.
    pub architecture: String,
    /// `operatingSystem`: `linux` or `windows`.
    pub operating_system: String,
    /// `kubeletVersion`.
    pub kubelet_version: String,
}

/// Groups of a Node's fields that a provider may request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NodeFieldGroup {
    /// [`Node::pod_cidrs`].
    PodCidrs,
    /// [`Node::taints`].
    Taints,
    /// [`Node::info`].
    NodeInfo,
    /// [`Node::ready`].
    Readiness,
    /// [`Node::created`].
    CreationTime,
}

/// The fields of each Node that a provider wants to see. The controller always sends name, UID,
/// provider ID and addresses. The default adds nothing, so that requests with many Nodes stay
/// small.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NodeProjection {
    /// Exact keys of labels.
    pub label_keys: Vec<String>,
    /// All labels; `label_keys` is then ignored. A request for 5,000 Nodes grows by several MiB.
    pub all_labels: bool,
    /// Exact keys of annotations.
    pub annotation_keys: Vec<String>,
    /// Groups of further fields.
    pub field_groups: Vec<NodeFieldGroup>,
}

/// The owner of a cloud object, according to its mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Ownership {
    /// Marked with this cluster's owner ID or a previous one ([`Call::owns`](crate::Call::owns))
    /// and, for a load balancer, with this Service's UID.
    Ours,
    /// Marked for another owner.
    Foreign,
    /// Without a mark: made by hand or by another program, or in a cloud that keeps no marks.
    Unmarked,
}

/// The operation is in progress. The controller asks again after the delay, and counts no failure
/// (Go's `RetryError`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pending {
    /// The operation in progress, for people. At most 1,024 bytes; cut beyond.
    pub message: String,
    /// The delay before the controller asks again. The controller clamps it to 1 s..10 min, and
    /// takes 5 s for `None`. It waits at least 30 s if the call before was unfinished too, and this
    /// answer changes the handle or the annotations.
    pub retry_after: Option<Duration>,
}

impl Pending {
    /// Pending, with this message.
    pub fn new(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            retry_after: None,
        }
    }

    /// Sets the delay before the next call.
    #[must_use]
    pub fn retry_after(mut self, delay: Duration) -> Self {
        self.retry_after = Some(delay);
        self
    }
}

/// The answers of a batch by key: the Node's name for lookups, [`Route::key`](crate::Route::key)
/// for routes. Their order does not matter. The SDK handles three errors:
///
/// - for a requested key without an answer, it answers `failed: INTERNAL` for that item;
/// - for a key with two answers, it answers `failed: INTERNAL` for that item;
/// - for a key that was not requested, it logs a warning and drops the answer.
#[derive(Debug, Clone)]
pub struct Answers<T> {
    pub(crate) by_key: BTreeMap<String, Result<T, Failure>>,
}

impl<T> Answers<T> {
    /// No answers yet.
    pub fn new() -> Self {
        Self {
            by_key: BTreeMap::new(),
        }
    }

    /// Stores the answer for `key`.
    pub fn set(&mut self, key: impl Into<String>, answer: Result<T, Failure>) {
        let key = key.into();
        match self.by_key.entry(key) {
            Entry::Vacant(free) => {
                free.insert(answer);
            }
            Entry::Occupied(mut taken) => {
                let fault = format!("the provider answered twice for {:?}", taken.key());
                *taken.get_mut() = Err(Failure::internal(fault).with_reason("ContractBroken"));
            }
        }
    }

    /// The answer for `key`, if there is one.
    pub fn get(&self, key: &str) -> Option<&Result<T, Failure>> {
        self.by_key.get(key)
    }

    /// The number of answered keys.
    pub fn len(&self) -> usize {
        self.by_key.len()
    }

    /// Whether there are no answers.
    pub fn is_empty(&self) -> bool {
        self.by_key.is_empty()
    }
}

impl<T> Default for Answers<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: Into<String>, T> FromIterator<(K, Result<T, Failure>)> for Answers<T> {
    fn from_iter<I: IntoIterator<Item = (K, Result<T, Failure>)>>(answers: I) -> Self {
        let mut all = Self::new();
        for (key, answer) in answers {
            all.set(key, answer);
        }
        all
    }
}
