//! A cloud in memory behind the provider contract, for development and tests.
//!
//! [`Mock`] serves a [`Cloud`] in this process. The binary `provider-mock` serves one as a separate
//! process. A [`Fixture`] describes the cloud (a YAML file, see `examples/cloud.yaml`). The methods
//! of [`Cloud`] and `provider-mock ctl` change it at run time. [`Fault`]s make its provider violate
//! the contract or fail.

mod calls;
mod cloud;
mod control;
pub mod ctl;
mod duration;
mod error;
mod faults;
pub mod fixture;
mod instances;
mod layer;
mod lies;
mod load_balancers;
mod messages;
mod pool;
mod provider;
mod routes;
mod server;
mod store;
mod weather;

pub use calls::{CallEntry, KEPT_ENTRIES, KEPT_NAMES};
pub use cloud::Cloud;
pub use control::{CallReport, Command, HealthWord, NumberedFault};
pub use duration::HumanDuration;
pub use error::{CloudError, FixtureError, StartError};
pub use faults::{ALL_RPCS, Fault, FaultKind, KINDS, Kind, MUTATING_RPCS, RPCS};
pub use fixture::Fixture;
pub use instances::{Address, Instance, Power};
pub use layer::throttled;
pub use lies::Lie;
pub use load_balancers::{LoadBalancer, LoadBalancerConfig, Mark, native_name};
pub use pool::Pool;
pub use provider::MockProvider;
pub use routes::Route;
pub use server::{Mock, serve, service};
pub use weather::Weather;

/// The prefix of the mock's own annotations on Services: `mock.grpc-ccm.io/retain: "true"`,
/// `mock.grpc-ccm.io/handled-elsewhere: "true"`, and `mock.grpc-ccm.io/shared-load-balancer: NAME`,
/// with which Services of one cluster share a load balancer.
pub const ANNOTATION_PREFIX: &str = "mock.grpc-ccm.io/";
