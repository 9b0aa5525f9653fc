//! The tables of calls in docs/go-clouds.md.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use crate::allowed::{self, Bound};
use crate::half::Calls;
use crate::life::Row;

/// Set to 1, the page is written; else it must stand there already, with counts near to these.
const UPDATE: &str = "UPDATE_DOCS";

const BEGIN: &str = "<!-- calls:begin -->";
const END: &str = "<!-- calls:end -->";

const HEAD: &str = "## The calls that a cloud sees

The calls of a cloud's API, counted by the cloud itself: by upstream's Go CCM with the cloud linked in, and by the `ccm` with the same cloud, unchanged, behind the
bridge. Both have an API server of their own and the same flags. `make calls` fails where ours are more than upstream's, unless the last column says why, and then
where they are more than that column allows. \"at most twice\" is two calls where upstream makes none.

- A situation is counted for 8 to 50 seconds, and until it is over on both sides. Counts differ by a few from run to run.
- Upstream is one process: a restart of it stands beside each of our three.
- During a failure all calls of the cloud's API are refused for half a minute, and one Service has a port that changed; ten seconds after that are counted too, and longer until that change has
  reached the cloud.
- In all situations but the idle hour the refresh of Nodes is switched off (`--node-status-update-frequency=2h`), as it would fall into some of them by chance.
- The idle hour is three Nodes and one Service to which nothing happens. It is played in 72 seconds, a fiftieth of an hour, with upstream's defaults divided by 50:
  `--node-status-update-frequency=6s` (5 min), `--node-monitor-period=100ms` (5 s), `--route-reconciliation-period=200ms` (10 s). The `ccm` takes no period below one second; it has the last
  two at one second, and lists routes after changes only (▲R6). What no flag sets is not scaled: resyncs of half a day and more do not occur.
- The clouds are shapes of those that are in use ([providers/go/bridge/shapes](../providers/go/bridge/shapes)): `annotated` notes its load balancers on Services, `byid` goes by IDs
  alone and reads before it writes, `careless` answers Nodes from a cache of its own, which costs a call a second under either controller and is left out, `fake` is upstream's
  with routes, `instancesv1` has the older interfaces, `lister` is made with a lister of Nodes and has routes.

";

/// The page's table of one cloud.
pub fn of_cloud(cloud: &str, rows: &[Row]) -> String {
    let mut text = format!(
        "### {cloud}\n\n| situation | upstream | ours | why ours may be more |\n|---|---|---|---|\n"
    );
    for row in rows {
        let allowed = allowed::of(cloud, row.situation).map_or_else(String::new, |it| {
            let bound = match it.bound {
                Bound::Twice => "at most twice".to_owned(),
                Bound::Known(most) => format!("known fault, at most {most}"),
            };
            format!("{bound}: {} ({})", it.why, it.rule)
        });
        let _ = writeln!(
            text,
            "| {} | {} | {} | {allowed} |",
            row.situation,
            shown(&row.upstream),
            shown(&row.ours)
        );
    }
    text + "\n"
}

/// The page's table of all clouds: only how many calls.
fn of_all(counted: &[(&str, Vec<Row>)]) -> String {
    let mut text = String::from("| situation |");
    for (cloud, _) in counted {
        let _ = write!(text, " {cloud} |");
    }
    text += "\n|---|";
    text += &"---|".repeat(counted.len());
    text += "\n";
    let rows = counted.iter().map(|(_, rows)| rows.len()).max();
    for number in 0..rows.unwrap_or_default() {
        let cells: Vec<&Row> = counted.iter().filter_map(|it| it.1.get(number)).collect();
        let Some(first) = cells.first() else {
            continue;
        };
        let _ = write!(text, "| {} |", first.situation);
        for row in cells {
            let (upstream, ours) = row.totals();
            let more = if ours > upstream { "**" } else { "" };
            let _ = write!(text, " {upstream} / {more}{ours}{more} |");
        }
        text += "\n";
    }
    text + "\n"
}

fn shown(calls: &Calls) -> String {
    let total: usize = calls.values().sum();
    let each: Vec<String> = calls
        .iter()
        .map(|(method, count)| format!("{count} {method}"))
        .collect();
    if each.is_empty() {
        "0".to_owned()
    } else {
        format!("{total}: {}", each.join(", "))
    }
}

/// Writes the page, or holds the written one against the results.
pub fn check(counted: &[(&str, Vec<Row>)]) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/go-clouds.md");
    let mut tables = of_all(counted);
    for (cloud, rows) in counted {
        tables += &of_cloud(cloud, rows);
    }
    let page = fs::read_to_string(&path).unwrap_or_default();
    let (before, rest) = page.split_once(BEGIN).unwrap_or((page.as_str(), ""));
    let (text, after) = rest.split_once(END).unwrap_or(("", "\n"));
    let wanted = format!("{HEAD}{tables}");
    if std::env::var(UPDATE).is_ok_and(|value| value == "1") {
        fs::write(&path, format!("{before}{BEGIN}\n{wanted}{END}{after}")).unwrap();
        return;
    }
    let (written, found) = (read(text), read(&wanted));
    let far: Vec<String> = found
        .iter()
        .filter(|(key, row)| !written.get(*key).is_some_and(|it| near(it, row)))
        .map(|(key, row)| format!("{key:?}: {row:?} and in the page {:?}", written.get(key)))
        .collect();
    assert!(
        far.is_empty() && written.len() == found.len(),
        "docs/go-clouds.md is not what came out: run `UPDATE_DOCS=1 make calls`\n{}",
        far.join("\n")
    );
}

/// A row of the page: how many calls of both, and what is allowed.
type Written = (usize, usize, String);

/// The rows of a page, by cloud and situation.
fn read(text: &str) -> BTreeMap<(String, String), Written> {
    let mut rows = BTreeMap::new();
    let mut cloud = "";
    for line in text.lines() {
        if let Some(name) = line.strip_prefix("### ") {
            cloud = name;
        }
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let count = |cell: &str| cell.split(':').next()?.parse::<usize>().ok();
        if let [_, situation, upstream, ours, allowed, _] = cells[..]
            && let (Some(upstream), Some(ours)) = (count(upstream), count(ours))
        {
            let key = (cloud.to_owned(), situation.to_owned());
            rows.insert(key, (upstream, ours, allowed.to_owned()));
        }
    }
    rows
}

/// Whether two runs may differ so.
fn near(one: &Written, other: &Written) -> bool {
    let close = |a: usize, b: usize| a.abs_diff(b) <= 4 + a.max(b) / 2;
    close(one.0, other.0) && close(one.1, other.1) && one.2 == other.2
}
