//! The contract's limits (CORE-11), for the vendor's answers and for the size of batches.

use std::net::IpAddr;

use crate::Failure;

pub(super) const NAME_BYTES: usize = 253;
pub(super) const ID_BYTES: usize = 1024;
/// The largest batch if a provider states 0.
const BATCH: u32 = 100;

/// The largest batch of a provider. The contract reads 0 as 100.
pub(super) fn batch_of(stated: u32) -> u32 {
    if stated == 0 { BATCH } else { stated }
}

/// Checks a batch against the capabilities.
pub(super) fn within_batch(what: &str, size: usize, stated: u32) -> Result<(), Failure> {
    let max_batch = batch_of(stated);
    if size > max_batch as usize {
        return Err(Failure::invalid(format!(
            "the request has {size} {what}, more than max_batch {max_batch}"
        )));
    }
    Ok(())
}

/// A fault in the vendor's answer: logs it, and returns `failed: INTERNAL`.
pub(super) fn fault(rpc: &'static str, item: &str, what: impl std::fmt::Display) -> Failure {
    tracing::error!(rpc, item, fault = %what, "the provider's answer breaks the contract");
    Failure::internal(format!("the provider's answer breaks the contract: {what}"))
        .with_reason("ContractBroken")
}

/// Checks that `value` has 1 to `max` bytes.
pub(super) fn fits(what: &str, value: &str, max: usize) -> Result<(), String> {
    if value.is_empty() {
        return Err(format!("{what} is empty"));
    }
    at_most(what, value, max)
}

/// Checks that `value` has at most `max` bytes.
pub(super) fn at_most(what: &str, value: &str, max: usize) -> Result<(), String> {
    if value.len() > max {
        return Err(format!("{what} has {} bytes, more than {max}", value.len()));
    }
    Ok(())
}

/// Checks that `value` is an IP address.
pub(super) fn is_ip(what: &str, value: &str) -> Result<(), String> {
    match value.parse::<IpAddr>() {
        Ok(_) => Ok(()),
        Err(_) => Err(format!("{what} {value:?} is not an IP address")),
    }
}

/// Checks that `value` is a DNS name (RFC 1123), in upper or lower case. As in Kubernetes, a label
/// may have more than 63 bytes.
pub(super) fn is_dns_name(what: &str, value: &str) -> Result<(), String> {
    fits(what, value, NAME_BYTES)?;
    let outer = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let inner = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'-';
    let is_part = |part: &str| {
        let bytes = part.as_bytes();
        outer(bytes.first()) && outer(bytes.last()) && bytes.iter().all(inner)
    };
    if value.split('.').all(is_part) {
        Ok(())
    } else {
        Err(format!("{what} {value:?} is not a DNS name"))
    }
}

/// Whether `value` is a valid label value and not empty.
pub(super) fn is_label_value(value: &str) -> bool {
    let bytes = value.as_bytes();
    let outer = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let inner = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.".contains(byte);
    value.len() <= 63 && outer(bytes.first()) && outer(bytes.last()) && bytes.iter().all(inner)
}
