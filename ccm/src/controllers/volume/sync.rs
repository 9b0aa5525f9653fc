//! One volume: ask, plan, write.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::PersistentVolume;
use tokio::time::Instant;

use super::plan::{self, Labelling, Task};
use super::{Worker, source_types};
use crate::controller::Batch;
use crate::core::Key;
use crate::provider::{CallError, CallErrorCode, Session};
use crate::queue::Requeue;
use crate::writes::{EventType, VolumePatch, WriteError, reason, reference};

/// The delay after a failure that only a person can fix (a missing right, a policy, a label set by
/// hand).
const REFUSED_AGAIN: Duration = Duration::from_mins(30);
/// People are told of [`WriteError::Unavailable`] from this many failed attempts in a row on.
const WARNED_AT: u32 = 6;

impl Worker {
    /// Reconciles the current volume of this name.
    pub(super) async fn sync(&self, name: &str, session: &Arc<Session>, batch: &Batch<'_, String>) {
        let key = name.to_owned();
        let settle = |outcome| batch.settle(&key, outcome);
        let Some(volume) = self.volumes.get(&Key::node(name)) else {
            return settle(Requeue::Forget);
        };
        let (provider, stop) = (&self.driver.context.provider, &self.driver.context.stop);
        let labelling = match plan::task(&volume, provider, source_types(session)) {
            Task::LeaveAlone => return settle(Requeue::Forget),
            Task::Trust(labels) => match plan::trusted(&volume, provider, &labels) {
                Ok(labelling) => labelling,
                Err(why) => {
                    self.warn(&volume, reason::VOLUME_LABELS_FAILED, why);
                    return settle(Requeue::At(Instant::now() + REFUSED_AGAIN));
                }
            },
            Task::Ask(view) => {
                let asked = session.get_volume_labels(*view);
                // The stop drops a call in flight. It waits for a write in flight.
                let Some(answer) = stop.run_until_cancelled(asked).await else {
                    return;
                };
                let planned = answer.and_then(|labels| {
                    plan::answered(&volume, provider, &labels).map_err(CallError::fault)
                });
                match planned {
                    Ok(labelling) => {
                        batch.answered(&key);
                        labelling
                    }
                    Err(trouble) => return self.troubled(&volume, &trouble, batch),
                }
            }
        };
        match labelling {
            None => settle(Requeue::Forget),
            // The next leader writes the changes.
            Some(_) if stop.is_cancelled() => {}
            Some(labelling) => {
                let _writing = self.driver.writing();
                batch.called();
                settle(self.write(&volume, labelling).await);
            }
        }
    }

    async fn write(&self, volume: &PersistentVolume, labelling: Labelling) -> Requeue {
        let Labelling {
            patch,
            dropped,
            not_set,
        } = labelling;
        let writes = &self.driver.context.writes;
        let mut written = writes.patch_volume(volume, &patch).await;
        if let Err(WriteError::Refused(why)) = &written
            && patch.node_affinity.is_some()
            && has_affinity(volume)
        {
            // The API server refuses changes to existing node affinity. Only the webhook can extend
            // it, before the volume is stored.
            let why = why.clone();
            let labels = VolumePatch {
                node_affinity: None,
                ..patch
            };
            written = writes.patch_volume(volume, &labels).await;
            if written.is_ok() {
                self.affinity_not_set(volume, &why);
            }
        }
        let provider = &self.driver.context.provider;
        match written {
            Ok(_) => {
                tracing::info!(volume = super::name(volume), %provider, "PersistentVolume labelled");
                if !dropped.is_empty() {
                    let dropped = dropped.join(", ");
                    let message =
                        format!("The provider's labels {dropped} are not valid for a volume");
                    self.warn(volume, reason::VOLUME_LABELS_DROPPED, message);
                }
                if let Some(why) = not_set {
                    self.affinity_not_set(volume, &why);
                }
                Requeue::Forget
            }
            // If another volume has this name now, its creation makes it due.
            Err(WriteError::Gone) => Requeue::Forget,
            Err(error @ WriteError::Refused(_)) => {
                tracing::warn!(volume = super::name(volume), %provider, %error, "PersistentVolume not labelled");
                self.warn(volume, reason::VOLUME_WRITE_REFUSED, error.to_string());
                Requeue::At(Instant::now() + REFUSED_AGAIN)
            }
            // For instance an admission webhook that always fails: only a person can mend that.
            Err(error @ WriteError::Unavailable(_))
                if self.driver.queue.failures(&super::name(volume).to_owned()) + 1 >= WARNED_AT =>
            {
                tracing::warn!(volume = super::name(volume), %provider, %error, "PersistentVolume not labelled: the attempts keep failing");
                self.warn(volume, reason::VOLUME_WRITE_REFUSED, error.to_string());
                Requeue::Retry
            }
            Err(
                error @ (WriteError::Conflict | WriteError::Fenced(_) | WriteError::Unavailable(_)),
            ) => {
                tracing::debug!(volume = super::name(volume), %provider, %error, "PersistentVolume not labelled");
                Requeue::Retry
            }
        }
    }

    fn troubled(&self, volume: &PersistentVolume, trouble: &CallError, batch: &Batch<'_, String>) {
        let (key, provider) = (
            super::name(volume).to_owned(),
            &self.driver.context.provider,
        );
        let (why, call_id) = (describe(trouble), trouble.call_id());
        if trouble.code == CallErrorCode::NotFound {
            self.warn(
                volume,
                reason::VOLUME_NOT_FOUND,
                format!("The cloud has no such disk: {why}"),
            );
            return batch.settle(&key, Requeue::Forget);
        }
        let failed = batch.failed(&key, trouble);
        if failed.warn {
            tracing::warn!(volume = key, %provider, call_id, error = why, "PersistentVolume not labelled");
        } else {
            tracing::debug!(volume = key, %provider, call_id, error = why, "PersistentVolume not labelled");
        }
        if failed.event {
            self.warn(
                volume,
                reason::VOLUME_LABELS_FAILED,
                format!("Error getting labels for the volume: {why}"),
            );
        }
    }

    fn affinity_not_set(&self, volume: &PersistentVolume, why: &str) {
        let message = format!(
            "Labels were set, but zone and region could not be added to the node affinity that the volume was created with: {why}"
        );
        self.warn(volume, reason::VOLUME_AFFINITY_NOT_SET, message);
    }

    fn warn(&self, volume: &PersistentVolume, reason: &str, message: String) {
        let object = reference(volume);
        let events = &self.driver.context.writes.events;
        events.record(&object, EventType::Warning, reason, message);
    }
}

fn has_affinity(volume: &PersistentVolume) -> bool {
    let spec = volume.spec.as_ref();
    spec.is_some_and(|spec| spec.node_affinity.is_some())
}

pub(super) fn describe(trouble: &CallError) -> String {
    match (trouble.reason.is_empty(), trouble.message.is_empty()) {
        (true, true) => trouble.code.label().to_owned(),
        (true, false) => trouble.message.clone(),
        (false, true) => trouble.reason.clone(),
        (false, false) => format!("{}: {}", trouble.reason, trouble.message),
    }
}
