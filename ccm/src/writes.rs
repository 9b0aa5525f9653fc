//! Every patch and delete of Nodes, Services and PersistentVolumes. Each carries the UID of the
//! object that the decision was about.
//!
//! All patches but one are JSON merge patches: they merge labels and annotations by key (null
//! removes a key) and replace whole lists. Taints, finalizers and conditions have other writers, so
//! they are replaced only at the resourceVersion that was read. The one other patch is that of a
//! Node's condition: the ccm's view of a Node lacks some conditions, so a strategic merge patch
//! sets only the condition of its type.

mod error;
mod events;
mod nodes;
pub(crate) mod reason;
mod services;
mod volumes;

use std::fmt::Debug;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::serde::de::DeserializeOwned;
use kube::api::{Api, Patch, PatchParams};
use kube::{Client, Resource};
use serde_json::{Map, Value, json};

use crate::core::{Lenient, Prune};
use crate::planted::planted;

pub(crate) use error::WriteError;
#[cfg(any(test, fuzzing))]
pub(crate) use events::fuzz;
pub(crate) use events::{EventMetrics, EventSink, EventType, reference};
pub(crate) use nodes::NodePatch;
pub(crate) use services::{ServicePatch, ServiceStatusPatch};
pub(crate) use volumes::VolumePatch;

/// The ccm's name in `managedFields`.
pub(crate) const FIELD_MANAGER: &str = "ccm";

/// Writes through the fenced client. Clones are cheap.
#[derive(Clone)]
pub(crate) struct Writes {
    pub(crate) client: Client,
    pub(crate) events: EventSink,
}

/// The endpoint of a patch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// Metadata and spec.
    Object,
    /// The status subresource.
    Status,
}

impl Writes {
    pub(crate) fn new(client: Client, events: EventSink) -> Self {
        Self { client, events }
    }

    /// The same, with events of this component (`From` in `kubectl describe`).
    pub(crate) fn with_component(&self, component: &'static str) -> Self {
        Self {
            client: self.client.clone(),
            events: self.events.for_component(component),
        }
    }

    /// Records an event on the Node.
    pub(crate) fn node_event(&self, node: &Node, kind: EventType, reason: &str, message: String) {
        self.events.record(&reference(node), kind, reason, message);
    }

    /// Patches the object that `base` is a view of. Sends no request if there is nothing to patch.
    async fn patch<K>(
        api: &Api<Lenient<K>>,
        base: &K,
        body: Option<Value>,
        part: Part,
    ) -> Result<K, WriteError>
    where
        K: Resource + Prune + Clone + DeserializeOwned + Debug,
    {
        match body {
            None => Ok(base.clone()),
            Some(body) => Self::send(api, base, &Patch::Merge(body), part).await,
        }
    }

    async fn send<K>(
        api: &Api<Lenient<K>>,
        base: &K,
        patch: &Patch<Value>,
        part: Part,
    ) -> Result<K, WriteError>
    where
        K: Resource + Prune + Clone + DeserializeOwned + Debug,
    {
        let name = name_of(base)?;
        let params = PatchParams {
            field_manager: Some(FIELD_MANAGER.to_owned()),
            ..PatchParams::default()
        };
        let patched = match part {
            Part::Object => api.patch(name, &params, patch).await,
            Part::Status => api.patch_status(name, &params, patch).await,
        };
        match patched {
            Ok(Lenient(mut object)) => {
                object.prune();
                Ok(object)
            }
            Err(error) => Err(told_apart(api, base, WriteError::from(error)).await),
        }
    }

    async fn read<K>(api: &Api<Lenient<K>>, name: &str) -> Result<Option<K>, WriteError>
    where
        K: Clone + DeserializeOwned + Debug,
    {
        let read = api.get_opt(name).await?;
        Ok(read.map(|object| object.0))
    }
}

fn name_of(object: &impl Resource) -> Result<&str, WriteError> {
    let name = object.meta().name.as_deref();
    name.ok_or_else(|| WriteError::Refused("the object has no name".to_owned()))
}

/// A conflict means a wrong resourceVersion or a wrong UID. Only the text of the answer says which,
/// so this reads the object.
async fn told_apart<K>(api: &Api<Lenient<K>>, base: &K, error: WriteError) -> WriteError
where
    K: Resource + Clone + DeserializeOwned + Debug,
{
    if !matches!(error, WriteError::Conflict) {
        return error;
    }
    let Ok(name) = name_of(base) else {
        return error;
    };
    match api.get_metadata_opt(name).await {
        Ok(None) => WriteError::Gone,
        Ok(Some(now)) if now.metadata.uid != base.meta().uid && base.meta().uid.is_some() => {
            WriteError::Gone
        }
        // Without an answer, the API server's first answer stands.
        Ok(Some(_)) | Err(_) => WriteError::Conflict,
    }
}

/// The start of every patch: the UID, so that the API server refuses the patch for an object made
/// again under the same name. With `versioned`, also the resourceVersion.
fn patch_metadata(base: &impl Resource, versioned: bool) -> Map<String, Value> {
    let mut metadata = Map::new();
    if let Some(uid) = &base.meta().uid {
        metadata.insert("uid".to_owned(), json!(uid));
    }
    if versioned
        && !planted!(UnversionedWrites)
        && let Some(version) = &base.meta().resource_version
    {
        metadata.insert("resourceVersion".to_owned(), json!(version));
    }
    metadata
}

#[cfg(test)]
mod api_server_tests;
#[cfg(test)]
mod tests;
