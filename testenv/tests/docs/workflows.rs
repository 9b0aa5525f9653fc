//! The public CI's workflows: nothing of others is built where a token is.

use serde_json::Value;

use super::{nothing_wrong, read};

const BUILDERS: [&str; 10] = [
    "make", "cargo", "go", "npm", "npx", "pip", "mvn", "gradle", "docker", "buildah",
];
/// What may run beside a token. Each builds nothing.
const BUILDS_NOTHING: [&str; 1] = ["make publish-crates"];

/// Whether the job can publish: it is given a secret, or a right to write.
fn has_token(job: &Value) -> bool {
    let rights = job.get("permissions").and_then(Value::as_object);
    let mut rights = rights.into_iter().flat_map(|rights| rights.values());
    let text = job.to_string();
    text.contains("secrets.")
        || job["secrets"] == "inherit"
        || job.get("permissions").and_then(Value::as_str) == Some("write-all")
        || rights.any(|right| right.as_str() == Some("write"))
}

/// The commands of a job's steps.
fn commands(job: &Value) -> impl Iterator<Item = &str> {
    let steps = job.get("steps").and_then(Value::as_array);
    let runs = steps
        .into_iter()
        .flatten()
        .filter_map(|step| step.get("run"));
    let lines = runs.filter_map(Value::as_str).flat_map(str::lines);
    lines
        .flat_map(|line| line.split(['|', ';', '&']))
        .map(str::trim)
}

/// What is wrong with a workflow.
fn built_beside_a_token(workflow: &str) -> Vec<String> {
    let workflow: Value = serde_yaml::from_str(workflow).expect("YAML");
    let mut wrong = Vec::new();
    for (name, job) in workflow["jobs"].as_object().expect("jobs") {
        if !has_token(job) {
            continue;
        }
        for command in commands(job) {
            let builds = command
                .split_whitespace()
                .any(|word| BUILDERS.contains(&word));
            if builds && !BUILDS_NOTHING.contains(&command) {
                wrong.push(format!("{name:?} has a token and runs {command:?}"));
            }
        }
    }
    wrong
}

/// The recipe of a target of the Makefile.
fn recipe<'a>(makefile: &'a str, target: &str) -> Vec<&'a str> {
    let lines = makefile.lines();
    let after = lines.skip_while(|line| !line.starts_with(&format!("{target}:")));
    after
        .skip(1)
        .take_while(|line| line.starts_with('\t'))
        .collect()
}

#[test]
fn nothing_is_built_where_a_token_is() {
    for workflow in ["ci", "nightly", "release"] {
        nothing_wrong(&built_beside_a_token(&read(&format!(
            ".github/workflows/{workflow}.yml"
        ))));
    }
    let makefile = read("Makefile");
    let upload = recipe(&makefile, "publish-crates");
    let uploads_only = |line: &&str| line.contains("--dry-run") && line.contains(",--no-verify)");
    assert_eq!(upload.len(), 1, "{upload:?}");
    assert!(upload.iter().all(uploads_only), "{upload:?}");
}

#[test]
fn a_job_that_builds_beside_a_token_is_found() {
    let job = |more: &str, run: &str| {
        format!("jobs:\n  one:\n    {more}\n    steps:\n      - run: {run}\n")
    };
    let secret = "env: {TOKEN: \"${{ secrets.TOKEN }}\"}";
    for (more, run, wrong) in [
        (secret, "make dist", 1),
        (secret, "true && sudo make dist", 1),
        (secret, "make publish-crates", 0),
        (secret, "make publish-crates DRY_RUN=1", 1),
        ("permissions: {packages: write}", "cargo build", 1),
        ("permissions: write-all", "cargo build", 1),
        ("permissions: {contents: read}", "cargo build", 0),
        (secret, ".ci/publish dist", 0),
    ] {
        let found = built_beside_a_token(&job(more, run));
        assert_eq!(found.len(), wrong, "{more}: {run}: {found:?}");
    }
}

/// What is released has its provenance, and what it is built with no known fault.
#[test]
fn a_release_is_attested_and_waits_for_the_advisories() {
    let workflow = |name: &str| -> Value {
        serde_yaml::from_str(&read(&format!(".github/workflows/{name}.yml"))).expect("YAML")
    };
    let nightly = workflow("nightly");
    let advisories = &nightly["jobs"]["advisories"];
    assert!(commands(advisories).any(|command| command == "make advisories"));
    assert!(nightly["on"]["schedule"].is_array());
    let release = workflow("release");
    let uses = release["jobs"]["nightly"]["uses"].as_str();
    assert_eq!(uses, Some("./.github/workflows/nightly.yml"));
    assert_eq!(release["jobs"]["dist"]["needs"].as_str(), Some("nightly"));
    let publish = &release["jobs"]["publish"];
    assert_eq!(
        publish["permissions"]["attestations"].as_str(),
        Some("write")
    );
    let steps = publish["steps"].as_array().expect("steps");
    let place = |what: &dyn Fn(&Value) -> bool| steps.iter().position(what).expect("the step");
    let attested = place(&|step| {
        let uses = step["uses"].as_str().unwrap_or_default();
        uses.starts_with("actions/attest-build-provenance@")
    });
    let released = place(&|step| {
        let run = step["run"].as_str().unwrap_or_default();
        run.contains("gh release create")
    });
    assert!(attested < released);
}
