//! The bridge's own tests, and the conformance suite against each cloud.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use provider_sdk::conformance::{Config, Hook, Options, Outcome, Provider, Selection, run};

use crate::aws::Aws;
use crate::clouds::{Cloud, go, text};

/// `go vet` and `go test` of the bridge.
#[test]
fn the_tests_of_the_bridge_pass() {
    text(go(".", &["vet", "./..."]).output().unwrap());
    let tested = go(".", &["test", "./..."]).output().unwrap();
    let said = String::from_utf8_lossy(&tested.stdout).into_owned();
    assert!(tested.status.success(), "{said}");
}

/// What no cloud behind Go's interface can do: it knows no owner ID, no targets that are left alone, and nothing that verifies credentials.
const NOT_IN_GO: &[&str] = &[
    "load-balancers/ensure-longest-owner",
    "load-balancers/ensure-twice",
    "load-balancers/owner-other-cluster-delete",
    "load-balancers/owner-other-cluster-get",
    "load-balancers/owner-other-cluster-update",
    "load-balancers/owner-previous-marked-anew",
    "load-balancers/owner-same-cluster-name",
    "load-balancers/targets-absent-is-not-empty",
    "load-balancers/targets-set-later",
    "provider/a-previous-owners-load-balancer-is-ours",
    "provider/previous-owners-are-replaced",
    "provider/refused-credentials-fail-initialize",
];

/// Runs these checks: all pass but those of `cannot`, and nothing is left in the cloud.
async fn conforms(cloud: &Cloud, directory: &Path, config: &str, checks: &[&str], cannot: &[&str]) {
    let only: Vec<String> = match std::env::var("CONFORMANCE_ONLY") {
        Ok(only) => vec![only],
        Err(_) => checks.iter().map(ToString::to_string).collect(),
    };
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
    let mut wrong = String::new();
    let mut passed = 0;
    for entry in &report.entries {
        let known = cannot.contains(&entry.id);
        match &entry.outcome {
            Outcome::Passed if known => {
                writeln!(wrong, "{}: it passes; take it off the list", entry.id).unwrap();
            }
            Outcome::Passed => passed += 1,
            Outcome::Failed(failed) if !known => {
                writeln!(wrong, "{}: {failed:#?}", entry.id).unwrap();
            }
            _ => {}
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
    assert!(passed > 0, "nothing was checked");
    assert_eq!(report.left, Vec::<String>::new());
}

/// The hooks of a cloud in a file.
fn file_hooks(cloud: &Cloud, directory: &Path) -> String {
    let state = directory.join(format!("{}.json", cloud.name()));
    let mut text = "hooks:\n".to_owned();
    for (hook, line) in [
        (Hook::InstanceAdd, "instance-add \"$NAME\""),
        (Hook::InstanceRemove, "instance-remove \"$NAME\""),
        (Hook::InstanceStop, "instance-stop \"$NAME\""),
        (Hook::InstanceStart, "instance-start \"$NAME\""),
        (Hook::CloudWrites, "cloud-writes"),
        (Hook::CloudFail, "cloud-fail \"$CODE\""),
        (Hook::CloudSlow, "cloud-slow \"$MS\""),
    ] {
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

/// What matters most, so that this takes a minute and not ten; `CONFORMANCE_ONLY='*'` runs all.
const CORE: &[&str] = &[
    "core/*sigterm*",
    "instances/found-*",
    "instances/provider-id-*",
    "zones/*",
    "load-balancers/get-*",
    "load-balancers/ensure-*",
    "load-balancers/field-*",
    "load-balancers/targets-*",
    "load-balancers/update-*",
    "load-balancers/delete-*",
    "load-balancers/handle-*",
    "load-balancers/owner-*",
    "load-balancers/at-once-*",
    "load-balancers/cloud-fails-*",
];

#[tokio::test(flavor = "multi_thread")]
async fn a_cloud_with_the_older_instances_and_zones_conforms() {
    let directory = tempfile::tempdir().unwrap();
    let cloud = Cloud::file("instancesv1", directory.path());
    // The names of its load balancers are made of the cluster's.
    let cannot = [NOT_IN_GO, &["load-balancers/owner-renamed-cluster"]].concat();
    let config = file_hooks(&cloud, directory.path());
    conforms(&cloud, directory.path(), &config, CORE, &cannot).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cloud_that_notes_its_load_balancer_on_the_service_conforms() {
    let directory = tempfile::tempdir().unwrap();
    let cloud = Cloud::file("annotated", directory.path());
    let config = file_hooks(&cloud, directory.path());
    conforms(&cloud, directory.path(), &config, CORE, NOT_IN_GO).await;
}

/// moto takes its time, and AWS's cloud waits for it.
#[tokio::test(flavor = "multi_thread")]
async fn cloud_provider_aws_conforms_as_far_as_it_can() {
    let directory = tempfile::tempdir().unwrap();
    let (aws, instances) = Aws::start(directory.path(), &["a", "b", "c"]).await;
    let mut config = "instances:\n".to_owned();
    for instance in &instances {
        writeln!(
            config,
            "- {{name: {}, provider_id: '{}'}}",
            instance.node, instance.provider_id
        )
        .unwrap();
    }
    let checks = [
        "instances/found-*",
        "load-balancers/get-*",
        "load-balancers/update-*",
        "load-balancers/delete-*",
    ];
    let cloud = Cloud::Aws(aws);
    conforms(&cloud, directory.path(), &config, &checks, &[]).await;
}
