//! Scripted faults: which of them apply to a call. `kinds` has the table of their kinds, and
//! `rewrite` applies them to an answer.

mod kinds;
pub(crate) mod rewrite;

use provider_sdk::FailureCode;
use serde::{Deserialize, Serialize};

use crate::duration::HumanDuration;
use crate::fixture::FailureSpec;

pub(crate) use kinds::When;
pub use kinds::{ALL_RPCS, FaultKind, KINDS, Kind, MUTATING_RPCS, RPCS};

/// A scripted fault.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    /// The affected RPC; `*` (the default) for all RPCs of its kind.
    #[serde(default = "all_rpcs")]
    pub rpc: String,
    /// Its kind.
    pub kind: FaultKind,
    /// The fault applies only to calls about this object: a Node's name, a Service as
    /// `namespace/name`, a route's key, destination or Node, a volume's or cluster's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// The fault applies to this many calls. Absent: until it is cleared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub times: Option<u32>,
    /// The failure in the answer. Absent: INTERNAL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<FailureSpec>,
    /// The gRPC status, for example `UNAVAILABLE`. Absent: UNKNOWN.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<String>,
    /// The delay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay: Option<HumanDuration>,
    /// The value, as described in the kind's row.
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

    /// The provider answers the call with `failed` and this code.
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

    /// Only for calls about this object: a Node, a Service, a route, a volume or a cluster.
    #[must_use]
    pub fn subject(mut self, subject: impl Into<String>) -> Self {
        self.subject = Some(subject.into());
        self
    }

    /// Only for the next `times` calls.
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

    /// An error says what is wrong with the fault.
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
                "kind: {} does not apply to {}; it applies to {}",
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
            return Err("delay is missing; write one such as 500ms".into());
        }
        if self.times == Some(0) {
            return Err("times: 0 applies to no call; write at least 1, or leave it out".into());
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

    /// The failure in the answer.
    pub(crate) fn failure_spec(&self) -> FailureSpec {
        self.failure
            .clone()
            .unwrap_or_else(|| FailureSpec::new(FailureCode::Internal))
    }

    /// The gRPC status of the answer.
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

    /// The faults that apply to this call, in the order in which they were set. The call counts for
    /// those with `times`.
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
