//! A test's view of a cluster: reads, changes and awaits Nodes, Services, Leases and Events.

use std::fmt::Debug;
use std::time::Duration;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Event, Node, Service};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Client, Resource};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::eventually;
use crate::objects::{LoadBalancerBuilder, NodeBuilder, UNINITIALIZED, ingress, is_tainted};

/// The namespace of the Lease.
const SYSTEM: &str = "kube-system";
/// The name of the Lease that ccms compete for.
pub const LEASE: &str = "cloud-controller-manager";

/// A test's view of a cluster. Its Services are in the namespace `default`.
///
/// A failed request panics, which ends the test, unless the method returns a `Result`. Methods that
/// wait, except [`event`](Self::event), try a failed request again. They all panic after
/// [`patience`](Self::patience).
#[derive(Clone)]
pub struct View {
    /// The client, for requests without a method here.
    pub client: Client,
    /// The longest time for anything that should happen soon.
    pub patience: Duration,
}

impl View {
    /// All Nodes.
    pub fn nodes(&self) -> Api<Node> {
        Api::all(self.client.clone())
    }

    /// Services in the namespace `default`.
    pub fn services(&self) -> Api<Service> {
        self.namespaced("default")
    }

    /// Leases in the namespace `kube-system`.
    pub fn leases(&self) -> Api<Lease> {
        self.namespaced(SYSTEM)
    }

    /// Objects in this namespace.
    pub fn namespaced<K>(&self, namespace: &str) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), namespace)
    }

    /// The Node, or the error of the API server.
    pub async fn node(&self, name: &str) -> Result<Node, String> {
        self.nodes()
            .get(name)
            .await
            .map_err(|error| error.to_string())
    }

    /// Creates a Node, as a kubelet does.
    pub async fn register(&self, node: NodeBuilder) -> Node {
        create(&self.nodes(), &node.build()).await
    }

    /// Changes a Node by a merge patch.
    pub async fn edit_node(&self, name: &str, patch: Value) {
        edit(&self.nodes(), name, patch).await;
    }

    /// Waits until `good` accepts the Node, and returns it. `what` names the condition in the
    /// panic.
    pub async fn node_becomes(&self, name: &str, what: &str, good: impl Fn(&Node) -> bool) -> Node {
        self.becomes(&self.nodes(), name, what, good).await
    }

    /// Waits until the Node has a provider ID and no `uninitialized` taint, and returns it.
    pub async fn initialised(&self, name: &str) -> Node {
        self.node_becomes(name, "is initialised", |node| {
            let spec = node.spec.as_ref();
            spec.is_some_and(|spec| spec.provider_id.is_some()) && !is_tainted(node, UNINITIALIZED)
        })
        .await
    }

    /// Waits until the API server has no Node of this name.
    pub async fn node_goes(&self, name: &str) {
        self.goes(&self.nodes(), name).await;
    }

    /// Creates a Service.
    pub async fn create_service(&self, service: LoadBalancerBuilder) -> Service {
        create(&self.services(), &service.build()).await
    }

    /// Changes a Service by a merge patch.
    pub async fn edit_service(&self, name: &str, patch: Value) {
        edit(&self.services(), name, patch).await;
    }

    /// Requests the deletion of a Service.
    pub async fn delete_service(&self, name: &str) {
        let deleted = self.services().delete(name, &DeleteParams::default()).await;
        deleted.expect("the Service can be deleted");
    }

    /// Waits until `good` accepts the Service, and returns it. `what` names the condition in the
    /// panic.
    pub async fn service_becomes(
        &self,
        name: &str,
        what: &str,
        good: impl Fn(&Service) -> bool,
    ) -> Service {
        self.becomes(&self.services(), name, what, good).await
    }

    /// Waits until the Service shows an address, and returns it.
    pub async fn shows_address(&self, name: &str) -> Service {
        self.service_becomes(name, "shows an address", |it| ingress(it).is_some())
            .await
    }

    /// Waits until the API server has no Service of this name.
    pub async fn service_goes(&self, name: &str) {
        self.goes(&self.services(), name).await;
    }

    /// The ccm's Lease, or the error of the API server.
    pub async fn lease(&self) -> Result<Lease, String> {
        self.leases()
            .get(LEASE)
            .await
            .map_err(|error| error.to_string())
    }

    /// The holder of the Lease; empty if it has none.
    pub async fn holder(&self) -> Result<String, String> {
        let spec = self.lease().await?.spec.unwrap_or_default();
        Ok(spec.holder_identity.unwrap_or_default())
    }

    /// Changes the Lease by a merge patch.
    pub async fn edit_lease(&self, patch: Value) {
        edit(&self.leases(), LEASE, patch).await;
    }

    /// Waits for `times` renewals of the Lease, by default some two seconds for each.
    pub async fn renewals(&self, times: usize) {
        let mut seen = None;
        for _ in 0..=times {
            seen = eventually("the Lease is renewed", self.patience, async || {
                let renewed = self.lease().await?.spec.and_then(|spec| spec.renew_time);
                if renewed == seen {
                    Err(format!("still {seen:?}"))
                } else {
                    Ok(renewed)
                }
            })
            .await;
        }
    }

    /// Events on objects of this name in all namespaces, as `Type Reason message`.
    pub async fn events(&self, name: &str) -> Vec<String> {
        let events: Api<Event> = Api::all(self.client.clone());
        let about = ListParams::default().fields(&format!("involvedObject.name={name}"));
        let text = |event: Event| {
            let words = [event.type_, event.reason, event.message];
            words.map(Option::unwrap_or_default).join(" ")
        };
        let events = events.list(&about).await.expect("Events can be listed");
        events.into_iter().map(text).collect()
    }

    /// Waits for an event on an object of this name that contains `part`, and returns its text.
    pub async fn event(&self, name: &str, part: &str) -> String {
        let what = format!("an event {part:?} on {name}");
        eventually(&what, self.patience, async || {
            let events = self.events(name).await;
            let found = events.iter().find(|event| event.contains(part));
            found.cloned().ok_or_else(|| format!("{events:?}"))
        })
        .await
    }

    /// Waits until `good` accepts the object, and returns it. `what` names the condition in the
    /// panic.
    pub async fn becomes<K>(
        &self,
        api: &Api<K>,
        name: &str,
        what: &str,
        good: impl Fn(&K) -> bool,
    ) -> K
    where
        K: Clone + Debug + DeserializeOwned,
    {
        let what = format!("{name}: {what}");
        eventually(&what, self.patience, async || {
            let object = api.get(name).await.map_err(|error| error.to_string())?;
            if good(&object) {
                Ok(object)
            } else {
                Err(format!("{object:?}"))
            }
        })
        .await
    }

    /// Waits until the API server has no object of this name.
    pub async fn goes<K>(&self, api: &Api<K>, name: &str)
    where
        K: Clone + Debug + DeserializeOwned,
    {
        eventually(&format!("{name} goes"), self.patience, async || {
            match api.get_opt(name).await {
                Ok(None) => Ok(()),
                other => Err(format!("{other:?}")),
            }
        })
        .await;
    }
}

async fn create<K: Clone + Debug + DeserializeOwned + serde::Serialize>(
    api: &Api<K>,
    object: &K,
) -> K {
    api.create(&PostParams::default(), object)
        .await
        .expect("the object can be created")
}

async fn edit<K: Clone + Debug + DeserializeOwned>(api: &Api<K>, name: &str, patch: Value) {
    let (how, patch) = (PatchParams::default(), Patch::Merge(patch));
    api.patch(name, &how, &patch)
        .await
        .expect("the object can be changed");
}
