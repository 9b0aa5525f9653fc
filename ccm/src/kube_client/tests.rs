//! The layer over a server in memory with paused time, and over a real socket.

mod real;

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt as _;
use http::{Method, Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams};
use kube::client::Body;
use prometheus_client::registry::Registry;
use serde_json::json;
use tokio::time::{Instant, sleep, timeout};

use super::*;

type Answer = UnsyncBoxBody<Bytes, std::convert::Infallible>;

/// How the server handles one request.
#[derive(Clone, Debug)]
enum Act {
    Ok,
    After(Duration),
    Code(u16, Option<&'static str>),
    Break,
    Hang,
}

#[derive(Clone, Default)]
struct Server {
    script: Arc<Mutex<VecDeque<Act>>>,
    seen: Arc<Mutex<Vec<(Method, Instant)>>>,
}

impl Server {
    fn playing(script: impl IntoIterator<Item = Act>) -> Self {
        let server = Self::default();
        server.script.lock().unwrap().extend(script);
        server
    }

    fn seen(&self) -> usize {
        self.seen.lock().unwrap().len()
    }

    fn client(&self) -> Client {
        let server = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let seen = (request.method().clone(), Instant::now());
            server.seen.lock().unwrap().push(seen);
            let act = server.script.lock().unwrap().pop_front().unwrap_or(Act::Ok);
            let list = request.uri().path().ends_with("configmaps");
            let watch = request
                .uri()
                .query()
                .is_some_and(|query| query.contains("watch"));
            async move {
                let answer = |code: u16, after: Option<&str>, body: Answer| {
                    let mut response = Response::builder().status(code);
                    if let Some(after) = after {
                        response = response.header("retry-after", after);
                    }
                    response.body(body).unwrap()
                };
                let whole = |text: String| Full::new(Bytes::from(text)).boxed_unsync();
                match act {
                    Act::Break => return Err(std::io::Error::other("reset")),
                    Act::Hang => std::future::pending().await,
                    Act::After(delay) => sleep(delay).await,
                    Act::Code(code, after) => {
                        let status =
                            json!({"kind": "Status", "code": code, "message": "simulated"});
                        return Ok(answer(code, after, whole(status.to_string())));
                    }
                    Act::Ok => {}
                }
                if watch {
                    // Headers at once, then an event each minute.
                    let events = futures::stream::unfold((), |()| async {
                        sleep(Duration::from_mins(1)).await;
                        let event =
                            json!({"type": "MODIFIED", "object": {"metadata": {"name": "x"}}});
                        let frame = http_body::Frame::data(Bytes::from(format!("{event}\n")));
                        Some((Ok(frame), ()))
                    });
                    return Ok(answer(200, None, StreamBody::new(events).boxed_unsync()));
                }
                let object = if list {
                    json!({"metadata": {}, "items": []})
                } else {
                    json!({"metadata": {"name": "x"}})
                };
                Ok(answer(200, None, whole(object.to_string())))
            }
        });
        Client::new(service, "default")
    }

    fn clients(&self, fence: Fence, limits: Option<Limits>) -> KubeClients {
        clients(
            self.client(),
            fence,
            &Metrics::register(&mut Registry::default()),
            limits,
            7,
        )
    }
}

fn api(client: &Client) -> Api<ConfigMap> {
    Api::namespaced(client.clone(), "default")
}

async fn patch(client: &Client) -> kube::Result<ConfigMap> {
    let patch = Patch::Merge(json!({"metadata": {"labels": {"a": "b"}}}));
    api(client)
        .patch("x", &PatchParams::default(), &patch)
        .await
}

#[tokio::test(start_paused = true)]
async fn m12_a_closed_fence_lets_only_gets_through() {
    let server = Server::default();
    let fence = Fence::closed();
    let clients = server.clients(fence.clone(), None);
    let error = patch(&clients.write).await.unwrap_err();
    assert!(fenced(&error), "{error}");
    let deleted = api(&clients.write)
        .delete("x", &kube::api::DeleteParams::default())
        .await;
    assert!(fenced(&deleted.unwrap_err()));
    assert_eq!(server.seen(), 0);
    api(&clients.write).get("x").await.unwrap();
    fence.extend(Instant::now() + Duration::from_secs(10));
    patch(&clients.write).await.unwrap();
    sleep(Duration::from_secs(10)).await;
    assert!(fenced(&patch(&clients.write).await.unwrap_err()));
    // The Lease and the reviews are not fenced.
    patch(&clients.lease).await.unwrap();
    patch(&clients.review).await.unwrap();
    assert_eq!(server.seen(), 4);
}

#[tokio::test(start_paused = true)]
async fn b_m6_m12_each_lease_has_a_fence_of_its_own() {
    let server = Server::default();
    let (main, migration) = (Fence::closed(), Fence::closed());
    let clients = server.clients(main.clone(), None);
    let migrated = clients.fenced_by(migration.clone());
    main.extend(Instant::now() + Duration::from_secs(10));
    patch(&clients.write).await.unwrap();
    assert!(fenced(&patch(&migrated).await.unwrap_err()));
    migration.extend(Instant::now() + Duration::from_secs(10));
    main.close();
    patch(&migrated).await.unwrap();
    assert!(fenced(&patch(&clients.write).await.unwrap_err()));
    assert_eq!(server.seen(), 2);
}

#[tokio::test(start_paused = true)]
async fn m12_the_watch_client_only_reads() {
    let server = Server::default();
    let clients = server.clients(Fence::open(), None);
    let error = patch(&clients.watch).await.unwrap_err();
    assert!(
        error.to_string().contains("only reads") && !fenced(&error),
        "{error}"
    );
    api(&clients.watch)
        .list(&ListParams::default())
        .await
        .unwrap();
    assert_eq!(server.seen(), 1);
}

#[tokio::test(start_paused = true)]
async fn m12_a_write_in_flight_ends_with_the_fence() {
    let server = Server::playing([Act::Hang, Act::Hang]);
    let fence = Fence::closed();
    let clients = server.clients(fence.clone(), None);
    fence.extend(Instant::now() + Duration::from_secs(3));
    let start = Instant::now();
    assert!(fenced(&patch(&clients.write).await.unwrap_err()));
    assert_eq!(start.elapsed().as_secs(), 3);
    // The fence was extended meanwhile, so the timeout of the write applies.
    fence.extend(Instant::now() + Duration::from_secs(3));
    let start = Instant::now();
    let renewing = async {
        sleep(Duration::from_secs(2)).await;
        fence.extend(Instant::now() + Duration::from_secs(30));
    };
    let (error, ()) = tokio::join!(patch(&clients.write), renewing);
    let error = error.unwrap_err();
    assert!(
        !fenced(&error) && error.to_string().contains("within 10s"),
        "{error}"
    );
    assert_eq!(start.elapsed().as_secs(), 10);
}

#[tokio::test(start_paused = true)]
async fn m12_no_retry_after_the_fence_has_closed() {
    let server = Server::playing([Act::Code(429, Some("8"))]);
    let fence = Fence::closed();
    let clients = server.clients(fence.clone(), None);
    fence.extend(Instant::now() + Duration::from_secs(5));
    let start = Instant::now();
    assert!(fenced(&patch(&clients.write).await.unwrap_err()));
    assert_eq!((server.seen(), start.elapsed().as_secs()), (1, 5));
}

#[tokio::test(start_paused = true)]
async fn m11_retry_after_is_honoured() {
    let put_off = || Act::Code(429, Some("3"));
    let server = Server::playing([put_off(), Act::Code(503, Some("2")), Act::Ok]);
    let clients = server.clients(Fence::open(), None);
    let start = Instant::now();
    patch(&clients.write).await.unwrap();
    let waited = start.elapsed().as_secs_f64();
    assert!((5.0..6.1).contains(&waited), "{waited}");
    // After the last attempt, the caller gets the error.
    let server = Server::playing((0..20).map(|_| put_off()));
    let clients = server.clients(Fence::open(), None);
    let error = patch(&clients.write).await.unwrap_err();
    assert!(
        matches!(&error, kube::Error::Api(status) if status.code == 429),
        "{error}"
    );
    assert_eq!(server.seen(), 5);
    // The Lease has its own timing.
    let server = Server::playing([put_off()]);
    let clients = server.clients(Fence::open(), None);
    patch(&clients.lease).await.unwrap_err();
    assert_eq!(server.seen(), 1);
}

#[tokio::test(start_paused = true)]
async fn m10_only_gets_survive_a_broken_connection() {
    for act in [Act::Break, Act::Hang] {
        let server = Server::playing([act.clone(), act.clone()]);
        let clients = server.clients(Fence::open(), None);
        api(&clients.write).get("x").await.unwrap();
        assert_eq!(server.seen(), 3);
        let server = Server::playing([act.clone()]);
        let clients = server.clients(Fence::open(), None);
        patch(&clients.write).await.unwrap_err();
        assert_eq!(server.seen(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn m10_every_request_has_its_time() {
    let slow = |seconds| Act::After(Duration::from_secs(seconds));
    let server = Server::playing([slow(9), slow(50), slow(11)]);
    let clients = server.clients(Fence::open(), None);
    patch(&clients.write).await.unwrap();
    api(&clients.watch)
        .list(&ListParams::default())
        .await
        .unwrap();
    patch(&clients.write).await.unwrap_err();
    // A watch may last for any time, but its headers may not.
    let params = kube::api::WatchParams::default();
    let events = api(&clients.watch).watch(&params, "0").await.unwrap();
    assert_eq!(events.take(10).count().await, 10);
    let server = Server::playing((0..3).map(|_| Act::Hang));
    let clients = server.clients(Fence::open(), None);
    let start = Instant::now();
    assert!(api(&clients.watch).watch(&params, "0").await.is_err());
    assert_eq!(start.elapsed().as_secs(), 90);
}

#[tokio::test(start_paused = true)]
async fn m11_a_slow_request_holds_up_no_other() {
    let server = Server::playing([Act::Hang, Act::Code(429, Some("5"))]);
    let clients = server.clients(Fence::open(), None);
    let mut slow = Box::pin(async { tokio::join!(patch(&clients.write), patch(&clients.write)) });
    let early = timeout(Duration::from_millis(1), &mut slow).await;
    assert!(early.is_err() && server.seen() == 2);
    let fast = async {
        let start = Instant::now();
        let many = (0..500).map(|_| patch(&clients.write));
        for result in futures::future::join_all(many).await {
            result.unwrap();
        }
        assert_eq!(start.elapsed(), Duration::ZERO);
    };
    let (_, ()) = tokio::join!(slow, fast);
}

#[tokio::test(start_paused = true)]
async fn m11_a_throttle_where_it_is_asked_for() {
    let server = Server::default();
    let limits = Limits {
        qps: 20.0,
        burst: 30,
    };
    let clients = server.clients(Fence::open(), Some(limits));
    let start = Instant::now();
    futures::future::join_all((0..130).map(|_| patch(&clients.write))).await;
    let waited = start.elapsed().as_secs_f64();
    assert!((4.9..5.2).contains(&waited), "{waited}");
    // The Lease never waits behind other requests.
    let all = (0..100).map(|_| patch(&clients.write));
    let (_, lease) = tokio::join!(
        futures::future::join_all(all),
        timeout(Duration::from_millis(1), patch(&clients.lease))
    );
    lease.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn b_m7_requests_are_counted_as_client_go_counts_them() {
    let mut registry = Registry::default();
    let metrics = Metrics::register(&mut registry);
    let server = Server::playing([Act::Code(429, Some("1")), Act::Ok, Act::Break]);
    let base = Base {
        client: server.client(),
        host: "api:6443".to_owned(),
    };
    let clients = clients(base, Fence::open(), &metrics, None, 1);
    patch(&clients.write).await.unwrap();
    patch(&clients.write).await.unwrap_err();
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
    for line in [
        r#"rest_client_requests_total{code="429",method="PATCH",host="api:6443"} 1"#,
        r#"rest_client_requests_total{code="200",method="PATCH",host="api:6443"} 1"#,
        r#"rest_client_requests_total{code="<error>",method="PATCH",host="api:6443"} 1"#,
        r#"rest_client_request_duration_seconds_count{verb="PATCH",host="api:6443"} 3"#,
        r#"rest_client_request_retries_total{code="429",verb="PATCH",host="api:6443"} 1"#,
        r#"rest_client_request_size_bytes_count{verb="PATCH",host="api:6443"} 3"#,
        r#"rest_client_response_size_bytes_count{verb="PATCH",host="api:6443"} 2"#,
    ] {
        assert!(text.contains(line), "{line} is not in\n{text}");
    }
}

#[tokio::test]
async fn b_m5_a_bad_kubeconfig_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let missing = directory.path().join("missing");
    let garbage = write("garbage", "{[");
    let empty = write("empty", "apiVersion: v1\nkind: Config\n");
    let cluster = "clusters: [{name: c, cluster: {server: 'https://h:1', certificate-authority: /nowhere/ca.crt}}]\n\
                   contexts: [{name: c, context: {cluster: c, user: u}}]\nusers: [{name: u, user: {}}]\ncurrent-context: c\n";
    let no_ca = write("no-ca", cluster);
    for path in [missing, garbage, empty, no_ca] {
        let Err(error) = connect_to(Some(&path), None).await else {
            panic!("{} should not do", path.display());
        };
        let text = error.to_string();
        assert!(text.contains(&path.display().to_string()), "{text}");
    }
    for url in ["no url", "host:6443/x y", "/path", "ftp://x", "https://"] {
        let Err(error) = connect_to(None, Some(url)).await else {
            panic!("{url} should not do");
        };
        assert!(error.to_string().contains("--master"), "{error}");
    }
    let good = connect_to(None, Some("http://127.0.0.1:1")).await.unwrap();
    assert_eq!(good.host, "127.0.0.1:1");
}
