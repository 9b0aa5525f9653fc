//! Calls that are cut off: by their deadline, by the provider's death, or by the caller.

use std::time::Duration;

use cloud_provider_api::v1alpha1 as pb;

use crate::call::Exchange;
use crate::check::{Check, Need, Stop, Verdict, after, check, must, should};
use crate::hooks::Hook;
use crate::run::Run;

use super::balancer::Balancer;
use super::stage::Stage;

pub(super) fn checks() -> Vec<Check> {
    vec![
        check!(
            "load-balancers/cut-ensure-by-deadline",
            ["CORE-6"],
            "Ensure that is cut off by its deadline again and again, each time without the handle, ends in one load balancer",
            [Need::LoadBalancers],
            ensure_by_deadline
        ),
        check!(
            "load-balancers/cut-ensure-by-kill",
            ["CORE-6", "LB-5"],
            "Ensure that is cut off by killing the provider, at several points, ends in one load balancer each",
            [Need::LoadBalancers, Need::Command],
            ensure_by_kill
        ),
        check!(
            "load-balancers/cut-change-by-deadline",
            ["CORE-6", "LB-7"],
            "A change of the Service that is cut off by its deadline is whole after the next Ensure",
            [Need::LoadBalancers],
            change_by_deadline
        ),
        check!(
            "load-balancers/cut-delete-by-deadline",
            ["CORE-6", "LB-12"],
            "Delete that is cut off by its deadline again and again ends with nothing left",
            [Need::LoadBalancers],
            delete_by_deadline
        ),
        check!(
            "load-balancers/cut-delete-by-kill",
            ["CORE-6", "LB-12"],
            "Delete that is cut off by killing the provider ends with nothing left",
            [Need::LoadBalancers, Need::Command],
            delete_by_kill
        ),
        check!(
            "load-balancers/cancelled-ensure-stops",
            ["CORE-8"],
            "An Ensure that is cancelled while it still reads writes nothing to the cloud",
            [
                Need::LoadBalancers,
                Need::Hook(Hook::CloudSlow),
                Need::Hook(Hook::CloudWrites)
            ],
            ensure_stops
        ),
        check!(
            "load-balancers/cancelled-delete-stops",
            ["CORE-8"],
            "A Delete that is cancelled while it still reads removes nothing from the cloud",
            [
                Need::LoadBalancers,
                Need::Hook(Hook::CloudSlow),
                Need::Hook(Hook::CloudWrites)
            ],
            delete_stops
        ),
        check!(
            "load-balancers/disconnected-ensure-stops",
            ["CORE-8"],
            "An Ensure whose connection is lost writes nothing more to the cloud",
            [
                Need::LoadBalancers,
                Need::Hook(Hook::CloudSlow),
                Need::Hook(Hook::CloudWrites)
            ],
            disconnected_stops
        ),
        check!(
            "load-balancers/slow-cloud-is-pending",
            ["CORE-9"],
            "While the cloud is slow, Ensure answers `ready`, `pending` or `failed` before its deadline (80 % of it in the contract, 90 % in this check)",
            [Need::LoadBalancers, Need::Hook(Hook::CloudSlow)],
            slow_is_pending
        ),
    ]
}

/// Deadlines from too short to long enough for a fast provider. `deadlines` adds random ones.
const DEADLINES_MS: [u64; 10] = [1, 2, 3, 5, 8, 13, 21, 34, 55, 89];
const DRAWN: usize = 3;
/// The time of each cloud operation, if there is a hook, so that a deadline falls between two of
/// them.
const SLOWED: Duration = Duration::from_millis(20);
/// How long each operation of the cloud takes while a call is cancelled.
const LONG: Duration = Duration::from_secs(4);
const CANCELLED_AFTER: Duration = Duration::from_millis(400);

/// Slows the cloud if there is a hook, so that deadlines fall between two operations.
async fn slowed(run: &Run) -> Verdict {
    if run.has_hook(Hook::CloudSlow) {
        run.cloud_slow(SLOWED).await?;
    }
    Ok(())
}

async fn no_longer_slowed(run: &Run) -> Verdict {
    if run.has_hook(Hook::CloudSlow) {
        run.cloud_slow(Duration::ZERO).await?;
    }
    Ok(())
}

fn deadlines(run: &Run) -> Vec<u64> {
    run.and_drawn(DEADLINES_MS, DRAWN, &(1..=100))
}

async fn ensure_by_deadline(run: &Run) -> Verdict {
    let stage = Stage::new(run).await?;
    let deadlines = deadlines(run);
    slowed(run).await?;
    let balancer = stage.balancer("cut");
    for &ms in &deadlines {
        let request = balancer.ensure_request(Some(stage.targets()), false);
        // The result is unknown.
        let deadline = Duration::from_millis(ms);
        let _ = stage.session.call_within(request, deadline).await;
    }
    no_longer_slowed(run).await?;
    let came = resumed(&stage, balancer).await;
    cut_after("Ensure", &deadlines, came)
}

/// If the check failed, adds that calls of this RPC had these deadlines.
fn cut_after<T>(rpc: &str, deadlines: &[u64], came: Verdict<T>) -> Verdict<T> {
    after(
        format_args!("{rpc} again and again, with deadlines of {deadlines:?} ms"),
        came,
    )
}

/// An Ensure after a cut: there is one load balancer, in sync.
pub(super) async fn resumed(stage: &Stage<'_>, mut balancer: Balancer) -> Verdict {
    balancer.ensured(Some(stage.targets())).await?;
    stage.listed_times(&balancer, 1, "CORE-6").await?;
    stage.converged(&mut balancer, Some(stage.targets())).await
}

async fn ensure_by_kill(run: &Run) -> Verdict {
    let mut stage = Stage::new(run).await?;
    // Kills before and after the end of the cloud's first operation: only four, because a start of
    // the provider takes long.
    for ms in [0, run.draw(1..=19), 20, run.draw(21..=100)] {
        let balancer = stage.balancer("killed");
        slowed(run).await?;
        let request = balancer.ensure_request(Some(stage.targets()), false);
        killed_during(run, stage.session.call(request), ms).await?;
        stage.session = stage.back().await?;
        no_longer_slowed(run).await?;
        let came = resumed(&stage, balancer.through(&stage.session)).await;
        killed_after("Ensure", ms, came)?;
    }
    Ok(())
}

/// Kills the provider this long after the call began, and starts it again.
async fn killed_during<T>(run: &Run, call: impl Future<Output = Exchange<T>>, ms: u64) -> Verdict {
    let kill = async {
        tokio::time::sleep(Duration::from_millis(ms)).await;
        run.target().kill().await
    };
    let (_, killed) = tokio::join!(call, kill);
    killed?;
    killed_after("a call", ms, run.target().revive().await)
}

/// If the check failed, adds that the provider was killed this long after a call of this RPC began.
fn killed_after<T>(rpc: &str, ms: u64, came: Verdict<T>) -> Verdict<T> {
    after(
        format_args!("{rpc}, the provider killed {ms} ms after it began"),
        came,
    )
}

async fn change_by_deadline(run: &Run) -> Verdict {
    let stage = Stage::new(run).await?;
    let balancer = stage.ready("change").await?;
    let changed = balancer.changed(|service| {
        service.ports[0].port = 8_080;
        let more = (1..4).map(|number| pb::ServicePort {
            name: format!("port-{number}"),
            port: 9_000 + number,
            node_port: Some(31_000 + number),
            ..service.ports[0].clone()
        });
        let more: Vec<_> = more.collect();
        service.ports.extend(more);
    });
    let deadlines = deadlines(run);
    slowed(run).await?;
    for &ms in &deadlines {
        let request = changed.ensure_request(Some(stage.few()), false);
        let deadline = Duration::from_millis(ms);
        let _ = stage.session.call_within(request, deadline).await;
    }
    no_longer_slowed(run).await?;
    let came = resumed(&stage, changed).await;
    cut_after("Ensure of the change", &deadlines, came)
}

async fn delete_by_deadline(run: &Run) -> Verdict {
    let stage = Stage::new(run).await?;
    let balancer = stage.ready("cut").await?;
    let deadlines = deadlines(run);
    slowed(run).await?;
    for &ms in &deadlines {
        let request = balancer.delete_request();
        let deadline = Duration::from_millis(ms);
        let _ = stage.session.call_within(request, deadline).await;
    }
    no_longer_slowed(run).await?;
    cut_after("Delete", &deadlines, gone(&stage, balancer).await)
}

pub(super) async fn gone(stage: &Stage<'_>, mut balancer: Balancer) -> Verdict {
    balancer.deleted().await?;
    let why = "Delete has answered `done`";
    balancer.forgetful().absent("LB-12", why).await?;
    stage.listed_times(&balancer, 0, "LB-12").await
}

async fn delete_by_kill(run: &Run) -> Verdict {
    let mut stage = Stage::new(run).await?;
    for (ms, keeps_handle) in [
        (0, true),
        (run.draw(1..=19), false),
        (run.draw(20..=80), true),
    ] {
        let mut balancer = stage.ready("killed").await?;
        slowed(run).await?;
        let request = balancer.delete_request();
        killed_during(run, stage.session.call(request), ms).await?;
        stage.session = stage.back().await?;
        no_longer_slowed(run).await?;
        if !keeps_handle {
            balancer = balancer.forgetful();
        }
        let came = gone(&stage, balancer.through(&stage.session)).await;
        killed_after("Delete", ms, came)?;
    }
    Ok(())
}

/// Drops the call during the cloud's first operation. For twice the time of an operation after
/// that, nothing may be written.
async fn stops<T>(run: &Run, call: impl Future<Output = Exchange<T>>, what: &str) -> Verdict {
    let before = run.cloud_writes().await?;
    run.cloud_slow(LONG).await?;
    let ended = tokio::time::timeout(CANCELLED_AFTER, call).await.is_ok();
    if ended {
        return Err(Stop::not_offered(format!(
            "{what} was answered while each cloud operation takes {LONG:?}: it makes none before it answers"
        )));
    }
    written_later(run, before, what).await
}

async fn written_later(run: &Run, before: u64, what: &str) -> Verdict {
    // Twice the time of the read that was in progress.
    let seen = run
        .eventually(LONG * 2, || async {
            match run.cloud_writes().await {
                Ok(now) if now == before => None,
                came => Some(came),
            }
        })
        .await;
    let after = seen.unwrap_or(Ok(before))?;
    must(
        after == before,
        "CORE-8",
        format_args!(
            "{what}, cancelled after {CANCELLED_AFTER:?} while each cloud operation takes {LONG:?}"
        ),
        "no write to the cloud after that: the provider was still reading",
        format_args!(
            "{} writes (hook cloud-writes)",
            after.saturating_sub(before)
        ),
    )
}

async fn ensure_stops(run: &Run) -> Verdict {
    let stage = Stage::new(run).await?;
    let balancer = stage.balancer("cancelled");
    let request = balancer.ensure_request(Some(stage.targets()), false);
    stops(
        run,
        stage.session.call(request),
        "Ensure of a new load balancer",
    )
    .await?;
    run.cloud_slow(Duration::ZERO).await?;
    resumed(&stage, balancer).await
}

async fn delete_stops(run: &Run) -> Verdict {
    let stage = Stage::new(run).await?;
    let mut balancer = stage.ready("cancelled").await?;
    let request = balancer.delete_request();
    stops(
        run,
        stage.session.call(request),
        "Delete of a load balancer",
    )
    .await?;
    run.cloud_slow(Duration::ZERO).await?;
    balancer.present(None).await?;
    stage.converged(&mut balancer, Some(stage.targets())).await
}

async fn disconnected_stops(run: &Run) -> Verdict {
    let stage = Stage::new(run).await?;
    let other = run.connect().await?;
    let balancer = stage.balancer("cut-off");
    let request = balancer.ensure_request(Some(stage.targets()), false);
    let what = "Ensure of a new load balancer, whose connection was closed";
    // The call owns the connection, so dropping the call closes the connection.
    let call = async move { other.call(request).await };
    stops(run, call, what).await?;
    run.cloud_slow(Duration::ZERO).await?;
    resumed(&stage, balancer).await
}

async fn slow_is_pending(run: &Run) -> Verdict {
    let stage = Stage::new(run).await?;
    let balancer = stage.balancer("slow");
    let slow = Duration::from_secs(15);
    run.cloud_slow(slow).await?;
    let request = balancer.ensure_request(Some(stage.targets()), false);
    let deadline = Duration::from_secs(10);
    let asked = stage.session.call_within(request, deadline).await;
    run.cloud_slow(Duration::ZERO).await?;
    should(
        asked.came.is_ok() && asked.took < deadline.mul_f64(0.9),
        "CORE-9",
        format_args!(
            "Ensure with a deadline of {deadline:?} while each cloud operation takes {slow:?}"
        ),
        "`pending` before 80 % of the deadline",
        format_args!("after {:?}: {:?}", asked.took, asked.came),
    )?;
    resumed(&stage, balancer).await
}
