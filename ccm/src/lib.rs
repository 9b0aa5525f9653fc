//! The cloud-controller-manager. The controllers run in one process, the cloud's provider in
//! another.
//!
//! ```text
//! Kubernetes API  <──watch, patch──  ccm  ──gRPC over a Unix socket──>  provider  ──>  the cloud's API
//! ```

pub mod args;
mod cluster;
mod controller;
mod controllers;
pub mod core;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod kube_client;
mod lease;
mod ownership;
#[cfg(feature = "simulation")]
pub mod planted;
#[cfg(not(feature = "simulation"))]
mod planted;
mod provider;
mod queue;
mod report;
pub mod run;
mod serve;
mod writes;
