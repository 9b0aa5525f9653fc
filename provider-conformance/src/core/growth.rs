//! The size of a process does not grow with the number of calls and connections (CORE-18).

use std::time::Duration;

use cloud_provider_api::v1alpha1 as pb;
use futures::future::join_all;
use tokio::time::{Instant, timeout};

use super::super::call::shown;
use super::super::check::{Check, Stop, Verdict, check, should};
use super::super::run::{Run, targets};
use super::super::session::Session;
use super::tour;

/// After the warm-up the memory may grow by a fifth and by this, because an allocator keeps freed
/// memory.
const SLACK_KIB: u64 = 16 * 1024;
const AT_ONCE: usize = 16;
/// How long to wait for the headers of a stream of hints. Then the check closes the stream.
const HINTS: Duration = Duration::from_millis(50);

pub(super) fn checks() -> Vec<Check> {
    vec![
        check!(
            "core/memory-does-not-grow-with-calls",
            ["CORE-18"],
            "the memory of the process does not grow with calls of every offered unary RPC and with streams of hints that open and close (--soak)",
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

/// The resident memory in KiB and the open files of the serving process.
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
        Stop::not_set_up("cannot read the memory of the provider's process here (/proc)")
    })
}

/// The subject of a sequence of calls. Calls about one object follow each other, as the
/// controller's do.
#[derive(Clone, Copy)]
enum Lane {
    /// GetProviderInfo and Probe.
    Provider,
    /// The stream of hints, opened and closed.
    Hints,
    /// Lookups and other reads.
    Reads,
    /// One load balancer.
    LoadBalancer,
    /// One route.
    Route,
}

/// The objects that the calls write. They stay the same, so growth is due to calls and not to
/// objects.
struct Subjects {
    service: pb::ServiceView,
    /// `None`: nothing to send as targets.
    nodes: Option<Vec<pb::NodeView>>,
    route: pb::Route,
}

impl Subjects {
    async fn new(run: &Run) -> Verdict<Self> {
        Ok(Self {
            service: run.service("soak"),
            nodes: run.few_nodes_if_any().await?,
            route: tour::route(run),
        })
    }
}

/// Makes the calls of this lane and returns their number. A gRPC status other than OK fails.
async fn lane(run: &Run, session: &Session, of: Lane, about: &Subjects) -> Verdict<usize> {
    let offered = run.capabilities();
    let mut count = 0;
    macro_rules! call {
        ($request:expr) => {{
            session.call($request).await.answer()?;
            count += 1;
        }};
    }
    match of {
        Lane::Provider => {
            call!(pb::GetProviderInfoRequest::default());
            call!(pb::ProbeRequest::default());
        }
        Lane::Hints if offered.changes.is_some() => {
            let request = pb::WatchChangesRequest {
                cluster: Some(session.cluster().clone()),
                ..Default::default()
            };
            // If the headers come only with the first hint, the stream is closed before them.
            if let Ok(Err(status)) = timeout(HINTS, session.watch(request)).await {
                let sent = "WatchChanges, opened and closed again and again";
                return Err(Stop::failed("CORE-4", sent, "a stream", shown(&status)));
            }
            count += 1;
        }
        Lane::Reads => {
            if offered.instances.is_some() {
                call!(tour::lookup(run));
            }
            if offered.zones.is_some() {
                call!(pb::LookupZonesRequest {
                    nodes: vec![run.node("soak")],
                    ..Default::default()
                });
            }
            if offered.clusters.is_some() {
                call!(tour::address(run));
            }
            if offered.volumes.is_some() {
                call!(tour::volume(run));
            }
        }
        Lane::LoadBalancer if offered.load_balancers.is_some() => {
            let service = || Some(about.service.clone());
            call!(pb::GetLoadBalancerRequest {
                service: service(),
                ..Default::default()
            });
            if let Some(nodes) = &about.nodes {
                call!(pb::EnsureLoadBalancerRequest {
                    service: service(),
                    targets: Some(targets(nodes.clone())),
                    ..Default::default()
                });
                call!(pb::UpdateLoadBalancerRequest {
                    service: service(),
                    targets: Some(targets(nodes.clone())),
                    ..Default::default()
                });
            }
            call!(pb::DeleteLoadBalancerRequest {
                service: service(),
                ..Default::default()
            });
        }
        Lane::Route if offered.routes.is_some() => {
            let destination = &about.route.destination_cidr;
            call!(pb::CreateRoutesRequest {
                cluster: None,
                routes: vec![about.route.clone()],
            });
            // DeleteRoutes needs the name that the cloud gave the route (ROUTE-8).
            let mut made = session
                .list(pb::ListRoutesRequest::default())
                .await
                .items()?;
            count += 1;
            made.retain(|route| route.destination_cidr == *destination);
            for (number, route) in made.iter_mut().enumerate() {
                route.route_key = number.to_string();
            }
            call!(pb::DeleteRoutesRequest {
                cluster: None,
                routes: made,
            });
        }
        Lane::Hints | Lane::LoadBalancer | Lane::Route => {}
    }
    Ok(count)
}

/// Calls the offered unary RPCs and ListRoutes, and opens and closes the stream of hints.
async fn one_round(run: &Run, session: &Session, about: &Subjects) -> Verdict<usize> {
    let mut lanes = vec![Lane::LoadBalancer, Lane::Route, Lane::Hints];
    lanes.extend([Lane::Provider; 4]);
    lanes.extend([Lane::Reads; 9]);
    let calls: Vec<_> = lanes
        .into_iter()
        .map(|of| lane(run, session, of, about))
        .collect();
    let mut count = 0;
    for asked in join_all(calls).await {
        count += asked?;
    }
    // Initialize runs alone: the provider might answer calls beside it with NOT_INITIALIZED.
    session
        .call(pb::InitializeRequest::default())
        .await
        .answer()?;
    Ok(count + 1)
}

/// The repeated work.
enum Work {
    Calls(Session, Box<Subjects>),
    Connections,
}

impl Work {
    async fn round(&self, run: &Run) -> Verdict<usize> {
        match self {
            Self::Calls(session, about) => one_round(run, session, about).await,
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

/// Repeats the work for half of the time as a warm-up, then for the other half. Compares the sizes
/// of the process after the two halves.
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
    should(
        after <= before + before / 5 + SLACK_KIB && files_after <= files_before + 2 * AT_ONCE,
        "CORE-18",
        format_args!("{count} {what} in {half:?}, after a warm-up of the same time"),
        format_args!("about as much as before, {before} KiB and {files_before} open files"),
        format_args!("{after} KiB and {files_after} open files"),
    )
}

async fn calls(run: &Run) -> Verdict {
    let about = Box::new(Subjects::new(run).await?);
    let session = run.session().await?;
    soak(run, "calls", Work::Calls(session, about)).await
}

async fn connections(run: &Run) -> Verdict {
    soak(run, "connections", Work::Connections).await
}
