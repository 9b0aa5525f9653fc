//! What a process keeps does not grow with the number of calls (CORE-18).

use cloud_provider_api::v1alpha1 as pb;
use futures::future::join_all;
use tokio::time::Instant;

use super::super::check::{Check, Stop, Verdict, check, must};
use super::super::run::Run;
use super::super::session::Session;
use super::tour;

/// What an allocator may keep in hand without a leak, beside a fifth of what there is.
const SLACK_KIB: u64 = 16 * 1024;
const AT_ONCE: usize = 16;

pub(super) fn checks() -> Vec<Check> {
    vec![
        check!(
            "core/memory-does-not-grow-with-calls",
            ["CORE-18"],
            "the memory of the process does not grow over thousands of calls (--soak)",
            calls
        ),
        check!(
            "core/memory-does-not-grow-with-connections",
            ["CORE-18"],
            "neither memory nor open files grow with connections that come and go (--soak)",
            connections
        ),
    ]
}

/// Of the process that serves: resident memory in KiB, and open files.
async fn size(run: &Run) -> Verdict<(u64, usize)> {
    let seen = async {
        let pid = run.target().pid().await?;
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let resident = status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:"))?;
        let kib = resident.trim().trim_end_matches("kB").trim().parse().ok()?;
        let files = std::fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count);
        Some((kib, files))
    };
    seen.await.ok_or_else(|| {
        Stop::not_set_up("the memory of the provider's process cannot be read here (/proc)")
    })
}

async fn one_round(run: &Run, session: &Session) -> Verdict<usize> {
    let instances = run.capabilities().instances.is_some();
    let load_balancers = run.capabilities().load_balancers.is_some();
    let calls: Vec<_> = (0..AT_ONCE)
        .map(|number| async move {
            match number % 4 {
                0 if instances => session.call(tour::lookup(run)).await.answer().map(|_| ()),
                1 if load_balancers => session
                    .call(tour::get_load_balancer(run))
                    .await
                    .answer()
                    .map(|_| ()),
                2 => session
                    .call(pb::GetProviderInfoRequest::default())
                    .await
                    .answer()
                    .map(|_| ()),
                _ => session
                    .call(pb::ProbeRequest::default())
                    .await
                    .answer()
                    .map(|_| ()),
            }
        })
        .collect();
    for asked in join_all(calls).await {
        asked?;
    }
    Ok(AT_ONCE)
}

/// What is done again and again.
enum Work {
    Calls(Session),
    Connections,
}

impl Work {
    async fn round(&self, run: &Run) -> Verdict<usize> {
        match self {
            Self::Calls(session) => one_round(run, session).await,
            Self::Connections => {
                let session = run.connect().await?;
                session.call(pb::ProbeRequest::default()).await.answer()?;
                let path = "/cloudprovider.v1alpha1.ProviderService/Initialize";
                let _half_open = session.half_open(path).await;
                tokio::task::yield_now().await;
                Ok(1)
            }
        }
    }
}

/// Works for half of the time to warm up, then for the other half, and compares.
async fn soak(run: &Run, what: &str, work: Work) -> Verdict {
    let half = run.soak() / 2;
    let mut sizes = Vec::new();
    let mut count = 0;
    for _ in 0..2 {
        let until = Instant::now() + half;
        count = 0;
        while Instant::now() < until {
            count += work.round(run).await?;
        }
        sizes.push(size(run).await?);
    }
    let [(before, files_before), (after, files_after)] = sizes[..] else {
        return Ok(());
    };
    must(
        after <= before + before / 5 + SLACK_KIB,
        "CORE-18",
        format_args!("{count} {what} in {half:?}, after as many to warm up"),
        format_args!("about as much memory as before, {before} KiB"),
        format_args!("{after} KiB"),
    )?;
    must(
        files_after <= files_before + 2 * AT_ONCE,
        "CORE-18",
        format_args!("{count} {what} in {half:?}, after as many to warm up"),
        format_args!("about as many open files as before, {files_before}"),
        format_args!("{files_after}"),
    )
}

async fn calls(run: &Run) -> Verdict {
    let session = run.session().await?;
    soak(run, "calls", Work::Calls(session)).await
}

async fn connections(run: &Run) -> Verdict {
    soak(run, "connections", Work::Connections).await
}
