//! Listings, hints, and the largest request.

use super::*;

#[tokio::test]
async fn a_listing_comes_in_parts_and_ends_with_its_total_or_fails_whole() {
    log();
    let running = Running::initialized().await;
    let mut client = running.instances().await;
    let list = |name| pb::ListInstancesRequest {
        cluster: named_cluster(name),
        facets: vec![],
    };
    let stream = client
        .list_instances(list("test"))
        .await
        .unwrap()
        .into_inner();
    let parts: Vec<_> = stream
        .map(|part| part.unwrap().part.unwrap())
        .collect()
        .await;
    let sizes: Vec<u64> = parts
        .iter()
        .map(|part| match part {
            pb::list_instances_response::Part::Instances(list) => list.instances.len() as u64,
            pb::list_instances_response::Part::End(end) => end.total,
            pb::list_instances_response::Part::Failed(failure) => panic!("{failure:?}"),
        })
        .collect();
    assert_eq!(sizes, [500, 500, 234, 1234]);
    let stream = client
        .list_instances(list("broken-list"))
        .await
        .unwrap()
        .into_inner();
    let parts: Vec<_> = stream
        .map(|part| part.unwrap().part.unwrap())
        .collect()
        .await;
    assert!(
        matches!(parts[..], [pb::list_instances_response::Part::Failed(_)]),
        "{parts:?}"
    );
}

#[tokio::test]
async fn a_request_of_almost_16_mib_is_accepted_and_a_larger_one_is_not() {
    let running = Running::initialized().await;
    let request = |bytes: usize| {
        let mut node = node("a");
        node.labels.insert("big".into(), "x".repeat(bytes));
        pb::LookupInstancesRequest {
            cluster: cluster(),
            nodes: vec![node],
            ..Default::default()
        }
    };
    let mut client = running.instances().await;
    let answer = client
        .lookup_instances(request((16 << 20) - 1000))
        .await
        .unwrap()
        .into_inner();
    assert_eq!(answer.results.len(), 1);
    let status = client
        .lookup_instances(request((16 << 20) + 1))
        .await
        .unwrap_err();
    assert_eq!(status.code(), Code::OutOfRange, "{status}");
    assert_eq!(running.lookup(&["a"]).await.results.len(), 1);
}

#[tokio::test]
async fn hints_flow_and_a_watch_ends_as_the_vendors_method_does() {
    log();
    let running = Running::initialized().await;
    let mut client = running.provider().await;
    let watch = |token: &str| pb::WatchChangesRequest {
        cluster: cluster(),
        resume_token: token.into(),
    };
    let mut stream = client.watch_changes(watch("")).await.unwrap().into_inner();
    let hint = soon("a hint", stream.message()).await.unwrap().unwrap();
    assert_eq!(hint.resume_token, "1");
    assert!(matches!(
        hint.change,
        Some(pb::watch_changes_response::Change::Resync(_))
    ));
    drop(stream);
    running.cloud.journal.until("dropped").await;

    let mut stream = client
        .watch_changes(watch("ends"))
        .await
        .unwrap()
        .into_inner();
    assert_eq!(
        soon("a hint", stream.message())
            .await
            .unwrap()
            .unwrap()
            .resume_token,
        "2"
    );
    assert!(soon("the end", stream.message()).await.unwrap().is_none());
    let mut stream = client
        .watch_changes(watch("fails"))
        .await
        .unwrap()
        .into_inner();
    let last = soon("the failure", stream.message()).await.unwrap();
    let Some(pb::watch_changes_response::Change::Failed(failure)) = last.unwrap().change else {
        panic!("not failed")
    };
    assert!(failure.message.contains("no feed"), "{failure:?}");
    assert!(soon("the end", stream.message()).await.unwrap().is_none());

    let mut stream = client
        .watch_changes(watch("panics"))
        .await
        .unwrap()
        .into_inner();
    let status = soon("the end", stream.message()).await.unwrap_err();
    assert!(status.message().contains("the watch of doom"), "{status}");
    assert!(logged(&["WatchChanges", "the watch of doom"]));
}
