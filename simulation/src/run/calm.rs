//! The end of a run: faults end, and the state must become right.

use std::time::Duration;

use tokio::time::Instant;

use super::{Run, setup};
use crate::checker::fields::is_ready;
use crate::checker::model::{self, World};
use crate::checker::{LEASE, MIGRATION_LEASE, SECOND_LEASE, is_known};
use crate::plan::Trait;

/// After this time without faults, Nodes that are not Ready and have no instance must be gone, if a
/// Node is a witness and no brake may hold them.
const SOON: Duration = Duration::from_mins(8);
/// After this time without faults, the whole state must be right.
const CALM: Duration = Duration::from_mins(25);
/// An active brake releases Nodes after a quarter of an hour, then one or two in ten minutes. This
/// is enough time for all.
const BRAKED: Duration = Duration::from_mins(75);
/// If a run has not settled after [`CALM`], nothing may change for this time, unless a brake still
/// holds Nodes. Then the state must be right. If a brake may act, this time begins later: see
/// [`BRAKED`].
const STILL: Duration = Duration::from_mins(5);
/// A run ends sooner if the state is right and nothing has changed for this time. Only a pending
/// timer could undo that state. One seed in [`PATIENT`] waits longer, to find such a timer.
const SETTLED: Duration = Duration::from_secs(100);
/// When nothing happens, the ccms send at most this many requests and calls a minute for each
/// process, without Probes and those about Leases.
const QUIET: u64 = 30;
/// How often the run checks whether the state is right.
pub(super) const LOOK: Duration = Duration::from_secs(20);
/// See [`SETTLED`].
const PATIENT: u64 = 32;
/// One seed in this many ends with events that must change nothing.
const STIRRED: u64 = 3;

impl Run {
    /// Ends the faults, and checks that the expected state follows.
    pub(super) async fn calm(&mut self) -> anyhow::Result<()> {
        self.faults.end();
        for cloud in &self.clouds {
            cloud.be_honest();
            setup::ways(&self.setup, cloud)?;
            // The cloud can attach all Nodes from now on.
            cloud.change_settings(|settings| settings.target_errors.clear())?;
        }
        // A hanging call ends at its deadline. A stream has no deadline, so the run breaks its
        // connection.
        if self.faults.has_hung("WatchChanges") {
            self.provider.disconnect();
        }
        self.trace.note("* from now on nothing goes wrong");
        self.calm = true;
        self.hurry().await?;
        let calm = Instant::now();
        let patient = self.seed.is_multiple_of(PATIENT);
        let mut settled = self.settles(calm + SOON, patient).await?;
        if !settled {
            self.soon();
            settled = self.settles(calm + CALM, patient).await?;
        }
        if !settled && self.checker.may_brake() {
            self.settles(calm + BRAKED, false).await?;
        }
        if !settled {
            self.still().await?;
        }
        let braked = self.checker.is_braked(&self.api.list("nodes"));
        let holds = self.trace.violations().is_empty();
        if holds && !braked && self.seed.is_multiple_of(STIRRED) {
            self.stir().await?;
        }
        Ok(())
    }

    /// Makes the cloud accept everything, and finish each operation within 8 s. Otherwise a run
    /// would take hours.
    async fn hurry(&mut self) -> anyhow::Result<()> {
        let quick = self.slow_ms.min(8_000);
        if self.setup.has(Trait::GoesOn) {
            // A cancelled call goes on as slowly as it began. No later call should overtake it in
            // the cloud.
            let slow = Duration::from_millis(self.slow_ms);
            self.fair();
            self.until(Instant::now() + slow).await?;
        }
        self.slow_ms = quick;
        self.fair();
        Ok(())
    }

    /// Makes the clouds accept everything.
    fn fair(&self) {
        for cloud in &self.clouds {
            cloud.set_weather(provider_mock::Weather {
                fail: None,
                slow_ms: self.slow_ms,
            });
        }
    }

    /// Lets time pass until the state is right and stable. `false`: it was not right and stable
    /// before `until`, or `patient` is set.
    async fn settles(&mut self, until: Instant, patient: bool) -> anyhow::Result<bool> {
        let mut last = (self.events(), Instant::now(), self.faults.sent());
        while !patient && Instant::now() < until {
            self.until(Instant::now() + LOOK).await?;
            if self.events() != last.0 || self.is_under_way() {
                last = (self.events(), Instant::now(), self.faults.sent());
            } else if last.1.elapsed() >= SETTLED && self.wrong().is_empty() {
                self.quiet(self.faults.sent() - last.2, last.1.elapsed());
                return Ok(true);
            }
        }
        self.until(until).await?;
        Ok(false)
    }

    /// Checks that the ccms sent few requests in this time, in which nothing happened.
    fn quiet(&self, sent: u64, time: Duration) {
        let most = QUIET * time.as_secs() / 60 * self.processes.len() as u64;
        if sent > most {
            self.trace.violation(format_args!(
                "{sent} requests and calls in {} s, though nothing happened; {most} would be fine",
                time.as_secs()
            ));
        }
    }

    /// Counts changes and new leaders: a new leader checks everything.
    fn events(&self) -> u64 {
        self.checker.changes() + self.checker.terms()
    }

    /// Whether something is pending: a call, a step's consequence, or a new leader.
    fn is_under_way(&self) -> bool {
        self.checker.is_called() || !self.later.is_empty() || !self.is_led()
    }

    /// Whether a running process holds each Lease.
    fn is_led(&self) -> bool {
        let leases = [
            Some(LEASE),
            self.setup.has(Trait::Migration).then_some(MIGRATION_LEASE),
            self.setup.has(Trait::Second).then_some(SECOND_LEASE),
        ];
        leases
            .into_iter()
            .flatten()
            .all(|lease| self.checker.is_led(lease))
    }

    /// Checks that nothing changes any more, and that the state is right.
    async fn still(&mut self) -> anyhow::Result<()> {
        let (before, read, sent) = (self.checker.changes(), self.reads(), self.faults.sent());
        self.until(Instant::now() + STILL).await?;
        self.quiet(self.faults.sent() - sent, STILL);
        let (changes, read) = (self.checker.changes() - before, self.reads() - read);
        let braked = self.checker.is_braked(&self.api.list("nodes"));
        let minutes = STILL.as_secs() / 60;
        if changes > 0 && !braked {
            self.trace.violation(format_args!(
                "{changes} changes in the last {minutes} min, though nothing happened"
            ));
        }
        if read > 0 && !braked {
            self.trace.violation(format_args!(
                "{read} objects were read in the last {minutes} min, though nothing happened"
            ));
        }
        if !self.is_led() {
            self.trace.violation("nobody leads");
        }
        for wrong in self.wrong() {
            self.trace.violation(wrong);
        }
        Ok(())
    }

    fn reads(&self) -> u64 {
        self.faults.count("GET nodes") + self.faults.count("GET services")
    }

    /// The differences that remain.
    fn wrong(&self) -> Vec<String> {
        let (nodes, services) = (self.api.list("nodes"), self.api.list("services"));
        let mut wrong = model::wrong(&World {
            nodes: &nodes,
            services: &services,
            clouds: &self.clouds,
            setup: &self.setup,
            braked: self.checker.is_braked(&nodes),
        });
        wrong.extend(self.checker.touched());
        wrong
    }

    /// Checks that Nodes are gone that are not Ready and have no instance, if a Node is a witness
    /// and no brake had reason to hold them.
    fn soon(&self) {
        let nodes = self.api.list("nodes");
        if self.checker.may_brake() {
            return;
        }
        let witness = nodes.iter().any(|node| {
            is_known(node) && is_ready(node) && self.checker.machine_of(node).is_some()
        });
        for node in nodes.iter().filter(|_| witness) {
            if is_known(node) && !is_ready(node) && self.checker.machine_of(node).is_none() {
                let minutes = SOON.as_secs() / 60;
                self.trace.violation(format!(
                    "the Node {} still exists after {minutes} min, though its instance is gone and no brake has reason to hold it",
                    node["metadata"]["name"]
                ));
            }
        }
    }

    /// Plays events that must change nothing in the cloud: Nodes that are not Ready for a moment, a
    /// label, new processes.
    async fn stir(&mut self) -> anyhow::Result<()> {
        let before = self.checker.mutating_calls();
        self.trace.note("* Nodes are not Ready for a moment");
        for i in 0..16 {
            self.flap(i);
        }
        self.until(Instant::now() + Duration::from_mins(2)).await?;
        let calls = self.checker.mutating_calls() - before;
        if calls > 0 {
            self.trace.violation(format!(
                "{calls} calls change the cloud because Nodes were not Ready for a moment"
            ));
        }
        if !self.setup.has(Trait::InSync) || self.setup.has(Trait::SilentGet) {
            return Ok(());
        }
        self.trace.note("* all ccms are replaced");
        (0..self.processes.len()).for_each(|place| self.end(place));
        self.until(Instant::now() + Duration::from_mins(4)).await?;
        let calls = self.checker.mutating_calls() - before - calls;
        if calls > 0 {
            self.trace.violation(format!(
                "{calls} calls change the cloud because ccms were replaced"
            ));
        }
        for wrong in self.wrong() {
            self.trace.violation(wrong);
        }
        Ok(())
    }
}
