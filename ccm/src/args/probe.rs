//! `ccm probe`: the only subcommand.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;

use super::parse;

/// Probe the provider on a socket, print one line, and exit with 0 or 1. It serves exec probes,
/// since the kubelet's gRPC probe takes no Unix socket.
///
/// Any state means that the provider is alive: the kubelet must not kill it because its cloud is
/// down. With --ready the answer must be READY or DEGRADED.
#[derive(Debug, Parser)]
#[command(name = "ccm probe", max_term_width = 120)]
pub struct ProbeArgs {
    /// The socket of the provider.
    #[arg(long, value_name = "ENDPOINT", env = "CLOUD_PROVIDER_ENDPOINT", default_value = "unix:///run/cloud-provider/socket/provider.sock", value_parser = parse::endpoint)]
    endpoint: PathBuf,

    /// How long the provider may take. Choose less than the probe's `timeoutSeconds`, or the
    /// kubelet ends this command before it prints the reason.
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = parse::positive)]
    timeout: Duration,

    /// Require READY or DEGRADED, the states in which the controllers work.
    #[arg(long)]
    ready: bool,
}

impl ProbeArgs {
    /// Reads the command line if its first argument is `probe`. Otherwise returns `None`.
    pub fn parse_from_command_line(
        line: impl IntoIterator<Item = impl Into<OsString>>,
    ) -> Option<Result<Self, clap::Error>> {
        let mut line = line.into_iter().map(Into::into);
        let program = line.next()?;
        if line.next()? != "probe" {
            return None;
        }
        Some(Self::try_parse_from(std::iter::once(program).chain(line)))
    }

    /// The socket, the longest time for an answer, and whether the provider must be ready.
    pub fn into_parts(self) -> (PathBuf, Duration, bool) {
        (self.endpoint, self.timeout, self.ready)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &[&str]) -> Option<Result<ProbeArgs, clap::Error>> {
        ProbeArgs::parse_from_command_line(line)
    }

    #[test]
    fn only_the_first_argument_makes_it_a_probe() {
        assert!(parse(&["ccm"]).is_none());
        assert!(parse(&["ccm", "--v=2", "probe"]).is_none());
        let defaults = parse(&["ccm", "probe"]).unwrap().unwrap().into_parts();
        let socket = PathBuf::from("/run/cloud-provider/socket/provider.sock");
        assert_eq!(defaults, (socket, Duration::from_secs(1), false));
        let flags = [
            "ccm",
            "probe",
            "--endpoint=unix:///d/p",
            "--timeout",
            "2s",
            "--ready",
        ];
        let given = parse(&flags).unwrap().unwrap().into_parts();
        assert_eq!(given, ("/d/p".into(), Duration::from_secs(2), true));
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (flag, word) in [
            ("--endpoint=/d/p", "must begin with unix://"),
            ("--endpoint=unix://d/p", "must be absolute"),
            ("--timeout=0s", "more than 0s"),
            ("--timeout=soon", "a duration such as"),
            ("--provider=x=unix:///d/p", "--provider"),
        ] {
            let error = parse(&["ccm", "probe", flag]).unwrap().unwrap_err();
            assert!(error.to_string().contains(word), "{flag}: {error}");
        }
    }
}
