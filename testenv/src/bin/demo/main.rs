//! The main job before the reader's eyes: a real kube-apiserver, the `ccm` and a provider process.
//!
//! Exit code 0 only when every step was seen to hold.

mod stage;
mod steps;

use std::process::ExitCode;
use std::task::Poll;

use tokio::signal::unix::{SignalKind, signal};

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
    // Whatever ends the demo, the processes that it started end with it.
    let (told, mut ending) = tokio::sync::oneshot::channel();
    tokio::select! {
        code = demo(keep, told) => code,
        () = asked_to_end() => {
            if ending.try_recv().is_ok() {
                println!("\nStopped; nothing is left running.");
                return ExitCode::SUCCESS;
            }
            eprintln!("\nThe demo was ended before its time.");
            ExitCode::FAILURE
        }
    }
}

/// Plays; `over` is told when every step was seen to hold and all of it is left running.
async fn demo(keep: bool, over: tokio::sync::oneshot::Sender<()>) -> ExitCode {
    let mut stage = match Stage::set().await {
        Ok(stage) => stage,
        Err(error) => {
            eprintln!("The stage could not be set: {error}");
            return ExitCode::FAILURE;
        }
    };
    if let Err(error) = steps::play(&mut stage).await {
        let logs = stage.keep_logs();
        eprintln!(
            "\nThis step did NOT hold: {error}\nLogs: {}",
            logs.display()
        );
        return ExitCode::FAILURE;
    }
    println!("\nEvery step held, in {:.0} s.", stage.age().as_secs_f64());
    if keep {
        stage.tell_how_to_play();
        // Whoever listens listens until we are dropped.
        let _ = over.send(());
        std::future::pending::<()>().await;
    }
    ExitCode::SUCCESS
}

async fn asked_to_end() {
    let signals = [
        SignalKind::interrupt(),
        SignalKind::terminate(),
        SignalKind::hangup(),
    ];
    let mut streams: Vec<_> = signals
        .into_iter()
        .filter_map(|kind| signal(kind).ok())
        .collect();
    std::future::poll_fn(|context| {
        let mut asked = false;
        for stream in &mut streams {
            asked |= stream.poll_recv(context).is_ready();
        }
        if asked {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    })
    .await;
}
