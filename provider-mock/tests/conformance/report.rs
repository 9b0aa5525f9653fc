//! The suite's report: what it names, and what it leaves behind.

use std::time::Duration;

use provider_conformance::{
    Config, Hook, Lack, Options, Outcome, Provider, RouteMarks, Selection, run,
};
use provider_mock::{Fixture, Mock};

use super::{BINARY, BLIND, CLOUD, command, config, faulty, mock, report_of};

/// A run that is interrupted in a check leaves no load balancer.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_interrupted_is_cleaned_up() {
    let directory = tempfile::tempdir().unwrap();
    let state = directory.path().join("state.json");
    // The check creates a load balancer, then waits for a slow cloud.
    let only = ["core/a-cancelled-delete-writes-nothing".to_owned()];
    let options = Options {
        provider: mock(directory.path(), CLOUD),
        config: config(),
        selection: Selection::new(&only, &[]).unwrap(),
        soak: Duration::ZERO,
    };
    let made = async {
        let there =
            || std::fs::read_to_string(&state).is_ok_and(|text| text.contains("conformance-"));
        while !there() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let run = run(options, made, |_| {});
    let report = tokio::time::timeout(Duration::from_mins(1), run)
        .await
        .unwrap()
        .unwrap();
    assert!(report.interrupted);
    assert!(report.entries.is_empty(), "{:?}", report.entries);
    assert_eq!(report.left, Vec::<String>::new());
    let text = std::fs::read_to_string(&state).unwrap();
    assert!(!text.contains("conformance-"), "{text}");
}

/// If the provider ends before the clean-up and cannot be started at first, the clean-up tries
/// again, and leaves nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_provider_that_does_not_start_at_once_is_started_again_for_the_clean_up() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let line = command(directory.path(), CLOUD);
    let place = directory.path().display();
    let line = format!(
        "for one in 1 2; do rm '{place}/broken-'$one 2>/dev/null && exit 1; done; echo $$ >'{place}/pid'; {line}"
    );
    let options = Options {
        provider: Provider::Command(line),
        config: config(),
        selection: Selection::new(&["load-balancers/ensure-ready".to_owned()], &[]).unwrap(),
        soak: Duration::ZERO,
    };
    let state = at("state.json");
    let ended = async {
        let there =
            || std::fs::read_to_string(&state).is_ok_and(|text| text.contains("conformance-"));
        while !there() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        for name in ["broken-1", "broken-2"] {
            std::fs::write(at(name), "").unwrap();
        }
        let pid = std::fs::read_to_string(at("pid")).unwrap();
        let pid = rustix::process::Pid::from_raw(pid.trim().parse().unwrap()).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    };
    let report = run(options, ended, |_| {}).await.unwrap();
    assert!(report.interrupted && !at("broken-2").exists());
    assert_eq!(report.left, Vec::<String>::new());
    let text = std::fs::read_to_string(&state).unwrap();
    assert!(!text.contains("conformance-"), "{text}");
}

/// Without a listing, `in_sync` and the hook that counts writes, the suite skips the checks that
/// need one of them. They do not count as passed.
#[tokio::test(flavor = "multi_thread")]
async fn what_nobody_can_look_at_is_skipped_and_not_passed() {
    let directory = tempfile::tempdir().unwrap();
    let mut config = config();
    config.hooks.remove(&Hook::CloudWrites);
    let listing = "Capabilities.load_balancers.listing";
    let in_sync = "Capabilities.load_balancers.in_sync";
    let writes = "no hook `cloud-writes`";
    let expected = [
        (
            "core/overlapping-ensures-make-one",
            listing,
            Lack::Capability,
        ),
        ("load-balancers/at-once-ensure-same", listing, Lack::Setup),
        ("load-balancers/ensure-twice", writes, Lack::Setup),
        (
            "load-balancers/update-targets-only",
            in_sync,
            Lack::Capability,
        ),
        ("load-balancers/ensure-ready", listing, Lack::Capability),
    ];
    let only: Vec<_> = expected.iter().map(|(id, ..)| (*id).to_owned()).collect();
    let options = Options {
        provider: mock(directory.path(), BLIND),
        config,
        selection: Selection::new(&only, &[]).unwrap(),
        soak: Duration::ZERO,
    };
    let report = run(options, std::future::pending(), |_| {}).await.unwrap();
    for (id, reason, lack) in expected {
        let entry = report.entries.iter().find(|entry| entry.id == id).unwrap();
        let Outcome::Skipped(skipped) = &entry.outcome else {
            panic!("{id}: {:?}", entry.outcome);
        };
        assert!(skipped.reason.contains(reason), "{id}: {}", skipped.reason);
        assert_eq!(skipped.lack, lack, "{id}");
    }
}

/// The report names an object that a hook did not remove, and an object that the provider still
/// lists after its deletion. It has the data that a person needs to remove them.
#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_removed_is_named() {
    let mut config = config();
    let refuses = "echo no rights for that >&2; exit 1";
    config.hooks.insert(Hook::InstanceRemove, refuses.into());
    let only = [
        "instances/new-is-found-or-pending",
        "load-balancers/delete-done",
    ];
    for faults in ["", "faults: [{rpc: ListLoadBalancers, kind: owner-uid}]\n"] {
        let directory = tempfile::tempdir().unwrap();
        let liar = faulty(
            directory.path(),
            &format!("{CLOUD}{faults}"),
            "delete-leaves-it",
        );
        let report = report_of(liar, config.clone(), &only).await;
        let left = report.left.join("\n");
        for word in [
            "the instance new-",
            "provider ID mock://zone-a/",
            "no rights for that",
            "the load balancer of the Service default/delete-",
            "handle ",
            "it is still in the list",
        ] {
            assert!(left.contains(word), "{word:?} is not in: {left}");
        }
        assert!(!left.contains("(UID ,"), "{left}");
        assert_eq!(report.left.len(), 2, "{left}");
    }
}

/// A retained load balancer still exists, so the report names it.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_retained_is_named_with_its_handle() {
    let directory = tempfile::tempdir().unwrap();
    let mut config = config();
    let retain = format!("{}retain", provider_mock::ANNOTATION_PREFIX);
    config.service_annotations = [(retain, "true".to_owned())].into();
    let only = ["load-balancers/ensure-several-ports"];
    let report = report_of(mock(directory.path(), BLIND), config, &only).await;
    let left = report.left.join("\n");
    for word in [
        "the load balancer of the Service default/",
        ", handle ",
        "`retained`",
        "asks for it",
    ] {
        assert!(left.contains(word), "{word:?} is not in: {left}");
    }
    assert_eq!(report.left.len(), 1, "{left}");
}

/// A cloud that keeps no marks with routes lists all as UNMARKED (ROUTE-12). The clean-up removes
/// the routes of this run alone, also one that a listing has left out for a while.
#[tokio::test(flavor = "multi_thread")]
async fn routes_without_marks_are_removed_by_their_destinations() {
    let theirs = "{name: theirs, destination_cidr: 10.9.0.0/16, node_name: node-0}";
    let cloud = format!("{CLOUD}routes: [{theirs}]\n");
    let mut config = config();
    config.route_marks = RouteMarks::None;
    let hook = config.hooks[&Hook::RouteBlackhole].replace("--owner-id \"$OWNER_ID\" ", "");
    let adds = hook.replace("exec ", "");
    // The check and the first attempt of the clean-up do not see the route.
    let hides = format!(
        "{adds} && '{BINARY}' ctl --endpoint '{{endpoint}}' fault set ListRoutes list-empty --times 2"
    );
    let only = ["routes/list-is-whole", "routes/blackholes-are-listed"];
    for (hook, passed) in [(hook, 2), (hides, 1)] {
        config.hooks.insert(Hook::RouteBlackhole, hook);
        let directory = tempfile::tempdir().unwrap();
        let provider = faulty(directory.path(), &cloud, "route-without-mark");
        let report = report_of(provider, config.clone(), &only).await;
        assert_eq!(report.passed(), passed, "{:?}", report.entries);
        assert_eq!(report.left, Vec::<String>::new());
        let state = std::fs::read_to_string(directory.path().join("state.json")).unwrap();
        let state: serde_json::Value = serde_json::from_str(&state).unwrap();
        let routes = state["routes"].as_array().unwrap();
        let names: Vec<_> = routes.iter().map(|route| &route["name"]).collect();
        assert_eq!(names, ["theirs"], "{routes:?}");
    }
}

/// A load balancer without a mark is UNMARKED, also for the cluster that made it (LB-27). The
/// clean-up removes it with the grant.
#[tokio::test(flavor = "multi_thread")]
async fn load_balancers_without_marks_are_removed_with_the_grant() {
    let directory = tempfile::tempdir().unwrap();
    let provider = faulty(directory.path(), CLOUD, "forgets-the-mark");
    let report = report_of(provider, config(), &["load-balancers/get-made"]).await;
    assert_eq!(report.failed(), 1, "{:?}", report.entries);
    assert_eq!(report.left, Vec::<String>::new());
    let state = std::fs::read_to_string(directory.path().join("state.json")).unwrap();
    assert!(!state.contains("conformance-"), "{state}");
}

/// The clean-up also removes load balancers that only a listing shows: here each Ensure makes one
/// more, and the suite knows the handle of the last one.
#[tokio::test(flavor = "multi_thread")]
async fn what_only_a_listing_shows_is_removed_too() {
    let directory = tempfile::tempdir().unwrap();
    let provider = faulty(directory.path(), CLOUD, "makes-another");
    let report = report_of(provider, config(), &["load-balancers/ensure-twice"]).await;
    assert_eq!(report.failed(), 1, "{:?}", report.entries);
    assert_eq!(report.left, Vec::<String>::new());
    let state = std::fs::read_to_string(directory.path().join("state.json")).unwrap();
    assert!(!state.contains("conformance-"), "{state}");
}

/// If one load balancer of a Service stays, the clean-up still removes the others that a listing
/// shows, and the report names the one that stays.
#[tokio::test(flavor = "multi_thread")]
async fn one_that_stays_is_named_and_the_others_of_its_service_go() {
    let directory = tempfile::tempdir().unwrap();
    let mut config = config();
    // A listing shows no annotations. So only the one that the suite knows by its Ensure is kept.
    let retain = format!("{}retain", provider_mock::ANNOTATION_PREFIX);
    config.service_annotations = [(retain, "true".to_owned())].into();
    let provider = faulty(directory.path(), CLOUD, "makes-another");
    let report = report_of(provider, config, &["load-balancers/ensure-twice"]).await;
    assert_eq!(report.failed(), 1, "{:?}", report.entries);
    let state = std::fs::read_to_string(directory.path().join("state.json")).unwrap();
    let state: serde_json::Value = serde_json::from_str(&state).unwrap();
    let all = state["load_balancers"].as_array().unwrap().iter();
    let stay: Vec<_> = all.filter(|of| of["gone_at_ms"].is_null()).collect();
    assert_eq!(stay.len(), 1, "{stay:?}");
    let [left] = &report.left[..] else {
        panic!("{:?}", report.left);
    };
    let handle = stay[0]["handle"].as_str().unwrap();
    for word in [handle, "`retained`"] {
        assert!(left.contains(word), "{word:?} is not in: {left}");
    }
}

/// While objects of an owner stay, the clean-up reads the listing once, not in each round.
#[tokio::test(flavor = "multi_thread")]
async fn the_clean_up_lists_once_while_something_stays_and_once_at_its_end() {
    let directory = tempfile::tempdir().unwrap();
    let fails = "faults: [{rpc: DeleteLoadBalancer, kind: failure, times: 3}]";
    let fixture = Fixture::parse(&format!("{CLOUD}{fails}\n"), "cloud.yaml").unwrap();
    let mock = Mock::start(fixture, directory.path().join("s/provider.sock"), None);
    let mock = mock.await.unwrap();
    let provider = Provider::Endpoint(format!("unix://{}", mock.path().display()));
    let report = report_of(provider, config(), &["load-balancers/get-made"]).await;
    assert_eq!(report.left, Vec::<String>::new());
    let calls = mock.cloud().calls(None);
    let since = calls
        .iter()
        .find(|call| call.rpc == "DeleteLoadBalancer")
        .map_or(u64::MAX, |call| call.number);
    let after = |rpc: &str| {
        let of = |call: &&provider_mock::CallEntry| call.rpc == rpc && call.number >= since;
        calls.iter().filter(of).count()
    };
    let counts = [after("DeleteLoadBalancer"), after("ListLoadBalancers")];
    assert_eq!(counts, [4, 2]);
}

/// A load balancer of a former owner ID now has the mark of the current owner ID. With the fault
/// `foreign-name-conflicts`, Delete for the former owner ID is CONFLICT until the load balancer is
/// gone.
#[tokio::test(flavor = "multi_thread")]
async fn what_another_owner_id_has_by_now_is_removed_for_that_one() {
    let directory = tempfile::tempdir().unwrap();
    let fixture = Fixture::parse(CLOUD, "cloud.yaml").unwrap();
    let mock = Mock::start(fixture, directory.path().join("s/provider.sock"), None);
    let mock = mock.await.unwrap();
    mock.cloud().tell("foreign-name-conflicts").unwrap();
    let provider = Provider::Endpoint(mock.endpoint());
    let only = ["load-balancers/owner-previous"];
    let report = report_of(provider, config(), &only).await;
    assert_eq!(report.passed(), 1, "{:?}", report.entries);
    assert_eq!(report.left, Vec::<String>::new());
    // It does not repeat the CONFLICT until its time is over.
    let deletes = mock.cloud().call_count("DeleteLoadBalancer");
    assert!(deletes < 10, "{deletes}");
}

/// If no load balancer can be created, the report shows one cause, not one for each check.
#[tokio::test(flavor = "multi_thread")]
async fn an_ensure_that_always_fails_is_one_cause_with_its_message() {
    let directory = tempfile::tempdir().unwrap();
    let failure = "{code: INTERNAL, reason: InvalidAnswer, message: the address is <nil>}";
    let faults =
        format!("faults: [{{rpc: EnsureLoadBalancer, kind: failure, failure: {failure}}}]");
    let provider = mock(directory.path(), &format!("{CLOUD}{faults}\n"));
    let only = ["load-balancers/ensure-twice", "load-balancers/field-*"];
    let report = report_of(provider, config(), &only).await;
    let mut count = 0;
    for entry in &report.entries {
        if let Outcome::Failed(failed) = &entry.outcome {
            count += 1;
            let cause = failed.cause.as_deref();
            assert_eq!(
                cause,
                Some("EnsureLoadBalancer: INTERNAL: InvalidAnswer"),
                "{}",
                entry.id
            );
            assert_eq!(failed.rule, "LB-24", "{}", entry.id);
            assert!(
                failed.came.contains("the address is <nil>"),
                "{}",
                failed.came
            );
        }
    }
    assert!(count > 5, "{count}");
}

/// The moments of cuts differ between runs, so the report names them.
#[tokio::test(flavor = "multi_thread")]
async fn a_check_that_cuts_calls_off_tells_when_it_did() {
    let deadlines = "Ensure again and again, with deadlines of [";
    for (fault, id, words) in [
        (
            "presence-unspecified",
            "load-balancers/cut-ensure-by-deadline",
            deadlines,
        ),
        (
            "crash-before-effect",
            "load-balancers/cut-ensure-by-kill",
            "Ensure, the provider killed 0 ms after it began; then ",
        ),
        (
            "crash-before-effect",
            "core/an-ensure-cut-by-kill-9-is-resumed",
            "kill -9 10 ms after the first call began; then ",
        ),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let liar = faulty(directory.path(), CLOUD, fault);
        let report = report_of(liar, config(), &[id]).await;
        let Outcome::Failed(failed) = &report.entries[0].outcome else {
            panic!("{id}: {:?}", report.entries[0].outcome);
        };
        let sent = &failed.sent;
        let (_, rest) = sent.split_once(words).expect(sent);
        if words == deadlines {
            let (list, _) = rest.split_once(']').unwrap();
            let moments: Vec<u64> = list.split(", ").map(|ms| ms.parse().unwrap()).collect();
            assert!(moments.is_sorted() && moments.len() > 10, "{sent}");
        }
    }
}

/// The report does not name an object that no longer exists, even if the hook fails to remove it.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_gone_already_is_not_named() {
    let directory = tempfile::tempdir().unwrap();
    let only = [
        "instances/*absent*",
        "load-balancers/owner-unmarked*",
        "load-balancers/delete-*",
        "routes/unmarked-*",
    ];
    let report = report_of(mock(directory.path(), CLOUD), config(), &only).await;
    assert_eq!(report.left, Vec::<String>::new());
}

/// After three checks without an answer, the suite does not run the others.
#[tokio::test(flavor = "multi_thread")]
async fn a_provider_that_does_not_answer_is_not_asked_for_hours() {
    let directory = tempfile::tempdir().unwrap();
    let fixture = Fixture::parse("faults: [{rpc: Probe, kind: hang}]", "hang.yaml").unwrap();
    let mock = Mock::start(fixture, directory.path().join("s/provider.sock"), None);
    let mock = mock.await.unwrap();
    let provider = Provider::Endpoint(format!("unix://{}", mock.path().display()));
    let report = report_of(
        provider,
        Config::default(),
        &["provider/probe-*", "zones/*"],
    )
    .await;
    let failed = report.entries.iter().filter(
        |entry| matches!(&entry.outcome, Outcome::Failed(failed) if failed.unanswered == Some("Probe")),
    );
    assert_eq!(failed.count(), 3, "{:#?}", report.entries);
    assert!(report.not_tried() > 10, "{}", report.not_tried());
    assert_eq!(report.passed(), 0);
    let rest = report.failed() + report.not_set_up() + report.not_tried() + report.not_offered();
    assert_eq!(rest, report.entries.len());
    let reason = report
        .entries
        .iter()
        .find_map(|entry| match &entry.outcome {
            Outcome::Skipped(skipped) if skipped.lack == Lack::Answer => Some(&skipped.reason),
            _ => None,
        });
    assert!(
        reason.unwrap().contains("does not answer (Probe"),
        "{reason:?}"
    );
    assert!(report.took < Duration::from_mins(3), "{:?}", report.took);
}

/// If a connection ends because the process ended, the report says so. Otherwise nobody would see
/// it, because the next check gets a new process.
#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_ended_by_itself_is_told() {
    let directory = tempfile::tempdir().unwrap();
    let crashes = faulty(directory.path(), CLOUD, "crash-after-effect");
    let report = report_of(crashes, config(), &["load-balancers/ensure-ready"]).await;
    let Outcome::Failed(failed) = &report.entries[0].outcome else {
        panic!("{:?}", report.entries[0].outcome);
    };
    assert!(failed.came.contains("ended by itself"), "{}", failed.came);
}

/// CORE-17: a process that the suite itself asked to end did not end by itself.
#[tokio::test(flavor = "multi_thread")]
async fn core_17_a_process_that_ended_after_sigterm_is_told_so() {
    let directory = tempfile::tempdir().unwrap();
    let hangs = "faults: [{rpc: LookupInstances, kind: hang}]\n";
    let line = command(directory.path(), &format!("{CLOUD}{hangs}"));
    // The call is in flight at SIGTERM, and this kills the provider.
    let line = format!(
        "trap 'kill -9 $pid' TERM; {} & pid=$!; wait; exit 1",
        line.trim_start_matches("exec ")
    );
    let only = ["core/calls-in-flight-are-answered-after-sigterm"];
    let report = report_of(Provider::Command(line), config(), &only).await;
    let Outcome::Failed(failed) = &report.entries[0].outcome else {
        panic!("{:?}", report.entries[0].outcome);
    };
    assert_eq!(failed.rule, "CORE-17");
    assert!(!failed.came.contains("by itself"), "{}", failed.came);
    assert!(
        failed.came.contains("ended after the suite's SIGTERM"),
        "{}",
        failed.came
    );
}
