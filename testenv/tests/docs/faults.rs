//! `docs/faults.md`.

use std::{collections::BTreeMap, fmt::Write as _};

use crate::sources::Test;

/// `fault_node_…`: whose faults, under which heading, in this order.
const ROOMS: &[(&str, &str)] = &[
    ("node", "Node (cloud-node-controller)"),
    (
        "lifecycle",
        "Node lifecycle (cloud-node-lifecycle-controller)",
    ),
    ("service", "Service (service-lb-controller)"),
    ("route", "Route (node-route-controller)"),
    (
        "volume",
        "Volume labels (persistent-volume-label-controller)",
    ),
];

const HEAD: &str = "\
# When something fails

For each controller what can happen to it, what it does then, and the test that plays it, named after the row. After each the end state is
right, nothing stands twice in the cloud and nothing is lost.

<!-- Made from the tests: `make docs`. -->
";

/// What stands before a row in the doc comment of its test.
const MARK: &str = "Fault:";

struct Row<'a> {
    happens: String,
    does: String,
    test: &'a Test,
}

/// Whose fault a test shows, going by its name.
fn room_of(name: &str) -> Option<Result<usize, String>> {
    let rest = name.strip_prefix("fault_")?;
    let word = rest.split('_').next().unwrap_or_default();
    let room = ROOMS.iter().position(|(room, _)| *room == word);
    Some(room.ok_or_else(|| {
        let known: Vec<_> = ROOMS
            .iter()
            .map(|(room, _)| format!("fault_{room}_"))
            .collect();
        format!("begins with none of {}", known.join(", "))
    }))
}

/// The rows in a doc comment: each from its mark to the next one, or to an empty line.
fn rows_of(test: &Test) -> Result<Vec<Row<'_>>, String> {
    let mut texts: Vec<String> = Vec::new();
    let mut inside = false;
    for line in &test.doc {
        if let Some(text) = line.strip_prefix(MARK) {
            texts.push(text.trim().to_owned());
            inside = true;
        } else if line.is_empty() {
            inside = false;
        } else if let (true, Some(text)) = (inside, texts.last_mut()) {
            text.push(' ');
            text.push_str(line);
        }
    }
    let row = |text: String| match text.split('|').collect::<Vec<_>>()[..] {
        [happens, does] if !happens.trim().is_empty() && !does.trim().is_empty() => Ok(Row {
            happens: happens.trim().to_owned(),
            does: does.trim().to_owned(),
            test,
        }),
        _ => Err(format!(
            "`{MARK} {text}` is not `{MARK} <what happens> | <what the controllers do>`"
        )),
    };
    texts.into_iter().map(row).collect()
}

/// Rows of no fault, faults without a row.
pub(crate) fn wrong(tests: &[Test]) -> Vec<String> {
    let mut wrong = Vec::new();
    for test in tests {
        let what = match (room_of(&test.name), rows_of(test)) {
            (_, Err(what)) | (Some(Err(what)), _) => what,
            (Some(Ok(_)), Ok(rows)) if rows.is_empty() => {
                format!("has no `/// {MARK} <what happens> | <what the controllers do>`")
            }
            (None, Ok(rows)) if !rows.is_empty() => {
                format!("has a line `{MARK}`, but its name begins with no `fault_`")
            }
            _ => continue,
        };
        wrong.push(format!("{}::{} {what}", test.file, test.name));
    }
    wrong
}

pub(crate) fn render(tests: &[Test]) -> String {
    let mut rooms: BTreeMap<usize, Vec<Row<'_>>> = BTreeMap::new();
    for test in tests {
        if let (Some(Ok(room)), Ok(rows)) = (room_of(&test.name), rows_of(test)) {
            rooms.entry(room).or_default().extend(rows);
        }
    }
    let mut text = HEAD.to_owned();
    for (room, rows) in rooms {
        let _ = write!(
            text,
            "\n## {}\n\n| what happens | what the controllers do | shown by |\n|---|---|---|\n",
            ROOMS[room].1
        );
        for Row {
            happens,
            does,
            test: Test { file, name, .. },
        } in rows
        {
            let _ = writeln!(text, "| {happens} | {does} | [`{name}`](../{file}) |");
        }
    }
    text
}

#[cfg(test)]
fn test_of(name: &str, doc: &[&str]) -> Test {
    Test {
        file: "a.rs".to_owned(),
        name: name.to_owned(),
        doc: doc.iter().map(|&line| line.to_owned()).collect(),
        literals: std::collections::BTreeSet::new(),
    }
}

#[test]
fn a_fault_has_its_row_and_a_row_its_fault() {
    let wrong = |name, doc: &[&str]| wrong(&[test_of(name, doc)]).len();
    assert_eq!(wrong("fault_node_x", &["Fault: a | b"]), 0);
    assert_eq!(wrong("fault_node_x", &["Fault: a | b", "Fault: c | d"]), 0);
    assert_eq!(wrong("other", &["No Fault: here."]), 0);
    for (name, doc) in [
        ("fault_node_x", "Something."),
        ("fault_node_x", "Fault: a"),
        ("fault_node_x", "Fault: a |"),
        ("fault_node_x", "Fault: a | b | c"),
        ("fault_moon_x", "Fault: a | b"),
        ("a_fault_node_x", "Fault: a | b"),
    ] {
        assert_eq!(wrong(name, &[doc]), 1, "{name} {doc}");
    }
}

#[test]
fn rows_stand_under_their_controller() {
    let tests = [
        test_of("fault_service_y", &["Fault: c |", "d", "", "Not of it."]),
        test_of("fault_node_x", &["First.", "Fault: a | b"]),
        test_of("other", &[]),
    ];
    assert!(wrong(&tests).is_empty());
    let body = "
## Node (cloud-node-controller)

| what happens | what the controllers do | shown by |
|---|---|---|
| a | b | [`fault_node_x`](../a.rs) |

## Service (service-lb-controller)

| what happens | what the controllers do | shown by |
|---|---|---|
| c | d | [`fault_service_y`](../a.rs) |
";
    assert_eq!(render(&tests), format!("{HEAD}{body}"));
}
