//! Targets: the Nodes that a load balancer sends traffic to.

use cloud_provider_api::v1alpha1 as pb;

use crate::call::Answer;
use crate::check::{Check, Need, Stop, Verdict, check, must};
use crate::hooks::Hook;
use crate::run::{Run, targets};

use super::balancer::Balancer;
use super::stage::{Stage, Writes, offered};

pub(super) fn checks() -> Vec<Check> {
    vec![
        check!(
            "load-balancers/targets-absent-is-not-empty",
            ["LB-10"],
            "Ensure without a target set leaves the targets alone",
            [Need::LoadBalancers],
            absent_is_not_empty
        ),
        check!(
            "load-balancers/targets-empty-is-none",
            ["LB-10", "LB-7", "LB-14", "LB-31"],
            "Ensure with an empty target set removes the targets; where suite.yaml says `empty_target_sets: refused`, Ensure and Update are PRECONDITION and change nothing",
            [Need::LoadBalancers],
            empty_is_none
        ),
        check!(
            "load-balancers/targets-grow-and-shrink",
            ["LB-7", "LB-14"],
            "Ensure with more, fewer or other targets sets these targets",
            [Need::LoadBalancers],
            grow_and_shrink
        ),
        check!(
            "load-balancers/targets-set-later",
            ["LB-7", "LB-10"],
            "A load balancer that was made without a target set gets its targets from the next Ensure",
            [Need::LoadBalancers],
            set_later
        ),
        check!(
            "load-balancers/targets-unknown-node",
            ["LB-17"],
            "A target that the cloud does not know does not fail the rest",
            [Need::LoadBalancers],
            unknown_node
        ),
        check!(
            "load-balancers/targets-without-provider-id",
            ["LB-17", "CORE-4"],
            "A target without a provider ID does not fail the rest",
            [Need::LoadBalancers],
            without_provider_id
        ),
        check!(
            "load-balancers/targets-all-unknown",
            ["LB-17", "CORE-4"],
            "Ensure with only unknown targets is answered in the body, and a later Ensure can correct the targets",
            [Need::LoadBalancers],
            all_unknown
        ),
        check!(
            "load-balancers/targets-duplicate",
            ["CORE-4"],
            "A target that is named twice gets an answer in the body: INVALID, or one target",
            [Need::LoadBalancers],
            duplicate
        ),
        check!(
            "load-balancers/targets-five-thousand",
            ["CORE-11", "LB-17"],
            "5,000 targets, or as many as one load balancer takes, are answered in the body within the deadline",
            [Need::LoadBalancers],
            five_thousand
        ),
        check!(
            "load-balancers/targets-too-many",
            ["CORE-4"],
            "More than max_targets are answered in the body",
            [Need::LoadBalancers],
            too_many
        ),
        check!(
            "load-balancers/targets-ignored",
            ["LB-8", "LB-14"],
            "If the provider ignores targets, other targets cause no write",
            [Need::LoadBalancers],
            ignored
        ),
        check!(
            "load-balancers/targets-unset-set",
            ["CORE-15"],
            "A target set with neither inline nor ref, or with ref, which this minor does not use, is INVALID",
            [Need::LoadBalancers],
            unset_set
        ),
    ]
}

/// Skips the check if the targets cannot be observed.
fn need_eyes(run: &Run) -> Verdict {
    if offered(run).in_sync || run.has_hook(Hook::CloudWrites) {
        return Ok(());
    }
    Err(Stop::not_set_up(
        "it needs the provider's `in_sync`, or the hook `cloud-writes`: else the check cannot see the targets",
    ))
}

/// Ensure with different targets: Get sees the difference, Ensure writes it, and it stays.
async fn becomes(
    stage: &Stage<'_>,
    balancer: &mut Balancer,
    set: pb::TargetSet,
    what: &str,
) -> Verdict {
    stage
        .told_in_sync(balancer, Some(set.clone()), false, what)
        .await?;
    let before = stage.writes().await?;
    balancer.ensured(Some(set.clone())).await?;
    let sent = format!("Ensure with {what}");
    stage.wrote_by(before, Writes::Some, "LB-7", sent).await?;
    stage.converged(balancer, Some(set)).await
}

async fn absent_is_not_empty(run: &Run) -> Verdict {
    need_eyes(run)?;
    let stage = Stage::with_targets(run, 2).await?;
    let mut balancer = stage.ready("absent").await?;
    let before = stage.writes().await?;
    balancer.ensured(None).await?;
    let sent = "Ensure without a target set of a load balancer with two targets";
    stage.wrote_by(before, Writes::None, "LB-10", sent).await?;
    let why = "these targets were there, and Ensure without a target set leaves them alone";
    stage
        .told_in_sync(&mut balancer, Some(stage.targets()), true, why)
        .await?;
    // Ensure also leaves the targets alone when it writes another change.
    let mut changed = balancer.changed(|service| service.ports[0].port = 81);
    changed.ensured(None).await?;
    stage.converged(&mut changed, Some(stage.targets())).await
}

async fn empty_is_none(run: &Run) -> Verdict {
    need_eyes(run)?;
    let stage = Stage::with_targets(run, 2).await?;
    let mut balancer = stage.ready("empty").await?;
    if !run.takes_empty_sets() {
        return empty_is_refused(&stage, balancer).await;
    }
    becomes(
        &stage,
        &mut balancer,
        targets(Vec::new()),
        "an empty target set",
    )
    .await?;
    becomes(
        &stage,
        &mut balancer,
        stage.targets(),
        "the two targets again",
    )
    .await
}

/// For a cloud whose load balancers need at least one target.
async fn empty_is_refused(stage: &Stage<'_>, mut balancer: Balancer) -> Verdict {
    let none = || targets(Vec::new());
    let codes = [pb::FailureCode::Precondition];
    let before = stage.writes().await?;
    let asked = balancer.ensure(Some(none()), false).await?;
    asked.failure("LB-31", &codes)?;
    balancer.update(none()).await?.failure("LB-31", &codes)?;
    let mut new = stage.balancer("new");
    let asked = new.ensure(Some(none()), false).await?;
    asked.failure("LB-31", &codes)?;
    new.absent("LB-31", "Ensure has answered PRECONDITION")
        .await?;
    let sent = "Ensure and Update with an empty target set";
    stage.wrote_by(before, Writes::None, "LB-31", sent).await?;
    let why = "Ensure with an empty target set would be PRECONDITION";
    stage
        .told_in_sync(&mut balancer, Some(none()), false, why)
        .await?;
    stage.converged(&mut balancer, Some(stage.targets())).await
}

async fn grow_and_shrink(run: &Run) -> Verdict {
    need_eyes(run)?;
    let stage = Stage::with_targets(run, 3).await?;
    let mut balancer = stage.balancer("grow");
    balancer.ensured(Some(stage.first(1))).await?;
    becomes(
        &stage,
        &mut balancer,
        stage.targets(),
        "three targets instead of one",
    )
    .await?;
    becomes(
        &stage,
        &mut balancer,
        stage.first(2),
        "two of three targets",
    )
    .await?;
    let last = targets(vec![stage.nodes()[2].clone()]);
    becomes(&stage, &mut balancer, last, "another target instead of two").await
}

async fn set_later(run: &Run) -> Verdict {
    need_eyes(run)?;
    if !run.takes_empty_sets() {
        return Err(Stop::not_offered(
            "this cloud has no load balancer without targets (`empty_target_sets: refused` in suite.yaml)",
        ));
    }
    let stage = Stage::with_targets(run, 2).await?;
    let mut balancer = stage.balancer("later");
    balancer.ensured(None).await?;
    stage.converged(&mut balancer, None).await?;
    becomes(
        &stage,
        &mut balancer,
        stage.targets(),
        "two targets, the first that it gets",
    )
    .await
}

async fn unknown_node(run: &Run) -> Verdict {
    let stage = Stage::with_targets(run, 1).await?;
    let mut node = run.node("nobody");
    let known = stage.nodes()[0].clone();
    // An ID of this provider without an instance.
    node.provider_id = Some(
        match (&run.config().provider_id_pattern, &known.provider_id) {
            (None, Some(id)) => format!("{id}-never-there"),
            _ => run.provider_id_of_none("never-there"),
        },
    );
    one_is_odd(&stage, node).await
}

async fn without_provider_id(run: &Run) -> Verdict {
    let stage = Stage::with_targets(run, 1).await?;
    let node = run.node("no-id");
    one_is_odd(&stage, node).await
}

/// One known target and one unknown target.
async fn one_is_odd(stage: &Stage<'_>, odd: pb::NodeView) -> Verdict {
    let known = stage.nodes()[0].clone();
    let mut both = vec![known.clone(), odd];
    both.sort_by(|one, other| one.name.cmp(&other.name));
    let mut balancer = stage.balancer("odd");
    let errors = balancer
        .ensured_with_errors(Some(targets(both.clone())))
        .await?;
    must(
        errors.iter().all(|error| error.node_name != known.name),
        "LB-17",
        format_args!("Ensure with the targets {both:?}"),
        format_args!("no target error for {}, which the cloud knows", known.name),
        format_args!("{errors:?}"),
    )?;
    if !errors.is_empty() {
        let why = "one of the targets could not be attached";
        stage
            .in_sync(&mut balancer, Some(targets(both)), false, why)
            .await?;
        // The known target is attached.
        stage.converged(&mut balancer, Some(stage.first(1))).await?;
    }
    Ok(())
}

async fn all_unknown(run: &Run) -> Verdict {
    let stage = Stage::with_targets(run, 1).await?;
    let mut nodes = vec![run.node("nobody"), run.node("nobody-else")];
    nodes.sort_by(|one, other| one.name.cmp(&other.name));
    let mut balancer = stage.balancer("unknown");
    let asked = balancer.ensure(Some(targets(nodes.clone())), false).await?;
    if asked.answer()?.failed().is_some() && !run.takes_empty_sets() {
        // None of them can be attached, so the set is empty.
        asked.failure("LB-31", &[pb::FailureCode::Precondition])?;
    } else {
        balancer.ensured(Some(targets(nodes))).await?;
    }
    balancer.ensured(Some(stage.targets())).await?;
    stage.converged(&mut balancer, Some(stage.targets())).await
}

async fn duplicate(run: &Run) -> Verdict {
    let stage = Stage::with_targets(run, 1).await?;
    let known = stage.nodes()[0].clone();
    let twice = targets(vec![known.clone(), known]);
    let mut balancer = stage.balancer("twice");
    let asked = balancer.ensure(Some(twice.clone()), false).await?;
    if asked.answer()?.failed().is_some() {
        asked.failure("CORE-15", &[pb::FailureCode::Invalid])?;
        return Ok(());
    }
    balancer.ensured(Some(twice)).await?;
    stage.converged(&mut balancer, Some(stage.targets())).await
}

async fn five_thousand(run: &Run) -> Verdict {
    let offered = offered(run);
    let most = offered
        .max_targets
        .filter(|most| *most > 0)
        .unwrap_or(5_000);
    let stage = Stage::new(run).await?;
    let count = 5_000.min(most as usize);
    let mut nodes: Vec<_> = (0..count.saturating_sub(stage.nodes().len()))
        .map(|number| crowd(run, number))
        .collect();
    nodes.extend(stage.nodes().iter().take(count).cloned());
    nodes.sort_by(|one, other| one.name.cmp(&other.name));
    let mut balancer = stage.balancer("many");
    balancer.ensured(Some(targets(nodes.clone()))).await?;
    balancer.updated(targets(nodes)).await?;
    balancer.ensured(Some(stage.targets())).await?;
    stage.converged(&mut balancer, Some(stage.targets())).await
}

/// One of many Nodes of realistic size.
fn crowd(run: &Run, number: usize) -> pb::NodeView {
    let provider_id = if run.config().provider_id_pattern.is_some() {
        run.provider_id_of_none("crowd")
    } else {
        let prefixes = &run.info().provider_id_prefixes;
        let prefix = prefixes.first().map_or("", String::as_str);
        format!("{prefix}region-zone/crowd-{number:05}")
    };
    let (high, low) = (number >> 8, number & 255);
    pb::NodeView {
        name: format!("crowd-{number:05}.region.example.internal"),
        uid: format!("00000000-0000-4000-8000-{number:012}"),
        provider_id: Some(provider_id),
        addresses: vec![pb::NodeAddress {
            r#type: pb::NodeAddressType::InternalIp.into(),
            address: format!("10.200.{high}.{low}"),
        }],
        ..Default::default()
    }
}

async fn too_many(run: &Run) -> Verdict {
    let Some(most) = offered(run).max_targets.filter(|most| *most > 0) else {
        return Err(Stop::not_offered("max_targets states no limit"));
    };
    if most > 20_000 {
        return Err(Stop::not_offered("max_targets is more than 20,000"));
    }
    let stage = Stage::new(run).await?;
    let nodes = (0..=most as usize)
        .map(|number| crowd(run, number))
        .collect();
    let mut balancer = stage.balancer("over");
    let asked = balancer.ensure(Some(targets(nodes)), false).await?;
    let answer = asked.answer()?;
    if answer.failed().is_some() {
        let codes = [pb::FailureCode::Invalid, pb::FailureCode::Precondition];
        asked.failure("CORE-15", &codes)?;
    }
    balancer.ensured(Some(stage.targets())).await.map(|_| ())
}

async fn ignored(run: &Run) -> Verdict {
    if !offered(run).ignores_nodes {
        return Err(Stop::not_offered(
            "targets matter to this cloud (Capabilities.load_balancers.ignores_nodes is not set)",
        ));
    }
    let stage = Stage::new(run).await?;
    let mut balancer = stage.ready("ignored").await?;
    for set in [targets(Vec::new()), targets(vec![run.node("other")])] {
        stage.converged(&mut balancer, Some(set)).await?;
    }
    Ok(())
}

async fn unset_set(run: &Run) -> Verdict {
    let stage = Stage::new(run).await?;
    let sets = [None, Some(pb::target_set::Set::Ref("revision-7".into()))];
    for set in sets {
        let mut balancer = stage.balancer("unset");
        let asked = balancer.ensure(Some(pb::TargetSet { set }), false).await?;
        asked.failure("CORE-15", &[pb::FailureCode::Invalid])?;
        let why = "Ensure has answered INVALID, and nothing was there before";
        balancer.absent("CORE-15", why).await?;
    }
    Ok(())
}
