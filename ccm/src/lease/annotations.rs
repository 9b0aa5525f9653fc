//! The Lease's annotations: what they were when the Lease was last read or written, and what this process wants to add.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};

use k8s_openapi::api::coordination::v1::Lease;
use tokio::sync::{Notify, watch};

use super::lock;

pub(super) type All = BTreeMap<String, String>;

#[derive(Default)]
pub(super) struct Annotations {
    seen: watch::Sender<All>,
    wanted: Mutex<BTreeMap<String, Wanted>>,
    /// Notified when something is wanted: the next renewal is due now.
    hurry: Notify,
}

/// An annotation that the next write adds.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Wanted {
    value: String,
    /// The value before. The annotation is written only over this one: whoever changed it meanwhile wins.
    over: Option<String>,
}

impl Annotations {
    pub(super) fn subscribe(&self) -> watch::Receiver<All> {
        self.seen.subscribe()
    }

    /// The next write of the Lease adds this annotation, unless somebody changes it before.
    pub(super) fn set(&self, key: &str, value: &str) {
        let over = self.seen.borrow().get(key).cloned();
        let value = value.to_owned();
        self.wanted().insert(key.to_owned(), Wanted { value, over });
        self.hurry.notify_one();
    }

    /// Returns when something is wanted.
    pub(super) async fn hurried(&self) {
        self.hurry.notified().await;
    }

    /// The annotations of a Lease that is to be created: somebody deleted it, and what it stored is kept.
    pub(super) fn of_a_new_lease(&self) -> Option<All> {
        let seen = self.seen.borrow();
        (!seen.is_empty()).then(|| seen.clone())
    }

    /// Adds what is wanted to `lease`, except what somebody changed meanwhile. [`Self::written`] takes the result.
    pub(super) fn add_to(&self, lease: &mut Lease) -> Written {
        let wanted = self.wanted().clone();
        for (key, Wanted { value, over }) in &wanted {
            let annotations = lease.metadata.annotations.get_or_insert_default();
            if annotations.get(key) == over.as_ref() {
                annotations.insert(key.clone(), value.clone());
            }
        }
        Written(wanted)
    }

    /// The API server stored the Lease to which [`Self::add_to`] added this.
    pub(super) fn written(&self, Written(written): &Written) {
        self.wanted()
            .retain(|key, value| written.get(key) != Some(value));
    }

    /// The Lease was read or written.
    pub(super) fn observe(&self, lease: &Lease) {
        let now = lease.metadata.annotations.as_ref();
        self.seen.send_if_modified(|seen| {
            let differs = now.map_or(!seen.is_empty(), |now| now != seen);
            if differs {
                *seen = now.cloned().unwrap_or_default();
            }
            differs
        });
    }

    fn wanted(&self) -> MutexGuard<'_, BTreeMap<String, Wanted>> {
        lock(&self.wanted)
    }
}

/// What one write of the Lease was to add.
pub(super) struct Written(BTreeMap<String, Wanted>);

#[cfg(test)]
mod tests {
    use super::super::record;
    use super::*;

    fn lease(annotation: Option<&str>) -> Lease {
        let mut lease = record::absent("n", "l");
        let pair = |value: &str| [("k".to_owned(), value.to_owned())].into();
        lease.metadata.annotations = annotation.map(pair);
        lease
    }

    #[test]
    fn s20_an_operators_edit_wins_over_a_wanted_annotation() {
        let cases = [
            (None, None, "ours"),
            (Some("old"), Some("old"), "ours"),
            (Some("theirs"), Some("old"), "theirs"),
            (Some("theirs"), None, "theirs"),
        ];
        for (there, over, expected) in cases {
            let annotations = Annotations::default();
            annotations.observe(&lease(over));
            annotations.set("k", "ours");
            let mut lease = lease(there);
            annotations.add_to(&mut lease);
            assert_eq!(lease.metadata.annotations.unwrap()["k"], expected);
        }
    }
}
