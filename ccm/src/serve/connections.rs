//! The listener and its connections. Everything that a stranger can prolong has a limit.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use axum::Router;
use axum::http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use rustix::io::Errno;
use rustix::net::sockopt::set_ipv6_v6only;
#[cfg(test)]
use rustls_pki_types::CertificateDer;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::{JoinError, JoinSet};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;
use tower::{ServiceExt as _, service_fn};

use super::authorities::{Authorities, Shown};
use super::slots::{Slot, Slots};
use super::tls::Tls;
use crate::args::{ServeConfig, TlsConfig, WebhookConfig};

/// The limit for the request line and headers together. A token of a few kilobytes fits.
const HEAD_BYTES: usize = 64 * 1024;
/// The most connections that wait to be accepted.
const BACKLOG: u32 = 1024;
/// The wait after a failed accept (no file descriptors left).
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

/// The limits of a port and of its connections.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Connections at once. A new one above the limit closes an older one, unless all serve
    /// authenticated users.
    pub(super) connections: usize,
    /// The time for the TLS handshake.
    pub(super) handshake: Duration,
    /// The time for a request's head, and between two requests.
    pub(super) head: Duration,
    /// The time for a request, with its reviews. The webhooks' port has its own limit.
    pub(super) request: Duration,
    /// The age after which a connection takes no further request. It also ends a connection whose
    /// client does not read.
    pub(super) age: Duration,
    /// The time for requests in progress after the shutdown began.
    pub(super) drain: Duration,
    /// How often the certificate's files are read.
    pub(super) reload: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 256,
            handshake: Duration::from_secs(10),
            head: Duration::from_secs(20),
            request: Duration::from_secs(30),
            age: Duration::from_mins(5),
            drain: Duration::from_secs(5),
            reload: Duration::from_secs(10),
        }
    }
}

/// The bound port with its certificates.
pub(crate) struct Listener {
    tcp: TcpListener,
    tls: Tls,
    authorities: Authorities,
}

impl Listener {
    /// Reads or makes the certificate, then binds the port. In the configuration, port 0 means
    /// "off", and the caller does not call this. Here, it would bind any free port.
    pub(crate) async fn bind(config: &ServeConfig) -> anyhow::Result<Self> {
        let authorities = Authorities::read(&config.authentication).await?;
        let asked = SocketAddr::new(config.bind_address, config.port);
        let shared = config.permit_port_sharing;
        Self::open(asked, shared, &config.tls, "", authorities).await
    }

    /// The same for the webhooks' port. Its certificate is always from files, because the API
    /// server has to trust it.
    pub(crate) async fn bind_webhooks(config: &WebhookConfig) -> anyhow::Result<Self> {
        let asked = SocketAddr::new(config.bind_address, config.port);
        let callers = Authorities::of_webhooks(config.client_ca_file.as_deref()).await?;
        Self::open(asked, false, &config.tls, "webhook-", callers).await
    }

    /// The names of the port's flags begin with `prefix`.
    async fn open(
        asked: SocketAddr,
        shared: bool,
        config: &TlsConfig,
        prefix: &str,
        authorities: Authorities,
    ) -> anyhow::Result<Self> {
        let tls = Tls::open(config, prefix, authorities.clone()).await?;
        let tcp = listen(asked, shared).with_context(|| {
            format!("cannot listen on {asked} (--{prefix}bind-address, --{prefix}secure-port)")
        })?;
        tracing::info!(address = %asked, self_made_certificate = tls.made().is_some(), "listening for HTTPS");
        Ok(Self {
            tcp,
            tls,
            authorities,
        })
    }

    pub(crate) fn authorities(&self) -> Authorities {
        self.authorities.clone()
    }

    /// The address with the real port.
    #[cfg(test)]
    pub(super) fn address(&self) -> SocketAddr {
        self.tcp.local_addr().unwrap()
    }

    /// The self-signed certificate.
    #[cfg(test)]
    pub(super) fn certificate(&self) -> Option<CertificateDer<'static>> {
        self.tls.made().cloned()
    }
}

/// As in Go, an address that is not specified means all addresses of both families, where the host
/// has them.
fn listen(address: SocketAddr, shared: bool) -> std::io::Result<TcpListener> {
    if address.ip() == Ipv4Addr::UNSPECIFIED {
        let both = SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), address.port());
        match listen_on(both, shared) {
            // The host has no IPv6, or it is switched off.
            Err(error)
                if error.kind() == ErrorKind::AddrNotAvailable
                    || Errno::from_io_error(&error) == Some(Errno::AFNOSUPPORT) => {}
            listening => return listening,
        }
    }
    listen_on(address, shared)
}

fn listen_on(address: SocketAddr, shared: bool) -> std::io::Result<TcpListener> {
    let socket = if address.is_ipv4() {
        TcpSocket::new_v4()?
    } else {
        TcpSocket::new_v6()?
    };
    // A restart does not wait for the connections of the previous process.
    socket.set_reuseaddr(true)?;
    if shared {
        socket.set_reuseport(true)?;
    }
    if address.ip() == Ipv6Addr::UNSPECIFIED {
        // The default is the host's.
        set_ipv6_v6only(&socket, false)?;
    }
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Serves until `shutdown`, drains for at most `limits.drain`, then closes all other connections.
pub(super) async fn serve(
    listener: Listener,
    router: &Router,
    shutdown: CancellationToken,
    limits: Limits,
) {
    let Listener { tcp, tls, .. } = listener;
    let port = Arc::new(Port {
        acceptor: tls.acceptor.clone(),
        router: router.clone(),
        limits,
        shutdown,
        number: tcp.local_addr().map_or(0, |address| address.port()),
    });
    let number = port.number;
    let mut renewal = JoinSet::new();
    renewal.spawn(tls.renew(limits.reload));
    let mut connections = JoinSet::new();
    let slots = Slots::new(limits.connections, number);
    loop {
        let accepted = tokio::select! {
            () = port.shutdown.cancelled() => break,
            Some(ended) = connections.join_next() => {
                log_panic(ended, number);
                continue;
            }
            accepted = tcp.accept() => accepted,
        };
        match accepted {
            Ok((stream, peer)) => {
                let Some(slot) = slots.take() else {
                    continue;
                };
                connections.spawn(Arc::clone(&port).connection(stream, peer, slot));
            }
            Err(error) => {
                tracing::debug!(port = number, %error, "cannot accept a connection to the HTTPS port");
                tokio::select! {
                    () = port.shutdown.cancelled() => break,
                    () = tokio::time::sleep(ACCEPT_PAUSE) => {}
                }
            }
        }
    }
    drop(tcp);
    renewal.shutdown().await;
    drain(connections, number, limits.drain).await;
}

/// Lets requests in progress finish, for at most `limit`.
async fn drain(mut connections: JoinSet<()>, port: u16, limit: Duration) {
    let drained = tokio::time::timeout(limit, async {
        while let Some(ended) = connections.join_next().await {
            log_panic(ended, port);
        }
    });
    if drained.await.is_err() {
        tracing::warn!(
            port,
            connections = connections.len(),
            "the shutdown cuts off requests to the HTTPS port"
        );
    }
    connections.shutdown().await;
}

/// What the connections of a port share.
struct Port {
    acceptor: TlsAcceptor,
    router: Router,
    limits: Limits,
    shutdown: CancellationToken,
    /// For log entries: two ports have this code.
    number: u16,
}

impl Port {
    async fn connection(self: Arc<Self>, stream: TcpStream, peer: SocketAddr, slot: Slot) {
        let evicted = slot.clone();
        tokio::select! {
            () = evicted.evicted() => tracing::debug!(%peer, "closed for a new connection"),
            () = self.served(stream, peer, slot) => {}
        }
    }

    async fn served(&self, stream: TcpStream, peer: SocketAddr, slot: Slot) {
        // Small answers are sent at once. If the socket refuses the option, they arrive a little
        // later.
        let _ = stream.set_nodelay(true);
        let stream = tokio::select! {
            () = self.shutdown.cancelled() => return,
            shaken = self.shaken(stream, peer) => match shaken {
                Some(stream) => stream,
                None => return,
            },
        };
        let certificates = stream.get_ref().1.peer_certificates().unwrap_or_default();
        let shown = Shown::new(certificates);
        let router = &self.router;
        let service = service_fn(move |mut request: Request<Incoming>| {
            if let Some(shown) = &shown {
                request.extensions_mut().insert(shown.clone());
            }
            request.extensions_mut().insert(slot.clone());
            let serving = slot.serve();
            let answer = router.clone().oneshot(request);
            async move {
                let answer = answer.await;
                drop(serving);
                answer
            }
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(self.limits.head)
            .max_buf_size(HEAD_BYTES)
            .serve_connection(TokioIo::new(stream), TowerToHyperService::new(service));
        let mut connection = std::pin::pin!(connection);
        let ended = tokio::select! {
            ended = connection.as_mut() => Some(ended),
            () = self.shutdown.cancelled() => None,
            () = tokio::time::sleep(self.limits.age) => None,
        };
        let ended = if let Some(ended) = ended {
            ended
        } else {
            connection.as_mut().graceful_shutdown();
            match tokio::time::timeout(self.limits.request, connection).await {
                Ok(ended) => ended,
                Err(_) => return,
            }
        };
        if let Err(error) = ended {
            tracing::debug!(%peer, %error, "a connection ended early");
        }
    }

    /// The connection after its TLS handshake. `None` if that fails or takes too long.
    async fn shaken(&self, stream: TcpStream, peer: SocketAddr) -> Option<TlsStream<TcpStream>> {
        let shaken = self.acceptor.accept(stream);
        match tokio::time::timeout(self.limits.handshake, shaken).await {
            Ok(Ok(stream)) => Some(stream),
            Ok(Err(error)) => {
                tracing::debug!(%peer, %error, "no TLS handshake");
                None
            }
            Err(_) => {
                tracing::debug!(%peer, "the TLS handshake took too long");
                None
            }
        }
    }
}

/// A panic of a handler ends only its own connection.
fn log_panic(ended: Result<(), JoinError>, port: u16) {
    if let Err(error) = ended {
        tracing::error!(port, %error, "a handler of a request panicked: its connection is closed");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn b_m4_an_address_that_is_not_specified_means_both_families() {
        if TcpListener::bind("[::1]:0").await.is_err() {
            // This host has no IPv6.
            return;
        }
        for asked in ["0.0.0.0:0", "[::]:0"] {
            let listener = listen(asked.parse().unwrap(), false).unwrap();
            let port = listener.local_addr().unwrap().port();
            for host in ["127.0.0.1", "::1"] {
                let connected = TcpStream::connect((host, port)).await;
                assert!(connected.is_ok(), "{asked}: {host}");
            }
        }
        let one = listen("127.0.0.1:0".parse().unwrap(), false).unwrap();
        let port = one.local_addr().unwrap().port();
        assert!(TcpStream::connect(("::1", port)).await.is_err());
    }
}
