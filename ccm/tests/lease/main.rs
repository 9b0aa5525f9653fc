//! `make compat`: who leads where an upstream Go cloud-controller-manager and this one stand for
//! the same Lease, and all that can go wrong.
//!
//! Never two leaders: that is observed, in three ways. Each process is led to the API server
//! through a link of its own, which writes down when it sent a write; a watch writes down who stood
//! in the Lease; and each process is asked all the time whether it leads. The leases have
//! upstream's default times, so these tests wait for real seconds, and are made to run all at once.
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
