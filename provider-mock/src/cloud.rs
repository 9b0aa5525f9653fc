//! The cloud in memory: what its provider, the control service and a test hold in common.

mod calls;
mod instances;
mod objects;
mod settings;

use std::collections::VecDeque;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use provider_sdk::{Change, Health};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::calls::CallLog;
use crate::error::{CloudError, FixtureError, StartError};
use crate::faults::Faults;
use crate::fixture::Fixture;
use crate::store::{Objects, Section, Store};

/// How many hints are kept for a controller that comes back.
const KEPT_HINTS: usize = 1_024;
/// How many lines of what was written to the cloud are kept.
const KEPT_WRITES: usize = 1_000;

/// A cloud in memory. Clones are the same cloud.
#[derive(Debug, Clone)]
pub struct Cloud {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// Counts changes of whatever kind, calls too.
    changed: watch::Sender<u64>,
    /// The number of the last hint.
    hints: watch::Sender<u64>,
    /// When this object was made, and what the cloud's time was then.
    began: Instant,
    began_ms: u64,
    /// Tells this object's resume tokens from another's.
    epoch: u64,
    /// What a reset goes back to.
    first: Arc<Fixture>,
}

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) objects: Objects,
    /// The settings as they are now; its lists of objects are not looked at.
    pub(crate) settings: Arc<Fixture>,
    pub(crate) faults: Faults,
    pub(crate) calls: CallLog,
    pub(crate) health: Health,
    /// Answer NOT_INITIALIZED until the next Initialize.
    pub(crate) forgot_initialize: bool,
    hints: VecDeque<(u64, Change)>,
    cloud_writes: u64,
    writes: VecDeque<String>,
    store: Option<Store>,
}

impl Cloud {
    /// The cloud of a fixture, without a state file.
    pub fn new(fixture: Fixture) -> Result<Self, StartError> {
        Self::open(fixture, None)
    }

    /// The same; what stands in the state file goes before the fixture's instances, load balancers and routes.
    pub fn open(fixture: Fixture, state: Option<&Path>) -> Result<Self, StartError> {
        let wrong = fixture.check();
        if !wrong.is_empty() {
            return Err(FixtureError(wrong).into());
        }
        let (store, found) = match state {
            None => (None, None),
            Some(path) => {
                let (store, found) = Store::open(path).map_err(StartError::State)?;
                (Some(store), found)
            }
        };
        let is_new = found.is_none();
        let (objects, began_ms) = match found {
            Some(found) => found,
            None => (
                objects_of(&fixture).map_err(|error| FixtureError(vec![error.to_string()]))?,
                0,
            ),
        };
        let settings = Arc::new(fixture);
        let mut faults = Faults::default();
        for fault in &settings.faults {
            faults.add(fault.clone());
        }
        let epoch = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let cloud = Self {
            shared: Arc::new(Shared {
                state: Mutex::new(State {
                    objects,
                    settings: Arc::clone(&settings),
                    faults,
                    calls: CallLog::default(),
                    health: Health::ready(),
                    forgot_initialize: false,
                    hints: VecDeque::new(),
                    cloud_writes: 0,
                    writes: VecDeque::new(),
                    store,
                }),
                changed: watch::Sender::new(0),
                hints: watch::Sender::new(0),
                began: Instant::now(),
                began_ms,
                epoch: epoch.as_nanos() as u64,
                first: settings,
            }),
        };
        if is_new {
            let now_ms = cloud.now_ms();
            cloud
                .state()
                .save(Section::Instances, now_ms)
                .map_err(|error| StartError::State(error.to_string()))?;
        }
        Ok(cloud)
    }

    /// The cloud's time: milliseconds since its beginning, by tokio's clock.
    pub fn now_ms(&self) -> u64 {
        let since = self.shared.began.elapsed().as_millis() as u64;
        self.shared.began_ms + since
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.shared
            .state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes those who wait for a condition.
    pub(crate) fn changed(&self) {
        self.shared.changed.send_modify(|count| *count += 1);
    }

    /// Waits until the condition holds, at most so long; whether it does.
    pub async fn wait_until(&self, patience: Duration, condition: impl Fn(&Self) -> bool) -> bool {
        let mut changed = self.shared.changed.subscribe();
        let holds = async {
            while !condition(self) {
                // The sender lives as long as `self`.
                if changed.changed().await.is_err() {
                    break;
                }
            }
        };
        tokio::time::timeout(patience, holds).await.is_ok()
    }

    /// Goes back to the fixture: objects, settings, faults; forgets all calls and writes. A state file is written anew.
    pub fn reset(&self) -> Result<(), CloudError> {
        let first = Arc::clone(&self.shared.first);
        let objects = objects_of(&first)?;
        {
            let mut state = self.state();
            state.objects = objects;
            state.settings = Arc::clone(&first);
            state.faults.clear();
            for fault in &first.faults {
                state.faults.add(fault.clone());
            }
            state.calls.reset();
            state.health = Health::ready();
            state.forgot_initialize = false;
            state.cloud_writes = 0;
            state.writes.clear();
            for section in [Section::Instances, Section::LoadBalancers, Section::Routes] {
                state.save(section, self.now_ms())?;
            }
        }
        self.hint(Change::Resync);
        Ok(())
    }

    /// Records a hint for controllers that watch.
    pub(crate) fn hint(&self, change: Change) {
        {
            let mut state = self.state();
            let number = *self.shared.hints.borrow() + 1;
            if state.hints.len() == KEPT_HINTS {
                state.hints.pop_front();
            }
            state.hints.push_back((number, change));
            self.shared.hints.send_replace(number);
        }
        self.changed();
    }

    /// The token to go on from after this hint.
    pub(crate) fn token(&self, number: u64) -> String {
        format!("{}-{number}", self.shared.epoch)
    }

    /// The number of the hint that this token names; `None` where it is not known.
    pub(crate) fn hint_number(&self, token: &str) -> Option<u64> {
        let (epoch, number) = token.split_once('-')?;
        let number = number.parse().ok()?;
        let last = *self.shared.hints.borrow();
        let oldest = self
            .state()
            .hints
            .front()
            .map_or(last + 1, |(number, _)| *number);
        let known =
            epoch == self.shared.epoch.to_string() && number <= last && number + 1 >= oldest;
        known.then_some(number)
    }

    /// Where hints are announced; its value is the number of the last one.
    pub(crate) fn watch_hints(&self) -> watch::Receiver<u64> {
        self.shared.hints.subscribe()
    }

    /// The hints after that one, or `None` when some of them are no longer kept.
    pub(crate) fn hints_after(&self, number: u64) -> Option<Vec<(u64, Change)>> {
        let state = self.state();
        let oldest = state.hints.front().map(|(oldest, _)| *oldest);
        if oldest.is_some_and(|oldest| oldest > number + 1) {
            return None;
        }
        Some(
            state
                .hints
                .iter()
                .filter(|(of, _)| *of > number)
                .cloned()
                .collect(),
        )
    }
}

impl State {
    /// Writes the state file, where there is one; before the answer goes out.
    pub(crate) fn save(&mut self, changed: Section, now_ms: u64) -> Result<(), CloudError> {
        match &mut self.store {
            Some(store) => store
                .save(&self.objects, changed, now_ms)
                .map_err(CloudError::StateFile),
            None => Ok(()),
        }
    }

    /// Counts a write of the provider to the cloud.
    pub(crate) fn wrote(&mut self, what: String) {
        self.cloud_writes += 1;
        if self.writes.len() == KEPT_WRITES {
            self.writes.pop_front();
        }
        self.writes.push_back(what);
    }
}

fn objects_of(fixture: &Fixture) -> Result<Objects, CloudError> {
    let mut objects = Objects::default();
    for instance in fixture.all_instances() {
        objects.instances.add(instance)?;
    }
    for load_balancer in &fixture.load_balancers {
        objects.load_balancers.put(load_balancer.clone());
    }
    for route in &fixture.routes {
        objects
            .routes
            .by_name
            .insert(route.name.clone(), route.clone());
    }
    Ok(objects)
}
