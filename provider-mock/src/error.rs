//! Errors in commands and files.

/// Why the cloud refused a command.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CloudError {
    /// The object does not exist.
    #[error("{0}")]
    NotFound(String),
    /// The object exists already.
    #[error("{0}")]
    AlreadyExists(String),
    /// The object, or another value in the command, is malformed.
    #[error("{0}")]
    Invalid(String),
    /// The state file could not be written.
    #[error("{0}")]
    StateFile(String),
}

/// Why the mock could not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The cloud's file is missing or wrong.
    #[error("{0}")]
    Fixture(#[from] FixtureError),
    /// The state file cannot be used, or another process holds it.
    #[error("{0}")]
    State(String),
    /// The socket cannot be served.
    #[error("{0}")]
    Serve(String),
}

/// The errors in a cloud's file, one line each.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.join("\n"))]
pub struct FixtureError(pub Vec<String>);
