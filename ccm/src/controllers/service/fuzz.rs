//! A user edits annotations and classes, and a provider gives arbitrary answers. The controller
//! must not use the handle of another provider, delete a load balancer that it does not hold, or
//! write annotations and addresses that are not allowed.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use arbitrary::{Arbitrary, Unstructured};
use cloud_provider_api::v1alpha1 as api;
use ipnet::IpNet;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{LoadBalancerStatus, Service, ServiceSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use prost::Message;
use serde_json::{Value, json};

use super::answer::{self, Answer, Call, Verdict};
use super::handle::ANNOTATION;
use super::notes::Op;
use super::plan::{FINALIZER, Facts, Step, handle_to_send, next_step};
use super::record::{Cloud, Record};
use super::targets::NodeSelector;
use crate::core::text::TEXT_LIMIT;
use crate::provider::Parts;
use crate::writes::ServicePatch;

const ME: &str = "mock";
const UID: &str = "uid-1";
const CLASSES: [&str; 3] = ["", "mock.io/fast", "other.io/lb"];
const PREFIXES: [&str; 2] = ["mock.io/", "plain-"];
const RANGE: &str = "10.96.0.0/12";

fn any<'a>(input: &mut Unstructured<'a>, known: &[&'a str]) -> arbitrary::Result<&'a str> {
    if input.ratio(3, 4)? {
        input.choose(known).copied()
    } else {
        input.arbitrary()
    }
}

/// An annotation as somebody may have written it.
fn annotation(input: &mut Unstructured<'_>) -> arbitrary::Result<Option<String>> {
    let mut record = json!({});
    for (field, known) in [
        ("provider", &[ME, "other", ""][..]),
        ("uid", &[UID, "uid-2"]),
        ("class", &CLASSES),
        ("handle", &["lb-1", "lb-2", ""]),
    ] {
        if input.ratio(3, 4)? {
            record[field] = any(input, known)?.into();
        }
    }
    Ok(match input.int_in_range(0..=5)? {
        0 => None,
        1 => Some(String::arbitrary(input)?),
        _ => Some(record.to_string()),
    })
}

fn service(input: &mut Unstructured<'_>) -> arbitrary::Result<Service> {
    let mut annotations = BTreeMap::new();
    if let Some(text) = annotation(input)? {
        annotations.insert(ANNOTATION.to_owned(), text);
    }
    let finalizers = [&[][..], &[FINALIZER], &["other"], &["other", FINALIZER]];
    let finalizers = input.choose(&finalizers)?.iter().map(|it| (*it).to_owned());
    let class = any(input, &CLASSES)?;
    Ok(Service {
        metadata: ObjectMeta {
            name: Some("web".into()),
            namespace: Some("default".into()),
            uid: Some(UID.into()),
            annotations: Some(annotations),
            finalizers: Some(finalizers.collect()),
            deletion_timestamp: input.ratio(1, 3)?.then_some(Time(Timestamp::UNIX_EPOCH)),
            ..ObjectMeta::default()
        },
        spec: Some(ServiceSpec {
            type_: Some((*input.choose(&["LoadBalancer", "ClusterIP"])?).to_owned()),
            load_balancer_class: (!class.is_empty()).then(|| class.to_owned()),
            ..ServiceSpec::default()
        }),
        status: None,
    })
}

/// An independent parser of the annotation: provider, class and handle, if it is for this Service.
fn written(service: &Service) -> Option<Value> {
    let annotations = service.metadata.annotations.as_ref()?;
    let record: Value = serde_json::from_str(annotations.get(ANNOTATION)?).ok()?;
    let whose = &record["uid"];
    (whose.is_null() || whose == UID).then_some(record)
}

fn holds_finalizer(service: &Service) -> bool {
    let finalizers = service.metadata.finalizers.as_deref().unwrap_or_default();
    finalizers.iter().any(|name| name == FINALIZER)
}

/// One Service in any state: checks the next step and the handle of the next call.
pub(crate) fn services(input: &[u8]) {
    let _ = decide(&mut Unstructured::new(input));
}

fn decide(input: &mut Unstructured<'_>) -> arbitrary::Result<()> {
    let service = Arc::new(service(input)?);
    let mut record = None;
    if bool::arbitrary(input)? {
        let mut known = Record::new(&service);
        let (touched, gone) = (bool::arbitrary(input)?, input.ratio(1, 4)?);
        known.check = bool::arbitrary(input)?;
        let by = (*input.choose(&[ME, ME, "other"])?).to_owned();
        known.cloud = match (touched, gone) {
            (_, true) => Cloud::Deleted,
            (true, false) => Cloud::MayStand { by },
            (false, false) => Cloud::Unknown,
        };
        if input.ratio(1, 4)? {
            let by = *input.choose(&[ME, "other"])?;
            known.unsaved_handle = Some((by.to_owned(), "lb-unsaved".to_owned()));
        }
        record = Some(known);
    }
    let class = service
        .spec
        .as_ref()
        .and_then(|spec| spec.load_balancer_class.as_deref());
    let capability = api::LoadBalancerCapability {
        classes: vec![CLASSES[1].to_owned()],
        default_class: bool::arbitrary(input)?,
        in_sync: bool::arbitrary(input)?,
        ..Default::default()
    };
    let facts = Facts {
        me: ME,
        departed: false,
        owner: class.map_or(capability.default_class, |class| class == CLASSES[1]),
        capability: &capability,
    };
    let written = written(&service);
    let said = |field: &str| written.as_ref().and_then(|it| it[field].as_str());

    if let Some(handle) = handle_to_send(&service, record.as_ref(), ME) {
        assert!((1..=TEXT_LIMIT).contains(&handle.len()), "{handle:?}");
        let unsaved = record.as_ref().and_then(|it| it.unsaved_handle.as_ref());
        let given = unsaved == Some(&(ME.to_owned(), handle.clone()));
        let stored = said("provider") == Some(ME) && said("handle") == Some(&handle);
        assert!(given || stored, "{handle:?} is another's: {written:?}");
    }
    let ours = record.as_ref().and_then(|record| record.cloud.by()) == Some(ME);
    match next_step(&service, record.as_ref(), None, &facts) {
        Step::Delete => {
            // An annotation without a provider is invalid, so its class does not count.
            let by = said("provider").filter(|by| !by.is_empty());
            let held = holds_finalizer(&service) && by.is_none_or(|by| by == ME);
            let class = by.and(said("class")).unwrap_or_default();
            let served = class.is_empty() || class == CLASSES[1];
            assert!(ours || (held && served), "{written:?} {record:?}");
        }
        Step::AddFinalizer(patch) | Step::StoreHandle(patch) => check_record(&patch, &service),
        Step::Get | Step::Ensure | Step::Update => {
            assert!(facts.owner && said("provider").is_none_or(|by| by == ME || by.is_empty()));
            assert!(holds_finalizer(&service), "no call before the finalizer");
        }
        Step::Release { metadata, .. } => {
            let known = record.as_ref();
            assert!(
                known.is_some_and(|known| known.cloud == Cloud::Deleted),
                "released although a load balancer may exist"
            );
            if let Some(finalizers) = metadata.and_then(|patch| patch.finalizers) {
                assert!(!finalizers.iter().any(|name| name == FINALIZER));
            }
        }
        Step::Ignore | Step::Blocked { .. } => {}
    }
    Ok(())
}

/// The patch writes only the ccm's annotation and removes no finalizer.
fn check_record(patch: &ServicePatch, service: &Service) {
    assert!(patch.annotations.keys().all(|key| key == ANNOTATION));
    if let Some(finalizers) = &patch.finalizers {
        let before = service.metadata.finalizers.as_deref().unwrap_or_default();
        assert!(before.iter().all(|name| finalizers.contains(name)));
    }
}

/// One answer to a call about a Service with arbitrary annotations. The first byte chooses the
/// call, and the second is the length of the Service's part.
pub(crate) fn balancers(input: &[u8]) {
    let [call, length, rest @ ..] = input else {
        return;
    };
    let (first, message) = rest.split_at(usize::from(*length).min(rest.len()));
    let Ok(service) = service(&mut Unstructured::new(first)) else {
        return;
    };
    let prefixes = PREFIXES.map(str::to_owned);
    let ranges: [IpNet; 1] = [RANGE.parse().expect("a range")];
    let handle = handle_to_send(&service, None, ME);
    let sent = Call {
        op: [Op::Get, Op::Ensure, Op::Update, Op::Delete][usize::from(call % 4)],
        me: ME,
        departed: false,
        service: &service,
        handle: handle.as_deref(),
        targets: None,
        adopt_unmarked: false,
        prefixes: &prefixes,
        service_ranges: &ranges,
    };
    let answer = match call % 4 {
        0 => api::GetLoadBalancerResponse::decode(message)
            .map(|it| answer::after_get(&sent, it.parts("GetLoadBalancer"))),
        1 => api::EnsureLoadBalancerResponse::decode(message)
            .map(|it| answer::after_ensure(&sent, it.parts("EnsureLoadBalancer"))),
        2 => api::UpdateLoadBalancerResponse::decode(message)
            .map(|it| answer::after_update(&sent, it.parts("UpdateLoadBalancer"))),
        _ => api::DeleteLoadBalancerResponse::decode(message)
            .map(|it| answer::after_delete(&sent, it.parts("DeleteLoadBalancer"))),
    };
    if let Ok(answer) = answer {
        check_answer(answer, &sent);
    }
}

fn check_answer(answer: Answer, sent: &Call<'_>) {
    let Answer {
        new_handle,
        metadata,
        verdict,
        ..
    } = answer;
    assert!(new_handle.is_none_or(|handle| (1..=TEXT_LIMIT).contains(&handle.len())));
    for (key, value) in metadata.iter().flat_map(|patch| &patch.annotations) {
        let granted = PREFIXES.iter().any(|prefix| key.starts_with(prefix));
        let ours = key == ANNOTATION && value.is_some();
        assert!(
            ours || (granted && !key.starts_with("grpc-ccm.io/")),
            "{key}"
        );
    }
    assert!(metadata.is_none_or(|patch| patch.finalizers.is_none()));
    match verdict {
        Verdict::Ready(status, _) => {
            assert!(status.ingress.as_ref().is_some_and(|it| !it.is_empty()));
            check_status(&status);
        }
        Verdict::InSync(Some(status)) => check_status(&status),
        Verdict::Gone { .. } => {}
        _ => assert!(sent.me == ME),
    }
}

/// Checks that no address is unspecified, loopback, link-local, multicast or broadcast, or in the
/// cluster's Service range.
fn check_status(status: &LoadBalancerStatus) {
    for point in status.ingress.iter().flatten() {
        assert!(point.ip.is_some() || point.hostname.is_some());
        let Some(text) = &point.ip else { continue };
        let ip: IpAddr = text.parse().expect("an address");
        let octets = match ip.to_canonical() {
            IpAddr::V4(ip) => ip.octets().to_vec(),
            IpAddr::V6(ip) => ip.octets().to_vec(),
        };
        let wrong = match octets.as_slice() {
            [10, second, _, _] => (96..112).contains(second),
            [169, 254, _, _] | [0, 0, 0, 0] | [255, 255, 255, 255] => true,
            [first, _, _, _] => *first == 127 || (224..240).contains(first),
            // Link-local, multicast, `::` and `::1`.
            [0xfe, second, ..] => second & 0xc0 == 0x80,
            [0xff, ..] => true,
            all => all.iter().rev().skip(1).all(|byte| *byte == 0) && all.last() <= Some(&1),
        };
        assert!(!wrong, "{ip}");
    }
}

/// A node selector on a Service, written by a user.
pub(crate) fn selector(text: &str) {
    let mut service = Service::default();
    let key = "grpc-ccm.io/node-selector".to_owned();
    service.metadata.annotations = Some([(key, text.to_owned())].into());
    let node = k8s_openapi::api::core::v1::Node::default();
    match NodeSelector::of(&service) {
        Ok(selector) => {
            // A selector that asks for a label does not match a Node without labels.
            let asks = !text.trim().is_empty() && !text.contains('!') && !text.contains("notin");
            assert!(!(asks && selector.matches(&node)), "{text:?}");
        }
        Err(error) => assert!(error.contains("grpc-ccm.io/node-selector")),
    }
}

pub(crate) fn service_seeds() -> Vec<Vec<u8>> {
    crate::fuzz::noise(400)
}

pub(crate) fn balancer_seeds() -> Vec<Vec<u8>> {
    use api::ensure_load_balancer_response::Outcome;
    let ready = |ip: &str| api::EnsureLoadBalancerResponse {
        handle: Some("lb-1".into()),
        annotations: Some(api::AnnotationChanges {
            set: [("mock.io/a".to_owned(), "b".to_owned())].into(),
            remove: vec!["plain-b".into()],
        }),
        outcome: Some(Outcome::Ready(api::LoadBalancerReady {
            status: Some(api::LoadBalancerStatus {
                ingress: vec![api::LoadBalancerIngress {
                    ip: Some(ip.to_owned()),
                    ..Default::default()
                }],
            }),
        })),
        ..Default::default()
    };
    let addresses = [
        "192.0.2.1",
        "10.95.255.255",
        "127.0.0.2",
        "::ffff:10.97.0.1",
        "fe80::1",
        "::1",
    ];
    let answers = addresses.map(|ip| ready(ip).encode_to_vec());
    let noise = crate::fuzz::noise(64);
    let seed = |(first, message): (&Vec<u8>, Vec<u8>)| [&[1, 64][..], first, &message].concat();
    noise.iter().zip(answers).map(seed).collect()
}
