//! What can go wrong between a loop and the API server.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{Method, Request, Response};
use kube::Client;
use kube::client::Body;
use serde_json::json;
use tokio::time::Instant;

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// It is answered with this code, and not carried out.
    Refused(u16),
    /// It is neither carried out nor answered.
    Hangs,
    /// It is carried out and not answered.
    Lost,
}

/// Which requests go wrong. Clones are one.
#[derive(Clone, Default)]
pub(crate) struct Faults {
    state: Arc<Mutex<State>>,
    cut: Arc<AtomicBool>,
}

#[derive(Default)]
struct State {
    writes: usize,
    /// When each of these writes came.
    times: Vec<Instant>,
    reads: usize,
    of_writes: Option<Plan>,
    of_reads: Option<Plan>,
}

/// From the request of this number on (the first is 1), so many times.
#[derive(Clone, Copy)]
struct Plan {
    from: usize,
    times: usize,
    fault: Fault,
}

impl Plan {
    fn strikes(self, number: usize) -> Option<Fault> {
        (self.from..self.from + self.times)
            .contains(&number)
            .then_some(self.fault)
    }
}

impl Faults {
    /// The writes from this one on go wrong, counted from now; 1 is the next.
    pub(crate) fn writes(&self, from: usize, times: usize, fault: Fault) {
        let mut state = self.state.lock().unwrap();
        state.writes = 0;
        state.times.clear();
        state.of_writes = Some(Plan { from, times, fault });
    }

    /// The next reads of a single Node go wrong.
    pub(crate) fn reads(&self, times: usize, fault: Fault) {
        let mut state = self.state.lock().unwrap();
        state.reads = 0;
        state.of_reads = Some(Plan {
            from: 1,
            times,
            fault,
        });
    }

    /// Whether all that was planned has happened.
    pub(crate) fn happened(&self) -> bool {
        let state = self.state.lock().unwrap();
        let over = |plan: Option<Plan>, count: usize| {
            plan.is_none_or(|plan| count >= plan.from + plan.times - 1)
        };
        over(state.of_writes, state.writes) && over(state.of_reads, state.reads)
    }

    /// How long each write after the first came after the one before it, whatever became of them.
    pub(crate) fn gaps(&self) -> Vec<Duration> {
        let state = self.state.lock().unwrap();
        let gaps = state.times.windows(2).map(|pair| pair[1] - pair[0]);
        gaps.collect()
    }

    /// The watch tells nothing any more.
    pub(crate) fn cut_watch(&self, cut: bool) {
        self.cut.store(cut, Ordering::SeqCst);
    }

    pub(super) fn watch_is_cut(&self) -> bool {
        self.cut.load(Ordering::SeqCst)
    }

    fn fate(&self, method: &Method) -> Option<Fault> {
        let mut state = self.state.lock().unwrap();
        if *method == Method::GET {
            state.reads += 1;
            let number = state.reads;
            state.of_reads.and_then(|plan| plan.strikes(number))
        } else {
            state.writes += 1;
            state.times.push(Instant::now());
            let number = state.writes;
            state.of_writes.and_then(|plan| plan.strikes(number))
        }
    }

    /// The same API server, with these faults.
    pub(super) fn around(&self, client: Client) -> Client {
        let this = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let (this, client) = (this.clone(), client.clone());
            async move {
                let fate = this.fate(request.method());
                match fate {
                    Some(Fault::Refused(code)) => return Ok(refused(code)),
                    Some(Fault::Hangs) => std::future::pending().await,
                    Some(Fault::Lost) | None => {}
                }
                let answer = client.send(request).await;
                if fate == Some(Fault::Lost) {
                    std::future::pending::<()>().await;
                }
                answer
            }
        });
        Client::new(service, "default")
    }
}

fn refused(code: u16) -> Response<Body> {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure",
        "code": code, "reason": "OnPurpose", "message": "on purpose",
    });
    Response::builder()
        .status(code)
        .header("content-type", "application/json")
        .header("retry-after", "2")
        .body(Body::from(status.to_string().into_bytes()))
        .unwrap()
}
