//! Builds the test control plane if its sources changed, and prints where it is.

use std::process::ExitCode;

fn main() -> ExitCode {
    match testenv::control_plane_binary() {
        Ok(path) => {
            println!("{}", path.display());
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
