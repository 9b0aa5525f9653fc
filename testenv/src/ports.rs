//! Loopback ports that nothing listens on.

use std::{
    net::{Ipv4Addr, TcpListener},
    process,
    sync::atomic::{AtomicU32, Ordering},
};

/// This range is below the one for outgoing connections (Linux: 32768 and up). Such a connection
/// could otherwise take the port of an API server that a test has just killed and
/// will start again.
const FIRST: u32 = 20_000;
const COUNT: u32 = 12_000;

/// A port that is free at this moment. Another process may take it at any time, so callers must be
/// ready to retry.
///
/// Each call begins at the next port, and each process at another one, so two calls rarely try the
/// same port.
pub fn free_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let start = process::id().wrapping_mul(97);
    for _ in 0..COUNT {
        let offset = start.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % COUNT;
        let port = u16::try_from(FIRST + offset).unwrap_or_default();
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return port;
        }
    }
    // If all these ports are taken: any port that the system offers.
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .and_then(|listener| listener.local_addr())
        .map_or(0, |address| address.port())
}
