//! Callers with client certificates.

use std::sync::Arc;
use std::time::Duration;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, KeyPair,
};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::json;
use tempfile::TempDir;

use super::caller::Caller;
use super::{Limits, Port};

/// An authority for client certificates.
pub(super) struct Authority(CertifiedIssuer<'static, KeyPair>);

/// A client certificate and its key.
pub(super) type Identity = (CertificateDer<'static>, PrivateKeyDer<'static>);

impl Authority {
    pub(super) fn new(name: &str) -> Self {
        let mut params = CertificateParams::new([]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    fn pem(&self) -> String {
        self.0.pem()
    }

    fn signs(&self, name: &str, group: &str, usage: ExtendedKeyUsagePurpose) -> Identity {
        let mut params = CertificateParams::new([]).unwrap();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        if !group.is_empty() {
            params
                .distinguished_name
                .push(DnType::OrganizationName, group);
        }
        params.extended_key_usages = vec![usage];
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap();
        let key = PrivateKeyDer::Pkcs8(key.serialize_der().into());
        (certificate.der().clone(), key)
    }

    fn client(&self, name: &str, group: &str) -> Identity {
        self.signs(name, group, ExtendedKeyUsagePurpose::ClientAuth)
    }
}

struct Files(TempDir);

impl Files {
    fn new() -> Self {
        Self(TempDir::new().unwrap())
    }

    fn flag(&self, flag: &str, name: &str, text: &str) -> String {
        let path = self.0.path().join(name);
        std::fs::write(&path, text).unwrap();
        format!("--{flag}={}", path.display())
    }
}

impl Port {
    fn caller_with(&self, identity: &Identity) -> Caller {
        self.caller
            .with_identity(identity.0.clone(), identity.1.clone_key())
    }
}

#[tokio::test]
async fn b_m4_a_client_certificate_says_who_asks() {
    let (authority, other) = (Authority::new("users"), Authority::new("others"));
    let files = Files::new();
    let flag = files.flag("client-ca-file", "ca.crt", &authority.pem());
    let port = Port::open_with(&[&flag], Limits::default()).await;

    let alice = port.caller_with(&authority.client("alice", "ops"));
    assert_eq!(alice.get("/metrics", None).await.status, 200);
    let review = port.api_server.last_access_review();
    assert_eq!(
        (&review["user"], &review["groups"]),
        (&json!("alice"), &json!(["ops", "system:authenticated"]))
    );
    let id = review["extra"]["authentication.kubernetes.io/credential-id"][0].as_str();
    assert!(
        id.is_some_and(|id| id.starts_with("X509SHA256=")),
        "{review}"
    );
    assert_eq!(port.api_server.asked().0, 0, "no token, no TokenReview");

    // A caller with an untrusted certificate needs a valid token, except for an open path.
    for identity in [
        other.client("alice", "ops"),
        authority.signs("alice", "ops", ExtendedKeyUsagePurpose::ServerAuth),
    ] {
        let mallory = port.caller_with(&identity);
        let answer = mallory.get("/metrics", None).await;
        assert_eq!(
            (answer.status, answer.text.contains("client certificate")),
            (401, true)
        );
        assert_eq!(mallory.get("/healthz", None).await.status, 200);
        assert_eq!(mallory.get("/metrics", Some("alice")).await.status, 200);
        assert_eq!(mallory.get("/metrics", Some("mallory")).await.status, 401);
    }
    // Upstream admits the group system:masters without a review.
    let asked = port.api_server.asked();
    let root = port.caller_with(&authority.client("root", "system:masters"));
    assert_eq!(root.get("/configz", None).await.status, 200);
    assert_eq!(port.api_server.asked(), asked);
    // A caller without a certificate is anonymous.
    assert_eq!(port.status("/metrics", None).await, 403);
}

#[tokio::test]
async fn b_m4_a_front_proxy_says_in_headers_who_asks() {
    let (proxies, users) = (Authority::new("proxies"), Authority::new("users"));
    let files = Files::new();
    let flags = [
        files.flag("requestheader-client-ca-file", "proxy.crt", &proxies.pem()),
        files.flag("client-ca-file", "ca.crt", &users.pem()),
        "--requestheader-allowed-names=front".to_owned(),
        "--requestheader-uid-headers=X-Remote-Uid".to_owned(),
    ];
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let port = Port::open_with(&flags, Limits::default()).await;
    let headers = [
        ("X-Remote-User", "alice"),
        ("X-Remote-Group", "ops"),
        ("X-Remote-Uid", "u-9"),
        ("X-Remote-Extra-Scopes", "a"),
    ];
    let front = port.caller_with(&proxies.client("front", ""));
    assert_eq!(front.get_with("/metrics", &headers).await.status, 200);
    assert_eq!(
        port.api_server.last_access_review(),
        json!({
            "user": "alice", "uid": "u-9", "groups": ["ops", "system:authenticated"], "extra": {"scopes": ["a"]},
            "nonResourceAttributes": {"path": "/metrics", "verb": "get"},
        })
    );
    // The headers of other callers are ignored.
    for (caller, status) in [
        (port.caller_with(&proxies.client("back", "")), 401),
        (
            port.caller_with(&Authority::new("proxies").client("front", "")),
            401,
        ),
    ] {
        assert_eq!(caller.get_with("/metrics", &headers).await.status, status);
    }
    assert_eq!(port.caller.get_with("/metrics", &headers).await.status, 403);
    let bob = port.caller_with(&users.client("bob", ""));
    assert_eq!(bob.get_with("/metrics", &headers).await.status, 403);
    assert_eq!(port.api_server.last_access_review()["user"], "bob");
    // A proxy that names no user is refused: its own certificate is not a user's.
    assert_eq!(front.get("/metrics", None).await.status, 401);
}

#[tokio::test]
async fn b_m4_authorities_of_the_config_map_count_and_are_replaced_by_newer_ones() {
    let (users, proxies, later) = (
        Authority::new("a"),
        Authority::new("b"),
        Authority::new("c"),
    );
    let port = Port::open().await;
    let (alice, front) = (users.client("alice", ""), proxies.client("front", ""));
    // No authority is known yet, so the port requests no certificate.
    assert_eq!(
        port.caller_with(&alice).get("/metrics", None).await.status,
        403
    );
    let map = [
        ("client-ca-file", users.pem()),
        ("requestheader-client-ca-file", proxies.pem()),
        ("requestheader-allowed-names", r#"["front"]"#.to_owned()),
        (
            "requestheader-username-headers",
            r#"["X-Remote-User"]"#.to_owned(),
        ),
        (
            "requestheader-group-headers",
            r#"["X-Remote-Group"]"#.to_owned(),
        ),
        (
            "requestheader-extra-headers-prefix",
            r#"["X-Remote-Extra-"]"#.to_owned(),
        ),
    ];
    let pairs: Vec<(&str, &str)> = map
        .iter()
        .map(|(key, value)| (*key, value.as_str()))
        .collect();
    port.authorities.taken(&pairs).unwrap();
    assert_eq!(
        port.caller_with(&alice).get("/metrics", None).await.status,
        200
    );
    let headers = [("x-remote-user", "alice")];
    assert_eq!(
        port.caller_with(&front)
            .get_with("/metrics", &headers)
            .await
            .status,
        200
    );

    // Unusable content of a part (users, front proxies) leaves that part's trust as it was. New
    // content is used at once.
    for wrong in [
        ("client-ca-file", "nothing"),
        ("requestheader-allowed-names", "front"),
    ] {
        let mut pairs = pairs.clone();
        pairs.retain(|(key, _)| *key != wrong.0);
        pairs.push(wrong);
        let error = port.authorities.taken(&pairs).unwrap_err();
        assert!(error.starts_with(wrong.0), "{error}");
        assert_eq!(
            port.caller_with(&alice).get("/metrics", None).await.status,
            200
        );
    }
    let pem = later.pem();
    port.authorities.taken(&[("client-ca-file", &pem)]).unwrap();
    assert_eq!(
        port.caller_with(&alice).get("/metrics", None).await.status,
        401
    );
    let alice = later.client("alice", "");
    assert_eq!(
        port.caller_with(&alice).get("/metrics", None).await.status,
        200
    );
    assert!(port.authorities.trust().proxies.is_none());
}

#[tokio::test]
async fn b_m4_files_of_authorities_that_cannot_be_used_are_named_with_their_flag() {
    let files = Files::new();
    for flag in ["client-ca-file", "requestheader-client-ca-file"] {
        for (name, text) in [
            ("empty", ""),
            ("garbage", "-----BEGIN CERTIFICATE-----\n!!\n"),
        ] {
            let flag = files.flag(flag, name, text);
            let config = super::config(&[&flag]);
            let Err(error) = super::Listener::bind(&config.serve).await else {
                panic!("{flag} was taken");
            };
            let (flag, path) = flag.split_once('=').unwrap();
            let error = error.to_string();
            assert!(error.starts_with(flag) && error.contains(path), "{error}");
        }
    }
}

#[tokio::test]
async fn b_m4_versions_suites_and_groups_are_restricted_as_asked() {
    use rustls::version::{TLS12, TLS13};
    let suites = |port: &Port, version| {
        let caller = Arc::new(port.caller.speaking(version));
        async move {
            let tls = caller.tls().await.ok()?;
            let suite = tls.get_ref().1.negotiated_cipher_suite()?;
            let group = tls.get_ref().1.negotiated_key_exchange_group()?;
            Some((format!("{:?}", suite.suite()), u16::from(group.name())))
        }
    };
    let port = Port::open().await;
    assert!(suites(&port, &TLS12).await.is_some() && suites(&port, &TLS13).await.is_some());
    let port = Port::open_with(&["--tls-min-version=VersionTLS13"], Limits::default()).await;
    assert!(suites(&port, &TLS12).await.is_none() && suites(&port, &TLS13).await.is_some());
    let only = "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305";
    let flags = [
        format!("--tls-cipher-suites={only}"),
        "--tls-curve-preferences=24".to_owned(),
    ];
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let port = Port::open_with(&flags, Limits::default()).await;
    assert_eq!(
        suites(&port, &TLS12).await,
        Some((format!("{only}_SHA256"), 24))
    );
    assert!(
        suites(&port, &TLS13)
            .await
            .is_some_and(|(suite, group)| suite.starts_with("TLS13") && group == 24)
    );
    let flags = ["--tls-cipher-suites=TLS_RSA_WITH_AES_128_GCM_SHA256"];
    let port = Port::open_with(&flags, Limits::default()).await;
    assert!(suites(&port, &TLS12).await.is_none() && suites(&port, &TLS13).await.is_some());
}

#[tokio::test(start_paused = true)]
async fn b_m4_authorities_in_files_are_read_again_when_they_change() {
    let (old, new) = (Authority::new("old"), Authority::new("new"));
    let files = Files::new();
    let flag = files.flag("client-ca-file", "ca.crt", &old.pem());
    let config = super::config(&[&flag, "--authentication-skip-lookup"]);
    let authorities = super::Authorities::read(&config.serve.authentication)
        .await
        .unwrap();
    let client = super::ApiServer::default().client();
    let keeping = tokio::spawn(authorities.clone().keep(client));
    let counts = |authority: &Authority| {
        let (certificate, _) = authority.client("alice", "");
        let trust = authorities.trust();
        trust
            .clients
            .as_ref()
            .is_some_and(|bundle| bundle.verify(&[certificate]).is_ok())
    };
    assert!(counts(&old) && !counts(&new));
    // Only a part of the new file is written: the old authorities stay.
    files.flag("client-ca-file", "ca.crt", &new.pem()[..100]);
    tokio::time::sleep(Duration::from_secs(25)).await;
    assert!(counts(&old) && !counts(&new));
    files.flag("client-ca-file", "ca.crt", &new.pem());
    for _ in 0..100 {
        if counts(&new) {
            break;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    assert!(counts(&new) && !counts(&old));
    keeping.abort();
}

/// Finding B2.
#[tokio::test]
async fn b_m4_a_chain_that_is_too_long_is_refused_in_the_handshake() {
    let authority = Authority::new("users");
    let files = Files::new();
    let flag = files.flag("client-ca-file", "ca.crt", &authority.pem());
    let port = Port::open_with(&[&flag], Limits::default()).await;
    let (certificate, key) = authority.client("alice", "ops");
    let with = |intermediates: Vec<CertificateDer<'static>>| {
        let chain = std::iter::once(certificate.clone()).chain(intermediates);
        port.caller.with_chain(chain.collect(), key.clone_key())
    };
    let other = || Authority::new("users").0.der().clone();
    let four = with((0..4).map(|_| other()).collect());
    assert_eq!(four.get("/metrics", None).await.status, 200);
    let large = CertificateDer::from(vec![0; 16 * 1024]);
    for refused in [(0..5).map(|_| other()).collect(), vec![large]] {
        let caller = with(refused);
        // With TLS 1.3 the client finishes its handshake before the server refuses it.
        let refused = match caller.tls().await {
            Err(_) => true,
            Ok(mut stream) => {
                use tokio::io::AsyncReadExt as _;
                stream.read_u8().await.is_err()
            }
        };
        assert!(refused);
    }
}

/// Finding B2: a connection's certificates are judged again when the authorities change.
#[tokio::test]
async fn b_m4_a_connection_is_judged_again_when_the_authorities_change() {
    let (old, new) = (Authority::new("old"), Authority::new("new"));
    let port = Port::open().await;
    let trust = |authority: &Authority| {
        let pem = authority.pem();
        port.authorities.taken(&[("client-ca-file", &pem)]).unwrap();
    };
    trust(&old);
    let (mut sender, _driver) = port.caller_with(&old.client("alice", "")).connect().await;
    let mut status = async || {
        let request = hyper::Request::get("/metrics").body(http_body_util::Empty::new());
        let answer = sender.send_request(request.unwrap()).await.unwrap();
        answer.status().as_u16()
    };
    assert_eq!((status().await, status().await), (200, 200));
    trust(&new);
    assert_eq!(status().await, 401);
    trust(&old);
    assert_eq!(status().await, 200);
}
