//! `docs/faults.md`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;

use crate::claims::Claims;
use crate::sources::Test;

/// The controller in a test's name (`fault_node_…`), and its heading, in the document's order.
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

Each row has a fault that one controller meets, what the controller does then, and the test that plays it. Each part of the
second column, up to a semicolon, is the message of an assertion in the test or its helpers. A delay after a failure holds if the answer has no `retry_after`.

<!-- Made from the tests: `make docs`. -->
";

/// The kinds of faults for which every controller needs a row. A row is of a kind if it has all
/// words of one of the alternatives.
const KINDS: &[(&str, &[&[&str]])] = &[
    ("INVALID", &[&["INVALID"], &[ANY]]),
    ("PRECONDITION", &[&["PRECONDITION"], &[ANY]]),
    ("NOT_FOUND", &[&["NOT_FOUND"], &[ANY]]),
    ("CONFLICT", &[&["CONFLICT"], &[ANY]]),
    ("BUSY", &[&["BUSY"], &[ANY]]),
    ("THROTTLED", &[&["THROTTLED"], &[ANY]]),
    ("CREDENTIALS", &[&["CREDENTIALS"], &[ANY]]),
    ("UNAVAILABLE", &[&["UNAVAILABLE"], &[ANY]]),
    ("NOT_INITIALIZED", &[&["NOT_INITIALIZED"], &[ANY]]),
    ("INTERNAL", &[&["INTERNAL"], &[ANY]]),
    (
        "a provider that hangs",
        &[&["hangs"], &["never answered"], &["does not answer"]],
    ),
    (
        "an answer after the deadline",
        &[
            &["answers", "after the deadline"],
            &["answers after its deadline"],
        ],
    ),
    (
        "a provider that dies before the effect",
        &[&["dies", "before"]],
    ),
    (
        "a provider that dies after the effect",
        &[&["dies", "after"]],
    ),
    ("409", &[&["API server", "409"]]),
    ("422", &[&["API server", "422"]]),
    ("429", &[&["API server", "429"]]),
    ("500", &[&["API server", "500"]]),
    ("a watch that is cut", &[&["watch", "cut"]]),
    ("410 Gone", &[&["watch", "410 Gone"]]),
    (
        "a ccm that is killed between two writes",
        &[&["ccm", "killed"], &["ccm dies"]],
    ),
];

/// A row for all codes of the contract's table.
const ANY: &str = "each code of the error table";

/// The mark before a row in the doc comment of its test.
const MARK: &str = "Fault:";

struct Row<'a> {
    happens: String,
    does: String,
    test: &'a Test,
}

/// The parts of a claim.
fn parts<'a>(row: &'a Row<'_>) -> impl Iterator<Item = &'a str> {
    row.does.split("; ").map(str::trim)
}

/// The parts of claims that are no assertion's message.
pub(crate) fn not_asserted(tests: &[Test], claims: &Claims) -> Vec<String> {
    let mut wrong = Vec::new();
    for rows in by_room(tests).values() {
        for row in rows {
            let said = claims.of(&row.test.file, &row.test.name);
            for part in parts(row).filter(|part| !said.contains(*part)) {
                let Test { file, name, .. } = row.test;
                wrong.push(format!("{file}::{name}: no assertion says \"{part}\""));
            }
        }
    }
    wrong
}

/// The files that have faults.
pub(crate) fn files(tests: &[Test]) -> BTreeSet<&str> {
    let faults = tests.iter().filter(|test| room_of(&test.name).is_some());
    faults.map(|test| test.file.as_str()).collect()
}

/// The controller whose fault a test shows, by the test's name.
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

/// The errors: rows that do not parse, tests of faults without a row or a known controller, and
/// rows in other tests.
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

/// The kinds of faults for which a controller has no row.
pub(crate) fn lacking(tests: &[Test]) -> Vec<String> {
    let by_room = by_room(tests);
    let mut wrong = Vec::new();
    for (number, (_, heading)) in ROOMS.iter().enumerate() {
        let none = Vec::new();
        let rows = by_room.get(&number).unwrap_or(&none);
        for (kind, alternatives) in KINDS {
            let plays = |row: &Row<'_>| {
                let mut alternatives = alternatives.iter();
                alternatives.any(|words| words.iter().all(|word| row.happens.contains(word)))
            };
            if !rows.iter().any(plays) {
                wrong.push(format!("{heading}: no test plays {kind}"));
            }
        }
    }
    wrong
}

fn by_room(tests: &[Test]) -> BTreeMap<usize, Vec<Row<'_>>> {
    let mut rooms: BTreeMap<usize, Vec<Row<'_>>> = BTreeMap::new();
    for test in tests {
        if let (Some(Ok(room)), Ok(rows)) = (room_of(&test.name), rows_of(test)) {
            rooms.entry(room).or_default().extend(rows);
        }
    }
    rooms
}

const IN_SEQUENCE: &str = "
## In sequence

Several faults and events in a row, in the [simulation](simulation.md). Each row says what the ccm did before a fix, or does with a
planted bug. The plan has the events; `make seeds` plays it and shows that all invariants hold.

| what happened | seed | shown by |
|---|---|---|
";

/// A plan that the simulation keeps because it showed a fault of the ccm.
pub(crate) struct Kept {
    name: String,
    shows: String,
    seed: u64,
}

/// The kept plans in this folder, by name. Plans that showed a fault of the simulation itself are
/// left out.
pub(crate) fn kept(folder: &Path) -> Result<Vec<Kept>, String> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(|error| error.to_string())? {
        let path = entry.map_err(|error| error.to_string())?.path();
        let text = std::fs::read_to_string(&path).map_err(|error| error.to_string())?;
        let read: serde_json::Value =
            serde_json::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))?;
        let (Some(name), Some(shows), Some(seed)) = (
            path.file_stem().and_then(|stem| stem.to_str()),
            read["shows"].as_str(),
            read["plan"]["seed"].as_u64(),
        ) else {
            return Err(format!("{}: it has no `shows` or no seed", path.display()));
        };
        if !shows.starts_with("The model: ") {
            all.push(Kept {
                name: name.to_owned(),
                shows: shows.to_owned(),
                seed,
            });
        }
    }
    all.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(all)
}

pub(crate) fn render(tests: &[Test], kept: &[Kept]) -> String {
    let mut text = HEAD.to_owned();
    for (room, rows) in by_room(tests) {
        let _ = write!(
            text,
            "\n## {}\n\n| what happens | what the controllers do | shown by |\n|---|---|---|\n",
            ROOMS[room].1
        );
        for row in rows {
            let Row { happens, does, .. } = &row;
            let Test { file, name, .. } = row.test;
            let _ = writeln!(text, "| {happens} | {does} | [`{name}`](../{file}) |");
        }
    }
    text.push_str(IN_SEQUENCE);
    for Kept { name, shows, seed } in kept {
        let _ = writeln!(
            text,
            "| {shows} | {seed} | [`{name}`](../simulation/regressions/{name}.json) |"
        );
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
fn a_kind_of_fault_that_nobody_plays_is_named() {
    let all = [
        "Fault: the provider answers with each code of the error table | a",
        "Fault: it hangs | b",
        "Fault: it answers after its deadline | c",
        "Fault: it dies before or after the effect | d",
        "Fault: the API server answers 409, 422, 429 or 500 | e",
        "Fault: the watch is cut, or answers 410 Gone | f",
    ];
    let names = ["node", "lifecycle", "service", "route", "volume"];
    let mut tests = Vec::from(names.map(|room| test_of(&format!("fault_{room}_x"), &all)));
    let killed = test_of("fault_node_killed", &["Fault: the ccm is killed | g"]);
    tests.push(killed);
    let wrong = lacking(&tests);
    assert_eq!(wrong.len(), 4, "{wrong:?}");
    let route =
        "Route (node-route-controller): no test plays a ccm that is killed between two writes";
    assert!(wrong.iter().any(|line| line == route), "{wrong:?}");
    assert_eq!(lacking(&[]).len(), ROOMS.len() * KINDS.len());
}

#[test]
fn rows_stand_under_their_controller() {
    let tests = [
        test_of("fault_service_y", &["Fault: c |", "d", "", "Not of it."]),
        test_of("fault_node_x", &["First.", "Fault: a | b"]),
        test_of("other", &[]),
    ];
    assert!(wrong(&tests).is_empty());
    let both = [("fault_node_x", "b"), ("fault_service_y", "d")];
    assert!(not_asserted(&tests, &Claims::said("a.rs", &both)).is_empty());
    let one = [("fault_node_x", "b"), ("fault_service_y", "e")];
    assert_eq!(
        not_asserted(&tests, &Claims::said("a.rs", &one)),
        ["a.rs::fault_service_y: no assertion says \"d\""]
    );
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
    let kept = Kept {
        name: "late-watch".to_owned(),
        shows: "A watch lags.".to_owned(),
        seed: 7,
    };
    let row = "| A watch lags. | 7 | [`late-watch`](../simulation/regressions/late-watch.json) |";
    assert_eq!(
        render(&tests, &[kept]),
        format!("{HEAD}{body}{IN_SEQUENCE}{row}\n")
    );
}
