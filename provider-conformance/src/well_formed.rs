//! Rules that need no knowledge of the cloud: lengths, enum values, addresses, labels.

use std::fmt::Debug;
use std::net::IpAddr;
use std::time::Duration;

use cloud_provider_api::v1alpha1 as pb;
use ipnet::IpNet;
use prost::Message;

use super::call::Exchange;
use super::check::{Stop, Verdict};

/// The most bytes of a name, a prefix or a class (CORE-11), and of a DNS name.
pub(super) const NAME_BYTES: usize = 253;
/// The most bytes of a provider ID, a handle, a message or a reason (CORE-11).
pub(super) const TEXT_BYTES: usize = 1_024;
/// The most bytes of an instance, a status or the labels of a volume (CORE-11).
pub(super) const ITEM_BYTES: usize = 64 * 1024;

/// A violated rule, and the part of an answer that violates it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Broken {
    rule: &'static str,
    expected: String,
    came: String,
}

/// `Err`: the violated rule.
pub(super) type Judged = Result<(), Broken>;

impl Broken {
    /// The failure of a check, with the call whose answer violates the rule.
    pub(super) fn in_answer_to<T: Debug>(self, exchange: &Exchange<T>) -> Stop {
        Stop::failed(self.rule, exchange.sent(), self.expected, self.came)
    }
}

/// Fails if one of these parts of an answer violates a rule.
pub(super) fn judge<T: Debug>(
    exchange: &Exchange<T>,
    parts: impl IntoIterator<Item = Judged>,
) -> Verdict {
    let judged: Judged = parts.into_iter().collect();
    judged.map_err(|broken| broken.in_answer_to(exchange))
}

fn broken(rule: &'static str, expected: impl Into<String>, came: impl Into<String>) -> Judged {
    Err(Broken {
        rule,
        expected: expected.into(),
        came: came.into(),
    })
}

fn at_most(what: &str, text: &str, most: usize) -> Judged {
    if text.len() <= most {
        return Ok(());
    }
    broken(
        "CORE-11",
        format!("{what} has at most {most} bytes"),
        format!("{} bytes: {text:?}", text.len()),
    )
}

/// Checks a part of an answer that goes into a Kubernetes object.
fn fits_an_object(what: &str, item: &impl Message) -> Judged {
    let bytes = item.encoded_len();
    if bytes <= ITEM_BYTES {
        return Ok(());
    }
    broken(
        "CORE-11",
        format!("{what} has at most {ITEM_BYTES} bytes"),
        format!("{bytes} bytes"),
    )
}

/// A required name.
pub(super) fn name(what: &str, text: &str) -> Judged {
    if text.is_empty() {
        return broken(
            "CORE-11",
            format!("{what} is 1 to 253 bytes"),
            "it is empty",
        );
    }
    at_most(what, text, NAME_BYTES)
}

fn duration(what: &str, given: Option<&prost_types::Duration>) -> Judged {
    match given {
        Some(given) if Duration::try_from(*given).is_err() => broken(
            "CORE-15",
            format!("{what} is a duration that is not negative"),
            format!("{given:?}"),
        ),
        _ => Ok(()),
    }
}

/// A required enum value.
fn known<E: TryFrom<i32> + Default + PartialEq>(what: &str, value: i32) -> Result<E, Broken> {
    match E::try_from(value) {
        Ok(value) if value != E::default() => Ok(value),
        _ => Err(Broken {
            rule: "CORE-13",
            expected: format!("{what} has a value that the contract knows, and not UNSPECIFIED"),
            came: value.to_string(),
        }),
    }
}

/// A failure: a code of the contract, and texts within their limits.
pub(super) fn failure(failure: &pb::Failure) -> Judged {
    known::<pb::FailureCode>("failed.code", failure.code)?;
    at_most("failed.reason", &failure.reason, TEXT_BYTES)?;
    at_most("failed.message", &failure.message, TEXT_BYTES)?;
    duration("failed.retry_after", failure.retry_after.as_ref())
}

fn is_qualified(text: &str) -> bool {
    let bytes = text.as_bytes();
    let outer = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let inner = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.".contains(byte);
    text.len() <= 63 && outer(bytes.first()) && outer(bytes.last()) && bytes.iter().all(inner)
}

/// Whether this can be the value of a label.
pub(super) fn is_label_value(text: &str) -> bool {
    text.is_empty() || is_qualified(text)
}

/// Whether this can be the key of a label.
pub(super) fn is_label_key(text: &str) -> bool {
    match text.split_once('/') {
        None => is_qualified(text),
        Some((domain, name)) => is_qualified(name) && is_dns_name(domain),
    }
}

/// Whether this is a DNS name for Kubernetes (RFC 1123 subdomain). Its labels have any length.
pub(super) fn is_dns_name(text: &str) -> bool {
    let outer = |c: &u8| c.is_ascii_lowercase() || c.is_ascii_digit();
    let is_label = |label: &str| {
        let bytes = label.as_bytes();
        bytes.first().is_some_and(outer)
            && bytes.last().is_some_and(outer)
            && bytes.iter().all(|c| outer(c) || *c == b'-')
    };
    text.len() <= NAME_BYTES && text.split('.').all(is_label)
}

/// Whether a label with this key is Kubernetes' own.
pub(super) fn is_reserved(key: &str) -> bool {
    let domain = key.split_once('/').map_or("", |(domain, _)| domain);
    ["kubernetes.io", "k8s.io"].iter().any(|root| {
        domain
            .strip_suffix(root)
            .is_some_and(|head| head.is_empty() || head.ends_with('.'))
    })
}

/// An optional text that must be a valid label value and not empty.
fn label_value(rule: &'static str, what: &str, text: Option<&String>) -> Judged {
    match text {
        Some(text) if text.is_empty() || !is_label_value(text) => broken(
            rule,
            format!("{what} is left out or is a valid label value of 1 to 63 bytes"),
            format!("{text:?}"),
        ),
        _ => Ok(()),
    }
}

/// Addresses of a Node: each has a known type, and is an IP address or a name, as the type asks.
pub(super) fn addresses(addresses: &[pb::NodeAddress]) -> Judged {
    use pb::NodeAddressType as Type;

    for address in addresses {
        let text = &address.address;
        match known("an address's type", address.r#type)? {
            Type::InternalIp | Type::ExternalIp if text.parse::<IpAddr>().is_err() => {
                return broken(
                    "INST-8",
                    "an address of this type is an IPv4 or IPv6 address, without a prefix length",
                    format!("{text:?}"),
                );
            }
            Type::Hostname | Type::InternalDns | Type::ExternalDns => {
                name("an address", text)?;
                if !is_dns_name(&text.to_ascii_lowercase()) {
                    let expected = "an address of this type is a DNS name, in upper or lower case";
                    return broken("INST-8", expected, format!("{text:?}"));
                }
            }
            _ => {}
        }
    }
    Ok(())
}

/// Whether an instance in this state exists.
pub(super) fn exists(state: pb::InstanceState) -> bool {
    use pb::InstanceState as State;

    matches!(state, State::Present | State::Running | State::Stopped)
}

/// An instance in LookupInstances or ListInstances. `with_id`: an existing instance must have a
/// provider ID.
pub(super) fn instance(instance: &pb::Instance, prefixes: &[String], with_id: bool) -> Judged {
    fits_an_object("an instance", instance)?;
    let state: pb::InstanceState = known("state", instance.state)?;
    match &instance.provider_id {
        Some(id) => {
            at_most("provider_id", id, TEXT_BYTES)?;
            if !prefixes.iter().any(|prefix| id.starts_with(prefix)) {
                return broken(
                    "PROV-8",
                    format!("provider_id begins with one of {prefixes:?}"),
                    format!("{id:?}"),
                );
            }
        }
        None if with_id && exists(state) => {
            return broken(
                "INST-7",
                "an instance that exists has a provider_id",
                format!("{instance:?}"),
            );
        }
        None => {}
    }
    label_value("INST-8", "instance_type", instance.instance_type.as_ref())?;
    label_value("INST-8", "zone", instance.zone.as_ref())?;
    label_value("INST-8", "region", instance.region.as_ref())?;
    addresses(&instance.addresses)?;
    duration("retry_after", instance.retry_after.as_ref())
}

/// A zone in LookupZones.
pub(super) fn zone(zone: &pb::Zone) -> Judged {
    label_value("ZONE-2", "zone", zone.zone.as_ref())?;
    label_value("ZONE-2", "region", zone.region.as_ref())
}

fn is_cidr(text: &str) -> bool {
    text.split_once('/').is_some_and(|(address, prefix)| {
        let bits = match address.parse() {
            Ok(IpAddr::V4(_)) => 32,
            Ok(IpAddr::V6(_)) => 128,
            Err(_) => return false,
        };
        prefix.parse::<u8>().is_ok_and(|prefix| prefix <= bits)
    })
}

/// The canonical form of a destination, which is compared as a network (ROUTE-8). A text that is no
/// CIDR stays as it is.
pub(super) fn network(cidr: &str) -> String {
    cidr.parse::<IpNet>()
        .map_or_else(|_| cidr.to_owned(), |net| net.trunc().to_string())
}

/// A route in ListRoutes.
pub(super) fn route(route: &pb::Route) -> Judged {
    name("the name of a route", &route.name)?;
    known::<pb::Ownership>("the ownership of a route", route.ownership)?;
    let shown = || format!("{route:?}");
    if !is_cidr(&route.destination_cidr) {
        return broken("ROUTE-5", "destination_cidr is a CIDR", shown());
    }
    let target = [&route.node_name, &route.provider_id, &route.next_hop];
    let ours = route.ownership() == pb::Ownership::Ours;
    if ours && !route.blackhole && target.iter().all(|part| part.is_none()) {
        return broken(
            "ROUTE-5",
            "a route of ours that is no blackhole has a node_name, a provider_id or a next_hop",
            shown(),
        );
    }
    if let Some(node) = &route.node_name {
        name("the node_name of a route", node)?;
    }
    if let Some(id) = &route.provider_id {
        at_most("the provider_id of a route", id, TEXT_BYTES)?;
    }
    match &route.next_hop {
        Some(hop) if hop.parse::<IpAddr>().is_err() => {
            return broken("ROUTE-5", "next_hop is an IP address", shown());
        }
        _ => {}
    }
    addresses(&route.node_addresses)
}

/// The labels of a volume.
pub(super) fn volume_labels(labels: &pb::VolumeLabels) -> Judged {
    fits_an_object("the labels of a volume", labels)?;
    for (key, value) in &labels.labels {
        if !is_label_key(key) || !is_label_value(value) {
            return broken(
                "VOL-4",
                "the keys and values of labels are valid in Kubernetes",
                format!("{key:?}: {value:?}"),
            );
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    type Change<T> = fn(&mut T);

    fn rule(judged: Judged) -> &'static str {
        judged.map_or_else(|broken| broken.rule, |()| "")
    }

    fn found() -> pb::Instance {
        pb::Instance {
            state: pb::InstanceState::Running.into(),
            provider_id: Some("x://1".into()),
            zone: Some("z-1".into()),
            addresses: vec![address(pb::NodeAddressType::InternalIp, "fd00::1")],
            ..Default::default()
        }
    }

    fn address(kind: pb::NodeAddressType, text: &str) -> pb::NodeAddress {
        pb::NodeAddress {
            r#type: kind.into(),
            address: text.into(),
        }
    }

    #[test]
    fn an_instance_breaks_the_rule_that_it_breaks() {
        let named = |text: &str| pb::Instance {
            addresses: vec![address(pb::NodeAddressType::Hostname, text)],
            ..found()
        };
        for (text, expected) in [
            ("Host-1.example.com", ""),
            ("10.0.0.1", ""),
            ("host_1", "INST-8"),
            ("-host", "INST-8"),
            ("host..example.com", "INST-8"),
            ("", "CORE-11"),
        ] {
            let judged = instance(&named(text), &["x://".into()], true);
            assert_eq!(rule(judged), expected, "{text:?}");
        }
        let changes: [(Change<pb::Instance>, &str); 13] = [
            (|_| {}, ""),
            (|one| one.state = 0, "CORE-13"),
            (|one| one.state = 99, "CORE-13"),
            (|one| one.provider_id = None, "INST-7"),
            (|one| one.provider_id = Some(String::new()), "PROV-8"),
            (|one| one.provider_id = Some("y://1".into()), "PROV-8"),
            (
                |one| one.provider_id = Some(format!("x://{}", "1".repeat(1_020))),
                "",
            ),
            (
                |one| one.provider_id = Some(format!("x://{}", "1".repeat(1_021))),
                "CORE-11",
            ),
            (|one| one.zone = Some("zone 1".into()), "INST-8"),
            (|one| one.instance_type = Some(String::new()), "INST-8"),
            (|one| one.addresses[0].address.push_str("/64"), "INST-8"),
            (|one| one.addresses[0].r#type = 0, "CORE-13"),
            (
                |one| one.addresses = vec![one.addresses[0].clone(); 6_000],
                "CORE-11",
            ),
        ];
        for (index, (change, expected)) in changes.into_iter().enumerate() {
            let mut one = found();
            change(&mut one);
            let judged = instance(&one, &["x://".into()], true);
            assert_eq!(rule(judged), expected, "{index}");
        }
        let absent = pb::Instance {
            state: pb::InstanceState::Absent.into(),
            ..Default::default()
        };
        assert_eq!(rule(instance(&absent, &[], true)), "");
    }

    #[test]
    fn a_route_needs_a_destination_an_owner_and_a_target() {
        let whole = pb::Route {
            name: "r".into(),
            destination_cidr: "10.0.1.0/24".into(),
            node_name: Some("a".into()),
            ownership: pb::Ownership::Ours.into(),
            ..Default::default()
        };
        let changes: [(Change<pb::Route>, &str); 8] = [
            (|_| {}, ""),
            (|one| one.name.clear(), "CORE-11"),
            (|one| one.ownership = 0, "CORE-13"),
            (|one| one.destination_cidr = "10.0.1.0".into(), "ROUTE-5"),
            (|one| one.node_name = None, "ROUTE-5"),
            (|one| (one.node_name, one.blackhole) = (None, true), ""),
            (
                |one| {
                    one.node_name = None;
                    one.ownership = pb::Ownership::Unmarked.into();
                },
                "",
            ),
            (|one| one.next_hop = Some("10.0.0.1/32".into()), "ROUTE-5"),
        ];
        for (index, (change, expected)) in changes.into_iter().enumerate() {
            let mut one = whole.clone();
            change(&mut one);
            assert_eq!(rule(route(&one)), expected, "{index}");
        }
    }

    #[test]
    fn labels_and_failures_are_what_kubernetes_and_the_contract_take() {
        let long = format!("{}/c", "a".repeat(253));
        for (key, valid) in [
            ("a", true),
            (&long, true),
            ("a.b/c", true),
            ("A.b/c", false),
            ("a/", false),
            ("", false),
        ] {
            assert_eq!(is_label_key(key), valid, "{key}");
        }
        for (value, valid) in [("", true), ("a_b.C", true), ("-a", false), ("ä", false)] {
            assert_eq!(is_label_value(value), valid, "{value}");
        }
        let zones = |value: &str| {
            let labels = [("topology.kubernetes.io/zone".into(), value.into())].into();
            rule(volume_labels(&pb::VolumeLabels { labels }))
        };
        assert_eq!(zones("z-1__z-2"), "");
        assert_eq!(zones("z 1"), "VOL-4");
        let mut failed = pb::Failure {
            code: pb::FailureCode::Busy.into(),
            ..Default::default()
        };
        assert_eq!(rule(failure(&failed)), "");
        failed.message = "x".repeat(1_025);
        assert_eq!(rule(failure(&failed)), "CORE-11");
        failed.code = 0;
        assert_eq!(rule(failure(&failed)), "CORE-13");
    }
}
