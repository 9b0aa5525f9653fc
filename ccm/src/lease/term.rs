//! A term: renews the Lease until it is lost or released.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use super::wake::Wake;
use super::{SOON, Shared, is, params, record, within};
use crate::kube_client::refusal;
use crate::planted::planted;

/// After this time the ccm gives up a release. The Lease then expires by itself.
const RELEASE_CAP: Duration = Duration::from_secs(5);

/// The most conflicts in one renewal. After more conflicts the renewal fails.
const RENEWAL_WRITES: usize = 2;

/// Why this process does not hold the Lease any more.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Lost {
    /// No renewal succeeded in time.
    #[error("the Lease could not be renewed within {}s: {last_error}", .within.as_secs_f32())]
    Deadline {
        /// The renew deadline.
        within: Duration,
        /// The error of the last attempt.
        last_error: String,
    },
    /// The Lease names another holder. Empty: somebody cleared the holder.
    #[error("the Lease is held by {holder:?}")]
    Taken {
        /// The identity of the new holder.
        holder: String,
    },
}

/// The time in which this process holds the Lease. Dropping it closes the fence.
pub(crate) struct Term {
    shared: Arc<Shared>,
    lease: Lease,
    /// The start of the last good renewal.
    renewed: Instant,
    /// When the next renewal is due.
    next: Instant,
    last_error: String,
    lost: Option<Lost>,
    wake: Wake,
}

impl Term {
    /// `None` if the answer came so late that the term is over already.
    pub(super) fn begin(shared: Arc<Shared>, lease: Lease, start: Instant) -> Option<Self> {
        let mut term = Self {
            renewed: start,
            next: start,
            last_error: "no answer".to_owned(),
            lost: None,
            wake: Wake::new(shared.api.clone(), &shared.config.resource_name),
            shared,
            lease,
        };
        if Instant::now() >= term.deadline() {
            return None;
        }
        let lease = term.lease.clone();
        term.extend(lease, start);
        let shared = &term.shared;
        shared.metrics.set(&shared.config.resource_name, true);
        tracing::info!(identity = %shared.identity, "leading");
        Some(term)
    }

    fn deadline(&self) -> Instant {
        self.renewed + self.shared.config.renew_deadline
    }

    fn extend(&mut self, lease: Lease, start: Instant) {
        self.lease = lease;
        self.renewed = start;
        self.next = start + self.shared.config.retry_period;
        self.shared.renewed.send_replace(Some(start));
        self.shared.fence.extend(self.deadline());
    }

    /// Renews until the Lease is lost; then the fence is closed. Cancel safe.
    pub(crate) async fn hold(&mut self) -> Lost {
        loop {
            if let Some(lost) = &self.lost {
                return lost.clone();
            }
            let deadline = self.deadline();
            let seen = tokio::select! {
                biased;
                () = sleep_until(self.next.min(deadline)) => Some(&self.lease),
                // client-go takes a missing Lease at once. So this process creates it again at
                // once, without a write of the old one first.
                () = self.wake.not_held_by(&self.shared.identity) => None,
                () = hurried(&self.shared, self.renewed) => Some(&self.lease),
            };
            let start = Instant::now();
            if start >= deadline {
                self.lose_by_deadline();
                continue;
            }
            let mut read = None;
            let renewal = renew(&self.shared, seen, start, &mut read);
            let limit = if planted!(StaleRenewal) {
                deadline.min(start + self.shared.patience())
            } else {
                deadline
            };
            let outcome = timeout_at(limit, renewal).await;
            // Even after a failed renewal, the next one starts from the Lease as last read.
            if let Some(read) = read.filter(|_| !planted!(StaleRenewal)) {
                self.lease = read;
            }
            // A good answer after the deadline does not count: the process may have been suspended.
            if Instant::now() >= deadline {
                self.lose_by_deadline();
                continue;
            }
            match outcome {
                Ok(Ok(Renewal::Done(lease, start))) => self.extend(*lease, start),
                Ok(Ok(Renewal::Taken(holder))) => self.lose(Lost::Taken { holder }),
                Ok(Err(error)) => {
                    let why = refusal(&error).unwrap_or_else(|| error.to_string());
                    self.retry(start, why);
                }
                // The deadline, which is checked above.
                Err(_) => {}
            }
        }
    }

    fn retry(&mut self, start: Instant, error: String) {
        let left = self.deadline().saturating_duration_since(Instant::now());
        tracing::warn!(%error, lost_in = ?left, "cannot renew the Lease");
        // Usually sooner than the next regular renewal, but not at once.
        let again = start + self.shared.retry() / 2;
        self.next = again.max(Instant::now() + SOON);
        self.last_error = error;
    }

    fn lose_by_deadline(&mut self) {
        let within = self.shared.config.renew_deadline;
        let last_error = std::mem::take(&mut self.last_error);
        self.lose(Lost::Deadline { within, last_error });
    }

    fn lose(&mut self, lost: Lost) {
        self.end();
        tracing::error!(reason = %lost, "lost the Lease");
        self.lost = Some(lost);
    }

    fn end(&self) {
        let shared = &self.shared;
        shared.fence.close();
        shared.renewed.send_replace(None);
        shared.metrics.set(&shared.config.resource_name, false);
    }

    /// Closes the fence and releases the Lease, so that another process can take over at once.
    /// Takes at most 5 s, and ends at the deadline at the latest. Leaves a lost Lease alone. Lets
    /// the Lease expire if a mutating provider call is in flight, or was abandoned without an
    /// answer less than a lease duration ago.
    pub(crate) async fn release(self) {
        self.end();
        let deadline = self.deadline();
        if self.lost.is_some() || Instant::now() >= deadline {
            return;
        }
        let fence = &self.shared.fence;
        let given_up = if fence.is_changing() && !planted!(CallsInFlightAreFreed) {
            Some(Duration::ZERO)
        } else {
            fence.given_up()
        };
        if let Some(ago) = given_up.filter(|ago| {
            *ago < self.shared.config.lease_duration && !planted!(FreedThoughCancelled)
        }) {
            tracing::warn!(given_up = ?ago, "letting the Lease expire instead of releasing it: the provider may still work on a call without an answer");
            return;
        }
        // Logged before the request: its answer may come after another process has logged that it
        // leads.
        tracing::info!("stopped leading");
        let limit = deadline.min(Instant::now() + RELEASE_CAP);
        match timeout_at(limit, give_back(&self.shared, self.lease.clone())).await {
            Ok(Ok(())) => tracing::info!("released the Lease"),
            Ok(Err(error)) => {
                tracing::warn!(%error, "cannot release the Lease: it will expire");
            }
            Err(_) => tracing::warn!("cannot release the Lease in time: it will expire"),
        }
    }
}

impl Drop for Term {
    fn drop(&mut self) {
        self.end();
    }
}

enum Renewal {
    /// The Lease as the server has it now, and when the successful request was sent.
    Done(Box<Lease>, Instant),
    Taken(String),
}

/// Renews once: writes the Lease as last seen. After a conflict, or if `seen` is `None`, reads the
/// Lease and writes again. Each request has its own deadline. `read` gets the last read Lease, even
/// if a later request fails or the future is dropped.
async fn renew(
    shared: &Shared,
    seen: Option<&Lease>,
    start: Instant,
    read: &mut Option<Lease>,
) -> kube::Result<Renewal> {
    let (mut seen, mut start) = (seen.cloned(), start);
    let mut conflicts = 0;
    loop {
        if let Some(lease) = seen {
            match within(shared.patience(), shared.write(lease)).await {
                Ok(lease) => return Ok(Renewal::Done(Box::new(lease), start)),
                // Somebody wrote in between, perhaps this process itself if an answer was lost. Or
                // somebody deleted the Lease, or created it again.
                Err(error) if is(&error, 409) || is(&error, 404) => {
                    conflicts += 1;
                    if conflicts > RENEWAL_WRITES {
                        return Err(error);
                    }
                }
                Err(error) => return Err(error),
            }
        }
        let lease = match within(shared.patience(), shared.read()).await? {
            Some(lease) if record::holder(&lease) == shared.identity => lease,
            Some(lease) => return Ok(Renewal::Taken(record::holder(&lease).to_owned())),
            None => {
                tracing::warn!("somebody deleted the Lease: creating it again");
                shared.absent()
            }
        };
        shared.publish(&lease);
        *read = Some(lease.clone());
        seen = Some(lease);
        start = Instant::now();
    }
}

/// Returns when an annotation is wanted, but at the earliest [`SOON`] after the last renewal.
async fn hurried(shared: &Shared, renewed: Instant) {
    shared.annotations.hurried().await;
    sleep_until(renewed + SOON).await;
}

async fn give_back(shared: &Shared, mut lease: Lease) -> kube::Result<()> {
    let name = &shared.config.resource_name;
    loop {
        record::release(&mut lease, (shared.wall)());
        match shared.api.replace(name, &params(), &lease).await {
            Ok(_) => return Ok(()),
            Err(error) if is(&error, 409) || is(&error, 404) => {}
            Err(error) if is(&error, 403) => return Err(error),
            Err(error) => tracing::debug!(%error, "releasing again"),
        }
        match shared.read().await {
            Ok(Some(read)) if record::holder(&read) == shared.identity => lease = read,
            Ok(_) => return Ok(()),
            Err(error) => tracing::debug!(%error, "cannot read the Lease"),
        }
        sleep(SOON).await;
    }
}
