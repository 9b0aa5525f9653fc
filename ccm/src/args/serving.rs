//! Flags of the HTTPS port.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use super::speech::{Speech, SpeechFlags, words};
use super::{
    AuthenticationConfig, AuthorizationConfig, InvalidFlag, Notice, RequestHeaderConfig,
    ServeConfig, TlsConfig, TlsFiles, parse,
};

/// The flags, in upstream's groups.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Secure serving flags")]
pub(super) struct ServingArgs {
    /// The address of the HTTPS port.
    #[arg(
        long,
        value_name = "IP",
        value_parser = parse::expecting::<IpAddr>("an IP address such as 0.0.0.0 or ::"),
        default_value = "0.0.0.0"
    )]
    bind_address: IpAddr,

    /// The HTTPS port: health, metrics, configz. 0 turns it off.
    #[arg(long, value_name = "PORT", default_value_t = 10258)]
    secure_port: u16,

    /// Let another process bind the same address and port (SO_REUSEPORT).
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true", action = clap::ArgAction::Set, value_parser = parse::boolean)]
    permit_port_sharing: bool,

    /// The directory of the self-signed certificate, cloud-controller-manager.crt and .key. The
    /// ccm uses the files that are there. Without this flag the certificate is in memory only.
    /// Ignored with --tls-cert-file.
    #[arg(long, value_name = "DIRECTORY")]
    cert_dir: Option<PathBuf>,

    /// The server's certificate chain, PEM. The ccm reads it again when it changes. Without this
    /// flag the port uses a self-signed certificate, see --cert-dir.
    #[arg(long, value_name = "FILE")]
    tls_cert_file: Option<PathBuf>,

    /// The key of --tls-cert-file, PEM.
    #[arg(long, value_name = "FILE")]
    tls_private_key_file: Option<PathBuf>,

    /// A certificate and its key for some server names: CERT,KEY, or CERT,KEY:NAME,*.DOMAIN.
    /// Without NAMES the names in the certificate count. The flag can be repeated.
    #[arg(long, value_name = "CERT,KEY[:NAMES]")]
    tls_sni_cert_key: Vec<String>,

    /// The oldest TLS version that the port accepts: VersionTLS12 or VersionTLS13. It never
    /// accepts older ones.
    #[arg(
        long,
        value_name = "VERSION",
        default_value = "",
        hide_default_value = true
    )]
    tls_min_version: String,

    /// The TLS 1.2 cipher suites that the port offers, by their IANA names. The default is all
    /// with forward secrecy and AEAD. The port always offers those of TLS 1.3.
    #[arg(long, value_name = "SUITES", value_delimiter = ',')]
    tls_cipher_suites: Vec<String>,

    /// The key exchange groups that the port offers, by their TLS numbers: 23 (P-256), 24 (P-384),
    /// 29 (X25519).
    #[arg(long, value_name = "GROUPS", value_delimiter = ',')]
    tls_curve_preferences: Vec<String>,

    #[command(flatten)]
    authentication: AuthenticationArgs,
}

/// How the port authenticates and authorizes clients.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Authentication flags")]
struct AuthenticationArgs {
    /// The kubeconfig for TokenReviews and for the lookup of certificate authorities. The default
    /// is what --kubeconfig and --master select.
    #[arg(long, value_name = "FILE")]
    authentication_kubeconfig: Option<PathBuf>,

    /// Do not read the authorities of client certificates from the ConfigMap
    /// extension-apiserver-authentication in kube-system.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true", action = clap::ArgAction::Set, value_parser = parse::boolean)]
    authentication_skip_lookup: bool,

    /// Start although the ccm cannot read the ConfigMap extension-apiserver-authentication. Until it
    /// can, the port accepts no client certificate of the authorities in it.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true", action = clap::ArgAction::Set, value_parser = parse::boolean)]
    authentication_tolerate_lookup_failure: bool,

    /// How long the ccm caches the API server's answer about a token.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = parse::duration)]
    authentication_token_webhook_cache_ttl: Duration,

    /// Certificate authorities, PEM. A client certificate that one of them signed authenticates
    /// the user of its common name. The ccm reads the file again when it changes. The file
    /// replaces the authorities of the ConfigMap.
    #[arg(long, value_name = "FILE")]
    client_ca_file: Option<PathBuf>,

    /// Certificate authorities, PEM. A client certificate that one of them signed authenticates a
    /// front proxy, which names the user in headers. The ccm reads the file again when it changes.
    /// The file replaces the authorities of the ConfigMap.
    #[arg(long, value_name = "FILE")]
    requestheader_client_ca_file: Option<PathBuf>,

    /// The common names that a front proxy may have. Any name, if empty.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    requestheader_allowed_names: Vec<String>,

    /// The headers in which a front proxy names the user.
    #[arg(
        long,
        value_name = "HEADERS",
        value_delimiter = ',',
        default_value = "x-remote-user"
    )]
    requestheader_username_headers: Vec<String>,

    /// The headers in which a front proxy gives the user's UID.
    #[arg(long, value_name = "HEADERS", value_delimiter = ',')]
    requestheader_uid_headers: Vec<String>,

    /// The headers in which a front proxy names the user's groups.
    #[arg(
        long,
        value_name = "HEADERS",
        value_delimiter = ',',
        default_value = "x-remote-group"
    )]
    requestheader_group_headers: Vec<String>,

    /// The prefixes of the headers in which a front proxy gives more about the user.
    #[arg(
        long,
        value_name = "PREFIXES",
        value_delimiter = ',',
        default_value = "x-remote-extra-"
    )]
    requestheader_extra_headers_prefix: Vec<String>,

    /// The kubeconfig for SubjectAccessReviews. The default is what --kubeconfig and --master
    /// select.
    #[arg(long, value_name = "FILE", help_heading = "Authorization flags")]
    authorization_kubeconfig: Option<PathBuf>,

    /// Paths that everybody may read without authorization.
    #[arg(
        long,
        value_name = "PATHS",
        value_delimiter = ',',
        default_value = "/healthz,/readyz,/livez",
        help_heading = "Authorization flags"
    )]
    authorization_always_allow_paths: Vec<String>,

    /// How long the ccm caches that the API server allowed a request.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = parse::duration, help_heading = "Authorization flags")]
    authorization_webhook_cache_authorized_ttl: Duration,

    /// How long the ccm caches that the API server denied a request.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = parse::duration, help_heading = "Authorization flags")]
    authorization_webhook_cache_unauthorized_ttl: Duration,
}

const SPEECH: SpeechFlags = SpeechFlags {
    sni: "--tls-sni-cert-key",
    min_version: "--tls-min-version",
    cipher_suites: "--tls-cipher-suites",
    curves: "--tls-curve-preferences",
};

impl ServingArgs {
    fn speech(&self) -> Speech<'_> {
        Speech {
            flags: &SPEECH,
            sni: &self.tls_sni_cert_key,
            min_version: &self.tls_min_version,
            cipher_suites: &self.tls_cipher_suites,
            curves: &self.tls_curve_preferences,
        }
    }

    /// Notices for settings that the ccm does not support.
    pub(super) fn notices(&self) -> Vec<Notice> {
        self.speech().notices()
    }

    pub(super) fn config(self, wrong: &mut Vec<InvalidFlag>) -> ServeConfig {
        for path in &self.authentication.authorization_always_allow_paths {
            // An empty list arrives as one empty value.
            if !path.is_empty() && !path.starts_with('/') {
                wrong.push(InvalidFlag::new(
                    "--authorization-always-allow-paths",
                    path,
                    "paths that begin with /",
                ));
            }
        }
        let always_allow_paths = self.authentication.authorization_always_allow_paths.iter();
        let always_allow_paths = always_allow_paths
            .filter(|path| !path.is_empty())
            .cloned()
            .collect();
        ServeConfig {
            bind_address: self.bind_address,
            port: self.secure_port,
            permit_port_sharing: self.permit_port_sharing,
            tls: self.tls(wrong),
            authentication: AuthenticationConfig {
                skip_lookup: self.authentication.authentication_skip_lookup,
                tolerate_lookup_failure: self.authentication.authentication_tolerate_lookup_failure,
                token_ttl: self.authentication.authentication_token_webhook_cache_ttl,
                request_header: self.request_header(wrong),
                kubeconfig: self.authentication.authentication_kubeconfig,
                client_ca_file: self.authentication.client_ca_file,
            },
            authorization: AuthorizationConfig {
                kubeconfig: self.authentication.authorization_kubeconfig,
                always_allow_paths,
                allowed_ttl: self
                    .authentication
                    .authorization_webhook_cache_authorized_ttl,
                denied_ttl: self
                    .authentication
                    .authorization_webhook_cache_unauthorized_ttl,
            },
        }
    }

    fn tls(&self, wrong: &mut Vec<InvalidFlag>) -> TlsConfig {
        for (flag, given, other, missing) in [
            (
                "--tls-cert-file",
                &self.tls_cert_file,
                "--tls-private-key-file",
                self.tls_private_key_file.is_none(),
            ),
            (
                "--tls-private-key-file",
                &self.tls_private_key_file,
                "--tls-cert-file",
                self.tls_cert_file.is_none(),
            ),
        ] {
            if let (Some(file), true) = (given, missing) {
                let expected = format!("{other} beside it");
                wrong.push(InvalidFlag::new(flag, file.display(), expected));
            }
        }
        let files = self
            .tls_cert_file
            .clone()
            .zip(self.tls_private_key_file.clone());
        TlsConfig {
            files: files.map(|(certificate, private_key)| TlsFiles {
                certificate,
                private_key,
            }),
            directory: self
                .cert_dir
                .clone()
                .filter(|path| !path.as_os_str().is_empty()),
            ..self.speech().config(wrong)
        }
    }

    fn request_header(&self, wrong: &mut Vec<InvalidFlag>) -> RequestHeaderConfig {
        let mut headers = |flag: &'static str, given: &[String]| -> Vec<String> {
            for name in given {
                let name = name.trim();
                // One empty value clears the flag.
                let cleared = name.is_empty() && given.len() == 1;
                if !cleared && name.parse::<http::HeaderName>().is_err() {
                    wrong.push(InvalidFlag::new(flag, name, "names of HTTP headers"));
                }
            }
            words(given).map(str::to_ascii_lowercase).collect()
        };
        RequestHeaderConfig {
            username_headers: headers(
                "--requestheader-username-headers",
                &self.authentication.requestheader_username_headers,
            ),
            uid_headers: headers(
                "--requestheader-uid-headers",
                &self.authentication.requestheader_uid_headers,
            ),
            group_headers: headers(
                "--requestheader-group-headers",
                &self.authentication.requestheader_group_headers,
            ),
            extra_header_prefixes: headers(
                "--requestheader-extra-headers-prefix",
                &self.authentication.requestheader_extra_headers_prefix,
            ),
            allowed_names: words(&self.authentication.requestheader_allowed_names)
                .map(str::to_owned)
                .collect(),
            client_ca_file: self.authentication.requestheader_client_ca_file.clone(),
        }
    }
}
