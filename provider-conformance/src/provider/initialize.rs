//! Initialize.

use std::time::Duration;

use cloud_provider_api::v1alpha1::{self as pb, FailureCode};
use futures::future::join_all;
use pb::initialize_response::Outcome;

use super::super::call::{Answer, Exchange};
use super::super::check::{Check, Need, Stop, Verdict, after, check, must, must_equal};
use super::super::core::tour::{self, ensure};
use super::super::hooks::Hook;
use super::super::run::{Run, targets};
use super::super::session::Session;

/// The RPCs that write to the cloud.
const WRITES: [&str; 5] = [
    "EnsureLoadBalancer",
    "UpdateLoadBalancer",
    "DeleteLoadBalancer",
    "CreateRoutes",
    "DeleteRoutes",
];
const FAIL: Need = Need::Hook(Hook::CloudFail);
const SLOW: Need = Need::Hook(Hook::CloudSlow);
/// How long each operation of the cloud takes during a call in flight.
const IN_FLIGHT: Duration = Duration::from_secs(2);

pub(super) fn checks() -> Vec<Check> {
    CHECKS.to_vec()
}

const CHECKS: &[Check] = &[
    check!(
        "provider/initialize-is-repeated",
        ["PROV-2", "CORE-6"],
        "Initialize ten times on several connections answers the same each time",
        repeated
    ),
    check!(
        "provider/initialize-at-once",
        ["PROV-2", "CORE-6"],
        "16 Initialize at once for the same cluster all succeed",
        at_once
    ),
    check!(
        "provider/initialize-with-other-values-replaces",
        ["PROV-2", "CORE-10"],
        "after Initialize for another owner the former one is NOT_INITIALIZED, and the other way round",
        [Need::Instances],
        replaces
    ),
    check!(
        "provider/initialize-needs-no-optional-field",
        ["PROV-2", "PROV-19"],
        "Initialize without previous owners, Pod CIDRs and version succeeds",
        bare
    ),
    check!(
        "provider/initialize-takes-many-values",
        ["PROV-2"],
        "100 previous owner IDs and dual-stack Pod CIDRs are accepted",
        many_values
    ),
    check!(
        "provider/a-previous-owners-load-balancer-is-ours",
        ["PROV-11", "LB-2"],
        "a load balancer with the mark of a previous owner ID is OURS, and not OURS for a cluster without this previous owner ID",
        [Need::LoadBalancers],
        previous_owner
    ),
    check!(
        "provider/previous-owners-are-replaced",
        ["PROV-2", "PROV-11"],
        "a repeated Initialize without previous owners removes them",
        [Need::LoadBalancers],
        previous_replaced
    ),
    check!(
        "provider/refused-credentials-fail-initialize",
        ["PROV-3", "CORE-15"],
        "Initialize answers CREDENTIALS if the cloud refuses them",
        [FAIL],
        |run| fails(run, "CREDENTIALS", FailureCode::Credentials)
    ),
    check!(
        "provider/an-unavailable-cloud-fails-initialize-in-the-body",
        ["PROV-3", "CORE-4"],
        "Initialize of a cloud that is down fails in the body with UNAVAILABLE, or succeeds",
        [FAIL],
        |run| fails(run, "UNAVAILABLE", FailureCode::Unavailable)
    ),
    check!(
        "provider/initialize-succeeds-after-it-failed",
        ["PROV-2", "CORE-10"],
        "after an Initialize while the cloud refuses the credentials, the next one succeeds, in the same process",
        [FAIL],
        after_failure
    ),
    check!(
        "provider/initialize-that-fails-changes-nothing",
        ["PROV-17", "CORE-20"],
        "after a failed Initialize the provider still serves the former owner",
        [Need::Instances],
        failed_changes_nothing
    ),
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
    check!(
        "provider/cloud-scope-is-stated",
        ["PROV-9", "PROV-14"],
        "cloud_scope has 1 to 253 characters: ASCII letters, digits, spaces and . _ : / , @ = + -",
        scope_stated
    ),
    check!(
        "provider/cloud-scope-is-the-same-for-every-owner",
        ["PROV-9"],
        "cloud_scope does not depend on the cluster",
        scope_of_owners
    ),
    check!(
        "provider/cloud-scope-outlives-the-process",
        ["PROV-9"],
        "cloud_scope is the same after each restart",
        [Need::Command],
        scope_after_restart
    ),
    check!(
        "provider/deadline-hints-are-sensible",
        ["PROV-14"],
        "deadline hints, if any, are positive times",
        hints
    ),
];

fn initialized(asked: &Exchange<pb::InitializeResponse>) -> Verdict<&pb::Initialized> {
    match &asked.success("PROV-2")?.outcome {
        Some(Outcome::Initialized(initialized)) => Ok(initialized),
        _ => Err(asked.broke("PROV-2", "`initialized`")),
    }
}

async fn initialize(session: &Session) -> Verdict<pb::Initialized> {
    initialized(&session.call(pb::InitializeRequest::default()).await).cloned()
}

async fn repeated(run: &Run) -> Verdict {
    let expected = initialize(&run.connect().await?).await?;
    for _ in 0..3 {
        let session = run.connect().await?;
        for _ in 0..3 {
            must_equal(
                &initialize(&session).await?,
                &expected,
                "PROV-2",
                "Initialize again for the same cluster",
            )?;
        }
    }
    Ok(())
}

async fn at_once(run: &Run) -> Verdict {
    let session = run.connect().await?;
    let calls: Vec<_> = (0..16).map(|_| initialize(&session)).collect();
    let told: Vec<_> = join_all(calls).await.into_iter().collect::<Verdict<_>>()?;
    told.iter()
        .try_for_each(|one| must_equal(one, &told[0], "PROV-2", "16 Initialize at once"))
}

async fn lookup(run: &Run, session: &Session) -> Exchange<pb::LookupInstancesResponse> {
    session
        .call(pb::LookupInstancesRequest {
            nodes: vec![run.node("whose")],
            facets: vec![pb::InstanceFacet::Existence.into()],
            ..Default::default()
        })
        .await
}

async fn replaces(run: &Run) -> Verdict {
    let first = run.session().await?;
    let second = first.speaking_for(run.other_cluster("b"));
    for (now, former) in [(&second, &first), (&first, &second)] {
        initialize(now).await?;
        lookup(run, now).await.success("PROV-2")?;
        lookup(run, former)
            .await
            .failure("CORE-10", &[FailureCode::NotInitialized])?;
    }
    Ok(())
}

async fn bare(run: &Run) -> Verdict {
    initialize(&run.connect().await?).await.map(|_| ())
}

async fn many_values(run: &Run) -> Verdict {
    let session = run.connect().await?;
    let former = run.other_cluster("former").owner_id;
    let asked = session
        .call(pb::InitializeRequest {
            cluster: None,
            previous_owner_ids: (0..100)
                .map(|number| format!("{former}-{number}"))
                .collect(),
            cluster_cidrs: vec!["100.64.0.0/10".into(), "fd00:64::/48".into()],
            kubernetes_version: "v1.36.3+vendor.1".into(),
            read_only: false,
        })
        .await;
    initialized(&asked).map(|_| ())
}

/// The ownership of the Service's load balancer from the view of this session's cluster.
async fn ownership(
    session: &Session,
    service: &pb::ServiceView,
) -> Verdict<(Exchange<pb::GetLoadBalancerResponse>, pb::Ownership)> {
    let asked = session
        .call(pb::GetLoadBalancerRequest {
            service: Some(service.clone()),
            ..Default::default()
        })
        .await;
    let ownership = match &asked.answer()?.outcome {
        Some(pb::get_load_balancer_response::Outcome::Found(found))
            if found.presence() == pb::LoadBalancerPresence::Present =>
        {
            found.ownership()
        }
        _ => pb::Ownership::Unspecified,
    };
    Ok((asked, ownership))
}

async fn must_be_ours(session: &Session, service: &pb::ServiceView, ours: bool) -> Verdict {
    let (asked, came) = ownership(session, service).await?;
    let expected = if ours {
        "OURS: it is marked with a previous owner ID"
    } else {
        "not OURS: it has the mark of another owner, which is no previous one"
    };
    asked.must((came == pb::Ownership::Ours) == ours, "PROV-11", expected)
}

async fn previous_owner(run: &Run) -> Verdict {
    let former = run.other_cluster("former");
    let session = run.session_for(former.clone(), &[]).await?;
    let service = run.service("moves");
    ensure(&session, &service, Vec::new()).await?;
    let stranger = run.session_for(run.other_cluster("stranger"), &[]).await?;
    must_be_ours(&stranger, &service, false).await?;
    let heir = run.session_for(run.cluster(), &[&former.owner_id]).await?;
    must_be_ours(&heir, &service, true).await
}

async fn previous_replaced(run: &Run) -> Verdict {
    let former = run.other_cluster("former");
    let session = run.session_for(former.clone(), &[]).await?;
    let service = run.service("moves");
    ensure(&session, &service, Vec::new()).await?;
    run.session_for(run.cluster(), &[&former.owner_id]).await?;
    let without = run.session().await?;
    must_be_ours(&without, &service, false).await
}

async fn fails(run: &Run, word: &str, code: FailureCode) -> Verdict {
    run.cloud_fail(word).await?;
    let session = run.connect().await?;
    let asked = session.call(pb::InitializeRequest::default()).await;
    if code != FailureCode::Credentials && initialized(&asked).is_ok() {
        // Verifying the credentials is a SHOULD. If the provider did not call the cloud, nothing
        // failed.
        return Err(Stop::not_offered(
            "Initialize succeeded while the cloud failed every call: it asks nothing of the cloud",
        ));
    }
    if code == FailureCode::Credentials && initialized(&asked).is_ok() {
        return asked.should(
            false,
            "PROV-3",
            "failed with CREDENTIALS: the cloud refuses them",
        );
    }
    asked.failure("PROV-3", &[code]).map(|_| ())
}

async fn after_failure(run: &Run) -> Verdict {
    run.cloud_fail("CREDENTIALS").await?;
    let session = run.connect().await?;
    let failed = session.call(pb::InitializeRequest::default()).await;
    failed.answer()?;
    run.cloud_fail("NONE").await?;
    initialize(&session).await?;
    if run.capabilities().instances.is_some() {
        lookup(run, &session).await.success("CORE-10")?;
    }
    Ok(())
}

async fn failed_changes_nothing(run: &Run) -> Verdict {
    let former = run.session().await?;
    let mut broken = run.other_cluster("b");
    broken.owner_id.clear();
    let second = run.connect_for(run.other_cluster("b")).await?;
    let asked = second
        .call(pb::InitializeRequest {
            cluster: Some(broken),
            ..Default::default()
        })
        .await;
    asked.failure("CORE-20", &[FailureCode::Invalid])?;
    after(
        "an Initialize without an owner_id",
        lookup(run, &former).await.success("PROV-17").map(|_| ()),
    )?;
    if !run.has_hook(Hook::CloudFail) {
        return Ok(());
    }
    run.cloud_fail("CREDENTIALS").await?;
    let asked = second.call(pb::InitializeRequest::default()).await;
    asked.answer()?;
    run.cloud_fail("NONE").await?;
    // If the provider did not call the cloud, this Initialize succeeded. PROV-3 has its own check.
    if initialized(&asked).is_ok() {
        return Ok(());
    }
    after(
        "an Initialize for another owner that the cloud refused",
        lookup(run, &former).await.success("PROV-17").map(|_| ()),
    )?;
    lookup(run, &second)
        .await
        .failure("PROV-17", &[FailureCode::NotInitialized])?;
    Ok(())
}

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
        ensure(&session, &run.service("writes-again"), Vec::new()).await?;
    }
    Ok(())
}

/// Waits until a call has most likely arrived at the provider. Nothing outside shows its arrival.
async fn under_way() {
    tokio::time::sleep(IN_FLIGHT / 4).await;
}

async fn in_flight_keeps_owner(run: &Run) -> Verdict {
    let offered = run.capabilities();
    if offered.load_balancers.is_none() && offered.routes.is_none() {
        return Err(Stop::not_offered(
            "the provider offers neither load balancers nor routes: no call of it creates anything",
        ));
    }
    let former = run.session().await?;
    let next = former.speaking_for(run.other_cluster("next"));
    let (service, route) = (run.service("in-flight"), tour::route(run));
    // Looks up the targets before the cloud becomes slow.
    let nodes = match run.instances(1).await {
        Ok(known) => known.iter().map(|known| run.node_of(known)).collect(),
        Err(_) => Vec::new(),
    };
    run.cloud_slow(IN_FLIGHT).await?;
    let made = offered.load_balancers.is_some().then(|| {
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
            let (seen, ownership) = self::ownership(&former, &service).await?;
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
    let session = run.session().await?;
    let service = run.service("in-flight");
    let nodes = match run.instances(1).await {
        Ok(known) => known.iter().map(|known| run.node_of(known)).collect(),
        Err(_) => Vec::new(),
    };
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

async fn scope_stated(run: &Run) -> Verdict {
    let session = run.connect().await?;
    let asked = session.call(pb::InitializeRequest::default()).await;
    let scope = &initialized(&asked)?.cloud_scope;
    let allowed = |char: char| char.is_ascii_alphanumeric() || " ._:/,@=+-".contains(char);
    asked.must(
        (1..=253).contains(&scope.len()) && scope.chars().all(allowed),
        "PROV-9",
        "a cloud_scope of 1 to 253 ASCII letters, digits, spaces and . _ : / , @ = + -",
    )
}

async fn scope_of_owners(run: &Run) -> Verdict {
    let expected = initialize(&run.connect().await?).await?.cloud_scope;
    for word in ["b", "c"] {
        let other = run.connect_for(run.other_cluster(word)).await?;
        must_equal(
            &initialize(&other).await?.cloud_scope,
            &expected,
            "PROV-9",
            "Initialize for another cluster",
        )?;
    }
    Ok(())
}

async fn scope_after_restart(run: &Run) -> Verdict {
    let expected = initialize(&run.connect().await?).await?.cloud_scope;
    for _ in 0..2 {
        run.target().restart().await?;
        let session = run.connect().await?;
        must_equal(
            &initialize(&session).await?.cloud_scope,
            &expected,
            "PROV-9",
            "Initialize of a new process",
        )?;
    }
    Ok(())
}

async fn hints(run: &Run) -> Verdict {
    let told = initialize(&run.connect().await?).await?;
    let Some(hints) = told.deadline_hints else {
        return Err(Stop::not_offered("Initialize gives no deadline_hints"));
    };
    let all = [hints.lookup, hints.list, hints.load_balancer, hints.routes];
    let sensible = all
        .iter()
        .flatten()
        .all(|hint| Duration::try_from(*hint).is_ok_and(|hint| !hint.is_zero()));
    must(
        sensible,
        "PROV-14",
        "Initialize",
        "deadline_hints that are positive times, or none",
        format_args!("{hints:?}"),
    )
}
