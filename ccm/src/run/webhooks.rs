//! The admission webhooks to serve, with their reviews.

use std::sync::Arc;

use tokio::sync::watch;

use crate::args::{Config, Controller, Webhook};
use crate::controllers::volume;
use crate::provider::ProviderStatus;
use crate::serve::{Review, WebhookMetrics, WebhookSite};

/// The webhooks that the configuration asks for.
pub(super) fn site(
    config: &Config,
    provider: &Arc<str>,
    status: &watch::Receiver<ProviderStatus>,
    metrics: WebhookMetrics,
) -> WebhookSite {
    let asked = config.webhooks.iter().flat_map(|config| &config.webhooks);
    let webhooks = asked.map(|webhook| {
        let review = match webhook {
            Webhook::VolumeLabel => volume_labels(config, provider, status),
        };
        (webhook.name(), review)
    });
    WebhookSite {
        webhooks: webhooks.collect(),
        metrics,
    }
}

fn volume_labels(
    config: &Config,
    provider: &Arc<str>,
    status: &watch::Receiver<ProviderStatus>,
) -> Review {
    let heals = config.controllers.contains(&Controller::VolumeLabel);
    if !heals {
        tracing::warn!(
            webhook = Webhook::VolumeLabel.name(),
            "volumes that are admitted while the provider is not available stay without labels: add {} to --controllers",
            Controller::VolumeLabel.name()
        );
    }
    let webhook = volume::Webhook::new(Arc::clone(provider), status.clone(), heals);
    Arc::new(move |body, patience| {
        let webhook = webhook.clone();
        Box::pin(async move { webhook.review(&body, patience).await })
    })
}
