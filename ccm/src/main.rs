//! The `ccm` binary: parse, run, exit code.

use std::io::Write as _;
use std::process::ExitCode;

use anyhow::Context;
use ccm::args::{Args, ArgsError, LogFormat, ProbeArgs};
use ccm::core::text::Line;
use tracing_subscriber::EnvFilter;

fn main() -> ExitCode {
    match ProbeArgs::parse_from_command_line(std::env::args_os()) {
        None => {}
        Some(Ok(args)) => return probe(args),
        Some(Err(error)) => error.exit(),
    }
    let args = match Args::parse_from_command_line(std::env::args_os()) {
        Ok(args) => args,
        // Also --help.
        Err(ArgsError::CommandLine(error)) => error.exit(),
        Err(ArgsError::File(faults)) => {
            for fault in faults {
                eprintln!("error: {fault}");
            }
            return ExitCode::from(2);
        }
    };
    if let Some(version) = args.version() {
        println!("{version}");
        return ExitCode::SUCCESS;
    }
    start_log(args.log());
    for notice in args.notices() {
        tracing::warn!(
            flag = notice.flag,
            "this flag, or its value, has no effect: {}",
            notice.text
        );
    }
    let config = match args.into_config() {
        Ok(config) => config,
        Err(wrong) => {
            for error in wrong {
                eprintln!("error: {error}");
            }
            return ExitCode::from(2);
        }
    };
    let run = || {
        tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()
            .context("cannot start the runtime")?
            .block_on(ccm::run::from_config(config))
            .map_err(anyhow::Error::from)
    };
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn probe(args: ProbeArgs) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let result = match runtime {
        Ok(runtime) => runtime.block_on(ccm::run::probe(args)),
        Err(error) => Err(format!("cannot start the runtime: {error}")),
    };
    // The exit code is the result, even if the line cannot be written.
    match result {
        Ok(line) => {
            let _ = writeln!(std::io::stdout(), "{line}");
            ExitCode::SUCCESS
        }
        Err(line) => {
            let _ = writeln!(std::io::stderr(), "{line}");
            ExitCode::FAILURE
        }
    }
}

fn start_log((verbosity, format): (u16, LogFormat)) {
    let level = match verbosity {
        // kube's client and watcher log several times a second while the API server is away. The
        // ccm logs the same failures itself.
        0..=3 => "info,kube_client=off,kube_runtime=off",
        4..=5 => "info,kube_client=off,kube_runtime=off,ccm=debug",
        _ => "debug,ccm=trace",
    };
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(level));
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(false)
        .with_writer(|| Line(std::io::stderr()));
    match format {
        LogFormat::Text => log.init(),
        LogFormat::Json => log.json().flatten_event(true).init(),
    }
}
