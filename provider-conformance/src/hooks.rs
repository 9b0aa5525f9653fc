//! Shell commands that change or read the cloud directly, as a person in the cloud's console does.

use std::collections::BTreeMap;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde::Deserialize;
use tokio::process::Command;

use super::check::{Stop, Verdict};
use super::target::{ENDPOINT_VARIABLE, fill_in};

/// How long a hook may take.
const PATIENCE: Duration = Duration::from_mins(1);

/// The action of a hook. Its variables are in the environment of its shell command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Hook {
    /// Creates the instance NAME, and prints its provider ID.
    InstanceAdd,
    /// Creates the instance NAME with the type TYPE, which is no label value, and prints its
    /// provider ID.
    InstanceOdd,
    /// Removes the instance NAME, PROVIDER_ID.
    InstanceRemove,
    /// Shuts the instance NAME, PROVIDER_ID down.
    InstanceStop,
    /// Starts the instance NAME, PROVIDER_ID.
    InstanceStart,
    /// Prints how many writes ever reached the cloud.
    CloudWrites,
    /// Makes each later cloud operation fail as CODE says: THROTTLED, CREDENTIALS, UNAVAILABLE or
    /// PRECONDITION. With PRECONDITION the cloud works and refuses the request, as for a quota.
    /// NONE ends the failures.
    CloudFail,
    /// Makes each later cloud operation take MS milliseconds; 0 ends the delay.
    CloudSlow,
    /// Creates an unmarked load balancer with the native name NAME, and prints its handle.
    LoadBalancerUnmarked,
    /// Prints the marks of the load balancer HANDLE, with the native name NAME, in the cloud: the
    /// fields that hold its owner ID and its Service's UID.
    LoadBalancerMarks,
    /// Removes the load balancer HANDLE directly in the cloud.
    LoadBalancerRemove,
    /// Creates an unmarked route NAME to CIDR with the target PROVIDER_ID.
    RouteUnmarked,
    /// Creates an unmarked route NAME to CIDR whose target is no Node (a gateway, a peering).
    RouteGateway,
    /// Creates a route NAME to CIDR that is marked for OWNER_ID and whose target does not exist.
    RouteBlackhole,
    /// Removes the route NAME, CIDR directly in the cloud.
    RouteRemove,
}

impl Hook {
    /// All of them.
    pub const ALL: [Self; 15] = [
        Self::InstanceAdd,
        Self::InstanceOdd,
        Self::InstanceRemove,
        Self::InstanceStop,
        Self::InstanceStart,
        Self::CloudWrites,
        Self::CloudFail,
        Self::CloudSlow,
        Self::LoadBalancerUnmarked,
        Self::LoadBalancerMarks,
        Self::LoadBalancerRemove,
        Self::RouteUnmarked,
        Self::RouteGateway,
        Self::RouteBlackhole,
        Self::RouteRemove,
    ];

    /// Its key in suite.yaml.
    pub fn key(self) -> &'static str {
        match self {
            Self::InstanceAdd => "instance-add",
            Self::InstanceOdd => "instance-odd",
            Self::InstanceRemove => "instance-remove",
            Self::InstanceStop => "instance-stop",
            Self::InstanceStart => "instance-start",
            Self::CloudWrites => "cloud-writes",
            Self::CloudFail => "cloud-fail",
            Self::CloudSlow => "cloud-slow",
            Self::LoadBalancerUnmarked => "load-balancer-unmarked",
            Self::LoadBalancerMarks => "load-balancer-marks",
            Self::LoadBalancerRemove => "load-balancer-remove",
            Self::RouteUnmarked => "route-unmarked",
            Self::RouteGateway => "route-gateway",
            Self::RouteBlackhole => "route-blackhole",
            Self::RouteRemove => "route-remove",
        }
    }
}

/// The configured hooks.
#[derive(Debug)]
pub(crate) struct Hooks {
    lines: BTreeMap<Hook, String>,
    endpoint: String,
    fails: AtomicBool,
    slow: AtomicBool,
}

impl Hooks {
    pub(crate) fn new(lines: BTreeMap<Hook, String>, endpoint: String) -> Self {
        Self {
            lines,
            endpoint,
            fails: AtomicBool::new(false),
            slow: AtomicBool::new(false),
        }
    }

    pub(crate) fn has(&self, hook: Hook) -> bool {
        self.lines.contains_key(&hook)
    }

    /// Runs a hook. Returns its output without surrounding white space.
    pub(crate) async fn run(&self, hook: Hook, variables: &[(&str, &str)]) -> Verdict<String> {
        let key = hook.key();
        let Some(line) = self.lines.get(&hook) else {
            return Err(Stop::not_set_up(format!("suite.yaml has no hook `{key}`")));
        };
        match hook {
            Hook::CloudFail => self.fails.store(true, Ordering::Relaxed),
            Hook::CloudSlow => self.slow.store(true, Ordering::Relaxed),
            _ => {}
        }
        let child = Command::new("sh")
            .arg("-c")
            .arg(fill_in(line, &self.endpoint))
            .env(ENDPOINT_VARIABLE, &self.endpoint)
            .envs(variables.iter().copied())
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output();
        let shown = || {
            let variables: Vec<_> = variables.iter().map(|(k, v)| format!("{k}={v}")).collect();
            format!("the hook {key}: {} {line}", variables.join(" "))
        };
        let fault = |came: String| {
            Stop::failed("(hook)", shown(), "the hook ends with exit status 0", came)
        };
        let output = tokio::time::timeout(PATIENCE, child)
            .await
            .map_err(|_| fault(format!("it still runs after {PATIENCE:?}")))?
            .map_err(|error| fault(format!("cannot run it: {error}")))?;
        if output.status.success() {
            Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
        } else {
            let said = String::from_utf8_lossy(&output.stderr);
            Err(fault(format!("{}: {}", output.status, said.trim())))
        }
    }

    /// Ends the effects of `cloud-fail` and `cloud-slow`.
    pub(crate) async fn heal(&self) -> Verdict {
        if self.fails.load(Ordering::Relaxed) {
            self.run(Hook::CloudFail, &[("CODE", "NONE")]).await?;
            self.fails.store(false, Ordering::Relaxed);
        }
        if self.slow.load(Ordering::Relaxed) {
            self.run(Hook::CloudSlow, &[("MS", "0")]).await?;
            self.slow.store(false, Ordering::Relaxed);
        }
        Ok(())
    }
}
