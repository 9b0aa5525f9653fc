//! The command line of `provider-conformance`.

use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use jiff::SignedDuration;
use tokio::sync::oneshot;

use super::config::Config;
use super::report::{Format, Report, is_gathered, text_of};
use super::suite::{Options, Progress, Selection, checks, run};
use super::target::Provider;

/// A check failed, could not run or lacks its setup (unless `--allow-skipped`), or the clean-up
/// failed.
const FAILED: u8 = 1;
/// The command line or suite.yaml is wrong, the provider cannot be reached, or the report cannot be
/// written.
const USAGE: u8 = 2;
/// The shell's exit code for SIGINT.
const INTERRUPTED: u8 = 130;

/// Checks a provider against the rules of the contract cloudprovider.v1alpha1.
///
/// The suite uses its own owner IDs, and removes what it made. It calls Initialize many times, with
/// other owner IDs. A controller of the same provider then gets NOT_INITIALIZED, so never run the
/// suite against a provider that a controller uses.
///
/// Exit codes. 0: each check passed, warned, or needs something that the provider, its cloud or this
/// machine does not have.
/// 1: a check failed, could not run or lacks its setup (unless --allow-skipped), or the suite could
/// not remove an object.
/// 2: the command line or suite.yaml is wrong, the suite cannot reach the provider, or it cannot
/// write the report.
/// 130: interrupted.
#[derive(Debug, Parser)]
#[command(name = "provider-conformance", version)]
pub struct Args {
    /// The endpoint of a running provider: unix:// and an absolute path.
    #[arg(long, value_name = "ENDPOINT", conflicts_with = "command")]
    endpoint: Option<String>,
    /// A shell command that starts the provider. The suite replaces {endpoint} in it with the
    /// endpoint to serve at, and sets CLOUD_PROVIDER_ENDPOINT to the same. It starts the provider,
    /// kills it and starts it again.
    #[arg(long, value_name = "COMMAND")]
    command: Option<String>,
    /// The file (suite.yaml) with the facts about the cloud that the suite cannot find out.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Run only the checks whose IDs match, such as 'instances/*'. May be repeated.
    #[arg(long, value_name = "GLOB")]
    only: Vec<String>,
    /// Leave out the checks whose IDs match. May be repeated.
    #[arg(long, value_name = "GLOB")]
    skip: Vec<String>,
    /// The format of the report.
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    format: Format,
    /// Also write the whole report to this file, as one JSON object. --format does not change it.
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Also print a line for each check that needs a capability that the provider does not offer,
    /// or that did not run because the provider does not answer. The other formats always have
    /// them.
    #[arg(long)]
    verbose: bool,
    /// Print each check's ID, rules and title.
    #[arg(long)]
    list: bool,
    /// How long each check for growing memory or open files runs, such as 90s or 1h.
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = duration)]
    soak: Duration,
    /// Do not exit with 1 only because checks lack their setup: a hook, an object of suite.yaml, or
    /// --command.
    #[arg(long)]
    allow_skipped: bool,
}

/// Runs the command line.
pub async fn main() -> ExitCode {
    let args = Args::parse();
    match execute(args).await {
        Ok(code) => code.into(),
        Err(error) => {
            eprintln!("provider-conformance: {error}");
            USAGE.into()
        }
    }
}

async fn execute(args: Args) -> Result<u8, String> {
    let selection = Selection::new(&args.only, &args.skip)?;
    if !checks().iter().any(|check| selection.takes(check.id)) {
        return Err("--only and --skip leave no check; --list prints all checks".into());
    }
    if args.list {
        return list(&selection).map(|()| 0);
    }
    let provider = match (args.endpoint, args.command) {
        (Some(endpoint), _) => Provider::Endpoint(endpoint),
        (None, Some(command)) => Provider::Command(command),
        (None, None) => return Err(
            "give --endpoint unix:///... of a running provider, or --command '...' that starts one"
                .into(),
        ),
    };
    let config = match &args.config {
        Some(path) => Config::load(path).map_err(|error| format!("--config {error}"))?,
        None => Config::default(),
    };
    let options = Options {
        provider,
        config,
        selection,
        soak: args.soak,
    };
    let (interrupted, at_once) = signals()?;
    let run = run(options, interrupted, |progress| {
        show(args.format, args.verbose, &progress);
    });
    // If this drops the run, it ends the provider that the suite started.
    let report = tokio::select! {
        report = run => report.map_err(|error| error.to_string())?,
        () = at_once => return Ok(INTERRUPTED),
    };
    // The summary names what a person has to remove, so it is printed even if the file cannot be
    // written.
    let printed = print(&report.write(args.format, args.verbose)?);
    if let Some(path) = &args.report {
        std::fs::write(path, report.write(Format::Json, true)?)
            .map_err(|error| format!("--report {}: {error}", path.display()))?;
    }
    printed?;
    if report.not_set_up() > 0 && !args.allow_skipped && !report.interrupted {
        eprintln!(
            "provider-conformance: {} checks lack their setup, so the exit code is {FAILED}: add what they name, or give --allow-skipped",
            report.not_set_up()
        );
    }
    Ok(code(&report, args.allow_skipped))
}

fn code(report: &Report, allow_skipped: bool) -> u8 {
    if report.interrupted {
        return INTERRUPTED;
    }
    let shown = allow_skipped || report.not_set_up() == 0;
    if report.failed() == 0 && report.not_tried() == 0 && report.left.is_empty() && shown {
        0
    } else {
        FAILED
    }
}

fn list(selection: &Selection) -> Result<(), String> {
    let lines: Vec<_> = checks()
        .into_iter()
        .filter(|check| selection.takes(check.id))
        .map(|check| format!("{}\t{}\t{}", check.id, check.rules.join(","), check.title))
        .collect();
    print(&lines.join("\n"))
}

/// If standard error is a terminal, shows the progress there. With the text format, also prints the
/// result of a check to standard output when the check ends, unless the summary groups it with
/// others.
fn show(format: Format, verbose: bool, progress: &Progress<'_>) {
    let terminal = std::io::stderr().is_terminal();
    match progress {
        Progress::Begins { id, number, of } if terminal => {
            eprint!("\r\x1b[K{number}/{of} {id}");
        }
        Progress::Begins { .. } => {}
        Progress::Ended(entry) => {
            if terminal {
                eprint!("\r\x1b[K");
            }
            if format == Format::Text && (verbose || !is_gathered(entry)) {
                // If the reader stops early, the clean-up still has to run.
                let _ = print(&text_of(entry));
            }
        }
    }
    let _ = std::io::stderr().flush();
}

/// A reader that stops early (`| head`) is no error.
fn print(text: &str) -> Result<(), String> {
    match writeln!(std::io::stdout(), "{}", text.trim_end_matches('\n')) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(format!("cannot print: {error}"))
        }
        _ => Ok(()),
    }
}

/// The first future resolves at SIGINT, SIGTERM or SIGHUP (the terminal is gone). The second one
/// resolves at a second SIGINT or SIGTERM, which ends the suite at once. Only the second one reads
/// the signals, so it has to be polled meanwhile.
fn signals() -> Result<(impl Future<Output = ()>, impl Future<Output = ()>), String> {
    use tokio::signal::unix::{SignalKind, signal};
    let on = |kind| signal(kind).map_err(|error| format!("cannot wait for signals: {error}"));
    let mut interrupt = on(SignalKind::interrupt())?;
    let mut terminate = on(SignalKind::terminate())?;
    let mut hang_up = on(SignalKind::hangup())?;
    let (first, told) = oneshot::channel();
    let interrupted = async {
        let _ = told.await;
    };
    let at_once = async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = hang_up.recv() => {}
        }
        // Standard error may be gone with the terminal.
        let _ = writeln!(
            std::io::stderr(),
            "\ninterrupted: the suite removes what it made; interrupt again to leave it in the cloud"
        );
        let _ = first.send(());
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    };
    Ok((interrupted, at_once))
}

fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is no duration; write one like 90s, 10m or 1h");
    let parsed: SignedDuration = text.parse().map_err(|_| wrong())?;
    Duration::try_from(parsed).map_err(|_| wrong())
}

#[cfg(test)]
mod tests {
    use super::super::report::Outcome;
    use super::super::report::tests::example;
    use super::*;

    #[test]
    fn the_exit_code_says_what_came_of_it() {
        let mut report = example();
        assert_eq!(code(&report, true), 1, "one failed");
        report
            .entries
            .retain(|entry| !matches!(entry.outcome, Outcome::Failed(_)));
        assert_eq!(code(&report, true), 1, "something was left behind");
        report.left.clear();
        assert_eq!(code(&report, true), 0);
        assert_eq!(code(&report, false), 1, "one was not shown");
        report.entries.retain(|entry| entry.id != "zones/four");
        let nothing_failed = "what is not offered is no failure, nor is a warning";
        assert_eq!(code(&report, false), 0, "{nothing_failed}");
        report.interrupted = true;
        assert_eq!(code(&report, true), 130);
    }

    #[test]
    fn durations_are_read_and_wrong_ones_named() {
        assert_eq!(duration("90s"), Ok(Duration::from_secs(90)));
        assert_eq!(duration("1h"), Ok(Duration::from_hours(1)));
        for wrong in ["", "soon", "-5s", "5"] {
            assert!(
                duration(wrong).unwrap_err().contains("no duration"),
                "{wrong}"
            );
        }
    }
}
