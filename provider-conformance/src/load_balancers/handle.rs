//! The handle: kept, lost, edited.

use cloud_provider_api::v1alpha1::{self as pb, FailureCode};
use pb::delete_load_balancer_response::Outcome as Deleted;

use crate::call::Answer;
use crate::check::{Check, Need, Stop, Verdict, check, must, must_equal, should};
use crate::run::Run;

use super::answer::{found, untold};
use super::balancer::Balancer;
use super::stage::{Stage, Writes};

pub(super) fn checks() -> Vec<Check> {
    vec![
        check!(
            "load-balancers/handle-told",
            ["LB-3", "LB-33", "CORE-11"],
            "The provider answers with the handle of a load balancer that it made, of at most 1,024 bytes",
            [Need::LoadBalancers],
            told
        ),
        check!(
            "load-balancers/handle-stable",
            ["LB-3"],
            "The handle is the same in every answer, through a change of the Service and of the targets",
            [Need::LoadBalancers],
            stable
        ),
        check!(
            "load-balancers/handle-of-other-service-ensure",
            ["LB-4", "LB-2", "LB-32"],
            "Ensure with another Service's handle, same cluster, is CONFLICT; the other's load balancer is untouched",
            [Need::LoadBalancers],
            other_service_ensure
        ),
        check!(
            "load-balancers/handle-of-other-service-update",
            ["LB-4", "LB-2", "LB-32"],
            "Update with another Service's handle, same cluster, is CONFLICT (NOT_FOUND if all have the same handle); the other's load balancer is untouched",
            [Need::LoadBalancers],
            other_service_update
        ),
        check!(
            "load-balancers/handle-of-other-service-delete",
            ["LB-4", "LB-2", "LB-32"],
            "Delete with another Service's handle, same cluster, is CONFLICT (`done` if all have the same handle); the other's load balancer is untouched",
            [Need::LoadBalancers],
            other_service_delete
        ),
        check!(
            "load-balancers/handle-of-other-cluster",
            ["LB-4", "LB-2", "LB-32"],
            "Ensure, Update and Delete with the handle of another cluster's load balancer are CONFLICT, and leave that load balancer untouched",
            [Need::LoadBalancers],
            other_cluster
        ),
        check!(
            "load-balancers/handle-edited-and-put-right",
            ["LB-4"],
            "A Service whose handle is edited to another's gets CONFLICT, and works again with its own handle",
            [Need::LoadBalancers],
            put_right
        ),
        check!(
            "load-balancers/handle-of-nothing",
            ["LB-4", "LB-5"],
            "With a handle that names nothing (words, paths, quotes, other scripts, 1,024 bytes) every answer is in the body, and no object of others changes",
            [Need::LoadBalancers],
            of_nothing
        ),
        check!(
            "load-balancers/handle-of-nothing-delete",
            ["LB-4", "LB-12"],
            "Delete with a handle that names nothing is `done` only if nothing of the Service is left",
            [Need::LoadBalancers],
            of_nothing_delete
        ),
        check!(
            "load-balancers/handle-of-nothing-as-without",
            ["LB-24", "LB-5"],
            "With a handle that names nothing Get, Update and Delete answer as without one: OURS, `done`; then nothing is left",
            [Need::LoadBalancers],
            of_nothing_as_without
        ),
        check!(
            "load-balancers/handle-of-nothing-ensure",
            ["LB-5", "CORE-6"],
            "Ensure with a handle that names nothing makes no second load balancer",
            [Need::LoadBalancers],
            of_nothing_ensure
        ),
    ]
}

fn handle_of(balancer: &Balancer) -> Verdict<String> {
    balancer
        .handle
        .clone()
        .ok_or_else(|| Stop::not_offered("the provider gives no handles"))
}

async fn told(run: &Run) -> Verdict {
    let stage = Stage::new(run).await?;
    let balancer = stage.ready("told").await?;
    should(
        balancer.handle.is_some(),
        "LB-3",
        "Ensure of a new load balancer, until `ready`",
        "a handle in one of the answers",
        "none in any",
    )
}

async fn stable(run: &Run) -> Verdict {
    let stage = Stage::new(run).await?;
    let mut balancer = stage.ready("stable").await?;
    let first = handle_of(&balancer)?;
    balancer.present(None).await?;
    balancer.ensured(Some(stage.targets())).await?;
    balancer.updated(stage.few()).await?;
    let mut changed = balancer.changed(|service| {
        let https = pb::ServicePort {
            name: "https".into(),
            port: 443,
            node_port: Some(30_443),
            ..service.ports[0].clone()
        };
        service.ports.push(https);
    });
    changed.ensured(Some(stage.targets())).await?;
    let mut forgetful = changed.forgetful();
    forgetful.ensured(Some(stage.targets())).await?;
    for later in [balancer.handle, changed.handle, forgetful.handle] {
        must_equal(
            &later.unwrap_or_else(|| first.clone()),
            &first,
            "LB-3",
            "Get, Ensure, Update, Ensure with another port, Ensure without the handle: the handle in their answers",
        )?;
    }
    Ok(())
}

/// What the provider's handles name.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Names {
    /// The load balancer, or the part, of one Service.
    Own,
    /// A load balancer that all Services share. Its handle identifies no part.
    Whole,
}

impl Names {
    /// The rule, and the code that Update must answer if the caller has no part of what the handle
    /// names.
    fn no_part(self) -> (&'static str, FailureCode) {
        match self {
            Self::Own => ("LB-4", FailureCode::Conflict),
            Self::Whole => ("LB-20", FailureCode::NotFound),
        }
    }
}

/// A ready load balancer, Get's answer about it, and another Service with its handle.
async fn edited(run: &Run) -> Verdict<(Stage<'_>, Balancer, pb::LoadBalancer, Balancer, Names)> {
    let stage = Stage::new(run).await?;
    let mut victim = stage.ready("victim").await?;
    let before = victim.present(Some(stage.targets())).await?;
    let handle = handle_of(&victim)?;
    // If all Services share one load balancer, Ensure with another Service's port is CONFLICT.
    let mut neighbour = stage.balancer("neighbour");
    neighbour.service.ports[0].port = 8_081;
    neighbour.ensured(Some(stage.targets())).await?;
    let names = if neighbour.handle.as_ref() == Some(&handle) {
        Names::Whole
    } else {
        Names::Own
    };
    let thief = stage.balancer("thief").with_handle(handle);
    Ok((stage, victim, before, thief, names))
}

async fn unharmed(
    stage: &Stage<'_>,
    victim: &mut Balancer,
    before: &pb::LoadBalancer,
    written: Option<u64>,
    what: &str,
) -> Verdict {
    stage.wrote_by(written, Writes::None, "LB-4", what).await?;
    let after = victim.present(Some(stage.targets())).await?;
    must_equal(
        &after,
        before,
        "LB-2",
        format_args!("{what}; then Get for the owner of what the handle names"),
    )?;
    stage.converged(victim, Some(stage.targets())).await
}

async fn other_service_ensure(run: &Run) -> Verdict {
    let (stage, mut victim, before, mut thief, names) = edited(run).await?;
    let written = stage.writes().await?;
    match names {
        Names::Own => thief.service.ports[0].port = 8_080,
        // With another port, the Service may have a part of its own.
        Names::Whole => thief.service.ports.clone_from(&victim.service.ports),
    }
    let asked = thief.ensure(Some(stage.targets()), false).await?;
    asked.failure("LB-4", &[FailureCode::Conflict])?;
    if names == Names::Own {
        untold(&asked, victim.handle.as_ref())?;
    }
    let what = "Ensure with another Service's handle";
    unharmed(&stage, &mut victim, &before, written, what).await
}

async fn other_service_update(run: &Run) -> Verdict {
    let (stage, mut victim, before, mut thief, names) = edited(run).await?;
    let written = stage.writes().await?;
    let asked = thief.update(stage.few()).await?;
    let (rule, code) = names.no_part();
    asked.failure(rule, &[code])?;
    if names == Names::Own {
        untold(&asked, victim.handle.as_ref())?;
    }
    let what = "Update with another Service's handle";
    unharmed(&stage, &mut victim, &before, written, what).await
}

async fn other_service_delete(run: &Run) -> Verdict {
    let (stage, mut victim, before, mut thief, names) = edited(run).await?;
    let written = stage.writes().await?;
    let asked = thief.delete().await?;
    match names {
        Names::Own => {
            asked.failure("LB-4", &[FailureCode::Conflict])?;
            untold(&asked, victim.handle.as_ref())?;
        }
        Names::Whole => {
            let done = matches!(asked.answer()?.outcome, Some(Deleted::Done(_)));
            asked.must(
                done,
                "LB-20",
                "`done`: it has no part of the shared load balancer",
            )?;
        }
    }
    let what = "Delete with another Service's handle";
    unharmed(&stage, &mut victim, &before, written, what).await
}

async fn other_cluster(run: &Run) -> Verdict {
    let stage = Stage::new(run).await?;
    let mut victim = stage.ready("victim").await?;
    let before = victim.present(Some(stage.targets())).await?;
    let handle = handle_of(&victim)?;
    let session = stage.work_for(&run.other_cluster("b"), &[]).await?;
    let same_uid = victim.through(&session);
    let other_uid = stage
        .balancer("thief")
        .through(&session)
        .with_handle(handle);
    let written = stage.writes().await?;
    let codes = [FailureCode::Conflict];
    for thief in [same_uid, other_uid] {
        let asked = thief.clone().ensure(Some(stage.targets()), false).await?;
        asked.failure("LB-4", &codes)?;
        untold(&asked, victim.handle.as_ref())?;
        let asked = thief.clone().update(stage.few()).await?;
        asked.failure("LB-4", &codes)?;
        untold(&asked, victim.handle.as_ref())?;
        let asked = thief.clone().delete().await?;
        asked.failure("LB-4", &codes)?;
        untold(&asked, victim.handle.as_ref())?;
    }
    let session = stage.back().await?;
    let mut victim = victim.through(&session);
    let what = "Ensure, Update and Delete with the handle of another cluster's load balancer";
    unharmed(&stage, &mut victim, &before, written, what).await
}

async fn put_right(run: &Run) -> Verdict {
    let (stage, mut victim, before, _, names) = edited(run).await?;
    if names == Names::Whole {
        return Err(Stop::not_offered(
            "all Services have the same handle, so there is no other one",
        ));
    }
    let own = stage.ready("own").await?;
    let mut edited = own.with_handle(handle_of(&victim)?);
    let written = stage.writes().await?;
    let asked = edited.ensure(Some(stage.targets()), false).await?;
    asked.failure("LB-4", &[FailureCode::Conflict])?;
    let what = "Ensure, after the handle was edited to another Service's";
    unharmed(&stage, &mut victim, &before, written, what).await?;
    let mut right = own.clone();
    stage.converged(&mut right, Some(stage.targets())).await?;
    stage.listed_times(&own, 1, "LB-4").await
}

fn nothings() -> Vec<String> {
    let mut all: Vec<String> = [
        "no-such-handle",
        "../../etc/passwd",
        "'; DROP TABLE load_balancers; --",
        "{\"id\": null}",
        "负载均衡器 🜲 \u{202e}",
        "line\nbreak\ttab",
        " ",
        "%00%s%n",
        "0",
        "-1",
    ]
    .into_iter()
    .map(str::to_owned)
    .collect();
    all.push("h".repeat(1_024));
    all
}

async fn of_nothing(run: &Run) -> Verdict {
    let stage = Stage::new(run).await?;
    let mut bystander = stage.ready("bystander").await?;
    for handle in nothings() {
        let asked = stage
            .balancer("odd")
            .with_handle(handle.clone())
            .get(None)
            .await?;
        asked.must(asked.came.is_ok(), "CORE-4", "an answer in the body")?;
        stage
            .balancer("odd")
            .with_handle(handle.clone())
            .update(stage.targets())
            .await?;
        stage.balancer("odd").with_handle(handle).delete().await?;
    }
    stage
        .converged(&mut bystander, Some(stage.targets()))
        .await?;
    stage.listed_times(&bystander, 1, "LB-4").await
}

async fn of_nothing_delete(run: &Run) -> Verdict {
    let stage = Stage::new(run).await?;
    let balancer = stage.ready("left").await?;
    let mut odd = balancer.with_handle("no-such-handle");
    let asked = odd.delete().await?;
    if asked.answer()?.failed().is_none() {
        odd.deleted().await?;
        let why = "Delete has answered `done`";
        balancer.forgetful().absent("LB-12", why).await?;
        return stage.listed_times(&balancer, 0, "LB-12").await;
    }
    let codes = [
        FailureCode::Invalid,
        FailureCode::Conflict,
        FailureCode::Precondition,
    ];
    asked.failure("CORE-15", &codes)?;
    stage
        .converged(&mut balancer.clone(), Some(stage.targets()))
        .await
}

async fn of_nothing_as_without(run: &Run) -> Verdict {
    let stage = Stage::new(run).await?;
    let balancer = stage.ready("one").await?;
    let odd = || balancer.with_handle("no-such-handle");
    let asked = odd().get(Some(stage.targets())).await?;
    let found = found(&asked)?;
    asked.must(
        found.presence() == pb::LoadBalancerPresence::Present
            && found.ownership() == pb::Ownership::Ours,
        "LB-24",
        "PRESENT and OURS: a handle that names nothing counts as none",
    )?;
    odd().updated(stage.few()).await?;
    stage
        .converged(&mut balancer.forgetful(), Some(stage.few()))
        .await?;
    odd().deleted().await?;
    balancer
        .forgetful()
        .absent("LB-24", "Delete with a handle that names nothing is `done`")
        .await?;
    stage.listed_times(&balancer, 0, "LB-24").await
}

async fn of_nothing_ensure(run: &Run) -> Verdict {
    let stage = Stage::new(run).await?;
    let mut balancer = stage.ready("one").await?;
    let mut odd = balancer.with_handle("no-such-handle");
    let asked = odd.ensure(Some(stage.targets()), false).await?;
    if asked.answer()?.failed().is_none() {
        odd.ensured(Some(stage.targets())).await?;
    }
    stage.listed_times(&balancer, 1, "LB-5").await?;
    stage
        .converged(&mut balancer, Some(stage.targets()))
        .await?;
    let before = balancer.handle.clone();
    must(
        asked.answer()?.failed().is_some()
            || odd.handle == before
            || odd.handle.as_deref() == Some("no-such-handle"),
        "LB-3",
        asked.sent(),
        format_args!("the handle of the load balancer that the Service has, {before:?}"),
        format_args!("{:?}", odd.handle),
    )
}
