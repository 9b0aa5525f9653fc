//! Probe.

use std::time::{Duration, SystemTime};

use cloud_provider_api::v1alpha1 as pb;
use futures::future::join_all;

use super::super::check::{Check, Need, Stop, Verdict, check, must};
use super::super::hooks::Hook;
use super::super::run::Run;
use super::super::session::Session;

const SLOW: Duration = Duration::from_secs(8);
/// The time after which the caller gives up.
const GIVEN_UP: Duration = Duration::from_millis(500);
/// How long a provider may take to become READY again.
const AGAIN: Duration = Duration::from_secs(30);
/// Half of the cloud's delay, and far more time than an answer from memory needs on a busy machine.
const FROM_MEMORY: Duration = Duration::from_secs(4);

pub(super) fn checks() -> Vec<Check> {
    vec![
        check!(
            "provider/probe-before-initialize",
            ["PROV-4"],
            "a new process answers Probe before Initialize",
            [Need::Command],
            before_initialize
        ),
        check!(
            "provider/probe-is-ready-before-initialize",
            ["PROV-15"],
            "a new process without Initialize says READY, like a standby's provider",
            [Need::Command],
            ready_before_initialize
        ),
        check!(
            "provider/probe-tells-of-a-failing-cloud",
            ["PROV-16"],
            "after five calls that the cloud failed, the state is DEGRADED, or BROKEN",
            [Need::Instances, Need::Hook(Hook::CloudFail)],
            tells_of_failing_cloud
        ),
        check!(
            "provider/probe-is-ready-again-after-a-success",
            ["PROV-16"],
            "after the first call that the cloud answers, the state is READY again",
            [Need::Instances, Need::Hook(Hook::CloudFail)],
            ready_again
        ),
        check!(
            "provider/probe-is-ready-again-after-a-refusal",
            ["PROV-16"],
            "the cloud's refusal of one object (a limit, a 422) is an answer: the state is READY again",
            [Need::Instances, Need::Hook(Hook::CloudFail)],
            ready_after_refusal
        ),
        check!(
            "provider/probe-does-not-count-cancelled-calls",
            ["PROV-16"],
            "calls that their caller cancels do not count as failures of the cloud: the state stays READY",
            [Need::Instances, Need::Hook(Hook::CloudSlow)],
            cancelled_calls
        ),
        check!(
            "provider/probe-tells-the-boot-id",
            ["PROV-4", "PROV-7"],
            "Probe and GetProviderInfo have the same boot_id",
            boot_id
        ),
        check!(
            "provider/probe-from-memory",
            ["PROV-4"],
            "Probe does not wait for a slow cloud",
            [Need::Hook(Hook::CloudSlow)],
            slow_cloud
        ),
        check!(
            "provider/probe-beside-64-calls",
            ["PROV-4"],
            "Probe is not slowed by 64 calls that wait for the cloud, on the same and on another connection",
            [Need::Instances, Need::Hook(Hook::CloudSlow)],
            beside_calls
        ),
        check!(
            "provider/probe-beside-a-slow-initialize",
            ["PROV-4"],
            "Probe and GetProviderInfo do not wait for an Initialize that asks the cloud",
            [Need::Hook(Hook::CloudSlow)],
            beside_initialize
        ),
        check!(
            "provider/probe-while-the-cloud-fails",
            ["PROV-4", "CORE-4"],
            "Probe answers with a state while the cloud fails",
            [Need::Hook(Hook::CloudFail)],
            failing_cloud
        ),
        check!(
            "provider/probe-state-is-known",
            ["PROV-12"],
            "the state is STARTING, READY, DEGRADED or BROKEN, the message at most 1,024 bytes",
            state
        ),
        check!(
            "provider/probe-is-ready-after-initialize",
            ["PROV-12"],
            "after Initialize, with a cloud that works, the state is READY",
            ready
        ),
        check!(
            "provider/last-cloud-success-is-in-the-past",
            ["PROV-12"],
            "last_cloud_success, if set, is not in the future and never goes back",
            last_success
        ),
    ]
}

async fn before_initialize(run: &Run) -> Verdict {
    run.target().restart().await?;
    let session = run.connect().await?;
    session
        .call(pb::ProbeRequest::default())
        .await
        .answer()
        .map(|_| ())
}

/// Checks that Probe answers READY within [`AGAIN`]. The report shows the last answer.
async fn must_become_ready(run: &Run, session: &Session, rule: &str, when: &str) -> Verdict {
    let ready = run
        .eventually(AGAIN, || async {
            let asked = session.call(pb::ProbeRequest::default()).await;
            let state = asked.came.ok()?.state();
            (state == pb::ProbeState::Ready).then_some(())
        })
        .await;
    let asked = session.call(pb::ProbeRequest::default()).await;
    asked.must(
        ready.is_some(),
        rule,
        format_args!("READY within {AGAIN:?}: {when}"),
    )
}

fn question(run: &Run) -> pb::LookupInstancesRequest {
    pb::LookupInstancesRequest {
        nodes: vec![run.node("asked")],
        facets: vec![pb::InstanceFacet::Existence.into()],
        ..Default::default()
    }
}

async fn ready_before_initialize(run: &Run) -> Verdict {
    run.target().restart().await?;
    let session = run.connect().await?;
    must_become_ready(
        run,
        &session,
        "PROV-15",
        "no controller has sent Initialize",
    )
    .await
}

/// Five lookups that fail in the cloud.
async fn failing_lookups(run: &Run, session: &Session) -> Verdict {
    run.cloud_fail("UNAVAILABLE").await?;
    for _ in 0..5 {
        session.call(question(run)).await.answer()?;
    }
    Ok(())
}

async fn tells_of_failing_cloud(run: &Run) -> Verdict {
    let session = run.session().await?;
    failing_lookups(run, &session).await?;
    let asked = session.call(pb::ProbeRequest::default()).await;
    let state = asked.answer()?.state();
    asked.should(
        matches!(state, pb::ProbeState::Degraded | pb::ProbeState::Broken),
        "PROV-16",
        "DEGRADED: the cloud failed the last five calls",
    )
}

async fn ready_again(run: &Run) -> Verdict {
    let session = run.session().await?;
    failing_lookups(run, &session).await?;
    run.cloud_fail("NONE").await?;
    session.call(question(run)).await.success("PROV-16")?;
    must_become_ready(run, &session, "PROV-16", "the cloud answered the last call").await
}

async fn ready_after_refusal(run: &Run) -> Verdict {
    let session = run.session().await?;
    failing_lookups(run, &session).await?;
    let before = session.call(pb::ProbeRequest::default()).await;
    if before.answer()?.state() == pb::ProbeState::Ready {
        return Err(Stop::not_offered(
            "the state is still READY after five calls that the cloud failed, so it cannot become READY again",
        ));
    }
    run.cloud_fail("PRECONDITION").await?;
    session.call(question(run)).await.answer()?;
    let when = "the cloud refused the last call, and works (hook cloud-fail with PRECONDITION)";
    must_become_ready(run, &session, "PROV-16", when).await
}

async fn cancelled_calls(run: &Run) -> Verdict {
    let session = run.session().await?;
    // The cloud answers, so failures in earlier checks do not count any more (PROV-16).
    session.call(question(run)).await.success("PROV-16")?;
    must_become_ready(run, &session, "PROV-16", "the cloud answered the last call").await?;
    run.cloud_slow(SLOW).await?;
    let given_up = (0..10).map(|_| session.call_within(question(run), GIVEN_UP));
    join_all(given_up).await;
    // The provider learns of the cancellations when the resets arrive.
    tokio::time::sleep(GIVEN_UP).await;
    let asked = session.call(pb::ProbeRequest::default()).await;
    let state = asked.answer()?.state();
    asked.must(
        state == pb::ProbeState::Ready,
        "PROV-16",
        format_args!(
            "READY: ten callers gave up after {GIVEN_UP:?} while the cloud takes {SLOW:?}, and the cloud failed nothing"
        ),
    )
}

async fn boot_id(run: &Run) -> Verdict {
    let session = run.connect().await?;
    let info = session.call(pb::GetProviderInfoRequest::default()).await;
    let boot_id = &info.answer()?.boot_id;
    let probe = session.call(pb::ProbeRequest::default()).await;
    probe.must(
        &probe.answer()?.boot_id == boot_id,
        "PROV-7",
        format_args!("boot_id {boot_id:?}, as GetProviderInfo says"),
    )
}

/// A Probe that must be answered from memory. `beside` says, for the report, what slows the
/// provider or the cloud meanwhile.
async fn at_once(session: &Session, beside: &str) -> Verdict {
    let asked = session.call(pb::ProbeRequest::default()).await;
    asked.answer()?;
    asked.must(
        asked.took < FROM_MEMORY,
        "PROV-4",
        format_args!(
            "an answer from memory, {beside}; this one took {:?}",
            asked.took
        ),
    )
}

async fn slow_cloud(run: &Run) -> Verdict {
    let session = run.session().await?;
    run.cloud_slow(SLOW).await?;
    let beside = format!("while each operation of the cloud takes {SLOW:?}");
    at_once(&session, &beside).await?;
    at_once(&run.connect().await?, &beside).await
}

async fn beside_calls(run: &Run) -> Verdict {
    let session = run.session().await?;
    run.cloud_slow(SLOW).await?;
    let calls: Vec<_> = (0..64)
        .map(|_| {
            let request = pb::LookupInstancesRequest {
                nodes: vec![run.node("busy")],
                facets: vec![pb::InstanceFacet::Existence.into()],
                ..Default::default()
            };
            session.call(request)
        })
        .collect();
    let probes = async {
        // By then all calls are most likely on their way.
        tokio::time::sleep(Duration::from_millis(200)).await;
        at_once(&session, "beside 64 calls that wait for the cloud").await?;
        at_once(
            &run.connect().await?,
            "beside 64 calls on another connection",
        )
        .await
    };
    // The calls are cancelled when the probes end.
    let mut calls = std::pin::pin!(join_all(calls));
    let mut probes = std::pin::pin!(probes);
    tokio::select! {
        asked = &mut calls => {
            let early = asked.iter().filter(|asked| asked.took < SLOW / 2).count();
            must(early == 0, "(hook)", "64 LookupInstances with max_age 0", format_args!("the hook cloud-slow slows them to {SLOW:?}"), format_args!("{early} answers at once"))?;
            // A Probe that is not answered yet waited for them.
            probes.await
        }
        probed = &mut probes => probed,
    }
}

async fn beside_initialize(run: &Run) -> Verdict {
    let session = run.session().await?;
    run.cloud_slow(SLOW).await?;
    let mut slow = std::pin::pin!(session.call(pb::InitializeRequest::default()));
    let probes = async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        at_once(&session, "beside an Initialize that waits for the cloud").await?;
        let info = session.call(pb::GetProviderInfoRequest::default()).await;
        info.answer()?;
        info.must(
            info.took < FROM_MEMORY,
            "PROV-1",
            "an answer from memory, beside an Initialize that waits for the cloud",
        )
    };
    let mut probes = std::pin::pin!(probes);
    tokio::select! {
        // Initialize ended before the Probes, so it did not wait for the cloud.
        _ = &mut slow => probes.await,
        probed = &mut probes => probed,
    }
}

async fn failing_cloud(run: &Run) -> Verdict {
    let session = run.session().await?;
    for code in ["UNAVAILABLE", "CREDENTIALS", "THROTTLED"] {
        run.cloud_fail(code).await?;
        let asked = session.call(pb::ProbeRequest::default()).await;
        let state = asked.answer()?.state;
        asked.must(
            (1..=4).contains(&state),
            "PROV-4",
            "a state, also while the cloud fails",
        )?;
    }
    Ok(())
}

async fn state(run: &Run) -> Verdict {
    let session = run.connect().await?;
    let asked = session.call(pb::ProbeRequest::default()).await;
    let answer = asked.answer()?;
    asked.must(
        (1..=4).contains(&answer.state),
        "PROV-12",
        "STARTING, READY, DEGRADED or BROKEN",
    )?;
    asked.must(
        answer.message.len() <= 1_024,
        "PROV-12",
        "a message of at most 1,024 bytes",
    )
}

async fn ready(run: &Run) -> Verdict {
    let session = run.session().await?;
    // The first successful call ends the effects of earlier checks (PROV-16).
    if run.capabilities().instances.is_some() {
        session.call(question(run)).await.success("PROV-12")?;
    }
    let when = "after an Initialize that succeeded, while the cloud works";
    must_become_ready(run, &session, "PROV-12", when).await
}

async fn last_success(run: &Run) -> Verdict {
    let session = run.session().await?;
    let mut last = None;
    for _ in 0..3 {
        let asked = session.call(pb::ProbeRequest::default()).await;
        let Some(stamp) = asked.answer()?.last_cloud_success else {
            asked.must(
                last.is_none(),
                "PROV-12",
                "last_cloud_success, which was there before",
            )?;
            continue;
        };
        let time = SystemTime::try_from(stamp).ok();
        // Two processes on one machine have the same clock. The minute is for clock changes.
        let past = time.is_some_and(|time| time <= SystemTime::now() + Duration::from_mins(1));
        asked.must(
            past,
            "PROV-12",
            "a last_cloud_success that is a time in the past",
        )?;
        asked.must(
            time >= last,
            "PROV-12",
            "a last_cloud_success that does not go back",
        )?;
        last = time;
        if run.capabilities().routes.is_some() {
            session
                .list(pb::ListRoutesRequest::default())
                .await
                .items()?;
        }
    }
    if last.is_none() {
        return Err(Stop::not_offered("Probe has no last_cloud_success"));
    }
    Ok(())
}
