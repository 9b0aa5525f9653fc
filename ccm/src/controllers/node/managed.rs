//! Which labels of a Node this controller wrote (▲N12). An entry counts while the labels are as
//! they were when the managed fields were read.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard};

use k8s_openapi::api::core::v1::Node;

use super::labels;
use crate::core::lock;
use crate::planted::planted;
use crate::writes::FIELD_MANAGER;

/// A label of another writer may differ from the cloud for ever. The cache keeps each refresh from
/// reading that Node again.
#[derive(Debug, Default)]
pub(super) struct Managed(Mutex<BTreeMap<String, Known>>);

/// The knowledge about one Node. The map's key is the Node's UID.
#[derive(Debug)]
struct Known {
    /// A hash of its labels when they were read.
    labels: u64,
    /// The keys that this controller wrote last.
    ours: Arc<BTreeSet<String>>,
}

impl Managed {
    /// The keys that this controller wrote last. `None`: not known for these labels.
    pub(super) fn of(&self, node: &Node) -> Option<Arc<BTreeSet<String>>> {
        let all = self.all();
        let known = all.get(node.metadata.uid.as_deref()?)?;
        (known.labels == labels_of(node)).then(|| Arc::clone(&known.ours))
    }

    /// Stores the keys of a Node that was read from the API server.
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

    /// Forgets this Node before a write, which can change the keys that this controller wrote last.
    pub(super) fn forget(&self, node: &Node) {
        if let Some(uid) = &node.metadata.uid {
            self.all().remove(uid);
        }
    }

    /// Forgets Nodes that no longer exist.
    pub(super) fn keep(&self, is_there: impl Fn(&String) -> bool) {
        self.all().retain(|uid, _| is_there(uid));
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
