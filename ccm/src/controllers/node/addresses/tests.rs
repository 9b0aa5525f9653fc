use super::*;

const INTERNAL: i32 = api::NodeAddressType::InternalIp as i32;
const EXTERNAL: i32 = api::NodeAddressType::ExternalIp as i32;
const DNS: i32 = api::NodeAddressType::InternalDns as i32;
const EXTERNAL_DNS: i32 = api::NodeAddressType::ExternalDns as i32;
const HOST: i32 = api::NodeAddressType::Hostname as i32;

fn given(pairs: &[(i32, &str)]) -> Vec<api::NodeAddress> {
    pairs
        .iter()
        .map(|(kind, address)| api::NodeAddress {
            r#type: *kind,
            address: (*address).to_owned(),
        })
        .collect()
}

fn node(shown: &[(&str, &str)], provided: Option<&str>) -> Node {
    let mut node = Node::default();
    node.status.get_or_insert_default().addresses = Some(
        shown
            .iter()
            .map(|(kind, address)| NodeAddress {
                type_: (*kind).to_owned(),
                address: (*address).to_owned(),
            })
            .collect(),
    );
    node.metadata.annotations =
        provided.map(|ip| [(PROVIDED_NODE_IP.to_owned(), ip.to_owned())].into());
    node
}

fn shown(addresses: &[NodeAddress]) -> Vec<String> {
    let show = |address: &NodeAddress| format!("{} {}", address.type_, address.address);
    addresses.iter().map(show).collect()
}

const V4: (i32, &str) = (INTERNAL, "10.0.0.1");
const V6: (i32, &str) = (INTERNAL, "fd00::1");
const OUTSIDE: (i32, &str) = (EXTERNAL, "198.51.100.1");
const OUTSIDE_V6: (i32, &str) = (EXTERNAL, "2001:db8::1");
const NAME: (i32, &str) = (HOST, "n");

type Addresses = &'static [(i32, &'static str)];

/// The row's name, the kubelet's node IP, the cloud's addresses, and the Node's addresses.
const PROVIDED: &[(&str, &str, Addresses, Addresses)] = &[
    ("the only one", "10.0.0.1", &[V4, NAME], &[V4, NAME]),
    (
        "the external one",
        "198.51.100.1",
        &[V4, OUTSIDE, NAME],
        &[OUTSIDE, V4, NAME],
    ),
    (
        "internal and external alike",
        "10.0.0.1",
        &[
            (EXTERNAL, "10.0.0.9"),
            (INTERNAL, "10.0.0.9"),
            V4,
            (EXTERNAL, "10.0.0.1"),
            NAME,
        ],
        &[V4, (EXTERNAL, "10.0.0.1"), NAME],
    ),
    (
        "names of both kinds stay",
        "10.0.0.1",
        &[
            V4,
            OUTSIDE,
            (DNS, "n.internal"),
            (EXTERNAL_DNS, "n.example"),
            NAME,
        ],
        &[
            V4,
            OUTSIDE,
            (DNS, "n.internal"),
            (EXTERNAL_DNS, "n.example"),
            NAME,
        ],
    ),
    (
        "one of several internal ones",
        "10.0.0.1",
        &[
            (INTERNAL, "10.0.0.3"),
            V4,
            (INTERNAL, "10.0.0.2"),
            OUTSIDE,
            NAME,
        ],
        &[V4, OUTSIDE, NAME],
    ),
    (
        "written in another way",
        "fd00::1",
        &[V4, (INTERNAL, "fd00:0:0:0:0:0:0:1"), NAME],
        &[(INTERNAL, "fd00:0:0:0:0:0:0:1"), NAME],
    ),
    (
        "both families",
        "10.0.0.1,fd00::1",
        &[V4, V6, NAME],
        &[V4, V6, NAME],
    ),
    (
        "both families, the cloud's order is the other one",
        "10.0.0.1,fd00::1",
        &[V6, V4, NAME],
        &[V4, V6, NAME],
    ),
    (
        "both families, IPv6 first",
        "fd00::1,10.0.0.1",
        &[V4, V6, NAME],
        &[V6, V4, NAME],
    ),
    (
        "both families among several",
        "10.0.0.1,fd00::1",
        &[V4, (INTERNAL, "10.0.0.2"), (INTERNAL, "fd00::2"), V6, NAME],
        &[V4, V6, NAME],
    ),
    (
        "both families and an external one",
        "10.0.0.1,fd00::1",
        &[V4, OUTSIDE, (INTERNAL, "fd00::2"), V6, NAME],
        &[V4, V6, OUTSIDE, NAME],
    ),
    (
        "both families and external ones of both",
        "fd00::1,10.0.0.1",
        &[V4, OUTSIDE, V6, OUTSIDE_V6, NAME],
        &[V6, V4, OUTSIDE, OUTSIDE_V6, NAME],
    ),
    (
        "one external, one internal",
        "198.51.100.1,fd00::1",
        &[V4, OUTSIDE, V6, OUTSIDE_V6, NAME],
        &[OUTSIDE, V6, NAME],
    ),
    (
        "the kubelet's hostname stays",
        "10.0.0.1",
        &[V4, OUTSIDE],
        &[V4, OUTSIDE, (HOST, "kubelet")],
    ),
    (
        "IPv4 in IPv6",
        "10.0.0.1",
        &[(INTERNAL, "::ffff:10.0.0.1")],
        &[(INTERNAL, "::ffff:10.0.0.1"), (HOST, "kubelet")],
    ),
    (
        "the cloud calls it twice",
        "10.0.0.1",
        &[V4, V4, NAME],
        &[V4, NAME],
    ),
];

#[test]
fn b_n5_provided_node_ips() {
    for (name, provided, cloud, expected) in PROVIDED {
        let node = node(&[("Hostname", "kubelet")], Some(provided));
        let addresses = wanted(&node, &given(cloud)).unwrap();
        let expected: Vec<NodeAddress> =
            given(expected).iter().map(|a| native(a).unwrap()).collect();
        assert_eq!(shown(&addresses), shown(&expected), "{name}");
    }
}

#[test]
fn b_n5_a_provided_ip_that_the_provider_does_not_know() {
    let all = given(&[(INTERNAL, "10.0.0.1")]);
    for (name, provided) in [
        ("another one", "10.0.0.7"),
        ("two, and one of them is there", "10.0.0.1,fd00::1"),
        ("only the kubelet calls itself so", "10.0.0.2"),
    ] {
        let node = node(&[("Hostname", "10.0.0.2")], Some(provided));
        let outcome = wanted(&node, &all);
        let why = outcome.unwrap_err();
        assert!(
            why.starts_with("the provider reports no address "),
            "{name}: {why}"
        );
    }
    assert!(wanted(&node(&[], Some("10.0.0.1")), &[]).is_err());
    for provided in [
        "",
        "nonsense",
        "10.0.0.1,10.0.0.1",
        "10.0.0.1,fd00::1,fd00::2",
        "10.0.0.1,",
        "10.0.0.1, fd00::1",
    ] {
        let outcome = wanted(&node(&[], Some(provided)), &all);
        let bad = format!("{provided:?}, not one IP or one of each family");
        let why = outcome.unwrap_err();
        assert!(why.ends_with(&bad), "{provided}: {why}");
    }
}

#[test]
fn b_n6_hostname_is_kept_and_nothing_changes_nothing() {
    let held = node(&[("Hostname", "kubelet"), ("InternalIP", "10.0.0.1")], None);
    let addresses = wanted(&held, &given(&[(INTERNAL, "10.0.0.2")])).unwrap();
    assert_eq!(
        shown(&addresses),
        ["InternalIP 10.0.0.2", "Hostname kubelet"]
    );
    let addresses = wanted(&held, &given(&[(INTERNAL, "10.0.0.2"), (HOST, "cloud")])).unwrap();
    assert_eq!(shown(&addresses), ["InternalIP 10.0.0.2", "Hostname cloud"]);
    let addresses = wanted(&held, &[]).unwrap();
    assert_eq!(change(&held, addresses), None);
}

#[test]
fn b_n11_n11_addresses_compare_as_a_set_in_order() {
    const HELD: [(&str, &str); 3] = [
        ("InternalIP", "10.0.0.1"),
        ("ExternalIP", "198.51.100.1"),
        ("InternalIP", "fd00::1"),
    ];
    let v4 = (INTERNAL, "10.0.0.1");
    let outside = (EXTERNAL, "198.51.100.1");
    let v6 = (INTERNAL, "fd00::1");
    let rows = [
        ("the same", vec![v4, outside, v6], false),
        ("one of them twice", vec![v4, v4, outside, v6], false),
        (
            "another external IP",
            vec![v4, (EXTERNAL, "198.51.100.2"), v6],
            true,
        ),
        ("one fewer", vec![v4, outside], true),
        ("one more", vec![v4, outside, v6, (HOST, "n")], true),
        (
            "the types the other way round",
            vec![(EXTERNAL, "10.0.0.1"), (INTERNAL, "198.51.100.1"), v6],
            true,
        ),
        ("another order within a type", vec![v6, outside, v4], true),
        ("none", vec![], false),
    ];
    for (name, cloud, changes) in rows {
        let held = node(&HELD, None);
        let change = change(&held, wanted(&held, &given(&cloud)).unwrap());
        assert_eq!(change.is_some(), changes, "{name}");
    }
}

#[test]
fn b_n6_each_address_is_shown_once() {
    let name = (HOST, "n");
    let inside = (INTERNAL, "10.0.0.1");
    for (row, cloud, expected) in [
        ("none", vec![], vec![]),
        ("each is new", vec![inside, name], vec![inside, name]),
        (
            "the same twice",
            vec![inside, inside, name],
            vec![inside, name],
        ),
        (
            "one address of two types",
            vec![inside, (EXTERNAL, "10.0.0.1"), name],
            vec![inside, (EXTERNAL, "10.0.0.1"), name],
        ),
        (
            "the cloud's hostname is the kubelet's",
            vec![name, inside, name],
            vec![name, inside],
        ),
    ] {
        let addresses = wanted(&node(&[("Hostname", "n")], None), &given(&cloud)).unwrap();
        let expected: Vec<NodeAddress> = given(&expected)
            .iter()
            .map(|a| native(a).unwrap())
            .collect();
        assert_eq!(addresses, expected, "{row}");
    }
}

#[test]
fn an_address_without_a_type_is_a_fault() {
    for kind in [0, 99] {
        let outcome = wanted(&node(&[], None), &given(&[(kind, "10.0.0.1")]));
        let why = "the provider reports the address \"10.0.0.1\" without a known type";
        assert_eq!(outcome, Err(why.to_owned()));
    }
}
