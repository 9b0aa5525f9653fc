//! Leader election by a Lease, after client-go's rules, and the [`Fence`] that follows from it.
//!
//! A Go CCM and this one contend for the same Lease. What makes that safe, whatever is slow, lost or repeated:
//! every write carries the resourceVersion that was read; somebody else's Lease expires only by the local monotonic
//! clock, counted from when its spec was last seen to change; our own ends at the *start* of the last good renewal plus
//! the renew deadline, which is shorter than the duration that others wait; and the fence opens only until then.

mod annotations;
mod record;
mod term;
#[cfg(test)]
mod tests;
mod wake;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::api::PostParams;
use kube::{Api, Client};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};
use tokio_util::sync::CancellationToken;

use crate::args::LeaderElectionConfig;
use crate::core::{Fence, WallClock, lock, wall_time};
use crate::kube_client::refusal;
use annotations::Annotations;
use record::{Claim, Observed};
use wake::Wake;

pub(crate) use term::{Lost, Term};

/// After a conflict or a refused renewal we look again this soon.
const SOON: Duration = Duration::from_millis(200);
/// A standby that saw a release waits up to this long, so that not all of them ask at once.
const RELEASE_JITTER: Duration = Duration::from_millis(50);

/// `leader_election_master_status`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Metrics {
    status: Family<NameLabel, Gauge>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct NameLabel {
    name: String,
}

impl Metrics {
    /// Registers the metrics.
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register(
            "leader_election_master_status",
            "Whether this process holds the Lease of that name: 1 leader, 0 standby",
            metrics.status.clone(),
        );
        metrics
    }

    /// A candidate for this Lease, which does not lead yet.
    pub(crate) fn stands(&self, name: &str) {
        self.set(name, false);
    }

    fn set(&self, name: &str, leads: bool) {
        let label = NameLabel {
            name: name.to_owned(),
        };
        self.status.get_or_create(&label).set(i64::from(leads));
    }
}

/// An identity for this process that no other has (B-M3): host name, `_`, UUID.
pub(crate) fn identity(host: &str, unique: uuid::Uuid) -> String {
    format!("{host}_{unique}")
}

/// Stands for election. Clones share one state; one of them at a time may stand.
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
    /// Its UID as last read or written: `kubectl describe` looks for events by it.
    uid: Mutex<Option<String>>,
    /// Start of the last good renewal while a term lasts.
    renewed: watch::Sender<Option<Instant>>,
    /// Who held it when it was last looked at.
    other: Mutex<Option<Other>>,
}

/// Another process that holds the Lease, and until when, by our clock, if it is never heard of again.
struct Other {
    holder: String,
    expiry: Instant,
}

/// What one look at the Lease gave.
enum Attempt {
    Held(Box<Lease>, Instant),
    /// Not before then.
    Wait(Instant),
}

impl Elector {
    /// `client` is the one of [`crate::kube_client::KubeClients::lease`]: not fenced.
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
        };
        Self {
            shared: Arc::new(shared),
        }
    }

    /// This process, as the Lease names it.
    pub(crate) fn identity(&self) -> &str {
        &self.shared.identity
    }

    /// The Lease, for the events `LeaderElection` "<identity> became leader" and "<identity> stopped leading", and those about the provider's cloud scope.
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

    /// The Lease's annotations as last seen; fresh to within a retry period while the Lease is held or stood for.
    pub(crate) fn annotations(&self) -> watch::Receiver<BTreeMap<String, String>> {
        self.shared.annotations.subscribe()
    }

    /// Writes an annotation at once where the Lease is held, else with the next renewal, unless somebody changes it before: then theirs stays, and
    /// [`Self::annotations`] shows it.
    pub(crate) fn set_annotation(&self, key: &str, value: &str) {
        self.shared.annotations.set(key, value);
    }

    /// For people: who leads in this process's place, and when this one would.
    pub(crate) fn stands_behind(&self) -> Option<String> {
        let other = lock(&self.shared.other);
        // What is past says nothing of now: the API server does not answer.
        let other = other.as_ref().filter(|other| other.expiry > Instant::now());
        let Other { holder, expiry } = other?;
        let until = self.shared.by_the_wall_clock(*expiry);
        Some(format!(
            "{holder} leads; if it does not renew, this process may take the Lease from {until:.0}"
        ))
    }

    /// Whether a leader renews as it should (B-M4). A standby is well.
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

    /// Stands for election while `standing` says so, until the Lease is held (the fence is then open) or `stop` is cancelled.
    pub(crate) async fn acquire(
        &self,
        mut standing: watch::Receiver<bool>,
        stop: &CancellationToken,
    ) -> Option<Term> {
        let shared = &self.shared;
        let mut observed = None;
        let mut reported = String::new();
        let mut complaint = String::new();
        loop {
            // Nobody looks meanwhile.
            *lock(&shared.other) = None;
            tokio::select! {
                biased;
                () = stop.cancelled() => return None,
                () = becomes(&mut standing, true) => {}
            }
            let mut wake = Wake::new(shared.api.clone(), &shared.config.resource_name);
            while !stop.is_cancelled() && *standing.borrow() {
                let attempt = shared.attempt(&mut observed, &mut reported).await;
                shared.complain(&attempt, &mut complaint);
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
    /// Looks at the Lease and takes it if it is free. Bounded; never dropped halfway by [`Elector::acquire`], so that
    /// what was taken is known.
    async fn attempt(
        &self,
        observed: &mut Option<Observed>,
        reported: &mut String,
    ) -> Result<Attempt, AttemptError> {
        let config = &self.config;
        let read = self.read();
        let read = timeout_at(Instant::now() + self.patience(), read).await??;
        let now = Instant::now();
        if let Some(lease) = &read {
            record::observe(observed, lease.spec.as_ref(), now);
            self.publish(lease);
        }
        // Also when it is gone: whoever held it holds it on, by its own clock, and will make it again.
        match record::claim(
            observed.as_ref(),
            &self.identity,
            config.lease_duration,
            now,
        ) {
            Claim::Until(expiry) => {
                let holder = read.as_ref().map_or("", record::holder);
                if *reported != holder {
                    holder.clone_into(reported);
                    let lease_until = self.by_the_wall_clock(expiry);
                    tracing::info!(holder, %lease_until, "another process leads");
                }
                let holder = holder.to_owned();
                *lock(&self.other) = Some(Other { holder, expiry });
                return Ok(Attempt::Wait(expiry));
            }
            Claim::Free | Claim::Ours => {
                reported.clear();
                *lock(&self.other) = None;
            }
        }
        let lease = read.unwrap_or_else(|| self.absent());
        let start = Instant::now();
        match timeout_at(start + self.patience(), self.write(lease)).await? {
            Ok(lease) => Ok(Attempt::Held(Box::new(lease), start)),
            // Another one was faster, or an annotation was edited.
            Err(error) if is(&error, 409) => Ok(Attempt::Wait(start + SOON)),
            Err(error) => Err(error.into()),
        }
    }

    /// Says why the Lease cannot be stood for: once, until something else is in the way.
    fn complain(&self, attempt: &Result<Attempt, AttemptError>, said: &mut String) {
        let Err(trouble) = attempt else {
            said.clear();
            return;
        };
        let config = &self.config;
        let (namespace, lease) = (&config.resource_namespace, &config.resource_name);
        let text = trouble.to_string();
        if *said == text {
            tracing::debug!(
                namespace,
                lease,
                error = text,
                "cannot read or take the Lease"
            );
            return;
        }
        match trouble.refusal() {
            Some(refused) => {
                tracing::warn!(namespace, lease, %refused, "the API server answers, but refuses the Lease: this process cannot lead");
            }
            None => {
                tracing::warn!(
                    namespace,
                    lease,
                    error = text,
                    "cannot read or take the Lease; retrying"
                );
            }
        }
        *said = text;
    }

    /// For people, in whole seconds.
    fn by_the_wall_clock(&self, at: Instant) -> jiff::Timestamp {
        wall_time(at, Instant::now(), (self.wall)())
    }

    async fn read(&self) -> kube::Result<Option<Lease>> {
        self.api.get_opt(&self.config.resource_name).await
    }

    /// Writes the Lease as ours; creates it where it has no resourceVersion.
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

    /// A Lease to be created, with the annotations of the one that somebody deleted.
    fn absent(&self) -> Lease {
        let mut lease = record::absent(&self.config.resource_namespace, &self.config.resource_name);
        lease.metadata.annotations = self.annotations.of_a_new_lease();
        lease
    }

    fn publish(&self, lease: &Lease) {
        lock(&self.uid).clone_from(&lease.metadata.uid);
        self.annotations.observe(lease);
    }

    /// How long one request may take: there must be time for another before the deadline.
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

/// Waits until `standing` has the value; for ever when nobody is left to change it.
async fn becomes(standing: &mut watch::Receiver<bool>, value: bool) {
    if standing.wait_for(|now| *now == value).await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// Why an attempt to take the Lease came to nothing.
#[derive(Debug, thiserror::Error)]
enum AttemptError {
    #[error("no answer in time")]
    Slow(#[from] tokio::time::error::Elapsed),
    #[error(transparent)]
    Kube(#[from] kube::Error),
}

impl AttemptError {
    /// What the API server refused, and the right that is missing; `None` where it did not answer.
    fn refusal(&self) -> Option<String> {
        match self {
            Self::Kube(error) => refusal(error),
            Self::Slow(_) => None,
        }
    }
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
