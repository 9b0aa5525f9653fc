//! The validated configuration of the HTTPS port (B-M4).

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;

use super::config::go_duration;
use super::speech::words;
use super::{InvalidFlag, parse};

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
#[derive(Clone, Debug, Default, clap::Args, Serialize)]
#[serde(rename_all = "camelCase")]
#[command(next_help_heading = "Authentication flags")]
pub struct AuthenticationConfig {
    /// The kubeconfig for TokenReviews and for the lookup of certificate authorities. The default
    /// is what --kubeconfig and --master select.
    #[arg(id = "authentication-kubeconfig", long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,

    /// Do not read the authorities of client certificates from the ConfigMap
    /// extension-apiserver-authentication in kube-system.
    #[arg(long = "authentication-skip-lookup", value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true", action = clap::ArgAction::Set, value_parser = parse::boolean)]
    pub skip_lookup: bool,

    /// Start although the ccm cannot read the ConfigMap extension-apiserver-authentication. Until
    /// it can, the port accepts no client certificate of the authorities in it.
    #[arg(long = "authentication-tolerate-lookup-failure", value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true", action = clap::ArgAction::Set, value_parser = parse::boolean)]
    pub tolerate_lookup_failure: bool,

    /// How long the ccm caches the API server's answer about a token.
    #[arg(long = "authentication-token-webhook-cache-ttl", value_name = "DURATION", default_value = "10s", value_parser = parse::duration)]
    #[serde(serialize_with = "go_duration")]
    pub token_ttl: Duration,

    /// Certificate authorities, PEM. A client certificate that one of them signed authenticates
    /// the user of its common name. The ccm reads the file again when it changes. The file
    /// replaces the authorities of the ConfigMap.
    #[arg(id = "client-ca-file", long, value_name = "FILE")]
    pub client_ca_file: Option<PathBuf>,

    /// Front proxies.
    #[command(flatten)]
    pub request_header: RequestHeaderConfig,
}

/// `--requestheader-*`: front proxies, and the headers in which they name the user. Header names
/// are in lower case.
#[derive(Clone, Debug, Default, PartialEq, Eq, clap::Args, Serialize)]
#[serde(rename_all = "camelCase")]
#[command(next_help_heading = "Authentication flags")]
pub struct RequestHeaderConfig {
    /// Certificate authorities, PEM. A client certificate that one of them signed authenticates a
    /// front proxy, which names the user in headers. The ccm reads the file again when it changes.
    /// The file replaces the authorities of the ConfigMap.
    #[arg(id = "requestheader-client-ca-file", long, value_name = "FILE")]
    pub client_ca_file: Option<PathBuf>,

    /// The common names that a front proxy may have. Any name, if empty. This flag and those for
    /// headers count only with --requestheader-client-ca-file: the ConfigMap has its own values.
    #[arg(
        long = "requestheader-allowed-names",
        value_name = "NAMES",
        value_delimiter = ','
    )]
    pub allowed_names: Vec<String>,

    /// The headers in which a front proxy names the user.
    #[arg(
        long = "requestheader-username-headers",
        value_name = "HEADERS",
        value_delimiter = ',',
        default_value = "x-remote-user"
    )]
    pub username_headers: Vec<String>,

    /// The headers in which a front proxy gives the user's UID.
    #[arg(
        long = "requestheader-uid-headers",
        value_name = "HEADERS",
        value_delimiter = ','
    )]
    pub uid_headers: Vec<String>,

    /// The headers in which a front proxy names the user's groups.
    #[arg(
        long = "requestheader-group-headers",
        value_name = "HEADERS",
        value_delimiter = ',',
        default_value = "x-remote-group"
    )]
    pub group_headers: Vec<String>,

    /// The prefixes of the headers in which a front proxy gives more about the user.
    #[arg(
        long = "requestheader-extra-headers-prefix",
        value_name = "PREFIXES",
        value_delimiter = ',',
        default_value = "x-remote-extra-"
    )]
    pub extra_header_prefixes: Vec<String>,
}

/// How the port authorizes clients.
#[derive(Clone, Debug, clap::Args, Serialize)]
#[serde(rename_all = "camelCase")]
#[command(next_help_heading = "Authorization flags")]
pub struct AuthorizationConfig {
    /// The kubeconfig for SubjectAccessReviews. The default is what --kubeconfig and --master
    /// select.
    #[arg(id = "authorization-kubeconfig", long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,

    /// Paths that everybody may read without authorization.
    #[arg(
        long = "authorization-always-allow-paths",
        value_name = "PATHS",
        value_delimiter = ',',
        default_value = "/healthz,/readyz,/livez"
    )]
    pub always_allow_paths: Vec<String>,

    /// How long the ccm caches that the API server allowed a request.
    #[arg(long = "authorization-webhook-cache-authorized-ttl", value_name = "DURATION", default_value = "10s", value_parser = parse::duration)]
    #[serde(serialize_with = "go_duration")]
    pub allowed_ttl: Duration,

    /// How long the ccm caches that the API server denied a request.
    #[arg(long = "authorization-webhook-cache-unauthorized-ttl", value_name = "DURATION", default_value = "10s", value_parser = parse::duration)]
    #[serde(serialize_with = "go_duration")]
    pub denied_ttl: Duration,
}

impl RequestHeaderConfig {
    /// Removes empty names, and writes headers in lower case. Errors go to `wrong`.
    pub(super) fn check(&mut self, wrong: &mut Vec<InvalidFlag>) {
        for (flag, given) in [
            (
                "--requestheader-username-headers",
                &mut self.username_headers,
            ),
            ("--requestheader-uid-headers", &mut self.uid_headers),
            ("--requestheader-group-headers", &mut self.group_headers),
            (
                "--requestheader-extra-headers-prefix",
                &mut self.extra_header_prefixes,
            ),
        ] {
            for name in given.iter() {
                let name = name.trim();
                // One empty value clears the flag.
                let cleared = name.is_empty() && given.len() == 1;
                if !cleared && name.parse::<http::HeaderName>().is_err() {
                    wrong.push(InvalidFlag::new(flag, name, "names of HTTP headers"));
                }
            }
            *given = words(given).map(str::to_ascii_lowercase).collect();
        }
        self.allowed_names = words(&self.allowed_names).map(str::to_owned).collect();
    }
}

impl AuthorizationConfig {
    /// Removes empty paths. Errors go to `wrong`.
    pub(super) fn check(&mut self, wrong: &mut Vec<InvalidFlag>) {
        // An empty list arrives as one empty value.
        self.always_allow_paths.retain(|path| !path.is_empty());
        for path in &self.always_allow_paths {
            if !path.starts_with('/') {
                wrong.push(InvalidFlag::new(
                    "--authorization-always-allow-paths",
                    path,
                    "paths that begin with /",
                ));
            }
        }
    }
}
