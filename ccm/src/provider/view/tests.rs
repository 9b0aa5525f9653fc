use ipnet::IpNet;
use serde_json::json;

use super::super::CallErrorCode;
use super::*;

fn node() -> Node {
    serde_json::from_value(json!({
        "metadata": {
            "name": "n1", "uid": "u1", "creationTimestamp": "2026-01-02T03:04:05Z",
            "labels": {"a": "1", "b": "2"},
            "annotations": {"x": "1", "y": "2", LAST_APPLIED: "{}"},
        },
        "spec": {
            "providerID": "mock://1", "podCIDRs": ["10.1.0.0/24", "fd00::/64"],
            "taints": [{"key": "k", "effect": "NoSchedule"}, {"key": "l", "value": "v", "effect": "NoExecute"}],
        },
        "status": {
            "addresses": [
                {"type": "InternalIP", "address": "10.0.0.1"},
                {"type": "Odd", "address": "?"},
                {"type": "Hostname", "address": "n1"},
            ],
            "conditions": [{"type": "Ready", "status": "True"}],
            "nodeInfo": {
                "machineID": "m", "systemUUID": "s", "bootID": "b", "architecture": "amd64",
                "operatingSystem": "linux", "kubeletVersion": "v1.36.3", "containerRuntimeVersion": "",
                "kernelVersion": "", "kubeProxyVersion": "", "osImage": "",
            },
        },
    }))
    .unwrap()
}

#[test]
fn name_uid_provider_id_and_addresses_are_always_sent_and_nothing_else() {
    let view = node_view(&node(), &api::NodeProjection::default());
    assert_eq!(
        view,
        api::NodeView {
            name: "n1".into(),
            uid: "u1".into(),
            provider_id: Some("mock://1".into()),
            addresses: vec![
                api::NodeAddress {
                    r#type: api::NodeAddressType::InternalIp.into(),
                    address: "10.0.0.1".into()
                },
                api::NodeAddress {
                    r#type: api::NodeAddressType::Hostname.into(),
                    address: "n1".into()
                },
            ],
            ..Default::default()
        }
    );
}

#[test]
fn the_projection_decides_what_else_is_sent() {
    let wanted = api::NodeProjection {
        label_keys: vec!["b".into(), "missing".into()],
        all_labels: false,
        annotation_keys: vec!["x".into(), LAST_APPLIED.into()],
        field_groups: vec![0, 1, 2, 3, 4, 5, 77],
    };
    let view = node_view(&node(), &wanted);
    assert_eq!(view.labels, BTreeMap::from([("b".into(), "2".into())]));
    assert_eq!(view.annotations, BTreeMap::from([("x".into(), "1".into())]));
    assert_eq!(view.pod_cidrs, ["10.1.0.0/24", "fd00::/64"]);
    assert_eq!(view.taints.len(), 2);
    assert_eq!(view.taints[0].value, None);
    assert_eq!(view.taints[1].value.as_deref(), Some("v"));
    assert_eq!(view.node_info.unwrap().system_uuid, "s");
    assert_eq!(view.ready, Some(true));
    assert_eq!(view.creation_time.unwrap().seconds, 1_767_323_045);

    let all = api::NodeProjection {
        all_labels: true,
        ..Default::default()
    };
    assert_eq!(node_view(&node(), &all).labels.len(), 2);
}

#[test]
fn absent_is_not_zero() {
    let everything = api::NodeProjection {
        field_groups: vec![1, 2, 3, 4, 5],
        ..Default::default()
    };
    let view = node_view(&Node::default(), &everything);
    assert_eq!(view.provider_id, None);
    assert_eq!(view.node_info, None);
    assert_eq!(view.creation_time, None);
    assert_eq!(view.ready, Some(false));

    let view = service_view(&Service::default());
    assert_eq!(view, api::ServiceView::default());
    assert_eq!(view.generation, None);
    assert_eq!(view.status, None);

    let empty: Node = serde_json::from_value(json!({"spec": {"providerID": ""}})).unwrap();
    let view = node_view(&empty, &api::NodeProjection::default());
    assert_eq!(view.provider_id, None);
}

#[test]
fn core_11_a_provider_id_of_more_than_1024_bytes_is_not_sent() {
    for (bytes, sent) in [(1024, true), (1025, false)] {
        let mut node = node();
        node.spec.as_mut().unwrap().provider_id = Some("x".repeat(bytes));
        let view = node_view(&node, &api::NodeProjection::default());
        assert_eq!(view.provider_id.is_some(), sent, "{bytes}");
    }
}

#[test]
fn a_time_before_1970_counts_forward() {
    let time = Time("1969-12-31T23:59:58.5Z".parse().unwrap());
    let stamp = timestamp(&time);
    assert_eq!((stamp.seconds, stamp.nanos), (-2, 500_000_000));
}

#[test]
fn a_service_is_sent_whole() {
    let service: Service = serde_json::from_value(json!({
        "metadata": {
            "namespace": "ns", "name": "s", "uid": "u", "generation": 3,
            "creationTimestamp": "2026-01-02T03:04:05Z", "deletionTimestamp": "2026-01-02T03:04:06Z",
            "labels": {"l": "1"}, "annotations": {"a": "1", LAST_APPLIED: "{}"}, "finalizers": ["f"],
        },
        "spec": {
            "type": "LoadBalancer", "loadBalancerClass": "c", "clusterIPs": ["10.0.0.9"], "externalIPs": ["1.1.1.1"],
            "loadBalancerIP": "2.2.2.2", "loadBalancerSourceRanges": ["0.0.0.0/0"], "sessionAffinity": "ClientIP",
            "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 60}}, "externalTrafficPolicy": "Local",
            "internalTrafficPolicy": "Cluster", "healthCheckNodePort": 30000, "ipFamilies": ["IPv4"],
            "ipFamilyPolicy": "SingleStack", "allocateLoadBalancerNodePorts": false, "publishNotReadyAddresses": true,
            "ports": [
                {"name": "p", "protocol": "UDP", "appProtocol": "h2c", "port": 80, "targetPort": "web", "nodePort": 30001},
                {"port": 81, "targetPort": 8081},
                {"port": 82, "targetPort": 0, "nodePort": 0},
            ],
        },
        "status": {"loadBalancer": {"ingress": [{"ip": "3.3.3.3", "ipMode": "Proxy", "ports": [{"port": 80, "protocol": "TCP", "error": "E"}]}]}},
    }))
    .unwrap();
    let view = service_view(&service);
    assert_eq!(view.generation, Some(3));
    assert!(!view.annotations.contains_key(LAST_APPLIED));
    assert_eq!(view.annotations.len(), 1);
    assert!(view.creation_time.is_some() && view.deletion_time.is_some());
    assert_eq!(view.r#type, "LoadBalancer");
    assert_eq!(view.load_balancer_class.as_deref(), Some("c"));
    assert_eq!(view.session_affinity_timeout.unwrap().seconds, 60);
    assert_eq!(view.health_check_node_port, Some(30000));
    assert_eq!(view.allocate_load_balancer_node_ports, Some(false));
    assert!(view.publish_not_ready_addresses);
    assert_eq!(
        view.load_balancer_source_ranges,
        ["0.0.0.0/0"],
        "{:?}",
        view.external_ips
    );
    let ports: Vec<_> = view
        .ports
        .iter()
        .map(|port| {
            (
                port.protocol.as_str(),
                port.target_port.as_str(),
                port.node_port,
            )
        })
        .collect();
    assert_eq!(
        ports,
        [
            ("UDP", "web", Some(30001)),
            ("TCP", "8081", None),
            ("TCP", "", None)
        ]
    );
    // The status comes back as it was.
    let status = view.status.unwrap();
    assert_eq!(
        Some(load_balancer_status(&status, &[]).unwrap()),
        service.status.unwrap().load_balancer
    );
}

fn point(ip: Option<&str>, hostname: Option<&str>) -> api::LoadBalancerIngress {
    api::LoadBalancerIngress {
        ip: ip.map(ToOwned::to_owned),
        hostname: hostname.map(ToOwned::to_owned),
        ..Default::default()
    }
}

fn status_of(point: api::LoadBalancerIngress) -> Result<core::LoadBalancerStatus, CallError> {
    status_beside(point, &[])
}

fn status_beside(
    point: api::LoadBalancerIngress,
    service_ranges: &[IpNet],
) -> Result<core::LoadBalancerStatus, CallError> {
    let status = api::LoadBalancerStatus {
        ingress: vec![point],
    };
    load_balancer_status(&status, service_ranges)
}

#[test]
fn the_status_of_a_load_balancer_is_checked() {
    let good = status_of(point(Some("fd00::1"), None)).unwrap();
    assert_eq!(good.ingress.unwrap()[0].ip_mode.as_deref(), Some("VIP"));
    let good = status_of(point(None, Some("lb.example.com"))).unwrap();
    assert_eq!(good.ingress.unwrap()[0].ip_mode, None);
    let empty = load_balancer_status(&api::LoadBalancerStatus::default(), &[]).unwrap();
    assert_eq!(empty.ingress, None);

    let with_port = |number, protocol: &str, error: Option<&str>| api::LoadBalancerIngress {
        ports: vec![api::PortStatus {
            port: number,
            protocol: protocol.into(),
            error: error.map(Into::into),
        }],
        ..point(Some("1.1.1.1"), None)
    };
    assert!(status_of(with_port(80, "TCP", Some("example.com/PortInUse"))).is_ok());
    let bad = [
        point(None, None),
        point(Some(""), None),
        point(Some("300.1.1.1"), None),
        point(Some("10.0.0.0/8"), None),
        point(None, Some("1.2.3.4")),
        point(None, Some("Not A Name")),
        point(Some("1.1.1.1"), Some("a_b")),
        api::LoadBalancerIngress {
            ip_mode: Some(0),
            ..point(Some("1.1.1.1"), None)
        },
        api::LoadBalancerIngress {
            ip_mode: Some(9),
            ..point(Some("1.1.1.1"), None)
        },
        with_port(0, "TCP", None),
        with_port(80, "tcp", None),
        with_port(80, "TCP", Some("not camel case")),
    ];
    for point in bad {
        let trouble = status_of(point.clone()).unwrap_err();
        assert_eq!(trouble.code, CallErrorCode::Fault, "{point:?}");
    }
}

/// Shows ▲S22 (finding B13).
#[test]
fn no_load_balancer_is_at_an_address_that_nodes_use_among_themselves() {
    for good in [
        "10.0.0.1",
        "192.168.1.1",
        "100.64.0.1",
        "fd00::1",
        "2001:db8::1",
    ] {
        assert!(status_of(point(Some(good), None)).is_ok(), "{good}");
    }
    for bad in [
        "127.0.0.1",
        "0.0.0.0",
        "169.254.169.254",
        "224.0.0.1",
        "255.255.255.255",
        "::",
        "::1",
        "::ffff:127.0.0.1",
        "fe80::1",
        "ff02::1",
    ] {
        let trouble = status_of(point(Some(bad), None)).unwrap_err();
        assert_eq!(trouble.code, CallErrorCode::Fault, "{bad}");
        assert!(trouble.message.contains(bad), "{trouble:?}");
    }
}

/// Shows ▲S22 (finding B13): kube-proxy would send another Service's traffic to this Service.
#[test]
fn no_load_balancer_is_at_an_address_of_the_clusters_services() {
    let ranges = ["10.96.0.0/12", "fd00:10::/108"].map(|range| range.parse().unwrap());
    for good in ["10.95.255.255", "10.112.0.0", "fd00:11::1", "192.0.2.1"] {
        let point = point(Some(good), None);
        assert!(status_beside(point, &ranges).is_ok(), "{good}");
    }
    for (bad, range) in [
        ("10.96.0.1", "10.96.0.0/12"),
        ("10.111.255.255", "10.96.0.0/12"),
        ("::ffff:10.96.0.10", "10.96.0.0/12"),
        ("fd00:10::a", "fd00:10::/108"),
    ] {
        let trouble = status_beside(point(Some(bad), None), &ranges).unwrap_err();
        assert_eq!(trouble.code, CallErrorCode::Fault, "{bad}");
        let says = format!(
            "{bad:?} of the load balancer is in the range of the cluster's Services, {range}"
        );
        assert!(trouble.message.contains(&says), "{trouble:?}");
    }
}

#[test]
fn the_addresses_of_an_instance_are_checked() {
    let address = |kind: i32, address: &str| api::NodeAddress {
        r#type: kind,
        address: address.to_owned(),
    };
    let shown = node_addresses(&[
        address(2, "10.0.0.1"),
        address(2, "fd00::1"),
        address(3, "1.1.1.1"),
        address(1, "n1"),
        address(2, "10.0.0.1"),
        address(4, "n1.internal"),
    ])
    .unwrap();
    let shown: Vec<_> = shown
        .iter()
        .map(|a| format!("{}={}", a.type_, a.address))
        .collect();
    assert_eq!(
        shown,
        [
            "InternalIP=10.0.0.1",
            "InternalIP=fd00::1",
            "ExternalIP=1.1.1.1",
            "Hostname=n1",
            "InternalDNS=n1.internal"
        ]
    );
    for bad in [
        address(0, "10.0.0.1"),
        address(9, "10.0.0.1"),
        address(2, "10.0.0.0/8"),
        address(3, "n1"),
        address(1, ""),
        address(5, &"x".repeat(254)),
    ] {
        let trouble = node_addresses(std::slice::from_ref(&bad)).unwrap_err();
        assert_eq!(trouble.code, CallErrorCode::Fault, "{bad:?}");
    }
}

#[test]
fn source_ranges_come_from_the_field_else_from_the_annotation() {
    const ONE: &str = "192.0.2.1/32";
    type Row<'a> = (&'a str, &'a [&'a str], Option<&'a str>, &'a [&'a str]);
    let rows: [Row<'_>; 9] = [
        ("neither: everybody", &[], None, &[]),
        ("an empty annotation: everybody", &[], Some(" "), &[]),
        ("the field", &[ONE], None, &[ONE]),
        ("the annotation", &[], Some(ONE), &[ONE]),
        (
            "two in the annotation",
            &[],
            Some("192.0.2.1/32,198.51.100.0/24"),
            &[ONE, "198.51.100.0/24"],
        ),
        (
            "spaces around them",
            &[],
            Some("  192.0.2.1/32 , 198.51.100.0/24   "),
            &[ONE, "198.51.100.0/24"],
        ),
        ("both: the field", &[ONE], Some("0.0.0.0/0"), &[ONE]),
        (
            "what is no range closes, and does not open",
            &[],
            Some("here.and.there"),
            &["here.and.there"],
        ),
        (
            "nor does an empty one",
            &[],
            Some("192.0.2.1/32,"),
            &[ONE, ""],
        ),
    ];
    for (name, field, annotation, expected) in rows {
        let mut service = Service::default();
        service.metadata.annotations =
            annotation.map(|text| [(SOURCE_RANGES.to_owned(), text.to_owned())].into());
        let ranges = field.iter().map(|&range| range.to_owned()).collect();
        service
            .spec
            .get_or_insert_default()
            .load_balancer_source_ranges = Some(ranges);
        assert_eq!(
            service_view(&service).load_balancer_source_ranges,
            expected,
            "{name}"
        );
    }
}
