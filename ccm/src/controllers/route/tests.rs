//! The whole loop with paused time: an API server in memory, and the mock provider behind a pipe in
//! memory.

mod failed;
mod faults;
mod locks;
mod looks;
mod provider;
mod reported;

use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, NodeAddress};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use prometheus_client::registry::Registry;
use provider_mock::{Cloud, Fault, FaultKind, Fixture, Instance, Route};
use provider_sdk::FailureCode;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::{Metrics, run};
use crate::controller::LoopContext;
use crate::controllers::node::testing::FakeApi;
use crate::provider::testing::{InMemory, Running, maintained_probed};
use crate::provider::{Hint, PROBE_PERIOD, ProviderStatus};

/// The flags of the ccm.
const FLAGS: [&str; 2] = [
    "--allocate-node-cidrs",
    "--cluster-cidr=10.8.0.0/13,fd00:8::/32",
];

fn name(i: usize) -> String {
    format!("n{i:04}")
}

fn cidr(i: usize) -> String {
    format!("10.{}.{}.0/24", 8 + i / 250, i % 250)
}

fn node(i: usize) -> Node {
    let mut node = Node::default();
    node.metadata.name = Some(name(i));
    node.metadata.creation_timestamp = Some(Time(jiff::Timestamp::UNIX_EPOCH));
    let spec = node.spec.get_or_insert_default();
    spec.provider_id = Some(format!("mock://{}", name(i)));
    spec.pod_cidrs = Some(vec![cidr(i)]);
    node.status.get_or_insert_default().addresses = Some(vec![address(i, 1)]);
    node
}

fn address(i: usize, network: usize) -> NodeAddress {
    NodeAddress {
        type_: "InternalIP".to_owned(),
        address: format!("10.{network}.{}.{}", i / 256, i % 256),
    }
}

fn instance(i: usize) -> Instance {
    let mut instance = Instance::new(name(i));
    instance.provider_id = format!("mock://{}", name(i));
    instance
}

struct World {
    api: FakeApi,
    cloud: Cloud,
    process: InMemory,
    provider: Running,
    context: LoopContext,
    tasks: JoinSet<()>,
    registry: Registry,
    /// The metrics of the running loop.
    metrics: Option<Metrics>,
}

impl World {
    async fn new(nodes: usize, settings: impl FnOnce(&mut Fixture)) -> Self {
        Self::probed(nodes, PROBE_PERIOD, settings).await
    }

    /// For tests that take days of paused time.
    async fn of_days(nodes: usize) -> Self {
        Self::probed(nodes, Duration::from_hours(1), |_| {}).await
    }

    async fn probed(
        nodes: usize,
        probe_period: Duration,
        settings: impl FnOnce(&mut Fixture),
    ) -> Self {
        let mut fixture = Fixture {
            instances: (0..nodes).map(instance).collect(),
            ..Fixture::default()
        };
        settings(&mut fixture);
        let api = FakeApi::default();
        for i in 0..nodes {
            api.put(&node(i));
        }
        let cloud = Cloud::new(fixture).unwrap();
        let process = InMemory::default();
        start(&process, &cloud).await;
        let provider = maintained_probed(process.clone(), probe_period);
        let context = api.context_with(provider.status.clone(), &FLAGS);
        Self {
            api,
            cloud,
            process,
            provider,
            context,
            tasks: JoinSet::new(),
            registry: Registry::default(),
            metrics: None,
        }
    }

    /// A ccm that leads and has started.
    async fn started(nodes: usize, settings: impl FnOnce(&mut Fixture)) -> Self {
        let mut world = Self::new(nodes, settings).await;
        world.lead().await;
        world
    }

    async fn lead(&mut self) {
        self.provider.lead();
        self.provider
            .until("a session", |status| status.session.is_some())
            .await;
        self.run();
    }

    /// Starts a new loop without memory.
    fn run(&mut self) {
        self.context.stop = tokio_util::sync::CancellationToken::new();
        let metrics = Metrics::register(&mut self.registry);
        // `run` passes the provider's hints to the loops in this way.
        self.context.hints = self.provider.hints.clone();
        self.metrics = Some(metrics.clone());
        self.tasks.spawn(run(self.context.clone(), metrics));
    }

    /// The status page's text about routes.
    fn page(&self) -> String {
        let metrics = self.metrics.as_ref().unwrap();
        metrics.status_lines().join("; ")
    }

    /// How many routes the metric of ▲M7 shows as failing.
    fn failing(&self) -> i64 {
        let metrics = self.metrics.as_ref().unwrap();
        metrics.failing.get_or_create(&"mock".into()).get()
    }

    /// Kills the loop at once, whatever it is doing.
    async fn kill_ccm(&mut self) {
        self.tasks.shutdown().await;
    }

    /// Stops the loop gracefully.
    async fn stop_ccm(&mut self) {
        self.context.stop.cancel();
        let ended = tokio::time::timeout(Duration::from_secs(20), self.tasks.join_next());
        ended.await.expect("it drains").unwrap().unwrap();
    }

    /// Waits until the condition holds, for at most an hour of paused time. Returns how long it
    /// took.
    #[track_caller]
    fn until<'a>(
        &'a self,
        what: &'a str,
        wanted: impl Fn(&Self) -> bool + 'a,
    ) -> impl Future<Output = Duration> + 'a {
        let at = std::panic::Location::caller();
        async move {
            let start = Instant::now();
            while !wanted(self) {
                assert!(
                    start.elapsed() < Duration::from_hours(1),
                    "{at}: never came: {what}; routes {:?}, events {:?}, calls {:?}",
                    self.routes(),
                    self.events(),
                    self.cloud.call_counts()
                );
                sleep(Duration::from_millis(50)).await;
            }
            start.elapsed()
        }
    }

    /// `destination node` of each route in the cloud.
    fn routes(&self) -> Vec<String> {
        let mut routes: Vec<String> = self
            .cloud
            .routes()
            .into_iter()
            .map(|route| {
                let node = route.node_name.unwrap_or_default();
                format!("{} {node}", route.destination_cidr)
            })
            .collect();
        routes.sort();
        routes
    }

    /// Whether each of the first `nodes` Nodes has one route, and no other route exists.
    fn routed(&self, nodes: usize) -> bool {
        let mut wanted: Vec<String> = (0..nodes)
            .map(|i| format!("{} {}", cidr(i), name(i)))
            .collect();
        wanted.sort();
        self.routes() == wanted
    }

    /// The condition NetworkUnavailable, as `status reason`.
    fn condition(&self, i: usize) -> String {
        let node = self.api.node(&name(i)).unwrap();
        let conditions = node.status.and_then(|status| status.conditions);
        let mut conditions = conditions.unwrap_or_default().into_iter();
        let found = conditions.find(|condition| condition.type_ == "NetworkUnavailable");
        found.map_or_else(String::new, |found| {
            format!("{} {}", found.status, found.reason.unwrap_or_default())
        })
    }

    fn all_created(&self, nodes: usize) -> bool {
        (0..nodes).all(|i| self.condition(i) == "False RouteCreated")
    }

    fn lists(&self) -> u64 {
        self.cloud.call_count("ListRoutes")
    }

    fn creates(&self) -> u64 {
        self.cloud.call_count("CreateRoutes")
    }

    fn deletes(&self) -> u64 {
        self.cloud.call_count("DeleteRoutes")
    }

    fn events(&self) -> Vec<String> {
        self.context.writes.events.recorded()
    }

    fn fault(&self, fault: Fault) {
        self.cloud.set_fault(fault).unwrap();
    }

    fn join(&self, i: usize) {
        self.cloud.add_instance(instance(i)).unwrap();
        self.api.put(&node(i));
    }

    /// Adds the routes of the Nodes with these numbers to the cloud.
    fn plant(&self, numbers: std::ops::Range<usize>) {
        for i in numbers {
            let mut route = Route::new(format!("r{i}"), cidr(i));
            route.node_name = Some(name(i));
            route.provider_id = Some(format!("mock://{}", name(i)));
            route.owner_id = Some("owner".to_owned());
            self.cloud.plant_route(route).unwrap();
        }
    }
}

/// Starts the provider's process. A fault may kill this process.
async fn start(process: &InMemory, cloud: &Cloud) {
    let dies = process.clone();
    let service = provider_mock::service(cloud, move |_| dies.kill()).await;
    process.start(service.unwrap());
}
