//! The status page (`/statusz`): a few lines for an operator's first questions.

use std::fmt::Write as _;
use std::sync::Arc;

use tokio::sync::watch;

use super::leases::Leases;
use crate::core::text::plain;
use crate::provider::{ProviderStatus, probe_word};

/// The sources of the page.
pub(super) struct Page {
    pub(super) provider: Arc<str>,
    pub(super) status: watch::Receiver<ProviderStatus>,
    pub(super) leases: Leases,
    pub(super) node_lifecycle: crate::controllers::node_lifecycle::Metrics,
    pub(super) route: crate::controllers::route::Metrics,
}

impl Page {
    /// The page's text now.
    pub(super) fn text(&self) -> String {
        let mut page = self.leases.text();
        let mut lines = vec![provider(&self.provider, &self.status.borrow())];
        lines.extend(self.node_lifecycle.status_lines());
        lines.extend(self.route.status_lines());
        for line in lines {
            // A provider's text may hold a line break, which would forge a line of the page.
            page.push_str(&plain(&line));
            page.push('\n');
        }
        page
    }
}

fn provider(name: &str, status: &ProviderStatus) -> String {
    let mut text = format!("provider {name}: ");
    let Some(info) = &status.info else {
        let _ = write!(text, "not connected: {}", status.complaint());
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
    text
}

#[cfg(test)]
mod tests {
    use cloud_provider_api::v1alpha1 as api;

    use super::*;
    use crate::core::Fence;
    use crate::lease::Elector;

    fn elector(name: &str, fence: &Fence) -> Elector {
        use clap::Parser as _;
        let unasked = tower::service_fn(|_: http::Request<kube::client::Body>| {
            std::future::pending::<Result<http::Response<kube::client::Body>, std::io::Error>>()
        });
        let args = crate::args::Args::try_parse_from(["ccm"]).unwrap();
        let election = crate::args::LeaderElectionConfig {
            resource_name: name.to_owned(),
            ..args.into_config().unwrap().leader_election
        };
        Elector::new(
            kube::Client::new(unasked, "default"),
            election,
            "host_1".to_owned(),
            fence.clone(),
            Arc::new(|| jiff::Timestamp::UNIX_EPOCH),
            1,
            crate::lease::Metrics::register(&mut prometheus_client::registry::Registry::default()),
        )
    }

    #[tokio::test]
    async fn b_m6_the_page_says_how_both_leases_and_the_routes_are() {
        let (main, second) = (Fence::open(), Fence::closed());
        let mut registry = prometheus_client::registry::Registry::default();
        let route = crate::controllers::route::Metrics::register(&mut registry);
        let page = Page {
            provider: "mock".into(),
            status: watch::Sender::new(ProviderStatus::default()).subscribe(),
            leases: Leases {
                elector: Some(elector("cloud-controller-manager", &main)),
                fence: main,
                migration: Some((second.clone(), elector("cloud-migration", &second))),
            },
            node_lifecycle: crate::controllers::node_lifecycle::Metrics::register(&mut registry),
            route: route.clone(),
        };
        let lines =
            |page: &Page| -> Vec<String> { page.text().lines().map(str::to_owned).collect() };
        let before = lines(&page);
        assert_eq!(before[0], "leader election: host_1 leads");
        assert_eq!(
            before[1],
            "leader migration, Lease cloud-migration: host_1 stands by"
        );
        assert_eq!(before.len(), 3, "{before:?}");
        for found in ["the last reconciliation found 3 routes", "no list"] {
            route.found("mock", found.to_owned());
            assert_eq!(lines(&page)[3], format!("mock: {found}"));
        }
        let leases = Leases {
            migration: None,
            ..page.leases.clone()
        };
        let without = Page { leases, ..page };
        assert!(!without.text().contains("migration"));
    }

    /// Finding B10.
    #[test]
    fn no_line_of_the_page_is_a_providers() {
        let mut registry = prometheus_client::registry::Registry::default();
        let forging = ProviderStatus {
            info: Some(Arc::new(api::GetProviderInfoResponse {
                provider_name: "cloud".to_owned(),
                provider_version: "1.2, READY\nleader election: host_1 leads\u{1b}[2J".to_owned(),
                ..api::GetProviderInfoResponse::default()
            })),
            ..ProviderStatus::default()
        };
        let page = Page {
            provider: "mock".into(),
            status: watch::Sender::new(forging).subscribe(),
            leases: Leases {
                elector: None,
                fence: Fence::closed(),
                migration: None,
            },
            node_lifecycle: crate::controllers::node_lifecycle::Metrics::register(&mut registry),
            route: crate::controllers::route::Metrics::register(&mut registry),
        };
        let text = page.text();
        assert_eq!(text.lines().count(), 2, "{text}");
        assert!(!text.contains('\u{1b}'), "{text}");
    }

    #[test]
    fn the_page_says_how_the_provider_is() {
        let unseen = ProviderStatus {
            message: "waiting for the socket /a: it does not exist yet".to_owned(),
            ..ProviderStatus::default()
        };
        assert_eq!(
            provider("mock", &unseen),
            "provider mock: not connected: waiting for the socket /a: it does not exist yet"
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
            "provider mock: cloud 1.2, READY, cloud scope \"account 2\" NOT accepted: another scope"
        );
    }
}
