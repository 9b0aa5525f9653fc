//! The admission webhook to serve, with its review.

use std::sync::Arc;

use tokio::sync::watch;

use crate::args::{Config, Controller, VOLUME_WEBHOOK};
use crate::controllers::volume;
use crate::provider::ProviderStatus;
use crate::serve::{WebhookMetrics, WebhookSite};

/// The webhook for the labels of volumes.
pub(super) fn site(
    config: &Config,
    provider: &Arc<str>,
    status: &watch::Receiver<ProviderStatus>,
    metrics: WebhookMetrics,
) -> WebhookSite {
    let heals = config.controllers.contains(&Controller::VolumeLabel);
    if !heals {
        tracing::warn!(
            webhook = VOLUME_WEBHOOK,
            "volumes that are admitted while the provider is not available stay without labels: add {} to --controllers",
            Controller::VolumeLabel.name()
        );
    }
    let webhook = volume::Webhook::new(Arc::clone(provider), status.clone(), heals);
    WebhookSite {
        name: VOLUME_WEBHOOK,
        review: Arc::new(move |body, patience| {
            let webhook = webhook.clone();
            Box::pin(async move { webhook.review(&body, patience).await })
        }),
        metrics,
    }
}
