//! A provider process in memory with instances: one for each Node that is looked up, unless a test
//! says otherwise.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use api::instance_service_server::{InstanceService, InstanceServiceServer};
use api::provider_service_server::{ProviderService, ProviderServiceServer};
use api::zone_service_server::{ZoneService, ZoneServiceServer};
use cloud_provider_api::v1alpha1 as api;
use futures::stream::{BoxStream, StreamExt as _, iter};
use provider_sdk::GrpcService;
use tonic::{Request, Response, Status};
use tower::util::BoxCloneSyncService;

type Answer<T> = Result<Response<T>, Status>;

/// The process. Clones share it.
#[derive(Clone)]
pub(crate) struct Cloud(Arc<Mutex<State>>);

pub(crate) struct State {
    /// States of instances by Node name. The default is RUNNING.
    pub(crate) states: BTreeMap<String, api::InstanceState>,
    /// A LookupInstances with one of these Nodes fails as a whole.
    pub(crate) poison: BTreeSet<String>,
    /// A LookupInstances with one of these Nodes is never answered.
    pub(crate) hang: BTreeSet<String>,
    /// A LookupInstances with one of these Nodes takes this long instead of `delay`.
    pub(crate) slow: BTreeMap<String, Duration>,
    /// `Some`: LookupZones is offered. LookupInstances has a zone only for the Nodes in
    /// `Zones::reported`.
    pub(crate) zones: Option<Zones>,
    /// The answers for a Node in place of its instance, once each.
    pub(crate) instead: BTreeMap<String, VecDeque<Instead>>,
    /// The next calls of LookupInstances fail as a whole with these codes.
    pub(crate) failures: VecDeque<api::FailureCode>,
    /// The `retry_after` of these failures.
    pub(crate) retry_after: Option<Duration>,
    pub(crate) listing: ListingEnd,
    /// How long the listing takes.
    pub(crate) listing_takes: Duration,
    /// The number of listings so far.
    pub(crate) listings: usize,
    /// The provider IDs in the listing. An empty one stands for an instance without provider ID.
    pub(crate) listed: Vec<String>,
    /// The first bytes of each InternalIP.
    pub(crate) network: String,
    /// How long a LookupInstances takes.
    pub(crate) delay: Duration,
    /// How much longer a lookup takes for each Node in it.
    pub(crate) per_node: Duration,
    pub(crate) probe: api::ProbeState,
    pub(crate) offered: api::InstanceCapability,
    pub(crate) deadlines: api::DeadlineHints,
    /// The parts of Nodes that the provider reads.
    pub(crate) projection: api::NodeProjection,
    /// The Nodes of each LookupInstances, by name.
    pub(crate) lookups: Vec<Vec<String>>,
    /// The time of each LookupInstances.
    pub(crate) times: Vec<tokio::time::Instant>,
    /// The reads that a cloud without batches would need: one for each instance's existence. For
    /// the facet POWER, one more for each instance that exists.
    pub(crate) reads: usize,
    /// The number of Initialize calls so far.
    pub(crate) initialized: usize,
    boot: u32,
}

impl Cloud {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Mutex::new(State {
            states: BTreeMap::new(),
            poison: BTreeSet::new(),
            hang: BTreeSet::new(),
            slow: BTreeMap::new(),
            zones: None,
            instead: BTreeMap::new(),
            failures: VecDeque::new(),
            retry_after: None,
            listing: ListingEnd::Whole,
            listing_takes: Duration::ZERO,
            listings: 0,
            listed: Vec::new(),
            network: "10.0".to_owned(),
            delay: Duration::from_millis(50),
            per_node: Duration::ZERO,
            probe: api::ProbeState::Ready,
            offered: api::InstanceCapability {
                max_batch: Some(100),
                listing: true,
                power_state: true,
                max_in_flight: Some(8),
            },
            deadlines: api::DeadlineHints::default(),
            projection: api::NodeProjection::default(),
            lookups: Vec::new(),
            times: Vec::new(),
            reads: 0,
            initialized: 0,
            boot: 0,
        })))
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    /// A new process for the same cloud.
    pub(crate) fn service(&self) -> GrpcService {
        self.state().boot += 1;
        let routes = tonic::service::Routes::new(ProviderServiceServer::new(self.clone()))
            .add_service(InstanceServiceServer::new(self.clone()))
            .add_service(ZoneServiceServer::new(self.clone()));
        let routes =
            <_ as tower::ServiceExt<http::Request<tonic::body::Body>>>::map_err(routes, Into::into);
        BoxCloneSyncService::new(routes)
    }
}

/// The state of LookupZones.
#[derive(Default)]
pub(crate) struct Zones {
    /// A LookupZones with one of these Nodes is never answered.
    pub(crate) hang: BTreeSet<String>,
    /// The Nodes for which LookupInstances already has a zone.
    pub(crate) reported: BTreeSet<String>,
    /// The Nodes of each LookupZones, by name.
    pub(crate) lookups: Vec<Vec<String>>,
}

/// An answer for a Node in place of an instance.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Instead {
    /// A failure with this code.
    Failed(i32),
    /// A result without an outcome.
    Nothing,
}

/// How ListInstances ends.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ListingEnd {
    Whole,
    /// Without the last part, so it is not complete.
    Cut,
    Failed(api::FailureCode),
    /// There is no answer.
    Hangs,
}

fn failure(code: i32) -> api::Failure {
    api::Failure {
        code,
        message: "on purpose".to_owned(),
        ..api::Failure::default()
    }
}

impl State {
    fn boot_id(&self) -> String {
        format!("boot-{}", self.boot)
    }

    fn result(&mut self, node: &api::NodeView) -> api::LookupInstanceResult {
        let instead = self.instead.get_mut(&node.name);
        let outcome = match instead.and_then(VecDeque::pop_front) {
            None => return self.found(node),
            Some(Instead::Nothing) => None,
            Some(Instead::Failed(code)) => {
                Some(api::lookup_instance_result::Outcome::Failed(failure(code)))
            }
        };
        api::LookupInstanceResult {
            node_name: node.name.clone(),
            node_uid: node.uid.clone(),
            outcome,
        }
    }

    fn found(&self, node: &api::NodeView) -> api::LookupInstanceResult {
        let state = self.states.get(&node.name).copied();
        let number: String = node.name.chars().filter(char::is_ascii_digit).collect();
        let number: u32 = number.parse().unwrap_or(0);
        let zones = self.zones.as_ref();
        let reported = zones.is_some_and(|zones| zones.reported.contains(&node.name));
        let instance = api::Instance {
            zone: reported.then(|| "z".to_owned()),
            region: reported.then(|| "r".to_owned()),
            state: state.unwrap_or(api::InstanceState::Running).into(),
            provider_id: Some(format!("mock://{}", node.name)),
            instance_type: Some("small".to_owned()),
            addresses: vec![api::NodeAddress {
                r#type: api::NodeAddressType::InternalIp.into(),
                address: format!("{}.{}.{}", self.network, number / 256, number % 256),
            }],
            ..api::Instance::default()
        };
        api::LookupInstanceResult {
            node_name: node.name.clone(),
            node_uid: node.uid.clone(),
            outcome: Some(api::lookup_instance_result::Outcome::Found(instance)),
        }
    }
}

#[tonic::async_trait]
impl ProviderService for Cloud {
    async fn get_provider_info(
        &self,
        _request: Request<api::GetProviderInfoRequest>,
    ) -> Answer<api::GetProviderInfoResponse> {
        let state = self.state();
        Ok(Response::new(api::GetProviderInfoResponse {
            provider_name: "mock".to_owned(),
            provider_version: "1.0.0".to_owned(),
            boot_id: state.boot_id(),
            provider_id_prefixes: vec!["mock://".to_owned()],
            capabilities: Some(api::Capabilities {
                instances: Some(state.offered),
                zones: state.zones.is_some().then(api::ZoneCapability::default),
                ..api::Capabilities::default()
            }),
            node_projection: Some(state.projection.clone()),
            ..api::GetProviderInfoResponse::default()
        }))
    }

    async fn initialize(
        &self,
        _request: Request<api::InitializeRequest>,
    ) -> Answer<api::InitializeResponse> {
        let mut state = self.state();
        state.initialized += 1;
        let initialized = api::Initialized {
            cloud_scope: "account 1".to_owned(),
            deadline_hints: Some(state.deadlines),
            ..api::Initialized::default()
        };
        Ok(Response::new(api::InitializeResponse {
            outcome: Some(api::initialize_response::Outcome::Initialized(initialized)),
        }))
    }

    async fn probe(&self, _request: Request<api::ProbeRequest>) -> Answer<api::ProbeResponse> {
        let state = self.state();
        Ok(Response::new(api::ProbeResponse {
            state: state.probe.into(),
            boot_id: state.boot_id(),
            ..api::ProbeResponse::default()
        }))
    }

    type WatchChangesStream = BoxStream<'static, Result<api::WatchChangesResponse, Status>>;

    async fn watch_changes(
        &self,
        _request: Request<api::WatchChangesRequest>,
    ) -> Answer<Self::WatchChangesStream> {
        Err(Status::unimplemented("not offered"))
    }
}

#[tonic::async_trait]
impl InstanceService for Cloud {
    async fn lookup_instances(
        &self,
        request: Request<api::LookupInstancesRequest>,
    ) -> Answer<api::LookupInstancesResponse> {
        let request = request.into_inner();
        let nodes = request.nodes;
        let power = i32::from(api::InstanceFacet::Power);
        let delay = {
            let mut state = self.state();
            state.reads += nodes.len();
            if request.facets.contains(&power) {
                let absent = Some(&api::InstanceState::Absent);
                let there = nodes
                    .iter()
                    .filter(|node| state.states.get(&node.name) != absent);
                state.reads += there.count();
            }
            let names = nodes.iter().map(|node| node.name.clone()).collect();
            state.lookups.push(names);
            state.times.push(tokio::time::Instant::now());
            let slow = nodes.iter().filter_map(|node| state.slow.get(&node.name));
            let count = u32::try_from(nodes.len()).unwrap();
            slow.max().copied().unwrap_or(state.delay) + state.per_node * count
        };
        tokio::time::sleep(delay).await;
        let hangs = nodes
            .iter()
            .any(|node| self.state().hang.contains(&node.name));
        if hangs {
            std::future::pending::<()>().await;
        }
        let mut state = self.state();
        if nodes.iter().any(|node| state.poison.contains(&node.name)) {
            return Err(Status::unknown("a handler died"));
        }
        if let Some(code) = state.failures.pop_front() {
            return Ok(Response::new(api::LookupInstancesResponse {
                failed: Some(api::Failure {
                    retry_after: state.retry_after.map(|after| after.try_into().unwrap()),
                    ..failure(code.into())
                }),
                results: Vec::new(),
            }));
        }
        Ok(Response::new(api::LookupInstancesResponse {
            failed: None,
            results: nodes.iter().map(|node| state.result(node)).collect(),
        }))
    }

    type ListInstancesStream = BoxStream<'static, Result<api::ListInstancesResponse, Status>>;

    async fn list_instances(
        &self,
        _request: Request<api::ListInstancesRequest>,
    ) -> Answer<Self::ListInstancesStream> {
        use api::list_instances_response::Part;
        let (listing, takes) = {
            let mut state = self.state();
            state.listings += 1;
            (state.listing, state.listing_takes)
        };
        if let ListingEnd::Hangs = listing {
            std::future::pending::<()>().await;
        }
        if !takes.is_zero() {
            tokio::time::sleep(takes).await;
        }
        let listed = self.state().listed.clone();
        let end = api::ListEnd {
            total: listed.len() as u64,
        };
        let instances = listed.into_iter().map(|id| api::Instance {
            state: api::InstanceState::Present.into(),
            provider_id: Some(id).filter(|id| !id.is_empty()),
            ..api::Instance::default()
        });
        let instances = api::InstanceList {
            instances: instances.collect(),
        };
        let mut parts = vec![Part::Instances(instances)];
        match listing {
            ListingEnd::Whole => parts.push(Part::End(end)),
            ListingEnd::Failed(code) => parts.push(Part::Failed(failure(code.into()))),
            ListingEnd::Cut | ListingEnd::Hangs => {}
        }
        let parts = parts
            .into_iter()
            .map(|part| Ok(api::ListInstancesResponse { part: Some(part) }));
        Ok(Response::new(iter(parts).boxed()))
    }
}

#[tonic::async_trait]
impl ZoneService for Cloud {
    async fn lookup_zones(
        &self,
        request: Request<api::LookupZonesRequest>,
    ) -> Answer<api::LookupZonesResponse> {
        let nodes = request.into_inner().nodes;
        let hangs = {
            let mut state = self.state();
            let zones = state.zones.as_mut().unwrap();
            let names: Vec<String> = nodes.iter().map(|node| node.name.clone()).collect();
            let hangs = names.iter().any(|name| zones.hang.contains(name));
            zones.lookups.push(names);
            hangs
        };
        if hangs {
            std::future::pending::<()>().await;
        }
        let result = |node: &api::NodeView| api::LookupZoneResult {
            node_name: node.name.clone(),
            node_uid: node.uid.clone(),
            outcome: Some(api::lookup_zone_result::Outcome::Zone(api::Zone {
                zone: Some("z".to_owned()),
                region: Some("r".to_owned()),
            })),
        };
        Ok(Response::new(api::LookupZonesResponse {
            failed: None,
            results: nodes.iter().map(result).collect(),
        }))
    }
}
