//! Stores a provider's cloud scope (▲S20) and its accepted claims: on the Lease or, without one, in
//! memory. If the scope is not the accepted one, or claims are not served, the ccm records an event
//! on the Lease, if there is one.

use std::collections::BTreeMap;

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use crate::args::LeaderElectionConfig;
use crate::core::changed;
use crate::lease::Elector;
use crate::provider::{Memory, ProviderStatus};
use crate::report::REPORT_AGAIN;
use crate::writes::{EventType, reason};

/// The most bytes of a text about claims in an event. The event replaces a longer text, because it
/// would cut the command in it, and nobody must run a cut command.
const WHOLE_COMMAND: usize = 900;

/// The stored values of this provider: on the Lease or, without one, as long as this process lives.
pub(super) fn memory(
    elector: Option<&Elector>,
    config: &LeaderElectionConfig,
    provider: &str,
) -> Memory {
    if let Some(elector) = elector.cloned() {
        let annotate = format!(
            "kubectl annotate lease -n {} {} --overwrite",
            config.resource_namespace, config.resource_name
        );
        let annotations = elector.annotations();
        let store = move |key: &str, value: &str| elector.set_annotation(key, value);
        return Memory::new(provider, annotations, Some(annotate), store);
    }
    let stored = watch::Sender::new(BTreeMap::new());
    let annotations = stored.subscribe();
    let store = move |key: &str, value: &str| {
        stored.send_modify(|all: &mut BTreeMap<String, String>| {
            all.insert(key.to_owned(), value.to_owned());
        });
    };
    Memory::new(provider, annotations, None, store)
}

/// Reports when a provider's cloud scope is not the accepted one, and when it is accepted again.
/// Also reports which of the provider's claims the ccm does not serve. Never returns.
pub(super) async fn tell(
    mut status: watch::Receiver<ProviderStatus>,
    provider: &str,
    record: impl Fn(EventType, &'static str, String),
) {
    // Kept while the provider is away.
    let (mut scopes, mut claims) = (Reported::default(), Reported::default());
    loop {
        let judged = {
            let status = status.borrow_and_update();
            let scope = status.cloud_scope.clone().unwrap_or_default();
            let (why, held) = (status.message.clone(), status.held.clone());
            let session = status.session.is_some();
            session.then(|| (status.scope_accepted, scope, why, held))
        };
        let mut again = None;
        if let Some((accepted, scope, why, held)) = judged {
            let warn = |reason, text: &str| {
                let text = format!("provider {provider}: {text}");
                record(EventType::Warning, reason, text);
            };
            let why = if accepted { "" } else { &why };
            let was_refused = scopes.0.is_some();
            again = scopes.warn(why, |text| warn(reason::CLOUD_SCOPE_CHANGED, text));
            if accepted && was_refused {
                let text = format!(
                    "provider {provider}: the cloud scope {scope:?} is the accepted one: the controllers continue"
                );
                record(EventType::Normal, reason::CLOUD_SCOPE_ACCEPTED, text);
            }
            let claims = claims.warn(&held, |text| {
                let text = if text.len() <= WHOLE_COMMAND {
                    text
                } else {
                    "the provider claims more than the ccm serves, too much for an event: the log and /statusz of the leader show the claims, and the command to accept them"
                };
                warn(reason::PROVIDER_CLAIMS_HELD, text);
            });
            again = [again, claims].into_iter().flatten().min();
        }
        tokio::select! {
            biased;
            () = changed(&mut status) => {}
            () = sleep_until(again.unwrap_or_else(Instant::now)), if again.is_some() => {}
        }
    }
}

/// The last report and its time.
#[derive(Default)]
struct Reported(Option<(String, Instant)>);

impl Reported {
    /// Warns if the text is new, or the last warning is old. Returns when the next one is due;
    /// `None` if the text is empty.
    fn warn(&mut self, text: &str, warn: impl Fn(&str)) -> Option<Instant> {
        if text.is_empty() {
            self.0 = None;
            return None;
        }
        let known = self.0.as_ref().filter(|(words, _)| words == text);
        let due = known.map_or_else(Instant::now, |(_, at)| *at + REPORT_AGAIN);
        if due <= Instant::now() {
            warn(text);
            self.0 = Some((text.to_owned(), Instant::now()));
        }
        self.0.as_ref().map(|(_, at)| *at + REPORT_AGAIN)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use clap::Parser as _;
    use k8s_openapi::api::coordination::v1::Lease;

    use super::*;
    use crate::args::Args;

    #[test]
    fn s20_without_a_lease_the_scope_is_remembered_in_memory() {
        let config = Args::parse_from(["ccm"]).into_config().unwrap();
        let memory = memory(None, &config.leader_election, "mock");
        memory.store_scope("account 1");
        assert_eq!(
            *memory.changes().borrow(),
            [(
                "grpc-ccm.io/cloud-scope-mock".to_owned(),
                "account 1".to_owned()
            )]
            .into()
        );
    }

    /// ccm/tests/stored describes the origin of the Lease.
    #[test]
    fn s20_the_scope_stands_on_the_lease_where_an_older_version_put_it() {
        let stored = include_str!("../../tests/stored/f13e2bc/lease.json");
        let stored: Lease = serde_json::from_str(stored).unwrap();
        let config = Args::parse_from(["ccm"]).into_config().unwrap();
        let memory = memory(None, &config.leader_election, "mock");
        let stored = stored.metadata.annotations.unwrap();
        memory.store_scope(&stored["grpc-ccm.io/cloud-scope-mock"]);
        assert_eq!(*memory.changes().borrow(), stored);
    }

    fn judged(
        session: &Arc<crate::provider::Session>,
        accepted: bool,
        why: &str,
    ) -> ProviderStatus {
        ProviderStatus {
            session: Some(Arc::clone(session)),
            scope_accepted: accepted,
            cloud_scope: Some("account 2".to_owned()),
            message: why.to_owned(),
            ..ProviderStatus::default()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn s20_another_scope_is_told_once_again_after_a_while_and_when_it_is_accepted() {
        let provider = crate::controllers::node::testing::Cloud::new();
        let process = crate::provider::testing::InMemory::running(provider.service());
        let running = crate::provider::testing::maintained(process);
        running.lead();
        let session = running.session().await;
        let events = Arc::new(std::sync::Mutex::new(Vec::new()));
        let sink = Arc::clone(&events);
        let (sender, status) = watch::channel(judged(&session, true, ""));
        let telling = tokio::spawn(async move {
            tell(status, "mock", |kind, reason, text| {
                sink.lock()
                    .unwrap()
                    .push(format!("{kind:?} {reason} {text}"));
            })
            .await;
        });
        let reported = || std::mem::take(&mut *events.lock().unwrap());
        let minutes = |minutes| tokio::time::sleep(Duration::from_mins(minutes));
        minutes(60).await;
        assert!(reported().is_empty(), "all is well");
        sender.send_replace(judged(&session, false, "accept it: kubectl annotate"));
        minutes(1).await;
        let warning = "Warning CloudScopeChanged provider mock: accept it: kubectl annotate";
        assert_eq!(reported(), [warning]);
        // The same text after another change or a new session causes no new event.
        sender.send_replace(ProviderStatus::default());
        minutes(1).await;
        sender.send_replace(judged(&session, false, "accept it: kubectl annotate"));
        minutes(12).await;
        assert!(reported().is_empty());
        minutes(2).await;
        assert_eq!(reported(), [warning]);
        sender.send_replace(judged(&session, false, "another one still"));
        minutes(1).await;
        assert_eq!(reported().len(), 1);
        sender.send_replace(judged(&session, true, ""));
        minutes(60).await;
        let good = "Normal CloudScopeAccepted provider mock: the cloud scope \"account 2\" is the accepted one: the controllers continue";
        assert_eq!(reported(), [good]);
        telling.abort();
    }
}
