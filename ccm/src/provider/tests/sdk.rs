//! A session with a provider that uses the SDK.

use std::sync::Arc;
use std::time::Duration;

use cloud_provider_api::v1alpha1 as api;
use provider_sdk::prelude::*;

use super::super::testing::{InMemory, maintained};
use crate::core::log_to;

struct Machines;

#[async_trait]
impl Provider for Machines {
    fn info(&self) -> ProviderInfo {
        ProviderInfo::new("machines", "1.0.0").provider_id_prefix("machines://")
    }

    async fn initialize(&self, _: &Call, _: &InitializeRequest) -> Result<Initialized, Failure> {
        Ok(Initialized::new("here"))
    }

    fn instances(&self) -> Option<&dyn Instances> {
        Some(self)
    }
}

#[async_trait]
impl Instances for Machines {
    async fn lookup(&self, _: &Call, node: &Node, _: &InstanceQuery) -> Result<Instance, Failure> {
        match node.name.as_str() {
            "down" => {
                tracing::warn!("the cloud does not answer");
                Err(Failure::unavailable("the cloud is down"))
            }
            "odd" => Ok(Instance::present("elsewhere://odd".to_owned())),
            name => Ok(Instance::present(format!("machines://{name}"))),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_provider_of_the_sdk_is_asked_and_both_log_the_same_id_of_a_call() {
    let log = tempfile::NamedTempFile::new().unwrap();
    let _logging = log_to("debug", Arc::new(log.reopen().unwrap()));
    let service = Server::new(Machines).into_service().await.unwrap();
    let running = maintained(InMemory::running(service));
    running.lead();
    let session = running.session().await;
    let node = |name| -> k8s_openapi::api::core::v1::Node {
        serde_json::from_value(serde_json::json!({"metadata": {"name": name, "uid": name}}))
            .unwrap()
    };
    let (up, down, odd) = (node("up"), node("down"), node("odd"));
    let results = session
        .lookup_instances(
            &[&up, &down, &odd],
            &[api::InstanceFacet::Metadata],
            Duration::ZERO,
        )
        .await
        .unwrap();
    let found = results[0].as_ref().unwrap();
    assert_eq!(found.provider_id.as_deref(), Some("machines://up"));
    let trouble = results[1].as_ref().unwrap_err();
    assert_eq!(trouble.code, super::super::CallErrorCode::Unavailable);
    let id = format!("call_id=\"{}\"", trouble.call_id().unwrap());
    let log = std::fs::read_to_string(log.path()).unwrap();
    let has = |text: &str| {
        let mut lines = log.lines();
        lines.any(|line| line.contains(text) && line.contains(&id))
    };
    assert!(has("called the provider"), "the ccm: {log}");
    assert!(has("the cloud does not answer"), "the provider: {log}");
    assert!(has("breaks the contract"), "the SDK: {log}");
}
