//! A provider with arbitrary answers. They must not set reserved labels except instance type, zone
//! and region, nor change taints other than the uninitialized one.

use std::collections::{BTreeMap, BTreeSet};

use arbitrary::{Arbitrary, Unstructured};
use cloud_provider_api::v1alpha1 as api;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, NodeAddress, Taint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::plan::{self, Known};
use crate::provider::{CallError, CallErrorCode};

const PREFIX: &str = "mock://";
const UNINITIALIZED: &str = "node.cloudprovider.kubernetes.io/uninitialized";
/// Labels for facts of the cloud. An instance reports these facts in fields of their own.
const FACTS: [&str; 6] = [
    "node.kubernetes.io/instance-type",
    "beta.kubernetes.io/instance-type",
    "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/region",
];
/// Label keys that a Node may have and a provider may report.
const KEYS: [&str; 8] = [
    "team",
    "example.com/team",
    "kubernetes.io/hostname",
    "node-role.kubernetes.io/control-plane",
    "x.k8s.io/y",
    "grpc-ccm.io/provider",
    "node.kubernetes.io/exclude-from-external-load-balancers",
    "notk8s.io/z",
];
const VALUES: [&str; 4] = ["a", "b", "", "node-1"];

/// One of the known texts, or any text.
fn text<'a>(input: &mut Unstructured<'a>, known: &[&'a str]) -> arbitrary::Result<&'a str> {
    if input.ratio(2, 3)? {
        input.choose(known).copied()
    } else {
        input.arbitrary()
    }
}

fn key<'a>(input: &mut Unstructured<'a>) -> arbitrary::Result<&'a str> {
    if bool::arbitrary(input)? {
        text(input, &KEYS)
    } else {
        text(input, &FACTS)
    }
}

fn labels(input: &mut Unstructured<'_>) -> arbitrary::Result<BTreeMap<String, String>> {
    let count = input.int_in_range(0..=6)?;
    let mut labels = BTreeMap::new();
    for _ in 0..count {
        let (key, value) = (key(input)?, text(input, &VALUES)?);
        labels.insert(key.to_owned(), value.to_owned());
    }
    Ok(labels)
}

fn maybe<'a, T>(
    input: &mut Unstructured<'a>,
    some: impl FnOnce(&mut Unstructured<'a>) -> arbitrary::Result<T>,
) -> arbitrary::Result<Option<T>> {
    bool::arbitrary(input)?.then(|| some(input)).transpose()
}

/// A Node as the API server may have it.
fn node(input: &mut Unstructured<'_>) -> arbitrary::Result<Node> {
    let mut node = Node::default();
    node.metadata.name = Some("node-1".to_owned());
    node.metadata.uid = Some("uid".to_owned());
    let held = labels(input)?.into_iter();
    node.metadata.labels = Some(held.filter(|(key, value)| is_label(key, value)).collect());
    let deleted = maybe(input, |input| input.ratio(1, 8))?.unwrap_or_default();
    node.metadata.deletion_timestamp = deleted.then_some(Time(Timestamp::UNIX_EPOCH));
    let provided = maybe(input, |input| text(input, &["192.0.2.1", "192.0.2.1,::1"]))?;
    node.metadata.annotations = provided.map(|ip| {
        [(
            "alpha.kubernetes.io/provided-node-ip".to_owned(),
            ip.to_owned(),
        )]
        .into()
    });
    let spec = node.spec.get_or_insert_default();
    spec.provider_id =
        maybe(input, |input| text(input, &["mock://1", "aws://1"]))?.map(str::to_owned);
    let mut taints = Vec::new();
    for _ in 0..input.int_in_range(0..=4)? {
        let keys = [UNINITIALIZED, "node.kubernetes.io/not-ready", "team"];
        taints.push(Taint {
            key: text(input, &keys)?.to_owned(),
            value: maybe(input, |input| text(input, &VALUES))?.map(str::to_owned),
            effect: (*input.choose(&["NoSchedule", "NoExecute"])?).to_owned(),
            time_added: None,
        });
    }
    spec.taints = (!taints.is_empty()).then_some(taints);
    let address = maybe(input, |input| text(input, &["192.0.2.1", "node-1"]))?;
    node.status.get_or_insert_default().addresses = address.map(|address| {
        vec![NodeAddress {
            address: address.to_owned(),
            type_: "Hostname".to_owned(),
        }]
    });
    Ok(node)
}

fn answer(input: &mut Unstructured<'_>) -> arbitrary::Result<Result<api::Instance, CallError>> {
    if input.ratio(1, 8)? {
        return Ok(Err(CallError::new(CallErrorCode::Internal, "no")));
    }
    let owned = |text: Option<&str>| text.map(str::to_owned);
    let mut addresses = Vec::new();
    for _ in 0..input.int_in_range(0..=3)? {
        addresses.push(api::NodeAddress {
            r#type: input.int_in_range(0..=6)?,
            address: text(input, &["192.0.2.1", "::1", "node-1"])?.to_owned(),
        });
    }
    Ok(Ok(api::Instance {
        state: input.int_in_range(0..=7)?,
        provider_id: owned(maybe(input, |input| {
            text(input, &["mock://1", "aws://1", ""])
        })?),
        instance_type: owned(maybe(input, |input| text(input, &VALUES))?),
        zone: owned(maybe(input, |input| text(input, &VALUES))?),
        region: owned(maybe(input, |input| text(input, &VALUES))?),
        retry_after: maybe(input, |input| {
            Ok(prost_types::Duration {
                seconds: input.arbitrary()?,
                nanos: input.arbitrary()?,
            })
        })?,
        labels: labels(input)?,
        addresses,
    }))
}

/// The API server's validation, implemented independently: a name of at most 63 bytes, a domain of
/// at most 253.
fn is_label(key: &str, value: &str) -> bool {
    let bytes_fit = |text: &str, more: &[u8]| {
        text.bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || more.contains(&byte))
    };
    let ends_fit = |text: &str| {
        !text.starts_with(|char: char| !char.is_ascii_alphanumeric())
            && !text.ends_with(|char: char| !char.is_ascii_alphanumeric())
    };
    let is_name = |name: &str| name.len() <= 63 && ends_fit(name) && bytes_fit(name, b"-_.");
    let (domain, name) = key.rsplit_once('/').unwrap_or(("none", key));
    let parts_fit = domain
        .split('.')
        .all(|part| !part.is_empty() && ends_fit(part));
    let lower = !domain.bytes().any(|byte| byte.is_ascii_uppercase());
    let domain_fits = domain.len() <= 253 && lower && bytes_fit(domain, b"-.") && parts_fit;
    !name.is_empty() && is_name(name) && domain_fits && is_name(value)
}

/// Whether the key's domain belongs to Kubernetes or the ccm.
pub(crate) fn is_reserved(key: &str) -> bool {
    let domain = key.split_once('/').map_or("", |(domain, _)| domain);
    let roots = ["kubernetes.io", "k8s.io", "grpc-ccm.io"];
    roots
        .iter()
        .any(|root| domain == *root || domain.ends_with(&format!(".{root}")))
}

fn taints(node: &Node) -> Vec<Taint> {
    let spec = node.spec.as_ref();
    spec.and_then(|spec| spec.taints.clone())
        .unwrap_or_default()
}

/// Runs one case: a Node, and an answer about it.
pub(crate) fn nodes(input: &[u8]) {
    // If `arbitrary` refuses the input, there is no case.
    let _ = case(&mut Unstructured::new(input));
}

fn case(input: &mut Unstructured<'_>) -> arbitrary::Result<()> {
    let (node, answer) = (node(input)?, answer(input)?);
    let managed: Option<BTreeSet<String>> =
        maybe(input, |input| Ok(labels(input)?.into_keys().collect()))?;
    let known = Known {
        prefixes: &[PREFIX.to_owned()],
        managed: managed.as_ref(),
    };
    let plan = plan::changes(&node, &answer, known);
    if node.metadata.deletion_timestamp.is_some() {
        assert!(plan.main.is_none() && plan.addresses.is_none());
    }
    let held = node.metadata.labels.clone().unwrap_or_default();
    if let Some(patch) = &plan.main {
        for (key, value) in &patch.labels {
            assert!(is_label(key, value), "{key:?}={value:?} is no label");
            let fact = FACTS.contains(&key.as_str());
            assert!(fact || !is_reserved(key), "{key} is reserved");
            let ours = managed.as_ref().is_some_and(|keys| keys.contains(key));
            assert!(
                fact || ours || !held.contains_key(key),
                "{key} is somebody else's"
            );
        }
        if let Some(left) = &patch.taints {
            let mut expected = taints(&node);
            expected.retain(|taint| taint.key != UNINITIALIZED);
            assert_eq!(*left, expected, "only our taint goes");
            assert!(answer.is_ok(), "the taint stays where nothing is known");
        }
        if let Some(id) = &patch.provider_id {
            let spec = node.spec.as_ref();
            let before = spec
                .and_then(|spec| spec.provider_id.as_deref())
                .unwrap_or_default();
            assert!(before.is_empty(), "a provider ID is for ever");
            assert!(id.starts_with(PREFIX) && id.len() <= 1024, "{id:?}");
        }
    }
    Ok(())
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    crate::fuzz::noise(400)
}
