//! Certificates from files, and the port's address.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rustls_pki_types::CertificateDer;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use super::api_server::ApiServer;
use super::caller::Caller;
use super::{Limits, config, eventually, site};
use crate::args::{Config, TlsFiles};
use crate::serve::{Listener, serve_within};

struct Pair {
    certificate: CertificateDer<'static>,
    certificate_pem: String,
    key_pem: String,
}

fn pair() -> Pair {
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    Pair {
        certificate: made.cert.der().clone(),
        certificate_pem: made.cert.pem(),
        key_pem: made.signing_key.serialize_pem(),
    }
}

fn with_files(certificate: PathBuf, private_key: PathBuf) -> Config {
    let mut config = config(&[]);
    config.serve.tls.files = Some(TlsFiles {
        certificate,
        private_key,
    });
    config
}

fn write(directory: &TempDir, name: &str, text: &str) -> PathBuf {
    let path = directory.path().join(name);
    std::fs::write(&path, text).unwrap();
    path
}

async fn refusal(certificate: &Path, key: &Path) -> String {
    let config = with_files(certificate.to_owned(), key.to_owned());
    let Err(error) = Listener::bind(&config.serve).await else {
        panic!("{certificate:?} and {key:?} were taken");
    };
    format!("{error:#}")
}

#[tokio::test]
async fn b_m4_files_that_cannot_be_used_are_named_with_their_flag() {
    let directory = TempDir::new().unwrap();
    let (one, other) = (pair(), pair());
    let certificate = write(&directory, "tls.crt", &one.certificate_pem);
    let key = write(&directory, "tls.key", &one.key_pem);
    let other_key = write(&directory, "other.key", &other.key_pem);
    let garbage = write(&directory, "garbage", "-----BEGIN CERTIFICATE-----\n!!\n");
    let absent = directory.path().join("absent");

    let text = refusal(&absent, &key).await;
    assert!(text.starts_with("--tls-cert-file: cannot read") && text.contains("absent"));
    let text = refusal(&certificate, &absent).await;
    assert!(text.starts_with("--tls-private-key-file: cannot read") && text.contains("absent"));
    for wrong in [&garbage, &key] {
        let text = refusal(wrong, &key).await;
        assert!(text.contains("holds no PEM"), "{text}");
        assert!(text.starts_with("--tls-cert-file: "), "{text}");
    }
    let text = refusal(&certificate, &certificate).await;
    assert!(text.contains("holds no PEM"), "{text}");
    assert!(text.starts_with("--tls-private-key-file: "), "{text}");
    let text = refusal(&certificate, &other_key).await;
    assert!(text.contains("cannot be used together"), "{text}");
    assert!(
        [
            "--tls-cert-file",
            "tls.crt",
            "--tls-private-key-file",
            "other.key"
        ]
        .iter()
        .all(|part| text.contains(part)),
        "{text}"
    );
}

#[tokio::test]
async fn b_m4_a_port_that_is_taken_is_named_with_its_flags() {
    let mut config = config(&[]);
    let first = Listener::bind(&config.serve).await.unwrap();
    config.serve.port = first.address().port();
    let Err(error) = Listener::bind(&config.serve).await else {
        panic!("bound twice");
    };
    let text = error.to_string();
    assert!(
        [
            "--bind-address",
            "--secure-port",
            &first.address().to_string()
        ]
        .iter()
        .all(|part| text.contains(part)),
        "{text}"
    );
}

#[tokio::test]
async fn b_m4_changed_files_are_taken_and_a_half_written_pair_is_not() {
    let directory = TempDir::new().unwrap();
    let (old, new) = (pair(), pair());
    let certificate = write(&directory, "tls.crt", &old.certificate_pem);
    let key = write(&directory, "tls.key", &old.key_pem);
    let config = with_files(certificate, key);
    let listener = Listener::bind(&config.serve).await.unwrap();
    let trusting =
        |pair: &Pair| Caller::trusting(listener.address(), std::slice::from_ref(&pair.certificate));
    let (knows_old, knows_new) = (trusting(&old), trusting(&new));
    let site = site(config, &ApiServer::default(), listener.authorities());
    let limits = Limits {
        reload: Duration::from_millis(5),
        ..Limits::default()
    };
    let shutdown = CancellationToken::new();
    let serving = serve_within(listener, site, shutdown.clone(), limits);
    let calls = async {
        assert_eq!(knows_old.get("/livez", None).await.status, 200);
        assert!(knows_new.tls().await.is_err());
        let (mut open, _driver) = knows_old.connect().await;

        write(&directory, "tls.crt", &new.certificate_pem);
        for _ in 0..10 {
            assert_eq!(knows_old.get("/livez", None).await.status, 200);
        }
        write(&directory, "tls.key", &new.key_pem);
        eventually("the new certificate is served", async || {
            knows_new.tls().await.is_ok()
        })
        .await;
        assert_eq!(knows_new.get("/livez", None).await.status, 200);
        assert!(knows_old.tls().await.is_err());

        let request = hyper::Request::get("/livez")
            .body(http_body_util::Empty::new())
            .unwrap();
        let answer = open.send_request(request).await.unwrap();
        assert_eq!(answer.status(), 200, "an open connection stays");
        shutdown.cancel();
    };
    tokio::join!(serving, calls);
}

#[tokio::test]
async fn b_m4_the_self_made_certificate_is_for_localhost_and_this_host() {
    let port = super::Port::open().await;
    let hostname = gethostname::gethostname().to_string_lossy().into_owned();
    for name in ["localhost", "127.0.0.1", hostname.as_str()] {
        assert!(port.caller.tls_as(name).await.is_ok(), "{name}");
    }
    assert!(port.caller.tls_as("example.com").await.is_err());
}

#[test]
fn a_host_name_that_no_certificate_can_hold_is_left_out() {
    for hostname in ["", "localhost", "größe", "a b", "x_y"] {
        assert!(crate::serve::tls::self_made(hostname).is_ok(), "{hostname}");
    }
}

#[tokio::test]
async fn b_m4_a_name_gets_its_own_certificate() {
    let directory = TempDir::new().unwrap();
    let named = |name: &str| {
        let made = rcgen::generate_simple_self_signed([name.to_owned(), "127.0.0.1".to_owned()]);
        let made = made.unwrap();
        let certificate = write(&directory, &format!("{name}.crt"), &made.cert.pem());
        let key = write(
            &directory,
            &format!("{name}.key"),
            &made.signing_key.serialize_pem(),
        );
        let files = format!("{},{}", certificate.display(), key.display());
        (made.cert.der().clone(), files)
    };
    let (one, one_files) = named("one.example");
    // The certificate lacks the flag's pattern, so the client asks for a name that the certificate
    // has.
    let (wild, wild_files) = named("a.b.wild.example");
    let flags = [
        format!("--tls-sni-cert-key={one_files}"),
        format!("--tls-sni-cert-key={wild_files}:*.*.wild.example"),
    ];
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let port = super::Port::open_with(&flags, Limits::default()).await;
    for (certificate, name) in [(&one, "one.example"), (&wild, "a.b.wild.example")] {
        let caller = Caller::trusting(port.address, std::slice::from_ref(certificate));
        assert!(caller.tls_as(name).await.is_ok(), "{name}");
        assert!(caller.tls_as("localhost").await.is_err(), "{name}");
    }
    assert!(port.caller.tls_as("localhost").await.is_ok());
    let absent = format!(
        "--tls-sni-cert-key={},/absent",
        directory.path().join("one.example.crt").display()
    );
    let Err(error) = Listener::bind(&super::config(&[&absent]).serve).await else {
        panic!("a pair without a key was taken");
    };
    assert!(
        error
            .to_string()
            .starts_with("--tls-sni-cert-key: cannot read"),
        "{error}"
    );
}

#[tokio::test]
async fn b_m4_a_pair_that_cannot_be_read_any_more_holds_up_no_other() {
    let directory = TempDir::new().unwrap();
    let (old, new, named) = (pair(), pair(), pair());
    let mut config = with_files(
        write(&directory, "tls.crt", &old.certificate_pem),
        write(&directory, "tls.key", &old.key_pem),
    );
    config.serve.tls.sni = vec![crate::args::SniFiles {
        files: TlsFiles {
            certificate: write(&directory, "sni.crt", &named.certificate_pem),
            private_key: write(&directory, "sni.key", &named.key_pem),
        },
        names: vec!["a.example".to_owned()],
    }];
    let listener = Listener::bind(&config.serve).await.unwrap();
    let knows_new = Caller::trusting(listener.address(), std::slice::from_ref(&new.certificate));
    let site = site(config, &ApiServer::default(), listener.authorities());
    let limits = Limits {
        reload: Duration::from_millis(5),
        ..Limits::default()
    };
    let shutdown = CancellationToken::new();
    let serving = serve_within(listener, site, shutdown.clone(), limits);
    let calls = async {
        std::fs::remove_file(directory.path().join("sni.key")).unwrap();
        write(&directory, "tls.crt", &new.certificate_pem);
        write(&directory, "tls.key", &new.key_pem);
        eventually("the new certificate is served", async || {
            knows_new.tls().await.is_ok()
        })
        .await;
        shutdown.cancel();
    };
    tokio::join!(serving, calls);
}

#[tokio::test]
async fn b_m4_the_self_made_certificate_is_kept_where_it_is_asked_for() {
    use std::os::unix::fs::PermissionsExt as _;
    let directory = TempDir::new().unwrap();
    let kept = directory.path().join("certificates");
    let flag = format!("--cert-dir={}", kept.display());
    let config = config(&[&flag]);
    let first = Listener::bind(&config.serve).await.unwrap();
    assert!(first.certificate().is_none());
    let read =
        |name: &str| std::fs::read(kept.join(format!("cloud-controller-manager.{name}"))).unwrap();
    let (certificate, key) = (read("crt"), read("key"));
    let mode = std::fs::metadata(kept.join("cloud-controller-manager.key"))
        .unwrap()
        .permissions();
    assert_eq!(mode.mode() & 0o777, 0o600);
    // The next process uses the existing files.
    Listener::bind(&config.serve).await.unwrap();
    assert_eq!((read("crt"), read("key")), (certificate, key));
    std::fs::remove_file(kept.join("cloud-controller-manager.key")).unwrap();
    let Err(error) = Listener::bind(&config.serve).await else {
        panic!("half a pair was taken");
    };
    assert!(
        error.to_string().starts_with("--cert-dir: cannot read"),
        "{error}"
    );
}

#[tokio::test]
async fn b_m5_the_port_is_shared_only_where_that_is_permitted() {
    let mut config = config(&["--permit-port-sharing"]);
    let first = Listener::bind(&config.serve).await.unwrap();
    config.serve.port = first.address().port();
    assert!(Listener::bind(&config.serve).await.is_ok());
    config.serve.permit_port_sharing = false;
    assert!(Listener::bind(&config.serve).await.is_err());
}
