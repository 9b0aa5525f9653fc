//! Watches the Lease. So a standby notices a release at once. A leader notices at once that its
//! Lease was deleted or taken. An event only triggers a fresh read, which decides. Without a watch
//! (missing rights, a lost connection), polling is enough.

use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::{self, BoxStream};
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::{WatchEvent, WatchParams};
use tokio::time::{Instant, sleep, timeout_at};

use super::{record, within};
use crate::core::Backoff;

type Events = BoxStream<'static, kube::Result<WatchEvent<Lease>>>;

/// The API server ends a watch after this.
const WATCH_SECONDS: u32 = 290;
/// The ccm treats a watch that lasts longer than this as a lost connection.
const WATCH_CAP: Duration = Duration::from_mins(5);
const CONNECT_CAP: Duration = Duration::from_secs(10);
const BACKOFF: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_mins(1));

/// What the events about one Lease show: its holder; `None`: it was deleted.
pub(super) struct Wake(BoxStream<'static, Option<String>>);

impl Wake {
    pub(super) fn new(api: Api<Lease>, name: &str) -> Self {
        let watch = Watch {
            api,
            name: name.to_owned(),
            pauses: 0,
            events: None,
        };
        let seen = stream::unfold(watch, async |mut watch| Some((watch.seen().await, watch)));
        Self(seen.boxed())
    }

    /// Returns when an event shows the Lease without a holder. Cancel safe.
    pub(super) async fn released(&mut self) {
        while !matches!(self.seen().await.as_deref(), Some("")) {}
    }

    /// Returns when an event shows the Lease deleted, or with another holder. Cancel safe.
    pub(super) async fn not_held_by(&mut self, identity: &str) {
        while self.seen().await.as_deref() == Some(identity) {}
    }

    /// A step that was begun stays in the stream, so this is cancel safe.
    async fn seen(&mut self) -> Option<String> {
        self.0.next().await.flatten()
    }
}

struct Watch {
    api: Api<Lease>,
    name: String,
    /// Pauses since the last event that showed the Lease.
    pauses: u32,
    /// The events of a connection, and when it counts as lost.
    events: Option<(Events, Instant)>,
}

impl Watch {
    /// Waits for an event, and returns the holder; `None`: the Lease was deleted.
    async fn seen(&mut self) -> Option<String> {
        loop {
            let Some((events, end)) = &mut self.events else {
                self.open().await;
                continue;
            };
            match timeout_at(*end, events.next()).await {
                Ok(Some(Ok(WatchEvent::Added(lease) | WatchEvent::Modified(lease)))) => {
                    self.pauses = 0;
                    return Some(record::holder(&lease).to_owned());
                }
                Ok(Some(Ok(WatchEvent::Deleted(_)))) => return None,
                Ok(Some(Ok(WatchEvent::Bookmark(_)))) => {}
                Ok(Some(Ok(WatchEvent::Error(_)) | Err(_)) | None) | Err(_) => self.pause().await,
            }
        }
    }

    async fn open(&mut self) {
        match connect(&self.api, &self.name).await {
            Ok(events) => self.events = Some((events, Instant::now() + WATCH_CAP)),
            Err(error) => {
                tracing::debug!(%error, lease = %self.name, "cannot watch the Lease; polling it");
                self.pause().await;
            }
        }
    }

    /// Waits without a connection.
    async fn pause(&mut self) {
        self.events = None;
        sleep(BACKOFF.pause(self.pauses)).await;
        self.pauses = self.pauses.saturating_add(1);
    }
}

async fn connect(api: &Api<Lease>, name: &str) -> kube::Result<Events> {
    let params = WatchParams::default()
        .fields(&format!("metadata.name={name}"))
        .timeout(WATCH_SECONDS);
    let events = within(CONNECT_CAP, api.watch(&params, "0")).await?;
    Ok(events.boxed())
}
