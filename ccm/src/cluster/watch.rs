//! The watch that feeds a store. It never ends. The longest pause before a retry doubles with each
//! failure in a row, up to 30 s.

use std::fmt::Debug;
use std::pin::pin;
use std::time::Duration;

use futures::{Stream, StreamExt, TryStreamExt};
use k8s_openapi::serde::de::DeserializeOwned;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, Resource};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tokio::time::Instant;

use super::Store;
use super::apply::First;
use crate::core::{Backoff, Lenient, Prune, lock, millis};
use crate::kube_client::refusal_of_watch;

/// Objects in a page of a list. A list takes the memory of one page of whole objects, and the
/// allocator keeps some of it. 5,000 Nodes of 12 kB took 47 MB (66 at the peak) with 200, and 81 MB
/// (92) with 500.
const PAGE: u32 = 200;
/// The API server ends a watch after this many seconds. If no event has come for 5 s longer, the
/// connection counts as dead.
const WATCH_SECONDS: u32 = 120;
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(30));
/// After this time without a failure the watch counts as healthy: in a quiet cluster no event
/// proves it.
const TROUBLE_LASTS: Duration = Duration::from_mins(1);

impl<K> Store<K> {
    /// The current failure of the watch.
    pub(super) fn trouble(&self) -> Option<String> {
        let trouble = lock(&self.shared.trouble);
        let trouble = trouble.as_ref();
        trouble
            .filter(|(at, _)| at.elapsed() < TROUBLE_LASTS)
            .map(|(_, error)| error.clone())
    }

    fn no_trouble(&self) {
        *lock(&self.shared.trouble) = None;
    }

    /// For `/readyz`: whether the first list is complete, else why not.
    pub(crate) fn ready(&self) -> Result<(), String> {
        if self.is_synced() {
            return Ok(());
        }
        let why = self.trouble();
        Err(why.unwrap_or_else(|| "the first list is not complete yet".to_owned()))
    }

    /// For `/readyz`, if the ccm does not need the kind: a refused list counts as ready.
    pub(crate) fn ready_or_refused(&self) -> Result<(), String> {
        if *self.shared.first.borrow() == First::Refused {
            return Ok(());
        }
        self.ready()
    }
}

impl<K> Store<K>
where
    K: Resource<DynamicType = ()>
        + Prune
        + Clone
        + Debug
        + DeserializeOwned
        + Send
        + Sync
        + 'static,
{
    /// Feeds the store from the API server. It never returns.
    pub(crate) async fn watch(&self, client: Client, seed: u64) {
        let config = watcher::Config::default()
            .page_size(PAGE)
            .timeout(WATCH_SECONDS);
        self.feed(
            || {
                let all = Api::<Lenient<K>>::all(client.clone());
                watcher(all, config.clone()).map_ok(strict)
            },
            seed,
        )
        .await;
    }

    /// Feeds the store from a stream of events, and opens a new stream when the old one cannot
    /// continue.
    pub(super) async fn feed<S>(&self, mut stream: impl FnMut() -> S, seed: u64)
    where
        S: Stream<Item = watcher::Result<Event<K>>>,
    {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let mut failures = 0_u32;
        let mut last_failure: Option<Instant> = None;
        loop {
            let mut events = pin!(stream());
            while let Some(event) = events.next().await {
                match event {
                    Ok(event) => {
                        // `Init` comes before the list request, so it proves nothing. A list proves
                        // only that lists work: if it reset the failures, a watch that is always
                        // refused would list again and again after the shortest pause.
                        match event {
                            Event::Init => {}
                            Event::InitApply(_) | Event::InitDone => self.no_trouble(),
                            Event::Apply(_) | Event::Delete(_) => {
                                failures = 0;
                                self.no_trouble();
                            }
                        }
                        self.apply(event);
                    }
                    Err(error) => {
                        if last_failure.is_some_and(|at| at.elapsed() > TROUBLE_LASTS) {
                            failures = 0;
                        }
                        let jitter = random.random_range(0.5..=1.0);
                        let delay = BACKOFF.pause(failures).mul_f64(jitter);
                        failures = failures.saturating_add(1);
                        let kind = K::kind(&());
                        let trouble = if let Some(refused) = refusal_of_watch(&error) {
                            tracing::warn!(kind = %kind, failures, %refused, retry_in_ms = millis(delay), "the API server answers, but refuses the watch");
                            format!("the API server answers, but refuses the watch: {refused}")
                        } else {
                            tracing::warn!(kind = %kind, failures, %error, retry_in_ms = millis(delay), "watch failed");
                            error.to_string()
                        };
                        if is_refused(&error) {
                            self.shared.first.send_if_modified(|first| {
                                let awaited = *first == First::Awaited;
                                if awaited {
                                    *first = First::Refused;
                                }
                                awaited
                            });
                        }
                        let anew = needs_new_list(&error);
                        *lock(&self.shared.trouble) = Some((Instant::now(), trouble));
                        tokio::time::sleep(delay).await;
                        last_failure = Some(Instant::now());
                        if anew {
                            break;
                        }
                    }
                }
            }
        }
    }
}

fn strict<K>(event: Event<Lenient<K>>) -> Event<K> {
    match event {
        Event::Init => Event::Init,
        Event::InitApply(object) => Event::InitApply(object.0),
        Event::InitDone => Event::InitDone,
        Event::Apply(object) => Event::Apply(object.0),
        Event::Delete(object) => Event::Delete(object.0),
    }
}

/// Whether the API server refuses the list or the watch: it does not recognise this process, a
/// right is missing, or it does not serve the kind.
fn is_refused(error: &watcher::Error) -> bool {
    let unknown = matches!(error, watcher::Error::InitialListFailed(kube::Error::Api(status)) if status.code == 404);
    unknown || refusal_of_watch(error).is_some()
}

/// Whether only a new list helps. The watcher notices that during a watch, but not when the watch
/// is refused at its start: then it asks for the same resourceVersion for ever.
fn needs_new_list(error: &watcher::Error) -> bool {
    matches!(error, watcher::Error::WatchStartFailed(kube::Error::Api(status)) if matches!(status.code, 400 | 410))
}
