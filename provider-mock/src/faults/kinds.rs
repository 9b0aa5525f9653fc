//! The table of faults: their names, when they apply, and to which RPCs.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Stands for all RPCs. In a fault it stands for those to which its kind can apply.
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
/// The RPCs whose answer has a oneof of outcomes or a list of them.
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
/// The RPCs for which `empty-items` has an encoded empty item.
const EMPTIABLE: &[&str] = &[
    "LookupInstances",
    "ListInstances",
    "EnsureLoadBalancer",
    "ListLoadBalancers",
];

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
    /// The RPCs for which it can be set. On WatchChanges, only a fault before the call has an
    /// effect.
    pub rpcs: &'static [&'static str],
    /// The meaning of the fault's `value`; empty if the fault takes none.
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
    /// The provider answers `failed` with `failure`, and nothing reaches the cloud. In a batch with
    /// `subject`, only that item fails, and the other items reach the cloud.
    Failure = "failure", Before, OUTCOMES, "";
    /// The call has its effect, and the provider answers `failed` with `failure`; handle, events and annotations of the answer stay.
    FailureAfter = "failure-after", Answer, OUTCOMES, "";
    /// The call ends with the gRPC status `status`; nothing reaches the cloud.
    Status = "status", Before, ANY, "";
    /// The call has its effect and ends with the gRPC status `status`.
    StatusAfter = "status-after", After, ANY, "";
    /// The provider never answers the call; nothing reaches the cloud.
    Hang = "hang", Before, ANY, "";
    /// The call has its effect, and the provider never answers it.
    HangAfter = "hang-after", After, ANY, "";
    /// The call waits for `delay` before it begins.
    Delay = "delay", Before, ANY, "";
    /// The provider dies before the call has any effect. A process exits; a mock in a library ends
    /// as with `Mock::kill`.
    Crash = "crash", Before, ANY, "";
    /// The provider dies after the effect and before the answer.
    CrashAfter = "crash-after", After, ANY, "";
    /// The provider cuts all connections before the call has any effect, and goes on.
    Disconnect = "disconnect", Before, ANY, "";
    /// The provider cuts all connections after the effect and before the answer, and goes on.
    DisconnectAfter = "disconnect-after", After, ANY, "";
    /// The result of `subject`, else every result, is missing.
    ResultsMissing = "results-missing", Answer, BATCHES, "";
    /// The results are in reverse order (which the contract allows).
    ResultsReordered = "results-reordered", Answer, BATCHES, "";
    /// The answer has the result of `subject`, else every result, twice.
    ResultsDuplicated = "results-duplicated", Answer, BATCHES, "";
    /// The answer has one more result, for an item that is not in the request: `value`, else `not-asked`.
    ResultsUnasked = "results-unasked", Answer, BATCHES, "the name or key that is not in the request";
    /// The results' keys change places: each result has the next one's name.
    ResultsSwapped = "results-swapped", Answer, BATCHES, "";
    /// The result of `subject`, else every result, has another UID: `value`, else `wrong-uid`.
    WrongUid = "wrong-uid", Answer, LOOKUPS, "the UID";
    /// The outcome of `subject`, else every outcome, is not set.
    UnsetOutcome = "unset-outcome", Answer, OUTCOMES, "";
    /// The state of `subject`, else of every instance, is `value`; without it UNSPECIFIED. ABSENT for everything is the most dangerous value.
    InstanceState = "instance-state", Answer, INSTANCES, "UNSPECIFIED, PRESENT, RUNNING, STOPPED, ABSENT, PENDING, UNMANAGED or a number";
    /// The provider ID of `subject`, else of every instance, is `value`; without it there is none.
    ProviderId = "provider-id", Answer, INSTANCES, "the provider ID";
    /// `subject`, else every instance, has the label `value` (`key=value`), for example in a reserved namespace.
    InstanceLabel = "instance-label", Answer, INSTANCES, "key=value";
    /// `subject`, else every instance, has the one address `value` as its InternalIP, valid or not; without `value` it has none.
    InstanceAddress = "instance-address", Answer, INSTANCES, "the address";
    /// The listing ends without its `end`.
    EndMissing = "end-missing", Answer, LISTS, "";
    /// The listing's `end` has a total that is one too high.
    WrongTotal = "wrong-total", Answer, LISTS, "";
    /// The listing is empty and claims to be complete.
    ListEmpty = "list-empty", Answer, LISTS, "";
    /// The listing breaks off with `failure` after its items.
    FailedMidway = "failed-midway", Answer, LISTS, "";
    /// The handle is `value`; without it there is none.
    Handle = "handle", Answer, LOAD_BALANCERS, "the handle";
    /// Each owner of each load balancer has the UID `value`; without it none (which the contract allows).
    OwnerUid = "owner-uid", Answer, &["ListLoadBalancers"], "the UID";
    /// `in_sync` is `value`; without `value` it is absent.
    InSync = "in-sync", Answer, &["GetLoadBalancer"], "true or false";
    /// The presence is `value`; without it UNSPECIFIED.
    Presence = "presence", Answer, &["GetLoadBalancer"], "UNSPECIFIED, ABSENT, PRESENT, REMNANTS or a number";
    /// The ownership is `value`; without it UNSPECIFIED.
    Ownership = "ownership", Answer, &["GetLoadBalancer", "ListRoutes"], "UNSPECIFIED, OURS, FOREIGN, UNMARKED or a number";
    /// The load balancer has the one address `value`, valid or not; without `value` it has none. Ensure answers `ready`.
    IngressAddress = "ingress-address", Answer, &["EnsureLoadBalancer", "GetLoadBalancer"], "the address";
    /// The provider answers `pending` for the load balancer, with `delay` as retry_after.
    Pending = "pending", Answer, &["EnsureLoadBalancer", "UpdateLoadBalancer", "DeleteLoadBalancer"], "";
    /// The boot ID is `value`; without it empty.
    BootId = "boot-id", Answer, &["GetProviderInfo", "Probe"], "the boot ID";
    /// The contract's minor version is `value`.
    ContractMinor = "contract-minor", Answer, &["GetProviderInfo"], "a number";
    /// The lowest minor version that the controller must support is `value`.
    MinControllerMinor = "min-controller-minor", Answer, &["GetProviderInfo"], "a number";
    /// The provider's name is `value`.
    ProviderName = "provider-name", Answer, &["GetProviderInfo"], "the name";
    /// The one prefix of provider IDs is `value`; without it there is none.
    ProviderIdPrefix = "provider-id-prefix", Answer, &["GetProviderInfo"], "the prefix";
    /// The provider claims the load balancer class `value` too.
    LoadBalancerClass = "load-balancer-class", Answer, &["GetProviderInfo"], "the class";
    /// The capabilities are not set.
    NoCapabilities = "no-capabilities", Answer, &["GetProviderInfo"], "";
    /// The cloud's scope is `value`; without it empty.
    CloudScope = "cloud-scope", Answer, &["Initialize"], "the scope";
    /// Probe says `value`; without it UNSPECIFIED.
    ProbeState = "probe-state", Answer, &["Probe"], "UNSPECIFIED, STARTING, READY, DEGRADED, BROKEN or a number";
    /// The answer has no field at all.
    EmptyAnswer = "empty-answer", Answer, ANY, "";
    /// The call ends with status OK and without an answer.
    NoAnswer = "no-answer", Answer, ANY, "";
    /// The answer cannot be decoded.
    Garbage = "garbage", Answer, ANY, "";
    /// The answer has 20 MiB.
    Oversized = "oversized", Answer, ANY, "";
    /// The answer has `value` KiB of empty items, or 14 MiB without `value`. Decoded items can take
    /// gigabytes of memory.
    EmptyItems = "empty-items", Answer, EMPTIABLE, "a number";
    /// The message and the reason of every failure in the answer have 2,000 bytes; an answer without a failure becomes `failed`.
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
                "{text:?} is no kind of fault; use one of {}",
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
