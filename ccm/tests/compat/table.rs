//! The tables of results in `docs/`.

use std::fmt::Write as _;
use std::path::Path;

use crate::compare::Row;
use crate::side::{COMMON, GO, OURS};
use crate::ways::Exception;

/// The page of a table, and the name in its marks, which is also the Makefile's target.
pub const CONTROLLERS: (&str, &str) = ("parity.md", "compat");
pub const WAYS: (&str, &str) = ("go-clouds.md", "compat-bridge");

const HEAD: &str = "## Side by side

`make compat` compares an upstream Go CCM, whose cloud is an adapter to our contract, with the `ccm`, on equal API servers and equal mock clouds. Except for UIDs, times and the like, it compares all Nodes,
Services, events, load balancers and routes, and how often each event occurred, up to four times. It leaves out that the `ccm`'s events about a stuck object end with the call, the attempt and
the next try (▲N13).

";

/// Writes the table, or compares the written one with the results.
pub fn check((page, name): (&str, &str), table: &str) {
    let (begin, end) = (
        format!("<!-- {name}:begin -->"),
        format!("<!-- {name}:end -->"),
    );
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../docs")
        .join(page);
    let (begin, end) = (
        format!(
            "{begin}
"
        ),
        end,
    );
    let marks = Some((begin.as_str(), end.as_str()));
    testenv::document::holds(&path, marks, table, &format!("make {name}"));
}

pub fn of_controllers(rows: &[Row]) -> String {
    let flags = [
        ("Both", &COMMON[..]),
        ("The `ccm`", &OURS),
        ("The Go CCM", &GO),
    ];
    let flags = flags.map(|(who, flags)| format!("- {who}: `{}`\n", flags.join("` `")));
    let flags = flags.concat();
    let mut text =
        format!("{HEAD}{flags}\n| scenario | what happens | about | result |\n|---|---|---|---|\n");
    for row in rows {
        let result = if row.cited.is_empty() {
            "equal".to_owned()
        } else {
            let cited = row.cited.iter();
            let cited: Vec<String> = cited.map(|(id, why)| format!("{id}: {why}")).collect();
            format!("equal, except {}", cited.join("; "))
        };
        let (name, what, ids) = (&row.name, &row.what, row.ids.join(", "));
        let _ = writeln!(text, "| {name} | {what} | {ids} | {result} |");
    }
    text
}

const WAYS_HEAD: &str = "## What Go's interface cannot carry

`make compat-bridge` runs the `ccm` twice through all scenarios of [parity.md](parity.md#side-by-side). In the first run its provider is the mock. In the second run its provider is the bridge;
the bridge's cloud is the adapter, and the adapter's provider is the mock. Except for UIDs, times and the like, all Nodes, Services, events, load balancers and routes are equal, with these exceptions. How often a Warning event occurred is not compared.

";

/// A row for each reason.
pub fn of_ways(exceptions: &[Exception]) -> String {
    let mut text = format!("{WAYS_HEAD}| reason | where |\n|---|---|\n");
    let mut reasons: Vec<(&str, Vec<&str>)> = Vec::new();
    for it in exceptions {
        if reasons.last().is_none_or(|(why, _)| *why != it.why) {
            reasons.push((it.why, Vec::new()));
        }
        if let Some((_, scenarios)) = reasons.last_mut() {
            scenarios.extend(it.scenarios);
        }
    }
    for (why, mut scenarios) in reasons {
        scenarios.sort_unstable();
        scenarios.dedup();
        let named = if scenarios.is_empty() {
            "wherever it occurs".to_owned()
        } else {
            scenarios.join(", ")
        };
        let _ = writeln!(text, "| {why} | {named} |");
    }
    text
}
