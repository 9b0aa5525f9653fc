//! One Probe from outside, for the kubelet: whether a provider lives, or is ready.

use std::path::{Path, PathBuf};
use std::time::Duration;

use cloud_provider_api::v1alpha1 as api;
use tokio::time::timeout;

use super::connect::{Connection, Connector as _, UnixConnector};
use super::error::causes;
use super::maintain::client;
use super::weigh::Budget;
use super::{limits, probe_word};

/// Probes the provider on this socket, and returns the result in one line. `Err` if the probe
/// fails.
///
/// Any answer to Probe proves that the provider lives, since it answers from memory (PROV-4). A
/// failing cloud must not make the kubelet kill it.
pub(crate) async fn probe(
    socket: PathBuf,
    patience: Duration,
    ready: bool,
) -> Result<String, String> {
    let wanted = if ready { "ready" } else { "live" };
    let answer = match timeout(patience, ask(&socket)).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(why)) => return Err(format!("not {wanted}: {why}")),
        Err(_) => {
            return Err(format!(
                "not {wanted}: no answer from {} within {patience:?}: the provider hangs, or has too little CPU",
                socket.display()
            ));
        }
    };
    let state = match answer.state() {
        api::ProbeState::Unspecified => api::ProbeState::Broken,
        state => state,
    };
    let message = limits::cut(&answer.message);
    let why = match &*message {
        "" => String::new(),
        message => format!(" ({message})"),
    };
    let said = format!("the provider says {}{why}", probe_word(state));
    match state {
        api::ProbeState::Ready | api::ProbeState::Degraded => Ok(format!("{wanted}: {said}")),
        _ if ready => Err(format!("not {wanted}: {said}")),
        _ => Ok(format!("{wanted}: {said}")),
    }
}

async fn ask(socket: &Path) -> Result<api::ProbeResponse, String> {
    let connector = UnixConnector {
        socket: socket.to_owned(),
        peer_uid: None,
    };
    let no_answer = |cause: &(dyn std::error::Error + 'static)| {
        let root = causes(cause).last().unwrap_or(cause);
        format!(
            "what listens on {} did not answer as a provider ({root}): it is not a provider, it is ending, or it does not accept uid {}",
            socket.display(),
            rustix::process::geteuid().as_raw()
        )
    };
    let pipe = connector.connect().await?;
    let connection = Connection::over(pipe, Budget::default())
        .await
        .map_err(|error| no_answer(&error))?;
    let answered = client(&connection.link).probe(api::ProbeRequest {}).await;
    answered.map(tonic::Response::into_inner).map_err(|status| {
        match std::error::Error::source(&status) {
            // A connection error on this side.
            Some(source) => no_answer(source),
            None => format!(
                "Probe was answered with the gRPC status {:?}: {}",
                status.code(),
                limits::cut(status.message())
            ),
        }
    })
}
