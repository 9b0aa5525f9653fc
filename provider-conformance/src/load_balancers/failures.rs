//! A failing cloud: the provider's answers, and conclusions that it must not draw.

use cloud_provider_api::v1alpha1::{self as pb, FailureCode};

use crate::call::Exchange;
use crate::check::{Check, Need, Verdict, check};
use crate::hooks::Hook;
use crate::run::Run;

use super::answer::Said;
use super::balancer::Balancer;
use super::stage::Stage;

pub(super) fn checks() -> Vec<Check> {
    vec![
        check!(
            "load-balancers/cloud-fails-get",
            ["CORE-4", "CORE-15"],
            "While the cloud fails, Get is `failed` with the cloud's code, never ABSENT",
            [Need::LoadBalancers, Need::Hook(Hook::CloudFail)],
            get
        ),
        check!(
            "load-balancers/cloud-fails-ensure",
            ["CORE-4", "CORE-15"],
            "While the cloud fails, Ensure is `failed` with the cloud's code, and makes one load balancer when the cloud works again",
            [Need::LoadBalancers, Need::Hook(Hook::CloudFail)],
            ensure
        ),
        check!(
            "load-balancers/cloud-fails-update",
            ["LB-11", "CORE-15"],
            "While the cloud fails, Update is `failed` with the cloud's code, never NOT_FOUND and never `done`",
            [Need::LoadBalancers, Need::Hook(Hook::CloudFail)],
            update
        ),
        check!(
            "load-balancers/cloud-fails-delete",
            ["LB-12", "CORE-15"],
            "While the cloud fails, Delete is `failed`, never `done`, and all still exists when the cloud works again",
            [Need::LoadBalancers, Need::Hook(Hook::CloudFail)],
            delete
        ),
        check!(
            "load-balancers/cloud-fails-delete-of-nothing",
            ["LB-12"],
            "While the cloud fails, Delete of a load balancer that never existed is `failed` too: the provider could not look it up",
            [Need::LoadBalancers, Need::Hook(Hook::CloudFail)],
            delete_of_nothing
        ),
        check!(
            "load-balancers/cloud-fails-list",
            ["LB-13", "CORE-16"],
            "While the cloud fails, the list ends with `failed`, never with `end`",
            [
                Need::LoadBalancers,
                Need::LoadBalancerListing,
                Need::Hook(Hook::CloudFail)
            ],
            list
        ),
        check!(
            "load-balancers/cloud-fails-handle-stays",
            ["LB-3", "CORE-6"],
            "After a failure the handle still works, and nothing exists twice",
            [Need::LoadBalancers, Need::Hook(Hook::CloudFail)],
            handle_stays
        ),
    ]
}

/// The cloud's failures, and the provider's required code.
const FAILURES: [(&str, FailureCode); 4] = [
    ("THROTTLED", FailureCode::Throttled),
    ("CREDENTIALS", FailureCode::Credentials),
    ("UNAVAILABLE", FailureCode::Unavailable),
    ("PRECONDITION", FailureCode::Precondition),
];

/// Checks for `failed` with the code, and a message for the operator.
fn fails<T: Said>(asked: &Exchange<T>, code: FailureCode) -> Verdict {
    let failure = asked.failure("CORE-15", &[code])?;
    asked.must(
        !failure.message.is_empty(),
        "CORE-15",
        "a message that an operator can act on",
    )
}

async fn get(run: &Run) -> Verdict {
    let stage = Stage::new(run).await?;
    let made = stage.ready("there").await?;
    let never = stage.balancer("never");
    for (word, code) in FAILURES {
        run.cloud_fail(word).await?;
        for mut balancer in [made.clone(), made.forgetful(), never.clone()] {
            fails(&balancer.get(Some(stage.targets())).await?, code)?;
        }
    }
    run.cloud_fail("NONE").await?;
    stage
        .converged(&mut made.clone(), Some(stage.targets()))
        .await?;
    never
        .clone()
        .absent("LB-5", "no call ever asked for it")
        .await
}

async fn ensure(run: &Run) -> Verdict {
    let stage = Stage::new(run).await?;
    let made = stage.ready("there").await?;
    let mut new = stage.balancer("new");
    for (word, code) in FAILURES {
        run.cloud_fail(word).await?;
        for mut balancer in [made.clone(), new.clone()] {
            let asked = balancer.ensure(Some(stage.targets()), false).await?;
            fails(&asked, code)?;
        }
    }
    run.cloud_fail("NONE").await?;
    stage
        .converged(&mut made.clone(), Some(stage.targets()))
        .await?;
    new.ensured(Some(stage.targets())).await?;
    stage.listed_times(&new, 1, "CORE-6").await?;
    stage.converged(&mut new, Some(stage.targets())).await
}

async fn update(run: &Run) -> Verdict {
    let stage = Stage::new(run).await?;
    let mut made = stage.ready("there").await?;
    for (word, code) in FAILURES {
        run.cloud_fail(word).await?;
        fails(&made.clone().update(stage.few()).await?, code)?;
        fails(&stage.balancer("never").update(stage.few()).await?, code)?;
    }
    run.cloud_fail("NONE").await?;
    stage.converged(&mut made, Some(stage.targets())).await
}

async fn delete(run: &Run) -> Verdict {
    let stage = Stage::new(run).await?;
    let made = stage.ready("there").await?;
    for (word, code) in FAILURES {
        run.cloud_fail(word).await?;
        for mut balancer in [made.clone(), made.forgetful()] {
            fails(&balancer.delete().await?, code)?;
        }
    }
    run.cloud_fail("NONE").await?;
    stage
        .converged(&mut made.clone(), Some(stage.targets()))
        .await?;
    super::interrupted::gone(&stage, made).await
}

async fn delete_of_nothing(run: &Run) -> Verdict {
    let stage = Stage::new(run).await?;
    run.cloud_fail("UNAVAILABLE").await?;
    let asked = stage.balancer("never").delete().await?;
    asked.failure("LB-12", &[FailureCode::Unavailable])?;
    Ok(())
}

async fn list(run: &Run) -> Verdict {
    let stage = Stage::new(run).await?;
    let made = stage.ready("there").await?;
    for (word, code) in FAILURES {
        run.cloud_fail(word).await?;
        let request = pb::ListLoadBalancersRequest::default();
        stage
            .session
            .list(request)
            .await
            .failure("LB-13", &[code])?;
    }
    run.cloud_fail("NONE").await?;
    stage.listed_times(&made, 1, "LB-13").await
}

async fn handle_stays(run: &Run) -> Verdict {
    let stage = Stage::new(run).await?;
    let mut balancer: Balancer = stage.ready("there").await?;
    let handle = balancer.handle.clone();
    let mut changed = balancer.changed(|service| service.ports[0].port = 8_080);
    run.cloud_fail("UNAVAILABLE").await?;
    for _ in 0..3 {
        let asked = changed.ensure(Some(stage.targets()), false).await?;
        asked.failure("CORE-15", &[FailureCode::Unavailable])?;
    }
    asked_nothing_new(&changed, handle.as_ref())?;
    run.cloud_fail("NONE").await?;
    changed.ensured(Some(stage.targets())).await?;
    stage.converged(&mut changed, Some(stage.targets())).await?;
    stage.listed_times(&changed, 1, "CORE-6").await?;
    balancer.service = changed.service.clone();
    stage.converged(&mut balancer, Some(stage.targets())).await
}

fn asked_nothing_new(balancer: &Balancer, handle: Option<&String>) -> Verdict {
    crate::check::must_equal(
        &balancer.handle.as_ref(),
        &handle,
        "LB-3",
        "Ensure while the cloud fails: the handle after it",
    )
}
