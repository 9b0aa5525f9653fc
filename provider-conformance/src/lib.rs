//! The conformance suite. It checks every rule of the contract that is visible from outside, on a
//! running provider in any language.
//!
//! ```text
//! check     what a check is; how it passes, fails and is skipped
//! call      one call: what was sent, what came
//! session   a connection and the owner that it speaks for
//! wire      the same by hand, frame by frame
//! run       what a check has in hand
//! target    the provider: an endpoint, or a command that is started, killed and started again
//! hooks     shell commands that change the cloud behind the provider's back
//! config    suite.yaml
//! idle      a connection that nobody uses, as long as each process of the provider lives
//! plain     messages as people read them
//! rules     what the rules say
//! breaker   a provider that does not answer is not asked for ever
//! ledger    what the suite made, and how it goes again
//! suite     all checks; which of them run, in which order
//! report    what came of it: text, JSON, JUnit
//! cli       the command line
//! ```
//!
//! Each service has a file or folder of checks. `well_formed` has the rules for any answer, and
//! `listings` those for any listing.

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
