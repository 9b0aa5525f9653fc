//! Leader election by a Lease, by client-go's rules, and the [`Fence`] that follows from it.
//!
//! A Go CCM and this one may compete for the same Lease. Four rules keep that safe, even if
//! requests are slow, lost or repeated:
//! - Every update of an existing Lease carries the resourceVersion of the last read or write.
//! - Another holder's Lease expires only by the local monotonic clock, counted from the last change
//!   of its spec that this process saw.
//! - This process's own term ends at the latest at the *start* of the last good renewal plus the
//!   renew deadline, which is shorter than the duration that others wait.
//! - The fence is open only until then.

mod annotations;
mod record;
mod term;
#[cfg(test)]
mod tests;
mod wake;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::FutureExt as _;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::api::PostParams;
use kube::{Api, Client};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use crate::args::LeaderElectionConfig;
use crate::core::{Fence, WallClock, lock, registered, wall_time};
use crate::kube_client::refusal;
use annotations::Annotations;
use record::{Claim, Observed};
use wake::Wake;

pub(crate) use term::{Lost, Term};

/// The wait after a conflict in an acquisition, and between attempts to release. Also the shortest
/// scheduled wait after a failed renewal, and the shortest time from a renewal to one that an
/// annotation brings forward.
const SOON: Duration = Duration::from_millis(200);
/// After a release a standby waits up to this long, at random, so that not all standbys ask at
/// once.
const RELEASE_JITTER: Duration = Duration::from_millis(50);

/// `leader_election_master_status`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Metrics {
    status: Family<[(&'static str, String); 1], Gauge>,
}

impl Metrics {
    pub(crate) fn register(registry: &mut Registry) -> Self {
        Self {
            status: registered(
                registry,
                "leader_election_master_status",
                "Whether this process holds the Lease of that name: 1 leader, 0 standby",
                Family::default(),
            ),
        }
    }

    /// Reports that this process is a standby for this Lease.
    pub(crate) fn stands(&self, name: &str) {
        self.set(name, false);
    }

    fn set(&self, name: &str, leads: bool) {
        let labels = [("name", name.to_owned())];
        self.status.get_or_create(&labels).set(i64::from(leads));
    }
}

/// This process's identity, which no other has (B-M3): host name, `_`, UUID.
pub(crate) fn identity(host: &str, unique: uuid::Uuid) -> String {
    format!("{host}_{unique}")
}

/// Takes part in the election. Clones share one state, and only one of them at a time may take
/// part.
#[derive(Clone)]
pub(crate) struct Elector {
    shared: Arc<Shared>,
}

struct Shared {
    api: Api<Lease>,
    config: LeaderElectionConfig,
    identity: String,
    fence: Fence,
    wall: WallClock,
    rng: Mutex<StdRng>,
    metrics: Metrics,
    annotations: Annotations,
    /// The Lease's UID in the last read or write: `kubectl describe` finds events by it.
    uid: Mutex<Option<String>>,
    /// The start of the last good renewal; `None` outside of a term.
    renewed: watch::Sender<Option<Instant>>,
    /// The holder in the last read, if it is another process.
    other: Mutex<Option<Other>>,
    /// For people: why the last attempt to take the Lease failed. `None`: it did not.
    complaint: Mutex<Option<String>>,
}

/// Another process that holds the Lease, and when the Lease expires by the local clock unless it
/// changes.
struct Other {
    holder: String,
    expiry: Instant,
}

/// The result of one attempt.
enum Attempt {
    Held(Box<Lease>, Instant),
    /// When the Lease may be free. The next attempt comes after [`Shared::retry`] at the latest.
    Wait(Instant),
}

impl Elector {
    /// `client` comes from [`crate::kube_client::KubeClients::lease`], which no fence guards.
    pub(crate) fn new(
        client: Client,
        config: LeaderElectionConfig,
        identity: String,
        fence: Fence,
        wall: WallClock,
        seed: u64,
        metrics: Metrics,
    ) -> Self {
        metrics.stands(&config.resource_name);
        let shared = Shared {
            api: Api::namespaced(client, &config.resource_namespace),
            config,
            identity,
            fence,
            wall,
            rng: Mutex::new(StdRng::seed_from_u64(seed)),
            metrics,
            annotations: Annotations::default(),
            uid: Mutex::default(),
            renewed: watch::Sender::default(),
            other: Mutex::default(),
            complaint: Mutex::default(),
        };
        Self {
            shared: Arc::new(shared),
        }
    }

    /// This process's name in the Lease.
    pub(crate) fn identity(&self) -> &str {
        &self.shared.identity
    }

    /// The Lease, for events: `LeaderElection` "<identity> became leader" and "<identity> stopped
    /// leading", and those about the provider's cloud scope, its claims, and Nodes of other clouds.
    pub(crate) fn reference(&self) -> ObjectReference {
        ObjectReference {
            api_version: Some("coordination.k8s.io/v1".to_owned()),
            kind: Some("Lease".to_owned()),
            namespace: Some(self.shared.config.resource_namespace.clone()),
            name: Some(self.shared.config.resource_name.clone()),
            uid: lock(&self.shared.uid).clone(),
            ..ObjectReference::default()
        }
    }

    /// The Lease's annotations as last seen. This process's reads and writes of the Lease update
    /// them.
    pub(crate) fn annotations(&self) -> watch::Receiver<BTreeMap<String, String>> {
        self.shared.annotations.subscribe()
    }

    /// Writes an annotation: soon if the Lease is held, else with the next write. If somebody
    /// else changes the annotation before, their value stays, and [`Self::annotations`] shows it.
    pub(crate) fn set_annotation(&self, key: &str, value: &str) {
        self.shared.annotations.set(key, value);
    }

    /// For people: the present leader, and when this process may take over.
    pub(crate) fn stands_behind(&self) -> Option<String> {
        let other = lock(&self.shared.other);
        // If the expiry has passed, no read has succeeded since, and the holder is unknown.
        let other = other.as_ref().filter(|other| other.expiry > Instant::now());
        let Other { holder, expiry } = other?;
        let until = self.shared.by_the_wall_clock(*expiry);
        Some(format!(
            "{holder} leads; if it does not renew, this process may take the Lease from {until:.0}"
        ))
    }

    /// For people: why the last attempt to take the Lease failed. `None`: it did not.
    pub(crate) fn complaint(&self) -> Option<String> {
        lock(&self.shared.complaint).clone()
    }

    /// Whether a leader renews in time (B-M4). A standby is always healthy.
    pub(crate) fn health(&self) -> Result<(), String> {
        let Some(renewed) = *self.shared.renewed.borrow() else {
            return Ok(());
        };
        let age = renewed.elapsed();
        if age < self.shared.config.renew_deadline {
            return Ok(());
        }
        Err(format!(
            "failed to renew the Lease {}/{} for {}s",
            self.shared.config.resource_namespace,
            self.shared.config.resource_name,
            age.as_secs()
        ))
    }

    /// Tries to take the Lease while `standing` is true. Returns when this process holds it, with
    /// an open fence, or when `stop` is cancelled.
    pub(crate) async fn acquire(
        &self,
        mut standing: watch::Receiver<bool>,
        stop: &CancellationToken,
    ) -> Option<Term> {
        let shared = &self.shared;
        let mut observed = None;
        loop {
            // This process does not read the Lease while it waits here.
            *lock(&shared.other) = None;
            *lock(&shared.complaint) = None;
            tokio::select! {
                biased;
                () = stop.cancelled() => return None,
                () = becomes(&mut standing, true) => {}
            }
            let mut wake = Wake::new(shared.api.clone(), &shared.config.resource_name);
            while !stop.is_cancelled() && *standing.borrow() {
                let attempt = shared.attempt(&mut observed).await;
                shared.complain(&attempt);
                let next = match attempt {
                    Ok(Attempt::Held(lease, start)) => {
                        if let Some(term) = Term::begin(Arc::clone(shared), *lease, start) {
                            if !stop.is_cancelled() && *standing.borrow() {
                                return Some(term);
                            }
                            term.release().await;
                        }
                        Instant::now() + shared.retry()
                    }
                    Ok(Attempt::Wait(expiry)) => {
                        expiry.clamp(Instant::now(), Instant::now() + shared.retry())
                    }
                    Err(_) => Instant::now() + shared.retry(),
                };
                tokio::select! {
                    biased;
                    () = stop.cancelled() => {}
                    () = becomes(&mut standing, false) => {}
                    () = sleep_until(next) => {}
                    () = wake.released() => sleep(shared.jitter(RELEASE_JITTER)).await,
                }
            }
        }
    }
}

impl Shared {
    /// Reads the Lease and takes it if it is free. Takes bounded time. [`Elector::acquire`] waits
    /// for its end, also after `stop`.
    async fn attempt(&self, observed: &mut Option<Observed>) -> kube::Result<Attempt> {
        let config = &self.config;
        let read = within(self.patience(), self.read()).await?;
        let now = Instant::now();
        if let Some(lease) = &read {
            record::observe(observed, lease.spec.as_ref(), now);
            self.publish(lease);
        }
        // The last spec counts also after the Lease was deleted: its holder may still lead by its
        // own clock, and create the Lease again.
        match record::claim(
            observed.as_ref(),
            &self.identity,
            config.lease_duration,
            now,
        ) {
            Claim::Until(expiry) => {
                // A deleted Lease names nobody, so the holder is the last one that was read.
                let holder = observed.as_ref().map_or("", Observed::holder).to_owned();
                let other = Other {
                    holder: holder.clone(),
                    expiry,
                };
                let before = lock(&self.other).replace(other);
                if before.is_none_or(|before| before.holder != holder) {
                    let lease_until = self.by_the_wall_clock(expiry);
                    tracing::info!(holder, %lease_until, "another process leads");
                }
                return Ok(Attempt::Wait(expiry));
            }
            Claim::Free | Claim::Ours => *lock(&self.other) = None,
        }
        let lease = read.unwrap_or_else(|| self.absent());
        let start = Instant::now();
        match within(self.patience(), self.write(lease)).await {
            Ok(lease) => Ok(Attempt::Held(Box::new(lease), start)),
            // Another process was faster, or somebody edited an annotation.
            Err(error) if is(&error, 409) => Ok(Attempt::Wait(start + SOON)),
            Err(error) => Err(error),
        }
    }

    /// Warns why this process cannot take the Lease. Logs repeats of the same reason at DEBUG,
    /// until an attempt succeeds, the reason changes, or this process stops trying.
    fn complain(&self, attempt: &kube::Result<Attempt>) {
        let Err(error) = attempt else {
            *lock(&self.complaint) = None;
            return;
        };
        let config = &self.config;
        let (namespace, lease) = (&config.resource_namespace, &config.resource_name);
        let (refused, error) = (refusal(error), error.to_string());
        let text = match &refused {
            Some(refused) => format!("the API server answers, but refuses the Lease: {refused}"),
            None => format!("cannot read or take the Lease: {error}"),
        };
        let said = lock(&self.complaint).replace(text.clone());
        if said == Some(text) {
            tracing::debug!(namespace, lease, error, "cannot read or take the Lease");
            return;
        }
        match refused {
            Some(refused) => {
                tracing::warn!(namespace, lease, %refused, "the API server answers, but refuses the Lease: this process cannot lead");
            }
            None => {
                tracing::warn!(
                    namespace,
                    lease,
                    error,
                    "cannot read or take the Lease; retrying"
                );
            }
        }
    }

    /// The wall time of `at`, in whole seconds, for people.
    fn by_the_wall_clock(&self, at: Instant) -> jiff::Timestamp {
        wall_time(at, Instant::now(), (self.wall)())
    }

    async fn read(&self) -> kube::Result<Option<Lease>> {
        self.api.get_opt(&self.config.resource_name).await
    }

    /// Writes the Lease with this process as its holder. Creates it if it has no resourceVersion.
    async fn write(&self, mut lease: Lease) -> kube::Result<Lease> {
        let duration = self.config.lease_duration;
        record::hold(&mut lease, &self.identity, duration, (self.wall)());
        let added = self.annotations.add_to(&mut lease);
        let lease = if lease.metadata.resource_version.is_some() {
            let name = &self.config.resource_name;
            self.api.replace(name, &params(), &lease).await?
        } else {
            self.api.create(&params(), &lease).await?
        };
        self.annotations.written(&added);
        self.publish(&lease);
        Ok(lease)
    }

    /// A Lease to create, with the annotations that this process last saw on it.
    fn absent(&self) -> Lease {
        let mut lease = record::absent(&self.config.resource_namespace, &self.config.resource_name);
        lease.metadata.annotations = self.annotations.of_a_new_lease();
        lease
    }

    fn publish(&self, lease: &Lease) {
        lock(&self.uid).clone_from(&lease.metadata.uid);
        self.annotations.observe(lease);
    }

    /// The longest time for one request, which leaves time for another before the deadline.
    fn patience(&self) -> Duration {
        self.config.renew_deadline / 3
    }

    /// The retry period and up to a fifth more.
    fn retry(&self) -> Duration {
        let period = self.config.retry_period;
        period + self.jitter(period / 5)
    }

    fn jitter(&self, most: Duration) -> Duration {
        most.mul_f64(lock(&self.rng).random::<f64>())
    }
}

/// Waits until `standing` has the value. Waits for ever if nobody can change it any more.
async fn becomes(standing: &mut watch::Receiver<bool>, value: bool) {
    if standing.wait_for(|now| *now == value).await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// The answer to a request. If it takes longer than `limit`, the request has failed.
fn within<T>(
    limit: Duration,
    request: impl Future<Output = kube::Result<T>>,
) -> impl Future<Output = kube::Result<T>> {
    let late = |_| Err(kube::Error::Service("no answer in time".into()));
    timeout(limit, request).map(move |answer| answer.unwrap_or_else(late))
}

fn params() -> PostParams {
    PostParams {
        dry_run: false,
        field_manager: Some(env!("CARGO_PKG_NAME").to_owned()),
    }
}

fn is(error: &kube::Error, code: u16) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == code)
}
