//! `make e2e`: the images and manifests of this repository on real kubelets, as an operator would
//! use them.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    unreachable_pub,
    reason = "helpers of tests"
)]

mod audit;
mod before;
#[path = "../it/input/callers.rs"]
mod callers;
mod cloud;
mod cluster;
mod control_plane;
mod digitalocean;
mod hostile;
mod images;
mod inside;
mod leaders;
mod one_node;
mod release;
mod report;
mod strangers;
mod two_nodes;
mod world;
