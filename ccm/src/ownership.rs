//! Which provider owns a Node or a Service. Pure.

use std::collections::{BTreeMap, BTreeSet};

use cloud_provider_api::v1alpha1 as api;
use k8s_openapi::api::core::v1::{Node, Service};
use kube::ResourceExt;

use crate::core::provider_id;
use crate::core::text::TEXT_LIMIT;

/// The Node label that names the provider of a Node without a provider ID.
pub(crate) const PROVIDER_LABEL: &str = "grpc-ccm.io/provider";

/// The claims of the connected providers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ownership {
    /// Provider by prefix of provider IDs.
    prefixes: BTreeMap<String, String>,
    /// Provider by `loadBalancerClass`.
    classes: BTreeMap<String, String>,
    /// The provider of Services without a class.
    default: Option<String>,
    /// All providers, and whether each offers instances.
    providers: BTreeMap<String, bool>,
}

/// Two providers claim the same provider IDs or Services: a configuration error that the ccm cannot
/// resolve.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Clash {
    #[error(
        "providers {first} and {second} both claim provider IDs that begin with {prefix:?}: a Node could belong to either; run only one of them in this cluster"
    )]
    Prefix {
        prefix: String,
        first: String,
        second: String,
    },
    #[error(
        "providers {first} and {second} both serve loadBalancerClass {class:?}: a Service could belong to either; take the class from one of them"
    )]
    Class {
        class: String,
        first: String,
        second: String,
    },
    /// Both serve Services without a class, and the operator named no default.
    #[error(
        "providers {first} and {second} both serve Services without a loadBalancerClass: name one of them the default provider"
    )]
    Default {
        /// The one that comes first in the list of providers.
        first: String,
        second: String,
    },
}

/// The owner of a Node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NodeOwner<'a> {
    /// This provider, by the provider ID or the label.
    Provider(&'a str),
    /// The Node has neither a provider ID nor the label: ask all providers.
    AskAll,
    /// None of these providers: leave the Node alone.
    Nobody,
}

impl Ownership {
    /// The ownership among these providers, each with the operator's name for it and its own info.
    /// If `default` is given, only that provider can serve Services without a class.
    pub(crate) fn of(
        providers: &[(&str, &api::GetProviderInfoResponse)],
        default: Option<&str>,
    ) -> Result<Self, Clash> {
        let mut all = Self::default();
        for (name, info) in providers {
            let none = api::Capabilities::default();
            let offered = info.capabilities.as_ref().unwrap_or(&none);
            all.providers
                .insert((*name).to_owned(), offered.instances.is_some());
            for prefix in info.provider_id_prefixes.iter().collect::<BTreeSet<_>>() {
                let before = all.prefixes.insert(prefix.clone(), (*name).to_owned());
                if let Some(first) = before {
                    let (prefix, second) = (prefix.clone(), (*name).to_owned());
                    return Err(Clash::Prefix {
                        prefix,
                        first,
                        second,
                    });
                }
            }
            let Some(balancers) = &offered.load_balancers else {
                continue;
            };
            for class in balancers.classes.iter().collect::<BTreeSet<_>>() {
                let before = all.classes.insert(class.clone(), (*name).to_owned());
                if let Some(first) = before {
                    let (class, second) = (class.clone(), (*name).to_owned());
                    return Err(Clash::Class {
                        class,
                        first,
                        second,
                    });
                }
            }
            if balancers.default_class && default.is_none_or(|default| default == *name) {
                let second = (*name).to_owned();
                if let Some(first) = all.default.replace(second.clone()) {
                    return Err(Clash::Default { first, second });
                }
            }
        }
        Ok(all)
    }

    /// The owner of the Node, by the longest matching prefix of its provider ID. Without a provider
    /// ID, the label `grpc-ccm.io/provider` decides.
    pub(crate) fn node_owner(&self, node: &Node) -> NodeOwner<'_> {
        if let Some(id) = provider_id(node) {
            return self
                .owner_of_id(id)
                .map_or(NodeOwner::Nobody, NodeOwner::Provider);
        }
        match node.labels().get(PROVIDER_LABEL) {
            None => NodeOwner::AskAll,
            Some(name) => self
                .providers
                .get_key_value(name)
                .map_or(NodeOwner::Nobody, |(name, _)| NodeOwner::Provider(name)),
        }
    }

    /// The provider with the longest prefix of this provider ID. No provider owns an ID that is
    /// longer than a request may send (CORE-11).
    pub(crate) fn owner_of_id(&self, id: &str) -> Option<&str> {
        if id.len() > TEXT_LIMIT {
            return None;
        }
        // A scan is cheap: there are few prefixes.
        self.prefixes
            .iter()
            .filter(|(prefix, _)| id.starts_with(prefix.as_str()))
            .max_by_key(|(prefix, _)| prefix.len())
            .map(|(_, name)| name.as_str())
    }

    /// Whether to ask `provider` about this Node: it owns the Node, or no owner is known and it
    /// offers instances.
    pub(crate) fn concerns(&self, provider: &str, node: &Node) -> bool {
        match self.node_owner(node) {
            NodeOwner::Provider(owner) => owner == provider,
            NodeOwner::AskAll => self.providers.get(provider).copied().unwrap_or(false),
            NodeOwner::Nobody => false,
        }
    }

    /// Counts these Nodes by the cloud that they belong to.
    pub(crate) fn clouds<'a>(
        &self,
        provider: &str,
        nodes: impl Iterator<Item = &'a Node>,
    ) -> Clouds {
        let mut clouds = Clouds::default();
        for node in nodes {
            match self.node_owner(node) {
                NodeOwner::Provider(owner) if owner == provider => clouds.ours += 1,
                NodeOwner::Nobody => {
                    clouds.others += 1;
                    let name = node.metadata.name.clone().unwrap_or_default();
                    // The first by name, so that the order of the Nodes does not matter.
                    if clouds
                        .another
                        .as_ref()
                        .is_none_or(|(known, _)| name < *known)
                    {
                        let id = node.spec.as_ref().and_then(|spec| spec.provider_id.clone());
                        clouds.another = Some((name, id.unwrap_or_default()));
                    }
                }
                NodeOwner::AskAll => clouds.new += 1,
                NodeOwner::Provider(_) => {}
            }
        }
        clouds
    }

    /// The provider of a Service, by its class. `None`: no provider serves the class.
    pub(crate) fn service_owner(&self, service: &Service) -> Option<&str> {
        let class = service
            .spec
            .as_ref()
            .and_then(|spec| spec.load_balancer_class.as_deref());
        match class {
            Some(class) => self.classes.get(class).map(String::as_str),
            None => self.default.as_deref(),
        }
    }
}

/// How many Nodes of a cluster belong to which cloud.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Clouds {
    /// Nodes of the provider.
    pub(crate) ours: usize,
    /// New Nodes, which name no cloud yet.
    pub(crate) new: usize,
    /// Nodes of a cloud without a provider here. The ccm leaves them alone (▲L4).
    pub(crate) others: usize,
    /// The name and the provider ID of one of these other Nodes: the first in the order of names.
    /// The ID is empty if the label names the cloud.
    pub(crate) another: Option<(String, String)>,
}

#[cfg(test)]
mod tests;
