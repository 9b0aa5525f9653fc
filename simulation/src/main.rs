//! `simulate`: plays seeds, and makes the plan of one that fails shorter.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Instant;

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
    /// Prints logs of this filter with the trace, for example `ccm=debug`.
    #[arg(long)]
    logs: Option<String>,
}

fn main() -> anyhow::Result<ExitCode> {
    let options = Options::parse();
    if let Some(filter) = &options.logs {
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).without_time().init();
    }
    if let Some(seed) = options.seed {
        return one(seed);
    }
    let began = Instant::now();
    let mut covered: BTreeMap<(String, String), u64> = BTreeMap::new();
    let mut failed = Vec::new();
    for seed in options.from..options.from + options.seeds {
        let report = run(&Plan::of(seed))?;
        for (key, count) in report.hit {
            *covered.entry(key).or_default() += count;
        }
        if let Some(first) = report.violations.first() {
            println!("seed {seed}: {first}");
            failed.push(seed);
        }
    }
    let took = began.elapsed().as_secs_f64();
    println!("{} seeds in {took:.1} s ({:.1} a second), {} failed: {failed:?}", options.seeds, options.seeds as f64 / took, failed.len());
    for ((site, kind), count) in covered {
        println!("covered {count:>6} {site}: {kind}");
    }
    Ok(if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn one(seed: u64) -> anyhow::Result<ExitCode> {
    let mut plan = Plan::of(seed);
    let mut report = run(&plan)?;
    if report.violations.is_empty() {
        report.lines.iter().for_each(|line| println!("{line}"));
        println!("seed {seed}: all invariants hold, digest {:016x}", report.digest);
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
    report.violations.iter().for_each(|line| println!("VIOLATION {line}"));
    Ok(ExitCode::FAILURE)
}
