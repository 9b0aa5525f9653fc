//! The conformance suite. It checks the rules of the contract that are visible from outside, on a
//! running provider in any language.
//!
//! ```text
//! check     a check and its results: passed, failed, warned, skipped
//! call      one call: its request and its answer
//! session   a connection, and the owner of its requests
//! wire      HTTP/2 frames that the suite writes and reads itself
//! run       the tools of a check
//! target    the provider: an endpoint, or a command that the suite starts, kills and restarts
//! hooks     shell commands that change or read the cloud directly
//! config    suite.yaml
//! idle      an idle connection to the provider
//! plain     messages as text for people
//! rules     the text of the rules
//! breaker   limits the time that the suite spends on a provider that does not answer
//! ledger    the objects that the suite created and has to remove
//! cleanup   removes these objects
//! hpack     the gRPC status in a block of header fields
//! unknown   requests of a later minor
//! suite     all checks, their selection and their order
//! report    the results: text, JSON, JUnit
//! cli       the command line
//! ```
//!
//! Each service has a file or folder of checks. `well_formed` has the rules that apply to an answer
//! of any cloud. `listings` has the checks of the listings of instances, routes and clusters.

#![allow(clippy::unused_async, reason = "all checks have one shape")]
#![allow(clippy::large_futures, reason = "one check at a time")]

mod breaker;
mod call;
mod check;
mod cleanup;
pub mod cli;
mod config;
mod hooks;
mod hpack;
mod idle;
mod ledger;
mod plain;
mod report;
mod rules;
mod run;
mod session;
mod suite;
mod target;
mod unknown;
mod wire;

mod clusters;
mod core;
mod instances;
mod listings;
mod load_balancers;
mod provider;
mod routes;
mod volumes;
mod well_formed;
mod zones;

pub use check::{Check, Failed, Lack, Need, Skipped, Stop, Verdict};
pub use config::{
    Config, ConfigError, EmptyTargetSets, KnownCluster, KnownInstance, KnownVolume, RouteMarks,
};
pub use hooks::Hook;
pub use report::{Entry, Format, Outcome, Report};
pub use suite::{Options, Progress, Selection, StartError, checks, run};
pub use target::Provider;
