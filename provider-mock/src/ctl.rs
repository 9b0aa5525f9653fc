//! The command line: `serve`, `probe`, `ctl`, `file` and `faults`.

mod args;
mod commands;
mod file;
mod tables;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use provider_sdk::ProbeCommand;
use serde_json::Value;
use tokio::net::UnixStream;
use tonic::transport::{Channel, Endpoint, Uri};
use tracing_subscriber::EnvFilter;

pub use args::{Args, Verb};

use crate::cloud::Cloud;
use crate::control::Command;
use crate::control::pb::RunRequest;
use crate::control::pb::control_service_client::ControlServiceClient;
use crate::error::StartError;
use crate::fixture::Fixture;
use crate::lies::Lie;

/// How long a command may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// Runs the command line.
pub async fn main() -> ExitCode {
    let args = Args::parse();
    let result = match args.verb {
        Verb::Serve {
            endpoint,
            cloud,
            state,
            fault,
            log_level,
        } => {
            if let Err(error) = log(&log_level) {
                Err(error)
            } else {
                serve(&endpoint, cloud, state, &fault)
                    .await
                    .map_err(|error| error.to_string())
            }
        }
        Verb::Probe {
            endpoint,
            timeout,
            ready,
        } => {
            let timeout = timeout.0;
            let probe = ProbeCommand {
                endpoint,
                timeout,
                ready,
            };
            probe.run().await.and_then(|line| print(&line))
        }
        Verb::Ctl {
            endpoint,
            json,
            command,
        } => ctl(&endpoint, json, *command).await,
        Verb::File(args) => file::run(*args).and_then(|text| print(&text)),
        Verb::Faults => print(&format!(
            "Named faults, for `serve --fault NAME`:\n\n{}\n\nKinds of scripted faults, for the YAML file and `ctl fault set RPC KIND`:\n\n{}",
            tables::lies(),
            tables::kinds()
        )),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("provider-mock: {error}");
            ExitCode::FAILURE
        }
    }
}

fn log(level: &str) -> Result<(), String> {
    let filter = EnvFilter::builder().parse(level).map_err(|error| {
        format!("--log-level {level:?}: {error}; write error, warn, info, debug or trace")
    })?;
    tracing_subscriber::fmt()
        .with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr()))
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .init();
    Ok(())
}

async fn serve(
    endpoint: &str,
    cloud: Option<PathBuf>,
    state: Option<PathBuf>,
    lies: &[&Lie],
) -> Result<(), StartError> {
    let fixture = match cloud {
        Some(path) => Fixture::load(&path)?,
        None => Fixture::default(),
    };
    let cloud = Cloud::open_when_free(fixture, state.as_deref()).await?;
    for lie in lies {
        cloud
            .tell(lie.name)
            .map_err(|error| StartError::Serve(error.to_string()))?;
        tracing::warn!(
            fault = lie.name,
            "the provider breaks the contract: {}",
            lie.what
        );
    }
    tracing::info!(instances = cloud.instance_count(), "cloud loaded");
    crate::server::serve(cloud, endpoint).await
}

async fn ctl(endpoint: &str, json: bool, verb: args::Ctl) -> Result<(), String> {
    let shows = verb.shows();
    let command = verb.command()?;
    let mut channel = dial(endpoint).await?;
    let result = run(&mut channel, &command).await?;
    print(&tables::print(shows, json, &result)?)
}

/// Prints a text unless it is empty. A reader that stops early (`| head`) is no error.
fn print(text: &str) -> Result<(), String> {
    if text.is_empty() {
        return Ok(());
    }
    match writeln!(std::io::stdout(), "{text}") {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(format!("cannot print: {error}"))
        }
        _ => Ok(()),
    }
}

/// Connects to the control service at this endpoint. The error explains how to start a mock there.
pub async fn dial(endpoint: &str) -> Result<Channel, String> {
    let path = endpoint
        .strip_prefix("unix://")
        .unwrap_or(endpoint)
        .to_owned();
    let shown = Path::new(&path).display().to_string();
    let connector = tower::service_fn(move |_: Uri| {
        let path = path.clone();
        async move {
            UnixStream::connect(path)
                .await
                .map(hyper_util::rt::TokioIo::new)
        }
    });
    Endpoint::from_static("http://localhost")
        .timeout(PATIENCE)
        .connect_with_connector(connector)
        .await
        .map_err(|error| {
            let mut why = error.to_string();
            let mut source = std::error::Error::source(&error);
            while let Some(cause) = source {
                why = cause.to_string();
                source = cause.source();
            }
            format!(
                "no mock answers on {shown}: {why}; start one with `provider-mock serve --endpoint unix://{shown} --cloud cloud.yaml`"
            )
        })
}

/// Runs one command over a connection.
pub async fn run(channel: &mut Channel, command: &Command) -> Result<Value, String> {
    let command_json = serde_json::to_string(command).map_err(|error| error.to_string())?;
    let mut client = ControlServiceClient::new(channel).max_decoding_message_size(usize::MAX);
    let response = client
        .run(RunRequest { command_json })
        .await
        .map_err(|status| match status.code() {
            tonic::Code::Unimplemented => {
                "the provider on this socket is not provider-mock: it has no control service"
                    .to_owned()
            }
            _ => status.message().to_owned(),
        })?;
    serde_json::from_str(&response.into_inner().result_json).map_err(|error| error.to_string())
}
