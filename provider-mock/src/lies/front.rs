//! A socket in front of the provider's own. It treats connections in ways that the provider's stack
//! cannot.

use std::collections::HashSet;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use hyper::header::HeaderValue;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinHandle;

use super::{Twist, Twists};
use crate::cloud::Cloud;

/// Bytes that are not HTTP/2.
const GARBAGE: &[u8] = b"\x15\x03\x01\x00\x02\x02\x16 this is no HTTP/2 at all\r\n\r\n";
/// How long the provider behind may take to start.
const START: Duration = Duration::from_secs(30);
const LOOK: Duration = Duration::from_millis(10);
/// How long a connection works before it gets garbage. Every fourth connection gets garbage at
/// once.
const GOOD: Duration = Duration::from_secs(3);
/// How long the provider is silent before the front sends a PING to the caller.
const QUIET: Duration = Duration::from_millis(200);

/// gRPC's statuses of a call that ended at its deadline: CANCELLED, DEADLINE_EXCEEDED.
const OVERDUE: [HeaderValue; 2] = [HeaderValue::from_static("1"), HeaderValue::from_static("4")];
const INTERNAL: HeaderValue = HeaderValue::from_static("13");

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const PING: u8 = 6;
const END_STREAM: u8 = 1;

/// The treatment of connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Does {
    /// Every connection that lasts gets garbage, at once or after a while.
    Garbage,
    /// Removes the deadline from every call.
    Timeless,
    /// Changes the status of a call that ended at its deadline to INTERNAL. The twist is not in the
    /// provider, because there tonic's timer and the SDK's timer race, and end the call with
    /// different statuses.
    OverdueIsInternal,
    /// Adds a frame after an answer that is only a status.
    Behind,
    /// Sends the caller a PING while the provider is silent.
    Pings,
    /// Passes connections on. Every user may connect to the socket.
    Open,
}

/// The socket in front. Dropping it closes the socket.
#[derive(Debug)]
pub(crate) struct Front(JoinHandle<()>);

impl Drop for Front {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Front {
    /// Serves `path` if an active twist needs it. The real provider is at `behind`.
    pub(crate) fn serve(
        cloud: &Cloud,
        path: &Path,
        behind: &Path,
    ) -> std::io::Result<Option<Self>> {
        let Some(does) = asked_for(cloud.twists()) else {
            return Ok(None);
        };
        let (for_directory, for_socket) = match does {
            Does::Open => (0o755, 0o666),
            _ => (0o750, 0o660),
        };
        if let Some(directory) = path.parent() {
            std::fs::DirBuilder::new()
                .recursive(true)
                .mode(for_directory)
                .create(directory)?;
        }
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = UnixListener::bind(path)?;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(for_socket))?;
        let (cloud, behind) = (cloud.clone(), behind.to_owned());
        Ok(Some(Self(tokio::spawn(async move {
            let spoke = Arc::new(AtomicU32::new(0));
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let (cloud, behind, spoke) = (cloud.clone(), behind.clone(), Arc::clone(&spoke));
                connections.spawn(async move {
                    let reached = || tokio::time::timeout(START, reached(&behind));
                    if does == Does::Garbage {
                        return garbage(stream, &behind, &spoke).await;
                    }
                    let Ok(mut provider) = reached().await else {
                        return;
                    };
                    // If one side ends a connection, it ends for both.
                    match does {
                        Does::Timeless | Does::OverdueIsInternal => {
                            other_headers(cloud, does, stream, provider).await;
                        }
                        Does::Behind | Does::Pings => {
                            says_more(&cloud, does, stream, provider).await;
                        }
                        Does::Open | Does::Garbage => {
                            let mut stream = stream;
                            let _ = tokio::io::copy_bidirectional(&mut stream, &mut provider).await;
                        }
                    }
                });
            }
        }))))
    }
}

fn asked_for(twists: Twists) -> Option<Does> {
    let all = [
        (Twist::SocketGarbage, Does::Garbage),
        (Twist::TimeoutIgnored, Does::Timeless),
        (Twist::DeadlineIsInternal, Does::OverdueIsInternal),
        (Twist::FrameBehind, Does::Behind),
        (Twist::PingsWhenIdle, Does::Pings),
        (Twist::SocketOpen, Does::Open),
    ];
    let asked = all.into_iter().find(|(twist, _)| twists.has(*twist));
    asked.map(|(_, does)| does)
}

async fn garbage(mut stream: UnixStream, behind: &Path, spoke: &AtomicU32) {
    // A peer that only checks whether somebody listens does not count.
    let mut first = vec![0; 1024];
    let said = match stream.read(&mut first).await {
        Ok(0) | Err(_) => return,
        Ok(said) => said,
    };
    let good = !(spoke.fetch_add(1, Ordering::Relaxed) + 1).is_multiple_of(4);
    if good && let Ok(mut provider) = tokio::time::timeout(START, reached(behind)).await {
        if provider.write_all(&first[..said]).await.is_err() {
            return;
        }
        let copied = tokio::io::copy_bidirectional(&mut stream, &mut provider);
        if tokio::time::timeout(GOOD, copied).await.is_ok() {
            return;
        }
    }
    // If the peer has gone, nobody reads the garbage.
    let _ = stream.write_all(GARBAGE).await;
    let _ = stream.shutdown().await;
}

/// Passes calls to the provider and its answers to the caller, and changes the headers of the calls
/// or of the answers. If the caller cancels a call, the provider's call is cancelled too.
async fn other_headers(cloud: Cloud, does: Does, stream: UnixStream, provider: UnixStream) {
    use hyper::{client, server};
    let provider = TokioIo::new(provider);
    let dialled = client::conn::http2::handshake(TokioExecutor::new(), provider).await;
    let Ok((calls, line)) = dialled else {
        return;
    };
    let passes = hyper::service::service_fn(move |mut request: hyper::Request<_>| {
        if does == Does::Timeless && request.headers_mut().remove("grpc-timeout").is_some() {
            cloud.count_lie();
        }
        let (mut calls, cloud) = (calls.clone(), cloud.clone());
        async move {
            let mut answer = calls.send_request(request).await?;
            if does == Does::OverdueIsInternal
                && let Some(status) = answer.headers_mut().get_mut("grpc-status")
                && OVERDUE.contains(status)
            {
                *status = INTERNAL;
                cloud.count_lie();
            }
            Ok::<_, hyper::Error>(answer)
        }
    });
    let server = server::conn::http2::Builder::new(TokioExecutor::new());
    let served = server.serve_connection(TokioIo::new(stream), passes);
    tokio::select! {
        biased;
        _ = served => {}
        _ = line => {}
    }
}

/// Passes the bytes of both sides on, and sends the caller further frames.
async fn says_more(cloud: &Cloud, does: Does, stream: UnixStream, provider: UnixStream) {
    let (mut from_caller, to_caller) = stream.into_split();
    let (from_provider, mut to_provider) = provider.into_split();
    tokio::select! {
        biased;
        _ = tokio::io::copy(&mut from_caller, &mut to_provider) => {}
        _ = back(cloud, does, from_provider, to_caller) => {}
    }
}

async fn back(
    cloud: &Cloud,
    does: Does,
    mut provider: OwnedReadHalf,
    mut caller: OwnedWriteHalf,
) -> std::io::Result<()> {
    let quiet = if does == Does::Pings {
        QUIET
    } else {
        Duration::MAX
    };
    let mut answered = HashSet::new();
    loop {
        let mut head = [0; 9];
        // The timeout covers only the first byte of a frame, so it loses no part of a frame.
        let Ok(first) = tokio::time::timeout(quiet, provider.read_exact(&mut head[..1])).await
        else {
            caller.write_all(&frame(PING, 0, &[0; 8])).await?;
            cloud.count_lie();
            continue;
        };
        first?;
        provider.read_exact(&mut head[1..]).await?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        let mut whole = head.to_vec();
        whole.resize(head.len() + length, 0);
        provider.read_exact(&mut whole[head.len()..]).await?;
        caller.write_all(&whole).await?;
        let [_, _, _, kind, flags, stream @ ..] = head;
        if kind != HEADERS || does != Does::Behind {
            continue;
        }
        let stream = u32::from_be_bytes(stream);
        let begins = answered.insert(stream);
        if begins && flags & END_STREAM != 0 {
            caller.write_all(&frame(DATA, stream, &[])).await?;
            cloud.count_lie();
        }
    }
}

/// A frame without flags and with at most 255 bytes of payload.
fn frame(kind: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0, 0, payload.len() as u8, kind, 0];
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// Connects to the provider behind, which starts a little later than this socket.
async fn reached(behind: &Path) -> UnixStream {
    loop {
        if let Ok(provider) = UnixStream::connect(behind).await {
            return provider;
        }
        tokio::time::sleep(LOOK).await;
    }
}
