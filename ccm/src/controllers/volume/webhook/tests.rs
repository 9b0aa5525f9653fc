//! Reviews with the mock provider in memory.

use std::collections::BTreeMap;

use provider_mock::{Cloud, Fault, FaultKind, Fixture};
use provider_sdk::FailureCode;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::super::plan::MARK;
use super::*;
use crate::provider::testing::{InMemory, Running, maintained};

const ZONE: &str = "topology.kubernetes.io/zone";
const GET: &str = "GetVolumeLabels";
const PATIENCE: Duration = Duration::from_secs(5);

struct Bench {
    cloud: Cloud,
    running: Running,
    webhook: Webhook,
}

impl Bench {
    /// The webhook of a leader. The cloud has disk d-1 in zones b and a.
    async fn new() -> Self {
        let bench = Self::standby().await;
        bench.running.lead();
        bench.running.session().await;
        bench
    }

    async fn standby() -> Self {
        let labels = BTreeMap::from([(ZONE.to_owned(), "b__a".to_owned())]);
        let fixture = Fixture {
            volumes: [("d-1".to_owned(), labels)].into(),
            ..Fixture::default()
        };
        let cloud = Cloud::new(fixture).unwrap();
        let service = provider_mock::service(&cloud, |_| {}).await.unwrap();
        let running = maintained(InMemory::running(service));
        running
            .until("a provider", |status| status.info.is_some())
            .await;
        let webhook = Webhook::new("mock".into(), running.status.clone(), true);
        Self {
            cloud,
            running,
            webhook,
        }
    }

    async fn review(&self, review: &Value) -> Value {
        let body = serde_json::to_vec(review).unwrap();
        let answer = self.webhook.review(&body, PATIENCE).await.unwrap();
        serde_json::from_slice(&answer).unwrap()
    }

    /// The volume as stored after its review, and the warning.
    async fn created(&self, volume: &Value) -> (Value, Option<String>) {
        let answer = self.review(&create(volume)).await;
        assert_eq!(answer["apiVersion"], "admission.k8s.io/v1");
        assert_eq!(answer["kind"], "AdmissionReview");
        let response = &answer["response"];
        assert_eq!(
            (&response["uid"], &response["allowed"]),
            (&json!("r-1"), &json!(true))
        );
        let mut stored = volume.clone();
        if !response["patch"].is_null() {
            assert_eq!(response["patchType"], "JSONPatch");
            let patch: Vec<u8> = serde_json::from_value(response["patch"].clone()).unwrap();
            let patch: json_patch::Patch = serde_json::from_slice(&patch).unwrap();
            json_patch::patch(&mut stored, &patch).unwrap();
        }
        let warning = response["warnings"][0].as_str().map(str::to_owned);
        (stored, warning)
    }
}

fn disk(handle: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "PersistentVolume",
        "metadata": {"name": "pv", "creationTimestamp": null},
        "spec": {
            "csi": {"driver": "disk.mock.grpc-ccm.io", "volumeHandle": handle},
            "accessModes": ["ReadWriteOnce"], "fromTheFuture": {"x": 1},
        },
        "status": {},
    })
}

fn create(object: &Value) -> Value {
    json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "r-1", "operation": "CREATE", "name": "pv", "dryRun": false, "userInfo": {},
            "kind": {"group": "", "version": "v1", "kind": "PersistentVolume"},
            "resource": {"group": "", "version": "v1", "resource": "persistentvolumes"},
            "object": object, "oldObject": null,
        },
    })
}

#[tokio::test(start_paused = true)]
async fn b_v1_a_volume_is_created_with_its_labels_and_its_affinity() {
    let bench = Bench::new().await;
    let mut volume = disk("d-1");
    let expression = |key: &str| json!({"key": key, "operator": "In", "values": ["1"]});
    let terms = json!([
        {"matchExpressions": [expression("x")]},
        {"matchExpressions": [expression("y")]},
    ]);
    volume["spec"]["nodeAffinity"] = json!({"required": {"nodeSelectorTerms": terms}});
    let (stored, warning) = bench.created(&volume).await;
    assert_eq!(warning, None);
    assert_eq!(stored["metadata"]["labels"], json!({ZONE: "b__a"}));
    assert!(stored["metadata"]["annotations"][MARK].is_string());
    let terms = &stored["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"];
    for (term, key) in [(&terms[0], "x"), (&terms[1], "y")] {
        let zone = json!({"key": ZONE, "operator": "In", "values": ["a", "b"]});
        assert_eq!(term["matchExpressions"], json!([expression(key), zone]));
    }
    // Fields that this version does not know are kept.
    assert_eq!(stored["spec"]["fromTheFuture"], json!({"x": 1}));

    // The controller has nothing left to do.
    let stored: PersistentVolume = serde_json::from_value(stored).unwrap();
    assert_eq!(plan::task(&stored, "mock", &[]), Task::LeaveAlone);
}

#[tokio::test(start_paused = true)]
async fn b_v1_a_patch_applies_to_an_affinity_that_was_sent_without_terms() {
    let bench = Bench::new().await;
    for required in [
        json!({}),
        json!({"nodeSelectorTerms": null}),
        json!({"nodeSelectorTerms": []}),
    ] {
        let mut volume = disk("d-1");
        volume["spec"]["nodeAffinity"] = json!({ "required": required });
        let (stored, _) = bench.created(&volume).await;
        let terms = &stored["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"];
        assert_eq!(
            terms[0]["matchExpressions"][0]["key"], ZONE,
            "{required}: {stored}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn b_v1_a_volume_without_labels_or_affinity_of_its_own_gets_both() {
    let bench = Bench::new().await;
    let (stored, _) = bench.created(&disk("d-1")).await;
    assert_eq!(stored["metadata"]["labels"], json!({ZONE: "b__a"}));
    assert!(stored["spec"]["nodeAffinity"]["required"].is_object());
}

#[tokio::test(start_paused = true)]
async fn b_v1_what_is_none_of_ours_is_admitted_as_it_is_and_nobody_is_asked() {
    let bench = Bench::new().await;
    let mut other = disk("d-1");
    other["spec"]["csi"]["driver"] = "disk.example.org".into();
    assert_eq!(bench.created(&other).await, (other, None));

    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}});
    let mut review = create(&pod);
    review["request"]["resource"]["resource"] = "pods".into();
    let mut update = create(&disk("d-1"));
    update["request"]["operation"] = "UPDATE".into();
    let mut status = create(&disk("d-1"));
    status["request"]["subResource"] = "status".into();
    for review in [review, update, status] {
        let answer = bench.review(&review).await;
        assert_eq!(answer["response"]["allowed"], true);
        assert!(answer["response"]["patch"].is_null());
    }
    assert_eq!(bench.cloud.call_count(GET), 0);
}

#[tokio::test(start_paused = true)]
async fn b_v1_terms_above_the_bound_stay_as_they_are_and_a_warning_says_so() {
    let bench = Bench::new().await;
    let mut volume = disk("d-1");
    let term =
        json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]});
    let terms = vec![term; 20_000];
    volume["spec"]["nodeAffinity"] = json!({"required": {"nodeSelectorTerms": terms}});
    let (stored, warning) = bench.created(&volume).await;
    assert_eq!(stored["metadata"]["labels"], json!({ZONE: "b__a"}));
    assert_eq!(stored["spec"], volume["spec"]);
    let warning = warning.unwrap();
    assert!(warning.contains("20000 terms"), "{warning}");
}

#[tokio::test(start_paused = true)]
async fn b_v1_labels_of_a_provisioner_are_believed_only_while_the_sources_are_known() {
    let mut volume = disk("d-1");
    let labels = json!({ZONE: "a", "topology.kubernetes.io/region": "r"});
    volume["metadata"]["labels"] = labels;
    volume["metadata"]["annotations"] = json!({"pv.kubernetes.io/provisioned-by": "x"});
    let mut bench = Bench::new().await;
    let (stored, _) = bench.created(&volume).await;
    assert!(stored["spec"]["nodeAffinity"].is_object());

    let away = ProviderStatus {
        message: "no process listens".to_owned(),
        ..ProviderStatus::default()
    };
    let mut without = bench.running.status.borrow().clone();
    let info = without.info.as_mut().map(std::sync::Arc::make_mut);
    info.unwrap().capabilities.as_mut().unwrap().volumes = None;
    for (status, says) in [(away, Some("no process listens")), (without, None)] {
        bench.webhook.status = watch::channel(status).1;
        let (stored, warning) = bench.created(&volume).await;
        assert_eq!((&stored, warning.is_some()), (&volume, says.is_some()));
        let warning = warning.unwrap_or_default();
        assert!(warning.contains(says.unwrap_or_default()), "{warning}");
    }
}

/// Fault: the provider fails, hangs, disconnects or answers without an outcome while a volume is
/// created | admits the volume without labels; a warning says so; answers within the API server's
/// timeout
#[tokio::test(start_paused = true)]
async fn fault_volume_a_creation_never_waits_for_the_provider() {
    let wrong_zone = Fault::failure(GET, FailureCode::Internal);
    for (fault, says) in [
        (
            Fault::failure(GET, FailureCode::Unavailable),
            "the ccm asks the provider again later",
        ),
        (
            Fault::failure(GET, FailureCode::NotFound),
            "the ccm asks the provider again later",
        ),
        (wrong_zone, "the ccm asks the provider again later"),
        (Fault::new(GET, FaultKind::Hang), "did not answer in time"),
        (Fault::new(GET, FaultKind::UnsetOutcome), "no outcome"),
        (
            Fault::new(GET, FaultKind::Disconnect),
            "the ccm asks the provider again later",
        ),
    ] {
        let bench = Bench::new().await;
        let kind = fault.kind;
        bench.cloud.set_fault(fault).unwrap();
        let started = Instant::now();
        let (stored, warning) = bench.created(&disk("d-1")).await;
        let warning = warning.unwrap();
        assert_eq!(
            stored,
            disk("d-1"),
            "admits the volume without labels: {kind}"
        );
        assert!(
            warning.contains(says),
            "a warning says so: {kind}: {warning}"
        );
        assert!(
            started.elapsed() <= PATIENCE,
            "answers within the API server's timeout: {kind}"
        );
    }
}

/// Fault: the replica that answers does not lead, or its provider reaches another account | admits
/// the volume without labels; a warning says so; does not ask the provider
#[tokio::test(start_paused = true)]
async fn fault_volume_a_standby_admits_and_asks_nobody() {
    let bench = Bench::standby().await;
    let (stored, warning) = bench.created(&disk("d-1")).await;
    assert_eq!(stored, disk("d-1"), "admits the volume without labels");
    assert!(
        warning.unwrap().contains("does not lead"),
        "a warning says so"
    );
    // The webhook does not warn about a volume of another cloud.
    let mut other = disk("d-1");
    other["spec"]["csi"]["driver"] = "disk.example.org".into();
    assert_eq!(bench.created(&other).await.1, None);

    let scope = crate::provider::testing::SCOPE_KEY.to_owned();
    let elsewhere = BTreeMap::from([(scope, "another account".to_owned())]);
    bench.running.annotations.send_replace(elsewhere);
    bench.running.lead();
    bench.running.session().await;
    let (stored, warning) = bench.created(&disk("d-1")).await;
    assert_eq!(stored, disk("d-1"), "admits the volume without labels");
    let warning = warning.unwrap();
    assert!(warning.contains("scope"), "a warning says so: {warning}");
    let calls = bench.cloud.call_count(GET);
    assert_eq!(calls, 0, "does not ask the provider");
}

#[tokio::test(start_paused = true)]
async fn v1_without_the_controller_the_warning_says_that_nobody_heals() {
    let mut bench = Bench::standby().await;
    bench.webhook.heals = false;
    let warning = bench.created(&disk("d-1")).await.1.unwrap();
    assert!(
        warning.contains("the persistent-volume-label-controller is off"),
        "{warning}"
    );
    assert!(warning.chars().count() <= WARNING_CHARS);
}

#[test]
fn b_v1_what_cannot_be_understood_is_named() {
    let good = create(&disk("d-1"));
    let with = |path: &str, value: Value| {
        let mut review = good.clone();
        *review.pointer_mut(path).unwrap() = value;
        serde_json::to_vec(&review).unwrap()
    };
    let without_request = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"});
    for (body, says) in [
        (b"".to_vec(), "EOF"),
        (b"not json".to_vec(), "no AdmissionReview"),
        (b"[]".to_vec(), "no AdmissionReview"),
        (vec![0xff, 0xfe], "no AdmissionReview"),
        ("[".repeat(100_000).into_bytes(), "no AdmissionReview"),
        (
            with("/kind", json!("PersistentVolume")),
            "expected \"AdmissionReview\"",
        ),
        (
            with("/apiVersion", json!("admission.k8s.io/v1beta1")),
            "v1beta1",
        ),
        (without_request.to_string().into_bytes(), "no request"),
        (with("/request/uid", json!("")), "request.uid"),
        (with("/request/operation", json!("MAKE")), "MAKE"),
        (
            with("/request/object", Value::Null),
            "request.object is missing",
        ),
        (
            with("/request/object/kind", json!("Pod")),
            "expected PersistentVolume",
        ),
        (
            with("/request/object/spec/csi", json!({"driver": 7})),
            "expected a string",
        ),
        (with("/request/object", json!("x")), "no AdmissionReview"),
    ] {
        let error = understand(&body).unwrap_err();
        assert!(error.contains(says), "{says}: {error}");
        assert!(error.chars().count() <= ERROR_CHARS, "{says}");
    }
    let (_, volume) = understand(&serde_json::to_vec(&good).unwrap()).unwrap();
    assert!(volume.is_some());
}
