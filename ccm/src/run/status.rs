//! The status page (`/statusz`): what an operator asks first, in a few lines.

use std::fmt::Write as _;
use std::sync::Arc;

use tokio::sync::watch;

use crate::lease::{Elector, Fence};
use crate::provider::{ProviderStatus, probe_word};

/// What the page is made of.
pub(super) struct Page {
    pub(super) provider: Arc<str>,
    pub(super) status: watch::Receiver<ProviderStatus>,
    pub(super) fence: Fence,
    pub(super) elector: Option<Elector>,
    pub(super) node_lifecycle: crate::node_lifecycle::Metrics,
}

impl Page {
    /// The page as it is now.
    pub(super) fn text(&self) -> String {
        let leads = self.fence.check().is_ok();
        let identity = self
            .elector
            .as_ref()
            .map_or("without election", Elector::identity);
        let mut page = format!(
            "leader election: {identity} {}\n",
            if leads { "leads" } else { "stands by" }
        );
        page.push_str(&provider(&self.provider, &self.status.borrow()));
        for line in self.node_lifecycle.status_lines() {
            page.push_str(&line);
            page.push('\n');
        }
        page
    }
}

fn provider(name: &str, status: &ProviderStatus) -> String {
    let mut text = format!("provider {name}: ");
    let Some(info) = &status.info else {
        let _ = writeln!(text, "not connected: {}", status.complaint());
        return text;
    };
    let _ = write!(
        text,
        "{} {}, {}",
        info.provider_name,
        info.provider_version,
        probe_word(status.probe)
    );
    if let Some(scope) = &status.cloud_scope {
        let accepted = if status.scope_accepted {
            "accepted"
        } else {
            "NOT accepted"
        };
        let _ = write!(text, ", cloud scope {scope:?} {accepted}");
    }
    if !status.complaint().is_empty() {
        let _ = write!(text, ": {}", status.complaint());
    }
    let refused = status.session.as_ref();
    if let Some(refused) = refused.and_then(|session| session.refused_credentials()) {
        let _ = write!(text, ": {refused}");
    }
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use cloud_provider_api::v1alpha1 as api;

    use super::*;

    #[test]
    fn the_page_says_how_the_provider_is() {
        let unseen = ProviderStatus {
            message: "waiting for the socket /a: it does not exist yet".to_owned(),
            ..ProviderStatus::default()
        };
        assert_eq!(
            provider("mock", &unseen),
            "provider mock: not connected: waiting for the socket /a: it does not exist yet\n"
        );
        let refused = ProviderStatus {
            info: Some(Arc::new(api::GetProviderInfoResponse {
                provider_name: "cloud".to_owned(),
                provider_version: "1.2".to_owned(),
                ..api::GetProviderInfoResponse::default()
            })),
            probe: api::ProbeState::Ready,
            cloud_scope: Some("account 2".to_owned()),
            message: "another scope".to_owned(),
            ..ProviderStatus::default()
        };
        assert_eq!(
            provider("mock", &refused),
            "provider mock: cloud 1.2, READY, cloud scope \"account 2\" NOT accepted: another scope\n"
        );
    }
}
