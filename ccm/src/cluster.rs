//! Our stores of Nodes and Services, fed by one watch each (B-M8).

mod change;
mod prune;

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Service};

pub(crate) use change::{Change, Changes};

/// Names an object: namespace (empty for cluster-scoped objects) and name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Key {
    /// The namespace; empty for Nodes.
    pub(crate) namespace: String,
    /// The name.
    pub(crate) name: String,
}

/// The stores of one process.
#[derive(Clone)]
pub(crate) struct Cluster {
    /// All Nodes.
    pub(crate) nodes: Store<Node>,
    /// All Services.
    pub(crate) services: Store<Service>,
}

/// All objects of one kind, as last seen. Clones share one state.
pub(crate) struct Store<K> {
    objects: Arc<std::sync::RwLock<BTreeMap<Key, Arc<K>>>>,
}

impl<K> Clone for Store<K> {
    fn clone(&self) -> Self {
        Self {
            objects: Arc::clone(&self.objects),
        }
    }
}

impl<K> Store<K> {
    /// The object, as last seen.
    pub(crate) fn get(&self, _key: &Key) -> Option<Arc<K>> {
        todo!()
    }

    /// All objects in the order of their keys.
    pub(crate) fn all(&self) -> Vec<Arc<K>> {
        todo!()
    }

    /// Changes from now on, after one change `None -> new` for each object that is there now.
    /// Coalesced by key, so never more than there are objects.
    pub(crate) fn subscribe(&self) -> Changes<K> {
        todo!()
    }

    /// Returns when the first list is complete.
    pub(crate) async fn synced(&self) {
        todo!()
    }

    /// Whether the first list is complete.
    pub(crate) fn is_synced(&self) -> bool {
        todo!()
    }
}
