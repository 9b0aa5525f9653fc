//! The ccm ends a call without an answer before the provider does, and the connection outlives the
//! call.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use cloud_provider_api::v1alpha1 as api;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::super::connect::{Connector, Pipe};
use super::super::testing::{InMemory, Running, maintained};
use super::super::{CallError, CallErrorCode, Session};
use super::fake::Fake;

const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const CANCEL: u32 = 8;
/// The length of the preface of an HTTP/2 connection.
const PREFACE: usize = 24;

/// The connection of a provider on a stack like grpc-java's. When its own timer for a call expires,
/// it resets the stream. The answer that it sends at the same moment comes after the reset.
struct Late {
    process: InMemory,
    fake: Fake,
    tasks: Mutex<JoinSet<()>>,
}

#[async_trait::async_trait]
impl Connector for Late {
    async fn connect(&self) -> Result<Box<dyn Pipe>, String> {
        let provider = self.process.connect().await?;
        let (ours, theirs) = tokio::io::duplex(256 * 1024);
        let (mut from_provider, mut to_provider) = tokio::io::split(provider);
        let (mut from_us, mut to_us) = tokio::io::split(theirs);
        let (answers, mut frames) = mpsc::unbounded_channel::<Vec<u8>>();
        let ended = Arc::new(Mutex::new(BTreeSet::new()));
        let mut tasks = self.tasks.lock().unwrap();
        tasks.spawn(async move {
            while let Some(frame) = frames.recv().await {
                if to_us.write_all(&frame).await.is_err() {
                    return;
                }
            }
        });
        let (passed, over) = (answers.clone(), Arc::clone(&ended));
        tasks.spawn(async move {
            while let Some(frame) = frame(&mut from_provider).await {
                // END_STREAM is the same bit in DATA and HEADERS.
                if frame[3] <= HEADERS && frame[4] & END_STREAM != 0 {
                    over.lock().unwrap().insert(stream_of(&frame));
                }
                if passed.send(frame).is_err() {
                    return;
                }
            }
        });
        let fake = self.fake.clone();
        tasks.spawn(async move {
            let mut timers = JoinSet::new();
            let mut preface = [0; PREFACE];
            if from_us.read_exact(&mut preface).await.is_err()
                || to_provider.write_all(&preface).await.is_err()
            {
                return;
            }
            while let Some(frame) = frame(&mut from_us).await {
                if frame[3] == HEADERS {
                    let (stream, fake) = (stream_of(&frame), fake.clone());
                    let (answers, ended) = (answers.clone(), Arc::clone(&ended));
                    timers.spawn(async move {
                        let began = Instant::now();
                        // By then the provider has read the call.
                        sleep(Duration::from_millis(1)).await;
                        let Some(reported) = fake.reported("LookupInstances") else {
                            return;
                        };
                        tokio::time::sleep_until(began + reported).await;
                        if !ended.lock().unwrap().contains(&stream) {
                            let _ = answers.send(reset_and_trailers(stream));
                        }
                    });
                }
                if to_provider.write_all(&frame).await.is_err() {
                    return;
                }
            }
        });
        Ok(Box::new(ours))
    }
}

async fn frame(from: &mut (impl AsyncRead + Unpin)) -> Option<Vec<u8>> {
    let mut frame = vec![0; 9];
    from.read_exact(&mut frame).await.ok()?;
    let length = usize::from(frame[0]) << 16 | usize::from(frame[1]) << 8 | usize::from(frame[2]);
    frame.resize(9 + length, 0);
    from.read_exact(&mut frame[9..]).await.ok()?;
    Some(frame)
}

fn stream_of(frame: &[u8]) -> u32 {
    u32::from_be_bytes([frame[5], frame[6], frame[7], frame[8]])
}

/// RST_STREAM, and behind it an answer that consists of trailers.
fn reset_and_trailers(stream: u32) -> Vec<u8> {
    // `:status: 200` from HPACK's table, then a literal field.
    let mut fields = vec![0x88, 0];
    for text in ["grpc-status", "4"] {
        fields.push(u8::try_from(text.len()).unwrap());
        fields.extend(text.as_bytes());
    }
    let mut bytes = Vec::new();
    let mut push = |kind: u8, flags: u8, payload: &[u8]| {
        bytes.extend([0, 0, u8::try_from(payload.len()).unwrap(), kind, flags]);
        bytes.extend(stream.to_be_bytes());
        bytes.extend(payload);
    };
    push(RST_STREAM, 0, &CANCEL.to_be_bytes());
    push(HEADERS, END_STREAM | END_HEADERS, &fields);
    bytes
}

async fn hanging() -> (Running, Fake, Arc<Session>) {
    let fake = Fake::new("1");
    fake.set(|script| script.hang = ["LookupInstances"].into());
    let running = maintained(Late {
        process: InMemory::running(fake.service()),
        fake: fake.clone(),
        tasks: Mutex::default(),
    });
    running.lead();
    let session = running.session().await;
    (running, fake, session)
}

async fn lookup(session: &Session) -> Result<(), CallError> {
    let node = serde_json::json!({"metadata": {"name": "n", "uid": "u"}});
    let node = serde_json::from_value(node).unwrap();
    let facets = [api::InstanceFacet::Existence];
    let nodes = [&node];
    let answers = session.lookup_instances(&nodes, &facets, Duration::ZERO);
    answers.await.map(drop)
}

/// The provider's deadline is a second longer than the ccm's. If both ended the call at the same
/// moment, the ccm's reset could still wait to be sent when the provider's frames arrive. HTTP/2
/// would then close the connection.
#[tokio::test(start_paused = true)]
async fn m10_a_provider_that_writes_behind_its_end_of_a_call_does_not_cost_the_connection() {
    let (_running, fake, session) = hanging().await;
    let began = Instant::now();
    let trouble = lookup(&session).await.unwrap_err();
    assert_eq!(trouble.code, CallErrorCode::Deadline, "{trouble}");
    assert_eq!(began.elapsed().as_secs(), 60);
    for (rpc, seconds) in [
        ("LookupInstances", 61),
        ("GetProviderInfo", 11),
        ("Initialize", 61),
        ("Probe", 6),
    ] {
        let reported = fake.reported(rpc);
        assert_eq!(reported, Some(Duration::from_secs(seconds)), "{rpc}");
    }
    sleep(Duration::from_secs(5)).await;
    assert!(!session.is_over());
    fake.set(|script| script.hang.clear());
    lookup(&session).await.unwrap();
    assert_eq!(fake.called("GetProviderInfo"), 1, "{:?}", fake.log());
}

/// A provider whose HTTP/2 breaks the protocol when a test asks for it.
struct Breaks {
    process: InMemory,
    now: Arc<Notify>,
    tasks: Mutex<JoinSet<()>>,
}

#[async_trait::async_trait]
impl Connector for Breaks {
    async fn connect(&self) -> Result<Box<dyn Pipe>, String> {
        let mut provider = self.process.connect().await?;
        let (ours, mut theirs) = tokio::io::duplex(256 * 1024);
        let now = Arc::clone(&self.now);
        self.tasks.lock().unwrap().spawn(async move {
            tokio::select! {
                _ = tokio::io::copy_bidirectional(&mut provider, &mut theirs) => return,
                () = now.notified() => {}
            }
            // DATA without a stream.
            let _ = theirs.write_all(&[0; 9]).await;
            std::future::pending::<()>().await;
        });
        Ok(Box::new(ours))
    }
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_broke_says_how() {
    let now = Arc::new(Notify::new());
    let running = maintained(Breaks {
        process: InMemory::running(Fake::new("1").service()),
        now: Arc::clone(&now),
        tasks: Mutex::default(),
    });
    running.lead();
    running.session().await;
    now.notify_one();
    let broke = running.until("no session", |s| s.session.is_none()).await;
    let begins = "the connection to the provider broke: ";
    let how = broke.message.strip_prefix(begins);
    let how = how.unwrap_or_else(|| panic!("{}", broke.message));
    assert!(how.contains("protocol error"), "{how}");
    running.session().await;
}
