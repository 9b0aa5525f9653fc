//! The table of lies, by service. `check` is the ID of the conformance check that finds the lie.

mod instances;
mod load_balancers;
mod others;
mod provider;

use super::{Does, Lie};
use crate::faults::{ALL_RPCS, Fault, FaultKind};

/// All rows.
pub(super) const SERVICES: [&[Lie]; 4] = [
    instances::LIES,
    provider::LIES,
    load_balancers::LIES,
    others::LIES,
];

/// A deviation that the gRPC layer, the provider, the server or the socket in front of it adds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Twist {
    LastResultMissing,
    AbsentOnFailure,
    ReadyAbsent,
    StoppedAbsent,
    RunsWithoutMetadata,
    ForeignAbsent,
    Stale,
    WholeBatchFails,
    ForeignPrefix,
    IdChanges,
    NameFirst,
    PartialList,
    OkListOnFailure,
    LazyInitialize,
    AnyOwner,
    BootIdChanges,
    ScopeChanges,
    ProbeWaitsForCloud,
    ProbeWaitsForCalls,
    ProbeAlwaysReady,
    InfoNeedsCloud,
    TokenIgnored,
    WatchOutlives,
    StatusOnFailure,
    WrongCode,
    LongTexts,
    ManyEvents,
    ManyVolumeLabels,
    SlowDrip,
    SocketGarbage,
    SocketOpen,
    TimeoutIgnored,
    FrameBehind,
    PingsWhenIdle,
    MakesAnother,
    GoesOn,
    LookupsGoOn,
    NeedsHandle,
    NoMark,
    PreviousForgotten,
    AdoptsForeign,
    AdoptsUnmarked,
    FollowsHandle,
    ConflictButTouches,
    KeepsCleared,
    AlwaysWrites,
    EmptyTargetsIgnored,
    AbsentTargetsEmpty,
    DeleteLeaves,
    DeleteOfAbsentFails,
    UpdateOfAbsentDone,
    GetWrites,
    SharedDelete,
    SharedCollisionTaken,
    SharedTargets,
    SharedListed,
    MarksCut,
    FormerMarksStay,
    UnmarkedOurs,
    UnmarkedDeleteDone,
    OtherClassAbsent,
    AbsentInSync,
    TellsHandles,
    RoutesTurned,
    UnmarkedRoutesTaken,
    UnmarkedRoutesOurs,
    NamelessRouteDone,
    RouteByDestination,
    GatewaysLeftOut,
    BatchesUnchecked,
    ForeignRouteRemoved,
    RouteNoMark,
    RouteOfAbsentFails,
    RouteExistsFails,
    BlackholesLeftOut,
    BookmarkMissing,
    BrokenRequestsTaken,
    CancelledIsTrouble,
    FailedInitializeForgets,
    InitializeAsksNothing,
    NamelessUnmanaged,
    OverloadIsStatus,
    ReadOnlyIgnored,
    ReadOnlyUnsaid,
    ReadyOnlyInitialized,
    RefusalIsTrouble,
    StaysDegraded,
    UnknownDiskEmpty,
    ForeignVolumeNotFound,
    DeadlineIsInternal,
    ForeignGetConflicts,
    ForeignNameConflicts,
    NamelessServiceDeleted,
    DrainFails,
    DrainServes,
    LatestOwner,
    MarksHashedOtherwise,
    ReadyWhileDeleting,
    TypesBent,
    ZonesMadeUp,
}

const fn twist(
    name: &'static str,
    what: &'static str,
    rules: &'static [&'static str],
    check: &'static str,
    twist: Twist,
) -> Lie {
    Lie {
        name,
        what,
        rules,
        check,
        does: Does::Twist(twist),
    }
}

const fn script(
    name: &'static str,
    what: &'static str,
    rules: &'static [&'static str],
    check: &'static str,
    faults: fn() -> Vec<Fault>,
) -> Lie {
    Lie {
        name,
        what,
        rules,
        check,
        does: Does::Script(faults),
    }
}

/// This fault for all RPCs of its kind.
fn everywhere(kind: FaultKind) -> Vec<Fault> {
    vec![Fault::new(ALL_RPCS, kind)]
}

/// This fault for these RPCs.
fn of(rpcs: &[&str], kind: FaultKind) -> Vec<Fault> {
    rpcs.iter().map(|rpc| Fault::new(*rpc, kind)).collect()
}
