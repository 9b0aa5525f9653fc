//! A client of the port.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::body::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::{HeaderMap, Request};
use hyper_util::rt::TokioIo;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::{CertificateDer, ServerName};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// Trusts the certificates that it was given, and no other.
pub(super) struct Caller {
    address: SocketAddr,
    connector: TlsConnector,
}

pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) headers: HeaderMap,
    pub(super) text: String,
}

impl Caller {
    pub(super) fn trusting(address: SocketAddr, certificates: &[CertificateDer<'static>]) -> Self {
        let mut roots = RootCertStore::empty();
        for certificate in certificates {
            roots.add(certificate.clone()).unwrap();
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        Self {
            address,
            connector: TlsConnector::from(Arc::new(config)),
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

    /// A connection for several requests; it lives as long as the set.
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
        let (mut sender, _driver) = self.connect().await;
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", "127.0.0.1");
        if let Some(token) = token {
            request = request.header("authorization", format!("Bearer {token}"));
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
