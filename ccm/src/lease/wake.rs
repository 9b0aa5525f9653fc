//! Watches the Lease. So a standby notices a release at once. A leader notices at once that its
//! Lease was deleted or taken. An event only triggers a fresh read, which decides. Without a watch
//! (missing rights, a lost connection), polling is enough.

use std::time::Duration;

use futures::StreamExt as _;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::{WatchEvent, WatchParams};
use tokio::time::{Instant, sleep_until, timeout, timeout_at};

use super::record;
use crate::core::Backoff;

type Events = BoxStream<'static, kube::Result<WatchEvent<Lease>>>;

/// The API server ends a watch after this.
const WATCH_SECONDS: u32 = 290;
/// The ccm treats a watch that lasts longer than this as a lost connection.
const WATCH_CAP: Duration = Duration::from_mins(5);
const CONNECT_CAP: Duration = Duration::from_secs(10);
const BACKOFF: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_mins(1));

enum State {
    Waiting(Instant),
    Connecting(BoxFuture<'static, kube::Result<Events>>),
    Open(Events, Instant),
}

/// The watch of one Lease.
pub(super) struct Wake {
    api: Api<Lease>,
    name: String,
    /// Pauses since the last event that showed the Lease.
    pauses: u32,
    state: State,
}

impl Wake {
    pub(super) fn new(api: Api<Lease>, name: &str) -> Self {
        Self {
            api,
            name: name.to_owned(),
            pauses: 0,
            state: State::Waiting(Instant::now()),
        }
    }

    /// Returns when an event shows the Lease without a holder. Cancel safe.
    pub(super) async fn released(&mut self) {
        while !matches!(self.seen().await.as_deref(), Some("")) {}
    }

    /// Returns when an event shows the Lease deleted, or with another holder. Cancel safe.
    pub(super) async fn not_held_by(&mut self, identity: &str) {
        while self.seen().await.as_deref() == Some(identity) {}
    }

    /// Waits for an event, and returns the holder; `None`: the Lease was deleted.
    async fn seen(&mut self) -> Option<String> {
        loop {
            match &mut self.state {
                State::Waiting(until) => {
                    sleep_until(*until).await;
                    let (api, name) = (self.api.clone(), self.name.clone());
                    self.state = State::Connecting(Box::pin(connect(api, name)));
                }
                State::Connecting(connecting) => match connecting.await {
                    Ok(events) => self.state = State::Open(events, Instant::now() + WATCH_CAP),
                    Err(error) => {
                        tracing::debug!(%error, lease = %self.name, "cannot watch the Lease; polling it");
                        self.wait();
                    }
                },
                State::Open(events, end) => match timeout_at(*end, events.next()).await {
                    Ok(Some(Ok(WatchEvent::Added(lease) | WatchEvent::Modified(lease)))) => {
                        self.pauses = 0;
                        return Some(record::holder(&lease).to_owned());
                    }
                    Ok(Some(Ok(WatchEvent::Deleted(_)))) => return None,
                    Ok(Some(Ok(WatchEvent::Bookmark(_)))) => {}
                    Ok(Some(Ok(WatchEvent::Error(_)) | Err(_)) | None) | Err(_) => self.wait(),
                },
            }
        }
    }

    fn wait(&mut self) {
        self.state = State::Waiting(Instant::now() + BACKOFF.pause(self.pauses));
        self.pauses = self.pauses.saturating_add(1);
    }
}

async fn connect(api: Api<Lease>, name: String) -> kube::Result<Events> {
    let params = WatchParams::default()
        .fields(&format!("metadata.name={name}"))
        .timeout(WATCH_SECONDS);
    match timeout(CONNECT_CAP, api.watch(&params, "0")).await {
        Ok(events) => Ok(events?.boxed()),
        Err(elapsed) => Err(kube::Error::Service(Box::new(elapsed))),
    }
}
