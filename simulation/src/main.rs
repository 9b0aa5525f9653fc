//! `simulate`: plays seeds, and shortens the plan of a seed that fails.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ccm::planted::{Bug, plant};
use clap::Parser;
use simulation::check::Check;
use simulation::plan::{Life, Plan, everything};
use simulation::planted::{look, write};
use simulation::regression::Regression;
use simulation::run::{Report, judge, play, run};
use simulation::trace::Trace;
use simulation::{exhaustive, parallel};
use tracing_subscriber::EnvFilter;

/// A run makes and frees many small objects: with glibc's allocator it takes a sixth longer.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// How often the progress is printed.
const PROGRESS: Duration = Duration::from_secs(10);

/// Plays the whole ccm in virtual time.
#[derive(Parser)]
struct Options {
    /// Plays only this seed, and prints its trace. If it fails, prints instead the trace of the
    /// shortest plan that still fails.
    #[arg(long)]
    seed: Option<u64>,
    /// The number of seeds to play.
    #[arg(long, default_value_t = 100)]
    seeds: u64,
    /// The first seed.
    #[arg(long, default_value_t = 1)]
    from: u64,
    /// Prints the digest of each seed's trace instead of judging it.
    #[arg(long)]
    digest: bool,
    /// Checks the kept plans, the table of planted bugs, or that a seed has one trace.
    #[arg(long)]
    check: Option<Check>,
    /// Plants each known bug, and prints the seed that finds it.
    #[arg(long)]
    planted: bool,
    /// Plants only these bugs, by name. With `--seed` or `--plan`, name one: only one is planted.
    #[arg(long, value_delimiter = ',')]
    bugs: Vec<String>,
    /// Writes into this document which seed finds which bug.
    #[arg(long)]
    update_docs: Option<PathBuf>,
    /// Plays single faults and pairs of faults in the life of one Service and of one Node.
    #[arg(long)]
    exhaustive: bool,
    /// Plays the plan in this file, as `--seed` plays a seed's plan.
    #[arg(long, conflicts_with = "seed")]
    plan: Option<PathBuf>,
    /// If the plan fails, writes to this file the shortest plan that still fails.
    #[arg(long)]
    keep: Option<PathBuf>,
    /// The filter of the logs in the trace of `--seed` or `--plan`.
    #[arg(long, default_value = "ccm=info")]
    logs: String,
}

fn main() -> anyhow::Result<ExitCode> {
    let options = Options::parse();
    let seeds = match options.seed {
        Some(seed) => seed..seed + 1,
        None => options.from..options.from + options.seeds,
    };
    if options.digest {
        for seed in seeds {
            println!("{seed} {:016x}", run(&Plan::of(seed))?.digest);
        }
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(check) = options.check {
        let wrong = check.run()?;
        for line in &wrong {
            println!("{line}");
        }
        return Ok(verdict(wrong.is_empty()));
    }
    let kept = options.plan.as_deref().map(Regression::read).transpose()?;
    let plan = kept.map(|kept| kept.plan);
    if let Some(plan) = plan.or_else(|| options.seed.map(Plan::of)) {
        return one(plan, &options);
    }
    if options.planted {
        return planted(&seeds, &options);
    }
    if options.exhaustive {
        return all_of_a_life();
    }
    let progress = Progress::new(options.seeds);
    let (failed, covered) = many(seeds, &progress)?;
    for kinds in covered_by_site(&covered) {
        println!("covered {kinds}");
    }
    for (site, kind) in never_hit(&covered) {
        println!("never hit: {site}: {kind}");
    }
    for seed in failed.keys() {
        println!("failed: make simulate SEED={seed}");
    }
    println!("{}", progress.line());
    Ok(verdict(failed.is_empty()))
}

fn verdict(holds: bool) -> ExitCode {
    if holds {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// The progress of the runs.
struct Progress {
    of: u64,
    began: Instant,
    played: AtomicU64,
    failed: AtomicU64,
    said: Mutex<Instant>,
}

impl Progress {
    fn new(of: u64) -> Self {
        let now = Instant::now();
        Self {
            of,
            began: now,
            played: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            said: Mutex::new(now),
        }
    }

    fn played(&self, holds: bool) {
        self.played.fetch_add(1, Ordering::Relaxed);
        self.failed.fetch_add(u64::from(!holds), Ordering::Relaxed);
        let mut said = locked(&self.said);
        if said.elapsed() >= PROGRESS {
            *said = Instant::now();
            eprintln!("{}", self.line());
        }
    }

    fn line(&self) -> String {
        let played = self.played.load(Ordering::Relaxed);
        let took = self.began.elapsed().as_secs_f64();
        format!(
            "{played} of {} runs in {took:.0} s ({:.1} a second), {} failed",
            self.of,
            played as f64 / took,
            self.failed.load(Ordering::Relaxed)
        )
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

type Covered = BTreeMap<(String, String), u64>;

/// Plays these seeds on all cores.
fn many(
    seeds: Range<u64>,
    progress: &Progress,
) -> anyhow::Result<(BTreeMap<u64, String>, Covered)> {
    let found = Mutex::new((BTreeMap::new(), Covered::new()));
    parallel::each(seeds, |seed| {
        let report = judge(&Plan::of(seed))?;
        progress.played(report.violations.is_empty());
        let mut found = locked(&found);
        for (key, count) in report.hit {
            *found.1.entry(key).or_default() += count;
        }
        if let Some(first) = report.violations.into_iter().next() {
            println!("seed {seed}: {first}");
            found.0.insert(seed, first);
        }
        Ok(true)
    })?;
    Ok(found.into_inner().unwrap_or_else(PoisonError::into_inner))
}

/// A line for each call site: how often each kind of fault occurred there.
fn covered_by_site(covered: &Covered) -> Vec<String> {
    let mut kinds = BTreeMap::<&str, Vec<String>>::new();
    for ((site, kind), count) in covered {
        kinds
            .entry(site)
            .or_default()
            .push(format!("{kind} {count}"));
    }
    let lines = kinds.into_iter();
    lines
        .map(|(site, kinds)| format!("{site}: {}", kinds.join(", ")))
        .collect()
}

/// The faults of [`everything`] that no run had.
fn never_hit(covered: &Covered) -> Vec<(String, String)> {
    let all = everything().into_iter();
    all.map(|(site, wrong)| (site, wrong.kind()))
        .filter(|what| !covered.contains_key(what))
        .collect()
}

/// The bugs of `--bugs`. Without them, `--planted` means all.
fn chosen(options: &Options) -> impl Iterator<Item = Bug> {
    let named = |bug: &Bug| options.bugs.contains(&format!("{bug:?}"));
    Bug::ALL
        .iter()
        .copied()
        .filter(move |bug| named(bug) || (options.bugs.is_empty() && options.planted))
}

/// Plants bugs, and prints the seed that finds each.
fn planted(seeds: &Range<u64>, options: &Options) -> anyhow::Result<ExitCode> {
    let bugs: Vec<Bug> = chosen(options).collect();
    let all = look(&bugs, seeds.clone(), |bug, seed, seen| {
        println!("{bug:?}: seed {seed}: {seen}");
    })?;
    let missed: Vec<_> = all.iter().filter(|one| one.found.is_none()).collect();
    for looked in &missed {
        println!("{:?}: none of {}", looked.bug, options.seeds);
    }
    if let Some(path) = &options.update_docs {
        write(path, &all, seeds)?;
    }
    println!("{} of {} found", all.len() - missed.len(), all.len());
    Ok(verdict(missed.is_empty()))
}

/// Plays all runs of [`exhaustive`] for both lives.
fn all_of_a_life() -> anyhow::Result<ExitCode> {
    let mut right = true;
    for life in Life::ALL {
        let faults = exhaustive::Faults::of(life)?;
        let progress = Progress::new(faults.pairs());
        let played = exhaustive::play(&faults, |holds| progress.played(holds))?;
        for (plan, first) in played.failed.iter().take(20) {
            println!("{first}");
            plan.lines().iter().for_each(|line| println!("  {line}"));
        }
        let (one, two) = played.runs;
        println!(
            "{life:?}: {one} runs with one fault and {two} with two in {:.0} s, {} failed",
            progress.began.elapsed().as_secs_f64(),
            played.failed.len()
        );
        right &= played.failed.is_empty();
    }
    Ok(verdict(right))
}

/// Plays one plan. If it fails, prints the shortest plan that still fails.
fn one(plan: Plan, options: &Options) -> anyhow::Result<ExitCode> {
    let filter: EnvFilter = options.logs.parse()?;
    let bug = chosen(options).next();
    plant(bug);
    let violations = judge(&plan)?.violations;
    if violations.is_empty() {
        let report = logged(&plan, filter)?;
        println!(
            "seed {}: all invariants hold, digest {:016x}",
            plan.seed, report.digest
        );
        return Ok(ExitCode::SUCCESS);
    }
    let plan = shortest(plan, &violations)?;
    let report = logged(&plan, filter)?;
    println!("the shortest plan that fails:");
    plan.lines().iter().for_each(|line| println!("  {line}"));
    for violation in &report.violations {
        println!("VIOLATION {violation}");
    }
    if let Some(path) = &options.keep {
        let shows = match bug {
            Some(bug) => format!("{} {}", bug.finding(), bug.what()),
            None => report.violations.join("; "),
        };
        let kept = Regression {
            shows: shows.trim().to_owned(),
            bug: bug.map(|bug| format!("{bug:?}")),
            plan,
        };
        std::fs::write(path, kept.text()?)?;
    }
    Ok(ExitCode::FAILURE)
}

/// Removes parts that the failure does not need, one by one: faults first, then steps.
fn shortest(mut plan: Plan, violations: &[String]) -> anyhow::Result<Plan> {
    let kind = violations.first().map(|first| kind(first));
    loop {
        let before = plan.len();
        let mut index = 0;
        while index < plan.len() {
            let less = plan.without(index);
            let again = judge(&less)?.violations;
            if again.iter().any(|one| Some(self::kind(one)) == kind) {
                plan = less;
            } else {
                index += 1;
            }
        }
        if plan.len() == before {
            return Ok(plan);
        }
    }
}

/// A violation without the numbers in it.
fn kind(violation: &str) -> String {
    let numbers = |c: &char| !c.is_ascii_digit();
    violation.chars().filter(numbers).collect()
}

/// Plays a plan, and prints its trace with the logs in it.
fn logged(plan: &Plan, filter: EnvFilter) -> anyhow::Result<Report> {
    let mut guard = None;
    let report = play(plan, || {
        let trace = Trace::new();
        let into = trace.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_env_filter(filter)
            .with_ansi(false)
            .without_time()
            .with_writer(move || Logs(into.clone()))
            .finish();
        guard = Some(tracing::subscriber::set_default(subscriber));
        trace
    })?;
    report.lines.iter().for_each(|line| println!("{line}"));
    Ok(report)
}

/// Adds logs to the trace as lines.
struct Logs(Trace);

impl io::Write for Logs {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        self.0.log(&String::from_utf8_lossy(text));
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
