//! The listener and its connections, with a limit on everything that a stranger can make last.

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use super::tls::{self, BindError, Flags, Pem};
use crate::args::{ServeConfig, TlsFiles, WebhookConfig};

/// Request line and headers together; a token of a few kilobytes fits.
const HEAD_BYTES: usize = 64 * 1024;
/// After a failed accept (no file descriptors left).
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

/// What a connection may take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Connections at once; more wait in the kernel's queue.
    pub(super) connections: usize,
    /// The TLS handshake.
    pub(super) handshake: Duration,
    /// A request's head, and the time between two requests.
    pub(super) head: Duration,
    /// A request, with its reviews.
    pub(super) request: Duration,
    /// A connection's age: then it takes no further request. Also ends who does not read its answer.
    pub(super) age: Duration,
    /// How long requests in progress may take after the shutdown began.
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

/// The port, bound, with its certificate.
pub(crate) struct Listener {
    tcp: TcpListener,
    acceptor: TlsAcceptor,
    files: Option<(TlsFiles, Pem)>,
    flags: &'static Flags,
    /// The self-made certificate.
    #[cfg(test)]
    pub(super) certificate: Option<rustls_pki_types::CertificateDer<'static>>,
}

impl Listener {
    /// Reads or makes the certificate, then binds the port. A port of 0 means "off" in the configuration: the caller does not call this then
    /// (here it would take any free port).
    pub(crate) async fn bind(config: &ServeConfig) -> Result<Self, BindError> {
        let asked = SocketAddr::new(config.bind_address, config.port);
        Self::open(asked, config.tls.as_ref(), &tls::SECURE).await
    }

    /// The same for the webhooks' port, whose certificate is always one of files: the API server has to trust it.
    pub(crate) async fn bind_webhooks(config: &WebhookConfig) -> Result<Self, BindError> {
        let asked = SocketAddr::new(config.bind_address, config.port);
        Self::open(asked, Some(&config.tls), &tls::WEBHOOKS).await
    }

    async fn open(
        asked: SocketAddr,
        files: Option<&TlsFiles>,
        flags: &'static Flags,
    ) -> Result<Self, BindError> {
        let mut made = None;
        let (acceptor, files) = if let Some(files) = files {
            let pem = Pem::read(files, flags).await?;
            (pem.acceptor(files, flags)?, Some((files.clone(), pem)))
        } else {
            let hostname = gethostname::gethostname();
            let (acceptor, certificate) = tls::self_made(&hostname.to_string_lossy())?;
            made = Some(certificate);
            (acceptor, None)
        };
        let failed = |error| BindError::Address {
            flags: flags.address,
            address: asked,
            error,
        };
        let tcp = TcpListener::bind(asked).await.map_err(failed)?;
        tracing::info!(address = %asked, self_made_certificate = made.is_some(), "listening for HTTPS");
        Ok(Self {
            tcp,
            acceptor,
            files,
            flags,
            #[cfg(test)]
            certificate: made,
        })
    }

    /// Where it listens, with the real port.
    #[cfg(test)]
    pub(super) fn address(&self) -> SocketAddr {
        self.tcp.local_addr().unwrap()
    }
}

/// Serves until `shutdown`, drains for `limits.drain`, then closes what is left.
pub(super) async fn serve(
    listener: Listener,
    router: &Router,
    shutdown: CancellationToken,
    limits: Limits,
) {
    let Listener {
        tcp,
        acceptor,
        files,
        flags,
        ..
    } = listener;
    let (acceptors, acceptor) = watch::channel(acceptor);
    let mut renewal = JoinSet::new();
    if let Some((files, pem)) = files {
        renewal.spawn(tls::renew(files, flags, pem, limits.reload, acceptors));
    }
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            () = shutdown.cancelled() => break,
            Some(ended) = connections.join_next() => {
                log_panic(ended);
                continue;
            }
            accepted = tcp.accept(), if connections.len() < limits.connections => accepted,
        };
        match accepted {
            Ok((stream, peer)) => {
                let acceptor = acceptor.borrow().clone();
                let connection = connection(
                    stream,
                    peer,
                    acceptor,
                    router.clone(),
                    limits,
                    shutdown.clone(),
                );
                connections.spawn(connection);
            }
            Err(error) => {
                tracing::debug!(%error, "a connection to the HTTPS port could not be accepted");
                tokio::select! {
                    () = shutdown.cancelled() => break,
                    () = tokio::time::sleep(ACCEPT_PAUSE) => {}
                }
            }
        }
    }
    drop(tcp);
    renewal.shutdown().await;
    let drained = tokio::time::timeout(limits.drain, async {
        while let Some(ended) = connections.join_next().await {
            log_panic(ended);
        }
    });
    if drained.await.is_err() {
        tracing::warn!(
            connections = connections.len(),
            "requests to the HTTPS port are cut off by the shutdown"
        );
    }
    connections.shutdown().await;
}

async fn connection(
    stream: TcpStream,
    peer: SocketAddr,
    acceptor: TlsAcceptor,
    router: Router,
    limits: Limits,
    shutdown: CancellationToken,
) {
    // Small answers, each at once. Where the socket refuses, they come a little later.
    let _ = stream.set_nodelay(true);
    let handshake = tokio::time::timeout(limits.handshake, acceptor.accept(stream));
    let stream = tokio::select! {
        () = shutdown.cancelled() => return,
        shaken = handshake => match shaken {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => {
                tracing::debug!(%peer, %error, "no TLS handshake");
                return;
            }
            Err(_) => {
                tracing::debug!(%peer, "the TLS handshake took too long");
                return;
            }
        },
    };
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head)
        .max_buf_size(HEAD_BYTES)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    let mut connection = std::pin::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => Some(ended),
        () = shutdown.cancelled() => None,
        () = tokio::time::sleep(limits.age) => None,
    };
    let ended = if let Some(ended) = ended {
        ended
    } else {
        connection.as_mut().graceful_shutdown();
        match tokio::time::timeout(limits.request, connection).await {
            Ok(ended) => ended,
            Err(_) => return,
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%peer, %error, "a connection ended early");
    }
}

/// A handler that panics takes its connection with it, and nothing else.
fn log_panic(ended: Result<(), JoinError>) {
    if let Err(error) = ended {
        tracing::error!(%error, "a request to the HTTPS port failed");
    }
}
