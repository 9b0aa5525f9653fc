//! The cluster's identity, for the Initialize request.

use std::time::Duration;

use cloud_provider_api::v1alpha1 as api;
use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Client};
use tokio::time::sleep;

use crate::args::Config;
use crate::core::{Backoff, millis};
use crate::kube_client::refusal;

const BACKOFF: Backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(5));

/// Reads the API server's version and, unless the operator gave an owner ID, the UID of
/// `kube-system`. Tries until it succeeds.
pub(super) async fn initialize_request(client: &Client, config: &Config) -> api::InitializeRequest {
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
        if let Some(refused) = refusal(&error) {
            tracing::warn!(%refused, retry_in_ms = millis(wait), "the API server answers, but refuses");
        } else {
            tracing::warn!(%error, retry_in_ms = millis(wait), "waiting for the API server");
        }
        sleep(wait).await;
    };
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
