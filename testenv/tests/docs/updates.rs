//! `.github/dependabot.yml`: the update bot checks the workflows, and each file with a name in
//! `FIXED`.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{nothing_wrong, read, root};
use crate::sources;

/// Names of files that fix versions, and the bot's name for each kind. `go-1.35.mod` and the like
/// are missing: the bot does not read them.
const FIXED: [(&str, &str); 5] = [
    ("Cargo.lock", "cargo"),
    ("go.mod", "gomod"),
    ("package.json", "npm"),
    ("requirements.txt", "pip"),
    ("pom.xml", "maven"),
];

/// The kinds and directories that a configuration names.
fn named(text: &str) -> BTreeSet<(String, String)> {
    let config: Value = serde_yaml::from_str(text).expect("YAML");
    let mut named = BTreeSet::new();
    for update in config["updates"].as_array().expect("updates") {
        let kind = update["package-ecosystem"].as_str().expect("a kind");
        assert!(update["schedule"]["interval"].is_string(), "{kind}");
        for directory in update["directories"].as_array().expect("directories") {
            let directory = directory.as_str().expect("a directory");
            named.insert((kind.to_owned(), directory.to_owned()));
        }
    }
    named
}

/// The files that the configuration does not name, and the named files that do not exist.
fn wrong(text: &str) -> Vec<String> {
    let mut there = BTreeSet::from([("github-actions".to_owned(), "/".to_owned())]);
    let extensions = ["lock", "mod", "json", "txt", "xml"];
    let hidden = sources::files(&root().join(".ci"), &extensions);
    let hidden = hidden.into_iter().map(|file| format!(".ci/{file}"));
    for file in sources::files(root(), &extensions)
        .into_iter()
        .chain(hidden)
    {
        let (folder, name) = file.rsplit_once('/').unwrap_or(("", file.as_str()));
        let kind = FIXED.iter().find(|(fixes, _)| *fixes == name);
        if let Some((_, kind)) = kind {
            there.insert(((*kind).to_owned(), format!("/{folder}")));
        }
    }
    let named = named(text);
    let missing = there.difference(&named);
    let missing = missing.map(|(kind, folder)| format!("{kind} in {folder} is not named"));
    let gone = named.difference(&there);
    let gone = gone.map(|(kind, folder)| format!("there is nothing of {kind} in {folder}"));
    missing.chain(gone).collect()
}

#[test]
fn the_update_bot_looks_at_everything_that_is_fixed_to_a_version() {
    nothing_wrong(&wrong(&read(".github/dependabot.yml")));
}

#[test]
fn what_the_update_bot_does_not_look_at_is_found() {
    let text = read(".github/dependabot.yml");
    for (from, to) in [
        ("      - /providers/hetzner\n", ""),
        ("/providers/java", "/providers/javac"),
        ("[/.ci, ", "["),
    ] {
        assert!(text.contains(from), "{from}");
        assert!(!wrong(&text.replace(from, to)).is_empty(), "{from}");
    }
}
