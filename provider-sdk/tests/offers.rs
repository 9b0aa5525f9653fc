//! What is offered follows from what is implemented; and the example.
#![allow(
    clippy::unwrap_used,
    reason = "helpers of tests may fail by panic as tests do"
)]

mod common;

use std::process::{Child, Command, Stdio};

use cloud_provider_api::v1alpha1 as pb;
use common::{Running, channel, cluster, endpoint, node, place, soon};
use provider_sdk::prelude::*;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use tonic_reflection::pb::v1 as reflection;

struct Nothing;

#[async_trait]
impl Provider for Nothing {
    fn info(&self) -> ProviderInfo {
        ProviderInfo::new("nothing", "0.1.0")
    }
    async fn initialize(&self, _: &Call, _: &InitializeRequest) -> Result<Initialized, Failure> {
        Ok(Initialized::new("nothing"))
    }
}

async fn services(channel: tonic::transport::Channel) -> Vec<String> {
    use reflection::server_reflection_request::MessageRequest;
    use reflection::server_reflection_response::MessageResponse;
    let request = reflection::ServerReflectionRequest {
        host: String::new(),
        message_request: Some(MessageRequest::ListServices(String::new())),
    };
    let mut client = reflection::server_reflection_client::ServerReflectionClient::new(channel);
    let mut answers = client
        .server_reflection_info(futures::stream::iter([request]))
        .await
        .unwrap()
        .into_inner();
    let answer = soon("reflection", answers.message())
        .await
        .unwrap()
        .unwrap();
    let Some(MessageResponse::ListServicesResponse(list)) = answer.message_response else {
        panic!("{answer:?}")
    };
    let mut names: Vec<String> = list
        .service
        .into_iter()
        .map(|service| service.name)
        .collect();
    names.sort();
    names
}

#[tokio::test]
async fn a_provider_of_nothing_offers_nothing() {
    let (_directory, path) = place();
    let served = tokio::spawn(
        Server::new(Nothing)
            .endpoint(endpoint(&path))
            .serve(std::future::pending()),
    );
    common::answering(&path).await;
    let mut client = pb::provider_service_client::ProviderServiceClient::new(channel(&path).await);
    let info = client
        .get_provider_info(pb::GetProviderInfoRequest::default())
        .await
        .unwrap()
        .into_inner();
    assert_eq!(info.capabilities, Some(pb::Capabilities::default()));
    assert_eq!(
        services(channel(&path).await).await,
        [
            "cloudprovider.v1alpha1.ProviderService",
            "grpc.health.v1.Health",
            "grpc.reflection.v1.ServerReflection"
        ]
    );
    served.abort();
}

#[tokio::test]
async fn capabilities_and_services_follow_from_what_is_implemented() {
    let running = Running::start().await;
    let mut client = running.provider().await;
    let info = client
        .get_provider_info(pb::GetProviderInfoRequest::default())
        .await
        .unwrap()
        .into_inner();
    assert_eq!(info.provider_name, "test");
    assert_eq!(info.provider_id_prefixes, ["test://"]);
    assert_eq!(info.max_request_bytes, Some(16 << 20));
    assert_eq!(info.contract_minor, pb::CONTRACT_MINOR);
    let capabilities = info.capabilities.unwrap();
    let instances = capabilities.instances.unwrap();
    assert!(instances.listing && instances.power_state);
    assert_eq!(instances.max_batch, Some(5000));
    let load_balancers = capabilities.load_balancers.unwrap();
    assert!(!load_balancers.listing && load_balancers.in_sync && load_balancers.default_class);
    assert_eq!(load_balancers.classes, ["test/lb"]);
    assert_eq!(
        load_balancers.features,
        [i32::from(pb::ServiceFeature::Udp)]
    );
    assert_eq!(
        load_balancers.target_scope,
        i32::from(pb::TargetScope::Owned)
    );
    assert!(capabilities.routes.is_some() && capabilities.changes.is_some());
    assert!(
        capabilities.zones.is_none()
            && capabilities.clusters.is_none()
            && capabilities.volumes.is_none()
    );

    let names = services(running.channel().await).await;
    let ours: Vec<_> = names
        .iter()
        .filter_map(|name| name.strip_prefix("cloudprovider.v1alpha1."))
        .collect();
    assert_eq!(
        ours,
        [
            "InstanceService",
            "LoadBalancerService",
            "ProviderService",
            "RouteService"
        ]
    );
    let mut health = HealthClient::new(running.channel().await);
    for (service, known) in [
        ("", true),
        ("cloudprovider.v1alpha1.RouteService", true),
        ("cloudprovider.v1alpha1.ZoneService", false),
    ] {
        let request = HealthCheckRequest {
            service: service.into(),
        };
        assert_eq!(health.check(request).await.is_ok(), known, "{service}");
    }
}

/// A child that does not outlive its test.
struct Reaped(Child);

impl Drop for Reaped {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test]
async fn the_minimal_example_answers_and_ends_on_sigterm() {
    let source = include_str!("../examples/minimal.rs");
    assert!(source.lines().count() < 60);
    let (directory, path) = place();
    let machines = directory.path().join("machines.csv");
    std::fs::write(&machines, "node-1, 10.0.0.5, 8-cores, rack-a\n").unwrap();
    // `cargo test` builds the examples beside the tests.
    let tests = std::env::current_exe().unwrap();
    let program = tests.ancestors().nth(2).unwrap().join("examples/minimal");
    assert!(
        program.exists(),
        "{} is missing: run `cargo test -p provider-sdk`",
        program.display()
    );
    let child = Command::new(program)
        .arg(&machines)
        .arg(endpoint(&path))
        .stdout(Stdio::null())
        .spawn();
    let mut child = Reaped(child.unwrap());
    common::answering(&path).await;

    let mut provider =
        pb::provider_service_client::ProviderServiceClient::new(channel(&path).await);
    let initialize = pb::InitializeRequest {
        cluster: cluster(),
        ..Default::default()
    };
    provider.initialize(initialize).await.unwrap();
    let request = pb::LookupInstancesRequest {
        cluster: cluster(),
        nodes: vec![node("node-1"), node("node-2")],
        facets: vec![pb::InstanceFacet::Metadata.into()],
        max_age: None,
    };
    let mut client = pb::instance_service_client::InstanceServiceClient::new(channel(&path).await);
    let results = client
        .lookup_instances(request)
        .await
        .unwrap()
        .into_inner()
        .results;
    let found: Vec<&pb::Instance> = results
        .iter()
        .map(|result| match &result.outcome {
            Some(pb::lookup_instance_result::Outcome::Found(found)) => found,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(found[0].provider_id.as_deref(), Some("machines://node-1"));
    assert_eq!(found[0].zone.as_deref(), Some("rack-a"));
    assert_eq!(found[0].addresses[0].address, "10.0.0.5");
    assert_eq!(found[1].state(), pb::InstanceState::Unmanaged);

    let pid = rustix::process::Pid::from_child(&child.0);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    let (mut child, ended) = tokio::task::spawn_blocking(move || {
        let ended = child.0.wait();
        (child, ended)
    })
    .await
    .unwrap();
    assert!(ended.unwrap().success());
    assert!(!path.exists(), "the socket is removed");
    let _ = child.0.try_wait();
}
