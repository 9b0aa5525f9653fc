//! Owners of load balancers: other clusters, other Services and former owners.

use cloud_provider_api::v1alpha1::{self as pb, FailureCode, Ownership};
use pb::delete_load_balancer_response::Outcome as Deleted;

use crate::call::{Answer, Exchange};
use crate::check::{Check, Need, Stop, Verdict, check, must, must_equal};
use crate::listings::is_owner;
use crate::run::Run;

use super::answer::{found, untold};
use super::balancer::Balancer;
use super::stage::{Stage, Writes, is_of, list, offered};

pub(super) fn checks() -> Vec<Check> {
    CHECKS.to_vec()
}

const CHECKS: &[Check] = &[
    check!(
        "load-balancers/owner-other-cluster-get",
        ["LB-1", "LB-24", "LB-32", "CORE-14"],
        "Get of another cluster's load balancer, same namespace, name and UID, never answers OURS or its handle, and answers CONFLICT only with its handle",
        [Need::LoadBalancers],
        other_cluster_get
    ),
    check!(
        "load-balancers/owner-other-cluster-ensure",
        ["LB-1", "LB-2"],
        "Ensure of another cluster, for the same namespace, name and UID, makes a load balancer of its own or is CONFLICT; the first cluster's is untouched",
        [Need::LoadBalancers],
        other_cluster_ensure
    ),
    check!(
        "load-balancers/owner-other-cluster-update",
        ["LB-2", "LB-11", "LB-24"],
        "Update of a load balancer that only another cluster has is NOT_FOUND; that one is untouched",
        [Need::LoadBalancers],
        other_cluster_update
    ),
    check!(
        "load-balancers/owner-other-cluster-delete",
        ["LB-2", "LB-12", "LB-24"],
        "Delete of a load balancer that only another cluster has is `done`, with the grant to adopt and without, and leaves that one untouched",
        [Need::LoadBalancers],
        other_cluster_delete
    ),
    check!(
        "load-balancers/owner-other-cluster-list",
        ["LB-13", "CORE-14"],
        "The list of a cluster has no load balancer of another one",
        [Need::LoadBalancers, Need::LoadBalancerListing],
        other_cluster_list
    ),
    check!(
        "load-balancers/owner-same-cluster-name",
        ["LB-1", "CORE-14"],
        "Two clusters of the same name are two owners: only the owner ID counts",
        [Need::LoadBalancers],
        same_cluster_name
    ),
    check!(
        "load-balancers/owner-renamed-cluster",
        ["LB-1"],
        "A cluster with another name and the same owner ID still has its load balancers, and the provider writes nothing",
        [Need::LoadBalancers],
        renamed_cluster
    ),
    check!(
        "load-balancers/owner-recreated-service",
        ["LB-1", "LB-2"],
        "A Service that was deleted and created again, same name and another UID, is another one: both have their own load balancer",
        [Need::LoadBalancers],
        recreated_service
    ),
    check!(
        "load-balancers/owner-recreated-service-delete",
        ["LB-1", "LB-12"],
        "Delete for the old UID leaves the load balancer of the new UID, and the other way round",
        [Need::LoadBalancers],
        recreated_service_delete
    ),
    check!(
        "load-balancers/owner-previous",
        ["LB-2", "LB-24", "LB-25", "CORE-14"],
        "A load balancer with the mark of a previous owner ID is OURS and listed; it is not in sync until Ensure has marked it again",
        [Need::LoadBalancers],
        previous
    ),
    check!(
        "load-balancers/owner-previous-marked-anew",
        ["LB-2", "CORE-14"],
        "The next Ensure that writes marks a load balancer of a previous owner ID with the present one; it no longer belongs to the former owner",
        [Need::LoadBalancers],
        previous_marked_anew
    ),
    check!(
        "load-balancers/owner-previous-delete",
        ["LB-2", "LB-12"],
        "Delete for the present owner ID removes a load balancer with the mark of a previous one, also without a handle",
        [Need::LoadBalancers],
        previous_delete
    ),
    check!(
        "load-balancers/owner-foreign-is-never-adopted",
        ["LB-2", "LB-9"],
        "adopt_unmarked adopts no load balancer with another owner's mark",
        [Need::LoadBalancers],
        foreign_is_never_adopted
    ),
    check!(
        "load-balancers/owner-not-initialised",
        ["CORE-10"],
        "Every call for an owner that was not initialised is NOT_INITIALIZED, and does nothing",
        [Need::LoadBalancers],
        not_initialised
    ),
    check!(
        "load-balancers/owner-marks-outlive-the-process",
        ["CORE-14", "LB-14"],
        "After the provider was killed and started again nothing has changed: OURS, in sync, nothing to write",
        [Need::LoadBalancers, Need::Command],
        marks_outlive
    ),
];

/// Initialises the process for the check's own cluster again, and checks that its load balancer is
/// unchanged.
async fn untouched(stage: &Stage<'_>, balancer: &Balancer, before: &pb::LoadBalancer) -> Verdict {
    let session = stage.back().await?;
    let mut balancer = balancer.through(&session);
    let after = balancer.present(Some(stage.targets())).await?;
    must_equal(
        &after,
        before,
        "LB-2",
        "Get for its owner, before and after the calls of another one: the load balancer",
    )?;
    stage.converged(&mut balancer, Some(stage.targets())).await
}

/// A ready load balancer, Get's answer about it, and the same Service in another cluster, without a
/// handle.
async fn two_clusters(run: &Run) -> Verdict<(Stage<'_>, Balancer, pb::LoadBalancer, Balancer)> {
    let stage = Stage::new(run).await?;
    let mut ours = stage.ready("ours").await?;
    let before = ours.present(Some(stage.targets())).await?;
    let session = stage.work_for(&run.other_cluster("b"), &[]).await?;
    let theirs = ours.forgetful().through(&session);
    Ok((stage, ours, before, theirs))
}

async fn other_cluster_get(run: &Run) -> Verdict {
    let (stage, ours, before, theirs) = two_clusters(run).await?;
    let handles = [None, ours.handle.clone()];
    for handle in handles {
        let mut theirs = theirs.clone();
        theirs.handle = handle;
        let by_handle = theirs.handle.is_some();
        let asked = theirs.get(Some(stage.targets())).await?;
        // Only with the handle, CONFLICT is a valid answer too (LB-24, note d).
        if by_handle && asked.answer()?.failed().is_some() {
            asked.failure("LB-4", &[FailureCode::Conflict])?;
            continue;
        }
        asked.success("LB-24")?;
        let found = found(&asked)?;
        asked.must(
            found.ownership() != Ownership::Ours && found.in_sync != Some(true),
            "LB-1",
            "ABSENT or FOREIGN, and not in sync: another owner ID made it",
        )?;
        untold(&asked, ours.handle.as_ref())?;
    }
    untouched(&stage, &ours, &before).await
}

async fn other_cluster_ensure(run: &Run) -> Verdict {
    let (stage, ours, before, mut theirs) = two_clusters(run).await?;
    let asked = theirs.ensure(Some(stage.targets()), false).await?;
    if asked.answer()?.failed().is_some() {
        // A part of it collides, such as a name that is derived from the UID.
        asked.failure("LB-2", &[FailureCode::Conflict])?;
        untold(&asked, ours.handle.as_ref())?;
    } else {
        theirs.ensured(Some(stage.targets())).await?;
        let own = theirs.present(Some(stage.targets())).await?;
        stage.listed_times(&theirs, 1, "LB-1").await?;
        if before.load_balancer_name != own.load_balancer_name {
            theirs.deleted().await?;
        }
    }
    untouched(&stage, &ours, &before).await
}

async fn other_cluster_update(run: &Run) -> Verdict {
    let (stage, ours, before, mut theirs) = two_clusters(run).await?;
    let asked = theirs.update(stage.few()).await?;
    asked.failure("LB-24", &[FailureCode::NotFound])?;
    untouched(&stage, &ours, &before).await
}

async fn other_cluster_delete(run: &Run) -> Verdict {
    let (stage, ours, before, mut theirs) = two_clusters(run).await?;
    is_done(&theirs.delete().await?, "this cluster has none")?;
    is_done(&theirs.delete_granted().await?, "this cluster has none")?;
    untouched(&stage, &ours, &before).await
}

/// Checks that Delete answered `done`.
pub(super) fn is_done(asked: &Exchange<pb::DeleteLoadBalancerResponse>, why: &str) -> Verdict {
    let done = matches!(asked.answer()?.outcome, Some(Deleted::Done(_)));
    asked.must(done, "LB-24", format_args!("`done`: {why}"))
}

async fn other_cluster_list(run: &Run) -> Verdict {
    let (stage, ours, before, theirs) = two_clusters(run).await?;
    stage.listed_times(&theirs, 0, "LB-13").await?;
    untouched(&stage, &ours, &before).await?;
    stage.listed_times(&ours, 1, "LB-13").await
}

async fn same_cluster_name(run: &Run) -> Verdict {
    let stage = Stage::new(run).await?;
    let mut ours = stage.ready("ours").await?;
    let before = ours.present(Some(stage.targets())).await?;
    // Every `other_cluster` has the same cluster name.
    let session = stage.work_for(&run.other_cluster("same-name"), &[]).await?;
    let mut theirs = ours.forgetful().through(&session);
    let asked = theirs.get(None).await?;
    asked.must(
        found(&asked)?.ownership() != Ownership::Ours,
        "LB-1",
        "not OURS: the name of the cluster is the same, the owner ID is another",
    )?;
    untouched(&stage, &ours, &before).await
}

async fn renamed_cluster(run: &Run) -> Verdict {
    let stage = Stage::new(run).await?;
    let balancer = stage.ready("renamed").await?;
    let mut cluster = run.cluster();
    cluster.name = "renamed-since".into();
    let session = stage.work_for(&cluster, &[]).await?;
    let mut renamed = balancer.through(&session);
    stage.converged(&mut renamed, Some(stage.targets())).await?;
    let mut forgetful = renamed.forgetful();
    stage.converged_without_handle(&mut forgetful).await
}

/// Two Services of one name: a former one, whose load balancer still exists, and a new one.
async fn two_uids(run: &Run) -> Verdict<(Stage<'_>, Balancer, Balancer)> {
    let stage = Stage::new(run).await?;
    let old = stage.ready("same-name").await?;
    let uid = run.uid();
    // The same port, unless all Services share one load balancer.
    let ports = run.service("ports").ports;
    let mut new = old.forgetful().changed(|service| {
        service.uid = uid;
        service.ports = ports;
    });
    let asked = new.get(None).await?;
    asked.must(
        found(&asked)?.ownership() != Ownership::Ours,
        "LB-1",
        "ABSENT or FOREIGN: the UID is another, whatever the name is",
    )?;
    new.ensured(Some(stage.targets())).await?;
    Ok((stage, old, new))
}

async fn recreated_service(run: &Run) -> Verdict {
    let (stage, mut old, mut new) = two_uids(run).await?;
    for balancer in [&mut old, &mut new] {
        stage.converged(balancer, Some(stage.targets())).await?;
    }
    both_listed(&stage, &old, &new).await?;
    let mut changed = new.changed(|service| service.ports[0].port = 8_080);
    changed.ensured(Some(stage.targets())).await?;
    stage.converged(&mut old, Some(stage.targets())).await
}

/// Checks that two Services of one name are listed, each once. Without UIDs (LB-30) the listing
/// shows only that two are there.
async fn both_listed(stage: &Stage<'_>, one: &Balancer, other: &Balancer) -> Verdict {
    if !stage.run.sees(&[Need::LoadBalancerListing]) {
        return Ok(());
    }
    let services = [&one.service, &other.service];
    let listed = stage.list().await?;
    let owners = listed.iter().flat_map(|of| &of.owners);
    let mut uids: Vec<_> = owners
        .filter(|owner| services.iter().any(|service| is_owner(owner, service)))
        .map(|owner| owner.uid.as_str())
        .collect();
    uids.sort_unstable();
    let mut expected = services.map(|service| service.uid.as_str());
    expected.sort_unstable();
    must(
        uids == expected || uids == ["", ""],
        "LB-1",
        "ListLoadBalancers: the UIDs of two Services of one name",
        format_args!("{expected:?}"),
        format_args!("{listed:?}"),
    )
}

async fn recreated_service_delete(run: &Run) -> Verdict {
    let (stage, mut old, mut new) = two_uids(run).await?;
    old.forgetful().deleted().await?;
    old = old.forgetful();
    old.absent("LB-12", "Delete has answered `done`").await?;
    stage.converged(&mut new, Some(stage.targets())).await?;
    old.ensured(Some(stage.targets())).await?;
    new.forgetful().deleted().await?;
    stage.converged(&mut old, Some(stage.targets())).await
}

/// A load balancer that was created for one owner ID. The cluster then gets another owner ID, with
/// the first as a previous one.
async fn inherited(run: &Run) -> Verdict<(Stage<'_>, Balancer)> {
    let stage = Stage::new(run).await?;
    let before = stage.ready("inherited").await?;
    let former = run.cluster().owner_id;
    let previous = ["long-before", former.as_str()];
    let session = stage
        .work_for(&run.other_cluster("heir"), &previous)
        .await?;
    Ok((stage, before.through(&session)))
}

async fn previous(run: &Run) -> Verdict {
    let (stage, mut balancer) = inherited(run).await?;
    balancer.present(Some(stage.targets())).await?;
    balancer.forgetful().present(Some(stage.targets())).await?;
    stage.listed_times(&balancer, 1, "LB-13").await?;
    if offered(run).in_sync {
        let asked = balancer.get(Some(stage.targets())).await?;
        asked.must(
            found(&asked)?.in_sync == Some(false),
            "LB-25",
            "in_sync: false, for a mark with a previous owner ID is a difference",
        )?;
    }
    let before = stage.writes().await?;
    balancer.ensured(Some(stage.targets())).await?;
    let sent = "Ensure of a load balancer that is as asked but for the mark of a previous owner ID";
    stage.wrote_by(before, Writes::Some, "LB-25", sent).await?;
    // Nothing depends on the previous owner ID any more.
    let session = stage.work_for(&run.other_cluster("heir"), &[]).await?;
    let mut heir = balancer.through(&session);
    stage.converged(&mut heir, Some(stage.targets())).await?;
    heir.forgetful().present(Some(stage.targets())).await?;
    Ok(())
}

async fn previous_marked_anew(run: &Run) -> Verdict {
    let (stage, balancer) = inherited(run).await?;
    let mut changed = balancer.changed(|service| service.ports[0].port = 8_080);
    changed.ensured(Some(stage.targets())).await?;
    let session = stage.work_for(&run.other_cluster("heir"), &[]).await?;
    let mut heir = changed.through(&session);
    heir.present(None).await?;
    heir.forgetful().present(None).await?;
    stage.listed_times(&heir, 1, "CORE-14").await?;
    let session = stage.back().await?;
    let mut former = heir.forgetful().through(&session);
    let asked = former.get(None).await?;
    asked.must(
        found(&asked)?.ownership() != Ownership::Ours,
        "CORE-14",
        "not OURS: the write marked it for the present owner ID",
    )?;
    stage.listed_times(&former, 0, "CORE-14").await
}

async fn previous_delete(run: &Run) -> Verdict {
    let (stage, balancer) = inherited(run).await?;
    balancer.forgetful().deleted().await?;
    let mut balancer = balancer.forgetful();
    balancer
        .absent("LB-12", "Delete has answered `done`")
        .await?;
    stage.listed_times(&balancer, 0, "LB-12").await?;
    let session = stage.back().await?;
    let mut former = balancer.through(&session);
    former.absent("LB-12", "Delete has answered `done`").await
}

async fn foreign_is_never_adopted(run: &Run) -> Verdict {
    let (stage, ours, before, mut theirs) = two_clusters(run).await?;
    let Some(handle) = ours.handle.clone() else {
        return Err(Stop::not_offered("the provider gives no handles"));
    };
    theirs.handle = Some(handle);
    let asked = theirs.ensure(Some(stage.targets()), true).await?;
    asked.failure("LB-4", &[FailureCode::Conflict])?;
    untouched(&stage, &ours, &before).await
}

async fn not_initialised(run: &Run) -> Verdict {
    let stage = Stage::new(run).await?;
    let ours = stage.ready("ours").await?;
    let stranger = stage.session.speaking_for(run.other_cluster("stranger"));
    let balancer = ours.through(&stranger);
    let before = stage.writes().await?;
    let codes = [FailureCode::NotInitialized];
    let rule = "CORE-10";
    balancer.clone().get(None).await?.failure(rule, &codes)?;
    let asked = balancer
        .clone()
        .ensure(Some(stage.targets()), false)
        .await?;
    asked.failure(rule, &codes)?;
    balancer
        .clone()
        .update(stage.targets())
        .await?
        .failure(rule, &codes)?;
    balancer.clone().delete().await?.failure(rule, &codes)?;
    let sent = "Get, Ensure, Update and Delete for an owner that was not initialised";
    stage.wrote_by(before, Writes::None, rule, sent).await?;
    stage
        .converged(&mut ours.clone(), Some(stage.targets()))
        .await
}

async fn marks_outlive(run: &Run) -> Verdict {
    let stage = Stage::new(run).await?;
    let mut made = Vec::new();
    for _ in 0..3 {
        made.push(stage.ready("outlives").await?);
    }
    run.target().restart().await?;
    let session = stage.back().await?;
    if run.sees(&[Need::LoadBalancerListing]) {
        let listed = list(&session).await?;
        for balancer in &made {
            let service = &balancer.service;
            let times = listed.iter().filter(|one| is_of(one, service)).count();
            must_equal(
                &times,
                &1,
                "CORE-14",
                format_args!(
                    "ListLoadBalancers after the provider was killed and started again: how often the Service with UID {} is there",
                    service.uid
                ),
            )?;
        }
    }
    for balancer in &made {
        let mut balancer = balancer.through(&session);
        stage
            .converged(&mut balancer, Some(stage.targets()))
            .await?;
        stage
            .converged_without_handle(&mut balancer.forgetful())
            .await?;
    }
    Ok(())
}
