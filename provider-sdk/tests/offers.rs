//! The offered services follow from the implemented traits. Also tests the minimal example.
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

/// Has a class that the contract forbids (PROV-10).
struct Classless;

#[async_trait]
impl Provider for Classless {
    fn info(&self) -> ProviderInfo {
        Nothing.info()
    }
    async fn initialize(&self, _: &Call, _: &InitializeRequest) -> Result<Initialized, Failure> {
        Ok(Initialized::new("nothing"))
    }
    fn load_balancers(&self) -> Option<&dyn LoadBalancers> {
        Some(self)
    }
}

#[async_trait]
impl LoadBalancers for Classless {
    async fn get(&self, _: &Call, _: &GetLoadBalancer) -> LoadBalancerResult<LoadBalancer> {
        unreachable!()
    }
    async fn ensure(&self, _: &Call, _: &EnsureLoadBalancer) -> LoadBalancerResult<Ensured> {
        unreachable!()
    }
    async fn update(&self, _: &Call, _: &UpdateLoadBalancer) -> LoadBalancerResult<Updated> {
        unreachable!()
    }
    async fn delete(&self, _: &Call, _: &DeleteLoadBalancer) -> LoadBalancerResult<Deleted> {
        unreachable!()
    }
    fn options(&self) -> LoadBalancerOptions {
        LoadBalancerOptions {
            classes: vec!["default".to_owned()],
            ..LoadBalancerOptions::default()
        }
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
async fn an_error_at_the_start_says_where_it_is() {
    for (server, begins) in [
        (
            Server::new(Classless),
            "the provider cannot be served: the class \"default\" in LoadBalancerOptions::classes",
        ),
        (
            Server::new(Nothing).reflect(b"these are no file descriptors"),
            "the provider cannot be served: cannot read the file descriptors for reflection: ",
        ),
    ] {
        let said = server.into_service().await.err().unwrap().to_string();
        assert!(said.starts_with(begins), "{said}");
    }
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

/// Sets the largest batches to 0.
struct Zero;

#[async_trait]
impl Provider for Zero {
    fn info(&self) -> ProviderInfo {
        ProviderInfo::new("zero", "1").provider_id_prefix("zero://")
    }
    async fn initialize(&self, _: &Call, _: &InitializeRequest) -> Result<Initialized, Failure> {
        Ok(Initialized::new("zero"))
    }
    fn instances(&self) -> Option<&dyn Instances> {
        Some(self)
    }
    fn zones(&self) -> Option<&dyn Zones> {
        Some(self)
    }
    fn routes(&self) -> Option<&dyn Routes> {
        Some(self)
    }
}

#[async_trait]
impl Instances for Zero {
    async fn lookup(&self, _: &Call, _: &Node, _: &InstanceQuery) -> Result<Instance, Failure> {
        Ok(Instance::absent())
    }
    fn options(&self) -> InstanceOptions {
        InstanceOptions {
            max_batch: 0,
            ..InstanceOptions::default()
        }
    }
}

#[async_trait]
impl Zones for Zero {
    async fn zone(&self, _: &Call, _: &Node) -> Result<Zone, Failure> {
        Ok(Zone::default())
    }
}

#[async_trait]
impl Routes for Zero {
    async fn list(&self, _: &Call) -> Result<Vec<Route>, Failure> {
        Ok(Vec::new())
    }
    async fn create(&self, _: &Call, _: &Route) -> Result<(), Failure> {
        Ok(())
    }
    async fn delete(&self, _: &Call, _: &Route) -> Result<(), Failure> {
        Ok(())
    }
    fn options(&self) -> RouteOptions {
        RouteOptions {
            max_batch: 0,
            ..RouteOptions::default()
        }
    }
}

#[tokio::test]
async fn a_batch_of_zero_means_100() {
    let (_directory, path) = place();
    let served = tokio::spawn(
        Server::new(Zero)
            .endpoint(endpoint(&path))
            .serve(std::future::pending()),
    );
    common::answering(&path).await;
    let channel = channel(&path).await;
    let mut provider = pb::provider_service_client::ProviderServiceClient::new(channel.clone());
    let info = provider.get_provider_info(pb::GetProviderInfoRequest::default());
    let capabilities = info.await.unwrap().into_inner().capabilities.unwrap();
    assert_eq!(capabilities.instances.unwrap().max_batch, Some(100));
    assert_eq!(capabilities.routes.unwrap().max_batch, Some(100));
    let initialize = pb::InitializeRequest {
        cluster: cluster(),
        ..Default::default()
    };
    provider.initialize(initialize).await.unwrap();

    let mut instances = pb::instance_service_client::InstanceServiceClient::new(channel.clone());
    let mut zones = pb::zone_service_client::ZoneServiceClient::new(channel.clone());
    let mut routes = pb::route_service_client::RouteServiceClient::new(channel);
    for (size, refused) in [(100, None), (101, Some(pb::FailureCode::Invalid))] {
        let nodes: Vec<_> = (0..size).map(|n| node(&format!("node-{n}"))).collect();
        let looked_up = instances.lookup_instances(pb::LookupInstancesRequest {
            cluster: cluster(),
            nodes: nodes.clone(),
            ..Default::default()
        });
        let zoned = zones.lookup_zones(pb::LookupZonesRequest {
            cluster: cluster(),
            nodes,
        });
        let created = routes.create_routes(pb::CreateRoutesRequest {
            cluster: cluster(),
            routes: (0..size)
                .map(|n| pb::Route {
                    route_key: n.to_string(),
                    destination_cidr: format!("10.0.{n}.0/24"),
                    ..Default::default()
                })
                .collect(),
        });
        let looked_up = looked_up.await.unwrap().into_inner().failed;
        let zoned = zoned.await.unwrap().into_inner().failed;
        let created = created.await.unwrap().into_inner().failed;
        for failed in [looked_up, zoned, created] {
            assert_eq!(failed.map(|failed| failed.code()), refused, "{size}");
        }
    }
    served.abort();
}

/// A child process that is killed when the test ends.
struct Reaped(Child);

impl Drop for Reaped {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn the_minimal_example_says_in_a_sentence_why_it_cannot_serve() {
    let run = |endpoint: &str| {
        let output = Command::new(minimal())
            .args(["machines.csv", endpoint])
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8(output.stderr).unwrap()
    };
    let said = run("tcp://127.0.0.1:1");
    assert!(
        said.contains("Error: the endpoint \"tcp://127.0.0.1:1\" does not begin with unix://"),
        "{said}"
    );
    // The example prints what the SDK logs.
    let directory = tempfile::tempdir().unwrap();
    std::fs::set_permissions(
        directory.path(),
        std::os::unix::fs::PermissionsExt::from_mode(0o755),
    )
    .unwrap();
    let path = directory.path().join("p.sock");
    std::fs::write(&path, "not a socket").unwrap();
    let said = run(&endpoint(&path));
    for word in ["WARN", "open to all users", "is not a socket"] {
        assert!(said.contains(word), "{word}: {said}");
    }
}

/// The program of the minimal example. `cargo test` builds the examples beside the tests.
fn minimal() -> std::path::PathBuf {
    let tests = std::env::current_exe().unwrap();
    let program = tests.ancestors().nth(2).unwrap().join("examples/minimal");
    assert!(
        program.exists(),
        "{} is missing: run `cargo test -p grpc-ccm-provider-sdk`",
        program.display()
    );
    program
}

#[tokio::test]
async fn the_minimal_example_answers_and_ends_on_sigterm() {
    let source = include_str!("../examples/minimal.rs");
    assert!(source.lines().count() < 60);
    let (directory, path) = place();
    let machines = directory.path().join("machines.csv");
    std::fs::write(&machines, "node-1, 10.0.0.5, 8-cores, rack-a\n").unwrap();
    let child = Command::new(minimal())
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
