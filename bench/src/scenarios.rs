//! The measured scenarios.

mod lifecycle;
mod routes;

use std::collections::BTreeMap;
use std::pin::Pin;
use std::time::Duration;

use anyhow::{Result, bail};
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Service};
use kube::api::{Api, ListParams, PostParams};
use testenv::ControlPlane;
use testenv::objects::{LoadBalancerBuilder, NodeBuilder, UNINITIALIZED, ingress, is_tainted};
use tokio::time::{Instant, sleep};

use crate::contender::{Contender, Kind};

type Figures = Pin<Box<dyn Future<Output = Result<Vec<f64>>>>>;

/// One scenario. It measures the same figures for each of its contenders.
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    pub(crate) measured: &'static [&'static str],
    pub(crate) contenders: &'static [Kind],
    pub(crate) run: fn(Kind) -> Figures,
}

const EVERYBODY: &[Kind] = &[Kind::Go, Kind::GoTuned, Kind::Ours];
// At its defaults the Go CCM would take twelve minutes for 5,000 Nodes.
const TUNED: &[Kind] = &[Kind::GoTuned, Kind::Ours];

/// All scenarios but `clouds`.
pub(crate) const ALL: &[Scenario] = &[
    Scenario {
        name: "nodes-1000",
        measured: &[
            "1,000 Nodes initialised (s)",
            "… calls to the cloud",
            "… writes to the API server",
            "… resident memory of the controller (MB)",
            "… resident memory of the provider (MB)",
        ],
        contenders: EVERYBODY,
        run: |kind| Box::pin(nodes(kind, 1000, Cloud::Batches)),
    },
    Scenario {
        name: "nodes-1000-each",
        measured: &[
            "1,000 Nodes initialised, a provider that asks its cloud for each Node; calls in flight: 32 of ours, 64 of the tuned Go CCM (s)",
            "… calls to the cloud",
            "… writes to the API server",
            "… resident memory of the controller (MB)",
            "… resident memory of the provider (MB)",
        ],
        contenders: TUNED,
        run: |kind| Box::pin(nodes(kind, 1000, Cloud::CallPerNode)),
    },
    Scenario {
        name: "nodes-5000",
        measured: &[
            "5,000 Nodes initialised (s)",
            "… calls to the cloud",
            "… writes to the API server",
            "… resident memory of the controller (MB)",
            "… resident memory of the provider (MB)",
        ],
        contenders: TUNED,
        run: |kind| Box::pin(nodes(kind, 5000, Cloud::Batches)),
    },
    Scenario {
        name: "restart",
        measured: &["restart, 200 load balancers converged: mutating calls"],
        contenders: EVERYBODY,
        run: |kind| Box::pin(restart(kind)),
    },
    Scenario {
        name: "joins",
        measured: &["20 joins half a second apart, 200 load balancers: updates"],
        contenders: EVERYBODY,
        run: |kind| Box::pin(joins(kind)),
    },
    Scenario {
        name: "hand-over",
        measured: &["SIGTERM of the leader: until the standby leads (s)"],
        contenders: EVERYBODY,
        run: |kind| Box::pin(hand_over(kind)),
    },
    routes::ROUTES,
    lifecycle::STOPPED,
    lifecycle::LIAR,
];

const BALANCERS: usize = 200;
const MUTATING: &[&str] = &["Ensure", "Update", "Delete"];

/// How our provider queries its cloud. The Go CCM asks about each Node separately.
#[derive(Clone, Copy)]
enum Cloud {
    Batches,
    CallPerNode,
}

async fn nodes(kind: Kind, count: usize, cloud: Cloud) -> Result<Vec<f64>> {
    let plane = ControlPlane::start().await?;
    let api: Api<Node> = Api::all(plane.client());
    make_nodes(&api, 0..count, true).await?;
    let mut contender = match cloud {
        Cloud::Batches => Contender::new(kind, &plane, 0).await?,
        Cloud::CallPerNode => Contender::with_a_call_per_node(kind, &plane).await?,
    };
    let before = writes(&plane).await?;
    let began = Instant::now();
    contender.start(&plane, false)?;
    let mut megabytes = [f64::NAN; 2];
    let most = |so_far: [f64; 2], now: [f64; 2]| std::array::from_fn(|at| now[at].max(so_far[at]));
    // Resource version 0 lets the API server answer from its cache. The `ccm` removes a Node's
    // taint last. The Go CCM writes the addresses after that.
    let every = ListParams::default().match_any();
    while api.list(&every).await?.items.iter().any(is_uninitialised) {
        megabytes = most(megabytes, contender.megabytes());
        if began.elapsed() > Duration::from_mins(10) {
            bail!("not initialised after 600 s");
        }
        sleep(Duration::from_millis(if count > 1000 { 500 } else { 100 })).await;
    }
    let seconds = began.elapsed().as_secs_f64();
    megabytes = most(megabytes, contender.megabytes());
    // The Go CCM writes its counts once a second.
    sleep(Duration::from_millis(1500)).await;
    let calls = contender.count(&plane, &["Instance", "LookupInstances"])?;
    let mut written = 0;
    for (what, count) in writes(&plane).await? {
        let count = count - before.get(&what).copied().unwrap_or_default();
        if count > 0 {
            eprintln!("  {count} {what}");
        }
        written += count;
    }
    Ok(vec![
        (seconds * 100.0).round() / 100.0,
        calls as f64,
        written as f64,
        megabytes[0],
        megabytes[1],
    ])
}

/// The number of write requests to the API server, by verb, resource and subresource.
async fn writes(plane: &ControlPlane) -> Result<BTreeMap<String, u64>> {
    let request = http::Request::get("/metrics").body(Vec::new())?;
    let text = plane.client().request_text(request).await?;
    let mut writes = BTreeMap::new();
    for line in text.lines() {
        let Some(rest) = line.strip_prefix("apiserver_request_total{") else {
            continue;
        };
        let Some((labels, count)) = rest.rsplit_once("} ") else {
            continue;
        };
        let label = |name: &str| {
            let (_, rest) = labels.split_once(&format!("{name}=\""))?;
            Some(rest.split_once('"')?.0)
        };
        let (Some(verb), Some(resource)) = (label("verb"), label("resource")) else {
            continue;
        };
        let part = label("subresource").unwrap_or_default();
        if ["POST", "PUT", "PATCH", "APPLY", "DELETE"].contains(&verb) {
            *writes
                .entry(format!("{verb} {resource} {part}"))
                .or_default() += count.parse::<f64>()? as u64;
        }
    }
    Ok(writes)
}

async fn restart(kind: Kind) -> Result<Vec<f64>> {
    let plane = ControlPlane::start().await?;
    let mut contender = converged(kind, &plane).await?;
    contender.kill();
    sleep(Duration::from_millis(1500)).await;
    let before = if kind == Kind::Ours {
        contender.count(&plane, MUTATING)?
    } else {
        0
    };
    contender.start(&plane, false)?;
    sleep(Duration::from_secs(5)).await;
    let after = contender
        .quiet(
            &plane,
            &["Ensure", "Update", "Delete", "Get"],
            Duration::from_secs(5),
        )
        .await?;
    let after = if kind == Kind::Ours {
        contender.count(&plane, MUTATING)?
    } else {
        after.min(contender.count(&plane, MUTATING)?)
    };
    Ok(vec![(after - before) as f64])
}

async fn joins(kind: Kind) -> Result<Vec<f64>> {
    let plane = ControlPlane::start().await?;
    let contender = converged(kind, &plane).await?;
    let before = contender.count(&plane, &["Update"])?;
    let api: Api<Node> = Api::all(plane.client());
    for number in 10..30 {
        make_nodes(&api, number..number + 1, true).await?;
        sleep(Duration::from_millis(500)).await;
    }
    let after = contender
        .quiet(&plane, &["Update"], Duration::from_secs(8))
        .await?;
    Ok(vec![(after - before) as f64])
}

async fn hand_over(kind: Kind) -> Result<Vec<f64>> {
    let plane = ControlPlane::start().await?;
    let leases: Api<Lease> = Api::namespaced(plane.client(), "kube-system");
    let mut first = Contender::new(kind, &plane, 0).await?;
    first.start(&plane, true)?;
    let leader = wait_for_holder(&leases, None).await?;
    let mut second = Contender::new(kind, &plane, 1).await?;
    second.start(&plane, true)?;
    // Gives the standby time to start and to wait for the Lease.
    sleep(Duration::from_secs(5)).await;
    let began = Instant::now();
    first.terminate();
    wait_for_holder(&leases, Some(&leader)).await?;
    Ok(vec![
        (began.elapsed().as_secs_f64() * 100.0).round() / 100.0,
    ])
}

/// Makes ten Nodes and [`BALANCERS`] Services, and waits until all are served and the controller
/// has made no call about load balancers for 5 s.
async fn converged(kind: Kind, plane: &ControlPlane) -> Result<Contender> {
    let nodes: Api<Node> = Api::all(plane.client());
    let services: Api<Service> = Api::namespaced(plane.client(), "default");
    make_nodes(&nodes, 0..10, true).await?;
    let mut contender = Contender::new(kind, plane, 0).await?;
    contender.start(plane, false)?;
    let end = Instant::now() + Duration::from_mins(10);
    while nodes
        .list(&ListParams::default())
        .await?
        .items
        .iter()
        .any(is_uninitialised)
    {
        if Instant::now() > end {
            bail!("Nodes not initialised");
        }
        sleep(Duration::from_millis(100)).await;
    }
    stream::iter(0..BALANCERS)
        .map(|number| {
            let (services, web) = (
                services.clone(),
                LoadBalancerBuilder::new("default", format!("web-{number}")).build(),
            );
            async move {
                services
                    .create(&PostParams::default(), &web)
                    .await
                    .map(drop)
            }
        })
        .buffer_unordered(16)
        .try_collect::<()>()
        .await?;
    while services
        .list(&ListParams::default().match_any())
        .await?
        .items
        .iter()
        .any(|it| !has_address(it))
    {
        if Instant::now() > end {
            bail!("Services have no addresses");
        }
        sleep(Duration::from_millis(200)).await;
    }
    contender
        .quiet(plane, &["Ensure", "Update", "Get"], Duration::from_secs(5))
        .await?;
    Ok(contender)
}

async fn make_nodes(
    api: &Api<Node>,
    numbers: std::ops::Range<usize>,
    uninitialised: bool,
) -> Result<()> {
    stream::iter(numbers)
        .map(|number| {
            let node = NodeBuilder::new(format!("node-{number}"));
            let node = if uninitialised {
                node.uninitialized()
            } else {
                node
            }
            .build();
            async move { api.create(&PostParams::default(), &node).await.map(drop) }
        })
        .buffer_unordered(32)
        .try_collect::<()>()
        .await?;
    Ok(())
}

pub(crate) fn is_uninitialised(node: &Node) -> bool {
    is_tainted(node, UNINITIALIZED)
}

pub(crate) fn has_address(service: &Service) -> bool {
    service.spec.as_ref().and_then(|spec| spec.type_.as_deref()) != Some("LoadBalancer")
        || ingress(service).is_some()
}

async fn wait_for_holder(leases: &Api<Lease>, other_than: Option<&str>) -> Result<String> {
    let end = Instant::now() + Duration::from_mins(1);
    loop {
        let lease = leases.get_opt("cloud-controller-manager").await?;
        let holder = lease
            .and_then(|lease| lease.spec?.holder_identity)
            .unwrap_or_default();
        if !holder.is_empty() && Some(holder.as_str()) != other_than {
            return Ok(holder);
        }
        if Instant::now() > end {
            bail!("nobody leads");
        }
        sleep(Duration::from_millis(20)).await;
    }
}
