//! Overlapping calls for one object (CORE-7).

use std::fmt::Debug;
use std::time::Duration;

use cloud_provider_api::v1alpha1::{self as pb, FailureCode};
use futures::future::join_all;

use super::super::super::call::{Answer, Exchange};
use super::super::super::check::{Check, Need, Verdict, check, must};
use super::super::super::hooks::Hook;
use super::super::super::run::Run;
use super::super::tour::ensure;
use super::{ensure_of, listed, must_be_one};

pub(super) fn checks() -> Vec<Check> {
    vec![
        check!(
            "core/overlapping-ensures-make-one",
            ["CORE-7", "CORE-6"],
            "eight overlapping Ensures of one Service are serialised or BUSY, and make one load balancer",
            [Need::LoadBalancers],
            overlapping
        ),
        check!(
            "core/overlapping-ensure-and-delete-agree",
            ["CORE-7", "CORE-6"],
            "overlapping Ensure and Delete of one Service are serialised or BUSY, and Delete afterwards leaves nothing",
            [Need::LoadBalancers],
            ensure_and_delete
        ),
    ]
}

fn busy_or<T: Answer + Debug>(asked: &Exchange<T>) -> Verdict {
    let answer = asked.answer()?;
    let fine = match answer.failed() {
        Some(failure) => failure.code() == FailureCode::Busy,
        None => answer.says_something(),
    };
    asked.must(
        fine,
        "CORE-7",
        "a success, or `failed` with BUSY: the calls overlap",
    )
}

async fn overlapping(run: &Run) -> Verdict {
    let nodes = run.few_nodes().await?;
    let session = run.session().await?;
    let service = run.service("overlap");
    if run.has_hook(Hook::CloudSlow) {
        run.cloud_slow(Duration::from_millis(50)).await?;
    }
    let calls: Vec<_> = (0..8)
        .map(|_| session.call(ensure_of(&service, nodes.clone())))
        .collect();
    let asked = join_all(calls).await;
    asked.iter().try_for_each(busy_or)?;
    ensure(&session, &service, nodes).await?;
    must_be_one(run, &session, &service, "eight overlapping Ensures").await
}

async fn ensure_and_delete(run: &Run) -> Verdict {
    let nodes = run.few_nodes().await?;
    let session = run.session().await?;
    let service = run.service("overlap");
    let delete = pb::DeleteLoadBalancerRequest {
        service: Some(service.clone()),
        ..Default::default()
    };
    for _ in 0..3 {
        let ensure_it = session.call(ensure_of(&service, nodes.clone()));
        let delete_it = session.call(delete.clone());
        let (ensured, deleted) = futures::join!(ensure_it, delete_it);
        busy_or(&ensured)?;
        busy_or(&deleted)?;
    }
    let gone = run
        .eventually(Duration::from_mins(1), || async {
            let asked = session.call(delete.clone()).await;
            let outcome = asked.came.ok()?.outcome;
            matches!(
                outcome,
                Some(pb::delete_load_balancer_response::Outcome::Done(_))
            )
            .then_some(())
        })
        .await;
    must(
        gone.is_some(),
        "LB-12",
        "Delete again and again",
        "`done`",
        "something else for a minute",
    )?;
    let count = listed(run, &session, &service).await?;
    must(
        count.is_none_or(|count| count == 0),
        "CORE-7",
        "overlapping Ensure and Delete, then Delete until `done`, then ListLoadBalancers",
        "no load balancer of the Service",
        format_args!("{count:?}"),
    )
}
