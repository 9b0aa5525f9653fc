//! The Leases that this process tries to hold: the main one, and that of the leader migration
//! (B-M6).

use std::fmt::Write as _;

use crate::args::{Config, LeaderElectionConfig};
use crate::core::Fence;
use crate::core::text::plain;
use crate::lease::Elector;
use crate::serve::{Health, Probe};

/// Each Lease with its fence.
#[derive(Clone)]
pub(super) struct Leases {
    pub(super) fence: Fence,
    /// `None` with `--leader-elect=false`: then the fence is open.
    pub(super) elector: Option<Elector>,
    /// `None` without a leader migration.
    pub(super) migration: Option<(Fence, Elector)>,
}

/// The fence for everything under the main Lease.
pub(super) fn fence(config: &LeaderElectionConfig) -> Fence {
    if config.enabled {
        return Fence::closed();
    }
    tracing::warn!(
        "--leader-elect=false: nothing prevents a second ccm from working at the same time"
    );
    Fence::open()
}

impl Leases {
    /// `elector` makes an elector for a Lease and its fence. The number seeds its jitter.
    pub(super) fn new(
        fence: Fence,
        config: &Config,
        elector: impl Fn(LeaderElectionConfig, &Fence, u64) -> Elector,
    ) -> Self {
        let election = &config.leader_election;
        let migration = config.leader_migration.as_ref().map(|migration| {
            let election = LeaderElectionConfig {
                resource_name: migration.lease.clone(),
                ..election.clone()
            };
            let fence = Fence::closed();
            let elector = elector(election, &fence, 7);
            (fence, elector)
        });
        let stands = election.enabled;
        Self {
            elector: stands.then(|| elector(election.clone(), &fence, 3)),
            fence,
            migration,
        }
    }

    /// Adds checks to `/healthz` that fail if a leader did not renew in time (B-M4).
    pub(super) fn checks(&self, health: &Health) {
        if let Some(elector) = self.elector.clone() {
            health.check(Probe::Health, "leaderElection", move || elector.health());
        }
        if let Some((_, elector)) = self.migration.clone() {
            health.check(Probe::Health, "leaderMigration", move || elector.health());
        }
    }

    /// For people: one line for each Lease, which says whether this process leads, else why not.
    pub(super) fn text(&self) -> String {
        let identity = self
            .elector
            .as_ref()
            .map_or("without election", Elector::identity);
        let mut text = format!("leader election: {identity} {}", leads(&self.fence));
        if let Some(elector) = &self.elector {
            text.push_str(&why_not(&self.fence, elector));
        }
        text.push('\n');
        if let Some((fence, elector)) = &self.migration {
            let _ = writeln!(
                text,
                "leader migration, Lease {}: {} {}{}",
                elector.reference().name.unwrap_or_default(),
                elector.identity(),
                leads(fence),
                why_not(fence, elector)
            );
        }
        text
    }
}

fn leads(fence: &Fence) -> &'static str {
    if fence.check().is_ok() {
        "leads"
    } else {
        "stands by"
    }
}

/// Why this process does not lead, as far as it knows.
fn why_not(fence: &Fence, elector: &Elector) -> String {
    if fence.check().is_ok() {
        return String::new();
    }
    let reasons = [elector.stands_behind(), elector.complaint()];
    let reasons = reasons.into_iter().flatten();
    // The API server's text may hold a line break.
    let parts = reasons.map(|why| format!(": {}", plain(&why)));
    parts.collect::<Vec<_>>().concat()
}
