//! The TLS settings of a port: either that of health and metrics, or that of the webhooks.

use std::collections::BTreeSet;
use std::path::Path;

use super::{InvalidFlag, Notice, SniFiles, TlsConfig, TlsFiles, TlsVersion};

/// The suites of TLS 1.2 that the flag can choose.
const SUITES: [&str; 6] = [
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
];
/// Suites of TLS 1.3, which are always offered.
const SUITES_OF_1_3: [&str; 3] = [
    "TLS_AES_128_GCM_SHA256",
    "TLS_AES_256_GCM_SHA384",
    "TLS_CHACHA20_POLY1305_SHA256",
];
/// Suites that Go knows and the ccm never offers: without forward secrecy, or with CBC, RC4 or
/// 3DES.
const OLD_SUITES: [&str; 16] = [
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_RC4_128_SHA",
    "TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_RC4_128_SHA",
    "TLS_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA256",
    "TLS_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_RSA_WITH_AES_256_CBC_SHA",
    "TLS_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_RSA_WITH_RC4_128_SHA",
];
/// The key exchange groups that the ccm offers, then others that Go knows (P-521, and ML-KEM with
/// X25519, P-256 and P-384).
const CURVES: [u16; 3] = [23, 24, 29];
const OTHER_CURVES: [u16; 4] = [25, 4587, 4588, 4589];

/// The TLS settings of one port, as given.
pub(super) struct Speech<'a> {
    /// The names of the port's flags begin with it.
    pub(super) prefix: &'static str,
    pub(super) certificate: Option<&'a Path>,
    pub(super) private_key: Option<&'a Path>,
    pub(super) sni: &'a [String],
    pub(super) min_version: &'a str,
    pub(super) cipher_suites: &'a [String],
    pub(super) curves: &'a [String],
}

impl Speech<'_> {
    fn flag(&self, name: &str) -> String {
        format!("--{}tls-{name}", self.prefix)
    }

    /// Notices for settings that the ccm does not support.
    pub(super) fn notices(&self) -> Vec<Notice> {
        let mut notices = Vec::new();
        let mut tell = |name: &str, text: String| {
            notices.push(Notice::new(self.flag(name), text));
        };
        if matches!(self.min_version, "VersionTLS10" | "VersionTLS11") {
            tell(
                "min-version",
                format!(
                    "{} is not spoken here: VersionTLS12 is the oldest",
                    self.min_version
                ),
            );
        }
        let old: Vec<&str> = words(self.cipher_suites)
            .filter(|suite| OLD_SUITES.contains(suite))
            .collect();
        if !old.is_empty() {
            tell(
                "cipher-suites",
                format!("{} are not spoken here", old.join(", ")),
            );
        }
        let other: Vec<&str> = words(self.curves)
            .filter(|curve| curve.parse().is_ok_and(|id| OTHER_CURVES.contains(&id)))
            .collect();
        if !other.is_empty() {
            tell(
                "curve-preferences",
                format!("{} are not offered here", other.join(", ")),
            );
        }
        notices
    }

    /// The certificate for all other names, if its flags are given.
    pub(super) fn files(&self) -> Result<Option<TlsFiles>, InvalidFlag> {
        let alone = |given: &str, file: &Path, missing: &str| {
            let expected = format!("{} beside it", self.flag(missing));
            InvalidFlag::new(self.flag(given), file.display(), expected)
        };
        match (self.certificate, self.private_key) {
            (Some(certificate), Some(private_key)) => Ok(Some(TlsFiles {
                certificate: certificate.to_owned(),
                private_key: private_key.to_owned(),
            })),
            (Some(file), None) => Err(alone("cert-file", file, "private-key-file")),
            (None, Some(file)) => Err(alone("private-key-file", file, "cert-file")),
            (None, None) => Ok(None),
        }
    }

    /// The TLS settings, without the certificate for all other names.
    pub(super) fn config(&self, wrong: &mut Vec<InvalidFlag>) -> TlsConfig {
        let min_version = match self.min_version {
            "" | "VersionTLS10" | "VersionTLS11" | "VersionTLS12" => TlsVersion::V12,
            "VersionTLS13" => TlsVersion::V13,
            other => {
                wrong.push(InvalidFlag::new(
                    self.flag("min-version"),
                    other,
                    "VersionTLS12 or VersionTLS13",
                ));
                TlsVersion::V12
            }
        };
        let mut sni = Vec::new();
        for pair in self.sni {
            match sni_files(pair) {
                Some(files) => sni.push(files),
                None => wrong.push(InvalidFlag::new(
                    self.flag("sni-cert-key"),
                    pair,
                    "CERT,KEY or CERT,KEY:NAME,NAME",
                )),
            }
        }
        TlsConfig {
            sni,
            min_version,
            cipher_suites: self.suites(wrong),
            curves: self.curves(wrong),
            ..TlsConfig::default()
        }
    }

    fn suites(&self, wrong: &mut Vec<InvalidFlag>) -> Option<BTreeSet<String>> {
        let mut suites = None;
        for name in words(self.cipher_suites) {
            // Go has shorter names for two suites.
            let full = if name.ends_with("_CHACHA20_POLY1305") {
                format!("{name}_SHA256")
            } else {
                name.to_owned()
            };
            let suites: &mut BTreeSet<String> = suites.get_or_insert_default();
            if SUITES.contains(&full.as_str()) {
                suites.insert(full);
            } else if !SUITES_OF_1_3.contains(&name) && !OLD_SUITES.contains(&name) {
                wrong.push(InvalidFlag::new(
                    self.flag("cipher-suites"),
                    name,
                    format!("one of {}", SUITES.join(", ")),
                ));
            }
        }
        suites
    }

    fn curves(&self, wrong: &mut Vec<InvalidFlag>) -> Option<BTreeSet<u16>> {
        let mut curves = None;
        for name in words(self.curves) {
            let curves: &mut BTreeSet<u16> = curves.get_or_insert_default();
            match name.parse() {
                Ok(id) if CURVES.contains(&id) => {
                    curves.insert(id);
                }
                Ok(id) if OTHER_CURVES.contains(&id) => {}
                _ => wrong.push(InvalidFlag::new(
                    self.flag("curve-preferences"),
                    name,
                    "the numbers 23 (P-256), 24 (P-384) or 29 (X25519)",
                )),
            }
        }
        if curves.as_ref().is_some_and(BTreeSet::is_empty) {
            wrong.push(InvalidFlag::new(
                self.flag("curve-preferences"),
                self.curves.join(","),
                "at least one that is offered here: 23 (P-256), 24 (P-384) or 29 (X25519)",
            ));
        }
        curves
    }
}

/// The values of a list, trimmed, and without empty ones.
pub(super) fn words(list: &[String]) -> impl Iterator<Item = &str> {
    list.iter()
        .map(|word| word.trim())
        .filter(|word| !word.is_empty())
}

/// `CERT,KEY` or `CERT,KEY:NAME,NAME`.
pub(super) fn sni_files(text: &str) -> Option<SniFiles> {
    let (files, names) = text.split_once(':').unwrap_or((text, ""));
    let (certificate, private_key) = files.split_once(',')?;
    let (certificate, private_key) = (certificate.trim(), private_key.trim());
    if certificate.is_empty() || private_key.is_empty() || private_key.contains(',') {
        return None;
    }
    let names = names
        .split(',')
        .map(str::trim)
        .filter(|name| !name.is_empty());
    Some(SniFiles {
        files: TlsFiles {
            certificate: certificate.into(),
            private_key: private_key.into(),
        },
        names: names.map(str::to_ascii_lowercase).collect(),
    })
}
