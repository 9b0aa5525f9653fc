//! The conformance suite finds every named fault that breaks the contract, by the check that the
//! table names. No check of the suite fails for the named faults that the contract allows.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures::StreamExt;
use provider_conformance::{Config, Options, Outcome, Provider, Report, Selection, checks, run};
use provider_mock::Lie;

const BINARY: &str = env!("CARGO_BIN_EXE_provider-mock");
/// The number of lies that run at once. Most runs spend most of their time waiting.
const AT_ONCE: usize = 6;

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("examples")
}

/// Runs some checks, or all, on a mock that lies in these ways.
async fn suite(lies: &[&Lie], only: &[&str]) -> Result<Report, String> {
    let directory = tempfile::tempdir().unwrap();
    let suite = examples().join("suite.yaml");
    let config = std::fs::read_to_string(&suite).unwrap();
    let config = config.replace("provider-mock ctl", &format!("exec '{BINARY}' ctl"));
    let config = Config::parse(&config, "suite.yaml").unwrap();
    let cloud = examples().join("conformance.yaml");
    let faults: Vec<_> = lies
        .iter()
        .map(|lie| format!("--fault {}", lie.name))
        .collect();
    let faults = faults.join(" ");
    let command = format!(
        "exec '{BINARY}' serve --endpoint '{{endpoint}}' --cloud '{}' --state '{}' --log-level error {faults}",
        cloud.display(),
        directory.path().join("cloud.json").display()
    );
    let only: Vec<_> = only.iter().map(ToString::to_string).collect();
    let options = Options {
        provider: Provider::Command(command),
        config,
        selection: Selection::new(&only, &[])?,
        soak: Duration::from_secs(2),
    };
    let report = run(options, std::future::pending(), |_| {}).await;
    report.map_err(|error| error.to_string())
}

/// `Some`: why the check did not find the lie, twice. On a machine that stalls, some lies cannot be
/// seen.
async fn escapes(lie: &Lie) -> Option<String> {
    let first = escapes_once(lie).await?;
    println!("once more: {first}");
    escapes_once(lie).await
}

async fn escapes_once(lie: &Lie) -> Option<String> {
    let report = match suite(&[lie], &[lie.check]).await {
        Ok(report) => report,
        Err(error) => return Some(format!("{}: the suite did not begin: {error}", lie.name)),
    };
    let outcome = report.entries.first().map(|entry| &entry.outcome);
    match outcome {
        // A violated SHOULD is a warning.
        Some(Outcome::Failed(failed) | Outcome::Warned(failed))
            if lie.rules.contains(&failed.rule.as_str()) =>
        {
            None
        }
        Some(Outcome::Failed(failed) | Outcome::Warned(failed)) => Some(format!(
            "{}: {} found that it breaks {}, not {:?}: expected {}, came {}",
            lie.name, lie.check, failed.rule, lie.rules, failed.expected, failed.came
        )),
        other => Some(format!(
            "{}: {} did not find it: {other:?}",
            lie.name, lie.check
        )),
    }
}

#[tokio::test]
async fn each_is_found_by_the_check_that_the_table_names() {
    let mut lies: Vec<&Lie> = Lie::all().filter(|lie| !lie.check.is_empty()).collect();
    assert!(lies.len() > 45);
    if let Ok(only) = std::env::var("LIES_ONLY") {
        lies.retain(|lie| lie.name.contains(&only));
    }
    // Starts with `hang`, whose calls take their whole deadline.
    lies.sort_by_key(|lie| lie.name != "hang");
    let escaped: Vec<String> = futures::stream::iter(lies)
        .map(escapes)
        .buffer_unordered(AT_ONCE)
        .filter_map(std::future::ready)
        .collect()
        .await;
    assert!(escaped.is_empty(), "{}", escaped.join("\n"));
}

/// Lies that more than one check finds. A row of the table names only one.
#[tokio::test]
async fn what_several_checks_find_is_found_by_each_of_them() {
    let root = rustix::process::geteuid().is_root();
    let stranger: &[&str] = &["core/another-user-is-refused"];
    let of_modes: &[&str] = &["core/directory-has-mode-0750"];
    for (name, rule, checks) in [
        (
            "ignores-grpc-timeout",
            "CORE-19",
            &[
                "core/an-ensure-left-alone-writes-nothing-past-its-deadline",
                "core/a-create-routes-left-alone-writes-nothing-past-its-deadline",
                "core/a-delete-left-alone-writes-nothing-past-its-deadline",
            ][..],
        ),
        (
            "broken-requests-taken",
            "CORE-20",
            &["instances/beyond-max-batch", "zones/beyond-max-batch"],
        ),
        (
            "foreign-name-conflicts",
            "LB-24",
            &[
                "load-balancers/owner-other-cluster-get",
                "load-balancers/owner-other-cluster-delete",
            ],
        ),
        (
            "tells-handles-of-others",
            "LB-32",
            &[
                "load-balancers/owner-unmarked-untouched",
                "load-balancers/owner-unmarked-by-name",
                "load-balancers/owner-unmarked-by-address",
                "load-balancers/handle-of-other-service-ensure",
                "load-balancers/handle-of-other-cluster",
            ],
        ),
        (
            "open-socket",
            "CORE-2",
            if root { stranger } else { of_modes },
        ),
    ] {
        let lie = Lie::find(name).unwrap();
        let report = suite(&[lie], checks).await.unwrap();
        assert_eq!(report.entries.len(), checks.len());
        for entry in report.entries {
            let Outcome::Failed(failed) = entry.outcome else {
                panic!("{name}: {}: {:?}", entry.id, entry.outcome);
            };
            assert_eq!(failed.rule, rule, "{name}: {}", entry.id);
        }
    }
}

#[tokio::test]
async fn what_the_contract_allows_passes_the_whole_suite() {
    let allowed: Vec<&Lie> = Lie::all().filter(|lie| lie.check.is_empty()).collect();
    assert!(!allowed.is_empty());
    let report = suite(&allowed, &[]).await.unwrap();
    let failed = report
        .entries
        .iter()
        .filter(|entry| matches!(entry.outcome, Outcome::Failed(_)));
    let failed: Vec<_> = failed.collect();
    assert!(
        failed.is_empty() && report.left.is_empty(),
        "{failed:#?} {:?}",
        report.left
    );
    assert!(report.entries.len() >= 150);
}

#[test]
fn the_table_names_checks_and_rules_that_are_there() {
    let checks = checks();
    let mut rules = BTreeSet::new();
    for file in std::fs::read_dir(examples().join("../../proto/cloudprovider/v1alpha1")).unwrap() {
        let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
        let comments = text
            .lines()
            .filter_map(|line| line.trim().strip_prefix("// "));
        rules.extend(comments.filter_map(|line| Some(line.split_once(": ")?.0.to_owned())));
    }
    for lie in Lie::all() {
        for rule in lie.rules {
            assert!(
                rules.contains(*rule),
                "{}: the contract has no {rule}",
                lie.name
            );
        }
        if lie.check.is_empty() {
            continue;
        }
        let there = checks.iter().any(|check| check.id == lie.check);
        assert!(there, "{}: there is no {}", lie.name, lie.check);
    }
}
