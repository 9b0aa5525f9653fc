//! Who holds which Lease.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

/// The renewals of all Leases.
pub(super) struct Leases {
    /// How long a leader may write after it sent its last successful renewal.
    deadline: Duration,
    /// By Lease and process.
    renewals: BTreeMap<String, BTreeMap<String, Renewal>>,
    /// The last process to acquire each Lease.
    leaders: BTreeMap<String, String>,
    terms: u64,
}

/// The last renewal of one Lease by one process.
struct Renewal {
    /// When the process sent it.
    sent: Instant,
    /// When the process sent the last renewal whose answer arrived.
    confirmed: Option<Instant>,
    /// Whether the process released the Lease after this renewal.
    released: bool,
}

impl Leases {
    pub(super) fn new(deadline: Duration) -> Self {
        Self {
            deadline,
            renewals: BTreeMap::new(),
            leaders: BTreeMap::new(),
            terms: 0,
        }
    }

    /// The API server accepted a renewal, which may be the first.
    pub(super) fn renew(&mut self, lease: &str, identity: &str, sent: Instant) {
        let all = self.renewals.entry(lease.to_owned()).or_default();
        let confirmed = all.get(identity).and_then(|before| before.confirmed);
        let renewal = Renewal {
            sent,
            confirmed,
            released: false,
        };
        all.insert(identity.to_owned(), renewal);
    }

    /// The process got the answer to the renewal that it sent at `at`.
    pub(super) fn confirm(&mut self, lease: &str, identity: &str, at: Instant) {
        if let Some(renewal) = self.renewal_mut(lease, identity) {
            renewal.confirmed = renewal.confirmed.max(Some(at));
        }
    }

    pub(super) fn release(&mut self, lease: &str, identity: &str) {
        if let Some(renewal) = self.renewal_mut(lease, identity) {
            renewal.released = true;
        }
    }

    pub(super) fn begin_term(&mut self, lease: &str, identity: &str) {
        self.terms += 1;
        self.leaders.insert(lease.to_owned(), identity.to_owned());
    }

    /// The last process to acquire this Lease.
    pub(super) fn leader(&self, lease: &str) -> Option<&str> {
        self.leaders.get(lease).map(String::as_str)
    }

    /// How often the leader of a Lease changed.
    pub(super) fn terms(&self) -> u64 {
        self.terms
    }

    /// Whether the process may write by this Lease.
    pub(super) fn holds(&self, lease: &str, identity: &str) -> bool {
        self.renewal(lease, identity)
            .is_some_and(|renewal| self.permits(renewal, renewal.sent))
    }

    /// Whether the process knows that it may write, from the renewals whose answers arrived.
    pub(super) fn knows_to_hold(&self, lease: &str, identity: &str) -> bool {
        self.renewal(lease, identity).is_some_and(|renewal| {
            renewal
                .confirmed
                .is_some_and(|at| self.permits(renewal, at))
        })
    }

    fn permits(&self, renewal: &Renewal, at: Instant) -> bool {
        at.elapsed() < self.deadline && !renewal.released
    }

    /// How long ago the process sent its last successful renewal.
    pub(super) fn age(&self, lease: &str, identity: &str) -> Option<Duration> {
        Some(self.renewal(lease, identity)?.sent.elapsed())
    }

    fn renewal(&self, lease: &str, identity: &str) -> Option<&Renewal> {
        self.renewals.get(lease)?.get(identity)
    }

    fn renewal_mut(&mut self, lease: &str, identity: &str) -> Option<&mut Renewal> {
        self.renewals.get_mut(lease)?.get_mut(identity)
    }
}
