//! The differences if the ccm reaches the cloud through Go: the bridge, and the adapter of the
//! contract as its cloud. Any other difference is an error, except in the number of Warnings:
//! retries depend on time. An exception that no scenario needs is an error too, unless it depends
//! on time (`may_be`).

/// Lines that may differ, for one reason. `*` in a pattern is any text.
#[derive(Debug)]
pub struct Exception {
    pub why: &'static str,
    /// It must occur in each of these scenarios. If empty, it must occur in at least one scenario.
    pub scenarios: &'static [&'static str],
    pub line: &'static str,
    /// The line without Go in between. `None`: there is no such line.
    pub direct: Option<&'static str>,
    /// The line with Go in between.
    pub bridged: Option<&'static str>,
    /// It depends on time, so it need not occur.
    pub may_be: bool,
}

impl Exception {
    pub fn is_about(&self, scenario: &str) -> bool {
        self.scenarios.is_empty() || self.scenarios.contains(&scenario)
    }

    pub fn must_be_met(&self, scenario: &str) -> bool {
        !self.may_be && self.scenarios.contains(&scenario)
    }

    pub fn covers(&self, line: &str, direct: Option<&String>, bridged: Option<&String>) -> bool {
        let holds = |pattern: Option<&str>, found: Option<&String>| match (pattern, found) {
            (None, None) => true,
            (Some(pattern), Some(found)) => matches(pattern, found),
            _ => false,
        };
        matches(self.line, line) && holds(self.direct, direct) && holds(self.bridged, bridged)
    }
}

/// Whether the text matches the pattern.
fn matches(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((begin, rest)) => text.strip_prefix(begin).is_some_and(|text| {
            rest.is_empty()
                || (0..=text.len())
                    .filter(|at| text.is_char_boundary(*at))
                    .any(|at| matches(rest, &text[at..]))
        }),
    }
}

const SEEN: Option<&str> = Some("seen*");
const HANDLE: &str = "the handle comes from the bridge, because Go's interface has none";
const REASON: &str = "Go's errors are only text. That text contains the cloud's reason, and the bridge adds its own reason `CloudError`";
const NO_CODE: &str = "Go's errors have no codes: the ccm retries an invalid Service with backoff, not after half an hour";
const NO_ID: &str = "the bridge finds that the provider reports no ID (INST-7)";
const NOT_YET: &str = "Go's interface has no answer PENDING, so the adapter returns an error";
const RETAINED: &str =
    "Go's interface cannot say that a load balancer is kept: it counts as deleted (▲S8)";
const NO_HINTS: &str = "Go's interface has no hints, so only the Ensure after the failed Update makes the lost load balancer again (▲S10)";
const NO_SYNC: &str = "Go's interface does not report what is in sync: a controller that takes over calls Ensure (▲S13)";
const TARGETS: &str = "no difference: a Node that joins at a hand-over may cost one Update more, depending on the timing";
const GONE: &str = "no difference: the route's name has the UID of a deleted Node, and the two clusters have different UIDs";

/// The scenarios in which a failure is reported with its reason.
const WITH_REASON: &[&str] = &[
    "delete-fails-once",
    "ensure-fails-once",
    "ensure-invalid",
    "route-cloud-down",
    "route-cloud-stumbles",
    "route-fails",
    "route-half",
    "route-taken",
    "set-update-fails",
];
const LOOKUP_FAILS: &[&str] = &["fails-once", "lookup-fails", "zone-fails"];
const PENDING: &[&str] = &["route-not-known", "still-pending"];

pub const EXCEPTIONS: &[Exception] = &[
    Exception {
        why: HANDLE,
        scenarios: &[],
        line: "service metadata annotations grpc-ccm.io/load-balancer",
        direct: Some(r#"{"provider":"mock","uid":"<uid of *>","class":"","handle":"<handle>"}"#),
        bridged: Some(
            r#"{"provider":"mock","uid":"<uid of *>","class":"","handle":"{\"owner\":\"<owner>\",*\"}"}"#,
        ),
        may_be: false,
    },
    only_bridged(
        REASON,
        WITH_REASON,
        "event on *: Warning *) (CloudError) [*controller]",
    ),
    only_direct(REASON, WITH_REASON, "event on *: Warning *) [*controller]"),
    only_bridged(
        REASON,
        LOOKUP_FAILS,
        "event on *: Warning NodeNotInitialized: CloudError: scripted by the mock (*) [cloud-node-controller]",
    ),
    only_direct(
        REASON,
        LOOKUP_FAILS,
        "event on *: Warning NodeNotInitialized: *: scripted by the mock [cloud-node-controller]",
    ),
    Exception {
        why: NO_CODE,
        scenarios: &["ensure-invalid"],
        line: crate::services::ENSURING,
        direct: Some("seen"),
        bridged: Some("seen *"),
        may_be: false,
    },
    only_bridged(
        NO_ID,
        &["no-provider-id"],
        "event on *: Warning NodeNotInitialized: InvalidAnswer: the cloud named no provider ID for an instance that exists (INST-7) [cloud-node-controller]",
    ),
    only_direct(
        NO_ID,
        &["no-provider-id"],
        "event on *: Warning NodeNotInitialized: the provider reports no provider ID, and the Node has none [cloud-node-controller]",
    ),
    only_bridged(
        NOT_YET,
        PENDING,
        "event on *: Warning NodeNotInitialized: CloudError: the cloud does not show the instance of node \"*\" yet [cloud-node-controller]",
    ),
    only_direct(
        NOT_YET,
        PENDING,
        "event on *: Warning NodeNotInitialized: the cloud does not report this Node's instance yet [cloud-node-controller]",
    ),
    only_bridged(
        RETAINED,
        &["retained"],
        "event on the service: Normal DeletedLoadBalancer: Deleted load balancer [service-controller]",
    ),
    only_direct(
        NO_HINTS,
        &["set-lost"],
        "event on the service: Normal UpdatedLoadBalancer: Updated load balancer with new hosts [service-controller]",
    ),
    // A race: the Service may be deleted before anybody has heard that its load balancer vanished.
    Exception {
        why: NO_HINTS,
        scenarios: &["lost-in-cloud"],
        line: "event on the service: Normal Ensur* load balancer [service-controller]",
        direct: Some("seen 2 times"),
        bridged: Some("seen"),
        may_be: true,
    },
    Exception {
        why: NO_SYNC,
        scenarios: &["hand-back"],
        line: crate::services::ENSURING,
        direct: Some("seen 2 times"),
        bridged: Some("seen 3 times"),
        may_be: false,
    },
    Exception {
        why: NO_SYNC,
        scenarios: &["hand-back"],
        line: crate::services::ENSURED,
        direct: Some("seen 2 times"),
        bridged: Some("seen 3 times"),
        may_be: false,
    },
    Exception {
        why: NO_SYNC,
        scenarios: &["hand-back"],
        line: "fact: calls of Ensure until the hand-over was over",
        direct: Some("1"),
        bridged: Some("2"),
        may_be: false,
    },
    Exception {
        why: TARGETS,
        scenarios: &["hand-back", "hand-over"],
        line: crate::services::UPDATED,
        direct: SEEN,
        bridged: SEEN,
        may_be: true,
    },
    Exception {
        why: GONE,
        scenarios: &["route-no-nodes"],
        line: "route 10.244.31.0/24 made name",
        direct: Some("kubernetes-*-10-244-31-0-24"),
        bridged: Some("kubernetes-*-10-244-31-0-24"),
        may_be: false,
    },
];

const fn only_bridged(
    why: &'static str,
    scenarios: &'static [&'static str],
    line: &'static str,
) -> Exception {
    Exception {
        why,
        scenarios,
        line,
        direct: None,
        bridged: SEEN,
        may_be: false,
    }
}

const fn only_direct(
    why: &'static str,
    scenarios: &'static [&'static str],
    line: &'static str,
) -> Exception {
    Exception {
        why,
        scenarios,
        line,
        direct: SEEN,
        bridged: None,
        may_be: false,
    }
}
