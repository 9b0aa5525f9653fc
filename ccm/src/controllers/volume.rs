//! The persistent volume label controller (B-V1): labels and node affinity for PersistentVolumes
//! whose disks the provider knows.
//!
//! ```text
//! Change -> queue -> plan::task -> GetVolumeLabels -> plan::answered -> one patch -> done      (the controller)
//! CREATE -> admission -> plan::task -> GetVolumeLabels -> plan::answered -> a JSON patch       (the webhook)
//! ```
//!
//! The watch of PersistentVolumes ends with the loop. Without this controller, the ccm needs no
//! right to read them.

mod plan;
mod sync;
#[cfg(test)]
mod tests;
mod webhook;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use cloud_provider_api::v1alpha1::VolumeCapability;
use k8s_openapi::api::core::v1::PersistentVolume;

use crate::cluster::{Change, Store};
use crate::controller::{Batch, Driver, LoopContext, Reconciler, Spec, Wake, Width, changes};
use crate::core::{Backoff, lock};
use crate::provider::{Capability, ProviderStatus, Session};
pub(crate) use webhook::Webhook;
#[cfg(any(test, fuzzing))]
pub(crate) use webhook::fuzz;

/// If this many volumes are being written, no further volume leaves the queue.
const MOST_WRITES: usize = 64;

/// The loop of one provider, which fills `volumes`. Returns after `context.stop`, when the work in
/// flight has ended.
pub(crate) async fn run(context: LoopContext, volumes: Store<PersistentVolume>) {
    let (client, seed) = (context.watch_client.clone(), context.seed);
    let worker = Arc::new(Worker::new(context, volumes.clone()));
    tokio::select! {
        biased;
        () = crate::controller::run(&worker) => {}
        () = volumes.watch(client, seed) => {}
    }
}

struct Worker {
    /// Its keys are the names of PersistentVolumes.
    driver: Driver<String>,
    volumes: Store<PersistentVolume>,
    /// The last session's facts about volumes.
    knows: Mutex<Option<Knows>>,
}

impl Worker {
    fn new(context: LoopContext, volumes: Store<PersistentVolume>) -> Self {
        let spec = Spec {
            name: "persistent-volume-label-controller",
            // The queue's name in the first cloud controllers.
            queue: "pvLabels",
            backoff: Backoff::new(Duration::from_secs(1), Duration::from_mins(5)),
            needs: Capability::Volumes,
        };
        Self {
            driver: Driver::new(context, spec),
            volumes,
            knows: Mutex::default(),
        }
    }
}

impl Reconciler for Worker {
    type Key = String;

    fn driver(&self) -> &Driver<String> {
        &self.driver
    }

    async fn sources(&self) {
        changes(&self.driver, &self.volumes, wakes).await;
    }

    /// A session that only reconnected knows the same disks as before. So the controller does not
    /// ask again about volumes that are not the provider's: there may be thousands.
    fn renewed(&self, session: &Arc<Session>, status: &ProviderStatus) -> Vec<String> {
        let info = &session.info;
        let offered = info.capabilities.as_ref();
        let now = (
            info.provider_name.clone(),
            info.provider_version.clone(),
            offered.and_then(|offered| offered.volumes.clone()),
            status.cloud_scope.clone(),
        );
        let mut knows = lock(&self.knows);
        let before = knows.replace(now);
        if before.is_none() || before == *knows {
            return Vec::new();
        }
        let volumes = self.volumes.all();
        volumes
            .iter()
            .map(|volume| name(volume).to_owned())
            .collect()
    }

    fn width(&self, session: &Arc<Session>) -> Width {
        Width {
            batch: 1,
            linger: Duration::ZERO,
            calls: session.limiters.volumes.width,
            writes: MOST_WRITES,
        }
    }

    async fn reconcile(&self, session: &Arc<Session>, batch: &Batch<'_, String>) {
        for name in batch.keys() {
            self.sync(&name, session, batch).await;
        }
    }
}

fn wakes(change: &Change<PersistentVolume>) -> Option<Wake<String>> {
    match (&change.old, &change.new) {
        (old, Some(volume)) => {
            plan::wakes(old.as_deref(), volume).then(|| Wake::Due(name(volume).to_owned()))
        }
        (Some(volume), None) => Some(Wake::Gone(name(volume).to_owned())),
        (None, None) => None,
    }
}

/// The values that decide which disks a provider knows: its name, version, capability and scope.
type Knows = (String, String, Option<VolumeCapability>, Option<String>);

/// The volume sources that the provider declares as its own.
fn source_types(session: &Session) -> &[String] {
    let offered = session.info.capabilities.as_ref();
    let volumes = offered.and_then(|offered| offered.volumes.as_ref());
    volumes.map_or(&[], |volumes| &volumes.source_types)
}

fn name(volume: &PersistentVolume) -> &str {
    volume.metadata.name.as_deref().unwrap_or_default()
}
