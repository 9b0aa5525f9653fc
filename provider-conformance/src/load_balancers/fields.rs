//! The fields of a Service, one by one: Ensure writes a changed field, and a cleared one.

use cloud_provider_api::v1alpha1::{self as pb, FailureCode, ServiceFeature};

use crate::call::Answer;
use crate::check::{Check, Need, Stop, Verdict, check, must, must_equal};
use crate::hooks::Hook;
use crate::run::Run;

use super::stage::{Stage, Writes, need_feature, offered};

pub(super) fn checks() -> Vec<Check> {
    CHECKS.to_vec()
}

const CHECKS: &[Check] = &[
    check!(
        "load-balancers/field-port",
        ["LB-7", "LB-14"],
        "Ensure writes a changed port, and the change back",
        [Need::LoadBalancers],
        port
    ),
    check!(
        "load-balancers/field-ports-added",
        ["LB-7", "LB-14"],
        "Ensure writes an added port, and its removal",
        [Need::LoadBalancers],
        ports_added
    ),
    check!(
        "load-balancers/field-node-port",
        ["LB-7", "LB-14"],
        "Ensure writes a changed node port",
        [Need::LoadBalancers],
        node_port
    ),
    check!(
        "load-balancers/field-port-name",
        ["LB-8", "LB-14"],
        "A port with another name is in sync again after Ensure, whether or not the name matters to the cloud",
        [Need::LoadBalancers],
        port_name
    ),
    check!(
        "load-balancers/field-udp",
        ["LB-7", "LB-14"],
        "Ensure changes a port's protocol from TCP to UDP, and back",
        [Need::LoadBalancers],
        udp
    ),
    check!(
        "load-balancers/field-sctp",
        ["LB-7", "LB-14"],
        "Ensure changes a port's protocol from TCP to SCTP, and back",
        [Need::LoadBalancers],
        sctp
    ),
    check!(
        "load-balancers/field-same-port-two-protocols",
        ["LB-7", "LB-8"],
        "Ensure adds UDP beside TCP on the same port, and removes it again",
        [Need::LoadBalancers],
        two_protocols
    ),
    check!(
        "load-balancers/field-source-ranges",
        ["LB-7", "LB-14"],
        "Ensure writes source ranges that are set, changed and cleared",
        [Need::LoadBalancers],
        source_ranges
    ),
    check!(
        "load-balancers/field-session-affinity",
        ["LB-7", "LB-14"],
        "Ensure writes a session affinity that is set and cleared",
        [Need::LoadBalancers],
        session_affinity
    ),
    check!(
        "load-balancers/field-affinity-timeout",
        ["LB-7", "LB-14"],
        "Ensure writes another timeout of the session affinity",
        [Need::LoadBalancers],
        affinity_timeout
    ),
    check!(
        "load-balancers/field-external-traffic-policy",
        ["LB-7", "LB-14"],
        "Ensure writes the external traffic policy Local with its health check, and Cluster again",
        [Need::LoadBalancers],
        external_traffic_policy
    ),
    check!(
        "load-balancers/field-health-check-node-port",
        ["LB-7", "LB-14"],
        "Ensure writes another port of the health check",
        [Need::LoadBalancers],
        health_check_node_port
    ),
    check!(
        "load-balancers/field-app-protocol",
        ["LB-7", "LB-14"],
        "Ensure writes an application protocol that is set and cleared",
        [Need::LoadBalancers],
        app_protocol
    ),
    check!(
        "load-balancers/field-dual-stack",
        ["LB-7", "LB-14"],
        "Ensure writes a second IP family that is added and removed; with both, the status has an address of each, or only host names",
        [Need::LoadBalancers],
        dual_stack
    ),
    check!(
        "load-balancers/field-load-balancer-ip",
        ["LB-7"],
        "The Service gets the address that it asks for",
        [Need::LoadBalancers],
        load_balancer_ip
    ),
    check!(
        "load-balancers/field-labels",
        ["LB-8", "LB-14"],
        "A Service with another label and a foreign annotation is in sync again after Ensure, whether or not they matter to the cloud",
        [Need::LoadBalancers],
        labels
    ),
    check!(
        "load-balancers/field-not-honoured",
        ["CORE-4", "LB-8", "LB-34"],
        "If `features` lacks a field that a Service sets, the provider serves the Service without the field, in sync, or refuses it with INVALID",
        [Need::LoadBalancers],
        not_honoured
    ),
];

type Change = fn(&mut pb::ServiceView);

/// A change that matters: Get sees it, Ensure writes it, and it stays. The same holds for the
/// change back.
async fn honoured(run: &Run, first: Change, second: Change) -> Verdict {
    if !offered(run).in_sync && !run.has_hook(Hook::CloudWrites) {
        return Err(Stop::not_set_up(
            "it needs the provider's `in_sync`, or the hook `cloud-writes`: else the check cannot see whether the provider honoured a field",
        ));
    }
    let stage = Stage::new(run).await?;
    let set = || Some(stage.targets());
    let mut balancer = stage.balancer("field").changed(first);
    balancer.ensured(set()).await?;
    stage.converged(&mut balancer, set()).await?;
    let before = balancer.service.clone();
    let after = balancer.changed(second).service;
    for (service, what) in [
        (after, "the field was changed"),
        (before, "the field was changed back"),
    ] {
        balancer.service = service;
        stage
            .told_in_sync(&mut balancer, set(), false, what)
            .await?;
        let written = stage.writes().await?;
        balancer.ensured(set()).await?;
        let sent = format!("Ensure after {what}: {:?}", balancer.service);
        stage.wrote_by(written, Writes::Some, "LB-7", sent).await?;
        stage.converged(&mut balancer, set()).await?;
    }
    Ok(())
}

/// A change that may matter or not: after Ensure the load balancer is in sync.
async fn settles(run: &Run, change: Change) -> Verdict {
    let stage = Stage::new(run).await?;
    let mut balancer = stage.ready("field").await?;
    let services = [balancer.changed(change).service, balancer.service.clone()];
    for service in services {
        balancer.service = service;
        balancer.ensured(Some(stage.targets())).await?;
        stage
            .converged(&mut balancer, Some(stage.targets()))
            .await?;
    }
    Ok(())
}

fn as_it_is(_: &mut pb::ServiceView) {}

async fn port(run: &Run) -> Verdict {
    honoured(run, as_it_is, |service| service.ports[0].port = 8_080).await
}

async fn ports_added(run: &Run) -> Verdict {
    honoured(run, as_it_is, |service| {
        let https = pb::ServicePort {
            name: "https".into(),
            port: 443,
            node_port: Some(30_443),
            ..service.ports[0].clone()
        };
        service.ports.push(https);
    })
    .await
}

async fn node_port(run: &Run) -> Verdict {
    if offered(run).ignores_nodes {
        return Err(Stop::not_offered(
            "targets do not matter to this cloud (Capabilities.load_balancers.ignores_nodes)",
        ));
    }
    honoured(run, as_it_is, |service| {
        service.ports[0].node_port = Some(31_234);
    })
    .await
}

async fn port_name(run: &Run) -> Verdict {
    settles(run, |service| service.ports[0].name = "web".into()).await
}

async fn udp(run: &Run) -> Verdict {
    need_feature(run, ServiceFeature::Udp)?;
    honoured(run, as_it_is, |service| {
        service.ports[0].protocol = "UDP".into();
    })
    .await
}

async fn sctp(run: &Run) -> Verdict {
    need_feature(run, ServiceFeature::Sctp)?;
    honoured(run, as_it_is, |service| {
        service.ports[0].protocol = "SCTP".into();
    })
    .await
}

async fn two_protocols(run: &Run) -> Verdict {
    need_feature(run, ServiceFeature::Udp)?;
    honoured(run, as_it_is, |service| {
        let udp = pb::ServicePort {
            name: "http3".into(),
            protocol: "UDP".into(),
            node_port: Some(30_081),
            ..service.ports[0].clone()
        };
        service.ports.push(udp);
    })
    .await
}

async fn source_ranges(run: &Run) -> Verdict {
    need_feature(run, ServiceFeature::SourceRanges)?;
    let one: Change =
        |service| service.load_balancer_source_ranges = vec!["198.51.100.0/24".into()];
    let two: Change = |service| {
        service.load_balancer_source_ranges =
            vec!["198.51.100.0/24".into(), "203.0.113.7/32".into()];
    };
    honoured(run, as_it_is, one).await?;
    honoured(run, one, two).await
}

async fn session_affinity(run: &Run) -> Verdict {
    need_feature(run, ServiceFeature::SessionAffinity)?;
    honoured(run, as_it_is, |service| client_ip(service, 10_800)).await
}

async fn affinity_timeout(run: &Run) -> Verdict {
    need_feature(run, ServiceFeature::SessionAffinity)?;
    let hours: Change = |service| client_ip(service, 10_800);
    honoured(run, hours, |service| client_ip(service, 60)).await
}

fn client_ip(service: &mut pb::ServiceView, seconds: i64) {
    service.session_affinity = "ClientIP".into();
    service.session_affinity_timeout = Some(prost_types::Duration { seconds, nanos: 0 });
}

async fn external_traffic_policy(run: &Run) -> Verdict {
    need_feature(run, ServiceFeature::ExternalTrafficPolicyLocal)?;
    honoured(run, as_it_is, |service| local(service, 30_999)).await
}

async fn health_check_node_port(run: &Run) -> Verdict {
    need_feature(run, ServiceFeature::ExternalTrafficPolicyLocal)?;
    let one: Change = |service| local(service, 30_999);
    honoured(run, one, |service| local(service, 31_000)).await
}

fn local(service: &mut pb::ServiceView, port: i32) {
    service.external_traffic_policy = "Local".into();
    service.health_check_node_port = Some(port);
}

async fn app_protocol(run: &Run) -> Verdict {
    need_feature(run, ServiceFeature::AppProtocol)?;
    honoured(run, as_it_is, |service| {
        service.ports[0].app_protocol = Some("kubernetes.io/h2c".into());
    })
    .await
}

async fn dual_stack(run: &Run) -> Verdict {
    need_feature(run, ServiceFeature::DualStack)?;
    let both: Change = |service| {
        service.ip_families = vec!["IPv4".into(), "IPv6".into()];
        service.ip_family_policy = Some("RequireDualStack".into());
        service.cluster_ips = vec!["10.96.0.10".into(), "fd00:96::10".into()];
    };
    let stage = Stage::new(run).await?;
    let mut balancer = stage.balancer("dual").changed(both);
    let status = balancer.ensured(Some(stage.targets())).await?;
    let has = |wanted: fn(&std::net::IpAddr) -> bool| {
        let ips = status.ingress.iter().filter_map(|point| point.ip.as_ref());
        ips.filter_map(|ip| ip.parse().ok()).any(|ip| wanted(&ip))
    };
    // A host name may resolve to any address.
    let by_name = status.ingress.iter().all(|point| point.ip.is_none());
    must(
        by_name || (has(std::net::IpAddr::is_ipv4) && has(std::net::IpAddr::is_ipv6)),
        "LB-7",
        "Ensure of a Service with ipFamilies IPv4 and IPv6, RequireDualStack",
        "an address of each family, or a host name",
        format_args!("{status:?}"),
    )?;
    balancer.deleted().await?;
    honoured(run, as_it_is, both).await
}

async fn load_balancer_ip(run: &Run) -> Verdict {
    need_feature(run, ServiceFeature::LoadBalancerIp)?;
    let stage = Stage::new(run).await?;
    // The second of two addresses that the cloud assigned and got back. The cloud can assign it
    // again, but most likely would not choose it first.
    let mut first = stage.ready("first").await?;
    let mut second = stage.balancer("second");
    let status = second.ensured(Some(stage.targets())).await?;
    let Some(ip) = status.ingress.iter().find_map(|point| point.ip.clone()) else {
        return Err(Stop::not_offered(
            "its load balancers have host names and no addresses",
        ));
    };
    first.deleted().await?;
    second.deleted().await?;
    let mut asking = stage.balancer("asking");
    asking.service.load_balancer_ip = Some(ip.clone());
    let status = asking.ensured(Some(stage.targets())).await?;
    let came: Vec<_> = status
        .ingress
        .iter()
        .filter_map(|point| point.ip.clone())
        .collect();
    must_equal(
        &came,
        &vec![ip],
        "LB-7",
        "Ensure of a Service with spec.loadBalancerIP, an address that the cloud gave before: the addresses of its status",
    )?;
    stage.converged(&mut asking, Some(stage.targets())).await
}

async fn labels(run: &Run) -> Verdict {
    settles(run, |service| {
        service.labels.insert("app".into(), "web".into());
        service
            .annotations
            .insert("example.com/of-somebody-else".into(), "yes".into());
    })
    .await
}

async fn not_honoured(run: &Run) -> Verdict {
    let changes: [(ServiceFeature, Change); 6] = [
        (ServiceFeature::SourceRanges, |service| {
            service.load_balancer_source_ranges = vec!["198.51.100.0/24".into()];
        }),
        (ServiceFeature::SessionAffinity, |service| {
            client_ip(service, 10_800);
        }),
        (ServiceFeature::ExternalTrafficPolicyLocal, |service| {
            local(service, 30_999);
        }),
        (ServiceFeature::Udp, |service| {
            service.ports[0].protocol = "UDP".into();
        }),
        (ServiceFeature::Sctp, |service| {
            service.ports[0].protocol = "SCTP".into();
        }),
        (ServiceFeature::AppProtocol, |service| {
            service.ports[0].app_protocol = Some("kubernetes.io/h2c".into());
        }),
    ];
    let missing: Vec<_> = changes
        .into_iter()
        .filter(|(feature, _)| need_feature(run, *feature).is_err())
        .collect();
    if missing.is_empty() {
        return Err(Stop::not_offered(
            "the provider honours all six fields that this check sets",
        ));
    }
    let stage = Stage::new(run).await?;
    for (_, change) in missing {
        let mut balancer = stage.balancer("without").changed(change);
        let asked = balancer.ensure(Some(stage.targets()), false).await?;
        if let Some(failed) = asked.answer()?.failed() {
            must(
                failed.code() == FailureCode::Invalid,
                "LB-34",
                asked.sent(),
                "ready, or failed with INVALID",
                format_args!("{failed:?}"),
            )?;
        } else {
            balancer.ensured(Some(stage.targets())).await?;
            stage
                .converged(&mut balancer, Some(stage.targets()))
                .await?;
        }
    }
    Ok(())
}
