//! Which calls the SDK admits before and after Initialize.

use super::*;

#[tokio::test]
async fn before_initialize_every_call_for_a_cluster_is_not_initialized() {
    let running = Running::start().await;
    let response = running.lookup(&["a"]).await;
    assert_eq!(
        code(response.failed.as_ref()),
        pb::FailureCode::NotInitialized
    );
    let Some(Ensured::Failed(failure)) = running.ensure("a").await.unwrap().outcome else {
        panic!("not failed")
    };
    assert_eq!(failure.code(), pb::FailureCode::NotInitialized);
    let routes = pb::ListRoutesRequest { cluster: cluster() };
    let mut stream = running
        .routes()
        .await
        .list_routes(routes)
        .await
        .unwrap()
        .into_inner();
    let Some(pb::list_routes_response::Part::Failed(failure)) =
        stream.message().await.unwrap().unwrap().part
    else {
        panic!("not failed")
    };
    assert_eq!(failure.code(), pb::FailureCode::NotInitialized);
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
    let Some(pb::watch_changes_response::Change::Failed(failure)) =
        hints.message().await.unwrap().unwrap().change
    else {
        panic!("not failed")
    };
    assert_eq!(failure.code(), pb::FailureCode::NotInitialized);

    // A failed Initialize changes nothing. After a successful one the SDK admits calls.
    let refused = pb::InitializeRequest {
        cluster: named_cluster("refused"),
        ..Default::default()
    };
    let answer = running
        .provider()
        .await
        .initialize(refused)
        .await
        .unwrap()
        .into_inner();
    let Some(pb::initialize_response::Outcome::Failed(failure)) = answer.outcome else {
        panic!("not failed")
    };
    assert_eq!(failure.code(), pb::FailureCode::Credentials);
    assert!(running.lookup(&["a"]).await.failed.is_some());
    running.initialize().await;
    assert!(running.lookup(&["a"]).await.failed.is_none());
}

#[tokio::test]
async fn a_request_for_another_cluster_or_none_does_not_pass() {
    let running = Running::initialized().await;
    for (cluster, expected) in [
        (None, pb::FailureCode::Invalid),
        (
            Some(pb::ClusterRef {
                name: "test".into(),
                owner_id: "owner-2".into(),
            }),
            pb::FailureCode::NotInitialized,
        ),
    ] {
        let request = pb::LookupInstancesRequest {
            cluster,
            ..Default::default()
        };
        let response = running
            .instances()
            .await
            .lookup_instances(request)
            .await
            .unwrap()
            .into_inner();
        assert_eq!(code(response.failed.as_ref()), expected);
    }
}

#[tokio::test]
async fn probe_answers_before_initialize_with_the_boot_id_and_the_last_success() {
    let running = Running::start().await;
    let mut client = running.provider().await;
    let info = client
        .get_provider_info(pb::GetProviderInfoRequest::default())
        .await
        .unwrap()
        .into_inner();
    let probe = client
        .probe(pb::ProbeRequest {})
        .await
        .unwrap()
        .into_inner();
    assert_eq!(probe.state(), pb::ProbeState::Degraded);
    assert_eq!(probe.message, "a test");
    assert_eq!(probe.boot_id, info.boot_id);
    assert!(!probe.boot_id.is_empty());
    assert_eq!(probe.last_cloud_success, None);
    running.initialize().await;
    let probe = client
        .probe(pb::ProbeRequest {})
        .await
        .unwrap()
        .into_inner();
    assert!(probe.last_cloud_success.is_some());
    let other = Running::start().await;
    let probe = other
        .provider()
        .await
        .probe(pb::ProbeRequest {})
        .await
        .unwrap()
        .into_inner();
    assert_ne!(probe.boot_id, info.boot_id);
}
