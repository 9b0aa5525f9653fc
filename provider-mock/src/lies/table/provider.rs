//! Lies about the provider itself, and about every service.

use super::{Lie, Twist, of, script, twist};
use crate::faults::{Fault, FaultKind};

pub(super) const LIES: &[Lie] = &[
    twist(
        "lazy-initialize",
        "calls are answered before Initialize",
        &["CORE-10"],
        "core/a-new-process-is-not-initialized",
        Twist::LazyInitialize,
    ),
    twist(
        "any-owner",
        "calls for an owner that was not initialised are answered",
        &["CORE-10"],
        "core/another-owner-is-not-initialized-for-instances",
        Twist::AnyOwner,
    ),
    twist(
        "boot-id-changes",
        "the boot ID is another one in each answer",
        &["PROV-7"],
        "provider/probe-tells-the-boot-id",
        Twist::BootIdChanges,
    ),
    script(
        "wrong-boot-id",
        "Probe tells another boot ID than GetProviderInfo",
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
        "no prefix of provider IDs is stated though instances are offered",
        &["PROV-10"],
        "provider/prefixes-keep-their-limits",
        || of(&["GetProviderInfo"], FaultKind::ProviderIdPrefix),
    ),
    twist(
        "info-needs-the-cloud",
        "GetProviderInfo waits for the cloud, and fails with it",
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
        "Probe waits until no other call is in flight",
        &["PROV-4"],
        "provider/probe-beside-64-calls",
        Twist::ProbeWaitsForCalls,
    ),
    twist(
        "probe-always-ready",
        "Probe says READY while the cloud fails every call",
        &[],
        "",
        Twist::ProbeAlwaysReady,
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
        "a resume token that is not known gets no resync",
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
        "LookupZones and ListInstances are offered and answered UNIMPLEMENTED",
        &["CORE-5"],
        "core/every-offered-rpc-is-served",
        || {
            let unimplemented = |rpc| Fault::status(rpc, tonic::Code::Unimplemented);
            vec![unimplemented("LookupZones"), unimplemented("ListInstances")]
        },
    ),
    twist(
        "status-on-failure",
        "what failed is told by a gRPC status instead of in the body",
        &["CORE-4", "CORE-15"],
        "core/a-throttled-cloud-is-throttled",
        Twist::StatusOnFailure,
    ),
    twist(
        "wrong-code",
        "whatever fails is told as CONFLICT",
        &["CORE-15"],
        "core/a-throttled-cloud-is-throttled",
        Twist::WrongCode,
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
        "every fourth connection gets bytes that are no HTTP/2, the others after three seconds",
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
        "a call goes on behind its deadline until its caller hangs up",
        &["CORE-19"],
        "core/a-call-ends-at-its-deadline-by-itself",
        Twist::TimeoutIgnored,
    ),
    twist(
        "frame-behind-the-end",
        "behind an answer that is only a status comes a frame more on its stream",
        &["CORE-1"],
        "core/nothing-behind-the-end",
        Twist::FrameBehind,
    ),
    twist(
        "pings-when-idle",
        "a connection on which the provider said nothing for a second gets a PING",
        &["CORE-1"],
        "core/idle-connection-is-left-alone",
        Twist::PingsWhenIdle,
    ),
    script(
        "crash-before-effect",
        "the process dies when it is to make a load balancer",
        &["CORE-4"],
        "load-balancers/ensure-ready",
        || of(&["EnsureLoadBalancer"], FaultKind::Crash),
    ),
    script(
        "crash-after-effect",
        "the process dies when it has made a load balancer, and has not said so",
        &["CORE-4"],
        "load-balancers/ensure-ready",
        || of(&["EnsureLoadBalancer"], FaultKind::CrashAfter),
    ),
];
