//! The real `ccm` process against a real API server, with the mock provider on a real socket.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    unreachable_pub,
    reason = "helpers of tests"
)]

mod accounts;
mod api_server;
mod input;
mod leading;
mod lies;
mod lifecycle;
mod migration;
mod nodes;
mod process;
mod provider;
mod proxy;
mod routes;
mod services;
mod volumes;
mod world;
