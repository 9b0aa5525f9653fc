//! The whole ccm in one process, in virtual time: an API server and a provider in memory, a script
//! of what people and machines do, and faults in sequence. One seed decides everything. A checker
//! that knows invariants alone watches each run.

pub mod api_server;
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
