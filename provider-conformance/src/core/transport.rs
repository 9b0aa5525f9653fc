//! The connection: HTTP/2 on a Unix socket, and other bytes on it (CORE-1).

use std::time::Duration;

use bytes::Bytes;
use cloud_provider_api::v1alpha1 as pb;
use futures::future::join_all;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use super::super::check::{Check, Stop, Verdict, check, must};
use super::super::run::Run;
use super::super::wire::opening;

const PATIENCE: Duration = Duration::from_secs(10);
/// The least time to watch an idle connection.
const IDLE: Duration = Duration::from_secs(2);

pub(super) fn checks() -> Vec<Check> {
    vec![
        check!(
            "core/answers-on-a-new-connection",
            ["CORE-1"],
            "gRPC over HTTP/2 is served on the Unix socket, on each new connection",
            new_connections
        ),
        check!(
            "core/many-connections-at-once",
            ["CORE-1"],
            "64 connections at once are served",
            many_connections
        ),
        check!(
            "core/64-calls-at-once",
            ["CORE-1"],
            "64 calls at once on one connection are answered",
            many_calls
        ),
        check!(
            "core/answers-are-not-compressed",
            ["CORE-1"],
            "an answer is not compressed, even if the caller would accept it",
            no_compression
        ),
        check!(
            "core/plain-http2-without-tls",
            ["CORE-1"],
            "the first thing that the provider sends is an HTTP/2 SETTINGS frame in the clear",
            settings_first
        ),
        check!(
            "core/survives-connections-that-are-dropped",
            ["CORE-1"],
            "connections that open and close at once do no harm",
            dropped_connections
        ),
        check!(
            "core/survives-garbage",
            ["CORE-1"],
            "bytes that are no HTTP/2 end at most their own connection",
            garbage
        ),
        check!(
            "core/survives-http1",
            ["CORE-1"],
            "an HTTP/1.1 request ends at most its own connection",
            http1
        ),
        check!(
            "core/survives-tls",
            ["CORE-1"],
            "a TLS handshake ends at most its own connection",
            tls
        ),
        check!(
            "core/survives-broken-frames",
            ["CORE-1"],
            "a broken HTTP/2 frame ends at most its own connection",
            broken_frames
        ),
        check!(
            "core/survives-half-open-calls",
            ["CORE-1", "CORE-6"],
            "calls whose request never ends block no other call",
            half_open
        ),
        check!(
            "core/broken-message-is-a-status",
            ["CORE-4", "CORE-1"],
            "a message that is no protobuf is answered with a gRPC status, and the connection lives",
            broken_message
        ),
        check!(
            "core/unknown-method-is-a-status",
            ["CORE-5", "CORE-13"],
            "an RPC of a later minor is answered with UNIMPLEMENTED, and the connection lives",
            unknown_method
        ),
    ]
}

/// Checks that run at the end of the run.
pub(super) fn at_the_end() -> Vec<Check> {
    vec![check!(
        "core/idle-connection-is-left-alone",
        ["CORE-1"],
        "a connection that stays idle gets no PING and no GOAWAY, and the provider does not close it",
        idle_connection
    )]
}

async fn new_connections(run: &Run) -> Verdict {
    for _ in 0..5 {
        let session = run.connect().await?;
        session.call(pb::ProbeRequest::default()).await.answer()?;
    }
    Ok(())
}

async fn many_connections(run: &Run) -> Verdict {
    let mut sessions = Vec::new();
    for _ in 0..64 {
        sessions.push(run.connect().await?);
    }
    let calls: Vec<_> = sessions
        .iter()
        .map(|session| session.call(pb::ProbeRequest::default()))
        .collect();
    join_all(calls)
        .await
        .iter()
        .try_for_each(|asked| asked.answer().map(|_| ()))
}

async fn many_calls(run: &Run) -> Verdict {
    let session = run.connect().await?;
    let calls: Vec<_> = (0..64)
        .map(|_| session.call(pb::GetProviderInfoRequest::default()))
        .collect();
    join_all(calls)
        .await
        .iter()
        .try_for_each(|asked| asked.answer().map(|_| ()))
}

async fn no_compression(run: &Run) -> Verdict {
    let session = run.connect().await?;
    let accepting = [("grpc-accept-encoding", "gzip,deflate,zstd,identity")];
    let path = "/cloudprovider.v1alpha1.ProviderService/GetProviderInfo";
    let asked = session
        .raw_with(path, Bytes::new(), PATIENCE, &accepting)
        .await;
    let encoding = asked.map(|answer| {
        let encoding = answer.metadata().get("grpc-encoding").cloned();
        encoding.map_or_else(
            || "identity".to_owned(),
            |of| format!("{of:?}").trim_matches('"').to_owned(),
        )
    });
    must(
        encoding
            .as_deref()
            .is_ok_and(|encoding| encoding == "identity"),
        "CORE-1",
        "GetProviderInfo with grpc-accept-encoding: gzip,deflate,zstd,identity",
        "an answer that is not compressed",
        format_args!("{encoding:?}"),
    )
}

async fn idle_connection(run: &Run) -> Verdict {
    let (heard, longest) = run.target().idle(IDLE).await;
    must(
        heard.is_empty(),
        "CORE-1",
        format_args!(
            "HTTP/2 connections without a call, from each start of the provider until the suite ended it, the longest for {} s",
            longest.as_secs()
        ),
        "no PING (type 6), no GOAWAY (type 7), not closed",
        format_args!("this, each with the time since its connection was opened: {heard:?}"),
    )?;
    listened_to(longest)
}

/// A shorter observation proves nothing.
fn listened_to(longest: Duration) -> Verdict {
    if longest < IDLE {
        return Err(Stop::not_set_up(format!(
            "no idle connection lasted for {IDLE:?} (the longest: {longest:?}): connections could not be opened, or the provider ended before"
        )));
    }
    Ok(())
}

async fn settings_first(run: &Run) -> Verdict {
    let opening = opening();
    let mut line = run.raw_connection().await?;
    let mut head = [0; 9];
    let read = timeout(PATIENCE, async {
        line.write_all(&opening).await?;
        line.read_exact(&mut head).await
    });
    let read = read.await;
    must(
        matches!(read, Ok(Ok(_))) && head[3] == 4 && head[5..] == [0; 4],
        "CORE-1",
        "the HTTP/2 connection preface and an empty SETTINGS frame",
        "a SETTINGS frame (type 4, stream 0)",
        format_args!("{read:?}, {head:02x?}"),
    )
}

/// Sends these bytes on three connections, one after the other. The provider must still answer, on
/// an older connection and on a new one.
async fn unharmed(run: &Run, after: &str, sends: &[u8]) -> Verdict {
    let before = run.connect().await?;
    before.call(pb::ProbeRequest::default()).await.answer()?;
    for _ in 0..3 {
        let mut line = run.raw_connection().await?;
        // The provider may close the connection before all bytes are written.
        let _ = line.write_all(sends).await;
        let mut rest = Vec::new();
        let _ = timeout(Duration::from_millis(200), line.read_to_end(&mut rest)).await;
    }
    for session in [&before, &run.connect().await?] {
        let asked = session.call(pb::ProbeRequest::default()).await;
        must(
            asked.came.is_ok(),
            "CORE-1",
            format_args!("{after} on a connection of its own; then Probe on another"),
            "Probe is answered",
            format_args!("{:?}", asked.came),
        )?;
    }
    Ok(())
}

async fn dropped_connections(run: &Run) -> Verdict {
    for _ in 0..200 {
        drop(run.raw_connection().await?);
    }
    unharmed(run, "200 connections that were dropped at once", b"").await
}

async fn garbage(run: &Run) -> Verdict {
    let noise: Vec<u8> = (0..4096_u32)
        .map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8)
        .collect();
    unharmed(run, "4 KiB of noise", &noise).await?;
    unharmed(run, "4 KiB of zeros", &[0; 4096]).await
}

async fn http1(run: &Run) -> Verdict {
    unharmed(
        run,
        "an HTTP/1.1 request",
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    )
    .await
}

async fn tls(run: &Run) -> Verdict {
    // The header of a ClientHello: handshake record, TLS 1.0, 512 bytes, of which few follow.
    let hello = [0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3];
    unharmed(run, "the beginning of a TLS handshake", &hello).await
}

async fn broken_frames(run: &Run) -> Verdict {
    // DATA on stream 0, and HEADERS with an invalid HPACK block.
    let data = [&opening()[..], &[0, 0, 1, 0, 0, 0, 0, 0, 0, 7]].concat();
    unharmed(run, "a DATA frame on stream 0", &data).await?;
    let headers = [
        &opening()[..],
        &[0, 0, 4, 1, 4, 0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff],
    ]
    .concat();
    unharmed(run, "a HEADERS frame that is no HPACK", &headers).await
}

async fn half_open(run: &Run) -> Verdict {
    let session = run.connect().await?;
    let mut open = Vec::new();
    for _ in 0..16 {
        open.push(
            session
                .half_open("/cloudprovider.v1alpha1.ProviderService/GetProviderInfo")
                .await
                .map_err(|status| {
                    Stop::failed(
                        "CORE-1",
                        "a request without its end",
                        "it is accepted",
                        status,
                    )
                })?,
        );
    }
    for other in [&session, &run.connect().await?] {
        let asked = other.call(pb::ProbeRequest::default()).await;
        must(
            asked.came.is_ok(),
            "CORE-1",
            "16 calls whose request does not end, then Probe",
            "Probe is answered",
            format_args!("{:?}", asked.came),
        )?;
    }
    drop(open);
    session
        .call(pb::ProbeRequest::default())
        .await
        .answer()
        .map(|_| ())
}

async fn broken_message(run: &Run) -> Verdict {
    let session = run.connect().await?;
    // Field 1, length-delimited, 100 bytes, of which one follows.
    let broken = Bytes::from_static(&[0x0a, 100, 1]);
    for path in [
        "/cloudprovider.v1alpha1.ProviderService/Initialize",
        "/cloudprovider.v1alpha1.ProviderService/GetProviderInfo",
    ] {
        let asked = session.raw(path, broken.clone(), PATIENCE).await;
        must(
            asked.is_err(),
            "CORE-4",
            format_args!("{path} with a message that is cut off"),
            "a gRPC status other than OK",
            format_args!("{asked:?}"),
        )?;
    }
    session
        .call(pb::ProbeRequest::default())
        .await
        .answer()
        .map(|_| ())
}

async fn unknown_method(run: &Run) -> Verdict {
    let session = run.connect().await?;
    for path in [
        "/cloudprovider.v1alpha1.ProviderService/OfALaterMinor",
        "/cloudprovider.v1alpha1.LaterService/Call",
    ] {
        let asked = session.raw(path, Bytes::new(), PATIENCE).await;
        let code = asked.as_ref().err().map(tonic::Status::code);
        must(
            code == Some(tonic::Code::Unimplemented),
            "CORE-13",
            path,
            "gRPC status UNIMPLEMENTED",
            format_args!("{asked:?}"),
        )?;
    }
    session
        .call(pb::ProbeRequest::default())
        .await
        .answer()
        .map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::super::super::check::Lack;
    use super::*;

    #[test]
    fn who_was_not_listened_to_has_not_passed() {
        assert!(listened_to(IDLE).is_ok());
        for short in [Duration::ZERO, IDLE / 2] {
            let Err(Stop::Skipped(skipped)) = listened_to(short) else {
                panic!("{short:?}");
            };
            assert_eq!(skipped.lack, Lack::Setup);
        }
    }
}
