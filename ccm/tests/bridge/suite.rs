//! The bridge's own tests, and the conformance suite against each cloud: all checks of what the
//! cloud offers, except those in `exceptions`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use provider_conformance::{
    Config, Hook, Lack, Options, Outcome, Provider, Report, Selection, run,
};

use crate::aws::{self, Aws};
use crate::clouds::{Cloud, Instance, go, text};
use crate::exceptions::{
    AWS, AWS_NO_HOOK, BY_ID, CARELESS, Exception, FAKE, INSTANCES_V1, LISTER, MARKED, NOT_IN_GO,
    NOT_IN_GO_WITH_OWNERS, ROUTES_BY_NAME, ROUTES_OF_NOBODY, timed,
};

/// `go vet` and `go test` of the bridge, and of AWS's provider behind it.
#[test]
fn the_tests_of_the_bridge_pass() {
    for folder in [".", aws::FOLDER] {
        text(go(folder, &["vet", "./..."]).output().unwrap());
        // Tests that run in parallel only wait.
        let test = ["test", "-parallel", "8", "./..."];
        let tested = go(folder, &test).output().unwrap();
        let said = String::from_utf8_lossy(&tested.stdout).into_owned();
        assert!(tested.status.success(), "{said}");
    }
}

/// The expectations for a cloud.
struct Expected<'a> {
    /// The capabilities that it does not offer. Checks of other capabilities must not be skipped.
    not_offered: &'a [&'static str],
    /// Checks that it cannot pass or run.
    exceptions: &'a [&'static [Exception]],
    /// Hooks that it cannot have, and why. Checks that need one of them may be skipped.
    no_hook: Option<(&'static str, &'static [Hook])>,
}

/// Runs the suite. Each check that does not pass must be about a capability that the cloud does not
/// offer, need a hook that the cloud cannot have, or be an exception. Nothing may be left in the
/// cloud.
async fn conforms(cloud: &Cloud, directory: &Path, config: &str, expected: &Expected<'_>) {
    // `CONFORMANCE_ONLY='routes/*'` runs only a part.
    let only: Vec<String> = std::env::var("CONFORMANCE_ONLY").into_iter().collect();
    let options = Options {
        provider: Provider::Command(format!(
            "{} --endpoint {{endpoint}} 2>>'{}'",
            cloud.provider(directory),
            directory.join("suite.log").display()
        )),
        config: Config::parse(config, "suite.yaml").unwrap(),
        selection: Selection::new(&only, &[]).unwrap(),
        soak: Duration::from_secs(2),
    };
    let report = run(options, std::future::pending(), |_| {}).await.unwrap();
    let judged = Judged::of(&report, expected, &timed(cloud.name()), only.is_empty());
    eprintln!("{}", judged.summary);
    assert!(judged.wrong.is_empty(), "{}", judged.wrong);
    assert_eq!(report.left, Vec::<String>::new());
}

/// The result of a run, in words.
struct Judged {
    summary: String,
    wrong: String,
}

impl Judged {
    fn of(report: &Report, expected: &Expected<'_>, timed: &[&str], whole: bool) -> Self {
        let mut excepted = BTreeMap::new();
        for exception in expected.exceptions.iter().copied().flatten() {
            for id in exception.checks {
                let before = excepted.insert(*id, exception.why);
                assert_eq!(before, None, "{id} stands in two lists");
            }
        }
        let mut wrong = String::new();
        let mut not_offered: BTreeMap<&str, usize> = BTreeMap::new();
        let mut reasons: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for entry in &report.entries {
            let id = entry.id;
            match (&entry.outcome, excepted.remove(id)) {
                (Outcome::Passed, None) => {}
                (Outcome::Passed, Some(_)) if timed.contains(&id) => {}
                (Outcome::Passed, Some(why)) => {
                    writeln!(
                        wrong,
                        "{id} passes: take it off the list of what does not ({why})"
                    )
                    .unwrap();
                }
                (Outcome::Skipped(skipped), None) if skipped.lack == Lack::Capability => {
                    *not_offered.entry(&skipped.reason).or_default() += 1;
                }
                (Outcome::Skipped(skipped), Some(_)) if skipped.lack == Lack::Capability => {
                    let reason = &skipped.reason;
                    writeln!(
                        wrong,
                        "{id} is not about this cloud: take it off the list ({reason})"
                    )
                    .unwrap();
                }
                (Outcome::Skipped(skipped), None) => match expected.no_hook {
                    Some((why, hooks)) if needs_one_of(&skipped.reason, hooks) => {
                        reasons.entry(why).or_default().push(id);
                    }
                    _ => writeln!(wrong, "{id} was not shown: {}", skipped.reason).unwrap(),
                },
                (Outcome::Failed(failed) | Outcome::Warned(failed), None) => {
                    writeln!(wrong, "{id}: {failed:#?}").unwrap();
                }
                (_, Some(why)) => reasons.entry(why).or_default().push(id),
            }
        }
        if whole {
            for id in excepted.keys() {
                writeln!(wrong, "{id} is an exception, and no check").unwrap();
            }
            let missing: BTreeSet<&str> = not_offered
                .keys()
                .filter_map(|reason| {
                    reason.strip_prefix("the provider does not offer Capabilities.")
                })
                // The text after `;` names the part of the check that holds.
                .filter_map(|what| what.split(';').next())
                .collect();
            let stated: BTreeSet<&str> = expected.not_offered.iter().copied().collect();
            if missing != stated {
                writeln!(
                    wrong,
                    "it does not offer {missing:?}; it should offer all but {stated:?}"
                )
                .unwrap();
            }
        }
        if report.passed() == 0 {
            writeln!(wrong, "nothing was checked").unwrap();
        }
        Self {
            summary: summary(report, &not_offered, &reasons),
            wrong,
        }
    }
}

/// Whether a check was skipped because one of these hooks is missing.
fn needs_one_of(reason: &str, hooks: &[Hook]) -> bool {
    hooks
        .iter()
        .any(|hook| reason.contains(&format!("hook `{}`", hook.key())))
}

/// The number of checks that passed, and the other checks by reason.
fn summary(
    report: &Report,
    not_offered: &BTreeMap<&str, usize>,
    exceptions: &BTreeMap<&str, Vec<&str>>,
) -> String {
    let mut text = format!(
        "{}: {} checks passed, {} are about what it does not offer, {} are exceptions; {:.0} s\n",
        report.provider,
        report.passed(),
        not_offered.values().sum::<usize>(),
        exceptions.values().map(Vec::len).sum::<usize>(),
        report.took.as_secs_f64()
    );
    for (reason, count) in not_offered {
        writeln!(text, "  skipped {count:>3}: {reason}").unwrap();
    }
    for (why, checks) in exceptions {
        writeln!(text, "  excepted {}: {why}", checks.len()).unwrap();
        for id in checks {
            writeln!(text, "    {id}").unwrap();
        }
    }
    text
}

/// The objects and hooks of a cloud in a file.
fn file_config(cloud: &Cloud, directory: &Path) -> String {
    let state = directory.join(format!("{}.json", cloud.name()));
    let (running, stopped) = (cloud.add("known-running"), cloud.add("known-stopped"));
    cloud.edit(&["instance-stop", &stopped.node]);
    let mut text = known(&[(&running, "RUNNING"), (&stopped, "STOPPED")]);
    text.push_str("hooks:\n");
    let of_marks: &[(Hook, &str)] = match cloud.name() {
        "marked" => &[
            (Hook::LoadBalancerMarks, "load-balancer-marks \"$HANDLE\""),
            (
                Hook::LoadBalancerUnmarked,
                "load-balancer-unmarked \"$NAME\"",
            ),
        ],
        _ => &[],
    };
    let of_all = [
        (Hook::InstanceAdd, "instance-add \"$NAME\""),
        (Hook::InstanceRemove, "instance-remove \"$NAME\""),
        (Hook::InstanceStop, "instance-stop \"$NAME\""),
        (Hook::InstanceStart, "instance-start \"$NAME\""),
        (Hook::CloudWrites, "cloud-writes"),
        (Hook::CloudFail, "cloud-fail \"$CODE\""),
        (Hook::CloudSlow, "cloud-slow \"$MS\""),
        (Hook::LoadBalancerRemove, "load-balancer-remove \"$HANDLE\""),
    ];
    for (hook, line) in of_all.iter().chain(of_marks) {
        let line = format!(
            "exec '{}' file '{}' {} {line}",
            crate::clouds::binary().display(),
            state.display(),
            cloud.scheme()
        );
        let line = serde_json::to_string(&line).unwrap();
        writeln!(text, "  {}: {line}", hook.key()).unwrap();
    }
    text
}

fn known(instances: &[(&Instance, &str)]) -> String {
    let mut text = "instances:\n".to_owned();
    for (instance, state) in instances {
        writeln!(
            text,
            "- {{name: {}, provider_id: '{}', state: {state}}}",
            instance.node, instance.provider_id
        )
        .unwrap();
    }
    text
}

#[tokio::test(flavor = "multi_thread")]
async fn upstreams_fake_conforms_as_far_as_it_is_a_cloud() {
    let directory = tempfile::tempdir().unwrap();
    let cloud = Cloud::file("fake", directory.path());
    let mut config = file_config(&cloud, directory.path());
    config.push_str(
        "volumes:
- source: {driver: disk.fake.example, volumeHandle: volume-1}
  labels: {topology.kubernetes.io/zone: one-a}
clusters:
- {name: one, address: control-plane.example}
- {name: two}
",
    );
    let expected = Expected {
        not_offered: &[
            "changes",
            "instances.listing",
            "load_balancers.in_sync",
            "load_balancers.listing",
            "routes.tracks_node_addresses",
            "zones",
        ],
        exceptions: &[NOT_IN_GO, FAKE, ROUTES_BY_NAME, ROUTES_OF_NOBODY],
        no_hook: None,
    };
    conforms(&cloud, directory.path(), &config, &expected).await;
}

/// Capabilities that neither AWS nor a cloud of `providers/go/bridge/shapes` offers.
const NOT_OFFERED: [&str; 6] = [
    "changes",
    "clusters",
    "instances.listing",
    "load_balancers.in_sync",
    "load_balancers.listing",
    "volumes",
];

/// Runs the suite against a cloud of `providers/go/bridge/shapes`. It passes all checks but these
/// exceptions. Besides [`NOT_OFFERED`] it does not offer `lacks`.
async fn shape_conforms(
    name: &'static str,
    lacks: &[&'static str],
    exceptions: &[&'static [Exception]],
) {
    let directory = tempfile::tempdir().unwrap();
    let cloud = Cloud::file(name, directory.path());
    let config = file_config(&cloud, directory.path());
    let expected = Expected {
        not_offered: &[&NOT_OFFERED, lacks].concat(),
        exceptions,
        no_hook: None,
    };
    conforms(&cloud, directory.path(), &config, &expected).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cloud_with_the_older_instances_and_zones_conforms() {
    shape_conforms("instancesv1", &["routes"], &[NOT_IN_GO, INSTANCES_V1]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cloud_that_notes_its_load_balancer_on_the_service_conforms() {
    shape_conforms("annotated", &["routes", "zones"], &[NOT_IN_GO]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cloud_that_goes_by_ids_alone_conforms() {
    shape_conforms("byid", &["routes", "zones"], &[NOT_IN_GO, BY_ID]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cloud_that_wants_a_lister_of_nodes_conforms() {
    let lacks = ["routes.tracks_node_addresses", "zones"];
    let exceptions = [NOT_IN_GO, LISTER, ROUTES_BY_NAME, ROUTES_OF_NOBODY];
    shape_conforms("lister", &lacks, &exceptions).await;
}

/// With `OwnerChecker` the rules about owners and marks hold, except those in [`MARKED`]. Go's
/// interface alone has no method for them.
#[tokio::test(flavor = "multi_thread")]
async fn a_cloud_whose_vendor_checks_owners_conforms() {
    let lacks = ["routes", "zones"];
    shape_conforms("marked", &lacks, &[NOT_IN_GO_WITH_OWNERS, MARKED]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cloud_that_takes_much_for_granted_conforms() {
    shape_conforms("careless", &["routes", "zones"], &[NOT_IN_GO, CARELESS]).await;
}

/// It takes a quarter of an hour, because moto is slow. For a submission CI leaves this test out by
/// its name. Every night CI runs it, and so does `make conformance`.
#[tokio::test(flavor = "multi_thread")]
async fn whole_cloud_provider_aws_conforms_as_far_as_it_can() {
    let directory = tempfile::tempdir().unwrap();
    let (aws, instances) = Aws::start(directory.path(), &["a", "b", "c"]).await;
    let instances: Vec<_> = instances.iter().map(|one| (one, "RUNNING")).collect();
    let config = known(&instances) + &aws.suite();
    let expected = Expected {
        not_offered: &[&NOT_OFFERED[..], &["routes.tracks_node_addresses", "zones"]].concat(),
        exceptions: &[NOT_IN_GO, AWS, ROUTES_BY_NAME],
        no_hook: Some(AWS_NO_HOOK),
    };
    let cloud = Cloud::Aws(aws);
    conforms(&cloud, directory.path(), &config, &expected).await;
}
