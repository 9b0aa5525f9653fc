//! Checks docs/operator-guide.md against the program: compares or writes its tables, and finds its
//! quotes in the code.
//!
//! Run with UPDATE_DOCS=1 to write the tables again.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::upstream_metrics::{scraped, touched};
use crate::args::{Args, Config};
use crate::provider::DEFAULT_MAX_BATCH;
use crate::serve;
use crate::writes::reason;

const GUIDE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/operator-guide.md");

/// Compares a part of the guide with this text, or writes it.
fn part(name: &str, table: &str) {
    let begin = format!(
        "<!-- {name}: written by `make docs` -->
"
    );
    let end = format!(
        "<!-- end of {name} -->
"
    );
    let command = "cargo test -p ccm --lib docs_";
    testenv::document::holds(GUIDE.as_ref(), Some((&begin, &end)), table, command);
}

fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}

/// The sources of the program, without tests.
fn sources() -> Vec<(PathBuf, String)> {
    fn walk(directory: &Path, into: &mut Vec<(PathBuf, String)>) {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if name.contains("test") || name == "operator_guide.rs" || name == "upstream_metrics.rs"
            {
                continue;
            }
            if path.is_dir() {
                walk(&path, into);
            } else if path.extension().is_some_and(|it| it == "rs") {
                let text = std::fs::read_to_string(&path).unwrap();
                let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
                into.push((path, code.to_owned()));
            }
        }
    }
    let mut all = Vec::new();
    walk(
        concat!(env!("CARGO_MANIFEST_DIR"), "/src").as_ref(),
        &mut all,
    );
    assert!(all.len() > 100, "{}", all.len());
    all
}

/// Prefixes of metric names, as literals in the code.
const ROOMS: [&str; 9] = [
    "\"ccm_",
    "\"node_controller_",
    "\"node_lifecycle_controller_",
    "\"service_controller_",
    "\"route_controller_",
    "\"workqueue_",
    "\"rest_client_",
    "\"cloud_provider_webhook_",
    "\"leader_election_master",
];

#[tokio::test]
async fn docs_operator_guide_lists_every_metric() {
    let text = serve::exposition(&touched()).unwrap();
    let families = scraped(&text);
    let mut table = "| metric | type | labels | meaning |\n|---|---|---|---|\n".to_owned();
    for (name, family) in &families {
        let labels: Vec<_> = family.labels.iter().map(|it| format!("`{it}`")).collect();
        let help = family.help.trim_end_matches('.');
        let _ = writeln!(
            table,
            "| `{name}` | {} | {} | {} |",
            family.kind,
            labels.join(", "),
            cell(help)
        );
    }
    part("metrics", &table);
    // A family that the code makes, but `touched` does not show, would be missing in the guide.
    for (path, code) in sources() {
        for room in ROOMS {
            for (at, _) in code.match_indices(room) {
                let name = code[at + 1..].split('"').next().unwrap();
                assert!(
                    families.keys().any(|family| family.starts_with(name)),
                    "{name} of {} is not shown: touch it in upstream_metrics.rs",
                    path.display()
                );
            }
        }
    }
}

#[test]
fn docs_operator_guide_lists_every_event() {
    let mut table = "| reason | type | on | meaning |\n|---|---|---|---|\n".to_owned();
    let mut words = BTreeSet::new();
    for row in reason::TABLE {
        assert!(words.insert(row.word), "{} twice", row.word);
        let _ = writeln!(
            table,
            "| `{}` | {} | {} | {} |",
            row.word,
            row.kind,
            row.on,
            cell(row.meaning)
        );
    }
    part("events", &table);
    // Searches for reasons that are literals outside of the table: their events would bypass it.
    for (path, code) in sources() {
        if path.ends_with("writes/reason.rs") {
            continue;
        }
        for word in &words {
            // Only the whole literal counts: a log may use the word in a sentence.
            let literal = format!("\"{word}\"");
            assert!(
                !code.contains(&literal),
                "{literal} is in {}: take it from writes::reason",
                path.display()
            );
        }
        for call in [
            "events.record(",
            "node_event(",
            "self.event(",
            "self.warn(",
            "normal(",
            "warning(",
        ] {
            for (at, _) in code.match_indices(call) {
                let arguments = code[at + call.len()..].split([';', '}']).next().unwrap();
                let literal = arguments
                    .split('"')
                    .skip(1)
                    .step_by(2)
                    .find(|it| is_reason(it));
                assert_eq!(literal, None, "{}: a reason past the table", path.display());
            }
        }
    }
}

/// Whether a text has the form of a reason: `TwoWords`.
fn is_reason(text: &str) -> bool {
    text.len() > 5
        && text.starts_with(|c: char| c.is_ascii_uppercase())
        && text.chars().all(|c| c.is_ascii_alphanumeric())
        && text.chars().skip(1).any(|c| c.is_ascii_uppercase())
}

/// The defaults, without any flag.
fn defaults() -> Config {
    let args = Args::parse_from_command_line(["ccm"]).unwrap();
    args.into_config().unwrap()
}

/// How many lookups an hour keep `nodes` initialised Nodes current.
pub(crate) fn refreshes_an_hour(nodes: usize, batch: usize, period: Duration) -> u64 {
    let rounds = 3600 / period.as_secs();
    nodes.div_ceil(batch) as u64 * rounds
}
/// `1,234`.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[test]
fn docs_operator_guide_counts_the_calls_to_the_cloud() {
    let config = defaults();
    let period = config.node.status_update_frequency;
    let mut table =
        "| an hour of | 10 Nodes | 100 Nodes | 1,000 Nodes | 5,000 Nodes |\n|---|---|---|---|---|\n"
            .to_owned();
    let mut row = |what: &str, count: &dyn Fn(usize) -> u64| {
        let counts = [10, 100, 1_000, 5_000].map(|nodes| grouped(count(nodes)));
        let _ = writeln!(table, "| {what} | {} |", counts.join(" | "));
    };
    row(
        &format!(
            "refreshing Nodes: `LookupInstances` with up to {DEFAULT_MAX_BATCH} Nodes, every {} min",
            period.as_secs() / 60
        ),
        &|nodes| refreshes_an_hour(nodes, DEFAULT_MAX_BATCH, period),
    );
    row(
        "the same, if the provider makes one cloud call for each Node",
        &|nodes| refreshes_an_hour(nodes, 1, period),
    );
    let suspects = |nodes: usize| nodes.div_ceil(100);
    let pause =
        config.node_lifecycle.monitor_period * crate::controllers::node_lifecycle::MOST_PERIODS;
    let asked_an_hour = 3600 / pause.as_secs();
    row(
        &format!(
            "1 % of the Nodes not Ready all the time: `LookupInstances`, every {} s",
            pause.as_secs()
        ),
        &|nodes| suspects(nodes).div_ceil(DEFAULT_MAX_BATCH) as u64 * asked_an_hour,
    );
    row(
        "the same, if the provider makes one cloud call for each Node",
        &|nodes| suspects(nodes) as u64 * asked_an_hour,
    );
    row(
        "searching for load balancers without a Service: `ListLoadBalancers`, if offered",
        &|_| 3600 / config.service.orphan_period.as_secs(),
    );
    row(
        "searching for changed routes: `ListRoutes` (more after a Node joins, leaves, or changes its provider ID, Pod CIDR or addresses; at most one every 10 s)",
        &|_| 3600 / crate::controllers::route::RESYNC.as_secs(),
    );
    row("load balancers and Nodes that do not change", &|_| 0);
    part("cloud calls", &table);
}

/// The program's sources contain each quoted line (`> …`). `…` stands for the parts that vary.
#[test]
fn docs_operator_guide_quotes_what_is_said() {
    let guide = std::fs::read_to_string(GUIDE).unwrap();
    let plain = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    // Joins lines that a backslash continues.
    let said: String = sources()
        .into_iter()
        .map(|(_, code)| plain(&code.replace("\\\n", " ").replace("\\\"", "\"")))
        .collect();
    let mut quotes = 0;
    for line in guide.lines().filter_map(|line| line.strip_prefix("> ")) {
        quotes += 1;
        for piece in line.trim_matches('`').split('…') {
            let piece = plain(piece);
            assert!(said.contains(&piece), "no source has {piece:?}: {line}");
        }
    }
    assert!(quotes >= 10, "{quotes}");
}
