//! `docs/lies.md`, generated from the rows.

use std::fmt::Write as _;
use std::path::Path;

use provider_mock::Lie;

use super::Tells::{self, Alike, Either, Told, Untold};

const HEAD: &str = "\
# Providers that break the contract

Each row has a behaviour (a *lie*) that `provider-mock faults` lists, and the check of `provider-conformance` that finds it. All but two break a MUST or a SHOULD of the contract; the rows of these two say so. The last column has parts of the events or of the lines of `/metrics` that show the lie while a `ccm` works with such a provider, or says why nothing shows it.
With each of these lies the `ccm` deletes no living Node, and goes on. It requests nothing about another owner's object, unless a Service carries that object's handle. No controller can see or prevent what a provider does to the cloud by itself, such as changing another owner's load balancer and claiming it.
The suite checks for such changes.

<!-- Made from the tests: `make docs`. -->

| lie | what the provider does | found by | what shows it |
|---|---|---|---|
";

/// Run it with UPDATE_DOCS=1 to rewrite the document.
pub fn is(rows: &[(&str, Tells)]) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/lies.md");
    testenv::document::holds(&path, None, &render(rows), "make docs");
}

fn render(rows: &[(&str, Tells)]) -> String {
    let mut text = HEAD.to_owned();
    for lie in Lie::all() {
        let row = rows.iter().find(|(name, _)| *name == lie.name);
        let tells = row.map_or_else(String::new, |(_, tells)| seen(tells));
        let check = match lie.check {
            "" => "nothing: the contract allows it".to_owned(),
            check => format!("`{check}`"),
        };
        let _ = writeln!(
            text,
            "| `{}` | {} | {check} | {tells} |",
            lie.name, lie.what
        );
    }
    text
}

fn seen(tells: &Tells) -> String {
    let all = |words: &[&str]| {
        let words: Vec<_> = words.iter().map(|word| format!("`{word}`")).collect();
        words.join(", ")
    };
    match tells {
        Told(words) => all(words),
        Either(words, why) => format!(
            "{}, possibly with an honest provider too: {why}",
            all(words)
        ),
        Alike(words, why) => format!("{}, also with an honest provider: {why}", all(words)),
        Untold(why) => format!("nothing: {why}"),
    }
}
