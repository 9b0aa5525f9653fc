//! A cloud for tests. The names in a request, such as a Node's, decide its answer.

use std::sync::Arc;
use std::time::Duration;

use provider_sdk::prelude::*;
use tokio::sync::{Semaphore, watch};

use super::soon;

/// The events in the cloud, in order. A test can wait for an event.
#[derive(Clone)]
pub(crate) struct Journal(watch::Sender<Vec<String>>);

impl Journal {
    fn new() -> Self {
        Self(watch::Sender::new(Vec::new()))
    }

    pub(crate) fn add(&self, entry: impl Into<String>) {
        self.0.send_modify(|entries| entries.push(entry.into()));
    }

    pub(crate) fn entries(&self) -> Vec<String> {
        self.0.borrow().clone()
    }

    pub(crate) async fn until(&self, entry: &str) {
        let mut entries = self.0.subscribe();
        soon(
            entry,
            entries.wait_for(|entries| entries.iter().any(|e| e == entry)),
        )
        .await
        .expect("the sender lives here");
    }
}

/// Writes into the journal when it is dropped.
struct Dropped(Journal);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.add("dropped");
    }
}

#[derive(Clone)]
pub(crate) struct Cloud {
    pub(crate) journal: Journal,
    /// A gated method waits for a permit of this semaphore.
    pub(crate) gate: Arc<Semaphore>,
    /// The classes of load balancers that it serves.
    pub(crate) classes: Vec<String>,
}

impl Cloud {
    pub(crate) fn new() -> Self {
        Self {
            journal: Journal::new(),
            gate: Arc::new(Semaphore::new(0)),
            classes: vec!["test/lb".into()],
        }
    }

    async fn gated(&self) {
        let _dropped = Dropped(self.journal.clone());
        self.journal.add("write 1");
        self.gate.acquire().await.expect("never closed").forget();
        self.journal.add("write 2");
    }
}

#[async_trait]
impl Provider for Cloud {
    fn info(&self) -> ProviderInfo {
        ProviderInfo::new("test", "1.0.0").provider_id_prefix("test://")
    }

    async fn initialize(&self, call: &Call, _: &InitializeRequest) -> Result<Initialized, Failure> {
        if call.cluster().name == "refused" {
            return Err(Failure::credentials("the key is not valid"));
        }
        call.cloud_answered();
        Ok(Initialized::new("account 1, region a"))
    }

    fn health(&self) -> Health {
        Health::degraded("a test")
    }

    fn instances(&self) -> Option<&dyn Instances> {
        Some(self)
    }

    fn load_balancers(&self) -> Option<&dyn LoadBalancers> {
        Some(self)
    }

    fn routes(&self) -> Option<&dyn Routes> {
        Some(self)
    }

    fn changes(&self) -> Option<&dyn Changes> {
        Some(self)
    }
}

#[async_trait]
impl Instances for Cloud {
    async fn lookup(&self, _: &Call, node: &Node, _: &InstanceQuery) -> Result<Instance, Failure> {
        match node.name.as_str() {
            "panics" => panic!("the node of doom"),
            "absent" => Ok(Instance::absent()),
            "throttled" => Err(Failure::throttled("slow down").retry_after(Duration::from_secs(7))),
            "stranger" => Ok(Instance::running("other://1")),
            "long" => Ok(Instance::running(format!("test://{}", "x".repeat(2000)))),
            "no-ip" => Ok(Instance::running("test://1").address(NodeAddress::internal_ip("host"))),
            "no-name" => Ok(Instance::running("test://1").address(NodeAddress::hostname("a_b"))),
            name => Ok(Instance::running(format!("test://{name}"))
                .address(NodeAddress::internal_ip("10.0.0.1"))
                .address(NodeAddress::hostname("Host-1.example"))
                .zone("a")),
        }
    }

    async fn lookup_batch(
        &self,
        call: &Call,
        nodes: &[Node],
        query: &InstanceQuery,
    ) -> Result<Answers<Instance>, Failure> {
        // With a Node `forgotten`, the batch has errors: one Node has no answer, `twice` has two,
        // and one answer was not requested. The answers are in reverse order.
        let mut answers = Answers::new();
        if !nodes.iter().any(|node| node.name == "forgotten") {
            for node in nodes.iter().rev() {
                answers.set(&node.name, self.lookup(call, node, query).await);
            }
            return Ok(answers);
        }
        answers.set("unasked", Ok(Instance::absent()));
        for node in nodes.iter().rev().filter(|node| node.name != "forgotten") {
            answers.set(&node.name, self.lookup(call, node, query).await);
            if node.name == "twice" {
                answers.set(&node.name, Ok(Instance::absent()));
            }
        }
        Ok(answers)
    }

    fn options(&self) -> InstanceOptions {
        InstanceOptions {
            max_batch: 5000,
            power_state: true,
            ..InstanceOptions::default()
        }
    }

    fn listing(&self) -> Option<&dyn ListInstances> {
        Some(self)
    }
}

#[async_trait]
impl ListInstances for Cloud {
    async fn list(&self, call: &Call, _: &[InstanceFacet]) -> Result<Vec<Instance>, Failure> {
        if call.cluster().name == "broken-list" {
            return Ok(vec![
                Instance::running("test://1"),
                Instance::running("other://1"),
            ]);
        }
        Ok((0..1234)
            .map(|n| Instance::running(format!("test://{n}")))
            .collect())
    }
}

#[async_trait]
impl LoadBalancers for Cloud {
    async fn get(&self, _: &Call, _: &GetLoadBalancer) -> LoadBalancerResult<LoadBalancer> {
        Ok(LoadBalancer::absent().into())
    }

    async fn ensure(
        &self,
        call: &Call,
        request: &EnsureLoadBalancer,
    ) -> LoadBalancerResult<Ensured> {
        match request.service.name.as_str() {
            "gated" => self.gated().await,
            // Never yields, like code with a blocking client. It learns only from the call that it
            // has to stop.
            "blocking" => {
                self.journal.add("write 1");
                while let Ok(()) = call.checkpoint() {
                    std::thread::yield_now();
                }
                self.journal.add("stopped");
                call.before_write().await?;
                self.journal.add("write 2");
            }
            "spawned" => {
                let (cloud, call) = (self.clone(), call.clone());
                tokio::spawn(async move {
                    cloud.journal.add("write 1");
                    call.cancelled().await;
                    if call.before_write().await.is_err() {
                        cloud.journal.add("stopped");
                        return;
                    }
                    cloud.journal.add("write 2");
                });
            }
            "panics" => panic!("the load balancer of doom"),
            "half-made" => {
                return Err(Answer::from(Failure::precondition("quota"))
                    .with_handle("lb-7")
                    .with_event(Event::warning("Quota", "x".repeat(3000)))
                    .with_annotation("test/a", "b")
                    .with_target_error("n1", Failure::not_found("no such machine")));
            }
            "long-handle" => {
                return Ok(
                    Answer::from(Ensured::Ready(LoadBalancerStatus::ips(["1.2.3.4"])))
                        .with_handle("h".repeat(1025)),
                );
            }
            "bad-status" => {
                return Ok(
                    Answer::from(Ensured::Ready(LoadBalancerStatus::ips(["nowhere"])))
                        .with_handle("lb-8"),
                );
            }
            _ => {}
        }
        Ok(Answer::from(Ensured::Ready(LoadBalancerStatus::ips(["1.2.3.4"]))).with_handle("lb-1"))
    }

    async fn update(&self, _: &Call, _: &UpdateLoadBalancer) -> LoadBalancerResult<Updated> {
        Ok(Updated::Pending(Pending::new("soon")).into())
    }

    async fn delete(&self, _: &Call, _: &DeleteLoadBalancer) -> LoadBalancerResult<Deleted> {
        Ok(Deleted::Done.into())
    }

    fn options(&self) -> LoadBalancerOptions {
        LoadBalancerOptions {
            classes: self.classes.clone(),
            in_sync: true,
            features: vec![ServiceFeature::Udp],
            ..LoadBalancerOptions::default()
        }
    }
}

#[async_trait]
impl Routes for Cloud {
    async fn list(&self, _: &Call) -> Result<Vec<Route>, Failure> {
        Ok(Vec::new())
    }

    async fn create(&self, _: &Call, route: &Route) -> Result<(), Failure> {
        match route.name_hint.as_str() {
            "gated" => self.gated().await,
            "panics" => panic!("the route of doom"),
            _ => {}
        }
        Ok(())
    }

    async fn delete(&self, _: &Call, _: &Route) -> Result<(), Failure> {
        Ok(())
    }
}

#[async_trait]
impl Changes for Cloud {
    async fn watch(&self, call: &Call, resume_token: &str, hints: &Hints) -> Result<(), Failure> {
        let _dropped = Dropped(self.journal.clone());
        match resume_token {
            "panics" => panic!("the watch of doom"),
            "fails" => return Err(Failure::unavailable("no feed")),
            "ends" => {
                hints.send(Change::Routes, "2").await?;
                return Ok(());
            }
            _ => hints.send(Change::Resync, "1").await?,
        }
        call.cancelled().await;
        Ok(())
    }
}
