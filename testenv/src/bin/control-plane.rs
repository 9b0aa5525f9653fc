//! Builds the test control plane if its sources changed, and prints its path. With `--machine` it
//! also builds the program of a cluster's machines, and prints only the path of that program. With
//! `--helm` it builds helm instead.

use std::process::ExitCode;

fn main() -> ExitCode {
    let given = |option: &str| std::env::args().any(|argument| argument == option);
    let built = if given("--helm") {
        testenv::helm_binary()
    } else if given("--machine") {
        testenv::Cluster::check_prerequisites()
            .and_then(|()| testenv::control_plane_binary())
            .and_then(|_| testenv::machine_binary())
    } else {
        testenv::control_plane_binary()
    };
    match built {
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
