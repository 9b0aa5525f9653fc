//! Callers of an HTTPS port: strangers that keep connections open, and a client that measures
//! meanwhile whether others get answers. The end-to-end tests have this file too.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http_body_util::BodyExt;
use kube::client::Body;
use kube::{Client, Config};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::{ClientConfig, DigitallySignedStruct, SignatureScheme};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use testenv::eventually;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// How long a stranger waits after the port closed its connection, before it opens another one.
pub const PAUSE: Duration = Duration::from_secs(2);
/// The beginning of a TLS record that never ends.
pub const HALF_HELLO: &[u8] = &[0x16, 0x03, 0x01, 0x02, 0x00, 0x01];
const PROBES: usize = 100;
const SCRAPE_AFTER: usize = 20;
/// The most repetitions of the measurement: other tests on the same machine may disturb it.
const ROUNDS: usize = 8;
/// The time within which the port must answer 99 of 100 probes.
pub const IN_TIME: Duration = Duration::from_secs(1);
const SOON: Duration = Duration::from_secs(20);

#[derive(Debug)]
struct AnyServer;

impl ServerCertVerifier for AnyServer {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![
            SignatureScheme::ECDSA_NISTP256_SHA256,
            SignatureScheme::ED25519,
        ]
    }
}

/// A certificate with its issuers, and its key.
pub type Chain = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

pub fn connector(identity: Option<&Chain>) -> TlsConnector {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyServer));
    let config = match identity {
        None => builder.with_no_client_auth(),
        Some((chain, key)) => builder
            .with_client_auth_cert(chain.clone(), key.clone_key())
            .unwrap(),
    };
    TlsConnector::from(Arc::new(config))
}

async fn connect(from: [u8; 4], port: u16) -> std::io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.bind(SocketAddr::from((from, 0)))?;
    socket
        .connect(SocketAddr::from(([127, 0, 0, 1], port)))
        .await
}

/// A connection after its handshake.
pub async fn shaken(
    from: [u8; 4],
    port: u16,
    tls: &TlsConnector,
) -> std::io::Result<TlsStream<TcpStream>> {
    let name = ServerName::try_from("localhost").unwrap();
    tls.connect(name, connect(from, port).await?).await
}

/// The bytes that a stranger sends before it falls silent.
pub enum Sends {
    Bytes(&'static [u8]),
    Handshake(TlsConnector),
}

/// Holds a connection open, and opens another one whenever the port closes it.
pub async fn silent(from: [u8; 4], port: u16, sends: Sends) {
    loop {
        // To a stranger it is the same whether the port refuses, closes or resets.
        let _ = held(from, port, &sends).await;
        tokio::time::sleep(PAUSE).await;
    }
}

async fn held(from: [u8; 4], port: u16, sends: &Sends) -> std::io::Result<()> {
    match sends {
        Sends::Bytes(bytes) => {
            let mut stream = connect(from, port).await?;
            stream.write_all(bytes).await?;
            stream.read_u8().await?;
        }
        Sends::Handshake(tls) => {
            shaken(from, port, tls).await?.read_u8().await?;
        }
    }
    Ok(())
}

/// A client that trusts any server of this port, and does not retry.
pub fn client(port: u16) -> Client {
    let mut config = Config::new(format!("https://127.0.0.1:{port}").parse().unwrap());
    config.accept_invalid_certs = true;
    config.default_retry = false;
    Client::try_from(config).unwrap()
}

/// Status and text of a path; 0 without an answer.
pub async fn ask(client: &Client, path: &str, token: Option<&str>) -> (u16, String) {
    let mut request = http::Request::get(path);
    if let Some(token) = token {
        request = request.header("Authorization", format!("Bearer {token}"));
    }
    match client.send(request.body(Body::empty()).unwrap()).await {
        Err(error) => (0, format!("{error:?}")),
        Ok(answer) => {
            let status = answer.status().as_u16();
            let body = answer.into_body().collect().await.unwrap().to_bytes();
            (status, String::from_utf8(body.to_vec()).unwrap())
        }
    }
}

/// The time within which 99 of 100 probes are answered, each on a connection of its own as the
/// kubelet's. A scraper with a token, which keeps its connection as Prometheus does, must be
/// answered meanwhile.
pub async fn time_of_99_in_100_probes(port: u16, token: &str) -> Duration {
    let scraper = client(port);
    let mut late = Duration::MAX;
    for _ in 0..ROUNDS {
        let mut took = Vec::new();
        for number in 0..PROBES {
            let begun = Instant::now();
            let (status, text) = ask(&client(port), "/livez", None).await;
            // A probe without an answer took for ever.
            let answered = status == 200 && text == "ok";
            took.push(if answered {
                begun.elapsed()
            } else {
                Duration::MAX
            });
            if number % SCRAPE_AFTER == 0 {
                eventually("a scrape is answered", SOON, async || {
                    match ask(&scraper, "/metrics", Some(token)).await {
                        (200, text) if text.contains("# TYPE") => Ok(()),
                        other => Err(format!("{other:?}")),
                    }
                })
                .await;
            }
        }
        took.sort();
        late = took[PROBES * 99 / 100 - 1];
        let median = took[PROBES / 2];
        println!("probes: median {median:?}, 99th percentile {late:?}");
        if late < IN_TIME {
            break;
        }
    }
    late
}
