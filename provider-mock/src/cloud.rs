//! The cloud in memory, which its provider, the control service and tests share.

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
use crate::fixture::Fixture;
use crate::lies::Mischief;
use crate::load_balancers::LoadBalancer;
use crate::routes::Route;
use crate::store::{LOOK, Lock, NEIGHBOUR, Objects, SECTIONS, Section, Store};
use crate::weather::Weather;

/// The most hints that the cloud keeps for a controller that reconnects.
const KEPT_HINTS: usize = 1_024;
/// The most descriptions of writes that the cloud keeps.
const KEPT_WRITES: usize = 1_000;

/// A cloud in memory. Clones share it.
#[derive(Debug, Clone)]
pub struct Cloud {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// If you need both locks, take that of the state first.
    mischief: Mutex<Mischief>,
    /// Counts changes and calls, to wake the tasks that wait for a condition.
    changed: watch::Sender<u64>,
    /// The number of the last hint.
    hints: watch::Sender<u64>,
    /// When this object was created, and the cloud's time then.
    began: Instant,
    began_ms: u64,
    /// Distinguishes this object's resume tokens from those of another.
    epoch: u64,
    /// The fixture that a reset restores.
    first: Arc<Fixture>,
}

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) objects: Objects,
    /// The current settings. The lists of objects in them are not used.
    pub(crate) settings: Arc<Fixture>,
    pub(crate) calls: CallLog,
    pub(crate) health: Health,
    pub(crate) weather: Weather,
    hints: VecDeque<(u64, Change)>,
    cloud_writes: u64,
    /// Like `cloud_writes`, but a reset does not change it. With a state file, it includes the
    /// writes before this object was created.
    all_writes: u64,
    writes: VecDeque<String>,
    store: Option<Store>,
}

impl Cloud {
    /// The cloud of a fixture, without a state file.
    pub fn new(fixture: Fixture) -> Result<Self, StartError> {
        Self::open(fixture, None)
    }

    /// The cloud of a fixture, with a state file if `state` names one. The objects in the file
    /// replace the fixture's instances, load balancers and routes.
    ///
    /// Only one cloud at a time can hold a state file. If another cloud holds it, this method waits
    /// for up to 5 s, because the other process may be ending, and then fails. It blocks the
    /// thread; in a runtime, use [`Cloud::open_when_free`].
    pub fn open(fixture: Fixture, state: Option<&Path>) -> Result<Self, StartError> {
        let Some(state) = state else {
            return Self::open_locked(fixture, None);
        };
        let lock = Lock::take(state, LOOK).map_err(StartError::State)?;
        Self::open_locked(fixture, Some((state, lock)))
    }

    /// The same as [`Cloud::open`], but it waits with tokio's clock.
    pub async fn open_when_free(
        fixture: Fixture,
        state: Option<&Path>,
    ) -> Result<Self, StartError> {
        let Some(state) = state else {
            return Self::open_locked(fixture, None);
        };
        let since = Instant::now();
        let lock = loop {
            match try_lock(state, since.elapsed())? {
                Some(lock) => break lock,
                None => tokio::time::sleep(LOOK).await,
            }
        };
        Self::open_locked(fixture, Some((state, lock)))
    }

    fn open_locked(fixture: Fixture, state: Option<(&Path, Lock)>) -> Result<Self, StartError> {
        let wrong = fixture.check();
        if !wrong.is_empty() {
            return Err(FixtureError(wrong).into());
        }
        let (store, found) = match state {
            None => (None, None),
            Some((path, lock)) => {
                let (store, found) = Store::open(path, lock).map_err(StartError::State)?;
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
        let epoch = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let cloud = Self {
            shared: Arc::new(Shared {
                state: Mutex::new(State {
                    objects,
                    settings: Arc::clone(&settings),
                    calls: CallLog::default(),
                    health: Health::ready(),
                    weather: Weather::default(),
                    hints: VecDeque::new(),
                    cloud_writes: 0,
                    all_writes: store.as_ref().map_or(0, Store::noted),
                    writes: VecDeque::new(),
                    store,
                }),
                mischief: Mutex::new(Mischief::new(&settings.faults)),
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
                .save(&SECTIONS, now_ms, |_| {})
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

    /// The faults and twists of this cloud's provider.
    pub(crate) fn mischief(&self) -> MutexGuard<'_, Mischief> {
        let locked = self.shared.mischief.lock();
        locked.unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes the tasks that wait for a condition.
    pub(crate) fn changed(&self) {
        self.shared.changed.send_modify(|count| *count += 1);
    }

    /// Waits until the condition holds, for at most `patience`. Returns whether it holds.
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

    /// Restores the fixture: objects, settings, faults. Clears the log of calls and writes. If the
    /// cloud has a state file, rewrites it.
    pub fn reset(&self) -> Result<(), CloudError> {
        let first = Arc::clone(&self.shared.first);
        let objects = objects_of(&first)?;
        {
            let mut state = self.state();
            let before = std::mem::replace(&mut state.objects, objects);
            state.save(&SECTIONS, self.now_ms(), |objects| *objects = before)?;
            state.settings = Arc::clone(&first);
            state.calls.reset();
            state.health = Health::ready();
            state.weather = Weather::default();
            state.cloud_writes = 0;
            state.writes.clear();
        }
        self.mischief().reset(&first.faults);
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

    /// The resume token after this hint.
    pub(crate) fn token(&self, number: u64) -> String {
        format!("{}-{number}", self.shared.epoch)
    }

    /// The number of the hint with this token. `None`: the token is unknown, or the cloud no longer
    /// keeps all hints after it.
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

    /// Receives the number of the last hint.
    pub(crate) fn watch_hints(&self) -> watch::Receiver<u64> {
        self.shared.hints.subscribe()
    }

    /// The hints after the hint with this number. `None`: the cloud no longer keeps all of them.
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
    /// Writes the state file, if there is one, before the answer is sent. If that fails, `undo`
    /// reverts the change, so that an error means that nothing changed.
    pub(crate) fn save(
        &mut self,
        changed: &[Section],
        now_ms: u64,
        undo: impl FnOnce(&mut Objects),
    ) -> Result<(), CloudError> {
        let Some(store) = &mut self.store else {
            return Ok(());
        };
        store
            .save(&self.objects, changed, now_ms)
            .map_err(CloudError::StateFile)
            .inspect_err(|_| undo(&mut self.objects))
    }

    /// Stores a load balancer, and gives it a handle if it has none. Returns the handle.
    pub(crate) fn put_load_balancer(
        &mut self,
        load_balancer: LoadBalancer,
        now_ms: u64,
    ) -> Result<String, CloudError> {
        let all = &mut self.objects.load_balancers;
        let last_number = all.last_number;
        let before = all.by_handle.get(&load_balancer.handle).cloned();
        let handle = all.put(load_balancer);
        self.save(&[Section::LoadBalancers], now_ms, |objects| {
            let all = &mut objects.load_balancers;
            all.last_number = last_number;
            match before {
                Some(before) => all.by_handle.insert(handle.clone(), before),
                None => all.by_handle.remove(&handle),
            };
        })?;
        Ok(handle)
    }

    /// Removes the load balancer with this handle, if it exists.
    pub(crate) fn remove_load_balancer(
        &mut self,
        handle: &str,
        now_ms: u64,
    ) -> Result<Option<LoadBalancer>, CloudError> {
        let Some(removed) = self.objects.load_balancers.by_handle.remove(handle) else {
            return Ok(None);
        };
        self.save(&[Section::LoadBalancers], now_ms, |objects| {
            objects.load_balancers.put(removed.clone());
        })?;
        Ok(Some(removed))
    }

    /// Stores the route, or removes it if `None`. Returns the previous route of that name, for
    /// [`State::save_routes`].
    pub(crate) fn set_route(&mut self, name: &str, route: Option<Route>) -> Option<Route> {
        set_route(&mut self.objects, name, route)
    }

    /// Writes the state file after routes were set. `before` has the previous route of each name,
    /// in the order of the changes.
    pub(crate) fn save_routes(
        &mut self,
        before: Vec<(String, Option<Route>)>,
        now_ms: u64,
    ) -> Result<(), CloudError> {
        self.save(&[Section::Routes], now_ms, |objects| {
            for (name, route) in before.into_iter().rev() {
                set_route(objects, &name, route);
            }
        })
    }

    /// Counts a write of the provider to the cloud.
    pub(crate) fn wrote(&mut self, what: String) {
        self.cloud_writes += 1;
        self.all_writes += 1;
        if let Some(store) = &self.store {
            store.note(&what);
        }
        if self.writes.len() == KEPT_WRITES {
            self.writes.pop_front();
        }
        self.writes.push_back(what);
    }
}

fn set_route(objects: &mut Objects, name: &str, route: Option<Route>) -> Option<Route> {
    let by_name = &mut objects.routes.by_name;
    match route {
        Some(route) => by_name.insert(name.to_owned(), route),
        None => by_name.remove(name),
    }
}

/// `None`: the lock of the state file is not free yet.
fn try_lock(state: &Path, waited: Duration) -> Result<Option<Lock>, StartError> {
    match Lock::try_take(state).map_err(StartError::State)? {
        None if waited >= NEIGHBOUR => Err(StartError::State(Lock::refusal(state))),
        lock => Ok(lock),
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
