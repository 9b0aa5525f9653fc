//! DeleteLoadBalancer: `done` means that the provider searched the cloud, and that nothing of the
//! Service is left.

use std::time::Duration;

use cloud_provider_api::v1alpha1 as pb;
use pb::delete_load_balancer_response::Outcome as Deleted;
use pb::ensure_load_balancer_response::Outcome as Ensured;
use prost_types::Timestamp;

use crate::call::Answer;
use crate::check::{Check, Need, Stop, Verdict, check};
use crate::hooks::Hook;
use crate::run::Run;

use super::balancer::Balancer;
use super::stage::{Stage, Writes, offered};

/// The least time to wait for a deletion.
const LEAST_GOING: Duration = Duration::from_millis(500);
const MOST_GOING: Duration = Duration::from_secs(10);

pub(super) fn checks() -> Vec<Check> {
    vec![
        check!(
            "load-balancers/delete-done",
            ["LB-12"],
            "Delete, repeated as `pending` asks, answers `done`, and nothing is left",
            [Need::LoadBalancers],
            done
        ),
        check!(
            "load-balancers/delete-repeated",
            ["LB-12", "CORE-6"],
            "Delete of a deleted load balancer answers `done` every time, and writes nothing",
            [Need::LoadBalancers],
            repeated
        ),
        check!(
            "load-balancers/delete-never-made",
            ["LB-12"],
            "Delete of a load balancer that never existed answers `done`, and writes nothing",
            [Need::LoadBalancers],
            never_made
        ),
        check!(
            "load-balancers/delete-without-handle",
            ["LB-5", "LB-12"],
            "Delete without the handle finds the load balancer by its mark",
            [Need::LoadBalancers],
            without_handle
        ),
        check!(
            "load-balancers/delete-last-seen-service",
            ["LB-5", "LB-12"],
            "Delete works with the last known Service: being deleted, no longer of type LoadBalancer, or with other changed fields",
            [Need::LoadBalancers],
            last_seen
        ),
        check!(
            "load-balancers/delete-by-uid-alone",
            ["LB-1", "LB-5"],
            "Delete of a Service with nothing but namespace, name and UID removes its load balancer",
            [Need::LoadBalancers],
            by_uid_alone
        ),
        check!(
            "load-balancers/delete-pending",
            ["LB-12", "LB-24"],
            "While Delete answers `pending`, Get does not say PRESENT and in sync, and Update is NOT_FOUND",
            [Need::LoadBalancers],
            pending
        ),
        check!(
            "load-balancers/ensure-of-remnants",
            ["LB-24", "LB-12"],
            "Ensure during a deletion is `pending` until the load balancer is gone, or builds it up again; after `ready` the load balancer stays",
            [Need::LoadBalancers],
            ensured_again
        ),
        check!(
            "load-balancers/delete-half-made",
            ["LB-12", "CORE-6"],
            "Delete right after the first Ensure, ready or pending, leaves nothing",
            [Need::LoadBalancers],
            half_made
        ),
        check!(
            "load-balancers/delete-removed-behind-the-back",
            ["LB-12"],
            "Delete of a load balancer that somebody removed in the cloud is done",
            [Need::LoadBalancers, Need::Hook(Hook::LoadBalancerRemove)],
            removed
        ),
        check!(
            "load-balancers/delete-one-of-many",
            ["LB-2", "LB-12"],
            "Delete of one of eight leaves the other seven as they are",
            [Need::LoadBalancers],
            one_of_many
        ),
    ]
}

/// Checks that Get shows nothing of the load balancer, and the listing neither, if it is offered.
async fn gone(stage: &Stage<'_>, balancer: &Balancer) -> Verdict {
    balancer
        .forgetful()
        .absent("LB-12", "Delete has answered `done`")
        .await?;
    if offered(stage.run).listing {
        stage.listed_times(balancer, 0, "LB-12").await?;
    }
    Ok(())
}

async fn done(run: &Run) -> Verdict {
    let stage = Stage::new(run).await?;
    let mut balancer = stage.ready("delete").await?;
    let before = stage.writes().await?;
    balancer.deleted().await?;
    let sent = "Delete of a load balancer that was ready";
    stage.wrote_by(before, Writes::Some, "LB-12", sent).await?;
    gone(&stage, &balancer).await
}

async fn repeated(run: &Run) -> Verdict {
    let stage = Stage::new(run).await?;
    let mut balancer = stage.ready("delete").await?;
    let stale = balancer.handle.clone();
    balancer.deleted().await?;
    balancer.handle = stale;
    let before = stage.writes().await?;
    for mut again in [balancer.clone(), balancer.forgetful(), balancer.clone()] {
        let asked = again.delete().await?;
        asked.must(
            matches!(asked.answer()?.outcome, Some(Deleted::Done(_))),
            "LB-12",
            "`done`: it does not exist",
        )?;
    }
    let sent = "Delete, three times, of what was deleted";
    stage.wrote_by(before, Writes::None, "CORE-6", sent).await?;
    gone(&stage, &balancer).await
}

async fn never_made(run: &Run) -> Verdict {
    let stage = Stage::new(run).await?;
    let mut balancer = stage.balancer("never");
    let before = stage.writes().await?;
    let asked = balancer.delete().await?;
    asked.must(
        matches!(asked.answer()?.outcome, Some(Deleted::Done(_))),
        "LB-12",
        "`done`: a load balancer that does not exist",
    )?;
    stage.wrote(before, Writes::None, "CORE-6", &asked).await
}

async fn without_handle(run: &Run) -> Verdict {
    let stage = Stage::new(run).await?;
    let balancer = stage.ready("lost").await?;
    balancer.forgetful().deleted().await?;
    gone(&stage, &balancer).await
}

async fn last_seen(run: &Run) -> Verdict {
    let stage = Stage::new(run).await?;
    let changes: [fn(&mut pb::ServiceView); 3] = [
        |service| {
            let seconds = 1_700_000_000;
            service.deletion_time = Some(Timestamp { seconds, nanos: 0 });
            service.finalizers = vec!["service.kubernetes.io/load-balancer-cleanup".into()];
        },
        |service| {
            service.r#type = "ClusterIP".into();
            service.ports[0].node_port = None;
            service.external_traffic_policy.clear();
        },
        |service| {
            service.ports[0].port = 9_999;
            service.annotations.clear();
            service.labels.clear();
            service.load_balancer_class = None;
        },
    ];
    for change in changes {
        let mut balancer = stage.ready("seen").await?.changed(change);
        balancer.deleted().await?;
        gone(&stage, &balancer).await?;
    }
    Ok(())
}

async fn by_uid_alone(run: &Run) -> Verdict {
    let stage = Stage::new(run).await?;
    let balancer = stage.ready("bare").await?;
    let mut bare = balancer.forgetful().changed(|service| {
        *service = pb::ServiceView {
            namespace: service.namespace.clone(),
            name: service.name.clone(),
            uid: service.uid.clone(),
            ..Default::default()
        };
    });
    bare.deleted().await?;
    gone(&stage, &balancer).await
}

async fn pending(run: &Run) -> Verdict {
    let stage = Stage::new(run).await?;
    let mut balancer = stage.ready("pending").await?;
    let asked = balancer.delete().await?;
    let Some(Deleted::Pending(_)) = asked.answer()?.outcome else {
        return Err(Stop::not_offered(
            "Delete was `done` at once: there was no `pending` answer to check",
        ));
    };
    let looked = balancer.get(Some(stage.targets())).await?;
    let found = super::answer::found(&looked)?;
    looked.must(
        found.in_sync != Some(true),
        "LB-12",
        "REMNANTS, ABSENT, or PRESENT and not in sync: it is being deleted",
    )?;
    // A load balancer that is being deleted has no targets to set.
    let asked = balancer.clone().update(stage.targets()).await?;
    asked.failure("LB-24", &[pb::FailureCode::NotFound])?;
    balancer.deleted().await?;
    gone(&stage, &balancer).await
}

async fn ensured_again(run: &Run) -> Verdict {
    let stage = Stage::new(run).await?;
    let mut balancer = stage.ready("remnants").await?;
    let asked = balancer.delete().await?;
    let Some(Deleted::Pending(pending)) = &asked.answer()?.outcome else {
        return Err(Stop::not_offered(
            "Delete was `done` at once: there was no `pending` answer to check",
        ));
    };
    let going = pending.retry_after.and_then(|after| after.try_into().ok());
    // Only `pending`, `ready` and BUSY are allowed.
    let asked = balancer.ensure(Some(stage.targets()), false).await?;
    let answer = asked.answer()?;
    let busy = answer
        .failed()
        .is_some_and(|failure| failure.code() == pb::FailureCode::Busy);
    asked.must(
        busy || matches!(
            answer.outcome,
            Some(Ensured::Pending(_) | Ensured::Ready(_))
        ),
        "LB-24",
        "`pending` until the deletion has ended, or `ready` if the provider builds it up again",
    )?;
    balancer.ensured(Some(stage.targets())).await?;
    // If the deletion went on after `ready`, the load balancer is most likely gone after this wait.
    let going: Duration = going.unwrap_or_default();
    tokio::time::sleep(going.clamp(LEAST_GOING, MOST_GOING)).await;
    let asked = balancer.get(Some(stage.targets())).await?;
    let found = super::answer::found(&asked)?;
    asked.must(
        found.presence() == pb::LoadBalancerPresence::Present
            && found.ownership() == pb::Ownership::Ours,
        "LB-24",
        "PRESENT and OURS: Ensure has answered `ready` after the Delete",
    )?;
    if offered(stage.run).listing {
        stage.listed_times(&balancer, 1, "LB-24").await?;
    }
    stage
        .converged(&mut balancer, Some(stage.targets()))
        .await?;
    balancer.deleted().await?;
    gone(&stage, &balancer).await
}

async fn half_made(run: &Run) -> Verdict {
    let stage = Stage::new(run).await?;
    for keeps_handle in [true, false] {
        let mut balancer = stage.balancer("half");
        balancer.ensure(Some(stage.targets()), false).await?;
        if !keeps_handle {
            balancer = balancer.forgetful();
        }
        balancer.deleted().await?;
        gone(&stage, &balancer).await?;
    }
    Ok(())
}

async fn removed(run: &Run) -> Verdict {
    let stage = Stage::new(run).await?;
    let mut balancer = stage.ready("removed").await?;
    let Some(handle) = balancer.handle.clone() else {
        return Err(Stop::not_offered(
            "the provider gives no handles, and the hook load-balancer-remove needs one",
        ));
    };
    run.hook(Hook::LoadBalancerRemove, &[("HANDLE", &handle)])
        .await?;
    balancer.deleted().await?;
    gone(&stage, &balancer).await
}

async fn one_of_many(run: &Run) -> Verdict {
    let stage = Stage::new(run).await?;
    let mut all = Vec::new();
    for _ in 0..8 {
        all.push(stage.ready("many").await?);
    }
    let mut one = all.remove(3);
    one.deleted().await?;
    gone(&stage, &one).await?;
    for other in &mut all {
        stage.converged(other, Some(stage.targets())).await?;
    }
    Ok(())
}
