//! Flags and config file, parsed and validated into one [`Config`].

mod config;

pub use config::*;
