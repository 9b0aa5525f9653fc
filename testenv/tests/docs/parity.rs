//! `docs/parity.md`.

use std::{collections::BTreeMap, fmt::Write as _};

use crate::{
    behaviour::{Behaviour, ids_in, ids_of_name},
    sources::Test,
};

/// `make compat` writes the text between these marks. The tests of this folder keep it.
pub(crate) const COMPARED: (&str, &str) = ("<!-- compat:begin -->", "<!-- compat:end -->");

/// The IDs of behaviour that is not built yet, and has no test.
const NOT_BUILT_YET: &[&str] = &[];

const HEAD: &str = "\
# Parity with upstream

Each line of [behaviour.md](behaviour.md), with the tests that name it. `B` is equal to upstream
(`k8s.io/cloud-provider` v0.36). `▲` is where this controller is deliberately better, so a user could notice a difference.

<!-- `make docs` writes this page from the tests. `make compat` writes the part between the compat marks. -->
";

/// The IDs that a test names, at the beginning of its name, in its doc comment, or at the beginning
/// of a row of its table.
fn ids_of(test: &Test) -> Vec<String> {
    let mut ids = ids_of_name(&test.name);
    ids.extend(test.doc.iter().flat_map(|line| ids_in(line)));
    for row in &test.literals {
        ids.extend(ids_in(row).into_iter().filter(|id| row.starts_with(id)));
    }
    ids.sort();
    ids.dedup();
    ids
}

fn by_id(tests: &[Test]) -> BTreeMap<String, Vec<&Test>> {
    let mut shown: BTreeMap<String, Vec<&Test>> = BTreeMap::new();
    for test in tests {
        for id in ids_of(test) {
            shown.entry(id).or_default().push(test);
        }
    }
    shown
}

/// IDs without a test, and tests with an ID that does not exist.
pub(crate) fn wrong(behaviour: &Behaviour, tests: &[Test]) -> Vec<String> {
    wrong_but(behaviour, tests, NOT_BUILT_YET)
}

fn wrong_but(behaviour: &Behaviour, tests: &[Test], not_built: &[&str]) -> Vec<String> {
    let shown = by_id(tests);
    let mut wrong = Vec::new();
    for line in &behaviour.lines {
        match (
            shown.contains_key(&line.id),
            not_built.contains(&line.id.as_str()),
        ) {
            (false, false) => wrong.push(format!("no test names {}: {}", line.id, line.says)),
            (true, true) => wrong.push(format!(
                "{} has a test: take it off NOT_BUILT_YET (testenv/tests/docs/parity.rs)",
                line.id
            )),
            _ => {}
        }
    }
    for id in not_built.iter().filter(|id| !behaviour.has(id)) {
        wrong.push(format!("NOT_BUILT_YET: there is no {id}"));
    }
    for (id, tests) in shown {
        if !behaviour.has(&id) {
            for Test { file, name, .. } in tests {
                wrong.push(format!("{file}::{name}: there is no {id}"));
            }
        }
    }
    wrong
}

pub(crate) fn render(behaviour: &Behaviour, tests: &[Test], compared: &str) -> String {
    let shown = by_id(tests);
    let mut text = HEAD.to_owned();
    let mut room = "";
    // One line for each test, and no counts. So two branches that add tests seldom conflict.
    for line in &behaviour.lines {
        if line.room != room {
            room = &line.room;
            let _ = write!(text, "\n## {room}\n");
        }
        let kind = if line.differs() { "better" } else { "equal" };
        let _ = write!(text, "\n**{}** ({kind}) {}\n\n", line.id, line.says);
        match shown.get(&line.id) {
            Some(tests) => {
                for Test { file, name, .. } in tests {
                    let _ = writeln!(text, "- [{file}](../{file})::`{name}`");
                }
            }
            None => text.push_str("- not built yet\n"),
        }
    }
    let (begin, end) = COMPARED;
    let _ = write!(text, "\n{begin}\n{compared}{end}\n");
    text
}

#[cfg(test)]
fn test_of(name: &str, doc: &[&str], rows: &[&str]) -> Test {
    Test {
        file: "a.rs".to_owned(),
        name: name.to_owned(),
        doc: doc.iter().map(|&line| line.to_owned()).collect(),
        literals: rows.iter().map(|&row| row.to_owned()).collect(),
    }
}

#[test]
fn a_name_a_doc_comment_and_a_row_name_ids() {
    let test = test_of(
        "b_n2_b_n3_x",
        &["Shows B-N4 (and ▲N7)."],
        &["B-N5: a row", "no row of B-N6", "other"],
    );
    assert_eq!(ids_of(&test), ["B-N2", "B-N3", "B-N4", "B-N5", "▲N7"]);
}

#[test]
fn what_is_missing_unknown_or_stale_is_wrong() {
    let behaviour = Behaviour::parse("- B-N1 One.\n- B-N2 Two.\n- ▲N7 Seven.\n").unwrap();
    let wrong = |tests: &[Test], not_built: &[&str]| wrong_but(&behaviour, tests, not_built);
    let all = [test_of("b_n1_b_n2_n7_x", &[], &[])];
    assert!(wrong(&all, &[]).is_empty());
    let one = [test_of("b_n1_n7_x", &[], &[])];
    assert_eq!(wrong(&one, &[]), ["no test names B-N2: Two."]);
    assert!(wrong(&one, &["B-N2"]).is_empty());
    assert_eq!(wrong(&all, &["B-N2"]).len(), 1);
    assert_eq!(wrong(&all, &["B-N3"]), ["NOT_BUILT_YET: there is no B-N3"]);
    let unknown = [test_of("b_n1_b_n2_b_n4_n7_x", &[], &[])];
    assert_eq!(
        wrong(&unknown, &[]),
        ["a.rs::b_n1_b_n2_b_n4_n7_x: there is no B-N4"]
    );
}

#[test]
fn what_was_compared_stays() {
    let behaviour = Behaviour::parse("## Node\n- B-N1 One.\n- ▲N7 Seven.\n").unwrap();
    let text = render(
        &behaviour,
        &[test_of("b_n1_x", &[], &[])],
        "## Table\n\nrow\n",
    );
    let body = "
## Node

**B-N1** (equal) One.

- [a.rs](../a.rs)::`b_n1_x`

**▲N7** (better) Seven.

- not built yet

<!-- compat:begin -->
## Table

row
<!-- compat:end -->
";
    assert_eq!(text, format!("{HEAD}{body}"));
    let kept = crate::written::between(&text, COMPARED).unwrap();
    assert_eq!(kept, "## Table\n\nrow\n");
}
