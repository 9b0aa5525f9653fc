//! Probe.

use std::time::{Duration, SystemTime};

use cloud_provider_api::v1alpha1 as pb;
use futures::future::join_all;

use super::super::check::{Check, Need, Stop, Verdict, check, must};
use super::super::hooks::Hook;
use super::super::run::Run;

const SLOW: Duration = Duration::from_secs(8);
/// Far less than what the cloud takes, far more than an answer from memory needs on a loaded machine.
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
            "provider/probe-tells-the-boot-id",
            ["PROV-4", "PROV-7"],
            "Probe and GetProviderInfo tell the same boot_id",
            boot_id
        ),
        check!(
            "provider/probe-from-memory",
            ["PROV-4"],
            "Probe answers at once while the cloud takes its time",
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
            "Probe and GetProviderInfo are not held up by Initialize, which asks the cloud",
            [Need::Hook(Hook::CloudSlow)],
            beside_initialize
        ),
        check!(
            "provider/probe-while-the-cloud-fails",
            ["PROV-4", "CORE-4"],
            "Probe answers while the cloud fails, with a state",
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
            "last_cloud_success, where there is one, is not in the future and never goes back",
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

/// Probe, which must come from memory; `beside` says what else goes on.
async fn at_once(session: &super::super::session::Session, beside: &str) -> Verdict {
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
        // All calls are on their way by then: they were polled first.
        tokio::time::sleep(Duration::from_millis(200)).await;
        at_once(&session, "beside 64 calls that wait for the cloud").await?;
        at_once(
            &run.connect().await?,
            "beside 64 calls on another connection",
        )
        .await
    };
    // The calls are cancelled with the probes' end.
    let mut calls = std::pin::pin!(join_all(calls));
    let mut probes = std::pin::pin!(probes);
    tokio::select! {
        asked = &mut calls => {
            let early = asked.iter().filter(|asked| asked.took < SLOW / 2).count();
            must(early == 0, "(hook)", "64 LookupInstances with max_age 0", format_args!("the hook cloud-slow slows them to {SLOW:?}"), format_args!("{early} answers at once"))?;
            // A Probe that is not there yet waited for them.
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
        // It asked nothing of the cloud: then there is nothing that could hold up.
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
    let ready = run
        .eventually(Duration::from_secs(30), || async {
            let asked = session.call(pb::ProbeRequest::default()).await;
            let state = asked.came.ok()?.state();
            (state == pb::ProbeState::Ready).then_some(())
        })
        .await;
    let asked = session.call(pb::ProbeRequest::default()).await;
    asked.must(
        ready.is_some(),
        "PROV-12",
        "READY within 30 s of an Initialize that succeeded",
    )
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
        // Clocks of two processes on one machine are the same; a minute is for machines that are set meanwhile.
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
        return Err(Stop::not_offered("Probe tells no last_cloud_success"));
    }
    Ok(())
}
