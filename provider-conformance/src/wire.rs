//! HTTP/2 frames without a client's stack, which would for example cancel a call at its deadline.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::net::UnixStream;
use tokio::time::{Instant, timeout_at};

use super::call::Rpc;
use super::hpack;

pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const RST_STREAM: u8 = 3;
const CONTINUATION: u8 = 9;
const PADDED: u8 = 8;
const PRIORITY: u8 = 0x20;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const END_STREAM: u8 = 1;
pub(crate) const ACK: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) length: usize,
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
}

impl Head {
    pub(crate) fn read(bytes: [u8; 9]) -> Self {
        let [a, b, c, kind, flags, stream @ ..] = bytes;
        Self {
            length: u32::from_be_bytes([0, a, b, c]) as usize,
            kind,
            flags,
            stream: u32::from_be_bytes(stream) & 0x7fff_ffff,
        }
    }

    /// Whether this frame ends its stream.
    pub(crate) fn ends(self) -> bool {
        let says = matches!(self.kind, DATA | HEADERS);
        self.kind == RST_STREAM || says && self.flags & END_STREAM != 0
    }
}

/// The streams that the provider has ended.
#[derive(Debug, Default)]
pub(crate) struct Ended(pub(crate) HashSet<u32>);

impl Ended {
    /// Records a frame. `false`: the stream has ended, so the provider must not send the frame (RFC
    /// 9113, 5.1). A reset after the last HEADERS is allowed.
    pub(crate) fn allows(&mut self, head: Head) -> bool {
        if matches!(head.kind, DATA | HEADERS) && self.0.contains(&head.stream) {
            return false;
        }
        if head.ends() {
            self.0.insert(head.stream);
        }
        true
    }
}

pub(crate) fn frame(to: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    let length = u32::try_from(payload.len()).unwrap_or(u32::MAX);
    to.extend(&length.to_be_bytes()[1..]);
    to.extend([kind, flags]);
    to.extend(stream.to_be_bytes());
    to.extend(payload);
}

/// The first bytes of a client.
pub(crate) fn opening() -> Vec<u8> {
    let mut bytes = PREFACE.to_vec();
    frame(&mut bytes, SETTINGS, 0, 0, &[]);
    bytes
}

/// HPACK's simplest form: each field is a literal without indexing.
fn fields(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0);
        for text in [name, value] {
            // Seven bits: the texts are short.
            block.push(u8::try_from(text.len()).unwrap_or(0x7f) & 0x7f);
            block.extend(text.as_bytes());
        }
    }
    block
}

/// A whole call with a deadline.
pub(crate) fn call<R: Rpc>(to: &mut Vec<u8>, stream: u32, request: &R, deadline: Duration) {
    let timeout = format!("{}m", deadline.as_millis());
    let block = fields(&[
        (":method", "POST"),
        (":scheme", "http"),
        (":path", R::PATH),
        (":authority", "localhost"),
        ("te", "trailers"),
        ("content-type", "application/grpc"),
        ("grpc-timeout", &timeout),
    ]);
    let message = request.encode_to_vec();
    let length = u32::try_from(message.len()).unwrap_or(u32::MAX);
    let body = [&[0][..], &length.to_be_bytes(), &message].concat();
    frame(to, HEADERS, END_HEADERS, stream, &block);
    frame(to, DATA, END_STREAM, stream, &body);
}

/// An event on a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Said {
    Frame(Head),
    /// The connection has ended.
    End,
    /// Nothing came in time.
    Nothing,
}

/// Reads one frame and drops its payload.
pub(crate) async fn hear(line: &mut UnixStream, until: Instant) -> Said {
    listen(line, until).await.0
}

/// Reads one frame with its payload.
async fn listen(line: &mut UnixStream, until: Instant) -> (Said, Vec<u8>) {
    let nothing = |said| (said, Vec::new());
    let mut bytes = [0; 9];
    match timeout_at(until, line.read_exact(&mut bytes)).await {
        Ok(Ok(_)) => {}
        Ok(Err(_)) => return nothing(Said::End),
        Err(_) => return nothing(Said::Nothing),
    }
    let head = Head::read(bytes);
    let mut payload = vec![0; head.length];
    match timeout_at(until, line.read_exact(&mut payload)).await {
        Ok(Ok(_)) => (Said::Frame(head), payload),
        Ok(Err(_)) => nothing(Said::End),
        Err(_) => nothing(Said::Nothing),
    }
}

/// How a call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// With this gRPC status.
    Status(u8),
    /// Without a gRPC status.
    NoStatus,
    /// By RST_STREAM with this code.
    Reset(u32),
    /// By GOAWAY: the provider did not process the call.
    NotTaken,
}

impl std::fmt::Display for Ending {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Status(code) => {
                write!(to, "gRPC status {:?}", tonic::Code::from(i32::from(*code)))
            }
            Self::NoStatus => write!(to, "its end, without a gRPC status"),
            Self::Reset(code) => write!(to, "RST_STREAM with code {code}"),
            Self::NotTaken => write!(to, "GOAWAY for it"),
        }
    }
}

/// The answers on a connection: the bytes of the messages and the end of each stream.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    table: hpack::Table,
    /// A block of header fields that continues in the next frame.
    block: Vec<u8>,
    status: HashMap<u32, u8>,
    bodies: HashMap<u32, Vec<u8>>,
    pub(crate) endings: BTreeMap<u32, Ending>,
}

impl Answers {
    /// Reads until each of these streams or the connection has ended, or the time is over.
    pub(crate) async fn read(&mut self, line: &mut UnixStream, streams: &[u32], until: Instant) {
        while streams.iter().any(|one| !self.endings.contains_key(one)) {
            let (Said::Frame(head), payload) = listen(line, until).await else {
                return;
            };
            self.hear(head, &payload, streams);
        }
    }

    fn hear(&mut self, head: Head, payload: &[u8], streams: &[u32]) {
        let number = |at: usize| {
            let four = payload
                .get(at..at + 4)
                .and_then(|four| four.try_into().ok());
            four.map_or(0, u32::from_be_bytes)
        };
        match head.kind {
            HEADERS | CONTINUATION => {
                let fields = content(head, payload);
                self.block.extend(fields);
                if head.flags & END_HEADERS != 0 {
                    let block = std::mem::take(&mut self.block);
                    if let Some(status) = self.table.status(&block) {
                        self.status.insert(head.stream, status);
                    }
                }
            }
            DATA => {
                let data = content(head, payload);
                self.bodies.entry(head.stream).or_default().extend(data);
            }
            RST_STREAM => {
                let reset = Ending::Reset(number(0));
                self.endings.entry(head.stream).or_insert(reset);
            }
            GOAWAY => {
                let last = number(0) & 0x7fff_ffff;
                for stream in streams.iter().filter(|stream| **stream > last) {
                    self.endings.entry(*stream).or_insert(Ending::NotTaken);
                }
            }
            _ => {}
        }
        if matches!(head.kind, DATA | HEADERS) && head.flags & END_STREAM != 0 {
            let status = self.status.get(&head.stream);
            let ending = status.map_or(Ending::NoStatus, |code| Ending::Status(*code));
            self.endings.entry(head.stream).or_insert(ending);
        }
    }

    /// The answer's message on a stream.
    pub(crate) fn message<M: prost::Message + Default>(&self, stream: u32) -> Option<M> {
        M::decode(self.bodies.get(&stream)?.get(5..)?).ok()
    }
}

/// The payload without padding.
fn content(head: Head, payload: &[u8]) -> &[u8] {
    let mut from = 0;
    let mut to = payload.len();
    if head.kind != CONTINUATION && head.flags & PADDED != 0 {
        from = 1;
        to = to.saturating_sub(payload.first().copied().unwrap_or(0).into());
    }
    if head.kind == HEADERS && head.flags & PRIORITY != 0 {
        from += 5;
    }
    payload.get(from..to).unwrap_or_default()
}

#[cfg(test)]
pub(crate) mod tests {
    use cloud_provider_api::v1alpha1 as pb;

    use super::*;

    fn heads(bytes: &[u8]) -> Vec<Head> {
        let mut rest = bytes;
        let mut heads = Vec::new();
        while let Some((head, more)) = rest.split_first_chunk::<9>() {
            heads.push(Head::read(*head));
            rest = &more[heads[heads.len() - 1].length..];
        }
        heads
    }

    fn said(frames: &[(u8, u8, u32)]) -> bool {
        let mut ended = Ended::default();
        let mut bytes = Vec::new();
        for (kind, flags, stream) in frames {
            frame(&mut bytes, *kind, *flags, *stream, b"payload");
        }
        heads(&bytes).into_iter().all(|head| ended.allows(head))
    }

    #[test]
    fn nothing_may_be_said_behind_a_reset_or_the_last_headers() {
        assert!(!said(&[(RST_STREAM, 0, 1), (HEADERS, END_STREAM, 1)]));
        assert!(!said(&[(HEADERS, END_STREAM, 3), (DATA, 0, 3)]));
        assert!(said(&[
            (HEADERS, 0, 1),
            (DATA, 0, 1),
            (HEADERS, END_STREAM, 1)
        ]));
        // grpc-go and others end a call like this if they did not read the whole request. Frames of
        // another stream are allowed too.
        assert!(said(&[
            (HEADERS, END_STREAM, 1),
            (RST_STREAM, 0, 1),
            (HEADERS, 0, 3),
            (8, 0, 1),
        ]));
    }

    #[test]
    fn calls_are_frames_of_streams_of_their_own() {
        let mut bytes = opening();
        for stream in [1, 3, 5] {
            let request = pb::LookupInstancesRequest::default();
            call(&mut bytes, stream, &request, Duration::from_millis(100));
        }
        let came = heads(bytes.strip_prefix(PREFACE).unwrap());
        let of: Vec<_> = came.iter().map(|head| (head.kind, head.stream)).collect();
        let calls = [1, 3, 5].map(|stream| [(HEADERS, stream), (DATA, stream)]);
        assert_eq!(of, [&[(SETTINGS, 0)][..], calls.as_flattened()].concat());
    }
}
