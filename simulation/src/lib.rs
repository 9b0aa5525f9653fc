//! Runs the ccm in one process, in virtual time, with an API server and a provider in memory. A
//! script plays what people and machines do, and injects faults. One seed decides a run. A checker
//! observes each run. It knows the invariants, and not the implementation.

pub mod api_server;
pub mod check;
pub mod checker;
pub mod exhaustive;
pub mod faults;
mod panics;
pub mod parallel;
pub mod plan;
pub mod planted;
pub mod provider;
pub mod regression;
pub mod run;
pub mod trace;
