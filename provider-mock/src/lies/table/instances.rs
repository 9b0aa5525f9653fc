//! Lies about instances.

use super::{Lie, Twist, everywhere, of, script, twist};
use crate::faults::{ALL_RPCS, Fault, FaultKind};

const LOOKUP: &[&str] = &["LookupInstances"];

pub(super) const LIES: &[Lie] = &[
    script(
        "results-reordered",
        "the results of a batch are in reverse order",
        &[],
        "",
        || everywhere(FaultKind::ResultsReordered),
    ),
    twist(
        "types-bent",
        "in an instance type the provider replaces each character except ASCII letters, digits and dots by a dash",
        &["INST-15"],
        "instances/what-has-no-form-is-left-out",
        Twist::TypesBent,
    ),
    twist(
        "unknown-name-unmanaged",
        "a Node that has no provider ID and that the cloud does not know is UNMANAGED",
        &["INST-13"],
        "instances/an-unknown-name-is-not-claimed",
        Twist::NamelessUnmanaged,
    ),
    twist(
        "wrong-length",
        "the last result of every batch is missing",
        &["INST-2"],
        "instances/each-node-once",
        Twist::LastResultMissing,
    ),
    script(
        "results-twice",
        "a lookup has every result twice",
        &["INST-2"],
        "instances/each-node-once",
        || of(LOOKUP, FaultKind::ResultsDuplicated),
    ),
    script(
        "results-unasked",
        "a lookup has a result for a Node that is not in the request",
        &["INST-2"],
        "instances/each-node-once",
        || of(LOOKUP, FaultKind::ResultsUnasked),
    ),
    script(
        "results-swapped",
        "in a lookup each result has another Node's name",
        &["INST-2", "INST-3"],
        "instances/nobody-is-mixed-up",
        || of(LOOKUP, FaultKind::ResultsSwapped),
    ),
    script(
        "wrong-uid",
        "the results of a lookup have UIDs that are not in the request",
        &["INST-2"],
        "instances/each-node-once",
        || of(LOOKUP, FaultKind::WrongUid),
    ),
    script(
        "empty-outcome",
        "no result of a lookup has an outcome",
        &["INST-2", "CORE-13"],
        "instances/each-node-once",
        || of(LOOKUP, FaultKind::UnsetOutcome),
    ),
    script(
        "empty-answer",
        "the answer to a lookup is an empty message",
        &["INST-2"],
        "instances/each-node-once",
        || of(LOOKUP, FaultKind::EmptyAnswer),
    ),
    script(
        "garbage-answer",
        "the answer to a lookup is bytes that are no message",
        &["CORE-4", "INST-2"],
        "instances/each-node-once",
        || of(LOOKUP, FaultKind::Garbage),
    ),
    script(
        "oversized-answer",
        "the answer to a lookup has 20 MiB",
        &["CORE-11", "CORE-4", "INST-2"],
        "instances/each-node-once",
        || of(LOOKUP, FaultKind::Oversized),
    ),
    script(
        "absent-for-everything",
        "every instance is ABSENT",
        &["INST-1", "INST-3"],
        "instances/found-by-name",
        || {
            let absent = Fault::new("LookupInstances", FaultKind::InstanceState);
            vec![absent.value("ABSENT")]
        },
    ),
    twist(
        "absent-on-throttle",
        "every instance is ABSENT while the cloud fails",
        &["INST-1"],
        "instances/throttled-is-not-absent",
        Twist::AbsentOnFailure,
    ),
    twist(
        "absent-when-ready",
        "the instances of Nodes that are Ready are ABSENT",
        &["INST-1", "INST-3"],
        "instances/other-fields-change-nothing",
        Twist::ReadyAbsent,
    ),
    twist(
        "absent-when-stopped",
        "an instance that is shut down is ABSENT",
        &["INST-1"],
        "instances/stopped-is-not-absent",
        Twist::StoppedAbsent,
    ),
    twist(
        "runs-without-metadata",
        "an instance that is shut down is RUNNING if the request does not ask for its metadata",
        &["INST-10"],
        "instances/power-alone",
        Twist::RunsWithoutMetadata,
    ),
    twist(
        "absent-when-foreign",
        "a provider ID of another cloud is ABSENT",
        &["INST-9", "INST-1"],
        "instances/foreign-id-is-unmanaged",
        Twist::ForeignAbsent,
    ),
    script(
        "state-unspecified",
        "every instance is in the state UNSPECIFIED",
        &["CORE-13"],
        "instances/found-by-name",
        || of(LOOKUP, FaultKind::InstanceState),
    ),
    script(
        "state-unknown",
        "every instance is in a state that the contract does not have",
        &["CORE-13"],
        "instances/found-by-name",
        || {
            let unknown = Fault::new("LookupInstances", FaultKind::InstanceState);
            vec![unknown.value("99")]
        },
    ),
    twist(
        "stale-answers",
        "the provider repeats its first answer about a Node for ever and ignores max_age",
        &["INST-5"],
        "instances/max-age-zero-asks-the-cloud",
        Twist::Stale,
    ),
    twist(
        "one-bad-item-fails-all",
        "one instance that does not exist fails the lookup of the whole batch; one route that fails makes all routes of the request fail",
        &["INST-4", "ROUTE-2"],
        "instances/one-bad-node-fails-alone",
        Twist::WholeBatchFails,
    ),
    twist(
        "name-before-id",
        "the provider looks an instance up by the Node's name even if the Node has a provider ID",
        &["INST-3"],
        "instances/provider-id-wins-over-name",
        Twist::NameFirst,
    ),
    twist(
        "foreign-prefix",
        "provider IDs begin with another prefix than GetProviderInfo states",
        &["PROV-8"],
        "instances/found-by-name",
        Twist::ForeignPrefix,
    ),
    twist(
        "provider-id-changes",
        "each answer has another provider ID for the same instance",
        &["INST-7"],
        "instances/provider-id-is-stable",
        Twist::IdChanges,
    ),
    script(
        "provider-id-missing",
        "no instance has a provider ID",
        &["INST-7"],
        "instances/found-by-name",
        || of(LOOKUP, FaultKind::ProviderId),
    ),
    script(
        "provider-id-shared",
        "all instances have the same provider ID",
        &["INST-7"],
        "instances/provider-ids-are-unique",
        || {
            let shared = Fault::new("LookupInstances", FaultKind::ProviderId);
            vec![shared.value("mock://the-only-one")]
        },
    ),
    script(
        "too-large-instances",
        "every instance has a label of 70,000 bytes",
        &["CORE-11"],
        "instances/found-by-name",
        || {
            let large = Fault::new("LookupInstances", FaultKind::InstanceLabel);
            vec![large.value(format!("mock.grpc-ccm.io/large={}", "x".repeat(70_000)))]
        },
    ),
    script(
        "too-long-ids",
        "provider IDs have 2,000 bytes",
        &["CORE-11"],
        "instances/found-by-name",
        || {
            let long = Fault::new("LookupInstances", FaultKind::ProviderId);
            vec![long.value(format!("mock://{}", "x".repeat(2_000)))]
        },
    ),
    script(
        "reserved-labels",
        "every instance makes its Node a control plane, by a label in a reserved namespace",
        &["INST-12"],
        "instances/labels-are-the-nodes-own",
        || {
            let label = Fault::new(ALL_RPCS, FaultKind::InstanceLabel);
            vec![label.value("node-role.kubernetes.io/control-plane=true")]
        },
    ),
    script(
        "nonsense-addresses",
        "the InternalIP of every instance is no IP address",
        &["INST-8"],
        "instances/found-by-name",
        || {
            let address = Fault::new("LookupInstances", FaultKind::InstanceAddress);
            vec![address.value("not an address")]
        },
    ),
    script(
        "hang",
        "the provider never answers lookups",
        &["CORE-4", "INST-2"],
        "instances/each-node-once",
        || of(LOOKUP, FaultKind::Hang),
    ),
    script(
        "empty-list",
        "the list of instances is empty and claims to be complete",
        &["INST-6"],
        "instances/list-has-what-is-known",
        || of(&["ListInstances"], FaultKind::ListEmpty),
    ),
    twist(
        "lookups-go-on",
        "a lookup goes on after its deadline, and the next ones wait for it",
        &["CORE-9"],
        "core/deadlines-are-kept",
        Twist::LookupsGoOn,
    ),
    twist(
        "partial-list",
        "lists leave out every second item and claim to be complete",
        &["INST-6", "LB-13", "ROUTE-1", "CLUSTER-1"],
        "instances/list-has-what-is-known",
        Twist::PartialList,
    ),
    twist(
        "ok-list-on-throttle",
        "lists are empty and claim to be complete while the cloud fails",
        &["INST-6", "LB-13", "ROUTE-1", "CLUSTER-1"],
        "instances/list-fails-throttled",
        Twist::OkListOnFailure,
    ),
    script(
        "list-without-end",
        "lists stop without the end marker",
        &["CORE-16"],
        "instances/list-is-whole",
        || everywhere(FaultKind::EndMissing),
    ),
    script(
        "wrong-total",
        "the end of a list has a total that is one too high",
        &["CORE-16"],
        "instances/list-is-whole",
        || everywhere(FaultKind::WrongTotal),
    ),
];
