//! Keeps a provider connected, for ever: dials it, calls GetProviderInfo, and probes it. While this
//! process leads, it also initialises the provider and receives its hints.
//!
//! All this is one future. It owns the tasks of connections, and those that drain connections.
//! Dropping the future ends these tasks too.

mod changes;
mod lead;

use std::convert::Infallible;
use std::pin::pin;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use api::provider_service_client::ProviderServiceClient;
use cloud_provider_api::v1alpha1 as api;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use tokio::sync::{broadcast, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use super::call_log::{self, CallIds};
use super::calls::{timed, within};
use super::connect::{Connection, Connector, Link};
use super::handshake::{CONTROLLER_VERSION, check_info};
use super::limits;
use super::status::probe_word;
use super::weigh::Budget;
use super::{CallError, CallErrorCode, Hint, Memory, Metrics, ProviderStatus};
use crate::args::ProviderEndpoint;
use crate::core::{Backoff, changed, lock, millis};

const INFO_DEADLINE: Duration = Duration::from_secs(10);
const PROBE_DEADLINE: Duration = Duration::from_secs(5);
/// How often the ccm calls Probe. With a short `--provider-timeout` it calls Probe more often. A
/// connection that ends sooner than this counts as a failure.
pub(crate) const PROBE_PERIOD: Duration = Duration::from_secs(10);
/// The connection is closed after this many failed Probes in a row.
const PROBES_MISSED: u32 = 2;
/// A failed Probe is repeated after this.
const PROBE_AGAIN: Duration = Duration::from_secs(1);
/// A provider that the ccm cannot work with is asked again after this, or when its connection ends.
const REFUSED_AGAIN: Duration = Duration::from_secs(30);
/// The pause until the same reason is logged again.
const SAID_AGAIN: Backoff = Backoff::new(Duration::from_secs(10), Duration::from_mins(10));
/// The longest pause before the next attempt to connect. The pause is drawn at random up to this.
const LONGEST: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(5));
const DIAL_DEADLINE: Duration = Duration::from_secs(5);

/// The parameters of [`maintain`].
pub(crate) struct Maintain {
    /// The provider.
    pub(crate) endpoint: ProviderEndpoint,
    /// Dials the provider.
    pub(crate) connector: Arc<dyn Connector>,
    /// While this process leads: the request for Initialize. It is set only after the Lease was
    /// read, so that `memory` is up to date. With an older view, another cloud scope could count as
    /// the first one.
    pub(crate) leading: watch::Receiver<Option<Arc<api::InitializeRequest>>>,
    /// Publishes the provider's status.
    pub(crate) status: watch::Sender<ProviderStatus>,
    /// Publishes the provider's hints.
    pub(crate) hints: broadcast::Sender<Hint>,
    /// The stored facts about the provider. When they change, the ccm decides again about the cloud
    /// scope and the claims, without a restart.
    pub(crate) memory: Memory,
    /// How often the ccm calls Probe: at least three times in the time that the leader waits for an
    /// answer.
    pub(crate) probe_period: Duration,
    /// `Config::max_call_deadline`.
    pub(crate) max_call_deadline: Duration,
    /// The metrics of the calls.
    pub(crate) metrics: Metrics,
    /// Seed of the jitter and of the call IDs.
    pub(crate) seed: u64,
}

/// Keeps the provider connected. Never returns. Dropping the future ends the connection.
pub(crate) async fn maintain(with: Maintain) -> Infallible {
    let keeper = Keeper {
        name: with.endpoint.name.as_str().into(),
        random: Mutex::new(StdRng::seed_from_u64(with.seed)),
        next: Mutex::new(Some(String::new())),
        ids: CallIds::new(with.seed),
        said: Mutex::new(None),
        budget: Budget::default(),
        with,
    };
    tokio::select! {
        biased;
        never = keeper.show_state() => never,
        never = keeper.keep() => never,
    }
}

impl Keeper {
    /// Shows the provider's state as a metric.
    async fn show_state(&self) -> Infallible {
        let mut status = self.with.status.subscribe();
        loop {
            let metrics = &self.with.metrics;
            metrics.state(&self.name, &status.borrow_and_update());
            changed(&mut status).await;
        }
    }

    async fn keep(&self) -> Infallible {
        let mut failures = 0_u32;
        // The connections that take no new calls. Each waits for its calls in flight (CORE-17).
        // These calls have a deadline. WatchChanges has none, and is not among them.
        let mut draining = JoinSet::new();
        loop {
            let connected = self.connect().await;
            let outcome = match &connected {
                Ok(_) => "ok",
                Err(Setback::Dial(_)) => "unreachable",
                Err(Setback::Unclear(_)) => "failed",
                Err(Setback::Refused(..)) => "refused",
            };
            self.with.metrics.connected(&self.name, outcome);
            let why = match connected {
                Ok((connection, info)) => {
                    let started = Instant::now();
                    let why = self.serve(&connection.link, info).await;
                    while draining.try_join_next().is_some() {}
                    if connection.link.is_closing() {
                        let mut leading = self.with.leading.clone();
                        draining.spawn(async move {
                            tokio::select! {
                                biased;
                                // All these connections end when this process stops leading.
                                Ok(_) = leading.wait_for(Option::is_none) => {}
                                () = connection.drained() => {}
                            }
                        });
                    }
                    // A connection that ends soon counts as a failure, so that the pause grows.
                    failures = if started.elapsed() < PROBE_PERIOD {
                        failures.saturating_add(1)
                    } else {
                        0
                    };
                    why
                }
                Err(Setback::Dial(why)) => {
                    failures = 0;
                    why
                }
                Err(Setback::Unclear(why)) => {
                    failures = failures.saturating_add(1);
                    why
                }
                Err(Setback::Refused(connection, why)) => {
                    self.down(&why);
                    tokio::select! {
                        biased;
                        () = sleep(REFUSED_AGAIN) => {}
                        () = connection.link.ended() => {}
                    }
                    // A refused process counts as a failure too, also if it goes away at once.
                    failures = failures.saturating_add(1);
                    why
                }
            };
            self.down(&why);
            let pause = delay(failures, &mut lock(&self.random));
            sleep(pause).await;
        }
    }
}

/// Why there is no usable connection.
enum Setback {
    /// Dialling failed.
    Dial(String),
    /// The process on the socket was dialled, and did not answer as it should.
    Unclear(String),
    /// The process answered, and the ccm cannot work with it.
    Refused(Connection, String),
}

/// The state of `maintain`.
struct Keeper {
    with: Maintain,
    name: Arc<str>,
    random: Mutex<StdRng>,
    /// The token after which the next stream of WatchChanges begins, also in another session. Empty
    /// before the first stream. `None`: the last stream left no token, so the ccm may have missed
    /// changes.
    next: Mutex<Option<String>>,
    /// The IDs of all calls.
    ids: CallIds,
    /// The reason that was logged last, and when.
    said: Mutex<Option<Said>>,
    /// The memory that all answers may take together.
    budget: Budget,
}

struct Said {
    why: String,
    at: Instant,
    /// How often the reason was logged before that, since the last connection.
    before: u32,
}

/// The new state if the reason is to be logged now. `None`: do not log it now.
fn says(said: Option<&Said>, why: &str, now: Instant) -> Option<Said> {
    let before = match said {
        Some(said) if said.why == why => {
            if now.saturating_duration_since(said.at) < SAID_AGAIN.pause(said.before) {
                return None;
            }
            said.before.saturating_add(1)
        }
        _ => 0,
    };
    Some(Said {
        why: why.to_owned(),
        at: now,
        before,
    })
}

impl Keeper {
    /// Dials the provider, and calls GetProviderInfo.
    async fn connect(&self) -> Result<(Connection, Arc<api::GetProviderInfoResponse>), Setback> {
        let pipe = match timeout(DIAL_DEADLINE, self.with.connector.connect()).await {
            Ok(Ok(pipe)) => pipe,
            Ok(Err(why)) => return Err(Setback::Dial(why)),
            Err(_) => return Err(Setback::Dial("dialling the provider hangs".to_owned())),
        };
        let connection =
            match timeout(DIAL_DEADLINE, Connection::over(pipe, self.budget.clone())).await {
                Ok(Ok(connection)) => connection,
                Ok(Err(error)) => {
                    return Err(Setback::Unclear(format!(
                        "the process that listens on the socket does not speak HTTP/2: {error}"
                    )));
                }
                Err(_) => return Err(Setback::Unclear("the provider's HTTP/2 hangs".to_owned())),
            };
        let request = api::GetProviderInfoRequest {
            controller_version: CONTROLLER_VERSION.to_owned(),
            contract_minor: api::CONTRACT_MINOR,
        };
        // Why the ccm cannot work with this process.
        let refused = &OnceLock::new();
        let send = |mut client: ProviderServiceClient<Link>| async move {
            let request = timed(request, INFO_DEADLINE);
            let answer = client.get_provider_info(request).await;
            if matches!(&answer, Err(status) if status.code() == tonic::Code::Unimplemented) {
                let _ = refused.set("the process on the socket does not serve cloudprovider.v1alpha1.ProviderService: it speaks another major version of the contract, or is not a provider; this ccm speaks v1alpha1".to_owned());
            }
            answer
        };
        let read = |info| match check_info(&info) {
            Ok(()) => Ok(info),
            Err(why) => {
                let _ = refused.set(why.clone());
                Err(CallError::fault(why))
            }
        };
        let link = &connection.link;
        let answer = self.own_call("GetProviderInfo", INFO_DEADLINE, link, send, read);
        match answer.await {
            Ok(info) => Ok((connection, Arc::new(info))),
            Err(trouble) => Err(match refused.get() {
                Some(why) => Setback::Refused(connection, why.clone()),
                None => Setback::Unclear(format!("GetProviderInfo failed: {trouble}")),
            }),
        }
    }

    /// Works with a connection until it is over. Returns the reason.
    async fn serve(&self, link: &Link, info: Arc<api::GetProviderInfoResponse>) -> String {
        tracing::info!(
            provider = %self.name,
            provider_name = limits::shown(&info.provider_name),
            version = limits::shown(&info.provider_version),
            boot_id = limits::shown(&info.boot_id),
            "connected to the provider"
        );
        if let Some(said) = &mut *lock(&self.said) {
            // After the next loss, the same reason is logged again without a longer pause.
            said.before = 0;
        }
        self.with.status.send_modify(|status| {
            status.connected(Arc::clone(&info), &self.with.endpoint);
        });
        tokio::select! {
            biased;
            () = link.closing() => link.why_closing(),
            why = self.probe(link, &info) => why,
            why = self.lead(link, &info) => why,
        }
    }

    /// Probes the provider until the connection is to be closed. Returns the reason.
    async fn probe(&self, link: &Link, info: &api::GetProviderInfoResponse) -> String {
        let mut missed = 0;
        loop {
            let started = Instant::now();
            let mut is_other = false;
            let send = |mut client: ProviderServiceClient<Link>| async move {
                let request = timed(api::ProbeRequest {}, PROBE_DEADLINE);
                client.probe(request).await
            };
            let read = |answer: api::ProbeResponse| {
                is_other = answer.boot_id != info.boot_id;
                if is_other {
                    return Err(CallError::fault("the boot_id is another one"));
                }
                Ok(answer)
            };
            let answer = self.own_call("Probe", PROBE_DEADLINE, link, send, read);
            let answer = answer.await;
            if is_other {
                return "another process of the provider answers (its boot_id changed)".to_owned();
            }
            let answer = match answer {
                Ok(answer) => answer,
                Err(trouble) => {
                    missed += 1;
                    if missed >= PROBES_MISSED {
                        return format!(
                            "{missed} Probes in a row failed, the last with: {trouble}"
                        );
                    }
                    tracing::warn!(provider = %self.name, call_id = trouble.call_id(), error = %trouble, retry_in_ms = millis(PROBE_AGAIN), "Probe failed; one more failure closes the connection");
                    sleep(PROBE_AGAIN).await;
                    continue;
                }
            };
            missed = 0;
            self.probed(&answer);
            let next = started + self.with.probe_period;
            tokio::time::sleep_until(next).await;
        }
    }

    /// Publishes the answer of a Probe. It wakes no receiver if nothing changed.
    fn probed(&self, answer: &api::ProbeResponse) {
        let state = match answer.state() {
            // Includes an unknown state.
            api::ProbeState::Unspecified => api::ProbeState::Broken,
            state => state,
        };
        let message = match state {
            api::ProbeState::Ready => String::new(),
            _ => limits::cut(&answer.message),
        };
        let news = self.with.status.send_if_modified(|status| {
            status.last_answer = Some(Instant::now());
            let news = status.probe != state || status.probe_message != message;
            status.probe = state;
            status.probe_message.clone_from(&message);
            news
        });
        // A log line may block, and everybody reads the status.
        if news {
            let (provider, state) = (&self.name, probe_word(state));
            if message.is_empty() {
                tracing::info!(%provider, state, "the provider's state");
            } else {
                tracing::warn!(%provider, state, says = message, "the provider's state");
            }
        }
    }

    /// A call of `maintain` itself. It needs no call limiter, and the end of a session does not cut
    /// it. `read` returns the content of the answer, or the failure that counts as that of the
    /// call.
    async fn own_call<A, T, F>(
        &self,
        rpc: &'static str,
        deadline: Duration,
        link: &Link,
        send: impl FnOnce(ProviderServiceClient<Link>) -> F,
        read: impl FnOnce(A) -> Result<T, CallError>,
    ) -> Result<T, CallError>
    where
        F: Future<Output = Result<tonic::Response<A>, tonic::Status>>,
    {
        let (started, call_id) = (Instant::now(), self.ids.next());
        let client = client(&link.for_call(&call_id));
        let ended = async {
            link.ended().await;
            let why = "the connection to the provider is gone";
            CallError::new(CallErrorCode::Disconnected, why)
        };
        let call = pin!(async { Ok(send(client).await?.into_inner()) });
        let result = within(rpc, deadline, ended, call).await.and_then(read);
        let (metrics, reported) = (&self.with.metrics, result.as_ref().err());
        let took = started.elapsed();
        call_log::show(metrics, &self.name, rpc, &call_id, reported, took);
        result.map_err(|trouble| trouble.of_call(rpc, &call_id))
    }

    /// Publishes that there is no connection, and why.
    fn down(&self, why: &str) {
        self.with.status.send_modify(|status| {
            status.session = None;
            status.info = None;
            status.probe = api::ProbeState::Unspecified;
            status.probe_message.clear();
            status.scope_accepted = false;
            status.message = limits::cut(why);
        });
        self.say(why);
    }

    /// Logs a reason when it is new, and again from time to time.
    fn say(&self, why: &str) {
        let mut said = lock(&self.said);
        if let Some(says) = says(said.as_ref(), why, Instant::now()) {
            *said = Some(says);
            drop(said);
            tracing::warn!(provider = %self.name, reason = why, "provider is not available: controllers pause");
        }
    }
}

/// The pause before the next attempt. It is 0.1 s to 1 s after a failed dial, so the ccm finds a
/// new process within about a second (▲M9). A dial is cheap. After other failures in a row the
/// upper limit of the pause grows to 5 s.
fn delay(failures: u32, random: &mut StdRng) -> Duration {
    let most = LONGEST.pause(failures.saturating_sub(1));
    Duration::from_millis(random.random_range(100..=millis(most)))
}

pub(super) fn client(link: &Link) -> ProviderServiceClient<Link> {
    ProviderServiceClient::with_origin(link.clone(), Link::origin())
        .max_decoding_message_size(api::MOST_MESSAGE_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn m9_where_nobody_listens_it_is_dialled_again_within_a_second() {
        let longest = |failures: u32| {
            let delays = (0..1_000).map(|seed| delay(failures, &mut StdRng::seed_from_u64(seed)));
            let delays: Vec<_> = delays.collect();
            assert!(
                delays
                    .iter()
                    .all(|pause| *pause >= Duration::from_millis(100))
            );
            delays.into_iter().max().unwrap_or_default()
        };
        // `maintain` counts no failure if no process listens, and one if a connection ended soon.
        for (failures, most) in [(0, 1), (1, 1), (2, 2), (3, 4), (4, 5), (u32::MAX, 5)] {
            let most = Duration::from_secs(most);
            let longest = longest(failures);
            assert!(
                longest <= most && longest > most / 2,
                "{failures}: {longest:?}"
            );
        }
    }

    #[test]
    fn a_reason_that_stays_is_logged_less_and_less_often() {
        let start = Instant::now();
        let mut said: Option<Said> = None;
        let mut logged = Vec::new();
        for second in 0..3_600 {
            let now = start + Duration::from_secs(second);
            if let Some(says) = says(said.as_ref(), "nobody listens", now) {
                said = Some(says);
                logged.push(second);
            }
        }
        assert_eq!(
            logged,
            [0, 10, 30, 70, 150, 310, 630, 1_230, 1_830, 2_430, 3_030]
        );
        let now = start + Duration::from_secs(3_100);
        let other = says(said.as_ref(), "it hangs", now).map(|said| said.before);
        assert_eq!(other, Some(0), "another one at once");
    }
}
