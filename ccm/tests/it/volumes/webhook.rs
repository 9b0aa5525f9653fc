//! The webhook, called by a real API server with the configuration in
//! `deploy/kustomize/components/volume-webhook/webhook.yaml`.

use std::time::Instant;
use testenv::free_port;

use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use provider_mock::{Fault, FaultKind};

use super::*;
use crate::world::said;

/// The configuration in `webhook.yaml`, with this port of the loopback and this certificate.
fn configuration(port: u16, certificate: &str) -> MutatingWebhookConfiguration {
    let text = std::fs::read_to_string(deploy("kustomize/components/volume-webhook/webhook.yaml"))
        .unwrap();
    let mut documents = text
        .split("\n---\n")
        .map(|document| serde_yaml::from_str::<Value>(document).unwrap());
    let mut example = documents
        .find(|document| document["kind"] == "MutatingWebhookConfiguration")
        .unwrap();
    let client = &mut example["webhooks"][0]["clientConfig"];
    let path = client["service"]["path"].as_str().unwrap();
    *client = json!({
        "url": format!("https://127.0.0.1:{port}{path}"),
        "caBundle": ByteString(certificate.as_bytes().to_vec()),
    });
    serde_json::from_value(example).unwrap()
}

#[tokio::test]
async fn b_v1_the_webhook_labels_a_volume_before_it_is_stored_and_never_stands_in_the_way() {
    let mut world = World::new(disks()).await;
    world.grant_volumes();
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let (certificate, key) = (world.file("webhook.crt"), world.file("webhook.key"));
    std::fs::write(&certificate, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let port = free_port();
    let mut ccm = world.ccm(&[
        "--controllers=persistent-volume-label-controller",
        "--webhooks=persistent-volume-label",
        "--webhook-bind-address=127.0.0.1",
        &format!("--webhook-secure-port={port}"),
        &format!("--webhook-tls-cert-file={}", certificate.display()),
        &format!("--webhook-tls-private-key-file={}", key.display()),
    ]);
    world.led_by(&ccm).await;
    said(
        &ccm,
        "started controller=\"persistent-volume-label-controller\"",
    )
    .await;
    let configurations: Api<MutatingWebhookConfiguration> = Api::all(world.client.clone());
    let configuration = configuration(port, &made.cert.pem());
    configurations
        .create(&PostParams::default(), &configuration)
        .await
        .unwrap();
    // The API server sees the configuration a moment after it is stored. Each try is a volume of
    // its own.
    let mut tries = 0;
    eventually("the API server asks the webhook", SOON, async || {
        tries += 1;
        let created = world
            .create_volume(&volume(&format!("try-{tries}"), "d-1", &[]))
            .await;
        zone(&created).map(drop).ok_or("it does not")
    })
    .await;

    // The answer to the creation has the labels, and each term of the affinity has the zone. A
    // controller would come too late to change the affinity.
    let created = world
        .create_volume(&volume("both", "d-2", &["x", "y"]))
        .await;
    assert_eq!(zone(&created), Some("b__a"));
    let place = "topology.kubernetes.io/region=r,topology.kubernetes.io/zone=a|b";
    assert_eq!(
        terms(&created),
        [format!("x,{place}"), format!("y,{place}")]
    );

    // The provider hangs: the volume is there in time, its creator is warned, and the controller
    // labels it later.
    let hang = Fault::new(GET, FaultKind::Hang).subject("slow").times(1);
    world.cloud().set_fault(hang).unwrap();
    let manifest = world.file("volume.json");
    let mut slow = serde_json::to_value(volume("slow", "d-3", &[])).unwrap();
    slow["apiVersion"] = "v1".into();
    slow["kind"] = "PersistentVolume".into();
    std::fs::write(&manifest, slow.to_string()).unwrap();
    let started = Instant::now();
    let mut create = world.plane.kubectl();
    create.arg("create").arg("-f").arg(&manifest);
    let created = tokio::task::spawn_blocking(move || create.output());
    let created = created.await.unwrap().unwrap();
    let said = String::from_utf8_lossy(&created.stderr).into_owned();
    assert!(created.status.success(), "{said}");
    assert!(said.contains("did not answer in time"), "{said}");
    assert!(started.elapsed() < SOON);
    world.labelled("slow").await;

    // Without any ccm, volumes are created all the same.
    ccm.kill();
    let created = world.create_volume(&volume("alone", "d-4", &[])).await;
    assert_eq!(zone(&created), None);
}
