//! The steps of the demo. Each ends when its condition holds.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Service};
use kube::api::{Api, ListParams, PostParams};
use testenv::Balancer;
use testenv::objects::{LoadBalancerBuilder, NodeBuilder, UNINITIALIZED, set_ready};

use crate::stage::{Held, Stage, text, until};

/// How long a step may take, on a slow machine.
const SOON: Duration = Duration::from_mins(2);

const NODE_COLUMNS: &str = "custom-columns=NAME:.metadata.name,PROVIDER-ID:.spec.providerID,\
TYPE:.metadata.labels.node\\.kubernetes\\.io/instance-type,ZONE:.metadata.labels.topology\\.kubernetes\\.io/zone,\
ADDRESSES:.status.addresses[*].address,TAINTS:.spec.taints[*].key";

/// Plays everything.
pub(crate) async fn play(stage: &mut Stage) -> Held {
    nodes_join(stage).await?;
    service_gets_address(stage).await?;
    targets_follow(stage).await?;
    instance_vanishes(stage).await?;
    provider_dies(stage).await?;
    ccm_dies(stage).await
}

async fn nodes_join(stage: &mut Stage) -> Held {
    stage.start_provider()?;
    stage.start_ccm()?;
    until("the cloud reports its calls", SOON, async || {
        stage.cloud.calls()
    })
    .await?;
    let done = format!(
        "ccm and the provider of {} are two processes with a Unix socket between them.
        Three kubelets register. Their Nodes carry the taint node.cloudprovider.kubernetes.io/uninitialized.",
        stage.cloud.name()
    );
    stage.step("Three Nodes join", &done);
    for name in ["node-1", "node-2", "node-3"] {
        join(stage, name).await?;
    }
    for name in ["node-1", "node-2", "node-3"] {
        initialised(stage, name, SOON).await?;
    }
    stage.show(&["get", "nodes", "-o", NODE_COLUMNS])?;
    stage.held("The Nodes have provider ID, addresses, type and zone, and the taint is gone")
}

async fn service_gets_address(stage: &mut Stage) -> Held {
    stage.step(
        "A Service gets its address",
        "A user creates a Service of type LoadBalancer. This cloud takes a second for a load balancer: pending, then ready.",
    );
    let services: Api<Service> = Api::namespaced(stage.client.clone(), "default");
    let web = LoadBalancerBuilder::new("default", "web").build();
    services
        .create(&PostParams::default(), &web)
        .await
        .map_err(text)?;
    until("the Service has an address", SOON, async || {
        let web = services.get("web").await.map_err(text)?;
        address(&web).map(|_| ()).ok_or(format!("{:?}", web.status))
    })
    .await?;
    stage.show(&["get", "service", "web"])?;
    stage.show(&[
        "get",
        "events",
        "--field-selector=involvedObject.name=web",
        "-o",
        "custom-columns=TYPE:.type,REASON:.reason,MESSAGE:.message",
        "--sort-by=.metadata.creationTimestamp",
    ])?;
    targets(stage, &["node-1", "node-2", "node-3"]).await?;
    stage.held("The address is in the Service's status, three Nodes are its targets")
}

async fn targets_follow(stage: &mut Stage) -> Held {
    stage.step("A node joins and all targets follow", "node-4 registers.");
    join(stage, "node-4").await?;
    targets(stage, &["node-1", "node-2", "node-3", "node-4"]).await?;
    show_targets(stage)?;
    stage.held("node-4 is initialised and a target of the load balancer")
}

async fn instance_vanishes(stage: &mut Stage) -> Held {
    stage.step(
        "An instance vanishes and its Node goes",
        "node-2's instance is terminated in the cloud, its kubelet falls silent: Ready turns Unknown.
        (The ccm needs two certain answers, and deletes only Nodes that are at least a minute old; in this demo 10 s.)",
    );
    stage.cloud.remove_instance("node-2")?;
    set_ready(&stage.client, "node-2", "Unknown")
        .await
        .map_err(text)?;
    let nodes: Api<Node> = Api::all(stage.client.clone());
    until("the Node node-2 is gone", SOON, async || {
        match nodes.get_opt("node-2").await.map_err(text)? {
            None => Ok(()),
            Some(_) => Err("node-2 is still there".to_owned()),
        }
    })
    .await?;
    targets(stage, &["node-1", "node-3", "node-4"]).await?;
    stage.show(&["get", "nodes", "-o", NODE_COLUMNS])?;
    stage.held("The ccm deleted the Node, and it is no target any more")
}

async fn provider_dies(stage: &mut Stage) -> Held {
    let balancers = stage.cloud.balancers()?;
    let address = web_address(stage).await?;
    let holder = holder(stage).await?;
    let said = stage.ccm_log().len();
    stage.step(
        "The provider is killed and comes back",
        "kill -9 of the provider. While it is down, node-5 registers. Then the provider starts again.",
    );
    stage.cloud.kill_provider();
    until(
        "the ccm reports that the provider is gone",
        SOON,
        async || {
            let log = stage.ccm_log();
            let new = log.get(said..).unwrap_or_default();
            if new.contains("provider.sock") {
                Ok(())
            } else {
                Err(format!("it said {new:?}"))
            }
        },
    )
    .await?;
    join(stage, "node-5").await?;
    if is_initialised(stage, "node-5").await.is_ok() {
        return Err(
            "node-5 is initialised, although no provider was there to answer for it".to_owned(),
        );
    }
    stage.start_provider()?;
    initialised(stage, "node-5", SOON).await?;
    targets(stage, &["node-1", "node-3", "node-4", "node-5"]).await?;
    let identity = |balancers: &[Balancer]| -> Vec<Balancer> {
        let of = |it: &Balancer| Balancer {
            targets: Vec::new(),
            ..it.clone()
        };
        balancers.iter().map(of).collect()
    };
    let (before, after) = (identity(&balancers), identity(&stage.cloud.balancers()?));
    if before != after {
        return Err(format!(
            "the load balancers were {before:?} and are {after:?}"
        ));
    }
    same(
        "the Service's address",
        &address,
        &web_address(stage).await?,
    )?;
    same("the leader", &holder, &self::holder(stage).await?)?;
    let nodes = Api::<Node>::all(stage.client.clone());
    let names: Vec<_> = nodes
        .list(&ListParams::default())
        .await
        .map_err(text)?
        .items;
    let names: Vec<_> = names
        .into_iter()
        .filter_map(|node| node.metadata.name)
        .collect();
    same(
        "the Nodes",
        &["node-1", "node-3", "node-4", "node-5"]
            .map(str::to_owned)
            .to_vec(),
        &names,
    )?;
    same(
        "calls that changed the load balancer, one for node-5",
        &1,
        &stage.changes()?,
    )?;
    stage.show(&["get", "nodes", "-o", NODE_COLUMNS])?;
    show_targets(stage)?;
    stage.held("No Node, load balancer or leader was lost, and the ccm went on")
}

async fn ccm_dies(stage: &mut Stage) -> Held {
    stage.step(
        "The ccm is killed and comes back",
        "kill -9 of the ccm: its Lease runs out after 15 s (a SIGTERM would hand it over at once). A new ccm starts.
        Then node-6 joins. The calls that the restart itself causes end before node-6 is a target.",
    );
    let looks = stage.cloud.looks()?;
    let balancers = stage.cloud.balancers()?;
    let holder = holder(stage).await?;
    stage.kill_ccm();
    stage.start_ccm()?;
    until("the new ccm leads", SOON, async || {
        match self::holder(stage).await {
            Ok(now) if now != holder && !now.is_empty() => Ok(()),
            other => Err(format!("the Lease is held by {other:?}")),
        }
    })
    .await?;
    until("the new ccm has checked the Service", SOON, async || {
        if stage.cloud.looks()? > looks {
            Ok(())
        } else {
            Err("no call has read a load balancer yet".to_owned())
        }
    })
    .await?;
    let untouched = stage.cloud.balancers()?;
    same(
        "the load balancers after the restart",
        &balancers,
        &untouched,
    )?;
    join(stage, "node-6").await?;
    targets(stage, &["node-1", "node-3", "node-4", "node-5", "node-6"]).await?;
    same(
        "calls that changed the load balancer, one for node-6",
        &1,
        &stage.changes()?,
    )?;
    stage.show(&[
        "-n",
        "kube-system",
        "get",
        "lease",
        "cloud-controller-manager",
    ])?;
    show_targets(stage)?;
    stage.held("The new ccm leads; the only call that changed the cloud was node-6's")
}

fn same<T: PartialEq + std::fmt::Debug>(what: &str, expected: &T, found: &T) -> Held {
    if expected == found {
        Ok(())
    } else {
        Err(format!("{what}: expected {expected:?}, found {found:?}"))
    }
}

async fn web_address(stage: &Stage) -> Held<String> {
    let services: Api<Service> = Api::namespaced(stage.client.clone(), "default");
    let web = services.get("web").await.map_err(text)?;
    address(&web).ok_or_else(|| "the Service has no address".to_owned())
}

/// Registers a Node as a kubelet with `--cloud-provider=external` does.
async fn join(stage: &Stage, name: &str) -> Held {
    Api::<Node>::all(stage.client.clone())
        .create(
            &PostParams::default(),
            &NodeBuilder::new(name).uninitialized().build(),
        )
        .await
        .map(drop)
        .map_err(text)
}

async fn initialised(stage: &Stage, name: &str, deadline: Duration) -> Held {
    until(&format!("{name} is initialised"), deadline, async || {
        is_initialised(stage, name).await
    })
    .await
}

async fn is_initialised(stage: &Stage, name: &str) -> Held {
    let nodes: Api<Node> = Api::all(stage.client.clone());
    let node = nodes.get(name).await.map_err(text)?;
    let spec = node.spec.unwrap_or_default();
    let taints = spec.taints.unwrap_or_default();
    let tainted = taints.iter().any(|taint| taint.key == UNINITIALIZED);
    let addresses = node
        .status
        .unwrap_or_default()
        .addresses
        .unwrap_or_default();
    match (spec.provider_id, tainted, addresses.is_empty()) {
        (Some(_), false, false) => Ok(()),
        other => Err(format!("(provider ID, tainted, no addresses) = {other:?}")),
    }
}

/// Waits until the one load balancer has exactly these targets.
async fn targets(stage: &Stage, names: &[&str]) -> Held {
    until(&format!("the targets are {names:?}"), SOON, async || {
        let balancers = stage.cloud.balancers()?;
        let [balancer] = balancers.as_slice() else {
            return Err(format!("there should be one load balancer: {balancers:?}"));
        };
        let found = &balancer.targets;
        if found == names {
            Ok(())
        } else {
            Err(format!("targets are {found:?}"))
        }
    })
    .await
}

fn show_targets(stage: &Stage) -> Held {
    for balancer in stage.cloud.balancers()? {
        println!(
            "   load balancer {} at {} has the targets {}",
            balancer.id,
            balancer.addresses.join(", "),
            balancer.targets.join(", ")
        );
    }
    Ok(())
}

fn address(service: &Service) -> Option<String> {
    service
        .status
        .as_ref()?
        .load_balancer
        .as_ref()?
        .ingress
        .as_ref()?
        .first()?
        .ip
        .clone()
}

async fn holder(stage: &Stage) -> Held<String> {
    let leases: Api<k8s_openapi::api::coordination::v1::Lease> =
        Api::namespaced(stage.client.clone(), "kube-system");
    let lease = leases.get("cloud-controller-manager").await.map_err(text)?;
    Ok(lease
        .spec
        .and_then(|spec| spec.holder_identity)
        .unwrap_or_default())
}
