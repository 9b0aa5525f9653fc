//! The rules for the answers to Get, Ensure, Update and Delete.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use cloud_provider_api::v1alpha1 as pb;
use pb::delete_load_balancer_response::Outcome as Deleted;
use pb::ensure_load_balancer_response::Outcome as Ensured;
use pb::get_load_balancer_response::Outcome as Got;
use pb::update_load_balancer_response::Outcome as Updated;
use prost::Message;

use crate::call::{Answer, Exchange};
use crate::check::Verdict;
use crate::well_formed::{ITEM_BYTES, is_dns_name};

const NAME_BYTES: usize = 253;
const TEXT_BYTES: usize = 1024;
const HANDLE_BYTES: usize = 1024;
/// The longest `retry_after` that a check accepts. The controller clamps it to 10 min. More than a
/// day is most likely a wrong unit.
const LONGEST: Duration = Duration::from_hours(24);

/// The common parts of the answers to Get, Ensure, Update and Delete.
pub(super) trait Said: Answer {
    fn handle(&self) -> Option<&String>;
    fn events(&self) -> &[pb::Event];
    fn target_errors(&self) -> &[pb::TargetError];
    fn outcome(&self) -> Outcome<'_>;
}

/// The common parts of an outcome.
pub(super) enum Outcome<'a> {
    Nothing,
    Status(&'a pb::LoadBalancerStatus),
    Pending(&'a pb::Pending),
    Reason(&'a str),
}

macro_rules! said {
    ($response:ident, $($outcome:pat => $says:expr),+) => {
        impl Said for pb::$response {
            fn handle(&self) -> Option<&String> {
                self.handle.as_ref()
            }
            fn events(&self) -> &[pb::Event] {
                &self.events
            }
            fn target_errors(&self) -> &[pb::TargetError] {
                &self.target_errors
            }
            fn outcome(&self) -> Outcome<'_> {
                match &self.outcome {
                    $(Some($outcome) => $says,)+
                    _ => Outcome::Nothing,
                }
            }
        }
    };
}

said!(GetLoadBalancerResponse, Got::Found(found) => of_status(found.status.as_ref()));
said!(
    EnsureLoadBalancerResponse,
    Ensured::Ready(ready) => of_status(ready.status.as_ref()),
    Ensured::Pending(pending) => Outcome::Pending(pending)
);
said!(UpdateLoadBalancerResponse, Updated::Pending(pending) => Outcome::Pending(pending));
said!(
    DeleteLoadBalancerResponse,
    Deleted::Pending(pending) => Outcome::Pending(pending),
    Deleted::Retained(retained) => Outcome::Reason(&retained.reason)
);

fn of_status(status: Option<&pb::LoadBalancerStatus>) -> Outcome<'_> {
    status.map_or(Outcome::Nothing, Outcome::Status)
}

/// Checks the rules for every answer. A gRPC status passes, because the rules do not apply to it.
pub(super) fn sane<T: Said + Debug>(asked: &Exchange<T>, sent_to: &BTreeSet<String>) -> Verdict {
    let Ok(answer) = &asked.came else {
        return Ok(());
    };
    asked.must(
        answer.says_something(),
        "CORE-4",
        "a oneof `outcome` that is set",
    )?;
    asked.must(
        answer
            .handle()
            .is_none_or(|handle| !handle.is_empty() && handle.len() <= HANDLE_BYTES),
        "LB-3",
        "a handle of 1 to 1,024 bytes, or none",
    )?;
    for event in answer.events() {
        asked.must(
            pb::EventSeverity::try_from(event.severity).is_ok()
                && event.reason.len() <= TEXT_BYTES
                && event.message.len() <= TEXT_BYTES,
            "CORE-11",
            "events of a known severity, reasons and messages of at most 1,024 bytes",
        )?;
    }
    match answer.outcome() {
        Outcome::Nothing => {}
        Outcome::Status(status) => sane_status(asked, status)?,
        Outcome::Pending(pending) => {
            asked.must(
                sane_delay(pending.retry_after.as_ref()),
                "CORE-9",
                "a `retry_after` that is no negative time and not more than a day",
            )?;
            asked.must(
                pending.message.len() <= TEXT_BYTES,
                "CORE-11",
                "a message of at most 1,024 bytes",
            )?;
        }
        Outcome::Reason(reason) => asked.must(
            reason.len() <= TEXT_BYTES,
            "CORE-11",
            "a reason of at most 1,024 bytes",
        )?,
    }
    if let Some(failure) = answer.failed() {
        sane_failure(asked, failure)?;
    }
    let mut named = BTreeSet::new();
    for error in answer.target_errors() {
        asked.must(
            sent_to.contains(&error.node_name) && named.insert(&error.node_name),
            "LB-17",
            "each target error names one of the targets that were sent, and each at most once",
        )?;
        match &error.failure {
            Some(failure) => sane_failure(asked, failure)?,
            None => return Err(asked.broke("LB-17", "a target error that says what went wrong")),
        }
    }
    Ok(())
}

/// Checks that the answer does not contain this handle of a load balancer that is not OURS.
pub(super) fn untold<T: Said + Debug>(asked: &Exchange<T>, handle: Option<&String>) -> Verdict {
    let told = asked.answer()?.handle();
    asked.must(
        told.is_none() || told != handle,
        "LB-32",
        "no handle: the load balancer is not OURS",
    )
}

fn sane_failure<T: Debug>(asked: &Exchange<T>, failure: &pb::Failure) -> Verdict {
    asked.must(
        failure.code() != pb::FailureCode::Unspecified,
        "CORE-15",
        "a failure code that the contract has",
    )?;
    asked.must(
        failure.reason.len() <= TEXT_BYTES && failure.message.len() <= TEXT_BYTES,
        "CORE-11",
        "a reason and a message of at most 1,024 bytes",
    )?;
    asked.must(
        sane_delay(failure.retry_after.as_ref()),
        "CORE-15",
        "a `retry_after` that is no negative time and not more than a day",
    )
}

fn sane_delay(delay: Option<&prost_types::Duration>) -> bool {
    delay.is_none_or(|delay| Duration::try_from(*delay).is_ok_and(|delay| delay <= LONGEST))
}

/// Checks the status for a Service.
fn sane_status<T: Debug>(asked: &Exchange<T>, status: &pb::LoadBalancerStatus) -> Verdict {
    asked.must(
        status.encoded_len() <= ITEM_BYTES,
        "CORE-11",
        "a status of at most 64 KiB",
    )?;
    for point in &status.ingress {
        asked.must(
            point.ip.is_some() || point.hostname.is_some(),
            "LB-19",
            "an address or a host name in each point of the status",
        )?;
        asked.must(
            point
                .ip
                .as_ref()
                .is_none_or(|ip| ip.parse::<IpAddr>().is_ok()),
            "LB-19",
            "an `ip` that is an IPv4 or IPv6 address without a prefix length",
        )?;
        asked.must(
            point
                .ip
                .as_ref()
                .and_then(|ip| ip.parse().ok())
                .is_none_or(|ip| !is_nobodys(ip)),
            "LB-19",
            "an `ip` that a load balancer can have: no loopback, unspecified, link-local, multicast or broadcast address",
        )?;
        asked.must(
            point
                .hostname
                .as_ref()
                .is_none_or(|name| is_host_name(name)),
            "LB-19",
            "a `hostname` that is a DNS name in lower case, of at most 253 bytes",
        )?;
        asked.must(
            point.ip_mode.is_none_or(|mode| {
                point.ip.is_some()
                    && pb::IpMode::try_from(mode).is_ok_and(|mode| mode != pb::IpMode::Unspecified)
            }),
            "CORE-13",
            "an `ip_mode` that is VIP or PROXY, and only beside an `ip`",
        )?;
        for port in &point.ports {
            let known = ["TCP", "UDP", "SCTP"].contains(&port.protocol.as_str());
            asked.must(
                known && (1..=65_535).contains(&port.port),
                "LB-19",
                "ports of 1 to 65535 with protocol TCP, UDP or SCTP",
            )?;
            let error = port.error.as_deref().unwrap_or_default();
            asked.must(
                error.is_empty() || is_condition_reason(error),
                "LB-19",
                "a port's `error` that is CamelCase or domain/CamelCase",
            )?;
        }
    }
    Ok(())
}

/// Whether no load balancer can have this address, because kube-proxy would send a Node's own
/// traffic for it to the Service.
fn is_nobodys(address: IpAddr) -> bool {
    let address = address.to_canonical();
    let link_local = match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    };
    link_local
        || address.is_loopback()
        || address.is_unspecified()
        || address.is_multicast()
        || address == IpAddr::V4(Ipv4Addr::BROADCAST)
}

/// Whether this has the form that the Kubernetes API states for
/// `status.loadBalancer.ingress[].ports[].error`.
fn is_condition_reason(error: &str) -> bool {
    let (domain, name) = match error.split_once('/') {
        Some((domain, name)) => (Some(domain), name.as_bytes()),
        None => (None, error.as_bytes()),
    };
    let outer = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let inner = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.".contains(byte);
    error.len() <= 316
        && domain.is_none_or(is_dns_name)
        && outer(name.first())
        && outer(name.last())
        && name.iter().all(inner)
}

/// Whether the Kubernetes API takes this in `status.loadBalancer.ingress[].hostname`: a DNS name
/// that is no IP address.
fn is_host_name(name: &str) -> bool {
    is_dns_name(name) && name.parse::<IpAddr>().is_err()
}

/// The load balancer in an answer that must not be a failure.
pub(super) fn found(asked: &Exchange<pb::GetLoadBalancerResponse>) -> Verdict<&pb::LoadBalancer> {
    let Some(Got::Found(found)) = &asked.success("CORE-4")?.outcome else {
        return Err(asked.broke("CORE-4", "`found`"));
    };
    let presence = pb::LoadBalancerPresence::try_from(found.presence);
    asked.must(
        presence.is_ok_and(|presence| presence != pb::LoadBalancerPresence::Unspecified),
        "CORE-13",
        "a presence that is ABSENT, PRESENT or REMNANTS",
    )?;
    let is_absent = presence == Ok(pb::LoadBalancerPresence::Absent);
    let ownership = pb::Ownership::try_from(found.ownership);
    asked.must(
        ownership.is_ok_and(|whose| is_absent || whose != pb::Ownership::Unspecified),
        "CORE-13",
        "a known ownership, and UNSPECIFIED only if nothing exists",
    )?;
    asked.must(
        found.load_balancer_name.len() <= NAME_BYTES,
        "CORE-11",
        "a name of at most 253 bytes",
    )?;
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::{is_condition_reason, is_host_name, is_nobodys};

    #[test]
    fn no_load_balancer_has_an_address_of_these() {
        let is = |text: &str| is_nobodys(text.parse().unwrap());
        for bad in [
            "127.0.0.1",
            "0.0.0.0",
            "169.254.1.1",
            "224.0.0.1",
            "255.255.255.255",
            "::1",
            "::",
            "fe80::1",
            "ff02::1",
            "::ffff:127.0.0.1",
        ] {
            assert!(is(bad), "{bad}");
        }
        for good in ["192.0.2.1", "10.0.0.1", "2001:db8::1", "fd00::1"] {
            assert!(!is(good), "{good}");
        }
    }

    #[test]
    fn the_error_of_a_port_is_a_reason_of_a_condition() {
        for good in ["MixedProtocol", "example.com/Quota_1.x", "a"] {
            assert!(is_condition_reason(good), "{good}");
        }
        let long = "a".repeat(317);
        for bad in [
            "",
            "no quota",
            "-a",
            "a-",
            "/a",
            "a/",
            "Example.com/a",
            "a/b/c",
            &long,
        ] {
            assert!(!is_condition_reason(bad), "{bad}");
        }
    }

    #[test]
    fn a_host_name_of_a_status_is_a_dns_name() {
        // As in Kubernetes, a label may have more than 63 bytes.
        let long = "a".repeat(253);
        for good in ["a", "lb-1.example.com", "0.1", &long] {
            assert!(is_host_name(good), "{good}");
        }
        let long = "a".repeat(254);
        for bad in [
            "",
            ".",
            "a.",
            "A.example",
            "a_b",
            "-a",
            "a-",
            "a b",
            "http://a",
            "192.0.2.1",
            &long,
        ] {
            assert!(!is_host_name(bad), "{bad}");
        }
    }
}
