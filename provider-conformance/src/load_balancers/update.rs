//! UpdateLoadBalancer: only the targets change.

use cloud_provider_api::v1alpha1::{self as pb, FailureCode};

use crate::check::{Check, Need, Stop, Verdict, check};
use crate::hooks::Hook;
use crate::run::{Run, targets};

use super::stage::{Stage, Writes};

pub(super) fn checks() -> Vec<Check> {
    vec![
        check!(
            "load-balancers/update-done",
            ["LB-5", "LB-14"],
            "Update sets the given targets: more, fewer, none",
            [Need::LoadBalancers],
            done
        ),
        check!(
            "load-balancers/update-repeated",
            ["CORE-6"],
            "Update with the same targets ends in `done`, five times in a row",
            [Need::LoadBalancers],
            repeated
        ),
        check!(
            "load-balancers/update-not-found",
            ["LB-11"],
            "Update of a load balancer that never existed is NOT_FOUND, and makes none",
            [Need::LoadBalancers],
            not_found
        ),
        check!(
            "load-balancers/update-deleted",
            ["LB-11"],
            "Update of a load balancer that was deleted is NOT_FOUND, also with its handle",
            [Need::LoadBalancers],
            deleted
        ),
        check!(
            "load-balancers/update-removed-behind-the-back",
            ["LB-11", "LB-14"],
            "A load balancer that was removed in the cloud is ABSENT, its Update is NOT_FOUND, and Ensure makes it again",
            [Need::LoadBalancers, Need::Hook(Hook::LoadBalancerRemove)],
            removed
        ),
        check!(
            "load-balancers/update-targets-only",
            ["LB-16"],
            "Update changes nothing but the targets, also if the Service in the request has changed",
            [Need::LoadBalancers, Need::InSync],
            targets_only
        ),
        check!(
            "load-balancers/update-without-handle",
            ["LB-5"],
            "Update without the handle finds the load balancer by its mark",
            [Need::LoadBalancers],
            without_handle
        ),
        check!(
            "load-balancers/update-without-targets",
            ["LB-15"],
            "Update without a target set is INVALID and changes nothing",
            [Need::LoadBalancers],
            without_targets
        ),
        check!(
            "load-balancers/update-unknown-node",
            ["LB-17"],
            "A target that the cloud does not know does not fail the rest of an Update",
            [Need::LoadBalancers],
            unknown_node
        ),
    ]
}

async fn done(run: &Run) -> Verdict {
    let stage = Stage::with_targets(run, 2).await?;
    let mut balancer = stage.balancer("update");
    balancer.ensured(Some(stage.first(1))).await?;
    let none = (targets(Vec::new()), "Update with an empty target set");
    for (set, what) in [
        (stage.targets(), "Update with two targets instead of one"),
        (stage.first(1), "Update with one target instead of two"),
    ]
    .into_iter()
    .chain(run.takes_empty_sets().then_some(none))
    {
        stage
            .told_in_sync(
                &mut balancer,
                Some(set.clone()),
                false,
                "these are not its targets yet",
            )
            .await?;
        let before = stage.writes().await?;
        balancer.updated(set.clone()).await?;
        stage.wrote_by(before, Writes::Some, "LB-14", what).await?;
        stage.converged(&mut balancer, Some(set)).await?;
    }
    Ok(())
}

async fn repeated(run: &Run) -> Verdict {
    let stage = Stage::new(run).await?;
    let mut balancer = stage.ready("repeated").await?;
    for _ in 0..5 {
        balancer.updated(stage.targets()).await?;
    }
    stage
        .converged(&mut balancer, Some(stage.targets()))
        .await?;
    stage.listed_times(&balancer, 1, "CORE-6").await
}

async fn not_found(run: &Run) -> Verdict {
    let stage = Stage::new(run).await?;
    let mut balancer = stage.balancer("never");
    for set in [stage.targets(), stage.few()] {
        let asked = balancer.update(set).await?;
        asked.failure("LB-11", &[FailureCode::NotFound])?;
    }
    balancer
        .absent("LB-11", "Update has answered NOT_FOUND")
        .await?;
    stage.listed_times(&balancer, 0, "LB-11").await
}

async fn deleted(run: &Run) -> Verdict {
    let stage = Stage::new(run).await?;
    let mut balancer = stage.ready("gone").await?;
    let stale = balancer.handle.clone();
    balancer.deleted().await?;
    balancer.handle = stale;
    for mut balancer in [balancer.clone(), balancer.forgetful()] {
        let asked = balancer.update(stage.targets()).await?;
        asked.failure("LB-11", &[FailureCode::NotFound])?;
    }
    balancer
        .forgetful()
        .absent("LB-11", "Update has answered NOT_FOUND")
        .await
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
    let asked = balancer.update(stage.targets()).await?;
    asked.failure("LB-11", &[FailureCode::NotFound])?;
    balancer
        .absent(
            "LB-14",
            "it was removed in the cloud (hook load-balancer-remove)",
        )
        .await?;
    balancer.ensured(Some(stage.targets())).await?;
    stage
        .converged(&mut balancer, Some(stage.targets()))
        .await?;
    run.hook(
        Hook::LoadBalancerRemove,
        &[("HANDLE", balancer.handle.as_deref().unwrap_or_default())],
    )
    .await?;
    balancer.deleted().await
}

async fn targets_only(run: &Run) -> Verdict {
    let stage = Stage::with_targets(run, 2).await?;
    let mut balancer = stage.balancer("only");
    balancer.ensured(Some(stage.first(1))).await?;
    let mut changed = balancer.changed(|service| service.ports[0].port = 8_080);
    changed.updated(stage.targets()).await?;
    let why = "Update was sent with the new targets and another port: the targets are new, the port is as it was";
    stage
        .in_sync(&mut balancer, Some(stage.targets()), true, why)
        .await?;
    let why = "Update does not change the port";
    stage
        .in_sync(&mut changed, Some(stage.targets()), false, why)
        .await
}

async fn without_handle(run: &Run) -> Verdict {
    let stage = Stage::with_targets(run, 2).await?;
    let mut balancer = stage.balancer("lost");
    balancer.ensured(Some(stage.first(1))).await?;
    balancer.forgetful().updated(stage.targets()).await?;
    stage.converged(&mut balancer, Some(stage.targets())).await
}

async fn without_targets(run: &Run) -> Verdict {
    let stage = Stage::new(run).await?;
    let mut balancer = stage.ready("no-set").await?;
    let sets = [None, Some(pb::TargetSet { set: None })];
    for set in sets {
        let mut request = balancer.update_request(stage.targets());
        request.targets = set;
        let asked = balancer.session.call(request).await;
        asked.failure("LB-15", &[FailureCode::Invalid])?;
    }
    stage.converged(&mut balancer, Some(stage.targets())).await
}

async fn unknown_node(run: &Run) -> Verdict {
    let stage = Stage::with_targets(run, 1).await?;
    let mut balancer = stage.ready("odd").await?;
    let mut nodes = vec![stage.nodes()[0].clone(), run.node("nobody")];
    nodes.sort_by(|one, other| one.name.cmp(&other.name));
    let asked = balancer.update(targets(nodes)).await?;
    let answer = asked.success("LB-17")?;
    let known = &stage.nodes()[0].name;
    asked.must(
        answer
            .target_errors
            .iter()
            .all(|error| error.node_name != *known),
        "LB-17",
        format_args!("no target error for {known}, which the cloud knows"),
    )?;
    balancer.updated(stage.targets()).await?;
    stage.converged(&mut balancer, Some(stage.targets())).await
}
