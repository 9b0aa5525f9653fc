//! Faults between a loop and the API server.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{Method, Request, Response};
use kube::Client;
use kube::client::Body;
use serde_json::json;
use tokio::time::{Instant, sleep};

/// The fault of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The API server answers with this code and does nothing.
    Refused(u16),
    /// The API server does nothing and does not answer.
    Hangs,
    /// The API server executes the request and does not answer.
    Lost,
    /// The API server executes the request and answers this much later.
    Late(Duration),
}

/// The faults of requests, and whether the watch is cut. Clones share one state.
#[derive(Clone, Default)]
pub(crate) struct Faults {
    state: Arc<Mutex<State>>,
    cut: Arc<AtomicBool>,
}

#[derive(Default)]
struct State {
    writes: usize,
    /// The times of these writes.
    times: Vec<Instant>,
    reads: usize,
    of_writes: Option<Plan>,
    of_reads: Option<Plan>,
}

/// `times` requests get the fault, beginning with request number `from`. The first request is 1.
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
    /// Gives `times` writes this fault, beginning with write `from`. 1 is the next write.
    pub(crate) fn writes(&self, from: usize, times: usize, fault: Fault) {
        let mut state = self.state.lock().unwrap();
        state.writes = 0;
        state.times.clear();
        state.of_writes = Some(Plan { from, times, fault });
    }

    /// Gives the next `times` GETs this fault.
    pub(crate) fn reads(&self, times: usize, fault: Fault) {
        let mut state = self.state.lock().unwrap();
        state.reads = 0;
        state.of_reads = Some(Plan {
            from: 1,
            times,
            fault,
        });
    }

    /// Whether all planned faults have happened.
    pub(crate) fn happened(&self) -> bool {
        let state = self.state.lock().unwrap();
        let over = |plan: Option<Plan>, count: usize| {
            plan.is_none_or(|plan| count >= plan.from + plan.times - 1)
        };
        over(state.of_writes, state.writes) && over(state.of_reads, state.reads)
    }

    /// The time between each write and the next, whatever their results.
    pub(crate) fn gaps(&self) -> Vec<Duration> {
        let state = self.state.lock().unwrap();
        let gaps = state.times.windows(2).map(|pair| pair[1] - pair[0]);
        gaps.collect()
    }

    /// If `cut`, the watch delivers nothing from now on.
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

    /// A client of the same API server with these faults.
    pub(super) fn around(&self, client: Client) -> Client {
        let this = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let (this, client) = (this.clone(), client.clone());
            async move {
                let fate = this.fate(request.method());
                match fate {
                    Some(Fault::Refused(code)) => return Ok(refused(code)),
                    Some(Fault::Hangs) => std::future::pending().await,
                    Some(Fault::Lost | Fault::Late(_)) | None => {}
                }
                let answer = client.send(request).await;
                match fate {
                    Some(Fault::Lost) => std::future::pending().await,
                    Some(Fault::Late(by)) => sleep(by).await,
                    _ => {}
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
