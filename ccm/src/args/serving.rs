//! Flags of the HTTPS port: what is served to whom.

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
pub(super) struct ServingArgs {
    /// The address of the HTTPS port.
    #[arg(
        long,
        value_name = "IP",
        value_parser = parse::expecting::<IpAddr>("an IP address such as 0.0.0.0 or ::"),
        default_value = "0.0.0.0",
        help_heading = "Secure serving flags"
    )]
    bind_address: IpAddr,

    /// The HTTPS port: health, metrics, configz. 0 turns it off.
    #[arg(
        long,
        value_name = "PORT",
        default_value_t = 10258,
        help_heading = "Secure serving flags"
    )]
    secure_port: u16,

    /// Let another process bind the same address and port (SO_REUSEPORT).
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true", action = clap::ArgAction::Set, value_parser = parse::boolean, help_heading = "Secure serving flags")]
    permit_port_sharing: bool,

    /// Where the self-made certificate is kept, as cloud-controller-manager.crt and .key; what lies there is used. In memory only where absent. Not used
    /// with --tls-cert-file.
    #[arg(long, value_name = "DIRECTORY", help_heading = "Secure serving flags")]
    cert_dir: Option<PathBuf>,

    /// The server's certificate chain, PEM; self-made where absent. Read again when it changes.
    #[arg(long, value_name = "FILE", help_heading = "Secure serving flags")]
    tls_cert_file: Option<PathBuf>,

    /// The key of --tls-cert-file, PEM.
    #[arg(long, value_name = "FILE", help_heading = "Secure serving flags")]
    tls_private_key_file: Option<PathBuf>,

    /// A certificate and its key for some names only: CERT,KEY, or CERT,KEY:NAME,*.DOMAIN. Without names those in the certificate count. May be
    /// given more than once.
    #[arg(
        long,
        value_name = "CERT,KEY[:NAMES]",
        help_heading = "Secure serving flags"
    )]
    tls_sni_cert_key: Vec<String>,

    /// The oldest TLS version that is spoken: VersionTLS12 or VersionTLS13. Older ones are never spoken.
    #[arg(
        long,
        value_name = "VERSION",
        default_value = "",
        hide_default_value = true,
        help_heading = "Secure serving flags"
    )]
    tls_min_version: String,

    /// The cipher suites of TLS 1.2 that are offered, by their IANA names; all with forward secrecy and AEAD unless given. Those of TLS 1.3 are always offered.
    #[arg(
        long,
        value_name = "SUITES",
        value_delimiter = ',',
        help_heading = "Secure serving flags"
    )]
    tls_cipher_suites: Vec<String>,

    /// The key exchange groups that are offered, by their TLS numbers: 23 (P-256), 24 (P-384), 29 (X25519).
    #[arg(
        long,
        value_name = "GROUPS",
        value_delimiter = ',',
        help_heading = "Secure serving flags"
    )]
    tls_curve_preferences: Vec<String>,

    /// kubeconfig for TokenReviews and for the lookup of authorities; the main one where absent.
    #[arg(long, value_name = "FILE", help_heading = "Authentication flags")]
    authentication_kubeconfig: Option<PathBuf>,

    /// Do not read the authorities for client certificates from the ConfigMap extension-apiserver-authentication in kube-system.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true", action = clap::ArgAction::Set, value_parser = parse::boolean, help_heading = "Authentication flags")]
    authentication_skip_lookup: bool,

    /// Go on where that ConfigMap may not be read: client certificates then count for nothing.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true", action = clap::ArgAction::Set, value_parser = parse::boolean, help_heading = "Authentication flags")]
    authentication_tolerate_lookup_failure: bool,

    /// For so long the API server's answer about a token counts.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = parse::duration, help_heading = "Authentication flags")]
    authentication_token_webhook_cache_ttl: Duration,

    /// Authorities, PEM: whoever has a client certificate of one of them is the user of its common name. Read again when it changes; instead of the one in the ConfigMap.
    #[arg(long, value_name = "FILE", help_heading = "Authentication flags")]
    client_ca_file: Option<PathBuf>,

    /// Authorities, PEM: whoever has a client certificate of one of them is a front proxy, and says in headers who asks. Read again when it changes; instead of the
    /// one in the ConfigMap.
    #[arg(long, value_name = "FILE", help_heading = "Authentication flags")]
    requestheader_client_ca_file: Option<PathBuf>,

    /// The common names that a front proxy may have; any where empty.
    #[arg(
        long,
        value_name = "NAMES",
        value_delimiter = ',',
        help_heading = "Authentication flags"
    )]
    requestheader_allowed_names: Vec<String>,

    /// Headers in which a front proxy names the user.
    #[arg(
        long,
        value_name = "HEADERS",
        value_delimiter = ',',
        default_value = "x-remote-user",
        help_heading = "Authentication flags"
    )]
    requestheader_username_headers: Vec<String>,

    /// Headers in which a front proxy tells the user's UID.
    #[arg(
        long,
        value_name = "HEADERS",
        value_delimiter = ',',
        help_heading = "Authentication flags"
    )]
    requestheader_uid_headers: Vec<String>,

    /// Headers in which a front proxy tells the user's groups.
    #[arg(
        long,
        value_name = "HEADERS",
        value_delimiter = ',',
        default_value = "x-remote-group",
        help_heading = "Authentication flags"
    )]
    requestheader_group_headers: Vec<String>,

    /// What the headers begin with in which a front proxy tells more about the user.
    #[arg(
        long,
        value_name = "PREFIXES",
        value_delimiter = ',',
        default_value = "x-remote-extra-",
        help_heading = "Authentication flags"
    )]
    requestheader_extra_headers_prefix: Vec<String>,

    /// kubeconfig for SubjectAccessReviews; the main one where absent.
    #[arg(long, value_name = "FILE", help_heading = "Authorization flags")]
    authorization_kubeconfig: Option<PathBuf>,

    /// Paths that everybody may read.
    #[arg(
        long,
        value_name = "PATHS",
        value_delimiter = ',',
        default_value = "/healthz,/readyz,/livez",
        help_heading = "Authorization flags"
    )]
    authorization_always_allow_paths: Vec<String>,

    /// For so long the API server's yes counts.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = parse::duration, help_heading = "Authorization flags")]
    authorization_webhook_cache_authorized_ttl: Duration,

    /// For so long the API server's no counts.
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

    /// What is asked for here and cannot be had.
    pub(super) fn notices(&self) -> Vec<Notice> {
        self.speech().notices()
    }

    pub(super) fn config(self, wrong: &mut Vec<InvalidFlag>) -> ServeConfig {
        for path in &self.authorization_always_allow_paths {
            // An empty list is one empty value.
            if !path.is_empty() && !path.starts_with('/') {
                wrong.push(InvalidFlag::new(
                    "--authorization-always-allow-paths",
                    path,
                    "paths that begin with /",
                ));
            }
        }
        let always_allow_paths = self.authorization_always_allow_paths.iter();
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
                skip_lookup: self.authentication_skip_lookup,
                tolerate_lookup_failure: self.authentication_tolerate_lookup_failure,
                token_ttl: self.authentication_token_webhook_cache_ttl,
                request_header: self.request_header(wrong),
                kubeconfig: self.authentication_kubeconfig,
                client_ca_file: self.client_ca_file,
            },
            authorization: AuthorizationConfig {
                kubeconfig: self.authorization_kubeconfig,
                always_allow_paths,
                allowed_ttl: self.authorization_webhook_cache_authorized_ttl,
                denied_ttl: self.authorization_webhook_cache_unauthorized_ttl,
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
                // The flag is cleared by one empty value.
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
                &self.requestheader_username_headers,
            ),
            uid_headers: headers(
                "--requestheader-uid-headers",
                &self.requestheader_uid_headers,
            ),
            group_headers: headers(
                "--requestheader-group-headers",
                &self.requestheader_group_headers,
            ),
            extra_header_prefixes: headers(
                "--requestheader-extra-headers-prefix",
                &self.requestheader_extra_headers_prefix,
            ),
            allowed_names: words(&self.requestheader_allowed_names)
                .map(str::to_owned)
                .collect(),
            client_ca_file: self.requestheader_client_ca_file.clone(),
        }
    }
}
