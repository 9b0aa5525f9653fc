//! Calls that end before they are answered keep no other call waiting.

use std::time::Duration;

use cloud_provider_api::v1alpha1 as pb;
use futures::future::join_all;
use tokio::time::{Instant, timeout};

use super::super::super::check::{Check, Need, Verdict, check, must};
use super::super::super::run::Run;
use super::super::tour;
use super::{EARLY, SLOW};

pub(super) fn checks() -> Vec<Check> {
    vec![
        check!(
            "core/cancelled-calls-cost-nothing",
            ["CORE-6"],
            "64 calls that are cancelled at once keep no other call waiting",
            cancelled
        ),
        check!(
            "core/deadlines-are-kept",
            ["CORE-9", "CORE-8"],
            "a call whose deadline passes ends, and keeps no other call waiting",
            [Need::Instances, SLOW],
            deadlines
        ),
    ]
}

async fn cancelled(run: &Run) -> Verdict {
    let offered = run.capabilities();
    let session = run.session().await?;
    let calls: Vec<_> = (0..64)
        .map(|number| {
            let (session, offered) = (session.clone(), offered.clone());
            async move {
                let cut = Duration::from_micros(100 * number);
                if offered.instances.is_some() {
                    let _ = timeout(cut, session.call(tour::lookup(run))).await;
                }
                let _ = timeout(cut, session.call(pb::GetProviderInfoRequest::default())).await;
            }
        })
        .collect();
    join_all(calls).await;
    // An HTTP/2 stack may hang up on a caller that cancels so much at once; the controller then dials again.
    let session = run.connect().await?;
    session.call(pb::ProbeRequest::default()).await.answer()?;
    if offered.instances.is_some() {
        session.call(tour::lookup(run)).await.success("CORE-6")?;
    }
    Ok(())
}

async fn deadlines(run: &Run) -> Verdict {
    let session = run.session().await?;
    run.cloud_slow(Duration::from_secs(5)).await?;
    let began = Instant::now();
    let calls: Vec<_> = (0..16)
        .map(|_| session.call_within(tour::lookup(run), EARLY * 2))
        .collect();
    let asked = join_all(calls).await;
    let took = began.elapsed();
    for asked in &asked {
        // A provider that answers from a cache, or `failed`, in time is as good.
        let late = asked.came.is_ok() && asked.took > Duration::from_secs(4);
        asked.must(
            !late,
            "CORE-9",
            "an answer or a status by the deadline of 200 ms",
        )?;
    }
    must(
        took < Duration::from_secs(4),
        "CORE-9",
        "16 LookupInstances with a deadline of 200 ms",
        "all end by then",
        format_args!("they took {took:?}"),
    )?;
    run.cloud_slow(Duration::ZERO).await?;
    // No call of theirs still holds what this one needs.
    let after = session
        .call_within(tour::lookup(run), Duration::from_secs(4))
        .await;
    after.success("CORE-9").map(|_| ())
}
