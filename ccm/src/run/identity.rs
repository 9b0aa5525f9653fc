//! The cluster's identity, for the Initialize request.

use std::time::Duration;

use backon::{ExponentialBuilder, Retryable};
use cloud_provider_api::v1alpha1 as api;
use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Client};

use crate::args::Config;
use crate::core::millis;
use crate::kube_client::refusal;

/// Reads the API server's version and the UID of `kube-system`, unless the operator gave an owner
/// ID. Tries until it succeeds.
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
    let forever = ExponentialBuilder::default()
        .with_min_delay(Duration::from_millis(200))
        .with_max_delay(Duration::from_secs(5))
        .without_max_times();
    loop {
        let read = read
            .retry(forever)
            .notify(|error: &kube::Error, wait| {
                if let Some(refused) = refusal(error) {
                    tracing::warn!(%refused, retry_in_ms = millis(wait), "the API server answers, but refuses");
                } else {
                    tracing::warn!(%error, retry_in_ms = millis(wait), "waiting for the API server");
                }
            })
            .await;
        if let Ok((kubernetes_version, owner_id)) = read {
            return api::InitializeRequest {
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
            };
        }
    }
}
