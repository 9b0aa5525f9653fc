//! A demonstration of the main job: a real kube-apiserver, the `ccm` and a provider process.
//!
//! The exit code is 0 only if every step succeeded.

mod cloud;
mod stage;
mod steps;

use std::process::ExitCode;
use std::task::Poll;

use tokio::signal::unix::{SignalKind, signal};

use stage::Stage;
use testenv::Vendor;

#[tokio::main]
async fn main() -> ExitCode {
    let (keep, vendor) = match options(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(error) => {
            eprintln!("error: {error}");
            return ExitCode::from(2);
        }
    };
    // Whichever branch ends first, the stage is dropped, and that ends the demo's processes.
    let (told, mut ending) = tokio::sync::oneshot::channel();
    tokio::select! {
        code = demo(keep, vendor, told) => code,
        () = asked_to_end() => {
            if ending.try_recv().is_ok() {
                println!("\nStopped; nothing is left running.");
                return ExitCode::SUCCESS;
            }
            eprintln!("\nThe demo was interrupted.");
            ExitCode::FAILURE
        }
    }
}

/// Whether to leave everything running, and the vendor of the cloud; the mock by default.
fn options(arguments: impl Iterator<Item = String>) -> Result<(bool, Option<Vendor>), String> {
    let (mut keep, mut vendor) = (false, None);
    for argument in arguments {
        match argument.split_once('=') {
            None if argument == "--keep" => keep = true,
            Some(("--cloud", name)) => {
                vendor = Some(Vendor::of_name(name).map_err(|error| error.to_string())?);
            }
            _ => {
                return Err(format!(
                    "{argument:?} is no option of the demo; the options are --keep and --cloud=NAME"
                ));
            }
        }
    }
    Ok((keep, vendor))
}

/// Runs the demo. `over` gets a message when every step has succeeded and everything is left
/// running.
async fn demo(
    keep: bool,
    vendor: Option<Vendor>,
    over: tokio::sync::oneshot::Sender<()>,
) -> ExitCode {
    let mut stage = match Stage::set(vendor).await {
        Ok(stage) => stage,
        Err(error) => {
            eprintln!("Cannot start the demo: {error}");
            return ExitCode::FAILURE;
        }
    };
    if let Err(error) = steps::play(&mut stage).await {
        let logs = stage.keep_logs();
        eprintln!("\nThis step FAILED: {error}\nLogs: {}", logs.display());
        return ExitCode::FAILURE;
    }
    println!("\nAll steps passed in {:.0} s.", stage.age().as_secs_f64());
    if keep {
        stage.tell_how_to_play();
        // The receiver listens until this future is dropped.
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

#[cfg(test)]
mod tests {
    use super::{Vendor, options};

    fn of(words: &[&str]) -> Result<(bool, Option<Vendor>), String> {
        options(words.iter().map(|word| (*word).to_owned()))
    }

    #[test]
    fn a_cloud_that_there_is_not_is_an_error_that_names_those_there_are() {
        assert_eq!(of(&[]), Ok((false, None)));
        let hetzner = Ok((true, Some(Vendor::Hetzner)));
        assert_eq!(of(&["--keep", "--cloud=hetzner"]), hetzner);
        for (word, right) in [
            ("--cloud=azure", "digitalocean, hetzner"),
            ("--clod", "--cloud=NAME"),
        ] {
            let error = of(&[word]).unwrap_err();
            assert!(error.contains(right), "{error}");
        }
    }
}
