//! `make lease`: who leads if an upstream Go cloud-controller-manager and this one compete for the
//! same Lease, also under faults.
//!
//! Three records show whether two processes ever lead at once. Each process reaches the API server
//! through a link of its own, which records the process's writes to Nodes and to the Lease. A watch
//! records the holders of the Lease. The tests ask each process again and again whether it leads.
//! The leases have upstream's default times, so these tests wait for real seconds, and run all at
//! once.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    unreachable_pub,
    reason = "helpers of tests"
)]

mod arena;
mod clock;
mod contender;
mod history;
mod link;
mod outages;
mod scenarios;
