//! Lies about zones, routes, volumes and clusters.

use super::{Lie, Twist, of, script, twist};
use crate::faults::FaultKind;

pub(super) const LIES: &[Lie] = &[
    script(
        "zones-swapped",
        "in LookupZones each answer stands under another Node's name",
        &["ZONE-1", "ZONE-2"],
        "zones/agree-with-the-metadata",
        || of(&["LookupZones"], FaultKind::ResultsSwapped),
    ),
    twist(
        "foreign-route-removed",
        "a route of another owner is removed",
        &["ROUTE-4"],
        "routes/foreign-is-not-removed",
        Twist::ForeignRouteRemoved,
    ),
    twist(
        "route-without-mark",
        "routes are made without the owner's mark",
        &["ROUTE-3"],
        "routes/create-marks",
        Twist::RouteNoMark,
    ),
    twist(
        "route-of-absent-fails",
        "the removal of a route that does not exist fails",
        &["ROUTE-4"],
        "routes/delete-of-none",
        Twist::RouteOfAbsentFails,
    ),
    twist(
        "route-exists-fails",
        "a route that already is as asked cannot be made again",
        &["ROUTE-2", "CORE-6"],
        "routes/create-twice",
        Twist::RouteExistsFails,
    ),
    script(
        "route-results-swapped",
        "in CreateRoutes and DeleteRoutes each answer stands under another route's key",
        &["ROUTE-2"],
        "routes/one-bad-route-fails-alone",
        || of(&["CreateRoutes", "DeleteRoutes"], FaultKind::ResultsSwapped),
    ),
    twist(
        "blackholes-left-out",
        "routes whose target is gone are not listed",
        &["ROUTE-1"],
        "routes/blackholes-are-listed",
        Twist::BlackholesLeftOut,
    ),
    twist(
        "unknown-disk-empty-labels",
        "a disk that does not exist has empty labels instead of being NOT_FOUND",
        &["VOL-1"],
        "volumes/unknown-disk",
        Twist::UnknownDiskEmpty,
    ),
    twist(
        "foreign-volume-not-found",
        "a volume of another cloud is NOT_FOUND instead of having no labels",
        &["VOL-1"],
        "volumes/foreign-source",
        Twist::ForeignVolumeNotFound,
    ),
];
