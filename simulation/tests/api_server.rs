//! Sends the same requests to the API server in memory and to a real one, and compares the answers.

#![allow(clippy::unwrap_used, reason = "tests")]

#[path = "api_server/differences.rs"]
mod differences;
#[path = "api_server/normal.rs"]
mod normal;
#[path = "api_server/script.rs"]
mod script;

use std::future::Future;
use std::time::Duration;

use http_body_util::BodyExt as _;
use kube::Client;
use serde_json::Value;
use simulation::api_server::ApiServer;
use simulation::api_server::store::Store;
use simulation::faults::Faults;
use testenv::ControlPlane;

use script::{Answers, Outcome, Ready};

/// The limit for one request to either API server.
const PATIENCE: Duration = Duration::from_mins(1);

#[test]
fn it_answers_as_the_real_one() {
    let ours = normal::normal(in_memory(|server| async move {
        play(server.client("test"), async |_| server.act(Store::compact)).await
    }));
    differences::compare(&really(), &ours).unwrap_or_else(|wrong| panic!("{wrong}"));
}

/// What a kube-apiserver answers.
fn really() -> Vec<Outcome> {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    normal::normal(runtime.block_on(async {
        let mut control_plane = ControlPlane::start().await.unwrap();
        let client = control_plane.client();
        play(client, async |newest| {
            control_plane.forget_before(newest).await.unwrap();
        })
        .await
    }))
}

fn in_memory<T, F: Future<Output = T>>(act: impl FnOnce(ApiServer) -> F) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(async {
        let trace = simulation::trace::Trace::new();
        let cloud = provider_mock::Cloud::new(provider_mock::Fixture::default()).unwrap();
        let rules = simulation::checker::Rules {
            lease: Duration::from_secs(15),
            migration: false,
            goes_on: None,
            max_in_flight: 8,
        };
        let checker = simulation::checker::Checker::new(vec![cloud], trace.clone(), rules);
        let wall = || "2026-01-01T00:00:00Z".to_owned();
        act(ApiServer::new(
            7,
            Faults::new(&[], Duration::ZERO),
            checker,
            trace,
            wall,
        ))
        .await
    })
}

async fn play(client: Client, mut forget: impl AsyncFnMut(u64)) -> Vec<Outcome> {
    let mut answers = Answers::default();
    let mut outcomes = Vec::new();
    for line in script::lines() {
        if line == "FORGET" {
            forget(answers.version("last")).await;
            continue;
        }
        let ready = answers.request(line);
        let sent = tokio::time::timeout(PATIENCE, send(&client, ready));
        let (code, body) = sent.await.expect(line);
        answers.keep(line, &body);
        outcomes.push(Outcome { line, code, body });
    }
    outcomes
}

async fn send(client: &Client, ready: Ready) -> (u16, Value) {
    let response = client.send(ready.request).await.unwrap();
    let code = response.status().as_u16();
    if !ready.watches || code != 200 {
        let body = response.into_body().collect().await.unwrap().to_bytes();
        let text = String::from_utf8_lossy(&body).into_owned();
        return (
            code,
            serde_json::from_str(&text).unwrap_or(Value::String(text)),
        );
    }
    let mut events = Vec::new();
    let (mut body, mut begun) = (response.into_body(), Vec::new());
    while let Some(frame) = body.frame().await {
        begun.extend_from_slice(frame.unwrap().data_ref().unwrap());
        while let Some(end) = begun.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = begun.drain(..=end).collect();
            let event: Value = serde_json::from_slice(&line).unwrap();
            let is_last = ready.until.as_ref().is_some_and(|until| until.is(&event));
            let last = event["type"] == "ERROR" || is_last;
            events.push(event);
            if last {
                return (code, Value::Array(events));
            }
        }
    }
    (code, Value::Array(events))
}
