//! What Kubernetes allows as a label, and which keys are nobody else's to give. Pure.

use super::DOMAIN;

/// Keys that are not the provider's to give: Kubernetes' own (B-N4) and ours, one of which says whose a Node is.
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

/// A label value of Kubernetes: at most 63 of letters, digits, `-`, `_` and `.`, beginning and ending with a letter or digit.
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

/// A label key of Kubernetes: a name, and before it perhaps a DNS subdomain and a slash.
pub(crate) fn is_valid_key(key: &str) -> bool {
    match key.split_once('/') {
        None => valid_name(key),
        Some((domain, name)) => {
            valid_name(name) && domain.len() <= 253 && domain.split('.').all(dns_label)
        }
    }
}

fn dns_label(label: &str) -> bool {
    let inner = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit();
    let ends = |c: Option<&u8>| c.is_some_and(|c| inner(*c));
    let bytes = label.as_bytes();
    ends(bytes.first()) && ends(bytes.last()) && bytes.iter().all(|c| inner(*c) || *c == b'-')
}
