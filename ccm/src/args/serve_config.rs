//! The validated configuration of the HTTPS port (B-M4).

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;

use super::config::go_duration;

/// The HTTPS port.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ServeConfig {
    /// `--bind-address`; 0.0.0.0.
    pub bind_address: IpAddr,
    /// `--secure-port`; 10258. 0 turns it off.
    pub port: u16,
    /// `--permit-port-sharing`; false.
    pub permit_port_sharing: bool,
    /// Certificates, and the TLS settings.
    pub tls: TlsConfig,
    /// How the port authenticates clients.
    pub authentication: AuthenticationConfig,
    /// How the port authorizes clients.
    pub authorization: AuthorizationConfig,
}

/// Certificates, and the TLS settings. On the webhooks' port, the names of the flags begin with
/// `--webhook-`.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TlsConfig {
    /// `--tls-cert-file` and `--tls-private-key-file`. `None`: a self-signed certificate.
    pub files: Option<TlsFiles>,
    /// `--cert-dir`: the directory of the self-signed certificate. `None`: it is in memory.
    pub directory: Option<PathBuf>,
    /// `--tls-sni-cert-key`.
    pub sni: Vec<SniFiles>,
    /// `--tls-min-version`; TLS 1.2.
    pub min_version: TlsVersion,
    /// `--tls-cipher-suites`: the suites of TLS 1.2 that the port offers. `None`: all.
    pub cipher_suites: Option<BTreeSet<String>>,
    /// `--tls-curve-preferences`: the groups that the port offers. `None`: all.
    pub curves: Option<BTreeSet<u16>>,
}

/// A version of TLS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub enum TlsVersion {
    /// TLS 1.2.
    #[default]
    #[serde(rename = "VersionTLS12")]
    V12,
    /// TLS 1.3.
    #[serde(rename = "VersionTLS13")]
    V13,
}

/// Certificate and key on disk, PEM.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TlsFiles {
    /// Certificate chain.
    pub certificate: PathBuf,
    /// Private key.
    pub private_key: PathBuf,
}

/// A certificate for some server names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SniFiles {
    /// The certificate and its key.
    pub files: TlsFiles,
    /// The names, with `*` for whole labels at the front. If empty, the names in the certificate.
    pub names: Vec<String>,
}

/// How the port authenticates clients.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AuthenticationConfig {
    /// `--authentication-kubeconfig`. `None`: what `--kubeconfig` and `--master` select.
    pub kubeconfig: Option<PathBuf>,
    /// `--authentication-skip-lookup`: the ccm does not read the ConfigMap with the cluster's
    /// authorities.
    pub skip_lookup: bool,
    /// `--authentication-tolerate-lookup-failure`: the ccm starts although it cannot read that
    /// ConfigMap.
    pub tolerate_lookup_failure: bool,
    /// `--authentication-token-webhook-cache-ttl`; 10 s.
    #[serde(serialize_with = "go_duration")]
    pub token_ttl: Duration,
    /// `--client-ca-file`. `None`: the authorities of the ConfigMap.
    pub client_ca_file: Option<PathBuf>,
    /// Front proxies.
    pub request_header: RequestHeaderConfig,
}

/// `--requestheader-*`: front proxies, and the headers in which they name the user. Header names
/// are in lower case.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RequestHeaderConfig {
    /// The authorities of front proxies. `None`: those of the ConfigMap, with its settings for the
    /// rest.
    pub client_ca_file: Option<PathBuf>,
    /// The common names that a front proxy may have. If empty, any.
    pub allowed_names: Vec<String>,
    /// Headers with the user's name.
    pub username_headers: Vec<String>,
    /// Headers with the user's UID.
    pub uid_headers: Vec<String>,
    /// Headers with the user's groups.
    pub group_headers: Vec<String>,
    /// Prefixes of headers with more about the user.
    pub extra_header_prefixes: Vec<String>,
}

/// How the port authorizes clients.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AuthorizationConfig {
    /// `--authorization-kubeconfig`. `None`: what `--kubeconfig` and `--master` select.
    pub kubeconfig: Option<PathBuf>,
    /// `--authorization-always-allow-paths`; `/healthz`, `/readyz`, `/livez`.
    pub always_allow_paths: Vec<String>,
    /// `--authorization-webhook-cache-authorized-ttl`; 10 s.
    #[serde(serialize_with = "go_duration")]
    pub allowed_ttl: Duration,
    /// `--authorization-webhook-cache-unauthorized-ttl`; 10 s.
    #[serde(serialize_with = "go_duration")]
    pub denied_ttl: Duration,
}
