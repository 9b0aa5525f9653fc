//! The syntax of labels, and the label keys that a provider may not set. Pure.

use super::DOMAIN;

/// Keys that a provider may not set: those of Kubernetes (B-N4), and the ccm's own. One of the
/// ccm's keys names the provider of a Node.
pub(crate) fn is_reserved_key(key: &str) -> bool {
    let Some((domain, _)) = key.split_once('/') else {
        return false;
    };
    ["kubernetes.io", "k8s.io", DOMAIN.trim_end_matches('/')]
        .iter()
        .any(|root| {
            domain
                .strip_suffix(root)
                .is_some_and(|head| head.is_empty() || head.ends_with('.'))
        })
}

/// Whether this is a label value: empty, or at most 63 letters, digits, `-`, `_` and `.`, with a
/// letter or digit at both ends.
pub(crate) fn is_valid_value(value: &str) -> bool {
    value.is_empty() || valid_name(value)
}

fn valid_name(name: &str) -> bool {
    let ends = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    name.len() <= 63
        && ends(name.chars().next())
        && ends(name.chars().next_back())
        && name
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))
}

/// Whether this is a label key: a name, with an optional DNS subdomain and slash before it.
pub(crate) fn is_valid_key(key: &str) -> bool {
    match key.split_once('/') {
        None => valid_name(key),
        Some((domain, name)) => valid_name(name) && is_dns_name(domain),
    }
}

/// Whether this is a DNS name for Kubernetes (RFC 1123 subdomain).
pub(crate) fn is_dns_name(text: &str) -> bool {
    text.len() <= 253 && text.split('.').all(dns_label)
}

fn dns_label(label: &str) -> bool {
    let inner = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit();
    let ends = |c: Option<&u8>| c.is_some_and(|c| inner(*c));
    let bytes = label.as_bytes();
    ends(bytes.first()) && ends(bytes.last()) && bytes.iter().all(|c| inner(*c) || *c == b'-')
}
