//! After a restart, `in_sync: true` lets the controller do without an Ensure. So a wrong `true`
//! would leave differences in the cloud.

use cloud_provider_api::v1alpha1::{self as pb, FailureCode};
use pb::ensure_load_balancer_response::Outcome as Ensured;

use crate::call::{Answer, Exchange};
use crate::check::{Check, Need, Stop, Verdict, check, must};
use crate::hooks::Hook;
use crate::run::{Run, targets};

use super::answer::found;
use super::balancer::Balancer;
use super::stage::{Stage, Writes, offered};

pub(super) fn checks() -> Vec<Check> {
    vec![
        check!(
            "load-balancers/in-sync-stated",
            ["LB-14", "LB-28"],
            "If the provider offers in_sync, Get of an existing load balancer has it",
            [Need::LoadBalancers, Need::InSync],
            stated
        ),
        check!(
            "load-balancers/in-sync-without-targets",
            ["LB-14"],
            "Get without a target set does not compare the targets; with one it does",
            [Need::LoadBalancers, Need::InSync],
            without_targets
        ),
        check!(
            "load-balancers/in-sync-not-of-others",
            ["LB-14", "LB-28", "LB-4"],
            "in_sync is not true of an unmarked or foreign load balancer: Ensure would be CONFLICT",
            [
                Need::LoadBalancers,
                Need::InSync,
                Need::Hook(Hook::LoadBalancerUnmarked)
            ],
            not_of_others
        ),
        check!(
            "load-balancers/in-sync-not-of-the-absent",
            ["LB-14", "LB-28"],
            "in_sync is not true of a load balancer that does not exist",
            [Need::LoadBalancers, Need::InSync],
            not_of_the_absent
        ),
        check!(
            "load-balancers/in-sync-two-changes",
            ["LB-14", "LB-7"],
            "A Service with two changes is in sync only when both are made",
            [Need::LoadBalancers, Need::InSync],
            two_changes
        ),
        check!(
            "load-balancers/in-sync-means-nothing-to-write",
            ["LB-14", "LB-8"],
            "Along forty changes of ports, targets, ranges and handles: whenever Get says in_sync, Ensure is ready and writes nothing",
            [
                Need::LoadBalancers,
                Need::InSync,
                Need::Hook(Hook::CloudWrites)
            ],
            means_nothing_to_write
        ),
    ]
}

async fn stated(run: &Run) -> Verdict {
    let stage = Stage::new(run).await?;
    let mut balancer = stage.ready("stated").await?;
    for set in [None, Some(stage.targets()), Some(targets(Vec::new()))] {
        let asked = balancer.get(set).await?;
        asked.must(
            found(&asked)?.in_sync.is_some(),
            "LB-28",
            "`in_sync`, true or false: Capabilities.load_balancers.in_sync is offered",
        )?;
    }
    Ok(())
}

async fn without_targets(run: &Run) -> Verdict {
    let stage = Stage::with_targets(run, 2).await?;
    let mut balancer = stage.balancer("targets");
    balancer.ensured(Some(stage.first(1))).await?;
    let why = "no target set is sent: the targets do not matter";
    stage.in_sync(&mut balancer, None, true, why).await?;
    let why = "these are its targets";
    stage
        .in_sync(&mut balancer, Some(stage.first(1)), true, why)
        .await?;
    let why = "one target is missing";
    stage
        .in_sync(&mut balancer, Some(stage.targets()), false, why)
        .await?;
    let why = "an empty target set is not an absent one";
    stage
        .in_sync(&mut balancer, Some(stage.first(0)), false, why)
        .await
}

async fn not_true(balancer: &Balancer, stage: &Stage<'_>, why: &str) -> Verdict {
    let mut balancer = balancer.clone();
    let asked = balancer.get(Some(stage.targets())).await?;
    said_not_true(&asked, why)
}

fn said_not_true(asked: &Exchange<pb::GetLoadBalancerResponse>, why: &str) -> Verdict {
    asked.must(
        found(asked)?.in_sync != Some(true),
        "LB-28",
        format_args!("no in_sync: {why}"),
    )
}

async fn not_of_others(run: &Run) -> Verdict {
    let stage = Stage::new(run).await?;
    let handle = run.unmarked_load_balancer(&run.name("by-hand")).await?;
    let unmarked = stage.balancer("look").with_handle(handle);
    not_true(&unmarked, &stage, "it has no mark").await?;
    let victim = stage.ready("other").await?;
    if let Some(handle) = victim.handle {
        let mut thief = stage.balancer("thief").with_handle(handle);
        let uid = thief.service.uid.clone();
        thief.service = pb::ServiceView {
            uid,
            ..victim.service.clone()
        };
        let asked = thief.get(Some(stage.targets())).await?;
        // CONFLICT is as good as FOREIGN (LB-24, row 6).
        if asked.answer()?.failed().is_some() {
            asked.failure("LB-24", &[FailureCode::Conflict])?;
        } else {
            said_not_true(&asked, "it is marked for another UID")?;
        }
    } else {
        run.unseen(Stop::not_offered("the provider gives no handles"));
    }
    Ok(())
}

async fn not_of_the_absent(run: &Run) -> Verdict {
    let stage = Stage::new(run).await?;
    not_true(&stage.balancer("never"), &stage, "it never was").await?;
    let mut gone = stage.ready("gone").await?;
    gone.deleted().await?;
    not_true(&gone, &stage, "it was deleted").await
}

async fn two_changes(run: &Run) -> Verdict {
    let stage = Stage::new(run).await?;
    let mut balancer = stage.ready("two").await?;
    let mut both = balancer.changed(|service| {
        service.ports[0].port = 8_080;
        let https = pb::ServicePort {
            name: "https".into(),
            port: 8_443,
            node_port: Some(30_443),
            ..service.ports[0].clone()
        };
        service.ports.push(https);
    });
    let mut half = balancer.changed(|service| service.ports[0].port = 8_080);
    half.ensured(Some(stage.targets())).await?;
    for (one, expected) in [
        (&mut half, true),
        (&mut both, false),
        (&mut balancer, false),
    ] {
        let why = "one of two changes was made";
        stage
            .in_sync(one, Some(stage.targets()), expected, why)
            .await?;
    }
    both.ensured(Some(stage.targets())).await?;
    stage.converged(&mut both, Some(stage.targets())).await
}

async fn means_nothing_to_write(run: &Run) -> Verdict {
    let stage = Stage::new(run).await?;
    let ranges = offered(run)
        .features()
        .any(|one| one == pb::ServiceFeature::SourceRanges);
    let mut balancer = stage.balancer("walk");
    // The same sequence each time, so that a failure can be reproduced.
    let mut dice = 1_u32;
    for step in 0..40 {
        dice = dice.wrapping_mul(1_103_515_245).wrapping_add(12_345);
        let choice = (dice >> 16) % 7;
        balancer = balancer.changed(|service| match choice {
            0 => service.ports[0].port = 8_000 + (step % 3),
            1 => service.ports[0].node_port = Some(30_100 + (step % 2)),
            2 if ranges => service.load_balancer_source_ranges = vec!["198.51.100.0/24".into()],
            3 if ranges => service.load_balancer_source_ranges.clear(),
            4 => service
                .labels
                .insert("step".into(), step.to_string())
                .map_or((), drop),
            _ => {}
        });
        if choice == 5 {
            balancer = balancer.forgetful();
        }
        let set = match (dice >> 20) % 3 {
            0 => None,
            1 => Some(stage.targets()),
            _ => Some(stage.few()),
        };
        let looked = balancer.get(set.clone()).await?;
        let says = found(&looked)?.in_sync;
        let before = stage.writes().await?;
        let asked = balancer.ensure(set.clone(), false).await?;
        if says == Some(true) {
            asked.must(
                matches!(asked.success("LB-14")?.outcome, Some(Ensured::Ready(_))),
                "LB-14",
                format_args!("`ready`: Get said in_sync just before (step {step})"),
            )?;
            stage.wrote(before, Writes::None, "LB-14", &asked).await?;
        }
        balancer.ensured(set.clone()).await?;
        let after = balancer.found(set).await?.in_sync;
        must(
            after == Some(true),
            "LB-14",
            format_args!("Get after Ensure was ready (step {step}, choice {choice})"),
            "in_sync: Ensure has just made it as asked",
            format_args!("{after:?}"),
        )?;
    }
    Ok(())
}
