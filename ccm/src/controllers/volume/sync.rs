//! One volume: ask, plan, write.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::Duration;

use k8s_openapi::api::core::v1::PersistentVolume;
use tokio::time::Instant;

use super::plan::{self, Labelling, Task};
use super::{Asking, Worker, source_types};
use crate::core::Key;
use crate::provider::{Trouble, TroubleCode};
use crate::queue::Outcome;
use crate::writes::{EventType, VolumePatch, WriteError, reason, volume_reference};

/// What only a person can mend (a right that is missing, a policy, a label by hand) is tried again after this.
const REFUSED_AGAIN: Duration = Duration::from_mins(30);

impl Worker {
    /// Works on the volume of this name, as it is now.
    pub(super) async fn sync(&self, name: &str, asking: Asking) -> Outcome {
        let Some(session) = self.session() else {
            return Outcome::RetryTransport;
        };
        let Some(volume) = self.volumes.get(&Key::node(name)) else {
            return Outcome::Forget;
        };
        let provider = &self.context.provider;
        let labelling = match plan::task(&volume, provider, source_types(&session)) {
            Task::LeaveAlone => return Outcome::Forget,
            Task::Trust(labels) => match plan::trusted(&volume, provider, &labels) {
                Ok(labelling) => labelling,
                Err(why) => {
                    self.warn(&volume, reason::VOLUME_LABELS_FAILED, why);
                    return Outcome::At(Instant::now() + REFUSED_AGAIN);
                }
            },
            Task::Ask(view) => {
                let asked = session.get_volume_labels(*view);
                // A lookup may be dropped at any time; only writes are finished.
                let Some(answer) = self.context.stop.run_until_cancelled(asked).await else {
                    return Outcome::Retry;
                };
                let planned = answer.and_then(|labels| {
                    plan::answered(&volume, provider, &labels).map_err(Trouble::fault)
                });
                match planned {
                    Ok(labelling) => {
                        self.queue.accepted(&name.to_owned());
                        labelling
                    }
                    Err(trouble) => return self.troubled(&volume, &trouble),
                }
            }
        };
        drop(asking);
        self.forget_busy(name);
        self.told.store(false, Ordering::Relaxed);
        match labelling {
            None => Outcome::Forget,
            // Whoever leads next begins with it.
            Some(_) if self.context.stop.is_cancelled() => Outcome::Retry,
            Some(labelling) => self.write(&volume, labelling).await,
        }
    }

    async fn write(&self, volume: &PersistentVolume, labelling: Labelling) -> Outcome {
        let Labelling { patch, dropped } = labelling;
        let writes = &self.context.writes;
        let mut written = writes.patch_volume(volume, &patch).await;
        if let Err(WriteError::Refused(why)) = &written
            && patch.node_affinity.is_some()
            && has_affinity(volume)
        {
            // The API server lets nobody change node affinity that is there; only the webhook could have added to it in time.
            let why = why.clone();
            let labels = VolumePatch {
                node_affinity: None,
                ..patch
            };
            written = writes.patch_volume(volume, &labels).await;
            if written.is_ok() {
                self.warn(
                    volume,
                    reason::VOLUME_AFFINITY_NOT_SET,
                    format!(
                        "Labels were set, but zone and region could not be added to the node affinity that the volume was created with: {why}"
                    ),
                );
            }
        }
        let provider = &self.context.provider;
        match written {
            Ok(_) => {
                tracing::info!(volume = super::name(volume), %provider, "PersistentVolume labelled");
                if !dropped.is_empty() {
                    let dropped = dropped.join(", ");
                    let message =
                        format!("The provider's labels {dropped} cannot be those of a volume");
                    self.warn(volume, reason::VOLUME_LABELS_DROPPED, message);
                }
                Outcome::Forget
            }
            // Another volume of this name has its own change.
            Err(WriteError::Gone) => Outcome::Forget,
            Err(error @ WriteError::Refused(_)) => {
                tracing::warn!(volume = super::name(volume), %provider, %error, "PersistentVolume not labelled");
                self.warn(volume, reason::VOLUME_WRITE_REFUSED, error.to_string());
                Outcome::At(Instant::now() + REFUSED_AGAIN)
            }
            Err(
                error @ (WriteError::Conflict | WriteError::Fenced(_) | WriteError::Unavailable(_)),
            ) => {
                tracing::debug!(volume = super::name(volume), %provider, %error, "PersistentVolume not labelled");
                Outcome::Retry
            }
        }
    }

    /// The provider did not say.
    fn troubled(&self, volume: &PersistentVolume, trouble: &Trouble) -> Outcome {
        let (key, provider) = (super::name(volume), &self.context.provider);
        if trouble.code == TroubleCode::NotFound {
            self.forget_busy(key);
            self.warn(
                volume,
                reason::VOLUME_NOT_FOUND,
                format!("The cloud has no such disk: {}", describe(trouble)),
            );
            return Outcome::Forget;
        }
        let failures = if trouble.code == TroubleCode::Busy {
            self.busy_again(key)
        } else {
            self.queue.failures(&key.to_owned())
        };
        let reaction = trouble.reaction_jittered(failures, self.jitter(key, failures));
        let why = describe(trouble);
        // What concerns every volume alike is logged once; that the credentials are refused is told on one of them.
        let common = matches!(
            trouble.code,
            TroubleCode::Credentials | TroubleCode::Unavailable | TroubleCode::Throttled
        );
        let first = if common {
            !self.told.swap(true, Ordering::Relaxed)
        } else {
            failures == 0
        };
        if first && trouble.code != TroubleCode::Fenced {
            tracing::warn!(volume = key, %provider, error = why, "PersistentVolume not labelled");
        } else {
            tracing::debug!(volume = key, %provider, error = why, "PersistentVolume not labelled");
        }
        if reaction.event || (first && trouble.code == TroubleCode::Credentials) {
            self.warn(
                volume,
                reason::VOLUME_LABELS_FAILED,
                format!("Error getting labels for the volume: {why}"),
            );
        }
        reaction.retry.outcome(Instant::now())
    }

    /// How often it was BUSY in a row before.
    fn busy_again(&self, name: &str) -> u32 {
        let mut busy = self.busy.lock().unwrap_or_else(PoisonError::into_inner);
        let times = busy.entry(name.to_owned()).or_default();
        let before = *times;
        *times = times.saturating_add(1);
        before
    }

    pub(super) fn forget_busy(&self, name: &str) {
        let mut busy = self.busy.lock().unwrap_or_else(PoisonError::into_inner);
        busy.remove(name);
    }

    fn warn(&self, volume: &PersistentVolume, reason: &str, message: String) {
        let object = volume_reference(volume);
        let events = &self.context.writes.events;
        events.record(&object, EventType::Warning, reason, message);
    }

    /// 0.0 to 1.0: volumes that were BUSY together do not come back together.
    fn jitter(&self, key: &str, failures: u32) -> f64 {
        use std::hash::{DefaultHasher, Hash, Hasher};
        let mut hasher = DefaultHasher::new();
        (self.context.seed, key, failures).hash(&mut hasher);
        f64::from((hasher.finish() >> 32) as u32) / f64::from(u32::MAX)
    }
}

fn has_affinity(volume: &PersistentVolume) -> bool {
    let spec = volume.spec.as_ref();
    spec.is_some_and(|spec| spec.node_affinity.is_some())
}

pub(super) fn describe(trouble: &Trouble) -> String {
    match (trouble.reason.is_empty(), trouble.message.is_empty()) {
        (true, true) => trouble.code.label().to_owned(),
        (true, false) => trouble.message.clone(),
        (false, true) => trouble.reason.clone(),
        (false, false) => format!("{}: {}", trouble.reason, trouble.message),
    }
}
