//! A provider that is a process of its own: for what only a process can do, such as to die by
//! SIGKILL in the middle of a call.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use provider_mock::{Cloud, Fixture, ctl};
use serde_json::Value;
use testenv::{Process, eventually};

use crate::world::SOON;

const SOCKET: &str = "CCM_TEST_PROVIDER_SOCKET";
const STATE: &str = "CCM_TEST_PROVIDER_STATE";

/// A mock provider in its own process, with a cloud that outlives it in a file.
pub struct Provider {
    process: Process,
    directory: PathBuf,
}

impl Provider {
    /// Starts the process. Processes with the same directory have the same cloud.
    pub async fn start(directory: &Path) -> Self {
        let mut command = Command::new(env::current_exe().unwrap());
        command
            .args(["--exact", "process::provider_process", "--nocapture"])
            .env(SOCKET, socket(directory))
            .env(STATE, directory.join("cloud.json"));
        let process = Process::start(command, directory.join("provider.log")).unwrap();
        let provider = Self {
            process,
            directory: directory.to_owned(),
        };
        eventually("the provider answers", SOON, async || {
            provider.try_ctl(&provider_mock::Command::FaultList).await
        })
        .await;
        provider
    }

    /// The value of `--provider`.
    pub fn endpoint(directory: &Path) -> String {
        format!("own=unix://{}", socket(directory).display())
    }

    /// The same as `provider-mock ctl`.
    pub async fn ctl(&self, command: provider_mock::Command) -> Value {
        self.try_ctl(&command).await.unwrap()
    }

    async fn try_ctl(&self, command: &provider_mock::Command) -> Result<Value, String> {
        let endpoint = format!("unix://{}", socket(&self.directory).display());
        let mut channel = ctl::dial(&endpoint).await?;
        ctl::run(&mut channel, command).await
    }

    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }
}

fn socket(directory: &Path) -> PathBuf {
    directory.join("own/provider.sock")
}

/// The provider's process runs this: `Provider::start` starts this test binary with only this test.
/// Without the environment variables it does nothing.
#[test]
fn provider_process() {
    let (Some(socket), Some(state)) = (env::var_os(SOCKET), env::var_os(STATE)) else {
        return;
    };
    let endpoint = format!("unix://{}", Path::new(&socket).display());
    let cloud = Cloud::open(Fixture::default(), Some(Path::new(&state))).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    // The process ends in this call: by a scripted crash, or when the test kills it.
    runtime
        .block_on(async { provider_mock::serve(cloud, &endpoint).await })
        .unwrap();
}
