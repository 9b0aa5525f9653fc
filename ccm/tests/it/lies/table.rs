//! The rows: a test for each lie.

use std::collections::BTreeSet;

use provider_mock::Lie;

use super::Met::{Answered, ByWhatIsTold, Lied, Never, Wrote};
use super::Tells::{Alike, Either, Told, Untold};
use super::Work::{Calls, Restarted, RestartedAfter, Served, Throttled, ThrottledRestarted};
use super::stage::Stage::*;
use super::{Row, document, is_told_of_the_honest, stands};

/// The control of a row. A row has no control if an honest provider may have the same report, or if
/// the row has no report.
macro_rules! control {
    (Either $test:ident $row:expr) => {};
    (Untold $test:ident $row:expr) => {};
    ($told:ident $test:ident $row:expr) => {
        #[tokio::test]
        #[ignore = "the same without the violation, which is slow: `make controls`"]
        async fn $test() {
            is_told_of_the_honest(&$row).await;
        }
    };
}

macro_rules! lies {
    ($($test:ident: $lie:literal, $work:expr, $stage:expr, $met:expr, $tells:ident($($words:tt)*);)*) => {
        $(#[tokio::test]
        async fn $test() {
            let row = Row { lie: $lie, work: $work, stage: $stage, met: $met, tells: $tells($($words)*) };
            stands(&row).await;
        })*

        /// The controls: an honest provider must not cause the report of a lie, unless the row says
        /// that it does.
        mod honest {
            use super::*;
            $(control! { $tells $test Row { lie: $lie, work: $work, stage: $stage, met: $met, tells: $tells($($words)*) } })*
        }

        #[test]
        fn every_named_fault_has_a_row() {
            let rows = BTreeSet::from([$($lie),*]);
            let lies: BTreeSet<_> = Lie::all().map(|lie| lie.name).collect();
            assert_eq!(rows, lies);
        }

        #[test]
        fn no_row_without_a_report_has_the_report_as_its_evidence() {
            for (lie, met, tells) in [$(($lie, $met, $tells($($words)*))),*] {
                let only_the_report = matches!(met, ByWhatIsTold);
                assert!(!only_the_report || matches!(tells, Told(_)), "{lie}: {tells:?}");
            }
        }

        #[test]
        fn what_tells_of_each_lie_is_documented() {
            document::is(&[$(($lie, $tells($($words)*))),*]);
        }
    };
}

lies! {
    results_reordered: "results-reordered", Calls("LookupInstances", 8), Plain, Lied, Untold("the contract allows it");
    wrong_length: "wrong-length", Calls("LookupInstances", 8), Plain, Lied, Told(&["Node/fresh Warning NodeNotInitialized"]);
    results_twice: "results-twice", Calls("LookupInstances", 8), Plain, Lied, Told(&["more than once", "void_passes"]);
    results_unasked: "results-unasked", Calls("LookupInstances", 8), Plain, Lied, Told(&["rpc=\"LookupInstances\",outcome=\"fault\""]);
    results_swapped: "results-swapped", Calls("LookupInstances", 8), Plain, Lied, Told(&["void_passes"]);
    wrong_uid: "wrong-uid", Calls("LookupInstances", 8), Plain, Lied, Told(&["is for UID", "void_passes"]);
    empty_outcome: "empty-outcome", Calls("LookupInstances", 8), Plain, Lied, Told(&["has no outcome", "void_passes"]);
    empty_answer: "empty-answer", Calls("LookupInstances", 8), Plain, Lied, Told(&["has no result", "void_passes"]);
    garbage_answer: "garbage-answer", Calls("LookupInstances", 8), Plain, Lied, Told(&["rpc=\"LookupInstances\",outcome=\"fault\"", "void_passes"]);
    oversized_answer: "oversized-answer", Calls("LookupInstances", 8), Plain, Lied, Told(&["rpc=\"LookupInstances\",outcome=\"fault\"", "void_passes"]);
    absent_for_everything: "absent-for-everything", Calls("LookupInstances", 8), Plain, Lied, Told(&["void_passes"]);
    absent_on_throttle: "absent-on-throttle", Throttled("LookupInstances", 6), Plain, Lied, Alike(&["void_passes"], "a pass whose lookups all fail is void too; the log says why");
    absent_when_ready: "absent-when-ready", Calls("LookupInstances", 8), Plain, Lied, Told(&["void_passes"]);
    absent_when_stopped: "absent-when-stopped", Calls("ListInstances", 1), Stopped, Lied, Told(&["Node/off Warning NodeDeletionHeld"]);
    runs_without_metadata: "runs-without-metadata", Calls("LookupInstances", 8), Stopped, Lied, Untold("RUNNING is a valid answer; the Node is NotReady and gets no shutdown taint");
    absent_when_foreign: "absent-when-foreign", Calls("LookupInstances", 8), Unmanaged, Lied, Told(&["Node/unmanaged Warning NodeNotInitialized"]);
    state_unspecified: "state-unspecified", Calls("LookupInstances", 8), Plain, Lied, Told(&["state 0 is not known", "void_passes"]);
    state_unknown: "state-unknown", Calls("LookupInstances", 8), Plain, Lied, Told(&["state 99 is not known", "void_passes"]);
    stale_answers: "stale-answers", Calls("LookupInstances", 8), Leaves, Lied, Untold("an old answer looks like a new one; the Node stays");
    one_bad_item_fails_all: "one-bad-item-fails-all", Calls("LookupInstances", 8), Plain, Lied, Told(&["rpc=\"LookupInstances\",outcome=\"internal\""]);
    name_before_id: "name-before-id", Calls("LookupInstances", 8), Renamed, ByWhatIsTold, Told(&["void_passes"]);
    foreign_prefix: "foreign-prefix", Calls("LookupInstances", 8), Plain, Lied, Told(&["begins with none of the provider's prefixes", "void_passes"]);
    provider_id_changes: "provider-id-changes", Calls("LookupInstances", 8), Plain, Lied, Told(&["Node/fresh Warning FailedToCreateRoute"]);
    provider_id_missing: "provider-id-missing", Calls("LookupInstances", 8), Plain, Lied, Told(&["reports no provider ID"]);
    provider_id_shared: "provider-id-shared", Calls("LookupInstances", 8), Plain, Lied, Told(&["void_passes"]);
    too_large_instances: "too-large-instances", Calls("LookupInstances", 8), Plain, Lied, Told(&["the instance has", "void_passes"]);
    too_long_ids: "too-long-ids", Calls("LookupInstances", 8), Plain, Lied, Told(&["NodeNotInitialized", "void_passes"]);
    reserved_labels: "reserved-labels", Calls("LookupInstances", 8), Plain, Lied, Told(&["ccm_node_reserved_labels_total{provider=\"mock\"}"]);
    nonsense_addresses: "nonsense-addresses", Calls("LookupInstances", 8), Plain, Lied, Told(&["is no IP address", "void_passes"]);
    hang: "hang", Calls("LookupInstances", 2), Plain, Lied, Told(&["rpc=\"LookupInstances\",outcome=\"deadline\""]);
    empty_list: "empty-list", Calls("ListInstances", 1), Plain, Lied, Untold("the ccm asks for the list to confirm a deletion, and a list can only veto it; an empty one vetoes nothing");
    lookups_go_on: "lookups-go-on", Calls("LookupInstances", 8), SlowLater, Lied, Alike(&["rpc=\"LookupInstances\",outcome=\"deadline\""], "the cloud is as slow to an honest provider; the ccm does not see what goes on after the deadline");
    partial_list: "partial-list", Calls("ListRoutes", 2), Plain, Lied, Told(&["Warning LoadBalancerNotListed"]);
    ok_list_on_throttle: "ok-list-on-throttle", Throttled("ListLoadBalancers", 6), AllServed, Lied, Told(&["Warning LoadBalancerNotListed"]);
    list_without_end: "list-without-end", Calls("LookupInstances", 8), Plain, Lied, Told(&["rpc=\"ListRoutes\",outcome=\"fault\""]);
    wrong_total: "wrong-total", Calls("LookupInstances", 8), Plain, Lied, Told(&["rpc=\"ListRoutes\",outcome=\"fault\""]);
    lazy_initialize: "lazy-initialize", Restarted("LookupInstances", 8), Plain, Never, Untold("no controller makes a call before Initialize");
    any_owner: "any-owner", Calls("LookupInstances", 8), Plain, Never, Untold("no controller makes a call before an Initialize for the same owner");
    boot_id_changes: "boot-id-changes", Calls("Probe", 4), Plain, Lied, Told(&["rpc=\"Probe\",outcome=\"fault\""]);
    wrong_boot_id: "wrong-boot-id", Calls("Probe", 4), Plain, Lied, Told(&["rpc=\"Probe\",outcome=\"fault\""]);
    empty_boot_id: "empty-boot-id", Calls("GetProviderInfo", 2), Plain, Lied, Told(&["rpc=\"GetProviderInfo\",outcome=\"fault\""]);
    boot_id_of_before: "boot-id-of-before", Restarted("LookupInstances", 8), Plain, Lied, Untold("a new process looks like a reconnection to the old one, and the ccm initialises it in both cases");
    scope_changes: "scope-changes", RestartedAfter("Initialize", 2, "LookupInstances"), Plain, Lied, Told(&["Lease/cloud-controller-manager Warning CloudScopeChanged provider mock: the provider's credentials reach another cloud scope", "ccm_provider_cloud_scope_accepted{provider=\"mock\"} 0"]);
    empty_scope: "empty-scope", Calls("Initialize", 2), Plain, Lied, Told(&["rpc=\"Initialize\",outcome=\"fault\""]);
    no_prefixes: "no-prefixes", Calls("GetProviderInfo", 2), Plain, Lied, Told(&["rpc=\"GetProviderInfo\",outcome=\"fault\""]);
    info_needs_the_cloud: "info-needs-the-cloud", ThrottledRestarted("GetProviderInfo", 1), Plain, Lied, Told(&["rpc=\"GetProviderInfo\",outcome=\"unknown\""]);
    probe_waits_for_the_cloud: "probe-waits-for-the-cloud", Calls("Probe", 2), Slow, ByWhatIsTold, Told(&["rpc=\"Probe\",outcome=\"deadline\""]);
    probe_waits_for_calls: "probe-waits-for-calls", Calls("Probe", 2), Hangs, ByWhatIsTold, Told(&["rpc=\"Probe\",outcome=\"deadline\""]);
    probe_never_ready: "probe-never-ready", Calls("Probe", 2), Plain, Lied, Told(&["provider mock is not available"]);
    bookmark_missing: "bookmark-missing", Calls("Probe", 2), Plain, Lied, Untold("a stream without a bookmark looks like one without changes");
    broken_requests_taken: "broken-requests-taken", Calls("LookupInstances", 8), Plain, Never, Untold("the ccm sends no request that breaks the contract");
    nameless_service_deleted: "nameless-service-deleted", Calls("LookupInstances", 8), Plain, Never, Untold("every Service has a name");
    cancelled_is_trouble: "cancelled-is-trouble", Calls("LookupInstances", 8), Plain, Never, Untold("the ccm cancels no call here; DEGRADED is a valid state, and the ccm deletes no Node meanwhile");
    codes_of_elsewhere: "codes-of-elsewhere", Calls("LookupInstances", 8), Plain, Never, Untold("the ccm does not ask for a volume's labels here");
    failed_initialize_forgets: "failed-initialize-forgets", Calls("LookupInstances", 8), Plain, Never, Untold("the ccm repeats an Initialize that fails, and no controller makes a call until one succeeds");
    initialize_asks_nothing: "initialize-asks-nothing", Calls("LookupInstances", 8), Plain, Never, Untold("the credentials are good here; if the cloud refuses them, the first call says so");
    overload_is_status: "overload-is-status", Calls("LookupInstances", 8), Plain, Never, Untold("the ccm keeps to max_in_flight");
    read_only_ignored: "read-only-ignored", Calls("LookupInstances", 8), Plain, Never, Untold("the ccm never initialises with read_only");
    read_only_unsaid: "read-only-unsaid", Calls("LookupInstances", 8), Plain, Never, Untold("the ccm never initialises with read_only");
    ready_only_after_initialize: "ready-only-after-initialize", Calls("LookupInstances", 8), Plain, Lied, Untold("the leader initialises a provider that is STARTING, and a standby waits until it leads");
    stays_degraded: "stays-degraded", Calls("LookupInstances", 8), Plain, Never, Untold("the cloud fails no call here; DEGRADED is a valid state, and the ccm deletes no Node meanwhile");
    refusals_are_trouble: "refusals-are-trouble", Calls("LookupInstances", 8), Plain, Never, Untold("the cloud refuses nothing here; DEGRADED is a valid state, and the ccm deletes no Node meanwhile");
    unknown_name_unmanaged: "unknown-name-unmanaged", Calls("LookupInstances", 8), Plain, Never, Untold("the ccm leaves an UNMANAGED Node alone, as the contract says, and does not learn that the cloud does not know it");
    probe_always_ready: "probe-always-ready", Throttled("LookupInstances", 6), Plain, Lied, Alike(&["outcome=\"throttled\""], "each call reports the cloud's failure itself");
    slow_drip: "slow-drip", Calls("Probe", 3), Plain, ByWhatIsTold, Told(&["rpc=\"Probe\",outcome=\"deadline\""]);
    token_ignored: "token-ignored", Calls("WatchChanges", 2), TokenLost, Lied, Untold("a stream without a resync looks like one without changes; the passes go on");
    watch_outlives_shutdown: "watch-outlives-shutdown", Restarted("LookupInstances", 8), Plain, Answered("WatchChanges", "", "cancelled"), Untold("the connection ends like that of a killed process");
    unimplemented: "unimplemented", Calls("LookupInstances", 8), Plain, Lied, Told(&["rpc=\"ListInstances\",outcome=\"unknown\""]);
    zones_made_up: "zones-made-up", Calls("LookupInstances", 8), Plain, Never, Untold("a zone is an opaque string to the ccm, and it asks only about Nodes whose instance exists");
    types_bent: "types-bent", Calls("LookupInstances", 8), Plain, Never, Untold("a type is an opaque string to the ccm");
    hashes_marks_otherwise: "hashes-marks-otherwise", Calls("LookupInstances", 8), Plain, Never, Untold("the ccm sees no marks");
    ready_while_deleting: "ready-while-deleting", Calls("LookupInstances", 8), Plain, Never, Untold("the ccm finishes a Delete before it calls Ensure for the same Service; if the Service becomes a LoadBalancer again meanwhile, the next lists lack its load balancer");
    latest_owner_marks: "latest-owner-marks", Calls("LookupInstances", 8), Plain, Never, Untold("one ccm has one owner ID");
    deadline_is_internal: "deadline-is-internal", Calls("LookupInstances", 8), Plain, Never, Untold("the ccm ends a call at its deadline itself, and a status other than OK fails a call whatever its code");
    drain_fails_new_calls: "drain-fails-new-calls", Calls("LookupInstances", 8), Plain, Never, Untold("the ccm makes no call on a connection that ends, and a status other than OK fails a call whatever its code");
    serves_in_the_drain: "serves-in-the-drain", Calls("LookupInstances", 8), Plain, Never, Untold("the process that shuts down answers the ccm's calls until it ends, and then the next process answers them");
    status_on_failure: "status-on-failure", Throttled("LookupInstances", 6), Plain, Lied, Told(&["outcome=\"unknown\""]);
    wrong_code: "wrong-code", Throttled("LookupInstances", 6), Plain, Lied, Told(&["outcome=\"conflict\""]);
    too_many_classes: "too-many-classes", Calls("GetProviderInfo", 2), Plain, Lied, Told(&["rpc=\"GetProviderInfo\",outcome=\"fault\""]);
    too_many_volume_labels: "too-many-volume-labels", Calls("LookupInstances", 8), Plain, Never, Untold("the ccm does not ask for a volume's labels here");
    too_long_texts: "too-long-texts", Served("GetLoadBalancer", 2), Unmarked, Lied, Told(&["Service/web Warning SyncLoadBalancerFailed", "mmmmmmmm"]);
    garbage_on_the_socket: "garbage-on-the-socket", Calls("LookupInstances", 8), Plain, ByWhatIsTold, Told(&["rpc=\"GetProviderInfo\""]);
    open_socket: "open-socket", Calls("Probe", 2), Plain, Never, Untold("the ccm cannot see which other processes may connect; it checks the provider's uid if one is configured");
    ignores_grpc_timeout: "ignores-grpc-timeout", Calls("LookupInstances", 8), SlowLater, Lied, Alike(&["rpc=\"LookupInstances\",outcome=\"deadline\""], "the ccm ends a call at its deadline itself, and the cloud is as slow to an honest provider");
    frame_behind_the_end: "frame-behind-the-end", Calls("LookupInstances", 8), Statuses, Lied, Alike(&["rpc=\"LookupInstances\",outcome="], "a bare status fails the call, and its connection may end too; the ccm then connects again");
    pings_when_idle: "pings-when-idle", Calls("Probe", 4), Plain, Lied, Untold("HTTP/2 answers a PING by itself");
    crash_before_effect: "crash-before-effect", Calls("EnsureLoadBalancer", 3), Plain, Lied, Told(&["rpc=\"EnsureLoadBalancer\",outcome=\"disconnected\""]);
    crash_after_effect: "crash-after-effect", Calls("EnsureLoadBalancer", 3), Plain, Lied, Told(&["rpc=\"EnsureLoadBalancer\",outcome=\"disconnected\""]);
    makes_another: "makes-another", Served("GetLoadBalancer", 2), Plain, Wrote("create load balancer"), Told(&["Service/web Warning DuplicateLoadBalancer"]);
    goes_on_after_cancel: "goes-on-after-cancel", Calls("EnsureLoadBalancer", 1), Cancelled, Answered("EnsureLoadBalancer", "default/web", "cancelled"), Untold("the ccm process that cancelled the call is gone; the next process finds the load balancer");
    handle_missing: "handle-missing", Served("GetLoadBalancer", 2), Plain, Lied, Untold("LB-3: an answer without a handle means that the handle did not change");
    too_large_status: "too-large-status", Calls("EnsureLoadBalancer", 3), Plain, Lied, Told(&["Service/web Warning SyncLoadBalancerFailed", "the status of the load balancer has"]);
    too_many_events: "too-many-events", Calls("EnsureLoadBalancer", 3), Plain, Lied, Untold("the ccm records the first 32 events and does not report that there were more");
    too_long_handle: "too-long-handle", Calls("EnsureLoadBalancer", 2), Plain, Lied, Told(&["rpc=\"EnsureLoadBalancer\",outcome=\"fault\""]);
    ready_without_address: "ready-without-address", Calls("EnsureLoadBalancer", 3), Plain, Lied, Told(&["Service/web Warning SyncLoadBalancerFailed", "ready without an address"]);
    needs_the_handle: "needs-the-handle", Served("GetLoadBalancer", 2), HandleLost, Wrote("create load balancer"), Told(&["Service/web Warning DuplicateLoadBalancer"]);
    forgets_the_mark: "forgets-the-mark", Calls("LookupInstances", 8), Plain, Lied, Told(&["it carries no mark"]);
    forgets_previous_owners: "forgets-previous-owners", Served("GetLoadBalancer", 2), PreviousOwner, ByWhatIsTold, Told(&["Service/web Warning SyncLoadBalancerFailed", "is marked for Service"]);
    adopts_foreign: "adopts-foreign", Served("GetLoadBalancer", 2), SameUid, Wrote("of default/web"), Untold("the provider answers OURS");
    adopts_unmarked: "adopts-unmarked", Served("GetLoadBalancer", 2), Unmarked, Wrote("of default/web"), Told(&["Service/web Warning LoadBalancerTakenOver"]);
    follows_edited_handle: "follows-edited-handle", Served("GetLoadBalancer", 2), EditedHandle, Wrote("of default/web"), Untold("the provider answers OURS");
    conflict_but_touched: "conflict-but-touched", Served("GetLoadBalancer", 2), EditedHandle, Wrote("take the targets"), Alike(&["Service/web Warning SyncLoadBalancerFailed"], "CONFLICT is the right answer, and only the cloud counts its writes");
    keeps_cleared_fields: "keeps-cleared-fields", Served("GetLoadBalancer", 2), Cleared, Lied, Untold("Get does not report the settings of a load balancer");
    converged_ensure_writes: "converged-ensure-writes", Served("EnsureLoadBalancer", 2), NoInSync, Lied, Untold("only the cloud counts its writes");
    in_sync_lies: "in-sync-lies", Served("GetLoadBalancer", 2), Plain, Lied, Untold("Get is the only source of in_sync; the next change of the Service causes an Ensure");
    presence_unspecified: "presence-unspecified", Served("GetLoadBalancer", 2), Plain, Lied, Told(&["rpc=\"GetLoadBalancer\",outcome=\"fault\""]);
    ownership_unspecified: "ownership-unspecified", Calls("ListRoutes", 2), Plain, Lied, Told(&["rpc=\"ListRoutes\",outcome=\"fault\""]);
    empty_targets_ignored: "empty-targets-ignored", Served("GetLoadBalancer", 2), NoTargets, Lied, Alike(&["Service/kept Warning UnAvailableLoadBalancer"], "the provider answers `done`, and Get does not report the targets");
    absent_targets_empty: "absent-targets-empty", Served("GetLoadBalancer", 2), IgnoresNodes, Wrote("take the targets from"), Untold("the provider declares here that it ignores the targets, and Get does not report them");
    delete_leaves_it: "delete-leaves-it", Served("GetLoadBalancer", 2), Plain, Answered("DeleteLoadBalancer", "default/api", "ok"), Told(&["Service/api Warning OrphanedLoadBalancer"]);
    delete_of_absent_fails: "delete-of-absent-fails", Served("GetLoadBalancer", 2), AlreadyGone, Answered("DeleteLoadBalancer", "default/api", "failed"), Told(&["Service/api Warning SyncLoadBalancerFailed"]);
    update_of_absent_is_done: "update-of-absent-is-done", Served("UpdateLoadBalancer", 1), RemovedBehind, Answered("UpdateLoadBalancer", "default/kept", "ok"), Either(&["Service/kept Warning LoadBalancerNotListed"], "the lists lack the load balancer. With an honest provider the Update fails, an Ensure follows, and a list before that Ensure lacks the load balancer too");
    cuts_marks: "cuts-marks", Calls("LookupInstances", 8), Plain, Never, Untold("the ccm sends one owner ID and sees no marks");
    former_marks_stay: "former-marks-stay", Calls("LookupInstances", 8), Plain, Never, Untold("the ccm sees no marks, and in_sync is the provider's own claim");
    unmarked_is_ours: "unmarked-is-ours", Calls("LookupInstances", 8), Plain, Never, Untold("the provider answers OURS");
    unmarked_delete_is_done: "unmarked-delete-is-done", Calls("LookupInstances", 8), Plain, Never, Untold("`done` is a valid answer of Delete");
    adopts_by_address: "adopts-by-address", Calls("LookupInstances", 8), Plain, Never, Untold("no unmarked load balancer has such an address here; see adopts-unmarked");
    tells_handles_of_others: "tells-handles-of-others", Calls("LookupInstances", 8), Plain, Never, Untold("the ccm stores a handle as it is; the provider checks it in the next call");
    foreign_get_conflicts: "foreign-get-conflicts", Calls("LookupInstances", 8), Plain, Never, Untold("the contract allows it");
    foreign_name_conflicts: "foreign-name-conflicts", Calls("LookupInstances", 8), Plain, Never, Untold("no other owner has a load balancer here");
    other_class_is_absent: "other-class-is-absent", Calls("LookupInstances", 8), Plain, Never, Untold("no Service here has a class");
    absent_in_sync: "absent-in-sync", Calls("LookupInstances", 8), Plain, Never, Untold("in_sync counts only if the load balancer is PRESENT and OURS");
    needs_the_handle_to_update: "needs-the-handle-to-update", Calls("LookupInstances", 8), Plain, Never, Untold("the ccm's handles name something here; see needs-the-handle");
    get_writes: "get-writes", Served("GetLoadBalancer", 2), Plain, Wrote("that Get read load balancer"), Untold("only the cloud counts its writes");
    shared_delete_takes_neighbour: "shared-delete-takes-neighbour", Served("GetLoadBalancer", 2), SharedGoes, Wrote("delete the neighbour"), Told(&["Warning LoadBalancerNotListed"]);
    shared_collision_taken: "shared-collision-taken", Served("EnsureLoadBalancer", 1), SharedCollides, Wrote("take the port from"), Untold("the provider answers `ready`, and Get does not report the ports of a load balancer");
    shared_targets_of_all: "shared-targets-of-all", Served("GetLoadBalancer", 2), SharedGrows, Wrote("set the same targets of"), Untold("the provider answers `done`, and Get does not report the targets");
    shared_listed_for_one: "shared-listed-for-one", Served("GetLoadBalancer", 2), Shared, Lied, Untold("each Service has the handle of the shared load balancer, and the list has that handle");
    zones_swapped: "zones-swapped", Calls("LookupZones", 1), Zones, Lied, Untold("a zone is an opaque string to the ccm");
    foreign_route_removed: "foreign-route-removed", Calls("DeleteRoutes", 1), Plain, Never, Untold("the ccm never asks for the removal of a route that a list shows as another owner's");
    route_without_mark: "route-without-mark", Calls("CreateRoutes", 1), Plain, Lied, Untold("ROUTE-3: a cloud that cannot mark routes has the same list, and the ccm treats an unmarked route to a Node's Pods as the cluster's own");
    route_of_absent_fails: "route-of-absent-fails", Calls("DeleteRoutes", 1), RouteGoes, Answered("DeleteRoutes", "10.244.98.0/24", "ok, 1 failed"), Untold("the next list shows that the route is gone");
    route_exists_fails: "route-exists-fails", Calls("CreateRoutes", 2), ListLags, ByWhatIsTold, Told(&["FailedToCreateRoute", "the route exists already"]);
    routes_turned: "routes-turned", Calls("LookupInstances", 8), Plain, Never, Untold("the ccm removes a route that leads elsewhere before it makes one to that destination");
    the_later_route_wins: "the-later-route-wins", Calls("LookupInstances", 8), Plain, Never, Untold("the ccm asks for one route to a destination at a time");
    unmarked_routes_taken: "unmarked-routes-taken", Calls("LookupInstances", 8), Plain, Never, Untold("the ccm makes no route if an unmarked one leads to the Node");
    unmarked_routes_turned: "unmarked-routes-turned", Calls("LookupInstances", 8), Plain, Never, Untold("the ccm removes a route that leads elsewhere before it makes one to that destination");
    unmarked_routes_ours: "unmarked-routes-ours", Calls("LookupInstances", 8), Plain, Lied, Untold("the ccm treats an unmarked route to a Node's Pods as the cluster's own");
    nameless_route_is_done: "nameless-route-is-done", Calls("LookupInstances", 8), Plain, Never, Untold("the ccm removes every route by its listed name");
    route_removed_by_destination: "route-removed-by-destination", Calls("LookupInstances", 8), Plain, Never, Untold("the ccm removes every route by its listed name");
    gateway_routes_left_out: "gateway-routes-left-out", Calls("LookupInstances", 8), Plain, Never, Untold("a route that is not in the list looks like a route that does not exist");
    batches_unchecked: "batches-unchecked", Calls("LookupInstances", 8), Plain, Never, Untold("no batch of the ccm is too large or has a key twice");
    route_results_swapped: "route-results-swapped", Calls("CreateRoutes", 1), Unroutable, Lied, Told(&["Node/ready-", "Warning FailedToCreateRoute"]);
    blackholes_left_out: "blackholes-left-out", Calls("ListRoutes", 2), Plain, Lied, Untold("a route that is not in the list looks like a route that does not exist");
    unknown_disk_empty_labels: "unknown-disk-empty-labels", Calls("GetVolumeLabels", 2), Volumes, Lied, Untold("an answer without labels is valid for a volume of another cloud (VOL-1)");
    foreign_volume_not_found: "foreign-volume-not-found", Calls("GetVolumeLabels", 2), Volumes, Lied, Told(&["PersistentVolume/bare Warning VolumeNotFound"]);
}
