//! Routes: the first pass over a whole cluster, and the cost of passes without changes.

use std::time::Duration;

use anyhow::{Result, bail};
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, ListParams, PostParams};
use testenv::ControlPlane;
use testenv::objects::NodeBuilder;
use tokio::time::{Instant, sleep};

use super::{EVERYBODY, Scenario, is_uninitialised};
use crate::contender::{Contender, Kind};

const NODES: usize = 1000;

/// The scenario.
pub(super) const ROUTES: Scenario = Scenario {
    name: "routes-1000",
    measured: &[
        "1,000 Nodes, no route yet: until all are routed (s)",
        "… calls to the cloud",
        "… lists in the following minute without changes",
    ],
    contenders: EVERYBODY,
    run: |kind| Box::pin(routes(kind)),
};

async fn routes(kind: Kind) -> Result<Vec<f64>> {
    let plane = ControlPlane::start().await?;
    let api: Api<Node> = Api::all(plane.client());
    make_nodes(&api).await?;
    // The Nodes are initialised, and as yet nobody makes routes.
    let mut contender = Contender::new(kind, &plane, 0).await?;
    contender.start(&plane, false)?;
    wait_until(&api, |node| !is_uninitialised(node)).await?;
    contender.kill();
    let calls = ["ListRoutes", "CreateRoute", "DeleteRoute"];
    contender.with_routes();
    let began = Instant::now();
    contender.start(&plane, false)?;
    wait_until(&api, is_routed).await?;
    let seconds = began.elapsed().as_secs_f64();
    // The Go CCM writes its counts once a second.
    sleep(Duration::from_millis(1500)).await;
    let made = contender.count(&plane, &calls)?;
    let before = contender.count(&plane, &["ListRoutes"])?;
    sleep(Duration::from_mins(1)).await;
    let after = contender.count(&plane, &["ListRoutes"])?;
    Ok(vec![
        (seconds * 100.0).round() / 100.0,
        made as f64,
        (after - before) as f64,
    ])
}

async fn make_nodes(api: &Api<Node>) -> Result<()> {
    stream::iter(0..NODES)
        .map(|number| {
            let cidr = format!("10.{}.{}.0/24", 64 + number / 250, number % 250);
            let node = NodeBuilder::new(format!("node-{number}"))
                .uninitialized()
                .pod_cidrs(&[&cidr])
                .build();
            async move { api.create(&PostParams::default(), &node).await.map(drop) }
        })
        .buffer_unordered(32)
        .try_collect::<()>()
        .await?;
    Ok(())
}

async fn wait_until(api: &Api<Node>, wanted: impl Fn(&Node) -> bool) -> Result<()> {
    let began = Instant::now();
    // Resource version 0 lets the API server answer from its cache.
    let every = ListParams::default().match_any();
    while !api.list(&every).await?.items.iter().all(&wanted) {
        if began.elapsed() > Duration::from_mins(10) {
            bail!("not done after 600 s");
        }
        sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}

fn is_routed(node: &Node) -> bool {
    let conditions = node.status.iter().flat_map(|status| &status.conditions);
    conditions
        .flatten()
        .any(|condition| condition.type_ == "NetworkUnavailable" && condition.status == "False")
}
