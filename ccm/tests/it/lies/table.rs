//! The rows: a test for each lie.

use std::collections::BTreeSet;

use provider_mock::Lie;

use super::{Row, Work, stands};

macro_rules! lies {
    ($($test:ident: $lie:literal, $work:ident($rpc:literal, $calls:literal), [$($told:literal),*];)*) => {
        $(#[tokio::test]
        async fn $test() {
            let row = Row { lie: $lie, work: Work::$work($rpc, $calls), told: &[$($told),*] };
            stands(&row).await;
        })*

        #[test]
        fn every_named_fault_has_a_row() {
            let rows = BTreeSet::from([$($lie),*]);
            let lies: BTreeSet<_> = Lie::all().map(|lie| lie.name).collect();
            assert_eq!(rows, lies);
        }
    };
}

lies! {
    results_reordered: "results-reordered", Calls("LookupInstances", 8), [];
    wrong_length: "wrong-length", Calls("LookupInstances", 8), ["Node/fresh Warning NodeNotInitialized"];
    results_twice: "results-twice", Calls("LookupInstances", 8), ["more than once", "void_passes"];
    results_unasked: "results-unasked", Calls("LookupInstances", 8), [];
    results_swapped: "results-swapped", Calls("LookupInstances", 8), ["void_passes"];
    wrong_uid: "wrong-uid", Calls("LookupInstances", 8), ["is for UID", "void_passes"];
    empty_outcome: "empty-outcome", Calls("LookupInstances", 8), ["has no outcome", "void_passes"];
    empty_answer: "empty-answer", Calls("LookupInstances", 8), ["has no result", "void_passes"];
    garbage_answer: "garbage-answer", Calls("LookupInstances", 8), ["rpc=\"LookupInstances\",outcome=\"unknown\"", "void_passes"];
    oversized_answer: "oversized-answer", Calls("LookupInstances", 8), ["rpc=\"LookupInstances\",outcome=\"unknown\"", "void_passes"];
    absent_for_everything: "absent-for-everything", Calls("LookupInstances", 8), ["void_passes"];
    absent_on_throttle: "absent-on-throttle", Throttled("LookupInstances", 6), ["void_passes"];
    absent_when_ready: "absent-when-ready", Calls("LookupInstances", 8), ["void_passes"];
    absent_when_stopped: "absent-when-stopped", Calls("LookupInstances", 8), [];
    absent_when_foreign: "absent-when-foreign", Calls("LookupInstances", 8), [];
    state_unspecified: "state-unspecified", Calls("LookupInstances", 8), ["state 0 is not known", "void_passes"];
    state_unknown: "state-unknown", Calls("LookupInstances", 8), ["state 99 is not known", "void_passes"];
    stale_answers: "stale-answers", Calls("LookupInstances", 8), [];
    one_bad_item_fails_all: "one-bad-item-fails-all", Calls("LookupInstances", 8), ["rpc=\"LookupInstances\",outcome=\"internal\""];
    name_before_id: "name-before-id", Calls("LookupInstances", 8), [];
    foreign_prefix: "foreign-prefix", Calls("LookupInstances", 8), ["begins with none of the provider's prefixes", "void_passes"];
    provider_id_changes: "provider-id-changes", Calls("LookupInstances", 8), ["void_passes"];
    provider_id_missing: "provider-id-missing", Calls("LookupInstances", 8), ["gave no provider ID"];
    provider_id_shared: "provider-id-shared", Calls("LookupInstances", 8), ["void_passes"];
    too_long_ids: "too-long-ids", Calls("LookupInstances", 8), ["NodeNotInitialized", "void_passes"];
    reserved_labels: "reserved-labels", Calls("LookupInstances", 8), [];
    nonsense_addresses: "nonsense-addresses", Calls("LookupInstances", 8), ["is no IP address", "void_passes"];
    hang: "hang", Calls("LookupInstances", 2), ["rpc=\"LookupInstances\",outcome=\"deadline\""];
    empty_list: "empty-list", Calls("LookupInstances", 8), [];
    partial_list: "partial-list", Calls("LookupInstances", 8), [];
    ok_list_on_throttle: "ok-list-on-throttle", Throttled("LookupInstances", 6), [];
    list_without_end: "list-without-end", Calls("LookupInstances", 8), ["rpc=\"ListRoutes\",outcome=\"fault\""];
    wrong_total: "wrong-total", Calls("LookupInstances", 8), ["rpc=\"ListRoutes\",outcome=\"fault\""];
    lazy_initialize: "lazy-initialize", Calls("LookupInstances", 8), [];
    any_owner: "any-owner", Calls("LookupInstances", 8), [];
    boot_id_changes: "boot-id-changes", Calls("Probe", 4), ["rpc=\"Probe\",outcome=\"fault\""];
    wrong_boot_id: "wrong-boot-id", Calls("Probe", 4), ["rpc=\"Probe\",outcome=\"fault\""];
    empty_boot_id: "empty-boot-id", Calls("GetProviderInfo", 2), ["rpc=\"GetProviderInfo\",outcome=\"fault\""];
    boot_id_of_before: "boot-id-of-before", Restarted("LookupInstances", 8), [];
    scope_changes: "scope-changes", Restarted("Initialize", 2), ["Lease/cloud-controller-manager Warning CloudScopeChanged provider mock: the provider's credentials reach another cloud scope", "ccm_provider_cloud_scope_accepted{provider=\"mock\"} 0"];
    empty_scope: "empty-scope", Calls("Initialize", 2), ["rpc=\"Initialize\",outcome=\"fault\""];
    no_prefixes: "no-prefixes", Calls("GetProviderInfo", 2), ["rpc=\"GetProviderInfo\",outcome=\"fault\""];
    info_needs_the_cloud: "info-needs-the-cloud", Throttled("LookupInstances", 6), ["outcome=\"throttled\""];
    probe_waits_for_the_cloud: "probe-waits-for-the-cloud", Throttled("LookupInstances", 6), ["outcome=\"throttled\""];
    probe_waits_for_calls: "probe-waits-for-calls", Calls("LookupInstances", 8), [];
    probe_never_ready: "probe-never-ready", Calls("Probe", 2), [];
    probe_always_ready: "probe-always-ready", Throttled("LookupInstances", 6), ["outcome=\"throttled\""];
    slow_drip: "slow-drip", Calls("Probe", 3), ["rpc=\"Probe\",outcome=\"deadline\""];
    token_ignored: "token-ignored", Calls("LookupInstances", 8), [];
    watch_outlives_shutdown: "watch-outlives-shutdown", Restarted("LookupInstances", 8), [];
    unimplemented: "unimplemented", Calls("LookupInstances", 8), ["rpc=\"ListInstances\",outcome=\"unknown\""];
    status_on_failure: "status-on-failure", Throttled("LookupInstances", 6), ["outcome=\"unknown\""];
    wrong_code: "wrong-code", Throttled("LookupInstances", 6), ["outcome=\"conflict\""];
    too_long_texts: "too-long-texts", Throttled("LookupInstances", 6), ["outcome=\"throttled\""];
    garbage_on_the_socket: "garbage-on-the-socket", Calls("LookupInstances", 8), ["outcome=\"disconnected\""];
    crash_before_effect: "crash-before-effect", Calls("EnsureLoadBalancer", 3), ["rpc=\"EnsureLoadBalancer\",outcome=\"disconnected\""];
    crash_after_effect: "crash-after-effect", Calls("EnsureLoadBalancer", 3), ["rpc=\"EnsureLoadBalancer\",outcome=\"disconnected\""];
    makes_another: "makes-another", Served("LookupInstances", 6), [];
    goes_on_after_cancel: "goes-on-after-cancel", Served("LookupInstances", 6), [];
    handle_missing: "handle-missing", Served("LookupInstances", 6), [];
    too_long_handle: "too-long-handle", Calls("LookupInstances", 8), ["rpc=\"EnsureLoadBalancer\",outcome=\"fault\""];
    needs_the_handle: "needs-the-handle", Served("LookupInstances", 6), [];
    forgets_the_mark: "forgets-the-mark", Calls("LookupInstances", 8), ["rpc=\"UpdateLoadBalancer\",outcome=\"conflict\""];
    forgets_previous_owners: "forgets-previous-owners", Served("LookupInstances", 6), [];
    adopts_foreign: "adopts-foreign", Served("LookupInstances", 6), [];
    adopts_unmarked: "adopts-unmarked", Served("LookupInstances", 6), [];
    follows_edited_handle: "follows-edited-handle", Served("LookupInstances", 6), [];
    conflict_but_touched: "conflict-but-touched", Served("LookupInstances", 6), [];
    keeps_cleared_fields: "keeps-cleared-fields", Served("LookupInstances", 6), [];
    converged_ensure_writes: "converged-ensure-writes", Served("LookupInstances", 6), [];
    in_sync_lies: "in-sync-lies", Served("LookupInstances", 6), [];
    presence_unspecified: "presence-unspecified", Served("LookupInstances", 6), ["rpc=\"GetLoadBalancer\",outcome=\"fault\""];
    ownership_unspecified: "ownership-unspecified", Calls("LookupInstances", 8), ["rpc=\"ListRoutes\",outcome=\"fault\""];
    empty_targets_ignored: "empty-targets-ignored", Served("LookupInstances", 6), [];
    absent_targets_empty: "absent-targets-empty", Served("LookupInstances", 6), [];
    delete_leaves_it: "delete-leaves-it", Served("LookupInstances", 6), [];
    delete_of_absent_fails: "delete-of-absent-fails", Served("LookupInstances", 6), [];
    update_of_absent_is_done: "update-of-absent-is-done", Served("LookupInstances", 6), [];
    get_writes: "get-writes", Served("LookupInstances", 6), [];
    zones_swapped: "zones-swapped", Calls("LookupInstances", 8), [];
    foreign_route_removed: "foreign-route-removed", Calls("LookupInstances", 8), [];
    route_without_mark: "route-without-mark", Calls("LookupInstances", 8), [];
    route_of_absent_fails: "route-of-absent-fails", Calls("LookupInstances", 8), [];
    route_exists_fails: "route-exists-fails", Calls("LookupInstances", 8), [];
    route_results_swapped: "route-results-swapped", Calls("LookupInstances", 8), ["FailedToCreateRoute"];
    blackholes_left_out: "blackholes-left-out", Calls("LookupInstances", 8), [];
    unknown_disk_empty_labels: "unknown-disk-empty-labels", Calls("LookupInstances", 8), [];
    foreign_volume_not_found: "foreign-volume-not-found", Calls("LookupInstances", 8), [];
}
