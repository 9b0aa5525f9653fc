//! The certificate: from files, read again when they change, or self-made.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustls::ServerConfig;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

use crate::args::TlsFiles;

/// The flags of a port, for errors to name.
#[derive(Debug)]
pub(crate) struct Flags {
    pub(super) address: &'static str,
    pub(super) certificate: &'static str,
    pub(super) key: &'static str,
}

/// The flags of the port for health and metrics.
pub(super) static SECURE: Flags = Flags {
    address: "--bind-address, --secure-port",
    certificate: "--tls-cert-file",
    key: "--tls-private-key-file",
};

/// The flags of the webhooks' port.
pub(super) static WEBHOOKS: Flags = Flags {
    address: "--webhook-bind-address, --webhook-secure-port",
    certificate: "--webhook-tls-cert-file",
    key: "--webhook-tls-private-key-file",
};

/// Why the port cannot be served; each names the flag to change.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BindError {
    /// The port is taken, or the address is not ours.
    #[error("cannot listen on {address} ({flags}): {error}")]
    Address {
        flags: &'static str,
        address: SocketAddr,
        error: std::io::Error,
    },
    #[error("{flag}: cannot read {path:?}: {error}")]
    Unreadable {
        flag: &'static str,
        path: PathBuf,
        error: std::io::Error,
    },
    /// No PEM of the kind that is expected.
    #[error("{flag}: {path:?} holds no {expected}: {error}")]
    NoPem {
        flag: &'static str,
        path: PathBuf,
        expected: &'static str,
        error: String,
    },
    /// Certificate and key do not fit each other, or TLS can do nothing with one of them.
    #[error(
        "{} {certificate:?} and {} {key:?} cannot be used together: {error}", .flags.certificate, .flags.key
    )]
    Pair {
        flags: &'static Flags,
        certificate: PathBuf,
        key: PathBuf,
        error: rustls::Error,
    },
    #[error("no certificate could be made: {0}")]
    SelfMade(String),
}

/// What the files hold.
#[derive(PartialEq, Eq)]
pub(super) struct Pem {
    certificate: Vec<u8>,
    key: Vec<u8>,
}

impl Pem {
    pub(super) async fn read(files: &TlsFiles, flags: &'static Flags) -> Result<Self, BindError> {
        Ok(Self {
            certificate: read(flags.certificate, &files.certificate).await?,
            key: read(flags.key, &files.private_key).await?,
        })
    }

    pub(super) fn acceptor(
        &self,
        files: &TlsFiles,
        flags: &'static Flags,
    ) -> Result<TlsAcceptor, BindError> {
        let no_pem = |flag, path: &Path, expected, error: String| BindError::NoPem {
            flag,
            path: path.to_owned(),
            expected,
            error,
        };
        let expected = "PEM certificate";
        let chain = CertificateDer::pem_slice_iter(&self.certificate)
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| error.to_string())
            .and_then(|chain| {
                if chain.is_empty() {
                    Err("no CERTIFICATE section".to_owned())
                } else {
                    Ok(chain)
                }
            })
            .map_err(|error| no_pem(flags.certificate, &files.certificate, expected, error))?;
        let key = PrivateKeyDer::from_pem_slice(&self.key).map_err(|error| {
            no_pem(
                flags.key,
                &files.private_key,
                "PEM private key",
                error.to_string(),
            )
        })?;
        acceptor(chain, key).map_err(|error| BindError::Pair {
            flags,
            certificate: files.certificate.clone(),
            key: files.private_key.clone(),
            error,
        })
    }
}

async fn read(flag: &'static str, path: &Path) -> Result<Vec<u8>, BindError> {
    tokio::fs::read(path)
        .await
        .map_err(|error| BindError::Unreadable {
            flag,
            path: path.to_owned(),
            error,
        })
}

/// A certificate for localhost and this host's name, made for this run of the process.
pub(super) fn self_made(
    hostname: &str,
) -> Result<(TlsAcceptor, CertificateDer<'static>), BindError> {
    let mut names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
    // A host may call itself what no certificate can hold.
    if !hostname.is_empty() && hostname.is_ascii() && !names.iter().any(|name| name == hostname) {
        names.push(hostname.to_owned());
    }
    let made = rcgen::generate_simple_self_signed(names)
        .map_err(|error| BindError::SelfMade(error.to_string()))?;
    let certificate = made.cert.der().clone();
    let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
    let acceptor = acceptor(vec![certificate.clone()], key.into())
        .map_err(|error| BindError::SelfMade(error.to_string()))?;
    Ok((acceptor, certificate))
}

fn acceptor(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Result<TlsAcceptor, rustls::Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(chain, key)?;
    // HTTP/2 only for what asks for metrics and health is not worth its ways to be flooded.
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// Reads the files again every `period`, for ever, and sends a new acceptor where they changed. Contents are compared, not times: a mounted
/// Secret is swapped by a link. What cannot be used (only one of the two is written yet) leaves the old one in place.
pub(super) async fn renew(
    files: TlsFiles,
    flags: &'static Flags,
    mut current: Pem,
    period: Duration,
    acceptors: watch::Sender<TlsAcceptor>,
) {
    let mut logged = None;
    loop {
        tokio::time::sleep(period).await;
        let read = Pem::read(&files, flags).await;
        let changed = read.and_then(|pem| {
            if pem == current {
                Ok(None)
            } else {
                pem.acceptor(&files, flags)
                    .map(|acceptor| Some((pem, acceptor)))
            }
        });
        match changed {
            Ok(None) => logged = None,
            Ok(Some((pem, acceptor))) => {
                current = pem;
                logged = None;
                acceptors.send_replace(acceptor);
                tracing::info!(file = ?files.certificate, "the certificate of the HTTPS port was replaced");
            }
            Err(error) => {
                let error = error.to_string();
                if logged.as_ref() != Some(&error) {
                    tracing::warn!(error, "the old certificate of the HTTPS port stays in use");
                    logged = Some(error);
                }
            }
        }
    }
}
