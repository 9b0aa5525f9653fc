//! The fields of targets that a provider sees, and which changes lead to calls.

use k8s_openapi::api::core::v1::{Node, NodeAddress, NodeCondition, NodeSystemInfo, Taint};

use super::*;

const SERVICES: usize = 50;

type Edit = fn(&mut Node);

/// Asks for all labels and field groups, as the bridge does by default, and for one annotation.
fn sees_all(info: &mut api::GetProviderInfoResponse) {
    info.node_projection = Some(api::NodeProjection {
        all_labels: true,
        annotation_keys: vec!["example.com/note".into()],
        field_groups: (1..=5).collect(),
        ..Default::default()
    });
}

fn label(node: &mut Node, key: &str, value: &str) {
    let labels = node.metadata.labels.get_or_insert_default();
    labels.insert(key.to_owned(), value.to_owned());
}

fn taint(node: &mut Node, key: &str) {
    let spec = node.spec.get_or_insert_default();
    spec.taints.get_or_insert_default().push(Taint {
        key: key.to_owned(),
        effect: "NoSchedule".to_owned(),
        ..Taint::default()
    });
}

fn untaint(node: &mut Node) {
    node.spec.get_or_insert_default().taints = None;
}

fn ready(node: &mut Node, status: &str) {
    node.status.get_or_insert_default().conditions = Some(vec![NodeCondition {
        type_: "Ready".to_owned(),
        status: status.to_owned(),
        ..NodeCondition::default()
    }]);
}

fn edit_node(world: &World, name: &str, edit: impl FnOnce(&mut Node)) {
    let shown = world
        .server
        .cluster
        .nodes
        .get(&crate::core::Key::node(name));
    let mut node = (*shown.unwrap()).clone();
    edit(&mut node);
    world.server.put_node(node);
}

/// A provider with this info, three Nodes, and fifty Services that are done.
async fn busy(says: fn(&mut api::GetProviderInfoResponse)) -> World {
    let world = World::that_says(3, says).await;
    for i in 0..SERVICES {
        world.server.put(&named(i));
    }
    world
        .until("all made", |w| w.cloud.called("Ensure") == SERVICES)
        .await;
    world.rest().await;
    assert_eq!(world.cloud.called("Update"), 0);
    world
}

fn sent(world: &World, service: &str, node: &str) -> api::NodeView {
    let state = world.cloud.state();
    let mut views = state.views[service].iter();
    views.find(|view| view.name == node).unwrap().clone()
}

/// Changes of a Node that stays the same target: a Ready flap with its taint, a cordon, a label, an
/// annotation, an upgrade of its kubelet.
const DAILY: [(&str, Edit); 9] = [
    ("not ready", |n| ready(n, "False")),
    ("its taint comes", |n| {
        taint(n, "node.kubernetes.io/not-ready");
    }),
    ("ready again", |n| ready(n, "True")),
    ("its taint goes", untaint),
    ("cordoned", |n| {
        n.spec.get_or_insert_default().unschedulable = Some(true);
        taint(n, "node.kubernetes.io/unschedulable");
    }),
    ("uncordoned", |n| {
        n.spec.get_or_insert_default().unschedulable = None;
        untaint(n);
    }),
    ("labelled by somebody", |n| {
        label(n, "example.com/rack", "7");
    }),
    ("noted", |n| {
        let annotations = n.metadata.annotations.get_or_insert_default();
        annotations.insert("example.com/note".to_owned(), "x".to_owned());
    }),
    ("its kubelet is another", |n| {
        n.status.get_or_insert_default().node_info = Some(NodeSystemInfo {
            kubelet_version: "v1.37.0".to_owned(),
            ..NodeSystemInfo::default()
        });
    }),
];

#[tokio::test(start_paused = true)]
async fn b_s7_s14_what_happens_to_nodes_every_day_updates_no_load_balancer() {
    let world = busy(sees_all).await;
    for (what, edit) in DAILY {
        for node in ["n0", "n1", "n2"] {
            edit_node(&world, node, edit);
        }
        world.rest().await;
        assert_eq!(world.calls().len(), SERVICES, "{what}");
    }
    // A call for another reason sends the current values.
    world.server.edit("s1", |service| {
        service.spec.as_mut().unwrap().ports.as_mut().unwrap()[0].port = 81;
    });
    world
        .until("an Ensure", |w| w.cloud.called("Ensure") == SERVICES + 1)
        .await;
    edit_node(&world, "n1", |n| ready(n, "False"));
    edit_node(&world, "n2", |n| taint(n, "example.com/late"));
    world.server.put_node(node("n3"));
    world
        .until("the Updates", |w| w.cloud.called("Update") == SERVICES)
        .await;
    world.rest().await;
    assert_eq!(world.calls().len(), 2 * SERVICES + 1);
    let view = sent(&world, "s1", "n1");
    assert_eq!(view.ready, Some(false));
    assert_eq!(view.labels["example.com/rack"], "7");
    assert_eq!(view.annotations["example.com/note"], "x");
    assert_eq!(view.node_info.unwrap().kubelet_version, "v1.37.0");
    assert!(view.taints.is_empty());
    let view = sent(&world, "s2", "n2");
    assert_eq!(view.taints[0].key, "example.com/late");
}

#[tokio::test(start_paused = true)]
async fn b_s7_a_call_that_is_made_anyway_sends_targets_as_they_are_now() {
    let world = busy(sees_all).await;
    for (i, late) in ["a", "b"].into_iter().enumerate() {
        // The target does not change, so nothing settles and no other Service is called.
        edit_node(&world, "n1", |n| {
            untaint(n);
            taint(n, late);
            ready(n, "False");
        });
        world.rest().await;
        let made = named(SERVICES + i);
        let name = made.metadata.name.clone().unwrap();
        world.server.put(&made);
        world
            .until("an address", |w| w.address(&name).is_some())
            .await;
        let view = sent(&world, &name, "n1");
        assert_eq!(view.taints[0].key, late);
        assert_eq!(view.ready, Some(false));
    }
    world.rest().await;
    assert_eq!(world.calls().len(), SERVICES + 2);
}

/// As in the node controller's first refresh, one Node after another gets labels while Services are
/// being created.
#[tokio::test(start_paused = true)]
async fn b_s7_s12_labels_of_our_own_update_nobody_and_no_update_follows_an_ensure() {
    let world = busy(sees_all).await;
    for i in 0..20 {
        for (j, zone) in ["a", "b", "c"].into_iter().enumerate() {
            let key = format!("example.com/label-{i}");
            edit_node(&world, &format!("n{j}"), |n| label(n, &key, zone));
        }
        world.server.put(&named(SERVICES + i));
        sleep(Duration::from_millis(90)).await;
    }
    world.rest().await;
    let made = SERVICES + 20;
    assert_eq!(world.cloud.called("Ensure"), made);
    assert_eq!(world.calls().len(), made, "each was ensured once, no more");
    let last = format!("s{}", made - 1);
    assert_eq!(
        sent(&world, &last, "n2").labels["example.com/label-19"],
        "c"
    );
}

#[tokio::test(start_paused = true)]
async fn s14_what_the_provider_says_matters_to_targets_updates_them() {
    let world = busy(|info| {
        info.node_projection = Some(api::NodeProjection {
            label_keys: vec!["example.com/rack".into()],
            ..Default::default()
        });
        let offered = info.capabilities.get_or_insert_default();
        let balancers = offered.load_balancers.get_or_insert_default();
        balancers.target_projection = Some(api::NodeProjection {
            label_keys: vec!["example.com/pool".into()],
            field_groups: vec![api::NodeFieldGroup::Taints.into()],
            ..Default::default()
        });
    })
    .await;
    let updates: [(&str, Edit, usize); 6] = [
        ("only seen", |n| label(n, "example.com/rack", "7"), 0),
        ("not even seen", |n| label(n, "example.com/other", "7"), 0),
        ("it matters", |n| label(n, "example.com/pool", "gold"), 1),
        ("it matters too", |n| taint(n, "example.com/drain"), 1),
        ("not named: a Ready flap", |n| ready(n, "False"), 0),
        (
            "an address",
            |n| {
                n.status.get_or_insert_default().addresses = Some(vec![NodeAddress {
                    type_: "InternalIP".to_owned(),
                    address: "10.0.0.7".to_owned(),
                }]);
            },
            1,
        ),
    ];
    let mut wanted = 0;
    for (what, edit, rounds) in updates {
        edit_node(&world, "n1", edit);
        world.rest().await;
        wanted += rounds * SERVICES;
        assert_eq!(world.cloud.called("Update"), wanted, "{what}");
    }
    assert_eq!(world.cloud.called("Ensure"), SERVICES);
    let view = sent(&world, "s1", "n1");
    let labels = [("example.com/pool", "gold"), ("example.com/rack", "7")];
    let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned()));
    assert_eq!(view.labels, labels.into());
    assert_eq!(view.taints[0].key, "example.com/drain");
    assert_eq!((view.ready, view.addresses.len()), (None, 1));
}

/// Upstream does the same: one Ensure for each Service.
#[tokio::test(start_paused = true)]
async fn s13_a_restart_without_in_sync_ensures_each_service_once_and_asks_nothing_else() {
    let mut world = busy(|info| {
        sees_all(info);
        let offered = info.capabilities.get_or_insert_default();
        offered.load_balancers.get_or_insert_default().in_sync = false;
    })
    .await;
    world.stop.cancel();
    world.tasks.join_next().await;
    world.memory.take();
    let before = world.calls().len();
    world.start();
    // Nodes change all the time, most of all when a controller begins.
    for i in 0..20 {
        edit_node(&world, "n1", |n| {
            label(n, "example.com/beat", &i.to_string());
        });
        sleep(Duration::from_millis(50)).await;
    }
    world.rest().await;
    let calls = world.calls();
    let (again, more) = calls[before..].split_at(SERVICES);
    assert!(
        again.iter().all(|call| call.starts_with("Ensure ")),
        "{again:?}"
    );
    assert_eq!(more, [""; 0]);
}
