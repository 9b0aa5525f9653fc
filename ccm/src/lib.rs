//! The cloud-controller-manager: controllers that are one process, a cloud that is another.
//!
//! ```text
//! Kubernetes API  <──watch, patch──  ccm  ──gRPC over a Unix socket──>  provider  ──>  the cloud's API
//! ```

pub mod args;
mod cluster;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzz;
mod kube_client;
mod lease;
mod node;
mod node_lifecycle;
#[cfg(feature = "simulation")]
pub mod planted;
#[cfg(not(feature = "simulation"))]
mod planted;
mod provider;
mod providers;
mod queue;
mod route;
pub mod run;
mod serve;
mod service;
mod stuck;
pub mod text;
mod volume;
mod writes;

/// The domain that every label and annotation of our own begins with.
pub(crate) const DOMAIN: &str = "grpc-ccm.io/";
