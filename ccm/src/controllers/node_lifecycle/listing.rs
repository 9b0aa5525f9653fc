//! The provider's own list of instances, which may veto deletions. A pass waits for the call for at
//! most [`PATIENCE`]. After that, the call may go on, and only the Nodes to delete wait for it
//! (▲M10).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use cloud_provider_api::v1alpha1 as api;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use crate::provider::{CallError, CallId, Session};

/// How long passes wait for a list, from the start of its call.
const PATIENCE: Duration = Duration::from_secs(10);

/// The state of the list, as a pass sees it.
#[derive(Debug)]
pub(super) enum Heard {
    /// The list has these provider IDs. It is not complete if it has instances without one, against
    /// INST-16.
    List {
        ids: BTreeSet<String>,
        complete: bool,
    },
    /// There is no list, for this reason. The ID is that of the failed call.
    Nothing(String, Option<CallId>),
    /// The list may still come.
    NotYet,
}

/// Holds at most one call.
#[derive(Default)]
pub(super) struct Listing {
    /// A set, so that dropping it ends the call.
    call: JoinSet<Result<Heard, CallError>>,
    began: Option<Instant>,
}

impl Listing {
    /// Waits for the list of the call under way, or of a new one.
    pub(super) async fn hear(&mut self, session: &Arc<Session>) -> Heard {
        let began = *self.began.get_or_insert_with(Instant::now);
        if self.call.is_empty() {
            self.call.spawn(list(Arc::clone(session)));
        }
        let heard = match timeout_at(began + PATIENCE, self.call.join_next()).await {
            Ok(Some(Ok(Ok(heard)))) => heard,
            Ok(Some(Ok(Err(trouble)))) => Heard::Nothing(trouble.to_string(), trouble.call_id),
            Ok(Some(Err(error))) => Heard::Nothing(error.to_string(), None),
            // The set is not empty here: a call was added above.
            Ok(None) => Heard::Nothing("it was not asked for".to_owned(), None),
            // If the provider takes one call at a time, this call blocks all others.
            Err(_) if session.limiters.instances.width <= 1 => {
                let seconds = PATIENCE.as_secs();
                Heard::Nothing(
                    format!(
                        "it did not come within {seconds} s, and the provider takes no other call meanwhile"
                    ),
                    None,
                )
            }
            Err(_) => return Heard::NotYet,
        };
        self.give_up();
        heard
    }

    /// Drops the call under way.
    pub(super) fn give_up(&mut self) {
        self.call.abort_all();
        self.call = JoinSet::new();
        self.began = None;
    }

    /// Drops a list that has come. This pass does not need it, and for a later pass it would be too
    /// old.
    pub(super) fn not_needed(&mut self) {
        if self.call.try_join_next().is_some() {
            self.give_up();
        }
    }
}

/// The provider IDs in a list, without those of ABSENT instances.
async fn list(session: Arc<Session>) -> Result<Heard, CallError> {
    let mut instances = session
        .list_instances(&[api::InstanceFacet::Existence])
        .await?;
    instances.retain(|instance| instance.state() != api::InstanceState::Absent);
    let complete = instances.iter().all(|it| it.provider_id.is_some());
    let ids = instances.into_iter().filter_map(|it| it.provider_id);
    let ids = ids.collect();
    Ok(Heard::List { ids, complete })
}
