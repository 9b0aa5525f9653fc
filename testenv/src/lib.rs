//! A real Kubernetes control plane for tests, benchmarks and the demo.
//!
//! ```text
//! binary         control-plane/ (a Go module) -> one executable, built when its sources changed
//! process        one child process: log file, signals, deadline; never outlives us
//! ports          loopback ports
//! document       documents that tests write, or are held to
//! directory      the temporary directory of one control plane, and what dead ones left behind
//! credentials    CA, serving certificate, tokens, kubeconfigs
//! components     how etcd and kube-apiserver are started, and when they are ready
//! control_plane  both together: what a test has in hand
//! cluster        a whole one: the rest of the control plane, and machines with kubelet and containers
//! pool           control planes that one test after the other uses
//! contents       what a control plane holds, read from its etcd
//! wipe           makes a used control plane as good as new
//! manifests      what helm and kustomize make of deploy/
//! eventually     waiting for a condition with a deadline: no test sleeps
//! objects        Nodes and Services as tests want them
//! view           what a test sees of a cluster
//! vendor         a vendor's cloud: the test API of providers/, and the provider in front of it
//! ```
//!
//! Environment: `TESTENV_KUBERNETES=1.35` takes an older minor than the newest,
//! `TESTENV_CONTROL_PLANE` names a control plane that is built already, `TESTENV_KEEP=1` keeps the
//! temporary directories with the logs.

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
