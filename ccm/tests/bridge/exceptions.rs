//! Checks that bridged clouds cannot pass, or that cannot run on them, and why. The test fails if
//! such a check passes, unless [`timed`] lists it.

use provider_conformance::Hook;

/// Checks that do not pass, for one reason.
pub struct Exception {
    pub why: &'static str,
    pub checks: &'static [&'static str],
}

/// Exceptions of this cloud that also pass if the calls of the check do not meet in the provider,
/// or do not reach the cloud before they are cut, for example on a busy machine.
pub fn timed(cloud: &str) -> Vec<&'static str> {
    match cloud {
        "aws" => vec!["instances/cut-off-anywhere"],
        "careless" => [
            CONTEXTS,
            &[
                "core/calls-lost-with-the-process-are-statuses",
                "provider/probe-beside-64-calls",
            ],
        ]
        .concat(),
        _ => Vec::new(),
    }
}

/// The checks that a cloud fails whose methods do not check their contexts.
const CONTEXTS: &[&str] = &[
    "core/a-cancelled-delete-writes-nothing",
    "core/a-cancelled-ensure-writes-nothing",
    "core/a-delete-left-alone-writes-nothing-past-its-deadline",
    "core/an-ensure-left-alone-writes-nothing-past-its-deadline",
    "core/an-ensure-past-its-deadline-writes-nothing",
    "core/an-ensure-whose-connection-is-lost-writes-nothing",
    "load-balancers/cancelled-delete-stops",
    "load-balancers/cancelled-ensure-stops",
    "load-balancers/disconnected-ensure-stops",
];

/// Exceptions of every cloud here, behind Go's interface alone. If a vendor adds `OwnerChecker`,
/// the first two do not apply, except for the checks in [`MARKED`].
pub const NOT_IN_GO: &[Exception] = &[
    Exception {
        why: "Go's interface knows no owner ID: what the cloud finds for a Service is that Service's, whichever cluster made it (LB-1, CORE-14)",
        checks: &[
            "load-balancers/ensure-longest-owner",
            "load-balancers/owner-other-cluster-delete",
            "load-balancers/owner-other-cluster-get",
            "load-balancers/owner-other-cluster-update",
            "load-balancers/owner-previous",
            "load-balancers/owner-previous-marked-anew",
            "load-balancers/owner-same-cluster-name",
            "provider/calls-in-flight-keep-their-owner",
            "provider/a-previous-owners-load-balancer-is-ours",
            "provider/previous-owners-are-replaced",
        ],
    },
    Exception {
        why: "nothing is marked, so that nothing is unmarked either (LB-9)",
        checks: &[
            "load-balancers/ensure-marks-or-their-digits",
            "load-balancers/owner-unmarked-adopted",
            "load-balancers/owner-unmarked-by-address",
            "load-balancers/owner-unmarked-by-name",
            "load-balancers/owner-unmarked-of-others",
            "load-balancers/owner-unmarked-untouched",
        ],
    },
    Exception {
        why: "Go's EnsureLoadBalancer sets the targets that it is given and cannot leave them alone (LB-10)",
        checks: &[
            "load-balancers/ensure-twice",
            "load-balancers/targets-absent-is-not-empty",
            "load-balancers/targets-set-later",
        ],
    },
    Exception {
        why: "no cloud here has an instance whose type is no label value; TestAFactWithoutAFormIsLeftOut of the bridge shows that it is left out (INST-15)",
        checks: &["instances/what-has-no-form-is-left-out"],
    },
    Exception {
        why: "nothing in Go's interface verifies credentials (PROV-3)",
        checks: &["provider/refused-credentials-fail-initialize"],
    },
];

/// [`NOT_IN_GO`] without its first two exceptions, for a cloud whose vendor has added
/// `OwnerChecker`.
pub const NOT_IN_GO_WITH_OWNERS: &[Exception] = NOT_IN_GO.split_at(2).1;

/// Exceptions of the cloud with marks.
pub const MARKED: &[Exception] = &[Exception {
    why: "a Go cloud finds the load balancer of a Service by itself, here by its name, and is asked for none by a handle (LB-5)",
    checks: &[
        "load-balancers/owner-unmarked-of-others",
        "load-balancers/owner-unmarked-untouched",
    ],
}];

/// Exceptions of the cloud with the older Instances and Zones.
pub const INSTANCES_V1: &[Exception] = &[Exception {
    why: "the names of its load balancers are made of the cluster's",
    checks: &["load-balancers/owner-renamed-cluster"],
}];

/// Exceptions of the cloud that finds objects by IDs.
pub const BY_ID: &[Exception] = &[
    Exception {
        why: "owner: the cloud. For a name that it does not know it returns a plain error without a status, which counts as a failure of its API (PROV-16)",
        checks: &["provider/probe-is-ready-again-after-a-success"],
    },
    Exception {
        why: "owner: the options of the test cloud. They offer source ranges, which it does not write",
        checks: &["load-balancers/field-source-ranges"],
    },
    Exception {
        why: "owner: the cloud. It refuses a load balancer without a Ready target, and Nodes that it does not know are not Ready",
        checks: &["load-balancers/targets-all-unknown"],
    },
];

/// Exceptions of the cloud with a lister of Nodes.
pub const LISTER: &[Exception] = &[
    Exception {
        why: "owner: the cloud. A new process does not start the cloud without the cluster's CIDR, which an Initialize may leave out (PROV-19)",
        checks: &[
            "provider/cloud-scope-outlives-the-process",
            "provider/deadline-hints-are-sensible",
        ],
    },
    Exception {
        why: "owner: the cloud. For a Node that it does not know it returns a plain error, which is INTERNAL (CORE-15)",
        checks: &["routes/unknown-target-fails-alone"],
    },
];

/// Exceptions of the cloud `careless`.
pub const CARELESS: &[Exception] = &[
    Exception {
        why: "owner: the cloud. It answers about Nodes from a cache that it fills from time to time, whatever max_age asks (INST-5)",
        checks: &[
            "core/a-cloud-that-is-down-is-unavailable",
            "core/a-throttled-cloud-is-throttled",
            "core/calls-lost-with-the-process-are-statuses",
            "core/refused-credentials-are-credentials",
            "instances/max-age-left-out-is-zero",
            "instances/max-age-zero-asks-the-cloud",
            "instances/never-older-than-max-age",
            "instances/new-is-found-or-pending",
            "instances/precondition-is-not-absent",
            "instances/provider-id-survives-a-stop",
            "instances/refused-credentials-are-not-absent",
            "instances/removed-but-failing-is-not-absent",
            "instances/removed-harms-no-neighbour",
            "instances/removed-is-absent",
            "instances/stop-and-start-are-seen",
            "instances/stopped-is-not-absent",
            "instances/throttled-is-not-absent",
            "instances/unavailable-is-not-absent",
            "provider/probe-beside-64-calls",
            "provider/probe-tells-of-a-failing-cloud",
        ],
    },
    Exception {
        why: "owner: the cloud. For an instance that it does not know it returns nil metadata, which is UNMANAGED (INST-13)",
        checks: &[
            "instances/an-unknown-name-is-not-claimed",
            "instances/nobody-is-mixed-up",
        ],
    },
    Exception {
        why: "owner: the cloud. None of its methods checks its context (CORE-8, CORE-19)",
        checks: CONTEXTS,
    },
    Exception {
        why: "owner: the options of the test cloud. They offer source ranges, which it does not write",
        checks: &["load-balancers/field-source-ranges"],
    },
];

/// Exceptions of clouds with routes.
pub const ROUTES_BY_NAME: &[Exception] = &[Exception {
    why: "Go's interface tells the routes of two clusters apart by the clusters' names alone (ROUTE-4, ROUTE-7)",
    checks: &[
        "routes/foreign-destination-is-not-taken",
        "routes/foreign-in-a-batch",
        "routes/foreign-is-listed-as-foreign",
        "routes/foreign-is-not-removed",
        "routes/former-owner-unsaid-is-foreign",
    ],
}];

/// Exceptions of clouds whose routes are a table in a file or a process, without marks.
pub const ROUTES_OF_NOBODY: &[Exception] = &[
    Exception {
        why: "owner: the test cloud. Only the provider makes routes there, so no route leads to a gateway or to a missing instance",
        checks: &[
            "routes/blackhole-is-removed",
            "routes/blackhole-is-replaced",
            "routes/blackholes-are-listed",
            "routes/gateway-is-listed",
        ],
    },
    Exception {
        why: "no route is marked, so that none is unmarked either (ROUTE-3)",
        checks: &[
            "routes/unmarked-elsewhere-is-not-turned",
            "routes/unmarked-is-listed",
            "routes/unmarked-is-removed",
            "routes/unmarked-target-is-not-replaced",
        ],
    },
    Exception {
        why: "the bridge lets the cloud decide about a second route to one destination, as upstream does, and this cloud accepts it",
        checks: &["routes/living-route-is-not-turned"],
    },
];

/// Exceptions of upstream's fake.
pub const FAKE: &[Exception] = &[
    Exception {
        why: "the fake only records calls: Get always finds a load balancer, for any Service, and without the ports that Ensure answered; nothing is ever removed, and each call writes",
        checks: &[
            "load-balancers/at-once-ensure-and-delete",
            "load-balancers/at-once-ensure-and-update",
            "load-balancers/at-once-ensure-same",
            "load-balancers/at-once-ensure-same-connections",
            "load-balancers/at-once-sixty-four",
            "load-balancers/cancelled-delete-stops",
            "load-balancers/cancelled-ensure-stops",
            "load-balancers/cloud-fails-delete",
            "load-balancers/cloud-fails-ensure",
            "load-balancers/cloud-fails-get",
            "load-balancers/cloud-fails-handle-stays",
            "load-balancers/cloud-fails-update",
            "load-balancers/cut-change-by-deadline",
            "load-balancers/cut-delete-by-deadline",
            "load-balancers/cut-delete-by-kill",
            "load-balancers/cut-ensure-by-deadline",
            "load-balancers/cut-ensure-by-kill",
            "load-balancers/delete-by-uid-alone",
            "load-balancers/delete-done",
            "load-balancers/delete-half-made",
            "load-balancers/delete-last-seen-service",
            "load-balancers/delete-never-made",
            "load-balancers/delete-one-of-many",
            "load-balancers/delete-removed-behind-the-back",
            "load-balancers/delete-repeated",
            "load-balancers/delete-without-handle",
            "load-balancers/disconnected-ensure-stops",
            "load-balancers/ensure-again-after-delete",
            "load-balancers/ensure-invalid-port",
            "load-balancers/ensure-longest-names",
            "load-balancers/ensure-neighbours",
            "load-balancers/ensure-other-class",
            "load-balancers/ensure-several-ports",
            "load-balancers/ensure-status-given-back",
            "load-balancers/ensure-without-handle",
            "load-balancers/field-labels",
            "load-balancers/field-node-port",
            "load-balancers/field-not-honoured",
            "load-balancers/field-port",
            "load-balancers/field-port-name",
            "load-balancers/field-ports-added",
            "load-balancers/get-deleted",
            "load-balancers/get-other-class",
            "load-balancers/get-made",
            "load-balancers/get-never-made",
            "load-balancers/handle-edited-and-put-right",
            "load-balancers/handle-of-nothing",
            "load-balancers/handle-of-nothing-as-without",
            "load-balancers/handle-of-nothing-delete",
            "load-balancers/handle-of-nothing-ensure",
            "load-balancers/handle-of-other-cluster",
            "load-balancers/handle-of-other-service-delete",
            "load-balancers/handle-of-other-service-ensure",
            "load-balancers/handle-of-other-service-update",
            "load-balancers/owner-foreign-is-never-adopted",
            "load-balancers/owner-marks-outlive-the-process",
            "load-balancers/owner-not-initialised",
            "load-balancers/owner-other-cluster-ensure",
            "load-balancers/owner-previous-delete",
            "load-balancers/owner-recreated-service",
            "load-balancers/owner-recreated-service-delete",
            "load-balancers/owner-renamed-cluster",
            "load-balancers/request-unknown-fields",
            "load-balancers/request-without-cluster",
            "load-balancers/slow-cloud-is-pending",
            "load-balancers/targets-all-unknown",
            "load-balancers/targets-empty-is-none",
            "load-balancers/targets-five-thousand",
            "load-balancers/targets-grow-and-shrink",
            "load-balancers/targets-unset-set",
            "load-balancers/update-deleted",
            "load-balancers/update-done",
            "load-balancers/update-not-found",
            "load-balancers/update-removed-behind-the-back",
            "load-balancers/update-repeated",
            "load-balancers/update-unknown-node",
            "load-balancers/update-without-handle",
            "load-balancers/update-without-targets",
        ],
    },
    Exception {
        why: "the fake's routes are in its process, and end with it",
        checks: &["routes/before-initialize"],
    },
    Exception {
        why: "the fake has a plain error for a disk that it does not know, not DiskNotFound (VOL-1)",
        checks: &[
            "volumes/at-once",
            "volumes/unknown-disk",
            "volumes/unknown-fields",
        ],
    },
];

/// Exceptions of `k8s.io/cloud-provider-aws` in front of moto.
pub const AWS: &[Exception] = &[
    Exception {
        why: "a security group takes 60 rules, and each load balancer wants one of the Nodes' group",
        checks: &["load-balancers/at-once-sixty-four"],
    },
    Exception {
        why: "AWS's default, the classic load balancer, has only TCP: UDP needs the annotation that asks for a network load balancer",
        checks: &[
            "load-balancers/field-same-port-two-protocols",
            "load-balancers/field-udp",
        ],
    },
    Exception {
        why: "cloud-provider-aws batches DescribeInstances with the context of the call that came first: if that call is cut off, the calls that wait for it fail too (CORE-6)",
        checks: &["instances/cut-off-anywhere"],
    },
    Exception {
        why: "cloud-provider-aws finds the Node of a route's instance by an informer, which behind the bridge has only the Nodes that calls named: a new process lists no routes before a call names them (CORE-16)",
        checks: &["routes/before-initialize"],
    },
    Exception {
        why: "moto does not turn a route whose instance is gone into a blackhole, as AWS does",
        checks: &["routes/target-goes"],
    },
];

/// Hooks that AWS cannot have, and why.
pub const AWS_NO_HOOK: (&str, &[Hook]) = (
    "AWS's cloud treats a load balancer whose name derives from the Service's UID as that Service's, and each route of the table that leads to an instance as the cluster's: nothing is unmarked. It does not list other routes; and moto has no blackholes",
    &[
        Hook::LoadBalancerUnmarked,
        Hook::RouteBlackhole,
        Hook::RouteGateway,
        Hook::RouteUnmarked,
    ],
);
