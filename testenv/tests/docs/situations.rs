//! `docs/upstream-situations.md`: the situations of upstream's own tables, each with our test and
//! row for it, or with the reason why it does not apply.
//!
//! A row of a table there is `| situation | our test | row |`. The test is written as `` `name` ``
//! (several with `, `), or the cell begins with [`DOES_NOT_APPLY`]. The third cell, where it is not
//! empty, has `` `literal` ``s of those tests.

use crate::sources::Test;

/// The beginning of a cell about a situation that cannot exist here. The reason follows.
const DOES_NOT_APPLY: &str = "does not apply: ";

/// References to missing tests or literals, and situations without a test.
pub(crate) fn wrong(text: &str, tests: &[Test]) -> Vec<String> {
    let mut wrong = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let cells: Vec<&str> = match line.strip_prefix('|').and_then(|l| l.strip_suffix('|')) {
            Some(inside) => inside.split('|').map(str::trim).collect(),
            None => continue,
        };
        let head = cells.iter().all(|cell| cell.starts_with("---"))
            || text
                .lines()
                .nth(number + 1)
                .is_some_and(|next| next.starts_with("|---"));
        if head {
            continue;
        }
        if let Err(what) = row(&cells, tests) {
            wrong.push(format!(
                "docs/upstream-situations.md:{}: {what}",
                number + 1
            ));
        }
    }
    wrong
}

fn row(cells: &[&str], tests: &[Test]) -> Result<(), String> {
    let &[situation, ours, rows] = cells else {
        return Err(format!("{} cells and not three", cells.len()));
    };
    if situation.is_empty() {
        return Err("no situation".to_owned());
    }
    if let Some(why) = ours.strip_prefix(DOES_NOT_APPLY) {
        let plain = !why.trim().is_empty() && rows.is_empty();
        return plain
            .then_some(())
            .ok_or_else(|| "no reason why".to_owned());
    }
    let mut named: Vec<&Test> = Vec::new();
    for name in ours.split(", ") {
        let bare = code(name).ok_or_else(|| format!("`{name}` is no `` `test` ``"))?;
        let found: Vec<&Test> = tests.iter().filter(|test| test.name == bare).collect();
        if found.is_empty() {
            return Err(format!("there is no test {bare}"));
        }
        named.extend(found);
    }
    for literal in rows.split(", `").filter(|literal| !literal.is_empty()) {
        let bare = literal.trim_matches('`');
        if !named.iter().any(|test| test.literals.contains(bare)) {
            return Err(format!("{ours} has no row \"{bare}\""));
        }
    }
    Ok(())
}

fn code(text: &str) -> Option<&str> {
    let bare = text.strip_prefix('`')?.strip_suffix('`')?;
    (!bare.is_empty() && !bare.contains('`')).then_some(bare)
}

#[test]
fn each_situation_has_a_test_that_exists_or_a_reason() {
    let tests = [Test {
        file: "a.rs".to_owned(),
        name: "b_n2_x".to_owned(),
        doc: Vec::new(),
        literals: ["first, second".to_owned(), "third".to_owned()].into(),
    }];
    let wrong = |row: &str| {
        let text = format!("# T\n\n| situation | test | row |\n|---|---|---|\n{row}\n");
        wrong(&text, &tests).len()
    };
    for right in [
        "| a | `b_n2_x` |  |",
        "| a | `b_n2_x` | `third` |",
        "| a | `b_n2_x`, `b_n2_x` | `first, second`, `third` |",
        "| a | does not apply: there is none | |",
        "no row",
    ] {
        assert_eq!(wrong(right), 0, "{right}");
    }
    for not in [
        "| a | `b_n3_x` | |",
        "| a | b_n2_x | |",
        "| a | | |",
        "| | `b_n2_x` | |",
        "| a | `b_n2_x` |",
        "| a | `b_n2_x` | `fourth` |",
        "| a | does not apply: | |",
        "| a | does not apply: so | `third` |",
    ] {
        assert_eq!(wrong(not), 1, "{not}");
    }
}
