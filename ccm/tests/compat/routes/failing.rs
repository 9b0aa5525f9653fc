//! Routes that cannot be created, at first or ever.

use provider_mock::Fault;
use provider_sdk::FailureCode;

use super::{cloud_has, joins, planted, routed, unrouted, v4, v6};
use crate::nodes::instance;
use crate::scenario::{Scenario, nothing};
use crate::side::{Side, Who};

const CREATE: &str = "CreateRoutes";
const LESS: &str = "the ccm retries a route that fails, and reports it, less and less often";

/// The event of a route that cannot be created.
fn not_made(node: &str, cidr: &str, why: &str) -> String {
    format!(
        "event on {node}: Warning FailedToCreateRoute: Could not create route <uid of {node}> {cidr} for node {node} after <time>: {why} [route_controller]"
    )
}

pub fn failing() -> Vec<Scenario> {
    vec![
        Scenario::new(
            "route-fails",
            "a route cannot be made at first",
            &["B-R5", "▲R5", "B-R4"],
            async |side: Side, name| {
                side.fault(
                    Fault::failure(CREATE, FailureCode::Precondition)
                        .subject(v4(22))
                        .times(1),
                );
                joins(&side, instance(name), &[v4(22)]).await;
                cloud_has(&side, &v4(22), true).await;
                routed(&side, name).await;
                nothing()
            },
        ),
        Scenario::new(
            "route-half",
            "the cloud refuses one of a Node's two routes",
            &["B-R5", "B-R4"],
            async |side: Side, name| {
                side.fault(Fault::failure(CREATE, FailureCode::Precondition).subject(v6(23)));
                joins(&side, instance(name), &[v4(23), v6(23)]).await;
                unrouted(&side, name).await;
                cloud_has(&side, &v4(23), true).await;
                nothing()
            },
        )
        .not_less("▲R5", LESS, Who::Go, &not_made("route-half", "fd00:10:244:0:23::/80", "scripted by the mock (PreconditionMissing)"), 2),
        Scenario::new(
            "route-taken",
            "another owner's route leads a Node's Pod CIDR elsewhere",
            &["B-R2", "B-R5", "B-R4"],
            async |side: Side, name| {
                let target = format!("{name}--target");
                side.cloud().add_instance(instance(&target)).unwrap();
                let theirs = Some("another-cluster".to_owned());
                let route = planted(name, &v4(24), &target, theirs);
                side.cloud().plant_route(route).unwrap();
                joins(&side, instance(name), &[v4(24)]).await;
                unrouted(&side, name).await;
                nothing()
            },
        )
        .not_less("▲R5", LESS, Who::Go, &not_made("route-taken", "10.244.24.0/24", "the route \"route-taken--planted\" to 10.244.24.0/24 was not made for this cluster; remove it or choose another CIDR (Conflict)"), 2),
        Scenario::new(
            "route-cloud-stumbles",
            "the cloud's API is down when the controller makes a route",
            &["B-R4", "▲R9"],
            async |side: Side, name| {
                side.fault(
                    Fault::failure(CREATE, FailureCode::Unavailable)
                        .subject(v4(27))
                        .times(1),
                );
                joins(&side, instance(name), &[v4(27)]).await;
                cloud_has(&side, &v4(27), true).await;
                routed(&side, name).await;
                nothing()
            },
        ),
        Scenario::new(
            "route-cloud-down",
            "the cloud's API is down, and stays so",
            &["B-R4", "B-R5"],
            async |side: Side, name| {
                side.fault(Fault::failure(CREATE, FailureCode::Unavailable).subject(v4(28)));
                joins(&side, instance(name), &[v4(28)]).await;
                unrouted(&side, name).await;
                nothing()
            },
        )
        .not_less("▲R5", LESS, Who::Go, &not_made("route-cloud-down", "10.244.28.0/24", "scripted by the mock (CloudUnavailable)"), 2),
    ]
}
