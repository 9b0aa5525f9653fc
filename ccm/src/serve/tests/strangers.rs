//! Hostile callers, and the shutdown.

use std::time::Duration;

use axum::body::Bytes;
use http_body_util::Empty;
use hyper::Request;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::api_server::Mood;
use super::{Limits, Port, eventually};

/// Reads until the other side closes. Fails after a minute.
async fn read_to_end(mut stream: impl AsyncReadExt + Unpin) -> Vec<u8> {
    let mut bytes = Vec::new();
    let read = tokio::time::timeout(Duration::from_mins(1), stream.read_to_end(&mut bytes));
    // A reset also counts as closing.
    let _ = read.await.expect("never closed");
    bytes
}

/// These limits close no connection in the time of a test.
fn patient() -> Limits {
    Limits {
        handshake: Duration::from_mins(5),
        head: Duration::from_mins(5),
        ..Limits::default()
    }
}

fn livez() -> Request<Empty<Bytes>> {
    Request::get("/livez").body(Empty::new()).unwrap()
}

#[tokio::test]
async fn b_m4_garbage_instead_of_tls_or_http_disturbs_nobody() {
    let port = Port::open().await;
    let (mut other, _driver) = port.caller.connect().await;
    for garbage in [
        &b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n"[..],
        b"\0\0\0\0",
        b"\x16\x03\x01\xff\xff\x01",
        &vec![0xff; 100_000],
    ] {
        let mut stream = TcpStream::connect(port.address).await.unwrap();
        let _ = stream.write_all(garbage).await;
        let _ = stream.shutdown().await;
        read_to_end(stream).await;
        let mut stream = port.caller.tls().await.unwrap();
        let _ = stream.write_all(garbage).await;
        let _ = stream.shutdown().await;
        read_to_end(stream).await;
        other.ready().await.unwrap();
        assert_eq!(other.send_request(livez()).await.unwrap().status(), 200);
    }
    assert_eq!(port.status("/livez", None).await, 200);
}

#[tokio::test]
async fn b_m4_who_is_too_slow_is_closed() {
    let limits = Limits {
        handshake: Duration::from_millis(100),
        ..Limits::default()
    };
    let port = Port::open_with(&[], limits).await;
    let silent = TcpStream::connect(port.address).await.unwrap();
    assert!(read_to_end(silent).await.is_empty());
    // The limit also holds for the head of `idle`, which comes in time.
    let limits = Limits {
        head: Duration::from_secs(2),
        ..Limits::default()
    };
    let port = Port::open_with(&[], limits).await;
    let mut half = port.caller.tls().await.unwrap();
    half.write_all(b"GET /livez HTTP/1.1\r\nho").await.unwrap();
    read_to_end(half).await;
    let mut idle = port.caller.tls().await.unwrap();
    idle.write_all(b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\n")
        .await
        .unwrap();
    let answer = read_to_end(idle).await;
    assert!(answer.starts_with(b"HTTP/1.1 200 OK") && answer.ends_with(b"ok"));
}

#[tokio::test]
async fn b_m4_an_old_connection_takes_no_further_request() {
    let limits = Limits {
        age: Duration::from_millis(100),
        ..patient()
    };
    let port = Port::open_with(&[], limits).await;
    let mut stream = port.caller.tls().await.unwrap();
    stream
        .write_all(b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\n")
        .await
        .unwrap();
    assert!(read_to_end(stream).await.starts_with(b"HTTP/1.1 200 OK"));
}

#[tokio::test]
async fn b_m4_a_request_that_takes_too_long_is_answered_504() {
    let limits = Limits {
        request: Duration::from_millis(100),
        ..Limits::default()
    };
    let port = Port::open_with(&[], limits).await;
    port.api_server.set(Mood::Hangs);
    assert_eq!(port.status("/metrics", Some("alice")).await, 504);
}

/// Finding B1.
#[tokio::test]
async fn b_m4_a_full_port_closes_idle_strangers_and_keeps_whom_it_knows() {
    let limits = Limits {
        connections: 4,
        ..patient()
    };
    let port = Port::open_with(&[], limits).await;
    let (mut known, _driver) = port.caller.connect().await;
    let metrics = || {
        let request = Request::get("/metrics").header("authorization", "Bearer alice");
        request.body(Empty::<Bytes>::new()).unwrap()
    };
    assert_eq!(known.send_request(metrics()).await.unwrap().status(), 200);
    let mut silent = Vec::new();
    let mut idle = Vec::new();
    for _ in 0..10 {
        silent.push(TcpStream::connect(port.address).await.unwrap());
        idle.push(port.caller.tls().await.unwrap());
        assert_eq!(port.status("/livez", None).await, 200);
    }
    // The port closes the oldest at once, before their timeouts.
    read_to_end(silent.swap_remove(0)).await;
    read_to_end(idle.swap_remove(0)).await;
    known.ready().await.unwrap();
    assert_eq!(known.send_request(metrics()).await.unwrap().status(), 200);
}

/// Finding B1: slow requests of strangers, which wait for reviews, do not displace a probe in its
/// handshake.
#[tokio::test]
async fn b_m4_a_port_that_is_full_of_requests_of_strangers_answers_a_probe() {
    let limits = Limits {
        connections: 8,
        ..Limits::default()
    };
    let port = Port::open_with(&[], limits).await;
    port.api_server.set(Mood::Hangs);
    let mut strangers = Vec::new();
    for number in 0..8 {
        let mut stranger = port.caller.tls().await.unwrap();
        let request =
            format!("GET /metrics HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {number}\r\n\r\n");
        stranger.write_all(request.as_bytes()).await.unwrap();
        strangers.push(stranger);
        eventually("the review hangs", async || {
            port.api_server.hanging() == number + 1
        })
        .await;
    }
    let mut probe = port.caller.tls().await.unwrap();
    // When the handshake of `_second` has ended, the port has accepted `_first` too.
    let _first = TcpStream::connect(port.address).await.unwrap();
    let _second = port.caller.tls().await.unwrap();
    probe
        .write_all(b"GET /livez HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        .await
        .unwrap();
    let answer = read_to_end(probe).await;
    assert!(answer.starts_with(b"HTTP/1.1 200 OK"), "{answer:?}");
}

#[tokio::test]
async fn b_m4_a_head_that_is_too_long_is_refused() {
    let port = Port::open().await;
    let mut stream = port.caller.tls().await.unwrap();
    let _ = stream
        .write_all(b"GET /livez HTTP/1.1\r\nauthorization: Bearer ")
        .await;
    let _ = stream.write_all(&vec![b'a'; 1 << 20]).await;
    let answer = read_to_end(stream).await;
    assert!(answer.is_empty() || answer.starts_with(b"HTTP/1.1 431"));
    assert_eq!(port.status("/livez", None).await, 200);
}

#[tokio::test]
async fn b_m4_the_shutdown_lets_requests_finish_and_closes_idle_connections() {
    let limits = Limits {
        request: Duration::from_millis(300),
        ..Limits::default()
    };
    let mut port = Port::open_with(&[], limits).await;
    port.api_server.set(Mood::Hangs);
    let (mut idle, _driver) = port.caller.connect().await;
    assert_eq!(idle.send_request(livez()).await.unwrap().status(), 200);
    let (mut busy, _driver) = port.caller.connect().await;
    let request = Request::get("/metrics").body(Empty::new()).unwrap();
    let answer = tokio::spawn(busy.send_request(request));
    eventually("the review hangs", async || port.api_server.hanging() == 1).await;
    port.shutdown.cancel();
    assert_eq!(answer.await.unwrap().unwrap().status(), 504);
    let ended = tokio::time::timeout(Duration::from_mins(1), &mut port.serving).await;
    ended.unwrap().unwrap();
    // A child that another test starts may have the listener until it executes its program.
    eventually("the port refuses", async || {
        TcpStream::connect(port.address).await.is_err()
    })
    .await;
    eventually("the idle connection is closed", async || idle.is_closed()).await;
}

#[tokio::test]
async fn b_m4_the_drain_is_capped() {
    let limits = Limits {
        drain: Duration::from_millis(100),
        ..Limits::default()
    };
    let mut port = Port::open_with(&[], limits).await;
    port.api_server.set(Mood::Hangs);
    let (mut busy, _driver) = port.caller.connect().await;
    let request = Request::get("/metrics").body(Empty::new()).unwrap();
    let answer = tokio::spawn(busy.send_request(request));
    eventually("the review hangs", async || port.api_server.hanging() == 1).await;
    port.shutdown.cancel();
    let ended = tokio::time::timeout(Duration::from_mins(1), &mut port.serving).await;
    ended.unwrap().unwrap();
    assert!(answer.await.unwrap().is_err());
}
