//! Flags, files and sockets that are wrong, and the HTTPS port.

mod callers;
mod describe;
mod kubeconfig;
mod port;
mod quiet;
mod strangers;

use std::collections::BTreeSet;
use std::process::{Command, Output};
use testenv::free_port;

use crate::world::CCM;

pub use port::get;

fn run(flags: &[&str]) -> Output {
    let mut command = Command::new(CCM);
    command.args(flags).env_remove("KUBERNETES_SERVICE_HOST");
    command.output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Flags, and the words that the error must contain.
const WRONG: &[(&[&str], &[&str])] = &[
    (&["--nonsense"], &["--nonsense"]),
    (
        &["--controllers=*,nodes"],
        &[
            "--controllers=nodes",
            "cloud-node-controller",
            "cloud-node-lifecycle-controller",
            "service-lb-controller",
            "node-route-controller",
        ],
    ),
    (
        &["--controllers=*,-service,-cloud-node,-cloud-node-lifecycle,-route"],
        &["--controllers=", "at least one"],
    ),
    (
        &["--leader-elect-lease-duration=5s"],
        &[
            "--leader-elect-lease-duration=5s",
            "expected longer than --leader-elect-renew-deadline (10s)",
        ],
    ),
    (
        &["--leader-elect-renew-deadline=2s"],
        &[
            "--leader-elect-renew-deadline=2s",
            "longer than 1.2 times --leader-elect-retry-period (2s)",
        ],
    ),
    (
        &["--leader-elect-lease-duration=10500ms"],
        &["--leader-elect-lease-duration", "whole seconds"],
    ),
    (
        &["--leader-elect=maybe"],
        &["--leader-elect", "maybe", "true, false"],
    ),
    (
        &["--provider=mock"],
        &["--provider", "'mock'", "NAME=unix:///PATH"],
    ),
    (
        &["--provider=mock=tcp://1.2.3.4:5"],
        &["--provider", "tcp://1.2.3.4:5", "unix://"],
    ),
    (
        &["--provider=mock=unix://run/x"],
        &["--provider", "run/x", "absolute"],
    ),
    (
        &["--provider=Mock=unix:///x"],
        &["--provider", "Mock", "lower-case"],
    ),
    (
        &["--provider=a=unix:///a", "--provider=b=unix:///b"],
        &[
            "--provider=b",
            "only one provider",
            "--leader-elect-resource-name",
        ],
    ),
    (
        &["--provider-timeout=0s"],
        &["--provider-timeout=0ns", "at least 1s"],
    ),
    (
        &["--max-provider-call-deadline=5s"],
        &["--max-provider-call-deadline=5s", "at least 60s"],
    ),
    (
        &["--node-monitor-period=5"],
        &["--node-monitor-period", "'5'", "such as 5s"],
    ),
    (
        &["--node-monitor-period=-5s"],
        &["--node-monitor-period", "-5s", "not negative"],
    ),
    (
        &["--node-status-update-frequency=10ms"],
        &["--node-status-update-frequency=10ms", "at least 1s"],
    ),
    (
        &["--concurrent-node-syncs=0"],
        &["--concurrent-node-syncs", "'0'", "at least 1"],
    ),
    (
        &["--concurrent-service-syncs=many"],
        &["--concurrent-service-syncs", "many", "whole number"],
    ),
    (
        &["--node-deletion-brake=share=90%"],
        &["--node-deletion-brake", "share=90%", "under 50%"],
    ),
    (
        &["--node-deletion-brake=size=9"],
        &[
            "--node-deletion-brake",
            "size",
            "window, floor, share, hold, min-age",
        ],
    ),
    (
        &["--cluster-cidr=10.0.0.0"],
        &["--cluster-cidr", "10.0.0.0"],
    ),
    (
        &["--cluster-cidr=10.0.0.0/8,11.0.0.0/8"],
        &[
            "--cluster-cidr=10.0.0.0/8,11.0.0.0/8",
            "two of different IP families",
        ],
    ),
    (&["--cluster-name="], &["--cluster-name"]),
    (
        &["--master=ftp://example"],
        &["--master=ftp://example", "https://HOST:PORT"],
    ),
    (&["--kube-api-qps=0"], &["--kube-api-qps=0", "above 0"]),
    (
        &["--feature-gates=A=true"],
        &["--feature-gates=A=true", "a known gate: ", "WatchList"],
    ),
    (
        &["--config=/nonexistent/ccm.yaml"],
        &["/nonexistent/ccm.yaml", "--config cannot be read"],
    ),
    (
        &["--secure-port=70000"],
        &["--secure-port", "70000", "65535"],
    ),
    (
        &["--bind-address=here"],
        &["--bind-address", "here", "IP address"],
    ),
    (&["--tls-cert-file=/x"], &["--tls-private-key-file"]),
    (&["--tls-private-key-file=/x"], &["--tls-cert-file"]),
    (
        &["--authorization-always-allow-paths=healthz"],
        &["--authorization-always-allow-paths=healthz", "begin with /"],
    ),
    (
        &["--provider-annotation-prefixes=grpc-ccm.io/x"],
        &[
            "--provider-annotation-prefixes=grpc-ccm.io/x",
            "does not begin with grpc-ccm.io/",
        ],
    ),
    (
        &["--logging-format=xml"],
        &["--logging-format", "xml", "text", "json"],
    ),
    // The error lists every wrong value at once.
    (
        &[
            "--leader-elect-retry-period=1ms",
            "--controllers=x",
            "--kube-api-qps=0",
        ],
        &[
            "--leader-elect-retry-period=1ms",
            "--controllers=x",
            "--kube-api-qps=0",
        ],
    ),
];

#[test]
fn b_m5_flags_that_are_wrong_end_it_with_2_and_say_what_would_be_right() {
    for (flags, words) in WRONG {
        let output = run(flags);
        let errors = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{flags:?}: {errors}");
        for word in *words {
            assert!(
                errors.contains(word),
                "{flags:?}: {word:?} is not in: {errors}"
            );
        }
        assert!(errors.starts_with("error: "), "{flags:?}: {errors}");
        assert!(!errors.contains('\u{1b}'), "{flags:?}: colours in a pipe");
    }
}

#[test]
fn b_m5_flags_of_the_go_ccm_are_answered_with_what_replaced_them() {
    let output = run(&[
        "--cloud-provider=aws",
        "--cloud-config=/etc/cloud.conf",
        "--min-resync-period=12h",
        "--feature-gates=CloudControllerManagerWebhook=false",
        "--kubeconfig=/nonexistent/kubeconfig",
    ]);
    let log = text(&output.stderr);
    for (flag, answer) in [
        ("--cloud-provider", "--provider"),
        ("--cloud-config", "belongs to the provider process"),
        (
            "--min-resync-period",
            "does not resynchronise watches by time",
        ),
        (
            "--feature-gates",
            "CloudControllerManagerWebhook=false: the ccm serves the admission webhooks that --webhooks names",
        ),
    ] {
        let said = |line: &&str| {
            line.contains("WARN")
                && line.contains(&format!("flag=\"{flag}\""))
                && line.contains(answer)
        };
        assert_eq!(log.lines().filter(said).count(), 1, "{flag}: {log}");
    }
    assert_eq!(output.status.code(), Some(1), "{log}");
}

#[test]
fn b_m5_logs_go_to_standard_error_as_text_or_json_and_as_much_as_is_asked_for() {
    let flags = [
        "--kubeconfig=/nonexistent/kubeconfig",
        "--cloud-provider=aws",
        "--vmodule=node=5",
        "--log-flush-frequency=1s",
    ];
    let output = run(&flags);
    assert_eq!(text(&output.stdout), "");
    let log = text(&output.stderr);
    for word in [
        "WARN",
        "flag=\"--cloud-provider\"",
        "flag=\"--vmodule\"",
        "flag=\"--log-flush-frequency\"",
        "ERROR",
    ] {
        assert!(log.contains(word), "{word} is not in: {log}");
    }
    let mut flags = flags.to_vec();
    flags.push("--logging-format=json");
    let output = run(&flags);
    assert_eq!(text(&output.stdout), "");
    let lines: Vec<serde_json::Value> = text(&output.stderr)
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let about = |flag: &str| {
        lines
            .iter()
            .any(|line| line["level"] == "WARN" && line["flag"] == flag)
    };
    assert!(about("--cloud-provider") && about("--vmodule"), "{lines:?}");
    let error = lines.last().unwrap();
    assert_eq!(error["level"], "ERROR");
    let message = error["message"].as_str().unwrap();
    assert!(message.contains("/nonexistent/kubeconfig"), "{message}");
}

#[test]
fn b_m4_a_port_or_certificate_that_cannot_be_used_is_said_with_its_flags() {
    let directory = tempfile::tempdir().unwrap();
    let port = free_port();
    let _taken = std::net::TcpListener::bind(("127.0.0.1", port)).unwrap();
    let master = "--master=http://127.0.0.1:1";
    let output = run(&[
        master,
        "--bind-address=127.0.0.1",
        &format!("--secure-port={port}"),
    ]);
    let log = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{log}");
    for word in [
        &format!("127.0.0.1:{port}"),
        "--secure-port",
        "Address already in use",
    ] {
        assert!(log.contains(word), "{word:?} is not in: {log}");
    }

    let made = |name: &str| rcgen::generate_simple_self_signed(vec![name.to_owned()]).unwrap();
    let (one, other) = (made("one"), made("other"));
    let file = |name: &str, content: &str| {
        let path = directory.path().join(name);
        std::fs::write(&path, content).unwrap();
        path.display().to_string()
    };
    let certificate = file("one.crt", &one.cert.pem());
    let key = file("other.key", &other.signing_key.serialize_pem());
    let nothing = file("nothing.pem", "nothing\n");
    for (certificate, key, words) in [
        (
            "/nonexistent/crt",
            key.as_str(),
            ["--tls-cert-file", "/nonexistent/crt", "No such file"],
        ),
        (
            &certificate,
            "/nonexistent/key",
            ["--tls-private-key-file", "/nonexistent/key", "No such file"],
        ),
        (
            &nothing,
            &key,
            ["--tls-cert-file", "nothing.pem", "no PEM certificate"],
        ),
        (
            &certificate,
            &nothing,
            [
                "--tls-private-key-file",
                "nothing.pem",
                "no PEM private key",
            ],
        ),
        (
            &certificate,
            &key,
            [
                "--tls-cert-file",
                "--tls-private-key-file",
                "cannot be used together",
            ],
        ),
    ] {
        let output = run(&[
            master,
            "--bind-address=127.0.0.1",
            &format!("--secure-port={}", free_port()),
            &format!("--tls-cert-file={certificate}"),
            &format!("--tls-private-key-file={key}"),
        ]);
        let log = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{log}");
        for word in words {
            assert!(log.contains(word), "{word:?} is not in: {log}");
        }
    }
}

#[test]
fn help_is_grouped_and_names_every_default_and_version_is_one_line() {
    let help = run(&["--help"]);
    assert!(help.status.success());
    let help = text(&help.stdout);
    let groups = [
        "Provider flags:",
        "Debugging flags:",
        "Generic flags:",
        "Cloud-node-controller flags:",
        "Service-lb-controller flags:",
        "Webhook serving flags:",
        "Secure serving flags:",
        "Authentication flags:",
        "Authorization flags:",
        "Misc flags:",
        "Global flags:",
    ];
    let places: Vec<_> = groups
        .iter()
        .map(|group| help.find(&format!("\n{group}\n")))
        .collect();
    assert!(places.iter().all(Option::is_some), "{places:?}");
    assert!(places.is_sorted(), "{places:?}");
    for text in [
        "[default: cloud=unix:///run/cloud-provider/socket/provider.sock]",
        "[default: 15s]",
        "[default: 10258]",
    ] {
        assert!(help.contains(text), "{text}");
    }
    // The short help leaves out flags without effect.
    let short = text(&run(&["-h"]).stdout);
    assert!(
        short.contains("--provider-timeout") && !short.contains("--cloud-config"),
        "{short}"
    );
    let version = text(&run(&["--version"]).stdout);
    let begin = concat!("ccm v", env!("CARGO_PKG_VERSION"), ", commit ");
    assert!(
        version.starts_with(begin) && version.lines().count() == 1,
        "{version}"
    );
}

#[test]
fn b_m5_the_list_of_a_go_ccms_flags_is_what_it_prints() {
    let binary = testenv::control_plane_binary().unwrap();
    let output = Command::new(binary)
        .args(["go-ccm", "--help"])
        .output()
        .unwrap();
    let help = text(&output.stdout);
    let printed: BTreeSet<&str> = help
        .lines()
        .filter_map(|line| line.trim_start().split_once("--"))
        .filter(|(before, _)| before.is_empty() || *before == "-h, " || *before == "-v, ")
        .filter_map(|(_, flag)| flag.split([' ', '=']).next())
        .collect();
    let listed: BTreeSet<&str> = include_str!("../../src/args/tests/go_ccm_flags.txt")
        .lines()
        .filter_map(|line| line.split('\t').nth(1))
        .collect();
    let unknown: Vec<_> = printed.difference(&listed).collect();
    assert!(unknown.is_empty(), "{unknown:?}\n{help}");
    // A Go CCM of an older minor version knows fewer flags.
    if std::env::var_os("TESTENV_KUBERNETES").is_none() {
        assert_eq!(listed, printed, "{help}");
    }
}
