//! Part of `make conformance`: the `ccm` on a real API server, a vendor's provider behind it, and
//! that vendor's test API behind the provider.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    unreachable_pub,
    reason = "helpers of tests"
)]

mod account;
mod faults;
mod killed;
mod life;
mod migration;
mod smoke;
mod world;
