//! The provider's identity and state.

use api::provider_service_server::ProviderService;
use cloud_provider_api::v1alpha1 as api;
use futures::stream::{BoxStream, StreamExt as _, pending};
use tonic::{Request, Response, Status};

use super::{Answer, Cloud};

#[tonic::async_trait]
impl ProviderService for Cloud {
    async fn get_provider_info(
        &self,
        _request: Request<api::GetProviderInfoRequest>,
    ) -> Answer<api::GetProviderInfoResponse> {
        let mut info = api::GetProviderInfoResponse {
            provider_name: "mock".into(),
            provider_version: "1.0.0".into(),
            boot_id: "boot".into(),
            provider_id_prefixes: vec!["mock://".into()],
            capabilities: Some(api::Capabilities {
                load_balancers: Some(api::LoadBalancerCapability {
                    default_class: true,
                    in_sync: true,
                    listing: true,
                    max_in_flight: Some(4),
                    ..Default::default()
                }),
                ..Default::default()
            }),
            ..Default::default()
        };
        if let Some(says) = self.state().says {
            says(&mut info);
        }
        Ok(Response::new(info))
    }

    async fn initialize(
        &self,
        _request: Request<api::InitializeRequest>,
    ) -> Answer<api::InitializeResponse> {
        self.state().initialized += 1;
        Ok(Response::new(api::InitializeResponse {
            outcome: Some(api::initialize_response::Outcome::Initialized(
                api::Initialized {
                    cloud_scope: self.state().scope.unwrap_or("account 1").into(),
                    ..Default::default()
                },
            )),
        }))
    }

    async fn probe(&self, _request: Request<api::ProbeRequest>) -> Answer<api::ProbeResponse> {
        Ok(Response::new(api::ProbeResponse {
            state: api::ProbeState::Ready.into(),
            boot_id: "boot".into(),
            ..Default::default()
        }))
    }

    type WatchChangesStream = BoxStream<'static, Result<api::WatchChangesResponse, Status>>;

    async fn watch_changes(
        &self,
        _request: Request<api::WatchChangesRequest>,
    ) -> Answer<Self::WatchChangesStream> {
        Ok(Response::new(pending().boxed()))
    }
}
