//! `make compat`: upstream's Go cloud-controller-manager and this one, side by side, through the
//! same scenarios. Each has an API server and a cloud (`provider-mock`) of its own. Afterwards the
//! tests compare the scenarios' Nodes, Services, events, load balancers and routes, line by line.
//! The only allowed differences are those that a `▲` line of docs/behaviour.md requires. The
//! scenario cites the line, and the difference must be there unless it depends on time.
//!
//! `make compat-bridge`: the same scenarios with our controller on both sides, and upstream's only
//! between the two hand-overs. On one side the cloud is the ccm's provider. On the other side Go
//! code is in between: the bridge, and the contract's adapter as its cloud. `ways` lists the
//! allowed differences with their reasons.
//!
//! Scenarios of one group run at once on both sides. Except for `metrics`, a scenario has Nodes of
//! its own, or a namespace of its own with a Service.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    unreachable_pub,
    reason = "helpers of tests"
)]

#[path = "../bridge/binary.rs"]
mod binary;
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
mod ways;
mod words;

use provider_mock::Fixture;
use provider_mock::fixture::Feature;
use provider_sdk::ServiceFeature;

use compare::Report;
use side::{Side, Way, Who};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_controllers_leave_the_same_behind() {
    let (go, ours) = tokio::join!(
        Side::new(Who::Go, Way::Direct, fixture()),
        Side::new(Who::Ours, Way::Direct, fixture())
    );
    let report = play_all(&[go, ours], Report::of_controllers()).await;
    if report.is_whole() {
        table::check(table::CONTROLLERS, &table::of_controllers(&report.rows));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn through_go_the_same_is_left_behind() {
    // Building takes minutes the first time.
    tokio::task::spawn_blocking(binary::binary).await.unwrap();
    let (direct, bridged) = tokio::join!(
        Side::new(Who::Ours, Way::Direct, fixture()),
        Side::new(Who::Ours, Way::Bridge, fixture())
    );
    let report = play_all(&[direct, bridged], Report::of_ways(ways::EXCEPTIONS)).await;
    if report.is_whole() {
        let unneeded = report.unneeded();
        assert!(
            unneeded.is_empty(),
            "no longer needed in ways.rs:\n{unneeded}"
        );
    }
}

#[test]
fn what_through_go_is_different_stands_on_its_page() {
    table::check(table::WAYS, &table::of_ways(ways::EXCEPTIONS));
}

/// Plays all scenarios on both sides; panics if one is not as expected.
async fn play_all(sides: &[Side; 2], mut report: Report) -> Report {
    for side in sides {
        side.bridge().await;
        side.start(side.who());
    }
    for side in sides {
        side.led("").await;
    }
    report.play(sides, services::before_nodes()).await;
    tokio::join!(
        services::targets_join(&sides[0]),
        services::targets_join(&sides[1])
    );
    report.play(sides, services::scenarios()).await;
    for step in services::steps() {
        report.play(sides, vec![step]).await;
    }
    tokio::join!(services::all_go(&sides[0]), services::all_go(&sides[1]));
    report.play(sides, nodes::scenarios()).await;
    report.play(sides, nodes::lifecycle()).await;
    report.play(sides, routes::idle()).await;
    report.play(sides, routes::scenarios()).await;
    report.play(sides, metrics::scenarios()).await;
    report.play(sides, leader::over()).await;
    report.play(sides, leader::back()).await;
    tokio::join!(routes::track(&sides[0]), routes::track(&sides[1]));
    report.play(sides, routes::tracked()).await;
    report.play(sides, nodes::lie()).await;
    report.play(sides, routes::no_nodes_left()).await;

    // CI cuts long output, so the logs go to files.
    let logs = || sides.each_ref().map(Side::keep_logs).concat();
    assert!(report.failures.is_empty(), "{}{}", logs(), report.text());
    report
}

/// The cloud of both: the mock's defaults, without SCTP.
fn fixture() -> Fixture {
    let mut fixture = Fixture::default();
    let features = &mut fixture.capabilities.load_balancers.features;
    features.retain(|feature| *feature != Feature(ServiceFeature::Sctp));
    fixture
}
