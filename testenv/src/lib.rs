//! A real Kubernetes control plane for tests, benchmarks and the demo.
//!
//! ```text
//! binary         the Go programs of control-plane/ and helm/, built when their sources changed
//! process        one child process: log file, signals, deadline; killed when dropped
//! program        programs that a test makes and then starts
//! ports          loopback ports
//! document       documents that tests generate: compared with the text, or written
//! directory      the temporary directory of one control plane; removes those of ended processes
//! credentials    CA, serving certificate, tokens, kubeconfigs
//! components     how etcd and kube-apiserver are started, and when they are ready
//! control_plane  both together, as a test uses them
//! cluster        a whole cluster: the rest of the control plane, and machines with kubelets
//! pool           control planes that tests use one after another
//! contents       what a control plane holds, read from its etcd
//! wipe           deletes a test's objects from a control plane
//! manifests      renders deploy/ with helm and kustomize
//! eventually     waits for a condition until a deadline
//! objects        builds Nodes and Services for tests
//! view           reads, changes and awaits objects for a test
//! vendor         a vendor's cloud: the test API of providers/, and the provider in front of it
//! ```
//!
//! Environment: `TESTENV_KUBERNETES=1.35` selects an older minor than the newest,
//! `TESTENV_CONTROL_PLANE` names a control plane that is built already, `TESTENV_KEEP=1` keeps the
//! temporary directories with the logs until a run without it.

mod binary;
mod cluster;
mod components;
mod contents;
mod control_plane;
mod credentials;
mod directory;
pub mod document;
mod error;
mod eventually;
pub mod manifests;
pub mod objects;
mod pool;
mod ports;
mod process;
pub mod program;
mod vendor;
mod view;
mod wipe;

pub use binary::{control_plane_binary, helm_binary, machine_binary};
pub use cluster::{Cluster, Leftovers, Machine, SHARED};
pub use control_plane::{ControlPlane, Options, deployed};
pub use credentials::User;
pub use error::Error;
pub use eventually::{Outcome, eventually};
pub use pool::{Pool, Pooled};
pub use ports::free_port;
pub use process::{Process, show_log};
pub use vendor::{Balancer, TestCloud, Vendor};
pub use view::{LEASE, View};
