//! When the status is written: a table.

use super::*;

#[test]
fn b_s2_status_only_when_it_differs() {
    let shown = with_status(service());
    assert_eq!(status_patch(&shown, &status("192.0.2.1")), None);
    let mut defaulted = status("192.0.2.1");
    defaulted.ingress.as_mut().unwrap()[0].ip_mode = Some("VIP".into());
    assert_eq!(status_patch(&shown, &defaulted), None);
    for service in [service(), Service::default()] {
        for empty in [
            LoadBalancerStatus::default(),
            LoadBalancerStatus {
                ingress: Some(Vec::new()),
            },
        ] {
            assert_eq!(status_patch(&service, &empty), None);
        }
    }
    let ingress = |edit: fn(&mut LoadBalancerIngress)| {
        let mut status = status("192.0.2.1");
        edit(&mut status.ingress.as_mut().unwrap()[0]);
        status
    };
    let tcp = ingress(|it| it.ports = Some(vec![port("TCP")]));
    let rows = [
        ("another IP", status("192.0.2.1"), status("192.0.2.2")),
        (
            "cleared",
            status("192.0.2.1"),
            LoadBalancerStatus::default(),
        ),
        ("set", LoadBalancerStatus::default(), status("192.0.2.1")),
        (
            "an IP mode comes",
            status("192.0.2.1"),
            ingress(|it| it.ip_mode = Some("Proxy".into())),
        ),
        (
            "another IP mode",
            ingress(|it| it.ip_mode = Some("Proxy".into())),
            ingress(|it| it.ip_mode = Some("VIP".into())),
        ),
        (
            "another host name",
            ingress(|it| it.hostname = Some("a".into())),
            ingress(|it| it.hostname = Some("b".into())),
        ),
        ("ports come", status("192.0.2.1"), tcp.clone()),
        ("ports go", tcp.clone(), status("192.0.2.1")),
        (
            "another protocol",
            tcp,
            ingress(|it| it.ports = Some(vec![port("UDP")])),
        ),
    ];
    for (name, before, after) in rows {
        let mut shown = service();
        shown.status.get_or_insert_default().load_balancer = Some(before.clone());
        assert_eq!(status_patch(&shown, &before), None, "{name}, the same");
        let patch = status_patch(&shown, &after).expect(name);
        assert_eq!(
            (patch.load_balancer, patch.conditions),
            (Some(after), None),
            "{name}"
        );
    }
}

fn port(protocol: &str) -> PortStatus {
    PortStatus {
        port: 80,
        protocol: protocol.into(),
        error: None,
    }
}
