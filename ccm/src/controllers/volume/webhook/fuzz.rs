//! Arbitrary reviews: the answer's patch turns the sent object into the intended volume.

use std::collections::BTreeMap;

use arbitrary::{Arbitrary, Unstructured};
use k8s_openapi::api::core::v1::PersistentVolume;
use serde_json::{Value, json};

use super::{patch, plan, understand};
use crate::controllers::node::fuzz::is_reserved;

const KEYS: [&str; 4] = [
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "kubernetes.io/reserved",
    "team",
];
const FORMER: [&str; 2] = [
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
];
const VALUES: [&str; 4] = ["a", "b__a", "", "two words"];

fn text<'a>(input: &mut Unstructured<'a>, known: &[&'a str]) -> arbitrary::Result<&'a str> {
    if input.ratio(7, 8)? {
        input.choose(known).copied()
    } else {
        input.arbitrary()
    }
}

/// One review. The first byte is the number of bytes for the provider's labels. These bytes follow,
/// then the body.
pub(crate) fn reviews(input: &[u8]) {
    let Some((&length, rest)) = input.split_first() else {
        return;
    };
    let (first, body) = rest.split_at(usize::from(length).min(rest.len()));
    let mut labels = BTreeMap::new();
    let mut first = Unstructured::new(first);
    while !first.is_empty() && labels.len() < 5 {
        let (Ok(key), Ok(value)) = (text(&mut first, &KEYS), text(&mut first, &VALUES)) else {
            break;
        };
        labels.insert(key.to_owned(), value.to_owned());
        if !bool::arbitrary(&mut first).unwrap_or_default() {
            break;
        }
    }
    let Ok((response, Some(volume))) = understand(body) else {
        return;
    };
    let Ok(Some(labelling)) = plan::answered(&volume, "mock", &labels) else {
        return;
    };
    let wanted = plan::patched(&volume, &labelling.patch);
    let given = volume.metadata.labels.clone().unwrap_or_default();
    for (key, value) in wanted.metadata.labels.iter().flatten() {
        let topology = KEYS[..2].contains(&key.as_str()) || FORMER.contains(&key.as_str());
        let held = given.get(key) == Some(value);
        assert!(held || topology || !is_reserved(key), "{key}");
    }
    let response = patch(response, &volume, &labelling).expect("a patch");
    assert!(response.allowed);
    // Applies the patch to the sent object, as the API server does.
    let Ok(sent) = serde_json::from_slice::<Value>(body) else {
        // The webhook skips unknown fields. `Value` cannot hold all of them, for example `1e999`.
        return;
    };
    let mut stored = sent["request"]["object"].clone();
    // An object without metadata has passed no API server.
    if !stored["metadata"].is_object() {
        return;
    }
    let bytes = response.patch.expect("there is something to write");
    let patch: json_patch::Patch = serde_json::from_slice(&bytes).expect("a JSON patch");
    json_patch::patch(&mut stored, &patch).expect("it can be applied");
    let stored: PersistentVolume = serde_json::from_value(stored).expect("it is a volume still");
    assert_eq!(stored, wanted);
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let review = |object: Value| {
        json!({
            "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
            "request": {
                "uid": "r-1", "operation": "CREATE", "name": "one", "dryRun": false,
                "kind": {"group": "", "version": "v1", "kind": "PersistentVolume"},
                "resource": {"group": "", "version": "v1", "resource": "persistentvolumes"},
                "userInfo": {"username": "u"}, "object": object,
            },
        })
    };
    let spec = json!({"csi": {"driver": "disk.mock.grpc-ccm.io", "volumeHandle": "d-1"}});
    let term = json!([{"matchExpressions": [{"key": "k", "operator": "In", "values": ["v"]}]}]);
    let objects = [
        json!({"metadata": {"name": "one"}, "spec": spec}),
        json!({"metadata": {"name": "one", "labels": {"team": "x"}, "annotations": {}}, "spec": spec}),
        json!({"metadata": {"name": "one", "labels": null}, "spec": {
            "csi": spec["csi"], "nodeAffinity": {"required": {"nodeSelectorTerms": term}}}}),
        json!({"metadata": {"name": "one"}, "more": 1, "spec": {
            "awsElasticBlockStore": {"volumeID": "vol-1"}, "nodeAffinity": null}}),
    ];
    let mut seeds = Vec::new();
    for (number, object) in (0_u8..).zip(objects) {
        let labels = [0, number, 0, 1, 1, 0, 0, number / 2, 0, 0, 1, 1];
        let body = review(object).to_string();
        seeds.push([&[12][..], &labels, body.as_bytes()].concat());
    }
    seeds
}
