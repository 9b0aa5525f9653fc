//! What a stack sends on calls that it ends itself: nothing behind their end, which would cost the caller its connection.

use std::collections::HashSet;
use std::time::Duration;

use cloud_provider_api::v1alpha1 as pb;
use prost::Message;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::time::{Instant, timeout_at};

use super::super::super::call::Rpc;
use super::super::super::check::{Check, Need, Verdict, check, must};
use super::super::super::run::Run;
use super::super::tour;
use super::{EARLY, MEANWHILE, SLOW, lookups_at_once};

/// How long a provider may take to end calls after their deadline. One that leaves this to the caller sends nothing, which is as good.
const ENDING: Duration = Duration::from_secs(2);
/// How long the line is listened to when all have ended.
const AFTER: Duration = Duration::from_millis(200);

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

pub(super) fn checks() -> Vec<Check> {
    vec![check!(
        "core/nothing-behind-the-end",
        ["CORE-1"],
        "on a call that the provider ends at its deadline no frame comes behind the end, for which HTTP/2 stacks give up the connection",
        [Need::Instances, SLOW],
        nothing_behind
    )]
}

/// The head of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Head {
    length: usize,
    kind: u8,
    flags: u8,
    stream: u32,
}

impl Head {
    fn read(bytes: [u8; 9]) -> Self {
        let [a, b, c, kind, flags, stream @ ..] = bytes;
        Self {
            length: u32::from_be_bytes([0, a, b, c]) as usize,
            kind,
            flags,
            stream: u32::from_be_bytes(stream) & 0x7fff_ffff,
        }
    }
}

/// The streams that the provider has ended.
#[derive(Debug, Default)]
struct Ended(HashSet<u32>);

impl Ended {
    /// Notes what came; false where it may not come any more (RFC 9113, 5.1). A reset behind the last HEADERS is as it should be.
    fn allows(&mut self, head: Head) -> bool {
        let says = matches!(head.kind, DATA | HEADERS);
        if says && self.0.contains(&head.stream) {
            return false;
        }
        if head.kind == RST_STREAM || says && head.flags & END_STREAM != 0 {
            self.0.insert(head.stream);
        }
        true
    }
}

fn frame(to: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    let length = u32::try_from(payload.len()).unwrap_or(u32::MAX);
    to.extend(&length.to_be_bytes()[1..]);
    to.extend([kind, flags]);
    to.extend(stream.to_be_bytes());
    to.extend(payload);
}

/// HPACK's plainest form: each field in full, none indexed.
fn fields(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0);
        for text in [name, value] {
            // Seven bits, and ours are short.
            block.push(u8::try_from(text.len()).unwrap_or(0x7f) & 0x7f);
            block.extend(text.as_bytes());
        }
    }
    block
}

/// A connection's opening, and this many lookups whose deadline is told to the provider.
fn lookups(request: &pb::LookupInstancesRequest, count: usize, deadline: Duration) -> Vec<u8> {
    let timeout = format!("{}m", deadline.as_millis());
    let block = fields(&[
        (":method", "POST"),
        (":scheme", "http"),
        (":path", pb::LookupInstancesRequest::PATH),
        (":authority", "localhost"),
        ("te", "trailers"),
        ("content-type", "application/grpc"),
        ("grpc-timeout", &timeout),
    ]);
    let message = request.encode_to_vec();
    let length = u32::try_from(message.len()).unwrap_or(u32::MAX);
    let body = [&[0][..], &length.to_be_bytes(), &message].concat();
    let mut bytes = PREFACE.to_vec();
    frame(&mut bytes, SETTINGS, 0, 0, &[]);
    for stream in (1..).step_by(2).take(count) {
        frame(&mut bytes, HEADERS, END_HEADERS, stream, &block);
        frame(&mut bytes, DATA, END_STREAM, stream, &body);
    }
    bytes
}

/// What may not come while calls are left to the provider to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wrong {
    /// A frame behind the end of its stream.
    Behind(Head),
    /// GOAWAY, or the end of the connection: with it all other calls are lost too.
    HungUp,
}

/// Fills the buffer; false where the time is over first.
async fn fill(line: &mut UnixStream, buffer: &mut [u8], until: Instant) -> Result<bool, Wrong> {
    match timeout_at(until, line.read_exact(buffer)).await {
        Ok(Ok(_)) => Ok(true),
        Ok(Err(_)) => Err(Wrong::HungUp),
        Err(_) => Ok(false),
    }
}

/// Listens until all calls have ended, and a moment more.
async fn listen(line: &mut UnixStream, calls: usize) -> Result<(), Wrong> {
    let mut until = Instant::now() + EARLY + ENDING;
    let mut ended = Ended::default();
    loop {
        let mut bytes = [0; 9];
        if !fill(line, &mut bytes, until).await? {
            return Ok(());
        }
        let head = Head::read(bytes);
        if head.kind == GOAWAY {
            return Err(Wrong::HungUp);
        }
        if !ended.allows(head) {
            return Err(Wrong::Behind(head));
        }
        let mut payload = vec![0; head.length];
        if !fill(line, &mut payload, until).await? {
            return Ok(());
        }
        if ended.0.len() == calls {
            until = until.min(Instant::now() + AFTER);
        }
    }
}

async fn nothing_behind(run: &Run) -> Verdict {
    let calls = lookups_at_once(run);
    let session = run.session().await?;
    run.cloud_slow(MEANWHILE).await?;
    let request = pb::LookupInstancesRequest {
        cluster: Some(session.cluster().clone()),
        ..tour::lookup(run)
    };
    let mut line = run.raw_connection().await?;
    // The calls are left to the provider to end: a caller that hangs up first sees nothing of this.
    let _ = line.write_all(&lookups(&request, calls, EARLY)).await;
    let heard = listen(&mut line, calls).await;
    drop(line);
    run.cloud_slow(Duration::ZERO).await?;
    must(
        heard.is_ok(),
        "CORE-1",
        format_args!(
            "{calls} LookupInstances with a deadline of {EARLY:?} on one HTTP/2 connection, while the cloud takes {MEANWHILE:?}, and no RST_STREAM from the caller"
        ),
        "that the connection stays, and nothing on a stream behind its RST_STREAM (type 3) or END_STREAM (RFC 9113, 5.1): the caller's stack ends the whole connection for it (GOAWAY, PROTOCOL_ERROR), and all other calls are lost with it",
        format_args!("{heard:?}: DATA is type 0, HEADERS type 1"),
    )
}

#[cfg(test)]
mod tests {
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
        // As grpc-go and others end a call that was not read to its end; and another stream's frames.
        assert!(said(&[
            (HEADERS, END_STREAM, 1),
            (RST_STREAM, 0, 1),
            (HEADERS, 0, 3),
            (8, 0, 1),
        ]));
    }

    #[test]
    fn calls_are_frames_of_streams_of_their_own() {
        let bytes = lookups(&pb::LookupInstancesRequest::default(), 3, EARLY);
        let came = heads(bytes.strip_prefix(PREFACE).unwrap());
        let of: Vec<_> = came.iter().map(|head| (head.kind, head.stream)).collect();
        let calls = [1, 3, 5].map(|stream| [(HEADERS, stream), (DATA, stream)]);
        assert_eq!(of, [&[(SETTINGS, 0)][..], calls.as_flattened()].concat());
    }

    #[tokio::test]
    async fn the_frame_behind_the_end_and_a_hang_up_are_found_on_a_line() {
        let behind = Err(HEADERS);
        let hung_up = Err(GOAWAY);
        for (frames, stays, found) in [
            (&[(HEADERS, END_STREAM), (RST_STREAM, 0)][..], true, Ok(())),
            (&[(RST_STREAM, 0), (HEADERS, END_STREAM)], true, behind),
            (&[(HEADERS, END_STREAM)], false, hung_up),
            (&[(GOAWAY, 0)], true, hung_up),
            (&[], false, hung_up),
        ] {
            let (mut near, mut far) = UnixStream::pair().unwrap();
            let mut bytes = Vec::new();
            for (kind, flags) in frames {
                frame(&mut bytes, *kind, *flags, 1, &[0; 4]);
            }
            far.write_all(&bytes).await.unwrap();
            let _far = stays.then_some(far);
            let heard = listen(&mut near, 1).await.map_err(|wrong| match wrong {
                Wrong::Behind(head) => head.kind,
                Wrong::HungUp => GOAWAY,
            });
            assert_eq!(heard, found, "{frames:?}");
        }
    }
}
