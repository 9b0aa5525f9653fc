//! From the traits to tonic services.

pub(crate) mod run;
