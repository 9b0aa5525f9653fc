//! Initialize while calls are in flight, and Initialize with `read_only`.

use std::time::Duration;

use cloud_provider_api::v1alpha1::{self as pb, FailureCode};

use super::super::call::{Answer, Exchange};
use super::super::check::{Check, Need, Stop, Verdict, check, must, must_equal};
use super::super::core::tour::{self, ensure};
use super::super::hooks::Hook;
use super::super::run::{Run, targets};
use super::super::session::Session;
use super::initialize::{initialize, initialized, ownership};

/// The RPCs that write to the cloud.
const WRITES: [&str; 5] = [
    "EnsureLoadBalancer",
    "UpdateLoadBalancer",
    "DeleteLoadBalancer",
    "CreateRoutes",
    "DeleteRoutes",
];
const SLOW: Need = Need::Hook(Hook::CloudSlow);
/// How long an operation of the cloud takes if a call in flight begins it before the Initialize.
const IN_FLIGHT: Duration = Duration::from_secs(6);

pub(super) fn checks() -> Vec<Check> {
    CHECKS.to_vec()
}

const CHECKS: &[Check] = &[
    check!(
        "provider/calls-in-flight-keep-their-owner",
        ["PROV-18", "CORE-14"],
        "an Ensure and a CreateRoutes in flight when another owner is initialised make no object for that owner: they go on for the former one, or end",
        [SLOW],
        in_flight_keeps_owner
    ),
    check!(
        "provider/calls-in-flight-keep-writing",
        ["PROV-18", "PROV-20"],
        "an Ensure that is in flight when an Initialize with read_only succeeds for the same owner is not `failed` with ReadOnly",
        [Need::LoadBalancers, SLOW],
        in_flight_keeps_writing
    ),
    check!(
        "provider/read-only-is-said",
        ["PROV-20"],
        "Initialize with read_only confirms it, and one without it does not",
        read_only_said
    ),
    check!(
        "provider/read-only-writes-nothing",
        ["PROV-20"],
        "after an Initialize with read_only, a call that would write is PRECONDITION with the reason ReadOnly; after one without read_only, Ensure works",
        read_only_writes_nothing
    ),
];

async fn with_read_only(
    session: &Session,
    read_only: bool,
) -> Verdict<Exchange<pb::InitializeResponse>> {
    let asked = session
        .call(pb::InitializeRequest {
            read_only,
            ..Default::default()
        })
        .await;
    let said = initialized(&asked)?.read_only;
    asked.must(
        said == read_only,
        "PROV-20",
        format_args!("`initialized` with read_only {read_only}, as it was asked for"),
    )?;
    Ok(asked)
}

async fn read_only_said(run: &Run) -> Verdict {
    let session = run.connect().await?;
    for read_only in [true, false, true, false] {
        with_read_only(&session, read_only).await?;
    }
    Ok(())
}

async fn read_only_writes_nothing(run: &Run) -> Verdict {
    let offered = run.capabilities();
    if offered.load_balancers.is_none() && offered.routes.is_none() {
        return Err(Stop::not_offered(
            "the provider makes neither load balancers nor routes",
        ));
    }
    let nodes = if offered.load_balancers.is_some() {
        run.few_nodes().await?
    } else {
        Vec::new()
    };
    let session = run.connect().await?;
    with_read_only(&session, true).await?;
    let counted = run.has_hook(Hook::CloudWrites);
    let before = if counted {
        run.cloud_writes().await?
    } else {
        0
    };
    let told = tour::everything(run, &session).await;
    for one in &told {
        if WRITES.contains(&one.rpc) {
            one.must_fail("PROV-20", &[FailureCode::Precondition])?;
            let reasons = one.failures.as_deref().unwrap_or_default();
            one.must(
                reasons.iter().all(|failure| failure.reason == "ReadOnly"),
                "PROV-20",
                "the reason `ReadOnly`".into(),
            )?;
        } else {
            one.must(
                one.status().is_none(),
                "CORE-4",
                "an answer with gRPC status OK".into(),
            )?;
        }
    }
    if counted {
        must_equal(
            &run.cloud_writes().await?,
            &before,
            "PROV-20",
            "every RPC after an Initialize with read_only; writes that reached the cloud",
        )?;
    }
    with_read_only(&session, false).await?;
    if offered.load_balancers.is_some() {
        ensure(&session, &run.service("writes-again"), nodes).await?;
    }
    Ok(())
}

/// Waits until a call has most likely arrived at the provider. Nothing outside shows its arrival.
async fn under_way() {
    tokio::time::sleep(Duration::from_millis(500)).await;
}

async fn in_flight_keeps_owner(run: &Run) -> Verdict {
    let offered = run.capabilities();
    if offered.load_balancers.is_none() && offered.routes.is_none() {
        return Err(Stop::not_offered(
            "the provider offers neither load balancers nor routes: no call of it creates anything",
        ));
    }
    // Looks up the targets before the cloud becomes slow.
    let nodes = run.few_nodes_if_any().await?;
    let former = run.session().await?;
    let next = former.speaking_for(run.other_cluster("next"));
    let (service, route) = (run.service("in-flight"), tour::route(run));
    run.cloud_slow(IN_FLIGHT).await?;
    let made = nodes.map(|nodes| {
        let request = pb::EnsureLoadBalancerRequest {
            service: Some(service.clone()),
            targets: Some(targets(nodes)),
            ..Default::default()
        };
        let session = former.clone();
        tokio::spawn(async move { session.call(request).await })
    });
    let routed = offered.routes.is_some().then(|| {
        let request = pb::CreateRoutesRequest {
            routes: vec![route.clone()],
            ..Default::default()
        };
        let session = former.clone();
        tokio::spawn(async move { session.call(request).await })
    });
    under_way().await;
    run.cloud_slow(Duration::ZERO).await?;
    initialize(&next).await?;
    if let Some(made) = made {
        let asked = made.await.map_err(|error| lost(&error))?;
        ended_or_went_on(&asked, asked.answer()?.failed())?;
        let (seen, ownership) = ownership(&next, &service).await?;
        seen.must(
            ownership != pb::Ownership::Ours,
            "PROV-18",
            "not OURS: the Ensure that made it was admitted for the former owner",
        )?;
        if let Some(pb::ensure_load_balancer_response::Outcome::Ready(_)) = asked.answer()?.outcome
        {
            initialize(&former).await?;
            let (seen, ownership) = super::initialize::ownership(&former, &service).await?;
            seen.must(
                ownership == pb::Ownership::Ours,
                "PROV-18",
                "OURS: an Ensure that was admitted for this owner has answered `ready`",
            )?;
            initialize(&next).await?;
        }
    }
    if let Some(routed) = routed {
        let asked = routed.await.map_err(|error| lost(&error))?;
        ended_or_went_on(&asked, asked.answer()?.failed.as_ref())?;
        let listed = next.list(pb::ListRoutesRequest::default()).await;
        let items = listed.items()?;
        let taken = items.iter().find(|one| {
            one.destination_cidr == route.destination_cidr && one.ownership() == pb::Ownership::Ours
        });
        must(
            taken.is_none(),
            "PROV-18",
            "CreateRoutes, Initialize for another owner while it runs, then ListRoutes for that owner",
            "the route is not OURS: the provider admitted the call that made it for the former owner",
            format_args!("{taken:?}"),
        )?;
    }
    Ok(())
}

fn lost(error: &tokio::task::JoinError) -> Stop {
    Stop::failed("(the suite)", "a call in flight", "its task ends", error)
}

/// Checks a call in flight for a former owner. It may end with NOT_INITIALIZED or BUSY. An
/// Initialize for another owner must cause no other failure.
fn ended_or_went_on<T: std::fmt::Debug>(
    asked: &Exchange<T>,
    failed: Option<&pb::Failure>,
) -> Verdict {
    let allowed = [FailureCode::NotInitialized, FailureCode::Busy];
    asked.must(
        failed.is_none_or(|failure| allowed.contains(&failure.code())),
        "PROV-18",
        "its own answer, or `failed` with NOT_INITIALIZED or BUSY: another owner was initialised while it ran",
    )
}

async fn in_flight_keeps_writing(run: &Run) -> Verdict {
    let nodes = run.few_nodes().await?;
    let session = run.session().await?;
    let service = run.service("in-flight");
    run.cloud_slow(IN_FLIGHT).await?;
    let request = pb::EnsureLoadBalancerRequest {
        service: Some(service),
        targets: Some(targets(nodes)),
        ..Default::default()
    };
    let in_flight = session.clone();
    let made = tokio::spawn(async move { in_flight.call(request).await });
    under_way().await;
    run.cloud_slow(Duration::ZERO).await?;
    let asked = session
        .call(pb::InitializeRequest {
            read_only: true,
            ..Default::default()
        })
        .await;
    initialized(&asked)?;
    let asked = made.await.map_err(|error| lost(&error))?;
    let read_only = asked
        .answer()?
        .failed()
        .is_some_and(|failure| failure.reason == "ReadOnly");
    asked.must(
        !read_only,
        "PROV-18",
        "its own answer, not ReadOnly: it was admitted before the Initialize with read_only",
    )?;
    // Only a provider that may write can remove what was created.
    initialize(&session).await.map(|_| ())
}
