//! The SDK for providers of the cloud provider contract (`cloudprovider.v1alpha1`). A provider is a
//! separate process that serves a cloud to the Kubernetes controllers on a Unix socket.
//!
//! Implement [`Provider`], and a further trait for each service that the cloud has: [`Instances`],
//! [`Zones`], [`LoadBalancers`], [`Routes`], [`Clusters`], [`Volumes`] or [`Changes`]. The traits
//! that the methods of [`Provider`] return determine the capabilities that the controller sees.
//! `examples/minimal.rs` is a complete provider.
//!
//! IDs such as INST-1 name rules of the contract. Their text is in the comments of
//! `proto/cloudprovider/v1alpha1/*.proto`.

mod call;
mod changes;
mod clusters;
mod failure;
mod instances;
mod load_balancers;
mod probe;
mod provider;
mod routes;
mod server;
mod socket;
mod types;
mod volumes;
mod wrap;
mod zones;

pub use async_trait::async_trait;
pub use call::{Call, CloudContact};
pub use changes::{Change, Changes, Hints};
pub use clusters::Clusters;
pub use failure::{Failure, FailureCode, MAX_TEXT_BYTES};
pub use instances::{
    Instance, InstanceFacet, InstanceOptions, InstanceQuery, InstanceState, Instances,
    ListInstances,
};
pub use load_balancers::{
    Answer, DeleteLoadBalancer, Deleted, EnsureLoadBalancer, Ensured, Event, GetLoadBalancer,
    Ingress, IpMode, ListLoadBalancers, ListedLoadBalancer, LoadBalancer, LoadBalancerOptions,
    LoadBalancerResult, LoadBalancerStatus, LoadBalancers, Notes, PortStatus, Presence, Service,
    ServiceFeature, ServicePort, ServiceRef, TargetScope, UpdateLoadBalancer, Updated,
};
pub use probe::{ProbeCommand, ProbeError, probe, probe_command};
pub use provider::{
    DeadlineHints, Health, HealthState, InitializeRequest, Initialized, Provider, ProviderInfo,
};
pub use routes::{Route, RouteOptions, Routes};
pub use server::{GrpcService, Server};
pub use socket::{Connection, Connections, DEFAULT_ENDPOINT, ServeError};
pub use types::{
    AddressKind, Answers, Cluster, Node, NodeAddress, NodeFieldGroup, NodeInfo, NodeProjection,
    Ownership, Pending, Taint,
};
pub use volumes::{Volume, VolumeOptions, Volumes};
pub use zones::{Zone, Zones};

/// All items, for `use provider_sdk::prelude::*`.
pub mod prelude {
    pub use super::*;
}
