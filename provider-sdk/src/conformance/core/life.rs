//! How a process ends (CORE-17).

use std::time::Duration;

use cloud_provider_api::v1alpha1 as pb;
use tokio::net::UnixStream;

use super::super::check::{Check, Need, Stop, Verdict, check, must};
use super::super::hooks::Hook;
use super::super::run::Run;
use super::tour;

/// The contract's bound, and what a loaded machine adds.
const END: Duration = Duration::from_secs(30);
/// How long each operation of the cloud takes while the process ends.
const SLOW: Duration = Duration::from_secs(2);
const LOOK: Duration = Duration::from_millis(25);

pub(super) fn checks() -> Vec<Check> {
    vec![
        check!(
            "core/sigterm-ends-an-idle-process",
            ["CORE-17"],
            "SIGTERM ends a process whose connections are idle, within its bound",
            [Need::Command],
            idle
        ),
        check!(
            "core/calls-in-flight-are-answered-after-sigterm",
            ["CORE-17"],
            "a call that is in flight at SIGTERM is answered",
            [Need::Command, Need::Instances, Need::Hook(Hook::CloudSlow)],
            in_flight
        ),
        check!(
            "core/no-new-connections-after-sigterm",
            ["CORE-17"],
            "after SIGTERM no new connection is served, while the last call still runs",
            [Need::Command, Need::Instances, Need::Hook(Hook::CloudSlow)],
            no_new
        ),
        check!(
            "core/half-open-calls-do-not-keep-a-process",
            ["CORE-17"],
            "a call whose request never ends does not keep the process from its end",
            [Need::Command],
            half_open
        ),
        check!(
            "core/a-process-serves-again-after-sigterm",
            ["CORE-17", "CORE-6"],
            "after SIGTERM a new process serves at the same endpoint",
            [Need::Command],
            again
        ),
    ]
}

async fn ends(run: &Run, what: &str) -> Verdict {
    let ended = run.target().wait(END).await?;
    must(
        ended.is_some(),
        "CORE-17",
        format_args!("SIGTERM {what}"),
        format_args!("the process ends within {END:?}"),
        "it still runs",
    )
}

async fn idle(run: &Run) -> Verdict {
    let first = run.session().await?;
    let second = run.session().await?;
    run.target().send_term().await?;
    ends(run, "with two idle connections").await?;
    drop((first, second));
    Ok(())
}

/// A LookupInstances that is in flight: the cloud takes its time.
async fn slow_lookup(
    run: &Run,
) -> Verdict<tokio::task::JoinHandle<super::super::call::Exchange<pb::LookupInstancesResponse>>> {
    let session = run.session().await?;
    run.cloud_slow(SLOW).await?;
    let request = tour::lookup(run);
    let call = tokio::spawn(async move { session.call(request).await });
    // On its way, on another task; nothing tells from outside when it has come.
    tokio::time::sleep(SLOW / 4).await;
    Ok(call)
}

fn lost(error: &tokio::task::JoinError) -> Stop {
    Stop::failed("(the suite)", "LookupInstances", "its task ends", error)
}

async fn in_flight(run: &Run) -> Verdict {
    let call = slow_lookup(run).await?;
    run.target().send_term().await?;
    let asked = call.await.map_err(|error| lost(&error))?;
    asked.must(
        asked.came.is_ok(),
        "CORE-17",
        "an answer: it was in flight at SIGTERM",
    )?;
    ends(run, "with a call in flight, which was answered").await
}

async fn no_new(run: &Run) -> Verdict {
    let call = slow_lookup(run).await?;
    run.target().send_term().await?;
    let path = run.target().path().to_owned();
    let refused = run
        .eventually(SLOW * 2, || async {
            let Ok(_) = UnixStream::connect(&path).await else {
                return Some(());
            };
            // It may be accepted by the system before anybody looks at it; what counts is that nobody serves it.
            let asked = tokio::time::timeout(LOOK * 8, async {
                run.connect()
                    .await?
                    .call(pb::ProbeRequest::default())
                    .await
                    .answer()
                    .map(|_| ())
            });
            (!matches!(asked.await, Ok(Ok(())))).then_some(())
        })
        .await;
    must(
        refused.is_some(),
        "CORE-17",
        "SIGTERM, then new connections with Probe",
        "they are refused, or not served",
        format_args!("they are served for {:?}", SLOW * 2),
    )?;
    let _ = call.await;
    ends(run, "with a call in flight").await
}

async fn half_open(run: &Run) -> Verdict {
    let session = run.connect().await?;
    let path = "/cloudprovider.v1alpha1.ProviderService/Initialize";
    let open = session.half_open(path).await;
    // Connected, and not even HTTP/2.
    let silent = run.raw_connection().await?;
    session.call(pb::ProbeRequest::default()).await.answer()?;
    run.target().send_term().await?;
    ends(run, "with a call whose request does not end").await?;
    drop((open, silent));
    Ok(())
}

async fn again(run: &Run) -> Verdict {
    let before = run.session().await?.call(pb::ProbeRequest::default()).await;
    let ended = run.target().terminate(END).await?;
    must(
        ended.is_some(),
        "CORE-17",
        "SIGTERM",
        format_args!("the process ends within {END:?}"),
        "it still runs",
    )?;
    run.target().revive().await?;
    let after = run.session().await?.call(pb::ProbeRequest::default()).await;
    after.must(
        after.answer()?.boot_id != before.answer()?.boot_id,
        "PROV-7",
        "another boot_id: it is another process",
    )
}
