//! Faults by call site, time and number: for example, the second `PATCH services/status` after 40 s
//! loses its answer.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use provider_mock::{Fault, FaultKind};
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use crate::plan::{Step, Strike, Wrong};

/// The fault of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ApiFault {
    /// The request has no effect, and the answer has this status.
    Code(u16),
    /// The request takes effect, and the connection breaks before the answer.
    Lost,
    /// The connection breaks before the request takes effect.
    Broken,
    /// The request is delayed by this time.
    Late(Duration),
}

impl ApiFault {
    /// Its name in the coverage.
    #[must_use]
    pub fn kind(self) -> String {
        match self {
            Self::Code(code) => code.to_string(),
            Self::Lost => "lost".to_owned(),
            Self::Broken => "broken".to_owned(),
            Self::Late(_) => "late".to_owned(),
        }
    }
}

/// A process that is to die after the effect of its request dies this long after it sent the
/// request: later than the API server's longest latency. A call of the provider takes effect after
/// the time that each operation of the cloud takes.
const DIES_WITHIN: Duration = Duration::from_millis(16);
/// If steps happen during a request to the API server, this is the request's delay. A call of the
/// provider is delayed ten times as long. Watches deliver the steps meanwhile.
const MEANWHILE: Duration = Duration::from_millis(200);
/// A leader keeps its Lease if no request for the Lease takes longer than this.
pub const SLOW_AT_MOST: Duration = Duration::from_millis(1_200);

/// The faults of a run, and their hits. Clones share them.
#[derive(Clone)]
pub struct Faults(Arc<Inner>);

struct Inner {
    began: Instant,
    /// The time that each operation of the cloud takes.
    slow: Duration,
    state: Mutex<State>,
    /// Notified when a process should die.
    death: Notify,
    /// Notified when a step happens.
    happens: Notify,
}

/// The requests of a ccm that sets a Node's condition.
const CONDITION: [&str; 2] = ["PATCH nodes/status", "GET nodes"];

#[derive(Default)]
struct State {
    /// The planned faults that have not occurred. Each has the number of matching requests that are
    /// left until it strikes.
    planned: Vec<(Strike, u32)>,
    counts: BTreeMap<String, u64>,
    hit: BTreeMap<(String, String), u64>,
    /// When the API server stops being slow, and the delay of each request until then.
    slow: Option<(Instant, Duration)>,
    /// When processes should die, and their identities. The next one is first.
    deaths: VecDeque<(Instant, Arc<str>)>,
    /// The steps that should happen now.
    happening: VecDeque<Step>,
    /// Until when the Lease was last out of a leader's reach.
    lease_trouble: Option<Instant>,
    /// Until when requests to the API server last failed or were late.
    api_trouble: Option<Instant>,
    /// When the API server last refused a write of a Node's status, or a read of a Node.
    condition_refused: Option<Instant>,
    off: bool,
}

impl Faults {
    /// The planned faults. Their times begin now. `slow` is the time that each operation of the
    /// cloud takes.
    #[must_use]
    pub fn new(strikes: &[Strike], slow: Duration) -> Self {
        let planned = strikes
            .iter()
            .map(|strike| (strike.clone(), strike.number))
            .collect();
        Self(Arc::new(Inner {
            began: Instant::now(),
            slow,
            state: Mutex::new(State {
                planned,
                ..State::default()
            }),
            death: Notify::new(),
            happens: Notify::new(),
        }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends all faults.
    pub fn end(&self) {
        let mut state = self.state();
        state.off = true;
        state.slow = None;
        state.deaths.clear();
    }

    /// Delays each request to the API server by `by`, until the time `until`.
    pub fn slow(&self, until: Instant, by: Duration) {
        self.state().slow = Some((until, by));
    }

    /// Until this time a leader may lose its Lease.
    pub fn lease_trouble(&self, until: Instant) {
        let mut state = self.state();
        state.lease_trouble = state.lease_trouble.max(Some(until));
    }

    /// Whether a leader had reason to lose its Lease within this time.
    #[must_use]
    pub fn had_lease_trouble(&self, within: Duration) -> bool {
        let trouble = self.state().lease_trouble;
        trouble.is_some_and(|at| at.elapsed() <= within)
    }

    /// Until when requests to the API server failed or were late, as far as is known.
    #[must_use]
    pub fn hindered(&self) -> Option<Instant> {
        let state = self.state();
        state.api_trouble.max(state.lease_trouble)
    }

    /// When the API server last refused a write of a Node's status, or a read of a Node.
    #[must_use]
    pub fn condition_refused(&self) -> Option<Instant> {
        self.state().condition_refused
    }

    /// How many requests and calls the ccms sent so far, without Probes, those about Leases, and
    /// the second ccm's calls.
    #[must_use]
    pub fn sent(&self) -> u64 {
        let state = self.state();
        let counted = |site: &str| !site.starts_with("EVENT ") && !site.ends_with(" leases");
        let counts = state.counts.iter().filter(|(site, _)| counted(site));
        counts.map(|(_, count)| count).sum()
    }

    /// Counts a request at this site, and returns its fault.
    fn strike(&self, site: &str) -> Option<Wrong> {
        let since = self.0.began.elapsed();
        let mut state = self.state();
        if let Some(count) = state.counts.get_mut(site) {
            *count += 1;
        } else {
            state.counts.insert(site.to_owned(), 1);
        }
        if state.off {
            return None;
        }
        let mut struck = None;
        for (at, (strike, left)) in state.planned.iter_mut().enumerate() {
            if strike.site == site && since >= Duration::from_millis(strike.from_ms) {
                *left -= 1;
                if *left == 0 && struck.is_none() {
                    struck = Some(at);
                }
                *left = (*left).max(1);
            }
        }
        let (strike, _) = state.planned.remove(struck?);
        note(&mut state, site, &strike.wrong.kind());
        Some(strike.wrong)
    }

    fn dies(&self, at: Instant, identity: &Arc<str>) {
        let mut state = self.state();
        let place = state.deaths.partition_point(|(other, _)| *other <= at);
        state.deaths.insert(place, (at, Arc::clone(identity)));
        drop(state);
        self.0.death.notify_one();
    }

    fn meanwhile(&self, steps: Vec<Step>) {
        self.state().happening.extend(steps);
        self.0.happens.notify_one();
    }

    /// Returns the next step that happens while a request is on its way.
    pub async fn happens(&self) -> Step {
        loop {
            let next = self.state().happening.pop_front();
            match next {
                Some(step) => return step,
                None => self.0.happens.notified().await,
            }
        }
    }

    /// The fault of this request, which the process with this identity sent.
    pub(crate) fn api(&self, site: &str, identity: &Arc<str>) -> Option<ApiFault> {
        let fault = match self.strike(site) {
            Some(Wrong::Api(fault)) => Some(fault),
            Some(Wrong::Dies { after: false }) => {
                self.dies(Instant::now(), identity);
                Some(ApiFault::Broken)
            }
            Some(Wrong::Dies { after: true }) => {
                self.dies(Instant::now() + DIES_WITHIN, identity);
                Some(ApiFault::Lost)
            }
            Some(Wrong::Meanwhile(steps)) => {
                self.meanwhile(steps);
                Some(ApiFault::Late(MEANWHILE))
            }
            Some(Wrong::Rpc(_)) | None => {
                let slow = self.state().slow;
                slow.filter(|(until, _)| *until > Instant::now())
                    .map(|(_, by)| ApiFault::Late(by))
            }
        };
        let bearable = match fault {
            None => true,
            Some(ApiFault::Late(by)) => by <= SLOW_AT_MOST,
            Some(_) => false,
        };
        let until = Instant::now() + late(fault);
        if site.ends_with(" leases") && !bearable {
            self.lease_trouble(until);
        } else if fault.is_some() {
            let mut state = self.state();
            state.api_trouble = state.api_trouble.max(Some(until));
            if matches!(fault, Some(ApiFault::Code(_))) && CONDITION.contains(&site) {
                state.condition_refused = Some(until);
            }
        }
        fault
    }

    pub(crate) fn watch(&self, kind: &str) -> Option<ApiFault> {
        match self.strike(&format!("EVENT {kind}"))? {
            Wrong::Api(fault) => {
                let mut state = self.state();
                let until = Instant::now() + late(Some(fault));
                state.api_trouble = state.api_trouble.max(Some(until));
                Some(fault)
            }
            Wrong::Meanwhile(steps) => {
                self.meanwhile(steps);
                Some(ApiFault::Late(MEANWHILE))
            }
            Wrong::Rpc(_) | Wrong::Dies { .. } => None,
        }
    }

    /// The fault of this call of the provider, which the process with this identity sent.
    pub(crate) fn rpc(&self, rpc: &str, identity: &Arc<str>) -> Option<Fault> {
        match self.strike(rpc)? {
            Wrong::Rpc(fault) => Some(*fault),
            Wrong::Dies { after } => {
                let within = if after {
                    self.0.slow + DIES_WITHIN
                } else {
                    Duration::ZERO
                };
                self.dies(Instant::now() + within, identity);
                None
            }
            Wrong::Meanwhile(steps) => {
                self.meanwhile(steps);
                Some(Fault::delay(rpc, MEANWHILE * 10).times(1))
            }
            Wrong::Api(_) => None,
        }
    }

    /// Returns the identity of a process when it should die.
    pub async fn death(&self) -> Arc<str> {
        loop {
            let due = self.state().deaths.front().map(|(at, _)| *at);
            match due {
                Some(at) => {
                    tokio::select! {
                        biased;
                        // An earlier death may have been added.
                        () = self.0.death.notified() => {}
                        () = sleep_until(at) => {
                            let first = self.state().deaths.pop_front();
                            if let Some((_, identity)) = first {
                                return identity;
                            }
                        }
                    }
                }
                None => self.0.death.notified().await,
            }
        }
    }

    /// How many requests were sent at this site.
    #[must_use]
    pub fn count(&self, site: &str) -> u64 {
        self.state().counts.get(site).copied().unwrap_or_default()
    }

    /// How many requests were sent at each site.
    #[must_use]
    pub fn counts(&self) -> BTreeMap<String, u64> {
        self.state().counts.clone()
    }

    /// Notes a fault that a step set in the provider.
    pub fn played(&self, site: &str, kind: &str) {
        note(&mut self.state(), site, kind);
    }

    /// Whether a call of this RPC hung.
    #[must_use]
    pub fn has_hung(&self, rpc: &str) -> bool {
        let key = (rpc.to_owned(), FaultKind::Hang.to_string());
        self.state().hit.contains_key(&key)
    }

    /// How often each kind of fault was hit at each site.
    #[must_use]
    pub fn hit(&self) -> BTreeMap<(String, String), u64> {
        self.state().hit.clone()
    }
}

fn late(fault: Option<ApiFault>) -> Duration {
    match fault {
        Some(ApiFault::Late(by)) => by,
        _ => Duration::ZERO,
    }
}

fn note(state: &mut State, site: &str, kind: &str) {
    let key = (site.to_owned(), kind.to_owned());
    *state.hit.entry(key).or_default() += 1;
}
