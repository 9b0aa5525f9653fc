//! Whether the Nodes belong to the provider's cloud (▲L4). The ccm leaves Nodes of other clouds
//! alone. If all Nodes belong to other clouds, the socket is probably that of the wrong provider.
//! Then the log says so, and an event on the Lease, if there is one.

use std::future::pending;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::cluster::Store;
use crate::core::changed;
use crate::ownership::Clouds;
use crate::provider::{Metrics, ProviderStatus, Session};
use crate::report::REPORT_AGAIN;
use crate::writes::{EventType, reason};

/// How often the ccm counts the Nodes. It also counts them when the provider's status changes.
const LOOK: Duration = Duration::from_secs(30);

/// Counts the Nodes of other clouds, and warns if all Nodes belong to other clouds. Never returns.
pub(super) async fn tell(
    mut status: watch::Receiver<ProviderStatus>,
    provider: &str,
    nodes: Option<&Store<Node>>,
    metrics: &Metrics,
    record: impl Fn(EventType, &'static str, String),
) {
    let Some(nodes) = nodes else {
        return pending().await;
    };
    nodes.synced().await;
    // The time of the last warning. Kept while the provider is away.
    let mut reported: Option<Instant> = None;
    let mut ticks = interval(LOOK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let session = status.borrow_and_update().session.clone();
        let session = session.filter(|session| session.offers(|offers| offers.instances.is_some()));
        if let Some(session) = session {
            let all = nodes.all();
            let clouds = session
                .ownership
                .clouds(provider, all.iter().map(|node| &**node));
            metrics.unclaimed(provider, Some(clouds.others));
            match warning(provider, &session, &clouds) {
                Some(text) if reported.is_none_or(|at| at.elapsed() >= REPORT_AGAIN) => {
                    tracing::warn!(%provider, nodes = clouds.others, "{text}");
                    record(EventType::Warning, reason::NODES_OF_ANOTHER_CLOUD, text);
                    reported = Some(Instant::now());
                }
                Some(_) => {}
                None => reported = None,
            }
        } else {
            metrics.unclaimed(provider, None);
        }
        tokio::select! {
            biased;
            () = changed(&mut status) => {}
            _ = ticks.tick() => {}
        }
    }
}

/// The warning for a cluster whose Nodes all belong to other clouds. A new Node may be the
/// provider's.
fn warning(provider: &str, session: &Session, clouds: &Clouds) -> Option<String> {
    let none = clouds.ours == 0 && clouds.new == 0;
    let (name, id) = clouds.another.as_ref().filter(|_| none)?;
    let with = if id.is_empty() {
        String::new()
    } else {
        format!(" with {id:?}")
    };
    let prefixes: Vec<_> = session.info.provider_id_prefixes.iter().collect();
    Some(format!(
        "not one Node is of the cloud of provider {provider} ({}), whose provider IDs begin with {prefixes:?}: {} are of another, such as Node {name}{with}. They are left alone, \
         neither refreshed, tainted nor deleted. Is it the right provider?",
        session.info.provider_name, clouds.others
    ))
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use prometheus_client::registry::Registry;

    use super::*;
    use crate::controllers::node::testing::Cloud;
    use crate::provider::testing::{InMemory, maintained};

    fn node(name: &str, id: &str) -> Node {
        let node = serde_json::json!({"metadata": {"name": name, "uid": name}, "spec": {"providerID": id}});
        serde_json::from_value(node).unwrap()
    }

    fn shows(registry: &Registry) -> Option<String> {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, registry).unwrap();
        let line = "ccm_provider_unclaimed_nodes{provider=\"mock\"} ";
        text.lines()
            .find_map(|found| found.strip_prefix(line))
            .map(str::to_owned)
    }

    #[tokio::test(start_paused = true)]
    async fn l4_that_all_nodes_are_of_another_cloud_is_told_and_counted() {
        use kube::runtime::watcher::Event;
        let cloud = Cloud::new();
        let process = InMemory::running(cloud.service());
        let running = maintained(process.clone());
        let store = Store::<Node>::default();
        store.apply(Event::Init);
        store.apply(Event::InitDone);
        let events = Arc::new(Mutex::new(Vec::new()));
        let mut registry = Registry::default();
        let metrics = Metrics::register(&mut registry);
        let telling = tokio::spawn({
            let (sink, store, status) =
                (Arc::clone(&events), store.clone(), running.status.clone());
            async move {
                tell(
                    status,
                    "mock",
                    Some(&store),
                    &metrics,
                    |kind, reason, text| {
                        sink.lock()
                            .unwrap()
                            .push(format!("{kind:?} {reason} {text}"));
                    },
                )
                .await;
            }
        });
        let reported = || std::mem::take(&mut *events.lock().unwrap());
        let minutes = |minutes| tokio::time::sleep(Duration::from_mins(minutes));
        store.apply(Event::Apply(node("n1", "aws://1")));
        store.apply(Event::Apply(node("n0", "aws://0")));
        minutes(1).await;
        assert_eq!(
            (reported(), shows(&registry)),
            (vec![], None),
            "nobody leads"
        );

        running.lead();
        running.session().await;
        minutes(1).await;
        let texts = reported();
        assert_eq!(texts.len(), 1, "{texts:?}");
        let begins = "Warning NodesOfAnotherCloud not one Node is of the cloud of provider mock (";
        assert!(texts[0].starts_with(begins), "{texts:?}");
        let says = "2 are of another, such as Node n0 with \"aws://0\"";
        assert!(texts[0].contains(says), "{texts:?}");
        assert_eq!(shows(&registry).as_deref(), Some("2"));
        minutes(13).await;
        assert_eq!(reported().len(), 0, "no repeat before `REPORT_AGAIN`");
        minutes(3).await;
        assert_eq!(reported(), texts, "repeated, because events expire");

        // A new Node may belong to the provider.
        store.apply(Event::Apply(node("new", "")));
        minutes(60).await;
        assert_eq!(reported().len(), 0);
        store.apply(Event::Delete(node("new", "")));

        // One Node belongs to the provider, so the others may well be another provider's.
        store.apply(Event::Apply(node("ours", "mock://1")));
        minutes(60).await;
        assert_eq!(
            (reported().len(), shows(&registry).as_deref()),
            (0, Some("2"))
        );
        store.apply(Event::Delete(node("n0", "aws://0")));
        store.apply(Event::Delete(node("n1", "aws://1")));
        minutes(1).await;
        assert_eq!(shows(&registry).as_deref(), Some("0"));
        process.kill();
        minutes(1).await;
        assert_eq!(shows(&registry), None);
        telling.abort();
    }
}
