//! A client of the port.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::body::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::{HeaderMap, Request};
use hyper_util::rt::TokioIo;
use rustls::{ClientConfig, RootCertStore, SupportedProtocolVersion};
use rustls::{ConfigBuilder, WantsVerifier};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// A client that trusts only the given certificates.
pub(super) struct Caller {
    address: SocketAddr,
    connector: TlsConnector,
    roots: RootCertStore,
}

pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) headers: HeaderMap,
    pub(super) text: String,
}

fn builder(
    versions: &[&'static SupportedProtocolVersion],
) -> ConfigBuilder<ClientConfig, WantsVerifier> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(versions)
        .unwrap()
}

impl Caller {
    pub(super) fn trusting(address: SocketAddr, certificates: &[CertificateDer<'static>]) -> Self {
        let mut roots = RootCertStore::empty();
        for certificate in certificates {
            roots.add(certificate.clone()).unwrap();
        }
        let config = builder(rustls::ALL_VERSIONS)
            .with_root_certificates(roots.clone())
            .with_no_client_auth();
        Self {
            address,
            connector: TlsConnector::from(Arc::new(config)),
            roots,
        }
    }

    /// The same with a client certificate.
    pub(super) fn with_identity(
        &self,
        certificate: CertificateDer<'static>,
        key: PrivateKeyDer<'static>,
    ) -> Self {
        self.with_chain(vec![certificate], key)
    }

    /// The same with a client certificate and intermediates.
    pub(super) fn with_chain(
        &self,
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
    ) -> Self {
        let config = builder(rustls::ALL_VERSIONS)
            .with_root_certificates(self.roots.clone())
            .with_client_auth_cert(chain, key)
            .unwrap();
        self.with(config)
    }

    /// The same with only one version of TLS.
    pub(super) fn speaking(&self, version: &'static SupportedProtocolVersion) -> Self {
        let config = builder(&[version])
            .with_root_certificates(self.roots.clone())
            .with_no_client_auth();
        self.with(config)
    }

    fn with(&self, config: ClientConfig) -> Self {
        Self {
            address: self.address,
            connector: TlsConnector::from(Arc::new(config)),
            roots: self.roots.clone(),
        }
    }

    pub(super) async fn tls_as(&self, name: &str) -> std::io::Result<TlsStream<TcpStream>> {
        let tcp = TcpStream::connect(self.address).await?;
        let name = ServerName::try_from(name.to_owned()).unwrap();
        self.connector.connect(name, tcp).await
    }

    pub(super) async fn tls(&self) -> std::io::Result<TlsStream<TcpStream>> {
        self.tls_as("127.0.0.1").await
    }

    /// A connection for several requests. It lives as long as the returned set.
    pub(super) async fn connect(&self) -> (SendRequest<Empty<Bytes>>, JoinSet<()>) {
        let tls = self.tls().await.unwrap();
        let (sender, connection) = http1::handshake(TokioIo::new(tls)).await.unwrap();
        let mut driver = JoinSet::new();
        driver.spawn(async move {
            let _ = connection.await;
        });
        (sender, driver)
    }

    pub(super) async fn get(&self, path: &str, token: Option<&str>) -> Answer {
        self.request("GET", path, token).await
    }

    pub(super) async fn request(&self, method: &str, path: &str, token: Option<&str>) -> Answer {
        let bearer = token.map(|token| format!("Bearer {token}"));
        let headers = bearer.as_deref().map(|value| ("authorization", value));
        self.send(method, path, headers.as_slice()).await
    }

    pub(super) async fn get_with(&self, path: &str, headers: &[(&str, &str)]) -> Answer {
        self.send("GET", path, headers).await
    }

    async fn send(&self, method: &str, path: &str, headers: &[(&str, &str)]) -> Answer {
        let (mut sender, _driver) = self.connect().await;
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", "127.0.0.1");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let response = sender
            .send_request(request.body(Empty::new()).unwrap())
            .await
            .unwrap();
        let status = response.status().as_u16();
        let headers = response.headers().clone();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        Answer {
            status,
            headers,
            text: String::from_utf8(body.to_vec()).unwrap(),
        }
    }
}
