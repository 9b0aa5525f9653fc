//! The port over real sockets, with an API server in memory.

mod api_server;
mod caller;
mod certificates;
mod clients;
mod endpoints;
mod review;
mod strangers;
mod webhooks;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use clap::Parser;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::authorities::Authorities;
use super::connections::Limits;
use super::{Health, Listener, Reviewer, Site};
use crate::args::{Args, Config};
use api_server::ApiServer;
use caller::Caller;

/// A port that serves until it is dropped.
struct Port {
    address: SocketAddr,
    health: Health,
    api_server: ApiServer,
    authorities: Authorities,
    caller: Caller,
    shutdown: CancellationToken,
    serving: JoinHandle<()>,
}

impl Port {
    async fn open() -> Self {
        Self::open_with(&[], Limits::default()).await
    }

    async fn open_with(flags: &[&str], limits: Limits) -> Self {
        let config = config(flags);
        let listener = Listener::bind(&config.serve).await.unwrap();
        let address = listener.address();
        let caller = Caller::trusting(address, listener.certificate().as_slice());
        let authorities = listener.authorities();
        let api_server = ApiServer::default();
        let health = Health::default();
        let mut registry = Registry::default();
        let made = Counter::<u64>::default();
        made.inc();
        registry.register("things_made", "Things", made);
        let site = Site {
            health: health.clone(),
            registry: Arc::new(registry),
            ..site(config, &api_server, authorities.clone())
        };
        let shutdown = CancellationToken::new();
        let serving = tokio::spawn(super::serve_within(
            listener,
            site,
            shutdown.clone(),
            limits,
        ));
        Self {
            address,
            health,
            api_server,
            authorities,
            caller,
            shutdown,
            serving,
        }
    }

    /// The status of the answer to a GET.
    async fn status(&self, path: &str, token: Option<&str>) -> u16 {
        self.caller.get(path, token).await.status
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

fn site(config: Config, api_server: &ApiServer, authorities: Authorities) -> Site {
    Site {
        status: Arc::new(|| "all is well\n".to_owned()),
        health: Health::default(),
        registry: Arc::default(),
        reviewer: Reviewer::new(
            api_server.client(),
            api_server.client(),
            authorities,
            &config.serve,
        ),
        config: Arc::new(config),
    }
}

/// A configuration with a free port on 127.0.0.1.
fn config(flags: &[&str]) -> Config {
    let base = ["ccm", "--bind-address=127.0.0.1"];
    let mut config = Args::try_parse_from(base.iter().chain(flags))
        .unwrap()
        .into_config()
        .unwrap();
    config.serve.port = 0;
    config
}

/// Waits for a condition, for at most a minute.
async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let waited = tokio::time::timeout(Duration::from_mins(1), async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
    waited.await.unwrap_or_else(|_| panic!("never: {what}"));
}
