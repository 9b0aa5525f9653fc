//! The calls to a provider, and the contract's rules for them: `max_in_flight`, `retry_after`, and
//! calls in flight when a provider shuts down.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use super::Checker;

/// A call in flight. If it is dropped before its answer, the call counts as broken off.
pub struct Call {
    checker: Checker,
    number: u64,
    over: bool,
    /// Whether the provider is finishing its calls in flight on open connections.
    drained: Option<Arc<AtomicBool>>,
}

impl Call {
    pub(super) fn new(checker: Checker, number: u64) -> Self {
        Self {
            checker,
            number,
            over: false,
            drained: None,
        }
    }

    /// Shares the flag that says whether the provider's process finishes its calls in flight.
    #[must_use]
    pub fn of(mut self, drained: Arc<AtomicBool>) -> Self {
        self.drained = Some(drained);
        self
    }

    /// Ends the call with an answer. `throttled`: it is THROTTLED, with this `retry_after`.
    pub fn answered(mut self, throttled: Option<Duration>) {
        self.over = true;
        self.checker.answered(self.number, throttled);
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        if !self.over {
            let drained = self.drained.as_ref();
            let drained = drained.is_some_and(|drained| drained.load(Ordering::Relaxed));
            self.checker.broke_off(self.number, drained);
        }
    }
}

#[derive(Clone)]
pub(super) struct Known {
    pub(super) identity: String,
    pub(super) rpc: String,
    connection: u64,
    began: Instant,
    deadline: Duration,
}

impl Known {
    fn changes(&self) -> bool {
        provider_mock::MUTATING_RPCS.contains(&self.rpc.as_str())
    }

    /// Whether the caller's deadline has passed, or passes within two seconds.
    pub(super) fn is_due(&self) -> bool {
        self.began.elapsed() + Duration::from_secs(2) >= self.deadline
    }
}

#[derive(Default)]
pub(super) struct Calls {
    last: u64,
    in_flight: BTreeMap<u64, Known>,
    /// When each service sent THROTTLED and when the next call may come, by connection.
    throttled: BTreeMap<(u64, &'static str), (Instant, Instant)>,
    /// Operations that go on after their cancellation: the process, the RPC, and the end.
    going: Vec<(String, String, Instant)>,
}

/// The tolerance of the checks: two events within this time may cross on their way.
const MOMENT: Duration = Duration::from_millis(5);

impl Calls {
    /// Returns the call's number and, if it came before a `retry_after` was over, how early it was.
    pub(super) fn begin(
        &mut self,
        identity: &str,
        connection: u64,
        rpc: &str,
        deadline: Duration,
    ) -> (u64, Option<Duration>) {
        self.last += 1;
        let now = Instant::now();
        let early = service(rpc)
            .and_then(|service| self.throttled.get(&(connection, service)))
            .filter(|(since, until)| now > *since + MOMENT && now + MOMENT < *until)
            .map(|(_, until)| *until - now);
        let known = Known {
            identity: identity.to_owned(),
            rpc: rpc.to_owned(),
            connection,
            began: now,
            deadline,
        };
        self.in_flight.insert(self.last, known);
        (self.last, early)
    }

    pub(super) fn end(&mut self, number: u64) -> Option<Known> {
        self.in_flight.remove(&number)
    }

    pub(super) fn answered(&mut self, number: u64, throttled: Option<Duration>) {
        let Some(call) = self.end(number) else { return };
        if let (Some(wait), Some(service)) = (throttled, service(&call.rpc)) {
            let now = Instant::now();
            let key = (call.connection, service);
            let until = self.throttled.get(&key).map_or(now, |(_, until)| *until);
            self.throttled.insert(key, (now, until.max(now + wait)));
        }
    }

    /// Notes a cancelled call whose operation goes on in the cloud.
    pub(super) fn goes_on(&mut self, call: &Known, lasts: Duration) {
        let until = call.began + lasts;
        self.going
            .push((call.identity.clone(), call.rpc.clone(), until));
    }

    /// Whether any call is under way, except for the stream of hints, which stays open.
    pub(super) fn is_any_under_way(&self) -> bool {
        let mut all = self.in_flight.values();
        all.any(|call| call.rpc != "WatchChanges")
    }

    /// A call or operation of this process that changes the cloud and is not over.
    pub(super) fn still_running(&self, identity: &str) -> Option<String> {
        let now = Instant::now();
        let going = self
            .going
            .iter()
            .find(|(whose, _, until)| whose == identity && *until > now + MOMENT)
            .map(|(_, rpc, _)| rpc.clone());
        let in_flight = || {
            let mut all = self.in_flight.values();
            all.find(|call| call.identity == identity && call.changes())
                .map(|call| call.rpc.clone())
        };
        going.or_else(in_flight)
    }

    /// Connections with more calls of a service in flight than the provider takes, for longer than
    /// a moment.
    pub(super) fn crowded(&self, limit: usize) -> Vec<(String, &'static str, usize)> {
        let mut counts: BTreeMap<(u64, &'static str), (usize, &str)> = BTreeMap::new();
        for call in self.in_flight.values() {
            if let Some(service) = service(&call.rpc).filter(|_| call.began.elapsed() > MOMENT) {
                let count = counts
                    .entry((call.connection, service))
                    .or_insert((0, &call.identity));
                count.0 += 1;
            }
        }
        counts
            .into_iter()
            .filter(|(_, (count, _))| *count > limit)
            .map(|((_, service), (count, identity))| (identity.to_owned(), service, count))
            .collect()
    }
}

/// The service of an RPC, if the checks of `max_in_flight` and `retry_after` count its calls.
fn service(rpc: &str) -> Option<&'static str> {
    match rpc {
        "LookupInstances" | "ListInstances" => Some("InstanceService"),
        "ListRoutes" | "CreateRoutes" | "DeleteRoutes" => Some("RouteService"),
        rpc if rpc.ends_with("LoadBalancer") || rpc == "ListLoadBalancers" => {
            Some("LoadBalancerService")
        }
        _ => None,
    }
}
