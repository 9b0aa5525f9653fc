//! The persistent volume label controller (B-V1): labels and node affinity for PersistentVolumes whose disks the provider knows.
//!
//! ```text
//! Change -> queue -> plan::task -> GetVolumeLabels -> plan::answered -> one patch -> done      (the controller)
//! CREATE -> admission -> plan::task -> GetVolumeLabels -> plan::answered -> a JSON patch       (the webhook)
//! ```
//!
//! The watch of PersistentVolumes lives and ends with the loop: who does not ask for the controller needs no right to see them.

mod plan;
mod sync;
#[cfg(test)]
mod tests;
mod webhook;

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use cloud_provider_api::v1alpha1::VolumeCapability;
use k8s_openapi::api::core::v1::PersistentVolume;
use tokio::sync::watch;
use tokio::task::{Id, JoinError, JoinSet};

use crate::cluster::{Change, Store};
use crate::controller::LoopContext;
use crate::provider::{Capability, Session};
use crate::queue::{Backoff, Outcome, Queue};
pub(crate) use webhook::Webhook;
#[cfg(test)]
pub(crate) use webhook::fuzz;

/// Its name, as events show it.
const COMPONENT: &str = "persistent-volume-label-controller";
/// The label of its `workqueue_*` metrics, as the first cloud controllers had it.
const QUEUE: &str = "pvLabels";

/// Volumes that are worked on at once: those that are asked about, and those whose write is not over.
const MOST_JOBS: usize = 64;

const BACKOFF: Backoff = Backoff {
    base: Duration::from_secs(1),
    max: Duration::from_mins(5),
};

/// The loop of one provider, which fills `volumes`. Returns after `context.stop`, when what is in flight is over.
pub(crate) async fn run(context: LoopContext, volumes: Store<PersistentVolume>) {
    let (client, seed) = (context.watch_client.clone(), context.seed);
    let worker = Arc::new(Worker::new(context, volumes.clone()));
    tokio::select! {
        biased;
        () = worker.work() => {}
        () = volumes.watch(client, seed) => {}
    }
}

/// What the parts of the loop share.
struct Worker {
    context: LoopContext,
    volumes: Store<PersistentVolume>,
    /// Names of PersistentVolumes.
    queue: Queue<String>,
    /// How many volumes are asked about.
    asking: watch::Sender<usize>,
    /// How often in a row a volume was BUSY; those of the queue's failures are no measure, as such a volume comes back at a time of its own.
    busy: Mutex<BTreeMap<String, u32>>,
    /// What concerns all volumes (refused credentials, a cloud that is down) was told since it last went well.
    told: AtomicBool,
}

impl Worker {
    fn new(mut context: LoopContext, volumes: Store<PersistentVolume>) -> Self {
        context.writes = context.writes.with_component(COMPONENT);
        let queue = Queue::new(QUEUE, BACKOFF, context.seed, &context.queue_metrics);
        queue.pause();
        Self {
            context,
            volumes,
            queue,
            asking: watch::Sender::new(0),
            busy: Mutex::default(),
            told: AtomicBool::new(false),
        }
    }

    /// Returns after the stop, when what is in flight is over.
    async fn work(self: &Arc<Self>) {
        tokio::join!(
            self.watch_volumes(),
            self.follow_provider(),
            self.dispatch()
        );
    }

    /// Feeds the queue from the store.
    async fn watch_volumes(&self) {
        let mut changes = self.volumes.subscribe();
        loop {
            let batch = tokio::select! {
                biased;
                () = self.context.stop.cancelled() => return,
                batch = changes.next() => batch,
            };
            for change in &batch {
                self.note(change);
            }
        }
    }

    fn note(&self, change: &Change<PersistentVolume>) {
        match (&change.old, &change.new) {
            (old, Some(volume)) => {
                if plan::wakes(old.as_deref(), volume) {
                    self.queue.add(name(volume).to_owned());
                }
            }
            (Some(volume), None) => {
                let name = name(volume).to_owned();
                self.forget_busy(&name);
                self.queue.remove(&name);
            }
            (None, None) => {}
        }
    }

    /// Pauses while the provider cannot be asked, and goes on at once when it can again (▲M9).
    async fn follow_provider(&self) {
        let mut status = self.context.status.clone();
        let mut last: Weak<Session> = Weak::new();
        let mut knows: Option<Knows> = None;
        let mut scope_told = false;
        loop {
            let (session, unaccepted, scope) = {
                let status = status.borrow_and_update();
                let unaccepted = status.working().is_some() && !status.scope_accepted;
                (
                    status.usable(Capability::Volumes),
                    unaccepted,
                    status.cloud_scope.clone(),
                )
            };
            if let Some(session) = &session {
                let current = Arc::downgrade(session);
                if !current.ptr_eq(&last) {
                    last = current;
                    self.queue.reset_transport_backoffs();
                    let now = Knows::of(session, scope);
                    // One that only came back knows no other disks than before: volumes that are not its, and there may be thousands of them, are not asked about again.
                    if knows.as_ref().is_some_and(|before| *before != now) {
                        self.add_all();
                    }
                    knows = Some(now);
                }
                self.queue.resume();
                scope_told = false;
            } else {
                self.queue.pause();
                if unaccepted && !scope_told {
                    scope_told = true;
                    tracing::warn!(
                        provider = %self.context.provider,
                        "no PersistentVolume is labelled: the cloud scope is not the accepted one"
                    );
                }
            }
            drop(session);
            tokio::select! {
                biased;
                () = self.context.stop.cancelled() => return,
                changed = status.changed() => if changed.is_err() {
                    self.queue.pause();
                    return self.context.stop.cancelled().await;
                },
            }
        }
    }

    fn add_all(&self) {
        for volume in self.volumes.all() {
            self.queue.add(name(&volume).to_owned());
        }
    }

    /// Asks about as many volumes at once as the provider allows; a write that is not over holds nobody's place.
    async fn dispatch(self: &Arc<Self>) {
        let mut jobs = JoinSet::new();
        let mut names: HashMap<Id, String> = HashMap::new();
        let mut asking = self.asking.subscribe();
        loop {
            let limit = self
                .session()
                .map_or(1, |session| session.volumes_in_flight());
            let room = limit
                .saturating_sub(*asking.borrow_and_update())
                .min(MOST_JOBS.saturating_sub(jobs.len()));
            tokio::select! {
                biased;
                () = self.context.stop.cancelled() => break,
                Some(ended) = jobs.join_next_with_id(), if !jobs.is_empty() => self.ended(ended, &mut names),
                Ok(()) = asking.changed() => {}
                batch = self.queue.next_batch(room, Duration::ZERO), if room > 0 => for name in batch {
                    let worker = Arc::clone(self);
                    let volume = name.clone();
                    let asking = Asking::begin(&self.asking);
                    let job = jobs.spawn(async move { worker.sync(&volume, asking).await });
                    names.insert(job.id(), name);
                },
            }
        }
        while let Some(ended) = jobs.join_next_with_id().await {
            self.ended(ended, &mut names);
        }
    }

    fn ended(&self, ended: Result<(Id, Outcome), JoinError>, names: &mut HashMap<Id, String>) {
        let (id, outcome) = match ended {
            Ok(ended) => ended,
            Err(error) => {
                tracing::error!(%error, "the work on a PersistentVolume broke off: a bug");
                (error.id(), Outcome::Retry)
            }
        };
        if let Some(name) = names.remove(&id) {
            self.queue.done(&name, outcome);
        }
    }

    /// The session, while volumes may be asked about and written.
    fn session(&self) -> Option<Arc<Session>> {
        self.context.status.borrow().usable(Capability::Volumes)
    }
}

/// A volume that is asked about.
struct Asking(watch::Sender<usize>);

impl Asking {
    fn begin(asking: &watch::Sender<usize>) -> Self {
        asking.send_modify(|count| *count += 1);
        Self(asking.clone())
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count = count.saturating_sub(1));
    }
}

/// What decides which disks a provider knows.
#[derive(PartialEq)]
struct Knows {
    name: String,
    version: String,
    offered: Option<VolumeCapability>,
    scope: Option<String>,
}

impl Knows {
    fn of(session: &Session, scope: Option<String>) -> Self {
        let info = &session.info;
        let offered = info.capabilities.as_ref();
        Self {
            name: info.provider_name.clone(),
            version: info.provider_version.clone(),
            offered: offered.and_then(|offered| offered.volumes.clone()),
            scope,
        }
    }
}

/// The sources that the provider names as its own.
fn source_types(session: &Session) -> &[String] {
    let offered = session.info.capabilities.as_ref();
    let volumes = offered.and_then(|offered| offered.volumes.as_ref());
    volumes.map_or(&[], |volumes| &volumes.source_types)
}

fn name(volume: &PersistentVolume) -> &str {
    volume.metadata.name.as_deref().unwrap_or_default()
}
