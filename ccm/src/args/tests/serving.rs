//! Flags of the HTTPS port.

use super::*;

#[test]
fn b_m4_flags_of_the_port_make_its_configuration() {
    let serve = config(&[
        "--cert-dir=/certificates",
        "--tls-sni-cert-key=a.crt,a.key:A.example,*.b.example",
        "--tls-sni-cert-key=c.crt,c.key",
        "--tls-min-version=VersionTLS13",
        "--tls-cipher-suites=TLS_AES_128_GCM_SHA256,TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305,TLS_RSA_WITH_AES_128_CBC_SHA",
        "--tls-curve-preferences=29,4588",
        "--client-ca-file=/ca.crt",
        "--requestheader-client-ca-file=/proxy.crt",
        "--requestheader-allowed-names=front,aggregator",
        "--requestheader-username-headers=X-Remote-User,X-User",
        "--requestheader-uid-headers=X-Remote-Uid",
        "--authentication-tolerate-lookup-failure",
        "--authentication-token-webhook-cache-ttl=1m",
        "--authorization-webhook-cache-authorized-ttl=5m",
        "--authorization-webhook-cache-unauthorized-ttl=30s",
        "--permit-port-sharing",
    ])
    .unwrap()
    .serve;
    assert!(serve.permit_port_sharing);
    let tls = serve.tls;
    assert_eq!(tls.directory, Some(PathBuf::from("/certificates")));
    let names: Vec<_> = tls.sni.iter().map(|pair| pair.names.join(" ")).collect();
    assert_eq!(names, ["a.example *.b.example", ""]);
    assert_eq!(tls.sni[1].files.private_key, PathBuf::from("c.key"));
    assert_eq!(tls.min_version, TlsVersion::V13);
    let suite = "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256".to_owned();
    assert_eq!(tls.cipher_suites, Some(BTreeSet::from([suite])));
    assert_eq!(tls.curves, Some(BTreeSet::from([29])));
    let authentication = serve.authentication;
    assert!(authentication.tolerate_lookup_failure && !authentication.skip_lookup);
    assert_eq!(authentication.token_ttl, Duration::from_mins(1));
    let header = authentication.request_header;
    assert_eq!(header.allowed_names, ["front", "aggregator"]);
    assert_eq!(header.username_headers, ["x-remote-user", "x-user"]);
    assert_eq!(header.uid_headers, ["x-remote-uid"]);
    assert_eq!(header.group_headers, ["x-remote-group"]);
    assert_eq!(header.extra_header_prefixes, ["x-remote-extra-"]);
    assert_eq!(serve.authorization.allowed_ttl, Duration::from_mins(5));
    assert_eq!(serve.authorization.denied_ttl, Duration::from_secs(30));
}

#[test]
fn b_m4_flags_of_the_port_that_are_wrong_are_named() {
    for (flag, words) in [
        (
            "--tls-min-version=1.3",
            &["VersionTLS12 or VersionTLS13"][..],
        ),
        (
            "--tls-cipher-suites=TLS_NONE",
            &[
                "--tls-cipher-suites=TLS_NONE",
                "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
            ],
        ),
        (
            "--tls-curve-preferences=7",
            &["--tls-curve-preferences=7", "29 (X25519)"],
        ),
        (
            "--tls-curve-preferences=25",
            &["at least one that is offered"],
        ),
        (
            "--tls-sni-cert-key=a.crt",
            &["--tls-sni-cert-key=a.crt", "CERT,KEY"],
        ),
        ("--tls-sni-cert-key=a.crt,b.key,c", &["CERT,KEY:NAME"]),
        (
            "--requestheader-username-headers=a b",
            &["--requestheader-username-headers=a b", "HTTP headers"],
        ),
        (
            "--requestheader-group-headers=a,,b",
            &["--requestheader-group-headers=", "HTTP headers"],
        ),
        (
            "--authentication-token-webhook-cache-ttl=-1s",
            &["not negative"],
        ),
    ] {
        refused(&[flag], words);
    }
    // If Go supports a setting and the ccm does not, the ccm answers with a notice.
    assert_eq!(
        answered(&[
            "--tls-min-version=VersionTLS10",
            "--tls-cipher-suites=TLS_RSA_WITH_RC4_128_SHA,TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
            "--tls-curve-preferences=23,25",
        ]),
        [
            "--tls-min-version",
            "--tls-cipher-suites",
            "--tls-curve-preferences"
        ]
    );
    assert!(
        answered(&[
            "--tls-min-version=VersionTLS12",
            "--tls-curve-preferences=23"
        ])
        .is_empty()
    );
}
