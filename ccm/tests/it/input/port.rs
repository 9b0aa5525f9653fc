//! The HTTPS port of the running ccm, with reviews by the real API server.

use kube::client::Body;
use kube::{Client, Config};
use provider_mock::Fixture;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair,
};
use testenv::{Options, eventually, free_port};

use super::callers::{ask, client};
use crate::world::{SOON, World, said};

const ADMIN: Option<&str> = Some("testenv-admin");

/// Status and text of a path of the HTTPS port; 0 without an answer.
pub async fn get(port: u16, path: &str, token: Option<&str>) -> (u16, String) {
    ask(&client(port), path, token).await
}

/// The beginnings of lines of `/metrics` after a Node and a Service were served (B-M7).
const METRICS: &[&str] = &[
    "node_controller_cloud_provider_taint_removal_delay_seconds_count 1",
    "node_controller_initial_node_sync_delay_seconds_count 1",
    "service_controller_loadbalancer_sync_total ",
    "service_controller_nodesync_error_total 0",
    "service_controller_nodesync_latency_seconds_count",
    "service_controller_update_loadbalancer_host_latency_seconds_count",
    "running_managed_controllers{manager=\"cloud-controller-manager\",name=\"cloud-node\"} 1",
    "running_managed_controllers{manager=\"cloud-controller-manager\",name=\"service\"} 1",
    "workqueue_depth{name=\"Nodes\"} 0",
    "workqueue_adds_total{name=\"service\"}",
    "workqueue_queue_duration_seconds_bucket{",
    "workqueue_work_duration_seconds_bucket{",
    "workqueue_unfinished_work_seconds{",
    "workqueue_longest_running_processor_seconds{",
    "workqueue_retries_total{",
    "leader_election_master_status{name=\"cloud-controller-manager\"} 1",
    "ccm_provider_rpc_total{provider=\"mock\",rpc=\"EnsureLoadBalancer\",outcome=\"ok\"} 1",
    "ccm_provider_rpc_duration_seconds_count{provider=\"mock\",rpc=\"LookupInstances\"}",
];

/// Shows B-M7 and ▲M7 too.
#[tokio::test]
async fn b_m4_health_tells_what_is_missing_and_the_rest_is_for_whom_the_api_server_lets_in() {
    let mut world = World::new(Fixture::default()).await;
    world.mock.shutdown().await;
    let port = free_port();
    let ccm = world.ccm(&[&format!("--secure-port={port}"), "--bind-address=127.0.0.1"]);
    said(&ccm, "it does not exist yet").await;

    // Without its provider, the process is alive and healthy, but not ready.
    let (status, why) = eventually("the caches are synced", SOON, async || {
        let (status, text) = get(port, "/readyz", ADMIN).await;
        let synced = text.contains("[+]nodes ok") && text.contains("[+]services ok");
        if synced {
            Ok((status, text))
        } else {
            Err(text)
        }
    })
    .await;
    assert_eq!(status, 500);
    let expected = format!(
        "[-]provider-mock failed: waiting for the socket {}: it does not exist yet\n",
        world.mock.path().display()
    );
    assert!(why.contains(&expected), "{why}");
    assert!(why.ends_with("readyz check failed\n"), "{why}");
    let (status, why) = get(port, "/readyz", None).await;
    assert_eq!(status, 500);
    assert!(
        why.contains("[-]provider-mock failed: reason withheld\n"),
        "{why}"
    );
    assert_eq!(get(port, "/livez", None).await, (200, "ok".to_owned()));
    assert_eq!(get(port, "/healthz", None).await, (200, "ok".to_owned()));

    world.mock.restart().await.unwrap();
    world.led_by(&ccm).await;
    eventually("it is ready", SOON, async || {
        match get(port, "/readyz", None).await {
            (200, text) if text == "ok" => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
    let (_, verbose) = get(port, "/readyz?verbose", None).await;
    assert!(verbose.contains("[+]provider-mock ok\n"), "{verbose}");
    let (_, verbose) = get(port, "/healthz?verbose", None).await;
    assert!(verbose.contains("[+]leaderElection ok\n"), "{verbose}");
    eventually("it lists its controllers", SOON, async || {
        let (_, verbose) = get(port, "/healthz?verbose", None).await;
        let names = ["cloud-node-controller", "service-lb-controller"];
        let listed = names
            .iter()
            .all(|name| verbose.contains(&format!("[+]{name} ok\n")));
        if listed { Ok(()) } else { Err(verbose) }
    })
    .await;

    // TokenReview names the user. SubjectAccessReview says whether the user may read the path.
    for path in ["/metrics", "/configz", "/nowhere"] {
        let (status, text) = get(port, path, None).await;
        assert_eq!(
            (status, text.contains("system:anonymous")),
            (403, true),
            "{path}: {text}"
        );
        assert_eq!(get(port, path, Some("garbage")).await.0, 401, "{path}");
        let (status, text) = get(port, path, Some("testenv-nobody")).await;
        assert_eq!(
            (status, text.contains("\"nobody\"")),
            (403, true),
            "{path}: {text}"
        );
    }
    assert_eq!(get(port, "/nowhere", ADMIN).await.0, 404);
    let (status, text) = get(port, "/configz", ADMIN).await;
    assert_eq!(status, 200);
    let configz: serde_json::Value = serde_json::from_str(&text).unwrap();
    let shown = configz.to_string();
    assert!(
        shown.contains(&world.mock.path().display().to_string()),
        "{shown}"
    );
    assert!(!shown.contains("testenv-ccm"), "{shown}");

    // B-M7.
    world.join("node-1").await;
    world.initialised("node-1").await;
    world.balanced("web").await;
    let (status, metrics) = get(port, "/metrics", ADMIN).await;
    assert_eq!(status, 200);
    for name in METRICS {
        assert!(
            metrics.lines().any(|line| line.starts_with(name)),
            "{name} is not in:\n{metrics}"
        );
    }

    // Without the API server a token that the ccm has not seen before gets 500. Open paths need no
    // API server.
    world.plane.kill_api_server();
    assert_eq!(get(port, "/metrics", Some("never-seen")).await.0, 500);
    assert_eq!(get(port, "/livez", None).await.0, 200);
}

#[tokio::test]
async fn b_m4_a_given_certificate_is_the_one_that_is_served() {
    let mut world = World::new(Fixture::default()).await;
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let (certificate, key) = (world.file("https.crt"), world.file("https.key"));
    std::fs::write(&certificate, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let port = free_port();
    let ccm = world.ccm(&[
        &format!("--secure-port={port}"),
        "--bind-address=127.0.0.1",
        &format!("--tls-cert-file={}", certificate.display()),
        &format!("--tls-private-key-file={}", key.display()),
    ]);
    said(&ccm, "listening for HTTPS").await;
    let trusting = |root: Vec<u8>| {
        let mut config = Config::new(format!("https://localhost:{port}").parse().unwrap());
        config.root_cert = Some(vec![root]);
        config.default_retry = false;
        Client::try_from(config).unwrap()
    };
    let answer = ask(&trusting(made.cert.der().to_vec()), "/livez", None).await;
    assert_eq!(answer, (200, "ok".to_owned()));
    let other = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let answer = ask(&trusting(other.cert.der().to_vec()), "/livez", None).await;
    assert_eq!(answer.0, 0, "{answer:?}");
}

/// A certificate authority.
pub(super) struct Authority(pub(super) CertifiedIssuer<'static, KeyPair>);

impl Authority {
    pub(super) fn new(name: &str) -> Self {
        let mut params = CertificateParams::new([]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        Self(CertifiedIssuer::self_signed(params, key).unwrap())
    }

    /// A caller of the port with a client certificate of this name and group.
    fn caller(&self, port: u16, name: &str, group: &str) -> Client {
        let mut params = CertificateParams::new([]).unwrap();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        params
            .distinguished_name
            .push(DnType::OrganizationName, group);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap();
        let directory = tempfile::tempdir().unwrap();
        let write = |file: &str, text: String| {
            let path = directory.path().join(file);
            std::fs::write(&path, text).unwrap();
            Some(path.display().to_string())
        };
        let mut config = Config::new(format!("https://127.0.0.1:{port}").parse().unwrap());
        config.accept_invalid_certs = true;
        config.default_retry = false;
        config.auth_info.client_certificate = write("tls.crt", certificate.pem());
        config.auth_info.client_key = write("tls.key", key.serialize_pem());
        Client::try_from(config).unwrap()
    }
}

async fn status(client: &Client, path: &str, headers: &[(&str, &str)]) -> u16 {
    let mut request = http::Request::get(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let answer = client.send(request.body(Body::empty()).unwrap()).await;
    answer.map_or(0, |answer| answer.status().as_u16())
}

#[tokio::test]
async fn b_m4_client_certificates_and_front_proxies_of_the_api_server_count() {
    let (users, proxies) = (Authority::new("users"), Authority::new("proxies"));
    let directory = tempfile::tempdir().unwrap();
    let file = |flag: &str, name: &str, authority: &Authority| {
        let path = directory.path().join(name);
        std::fs::write(&path, authority.0.pem()).unwrap();
        format!("--{flag}={}", path.display())
    };
    // The content of kube-system/extension-apiserver-authentication.
    let options = Options {
        api_server_flags: vec![
            file("client-ca-file", "users.crt", &users),
            file("requestheader-client-ca-file", "proxies.crt", &proxies),
            "--requestheader-allowed-names=front".to_owned(),
            "--requestheader-username-headers=X-Remote-User".to_owned(),
            "--requestheader-group-headers=X-Remote-Group".to_owned(),
            "--requestheader-extra-headers-prefix=X-Remote-Extra-".to_owned(),
        ],
        ..Options::default()
    };
    let mut world = World::with_options(Fixture::default(), options).await;
    let port = free_port();
    let ccm = world.ccm(&[&format!("--secure-port={port}"), "--bind-address=127.0.0.1"]);
    said(&ccm, "listening for HTTPS").await;
    eventually("the authorities are known", SOON, async || {
        match status(
            &users.caller(port, "alice", "system:masters"),
            "/metrics",
            &[],
        )
        .await
        {
            200 => Ok(()),
            other => Err(other.to_string()),
        }
    })
    .await;
    let alice = users.caller(port, "alice", "nobodies");
    assert_eq!(status(&alice, "/metrics", &[]).await, 403);
    let stranger = Authority::new("users").caller(port, "alice", "system:masters");
    assert_eq!(status(&stranger, "/metrics", &[]).await, 401);
    assert_eq!(status(&stranger, "/livez", &[]).await, 200);
    let headers = [
        ("x-remote-user", "bob"),
        ("x-remote-group", "system:masters"),
    ];
    let front = proxies.caller(port, "front", "");
    assert_eq!(status(&front, "/metrics", &headers).await, 200);
    assert_eq!(status(&front, "/metrics", &headers[..1]).await, 403);
    assert_eq!(
        status(&proxies.caller(port, "back", ""), "/metrics", &headers).await,
        401
    );
    assert_eq!(status(&alice, "/metrics", &headers).await, 403);
}

#[tokio::test]
async fn b_m4_authorities_that_may_not_be_looked_up_end_it_unless_that_is_tolerated() {
    let mut world = World::new(Fixture::default()).await;
    let port = free_port();
    let secure = format!("--secure-port={port}");
    let gone = world
        .plane
        .kubectl()
        .args(["-n", "kube-system", "delete", "rolebinding"])
        .arg("system:cloud-controller-manager:authentication-reader")
        .output()
        .unwrap();
    assert!(gone.status.success(), "{gone:?}");
    let mut ccm = world.ccm(&[&secure, "--bind-address=127.0.0.1"]);
    assert_eq!(ccm.wait(SOON).await.unwrap().code(), Some(1));
    let line = said(&ccm, "kube-system/extension-apiserver-authentication").await;
    for word in [
        "extension-apiserver-authentication-reader",
        "--authentication-tolerate-lookup-failure",
        "--authentication-skip-lookup",
    ] {
        assert!(line.contains(word), "{word:?} is not in: {line}");
    }
    for flag in [
        "--authentication-tolerate-lookup-failure",
        "--authentication-skip-lookup",
    ] {
        let mut ccm = world.ccm(&[&secure, "--bind-address=127.0.0.1", flag]);
        world.led_by(&ccm).await;
        // Tokens count as before.
        assert_eq!(get(port, "/metrics", ADMIN).await.0, 200);
        assert_eq!(get(port, "/metrics", Some("garbage")).await.0, 401);
        ccm.terminate();
        assert_eq!(ccm.wait(SOON).await.unwrap().code(), Some(0));
    }
}
