//! `docs/threat-model.md`: each threat has a test of its mitigation.

use crate::sources::Test;

/// Rows without a test, and tests that do not exist.
pub(crate) fn wrong(text: &str, tests: &[Test]) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut held = false;
    for (number, line) in text.lines().enumerate() {
        let Some(inside) = line.strip_prefix('|').and_then(|it| it.strip_suffix('|')) else {
            held = false;
            continue;
        };
        let cells: Vec<&str> = inside.split('|').map(str::trim).collect();
        if cells.last() == Some(&"shown by") {
            held = true;
        } else if held && !line.starts_with("|---") {
            let shown = cells.last().copied().unwrap_or_default();
            for name in shown.split(", ") {
                let bare = name.trim_matches('`');
                let exists = tests.iter().any(|test| test.name == bare);
                if !exists {
                    wrong.push(format!(
                        "docs/threat-model.md:{}: no test {name}",
                        number + 1
                    ));
                }
            }
        }
    }
    wrong
}

#[test]
fn a_row_without_a_test_is_found() {
    let table = |shown: &str| {
        let text = format!(
            "| it must not | what holds it | shown by |\n|---|---|---|\n| a | b | {shown} |\n"
        );
        wrong(&text, crate::tests()).len()
    };
    assert_eq!(table("`m12_a_closed_fence_lets_only_gets_through`"), 0);
    assert_eq!(table("`make deny` in CI"), 1);
    assert_eq!(table(""), 1);
    assert_eq!(table("**open**"), 1);
    assert_eq!(
        table("`m12_a_closed_fence_lets_only_gets_through`, `nobody_wrote_this`"),
        1
    );
}
