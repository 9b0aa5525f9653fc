//! The Lease's annotations: those of the last read or write, and those that this process wants to
//! add.

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
    /// Notified when an annotation is wanted: the next renewal is due now.
    hurry: Notify,
}

/// An annotation that the next write adds.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Wanted {
    value: String,
    /// The value before. The write replaces only this value. A value that somebody else wrote
    /// meanwhile stays.
    over: Option<String>,
}

impl Annotations {
    pub(super) fn subscribe(&self) -> watch::Receiver<All> {
        self.seen.subscribe()
    }

    /// Adds this annotation with the next write of the Lease, unless somebody changes it before.
    pub(super) fn set(&self, key: &str, value: &str) {
        let over = self.seen.borrow().get(key).cloned();
        let value = value.to_owned();
        self.wanted().insert(key.to_owned(), Wanted { value, over });
        self.hurry.notify_one();
    }

    /// Returns after a call of [`Self::set`].
    pub(super) async fn hurried(&self) {
        self.hurry.notified().await;
    }

    /// The annotations for a Lease to create: those last seen on the Lease that somebody deleted.
    pub(super) fn of_a_new_lease(&self) -> Option<All> {
        let seen = self.seen.borrow();
        (!seen.is_empty()).then(|| seen.clone())
    }

    /// Adds the wanted annotations to `lease`, except those that somebody changed meanwhile. If the
    /// API server stores the Lease, pass the result to [`Self::written`].
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

    /// Drops the wanted annotations of a write that the API server has stored.
    pub(super) fn written(&self, Written(written): &Written) {
        self.wanted()
            .retain(|key, value| written.get(key) != Some(value));
    }

    /// Takes the annotations of a Lease that was read or written.
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

/// The annotations that one write should add.
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
