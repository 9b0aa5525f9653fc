//! Checks `.ci/suites` and `.ci/affected`, which select the suites that CI runs for a change. Also
//! checks `.ci/run`, and the files that `.cargo/mutants.toml` names.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use testenv::program;

fn root() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    root.to_path_buf()
}

fn lines(directory: &Path, program: &str, arguments: &[&str]) -> Vec<String> {
    let mut command = Command::new(program);
    let output = command
        .args(arguments)
        .current_dir(directory)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{program} {arguments:?}: {output:?}"
    );
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(str::to_owned).collect()
}

fn is_below(path: &str, folder: &str) -> bool {
    path.strip_prefix(folder)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[test]
fn every_tracked_path_concerns_a_suite_and_every_path_of_the_table_exists() {
    let root = root();
    let table = lines(&root, ".ci/affected", &["--paths"]);
    let tracked = lines(&root, "git", &["ls-files"]);
    assert!(tracked.len() > 500 && table.len() > 20, "{table:?}");
    for path in &tracked {
        let found = table.iter().any(|folder| is_below(path, folder));
        assert!(found, "{path} is in no line of .ci/suites");
    }
    for folder in &table {
        let found = tracked.iter().any(|path| is_below(path, folder));
        assert!(found, "{folder} of .ci/suites does not exist");
    }
}

/// The path of `file`, which is relative to `folder`, from the root.
fn from_root(folder: &str, file: &str) -> String {
    let mut parts: Vec<&str> = folder.split('/').collect();
    for part in file.split('/').filter(|part| !part.is_empty()) {
        match part {
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

fn folder_of(file: &str) -> &str {
    file.rsplit_once('/').map_or("", |(folder, _)| folder)
}

fn has_type(file: &str, extension: &str) -> bool {
    Path::new(file)
        .extension()
        .is_some_and(|it| it == extension)
}

/// The paths outside of its folder that a Rust file names: those that it includes, those that it
/// finds from `CARGO_MANIFEST_DIR`, and the rights that it grants.
fn named_by(file: &str, text: &str) -> Vec<String> {
    let member = file.split('/').next().unwrap();
    let mut named = Vec::new();
    for (at, _) in text.match_indices("../") {
        let (before, after) = text.split_at(at);
        let before = before.trim_end_matches('/');
        let (Some(before), Some((path, _))) = (before.strip_suffix('"'), after.split_once('"'))
        else {
            continue;
        };
        let includes = ["include_str!(", "include_bytes!("];
        let included = includes.iter().any(|it| before.trim_end().ends_with(it));
        let folder = if included { folder_of(file) } else { member };
        named.push(from_root(folder, path));
    }
    if text.contains("ControlPlane::grant") || text.contains(".grant()") {
        named.push("deploy/kustomize/base/rbac.yaml".to_owned());
    }
    named
}

/// The sources of a suite, if all of them are in one folder.
fn sources(suite: &str) -> Option<String> {
    match suite {
        "seeds" => Some("simulation/src".to_owned()),
        "compat-bridge" => Some("ccm/tests/compat".to_owned()),
        "demo-clouds" => Some("testenv/src/bin/demo".to_owned()),
        "it" | "lease" | "compat" | "swap" | "bridge" | "clouds" | "e2e" => {
            Some(format!("ccm/tests/{suite}"))
        }
        _ => None,
    }
}

#[test]
fn each_suite_of_the_table_has_the_paths_that_its_sources_and_its_go_modules_name() {
    let root = root();
    let read = |file: &str| fs::read_to_string(root.join(file)).unwrap();
    let (table, makefile) = (read(".ci/suites"), read("Makefile"));
    let tracked = lines(&root, "git", &["ls-files"]);
    let mut rows = table
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| line.split_whitespace().collect::<Vec<_>>());
    let all = rows.next().unwrap();
    assert_eq!(all[0], "all");
    let mut found = 0;
    for row in rows {
        let suite = row[0];
        let paths = || all[1..].iter().chain(&row[1..]);
        let of_suite = |file: &str| paths().any(|path| is_below(file, path));
        let mut named: Vec<(&String, String)> = Vec::new();
        if let Some(folder) = sources(suite) {
            let rust = |file: &&String| is_below(file, &folder) && has_type(file, "rs");
            for file in tracked.iter().filter(rust) {
                let paths = named_by(file, &read(file));
                named.extend(paths.into_iter().map(|path| (file, path)));
            }
        }
        let begin = format!("\n{suite}: ");
        let recipe = makefile.split_once(&begin).map(|(_, rest)| rest);
        let recipe = recipe.and_then(|rest| rest.split("\n\n").next());
        if recipe.unwrap().contains("control-plane") {
            let module = |file: &&String| has_type(file, "mod") && of_suite(file);
            for file in tracked.iter().filter(module) {
                let text = read(file);
                let local = text
                    .lines()
                    .filter_map(|line| line.split_once(" => ").map(|(_, to)| to))
                    .filter(|to| to.starts_with("../"));
                named.extend(local.map(|to| (file, from_root(folder_of(file), to))));
            }
        }
        for (file, path) in named {
            // A name can also be of something that the suite makes.
            if path.is_empty() || !tracked.iter().any(|one| is_below(one, &path)) {
                continue;
            }
            found += 1;
            // A suite may need only a part of a folder.
            let known = of_suite(&path) || paths().any(|one| is_below(one, &path));
            assert!(
                known,
                "{suite} of .ci/suites lacks {path}, which {file} names"
            );
        }
    }
    assert!(found > 20, "{found}");
}

#[test]
fn each_suite_of_the_table_is_run_here_and_in_the_workflow_and_is_a_target_of_the_makefile() {
    let read = |file: &str| fs::read_to_string(root().join(file)).unwrap();
    let (run, table, makefile) = (read(".ci/run"), read(".ci/suites"), read("Makefile"));
    let workflow = read(".github/workflows/ci.yml");
    let chosen = run.lines().find_map(|line| line.strip_prefix("suites=("));
    let chosen = chosen.unwrap().trim_end_matches(')');
    let mut chosen: Vec<&str> = chosen.split_whitespace().collect();
    let lines = table.lines().filter(|line| !line.starts_with('#'));
    let mut named: Vec<&str> = lines.filter_map(|line| line.split(' ').next()).collect();
    named.retain(|suite| *suite != "all");
    chosen.sort_unstable();
    named.sort_unstable();
    assert_eq!(chosen, named);
    for suite in chosen {
        let target = format!("{suite}:");
        let found = makefile.lines().any(|line| line.starts_with(&target));
        assert!(found, "the Makefile has no {suite}");
        let found = workflow.lines().any(|line| {
            let matrix = line.trim().strip_prefix("suite: [");
            let mut listed = matrix
                .into_iter()
                .flat_map(|all| all.split([',', ' ', ']']));
            listed.any(|one| one == suite) || line.contains(&format!("make {suite}"))
        });
        assert!(found, "no job of ci.yml runs {suite}");
    }
}

/// The last line and the exit code of `.ci/run` with these arguments. Each suite passes at once,
/// and the user is not root.
fn run_as_a_user(arguments: &[&str]) -> (String, Option<i32>) {
    let checkout = tempfile::tempdir().unwrap();
    let here = checkout.path();
    let programs = here.join("programs");
    for folder in [".ci", "programs", "testenv/control-plane"] {
        fs::create_dir_all(here.join(folder)).unwrap();
    }
    for name in ["run", "affected", "suites"] {
        let file = Path::new(".ci").join(name);
        program::copied(&root().join(&file), &here.join(&file));
    }
    for (name, line) in [("make", "exit 0"), ("id", "echo 1000")] {
        program::script(&programs.join(name), line);
    }
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
    let mut command = Command::new(here.join(".ci/run"));
    let command = command
        .args(arguments)
        .env("PATH", path)
        .env_remove("CI_BASE");
    let output = command.output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let end = text.lines().next_back().unwrap_or_default().to_owned();
    (end, output.status.code())
}

#[test]
fn a_run_of_all_suites_fails_if_it_leaves_one_out() {
    let left_out = "; NOT RUN: make e2e (it needs root";
    let (end, code) = run_as_a_user(&[]);
    assert!(
        end.starts_with("=== passed") && end.contains(left_out),
        "{end}"
    );
    assert_eq!(code, Some(0), "{end}");
    let (end, code) = run_as_a_user(&["all"]);
    assert!(
        end.starts_with("=== FAILED") && end.contains(left_out),
        "{end}"
    );
    assert_eq!(code, Some(1), "{end}");
}

#[test]
fn each_file_of_the_mutants_exists_and_has_a_room_with_tests() {
    lines(&root(), ".ci/mutants", &["--check"]);
}

#[test]
fn a_change_concerns_the_suites_of_its_line_and_without_a_base_all_run() {
    let repository = tempfile::tempdir().unwrap();
    let here = repository.path();
    fs::create_dir_all(here.join(".ci")).unwrap();
    for name in ["affected", "suites"] {
        let file = Path::new(".ci").join(name);
        program::copied(&root().join(&file), &here.join(&file));
    }
    let git = |arguments: &[&str]| {
        let who = ["-c", "user.name=t", "-c", "user.email=t@example.com"];
        lines(here, "git", &[&who, arguments].concat())
    };
    let commits = |path: &str| {
        let path = here.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "text").unwrap();
        git(&["add", "-A"]);
        git(&["commit", "-q", "-m", "change"]);
        git(&["rev-parse", "HEAD"]).remove(0)
    };
    let code = |suite: &str, base: &str| {
        let mut command = Command::new(here.join(".ci/affected"));
        let command = command.arg(suite).env("CI_BASE", base);
        command.status().unwrap().code()
    };
    git(&["init", "-q"]);
    let first = commits("README.md");
    let second = commits("docs/parity.md");
    assert_eq!(code("compat", &first), Some(0));
    assert_eq!(code("check", &first), Some(0));
    assert_eq!(code("lease", &first), Some(1));
    assert_eq!(code("compat", &second), Some(1));
    assert_eq!(code("lease", ""), Some(0));
    assert_eq!(code("lease", "nobody-knows-it"), Some(0));
    commits("proto/a.proto");
    for suite in ["units", "it", "lease", "compat", "providers", "e2e"] {
        assert_eq!(code(suite, &second), Some(0), "{suite}");
    }
    assert_eq!(code("no-suite", &first), Some(2));
    let runs = |suite: &str, base: &str, command: &str| {
        let mut affected = Command::new(here.join(".ci/affected"));
        let affected = affected.args([suite, command]).env("CI_BASE", base);
        affected.status().unwrap().code()
    };
    let now = git(&["rev-parse", "HEAD"]).remove(0);
    assert_eq!(runs("lease", &second, "false"), Some(1), "it runs");
    assert_eq!(runs("lease", &second, "true"), Some(0), "it runs");
    assert_eq!(runs("lease", &now, "false"), Some(0), "it need not run");
    assert_eq!(runs("no-suite", &now, "true"), Some(2));
}
