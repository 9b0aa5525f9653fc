//! The possible faults and their places.

use std::time::Duration;

use provider_mock::fixture::FailureSpec;
use provider_mock::{Fault, FaultKind, MUTATING_RPCS};
use provider_sdk::FailureCode;

use super::{RPCS, SITES, Wrong};
use crate::faults::ApiFault;

/// The failures of faulty calls.
pub(super) const CODES: [FailureCode; 7] = [
    FailureCode::Unavailable,
    FailureCode::Internal,
    FailureCode::Throttled,
    FailureCode::Busy,
    FailureCode::Credentials,
    FailureCode::Precondition,
    FailureCode::NotInitialized,
];

/// The other kinds of faults of calls.
pub(super) const RPC_KINDS: [FaultKind; 8] = [
    FaultKind::FailureAfter,
    FaultKind::HangAfter,
    FaultKind::Hang,
    FaultKind::Crash,
    FaultKind::CrashAfter,
    FaultKind::Disconnect,
    FaultKind::DisconnectAfter,
    FaultKind::Delay,
];

/// The statuses of refused requests to the API server.
pub(super) const STATUSES: [u16; 6] = [409, 422, 429, 500, 503, 410];

/// The fault of this kind for this RPC, if it applies and makes a difference.
pub(super) fn could_hit(rpc: &str, kind: FaultKind, code: FailureCode) -> Option<Fault> {
    let row = kind.row();
    let fails = matches!(kind, FaultKind::Failure | FaultKind::FailureAfter);
    // A read has no effect before its answer.
    let after = matches!(
        kind,
        FaultKind::FailureAfter
            | FaultKind::HangAfter
            | FaultKind::CrashAfter
            | FaultKind::DisconnectAfter
    );
    let effect = MUTATING_RPCS.contains(&rpc) || rpc == "Initialize";
    // Initialize never answers NOT_INITIALIZED.
    let said = code != FailureCode::NotInitialized || !matches!(rpc, "Initialize");
    if !row.rpcs.contains(&rpc) || after && !effect || fails && !said {
        return None;
    }
    let mut fault = Fault::new(rpc, kind).times(1);
    if fails {
        fault.failure = Some(FailureSpec::new(code));
    }
    if kind == FaultKind::Delay {
        fault.delay = Some(Duration::from_secs(8).into());
    }
    Some(fault)
}

/// Each site with each of its faults. Steps that happen meanwhile are left out, and a delay has one
/// length only.
#[must_use]
pub fn everything() -> Vec<(String, Wrong)> {
    let late = ApiFault::Late(Duration::from_secs(8));
    let mut all = Vec::new();
    for site in SITES {
        let writes = site.starts_with('P') || site.starts_with('D');
        let mut kinds = vec![Wrong::Api(ApiFault::Broken), Wrong::Api(late)];
        if !site.starts_with("EVENT") {
            // A watch has no answer that could get lost: its events break off.
            if !site.starts_with("WATCH") {
                kinds.push(Wrong::Api(ApiFault::Lost));
            }
            let codes = STATUSES
                .iter()
                .filter(|code| **code != 410 || site.starts_with("WATCH"));
            kinds.extend(codes.map(|code| Wrong::Api(ApiFault::Code(*code))));
        }
        if writes {
            kinds.extend([false, true].map(|after| Wrong::Dies { after }));
        }
        all.extend(kinds.into_iter().map(|wrong| (site.to_owned(), wrong)));
    }
    for rpc in RPCS {
        let failures = CODES.map(|code| (FaultKind::Failure, code));
        let after = CODES.map(|code| (FaultKind::FailureAfter, code));
        let others = RPC_KINDS
            .iter()
            .filter(|kind| **kind != FaultKind::FailureAfter)
            .map(|kind| (*kind, FailureCode::Internal));
        let kinds = failures.into_iter().chain(after).chain(others);
        let faults = kinds.filter_map(|(kind, code)| could_hit(rpc, kind, code));
        all.extend(faults.map(|fault| (rpc.to_owned(), Wrong::Rpc(Box::new(fault)))));
        if MUTATING_RPCS.contains(&rpc) {
            all.extend([false, true].map(|after| (rpc.to_owned(), Wrong::Dies { after })));
        }
    }
    all
}
