//! Nodes whose machine is gone or shut down.
