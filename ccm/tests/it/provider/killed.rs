//! A provider whose process is killed during a call.

use std::time::Duration;

use provider_mock::{Command, Fault, FaultKind, Fixture, HumanDuration};
use testenv::eventually;
use testenv::objects::NodeBuilder;

use crate::process::Provider;
use crate::world::{SOON, World, balancer, instance};

const FINALIZER: &str = "service.kubernetes.io/load-balancer-cleanup";

async fn slow(provider: &Provider, rpc: &str) {
    let latency = HumanDuration::from(Duration::from_mins(1));
    let rpc = rpc.to_owned();
    provider.ctl(Command::LatencySet { rpc, latency }).await;
}

async fn load_balancers(provider: &Provider) -> Vec<serde_json::Value> {
    let list = provider.ctl(Command::LoadBalancerList).await;
    list.as_array().cloned().unwrap_or_default()
}

#[tokio::test]
async fn a_provider_killed_in_a_call_is_asked_again_and_nothing_is_made_twice_or_forgotten() {
    let mut world = World::new(Fixture::default()).await;
    let directory = world.file("own");
    std::fs::create_dir_all(&directory).unwrap();
    let mut provider = Provider::start(&directory).await;
    let mut command = std::process::Command::new(crate::world::CCM);
    command
        .arg("--kubeconfig")
        .arg(world.plane.kubeconfig(testenv::User::Ccm))
        .arg(format!("--provider={}", Provider::endpoint(&directory)))
        .args(["--secure-port=0", "-v=4"]);
    let mut ccm = world.start(command);
    world.led_by(&ccm).await;
    provider
        .ctl(Command::InstanceAdd {
            instance: instance("node-1"),
        })
        .await;

    // During a lookup of a Node.
    slow(&provider, "LookupInstances").await;
    world
        .register(NodeBuilder::new("node-1").uninitialized())
        .await;
    in_flight(&provider, "LookupInstances").await;
    provider.process().kill();
    provider = Provider::start(&directory).await;
    world.initialised("node-1").await;

    // During the creation of a load balancer.
    slow(&provider, "EnsureLoadBalancer").await;
    world.create_service(balancer("web")).await;
    in_flight(&provider, "EnsureLoadBalancer").await;
    provider.process().kill();
    provider = Provider::start(&directory).await;
    world.shows_address("web").await;
    assert_eq!(load_balancers(&provider).await.len(), 1);

    // After a creation, before its answer: by a crash of its own.
    let crash = Fault::new("EnsureLoadBalancer", FaultKind::CrashAfter).times(1);
    provider.ctl(Command::FaultSet { fault: crash }).await;
    world.create_service(balancer("shop")).await;
    let ended = provider.process().wait(SOON).await.unwrap();
    assert_eq!(ended.code(), Some(137));
    provider = Provider::start(&directory).await;
    world.shows_address("shop").await;
    assert_eq!(load_balancers(&provider).await.len(), 2);

    // During a deletion: the finalizer waits for a `done`.
    slow(&provider, "DeleteLoadBalancer").await;
    world.delete_service("web").await;
    in_flight(&provider, "DeleteLoadBalancer").await;
    provider.process().kill();
    let web = world.services().get("web").await.unwrap();
    assert_eq!(web.metadata.finalizers, Some(vec![FINALIZER.to_owned()]));
    provider = Provider::start(&directory).await;
    world.service_goes("web").await;
    assert_eq!(load_balancers(&provider).await.len(), 1);
    assert_eq!(ccm.exit_status(), None);
}

/// Waits until the provider works on a call of this RPC.
async fn in_flight(provider: &Provider, rpc: &str) {
    eventually(&format!("{rpc} is in flight"), SOON, async || {
        let last = 1;
        let report = provider.ctl(Command::Calls { rpc: None, last }).await;
        match report["in_flight"][rpc].as_u64() {
            Some(1..) => Ok(()),
            _ => Err(report.to_string()),
        }
    })
    .await;
}
