//! Plays a group of scenarios on both sides, and checks that the results differ only as expected.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures::FutureExt;
use futures::future::join_all;
use tokio::time::{Instant, sleep};

use crate::scenario::{Facts, Scenario, fact};
use crate::side::Side;
use crate::snapshot::{Lines, Snapshot};
use crate::ways::Exception;

/// How long the two sides may take to reach the expected state after the last action: events come
/// late. Longer than anything takes on a busy machine.
const SETTLE: Duration = Duration::from_secs(90);

/// This environment variable limits the test to the scenarios whose names contain its value. With
/// it, the test neither writes nor compares the table of results.
const ONLY: &str = "COMPAT_ONLY";

/// A row of the table.
pub struct Row {
    pub name: &'static str,
    pub what: &'static str,
    pub ids: &'static [&'static str],
    pub cited: Vec<(&'static str, &'static str)>,
}

/// The result of a comparison.
pub struct Report {
    only: Option<String>,
    pub rows: Vec<Row>,
    pub failures: Vec<String>,
    /// The expected differences due to the path through Go, if the ccm is on both sides. Otherwise
    /// each scenario names its own.
    ways: Option<&'static [Exception]>,
    /// The indexes of the exceptions that occurred.
    met: BTreeSet<usize>,
}

impl Report {
    /// A comparison of the Go CCM with the ccm.
    pub fn of_controllers() -> Self {
        Self {
            only: std::env::var(ONLY).ok(),
            rows: Vec::new(),
            failures: Vec::new(),
            ways: None,
            met: BTreeSet::new(),
        }
    }

    /// A comparison with the ccm on both sides, and with these exceptions.
    pub fn of_ways(exceptions: &'static [Exception]) -> Self {
        Self {
            ways: Some(exceptions),
            ..Self::of_controllers()
        }
    }

    /// Whether all scenarios were played.
    pub fn is_whole(&self) -> bool {
        self.only.is_none()
    }

    /// The exceptions that no scenario needed, without those that depend on time.
    pub fn unneeded(&self) -> String {
        let all = self.ways.unwrap_or_default().iter().enumerate();
        let unneeded = all.filter(|(number, it)| !it.may_be && !self.met.contains(number));
        let lines: Vec<String> = unneeded.map(|(_, it)| format!("{it:?}")).collect();
        lines.join("\n")
    }

    pub fn text(&self) -> String {
        self.failures.join("\n")
    }

    /// Plays these at once on both sides, and compares.
    pub async fn play(&mut self, sides: &[Side; 2], scenarios: Vec<Scenario>) {
        let wanted = |scenario: &Scenario| {
            let only = self.only.as_ref();
            only.is_none_or(|only| scenario.name.contains(only.as_str()))
        };
        let scenarios: Vec<Scenario> = scenarios.into_iter().filter(wanted).collect();
        if scenarios.is_empty() {
            return;
        }
        let began = Instant::now();
        let play = |side: &Side| {
            let played = scenarios.iter().map(|it| (it.play)(side.clone()));
            // If one scenario waits in vain, the others go on. Its results are compared too.
            join_all(played.map(|played| AssertUnwindSafe(played).catch_unwind()))
        };
        let (go, ours) = tokio::join!(play(&sides[0]), play(&sides[1]));
        let facts = |played: Vec<std::thread::Result<Facts>>| -> Vec<Facts> {
            played
                .into_iter()
                .map(|it| it.unwrap_or_else(|why| fact("in vain", &message(&why))))
                .collect()
        };
        let (go, ours) = (facts(go), facts(ours));
        let played = began.elapsed();
        let deadline = Instant::now() + SETTLE;
        while !self.wrong(sides, &scenarios, &go, &ours).await.0.is_empty() {
            if Instant::now() > deadline {
                break;
            }
            sleep(Duration::from_millis(250)).await;
        }
        let settled = began.elapsed();
        // Nothing more may happen while both controllers still run: a second comparison must find
        // the same.
        tokio::join!(sides[0].renewals(4), sides[1].renewals(4));
        let (wrong, met) = self.wrong(sides, &scenarios, &go, &ours).await;
        self.met.extend(met);
        eprintln!(
            "{} scenarios, {} wrong; played in {played:?}, settled by {settled:?}, compared again at {:?}",
            scenarios.len(),
            wrong.len(),
            began.elapsed()
        );
        for wrong in &wrong {
            eprintln!("{wrong}");
        }
        self.failures.extend(wrong);
        self.rows.extend(scenarios.into_iter().map(|scenario| Row {
            name: scenario.name,
            what: scenario.what,
            ids: scenario.ids,
            cited: scenario.cited(),
        }));
    }

    /// The unexpected differences, as one text for each scenario that has some, and the exceptions
    /// that occurred.
    async fn wrong(
        &self,
        sides: &[Side; 2],
        scenarios: &[Scenario],
        go: &[Facts],
        ours: &[Facts],
    ) -> (Vec<String>, BTreeSet<usize>) {
        let (left, right) = tokio::join!(Snapshot::take(&sides[0]), Snapshot::take(&sides[1]));
        let (mut wrong, mut met) = (Vec::new(), BTreeSet::new());
        let names = sides.each_ref().map(Side::label);
        for (number, scenario) in scenarios.iter().enumerate() {
            let mut left = left.of(scenario.name);
            left.extend(go[number].clone());
            let mut right = right.of(scenario.name);
            right.extend(ours[number].clone());
            let mut text = match self.ways {
                None => unexpected(scenario, &left, &right),
                Some(exceptions) => unexcused(scenario.name, exceptions, &left, &right, &mut met),
            };
            for (who, lines) in names.into_iter().zip([&left, &right]) {
                if let Some(why) = lines.get("fact: in vain") {
                    let _ = writeln!(text, "  {who} waited in vain: {why}");
                }
            }
            if !text.is_empty() {
                wrong.push(format!("== {}: {}\n{text}", scenario.name, scenario.what));
            }
        }
        (wrong, met)
    }
}

/// The message of a panic.
fn message(why: &Box<dyn std::any::Any + Send>) -> String {
    let text = why.downcast_ref::<String>();
    text.cloned().unwrap_or_else(|| "it panicked".to_owned())
}

/// The unexpected differences, and the expected ones that are missing.
fn unexpected(scenario: &Scenario, go: &Lines, ours: &Lines) -> String {
    let mut text = String::new();
    let mut met = vec![false; scenario.differences.len()];
    let lines: BTreeSet<&String> = go.keys().chain(ours.keys()).collect();
    for line in lines {
        let (left, right) = (go.get(line), ours.get(line));
        let place = scenario
            .differences
            .iter()
            .position(|it| it.what.covers(line));
        let good = place.map_or(left == right, |place| {
            met[place] = true;
            scenario.differences[place].what.holds(left, right)
        });
        if !good {
            let _ = writeln!(
                text,
                "  {line}\n      go:   {left:?}\n      ours: {right:?}"
            );
            if let Some(place) = place {
                let _ = writeln!(text, "      expected: {:?}", scenario.differences[place]);
            }
        }
    }
    for (it, met) in scenario.differences.iter().zip(met) {
        if !met {
            let _ = writeln!(text, "  in neither, but expected: {it:?}");
        }
    }
    text
}

/// The differences that no exception gives a reason for, and the exceptions that had to occur here
/// and did not.
fn unexcused(
    scenario: &str,
    exceptions: &[Exception],
    direct: &Lines,
    bridged: &Lines,
    met: &mut BTreeSet<usize>,
) -> String {
    let mut text = String::new();
    let mut met_here = BTreeSet::new();
    let lines: BTreeSet<&String> = direct.keys().chain(bridged.keys()).collect();
    for line in lines {
        let (left, right) = (direct.get(line), bridged.get(line));
        if left == right || is_of_retries(line) && left.is_some() && right.is_some() {
            continue;
        }
        let excused = exceptions
            .iter()
            .position(|it| it.is_about(scenario) && it.covers(line, left, right));
        match excused {
            Some(number) => {
                met_here.insert(number);
            }
            None => {
                let _ = writeln!(
                    text,
                    "  {line}\n      direct:  {left:?}\n      bridged: {right:?}"
                );
            }
        }
    }
    for (number, it) in exceptions.iter().enumerate() {
        if it.must_be_met(scenario) && !met_here.contains(&number) {
            let _ = writeln!(text, "  not met here, but expected: {it:?}");
        }
    }
    met.extend(met_here);
    text
}

/// Whether the line is a Warning event. Failed attempts record Warnings, so their number at the
/// comparison depends on time.
fn is_of_retries(line: &str) -> bool {
    line.starts_with("event on ") && line.contains(": Warning ")
}
