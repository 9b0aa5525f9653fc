//! Nodes that are not Ready: how soon a controller learns their state from the cloud, and what it
//! does after wrong answers.

use std::time::Duration;

use anyhow::{Result, bail};
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, ListParams, PostParams};
use testenv::ControlPlane;
use testenv::objects::NodeBuilder;
use tokio::time::{Instant, sleep};

use super::{EVERYBODY, Scenario, is_uninitialised};
use crate::contender::{Contender, Instances, Kind};

/// The number of Nodes that are not Ready.
const DOWN: usize = 500;
/// The number of further Nodes, which stay up.
const UP: usize = 20;
const LOOKUPS: &[&str] = &["Instance", "LookupInstances", "ListInstances"];
const SHUTDOWN: &str = "node.cloudprovider.kubernetes.io/shutdown";

/// All instances are shut down, and most Nodes are not Ready.
pub(super) const STOPPED: Scenario = Scenario {
    name: "lifecycle-500",
    measured: &[
        "500 Nodes not Ready, their instances shut down: from the start until all are tainted (s)",
        "… calls to the cloud until then",
    ],
    contenders: EVERYBODY,
    run: |kind| Box::pin(stopped(kind)),
};

/// The cloud reports all instances as gone, but all exist.
pub(super) const LIAR: Scenario = Scenario {
    name: "lifecycle-liar",
    measured: &[
        "for 25 s the cloud wrongly calls 500 Nodes gone: Nodes deleted",
        "… then one instance is really deleted: until its Node is deleted too (s)",
    ],
    contenders: EVERYBODY,
    run: |kind| Box::pin(liar(kind)),
};

async fn stopped(kind: Kind) -> Result<Vec<f64>> {
    let plane = ControlPlane::start().await?;
    let (nodes, mut contender) = joined(kind, &plane).await?;
    contender.kill();
    contender.cloud_says(&plane, &Instances::Stopped)?;
    // The Go CCM's count begins at zero when it starts.
    let before = match kind {
        Kind::Ours => contender.count(&plane, LOOKUPS)?,
        Kind::Go | Kind::GoTuned => 0,
    };
    let began = Instant::now();
    contender.start(&plane, false)?;
    until(&nodes, Duration::from_mins(10), |all| {
        all.iter().filter(|node| is_shut_down(node)).count() >= DOWN
    })
    .await?;
    let seconds = began.elapsed().as_secs_f64();
    // The Go CCM writes its counts to a file once a second.
    sleep(Duration::from_millis(1100)).await;
    let calls = contender.count(&plane, LOOKUPS)? - before;
    Ok(vec![rounded(seconds), calls as f64])
}

async fn liar(kind: Kind) -> Result<Vec<f64>> {
    let plane = ControlPlane::start().await?;
    let made = Instant::now();
    let (nodes, contender) = joined(kind, &plane).await?;
    // The `ccm` deletes no Node that is younger than a minute.
    sleep((made + Duration::from_secs(75)).saturating_duration_since(Instant::now())).await;
    contender.cloud_says(&plane, &Instances::Gone)?;
    sleep(Duration::from_secs(25)).await;
    contender.cloud_says(&plane, &Instances::Run)?;
    // Gives the controller time to carry out its decisions from the wrong answers.
    sleep(Duration::from_secs(10)).await;
    let left = every(&nodes).await?;
    let deleted = DOWN + UP - left.len();
    let down = left.iter().find(|node| !is_ready(node));
    let Some(name) = down.and_then(|node| node.metadata.name.as_deref()) else {
        return Ok(vec![deleted as f64, f64::NAN]);
    };
    let began = Instant::now();
    contender.cloud_says(&plane, &Instances::OneGone(name))?;
    until(&nodes, Duration::from_mins(5), |all| {
        all.iter()
            .all(|node| node.metadata.name.as_deref() != Some(name))
    })
    .await?;
    Ok(vec![deleted as f64, rounded(began.elapsed().as_secs_f64())])
}

/// All Nodes exist and are initialised, and most of them are not Ready. The controller runs.
async fn joined(kind: Kind, plane: &ControlPlane) -> Result<(Api<Node>, Contender)> {
    let nodes: Api<Node> = Api::all(plane.client());
    stream::iter(0..DOWN + UP)
        .map(|number| {
            let ready = if number < DOWN { "Unknown" } else { "True" };
            let node = NodeBuilder::new(format!("node-{number}"))
                .uninitialized()
                .ready(ready)
                .build();
            let nodes = nodes.clone();
            async move { nodes.create(&PostParams::default(), &node).await.map(drop) }
        })
        .buffer_unordered(32)
        .try_collect::<()>()
        .await?;
    let mut contender = Contender::new(kind, plane, 0).await?;
    contender.start(plane, false)?;
    until(&nodes, Duration::from_mins(10), |all| {
        !all.iter().any(is_uninitialised)
    })
    .await?;
    Ok((nodes, contender))
}

/// Resource version 0 lets the API server answer from its cache.
async fn every(nodes: &Api<Node>) -> Result<Vec<Node>> {
    Ok(nodes.list(&ListParams::default().match_any()).await?.items)
}

async fn until(nodes: &Api<Node>, within: Duration, good: impl Fn(&[Node]) -> bool) -> Result<()> {
    let began = Instant::now();
    while !good(&every(nodes).await?) {
        if began.elapsed() > within {
            bail!("not done after {within:?}");
        }
        sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}

fn is_shut_down(node: &Node) -> bool {
    let taints = node.spec.iter().flat_map(|spec| &spec.taints);
    taints.flatten().any(|taint| taint.key == SHUTDOWN)
}

fn is_ready(node: &Node) -> bool {
    let conditions = node.status.iter().flat_map(|status| &status.conditions);
    let mut conditions = conditions.flatten();
    conditions.any(|it| it.type_ == "Ready" && it.status == "True")
}

fn rounded(seconds: f64) -> f64 {
    (seconds * 100.0).round() / 100.0
}
