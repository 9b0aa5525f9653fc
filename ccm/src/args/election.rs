//! Flags of the leader election, and of the leader migration (B-M6).

use std::path::PathBuf;
use std::time::Duration;

use super::{InvalidFlag, LeaderElectionConfig, LeaderMigrationConfig, Notice, migration, parse};

/// The flags, in upstream's groups.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Leader-migration flags")]
pub(super) struct ElectionArgs {
    /// Run the controllers that migrate from another component under a second Lease, for which
    /// both components compete. Only with --leader-elect.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true", action = clap::ArgAction::Set, value_parser = parse::boolean)]
    enable_leader_migration: bool,

    /// A LeaderMigrationConfiguration of controllermanager.config.k8s.io: which controllers
    /// migrate, and the name of the Lease. By default routes, Services and the Node lifecycle
    /// migrate, under cloud-provider-extraction-migration.
    #[arg(long, value_name = "FILE")]
    leader_migration_config: Option<PathBuf>,

    #[command(flatten)]
    election: LeaderElectionConfig,
}

impl ElectionArgs {
    /// The configuration. Errors go to `wrong`.
    pub(super) fn config(
        self,
        wrong: &mut Vec<InvalidFlag>,
    ) -> (LeaderElectionConfig, Option<LeaderMigrationConfig>) {
        // As in upstream, nothing migrates without leader election.
        let migrates = self.election.enabled && self.enable_leader_migration;
        let migration = migrates.then(|| match &self.leader_migration_config {
            Some(path) if !path.as_os_str().is_empty() => {
                migration::read(path, &self.election.resource_name, wrong)
            }
            _ => LeaderMigrationConfig::default(),
        });
        (self.election, migration)
    }

    /// Notices for flags that were given and have no effect.
    pub(super) fn notices(&self) -> Vec<Notice> {
        let mut notices = Vec::new();
        if self.enable_leader_migration && !self.election.enabled {
            notices.push(Notice::new(
                "--enable-leader-migration",
                "the leader migration needs --leader-elect",
            ));
        }
        if self.leader_migration_config.is_some() && !self.enable_leader_migration {
            notices.push(Notice::new(
                "--leader-migration-config",
                "it is read with --enable-leader-migration only",
            ));
        }
        notices
    }

    pub(super) fn check(&self, wrong: &mut Vec<InvalidFlag>) {
        let (lease, renew, retry) = (
            self.election.lease_duration,
            self.election.renew_deadline,
            self.election.retry_period,
        );
        if lease <= renew {
            wrong.push(InvalidFlag::new(
                "--leader-elect-lease-duration",
                format!("{lease:?}"),
                format!("longer than --leader-elect-renew-deadline ({renew:?})"),
            ));
        }
        if lease.subsec_nanos() != 0 {
            wrong.push(InvalidFlag::new(
                "--leader-elect-lease-duration",
                format!("{lease:?}"),
                "whole seconds: the Lease stores no smaller unit",
            ));
        }
        // client-go adds up to 1.2 times the retry period at random, and has the same limit.
        if renew <= retry.mul_f64(1.2) {
            wrong.push(InvalidFlag::new(
                "--leader-elect-renew-deadline",
                format!("{renew:?}"),
                format!("longer than 1.2 times --leader-elect-retry-period ({retry:?})"),
            ));
        }
        if retry < Duration::from_millis(100) {
            wrong.push(InvalidFlag::new(
                "--leader-elect-retry-period",
                format!("{retry:?}"),
                "at least 100ms",
            ));
        }
    }
}
