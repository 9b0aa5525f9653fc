//! Load balancers for Services.

mod answers;
mod deletion;
mod faults;
mod handles;
mod killed;
mod life;
mod many;
mod ranges;
mod scope;
mod shapes;
mod targets;

use k8s_openapi::api::core::v1::Service;
use kube::api::{Patch, PatchParams};
use provider_mock::{CallEntry, Fault, LoadBalancer};
use serde_json::{Value, json};
use testenv::eventually;

use crate::world::{SOON, World, balancer};

const FINALIZER: &str = "service.kubernetes.io/load-balancer-cleanup";
const HANDLE: &str = "grpc-ccm.io/load-balancer";

const ENSURE: &str = "EnsureLoadBalancer";
const UPDATE: &str = "UpdateLoadBalancer";
const DELETE: &str = "DeleteLoadBalancer";
const GET: &str = "GetLoadBalancer";

impl World {
    async fn service(&self, name: &str) -> Service {
        self.services().get(name).await.unwrap()
    }

    /// Patches the Service, as a user does.
    async fn edit(&self, name: &str, patch: Value) -> Service {
        self.services()
            .patch(name, &PatchParams::default(), &Patch::Merge(patch))
            .await
            .unwrap()
    }

    async fn annotate(&self, name: &str, key: &str, value: &str) -> Service {
        self.edit(name, json!({"metadata": {"annotations": {key: value}}}))
            .await
    }

    /// Removes all finalizers, as an impatient user does.
    async fn force_finalizers_off(&self, name: &str) {
        self.edit(name, json!({"metadata": {"finalizers": null}}))
            .await;
    }

    /// The load balancer that is marked for the Service.
    fn made(&self, name: &str) -> Option<LoadBalancer> {
        self.cloud().load_balancer("default", name)
    }

    /// The names of the load balancer's targets.
    fn targets(&self, name: &str) -> Vec<String> {
        self.made(name).map(|lb| lb.targets).unwrap_or_default()
    }

    /// Waits until the load balancer exists and has these targets.
    async fn targeted(&self, name: &str, nodes: &[&str]) {
        eventually(&format!("{name} balances to {nodes:?}"), SOON, async || {
            let targets = self.made(name).map(|lb| lb.targets);
            let met = targets.as_ref().is_some_and(|targets| targets == nodes);
            met.then_some(()).ok_or(format!("{targets:?}"))
        })
        .await;
    }

    /// The calls about this Service that have ended, oldest first.
    fn asked(&self, rpc: &str, name: &str) -> Vec<CallEntry> {
        let name = format!("default/{name}");
        let mut calls = self.cloud().calls(Some(rpc));
        calls.retain(|call| call.names.contains(&name));
        calls
    }

    fn times(&self, rpc: &str, name: &str) -> usize {
        self.asked(rpc, name).len()
    }

    /// Waits until at least this many calls about this Service have ended.
    async fn asked_times(&self, rpc: &str, name: &str, times: usize) {
        eventually(&format!("{times} {rpc} for {name}"), SOON, async || {
            let calls = self.asked(rpc, name);
            (calls.len() >= times)
                .then_some(())
                .ok_or(format!("{calls:?}"))
        })
        .await;
    }

    /// Waits until a call of this RPC is in flight.
    async fn in_flight(&self, rpc: &str) {
        let began = self
            .cloud()
            .wait_until(SOON, |cloud| cloud.in_flight(rpc) > 0);
        assert!(began.await, "no {rpc} began");
    }

    fn fault(&self, fault: Fault) {
        self.cloud().set_fault(fault).unwrap();
    }

    /// Creates a Service, and waits for its load balancer. By then the ccm has had time for earlier
    /// changes.
    async fn later_one_is_served(&self, name: &str) {
        self.balanced(name).await;
    }
}

fn subject(name: &str) -> String {
    format!("default/{name}")
}

fn has_finalizer(service: &Service) -> bool {
    let finalizers = service.metadata.finalizers.as_deref().unwrap_or_default();
    finalizers.iter().any(|name| name == FINALIZER)
}

fn annotation<'a>(service: &'a Service, key: &str) -> Option<&'a str> {
    let annotations = service.metadata.annotations.as_ref()?;
    annotations.get(key).map(String::as_str)
}

/// The handle in the annotation.
fn stored_handle(service: &Service) -> Option<String> {
    let text = annotation(service, HANDLE)?;
    let record: Value = serde_json::from_str(text).ok()?;
    assert_eq!(record["provider"], "mock", "{text}");
    assert_eq!(
        record["uid"].as_str(),
        service.metadata.uid.as_deref(),
        "{text}"
    );
    record["handle"].as_str().map(str::to_owned)
}
