//! Whose a Node's labels are, as long as they stay as they were when its managed fields were read (▲N12).

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard};

use k8s_openapi::api::core::v1::Node;

use super::labels;
use crate::core::lock;
use crate::planted::planted;
use crate::writes::FIELD_MANAGER;

/// A label that is somebody else's differs from the cloud for ever: its Node is not read for that at each refresh.
#[derive(Debug, Default)]
pub(super) struct Managed(Mutex<BTreeMap<String, Known>>);

/// Of one Node, by its UID.
#[derive(Debug)]
struct Known {
    /// Its labels then.
    labels: u64,
    /// The keys that this controller wrote last.
    ours: Arc<BTreeSet<String>>,
}

impl Managed {
    /// The keys that this controller wrote last; `None`: not known.
    pub(super) fn of(&self, node: &Node) -> Option<Arc<BTreeSet<String>>> {
        let all = self.all();
        let known = all.get(node.metadata.uid.as_deref()?)?;
        (known.labels == labels_of(node)).then(|| Arc::clone(&known.ours))
    }

    /// Learns from a Node that was read from the API server.
    pub(super) fn learn(&self, read: &Node) -> Arc<BTreeSet<String>> {
        let fields = read.metadata.managed_fields.as_deref().unwrap_or_default();
        let ours = Arc::new(labels::managed_keys(fields, FIELD_MANAGER));
        if let Some(uid) = &read.metadata.uid
            && !planted!(ForeignLabelIsReadAgain)
        {
            let known = Known {
                labels: labels_of(read),
                ours: Arc::clone(&ours),
            };
            self.all().insert(uid.clone(), known);
        }
        ours
    }

    /// This controller is about to write to this Node: the same labels may be its own then.
    pub(super) fn forget(&self, node: &Node) {
        if let Some(uid) = &node.metadata.uid {
            self.all().remove(uid);
        }
    }

    /// Forgets the Nodes that are not there any more.
    pub(super) fn keep(&self, nodes: &[Arc<Node>]) {
        let there: BTreeSet<&str> = nodes
            .iter()
            .filter_map(|node| node.metadata.uid.as_deref())
            .collect();
        self.all().retain(|uid, _| there.contains(uid.as_str()));
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<String, Known>> {
        lock(&self.0)
    }
}

fn labels_of(node: &Node) -> u64 {
    let mut hasher = DefaultHasher::new();
    node.metadata.labels.hash(&mut hasher);
    hasher.finish()
}
