//! The main job before the reader's eyes: a real kube-apiserver, the `ccm` and a provider process.
//!
//! Exit code 0 only when every step was seen to hold.

mod stage;
mod steps;

use std::process::ExitCode;

use stage::Stage;

#[tokio::main]
async fn main() -> ExitCode {
    let keep = match std::env::args().nth(1).as_deref() {
        None => false,
        Some("--keep") => true,
        Some(other) => {
            eprintln!("error: {other:?} is no option of the demo; there is only --keep");
            return ExitCode::from(2);
        }
    };
    let mut stage = match Stage::set().await {
        Ok(stage) => stage,
        Err(error) => {
            eprintln!("The stage could not be set: {error}");
            return ExitCode::FAILURE;
        }
    };
    let result = steps::play(&mut stage).await;
    if let Err(error) = result {
        eprintln!(
            "\nThis step did NOT hold: {error}\nLogs: {}",
            stage.keep_logs().display()
        );
        return ExitCode::FAILURE;
    }
    println!("\nEvery step held, in {:.0} s.", stage.age().as_secs_f64());
    if keep {
        stage.leave_running().await;
    }
    ExitCode::SUCCESS
}
