//! The cluster's identity, for the Initialize request.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use cloud_provider_api::v1alpha1 as api;
use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Client};
use tokio::time::sleep;

use crate::args::Config;
use crate::core::{Backoff, lock, millis};
use crate::kube_client::refusal;

const BACKOFF: Backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(5));

/// Whether this process has read the cluster's identity, else why not. Clones share one state.
#[derive(Clone)]
pub(super) struct Identity(Arc<Mutex<Result<(), String>>>);

impl Default for Identity {
    fn default() -> Self {
        let unread = Err("the API server has not answered yet".to_owned());
        Self(Arc::new(Mutex::new(unread)))
    }
}

impl Identity {
    /// For `/readyz`.
    pub(super) fn ready(&self) -> Result<(), String> {
        lock(&self.0).clone()
    }
}

/// Reads the API server's version and, unless the operator gave an owner ID, the UID of
/// `kube-system`. Tries until it succeeds.
pub(super) async fn initialize_request(
    client: &Client,
    config: &Config,
    identity: &Identity,
) -> api::InitializeRequest {
    let read = || async {
        let version = client.apiserver_version().await?.git_version;
        let owner_id = if let Some(given) = &config.cluster.owner_id {
            given.clone()
        } else {
            let namespaces: Api<Namespace> = Api::all(client.clone());
            let uid = namespaces.get("kube-system").await?.metadata.uid;
            uid.ok_or_else(|| kube::Error::Service("the namespace kube-system has no UID".into()))?
        };
        Ok::<_, kube::Error>((version, owner_id))
    };
    let mut failures = 0_u32;
    let (kubernetes_version, owner_id) = loop {
        let error = match read().await {
            Ok(read) => break read,
            Err(error) => error,
        };
        let wait = BACKOFF.pause(failures);
        failures = failures.saturating_add(1);
        let (what, error) = match refusal(&error) {
            Some(refused) => ("the API server answers, but refuses", refused),
            None => ("waiting for the API server", error.to_string()),
        };
        tracing::warn!(error, retry_in_ms = millis(wait), "{what}");
        *lock(&identity.0) = Err(format!("{what}: {error}"));
        sleep(wait).await;
    };
    *lock(&identity.0) = Ok(());
    api::InitializeRequest {
        cluster: Some(api::ClusterRef {
            name: config.cluster.name.clone(),
            owner_id,
        }),
        previous_owner_ids: config.cluster.previous_owner_ids.clone(),
        cluster_cidrs: config
            .cluster
            .cidrs
            .iter()
            .map(ToString::to_string)
            .collect(),
        kubernetes_version,
        read_only: false,
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::atomic::{AtomicBool, Ordering};

    use clap::Parser as _;
    use kube::client::Body;
    use serde_json::json;
    use tokio::time::timeout;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn n13_a_replica_without_the_clusters_identity_says_why_until_it_has_it() {
        let granted = Arc::new(AtomicBool::new(false));
        let server = {
            let granted = Arc::clone(&granted);
            tower::service_fn(move |request: http::Request<Body>| {
                let (code, answer) = if request.uri().path() == "/version" {
                    (200, json!({"gitVersion": "v1.36.0"}))
                } else if granted.load(Ordering::Relaxed) {
                    (
                        200,
                        json!({"metadata": {"name": "kube-system", "uid": "u-1"}}),
                    )
                } else {
                    let message = "namespaces \"kube-system\" is forbidden: User \"u\" cannot get resource \"namespaces\" in API group \"\" in the namespace \"kube-system\"";
                    (
                        403,
                        json!({"status": "Failure", "code": 403, "message": message}),
                    )
                };
                let answer = Body::from(answer.to_string().into_bytes());
                let answer = http::Response::builder().status(code).body(answer);
                async move { answer }
            })
        };
        let client = Client::new(server, "default");
        let config = crate::args::Args::parse_from(["ccm"]);
        let config = config.into_config().unwrap();
        let identity = Identity::default();
        assert!(identity.ready().is_err());
        let mut request = pin!(initialize_request(&client, &config, &identity));
        let waited = timeout(Duration::from_mins(1), &mut request).await;
        assert!(waited.is_err());
        let why = identity.ready().unwrap_err();
        assert!(
            why.contains("lacks the right to get namespaces/kube-system"),
            "{why}"
        );
        granted.store(true, Ordering::Relaxed);
        let cluster = request.await.cluster.unwrap();
        assert_eq!(cluster.owner_id, "u-1");
        assert_eq!(identity.ready(), Ok(()));
    }
}
