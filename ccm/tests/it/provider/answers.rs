//! Answers that break the contract: their objects get an error, no Node is deleted for them, and
//! the ccm does not crash.

use provider_mock::{Fault, FaultKind, Fixture};
use provider_sdk::FailureCode;
use testenv::Process;
use testenv::objects::{ingress, set_ready};

use super::more_calls;
use crate::world::{World, balancer, instance, taints};

const FINALIZER: &str = "service.kubernetes.io/load-balancer-cleanup";

/// A ccm with a pass in each second. It deletes a Node as soon as two passes find its instance
/// gone.
async fn eager(fixture: Fixture) -> (World, Process) {
    let mut world = World::new(fixture).await;
    let ccm = world.ccm(&[
        "--node-monitor-period=1s",
        "--node-deletion-brake=min-age=1s,share=49%,floor=20",
    ]);
    world.leader().await;
    (world, ccm)
}

/// Instances and initialised Nodes.
async fn nodes(world: &World, names: &[&str]) {
    for name in names {
        world.join(name).await;
    }
    for name in names {
        world.initialised(name).await;
    }
}

#[tokio::test]
async fn only_absent_means_gone_whatever_stands_in_the_answer_for_a_node() {
    let (world, mut ccm) = eager(Fixture::default()).await;
    let wrong: [(&str, Fault); 8] = [
        (
            "missing",
            Fault::new("LookupInstances", FaultKind::ResultsMissing),
        ),
        (
            "twice",
            Fault::new("LookupInstances", FaultKind::ResultsDuplicated),
        ),
        ("uid", Fault::new("LookupInstances", FaultKind::WrongUid)),
        (
            "unset",
            Fault::new("LookupInstances", FaultKind::UnsetOutcome),
        ),
        (
            "unspecified",
            Fault::new("LookupInstances", FaultKind::InstanceState),
        ),
        (
            "unknown",
            Fault::new("LookupInstances", FaultKind::InstanceState).value("99"),
        ),
        (
            "failed",
            Fault::failure("LookupInstances", FailureCode::NotFound),
        ),
        ("long", Fault::new("LookupInstances", FaultKind::LongText)),
    ];
    // So many Nodes that the brake does not prevent the deletions.
    let well: Vec<_> = (1..=20).map(|number| format!("well-{number}")).collect();
    nodes(&world, &well.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let names: Vec<_> = wrong.iter().map(|(name, _)| *name).collect();
    nodes(&world, &names).await;
    for (name, fault) in wrong.clone() {
        world.cloud().set_fault(fault.subject(name)).unwrap();
    }
    // Removes the machines of these Nodes, and of a Node with a correct answer.
    for name in names.iter().chain(&["well-1"]) {
        world.cloud().remove_instance(name).unwrap();
        set_ready(&world.client, name, "False").await.unwrap();
    }
    // As many new Nodes get the same answers.
    for (name, fault) in &wrong {
        let name = format!("new-{name}");
        let fault = fault.clone().subject(&name);
        world.cloud().set_fault(fault).unwrap();
        world.join(&name).await;
    }
    world.node_goes("well-1").await;
    more_calls(&world, "LookupInstances", 6).await;
    for name in &names {
        assert!(
            world.node(name).await.is_ok(),
            "{name} was deleted\n{}",
            ccm.log()
        );
        world.is_uninitialised(&format!("new-{name}")).await;
    }
    // The log shows an operator the Node and the provider.
    let log = ccm.log();
    for (name, _) in &wrong {
        assert!(
            log.lines().any(|line| {
                line.contains("WARN")
                    && line.contains(&format!("node=\"new-{name}\""))
                    && line.contains("provider=mock")
            }),
            "{name} is not in the log: {log}"
        );
    }
    assert_eq!(ccm.exit_status(), None);
    world.cloud().clear_faults();
    for (name, _) in &wrong {
        world.initialised(&format!("new-{name}")).await;
        world.node_goes(name).await;
    }
}

#[tokio::test]
async fn an_answer_that_is_none_or_too_large_deletes_nothing_and_kills_nobody() {
    let (world, mut ccm) = eager(Fixture::default()).await;
    nodes(&world, &["down", "up-1", "up-2"]).await;
    let allowed = ["results-reordered", "results-unasked"];
    let mut number = 0;
    for kind in [
        FaultKind::EmptyAnswer,
        FaultKind::NoAnswer,
        FaultKind::Garbage,
        FaultKind::Oversized,
        FaultKind::ResultsReordered,
        FaultKind::ResultsUnasked,
    ] {
        let fault = Fault::new("LookupInstances", kind);
        let id = world.cloud().set_fault(fault).unwrap();
        let down = world.cloud().instance("down");
        if down.is_some() {
            world.cloud().remove_instance("down").unwrap();
        }
        if allowed.contains(&kind.row().name) {
            // The instance exists: the ccm must accept the answer.
            world.cloud().add_instance(instance("down")).unwrap();
        }
        set_ready(&world.client, "down", "False").await.unwrap();
        number += 1;
        let new = format!("new-{number}");
        world.join(&new).await;
        if allowed.contains(&kind.row().name) {
            world.initialised(&new).await;
        }
        more_calls(&world, "LookupInstances", 3).await;
        assert!(world.node("down").await.is_ok(), "{kind}: deleted");
        let fresh = world.node(&new).await.unwrap();
        assert_eq!(
            taints(&fresh).is_empty(),
            allowed.contains(&kind.row().name),
            "{kind}"
        );
        set_ready(&world.client, "down", "True").await.unwrap();
        world.cloud().clear_fault(id);
        assert_eq!(ccm.exit_status(), None, "{kind}: {}", ccm.log());
        world.initialised(&new).await;
    }
    // The ccm kept its session: no wrong answer is a reason for a new one.
    assert_eq!(world.cloud().call_count("Initialize"), 1);
}

#[tokio::test]
async fn a_load_balancer_whose_answer_is_wrong_gets_an_event_and_keeps_its_finalizer() {
    let (world, mut ccm) = eager(Fixture::default()).await;
    nodes(&world, &["node-1"]).await;
    let wrong = [
        ("unset", FaultKind::UnsetOutcome),
        ("empty", FaultKind::EmptyAnswer),
        ("none", FaultKind::NoAnswer),
        ("garbage", FaultKind::Garbage),
        ("large", FaultKind::Oversized),
        ("long", FaultKind::LongText),
    ];
    let services = world.services();
    let subject = |name: &str| format!("default/{name}");
    for (name, kind) in wrong {
        let fault = Fault::new("EnsureLoadBalancer", kind).subject(subject(name));
        world.cloud().set_fault(fault).unwrap();
        world.create_service(balancer(name)).await;
    }
    world.balanced("well").await;
    for (name, _) in wrong {
        let event = world.event(name, "Warning SyncLoadBalancerFailed").await;
        assert!(event.len() < 1_200, "{name}: {} bytes", event.len());
        let service = services.get(name).await.unwrap();
        assert_eq!(ingress(&service), None, "{name}");
        assert_eq!(
            service.metadata.finalizers,
            Some(vec![FINALIZER.to_owned()])
        );
    }
    world.cloud().clear_faults();
    // The ccm retries each of them after 5 s or more.
    for (name, _) in wrong {
        world.shows_address(name).await;
    }

    for (name, kind) in wrong {
        let fault = Fault::new("DeleteLoadBalancer", kind).subject(subject(name));
        world.cloud().set_fault(fault).unwrap();
        world.delete_service(name).await;
    }
    for (name, _) in wrong {
        world
            .event(
                name,
                "Warning SyncLoadBalancerFailed Error syncing load balancer: failed to delete",
            )
            .await;
        let service = services.get(name).await.unwrap();
        assert_eq!(
            service.metadata.finalizers,
            Some(vec![FINALIZER.to_owned()])
        );
    }
    world.cloud().clear_faults();
    for (name, _) in wrong {
        world.service_goes(name).await;
        assert_eq!(world.cloud().load_balancer("default", name), None);
    }
    assert_eq!(ccm.exit_status(), None);
}
