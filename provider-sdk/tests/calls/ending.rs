//! Calls that end before their answer.

use super::*;

#[tokio::test]
async fn a_cancelled_call_stops_before_its_next_write() {
    let running = Running::initialized().await;
    let mut client = running.load_balancers().await;
    let call = tokio::spawn(async move { client.ensure_load_balancer(ensure("gated")).await });
    running.cloud.journal.until("write 1").await;
    call.abort();
    running.cloud.journal.until("dropped").await;
    running.cloud.gate.add_permits(1);
    // The cancelled call released its object, so the next call reaches its second write.
    let answer = running.ensure("gated").await.unwrap();
    assert!(
        matches!(answer.outcome, Some(Ensured::Ready(_))),
        "{answer:?}"
    );
    assert_eq!(
        running.cloud.journal.entries(),
        ["write 1", "dropped", "write 1", "write 2", "dropped"]
    );
}

#[tokio::test]
async fn a_disconnected_call_stops_before_its_next_write() {
    let running = Running::initialized().await;
    let (channel, socket) = common::channel_and_socket(&running.path).await;
    let mut client = pb::load_balancer_service_client::LoadBalancerServiceClient::new(channel);
    let call = tokio::spawn(async move { client.ensure_load_balancer(ensure("gated")).await });
    running.cloud.journal.until("write 1").await;
    // As if the controller were killed: the socket closes without a cancellation.
    socket.shutdown(std::net::Shutdown::Both).unwrap();
    running.cloud.journal.until("dropped").await;
    assert_eq!(running.cloud.journal.entries(), ["write 1", "dropped"]);
    soon("the call", call).await.unwrap().unwrap_err();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn code_that_never_yields_and_code_that_was_spawned_are_told() {
    for name in ["blocking", "spawned"] {
        let running = Running::initialized().await;
        let mut client = running.load_balancers().await;
        let call = tokio::spawn(async move { client.ensure_load_balancer(ensure(name)).await });
        running.cloud.journal.until("write 1").await;
        if name == "blocking" {
            call.abort();
        } else {
            // The call ends with its answer. The task that it spawned must not write after that.
            call.await.unwrap().unwrap();
        }
        running.cloud.journal.until("stopped").await;
        assert_eq!(running.cloud.journal.entries(), ["write 1", "stopped"]);
    }
}

#[tokio::test]
async fn the_servers_side_ends_a_call_at_its_deadline() {
    let running = Running::initialized().await;
    let mut request = tonic::Request::new(ensure("gated"));
    // The client reads this header too, so it may end the call before the server does.
    request
        .metadata_mut()
        .insert("grpc-timeout", "50m".parse().unwrap());
    let mut client = running.load_balancers().await;
    let status = soon("the deadline", client.ensure_load_balancer(request))
        .await
        .unwrap_err();
    assert!(
        matches!(status.code(), Code::DeadlineExceeded | Code::Cancelled),
        "{status}"
    );
    running.cloud.journal.until("dropped").await;
    assert_eq!(running.cloud.journal.entries(), ["write 1", "dropped"]);
}
