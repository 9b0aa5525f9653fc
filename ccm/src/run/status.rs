//! The status page (`/statusz`): a few lines for an operator's first questions.

use std::fmt::Write as _;
use std::sync::Arc;

use tokio::sync::watch;

use super::leases::Leases;
use crate::core::text::plain;
use crate::provider::{ProviderStatus, probe_word};
use crate::serve::{Health, Probe};

/// The sources of the page.
pub(super) struct Page {
    pub(super) provider: Arc<str>,
    pub(super) status: watch::Receiver<ProviderStatus>,
    pub(super) leases: Leases,
    pub(super) health: Health,
    pub(super) node_lifecycle: crate::controllers::node_lifecycle::Metrics,
    pub(super) route: crate::controllers::route::Metrics,
}

impl Page {
    /// The page's text now.
    pub(super) fn text(&self) -> String {
        let mut page = self.leases.text();
        let mut lines = vec![provider(&self.provider, &self.status.borrow())];
        let checks = self.health.results(Probe::Ready).into_iter();
        // The provider's line says more than its check.
        let failed = checks.filter(|(name, _)| **name != *self.provider_check());
        lines.extend(failed.filter_map(|(name, result)| {
            let why = result.err()?;
            Some(format!("not ready: {name}: {why}"))
        }));
        lines.extend(self.node_lifecycle.status_lines());
        lines.extend(self.route.status_lines());
        for line in lines {
            // A provider's text may hold a line break, which would forge a line of the page.
            page.push_str(&plain(&line));
            page.push('\n');
        }
        page
    }

    /// The name of the provider's check in `/readyz`.
    pub(super) fn provider_check(&self) -> String {
        format!("provider-{}", self.provider)
    }
}

/// Without a session nothing is known of the scope.
fn scope_word(has_session: bool, accepted: bool) -> &'static str {
    match (has_session, accepted) {
        (false, _) => "",
        (true, false) => " NOT accepted",
        (true, true) => " accepted",
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
        let word = scope_word(status.session.is_some(), status.scope_accepted);
        let _ = write!(text, ", cloud scope {scope:?}{word}");
    }
    if !status.complaint().is_empty() {
        let _ = write!(text, ": {}", status.complaint());
    }
    // An event may not have the whole command that accepts the claims: it sends people here.
    if !status.held.is_empty() && status.held != status.complaint() {
        let _ = write!(text, ": {}", status.held);
    }
    let refused = status.session.as_ref();
    if let Some(refused) = refused.and_then(|session| session.refused_credentials()) {
        let _ = write!(text, ": {refused}");
    }
    text
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU16, Ordering};
    use std::time::Duration;

    use cloud_provider_api::v1alpha1 as api;
    use serde_json::json;
    use tokio::time::{sleep, timeout};
    use tokio_util::sync::CancellationToken;

    use super::super::identity::Identity;
    use super::*;
    use crate::cluster::Cluster;
    use crate::core::Fence;
    use crate::lease::Elector;

    fn config() -> crate::args::Config {
        use clap::Parser as _;
        let args = crate::args::Args::try_parse_from(["ccm"]).unwrap();
        args.into_config().unwrap()
    }

    fn elector(name: &str, fence: &Fence) -> Elector {
        elector_at(&api_server(|_| None), name, fence)
    }

    /// An API server that fails each request with this code and message; `None`: it never answers.
    fn api_server(
        answers: impl Fn(&str) -> Option<(u16, &'static str)> + Send + 'static,
    ) -> kube::Client {
        use kube::client::Body;
        let server = tower::service_fn(move |request: http::Request<Body>| {
            let answer = answers(request.uri().path());
            async move {
                let Some((code, message)) = answer else {
                    return std::future::pending().await;
                };
                let status = json!({"status": "Failure", "code": code, "message": message});
                let status = Body::from(status.to_string().into_bytes());
                http::Response::builder().status(code).body(status)
            }
        });
        kube::Client::new(server, "default")
    }

    fn elector_at(client: &kube::Client, name: &str, fence: &Fence) -> Elector {
        let election = crate::args::LeaderElectionConfig {
            resource_name: name.to_owned(),
            ..config().leader_election
        };
        Elector::new(
            client.clone(),
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
            health: Health::default(),
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

    #[tokio::test(start_paused = true)]
    async fn n13_the_page_and_readyz_say_why_a_replica_cannot_lead() {
        let code = Arc::new(AtomicU16::new(500));
        let of_ranges = Arc::clone(&code);
        let client = api_server(move |path| match path.rsplit_once('/')?.1 {
            "servicecidrs" => Some((of_ranges.load(Ordering::Relaxed), "etcd is away")),
            "cloud-controller-manager" => Some((
                403,
                "leases.coordination.k8s.io \"l\" is forbidden: User \"u\" cannot get resource \"leases\" in API group \"coordination.k8s.io\" in the namespace \"kube-system\"",
            )),
            _ => None,
        });
        let mut registry = prometheus_client::registry::Registry::default();
        let fence = Fence::closed();
        let elector = elector_at(&client, "cloud-controller-manager", &fence);
        let page = Page {
            provider: "mock".into(),
            status: watch::Sender::new(ProviderStatus::default()).subscribe(),
            leases: Leases {
                elector: Some(elector.clone()),
                fence,
                migration: None,
            },
            health: Health::default(),
            node_lifecycle: crate::controllers::node_lifecycle::Metrics::register(&mut registry),
            route: crate::controllers::route::Metrics::register(&mut registry),
        };
        let mut tasks = tokio::task::JoinSet::new();
        let cluster = Cluster::start(&client, 1, &config(), &mut tasks);
        super::super::health::checks(&cluster, &Identity::default(), &page);
        let standing = watch::Sender::new(true);
        let stop = CancellationToken::new();
        let led = elector.acquire(standing.subscribe(), &stop);
        assert!(timeout(Duration::from_secs(10), led).await.is_err());
        let text = page.text();
        for line in [
            "leader election: host_1 stands by: the API server answers, but refuses the Lease: user \"u\" lacks the right to get leases.coordination.k8s.io/l",
            "not ready: identity: the API server has not answered yet",
            "not ready: nodes: the first list is not complete yet",
            "not ready: servicecidrs: ",
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
        assert!(text.contains("etcd is away"), "{text}");
        assert!(!text.contains("not ready: provider-mock"), "{text}");
        // The ccm does not wait for an optional kind that it may not read.
        code.store(403, Ordering::Relaxed);
        sleep(Duration::from_mins(1)).await;
        let text = page.text();
        assert!(!text.contains("servicecidrs"), "{text}");
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
            health: Health::default(),
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
        assert_eq!(scope_word(true, false), " NOT accepted");
        assert_eq!(scope_word(true, true), " accepted");
        let away = ProviderStatus {
            info: Some(Arc::new(api::GetProviderInfoResponse {
                provider_name: "cloud".to_owned(),
                provider_version: "1.2".to_owned(),
                ..api::GetProviderInfoResponse::default()
            })),
            probe: api::ProbeState::Ready,
            cloud_scope: Some("account 2".to_owned()),
            message: "not initialised yet".to_owned(),
            ..ProviderStatus::default()
        };
        assert_eq!(
            provider("mock", &away),
            "provider mock: cloud 1.2, READY, cloud scope \"account 2\": not initialised yet"
        );
    }

    #[test]
    fn s21_the_page_has_the_claims_that_are_not_served_whatever_else_is_wrong() {
        for (message, words) in [("another scope", "another scope: more"), ("", "more")] {
            let held = ProviderStatus {
                info: Some(Arc::default()),
                probe: api::ProbeState::Ready,
                message: message.to_owned(),
                held: "more".to_owned(),
                ..ProviderStatus::default()
            };
            assert_eq!(
                provider("mock", &held),
                format!("provider mock:  , READY: {words}")
            );
        }
    }
}
