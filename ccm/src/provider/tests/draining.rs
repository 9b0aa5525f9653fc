//! The calls in flight when a provider ends (CORE-17). If it drains to the end, each call gets its
//! own answer. These tests use a real socket and the SDK's server.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use api::ensure_load_balancer_response::Outcome;
use cloud_provider_api::v1alpha1 as api;
use provider_sdk::prelude::*;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::super::connect::UnixConnector;
use super::super::testing::{Running, maintained};
use super::super::{BalancerAnswer, CallError, CallErrorCode, Session};
use crate::core::Fence;

/// The longest wait of a test.
const SOON: Duration = Duration::from_mins(1);

/// The longest drain of most processes. A drain ends with its calls.
const DRAIN: Duration = Duration::from_mins(5);

/// A cloud whose Ensure lasts until the test lets it go on.
#[derive(Clone)]
struct Slow {
    name: &'static str,
    /// How many calls of Ensure began.
    ensuring: Arc<watch::Sender<usize>>,
    goes_on: Arc<Semaphore>,
}

#[async_trait]
impl Provider for Slow {
    fn info(&self) -> ProviderInfo {
        ProviderInfo::new("slow", "1.0.0").provider_id_prefix("slow://")
    }

    async fn initialize(&self, _: &Call, _: &InitializeRequest) -> Result<Initialized, Failure> {
        Ok(Initialized::new("here"))
    }

    fn instances(&self) -> Option<&dyn Instances> {
        Some(self)
    }

    fn load_balancers(&self) -> Option<&dyn LoadBalancers> {
        Some(self)
    }
}

#[async_trait]
impl Instances for Slow {
    async fn lookup(&self, _: &Call, node: &Node, _: &InstanceQuery) -> Result<Instance, Failure> {
        Ok(Instance::present(format!("slow://{}", node.name)))
    }
}

#[async_trait]
impl LoadBalancers for Slow {
    async fn get(&self, _: &Call, _: &GetLoadBalancer) -> LoadBalancerResult<LoadBalancer> {
        Ok(LoadBalancer::absent().into())
    }

    async fn ensure(&self, _: &Call, _: &EnsureLoadBalancer) -> LoadBalancerResult<Ensured> {
        self.ensuring.send_modify(|count| *count += 1);
        self.goes_on.acquire().await.unwrap().forget();
        let ready = Ensured::Ready(LoadBalancerStatus::ips(["192.0.2.1"]));
        Ok(Answer::from(ready).with_handle(self.name))
    }

    async fn update(&self, _: &Call, _: &UpdateLoadBalancer) -> LoadBalancerResult<Updated> {
        Ok(Updated::Done.into())
    }

    async fn delete(&self, _: &Call, _: &DeleteLoadBalancer) -> LoadBalancerResult<Deleted> {
        Ok(Deleted::Done.into())
    }
}

struct Process {
    slow: Slow,
    terminate: CancellationToken,
    connections: Connections,
    over: JoinSet<Result<(), ServeError>>,
}

impl Process {
    fn start(socket: &Path, name: &'static str, drain: Duration) -> Self {
        let slow = Slow {
            name,
            ensuring: Arc::new(watch::Sender::new(0)),
            goes_on: Arc::new(Semaphore::new(0)),
        };
        let terminate = CancellationToken::new();
        let connections = Connections::new();
        let server = Server::new(slow.clone())
            .endpoint(format!("unix://{}", socket.display()))
            .connections(connections.clone())
            .drain(drain);
        let mut over = JoinSet::new();
        over.spawn(server.serve(terminate.clone().cancelled_owned()));
        Self {
            slow,
            terminate,
            connections,
            over,
        }
    }

    /// Returns when `count` calls of Ensure have begun.
    async fn ensuring(&self, count: usize) {
        let mut ensuring = self.slow.ensuring.subscribe();
        let begun = ensuring.wait_for(|begun| *begun == count);
        timeout(SOON, begun).await.unwrap().unwrap();
    }

    async fn ended(&mut self) {
        let ended = timeout(SOON, self.over.join_next()).await.unwrap();
        ended.unwrap().unwrap().unwrap();
    }
}

struct Bench {
    _folder: tempfile::TempDir,
    socket: PathBuf,
    running: Running,
}

impl Bench {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("provider/provider.sock");
        let running = maintained(UnixConnector {
            socket: socket.clone(),
            peer_uid: None,
        });
        running.lead();
        Self {
            _folder: folder,
            socket,
            running,
        }
    }

    fn process(&self, name: &'static str) -> Process {
        Process::start(&self.socket, name, DRAIN)
    }

    async fn session(&self) -> Arc<Session> {
        timeout(SOON, self.running.session()).await.unwrap()
    }

    /// Returns when controllers cannot get the session any more.
    async fn unpublished(&self) {
        let until = self.running.until("no session", |s| s.session.is_none());
        timeout(SOON, until).await.unwrap();
    }
}

type Answered = Result<BalancerAnswer<Outcome>, CallError>;

/// An Ensure that runs beside the test.
fn ensure(session: &Arc<Session>) -> JoinSet<Answered> {
    ensure_behind(session, &Fence::open())
}

fn ensure_behind(session: &Arc<Session>, fence: &Fence) -> JoinSet<Answered> {
    let (session, fence) = (Arc::clone(session), fence.clone());
    let mut calls = JoinSet::new();
    calls.spawn(async move {
        let service = api::ServiceView {
            namespace: "default".into(),
            name: "web".into(),
            uid: "u".into(),
            ..Default::default()
        };
        let request = api::EnsureLoadBalancerRequest {
            service: Some(service),
            ..Default::default()
        };
        let answered = session.ensure_load_balancer(&fence, request).await;
        answered.map(|(answer, _)| answer)
    });
    calls
}

async fn answer(mut call: JoinSet<Answered>) -> Answered {
    timeout(SOON, call.join_next())
        .await
        .unwrap()
        .unwrap()
        .unwrap()
}

async fn lookup(session: &Session) -> Result<(), CallError> {
    let node = serde_json::json!({"metadata": {"name": "n", "uid": "u"}});
    let node = serde_json::from_value(node).unwrap();
    let nodes = [&node];
    let looked = session.lookup_instances(&nodes, &[api::InstanceFacet::Existence], Duration::ZERO);
    timeout(SOON, looked).await.unwrap().map(drop)
}

fn is_ready(answer: &Answered) -> bool {
    let outcome = answer.as_ref().map(|answer| answer.outcome.as_ref());
    matches!(outcome, Ok(Ok(Outcome::Ready(_))))
}

#[tokio::test]
async fn core_17_an_ensure_that_a_provider_drains_ends_with_its_own_answer() {
    let bench = Bench::new();
    let mut process = bench.process("1");
    let session = bench.session().await;
    let call = ensure(&session);
    process.ensuring(1).await;

    process.terminate.cancel();
    bench.unpublished().await;
    // The call is not sent, and cuts no other call.
    let trouble = lookup(&session).await.unwrap_err();
    assert_eq!(trouble.code, CallErrorCode::Disconnected, "{trouble}");
    assert!(session.is_over(), "it takes no calls");

    process.slow.goes_on.add_permits(1);
    let answer = answer(call).await;
    assert!(is_ready(&answer), "{answer:?}");
    process.ended().await;
    timeout(SOON, session.ended()).await.unwrap();
}

/// The next process listens on the same path while the previous one drains. Both have calls in
/// flight, and each call gets its own answer.
#[tokio::test]
async fn core_17_the_next_process_is_worked_with_while_the_one_before_drains() {
    let bench = Bench::new();
    let mut first = bench.process("1");
    let before = bench.session().await;
    let drained = ensure(&before);
    first.ensuring(1).await;
    first.terminate.cancel();
    bench.unpublished().await;
    timeout(SOON, async {
        while bench.socket.exists() {
            tokio::task::yield_now().await;
        }
    })
    .await
    .unwrap();

    let second = bench.process("2");
    let session = bench.session().await;
    lookup(&session).await.unwrap();
    let other = ensure(&session);
    second.ensuring(1).await;
    first.slow.goes_on.add_permits(1);
    let drained = answer(drained).await;
    assert!(is_ready(&drained), "{drained:?}");
    assert_eq!(drained.unwrap().handle.as_deref(), Some("1"));
    first.ended().await;
    timeout(SOON, before.ended()).await.unwrap();

    assert!(!session.is_over(), "the end of the drain is not its end");
    second.slow.goes_on.add_permits(1);
    let other = answer(other).await;
    assert_eq!(other.unwrap().handle.as_deref(), Some("2"));
}

#[tokio::test]
async fn core_17_a_provider_that_is_killed_while_it_drains_loses_its_calls() {
    let bench = Bench::new();
    let process = bench.process("1");
    let session = bench.session().await;
    let call = ensure(&session);
    process.ensuring(1).await;
    process.terminate.cancel();
    bench.unpublished().await;
    process.connections.cut();
    let trouble = answer(call).await.unwrap_err();
    assert_eq!(trouble.code, CallErrorCode::Disconnected, "{trouble}");
    timeout(SOON, session.ended()).await.unwrap();
}

/// A call that the process gives up at the end of its drain has an unknown result.
#[tokio::test]
async fn core_17_a_call_that_outlasts_the_drain_is_disconnected() {
    let bench = Bench::new();
    let mut process = Process::start(&bench.socket, "1", Duration::from_millis(50));
    let session = bench.session().await;
    let call = ensure(&session);
    process.ensuring(1).await;
    process.terminate.cancel();
    let trouble = answer(call).await.unwrap_err();
    assert_eq!(trouble.code, CallErrorCode::Disconnected, "{trouble}");
    process.ended().await;
}

/// Shows ▲M12: after it stops leading, this process has no call in flight, even if a provider
/// drains.
#[tokio::test]
async fn m12_the_end_of_the_lead_cuts_what_is_drained() {
    let bench = Bench::new();
    let process = bench.process("1");
    let session = bench.session().await;
    let call = ensure(&session);
    process.ensuring(1).await;
    process.terminate.cancel();
    bench.unpublished().await;
    bench.running.leading.send_replace(None);
    let trouble = answer(call).await.unwrap_err();
    assert_eq!(trouble.code, CallErrorCode::Disconnected, "{trouble}");
}

/// For ▲M3: the fence records that the provider may still work on a call without an answer.
#[tokio::test]
async fn m3_a_call_whose_connection_breaks_may_go_on_in_the_provider() {
    let bench = Bench::new();
    let process = bench.process("1");
    let session = bench.session().await;
    let fence = Fence::open();
    let call = ensure_behind(&session, &fence);
    process.ensuring(1).await;
    assert!(fence.is_changing());
    process.slow.goes_on.add_permits(1);
    let answered = answer(call).await;
    assert!(is_ready(&answered), "{answered:?}");
    assert!(!fence.is_changing());
    assert_eq!(fence.given_up(), None, "it has ended in the provider too");

    let call = ensure_behind(&session, &fence);
    process.ensuring(2).await;
    process.connections.cut();
    let trouble = answer(call).await.unwrap_err();
    assert_eq!(trouble.code, CallErrorCode::Disconnected, "{trouble}");
    assert!(fence.given_up().is_some());
}
