use k8s_openapi::api::core::v1::{NodeAddress, Taint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::*;
use crate::provider::CallErrorCode;

const NO_SCHEDULE: &str = "NoSchedule";
// Written out, because the kubelet sets the taint under this name.
const UNINITIALIZED: &str = "node.cloudprovider.kubernetes.io/uninitialized";

fn fresh() -> Node {
    let mut node = Node::default();
    node.metadata.name = Some("n".to_owned());
    node.metadata.uid = Some("u".to_owned());
    let taint = |key: &str| Taint {
        key: key.to_owned(),
        effect: NO_SCHEDULE.to_owned(),
        ..Taint::default()
    };
    let spec = node.spec.get_or_insert_default();
    spec.taints = Some(vec![taint("first"), taint(UNINITIALIZED), taint("last")]);
    node
}

fn initialized() -> Node {
    let mut node = fresh();
    let spec = node.spec.get_or_insert_default();
    spec.taints = None;
    spec.provider_id = Some("mock://i-1".to_owned());
    let labels = [
        ("node.kubernetes.io/instance-type", "m"),
        ("beta.kubernetes.io/instance-type", "m"),
    ];
    node.metadata.labels = Some(labels.map(|(k, v)| (k.to_owned(), v.to_owned())).into());
    node.status.get_or_insert_default().addresses = Some(vec![internal("10.0.0.1")]);
    node
}

fn internal(address: &str) -> NodeAddress {
    NodeAddress {
        type_: "InternalIP".to_owned(),
        address: address.to_owned(),
    }
}

fn instance(state: api::InstanceState) -> api::Instance {
    api::Instance {
        state: state as i32,
        provider_id: Some("mock://i-1".to_owned()),
        instance_type: Some("m".to_owned()),
        addresses: vec![api::NodeAddress {
            r#type: api::NodeAddressType::InternalIp as i32,
            address: "10.0.0.1".to_owned(),
        }],
        ..api::Instance::default()
    }
}

fn running() -> api::Instance {
    instance(api::InstanceState::Running)
}

fn trouble() -> CallError {
    CallError {
        code: CallErrorCode::Unavailable,
        reason: String::new(),
        message: "down".to_owned(),
        retry_after: None,
        rpc: None,
        call_id: None,
    }
}

fn plan(node: &Node, answer: api::Instance) -> NodePlan {
    plan_of(node, &Ok(answer))
}

fn plan_of(node: &Node, answer: &Result<api::Instance, CallError>) -> NodePlan {
    let prefixes = ["mock://".to_owned()];
    let known = Known {
        prefixes: &prefixes,
        managed: None,
    };
    changes(node, answer, known)
}

fn writes_nothing(plan: &NodePlan) -> bool {
    plan.addresses.is_none() && plan.main.is_none()
}

fn reasons(plan: &NodePlan) -> Vec<&'static str> {
    plan.events.iter().map(|event| event.reason).collect()
}

#[test]
fn b_n7_a_fresh_node_gets_addresses_first_and_then_all_else_at_once() {
    for state in [
        api::InstanceState::Present,
        api::InstanceState::Running,
        api::InstanceState::Stopped,
    ] {
        let plan = plan(&fresh(), instance(state));
        assert_eq!(plan.then, Then::Initialized);
        assert_eq!(plan.addresses, Some(vec![internal("10.0.0.1")]));
        let main = plan.main.clone().unwrap();
        assert_eq!(main.provider_id.as_deref(), Some("mock://i-1"));
        assert_eq!(main.labels.len(), 2);
        let keys: Vec<String> = main
            .taints
            .unwrap()
            .into_iter()
            .map(|taint| taint.key)
            .collect();
        assert_eq!(keys, ["first", "last"]);
        assert_eq!(reasons(&plan), [SYNCED]);
        assert_eq!(plan.events[0].message, "Node synced successfully");
    }
}

#[test]
fn n7_after_the_status_write_only_the_rest_is_planned() {
    let mut node = fresh();
    node.status.get_or_insert_default().addresses = Some(vec![internal("10.0.0.1")]);
    let plan = plan(&node, running());
    assert!(plan.addresses.is_none() && plan.main.is_some());
}

#[test]
fn b_n1_only_the_taint_makes_a_node_uninitialised() {
    let mut node = initialized();
    node.spec.get_or_insert_default().provider_id = None;
    let plan = plan(&node, running());
    assert_eq!(plan.then, Then::Done);
    assert!(writes_nothing(&plan));
}

#[test]
fn b_n2_provider_id_only_where_empty() {
    let mut node = fresh();
    node.spec.get_or_insert_default().provider_id = Some("mock://kept".to_owned());
    let main = plan(&node, running()).main.unwrap();
    assert_eq!(main.provider_id, None);
    let no_id = api::Instance {
        provider_id: None,
        ..running()
    };
    assert_eq!(plan(&node, no_id.clone()).then, Then::Initialized);
    node.spec.get_or_insert_default().provider_id = Some(String::new());
    assert!(plan(&node, running()).main.unwrap().provider_id.is_some());

    for id in [None, Some(String::new())] {
        let plan = plan(
            &fresh(),
            api::Instance {
                provider_id: id,
                ..no_id.clone()
            },
        );
        assert!(matches!(plan.then, Then::Lasting(_)) && writes_nothing(&plan));
        assert!(
            plan.events.is_empty(),
            "the report of the attempt is the event"
        );
    }
}

#[test]
fn b_n2_an_id_of_another_prefix_is_not_written() {
    for id in [
        "other://i-1".to_owned(),
        format!("mock://{}", "x".repeat(1100)),
    ] {
        let plan = plan(
            &fresh(),
            api::Instance {
                provider_id: Some(id),
                ..running()
            },
        );
        assert!(matches!(plan.then, Then::Lasting(_)) && writes_nothing(&plan));
    }
}

#[test]
fn b_n2_an_empty_id_is_reported_as_no_id() {
    for provider_id in [None, Some(String::new())] {
        let instance = api::Instance {
            provider_id,
            ..running()
        };
        let plan = plan(&fresh(), instance);
        let Then::Lasting(text) = &plan.then else {
            panic!("{:?}", plan.then);
        };
        assert!(text.contains("reports no provider ID"), "{text}");
        assert!(writes_nothing(&plan));
    }
}

#[test]
fn b_n5_a_node_ip_that_the_provider_does_not_know() {
    let annotation = [(
        "alpha.kubernetes.io/provided-node-ip".to_owned(),
        "10.9.9.9".to_owned(),
    )];
    let mut node = fresh();
    node.metadata.annotations = Some(annotation.clone().into());
    let first = plan(&node, running());
    assert!(matches!(first.then, Then::Lasting(_)) && writes_nothing(&first));

    let mut node = initialized();
    node.metadata.annotations = Some(annotation.into());
    let later = plan(&node, running());
    assert!(writes_nothing(&later));
    assert_eq!(
        (reasons(&later), later.then),
        (vec![NODE_ADDRESS_MISMATCH], Then::Done)
    );
}

#[test]
fn b_n6_an_empty_address_list_initialises_and_changes_no_address() {
    let bare = api::Instance {
        addresses: Vec::new(),
        ..running()
    };
    let first = plan(&fresh(), bare.clone());
    assert!(first.addresses.is_none() && first.then == Then::Initialized);
    assert!(writes_nothing(&plan(&initialized(), bare)));
}

#[test]
fn b_n8_b_n9_states_that_initialise_nothing() {
    let absent = plan(&fresh(), instance(api::InstanceState::Absent));
    assert!(matches!(absent.then, Then::Retry(_)));
    let pending = plan(&fresh(), instance(api::InstanceState::Pending));
    assert!(matches!(pending.then, Then::After(PENDING_DELAY, _)));
    let unmanaged = plan(&fresh(), instance(api::InstanceState::Unmanaged));
    assert_eq!(unmanaged.then, Then::LeftAlone);
    let unset = plan(&fresh(), instance(api::InstanceState::Unspecified));
    let unknown = plan(
        &fresh(),
        api::Instance {
            state: 77,
            ..running()
        },
    );
    for fault in [&unset, &unknown] {
        assert!(
            matches!(&fault.then, Then::CallError(trouble) if trouble.code == CallErrorCode::Fault)
        );
    }
    let failed = plan_of(&fresh(), &Err(trouble()));
    assert_eq!(failed.then, Then::CallError(trouble()));
    for plan in [absent, pending, unmanaged, unset, unknown, failed] {
        assert!(writes_nothing(&plan) && plan.events.is_empty(), "{plan:?}");
    }
}

#[test]
fn b_n8_pending_waits_as_long_as_the_provider_says_within_bounds() {
    for (seconds, wanted) in [(0, 1), (7, 7), (86_400, 600), (-5, 5)] {
        let answer = api::Instance {
            retry_after: Some(prost_types::Duration { seconds, nanos: 0 }),
            ..instance(api::InstanceState::Pending)
        };
        let then = plan(&fresh(), answer).then;
        assert!(
            matches!(then, Then::After(after, _) if after == Duration::from_secs(wanted)),
            "{seconds}"
        );
    }
}

#[test]
fn b_n11_an_initialised_node_is_written_only_on_a_change() {
    let same = plan(&initialized(), running());
    assert!(writes_nothing(&same) && same.events.is_empty() && same.then == Then::Done);
    let mut moved = running();
    moved.addresses[0].address = "10.0.0.2".to_owned();
    let plan = plan(&initialized(), moved.clone());
    assert_eq!(plan.addresses, Some(vec![internal("10.0.0.2")]));
    assert_eq!(plan.main, None);
    for state in [
        api::InstanceState::Absent,
        api::InstanceState::Pending,
        api::InstanceState::Unmanaged,
        api::InstanceState::Unspecified,
    ] {
        let answer = api::Instance {
            state: state as i32,
            ..moved.clone()
        };
        assert!(
            writes_nothing(&super::tests::plan(&initialized(), answer)),
            "{state:?}"
        );
    }
    assert!(writes_nothing(&plan_of(&initialized(), &Err(trouble()))));
}

#[test]
fn b_n10_beta_labels_reconcile_even_without_an_answer() {
    let mut node = initialized();
    let labels = node.metadata.labels.get_or_insert_default();
    labels.insert(
        "node.kubernetes.io/instance-type".to_owned(),
        "edited".to_owned(),
    );
    let plan = plan_of(&node, &Err(trouble()));
    let wanted = [(
        "node.kubernetes.io/instance-type".to_owned(),
        "m".to_owned(),
    )];
    assert_eq!(plan.main.unwrap().labels, wanted.into());
}

#[test]
fn n12_a_differing_label_is_decided_by_the_managed_fields() {
    let answer = Ok(api::Instance {
        instance_type: Some("bigger".to_owned()),
        ..running()
    });
    let first = plan_of(&initialized(), &answer);
    assert!(first.needs_managed && writes_nothing(&first));
    let ours = ["beta.kubernetes.io/instance-type".to_owned()].into();
    let known = Known {
        prefixes: &[],
        managed: Some(&ours),
    };
    let second = changes(&initialized(), &answer, known);
    assert!(!second.needs_managed);
    assert_eq!(second.main.unwrap().labels.len(), 2);
}

#[test]
fn b_n4_a_reserved_label_is_told_when_the_node_is_initialised_and_no_more() {
    let answer = api::Instance {
        labels: [("node-role.kubernetes.io/control-plane", "true")]
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .into(),
        ..running()
    };
    let first = plan(&fresh(), answer.clone());
    assert_eq!(first.then, Then::Initialized);
    assert_eq!(reasons(&first), [SYNCED], "upstream has no event either");
    assert_eq!(
        first.reserved,
        [r#""node-role.kubernetes.io/control-plane" = "true""#]
    );
    assert!(plan(&fresh(), running()).reserved.is_empty());
    assert!(plan(&initialized(), answer).reserved.is_empty());
}

#[test]
fn n14_an_invalid_label_costs_an_event_and_not_the_node() {
    let answer = api::Instance {
        labels: [("ok".to_owned(), "two words".to_owned())].into(),
        ..running()
    };
    let plan = plan(&fresh(), answer);
    assert_eq!(plan.then, Then::Initialized);
    assert_eq!(reasons(&plan), [INVALID_NODE_LABEL, SYNCED]);
}

#[test]
fn a_node_that_is_being_deleted_is_left_alone() {
    let mut node = fresh();
    node.metadata.deletion_timestamp = Some(Time(jiff::Timestamp::UNIX_EPOCH));
    let plan = plan(&node, running());
    assert!(writes_nothing(&plan) && plan.then == Then::LeftAlone);
}

#[test]
fn zones_fill_in_what_the_metadata_left_out() {
    let given = api::Instance {
        zone: Some("a".to_owned()),
        ..running()
    };
    assert!(lacks_zone(&given));
    let zone = api::Zone {
        zone: Some("b".to_owned()),
        region: Some("r".to_owned()),
    };
    let filled = with_zone(&fresh(), given.clone(), Ok(zone)).unwrap();
    assert_eq!(
        (filled.zone.as_deref(), filled.region.as_deref()),
        (Some("a"), Some("r"))
    );
    assert!(!lacks_zone(&filled));
    assert!(!lacks_zone(&instance(api::InstanceState::Absent)));
    assert_eq!(
        with_zone(&fresh(), given.clone(), Err(trouble())),
        Err(trouble())
    );
    assert_eq!(
        with_zone(&initialized(), given.clone(), Err(trouble())),
        Ok(given)
    );
}

#[test]
fn only_a_change_that_the_provider_sees_wakes_a_node() {
    let projection = api::NodeProjection {
        label_keys: vec!["example.com/rack".to_owned()],
        annotation_keys: vec!["example.com/slot".to_owned()],
        field_groups: vec![api::NodeFieldGroup::NodeInfo.into()],
        ..api::NodeProjection::default()
    };
    let wakes = |old: Option<&Node>, new: &Node| wakes(old, new, &projection, None);
    let node = fresh();
    assert!(wakes(None, &node));
    assert!(wakes(Some(&initialized()), &node));
    assert!(!wakes(None, &initialized()));
    let after = |change: fn(&mut Node)| {
        let mut changed = node.clone();
        change(&mut changed);
        wakes(Some(&node), &changed)
    };
    let pair = |key: &str| Some([(key.to_owned(), "1".to_owned())].into());
    assert!(!after(|node| {
        node.metadata.resource_version = Some("7".to_owned());
        node.status.get_or_insert_default().addresses = Some(Vec::new());
    }));
    for (key, expected) in [("example.com/rack", true), ("example.com/other", false)] {
        let mut labelled = node.clone();
        labelled.metadata.labels = pair(key);
        assert_eq!(wakes(Some(&node), &labelled), expected, "label {key}");
    }
    for (key, expected) in [("example.com/slot", true), ("example.com/other", false)] {
        let mut annotated = node.clone();
        annotated.metadata.annotations = pair(key);
        assert_eq!(wakes(Some(&node), &annotated), expected, "annotation {key}");
    }
    for key in ["alpha.kubernetes.io/provided-node-ip", PROVIDER_LABEL] {
        let mut changed = node.clone();
        changed.metadata.annotations = pair(key);
        changed.metadata.labels = pair(key);
        assert!(wakes(Some(&node), &changed), "{key}");
    }
    assert!(after(|node| node.metadata.uid = Some("v".to_owned())));
    assert!(after(|node| {
        node.spec.get_or_insert_default().provider_id = Some("mock://i-2".to_owned());
    }));
    assert!(after(|node| {
        let info = node.status.get_or_insert_default();
        info.node_info.get_or_insert_default().system_uuid = "u-1".to_owned();
    }));
    let address = |address: &str| {
        vec![k8s_openapi::api::core::v1::NodeAddress {
            address: address.to_owned(),
            type_: "InternalIP".to_owned(),
        }]
    };
    let mut addressed = node.clone();
    addressed.status.get_or_insert_default().addresses = Some(address("10.0.0.9"));
    assert!(wakes(Some(&node), &addressed));
    // The watch delivers the controller's own write.
    for (own, expected) in [("10.0.0.9", false), ("10.0.0.8", true)] {
        let own = address(own);
        let woken = super::wakes(Some(&node), &addressed, &projection, Some(&own));
        assert_eq!(woken, expected, "{own:?}");
    }
}

#[test]
fn b_n1_b_n2_what_a_node_is_asked_for_by_and_whether_it_gets_an_id() {
    let by_name = fresh();
    let mut by_id = fresh();
    let long = format!("mock://{}", "i".repeat(300));
    by_id.spec.get_or_insert_default().provider_id = Some(long.clone());
    assert_eq!(asked_for(&by_name), "the name \"n\", without a provider ID");
    assert_eq!(asked_for(&by_id), format!("provider ID {:?}", &long[..200]));
    let mut bare = by_name.clone();
    bare.spec = None;
    let mut others = by_name.clone();
    let taints = others.spec.as_mut().unwrap().taints.as_mut().unwrap();
    taints.retain(|taint| taint.key != UNINITIALIZED);
    for (node, uninitialized, gets) in [
        (&by_name, true, true),
        (&by_id, true, false),
        (&bare, false, false),
        (&others, false, false),
        (&initialized(), false, false),
    ] {
        assert_eq!(is_uninitialized(node), uninitialized);
        assert_eq!(gets_id(node), gets);
    }
}
