//! The loop with the mock provider and an API server, both in memory.

mod api_server;
mod faults;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use clap::Parser as _;
use k8s_openapi::api::core::v1::PersistentVolume;
use provider_mock::{Cloud, Fixture};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::Worker;
use super::plan::MARK;
use crate::args::Args;
use crate::cluster::Cluster;
use crate::controller::LoopContext;
use crate::core::Fence;
use crate::provider::testing::{InMemory, Running, maintained};
use crate::writes::{EventSink, Writes};
use api_server::ApiServer;

const ZONE: &str = "topology.kubernetes.io/zone";
const REGION: &str = "topology.kubernetes.io/region";
const DRIVER: &str = "disk.mock.grpc-ccm.io";
const GET: &str = "GetVolumeLabels";

struct Bench {
    api: ApiServer,
    cloud: Cloud,
    provider: InMemory,
    running: Running,
    events: EventSink,
    stop: CancellationToken,
    loop_: JoinHandle<()>,
}

impl Bench {
    /// A running loop. The cloud has the disks d-1 to d-3 in zone a.
    async fn new() -> Self {
        let bench = Self::not_leading().await;
        bench.running.lead();
        bench.running.session().await;
        bench
    }

    async fn not_leading() -> Self {
        let labels = BTreeMap::from([
            (ZONE.to_owned(), "a".to_owned()),
            (REGION.to_owned(), "r".to_owned()),
        ]);
        let disks = ["d-1", "d-2", "d-3"].map(|disk| (disk.to_owned(), labels.clone()));
        let fixture = Fixture {
            volumes: disks.into(),
            ..Fixture::default()
        };
        let cloud = Cloud::new(fixture).unwrap();
        let provider = InMemory::default();
        let running = maintained(provider.clone());
        let api = ApiServer::default();
        let events = EventSink::unwritten();
        let stop = CancellationToken::new();
        let loop_ = start(&api, &running, &events, &stop);
        let bench = Self {
            api,
            cloud,
            provider,
            running,
            events,
            stop,
            loop_,
        };
        bench.start_provider().await;
        bench
    }

    /// Starts a provider process that a scripted crash kills.
    async fn start_provider(&self) {
        let killed = self.provider.clone();
        let service = provider_mock::service(&self.cloud, move |_| killed.kill());
        self.provider.start(service.await.unwrap());
    }

    /// Ends the loop and starts it again without memory, as a new process.
    async fn restart(&mut self) {
        self.stop.cancel();
        let ended = timeout(Duration::from_secs(1), &mut self.loop_).await;
        ended.expect("it drains").unwrap();
        self.stop = CancellationToken::new();
        self.loop_ = start(&self.api, &self.running, &self.events, &self.stop);
    }

    /// Waits (in tokio's time) until the volume is done.
    async fn labelled(&self, name: &str) -> PersistentVolume {
        let started = Instant::now();
        loop {
            let volume = self.api.volume(name);
            if annotation(&volume, MARK).is_some() {
                return volume;
            }
            assert!(
                started.elapsed() < Duration::from_mins(40),
                "{name} is not labelled: {:?}",
                self.events.recorded()
            );
            sleep(Duration::from_millis(50)).await;
        }
    }

    fn calls(&self) -> u64 {
        self.cloud.call_count(GET)
    }

    fn reported(&self, reason: &str) -> usize {
        let events = self.events.recorded();
        events.iter().filter(|event| event.contains(reason)).count()
    }
}

fn start(
    api: &ApiServer,
    running: &Running,
    events: &EventSink,
    stop: &CancellationToken,
) -> JoinHandle<()> {
    let config = Args::try_parse_from(["ccm"]).unwrap().into_config();
    let mut registry = prometheus_client::registry::Registry::default();
    let context = LoopContext {
        provider: "mock".into(),
        config: Arc::new(config.unwrap()),
        cluster: Cluster::default(),
        watch_client: api.client(),
        writes: Writes::new(api.client(), events.clone()),
        status: running.status.clone(),
        fence: Fence::open(),
        wall: Arc::new(|| jiff::Timestamp::UNIX_EPOCH),
        seed: 1,
        stop: stop.clone(),
        queue_metrics: crate::queue::Metrics::register(&mut registry),
        hints: running.hints.clone(),
    };
    let worker = Arc::new(Worker::new(context, api.store.clone()));
    tokio::spawn(async move { crate::controller::run(&worker).await })
}

fn disk(name: &str, handle: &str) -> Value {
    json!({
        "metadata": {"name": name},
        "spec": {"csi": {"driver": DRIVER, "volumeHandle": handle}},
    })
}

fn annotation<'a>(volume: &'a PersistentVolume, key: &str) -> Option<&'a str> {
    let annotations = volume.metadata.annotations.as_ref()?;
    annotations.get(key).map(String::as_str)
}

fn label<'a>(volume: &'a PersistentVolume, key: &str) -> Option<&'a str> {
    let labels = volume.metadata.labels.as_ref()?;
    labels.get(key).map(String::as_str)
}

/// The keys of the first term.
fn required(volume: &PersistentVolume) -> Vec<String> {
    let spec = volume.spec.as_ref().unwrap();
    let affinity = spec.node_affinity.clone().unwrap_or_default();
    let terms = affinity.required.unwrap_or_default().node_selector_terms;
    let first = terms.into_iter().next().unwrap_or_default();
    let expressions = first.match_expressions.unwrap_or_default();
    expressions.into_iter().map(|it| it.key).collect()
}

#[tokio::test(start_paused = true)]
async fn b_v1_a_new_volume_is_labelled_with_one_call_and_one_write_and_never_again() {
    let mut bench = Bench::new().await;
    bench.api.put(disk("pv", "d-1"));
    let volume = bench.labelled("pv").await;
    assert_eq!(
        (label(&volume, ZONE), label(&volume, REGION)),
        (Some("a"), Some("r"))
    );
    assert_eq!(required(&volume), [REGION, ZONE]);
    assert_eq!((bench.calls(), bench.api.patches().len()), (1, 1));
    assert_eq!(bench.events.recorded(), Vec::<String>::new());

    // After a restart of the ccm and of the provider, the ccm neither asks about this volume nor
    // writes to it.
    bench.restart().await;
    bench.start_provider().await;
    bench.api.put(disk("another", "d-2"));
    bench.labelled("another").await;
    assert_eq!((bench.calls(), bench.api.patches().len()), (2, 2));

    // A volume of the same name without the annotation leads to another request.
    let mut again = disk("pv", "d-1");
    again["metadata"]["labels"] = json!({ZONE: "wrong"});
    bench.api.put(again);
    let volume = bench.labelled("pv").await;
    assert_eq!(label(&volume, ZONE), Some("a"));
}

#[tokio::test(start_paused = true)]
async fn b_v1_volumes_of_other_sources_are_not_asked_about() {
    let bench = Bench::new().await;
    bench
        .api
        .put(json!({"metadata": {"name": "dir"}, "spec": {"hostPath": {"path": "/d"}}}));
    let mut other = disk("other", "d-1");
    other["spec"]["csi"]["driver"] = "disk.example.org".into();
    bench.api.put(other);
    bench.api.put(disk("pv", "d-1"));
    bench.labelled("pv").await;
    assert_eq!((bench.calls(), bench.api.patches().len()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn b_v1_node_affinity_that_cannot_be_changed_costs_the_affinity_and_not_the_labels() {
    let mut bench = Bench::new().await;
    let mut fixed = disk("pv", "d-1");
    let expression = json!({"key": "disk", "operator": "In", "values": ["ssd"]});
    fixed["spec"]["nodeAffinity"] =
        json!({"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}});
    bench.api.put(fixed);
    let volume = bench.labelled("pv").await;
    assert_eq!(label(&volume, ZONE), Some("a"));
    assert_eq!(required(&volume), ["disk"]);
    assert_eq!(
        bench.reported("VolumeAffinityNotSet"),
        1,
        "{:?}",
        bench.events.recorded()
    );
    sleep(Duration::from_hours(2)).await;
    bench.restart().await;
    sleep(Duration::from_hours(2)).await;
    assert_eq!(
        (bench.calls(), bench.api.patches().len()),
        (1, 2),
        "no endless retry"
    );
}

#[tokio::test(start_paused = true)]
async fn b_v1_a_patch_that_fails_each_time_is_told_once() {
    let bench = Bench::new().await;
    for _ in 0..10 {
        bench.api.answer_next_patch(500);
    }
    bench.api.put(disk("pv", "d-1"));
    while bench.api.patches().len() < 5 {
        sleep(Duration::from_millis(50)).await;
    }
    sleep(Duration::from_millis(50)).await;
    assert_eq!(bench.reported("VolumeWriteRefused"), 0);
    bench.labelled("pv").await;
    assert_eq!(bench.api.patches().len(), 11);
    assert_eq!(bench.reported("Warning VolumeWriteRefused"), 1);
}

#[tokio::test(start_paused = true)]
async fn b_v1_as_many_volumes_at_once_as_the_provider_allows() {
    let bench = Bench::new().await;
    bench
        .cloud
        .set_latency(GET, Duration::from_secs(1))
        .unwrap();
    let started = Instant::now();
    for number in 0..24 {
        bench.api.put(disk(&format!("pv-{number}"), "d-1"));
    }
    for number in 0..24 {
        bench.labelled(&format!("pv-{number}")).await;
    }
    // 24 calls of a second each, 8 at once.
    let took = started.elapsed();
    assert!(
        (Duration::from_secs(3)..Duration::from_secs(5)).contains(&took),
        "{took:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn b_v1_a_write_that_takes_long_keeps_no_volume_from_being_asked_about() {
    let bench = Bench::new().await;
    bench
        .cloud
        .set_latency(GET, Duration::from_secs(1))
        .unwrap();
    bench.api.delay_patches(Duration::from_secs(10));
    let started = Instant::now();
    for number in 0..24 {
        bench.api.put(disk(&format!("pv-{number}"), "d-1"));
    }
    for number in 0..24 {
        bench.labelled(&format!("pv-{number}")).await;
    }
    // Three rounds of 8 lookups and the writes of the last round. It would be 33 s if each write
    // held a place of a call.
    let took = started.elapsed();
    assert!(took < Duration::from_secs(15), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn m9_the_loop_stops_at_once_and_begins_no_write() {
    let bench = Bench::new().await;
    bench
        .cloud
        .set_latency(GET, Duration::from_secs(30))
        .unwrap();
    bench.api.put(disk("pv", "d-1"));
    sleep(Duration::from_secs(1)).await;
    bench.stop.cancel();
    timeout(Duration::from_secs(1), bench.loop_)
        .await
        .expect("it stops")
        .unwrap();
    assert_eq!(bench.api.patches().len(), 0);
}
