//! Calls whose caller does not cancel them at their deadline (CORE-19).

use std::collections::BTreeMap;
use std::time::Duration;

use cloud_provider_api::v1alpha1 as pb;
use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;
use tokio::time::Instant;
use tonic::Code;

use super::super::super::call::Rpc;
use super::super::super::check::{Check, Stop, Verdict, check, must};
use super::super::super::run::Run;
use super::super::super::session::Session;
use super::super::super::wire::{self, Answers, Ended, Ending, Said};
use super::super::tour;
use super::{EARLY, ENDING, MEANWHILE, SLOW, ensure_of, routes_of};

/// How long to wait: the provider's clock counts, and it starts later than the suite's.
const PATIENCE: Duration = EARLY.saturating_add(ENDING.saturating_mul(2));

pub(super) fn checks() -> Vec<Check> {
    vec![
        check!(
            "core/a-call-ends-at-its-deadline-by-itself",
            ["CORE-19"],
            "the provider ends a lookup, an Ensure and a CreateRoutes soon after their deadline, even if the caller does not cancel them",
            [SLOW],
            by_itself
        ),
        check!(
            "core/a-call-ends-at-its-deadline-with-deadline-exceeded",
            ["CORE-19"],
            "a call that the provider ends at its deadline ends with gRPC status DEADLINE_EXCEEDED or CANCELLED, or with an answer",
            [SLOW],
            with_its_status
        ),
    ]
}

/// The open calls by the numbers of their streams, and the bytes that make these calls.
struct Calls {
    sends: Vec<u8>,
    open: BTreeMap<u32, &'static str>,
}

impl Calls {
    fn add<R: Rpc>(&mut self, session: &Session, request: R) -> Verdict {
        let stream = 1 + 2 * u32::try_from(self.open.len()).unwrap_or_default();
        wire::call(&mut self.sends, stream, &session.noted(request)?, EARLY);
        self.open.insert(stream, R::NAME);
        Ok(())
    }
}

/// The RPCs of the streams that are still open when the time is over or the connection has ended.
pub(super) async fn left_open(
    line: &mut UnixStream,
    mut open: BTreeMap<u32, &'static str>,
    patience: Duration,
) -> Vec<&'static str> {
    let until = Instant::now() + patience;
    let mut ended = Ended::default();
    while !open.is_empty() {
        let Said::Frame(head) = wire::hear(line, until).await else {
            break;
        };
        ended.allows(head);
        open.retain(|stream, _| !ended.0.contains(stream));
    }
    open.into_values().collect()
}

/// A lookup, an Ensure and a CreateRoutes with a short deadline, if they are offered.
async fn short_calls(run: &Run) -> Verdict<Calls> {
    let offered = run.capabilities();
    let nodes = run.few_nodes_if_any().await?;
    let session = run.session().await?;
    let mut calls = Calls {
        sends: wire::opening(),
        open: BTreeMap::new(),
    };
    if offered.instances.is_some() {
        calls.add(&session, tour::lookup(run))?;
    }
    if let Some(nodes) = nodes {
        calls.add(&session, ensure_of(&run.service("overdue"), nodes))?;
    }
    if offered.routes.is_some() {
        let routes = routes_of(run, 2);
        calls.add(
            &session,
            pb::CreateRoutesRequest {
                cluster: None,
                routes,
            },
        )?;
    }
    if calls.open.is_empty() {
        // A missing setup outweighs a missing capability.
        run.passed()?;
        return Err(Stop::not_offered(
            "the provider offers no instances and no routes, and the suite can make no load balancer",
        ));
    }
    Ok(calls)
}

async fn by_itself(run: &Run) -> Verdict {
    let calls = short_calls(run).await?;
    run.cloud_slow(MEANWHILE).await?;
    let mut line = run.raw_connection().await?;
    let sent: Vec<_> = calls.open.values().copied().collect();
    let _ = line.write_all(&calls.sends).await;
    let left = left_open(&mut line, calls.open, PATIENCE).await;
    drop(line);
    run.cloud_slow(Duration::ZERO).await?;
    must(
        left.is_empty(),
        "CORE-19",
        format_args!(
            "{} with grpc-timeout {EARLY:?} while the cloud takes {MEANWHILE:?}, and no RST_STREAM from the caller",
            sent.join(", ")
        ),
        format_args!(
            "each call ends, with any status or answer, at most {ENDING:?} after its deadline by the provider's clock"
        ),
        format_args!(
            "not ended after {PATIENCE:?}, or when the connection ended: {}",
            left.join(", ")
        ),
    )
}

/// HTTP/2's code for a cancelled call, which some stacks use: CANCEL.
const CANCEL: u32 = 8;

/// Whether a call may end like this after its deadline.
fn is_overdue(ending: Ending) -> bool {
    let codes = [Code::Ok, Code::DeadlineExceeded, Code::Cancelled];
    match ending {
        Ending::Status(code) => codes.contains(&Code::from(i32::from(code))),
        Ending::Reset(code) => code == CANCEL,
        Ending::NoStatus | Ending::NotTaken => false,
    }
}

async fn with_its_status(run: &Run) -> Verdict {
    let calls = short_calls(run).await?;
    run.cloud_slow(MEANWHILE).await?;
    let mut line = run.raw_connection().await?;
    let _ = line.write_all(&calls.sends).await;
    let streams: Vec<u32> = calls.open.keys().copied().collect();
    let mut answers = Answers::default();
    let until = Instant::now() + PATIENCE;
    answers.read(&mut line, &streams, until).await;
    drop(line);
    run.cloud_slow(Duration::ZERO).await?;
    // Another check reports calls that have not ended.
    for (stream, ending) in &answers.endings {
        must(
            is_overdue(*ending),
            "CORE-19",
            format_args!(
                "{} with grpc-timeout {EARLY:?} while the cloud takes {MEANWHILE:?}, and no RST_STREAM from the caller",
                calls.open.get(stream).copied().unwrap_or_default()
            ),
            "gRPC status DEADLINE_EXCEEDED, or CANCELLED, or an answer that was ready by then",
            ending,
        )?;
    }
    if answers.endings.is_empty() {
        return Err(Stop::not_offered(
            "no call ended at its deadline: see core/a-call-ends-at-its-deadline-by-itself",
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::super::super::wire::{DATA, END_STREAM, HEADERS, RST_STREAM, frame};
    use super::*;

    #[tokio::test]
    async fn a_call_that_nobody_ended_is_named_and_so_are_all_on_a_line_that_ends() {
        let both = ["Ensure", "Create"];
        for (frames, stays, left) in [
            (
                &[(RST_STREAM, 0, 1), (HEADERS, END_STREAM, 3)][..],
                true,
                &[][..],
            ),
            (
                &[(HEADERS, 0, 1), (DATA, 0, 1), (HEADERS, END_STREAM, 3)],
                true,
                &both[..1],
            ),
            (&[(HEADERS, END_STREAM, 1)], false, &both[1..]),
            (&[], true, &both),
        ] {
            let (mut near, mut far) = UnixStream::pair().unwrap();
            let mut bytes = Vec::new();
            for (kind, flags, stream) in frames {
                frame(&mut bytes, *kind, *flags, *stream, &[0; 4]);
            }
            far.write_all(&bytes).await.unwrap();
            let _far = stays.then_some(far);
            let open = BTreeMap::from([(1, both[0]), (3, both[1])]);
            let came = left_open(&mut near, open, Duration::from_millis(50)).await;
            assert_eq!(came, left, "{frames:?}");
        }
    }
}
