//! The common parts of the tests over a socket.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::panic,
    clippy::unwrap_used,
    clippy::unnecessary_wraps,
    reason = "helpers of tests"
)]

use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::time::Duration;

use cloud_provider_api::v1alpha1 as pb;
use pb::instance_service_client::InstanceServiceClient;
use pb::load_balancer_service_client::LoadBalancerServiceClient;
use pb::provider_service_client::ProviderServiceClient;
use pb::route_service_client::RouteServiceClient;
use provider_mock::{Cloud, Fixture, Mock};
use tonic::transport::Channel;

/// The limit of each wait in a test.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// Drops the call of this RPC once it has reached the mock. The mock must not answer it.
pub async fn cut_on_arrival<T: Debug>(cloud: &Cloud, rpc: &str, call: impl Future<Output = T>) {
    tokio::select! {
        biased;
        arrived = cloud.wait_until(PATIENCE, |cloud| cloud.in_flight(rpc) == 1) => assert!(arrived),
        answered = call => panic!("{answered:?}"),
    }
}

/// A mock in a directory of its own, with a connection to it.
pub struct World {
    pub directory: tempfile::TempDir,
    pub mock: Mock,
    pub channel: Channel,
}

impl World {
    pub async fn new(yaml: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let fixture = Fixture::parse(yaml, "test.yaml").unwrap();
        let mock = Mock::start(fixture, directory.path().join("s/provider.sock"), None)
            .await
            .unwrap();
        let channel = dial(&mock).await;
        let world = Self {
            directory,
            mock,
            channel,
        };
        world.initialize(&[]).await;
        world
    }

    pub async fn initialize(&self, previous: &[&str]) {
        let mut client = self.provider();
        let answer = client.initialize(pb::InitializeRequest {
            cluster: cluster("us"),
            previous_owner_ids: previous.iter().map(ToString::to_string).collect(),
            ..Default::default()
        });
        let outcome = answer.await.unwrap().into_inner().outcome;
        assert!(
            matches!(
                outcome,
                Some(pb::initialize_response::Outcome::Initialized(_))
            ),
            "{outcome:?}"
        );
    }

    pub fn provider(&self) -> ProviderServiceClient<Channel> {
        ProviderServiceClient::new(self.channel.clone())
    }
    pub fn instances(&self) -> InstanceServiceClient<Channel> {
        InstanceServiceClient::new(self.channel.clone()).max_decoding_message_size(16 * 1024 * 1024)
    }
    pub fn load_balancers(&self) -> LoadBalancerServiceClient<Channel> {
        LoadBalancerServiceClient::new(self.channel.clone())
    }
    pub fn routes(&self) -> RouteServiceClient<Channel> {
        RouteServiceClient::new(self.channel.clone())
    }

    pub async fn lookup(
        &self,
        names: &[&str],
    ) -> Result<pb::LookupInstancesResponse, tonic::Status> {
        let request = pb::LookupInstancesRequest {
            cluster: cluster("us"),
            nodes: names.iter().map(|name| node(name)).collect(),
            facets: vec![1, 2, 3],
            max_age: None,
        };
        self.instances()
            .lookup_instances(request)
            .await
            .map(tonic::Response::into_inner)
    }

    /// Each Node's state as `name=STATE`. If the whole call failed, only its code.
    pub async fn states(&self, names: &[&str]) -> Vec<String> {
        let answer = self.lookup(names).await.unwrap();
        if let Some(failed) = answer.failed {
            return vec![failed.code().as_str_name().to_owned()];
        }
        let mut states: Vec<_> = answer
            .results
            .into_iter()
            .map(|result| {
                let state = match result.outcome {
                    Some(pb::lookup_instance_result::Outcome::Found(found)) => {
                        found.state().as_str_name().replace("INSTANCE_STATE_", "")
                    }
                    Some(pb::lookup_instance_result::Outcome::Failed(failed)) => {
                        failed.code().as_str_name().replace("FAILURE_CODE_", "")
                    }
                    None => "unset".into(),
                };
                format!("{}={state}", result.node_name)
            })
            .collect();
        states.sort();
        states
    }

    pub async fn ensure(
        &self,
        service: pb::ServiceView,
        handle: Option<&str>,
        targets: &[&str],
    ) -> pb::EnsureLoadBalancerResponse {
        let request = pb::EnsureLoadBalancerRequest {
            cluster: cluster("us"),
            service: Some(service),
            handle: handle.map(Into::into),
            targets: Some(target_set(targets)),
            adopt_unmarked: false,
        };
        self.load_balancers()
            .ensure_load_balancer(request)
            .await
            .unwrap()
            .into_inner()
    }

    pub async fn get(&self, service: pb::ServiceView, targets: &[&str]) -> pb::LoadBalancer {
        let request = pb::GetLoadBalancerRequest {
            cluster: cluster("us"),
            service: Some(service),
            handle: None,
            targets: Some(target_set(targets)),
        };
        let answer = self
            .load_balancers()
            .get_load_balancer(request)
            .await
            .unwrap()
            .into_inner();
        match answer.outcome.unwrap() {
            pb::get_load_balancer_response::Outcome::Found(found) => found,
            pb::get_load_balancer_response::Outcome::Failed(failed) => panic!("{failed:?}"),
        }
    }

    pub async fn delete(
        &self,
        service: pb::ServiceView,
        handle: Option<&str>,
    ) -> pb::delete_load_balancer_response::Outcome {
        let request = pb::DeleteLoadBalancerRequest {
            cluster: cluster("us"),
            service: Some(service),
            handle: handle.map(Into::into),
            adopt_unmarked: false,
        };
        self.load_balancers()
            .delete_load_balancer(request)
            .await
            .unwrap()
            .into_inner()
            .outcome
            .unwrap()
    }
}

pub async fn dial(mock: &Mock) -> Channel {
    provider_mock::ctl::dial(&mock.endpoint()).await.unwrap()
}

pub fn cluster(owner: &str) -> Option<pb::ClusterRef> {
    Some(pb::ClusterRef {
        name: "test".into(),
        owner_id: owner.into(),
    })
}

pub fn node(name: &str) -> pb::NodeView {
    pb::NodeView {
        name: name.into(),
        uid: format!("uid-{name}"),
        ..Default::default()
    }
}

pub fn target_set(names: &[&str]) -> pb::TargetSet {
    let nodes = names.iter().map(|name| node(name)).collect();
    pb::TargetSet {
        set: Some(pb::target_set::Set::Inline(pb::TargetList { nodes })),
    }
}

pub fn service(name: &str) -> pb::ServiceView {
    pb::ServiceView {
        namespace: "default".into(),
        name: name.into(),
        uid: format!("uid-{name}"),
        r#type: "LoadBalancer".into(),
        ports: vec![pb::ServicePort {
            protocol: "TCP".into(),
            port: 80,
            node_port: Some(30080),
            ..Default::default()
        }],
        session_affinity: "None".into(),
        external_traffic_policy: "Cluster".into(),
        ..Default::default()
    }
}

pub fn example() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/cloud.yaml")
}
