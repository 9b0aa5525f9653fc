//! Flags of the admission webhooks.

use std::net::IpAddr;
use std::path::PathBuf;

use super::parse;
use super::speech::Speech;
use super::{InvalidFlag, Notice, TlsConfig, TlsFiles, VOLUME_WEBHOOK, WebhookConfig};

/// The name of the files in `--webhook-cert-dir`, as in a Go CCM.
const PAIR: &str = "cloud-controller-manager-webhook";

/// Flags of the admission webhooks: those of upstream, and `--webhook-client-ca-file`.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Webhook serving flags")]
pub(super) struct WebhookArgs {
    /// Admission webhooks to serve: '*' for all that are on by default (none), NAME to add one,
    /// -NAME to leave one out. Known: persistent-volume-label.
    #[arg(
        long,
        value_name = "NAMES",
        value_delimiter = ',',
        allow_hyphen_values = true,
        help_heading = "Webhook flags"
    )]
    webhooks: Vec<String>,

    /// The address of the webhooks' HTTPS port.
    #[arg(
        long,
        value_name = "IP",
        value_parser = parse::expecting::<IpAddr>("an IP address such as 0.0.0.0 or ::"),
        default_value = "0.0.0.0"
    )]
    webhook_bind_address: IpAddr,

    /// The webhooks' HTTPS port. 0 turns it off.
    #[arg(long, value_name = "PORT", default_value_t = 10260)]
    webhook_secure_port: u16,

    /// The directory of cloud-controller-manager-webhook.crt and .key. Ignored with
    /// --webhook-tls-cert-file.
    #[arg(long, value_name = "DIRECTORY")]
    webhook_cert_dir: Option<PathBuf>,

    /// The webhooks' certificate chain, PEM. The ccm reads it again when it changes.
    #[arg(long, value_name = "FILE")]
    webhook_tls_cert_file: Option<PathBuf>,

    /// The key of --webhook-tls-cert-file, PEM.
    #[arg(long, value_name = "FILE")]
    webhook_tls_private_key_file: Option<PathBuf>,

    /// The authorities of callers' certificates, PEM. The ccm reads the file again when it
    /// changes. Without this flag everybody who reaches the port may call it.
    #[arg(long, value_name = "FILE")]
    webhook_client_ca_file: Option<PathBuf>,

    /// A certificate and its key for some server names, as --tls-sni-cert-key.
    #[arg(long, value_name = "CERT,KEY[:NAMES]")]
    webhook_tls_sni_cert_key: Vec<String>,

    /// The oldest TLS version that the port accepts, as --tls-min-version.
    #[arg(
        long,
        value_name = "VERSION",
        default_value = "",
        hide_default_value = true
    )]
    webhook_tls_min_version: String,

    /// The TLS 1.2 cipher suites that the port offers, as --tls-cipher-suites.
    #[arg(long, value_name = "SUITES", value_delimiter = ',')]
    webhook_tls_cipher_suites: Vec<String>,

    /// The key exchange groups that the port offers, as --tls-curve-preferences.
    #[arg(long, value_name = "GROUPS", value_delimiter = ',')]
    webhook_tls_curve_preferences: Vec<String>,
}

impl WebhookArgs {
    fn speech(&self) -> Speech<'_> {
        Speech {
            prefix: "webhook-",
            certificate: self.webhook_tls_cert_file.as_deref(),
            private_key: self.webhook_tls_private_key_file.as_deref(),
            sni: &self.webhook_tls_sni_cert_key,
            min_version: &self.webhook_tls_min_version,
            cipher_suites: &self.webhook_tls_cipher_suites,
            curves: &self.webhook_tls_curve_preferences,
        }
    }

    /// Notices for settings that the ccm does not support.
    pub(super) fn notices(&self) -> Vec<Notice> {
        self.speech().notices()
    }

    /// Whether `--webhooks` asks for the one webhook that exists.
    fn is_on(&self, wrong: &mut Vec<InvalidFlag>) -> bool {
        let (mut on, mut off) = (false, false);
        for word in &self.webhooks {
            match word.strip_prefix('-') {
                Some(VOLUME_WEBHOOK) => off = true,
                None if word == VOLUME_WEBHOOK => on = true,
                None if word.is_empty() || word == "*" => {}
                _ => {
                    let expected = format!("one of {VOLUME_WEBHOOK}");
                    wrong.push(InvalidFlag::new("--webhooks", word, expected));
                }
            }
        }
        on && !off
    }

    /// The configuration of the webhooks. `None`: the ccm serves none.
    pub(super) fn config(self, wrong: &mut Vec<InvalidFlag>) -> Option<WebhookConfig> {
        let on = self.is_on(wrong);
        let speech = self.speech().config(wrong);
        let files = match self.speech().files() {
            Err(invalid) => {
                wrong.push(invalid);
                return None;
            }
            Ok(None) => self.webhook_cert_dir.map(|directory| TlsFiles {
                certificate: directory.join(format!("{PAIR}.crt")),
                private_key: directory.join(format!("{PAIR}.key")),
            }),
            Ok(files) => files,
        };
        if !on || self.webhook_secure_port == 0 {
            return None;
        }
        if files.is_none() {
            wrong.push(InvalidFlag::new(
                "--webhooks",
                self.webhooks.join(","),
                "a certificate beside it that the API server trusts: --webhook-tls-cert-file with --webhook-tls-private-key-file, or --webhook-cert-dir",
            ));
            return None;
        }
        Some(WebhookConfig {
            bind_address: self.webhook_bind_address,
            port: self.webhook_secure_port,
            client_ca_file: self.webhook_client_ca_file,
            tls: TlsConfig { files, ..speech },
        })
    }
}
