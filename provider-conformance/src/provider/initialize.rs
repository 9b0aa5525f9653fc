//! Initialize.

use std::time::Duration;

use cloud_provider_api::v1alpha1::{self as pb, FailureCode};
use futures::future::join_all;
use pb::initialize_response::Outcome;

use super::super::call::Exchange;
use super::super::check::{Check, Need, Stop, Verdict, after, check, must, must_equal};
use super::super::core::tour::ensure;
use super::super::hooks::Hook;
use super::super::run::Run;
use super::super::session::Session;

const FAIL: Need = Need::Hook(Hook::CloudFail);

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

pub(super) fn initialized(asked: &Exchange<pb::InitializeResponse>) -> Verdict<&pb::Initialized> {
    match &asked.success("PROV-2")?.outcome {
        Some(Outcome::Initialized(initialized)) => Ok(initialized),
        _ => Err(asked.broke("PROV-2", "`initialized`")),
    }
}

pub(super) async fn initialize(session: &Session) -> Verdict<pb::Initialized> {
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
pub(super) async fn ownership(
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
    let nodes = run.few_nodes().await?;
    let former = run.other_cluster("former");
    let session = run.session_for(former.clone(), &[]).await?;
    let service = run.service("moves");
    ensure(&session, &service, nodes).await?;
    let stranger = run.session_for(run.other_cluster("stranger"), &[]).await?;
    must_be_ours(&stranger, &service, false).await?;
    let heir = run.session_for(run.cluster(), &[&former.owner_id]).await?;
    must_be_ours(&heir, &service, true).await
}

async fn previous_replaced(run: &Run) -> Verdict {
    let nodes = run.few_nodes().await?;
    let former = run.other_cluster("former");
    let session = run.session_for(former.clone(), &[]).await?;
    let service = run.service("moves");
    ensure(&session, &service, nodes).await?;
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
