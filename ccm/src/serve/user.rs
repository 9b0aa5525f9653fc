//! The user of a request, from a client certificate or from a front proxy's headers.

use std::collections::BTreeMap;

use axum::http::HeaderMap;
use percent_encoding::percent_decode_str;
use rustls_pki_types::CertificateDer;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::cache::digest;
use crate::args::RequestHeaderConfig;

/// Every authenticated user is in this group.
const AUTHENTICATED: &str = "system:authenticated";
/// The key for a certificate's fingerprint in a user's extra.
const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";
/// Kubernetes' subject attribute for the user's UID.
const UID: &str = "1.3.6.1.4.1.57683.2";

/// The user, in the fields of a SubjectAccessReview.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct User {
    pub(super) name: String,
    pub(super) uid: Option<String>,
    pub(super) groups: Vec<String>,
    pub(super) extra: Option<BTreeMap<String, Vec<String>>>,
}

/// The certificate cannot be read, or does not name its user clearly.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("the client certificate names no user: {0}")]
pub(super) struct NoUser(String);

impl User {
    pub(super) fn anonymous() -> Self {
        Self {
            name: "system:anonymous".to_owned(),
            groups: vec!["system:unauthenticated".to_owned()],
            ..Self::default()
        }
    }

    /// Adds the group of authenticated users, except to the anonymous one.
    pub(super) fn authenticated(mut self) -> Self {
        if self.name != "system:anonymous" && !self.groups.iter().any(|it| it == AUTHENTICATED) {
            self.groups.push(AUTHENTICATED.to_owned());
        }
        self
    }

    /// The user of a verified certificate: the common name, with the organisations as groups.
    /// `None`: it has no common name.
    pub(super) fn of_certificate(der: &CertificateDer<'_>) -> Result<Option<Self>, NoUser> {
        let (_, certificate) = X509Certificate::from_der(der)
            .map_err(|error| NoUser(format!("it cannot be read: {error}")))?;
        let subject = certificate.subject();
        let text = |attribute: &x509_parser::x509::AttributeTypeAndValue<'_>| {
            attribute
                .as_str()
                .map(str::to_owned)
                .map_err(|error| NoUser(format!("its subject is no text: {error}")))
        };
        let Some(name) = subject.iter_common_name().last().map(text).transpose()? else {
            return Ok(None);
        };
        if name.is_empty() {
            return Ok(None);
        }
        let groups = subject.iter_organization().map(text);
        let uids: Vec<String> = subject
            .iter_attributes()
            .filter(|attribute| attribute.attr_type().to_id_string() == UID)
            .map(text)
            .collect::<Result<_, _>>()?;
        let uid = match uids.as_slice() {
            [] => None,
            [uid] if !uid.is_empty() => Some(uid.clone()),
            _ => return Err(NoUser(format!("its UIDs are {uids:?}, expected one"))),
        };
        let mut fingerprint = "X509SHA256=".to_owned();
        for byte in digest(der) {
            use std::fmt::Write as _;
            // Writing to a String does not fail.
            let _ = write!(fingerprint, "{byte:02x}");
        }
        Ok(Some(Self {
            name,
            uid,
            groups: groups.collect::<Result<_, _>>()?,
            extra: Some([(CREDENTIAL_ID.to_owned(), vec![fingerprint])].into()),
        }))
    }

    /// The user that a front proxy names. `None`: it names none.
    pub(super) fn of_headers(headers: &HeaderMap, config: &RequestHeaderConfig) -> Option<Self> {
        let first = |names: &[String]| {
            names
                .iter()
                .filter_map(|name| headers.get(name)?.to_str().ok())
                .find(|value| !value.is_empty())
                .map(str::to_owned)
        };
        let name = first(&config.username_headers)?;
        let groups = config
            .group_headers
            .iter()
            .flat_map(|name| headers.get_all(name))
            .filter_map(|value| value.to_str().ok())
            .filter(|value| !value.is_empty())
            .map(str::to_owned)
            .collect();
        let mut extra: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for prefix in &config.extra_header_prefixes {
            for (name, value) in headers {
                let (Some(key), Ok(value)) =
                    (name.as_str().strip_prefix(prefix.as_str()), value.to_str())
                else {
                    continue;
                };
                let key = percent_decode_str(key)
                    .decode_utf8()
                    .map_or_else(|_| key.to_owned(), std::borrow::Cow::into_owned);
                extra.entry(key).or_default().push(value.to_owned());
            }
        }
        Some(Self {
            name,
            uid: first(&config.uid_headers),
            groups,
            extra: (!extra.is_empty()).then_some(extra),
        })
    }
}

/// The common name of a certificate; empty if it has none.
pub(super) fn common_name(der: &CertificateDer<'_>) -> String {
    X509Certificate::from_der(der)
        .ok()
        .and_then(|(_, certificate)| {
            let name = certificate.subject().iter_common_name().last()?;
            Some(name.as_str().ok()?.to_owned())
        })
        .unwrap_or_default()
}

/// The names that a server certificate is for: its alternative DNS names, else its common name.
pub(super) fn server_names(der: &CertificateDer<'_>) -> Vec<String> {
    use x509_parser::extensions::GeneralName;
    let Ok((_, certificate)) = X509Certificate::from_der(der) else {
        return Vec::new();
    };
    let listed: Vec<String> = certificate
        .subject_alternative_name()
        .ok()
        .flatten()
        .into_iter()
        .flat_map(|names| &names.value.general_names)
        .filter_map(|name| match name {
            GeneralName::DNSName(name) => Some(name.to_ascii_lowercase()),
            _ => None,
        })
        .collect();
    if listed.is_empty() {
        let name = common_name(der).to_ascii_lowercase();
        return Some(name)
            .filter(|name| !name.is_empty())
            .into_iter()
            .collect();
    }
    listed
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, CustomExtension, DnType, KeyPair};

    use super::*;

    fn certificate(name: Option<&str>, groups: &[&str], uids: &[&str]) -> CertificateDer<'static> {
        let mut params = CertificateParams::new(vec!["a.example".to_owned()]).unwrap();
        params.distinguished_name = rcgen::DistinguishedName::new();
        if let Some(name) = name {
            params.distinguished_name.push(DnType::CommonName, name);
        }
        // rcgen keeps one value of each type.
        for group in groups {
            params
                .distinguished_name
                .push(DnType::OrganizationName, *group);
        }
        for uid in uids {
            let oid = DnType::CustomDnType(vec![1, 3, 6, 1, 4, 1, 57683, 2]);
            params.distinguished_name.push(oid, *uid);
        }
        params.custom_extensions = Vec::<CustomExtension>::new();
        let key = KeyPair::generate().unwrap();
        params.self_signed(&key).unwrap().der().clone()
    }

    #[test]
    fn b_m4_a_certificates_common_name_is_the_user_and_its_organisation_a_group() {
        let der = certificate(Some("alice"), &["ops"], &["u-1"]);
        let user = User::of_certificate(&der).unwrap().unwrap();
        assert_eq!(
            (user.name.as_str(), user.uid.as_deref()),
            ("alice", Some("u-1"))
        );
        assert_eq!(user.groups, ["ops"]);
        let id = &user.extra.as_ref().unwrap()[CREDENTIAL_ID][0];
        assert!(id.starts_with("X509SHA256=") && id.len() == 11 + 64, "{id}");
        assert_eq!(user.authenticated().groups, ["ops", AUTHENTICATED]);
        assert_eq!(
            User::of_certificate(&certificate(None, &["ops"], &[])),
            Ok(None)
        );
        assert_eq!(
            User::of_certificate(&certificate(Some(""), &[], &[])),
            Ok(None)
        );
        assert!(User::of_certificate(&certificate(Some("a"), &[], &[""])).is_err());
        assert!(User::of_certificate(&CertificateDer::from(vec![1, 2, 3])).is_err());
        assert_eq!(common_name(&der), "alice");
        assert_eq!(server_names(&der), ["a.example"]);
    }

    #[test]
    fn b_m4_a_front_proxys_headers_are_the_user() {
        let config = RequestHeaderConfig {
            client_ca_file: None,
            allowed_names: Vec::new(),
            username_headers: vec!["x-remote-user".to_owned(), "x-user".to_owned()],
            uid_headers: vec!["x-remote-uid".to_owned()],
            group_headers: vec!["x-remote-group".to_owned()],
            extra_header_prefixes: vec!["x-remote-extra-".to_owned()],
        };
        let of = |pairs: &[(&'static str, &str)]| {
            let mut headers = HeaderMap::new();
            for (name, value) in pairs {
                headers.append(*name, value.parse().unwrap());
            }
            User::of_headers(&headers, &config)
        };
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[("x-remote-user", ""), ("x-remote-group", "a")]), None);
        let user = of(&[
            ("x-remote-user", ""),
            ("x-user", "bob"),
            ("x-remote-uid", "7"),
            ("x-remote-group", "a"),
            ("x-remote-group", ""),
            ("x-remote-group", "b"),
            ("x-remote-extra-scopes", "one"),
            ("x-remote-extra-scopes", "two"),
            ("x-remote-extra-example.com%2fkey", "v"),
        ]);
        let extra = BTreeMap::from([
            (
                "scopes".to_owned(),
                vec!["one".to_owned(), "two".to_owned()],
            ),
            ("example.com/key".to_owned(), vec!["v".to_owned()]),
        ]);
        let expected = User {
            name: "bob".to_owned(),
            uid: Some("7".to_owned()),
            groups: vec!["a".to_owned(), "b".to_owned()],
            extra: Some(extra),
        };
        assert_eq!(user, Some(expected));
    }
}
