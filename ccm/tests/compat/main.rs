//! `make compat`: upstream's Go cloud-controller-manager and this one, side by side, through the same scenarios. Each has an API server and a cloud (`provider-mock`) of
//! its own; afterwards all Nodes, Services, events, load balancers and routes are compared, line by line. A difference is either none, or the one that a `▲` line of the behaviour
//! asks for, which the scenario then cites and which must be there exactly so.
//!
//! Scenarios of one group run at once on both sides, each with Nodes and a namespace of its own.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    unreachable_pub,
    reason = "helpers of tests"
)]

mod compare;
mod leader;
mod metrics;
mod nodes;
mod routes;
mod scenario;
mod services;
mod side;
mod snapshot;
mod table;

use provider_mock::Fixture;
use provider_mock::fixture::Feature;
use provider_sdk::ServiceFeature;

use compare::Report;
use side::{Side, Who};

/// Only scenarios whose names contain this; the table is then neither written nor looked at.
const ONLY: &str = "COMPAT_ONLY";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_controllers_leave_the_same_behind() {
    let (go, ours) = tokio::join!(
        Side::new(Who::Go, fixture()),
        Side::new(Who::Ours, fixture())
    );
    let sides = [go, ours];
    for side in &sides {
        side.start(side.who());
    }
    for side in &sides {
        side.led("").await;
    }

    let only = std::env::var(ONLY).ok();
    let mut report = Report::new(only.clone());
    report.play(&sides, services::before_nodes()).await;
    tokio::join!(
        services::targets_join(&sides[0]),
        services::targets_join(&sides[1])
    );
    report.play(&sides, services::scenarios()).await;
    for step in services::steps() {
        report.play(&sides, vec![step]).await;
    }
    tokio::join!(services::all_go(&sides[0]), services::all_go(&sides[1]));
    report.play(&sides, nodes::scenarios()).await;
    report.play(&sides, nodes::lifecycle()).await;
    report.play(&sides, routes::idle()).await;
    report.play(&sides, routes::scenarios()).await;
    report.play(&sides, metrics::scenarios()).await;
    report.play(&sides, leader::over()).await;
    report.play(&sides, leader::back()).await;
    tokio::join!(routes::track(&sides[0]), routes::track(&sides[1]));
    report.play(&sides, routes::tracked()).await;
    report.play(&sides, nodes::lie()).await;
    report.play(&sides, routes::no_nodes_left()).await;

    let logs = || sides.each_ref().map(Side::logs).concat();
    assert!(report.failures.is_empty(), "{}\n{}", report.text(), logs());
    if only.is_none() {
        table::check(&report.rows);
    }
}

/// The cloud of both: all that the mock can, except for one feature of Services.
fn fixture() -> Fixture {
    let mut fixture = Fixture::default();
    let features = &mut fixture.capabilities.load_balancers.features;
    features.retain(|feature| *feature != Feature(ServiceFeature::Sctp));
    fixture
}
