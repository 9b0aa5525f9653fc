//! VolumeService.

use tonic::{Request, Response, Status};

use cloud_provider_api::v1alpha1::get_volume_labels_response::Outcome;
use cloud_provider_api::v1alpha1::volume_service_server::VolumeService;
use cloud_provider_api::v1alpha1::{self as pb};

use super::{Wrap, convert, not_offered};
use crate::{Failure, Volume};

#[tonic::async_trait]
impl VolumeService for Wrap {
    async fn get_volume_labels(
        &self,
        request: Request<pb::GetVolumeLabelsRequest>,
    ) -> Result<Response<pb::GetVolumeLabelsResponse>, Status> {
        let (metadata, _, request) = request.into_parts();
        let answer = self
            .0
            .call(
                "GetVolumeLabels",
                &metadata,
                request.cluster,
                |provider, call| async move {
                    let volumes = provider
                        .volumes()
                        .ok_or_else(|| not_offered("VolumeService"))?;
                    let volume = request
                        .volume
                        .ok_or_else(|| Failure::invalid("the request has no volume"))?;
                    let volume = Volume {
                        name: volume.name,
                        uid: volume.uid,
                        labels: volume.labels,
                        annotations: volume.annotations,
                        source_type: volume.source_type,
                        source: volume.source,
                    };
                    volumes.labels(&call, &volume).await
                },
            )
            .await?;
        Ok(Response::new(pb::GetVolumeLabelsResponse {
            outcome: Some(match answer {
                Ok(labels) => Outcome::Labels(pb::VolumeLabels { labels }),
                Err(failure) => Outcome::Failed(convert::failure(&failure)),
            }),
        }))
    }
}
