//! Strangers at the HTTPS port of the running ccm: what they hold open or show costs neither probes nor scrapes nor the Lease.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http_body_util::Empty;
use hyper::Request;
use hyper::body::Bytes;
use hyper_util::rt::TokioIo;
use kube::client::Body;
use kube::{Client, Config};
use provider_mock::Fixture;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, IsCa, KeyPair,
};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::{ClientConfig, DigitallySignedStruct, SignatureScheme};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use testenv::{Options, eventually};
use tokio::io::AsyncReadExt;
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::port::{Authority, get};
use crate::world::{SOON, World, free_port, said};

/// Half of them say nothing, half of them end their handshake and say nothing then.
const IDLE: u8 = 200;
/// Callers that make requests, each with the longest chain that the port looks at.
const CHAINS: u8 = 40;
/// How long who was closed waits before it comes again.
const PAUSE: Duration = Duration::from_secs(2);
const PROBES: usize = 100;
/// Other tests run beside this one: so often it is measured until it is good.
const ROUNDS: usize = 3;
const MIB: u64 = 1 << 20;

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

type Chain = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

/// A client certificate, and intermediates that all have the name of the authority that is trusted: each may stand before each other one.
fn chain(name: &str, intermediates: usize) -> Chain {
    let authority = || {
        let mut params = CertificateParams::new([]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params
    };
    let key = || KeyPair::generate().unwrap();
    let root = CertifiedIssuer::self_signed(authority(), key()).unwrap();
    let shared = key();
    let mut chain = Vec::new();
    for _ in 0..intermediates {
        let made = authority().signed_by(&shared, &root).unwrap();
        chain.push(made.der().clone());
    }
    let issuer = rcgen::Issuer::new(authority(), shared);
    let mut params = CertificateParams::new([]).unwrap();
    params.distinguished_name = DistinguishedName::new();
    params
        .distinguished_name
        .push(DnType::CommonName, "mallory");
    let own = key();
    let made = params.signed_by(&own, &issuer).unwrap();
    chain.insert(0, made.der().clone());
    (chain, PrivateKeyDer::Pkcs8(own.serialize_der().into()))
}

fn connector(identity: Option<&Chain>) -> TlsConnector {
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

async fn shaken(
    from: [u8; 4],
    port: u16,
    tls: &TlsConnector,
) -> std::io::Result<TlsStream<TcpStream>> {
    let name = ServerName::try_from("localhost").unwrap();
    tls.connect(name, connect(from, port).await?).await
}

/// Holds a connection open and comes again when it was closed.
async fn silent(from: [u8; 4], port: u16, tls: Option<TlsConnector>) {
    loop {
        let mut byte = [0];
        // Whether it was refused, closed or reset is all the same to a stranger.
        match &tls {
            None => {
                if let Ok(mut stream) = connect(from, port).await {
                    let _ = stream.read(&mut byte).await;
                }
            }
            Some(tls) => {
                if let Ok(mut stream) = shaken(from, port, tls).await {
                    let _ = stream.read(&mut byte).await;
                }
            }
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Makes one request after the other with a certificate that is worth nothing.
async fn asks(from: [u8; 4], port: u16, tls: TlsConnector) {
    loop {
        if let Ok(stream) = shaken(from, port, &tls).await
            && let Ok((mut sender, connection)) =
                hyper::client::conn::http1::handshake(TokioIo::new(stream)).await
        {
            let driver = tokio::spawn(connection);
            let request = || {
                let request = Request::get("/metrics").header("host", "localhost");
                request.body(Empty::<Bytes>::new()).unwrap()
            };
            while sender.ready().await.is_ok() && sender.send_request(request()).await.is_ok() {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            driver.abort();
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Findings B1 and B2: the attack from other addresses of the loopback range, as a neighbour or the provider, which shares the network namespace, can play it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b_m4_strangers_at_the_port_cost_neither_probes_nor_scrapes_nor_the_lease() {
    let claims_the_name = chain("users", 0);
    let directory = tempfile::tempdir().unwrap();
    let authority = directory.path().join("users.crt");
    std::fs::write(&authority, Authority::new("users").0.pem()).unwrap();
    let mut world = World::with_options(Fixture::default(), Options::default()).await;
    let port = free_port();
    let mut ccm = world.ccm(&[
        &format!("--secure-port={port}"),
        "--bind-address=127.0.0.1",
        &format!("--client-ca-file={}", authority.display()),
    ]);
    let leader = world.led_by(&ccm).await;
    assert_eq!(get(port, "/livez", None).await.0, 200);
    let base = ccm.resident_bytes();

    let mut strangers = JoinSet::new();
    for number in 0..IDLE {
        strangers.spawn(silent([127, 0, 1, number], port, None));
        strangers.spawn(silent([127, 0, 2, number], port, Some(connector(None))));
        strangers.spawn(silent(
            [127, 0, 3, number],
            port,
            Some(connector(Some(&claims_the_name))),
        ));
    }
    let expensive = chain("users", 4);
    for number in 0..CHAINS {
        strangers.spawn(asks([127, 0, 4, number], port, connector(Some(&expensive))));
    }
    said(&ccm, "the HTTPS port has all the connections that it takes").await;

    // Prometheus keeps its connection.
    let mut config = Config::new(format!("https://127.0.0.1:{port}").parse().unwrap());
    config.accept_invalid_certs = true;
    config.default_retry = false;
    let scraper = Client::try_from(config).unwrap();
    let mut late = Duration::MAX;
    for _ in 0..ROUNDS {
        let mut took = Vec::new();
        for number in 0..PROBES {
            let begun = Instant::now();
            let (status, text) = get(port, "/livez", None).await;
            // A probe that is not answered took for ever.
            let answered = status == 200 && text == "ok";
            took.push(if answered {
                begun.elapsed()
            } else {
                Duration::MAX
            });
            if number % 20 == 0 {
                eventually("a scrape is answered", SOON, async || {
                    let request = http::Request::get("/metrics")
                        .header("Authorization", "Bearer testenv-admin")
                        .body(Body::empty())
                        .unwrap();
                    match scraper.send(request).await {
                        Ok(answer) if answer.status() == 200 => Ok(()),
                        other => Err(format!("{other:?}")),
                    }
                })
                .await;
            }
        }
        took.sort();
        late = took[PROBES * 99 / 100 - 1];
        println!(
            "probes: median {:?}, 99th percentile {late:?}",
            took[PROBES / 2]
        );
        if late < Duration::from_secs(1) {
            break;
        }
    }
    assert!(late < Duration::from_secs(1), "{}", ccm.log());
    world.renewals(3).await;
    let most = ccm.resident_bytes();
    println!(
        "memory: {} MiB over {} MiB",
        most.saturating_sub(base) / MIB,
        base / MIB
    );
    assert!(most < base + 64 * MIB, "{base} {most}");
    assert_eq!(world.holder().await.unwrap(), leader);
    assert!(ccm.exit_status().is_none());
    strangers.shutdown().await;
}
