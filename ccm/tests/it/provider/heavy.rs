//! Answers that would take far more memory than they have bytes.

use provider_mock::{Fault, FaultKind, Fixture};
use testenv::objects::set_ready;

use super::more_calls;
use crate::world::{World, balancer, said, said_one_of};

const FLAGS: [&str; 4] = [
    "--node-monitor-period=1s",
    "--node-deletion-brake=min-age=1s,floor=20",
    "--orphaned-load-balancer-period=1s",
    "--node-status-update-frequency=1s",
];
/// The sizes of the answers. An answer of the first size would take gigabytes when decoded. The ccm
/// reads an answer of the last size.
const KIB: [u32; 5] = [14 * 1024, 3 * 1024, 900, 200, 48];
const MOST_ADDED_MIB: u64 = 128;

/// Has the ccm make this call, with the answer that the mock gives at this step.
async fn called(world: &World, rpc: &str, step: usize) {
    match rpc {
        "ListInstances" => {
            let gone = format!("gone-{step}");
            world.join(&gone).await;
            world.initialised(&gone).await;
            world.cloud().remove_instance(&gone).unwrap();
            set_ready(&world.client, &gone, "False").await.unwrap();
            more_calls(world, rpc, 1).await;
            // The ccm judges the Node without the list.
            world.node_goes(&gone).await;
        }
        "EnsureLoadBalancer" => {
            world
                .create_service(balancer(&format!("heavy-{step}")))
                .await;
            more_calls(world, rpc, 1).await;
            world
                .event(&format!("heavy-{step}"), "Warning SyncLoadBalancerFailed")
                .await;
        }
        // The ccm makes these calls each second. A later call begins after the first answer was
        // read.
        _ => more_calls(world, rpc, 3).await,
    }
}

#[tokio::test]
async fn no_answer_of_empty_items_costs_more_than_128_mib_and_each_is_told() {
    let mut world = World::new(Fixture::default()).await;
    let mut ccm = world.ccm(&FLAGS);
    world.leader().await;
    // So many Nodes that the brake does not prevent the deletions.
    let up: Vec<_> = (1..=12).map(|number| format!("up-{number}")).collect();
    for name in up.iter().map(String::as_str).chain(["down"]) {
        world.join(name).await;
        world.initialised(name).await;
    }
    set_ready(&world.client, "down", "False").await.unwrap();
    let base = ccm.resident_bytes();
    for rpc in [
        "LookupInstances",
        "ListLoadBalancers",
        "EnsureLoadBalancer",
        "ListInstances",
    ] {
        for (step, kib) in KIB.into_iter().enumerate() {
            let fault = Fault::new(rpc, FaultKind::EmptyItems).value(kib.to_string());
            let id = world.cloud().set_fault(fault).unwrap();
            called(&world, rpc, step).await;
            world.cloud().clear_fault(id);
            assert_eq!(ccm.exit_status(), None, "{rpc}: {}", ccm.log());
            let added = ccm.most_resident_bytes().saturating_sub(base) >> 20;
            println!("{rpc}, {kib} KiB: {added} MiB");
            assert!(added < MOST_ADDED_MIB, "{rpc}, {kib} KiB: {added} MiB");
        }
        // The answer is too large by itself, or together with others that the ccm reads at the same
        // time.
        let refused = ["would take more than", "was not read: with the others"];
        let [alone, together] = refused.map(|text| format!("the answer of {rpc} {text}"));
        said_one_of(&ccm, &[&alone, &together]).await;
    }
    let limit = "more than 1048576 bytes, which is the most that EnsureLoadBalancer may answer";
    said(&ccm, limit).await;
    // The ccm still initialises Nodes.
    world.join("after").await;
    world.initialised("after").await;
}
