//! The tables of calls in docs/go-clouds.md.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use crate::allowed;
use crate::half::Calls;
use crate::life::Row;

const BEGIN: &str = "<!-- calls:begin -->";
const END: &str = "<!-- calls:end -->";

const HEAD: &str = "## The calls that a cloud sees

Each test cloud counts the calls of its own API: once linked into upstream's Go CCM, once unchanged behind the bridge with the `ccm`. Each controller has its own API server and sees the same events. Both have the same
flags, except for those that name the cloud. Upstream also has `--allow-untagged-cloud`, and the `ccm` has `--node-deletion-brake` and `--provider-annotation-prefixes`. `make calls` fails if the `ccm` makes more calls than upstream. The last column of a cloud's table names the only exceptions: there a rule needs
more, and \"at most twice\" means twice as many as upstream, or two if upstream makes none.

How it is counted:

- The test counts a situation for 8 to 40 seconds (the idle hour: 72), and until it is over on both sides. Counts differ by a few from run to run.
- Upstream is one process, so the table shows its one restart beside each of our three.
- 429, 422, 503 and 401: the cloud refuses all calls for half a minute, and the port of one Service changes at the beginning. Counting goes on until the cloud has the new port, and for at least ten
  seconds after the outage. After 422 the user changes the port again.
- kill -9 during a create: the cloud has made the load balancer, and the test kills the process with the cloud's code before the answer arrives. For upstream that is the whole CCM.
- In all situations but the idle hour the periodic refresh of Nodes is off (`--node-status-update-frequency=2h`), because it would happen during some of them by chance.
- The idle hour: nothing happens to three Nodes and one Service. It takes 72 seconds, a fiftieth of an hour, with upstream's default periods divided by 50:
  `--node-status-update-frequency=6s` (5 min), `--node-monitor-period=100ms` (5 s), `--route-reconciliation-period=200ms` (10 s). The `ccm` takes no period below one second, so it has the last two
  at one second; it lists routes after changes, and otherwise at most once an hour (▲R6). Periods without a flag keep their length, so resyncs of twelve hours and more do not occur.

The clouds are shapes of those that are in use ([providers/go/bridge/shapes](../providers/go/bridge/shapes)):

| cloud | what it is like |
|---|---|
| annotated | writes the ID of its load balancers onto Services |
| byid | finds machines by provider ID, and only `InstanceMetadata` also by name; reads before it writes |
| careless | answers Nodes from a cache that it fills every five seconds under either controller (left out of the counts); its Update does not fail where there is no load balancer (`--get-before-update`) |
| fake | upstream's `k8s.io/cloud-provider/fake`, with routes; a list of routes is two calls |
| instancesv1 | the older interfaces `Instances` and `Zones` |
| lister | gets a lister of Nodes in its constructor, caches machines for a moment, has routes |

All calls, upstream's / ours (bold: ours are more):

";

/// The page's table of one cloud.
pub fn of_cloud(cloud: &str, rows: &[Row]) -> String {
    let mut text = format!(
        "### {cloud}\n\n| situation | upstream | ours | why ours may be more |\n|---|---|---|---|\n"
    );
    for row in rows {
        let allowed = allowed::of(cloud, row.situation).map_or_else(String::new, |it| {
            format!("at most twice: {} ({})", it.why, it.rule)
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

/// The page's table of all clouds, without the methods of the calls.
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

fn page() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/go-clouds.md")
}

/// The text between the marks.
fn wanted(counted: &[(&str, Vec<Row>)]) -> String {
    let tables = counted.iter().map(|(cloud, rows)| of_cloud(cloud, rows));
    let tables: String = tables.collect();
    format!("{HEAD}{}{tables}", of_all(counted))
}

/// The page's text before the marks, between them and after them.
fn cut(page: &str) -> (&str, &str, &str) {
    let (before, rest) = page.split_once(BEGIN).unwrap_or((page, ""));
    let (text, after) = rest.split_once(END).unwrap_or(("", "\n"));
    (before, text, after)
}

/// Writes the page if `UPDATE_DOCS` asks for it.
pub fn write(counted: &[(&str, Vec<Row>)]) -> bool {
    let asked = testenv::document::asked_for("UPDATE_DOCS");
    if asked {
        let old = fs::read_to_string(page()).unwrap_or_default();
        let (before, _, after) = cut(&old);
        let wanted = wanted(counted);
        fs::write(page(), format!("{before}{BEGIN}\n{wanted}{END}{after}")).unwrap();
    }
    asked
}

/// Compares the written page with the results.
pub fn check(counted: &[(&str, Vec<Row>)]) {
    let old = fs::read_to_string(page()).unwrap_or_default();
    let (written, found) = (read(cut(&old).1), read(&wanted(counted)));
    let far: Vec<String> = found
        .iter()
        .filter(|(key, row)| !written.get(*key).is_some_and(|it| near(it, row)))
        .map(|(key, row)| format!("{key:?}: {row:?} and in the page {:?}", written.get(key)))
        .collect();
    assert!(
        far.is_empty() && written.len() == found.len(),
        "docs/go-clouds.md does not match the counts: run `UPDATE_DOCS=1 make calls`\n{}",
        far.join("\n")
    );
}

/// A row of the page: upstream's number of calls, ours, and the last column.
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

/// Whether two runs of the same code may give these two rows.
fn near(one: &Written, other: &Written) -> bool {
    let close = |a: usize, b: usize| a.abs_diff(b) <= 4 + a.max(b) / 2;
    close(one.0, other.0) && close(one.1, other.1) && one.2 == other.2
}
