//! Lies about the provider itself, and about every service.

use super::{Lie, Twist, of, script, twist};
use crate::faults::{Fault, FaultKind};

pub(super) const LIES: &[Lie] = &[
    twist(
        "lazy-initialize",
        "the provider answers calls before Initialize",
        &["CORE-10"],
        "core/a-new-process-is-not-initialized",
        Twist::LazyInitialize,
    ),
    twist(
        "any-owner",
        "the provider answers calls for an owner that it was not initialised for",
        &["CORE-10"],
        "core/another-owner-is-not-initialized-for-instances",
        Twist::AnyOwner,
    ),
    twist(
        "boot-id-changes",
        "each answer has another boot ID",
        &["PROV-7"],
        "provider/probe-tells-the-boot-id",
        Twist::BootIdChanges,
    ),
    script(
        "wrong-boot-id",
        "Probe has another boot ID than GetProviderInfo",
        &["PROV-7"],
        "provider/probe-tells-the-boot-id",
        || vec![Fault::new("Probe", FaultKind::BootId).value("another-process")],
    ),
    script(
        "empty-boot-id",
        "the boot ID is empty",
        &["PROV-7"],
        "provider/boot-id-stays",
        || of(&["GetProviderInfo", "Probe"], FaultKind::BootId),
    ),
    script(
        "boot-id-of-before",
        "every process has the same boot ID",
        &["PROV-7"],
        "provider/boot-id-is-new-for-every-process",
        || {
            let same = |rpc| Fault::new(rpc, FaultKind::BootId).value("always-the-same");
            vec![same("GetProviderInfo"), same("Probe")]
        },
    ),
    twist(
        "scope-changes",
        "each Initialize names another cloud scope",
        &["PROV-9"],
        "provider/cloud-scope-is-the-same-for-every-owner",
        Twist::ScopeChanges,
    ),
    script(
        "empty-scope",
        "the cloud scope is empty",
        &["PROV-9"],
        "provider/cloud-scope-is-stated",
        || of(&["Initialize"], FaultKind::CloudScope),
    ),
    script(
        "no-prefixes",
        "the provider offers instances and states no prefix of provider IDs",
        &["PROV-10"],
        "provider/prefixes-keep-their-limits",
        || of(&["GetProviderInfo"], FaultKind::ProviderIdPrefix),
    ),
    twist(
        "info-needs-the-cloud",
        "GetProviderInfo waits for the cloud, and fails when the cloud fails",
        &["PROV-1"],
        "provider/info-without-a-cloud-call",
        Twist::InfoNeedsCloud,
    ),
    twist(
        "probe-waits-for-the-cloud",
        "Probe waits for the cloud",
        &["PROV-4"],
        "provider/probe-from-memory",
        Twist::ProbeWaitsForCloud,
    ),
    twist(
        "probe-waits-for-calls",
        "Probe waits until no call except Probe and WatchChanges is in flight",
        &["PROV-4"],
        "provider/probe-beside-64-calls",
        Twist::ProbeWaitsForCalls,
    ),
    twist(
        "probe-always-ready",
        "Probe says READY while the cloud fails every call",
        &["PROV-16"],
        "provider/probe-tells-of-a-failing-cloud",
        Twist::ProbeAlwaysReady,
    ),
    twist(
        "ready-only-after-initialize",
        "Probe says STARTING until Initialize comes",
        &["PROV-15"],
        "provider/probe-is-ready-before-initialize",
        Twist::ReadyOnlyInitialized,
    ),
    twist(
        "refusals-are-trouble",
        "a refusal of one object counts as a failure of the cloud",
        &["PROV-16"],
        "provider/probe-is-ready-again-after-a-refusal",
        Twist::RefusalIsTrouble,
    ),
    twist(
        "stays-degraded",
        "Probe says DEGRADED for ever once the cloud has failed a call",
        &["PROV-16"],
        "provider/probe-is-ready-again-after-a-success",
        Twist::StaysDegraded,
    ),
    twist(
        "cancelled-is-trouble",
        "Probe says DEGRADED because a caller cancelled its call",
        &["PROV-16"],
        "provider/probe-does-not-count-cancelled-calls",
        Twist::CancelledIsTrouble,
    ),
    twist(
        "failed-initialize-forgets",
        "an Initialize that fails ends the service for the former owner",
        &["PROV-17"],
        "provider/initialize-that-fails-changes-nothing",
        Twist::FailedInitializeForgets,
    ),
    twist(
        "initialize-asks-nothing",
        "Initialize succeeds while the cloud refuses the credentials",
        &["PROV-3"],
        "provider/refused-credentials-fail-initialize",
        Twist::InitializeAsksNothing,
    ),
    twist(
        "read-only-ignored",
        "the provider makes load balancers and routes after an Initialize with read_only",
        &["PROV-20"],
        "provider/read-only-writes-nothing",
        Twist::ReadOnlyIgnored,
    ),
    twist(
        "read-only-unsaid",
        "the answer to Initialize does not confirm read_only",
        &["PROV-20"],
        "provider/read-only-is-said",
        Twist::ReadOnlyUnsaid,
    ),
    twist(
        "bookmark-missing",
        "the stream of hints does not begin with a bookmark",
        &["PROV-21"],
        "provider/watch-begins-with-a-bookmark",
        Twist::BookmarkMissing,
    ),
    twist(
        "broken-requests-taken",
        "the provider answers a LookupInstances or LookupZones request that breaks the contract",
        &["CORE-20"],
        "core/requests-that-break-the-contract-are-invalid",
        Twist::BrokenRequestsTaken,
    ),
    twist(
        "nameless-service-deleted",
        "Delete of a Service without a name answers `done`",
        &["CORE-20"],
        "load-balancers/request-without-name",
        Twist::NamelessServiceDeleted,
    ),
    script(
        "codes-of-elsewhere",
        "GetVolumeLabels fails with CONFLICT, which it does not list",
        &["CORE-21"],
        "core/failures-are-listed",
        || {
            let code = provider_sdk::FailureCode::Conflict;
            vec![Fault::failure("GetVolumeLabels", code)]
        },
    ),
    twist(
        "overload-is-status",
        "lookups beyond max_in_flight fail with gRPC status RESOURCE_EXHAUSTED",
        &["CORE-22", "CORE-4"],
        "instances/beyond-max-in-flight",
        Twist::OverloadIsStatus,
    ),
    script(
        "probe-never-ready",
        "Probe says STARTING for ever",
        &["PROV-12"],
        "provider/probe-is-ready-after-initialize",
        || vec![Fault::new("Probe", FaultKind::ProbeState).value("STARTING")],
    ),
    twist(
        "slow-drip",
        "the answer to Probe comes at one byte per second",
        &["PROV-4", "CORE-4"],
        "provider/probe-tells-the-boot-id",
        Twist::SlowDrip,
    ),
    twist(
        "token-ignored",
        "WatchChanges with an unknown resume token sends no resync",
        &["PROV-5"],
        "provider/watch-with-an-unknown-token-resyncs",
        Twist::TokenIgnored,
    ),
    twist(
        "watch-outlives-shutdown",
        "the stream of hints does not end when the provider shuts down",
        &["PROV-6"],
        "provider/watch-ends-with-ok-at-shutdown",
        Twist::WatchOutlives,
    ),
    script(
        "unimplemented",
        "the provider offers LookupZones and ListInstances and answers UNIMPLEMENTED",
        &["CORE-5"],
        "core/every-offered-rpc-is-served",
        || {
            let unimplemented = |rpc| Fault::status(rpc, tonic::Code::Unimplemented);
            vec![unimplemented("LookupZones"), unimplemented("ListInstances")]
        },
    ),
    twist(
        "status-on-failure",
        "a call that fails as a whole, except with NOT_INITIALIZED, ends with a gRPC status instead of an outcome in the body",
        &["CORE-4", "CORE-15"],
        "core/a-throttled-cloud-is-throttled",
        Twist::StatusOnFailure,
    ),
    twist(
        "wrong-code",
        "every call that fails as a whole, except with NOT_INITIALIZED, has the code CONFLICT",
        &["CORE-15"],
        "core/a-throttled-cloud-is-throttled",
        Twist::WrongCode,
    ),
    script(
        "too-many-classes",
        "the provider states 70 more classes of load balancers",
        &["CORE-11"],
        "provider/load-balancer-classes-are-well-formed",
        || {
            let class = |number| format!("mock.grpc-ccm.io/more-{number}");
            let one_more = |number| {
                Fault::new("GetProviderInfo", FaultKind::LoadBalancerClass).value(class(number))
            };
            (0..70).map(one_more).collect()
        },
    ),
    twist(
        "too-long-texts",
        "messages and reasons of failures have 2,000 bytes",
        &["CORE-11"],
        "core/failures-keep-their-limits",
        Twist::LongTexts,
    ),
    twist(
        "garbage-on-the-socket",
        "each connection gets bytes that are not HTTP/2, every fourth one at once, the others after three seconds",
        &["CORE-1", "CORE-4"],
        "core/answers-on-a-new-connection",
        Twist::SocketGarbage,
    ),
    twist(
        "open-socket",
        "the socket and its directory have modes that let everybody connect",
        &["CORE-2"],
        "core/socket-has-mode-0660",
        Twist::SocketOpen,
    ),
    twist(
        "ignores-grpc-timeout",
        "a call goes on after its deadline until the caller closes it",
        &["CORE-19"],
        "core/a-call-ends-at-its-deadline-by-itself",
        Twist::TimeoutIgnored,
    ),
    twist(
        "deadline-is-internal",
        "a call whose deadline has passed ends with gRPC status INTERNAL",
        &["CORE-19"],
        "core/a-call-ends-at-its-deadline-with-deadline-exceeded",
        Twist::DeadlineIsInternal,
    ),
    twist(
        "drain-fails-new-calls",
        "a call that comes after SIGTERM ends with gRPC status ABORTED",
        &["CORE-17"],
        "core/new-calls-in-the-drain-are-answered-or-refused",
        Twist::DrainFails,
    ),
    twist(
        "serves-in-the-drain",
        "after SIGTERM new connections are served until the process ends",
        &["CORE-17"],
        "core/no-new-connections-after-sigterm",
        Twist::DrainServes,
    ),
    twist(
        "frame-behind-the-end",
        "one more frame follows an answer that is only a status, on the same stream",
        &["CORE-1"],
        "core/nothing-behind-the-end",
        Twist::FrameBehind,
    ),
    twist(
        "pings-when-idle",
        "the provider sends a PING on a connection that is idle for 200 ms",
        &["CORE-1"],
        "core/idle-connection-is-left-alone",
        Twist::PingsWhenIdle,
    ),
    script(
        "crash-before-effect",
        "the process dies before it makes a load balancer",
        &["CORE-4"],
        "load-balancers/ensure-ready",
        || of(&["EnsureLoadBalancer"], FaultKind::Crash),
    ),
    script(
        "crash-after-effect",
        "the process dies after it made a load balancer and before it answers",
        &["CORE-4"],
        "load-balancers/ensure-ready",
        || of(&["EnsureLoadBalancer"], FaultKind::CrashAfter),
    ),
];
