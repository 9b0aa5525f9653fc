//! One call: its conversion, isolation, cancellation and limits.
#![allow(
    clippy::unwrap_used,
    reason = "helpers of tests may fail by panic as tests do"
)]

mod admission;
#[path = "../common/mod.rs"]
mod common;
mod ending;
mod load_balancers;
mod lookups;
mod streams;

use std::io::Write;
use std::sync::{Arc, Mutex, OnceLock};

use cloud_provider_api::v1alpha1 as pb;
use common::{Running, cluster, code, ensure, named_cluster, node, soon};
use futures::StreamExt;
use pb::ensure_load_balancer_response::Outcome as Ensured;
use pb::lookup_instance_result::Outcome as Looked;
use tonic::Code;

/// The log of this test process.
fn log() -> Arc<Mutex<Vec<u8>>> {
    #[derive(Clone)]
    struct Sink(Arc<Mutex<Vec<u8>>>);
    impl Write for Sink {
        fn write(&mut self, data: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(data);
            Ok(data.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    static LOG: OnceLock<Arc<Mutex<Vec<u8>>>> = OnceLock::new();
    LOG.get_or_init(|| {
        let log = Arc::new(Mutex::new(Vec::new()));
        let sink = Sink(log.clone());
        tracing_subscriber::fmt()
            .with_ansi(false)
            .with_writer(move || sink.clone())
            .init();
        log
    })
    .clone()
}

fn logged(parts: &[&str]) -> bool {
    let text = String::from_utf8_lossy(&log().lock().unwrap()).into_owned();
    text.lines()
        .any(|line| parts.iter().all(|part| line.contains(part)))
}

fn outcome<'a>(response: &'a pb::LookupInstancesResponse, name: &str) -> &'a Looked {
    let result = response
        .results
        .iter()
        .find(|result| result.node_name == name)
        .unwrap();
    assert_eq!(result.node_uid, format!("uid-{name}"));
    result.outcome.as_ref().unwrap()
}

fn failed(outcome: &Looked) -> &pb::Failure {
    match outcome {
        Looked::Failed(failure) => failure,
        Looked::Found(found) => panic!("{found:?}"),
    }
}
