//! The mutating admission webhook (B-V1, ▲V1). It labels a volume before the API server stores the
//! volume, because afterwards the API server refuses changes to existing node affinity.
//!
//! It fails open: if the provider fails or does not answer in time, the webhook admits the volume
//! unchanged, with a warning. The controller, if it runs, asks about the volume later. Every
//! replica serves the webhook. A standby's provider is not initialised, so a standby asks nothing,
//! and warns where it would have to ask.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::PersistentVolume;
use kube::Resource;
use kube::core::PartialObjectMeta;
use kube::core::admission::{
    AdmissionRequest, AdmissionResponse, AdmissionReview, META_API_VERSION_V1, META_KIND, Operation,
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::timeout;

use super::plan::{self, Labelling, Task};
use super::sync::describe;
use crate::provider::{Capability, ProviderStatus};

/// The API server may truncate longer warnings.
const WARNING_CHARS: usize = 250;
/// The longest text about an invalid request.
const ERROR_CHARS: usize = 500;

#[derive(Clone)]
pub(crate) struct Webhook {
    provider: Arc<str>,
    status: watch::Receiver<ProviderStatus>,
    /// Whether the controller also runs. It labels volumes that were admitted without labels.
    heals: bool,
}

impl Webhook {
    pub(crate) fn new(
        provider: Arc<str>,
        status: watch::Receiver<ProviderStatus>,
        heals: bool,
    ) -> Self {
        Self {
            provider,
            status,
            heals,
        }
    }

    /// The answer to a review, in JSON. The webhook waits for the provider for at most `patience`.
    /// `Err`: the error in the request.
    pub(crate) async fn review(&self, body: &[u8], patience: Duration) -> Result<Vec<u8>, String> {
        let (mut response, volume) = understand(body)?;
        if let Some(volume) = &volume {
            let name = volume.metadata.name.as_deref().unwrap_or_default();
            let provider = &*self.provider;
            match self.labelling(volume, patience).await {
                Ok(None) => tracing::debug!(volume = name, provider, "admitted without change"),
                Ok(Some(labelling)) => {
                    response = patch(response, volume, &labelling)?;
                    let mut warnings = Vec::new();
                    if !labelling.dropped.is_empty() {
                        let dropped = labelling.dropped.join(", ");
                        let warning =
                            format!("the provider's labels {dropped} are not valid for a volume");
                        warnings.push(cut(&warning, WARNING_CHARS));
                    }
                    if let Some(why) = &labelling.not_set {
                        let warning = format!("no zone and region in the node affinity: {why}");
                        warnings.push(cut(&warning, WARNING_CHARS));
                    }
                    response.warnings = (!warnings.is_empty()).then_some(warnings);
                    tracing::debug!(volume = name, provider, "admitted with labels");
                }
                Err(why) => {
                    let then = if self.heals {
                        "the ccm asks the provider again later"
                    } else {
                        "no controller adds them later: the persistent-volume-label-controller is off"
                    };
                    let warning = format!("no zone labels of the cloud ({then}): {why}");
                    tracing::debug!(volume = name, provider, why, "admitted without labels");
                    response.warnings = Some(vec![cut(&warning, WARNING_CHARS)]);
                }
            }
        }
        serde_json::to_vec(&response.into_review()).map_err(|error| error.to_string())
    }

    /// The changes to the volume. `Err`: why they are unknown now.
    async fn labelling(
        &self,
        volume: &PersistentVolume,
        patience: Duration,
    ) -> Result<Option<Labelling>, String> {
        let provider = &*self.provider;
        let status = self.status.borrow().clone();
        let offered = status.info.as_ref().map(|info| {
            let offered = info.capabilities.as_ref();
            offered.and_then(|offered| offered.volumes.as_ref())
        });
        let sources = match offered {
            Some(Some(volumes)) => volumes.source_types.as_slice(),
            Some(None) | None => &[],
        };
        match plan::task(volume, provider, sources) {
            Task::LeaveAlone => Ok(None),
            // While nobody knows the provider's sources, the volume may be another driver's.
            Task::Trust(_) if offered.is_none() => Err(self.excuse(&status)),
            Task::Trust(_) if offered == Some(None) => Ok(None),
            Task::Trust(labels) => plan::trusted(volume, provider, &labels),
            Task::Ask(_) if offered == Some(None) => {
                Err(format!("provider {provider} offers no volumes"))
            }
            Task::Ask(view) => {
                let Some(session) = status.usable(Capability::Volumes) else {
                    return Err(self.excuse(&status));
                };
                match timeout(patience, session.get_volume_labels(*view)).await {
                    Err(_) => Err(format!("provider {provider} did not answer in time")),
                    Ok(Err(trouble)) => Err(describe(&trouble)),
                    Ok(Ok(labels)) => plan::answered(volume, provider, &labels),
                }
            }
        }
    }

    fn excuse(&self, status: &ProviderStatus) -> String {
        let provider = &self.provider;
        if status.working().is_some() {
            format!("the cloud scope of provider {provider} is not the accepted one")
        } else if status.complaint().is_empty() {
            "this replica of the cloud-controller-manager does not lead".to_owned()
        } else {
            format!(
                "provider {provider} is not available: {}",
                status.complaint()
            )
        }
    }
}

/// Parses a review. Returns the answer that admits the object unchanged, and the volume that is
/// being created. `None`: the review is about something else, and the webhook must not block that,
/// even if its rule matches too much. By default the webhook answers every caller, so the review may
/// hold any object: this parses only its metadata until it knows that a volume is being created.
fn understand(body: &[u8]) -> Result<(AdmissionResponse, Option<PersistentVolume>), String> {
    let about = request::<PartialObjectMeta<PersistentVolume>>(body)?;
    let resource = &about.resource;
    let of = (&*resource.group, &*resource.version, &*resource.resource);
    let of_part = about
        .sub_resource
        .as_ref()
        .is_some_and(|part| !part.is_empty());
    if of != ("", "v1", "persistentvolumes") || of_part || about.operation != Operation::Create {
        return Ok((AdmissionResponse::from(&about), None));
    }
    let request = request::<PersistentVolume>(body)?;
    let response = AdmissionResponse::from(&request);
    let volume = request.object.ok_or("request.object is missing")?;
    Ok((response, Some(volume)))
}

fn request<T>(body: &[u8]) -> Result<AdmissionRequest<T>, String>
where
    T: Resource<DynamicType = ()> + DeserializeOwned,
{
    let review: AdmissionReview<T> =
        serde_json::from_slice(body).map_err(|error| no_review(&error))?;
    let types = &review.types;
    if types.kind != META_KIND || types.api_version != META_API_VERSION_V1 {
        return Err(cut(
            &format!(
                "{:?} of {:?} is not supported: expected {META_KIND:?} of {META_API_VERSION_V1:?}",
                types.kind, types.api_version
            ),
            ERROR_CHARS,
        ));
    }
    let request: AdmissionRequest<T> = review
        .try_into()
        .map_err(|_| "the AdmissionReview has no request".to_owned())?;
    if request.uid.is_empty() {
        return Err("request.uid is empty".to_owned());
    }
    Ok(request)
}

fn no_review(error: &serde_json::Error) -> String {
    let text = format!("the body is no AdmissionReview: {error}");
    cut(&text, ERROR_CHARS)
}

fn patch(
    response: AdmissionResponse,
    volume: &PersistentVolume,
    labelling: &Labelling,
) -> Result<AdmissionResponse, String> {
    let value =
        |volume: &PersistentVolume| serde_json::to_value(volume).map_err(|error| error.to_string());
    let patched = plan::patched(volume, &labelling.patch);
    let mut before = value(volume)?;
    // If the request had null or no list of terms, the patch must add the whole list: there is no
    // list to which it could add a term.
    let required = before.pointer_mut("/spec/nodeAffinity/required");
    if let Some(required) = required.and_then(Value::as_object_mut)
        && required.get("nodeSelectorTerms") == Some(&json!([]))
    {
        required.remove("nodeSelectorTerms");
    }
    let patch = json_patch::diff(&before, &value(&patched)?);
    response
        .with_patch(patch)
        .map_err(|error| error.to_string())
}

fn cut(text: &str, chars: usize) -> String {
    text.chars().take(chars).collect()
}

#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
#[cfg(test)]
mod tests;
