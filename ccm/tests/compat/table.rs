//! The table of results in `docs/parity.md`.

use std::fs;
use std::path::Path;

use crate::compare::Row;

const BEGIN: &str = "<!-- compat:begin -->";
const END: &str = "<!-- compat:end -->";
/// Set to 1, the table is written; else it must stand there already.
const UPDATE: &str = "UPDATE_DOCS";

const HEAD: &str = "## Side by side

What `make compat` saw: an upstream Go CCM, whose cloud is an adapter to our contract, and the `ccm` on equal API servers and equal mock clouds. All Nodes,
Services, events, load balancers and routes are compared. That our events of what is stuck end in the call, the attempt and the next try (▲N13) is left out.

";

/// Writes the table, or holds the written one against the results.
pub fn check(rows: &[Row]) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/parity.md");
    let text = fs::read_to_string(&path).unwrap_or_default();
    let (before, rest) = text.split_once(BEGIN).unwrap_or((text.as_str(), ""));
    let after = rest.split_once(END).map_or("\n", |(_, after)| after);
    let wanted = format!("{before}{BEGIN}\n{}{END}{after}", table(rows));
    if std::env::var(UPDATE).is_ok_and(|value| value == "1") {
        fs::write(&path, wanted).unwrap();
    } else {
        assert!(
            text == wanted,
            "the table in docs/parity.md is not what came out: run `UPDATE_DOCS=1 make compat`\n{}",
            table(rows)
        );
    }
}

fn table(rows: &[Row]) -> String {
    let mut text =
        format!("{HEAD}| scenario | what happens | about | result |\n|---|---|---|---|\n");
    for row in rows {
        let result = if row.cited.is_empty() {
            "equal".to_owned()
        } else {
            let cited = row.cited.iter();
            let cited: Vec<String> = cited.map(|(id, why)| format!("{id}: {why}")).collect();
            format!("equal, except {}", cited.join("; "))
        };
        text += &format!(
            "| {} | {} | {} | {result} |\n",
            row.name,
            row.what,
            row.ids.join(", ")
        );
    }
    text
}
