//! Frames of a stack that ends calls itself. The caller's stack may close the connection because of
//! a frame after a stream's end.

use std::time::Duration;

use cloud_provider_api::v1alpha1 as pb;
use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;
use tokio::time::Instant;

use super::super::super::check::{Check, Need, Verdict, check, must};
use super::super::super::run::Run;
use super::super::super::wire::{Ended, GOAWAY, Head, Said, call, hear, opening};
use super::super::tour;
use super::{EARLY, ENDING, MEANWHILE, SLOW, lookups_at_once};

/// How long to listen after all calls have ended.
const AFTER: Duration = Duration::from_millis(200);

pub(super) fn checks() -> Vec<Check> {
    vec![check!(
        "core/nothing-behind-the-end",
        ["CORE-1"],
        "no DATA or HEADERS follow the end of a call that the provider ends at its deadline: HTTP/2 stacks may close the connection for such a frame",
        [Need::Instances, SLOW],
        nothing_behind
    )]
}

/// Forbidden events while the provider ends calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wrong {
    /// A frame after the end of its stream.
    Behind(Head),
    /// GOAWAY, or the end of the connection, which loses all other calls.
    HungUp,
}

/// Listens until [`AFTER`] has passed since the last call ended. It stops at the latest when every
/// call should have ended (`EARLY + ENDING`).
async fn listen(line: &mut UnixStream, calls: usize) -> Result<(), Wrong> {
    let mut until = Instant::now() + EARLY + ENDING;
    let mut ended = Ended::default();
    loop {
        let head = match hear(line, until).await {
            Said::Nothing => return Ok(()),
            Said::End => return Err(Wrong::HungUp),
            Said::Frame(head) => head,
        };
        if head.kind == GOAWAY {
            return Err(Wrong::HungUp);
        }
        if !ended.allows(head) {
            return Err(Wrong::Behind(head));
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
    let mut sends = opening();
    for stream in (1..).step_by(2).take(calls) {
        call(&mut sends, stream, &request, EARLY);
    }
    let mut line = run.raw_connection().await?;
    // The provider ends the calls. A caller that cancels first would not see these frames.
    let _ = line.write_all(&sends).await;
    let heard = listen(&mut line, calls).await;
    drop(line);
    run.cloud_slow(Duration::ZERO).await?;
    must(
        heard.is_ok(),
        "CORE-1",
        format_args!(
            "{calls} LookupInstances with a deadline of {EARLY:?} on one HTTP/2 connection, while the cloud takes {MEANWHILE:?}, and no RST_STREAM from the caller"
        ),
        "an open connection, and no DATA or HEADERS on a stream after its RST_STREAM (type 3) or END_STREAM (RFC 9113, 5.1): for such a frame the caller's stack may close the connection (GOAWAY, PROTOCOL_ERROR), and all other calls on it fail",
        format_args!("{heard:?}: DATA is type 0, HEADERS type 1"),
    )
}

#[cfg(test)]
mod tests {
    use super::super::super::super::wire::{END_STREAM, HEADERS, RST_STREAM, frame};
    use super::*;

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
