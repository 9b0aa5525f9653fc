//! `docs/lies.md`: made from the rows.

use std::fmt::Write as _;
use std::path::Path;

use provider_mock::Lie;

use super::Tells::{self, Alike, Either, Told, Untold};

const HEAD: &str = "\
# When a provider lies

Each way to break the contract that `provider-mock faults` names, which check of `provider-conformance` finds it, and what tells of it while a `ccm` works with such a provider: an event, or a line of `/metrics`. In front of each the
`ccm` deletes no Node that lives, asks for nothing that is another owner's, and goes on. What the provider does to the cloud of itself, such as to touch what is another's and to answer that it is its own, no controller can see or hinder: that is
what the suite is for.

<!-- Made from the tests: `make docs`. -->

| lie | what the provider does | found by | what tells of it |
|---|---|---|---|
";

/// Run it with UPDATE_DOCS=1 to write the document anew.
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
        Either(words, why) => format!("{}, maybe of an honest one too: {why}", all(words)),
        Alike(words, why) => format!("{}, as of an honest one: {why}", all(words)),
        Untold(why) => format!("nothing: {why}"),
    }
}
