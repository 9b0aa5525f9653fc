use std::path::Path;

use super::*;

const FILES: [&str; 2] = [
    "--webhook-tls-cert-file=/c.pem",
    "--webhook-tls-private-key-file=/k.pem",
];

#[test]
fn b_v1_webhooks_are_off_unless_named() {
    let off = |flags: &[&str]| config(flags).unwrap().webhooks.is_none();
    assert!(off(&[]));
    assert!(off(&FILES));
    assert!(off(&["--webhooks=*"]), "none is on by default");
    assert!(off(&[
        "--webhooks=persistent-volume-label,-persistent-volume-label"
    ]));
    let [certificate, key] = FILES;
    let on = ["--webhooks=*,persistent-volume-label", certificate, key];
    assert!(off(&[on[0], on[1], on[2], "--webhook-secure-port=0"]));

    let webhooks = config(&on).unwrap().webhooks.unwrap();
    assert_eq!(
        (webhooks.bind_address.to_string().as_str(), webhooks.port),
        ("0.0.0.0", 10260)
    );
    assert_eq!(
        webhooks.tls.files.as_ref().unwrap().certificate,
        Path::new("/c.pem")
    );
    assert_eq!(webhooks.tls.files.unwrap().private_key, Path::new("/k.pem"));

    let directory = [
        "--webhooks=persistent-volume-label",
        "--webhook-cert-dir=/certs",
    ];
    let webhooks = config(&directory).unwrap().webhooks.unwrap();
    assert_eq!(
        webhooks.tls.files.unwrap().certificate,
        Path::new("/certs/cloud-controller-manager-webhook.crt")
    );
}

#[test]
fn b_v1_webhooks_that_cannot_be_served_are_refused() {
    refused(
        &["--webhooks=volumes"],
        &["--webhooks=volumes", "persistent-volume-label"],
    );
    refused(
        &["--webhooks=persistent-volume-label"],
        &["--webhook-tls-cert-file", "--webhook-cert-dir"],
    );
    refused(&FILES[..1], &["--webhook-tls-private-key-file beside it"]);
    refused(&FILES[1..], &["--webhook-tls-cert-file beside it"]);
}

#[test]
fn b_m5_the_webhooks_port_speaks_tls_as_its_own_flags_say() {
    let on = [
        "--webhooks=persistent-volume-label",
        "--webhook-cert-dir=/certificates",
        "--tls-min-version=VersionTLS13",
    ];
    let with = |more: &[&'static str]| {
        let mut flags = on.to_vec();
        flags.extend(more);
        config(&flags).unwrap().webhooks.unwrap().tls
    };
    assert_eq!(with(&[]).min_version, TlsVersion::V12);
    let tls = with(&[
        "--webhook-tls-min-version=VersionTLS13",
        "--webhook-tls-curve-preferences=29",
        "--webhook-tls-cipher-suites=TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
        "--webhook-tls-sni-cert-key=a.crt,a.key",
    ]);
    assert_eq!(tls.min_version, TlsVersion::V13);
    assert_eq!(tls.curves, Some(BTreeSet::from([29])));
    assert_eq!(tls.cipher_suites.map(|suites| suites.len()), Some(1));
    assert_eq!(tls.sni.len(), 1);
    refused(
        &["--webhook-tls-min-version=old"],
        &["--webhook-tls-min-version=old", "VersionTLS12"],
    );
    assert_eq!(
        answered(&["--webhook-tls-cipher-suites=TLS_RSA_WITH_RC4_128_SHA"]),
        ["--webhook-tls-cipher-suites"]
    );
}
