//! The `ccm` binary: parse, run, exit code.

fn main() {}
