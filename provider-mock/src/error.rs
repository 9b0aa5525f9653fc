//! What can be wrong with a command or a file.

/// Why a change of the cloud was refused, in a sentence that says what would be right.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CloudError {
    /// There is no such thing.
    #[error("{0}")]
    NotFound(String),
    /// There is one already.
    #[error("{0}")]
    AlreadyExists(String),
    /// It is not well-formed.
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
    /// The state file is there and cannot be used.
    #[error("{0}")]
    State(String),
    /// The socket cannot be served.
    #[error("{0}")]
    Serve(String),
}

/// What is wrong with a cloud's file, one line per fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.join("\n"))]
pub struct FixtureError(pub Vec<String>);
