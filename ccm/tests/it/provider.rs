//! Providers that hang, lie, die, restart or speak another version.

mod answers;
mod heavy;
mod killed;
mod probe;
mod refused;

use std::time::Duration;

use provider_mock::{Fault, FaultKind, Fixture};
use provider_sdk::Health;
use testenv::eventually;
use testenv::objects::NodeBuilder;
use tokio::time::Instant;

use crate::world::{SOON, World, balancer, instance, said};

/// The numbers of an RPC's calls in the mock's log.
fn numbers(world: &World, rpc: &str) -> Vec<u64> {
    let calls = world.cloud().calls(Some(rpc));
    calls.iter().map(|call| call.number).collect()
}

async fn calls(world: &World, rpc: &str, more_than: u64) {
    let done = world
        .cloud()
        .wait_until(SOON, |cloud| cloud.call_count(rpc) > more_than);
    assert!(
        done.await,
        "{rpc} was not called: {:?}",
        world.cloud().call_counts()
    );
}

/// Waits for this many more calls of the RPC.
async fn more_calls(world: &World, rpc: &str, more: u64) {
    let before = world.cloud().call_count(rpc);
    calls(world, rpc, before + more - 1).await;
}

#[tokio::test]
async fn m9_a_provider_that_was_down_is_initialised_first_and_its_waiting_nodes_within_a_second() {
    let (world, ccm) = World::with_ccm(Fixture::default()).await;
    world.join("node-1").await;
    world.initialised("node-1").await;
    let holder = world.leader().await;

    world.mock.kill();
    said(&ccm, "provider is not available: controllers pause").await;
    world.join("node-2").await;
    let renewed = |lease: k8s_openapi::api::coordination::v1::Lease| lease.spec.unwrap().renew_time;
    let before = renewed(world.lease().await.unwrap());
    eventually("the Lease is renewed meanwhile", SOON, async || {
        let now = renewed(world.lease().await?);
        if now > before {
            Ok(())
        } else {
            Err("not yet".to_owned())
        }
    })
    .await;
    world.is_uninitialised("node-2").await;

    world.cloud().reset_calls();
    world.mock.restart().await.unwrap();
    let back = Instant::now();
    world.initialised("node-2").await;
    let took = back.elapsed();
    println!(
        "a Node that joined while the provider was down was initialised {took:?} after its return"
    );
    // On a slow machine this takes longer than a second. It does not wait for a Probe, which the
    // ccm calls every 10 s.
    assert!(took < Duration::from_secs(9), "{took:?}");
    assert_eq!(world.leader().await, holder);
    // Only GetProviderInfo and Probe came before Initialize.
    let initialize = numbers(&world, "Initialize");
    assert_eq!(initialize.len(), 1);
    let early: Vec<_> = world.cloud().calls(None);
    let early = early.iter().filter(|call| call.number < initialize[0]);
    let early: Vec<_> = early.map(|call| call.rpc.as_str()).collect();
    assert!(
        early
            .iter()
            .all(|rpc| ["GetProviderInfo", "Probe"].contains(rpc)),
        "{early:?}"
    );
}

#[tokio::test]
async fn m9_starting_and_broken_pause_degraded_works_and_deletes_nothing() {
    let mut world = World::new(Fixture::default()).await;
    let ccm = world.ccm(&[
        "--node-monitor-period=1s",
        "--node-deletion-brake=min-age=1s",
        "--provider-timeout=5s",
    ]);
    let holder = world.leader().await;
    for name in ["node-1", "node-2", "node-3"] {
        world.join(name).await;
    }
    for name in ["node-1", "node-2", "node-3"] {
        world.initialised(name).await;
    }
    // The ccm probes each new connection, so it sees the health at once.
    let set = async |health: Health, text: &str| {
        world.cloud().set_health(health);
        world.mock.disconnect();
        said(&ccm, text).await;
    };
    set(Health::starting("reads its zones"), "reads its zones").await;
    world.join("node-4").await;
    let asked = world.cloud().call_count("LookupInstances");
    // A leader whose provider answers Probes does not step down: four of them take longer than
    // --provider-timeout.
    more_calls(&world, "Probe", 4).await;
    set(Health::broken("has no credentials"), "has no credentials").await;
    assert_eq!(world.cloud().call_count("LookupInstances"), asked);
    world.is_uninitialised("node-4").await;

    set(Health::degraded("one zone is down"), "one zone is down").await;
    world.initialised("node-4").await;
    world.instance_ends("node-1").await;
    more_calls(&world, "LookupInstances", 4).await;
    assert!(world.node("node-1").await.is_ok());

    world.cloud().set_health(Health::ready());
    world.mock.disconnect();
    world.node_goes("node-1").await;
    assert_eq!(world.leader().await, holder);
}

#[tokio::test]
async fn m9_only_a_provider_that_never_answers_makes_the_leader_step_down_and_it_stands_again() {
    let mut world = World::new(Fixture::default()).await;
    let mut ccm = world.ccm(&["--provider-timeout=10s"]);
    let identity = world.led_by(&ccm).await;
    let terms = |world: &World| world.cloud().call_count("Initialize");
    let initialised = world
        .cloud()
        .wait_until(SOON, |cloud| cloud.call_count("Initialize") >= 1);
    assert!(initialised.await);
    let before = terms(&world);
    world.mock.kill();
    eventually("released the Lease", SOON, async || {
        let holder = world.holder().await?;
        if holder.is_empty() {
            Ok(())
        } else {
            Err(holder)
        }
    })
    .await;
    said(&ccm, "ProviderGone").await;
    assert_eq!(ccm.exit_status(), None);
    world.join("node-1").await;
    world.mock.restart().await.unwrap();
    world.initialised("node-1").await;
    assert_eq!(world.leader().await, identity);
    assert_eq!(terms(&world), before + 1);
}

#[tokio::test]
async fn m9_another_boot_id_and_not_initialized_are_answered_by_initialize() {
    let (world, ccm) = World::with_ccm(Fixture::default()).await;
    calls(&world, "Initialize", 0).await;

    // The provider lost its memory, and its process lives.
    world.cloud().forget_initialize();
    world.join("node-1").await;
    world.initialised("node-1").await;
    assert_eq!(world.cloud().call_count("Initialize"), 2);
    said(
        &ccm,
        "the provider reports NOT_INITIALIZED: initialising it again",
    )
    .await;

    // Another process answers on the same connection (a proxy between): the ccm calls
    // GetProviderInfo, and initialises it.
    let other = Fault::new("Probe", FaultKind::BootId)
        .value("another")
        .times(1);
    world.cloud().set_fault(other).unwrap();
    calls(&world, "Initialize", 2).await;
    said(&ccm, "its boot_id changed").await;
    world.join("node-2").await;
    world.initialised("node-2").await;
}

#[tokio::test]
async fn s20_another_cloud_scope_stops_everything_until_the_command_of_the_log_accepts_it() {
    let (world, ccm) = World::with_ccm(Fixture::default()).await;
    world.join("node-1").await;
    world.initialised("node-1").await;
    eventually("the scope is remembered", SOON, async || {
        let annotations = world.lease().await?.metadata.annotations;
        let scope = annotations.unwrap_or_default();
        scope
            .get("grpc-ccm.io/cloud-scope-mock")
            .cloned()
            .ok_or("no annotation".to_owned())
    })
    .await;

    world.mock.kill();
    world.cloud().set_cloud_scope("another account").unwrap();
    world.cloud().reset_calls();
    world.mock.restart().await.unwrap();
    let line = said(&ccm, "the ccm creates and deletes nothing").await;
    world.join("node-2").await;
    world.create_service(balancer("web")).await;
    // Time for the ccm to see both.
    more_calls(&world, "Probe", 2).await;
    assert_eq!(world.cloud().mutating_calls(), 0);
    world.is_uninitialised("node-2").await;

    let command = line
        .split_once("accept it: kubectl ")
        .and_then(|(_, rest)| rest.split_once(", or "));
    in_a_shell(&world, command.unwrap().0);
    world.initialised("node-2").await;
    world.shows_address("web").await;
}

/// Runs the command in a shell, as an operator pastes it.
fn in_a_shell(world: &World, command: &str) {
    let mut shell = std::process::Command::new("sh");
    let kubectl = world.plane.kubectl();
    let envs = kubectl
        .get_envs()
        .filter_map(|(key, value)| Some((key, value?)));
    let program = kubectl.get_program().to_str().unwrap().to_owned();
    shell
        .envs(envs)
        .arg("-c")
        .arg(format!("{program} kubectl {command}"));
    let ran = shell.output().unwrap();
    assert!(ran.status.success(), "{command}: {ran:?}");
}

#[tokio::test]
async fn s21_a_class_and_a_prefix_that_are_new_wait_until_the_command_of_the_log_accepts_them() {
    let (world, ccm) = World::with_ccm(Fixture::default()).await;
    world.join("node-1").await;
    world.initialised("node-1").await;
    let web = balancer("web").class("example.com/others");
    world.create_service(web).await;
    world.mock.kill();
    world
        .cloud()
        .change_settings(|settings| {
            let classes = &mut settings.capabilities.load_balancers.classes;
            classes.push("example.com/others".to_owned());
        })
        .unwrap();
    world.cloud().reset_calls();
    world.mock.restart().await.unwrap();
    let line = said(&ccm, "the ccm does not serve it until you accept it").await;
    // The ccm serves what it served before: Nodes, and Services without a class.
    world.join("node-2").await;
    world.initialised("node-2").await;
    world.balanced("other").await;
    assert!(world.cloud().load_balancer("default", "web").is_none());
    eventually("the Lease tells", SOON, async || {
        let told = world.events("cloud-controller-manager").await;
        let held = told.iter().any(|it| it.contains("ProviderClaimsHeld"));
        held.then_some(()).ok_or(format!("{told:?}"))
    })
    .await;
    let (_, command) = line.split_once("To accept: kubectl ").unwrap();
    in_a_shell(&world, command);
    world.shows_address("web").await;
}

#[tokio::test]
async fn b_m2_a_controller_without_its_capability_is_skipped_and_told() {
    let mut fixture = Fixture::default();
    fixture.capabilities.load_balancers.offered = false;
    let (world, ccm) = World::with_ccm(fixture).await;
    let line = said(&ccm, "skipped").await;
    let all = ccm.log();
    let line = all
        .lines()
        .find(|line| line.contains("skipped") && line.contains("service-lb-controller"))
        .unwrap_or_else(|| panic!("{line}"));
    assert!(
        line.contains("the provider offers no load balancers"),
        "{line}"
    );
    world.join("node-1").await;
    world.initialised("node-1").await;
    // Another image serves the socket now, and can do more.
    world.mock.kill();
    world
        .cloud()
        .change_settings(|settings| settings.capabilities.load_balancers.offered = true)
        .unwrap();
    world.mock.restart().await.unwrap();
    let line = said(&ccm, "the ccm does not serve it until you accept it").await;
    let (_, command) = line.split_once("To accept: kubectl ").unwrap();
    in_a_shell(&world, command);
    world.balanced("web").await;
}

#[tokio::test]
async fn m10_a_call_that_hangs_holds_up_nobody_else() {
    let (world, _ccm) = World::with_ccm(Fixture::default()).await;
    let hang = |rpc: &str, subject: &str| {
        let fault = Fault::new(rpc, FaultKind::Hang).subject(subject);
        world.cloud().set_fault(fault).unwrap();
    };
    hang("LookupInstances", "node-slow");
    hang("EnsureLoadBalancer", "default/slow");
    hang("GetLoadBalancer", "default/slow");
    world.join("node-slow").await;
    let create = async |name: &str| {
        world.create_service(balancer(name)).await;
    };
    create("slow").await;
    let hangs = world.cloud().wait_until(SOON, |cloud| {
        cloud.in_flight("LookupInstances") == 1
            && cloud.in_flight("GetLoadBalancer") + cloud.in_flight("EnsureLoadBalancer") == 1
    });
    assert!(hangs.await);
    world.cloud().add_instance(instance("node-1")).unwrap();
    world
        .register(NodeBuilder::new("node-1").uninitialized())
        .await;
    create("web").await;
    world.initialised("node-1").await;
    world.shows_address("web").await;
    world.is_uninitialised("node-slow").await;
}
