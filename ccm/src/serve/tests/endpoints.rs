//! The answers of each endpoint.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};

use super::Port;
use super::api_server::Mood;
use crate::serve::Probe;

#[tokio::test]
async fn b_m4_healthy_endpoints_say_ok() {
    let port = Port::open().await;
    for path in ["/healthz", "/livez", "/readyz"] {
        let answer = port.caller.get(path, None).await;
        assert_eq!((answer.status, answer.text.as_str()), (200, "ok"), "{path}");
        let endpoint = path.trim_start_matches('/');
        for query in ["verbose", "verbose=true", "a=b&verbose"] {
            let answer = port.caller.get(&format!("{path}?{query}"), None).await;
            assert_eq!(
                (answer.status, answer.text),
                (200, format!("[+]ping ok\n{endpoint} check passed\n"))
            );
        }
    }
    assert_eq!(port.api_server.asked(), (0, 0), "open to everybody");
}

#[tokio::test]
async fn b_m4_a_failing_check_is_500_with_the_list_and_livez_does_not_care() {
    let port = Port::open().await;
    let renewed = Arc::new(AtomicBool::new(false));
    let lease = renewed.clone();
    port.health
        .check(Probe::Health, "leader-election", move || {
            if lease.load(Ordering::Relaxed) {
                Ok(())
            } else {
                Err("not renewed for 12s".to_owned())
            }
        });
    port.health
        .check(Probe::Ready, "provider", || Err("not connected".to_owned()));
    // Finding B11: only callers that may read the status page see reasons, and not every Pod may. A
    // wrong token is no reason to refuse a probe.
    for (token, lease, provider) in [
        (Some("alice"), "not renewed for 12s", "not connected"),
        (Some("pod"), "reason withheld", "reason withheld"),
        (Some("mallory"), "reason withheld", "reason withheld"),
        (None, "reason withheld", "reason withheld"),
    ] {
        let answer = port.caller.get("/healthz", token).await;
        let text =
            format!("[+]ping ok\n[-]leader-election failed: {lease}\nhealthz check failed\n");
        assert_eq!((answer.status, answer.text), (500, text), "{token:?}");
        let answer = port.caller.get("/readyz", token).await;
        let text = format!("[+]ping ok\n[-]provider failed: {provider}\nreadyz check failed\n");
        assert_eq!((answer.status, answer.text), (500, text), "{token:?}");
    }
    assert_eq!(port.status("/livez", None).await, 200);
    renewed.store(true, Ordering::Relaxed);
    assert_eq!(port.status("/healthz", None).await, 200);
}

#[tokio::test]
async fn b_m4_checks_can_be_excluded_and_asked_for_one_by_one() {
    let port = Port::open().await;
    port.health.check(Probe::Ready, "provider-mock", || {
        Err("not connected".to_owned())
    });
    port.health.check(Probe::Ready, "nodes", || Ok(()));
    for (query, status, text) in [
        ("exclude=provider-mock", 200, "ok"),
        (
            "exclude=provider-mock&verbose",
            200,
            "[+]ping ok\n[+]provider-mock excluded: ok\n[+]nodes ok\nreadyz check passed\n",
        ),
        (
            "verbose&exclude=provider%2Dmock&exclude=a&exclude=b",
            200,
            "[+]ping ok\n[+]provider-mock excluded: ok\n[+]nodes ok\nwarn: some health checks cannot be excluded: no matches for \"a\",\"b\"\nreadyz check passed\n",
        ),
        (
            "exclude=nodes",
            500,
            "[+]ping ok\n[-]provider-mock failed: not connected\n[+]nodes excluded: ok\nreadyz check failed\n",
        ),
    ] {
        let answer = port
            .caller
            .get(&format!("/readyz?{query}"), Some("alice"))
            .await;
        assert_eq!(
            (answer.status, answer.text.as_str()),
            (status, text),
            "{query}"
        );
    }
    for (path, token, status, text) in [
        ("/readyz/nodes", Some("alice"), 200, "ok"),
        ("/readyz/ping", Some("alice"), 200, "ok"),
        ("/livez/ping", Some("alice"), 200, "ok"),
        (
            "/readyz/provider-mock",
            Some("alice"),
            500,
            "internal server error: not connected\n",
        ),
        (
            "/healthz/nodes",
            Some("alice"),
            404,
            "there is no check \"nodes\" here\n",
        ),
    ] {
        let answer = port.caller.get(path, token).await;
        assert_eq!(
            (answer.status, answer.text.as_str()),
            (status, text),
            "{path}"
        );
    }
    // By default only the whole endpoint is open to everybody, not its single checks.
    assert_eq!(port.status("/readyz/nodes", None).await, 403);
}

#[tokio::test]
async fn b_m4_a_check_that_panics_disturbs_nobody_else() {
    let port = Port::open().await;
    port.health
        .check(Probe::Ready, "broken", || panic!("on purpose"));
    let (mut sender, _driver) = port.caller.connect().await;
    let request = hyper::Request::get("/readyz")
        .body(http_body_util::Empty::new())
        .unwrap();
    assert!(sender.send_request(request).await.is_err());
    assert_eq!(port.status("/livez", None).await, 200);
}

#[tokio::test]
async fn b_m4_b_m7_metrics_are_prometheus_text() {
    let port = Port::open().await;
    let answer = port.caller.get("/metrics", Some("alice")).await;
    assert_eq!(answer.status, 200);
    assert_eq!(
        answer.headers["content-type"],
        "text/plain; version=0.0.4; charset=utf-8"
    );
    assert_eq!(
        answer.text,
        "# HELP things_made_total Things.\n# TYPE things_made_total counter\nthings_made_total 1\n"
    );
}

#[tokio::test]
async fn the_status_page_is_for_those_who_may_read_it() {
    let port = Port::open().await;
    let answer = port.caller.get("/statusz", Some("alice")).await;
    assert_eq!(answer.text, "all is well\n");
    assert_eq!(port.caller.get("/statusz", None).await.status, 403);
}

#[tokio::test]
async fn b_m4_configz_is_the_config_in_effect() {
    let flags = ["--cluster-name=blue", "--node-monitor-period=1m30s"];
    let port = Port::open_with(&flags, super::Limits::default()).await;
    let answer = port.caller.get("/configz", Some("alice")).await;
    assert_eq!(answer.headers["content-type"], "application/json");
    let config: Value = serde_json::from_str(&answer.text).unwrap();
    assert_eq!(config["cluster"]["name"], "blue");
    assert_eq!(config["nodeLifecycle"]["monitorPeriod"], "1m30s");
    assert_eq!(config["node"]["batchLinger"], "100ms");
    assert_eq!(config["nodeLifecycle"]["brake"]["share"], 0.1);
    assert_eq!(config["leaderElection"]["leaseDuration"], "15s");
    assert_eq!(config["serve"]["bindAddress"], "127.0.0.1");
    assert_eq!(config["serve"]["tls"]["files"], json!(null));
    assert_eq!(config["controllers"][0], "cloud-node-controller");
}

#[tokio::test]
async fn version_is_this_crates() {
    let port = Port::open().await;
    let answer = port.caller.get("/version", None).await;
    let version: Value = serde_json::from_str(&answer.text).unwrap();
    assert_eq!(
        version["gitVersion"],
        format!("v{}", env!("CARGO_PKG_VERSION"))
    );
}

#[tokio::test]
async fn b_m4_methods_and_paths() {
    let port = Port::open().await;
    for (method, path, token, status) in [
        ("HEAD", "/healthz", None, 200),
        ("HEAD", "/metrics", Some("alice"), 200),
        ("POST", "/healthz", None, 405),
        ("DELETE", "/metrics", Some("alice"), 405),
        ("OPTIONS", "/nothing", None, 405),
        ("BREW", "/livez", None, 405),
        ("GET", "/nothing", Some("alice"), 404),
        ("GET", "/nothing", None, 403),
        ("GET", "/", Some("alice"), 403),
        ("GET", "/healthz/", None, 403),
        ("GET", "/healthz/../metrics", None, 403),
        ("GET", "/%6detrics", Some("alice"), 403),
    ] {
        let answer = port.caller.request(method, path, token).await;
        assert_eq!(answer.status, status, "{method} {path}");
        assert_eq!(answer.headers["x-content-type-options"], "nosniff");
        if method == "HEAD" {
            assert_eq!(answer.text, "");
        }
        if status == 405 {
            assert_eq!(answer.headers["allow"], "GET, HEAD");
        }
    }
}

#[tokio::test]
async fn b_m4_open_paths_need_no_api_server() {
    let port = Port::open().await;
    port.api_server.set(Mood::Gone);
    for token in [None, Some("alice"), Some("nobody")] {
        for path in ["/healthz", "/livez", "/readyz"] {
            assert_eq!(port.status(path, token).await, 200);
        }
    }
}
