//! A term: renewed until it is lost or given back.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};

use super::wake::Wake;
use super::{AttemptError, SOON, Shared, is, params, record};
use crate::planted::planted;

/// A release that takes longer is given up: the Lease then expires by itself.
const RELEASE_CAP: Duration = Duration::from_secs(5);

/// Writes that one renewal tries in vain before its last.
const RENEWAL_WRITES: usize = 2;

/// Why the Lease is not ours any more.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Lost {
    /// No renewal succeeded in time.
    #[error("the Lease could not be renewed within {}s: {last_error}", .within.as_secs_f32())]
    Deadline {
        /// The renew deadline.
        within: Duration,
        /// What the last attempt said.
        last_error: String,
    },
    /// Somebody else is written in it; empty: somebody cleared it.
    #[error("the Lease is held by {holder:?}")]
    Taken {
        /// Their identity.
        holder: String,
    },
}

/// The time in which the Lease is held. Dropping it closes the fence.
pub(crate) struct Term {
    shared: Arc<Shared>,
    lease: Lease,
    /// Start of the last good renewal.
    renewed: Instant,
    /// Not before then is the next renewal tried.
    next: Instant,
    last_error: String,
    lost: Option<Lost>,
    wake: Wake,
}

impl Term {
    /// `None` when the answer came so late that the term is over already.
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

    /// Renews until the Lease is lost; the fence is closed then. May be dropped and called again at any time.
    pub(crate) async fn hold(&mut self) -> Lost {
        loop {
            if let Some(lost) = &self.lost {
                return lost.clone();
            }
            let deadline = self.deadline();
            let seen = tokio::select! {
                biased;
                () = sleep_until(self.next.min(deadline)) => Some(&self.lease),
                // Whoever finds no Lease may take it at once (client-go does): so it is made again at once, without a write of what is not there any more.
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
            // Whether or not the renewal succeeded, the next one starts from the Lease as it was last read.
            if let Some(read) = read.filter(|_| !planted!(StaleRenewal)) {
                self.lease = read;
            }
            // Also a good answer counts for nothing after the deadline (this process may have been suspended).
            if Instant::now() >= deadline {
                self.lose_by_deadline();
                continue;
            }
            match outcome {
                Ok(Ok(Renewal::Done(lease, start))) => self.extend(*lease, start),
                Ok(Ok(Renewal::Taken(holder))) => self.lose(Lost::Taken { holder }),
                Ok(Err(trouble)) => {
                    let why = trouble.refusal().unwrap_or_else(|| trouble.to_string());
                    self.retry(start, why);
                }
                // The deadline, which was looked at above.
                Err(_) => {}
            }
        }
    }

    fn retry(&mut self, start: Instant, error: String) {
        let left = self.deadline().saturating_duration_since(Instant::now());
        tracing::warn!(%error, lost_in = ?left, "cannot renew the Lease");
        // Sooner than the next regular renewal, but never at once.
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

    /// Gives the Lease back, so that another takes over at once. The fence is closed first: call it when nothing
    /// mutating is in flight. Takes at most 5 s and never goes past the deadline; a lost Lease is left alone. Where a call that changes the cloud was
    /// cancelled less than a lease duration ago the Lease is left to expire.
    pub(crate) async fn release(self) {
        self.end();
        let deadline = self.deadline();
        if self.lost.is_some() || Instant::now() >= deadline {
            return;
        }
        let given_up = self.shared.fence.given_up();
        if let Some(ago) = given_up.filter(|ago| {
            *ago < self.shared.config.lease_duration && !planted!(FreedThoughCancelled)
        }) {
            tracing::warn!(given_up = ?ago, "letting the Lease expire instead of releasing it: the provider may still work on a cancelled call");
            return;
        }
        // Before anybody else can lead: the answer may come after the next one has begun.
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
    /// As the server has it now, and when the request was sent that made it so.
    Done(Box<Lease>, Instant),
    Taken(String),
}

/// One renewal: a PUT of what we last saw; where that is not what is there, or nothing is known of it, a read and another. Each request has its own time. `read` is the
/// Lease as it was read last, also where what follows fails or is dropped.
async fn renew(
    shared: &Shared,
    seen: Option<&Lease>,
    start: Instant,
    read: &mut Option<Lease>,
) -> Result<Renewal, AttemptError> {
    let (mut seen, mut start) = (seen.cloned(), start);
    let mut conflicts = 0;
    loop {
        if let Some(lease) = seen {
            match timeout(shared.patience(), shared.write(lease)).await? {
                Ok(lease) => return Ok(Renewal::Done(Box::new(lease), start)),
                // Somebody wrote in between (perhaps we: an answer was lost), or it was deleted, or made again by another.
                Err(error) if is(&error, 409) || is(&error, 404) => {
                    conflicts += 1;
                    if conflicts > RENEWAL_WRITES {
                        return Err(error.into());
                    }
                }
                Err(error) => return Err(error.into()),
            }
        }
        let lease = match timeout(shared.patience(), shared.read()).await?? {
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

/// Something is wanted of the next renewal: it is due now, but never at once after the one before.
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
