//! Checks the release process: builds use lock files and run in jobs that cannot publish. Releases
//! are signed and attested. Images are built twice, compared, and scanned for known
//! vulnerabilities.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use testenv::program;

fn root() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    root.to_path_buf()
}

fn read(file: &str) -> String {
    fs::read_to_string(root().join(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
}

fn nothing_wrong(wrong: &[String]) {
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n"));
}

fn workflow(name: &str) -> Value {
    serde_yaml::from_str(&read(&format!(".github/workflows/{name}.yml"))).unwrap()
}

const BUILDERS: [&str; 10] = [
    "make", "cargo", "go", "npm", "npx", "pip", "mvn", "gradle", "docker", "buildah",
];
/// The commands of builders that may run in a job with a token, because they build nothing.
const BUILDS_NOTHING: [&str; 1] = ["make publish-crates"];

/// Whether the job can publish: it gets a secret or a right to write.
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

/// The build commands in jobs of this workflow that have a token.
fn built_beside_a_token(workflow: &str) -> Vec<String> {
    let workflow: Value = serde_yaml::from_str(workflow).unwrap();
    let mut wrong = Vec::new();
    for (name, job) in workflow["jobs"].as_object().unwrap() {
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

/// The pushed images, the chart and all files of a release have a provenance. A release waits for
/// the nightly checks.
#[test]
fn a_release_is_attested_and_waits_for_the_nightly_checks() {
    let release = workflow("release");
    let uses = release["jobs"]["nightly"]["uses"].as_str();
    assert_eq!(uses, Some("./.github/workflows/nightly.yml"));
    assert_eq!(release["jobs"]["dist"]["needs"].as_str(), Some("nightly"));
    let publish = &release["jobs"]["publish"];
    assert_eq!(
        publish["permissions"]["attestations"].as_str(),
        Some("write")
    );
    let steps = publish["steps"].as_array().unwrap();
    let place = |what: &dyn Fn(&Value) -> bool| steps.iter().position(what).unwrap();
    let runs = |text: &str| place(&|step| step["run"].as_str().is_some_and(|it| it.contains(text)));
    let attested = place(&|step| {
        let uses = step["uses"].as_str().unwrap_or_default();
        uses.starts_with("actions/attest-build-provenance@")
            && step["with"]["subject-checksums"] == "subjects.sha256"
    });
    let pushed = runs(".ci/publish dist \"$REGISTRY/$OWNER\" pushed.sha256");
    let subjects = runs("cat dist/SHA256SUMS pushed.sha256 > subjects.sha256");
    assert!(pushed < subjects && subjects < attested && attested < runs("gh release create"));
    assert!(read(".ci/dist").contains("sha256sum -- * >SHA256SUMS"));
}

/// Vulnerabilities become known after a release too. If an image is not reproducible, the
/// comparison shows it before a release.
#[test]
fn each_night_the_images_are_made_twice_and_looked_up_among_known_faults() {
    let nightly = workflow("nightly");
    assert!(nightly["on"]["schedule"].is_array());
    let mut all = commands(&nightly["jobs"]["advisories"]);
    assert!(all.any(|command| command == "make advisories"));
    let all: Vec<&str> = commands(&nightly["jobs"]["images"]).collect();
    let place = |what: &str| all.iter().position(|command| command.ends_with(what));
    let order = ["make images-reproducible", "make sbom", "make sbom-scan"].map(place);
    assert!(
        order.iter().all(Option::is_some) && order.is_sorted(),
        "{all:?}"
    );
}

/// This script makes a new module, which has no lock file yet.
const FRESH: &str = "providers/go/fresh.sh";

/// The Makefile and most tracked scripts, with each command on one line.
fn scripts() -> Vec<(String, String)> {
    let tracked = Command::new("git")
        .args(["ls-files", ".ci", "deploy/images", "providers"])
        .current_dir(root())
        .output()
        .unwrap();
    let tracked = String::from_utf8(tracked.stdout).unwrap();
    let mut scripts = vec![("Makefile".to_owned(), read("Makefile"))];
    for file in tracked.lines().filter(|file| *file != FRESH) {
        let text = fs::read(root().join(file)).unwrap();
        if text.starts_with(b"#!") {
            scripts.push((file.to_owned(), String::from_utf8(text).unwrap()));
        }
    }
    for (_, text) in &mut scripts {
        *text = text.replace("\\\n", " ");
    }
    scripts
}

/// Commands that use the newest version of a package instead of a fixed one.
fn without_a_lock(file: &str, text: &str) -> Vec<String> {
    const CARGO: [&str; 6] = ["build", "install", "package", "publish", "run", "tree"];
    let mut wrong = Vec::new();
    for line in text
        .lines()
        .filter(|line| !line.trim_start().starts_with('#'))
    {
        let between = |c: char| c.is_whitespace() || "()\"';".contains(c);
        let words: Vec<&str> = line
            .split(between)
            .filter(|word| !word.is_empty())
            .collect();
        let has = |word: &str| words.contains(&word);
        let runs = |program: &str, verb: &str| {
            let mut pairs = words.windows(2);
            pairs.any(|pair| pair[0].rsplit('/').next() == Some(program) && pair[1] == verb)
        };
        // A release has no result of the other cargo commands in the Makefile.
        let released = file != "Makefile" || line.contains("publish");
        let cargo = ["cargo", "CARGO"];
        let unlocked = [
            released
                && CARGO
                    .iter()
                    .any(|verb| cargo.iter().any(|cargo| runs(cargo, verb)))
                && !has("--locked"),
            runs("pip", "install") && !has("--require-hashes"),
            runs("npm", "install") || runs("npm", "i"),
            runs("go", "get"),
            runs("go", "install") && !line.contains("@v"),
            line.contains("-mod=mod") && !runs("go", "install") && !runs("mod", "tidy"),
        ];
        if unlocked.contains(&true) {
            wrong.push(format!("{file}: {}", line.trim()));
        }
    }
    wrong
}

#[test]
fn what_is_released_is_built_from_lock_files() {
    let scripts = scripts();
    let builds = |word: &str| scripts.iter().any(|(_, text)| text.contains(word));
    assert!(builds("cargo build --locked") && builds("--require-hashes") && builds("npm ci"));
    for (file, text) in &scripts {
        nothing_wrong(&without_a_lock(file, text));
    }
}

#[test]
fn a_build_without_its_lock_file_is_found() {
    for (line, wrong) in [
        ("cargo build --locked --package ccm", 0),
        ("  env A=b cargo build --package ccm", 1),
        ("# cargo build", 0),
        (
            "\"$venv/bin/pip\" install --require-hashes -r requirements.txt",
            0,
        ),
        ("pip install -r requirements.txt", 1),
        ("npm ci", 0),
        ("(cd typescript && npm install)", 1),
        ("go build -o x .", 0),
        ("GOFLAGS=-mod=mod go build -o x .", 1),
        ("GOFLAGS=-mod=mod go install example.com/tool@v1.0.0", 0),
        ("go install example.com/tool@latest", 1),
    ] {
        assert_eq!(without_a_lock("x", line).len(), wrong, "{line}");
    }
}

/// `uses:` of all workflows: a tag can be moved, a commit cannot.
#[test]
fn every_action_is_fixed_to_a_commit() {
    let mut fixed = 0;
    for name in ["ci", "nightly", "release"] {
        for line in read(&format!(".github/workflows/{name}.yml")).lines() {
            let Some((_, action)) = line.split_once("uses: ") else {
                continue;
            };
            let action = action.split(' ').next().unwrap();
            let commit = action.split_once('@').map(|(_, commit)| commit);
            let is_commit = |it: &str| it.len() == 40 && it.bytes().all(|b| b.is_ascii_hexdigit());
            let own = action.starts_with("./");
            assert!(own || commit.is_some_and(is_commit), "{name}: {action}");
            fixed += usize::from(!own);
        }
    }
    assert!(fixed > 10, "{fixed}");
}

/// The SHA-256 digest of a text.
fn digest(of: &str) -> String {
    let mut sum = Command::new("sha256sum");
    let mut sum = sum
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    std::io::Write::write_all(&mut sum.stdin.take().unwrap(), of.as_bytes()).unwrap();
    let output = sum.wait_with_output().unwrap();
    String::from_utf8(output.stdout).unwrap()[..64].to_owned()
}

/// Creates programs that record their arguments, instead of the programs that use a registry.
fn instead_of_registries(folder: &Path) {
    let note = "echo \"$(basename \"$0\") $*\" >>\"$NOTES\"; case \"$*\" in *login*) cat >/dev/null ;; esac";
    let copy = "[ \"$1\" != copy ] || { file=${5#oci-archive:}; echo \"sha256:$(sha256sum <\"$file\" | cut -c-64)\" >\"$4\"; }";
    let push = "[ \"$1\" != push ] || echo \"Digest: sha256:$(sha256sum <\"$2\" | cut -c-64)\" >&2";
    for (name, does) in [("skopeo", copy), ("helm", push), ("cosign", "")] {
        program::script(&folder.join(name), &format!("{note}\n{does}"));
    }
}

/// Runs `.ci/publish` on a release of two images, and checks its commands and its list of pushed
/// objects.
#[test]
fn what_is_pushed_is_signed_by_its_digest_and_each_image_has_its_list() {
    let folder = tempfile::tempdir().unwrap();
    let (dist, bin) = (folder.path().join("dist"), folder.path().join("bin"));
    fs::create_dir_all(&dist).unwrap();
    fs::create_dir_all(&bin).unwrap();
    instead_of_registries(&bin);
    let mut listed = BTreeSet::new();
    for image in ["ccm", "provider-mock"] {
        fs::write(dist.join(format!("{image}.oci.tar")), image).unwrap();
        for platform in ["amd64", "arm64"] {
            let own = digest(&format!("{image} for {platform}"));
            let list = json!({ "metadata": { "component": { "hashes": [{ "content": own }] } } });
            let file = format!("{image}.{platform}.cdx.json");
            fs::write(dist.join(&file), list.to_string()).unwrap();
            listed.insert(format!("{file} ghcr.io/acme/ccm/{image}@sha256:{own}"));
        }
    }
    fs::write(dist.join("grpc-ccm-1.0.0.tgz"), "chart").unwrap();
    let (notes, pushed) = (folder.path().join("notes"), folder.path().join("pushed"));
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let ran = Command::new(root().join(".ci/publish"))
        .args([
            dist.as_os_str(),
            "ghcr.io/Acme/CCM".as_ref(),
            pushed.as_os_str(),
        ])
        .env("PATH", path)
        .env("NOTES", &notes)
        .env("TOKEN", "only-by-standard-input")
        .env("ACTOR", "somebody")
        .output()
        .unwrap();
    assert!(ran.status.success(), "{ran:?}");

    let notes = fs::read_to_string(notes).unwrap();
    assert!(!notes.contains("only-by-standard-input"), "{notes}");
    let of = |verb: &str| -> BTreeSet<String> {
        let lines = notes.lines().filter(|line| line.starts_with(verb));
        lines
            .map(|line| line.rsplit(' ').next().unwrap().to_owned())
            .collect()
    };
    let named = |image: &str, content: &str| (format!("ghcr.io/acme/ccm/{image}"), digest(content));
    let expected = [
        named("ccm", "ccm"),
        named("charts/grpc-ccm", "chart"),
        named("provider-mock", "provider-mock"),
    ];
    let by_digest = expected
        .iter()
        .map(|(name, digest)| format!("{name}@sha256:{digest}"));
    assert_eq!(of("cosign sign "), by_digest.collect(), "{notes}");
    // The image of each platform has a signature too.
    let recursive = notes
        .lines()
        .filter(|line| line.contains("sign --yes --recursive"));
    assert_eq!(recursive.count(), 2, "{notes}");
    let lists = expected
        .iter()
        .map(|(name, digest)| format!("{digest}  {name}"));
    let pushed = fs::read_to_string(pushed).unwrap();
    let pushed: BTreeSet<String> = pushed.lines().map(str::to_owned).collect();
    assert_eq!(pushed, lists.collect());
    let attested = notes
        .lines()
        .filter(|line| line.starts_with("cosign attest "));
    let attested = attested.map(|line| {
        let mut words = line.split(' ').rev();
        let (of, list) = (words.next().unwrap(), words.next().unwrap());
        format!("{} {of}", list.rsplit('/').next().unwrap())
    });
    assert_eq!(attested.collect::<BTreeSet<_>>(), listed);
}

/// The name of each crate in the workspace whose manifest permits its publication.
fn published() -> Vec<String> {
    let manifest = read("Cargo.toml");
    let members = manifest.lines().find(|line| line.starts_with("members"));
    let folders = members.unwrap().split('"').skip(1).step_by(2);
    let manifests = folders.map(|folder| read(&format!("{folder}/Cargo.toml")));
    let public = manifests.filter(|manifest| !manifest.contains("publish = false"));
    let name = |manifest: String| {
        let mut lines = manifest.lines();
        let name = lines.find_map(|line| line.strip_prefix("name = \"")?.strip_suffix('"'));
        name.unwrap().to_owned()
    };
    public.map(name).collect()
}

/// All crates on crates.io share one namespace.
#[test]
fn every_crate_that_is_published_has_our_prefix_and_is_part_of_a_release() {
    let crates = published();
    assert!(crates.len() >= 3, "{crates:?}");
    for name in crates {
        assert!(name.starts_with("grpc-ccm-"), "{name}");
        for file in [".ci/dist", ".ci/version", "docs/maintainers.md"] {
            assert!(read(file).contains(&name), "{name} is not in {file}");
        }
    }
}
