//! Lies about load balancers.

use super::{Lie, Twist, of, script, twist};
use crate::faults::{Fault, FaultKind};

pub(super) const LIES: &[Lie] = &[
    twist(
        "makes-another",
        "each Ensure makes one more load balancer",
        &["CORE-6", "LB-1", "LB-8"],
        "load-balancers/ensure-twice",
        Twist::MakesAnother,
    ),
    twist(
        "goes-on-after-cancel",
        "an Ensure that is cancelled writes to the cloud all the same",
        &["CORE-8"],
        "load-balancers/cancelled-ensure-stops",
        Twist::GoesOn,
    ),
    script(
        "handle-missing",
        "no answer has a handle",
        &["LB-3"],
        "load-balancers/handle-told",
        || {
            of(
                &[
                    "EnsureLoadBalancer",
                    "GetLoadBalancer",
                    "UpdateLoadBalancer",
                ],
                FaultKind::Handle,
            )
        },
    ),
    script(
        "too-long-handle",
        "handles have 2,000 bytes",
        &["LB-3", "CORE-11"],
        "load-balancers/handle-told",
        || {
            let long = Fault::new("EnsureLoadBalancer", FaultKind::Handle);
            vec![long.value("x".repeat(2_000))]
        },
    ),
    script(
        "ready-without-address",
        "a load balancer is ready, and its status is empty",
        &["LB-19"],
        "load-balancers/ensure-ready",
        || of(&["EnsureLoadBalancer"], FaultKind::IngressAddress),
    ),
    twist(
        "needs-the-handle",
        "a load balancer is found by its handle only: without one it is lost",
        &["LB-5"],
        "load-balancers/get-without-handle",
        Twist::NeedsHandle,
    ),
    twist(
        "forgets-the-mark",
        "load balancers are made without the owner's mark",
        &["CORE-14", "LB-5"],
        "load-balancers/get-made",
        Twist::NoMark,
    ),
    twist(
        "forgets-previous-owners",
        "what a previous owner ID marks is not OURS",
        &["PROV-11", "LB-2"],
        "provider/a-previous-owners-load-balancer-is-ours",
        Twist::PreviousForgotten,
    ),
    twist(
        "adopts-foreign",
        "a load balancer of another cluster with the same Service UID is taken for our own",
        &["LB-1", "LB-2"],
        "load-balancers/owner-other-cluster-ensure",
        Twist::AdoptsForeign,
    ),
    twist(
        "adopts-unmarked",
        "an unmarked load balancer is adopted without the operator's grant",
        &["LB-9"],
        "load-balancers/owner-unmarked-untouched",
        Twist::AdoptsUnmarked,
    ),
    twist(
        "follows-edited-handle",
        "whatever a handle names is taken for our own",
        &["LB-4", "LB-2"],
        "load-balancers/handle-of-other-service-ensure",
        Twist::FollowsHandle,
    ),
    twist(
        "conflict-but-touched",
        "CONFLICT is answered, and somebody else's load balancer loses its targets",
        &["LB-4", "LB-2"],
        "load-balancers/handle-of-other-service-ensure",
        Twist::ConflictButTouches,
    ),
    twist(
        "keeps-cleared-fields",
        "what a Service does not ask for any more stays in the cloud",
        &["LB-7", "LB-14"],
        "load-balancers/field-source-ranges",
        Twist::KeepsCleared,
    ),
    twist(
        "converged-ensure-writes",
        "an Ensure writes even where all is as asked",
        &["LB-8"],
        "load-balancers/ensure-twice",
        Twist::AlwaysWrites,
    ),
    script(
        "in-sync-lies",
        "in_sync is always true",
        &["LB-14"],
        "load-balancers/field-port",
        || vec![Fault::new("GetLoadBalancer", FaultKind::InSync).value("true")],
    ),
    script(
        "presence-unspecified",
        "the presence of a load balancer is UNSPECIFIED",
        &["CORE-13"],
        "load-balancers/get-never-made",
        || of(&["GetLoadBalancer"], FaultKind::Presence),
    ),
    script(
        "ownership-unspecified",
        "the ownership of a load balancer, and of a route, is UNSPECIFIED",
        &["CORE-13"],
        "routes/list-is-whole",
        || of(&["GetLoadBalancer", "ListRoutes"], FaultKind::Ownership),
    ),
    twist(
        "empty-targets-ignored",
        "empty targets are taken as absent ones: they stay as they were",
        &["LB-10", "LB-14"],
        "load-balancers/targets-empty-is-none",
        Twist::EmptyTargetsIgnored,
    ),
    twist(
        "absent-targets-empty",
        "absent targets are taken as empty ones: all are removed",
        &["LB-10"],
        "load-balancers/targets-absent-is-not-empty",
        Twist::AbsentTargetsEmpty,
    ),
    twist(
        "delete-leaves-it",
        "Delete says done and leaves the load balancer",
        &["LB-12"],
        "load-balancers/delete-done",
        Twist::DeleteLeaves,
    ),
    twist(
        "delete-of-absent-fails",
        "Delete of a load balancer that does not exist fails",
        &["LB-12"],
        "load-balancers/delete-never-made",
        Twist::DeleteOfAbsentFails,
    ),
    twist(
        "update-of-absent-is-done",
        "Update of a load balancer that does not exist is done",
        &["LB-11"],
        "load-balancers/update-not-found",
        Twist::UpdateOfAbsentDone,
    ),
    twist(
        "get-writes",
        "Get writes to the cloud",
        &["LB-6"],
        "load-balancers/get-writes-nothing",
        Twist::GetWrites,
    ),
    twist(
        "shared-delete-takes-neighbour",
        "Delete of a Service that shares a load balancer removes the whole of it",
        &["LB-22", "LB-2"],
        "load-balancers/shared-delete-one",
        Twist::SharedDelete,
    ),
    twist(
        "shared-collision-taken",
        "a port of a shared load balancer goes to whoever asks for it last",
        &["LB-21", "LB-2"],
        "load-balancers/shared-port-taken",
        Twist::SharedCollisionTaken,
    ),
    twist(
        "shared-targets-of-all",
        "an Update sets the targets of all parts of a shared load balancer",
        &["LB-20", "LB-2", "LB-16"],
        "load-balancers/shared-update",
        Twist::SharedTargets,
    ),
    twist(
        "shared-listed-for-one",
        "a shared load balancer is listed with one of its owners",
        &["LB-23", "LB-13"],
        "load-balancers/shared-listed",
        Twist::SharedListed,
    ),
];
