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
    /// Certificates, and how TLS is spoken.
    pub tls: TlsConfig,
    /// Who asks.
    pub authentication: AuthenticationConfig,
    /// What they may.
    pub authorization: AuthorizationConfig,
}

/// Certificates, and how TLS is spoken.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TlsConfig {
    /// `--tls-cert-file` and `--tls-private-key-file`; self-made where absent.
    pub files: Option<TlsFiles>,
    /// `--cert-dir`: where the self-made one is kept; in memory where absent.
    pub directory: Option<PathBuf>,
    /// `--tls-sni-cert-key`.
    pub sni: Vec<SniFiles>,
    /// `--tls-min-version`; TLS 1.2.
    pub min_version: TlsVersion,
    /// `--tls-cipher-suites`: those of TLS 1.2 that are offered; all where absent.
    pub cipher_suites: Option<BTreeSet<String>>,
    /// `--tls-curve-preferences`: the groups that are offered; all where absent.
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

/// A certificate for some names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SniFiles {
    /// Where it is.
    pub files: TlsFiles,
    /// The names, `*` for whole labels at the front; those in the certificate where empty.
    pub names: Vec<String>,
}

/// Who asks.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AuthenticationConfig {
    /// `--authentication-kubeconfig`; the main kubeconfig where absent.
    pub kubeconfig: Option<PathBuf>,
    /// `--authentication-skip-lookup`: the ConfigMap with the cluster's authorities is not read.
    pub skip_lookup: bool,
    /// `--authentication-tolerate-lookup-failure`: it need not be readable.
    pub tolerate_lookup_failure: bool,
    /// `--authentication-token-webhook-cache-ttl`; 10 s.
    #[serde(serialize_with = "go_duration")]
    pub token_ttl: Duration,
    /// `--client-ca-file`; that of the ConfigMap where absent.
    pub client_ca_file: Option<PathBuf>,
    /// Front proxies.
    pub request_header: RequestHeaderConfig,
}

/// `--requestheader-*`: front proxies, and how they say who asks. Header names are in lower case.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RequestHeaderConfig {
    /// Authorities of front proxies; those of the ConfigMap, with what it says of the rest, where absent.
    pub client_ca_file: Option<PathBuf>,
    /// Common names of front proxies; any where empty.
    pub allowed_names: Vec<String>,
    /// The user's name.
    pub username_headers: Vec<String>,
    /// The user's UID.
    pub uid_headers: Vec<String>,
    /// The user's groups.
    pub group_headers: Vec<String>,
    /// More about the user.
    pub extra_header_prefixes: Vec<String>,
}

/// What callers may.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AuthorizationConfig {
    /// `--authorization-kubeconfig`; the main kubeconfig where absent.
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
