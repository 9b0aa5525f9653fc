//! How a server ends.
#![allow(
    clippy::unwrap_used,
    reason = "helpers of tests may fail by panic as tests do"
)]

mod common;

use std::sync::Arc;
use std::time::Duration;

use cloud_provider_api::v1alpha1 as pb;
use common::{Running, cluster, ensure, soon};
use tokio::sync::Notify;
use tonic::Code;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

#[tokio::test]
async fn streams_end_first_then_calls_are_drained() {
    let mut running = Running::initialized().await;
    let watch = pb::WatchChangesRequest {
        cluster: cluster(),
        resume_token: String::new(),
    };
    let mut hints = running
        .provider()
        .await
        .watch_changes(watch)
        .await
        .unwrap()
        .into_inner();
    soon("the first hint", hints.message())
        .await
        .unwrap()
        .unwrap();
    let mut healths = Vec::new();
    for service in ["", "cloudprovider.v1alpha1.InstanceService"] {
        let request = HealthCheckRequest {
            service: service.into(),
        };
        let mut health = HealthClient::new(running.channel().await)
            .watch(request)
            .await
            .unwrap()
            .into_inner();
        let first = soon("the first health", health.message())
            .await
            .unwrap()
            .unwrap();
        assert_eq!(first.status(), ServingStatus::Serving);
        healths.push(health);
    }
    let mut client = running.load_balancers().await;
    let slow = tokio::spawn(async move { client.ensure_load_balancer(ensure("gated")).await });
    running.cloud.journal.until("write 1").await;

    running.stop();
    for mut health in healths {
        let last = soon("NOT_SERVING", health.message())
            .await
            .unwrap()
            .unwrap();
        assert_eq!(last.status(), ServingStatus::NotServing);
        assert!(
            soon("the end of health", health.message())
                .await
                .unwrap()
                .is_none()
        );
    }
    assert!(
        soon("the end of hints", hints.message())
            .await
            .unwrap()
            .is_none()
    );
    assert!(!slow.is_finished() && !running.served.is_finished());
    let gone = async {
        while running.path.exists() {
            tokio::task::yield_now().await;
        }
    };
    soon("the socket to go", gone).await;
    assert!(
        tokio::net::UnixStream::connect(&running.path)
            .await
            .is_err()
    );

    running.cloud.gate.add_permits(1);
    soon("the slow call", slow)
        .await
        .unwrap()
        .expect("it was drained");
    soon("the end", &mut running.served).await.unwrap().unwrap();
    assert!(
        running
            .cloud
            .journal
            .entries()
            .contains(&"write 2".to_owned())
    );
}

#[tokio::test]
async fn the_drain_has_a_cap() {
    let mut running = Running::start_with(|server| server.drain(Duration::from_millis(50))).await;
    running.initialize().await;
    let mut client = running.load_balancers().await;
    let slow = tokio::spawn(async move { client.ensure_load_balancer(ensure("gated")).await });
    running.cloud.journal.until("write 1").await;
    running.stop();
    let status = soon("the slow call", slow).await.unwrap().unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status}");
    soon("the end", &mut running.served).await.unwrap().unwrap();
    running.cloud.journal.until("dropped").await;
    assert!(
        !running
            .cloud
            .journal
            .entries()
            .contains(&"write 2".to_owned())
    );
}

#[tokio::test]
async fn a_layer_that_hangs_does_not_keep_the_server() {
    // The layer never answers Probe, even after the server cancels the calls. So the server cuts
    // the connection.
    let arrived = Arc::new(Notify::new());
    let arrival = arrived.clone();
    let hang = tower::layer::layer_fn(move |inner: provider_sdk::GrpcService| {
        let arrival = arrival.clone();
        tower::service_fn(
            move |request: tonic::codegen::http::Request<tonic::body::Body>| {
                let (mut inner, arrival) = (inner.clone(), arrival.clone());
                async move {
                    if request.uri().path().ends_with("/Probe") {
                        arrival.notify_one();
                        std::future::pending::<()>().await;
                    }
                    tower::Service::call(&mut inner, request).await
                }
            },
        )
    });
    let mut running =
        Running::start_with(|server| server.layer(hang).drain(Duration::from_millis(50))).await;
    let mut client = running.provider().await;
    let probe = tokio::spawn(async move { client.probe(pb::ProbeRequest {}).await });
    soon("the probe to arrive", arrived.notified()).await;
    running.stop();
    soon("the end", &mut running.served).await.unwrap().unwrap();
    soon("the probe", probe).await.unwrap().unwrap_err();
}
