//! The controller: off, on, and under the next leader.

use std::collections::BTreeSet;

use kube::api::{Patch, PatchParams};
use provider_sdk::FailureCode;

use testenv::free_port;

use super::*;
use crate::api_server::rights::{asked, granted, hold, of_chart};
use crate::input::get;
use crate::proxy::{Proxy, Rule};

const VOLUMES: &str = "kustomize/components/volumes-account/rbac.yaml";
const ROUTES: &str = "kustomize/components/routes-account/rbac.yaml";
const ON: &str = "--controllers=*,persistent-volume-label-controller";

#[tokio::test]
async fn b_m4_b_v1_a_leader_that_labels_volumes_is_ready_when_it_has_seen_them() {
    let mut world = World::new(disks()).await;
    let port = free_port();
    let port_flag = format!("--secure-port={port}");
    // The component `volumes`, which is not applied yet, grants the right to see volumes.
    let ccm = world.ccm(&[ON, &port_flag, "--bind-address=127.0.0.1"]);
    let readyz = async |wanted: u16, says: &str| {
        eventually(says, SOON, async || {
            match get(port, "/readyz?verbose", Some("testenv-admin")).await {
                (status, text) if status == wanted && text.contains(says) => Ok(text),
                other => Err(format!("{other:?}")),
            }
        })
        .await
    };
    world.led_by(&ccm).await;
    let text = readyz(500, "[-]persistentvolumes failed: ").await;
    let lacks = "lacks the right to list persistentvolumes in the whole cluster";
    assert!(text.contains(lacks), "{text}");
    assert!(text.contains("[+]nodes ok"), "{text}");

    world.grant_volumes();
    readyz(200, "[+]persistentvolumes ok").await;
}

/// Only this controller uses the rights of the component `volumes`. It uses all of them, and no
/// other right to volumes.
#[tokio::test]
async fn b_v1_volumes_are_labelled_by_a_controller_that_is_off_unless_it_is_named() {
    let mut world = World::audited(disks()).await;
    world.create_volume(&volume("early", "d-1", &[])).await;
    let mut ccm = world.ccm(&[]);
    world.led_by(&ccm).await;
    world.join("node-1").await;
    world.initialised("node-1").await;
    ccm.terminate();
    ccm.wait(SOON).await.unwrap();
    assert_eq!(world.cloud().call_count(GET), 0);
    let volumes = |world: &World| -> BTreeSet<String> {
        let log = world.audit_log();
        let asked = asked(&log).into_iter();
        let volumes = asked.filter(|(what, _)| what.contains("persistentvolumes"));
        volumes
            .inspect(|(what, codes)| assert!(!codes.contains(&403), "{what} is refused"))
            .map(|(what, _)| what)
            .collect()
    };
    assert_eq!(volumes(&world), BTreeSet::new());

    // With the controller on, existing volumes count too. A conflict makes it read again.
    world.grant_volumes();
    let proxy = Proxy::start(&world.plane).await;
    proxy.answer(Rule::new("PATCH", "/persistentvolumes/early", 1, 409));
    let mut ccm = world.ccm(&[ON, &proxy.flag()]);
    let early = world.labelled("early").await;
    assert_eq!(zone(&early), Some("b__a"));
    let both = "topology.kubernetes.io/region=r,topology.kubernetes.io/zone=a|b";
    assert_eq!(terms(&early), [both]);

    // A volume that was created with node affinity keeps it: the real API server allows no other.
    world
        .create_volume(&volume("fixed", "d-2", &["disk"]))
        .await;
    let fixed = world.labelled("fixed").await;
    assert_eq!(terms(&fixed), ["disk"]);
    world.event("fixed", "Warning VolumeAffinityNotSet").await;

    // The next leader does not ask about labelled volumes, and asks about the new one once.
    ccm.terminate();
    ccm.wait(SOON).await.unwrap();
    let before = world.cloud().call_count(GET);
    let _next = world.ccm(&[ON]);
    world.create_volume(&volume("late", "d-3", &[])).await;
    world.labelled("late").await;
    assert_eq!(world.cloud().call_count(GET), before + 1);

    let text = include_str!("../../../../deploy/kustomize/components/volumes/rbac.yaml");
    assert_eq!(volumes(&world), granted(text));
}

/// The ccm and the accounts have only the rights that the chart grants for these values. They
/// include reading a volume again after a conflict.
#[tokio::test]
async fn b_m5_b_v1_volumes_and_routes_are_written_by_accounts_of_their_own() {
    let controllers = [
        "cloud-node-controller",
        "cloud-node-lifecycle-controller",
        "service-lb-controller",
        "node-route-controller",
        "persistent-volume-label-controller",
    ];
    let rights = of_chart(&json!({
        "controllers": controllers,
        "cluster": {"cidrs": ["10.244.0.0/16", "fd00:244::/48"]},
        "serviceAccountCredentials": {"enabled": true},
    }));
    let mut world = World::with_rights(disks(), &rights).await;
    let proxy = Proxy::start(&world.plane).await;
    proxy.answer(Rule::new("PATCH", "/persistentvolumes/disk-1", 1, 409));
    let proxied = proxy.flag();
    let mut flags = vec!["--use-service-account-credentials", ON, &proxied];
    flags.extend(crate::routes::FLAGS);
    let mut ccm = world.ccm(&flags);
    world.led_by(&ccm).await;
    let fault = provider_mock::Fault::failure("CreateRoutes", FailureCode::Precondition);
    world.cloud().set_fault(fault).unwrap();
    crate::routes::join(&world, "node-1", &["10.244.1.0/24"]).await;
    crate::routes::condition(&world, "node-1", crate::routes::FAILED).await;
    world.initialised("node-1").await;
    // The node controller is done with this Node's status: the route controller is the next writer.
    proxy.answer(Rule::new("PATCH", "/nodes/node-1/status", 1, 409));
    world.cloud().clear_faults();
    crate::routes::condition(&world, "node-1", crate::routes::CREATED).await;
    world.create_volume(&volume("disk-1", "d-1", &[])).await;
    world.labelled("disk-1").await;
    world
        .create_volume(&volume("fixed", "d-2", &["disk"]))
        .await;
    world.event("fixed", "Warning VolumeAffinityNotSet").await;
    // A repeated event is a patch of the first, at the latest when the ccm ends.
    let invalid = provider_mock::Fault::failure(GET, FailureCode::Invalid);
    world.cloud().set_fault(invalid).unwrap();
    world.create_volume(&volume("wrong", "d-3", &[])).await;
    world.event("wrong", "Warning VolumeLabelsFailed").await;
    // The stop drops a call in flight. So wait for two more: the second starts after the ccm has
    // recorded the event of the first.
    for change in ["first", "second"] {
        let asked = world.cloud().call_count(GET);
        let change = Patch::Merge(json!({"metadata": {"annotations": {"change": change}}}));
        world
            .volumes()
            .patch("wrong", &PatchParams::default(), &change)
            .await
            .unwrap();
        let again = world
            .cloud()
            .wait_until(SOON, |cloud| cloud.call_count(GET) > asked);
        assert!(again.await);
    }
    ccm.terminate();
    ccm.wait(SOON).await.unwrap();

    let writers = crate::accounts::writers(&world);
    let by = |names: &[&str]| Some(names.iter().map(|name| (*name).to_owned()).collect());
    let found = |resource: &str| writers.get(resource).cloned();
    assert_eq!(found("persistentvolumes"), by(&["pvl-controller"]));
    // The route controller writes the condition NetworkUnavailable. The other writes are the node
    // controller's.
    assert_eq!(found("nodes"), by(&["node-controller", "route-controller"]));
    assert!(writers["events"].contains("pvl-controller"), "{writers:?}");
    for file in [VOLUMES, ROUTES] {
        hold(&world, file, |_| true);
    }
}
