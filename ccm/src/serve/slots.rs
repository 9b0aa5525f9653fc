//! The connections of a port, and which of them is closed for a new one.
//!
//! A full port must still answer the kubelet's probes. So it accepts a new connection and closes an
//! older one, unless all serve authenticated users. The caller's address is no criterion: the
//! provider, which is not trusted with this, shares the network namespace.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::core::lock;

/// The least time between two log entries about a full port.
const REPORT_EVERY: Duration = Duration::from_mins(1);

/// The slots of a port.
pub(super) struct Slots {
    max: usize,
    port: u16,
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    /// A logical clock: the event with the lower number came first.
    clock: u64,
    held: BTreeMap<u64, Entry>,
    /// The last log entry about a full port.
    reported: Option<Instant>,
    /// Connections closed since then, old or new.
    closed: u64,
}

struct Entry {
    /// When the connection was accepted or its last request ended.
    idle_since: u64,
    serving: bool,
    /// Whether an authenticated user made an allowed request on it.
    known: bool,
    evicted: CancellationToken,
}

/// The state of a connection. The lowest class is closed first, unless a higher one has more than
/// half of the connections.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Class {
    /// No known user, and no request in progress.
    Idle,
    /// A known user, and no request in progress.
    Resting,
    /// No known user, and a request in progress.
    Asking,
}

impl Entry {
    /// `None`: the connection is not closed for a new one.
    fn class(&self) -> Option<Class> {
        match (self.known, self.serving) {
            (false, false) => Some(Class::Idle),
            (true, false) => Some(Class::Resting),
            (false, true) => Some(Class::Asking),
            (true, true) => None,
        }
    }
}

impl Slots {
    /// `port` is for log entries: two ports have this code.
    pub(super) fn new(max: usize, port: u16) -> Arc<Self> {
        Arc::new(Self {
            max,
            port,
            table: Mutex::default(),
        })
    }

    /// A slot for a new connection. If the port is full, an older connection gives way. `None`: all
    /// serve authenticated users, so none may give way.
    pub(super) fn take(self: &Arc<Self>) -> Option<Slot> {
        let mut table = self.table();
        let (mut closed, mut is_free) = (None, true);
        if table.held.len() >= self.max {
            closed = table.closes();
            is_free = self.evict(&mut table);
        }
        let slot = is_free.then(|| self.hold(&mut table));
        // The log may block. Nobody waits for the table meanwhile.
        drop(table);
        if let Some(closed) = closed {
            tracing::warn!(
                port = self.port,
                connections = self.max,
                closed,
                "the HTTPS port is full: the ccm closes an older connection for each new one, or the new one itself. Find out who opens them"
            );
        }
        slot
    }

    /// Closes an older connection. Returns whether one gave way.
    fn evict(&self, table: &mut Table) -> bool {
        // Any valid token can make a user known, and a stranger can make requests last. Neither
        // may displace a probe, whose connection is idle until its handshake ends. So a class
        // with more than half of the connections is closed first.
        let crowded = [Class::Resting, Class::Asking].into_iter().find(|class| {
            let of_class = table.held.values().filter(|it| it.class() == Some(*class));
            of_class.count() > self.max / 2
        });
        let ranked = table.held.iter().filter_map(|(id, it)| {
            let class = it.class()?;
            let gives_way = crowded.is_none_or(|crowded| class == crowded);
            gives_way.then_some((class, it.idle_since, *id))
        });
        let first = ranked.min();
        let Some(entry) = first.and_then(|(.., id)| table.held.remove(&id)) else {
            return false;
        };
        entry.evicted.cancel();
        true
    }

    /// Takes a free slot.
    fn hold(self: &Arc<Self>, table: &mut Table) -> Slot {
        let id = table.tick();
        let evicted = CancellationToken::new();
        let entry = Entry {
            idle_since: id,
            serving: false,
            known: false,
            evicted: evicted.clone(),
        };
        table.held.insert(id, entry);
        Slot(Arc::new(Held {
            slots: Arc::clone(self),
            id,
            evicted,
        }))
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        lock(&self.table)
    }
}

impl Table {
    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    /// Counts a connection that the full port closes. Returns the count since the last log entry
    /// if it is time for the next one.
    fn closes(&mut self) -> Option<u64> {
        self.closed += 1;
        if self.reported.is_some_and(|at| at.elapsed() < REPORT_EVERY) {
            return None;
        }
        self.reported = Some(Instant::now());
        Some(std::mem::take(&mut self.closed))
    }
}

/// The slot of one connection. Dropping the last clone frees it.
#[derive(Clone)]
pub(super) struct Slot(Arc<Held>);

struct Held {
    slots: Arc<Slots>,
    id: u64,
    evicted: CancellationToken,
}

impl Slot {
    /// Returns when the connection must close for a new one.
    pub(super) async fn evicted(&self) {
        self.0.evicted.cancelled().await;
    }

    /// Marks a request in progress until the guard is dropped.
    pub(super) fn serve(&self) -> Serving {
        self.change(|entry, _| entry.serving = true);
        Serving(self.clone())
    }

    /// The connection belongs to an authenticated user with the right to its request.
    pub(super) fn known(&self) {
        self.change(|entry, _| entry.known = true);
    }

    fn change(&self, change: impl FnOnce(&mut Entry, u64)) {
        let mut table = self.0.slots.table();
        let now = table.tick();
        if let Some(entry) = table.held.get_mut(&self.0.id) {
            change(entry, now);
        }
    }
}

/// A request in progress.
pub(super) struct Serving(Slot);

impl Drop for Serving {
    fn drop(&mut self) {
        self.0.change(|entry, now| {
            entry.serving = false;
            entry.idle_since = now;
        });
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.slots.table().held.remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(slots: &Arc<Slots>) -> Slot {
        slots.take().expect("no slot")
    }

    fn gone(slots: &[&Slot]) -> Vec<bool> {
        slots
            .iter()
            .map(|slot| slot.0.evicted.is_cancelled())
            .collect()
    }

    #[test]
    fn b_m4_the_oldest_idle_connection_of_nobody_known_gives_way_first() {
        let slots = Slots::new(5, 0);
        let [known, other, serving, first, second] = [(); 5].map(|()| take(&slots));
        known.known();
        other.known();
        let request = serving.serve();
        // The last request on `first` ended after `second` was accepted.
        drop(first.serve());
        let third = take(&slots);
        assert_eq!(
            gone(&[&known, &other, &serving, &first, &second]),
            [false, false, false, false, true]
        );
        let _keep = third.serve();
        let fourth = take(&slots);
        assert_eq!(
            gone(&[&known, &other, &serving, &first, &third]),
            [false, false, false, true, false]
        );
        fourth.known();
        let _keep_too = fourth.serve();
        let fifth = take(&slots);
        assert_eq!(
            gone(&[&known, &other, &serving, &third, &fourth]),
            [true, false, false, false, false]
        );
        let _keep_again = fifth.serve();
        // More than half are requests without a known user: the oldest of them is closed.
        let sixth = take(&slots);
        assert_eq!(
            gone(&[&other, &serving, &third, &fourth, &fifth]),
            [false, true, false, false, false]
        );
        drop((request, sixth));
    }

    #[test]
    fn b_m4_who_has_a_token_cannot_push_out_a_probe() {
        let slots = Slots::new(8, 0);
        let known = |slots: &Arc<Slots>| {
            let slot = take(slots);
            slot.known();
            slot
        };
        let mut held: Vec<Slot> = (0..8).map(|_| known(&slots)).collect();
        let probe = take(&slots);
        for _ in 0..100 {
            held.push(known(&slots));
        }
        assert_eq!(gone(&[&probe]), [false]);
    }

    #[test]
    fn b_m4_requests_of_nobody_known_cannot_push_out_a_probe() {
        let slots = Slots::new(8, 0);
        let strangers: Vec<Slot> = (0..8).map(|_| take(&slots)).collect();
        let requests: Vec<Serving> = strangers.iter().map(Slot::serve).collect();
        let probe = take(&slots);
        let others = [take(&slots), take(&slots), take(&slots)];
        assert_eq!(gone(&[&probe]), [false]);
        let oldest: Vec<&Slot> = strangers.iter().collect();
        let first_four = [true, true, true, true, false, false, false, false];
        assert_eq!(gone(&oldest), first_four);
        drop((requests, others));
    }

    #[test]
    fn b_m4_authenticated_requests_are_never_closed_for_a_new_connection() {
        let slots = Slots::new(1, 0);
        let slot = take(&slots);
        slot.known();
        let request = slot.serve();
        assert!(slots.take().is_none());
        drop(request);
        let next = take(&slots);
        assert_eq!(gone(&[&slot]), [true]);
        // The slot of a closed connection frees nothing when it ends.
        drop(slot);
        drop(next);
        assert!(slots.table().held.is_empty());
    }
}
