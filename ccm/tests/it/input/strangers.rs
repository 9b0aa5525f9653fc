//! Strangers at the HTTPS port of the running ccm: their connections and certificates disturb
//! neither probes, nor scrapes, nor the Lease.

use std::time::Duration;

use http_body_util::Empty;
use hyper::Request;
use hyper::body::Bytes;
use hyper_util::rt::TokioIo;
use provider_mock::Fixture;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, IsCa, KeyPair,
};
use rustls_pki_types::PrivateKeyDer;
use testenv::{Options, free_port};
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;

use super::callers::{
    Chain, HALF_HELLO, IN_TIME, PAUSE, Sends, connector, shaken, silent, time_of_99_in_100_probes,
};
use super::port::{Authority, get};
use crate::world::{World, said};

/// The number of strangers of each kind: those that never end their handshake, and those that are
/// silent after it, with a certificate or without.
const IDLE: u8 = 200;
/// Callers with requests, each with the longest chain that the port verifies.
const CHAINS: u8 = 40;
const MIB: u64 = 1 << 20;

/// A client certificate, and intermediates that all have the trusted authority's name, so each may
/// precede any other.
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

/// Makes one request after the other with a certificate that no trusted authority has signed.
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

/// Findings B1 and B2: the attack comes from other addresses of the loopback range. The provider
/// shares the network namespace, so it can attack in this way.
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
        let hello: &[u8] = if number % 2 == 0 { b"" } else { HALF_HELLO };
        let identities = [None, Some(&claims_the_name)];
        let [anonymous, named] = identities.map(|identity| Sends::Handshake(connector(identity)));
        strangers.spawn(silent([127, 0, 1, number], port, Sends::Bytes(hello)));
        strangers.spawn(silent([127, 0, 2, number], port, anonymous));
        strangers.spawn(silent([127, 0, 3, number], port, named));
    }
    let expensive = chain("users", 4);
    for number in 0..CHAINS {
        strangers.spawn(asks([127, 0, 4, number], port, connector(Some(&expensive))));
    }
    said(
        &ccm,
        "the HTTPS port is full: the ccm closes an older connection",
    )
    .await;

    let late = time_of_99_in_100_probes(port, "testenv-admin").await;
    assert!(late < IN_TIME, "{late:?}: {}", ccm.log());
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
