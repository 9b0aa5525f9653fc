//! The contract's limits (CORE-11), applied to what the vendor answers.

use std::net::IpAddr;

use crate::Failure;

pub(super) const NAME_BYTES: usize = 253;
pub(super) const ID_BYTES: usize = 1024;

/// A fault of the vendor's answer: goes to the log and becomes `failed: INTERNAL`.
pub(super) fn fault(rpc: &'static str, item: &str, what: impl std::fmt::Display) -> Failure {
    tracing::error!(rpc, item, fault = %what, "the provider's answer breaks the contract");
    Failure::internal(format!("the provider's answer breaks the contract: {what}"))
        .with_reason("ContractBroken")
}

/// Whether `value` has 1 to `max` bytes.
pub(super) fn fits(what: &str, value: &str, max: usize) -> Result<(), String> {
    if value.is_empty() {
        return Err(format!("{what} is empty"));
    }
    at_most(what, value, max)
}

/// Whether `value` has at most `max` bytes.
pub(super) fn at_most(what: &str, value: &str, max: usize) -> Result<(), String> {
    if value.len() > max {
        return Err(format!("{what} has {} bytes, more than {max}", value.len()));
    }
    Ok(())
}

/// Whether `value` is an IP address.
pub(super) fn is_ip(what: &str, value: &str) -> Result<(), String> {
    match value.parse::<IpAddr>() {
        Ok(_) => Ok(()),
        Err(_) => Err(format!("{what} {value:?} is not an IP address")),
    }
}
