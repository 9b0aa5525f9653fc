//! Checks whether the provider on a socket answers. For the kubelet's exec probes, because its gRPC
//! probes do not support Unix sockets.

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use cloud_provider_api::v1alpha1 as pb;
use hyper_util::rt::TokioIo;
use pb::provider_service_client::ProviderServiceClient;
use tokio::net::UnixStream;
use tonic::codegen::http::Uri;
use tonic::transport::Endpoint;

use crate::socket::{ServeError, path_of};
use crate::{Health, HealthState};

/// The default limit for a probe.
const PATIENCE: Duration = Duration::from_secs(1);

/// Why a probe failed: a sentence for the operator, who reads it in `kubectl describe pod`.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProbeError {
    /// The endpoint is invalid.
    #[error(transparent)]
    Endpoint(#[from] ServeError),
    /// The socket does not exist.
    #[error("the socket {} does not exist: the provider has not started to serve, or serves elsewhere", .0.display())]
    Missing(PathBuf),
    /// The socket exists, and no process listens on it.
    #[error("no process listens on the socket {}: the provider is not running, or does not listen yet", .0.display())]
    NotListening(PathBuf),
    /// This user may not connect to the socket.
    #[error(
        "uid {uid}, gid {gid} may not connect to the socket {}: probe as the provider's user, or with its primary group",
        path.display()
    )]
    Denied {
        /// The socket.
        path: PathBuf,
        /// The user ID of the probe.
        uid: u32,
        /// The primary group ID of the probe.
        gid: u32,
    },
    /// The provider accepts no connections.
    #[error("the queue of the socket {} is full: the provider accepts no connections", .0.display())]
    Full(PathBuf),
    /// Any other error of the system.
    #[error("cannot connect to the socket {}: {source}", path.display())]
    Io {
        /// The socket.
        path: PathBuf,
        /// The error.
        source: io::Error,
    },
    /// The provider does not answer.
    #[error("no answer from {} within {patience:?}: the provider hangs, or has too little CPU", path.display())]
    Late {
        /// The socket.
        path: PathBuf,
        /// How long the probe waited.
        patience: Duration,
    },
    /// The connection broke, or the peer does not speak gRPC.
    #[error(
        "the process that listens on {} did not answer as a provider ({cause}): it is no provider, it is ending, or it does not accept uid {uid}",
        path.display()
    )]
    NoAnswer {
        /// The socket.
        path: PathBuf,
        /// The error of the connection.
        cause: String,
        /// The user ID of the probe.
        uid: u32,
    },
    /// The provider answered with a gRPC status instead of a health state.
    #[error("Probe was answered with the gRPC status {code:?}: {message}")]
    Status {
        /// The status.
        code: tonic::Code,
        /// Its text.
        message: String,
    },
}

/// Asks the provider at this endpoint for its health, and waits at most `patience`. `Probe` is
/// answered from memory (PROV-4), so a failing cloud does not make a provider look dead.
pub async fn probe(endpoint: &str, patience: Duration) -> Result<Health, ProbeError> {
    let path = path_of(endpoint)?;
    let asked = tokio::time::timeout(patience, ask(&path)).await;
    let answer = asked.unwrap_or_else(|_| {
        Err(ProbeError::Late {
            path: path.clone(),
            patience,
        })
    })?;
    let state = match answer.state() {
        pb::ProbeState::Starting => HealthState::Starting,
        pb::ProbeState::Ready => HealthState::Ready,
        pb::ProbeState::Degraded => HealthState::Degraded,
        // The contract treats an unspecified state as broken.
        pb::ProbeState::Broken | pb::ProbeState::Unspecified => HealthState::Broken,
    };
    Ok(Health {
        state,
        message: answer.message,
    })
}

async fn ask(path: &Path) -> Result<pb::ProbeResponse, ProbeError> {
    let uid = rustix::process::geteuid().as_raw();
    let stream = UnixStream::connect(path).await.map_err(|source| {
        let path = path.to_owned();
        match source.kind() {
            io::ErrorKind::NotFound => ProbeError::Missing(path),
            io::ErrorKind::ConnectionRefused => ProbeError::NotListening(path),
            io::ErrorKind::WouldBlock => ProbeError::Full(path),
            io::ErrorKind::PermissionDenied => ProbeError::Denied {
                path,
                uid,
                gid: rustix::process::getegid().as_raw(),
            },
            _ => ProbeError::Io { path, source },
        }
    })?;
    let no_answer = |error: &(dyn std::error::Error + 'static)| ProbeError::NoAnswer {
        path: path.to_owned(),
        cause: root(error),
        uid,
    };
    let mut once = Some(TokioIo::new(stream));
    let connector = tower::service_fn(move |_: Uri| {
        // Never opens a second connection: a broken connection is the result.
        let stream = once.take().ok_or(io::ErrorKind::ConnectionReset.into());
        async move { stream as io::Result<_> }
    });
    let channel = Endpoint::from_static("http://localhost")
        .connect_with_connector(connector)
        .await
        .map_err(|error| no_answer(&error))?;
    match ProviderServiceClient::new(channel)
        .probe(pb::ProbeRequest {})
        .await
    {
        Ok(answer) => Ok(answer.into_inner()),
        // A status with a local error as its source was not sent by the provider.
        Err(status) => Err(match std::error::Error::source(&status) {
            Some(source) => no_answer(source),
            None => ProbeError::Status {
                code: status.code(),
                message: status.message().to_owned(),
            },
        }),
    }
}

/// The innermost source of an error.
fn root(error: &(dyn std::error::Error + 'static)) -> String {
    let mut deepest = error;
    while let Some(source) = deepest.source() {
        deepest = source;
    }
    deepest.to_string()
}

/// The parsed arguments of `probe` in a provider's program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProbeCommand {
    /// The provider's endpoint.
    pub endpoint: String,
    /// The limit for the probe.
    pub timeout: Duration,
    /// Whether the provider must be READY or DEGRADED. Otherwise every health state is a success.
    pub ready: bool,
}

impl ProbeCommand {
    /// Parses the arguments after `probe`: `[--endpoint unix:///PATH] [--timeout 1s] [--ready]`.
    pub fn parse(
        arguments: impl IntoIterator<Item = OsString>,
        default_endpoint: &str,
    ) -> Result<Self, String> {
        const USAGE: &str = "usage: probe [--endpoint unix:///PATH] [--timeout 1s] [--ready]";
        let mut command = Self {
            endpoint: default_endpoint.to_owned(),
            timeout: PATIENCE,
            ready: false,
        };
        let mut arguments = arguments.into_iter();
        while let Some(argument) = arguments.next() {
            let argument = text(argument)?;
            let (flag, given) = match argument.split_once('=') {
                Some((flag, value)) => (flag, Some(value.to_owned())),
                None => (&*argument, None),
            };
            let mut value = || match given.clone() {
                Some(value) => Ok(value),
                None => arguments
                    .next()
                    .map_or_else(|| Err(format!("{flag} has no value; {USAGE}")), text),
            };
            match flag {
                "--endpoint" => command.endpoint = value()?,
                "--timeout" => command.timeout = duration(&value()?)?,
                "--ready" if given.is_none() => command.ready = true,
                _ => return Err(format!("{argument:?} is not known; {USAGE}")),
            }
        }
        Ok(command)
    }

    /// Runs the probe and returns its result in one line. `Err`: the probe failed.
    ///
    /// A provider is live if it answers `Probe` with any health state, because a restart does not
    /// help against a failing cloud. With `ready`, it must answer READY or DEGRADED, the states in
    /// which the controllers work.
    pub async fn run(&self) -> Result<String, String> {
        let wanted = if self.ready { "ready" } else { "live" };
        match probe(&self.endpoint, self.timeout).await {
            Err(error) => Err(format!("not {wanted}: {error}")),
            Ok(health) => {
                let state = match health.state {
                    HealthState::Starting => "STARTING",
                    HealthState::Ready => "READY",
                    HealthState::Degraded => "DEGRADED",
                    HealthState::Broken => "BROKEN",
                };
                let why = match &*health.message {
                    "" => String::new(),
                    message => format!(" ({})", message.replace(['\n', '\r'], " ")),
                };
                let works = matches!(health.state, HealthState::Ready | HealthState::Degraded);
                if works || !self.ready {
                    Ok(format!("{wanted}: the provider says {state}{why}"))
                } else {
                    Err(format!("not {wanted}: the provider says {state}{why}"))
                }
            }
        }
    }
}

fn text(argument: OsString) -> Result<String, String> {
    argument
        .into_string()
        .map_err(|argument| format!("{} is not UTF-8", argument.display()))
}

/// Parses `500ms`, `1s` or `1m`: a whole number above zero, and a unit.
fn duration(text: &str) -> Result<Duration, String> {
    let digits = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let of = |milliseconds: u64| number.parse::<u64>().ok()?.checked_mul(milliseconds);
    let milliseconds = match unit {
        "ms" => of(1),
        "s" => of(1_000),
        "m" => of(60_000),
        _ => None,
    };
    match milliseconds {
        Some(milliseconds) if milliseconds > 0 => Ok(Duration::from_millis(milliseconds)),
        _ => Err(format!(
            "--timeout {text:?} is not a duration; write a whole number and a unit, such as 500ms or 1s"
        )),
    }
}

/// Call this first in a provider's `main`. If the program's first argument is `probe`, this
/// function probes the provider at `endpoint`, or at the endpoint of `--endpoint`. It prints one
/// line, and returns the exit code: 0 for success, 1 for a failed probe or an invalid endpoint, 2
/// for other wrong arguments.
/// `None`: the first argument is not `probe`, and the program should serve.
///
/// ```no_run
/// # use provider_sdk::*;
/// # #[tokio::main]
/// # async fn main() -> std::process::ExitCode {
/// if let Some(code) = probe_command(DEFAULT_ENDPOINT).await {
///     return code;
/// }
/// // Server::new(…).serve_until_signal() …
/// # std::process::ExitCode::SUCCESS
/// # }
/// ```
pub async fn probe_command(endpoint: &str) -> Option<ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next()? != "probe" {
        return None;
    }
    Some(match ProbeCommand::parse(arguments, endpoint) {
        Ok(command) => match command.run().await {
            Ok(line) => {
                // The exit code is the result, even if nobody reads the line.
                let _ = writeln!(io::stdout(), "{line}");
                ExitCode::SUCCESS
            }
            Err(line) => {
                let _ = writeln!(io::stderr(), "{line}");
                ExitCode::FAILURE
            }
        },
        Err(wrong) => {
            let _ = writeln!(io::stderr(), "{wrong}");
            ExitCode::from(2)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(arguments: &[&str]) -> Result<ProbeCommand, String> {
        ProbeCommand::parse(arguments.iter().map(OsString::from), "unix:///d/p.sock")
    }

    #[test]
    fn arguments_are_read_in_either_form_and_wrong_ones_are_named() {
        let plain = ProbeCommand {
            endpoint: "unix:///d/p.sock".to_owned(),
            timeout: Duration::from_secs(1),
            ready: false,
        };
        assert_eq!(parse(&[]), Ok(plain.clone()));
        let all = ProbeCommand {
            endpoint: "unix:///e/p.sock".to_owned(),
            timeout: Duration::from_millis(1_500),
            ready: true,
        };
        assert_eq!(
            parse(&[
                "--ready",
                "--endpoint=unix:///e/p.sock",
                "--timeout",
                "1500ms"
            ])
            .as_ref(),
            Ok(&all)
        );
        assert_eq!(
            parse(&[
                "--endpoint",
                "unix:///e/p.sock",
                "--timeout=1500ms",
                "--ready"
            ]),
            Ok(all)
        );
        for (arguments, word) in [
            (&["--timeout", "soon"][..], "\"soon\""),
            (&["--timeout", "0s"], "\"0s\""),
            (&["--timeout", "99999999999999999999s"], "999s"),
            (&["--timeout"], "no value"),
            (&["--endpoint"], "no value"),
            (&["--ready=yes"], "--ready=yes"),
            (&["serve"], "serve"),
        ] {
            let wrong = parse(arguments).unwrap_err();
            assert!(wrong.contains(word), "{arguments:?}: {wrong}");
        }
    }
}
