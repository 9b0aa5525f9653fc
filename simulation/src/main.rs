//! `simulate`: plays seeds, and makes the plan of one that fails shorter.

use std::collections::BTreeMap;
use std::ops::Range;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use ccm::planted::{Bug, plant};
use clap::Parser;
use simulation::plan::Plan;
use simulation::run::run;

/// Plays the whole ccm in virtual time.
#[derive(Parser)]
struct Options {
    /// Plays this seed alone, and prints its trace.
    #[arg(long)]
    seed: Option<u64>,
    /// Plays so many seeds.
    #[arg(long, default_value_t = 100)]
    seeds: u64,
    /// The first of them.
    #[arg(long, default_value_t = 1)]
    from: u64,
    /// Plants each known bug in turn, and says which of the seeds finds it.
    #[arg(long)]
    planted: bool,
    /// Prints logs of this filter with the trace, for example `ccm=debug`.
    #[arg(long)]
    logs: Option<String>,
}

fn main() -> anyhow::Result<ExitCode> {
    let options = Options::parse();
    if let Some(filter) = &options.logs {
        tracing_subscriber::fmt()
            .with_env_filter(filter)
            .with_writer(std::io::stderr)
            .without_time()
            .init();
    }
    if let Some(seed) = options.seed {
        return one(seed);
    }
    let seeds = options.from..options.from + options.seeds;
    if options.planted {
        return planted(seeds);
    }
    let began = Instant::now();
    let played = AtomicU64::new(0);
    let done = || {
        let played = played.fetch_add(1, Ordering::Relaxed) + 1;
        if played.is_multiple_of(500) {
            let rate = played as f64 / began.elapsed().as_secs_f64();
            println!("{played} of {} seeds, {rate:.0} a second", options.seeds);
        }
    };
    let (failed, covered) = many(seeds, None, done)?;
    for (seed, first) in &failed {
        println!("seed {seed}: {first}");
    }
    for ((site, kind), count) in covered {
        println!("covered {count:>6} {site}: {kind}");
    }
    let took = began.elapsed().as_secs_f64();
    println!(
        "{} seeds in {took:.1} s ({:.1} a second), {} failed",
        options.seeds,
        options.seeds as f64 / took,
        failed.len()
    );
    Ok(if failed.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

type Covered = BTreeMap<(String, String), u64>;

/// Plays these seeds on all cores. With a planted bug it ends at the first that fails.
fn many(
    seeds: Range<u64>,
    bug: Option<Bug>,
    done: impl Fn() + Sync,
) -> anyhow::Result<(BTreeMap<u64, String>, Covered)> {
    let next = AtomicU64::new(seeds.start);
    let found = Mutex::new((BTreeMap::new(), Covered::new()));
    let work = || -> anyhow::Result<()> {
        plant(bug);
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end {
                return Ok(());
            }
            let report = run(&Plan::of(seed))?;
            done();
            let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
            for (key, count) in report.hit {
                *found.1.entry(key).or_default() += count;
            }
            if let Some(first) = report.violations.into_iter().next() {
                found.0.insert(seed, first);
            }
            if bug.is_some() && !found.0.is_empty() {
                return Ok(());
            }
        }
    };
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..cores).map(|_| scope.spawn(work)).collect();
        threads.into_iter().try_for_each(|thread| {
            thread
                .join()
                .map_err(|_| anyhow::anyhow!("a run panicked"))?
        })
    })?;
    Ok(found.into_inner().unwrap_or_else(PoisonError::into_inner))
}

/// Plants each bug in turn, and says which seed finds it.
fn planted(seeds: Range<u64>) -> anyhow::Result<ExitCode> {
    let mut missed = 0;
    println!("| bug | found by seed | what is seen |\n|---|---|---|");
    for bug in Bug::ALL {
        let (failed, _) = many(seeds.clone(), Some(bug), || ())?;
        if let Some((seed, what)) = failed.into_iter().next() {
            println!("| {bug:?} | {seed} | {what} |");
        } else {
            missed += 1;
            println!("| {bug:?} | none of {} | |", seeds.end - seeds.start);
        }
    }
    Ok(if missed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn one(seed: u64) -> anyhow::Result<ExitCode> {
    let mut plan = Plan::of(seed);
    let mut report = run(&plan)?;
    if report.violations.is_empty() {
        report.lines.iter().for_each(|line| println!("{line}"));
        println!(
            "seed {seed}: all invariants hold, digest {:016x}",
            report.digest
        );
        return Ok(ExitCode::SUCCESS);
    }
    // Shorter as long as something fails.
    let mut index = 0;
    while index < plan.len() {
        let less = plan.without(index);
        let again = run(&less)?;
        if again.violations.is_empty() {
            index += 1;
        } else {
            (plan, report) = (less, again);
        }
    }
    report.lines.iter().for_each(|line| println!("{line}"));
    println!("the shortest plan that fails:");
    plan.lines().iter().for_each(|line| println!("  {line}"));
    report
        .violations
        .iter()
        .for_each(|line| println!("VIOLATION {line}"));
    Ok(ExitCode::FAILURE)
}
