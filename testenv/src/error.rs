use std::{io, path::PathBuf};

/// Why the test environment failed: a text for a person at a terminal.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Go is not installed, or older than the Go module wants.
    #[error(
        "the test control plane needs Go {wanted} or newer ({found}): install it from https://go.dev/dl"
    )]
    Go {
        /// The version that go.mod asks for.
        wanted: String,
        /// The version that was found.
        found: String,
    },
    /// There is no such minor of Kubernetes here.
    #[error(
        "TESTENV_KUBERNETES is {found:?}; valid are {}; unset means the newest",
        known.join(", ")
    )]
    Kubernetes {
        /// The value of `TESTENV_KUBERNETES`.
        found: String,
        /// The possible values.
        known: Vec<String>,
    },
    /// `go build` failed.
    #[error("cannot build the Go module in {directory}:\n{output}")]
    Build {
        /// The folder of the Go module.
        directory: PathBuf,
        /// The output of `go build`.
        output: String,
    },
    /// An error with a file, directory or process.
    #[error("{what}: {source}")]
    Io {
        /// The attempted action.
        what: String,
        /// Why it failed.
        source: io::Error,
    },
    /// A component ended, or was not ready in time.
    #[error("{what}\n--- end of {log}:\n{tail}")]
    NotReady {
        /// Which component, and what was seen.
        what: String,
        /// Its log file (kept with `TESTENV_KEEP=1`).
        log: PathBuf,
        /// The last lines of the log.
        tail: String,
    },
    /// This machine cannot run a whole cluster.
    #[error("cannot run a whole cluster (make e2e) here; missing:\n{0}")]
    Prerequisites(String),
    /// A command failed that should have succeeded.
    #[error("{what} failed ({status}):\n{output}")]
    Command {
        /// The attempted action.
        what: String,
        /// How it ended.
        status: std::process::ExitStatus,
        /// Its output.
        output: String,
    },
    /// A process did not end in time.
    #[error("{program} (pid {pid}) still runs after {after:?}")]
    StillRuns {
        /// The program's name.
        program: String,
        /// Its process id.
        pid: u32,
        /// How long the caller waited for its end.
        after: std::time::Duration,
    },
    /// An input is wrong, for example values that helm or kustomize refused.
    #[error("{0}")]
    Refused(String),
    /// Making certificates failed.
    #[error("cannot make a certificate: {0}")]
    Certificate(#[from] rcgen::Error),
    /// A kubeconfig that we wrote could not be read.
    #[error("kubeconfig: {0}")]
    Kubeconfig(#[from] kube::config::KubeconfigError),
    /// A Kubernetes client could not be made.
    #[error("Kubernetes client: {0}")]
    Client(#[from] kube::Error),
}

/// Adds the attempted action to an [`io::Error`].
pub(crate) trait While<T> {
    /// Turns the error into [`Error::Io`] with `what` before it.
    fn while_doing(self, what: impl FnOnce() -> String) -> Result<T, Error>;
}

impl<T> While<T> for io::Result<T> {
    fn while_doing(self, what: impl FnOnce() -> String) -> Result<T, Error> {
        self.map_err(|source| Error::Io {
            what: what(),
            source,
        })
    }
}
