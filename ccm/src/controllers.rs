//! The controllers. None imports another, except in tests and fuzzing.

pub(crate) mod node;
pub(crate) mod node_lifecycle;
pub(crate) mod route;
pub(crate) mod service;
pub(crate) mod volume;
