//! `make e2e`: the images and manifests of this repository on real kubelets, as an operator would use them.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    unreachable_pub,
    reason = "helpers of tests"
)]

mod audit;
mod cloud;
mod cluster;
mod images;
mod leaders;
mod one_node;
mod report;
mod two_nodes;
mod world;
