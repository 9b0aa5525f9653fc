//! Scripted faults: the table of their kinds, and which of them strike a call. What they do to an answer is in `rewrite`.

pub(crate) mod rewrite;

use std::fmt;

use provider_sdk::FailureCode;
use serde::{Deserialize, Serialize};

use crate::duration::HumanDuration;
use crate::fixture::FailureSpec;

/// Stands for every RPC that a fault of its kind can strike.
pub const ALL_RPCS: &str = "*";

/// The RPCs of the contract.
pub const RPCS: [&str; 18] = [
    "GetProviderInfo",
    "Initialize",
    "Probe",
    "WatchChanges",
    "LookupInstances",
    "ListInstances",
    "LookupZones",
    "GetLoadBalancer",
    "EnsureLoadBalancer",
    "UpdateLoadBalancer",
    "DeleteLoadBalancer",
    "ListLoadBalancers",
    "ListRoutes",
    "CreateRoutes",
    "DeleteRoutes",
    "ListClusters",
    "GetControlPlaneAddress",
    "GetVolumeLabels",
];

/// RPCs that change the cloud.
pub const MUTATING_RPCS: [&str; 5] = [
    "EnsureLoadBalancer",
    "UpdateLoadBalancer",
    "DeleteLoadBalancer",
    "CreateRoutes",
    "DeleteRoutes",
];

const BATCHES: &[&str] = &[
    "LookupInstances",
    "LookupZones",
    "CreateRoutes",
    "DeleteRoutes",
];
const LOOKUPS: &[&str] = &["LookupInstances", "LookupZones"];
const INSTANCES: &[&str] = &["LookupInstances", "ListInstances"];
const LISTS: &[&str] = &[
    "ListInstances",
    "ListLoadBalancers",
    "ListRoutes",
    "ListClusters",
];
const LOAD_BALANCERS: &[&str] = &[
    "GetLoadBalancer",
    "EnsureLoadBalancer",
    "UpdateLoadBalancer",
    "DeleteLoadBalancer",
];
/// Everything whose answer has a oneof or list of outcomes.
const OUTCOMES: &[&str] = &[
    "Initialize",
    "LookupInstances",
    "ListInstances",
    "LookupZones",
    "GetLoadBalancer",
    "EnsureLoadBalancer",
    "UpdateLoadBalancer",
    "DeleteLoadBalancer",
    "ListLoadBalancers",
    "ListRoutes",
    "CreateRoutes",
    "DeleteRoutes",
    "ListClusters",
    "GetControlPlaneAddress",
    "GetVolumeLabels",
];
const ANY: &[&str] = &RPCS;

macro_rules! kinds {
    ($($(#[doc = $doc:literal])+ $variant:ident = $name:literal, $when:ident, $rpcs:expr, $value:literal;)*) => {
        /// What a fault does. [`KINDS`] is the table of all.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
        pub enum FaultKind {
            $($(#[doc = $doc])+ #[serde(rename = $name)] $variant,)*
        }

        /// All kinds of faults.
        pub const KINDS: &[Kind] = &[$(Kind {
            kind: FaultKind::$variant,
            name: $name,
            doc: concat!($($doc),+),
            when: When::$when,
            rpcs: $rpcs,
            value: $value,
        },)*];
    };
}

/// A row of the table of faults.
#[derive(Debug, Clone, Copy)]
pub struct Kind {
    /// The kind.
    pub kind: FaultKind,
    /// Its name in YAML and `ctl`.
    pub name: &'static str,
    /// What it does.
    pub doc: &'static str,
    pub(crate) when: When,
    /// The RPCs that it can strike.
    pub rpcs: &'static [&'static str],
    /// What the fault's `value` says; empty where it takes none.
    pub value: &'static str,
}

/// When a fault strikes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum When {
    /// Before the call reaches the cloud.
    Before,
    /// After the call had its effect, in place of its answer.
    After,
    /// On the answer.
    Answer,
}

kinds! {
    /// The call, or with `subject` that Node or route alone, is answered `failed` with `failure`; nothing reaches the cloud (except for the other items of a batch).
    Failure = "failure", Before, OUTCOMES, "";
    /// The call has its effect and is answered `failed` with `failure`; handle, events and annotations of the answer stay.
    FailureAfter = "failure-after", Answer, OUTCOMES, "";
    /// The call ends with the gRPC status `status`; nothing reaches the cloud.
    Status = "status", Before, ANY, "";
    /// The call has its effect and ends with the gRPC status `status`.
    StatusAfter = "status-after", After, ANY, "";
    /// The call is never answered; nothing reaches the cloud.
    Hang = "hang", Before, ANY, "";
    /// The call has its effect and is never answered.
    HangAfter = "hang-after", After, ANY, "";
    /// The call waits for `delay` before it begins.
    Delay = "delay", Before, ANY, "";
    /// The provider dies before the call has any effect: the process exits; in library mode as by `Mock::kill`.
    Crash = "crash", Before, ANY, "";
    /// The provider dies after the effect and before the answer.
    CrashAfter = "crash-after", After, ANY, "";
    /// All connections are cut before the call has any effect; in library mode the provider lives on, a process ends.
    Disconnect = "disconnect", Before, ANY, "";
    /// All connections are cut after the effect and before the answer; in library mode the provider lives on, a process ends.
    DisconnectAfter = "disconnect-after", After, ANY, "";
    /// The result of `subject`, else every result, is missing.
    ResultsMissing = "results-missing", Answer, BATCHES, "";
    /// The results are in the reverse order (which is allowed).
    ResultsReordered = "results-reordered", Answer, BATCHES, "";
    /// The result of `subject`, else every result, is there twice.
    ResultsDuplicated = "results-duplicated", Answer, BATCHES, "";
    /// There is one more result, for something that was not asked: `value`, else `not-asked`.
    ResultsUnasked = "results-unasked", Answer, BATCHES, "the name or key that was not asked";
    /// The results' keys change places: each answer stands under the next one's name.
    ResultsSwapped = "results-swapped", Answer, BATCHES, "";
    /// The result of `subject`, else every result, carries another UID: `value`, else `wrong-uid`.
    WrongUid = "wrong-uid", Answer, LOOKUPS, "the UID";
    /// The outcome of `subject`, else every outcome, is not set.
    UnsetOutcome = "unset-outcome", Answer, OUTCOMES, "";
    /// The state of `subject`, else of every instance, is `value`; without it UNSPECIFIED. ABSENT for everything is the worst of lies.
    InstanceState = "instance-state", Answer, INSTANCES, "UNSPECIFIED, PRESENT, RUNNING, STOPPED, ABSENT, PENDING, UNMANAGED or a number";
    /// The provider ID of `subject`, else of every instance, is `value`; without it there is none.
    ProviderId = "provider-id", Answer, INSTANCES, "the provider ID";
    /// `subject`, else every instance, has the label `value` (`key=value`), for example in a reserved namespace.
    InstanceLabel = "instance-label", Answer, INSTANCES, "key=value";
    /// `subject`, else every instance, has the one address `value`, as its InternalIP, whatever it is; without it there is none.
    InstanceAddress = "instance-address", Answer, INSTANCES, "the address";
    /// The listing ends without its `end`.
    EndMissing = "end-missing", Answer, LISTS, "";
    /// The listing's `end` names one item more than there was.
    WrongTotal = "wrong-total", Answer, LISTS, "";
    /// The listing is empty and says that it is complete.
    ListEmpty = "list-empty", Answer, LISTS, "";
    /// The listing breaks off with `failure` after its items.
    FailedMidway = "failed-midway", Answer, LISTS, "";
    /// The handle is `value`; without it there is none.
    Handle = "handle", Answer, LOAD_BALANCERS, "the handle";
    /// `in_sync` is `value`; without it it is absent.
    InSync = "in-sync", Answer, &["GetLoadBalancer"], "true or false";
    /// The presence is `value`; without it UNSPECIFIED.
    Presence = "presence", Answer, &["GetLoadBalancer"], "UNSPECIFIED, ABSENT, PRESENT, REMNANTS or a number";
    /// The ownership is `value`; without it UNSPECIFIED.
    Ownership = "ownership", Answer, &["GetLoadBalancer", "ListRoutes"], "UNSPECIFIED, OURS, FOREIGN, UNMARKED or a number";
    /// Ensure is answered `ready` with the one address `value`, whatever it is; without it with no address.
    IngressAddress = "ingress-address", Answer, &["EnsureLoadBalancer", "GetLoadBalancer"], "the address";
    /// The load balancer is answered `pending` for ever, with `delay` as its retry_after.
    Pending = "pending", Answer, &["EnsureLoadBalancer", "UpdateLoadBalancer", "DeleteLoadBalancer"], "";
    /// The boot ID is `value`; without it empty.
    BootId = "boot-id", Answer, &["GetProviderInfo", "Probe"], "the boot ID";
    /// The contract's minor is `value`.
    ContractMinor = "contract-minor", Answer, &["GetProviderInfo"], "a number";
    /// The lowest minor that the controller must speak is `value`.
    MinControllerMinor = "min-controller-minor", Answer, &["GetProviderInfo"], "a number";
    /// The provider's name is `value`.
    ProviderName = "provider-name", Answer, &["GetProviderInfo"], "the name";
    /// The one prefix of provider IDs is `value`; without it there is none.
    ProviderIdPrefix = "provider-id-prefix", Answer, &["GetProviderInfo"], "the prefix";
    /// The capabilities are not set.
    NoCapabilities = "no-capabilities", Answer, &["GetProviderInfo"], "";
    /// The cloud's scope is `value`; without it empty.
    CloudScope = "cloud-scope", Answer, &["Initialize"], "the scope";
    /// Probe says `value`; without it UNSPECIFIED.
    ProbeState = "probe-state", Answer, &["Probe"], "UNSPECIFIED, STARTING, READY, DEGRADED, BROKEN or a number";
    /// The answer has no field at all.
    EmptyAnswer = "empty-answer", Answer, ANY, "";
    /// The answer is not there, and the status is OK.
    NoAnswer = "no-answer", Answer, ANY, "";
    /// The answer cannot be decoded.
    Garbage = "garbage", Answer, ANY, "";
    /// The answer is 20 MiB large.
    Oversized = "oversized", Answer, ANY, "";
    /// The message and the reason of every failure in the answer are 2,000 bytes long; without one `failed` is answered.
    LongText = "long-text", Answer, OUTCOMES, "";
}

impl FaultKind {
    /// Its row in the table.
    pub fn row(self) -> &'static Kind {
        KINDS
            .iter()
            .find(|row| row.kind == self)
            .unwrap_or(&KINDS[0])
    }
}

impl std::str::FromStr for FaultKind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let row = KINDS.iter().find(|row| row.name == text);
        row.map(|row| row.kind).ok_or_else(|| {
            let names: Vec<_> = KINDS.iter().map(|row| row.name).collect();
            format!(
                "{text:?} is no kind of fault; write one of {}",
                names.join(", ")
            )
        })
    }
}

impl fmt::Display for FaultKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.row().name)
    }
}

/// A scripted fault.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    /// The RPC that it strikes; `*` (the default) for all that its kind can strike.
    #[serde(default = "all_rpcs")]
    pub rpc: String,
    /// What it does.
    pub kind: FaultKind,
    /// Only where this is asked about: a Node's name, a Service as `namespace/name`, a route's key or destination.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// For so many calls; until it is cleared where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub times: Option<u32>,
    /// The failure that is answered; INTERNAL where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<FailureSpec>,
    /// The gRPC status, for example `UNAVAILABLE`; UNKNOWN where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<String>,
    /// The delay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay: Option<HumanDuration>,
    /// What the kind's row says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
}

fn all_rpcs() -> String {
    ALL_RPCS.into()
}

const STATUSES: [(&str, tonic::Code); 16] = [
    ("CANCELLED", tonic::Code::Cancelled),
    ("UNKNOWN", tonic::Code::Unknown),
    ("INVALID_ARGUMENT", tonic::Code::InvalidArgument),
    ("DEADLINE_EXCEEDED", tonic::Code::DeadlineExceeded),
    ("NOT_FOUND", tonic::Code::NotFound),
    ("ALREADY_EXISTS", tonic::Code::AlreadyExists),
    ("PERMISSION_DENIED", tonic::Code::PermissionDenied),
    ("RESOURCE_EXHAUSTED", tonic::Code::ResourceExhausted),
    ("FAILED_PRECONDITION", tonic::Code::FailedPrecondition),
    ("ABORTED", tonic::Code::Aborted),
    ("OUT_OF_RANGE", tonic::Code::OutOfRange),
    ("UNIMPLEMENTED", tonic::Code::Unimplemented),
    ("INTERNAL", tonic::Code::Internal),
    ("UNAVAILABLE", tonic::Code::Unavailable),
    ("DATA_LOSS", tonic::Code::DataLoss),
    ("UNAUTHENTICATED", tonic::Code::Unauthenticated),
];

/// The name of a gRPC code, for example `UNAVAILABLE`.
pub(crate) fn status_name(code: tonic::Code) -> &'static str {
    STATUSES
        .iter()
        .find(|(_, of)| *of == code)
        .map_or("OK", |(name, _)| name)
}

impl Fault {
    /// A fault of this kind for this RPC, for every call until it is cleared.
    pub fn new(rpc: impl Into<String>, kind: FaultKind) -> Self {
        Self {
            rpc: rpc.into(),
            kind,
            subject: None,
            times: None,
            failure: None,
            status: None,
            delay: None,
            value: None,
        }
    }

    /// The call is answered `failed` with this code.
    pub fn failure(rpc: impl Into<String>, code: FailureCode) -> Self {
        let mut fault = Self::new(rpc, FaultKind::Failure);
        fault.failure = Some(FailureSpec::new(code));
        fault
    }

    /// The call ends with this gRPC status.
    pub fn status(rpc: impl Into<String>, code: tonic::Code) -> Self {
        let mut fault = Self::new(rpc, FaultKind::Status);
        fault.status = Some(status_name(code).into());
        fault
    }

    /// The call waits before it begins.
    pub fn delay(rpc: impl Into<String>, delay: impl Into<HumanDuration>) -> Self {
        let mut fault = Self::new(rpc, FaultKind::Delay);
        fault.delay = Some(delay.into());
        fault
    }

    /// Only for this Node, Service or route.
    #[must_use]
    pub fn subject(mut self, subject: impl Into<String>) -> Self {
        self.subject = Some(subject.into());
        self
    }

    /// Only for the next so many calls.
    #[must_use]
    pub fn times(mut self, times: u32) -> Self {
        self.times = Some(times);
        self
    }

    /// With this value.
    #[must_use]
    pub fn value(mut self, value: impl Into<String>) -> Self {
        self.value = Some(value.into());
        self
    }

    /// With this failure.
    #[must_use]
    pub fn with_failure(mut self, failure: FailureSpec) -> Self {
        self.failure = Some(failure);
        self
    }

    /// What is wrong with it, if anything.
    pub fn check(&self) -> Result<(), String> {
        if !crate::fixture::is_rpc(&self.rpc) {
            return Err(format!(
                "rpc: {:?} is no RPC; write * or one of {}",
                self.rpc,
                RPCS.join(", ")
            ));
        }
        let row = self.kind.row();
        if self.rpc != ALL_RPCS && !row.rpcs.contains(&self.rpc.as_str()) {
            return Err(format!(
                "kind: {} cannot strike {}; it can strike {}",
                row.name,
                self.rpc,
                row.rpcs.join(", ")
            ));
        }
        if let Some(status) = &self.status
            && !STATUSES.iter().any(|(name, _)| name == status)
        {
            let names = STATUSES.map(|(name, _)| name).join(", ");
            return Err(format!(
                "status: {status:?} is no gRPC status; write one of {names}"
            ));
        }
        if self.kind == FaultKind::Delay && self.delay.is_none() {
            return Err("delay: missing; write how long, such as 500ms".into());
        }
        if self.times == Some(0) {
            return Err("times: 0 strikes no call; write at least 1, or leave it out".into());
        }
        if let Some(value) = &self.value
            && row.value.is_empty()
        {
            return Err(format!(
                "value: {value:?} is not used by {}; leave it out",
                row.name
            ));
        }
        rewrite::check_value(self)
    }

    /// The failure that is answered.
    pub(crate) fn failure_spec(&self) -> FailureSpec {
        self.failure
            .clone()
            .unwrap_or_else(|| FailureSpec::new(FailureCode::Internal))
    }

    /// The gRPC status that is answered.
    pub(crate) fn grpc_status(&self) -> tonic::Status {
        let code = self
            .status
            .as_deref()
            .and_then(|status| STATUSES.iter().find(|(name, _)| *name == status))
            .map_or(tonic::Code::Unknown, |(_, code)| *code);
        tonic::Status::new(code, "scripted by the mock")
    }

    fn strikes(&self, rpc: &str, subjects: &[String]) -> bool {
        (self.rpc == rpc || self.rpc == ALL_RPCS)
            && self.kind.row().rpcs.contains(&rpc)
            && self
                .subject
                .as_ref()
                .is_none_or(|subject| subjects.contains(subject))
    }
}

/// The faults that are set.
#[derive(Debug, Clone, Default)]
pub(crate) struct Faults {
    last_id: u64,
    set: Vec<(u64, Fault)>,
}

impl Faults {
    pub(crate) fn add(&mut self, fault: Fault) -> u64 {
        self.last_id += 1;
        self.set.push((self.last_id, fault));
        self.last_id
    }

    pub(crate) fn remove(&mut self, id: u64) -> bool {
        let before = self.set.len();
        self.set.retain(|(of, _)| *of != id);
        before != self.set.len()
    }

    pub(crate) fn clear(&mut self) {
        self.set.clear();
    }

    pub(crate) fn list(&self) -> Vec<(u64, Fault)> {
        self.set.clone()
    }

    /// Those that strike this call, in the order in which they were set; each counts it.
    pub(crate) fn strike(&mut self, rpc: &str, subjects: &[String]) -> Vec<Fault> {
        let mut struck = Vec::new();
        for (_, fault) in &mut self.set {
            if fault.strikes(rpc, subjects) {
                struck.push(fault.clone());
                fault.times = fault.times.map(|times| times.saturating_sub(1));
            }
        }
        self.set.retain(|(_, fault)| fault.times != Some(0));
        struck
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_strikes_its_rpc_and_subject_as_often_as_it_says() {
        let mut faults = Faults::default();
        faults.add(
            Fault::new("LookupInstances", FaultKind::Hang)
                .subject("a")
                .times(2),
        );
        faults.add(Fault::failure(ALL_RPCS, FailureCode::Busy));
        let mut count = |rpc: &str, subject: &str| faults.strike(rpc, &[subject.to_owned()]).len();
        assert_eq!(count("LookupInstances", "b"), 1);
        assert_eq!(count("LookupInstances", "a"), 2);
        assert_eq!(count("ListRoutes", "a"), 1);
        assert_eq!(count("LookupInstances", "a"), 2);
        assert_eq!(count("LookupInstances", "a"), 1);
        assert_eq!(count("Probe", ""), 0, "Probe cannot fail in its body");
    }

    #[test]
    fn every_kind_has_one_row_with_text() {
        for (index, row) in KINDS.iter().enumerate() {
            assert_eq!(row.name.parse(), Ok(row.kind));
            assert!(!row.doc.is_empty() && !row.rpcs.is_empty());
            assert!(row.rpcs.iter().all(|rpc| RPCS.contains(rpc)));
            assert!(KINDS[..index].iter().all(|other| other.name != row.name));
            assert_eq!(serde_json::to_value(row.kind).unwrap(), row.name);
        }
    }
}
