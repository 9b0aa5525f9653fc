//! Flags of the HTTPS port.

use std::net::IpAddr;
use std::path::PathBuf;

use super::speech::Speech;
use super::{
    AuthenticationConfig, AuthorizationConfig, InvalidFlag, Notice, ServeConfig, TlsConfig, parse,
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

    /// The HTTPS port: health, metrics, configz, statusz, version. 0 turns it off.
    #[arg(long, value_name = "PORT", default_value_t = 10258)]
    secure_port: u16,

    /// Let another process bind the same address and port (SO_REUSEPORT).
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true", action = clap::ArgAction::Set, value_parser = parse::boolean)]
    permit_port_sharing: bool,

    /// The directory of the self-signed certificate, cloud-controller-manager.crt and .key. If
    /// neither file exists, the ccm makes both. Without this flag the certificate is in memory
    /// only. Ignored with --tls-cert-file.
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
    authentication: AuthenticationConfig,

    #[command(flatten)]
    authorization: AuthorizationConfig,
}

impl ServingArgs {
    fn speech(&self) -> Speech<'_> {
        Speech {
            prefix: "",
            certificate: self.tls_cert_file.as_deref(),
            private_key: self.tls_private_key_file.as_deref(),
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

    pub(super) fn config(mut self, wrong: &mut Vec<InvalidFlag>) -> ServeConfig {
        self.authorization.check(wrong);
        let files = self.speech().files().unwrap_or_else(|invalid| {
            wrong.push(invalid);
            None
        });
        let speech = self.speech().config(wrong);
        self.authentication.request_header.check(wrong);
        ServeConfig {
            bind_address: self.bind_address,
            port: self.secure_port,
            permit_port_sharing: self.permit_port_sharing,
            tls: TlsConfig {
                files,
                directory: self.cert_dir,
                ..speech
            },
            authentication: self.authentication,
            authorization: self.authorization,
        }
    }
}
