//! VolumeService.

use std::collections::BTreeMap;

use api::volume_service_client::VolumeServiceClient;
use cloud_provider_api::v1alpha1 as api;

use super::super::connect::Link;
use super::super::failures::{self, Place};
use super::super::limits;
use super::super::{CallError, Session};
use super::{Answered, Rpc};

impl Session {
    /// The labels of this volume; no labels if it is not of this cloud (VOL-1). Keys and values are
    /// as the provider gave them.
    pub(crate) async fn get_volume_labels(
        &self,
        volume: api::VolumeView,
    ) -> Result<BTreeMap<String, String>, CallError> {
        let request = api::GetVolumeLabelsRequest {
            cluster: Some(self.cluster.clone()),
            volume: Some(volume),
        };
        let rpc = Rpc::new(
            "GetVolumeLabels",
            &self.limiters.volumes,
            self.deadlines.lookup,
        );
        self.call(rpc, None, request, |link, request| async move {
            use api::get_volume_labels_response::Outcome;
            let answer = VolumeServiceClient::with_origin(link, Link::origin())
                .max_decoding_message_size(api::MOST_MESSAGE_BYTES)
                .get_volume_labels(request)
                .await?;
            match answer.into_inner().outcome {
                None => Err(CallError::fault(
                    "the answer has no outcome, or one that this contract minor does not know",
                )),
                Some(Outcome::Failed(failure)) => {
                    Err(failures::trouble(rpc.name, Place::Whole, failure))
                }
                Some(Outcome::Labels(labels)) => {
                    limits::check_item("the labels of the volume", &labels)?;
                    Ok(Answered::well(labels.labels))
                }
            }
        })
        .await
    }
}
