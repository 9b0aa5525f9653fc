//! The shutdown of a process (CORE-17).

use std::time::Duration;

use cloud_provider_api::v1alpha1 as pb;
use futures::future::join;
use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};

use super::super::check::{Check, Need, Stop, Verdict, check, must};
use super::super::hooks::Hook;
use super::super::run::Run;
use super::super::wire::{self, Answers, Ending};
use super::tour;

/// The contract's limit, with a margin for a busy machine.
const END: Duration = Duration::from_secs(30);
/// How long each operation of the cloud takes during the shutdown, at least.
const SLOW: Duration = Duration::from_secs(2);
const LOOK: Duration = Duration::from_millis(25);
/// So many new connections in a row must be refused, and for this long: another server may take
/// over the socket.
const REFUSALS: u32 = 8;
const REFUSED: Duration = Duration::from_secs(1);
/// A provider that serves so many new connections does not refuse them. That takes some 2 s, or
/// longer on a machine that stalls.
const SERVED: u32 = 80;

pub(super) fn checks() -> Vec<Check> {
    vec![
        check!(
            "core/sigterm-ends-an-idle-process",
            ["CORE-17"],
            "SIGTERM ends a process with idle connections in time",
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
            "core/new-calls-in-the-drain-are-answered-or-refused",
            ["CORE-17"],
            "after SIGTERM, on a connection with a call in flight, the provider answers a new call normally or refuses it: REFUSED_STREAM, UNAVAILABLE or CANCELLED",
            [Need::Command, Need::Instances, Need::Hook(Hook::CloudSlow)],
            new_calls
        ),
        check!(
            "core/half-open-calls-do-not-keep-a-process",
            ["CORE-17"],
            "a call whose request never ends does not stop the process from ending",
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

/// A LookupInstances in flight, because the cloud is slow.
async fn slow_lookup(
    run: &Run,
    slow: Duration,
) -> Verdict<tokio::task::JoinHandle<super::super::call::Exchange<pb::LookupInstancesResponse>>> {
    let session = run.session().await?;
    run.cloud_slow(slow).await?;
    let request = tour::lookup(run);
    let (tells, arrived) = oneshot::channel();
    let call = tokio::spawn(async move {
        // The Probe leaves after the call on the same connection. Its answer shows that the call
        // has arrived. A provider that answers it only after the call must not hide the call's end.
        let probe = async {
            session.call(pb::ProbeRequest::default()).await;
            let _ = tells.send(());
        };
        join(session.call(request), probe).await.0
    });
    let _ = timeout(SLOW / 2, arrived).await;
    Ok(call)
}

fn lost(error: &tokio::task::JoinError) -> Stop {
    Stop::failed("(the suite)", "LookupInstances", "its task ends", error)
}

async fn in_flight(run: &Run) -> Verdict {
    let call = slow_lookup(run, SLOW).await?;
    run.target().send_term().await?;
    let asked = call.await.map_err(|error| lost(&error))?;
    asked.must(
        asked.came.is_ok(),
        "CORE-17",
        "an answer: it was in flight at SIGTERM",
    )?;
    ends(run, "with a call in flight, which was answered").await
}

/// Whether a new connection is served now.
async fn serves_new(run: &Run) -> bool {
    if UnixStream::connect(run.target().path()).await.is_err() {
        return false;
    }
    // The kernel may accept the connection. Only an answer shows that a process serves it.
    let asked = timeout(LOOK * 8, async {
        run.connect()
            .await?
            .call(pb::ProbeRequest::default())
            .await
            .answer()
            .map(|_| ())
    });
    matches!(asked.await, Ok(Ok(())))
}

async fn no_new(run: &Run) -> Verdict {
    let mut call = slow_lookup(run, SLOW * 8).await?;
    // A provider may answer it from a cache.
    let runs = !call.is_finished();
    run.target().send_term().await?;
    let refused = timeout(SLOW * 6, async {
        let (mut served, mut in_a_row, mut since) = (0, 0, Instant::now());
        while served < SERVED && (in_a_row < REFUSALS || since.elapsed() < REFUSED) {
            if serves_new(run).await {
                (served, in_a_row, since) = (served + 1, 0, Instant::now());
            } else {
                in_a_row += 1;
            }
            tokio::time::sleep(LOOK).await;
        }
        served < SERVED
    });
    let refused = refused.await == Ok(true);
    // The end of the call may be known a little later than that of the process.
    let over = timeout(LOOK * 8, &mut call).await.is_ok();
    // Other checks are about its answer.
    call.abort();
    must(
        refused && !(runs && over),
        "CORE-17",
        "SIGTERM while a LookupInstances runs, then new connections with Probe",
        format_args!("within {:?} they are refused, or not served", SLOW * 6),
        if refused {
            "they are served until the LookupInstances ends"
        } else {
            "they are served"
        },
    )?;
    ends(run, "with a call in flight, which the caller cut later").await
}

/// HTTP/2's code for a call that was not processed.
const REFUSED_STREAM: u32 = 7;
/// The deadline of the calls on the raw connection.
const PATIENT: Duration = Duration::from_secs(20);

async fn new_calls(run: &Run) -> Verdict {
    // A caller's HTTP/2 stack would react to GOAWAY. Here the suite writes the frames itself, so
    // the call arrives.
    let session = run.session().await?;
    // A lookup may take some operations one after another, all within PATIENT.
    run.cloud_slow(SLOW * 2).await?;
    let mut line = run.raw_connection().await?;
    let mut bytes = wire::opening();
    let lookup = session.noted(tour::lookup(run))?;
    wire::call(&mut bytes, 1, &lookup, PATIENT);
    // As in `slow_lookup`.
    wire::call(&mut bytes, 3, &pb::ProbeRequest::default(), PATIENT);
    let _ = line.write_all(&bytes).await;
    let mut answers = Answers::default();
    let until = Instant::now() + SLOW / 2;
    answers.read(&mut line, &[3], until).await;
    run.target().send_term().await?;
    tokio::time::sleep(SLOW / 2).await;
    let mut bytes = Vec::new();
    wire::call(&mut bytes, 5, &lookup, PATIENT);
    wire::call(&mut bytes, 7, &pb::ProbeRequest::default(), PATIENT);
    let _ = line.write_all(&bytes).await;
    let until = Instant::now() + END;
    answers.read(&mut line, &[1, 5, 7], until).await;
    drop(line);
    let of = |stream: u32| answers.endings.get(&stream).copied();
    let shown = |stream: u32| of(stream).map_or("no end of it".to_owned(), |end| end.to_string());
    must(
        of(1) == Some(Ending::Status(0)),
        "CORE-17",
        "LookupInstances, then SIGTERM while it runs",
        "an answer: it was in flight at SIGTERM",
        shown(1),
    )?;
    for (stream, name) in [(5, "LookupInstances"), (7, "Probe")] {
        let statuses = [tonic::Code::Unavailable, tonic::Code::Cancelled];
        let refused = match of(stream) {
            Some(Ending::NotTaken) => true,
            Some(Ending::Reset(code)) => code == REFUSED_STREAM,
            Some(Ending::Status(code)) => statuses.contains(&i32::from(code).into()),
            Some(Ending::NoStatus) | None => false,
        };
        must(
            refused || of(stream) == Some(Ending::Status(0)),
            "CORE-17",
            format_args!(
                "{name} on a connection with a call in flight, after SIGTERM, ignoring GOAWAY"
            ),
            "a normal answer, or REFUSED_STREAM, or gRPC status UNAVAILABLE or CANCELLED",
            shown(stream),
        )?;
    }
    let answered = answers.message::<pb::LookupInstancesResponse>(5);
    let failed = answered.and_then(|answer| answer.failed);
    must(
        failed.is_none(),
        "CORE-17",
        "LookupInstances on a connection with a call in flight, after SIGTERM",
        "a normal answer",
        format_args!("{failed:?}"),
    )?;
    ends(run, "with calls in flight").await
}

async fn half_open(run: &Run) -> Verdict {
    let session = run.connect().await?;
    let path = "/cloudprovider.v1alpha1.ProviderService/Initialize";
    let open = session.half_open(path).await;
    // Connected, without even HTTP/2.
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
