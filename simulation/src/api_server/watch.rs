//! Watches: each is a reader of the one history, with a lag of its own.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::stream;
use http::Response;
use http_body::Frame;
use http_body_util::StreamBody;
use http_body_util::combinators::UnsyncBoxBody;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};

use super::ApiServer;
use super::answer::{Answer, Broken, text};
use super::refusal::Refusal;
use super::request::Asked;
use super::store::{Object, Store};
use crate::faults::ApiFault;

/// The interval of bookmarks.
const BOOKMARK: Duration = Duration::from_mins(1);

pub(super) struct Watcher {
    pub(super) server: ApiServer,
    pub(super) identity: Arc<str>,
    pub(super) asked: Asked,
    /// All matching changes up to this version were sent.
    version: u64,
    /// The first messages: the existing objects, or an error that the version is too old.
    first: VecDeque<String>,
    ends: bool,
    until: Instant,
    pub(super) lag: Duration,
    changed: watch::Receiver<u64>,
}

impl Watcher {
    pub(super) fn new(
        server: ApiServer,
        identity: &Arc<str>,
        asked: Asked,
        lag: Duration,
        changed: watch::Receiver<u64>,
    ) -> Result<Self, Refusal> {
        let from = asked.number("resourceVersion")?.unwrap_or(0);
        let seconds = asked.number("timeoutSeconds")?.unwrap_or(290);
        let initial = from == 0 || asked.is_set("sendInitialEvents");
        let mut first = VecDeque::new();
        let (version, ends) = {
            let store = server.store();
            let ends = from != 0 && from < store.oldest() && !initial;
            if ends {
                let expired = Refusal::expired("events since then are not kept");
                first.push_back(line("ERROR", &expired.status().to_string()));
            }
            if initial {
                first = Self::initial(&store, &asked);
            }
            let version = if initial { store.version() } else { from };
            (version, ends)
        };
        Ok(Self {
            server,
            identity: Arc::clone(identity),
            asked,
            version,
            first,
            ends,
            until: Instant::now() + Duration::from_secs(seconds),
            lag,
            changed,
        })
    }

    /// The existing objects and, if requested, a bookmark after them.
    fn initial(store: &Store, asked: &Asked) -> VecDeque<String> {
        let kind = asked.kind;
        let shown = |id: &_| asked.shows(id);
        let page = store.page(kind.plural, &asked.namespace, 0, None, usize::MAX, shown);
        let objects = page.map(|page| page.items).unwrap_or_default();
        let mut lines: VecDeque<String> = objects
            .iter()
            .map(|object| line("ADDED", &text(kind, object)))
            .collect();
        if asked.is_set("sendInitialEvents") {
            let annotations = json!({"k8s.io/initial-events-end": "true"});
            lines.push_back(bookmark(asked, store.version(), Some(annotations)));
        }
        lines
    }

    pub(super) fn answer(self) -> Answer {
        let lines = stream::unfold(self, |mut watcher| async move {
            let line = watcher.next().await?;
            Some((line.map(|line| Frame::data(Bytes::from(line))), watcher))
        });
        Response::new(UnsyncBoxBody::new(StreamBody::new(lines)))
    }

    /// The next change that matches the request, with its time and version. `None`: there is none
    /// yet.
    fn look(&mut self) -> Option<(Instant, u64, &'static str, Arc<Object>)> {
        let store = self.server.store();
        let mut since = store.since(self.version);
        let found = since.find(|change| self.asked.shows(&change.id));
        let found = found.map(|one| (one.at, one.version, one.what, Arc::clone(&one.object)));
        if found.is_none() {
            self.version = self.version.max(store.version());
        }
        found
    }

    async fn next(&mut self) -> Option<Result<String, Broken>> {
        if let Some(line) = self.first.pop_front() {
            return Some(Ok(line));
        }
        if self.ends {
            return None;
        }
        loop {
            self.changed.borrow_and_update();
            if let Some((at, version, what, object)) = self.look() {
                let visible = at + self.lag;
                if visible > self.until {
                    sleep_until(self.until).await;
                    return None;
                }
                sleep_until(visible).await;
                match self.server.inner.faults.watch(self.asked.kind.plural) {
                    Some(ApiFault::Late(wait)) => sleep(wait).await,
                    Some(_) => return Some(Err(Broken)),
                    None => {}
                }
                self.server.connected(&self.identity).await;
                self.version = version;
                return Some(Ok(line(what, &text(self.asked.kind, &object))));
            }
            let soon = Instant::now() + BOOKMARK;
            tokio::select! {
                biased;
                _ = self.changed.changed() => {}
                () = sleep_until(self.until.min(soon)) => {
                    if Instant::now() >= self.until {
                        return None;
                    }
                    if self.asked.is_set("allowWatchBookmarks") {
                        return Some(Ok(bookmark(&self.asked, self.version, None)));
                    }
                }
            }
        }
    }
}

fn line(what: &str, object: &str) -> String {
    format!("{{\"type\":\"{what}\",\"object\":{object}}}\n")
}

fn bookmark(asked: &Asked, version: u64, annotations: Option<Value>) -> String {
    let kind = asked.kind;
    let mut object = kind.blank();
    super::defaults::complete(kind, &mut object);
    object["apiVersion"] = json!(kind.version);
    object["kind"] = json!(kind.word);
    object["metadata"]["resourceVersion"] = json!(version.to_string());
    if let Some(annotations) = annotations {
        object["metadata"]["annotations"] = annotations;
    }
    line("BOOKMARK", &object.to_string())
}
