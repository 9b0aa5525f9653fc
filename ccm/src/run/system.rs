//! A run on a real system, with its signals, clock, randomness and sockets.

use std::path::Path;
use std::sync::Arc;

use jiff::Timestamp;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use super::{Deps, RunError, run};
use crate::args::{Config, ProbeArgs, version};
use crate::provider::UnixConnector;
use crate::{kube_client, lease, provider, serve};

/// Asks a provider for its state. Returns one line about the result.
pub async fn probe(args: ProbeArgs) -> Result<String, String> {
    let (socket, patience, ready) = args.into_parts();
    provider::probe(socket, patience, ready).await
}

/// Runs until SIGTERM or SIGINT, or until the run fails, for example because the Lease is lost.
///
/// A second signal ends the process at once.
pub async fn from_config(config: Config) -> Result<(), RunError> {
    let in_effect = serde_json::to_string(&config).unwrap_or_else(|error| error.to_string());
    tracing::info!(
        version = version::GIT_VERSION,
        commit = version::commit(),
        platform = version::platform(),
        configuration = in_effect,
        "starting the ccm"
    );
    let shutdown = CancellationToken::new();
    let (mut terminate, mut interrupt) = (
        signal(SignalKind::terminate()).map_err(RunError::Signals)?,
        signal(SignalKind::interrupt()).map_err(RunError::Signals)?,
    );
    let deps = deps(&config, shutdown.clone()).await?;
    let running = run(deps, config);
    tokio::pin!(running);
    let mut signals = 0;
    loop {
        tokio::select! {
            biased;
            result = &mut running => return result,
            Some(()) = terminate.recv() => {}
            Some(()) = interrupt.recv() => {}
        }
        signals += 1;
        if signals > 1 {
            return Err(RunError::Impatient);
        }
        tracing::info!("asked to end");
        shutdown.cancel();
    }
}

/// The environment of a real system: clients, sockets, clock and randomness.
async fn deps(config: &Config, shutdown: CancellationToken) -> Result<Deps, RunError> {
    let kube = kube_client::connect(config).await?;
    let anonymous = if config.use_service_account_credentials {
        Some(kube_client::connect_anonymously(config).await?)
    } else {
        None
    };
    let authentication = other(config.serve.authentication.kubeconfig.as_deref()).await?;
    let authorization = other(config.serve.authorization.kubeconfig.as_deref()).await?;
    let listener = match config.serve.port {
        0 => None,
        _ => Some(serve::Listener::bind(&config.serve).await?),
    };
    let webhook_listener = match &config.webhooks {
        None => None,
        Some(webhooks) => Some(serve::Listener::bind_webhooks(webhooks).await?),
    };
    let provider = config.providers.first().ok_or(RunError::NoProvider)?;
    let connector = Arc::new(UnixConnector {
        socket: provider.socket.clone(),
        peer_uid: provider.peer_uid,
    });
    let unique = uuid::Uuid::new_v4();
    let host = gethostname::gethostname().to_string_lossy().into_owned();
    Ok(Deps {
        kube,
        anonymous,
        authentication,
        authorization,
        connector,
        wall: Arc::new(Timestamp::now),
        seed: unique.as_u64_pair().1,
        identity: lease::identity(&host, unique),
        listener,
        webhook_listener,
        shutdown,
    })
}

async fn other(kubeconfig: Option<&Path>) -> anyhow::Result<Option<kube_client::Base>> {
    match kubeconfig {
        None => Ok(None),
        Some(path) => kube_client::connect_to(Some(path), None).await.map(Some),
    }
}
