//! Calls that end without an answer do not delay other calls.

use std::time::Duration;

use cloud_provider_api::v1alpha1 as pb;
use futures::future::join_all;
use tokio::time::timeout;

use super::super::super::check::{Check, Need, Verdict, check};
use super::super::super::run::Run;
use super::super::super::session::hung_up;
use super::super::tour;
use super::{EARLY, MEANWHILE, SLOW, lookups_at_once};

/// The limit for the next call. It is shorter than the time that a continued call would take.
const NEXT: Duration = Duration::from_secs(5);
/// How many rounds of calls the check makes. A round has as many calls as [`lookups_at_once`].
const ROUNDS: usize = 4;

pub(super) fn checks() -> Vec<Check> {
    vec![
        check!(
            "core/cancelled-calls-cost-nothing",
            ["CORE-6"],
            "calls of 64 callers that cancel within a few milliseconds block no other call",
            cancelled
        ),
        check!(
            "core/deadlines-are-kept",
            ["CORE-9"],
            "lookups whose deadlines pass block no later call, on their connection or another",
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
    // An HTTP/2 stack may close the connection after many cancellations at once. The controller
    // then dials again.
    let session = run.connect().await?;
    session.call(pb::ProbeRequest::default()).await.answer()?;
    if offered.instances.is_some() {
        session.call(tour::lookup(run)).await.success("CORE-6")?;
    }
    Ok(())
}

async fn deadlines(run: &Run) -> Verdict {
    let most = lookups_at_once(run);
    let session = run.session().await?;
    run.cloud_slow(MEANWHILE).await?;
    // The caller cancels at its deadline, as the controller does. The check judges only the later
    // calls.
    for _ in 0..ROUNDS {
        let calls = (0..most).map(|_| session.call_within(tour::lookup(run), EARLY * 2));
        join_all(calls.collect::<Vec<_>>()).await;
    }
    run.cloud_slow(Duration::ZERO).await?;
    let fresh = run.connect().await?;
    for (session, is_fresh) in [(&session, false), (&fresh, true)] {
        let after = session.call_within(tour::lookup(run), NEXT).await;
        // As in `cancelled`, an HTTP/2 stack may close the connection. Then the new connection
        // counts.
        if !is_fresh && after.came.as_ref().is_err_and(hung_up) {
            continue;
        }
        after.must(
            after
                .came
                .as_ref()
                .is_ok_and(|answer| answer.failed.is_none()),
            "CORE-9",
            format_args!(
                "an answer within {NEXT:?}: the cloud is quick again. {} earlier lookups had a deadline of {:?}, while each operation of the cloud took {MEANWHILE:?}",
                ROUNDS * most,
                EARLY * 2
            ),
        )?;
    }
    Ok(())
}
