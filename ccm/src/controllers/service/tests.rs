//! The loop with a provider and an API server in memory, with paused time.

mod api_server;
mod cloud;
mod faults;
mod orphans;
mod retries;
mod stuck;
mod targets;
mod trouble;

use std::sync::Arc;
use std::time::Duration;

use clap::Parser as _;
use cloud_provider_api::v1alpha1 as api;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use prometheus_client::registry::Registry;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::fixtures::{node, service};
use super::plan::has_finalizer;
use super::{Memory, Metrics, run};
use crate::args::Args;
use crate::controller::LoopContext;
use crate::core::Fence;
use crate::provider::Hint;
use crate::provider::testing::{InMemory, Running, maintained};
use crate::writes::{EventSink, Writes};
use api_server::ApiServer;
use cloud::Cloud;

struct World {
    server: ApiServer,
    /// A client with the same layer as the ccm's clients.
    client: kube::Client,
    cloud: Cloud,
    provider: InMemory,
    running: Running,
    events: EventSink,
    /// The metrics of the last loop.
    metrics: Metrics,
    memory: Arc<Memory>,
    stop: CancellationToken,
    tasks: JoinSet<()>,
    arguments: &'static [&'static str],
}

impl World {
    async fn new(nodes: usize) -> Self {
        Self::with(nodes, &[]).await
    }

    async fn with(nodes: usize, arguments: &'static [&'static str]) -> Self {
        Self::of(nodes, arguments, None).await
    }

    /// A world whose provider changes its info with `says`.
    async fn that_says(nodes: usize, says: fn(&mut api::GetProviderInfoResponse)) -> Self {
        Self::of(nodes, &[], Some(says)).await
    }

    async fn of(
        nodes: usize,
        arguments: &'static [&'static str],
        says: Option<fn(&mut api::GetProviderInfoResponse)>,
    ) -> Self {
        let server = ApiServer::new();
        for i in 0..nodes {
            server.put_node(node(&format!("n{i}")));
        }
        let cloud = Cloud::default();
        cloud.state().says = says;
        let provider = InMemory::running(cloud.service());
        let running = maintained(provider.clone());
        running.lead();
        running.session().await;
        let metrics = crate::kube_client::Metrics::register(&mut Registry::default());
        let clients =
            crate::kube_client::clients(server.client(), Fence::open(), &metrics, None, 1);
        let mut world = Self {
            server,
            client: clients.write,
            cloud,
            provider,
            running,
            events: EventSink::unwritten(),
            metrics: Metrics::register(&mut Registry::default()),
            memory: Arc::default(),
            stop: CancellationToken::new(),
            tasks: JoinSet::new(),
            arguments,
        };
        world.start();
        world
    }

    /// Starts a new loop with the memory that the loop before left.
    fn start(&mut self) {
        let mut registry = Registry::default();
        self.metrics = Metrics::register(&mut registry);
        let context = self.context(&mut registry);
        self.stop = context.stop.clone();
        let memory = Arc::clone(&self.memory);
        self.tasks.spawn(run(context, memory, self.metrics.clone()));
    }

    /// The inputs of a loop.
    fn context(&self, registry: &mut Registry) -> LoopContext {
        let arguments = [
            "ccm",
            "--provider",
            "mock=unix:///run/mock/provider.sock",
            "--provider-annotation-prefixes=cloud.example/",
        ];
        let arguments = arguments.iter().chain(self.arguments);
        let config = Args::try_parse_from(arguments).unwrap().into_config();
        LoopContext {
            provider: "mock".into(),
            config: Arc::new(config.unwrap()),
            cluster: self.server.cluster.clone(),
            watch_client: self.server.client(),
            writes: Writes {
                client: self.client.clone(),
                events: self.events.clone(),
            },
            status: self.running.status.clone(),
            fence: Fence::open(),
            wall: Arc::new(|| jiff::Timestamp::UNIX_EPOCH),
            seed: 1,
            stop: CancellationToken::new(),
            queue_metrics: crate::queue::Metrics::register(registry),
            hints: self.running.hints.clone(),
        }
    }

    async fn restart(&mut self) {
        self.stop.cancel();
        timeout(Duration::from_secs(20), self.tasks.join_next())
            .await
            .expect("it drains");
        self.start();
    }

    /// Waits until the condition holds, for at most ten minutes of paused time.
    async fn until(&self, what: &str, met: impl Fn(&Self) -> bool) {
        let deadline = Instant::now() + Duration::from_mins(10);
        while !met(self) {
            assert!(
                Instant::now() < deadline,
                "never: {what}; calls {:?}, events {:?}",
                self.cloud.state().calls,
                self.events.recorded()
            );
            sleep(Duration::from_millis(10)).await;
        }
    }

    /// Lets 20 s of paused time pass, so that only retries and lists are left to do.
    async fn rest(&self) {
        sleep(Duration::from_secs(20)).await;
    }

    fn address(&self, name: &str) -> Option<String> {
        let status = self.server.get(name)?.status?.load_balancer?;
        status.ingress?.first()?.ip.clone()
    }

    fn calls(&self) -> Vec<String> {
        self.cloud.state().calls.clone()
    }

    fn targets(&self) -> Vec<String> {
        let state = self.cloud.state();
        let balancer = state.balancers.get("uid-1");
        balancer.map_or_else(Vec::new, |balancer| balancer.targets.clone())
    }
}

fn named(i: usize) -> Service {
    let mut service = service();
    service.metadata.name = Some(format!("s{i}"));
    service.metadata.uid = Some(format!("u{i}"));
    service
}

#[tokio::test(start_paused = true)]
async fn b_s2_b_s3_b_s5_from_made_to_gone() {
    let world = World::new(2).await;
    world.server.put(&service());
    world
        .until("an address", |w| w.address("web").is_some())
        .await;
    world.rest().await;
    assert_eq!(world.calls(), ["Ensure web -"]);
    // Finalizer, then handle, then status. These writes lead to no further call.
    assert_eq!(world.server.writes(), ["web", "web", "web/status"]);
    assert_eq!(world.targets(), ["n0", "n1"]);

    world.server.edit("web", |service| {
        service.metadata.labels = Some([("a".to_owned(), "b".to_owned())].into());
    });
    world.rest().await;
    assert_eq!(world.calls().len(), 1, "a label is no input (B-S4)");

    world.server.edit("web", |service| {
        service.spec.as_mut().unwrap().ports.as_mut().unwrap()[0].port = 81;
    });
    world
        .until("a second Ensure", |w| w.cloud.called("Ensure") == 2)
        .await;
    assert_eq!(world.calls()[1], "Ensure web h-uid-1");
    world.rest().await;

    world.server.edit("web", |service| {
        service.metadata.deletion_timestamp = Some(Time(jiff::Timestamp::UNIX_EPOCH));
    });
    world
        .until("the end", |w| w.server.get("web").is_none())
        .await;
    world.rest().await;
    assert_eq!(world.calls()[2..], ["Delete web h-uid-1"]);
    assert!(world.cloud.state().balancers.is_empty());
    let events = world.events.recorded();
    for reason in [
        "EnsuringLoadBalancer",
        "EnsuredLoadBalancer",
        "DeletingLoadBalancer",
        "DeletedLoadBalancer",
    ] {
        assert!(
            events.iter().any(|event| event.contains(reason)),
            "{reason} in {events:?}"
        );
    }
}

/// Shows B-S2 and ▲M12.
#[tokio::test(start_paused = true)]
async fn b_s2_m12_an_edit_during_a_call_costs_no_second_call() {
    let world = World::new(1).await;
    world.server.put(&service());
    world
        .until("a call", |w| w.cloud.called("Ensure") == 1)
        .await;
    assert_eq!(world.address("web"), None, "the call still runs");
    world.server.edit("web", |service| {
        service.metadata.labels = Some([("a".to_owned(), "b".to_owned())].into());
    });
    world
        .until("an address", |w| w.address("web").is_some())
        .await;
    world.rest().await;
    assert_eq!(world.calls(), ["Ensure web -"]);
    assert_eq!(world.server.writes(), ["web", "web", "web/status"]);
    let now = world.server.get("web").unwrap();
    assert!(now.metadata.labels.is_some(), "the edit stays");
}

/// A job that begins with a delete has no targets. Another job, which has them, makes the next load
/// balancer.
#[tokio::test(start_paused = true)]
async fn b_s2_b_s7_a_type_that_is_changed_back_during_the_delete_gives_it_its_targets() {
    let world = World::new(1).await;
    world.server.put(&service());
    world
        .until("an address", |w| w.address("web").is_some())
        .await;
    let becomes = |what: &str| {
        world.server.edit("web", |service| {
            service.spec.as_mut().unwrap().type_ = Some(what.to_owned());
        });
    };
    becomes("ClusterIP");
    world
        .until("a call", |w| w.cloud.called("Delete") == 1)
        .await;
    becomes("LoadBalancer");
    world.rest().await;
    assert_eq!(world.targets(), ["n0"], "{:?}", world.calls());
    assert_eq!(world.cloud.called("Delete"), 1);
    assert_eq!(world.cloud.called("Ensure"), 2);
    assert!(world.address("web").is_some());
}

#[tokio::test(start_paused = true)]
async fn b_s5_s9_type_changed_and_deleted_without_the_finalizer() {
    let world = World::new(1).await;
    world.server.put(&service());
    world
        .until("an address", |w| w.address("web").is_some())
        .await;
    world.server.edit("web", |service| {
        service.spec.as_mut().unwrap().type_ = Some("ClusterIP".into());
    });
    world
        .until("the finalizer is off", |w| {
            !has_finalizer(&w.server.get("web").unwrap())
        })
        .await;
    world.rest().await;
    assert_eq!(world.address("web"), None);
    assert_eq!(world.cloud.called("Delete"), 1);
    assert!(world.cloud.state().balancers.is_empty());

    world.server.edit("web", |service| {
        service.spec.as_mut().unwrap().type_ = Some("LoadBalancer".into());
    });
    world
        .until("made again", |w| w.address("web").is_some())
        .await;
    world.server.remove("web");
    let mut anew = service();
    anew.metadata.uid = Some("uid-2".into());
    world.server.put(&anew);
    world
        .until("one gone, one made", |w| {
            let state = w.cloud.state();
            state.balancers.keys().collect::<Vec<_>>() == ["uid-2"]
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn s1_a_service_that_returns_with_a_foreign_class_is_let_go() {
    let mut world = World::new(1).await;
    world.server.put(&service());
    world
        .until("an address", |w| w.address("web").is_some())
        .await;
    // While no loop runs, the Service gets the class of another component, as after two changes of
    // its type. The former process took on a second such Service but created nothing for it.
    world.stop.cancel();
    world.tasks.join_next().await;
    world.server.edit("web", |service| {
        service.spec.as_mut().unwrap().load_balancer_class = Some("other.io/lb".into());
    });
    let mut bare = named(1);
    bare.spec.as_mut().unwrap().load_balancer_class = Some("other.io/lb".into());
    bare.metadata.finalizers = Some(vec![super::plan::FINALIZER.to_owned()]);
    let value = super::handle::render("mock", Some("u1"), Some(""), None);
    bare.metadata.annotations = Some([(super::handle::ANNOTATION.to_owned(), value)].into());
    world.server.put(&bare);
    world.memory.take();
    world.start();
    for name in ["web", "s1"] {
        world
            .until("the finalizer is off", |w| {
                !has_finalizer(&w.server.get(name).unwrap())
            })
            .await;
        let annotations = world.server.get(name).unwrap().metadata.annotations;
        let ours = annotations.is_some_and(|all| all.contains_key(super::handle::ANNOTATION));
        assert!(!ours, "{name}");
    }
    world.rest().await;
    assert!(world.cloud.state().balancers.is_empty());
    assert_eq!(world.cloud.called("Delete"), 2);
    assert_eq!(world.cloud.called("Ensure"), 1, "it is somebody else's");
    assert!(world.address("web").is_some(), "the status is theirs");
}

#[tokio::test(start_paused = true)]
async fn s19_an_annotation_that_somebody_took_off_is_written_again_with_its_handle() {
    let world = World::new(1).await;
    world.server.put(&service());
    world
        .until("an address", |w| w.address("web").is_some())
        .await;
    let annotation = |w: &World| {
        let annotations = w.server.get("web")?.metadata.annotations?;
        annotations.get(super::handle::ANNOTATION).cloned()
    };
    let before = annotation(&world);
    assert!(before.as_ref().unwrap().contains("h-uid-1"));
    world
        .server
        .edit("web", |service| service.metadata.annotations = None);
    world.until("as before", |w| annotation(w) == before).await;
    world.rest().await;
    assert_eq!(world.calls(), ["Ensure web -", "Get web -"]);
}

/// Runs with and without `in_sync`. Without `in_sync`, no Get comes before Ensure. The new leader's
/// first read of the Service fails.
#[tokio::test(start_paused = true)]
async fn s13_a_new_leader_creates_nothing_for_a_service_whose_deletion_the_watch_shows_late() {
    for in_sync in [true, false] {
        let says: fn(&mut api::GetProviderInfoResponse) = |info| {
            let capabilities = info.capabilities.as_mut().unwrap();
            capabilities.load_balancers.as_mut().unwrap().in_sync = false;
        };
        let mut world = World::of(1, &[], (!in_sync).then_some(says)).await;
        world.server.put(&service());
        world
            .until("an address", |w| w.address("web").is_some())
            .await;
        world.rest().await;
        world.stop.cancel();
        world.tasks.join_next().await;
        // The former leader deletes the load balancer and releases the Service.
        world.server.cut_watch();
        world.server.remove("web");
        world.cloud.state().balancers.clear();
        world.memory.take();
        world.server.fail_reads(1);
        world.start();
        world.until("two reads", |w| w.server.reads() == 2).await;
        world.rest().await;
        assert_eq!(world.cloud.called("Ensure"), 1, "{:?}", world.calls());
        assert!(world.cloud.state().balancers.is_empty());
        let events = world.events.recorded();
        let told = |event: &String| event.contains("failed to read the Service");
        assert!(events.iter().any(told), "{events:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn s13_a_restart_makes_no_mutating_call() {
    let mut world = World::new(3).await;
    for i in 0..100 {
        world.server.put(&named(i));
    }
    world
        .until("all made", |w| {
            (0..100).all(|i| w.address(&format!("s{i}")).is_some())
        })
        .await;
    assert_eq!(world.cloud.called("Ensure"), 100);
    assert_eq!(
        world.cloud.state().running.1,
        4,
        "as many as it takes at once"
    );
    world.rest().await;
    let writes = world.server.writes().len();

    world.restart().await;
    world
        .until("all asked", |w| w.cloud.called("Get") == 100)
        .await;
    world.rest().await;
    assert_eq!(world.calls().len(), 200);
    assert_eq!(world.server.writes().len(), writes);

    // The new loop notices a change that happened while no loop ran.
    world.stop.cancel();
    world.tasks.join_next().await;
    world.cloud.state().balancers.remove("u7");
    world.start();
    world
        .until("one more Ensure", |w| w.cloud.called("Ensure") == 101)
        .await;
    // A hint about a Service leads to a Get.
    let gets = world.cloud.called("Get");
    let hint = Hint::LoadBalancer {
        namespace: "default".into(),
        name: "s9".into(),
    };
    world.rest().await;
    world.running.hints.send(hint).unwrap();
    world
        .until("a Get", |w| w.cloud.called("Get") > gets.max(200))
        .await;
}
