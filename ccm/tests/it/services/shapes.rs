//! Classes, host names, IP modes and address families.

use k8s_openapi::api::core::v1::Service;
use kube::api::PostParams;
use provider_mock::fixture::{AddressMode, DEFAULT_CLASS, IpMode, TargetScope};
use provider_mock::{Fault, Fixture};
use provider_sdk::FailureCode;
use serde_json::json;
use testenv::Options;
use testenv::objects::NodeBuilder;

use super::{ENSURE, balancer, has_finalizer, subject};
use crate::world::World;

/// The ingress of a Service as `ip hostname mode`.
fn shown(service: &Service) -> Vec<String> {
    let status = service.status.as_ref();
    let ingress = status
        .and_then(|status| status.load_balancer.as_ref()?.ingress.as_deref())
        .unwrap_or_default();
    let text = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".into());
    ingress
        .iter()
        .map(|it| {
            format!(
                "{} {} {}",
                text(&it.ip),
                text(&it.hostname),
                text(&it.ip_mode)
            )
        })
        .collect()
}

#[tokio::test]
async fn b_s1_s1_classes_host_names_and_ip_modes() {
    let mut fixture = Fixture::default();
    let capability = &mut fixture.capabilities.load_balancers;
    let classes = ["mock.example/fast", "mock.example/slow"];
    capability.classes.extend(classes.map(str::to_owned));
    fixture.addressing.mode = AddressMode::Hostname;
    let (mut world, mut ccm) = World::with_ccm(fixture).await;
    world
        .create_service(balancer("unknown").class("other.example/lb"))
        .await;
    world
        .create_service(balancer("fast").class("mock.example/fast"))
        .await;
    world.create_service(balancer("none")).await;
    // The ccm began with this Service, but the cloud never created its load balancer.
    world.fault(Fault::failure(ENSURE, FailureCode::Conflict).subject(subject("begun")));
    world
        .create_service(balancer("begun").class("mock.example/fast"))
        .await;
    world.asked_times(ENSURE, "begun", 1).await;
    let fast = world.shows_address("fast").await;
    world.shows_address("none").await;
    assert_eq!(
        world.made("fast").unwrap().config.class.as_deref(),
        Some("mock.example/fast")
    );
    let hostname = world.made("fast").unwrap().hostname.unwrap();
    assert_eq!(shown(&fast), [format!("- {hostname} -")]);
    assert!(!has_finalizer(&world.service("unknown").await));
    assert_eq!(world.times(ENSURE, "unknown"), 0);
    assert!(world.events("unknown").await.is_empty());
    // The ccm leaves this Service alone when it is deleted, too.
    world.delete_service("unknown").await;
    world.service_goes("unknown").await;
    assert_eq!(world.cloud().call_count("DeleteLoadBalancer"), 0);

    // The class vanishes with the type. The owner of the load balancer is still known, even after a
    // restart.
    world.crash(&mut ccm).await;
    let retyped = world
        .edit("fast", json!({"spec": {"type": "ClusterIP"}}))
        .await;
    assert_eq!(retyped.spec.unwrap().load_balancer_class, None);
    world
        .edit("begun", json!({"spec": {"type": "ClusterIP"}}))
        .await;
    world
        .cloud()
        .change_settings(|settings| {
            let classes = &mut settings.capabilities.load_balancers.classes;
            classes.retain(|class| class != DEFAULT_CLASS);
            settings.addressing.mode = AddressMode::Both;
            settings.addressing.ip_mode = Some(IpMode::Proxy);
        })
        .unwrap();
    world.mock.kill();
    world.mock.restart().await.unwrap();
    let _ccm = world.ccm(&[]);
    world
        .service_becomes("begun", "is clean", |service| !has_finalizer(service))
        .await;
    world
        .service_becomes("fast", "is clean", |service| {
            !has_finalizer(service) && shown(service).is_empty()
        })
        .await;
    assert!(world.made("fast").is_none());

    // Without the default class, a Service without a class has no owner. One with a class is still
    // served.
    world.create_service(balancer("classless")).await;
    world
        .create_service(balancer("slow").class("mock.example/slow"))
        .await;
    let slow = world.shows_address("slow").await;
    let lb = world.made("slow").unwrap();
    assert_eq!(
        shown(&slow),
        [format!(
            "{} {} Proxy",
            lb.addresses[0],
            lb.hostname.unwrap()
        )]
    );
    assert!(!has_finalizer(&world.service("classless").await));
    assert_eq!(world.times(ENSURE, "classless"), 0);
}

#[tokio::test]
async fn b_s4_s14_dual_stack_and_targets_of_all() {
    let options = Options {
        api_server_flags: vec!["--service-cluster-ip-range=10.0.0.0/16,fd00:10::/108".into()],
        ..Options::default()
    };
    let mut fixture = Fixture::default();
    fixture.capabilities.load_balancers.target_scope = TargetScope::All;
    let mut world = World::with_options(fixture, options).await;
    // With the scope ALL a target needs neither an owner nor a provider ID.
    world.register(NodeBuilder::new("nobody")).await;
    world
        .register(NodeBuilder::new("other").provider_id("other://x/other"))
        .await;
    let _ccm = world.ccm(&[]);
    let mut both = balancer("both").build();
    both.spec.as_mut().unwrap().ip_family_policy = Some("RequireDualStack".into());
    world
        .services()
        .create(&PostParams::default(), &both)
        .await
        .unwrap();
    let both = world.shows_address("both").await;
    let addresses = world.made("both").unwrap().addresses;
    assert_eq!(addresses.len(), 2);
    let expected: Vec<_> = addresses.iter().map(|ip| format!("{ip} - VIP")).collect();
    assert_eq!(shown(&both), expected);

    world.targeted("both", &["nobody", "other"]).await;

    // The Service gets a second IP family, and loses it again.
    world.balanced("grows").await;
    let first = world.made("grows").unwrap().addresses;
    assert_eq!(first.len(), 1);
    world
        .edit(
            "grows",
            json!({"spec": {"ipFamilyPolicy": "PreferDualStack"}}),
        )
        .await;
    let grown = world
        .service_becomes("grows", "has two addresses", |service| {
            shown(service).len() == 2
        })
        .await;
    assert!(shown(&grown)[0].starts_with(&first[0].to_string()));
    world
        .edit("grows", json!({"spec": {"ipFamilyPolicy": "SingleStack", "ipFamilies": ["IPv4"], "clusterIPs": [grown.spec.unwrap().cluster_ip]}}))
        .await;
    world
        .service_becomes("grows", "has one address", |service| {
            shown(service).len() == 1
        })
        .await;
    assert_eq!(world.times(ENSURE, "grows"), 3);
}
