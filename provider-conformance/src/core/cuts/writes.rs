//! Calls that are cut write nothing to the cloud afterwards (CORE-8, CORE-19).

use std::collections::BTreeMap;
use std::time::Duration;

use cloud_provider_api::v1alpha1 as pb;
use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;
use tokio::time::{Instant, sleep_until, timeout};

use super::super::super::call::Rpc;
use super::super::super::check::{Check, Need, Verdict, check, must};
use super::super::super::run::Run;
use super::super::super::session::Session;
use super::super::super::wire::{call, opening};
use super::super::tour::ensure;
use super::overdue::left_open;
use super::{EARLY, ENDING, SLOW, WRITES, ensure_of, routes_of};

/// How long each operation of the cloud takes during cuts.
const EACH: Duration = Duration::from_millis(1_300);
/// A call that nothing stops has written by then, if it reads at most three times before.
const WROTE: Duration = EACH.saturating_mul(4);

pub(super) fn checks() -> Vec<Check> {
    vec![
        check!(
            "core/a-cancelled-ensure-writes-nothing",
            ["CORE-8"],
            "EnsureLoadBalancer that is cancelled before the cloud did anything writes nothing afterwards",
            [Need::LoadBalancers, SLOW, WRITES],
            |run| ensure_cut(run, Cut::Cancel)
        ),
        check!(
            "core/an-ensure-past-its-deadline-writes-nothing",
            ["CORE-8", "CORE-9"],
            "EnsureLoadBalancer whose deadline passes before the cloud did anything writes nothing afterwards",
            [Need::LoadBalancers, SLOW, WRITES],
            |run| ensure_cut(run, Cut::Deadline)
        ),
        check!(
            "core/an-ensure-left-alone-writes-nothing-past-its-deadline",
            ["CORE-19", "CORE-8"],
            "EnsureLoadBalancer whose deadline passes before the cloud did anything writes nothing afterwards, even if the caller does not cancel the call",
            [Need::LoadBalancers, SLOW, WRITES],
            |run| ensure_cut(run, Cut::LeftAlone)
        ),
        check!(
            "core/an-ensure-whose-connection-is-lost-writes-nothing",
            ["CORE-8"],
            "EnsureLoadBalancer whose connection is lost before the cloud did anything writes nothing afterwards",
            [Need::LoadBalancers, SLOW, WRITES],
            |run| ensure_cut(run, Cut::Connection)
        ),
        check!(
            "core/a-cancelled-delete-writes-nothing",
            ["CORE-8"],
            "DeleteLoadBalancer that is cancelled before the cloud did anything writes nothing afterwards",
            [Need::LoadBalancers, SLOW, WRITES],
            |run| delete_cut(run, Cut::Cancel)
        ),
        check!(
            "core/a-delete-left-alone-writes-nothing-past-its-deadline",
            ["CORE-19", "CORE-8"],
            "DeleteLoadBalancer whose deadline passes before the cloud did anything writes nothing afterwards, even if the caller does not cancel the call",
            [Need::LoadBalancers, SLOW, WRITES],
            |run| delete_cut(run, Cut::LeftAlone)
        ),
        check!(
            "core/a-cancelled-create-routes-writes-nothing",
            ["CORE-8"],
            "CreateRoutes that is cancelled before the cloud did anything writes nothing afterwards",
            [Need::Routes, SLOW, WRITES],
            |run| routes_cut(run, Cut::Cancel)
        ),
        check!(
            "core/a-create-routes-left-alone-writes-nothing-past-its-deadline",
            ["CORE-19", "CORE-8"],
            "CreateRoutes whose deadline passes before the cloud did anything writes nothing afterwards, even if the caller does not cancel the call",
            [Need::Routes, SLOW, WRITES],
            |run| routes_cut(run, Cut::LeftAlone)
        ),
        check!(
            "core/a-create-routes-whose-connection-is-lost-writes-nothing",
            ["CORE-8"],
            "CreateRoutes whose connection is lost before the cloud did anything writes nothing afterwards",
            [Need::Routes, SLOW, WRITES],
            |run| routes_cut(run, Cut::Connection)
        ),
    ]
}

#[derive(Clone, Copy)]
enum Cut {
    Cancel,
    Deadline,
    Connection,
    /// Only the provider knows the deadline: the caller keeps waiting.
    LeftAlone,
}

impl Cut {
    /// The rule that a later write violates.
    fn rule(self) -> &'static str {
        match self {
            Self::LeftAlone => "CORE-19",
            Self::Cancel | Self::Deadline | Self::Connection => "CORE-8",
        }
    }
}

/// Sends a call and cuts it. Returns the action in words, and for `LeftAlone` the connection, which
/// must stay open.
async fn cut<R: Rpc>(
    run: &Run,
    session: Session,
    request: R,
    how: Cut,
) -> Verdict<(String, Option<UnixStream>)> {
    let mut stays = None;
    let sent = match how {
        Cut::LeftAlone => {
            let mut line = run.raw_connection().await?;
            let mut sends = opening();
            call(&mut sends, 1, &session.noted(request)?, EARLY);
            // `writes_nothing` detects a closed connection.
            let _ = line.write_all(&sends).await;
            stays = Some(line);
            format!(
                "{} with grpc-timeout {EARLY:?} and no RST_STREAM from the caller",
                R::NAME
            )
        }
        Cut::Deadline => {
            let asked = session.call_within(request, EARLY).await;
            format!("{} with a deadline of {EARLY:?}", asked.sent())
        }
        Cut::Cancel => {
            let sent = format!("{} that was cancelled after {EARLY:?}", R::NAME);
            let _ = timeout(EARLY, session.call(request)).await;
            // The connection stays: only the call is cut. An answer soon after shows that the
            // provider reads.
            let _ = session.call(pb::ProbeRequest::default()).await;
            sent
        }
        Cut::Connection => {
            let sent = format!("{} whose connection was closed after {EARLY:?}", R::NAME);
            let _ = timeout(EARLY, session.call(request)).await;
            drop(session);
            let other = run.connect().await?;
            let _ = other.call(pb::ProbeRequest::default()).await;
            sent
        }
    };
    Ok((sent, stays))
}

/// Cuts a call while the cloud is slow, waits until a call that nothing stops would have written,
/// and counts the writes. `false`: it wrote, but the cut was so late that the cloud's first
/// operation may have ended before it, and this is not the last round.
async fn writes_nothing<R: Rpc>(
    run: &Run,
    session: Session,
    request: R,
    how: Cut,
    is_last: bool,
) -> Verdict<bool> {
    let before = run.cloud_writes().await?;
    run.cloud_slow(EACH).await?;
    let began = Instant::now();
    let (sent, mut stays) = cut(run, session, request, how).await?;
    let late = began.elapsed() > EACH / 2;
    let over = Instant::now() + WROTE;
    let left = match &mut stays {
        Some(line) => left_open(line, BTreeMap::from([(1, R::NAME)]), WROTE).await,
        None => Vec::new(),
    };
    sleep_until(over).await;
    run.cloud_slow(Duration::ZERO).await?;
    let after = run.cloud_writes().await?;
    if late && after != before && !is_last {
        return Ok(false);
    }
    must(
        after == before,
        how.rule(),
        format_args!("{sent}, while each operation of the cloud takes {EACH:?}"),
        "no write to the cloud: it stops before its next one",
        format_args!("{} writes", after - before),
    )?;
    // If the provider never received the call, it writes nothing either.
    must(
        left.is_empty(),
        how.rule(),
        format_args!("{sent}, while each operation of the cloud takes {EACH:?}"),
        format_args!(
            "an open connection, and the call's end at most {ENDING:?} after its deadline"
        ),
        "the connection ended before the call, or the call is still open",
    )?;
    Ok(true)
}

/// The rounds of a check whose cuts are late. `true`: the last one.
const ROUNDS: [bool; 3] = [false, false, true];

async fn ensure_cut(run: &Run, how: Cut) -> Verdict {
    let nodes = run.few_nodes().await?;
    for is_last in ROUNDS {
        let session = run.session().await?;
        let service = run.service("cut");
        let request = ensure_of(&service, nodes.clone());
        let in_time = writes_nothing(run, session, request, how, is_last).await?;
        // A later Ensure completes the load balancer.
        let session = run.session().await?;
        ensure(&session, &service, nodes.clone()).await?;
        if in_time {
            break;
        }
    }
    Ok(())
}

async fn delete_cut(run: &Run, how: Cut) -> Verdict {
    let nodes = run.few_nodes().await?;
    for is_last in ROUNDS {
        let session = run.session().await?;
        let service = run.service("cut");
        let made = ensure(&session, &service, nodes.clone()).await?;
        let handle = made.answer()?.handle.clone();
        let request = pb::DeleteLoadBalancerRequest {
            cluster: None,
            service: Some(service),
            handle,
            adopt_unmarked: false,
        };
        if writes_nothing(run, session, request, how, is_last).await? {
            break;
        }
    }
    Ok(())
}

async fn routes_cut(run: &Run, how: Cut) -> Verdict {
    for is_last in ROUNDS {
        let session = run.session().await?;
        let routes = routes_of(run, 4);
        let request = pb::CreateRoutesRequest {
            cluster: None,
            routes,
        };
        if writes_nothing(run, session, request, how, is_last).await? {
            break;
        }
    }
    Ok(())
}
