//! The provider's own list of instances, which may veto deletions. It outlasts the pass that asked for it: the Nodes that are to be deleted wait for it, up to its deadline, and
//! all others do not (▲M10).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use cloud_provider_api::v1alpha1 as api;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use crate::provider::{CallError, Session};

/// A pass waits so long for a list, from when it was asked for.
const PATIENCE: Duration = Duration::from_secs(10);

/// What a pass hears of the list.
#[derive(Debug)]
pub(super) enum Heard {
    /// These provider IDs are on it.
    Complete(BTreeSet<String>),
    /// There is none, and why.
    Nothing(String),
    /// It may still come.
    NotYet,
}

/// At most one list is under way.
#[derive(Default)]
pub(super) struct Listing {
    /// In a set, so that it ends with its owner.
    call: JoinSet<Result<BTreeSet<String>, CallError>>,
    began: Option<Instant>,
}

impl Listing {
    /// The list that is under way, or a new one.
    pub(super) async fn hear(&mut self, session: &Arc<Session>) -> Heard {
        let began = *self.began.get_or_insert_with(Instant::now);
        if self.call.is_empty() {
            self.call.spawn(list(Arc::clone(session)));
        }
        let heard = match timeout_at(began + PATIENCE, self.call.join_next()).await {
            Ok(Some(Ok(Ok(listed)))) => Heard::Complete(listed),
            Ok(Some(Ok(Err(trouble)))) => Heard::Nothing(trouble.to_string()),
            Ok(Some(Err(error))) => Heard::Nothing(error.to_string()),
            // One was asked for above.
            Ok(None) => Heard::Nothing("it was not asked for".to_owned()),
            // Where the provider takes one call at a time, nobody else could ask anything.
            Err(_) if session.max_lookups() <= 1 => {
                let seconds = PATIENCE.as_secs();
                Heard::Nothing(format!(
                    "it did not come within {seconds} s, and the provider takes no other call meanwhile"
                ))
            }
            Err(_) => return Heard::NotYet,
        };
        self.give_up();
        heard
    }

    /// What is under way counts no more.
    pub(super) fn give_up(&mut self) {
        self.call.abort_all();
        self.call = JoinSet::new();
        self.began = None;
    }

    /// A pass had no use for it: a list that came meanwhile would be old for the next one.
    pub(super) fn not_needed(&mut self) {
        if self.call.try_join_next().is_some() {
            self.give_up();
        }
    }
}

/// The provider IDs of a complete list.
async fn list(session: Arc<Session>) -> Result<BTreeSet<String>, CallError> {
    let instances = session
        .list_instances(&[api::InstanceFacet::Existence])
        .await?;
    Ok(instances
        .into_iter()
        .filter(|instance| instance.state() != api::InstanceState::Absent)
        .filter_map(|instance| instance.provider_id)
        .collect())
}
