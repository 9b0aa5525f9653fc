//! The owners of load balancers: the asking Service, the marks of a provider, and their
//! interpretation.

use std::fmt;

use provider_sdk::{Ownership, Service};

use super::{LoadBalancer, Mark};

/// The asking cluster and Service.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asker<'a> {
    /// The current owner ID.
    pub(crate) owner_id: &'a str,
    /// Former owner IDs.
    pub(crate) previous: &'a [String],
    pub(crate) service: &'a Service,
    pub(crate) handle: Option<&'a str>,
    pub(crate) marks: &'a dyn Marks,
}

impl Asker<'_> {
    pub(super) fn of_cluster(&self, mark: &Mark) -> bool {
        self.marks.of_cluster(self, mark)
    }

    pub(super) fn owns(&self, mark: &Mark) -> bool {
        mark.uid == self.service.uid && self.of_cluster(mark)
    }

    pub(crate) fn ownership(&self, load_balancer: &LoadBalancer) -> Ownership {
        self.marks.ownership(self, load_balancer)
    }

    /// Whether this is the Service's own load balancer and the provider finds load balancers by
    /// their marks.
    pub(super) fn finds(&self, load_balancer: &LoadBalancer) -> bool {
        self.marks.are_found() && self.ownership(load_balancer) == Ownership::Ours
    }
}

/// How a provider marks load balancers, and which marks it accepts as its own. The defaults are
/// honest.
pub(crate) trait Marks: fmt::Debug + Send + Sync {
    /// Whether it is a mark of the asking cluster, for any Service.
    fn of_cluster(&self, asker: &Asker<'_>, mark: &Mark) -> bool {
        mark.owner_id == asker.owner_id || asker.previous.contains(&mark.owner_id)
    }

    /// Whether Ensure has to rewrite the mark (LB-25).
    fn is_former(&self, asker: &Asker<'_>, mark: &Mark) -> bool {
        mark.owner_id != asker.owner_id
    }

    /// The ownership from the asker's view.
    fn ownership(&self, asker: &Asker<'_>, load_balancer: &LoadBalancer) -> Ownership {
        match &load_balancer.owner {
            None => Ownership::Unmarked,
            Some(mark) if asker.owns(mark) => Ownership::Ours,
            Some(_) => Ownership::Foreign,
        }
    }

    /// Whether the provider finds a load balancer that no handle names.
    fn are_found(&self) -> bool {
        true
    }

    /// The mark that Ensure writes.
    fn mark(&self, asker: &Asker<'_>) -> Option<Mark> {
        Some(Mark {
            owner_id: asker.owner_id.to_owned(),
            namespace: asker.service.namespace.clone(),
            name: asker.service.name.clone(),
            uid: asker.service.uid.clone(),
        })
    }
}

/// The contract's rules.
#[derive(Debug)]
pub(crate) struct Honest;

impl Marks for Honest {}
