//! A process that competes for the Lease: this ccm, or upstream's.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http_body_util::BodyExt;
use kube::client::Body;
use kube::{Client, Config};
use provider_mock::Mock;
use testenv::{ControlPlane, Process, User, free_port};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use crate::link::Link;

/// How often a contender is asked whether it leads.
const PERIOD: Duration = Duration::from_millis(500);

/// The implementation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Ours,
    Go,
}

/// One process, and everything that is known about it.
pub struct Contender {
    pub kind: Kind,
    pub process: Process,
    pub link: Link,
    /// When the test resumed it after a suspension.
    pub woken: Option<Instant>,
    views: Arc<Mutex<Vec<View>>>,
    asks: JoinHandle<()>,
}

/// One answer to the question whether the process leads.
#[derive(Clone, Copy, Debug)]
pub struct View {
    pub asked: Instant,
    pub answered: Instant,
    pub leads: bool,
}

/// The inputs of a contender.
pub struct Start<'a> {
    pub plane: &'a ControlPlane,
    pub mock: &'a Mock,
    pub namespace: &'a str,
    /// For the log.
    pub directory: &'a Path,
    pub number: usize,
    /// A library for `LD_PRELOAD` that makes the wall clock wrong.
    pub clock: Option<PathBuf>,
}

impl Contender {
    pub async fn start(kind: Kind, with: Start<'_>) -> Self {
        let port = free_port();
        let selector = format!("arena%3D{}", with.namespace);
        let (user, mut command) = match kind {
            Kind::Ours => {
                let (ccm, endpoint) = (env!("CARGO_BIN_EXE_ccm"), with.mock.endpoint());
                let command = with.plane.ccm(ccm, "mock", &endpoint);
                (User::Ccm, command)
            }
            Kind::Go => {
                let mut command = with.plane.command("go-ccm");
                command.env("GO_CCM_LATENCY", "1ms").args([
                    "--cloud-provider=bench",
                    "--authentication-skip-lookup=true",
                    "--kube-api-content-type=application/json",
                    "-v=2",
                ]);
                command
                    .arg("--kubeconfig")
                    .arg(with.plane.kubeconfig(User::Admin));
                (User::Admin, command)
            }
        };
        let link = Link::start(with.plane, user, &selector).await;
        command
            .arg(link.flag())
            .arg(format!(
                "--leader-elect-resource-namespace={}",
                with.namespace
            ))
            .args([
                "--controllers=cloud-node-controller",
                "--bind-address=127.0.0.1",
                "--authorization-always-allow-paths=/healthz,/livez,/readyz,/metrics",
            ])
            .arg(format!("--secure-port={port}"));
        if let Some(clock) = with.clock {
            command.env("LD_PRELOAD", clock);
        }
        let log = format!("{}-{}-{kind:?}.log", with.namespace, with.number);
        let process = Process::start(command, with.directory.join(log)).unwrap();
        let views = Arc::default();
        let asks = tokio::spawn(ask(port, Arc::clone(&views)));
        Self {
            kind,
            process,
            link,
            woken: None,
            views,
            asks,
        }
    }

    /// The contender's identity in the Lease. `None` before it has led.
    pub fn identity(&self) -> Option<String> {
        let claims = self.link.claims();
        let named = claims.into_iter().find(|claim| !claim.holder.is_empty());
        named.map(|claim| claim.holder)
    }

    pub fn views(&self) -> Vec<View> {
        self.views.lock().unwrap().clone()
    }

    /// Whether it says that it leads.
    pub fn leads(&self) -> bool {
        self.views
            .lock()
            .unwrap()
            .last()
            .is_some_and(|view| view.leads)
    }
}

impl Drop for Contender {
    fn drop(&mut self) {
        self.asks.abort();
    }
}

/// Asks for `leader_election_master_status` for ever.
async fn ask(port: u16, views: Arc<Mutex<Vec<View>>>) {
    let mut config = Config::new(format!("https://127.0.0.1:{port}").parse().unwrap());
    config.accept_invalid_certs = true;
    config.default_retry = false;
    let client = Client::try_from(config).unwrap();
    loop {
        let asked = Instant::now();
        if let Ok(Some(leads)) = timeout(PERIOD * 5, says(&client)).await {
            let answered = Instant::now();
            views.lock().unwrap().push(View {
                asked,
                answered,
                leads,
            });
        }
        sleep(PERIOD).await;
    }
}

async fn says(client: &Client) -> Option<bool> {
    let request = http::Request::get("/metrics").body(Body::empty()).ok()?;
    let answer = client.send(request).await.ok()?;
    if !answer.status().is_success() {
        return None;
    }
    let text = answer.into_body().collect().await.ok()?.to_bytes();
    let text = String::from_utf8_lossy(&text);
    let line = text
        .lines()
        .find(|line| line.starts_with("leader_election_master_status{"));
    Some(line.is_some_and(|line| line.ends_with(" 1")))
}
