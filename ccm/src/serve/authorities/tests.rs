use std::sync::{Mutex, mpsc};

use rustls::client::danger::HandshakeSignatureValid;
use rustls::server::danger::ClientCertVerified;
use rustls::{DigitallySignedStruct, DistinguishedName, SignatureScheme};
use tokio::sync::mpsc::UnboundedSender;

use super::*;

/// A verifier that reports when it begins a chain, and continues when the test tells it to.
#[derive(Debug)]
struct Slow {
    begun: UnboundedSender<()>,
    go: Mutex<mpsc::Receiver<()>>,
}

impl ClientCertVerifier for Slow {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        let _ = self.begun.send(());
        let _ = self.go.lock().unwrap().recv();
        Err(rustls::Error::General("slow".to_owned()))
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
        Vec::new()
    }
}

/// Finding B2: a caller that hangs up does not free its turn while its chain is being verified.
#[tokio::test]
async fn b_m4_callers_that_hang_up_have_no_chains_built_side_by_side() {
    let authorities = Authorities::read(&AuthenticationConfig::default())
        .await
        .unwrap();
    let (begun, mut has_begun) = tokio::sync::mpsc::unbounded_channel();
    let (go, reported) = mpsc::channel();
    let verifier = Arc::new(Slow {
        begun,
        go: Mutex::new(reported),
    });
    authorities.set(|trust| {
        trust.clients = Some(Bundle {
            pem: Vec::new(),
            verifier,
        });
    });
    let shown = || Shown::new(&[CertificateDer::from(vec![0])]).unwrap();
    let first = shown();
    tokio::select! {
        _ = authorities.judge(&first) => panic!("nobody told it to go on"),
        Some(()) = has_begun.recv() => {}
    }
    // The caller has hung up, but its chain is still being verified.
    assert_eq!(authorities.0.building.available_permits(), 0);
    for _ in 0..2 {
        go.send(()).unwrap();
    }
    assert!(authorities.judge(&shown()).await.unwrap().refused);
}

/// An operator with two wrong files learns of both at once.
#[tokio::test]
async fn b_m4_each_file_of_authorities_that_cannot_be_used_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let (clients, proxies) = (
        folder.path().join("clients.pem"),
        folder.path().join("proxies.pem"),
    );
    let mut config = AuthenticationConfig {
        client_ca_file: Some(clients.clone()),
        ..AuthenticationConfig::default()
    };
    config.request_header.client_ca_file = Some(proxies.clone());
    let error = Authorities::read(&config).await.err().unwrap().to_string();
    for file in [clients, proxies] {
        assert!(error.contains(file.to_str().unwrap()), "{error}");
    }
}
