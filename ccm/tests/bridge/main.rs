//! Go clouds of today behind the bridge (`providers/go/bridge`): the bridge's own tests, the
//! conformance suite, and the real `ccm` in front of some of the clouds on a real API server.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    unreachable_pub,
    reason = "helpers of tests"
)]

mod aws;
mod binary;
mod clouds;
mod cost;
mod exceptions;
mod life;
mod refused;
mod suite;
mod switch;
