//! `--config`.

use super::*;

/// A file with this text, and its path for errors.
fn file(text: &str) -> (tempfile::TempDir, String) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ccm.yaml");
    std::fs::write(&path, text).unwrap();
    let path = path.display().to_string();
    (directory, path)
}

fn with(text: &str, flags: &[&str]) -> Result<Config, String> {
    let (_directory, path) = file(text);
    let flag = format!("--config={path}");
    let mut all = vec![flag.as_str()];
    all.extend(flags);
    config(&all).map_err(|wrong| wrong.join("\n").replace(&path, "FILE"))
}

#[test]
fn b_m5_a_file_says_what_flags_say() {
    let text = "\
# A comment.
provider: mock=unix:///run/p.sock
cluster-name: blue
cluster-cidr: [10.0.0.0/8, 'fd00::/48']
controllers:
- '*'
- -route
leader-elect: false
leader-elect-retry-period: 3s
secure-port: 10300
kube-api-qps: 12.5
node-deletion-brake: {floor: 5, share: 20%}
feature-gates: {CloudControllerManagerWebhook: false}
v: 4
";
    let config = with(text, &[]).unwrap();
    let flags = [
        "--provider=mock=unix:///run/p.sock",
        "--cluster-name=blue",
        "--cluster-cidr=10.0.0.0/8,fd00::/48",
        "--controllers=*,-route",
        "--leader-elect=false",
        "--leader-elect-retry-period=3s",
        "--secure-port=10300",
        "--kube-api-qps=12.5",
        "--node-deletion-brake=floor=5,share=20%",
    ];
    let expected = super::config(&flags).unwrap();
    assert_eq!(
        serde_json::to_value(config).unwrap(),
        serde_json::to_value(expected).unwrap()
    );
    let (_directory, path) = file(text);
    let args = parse(&[&format!("--config={path}")]).unwrap();
    assert_eq!(args.log().0, 4);
    assert_eq!(args.notices()[0].flag, "--feature-gates");
    let none = with("kubeconfig: ''\ncluster-cidr: ''\n", &[]).unwrap();
    assert!(none.kubeconfig.is_none() && none.cluster.cidrs.is_empty());
    for empty in ["", "# nothing\n", "---\n", "{}"] {
        assert!(with(empty, &[]).is_ok(), "{empty:?}");
    }
}

#[test]
fn b_m5_the_command_line_wins_over_the_file() {
    let text = "cluster-name: file\ncontrollers: [route]\nleader-elect: true\nkubeconfig: /file\n";
    let flags = [
        "--cluster-name=line",
        "--controllers=service",
        "--leader-elect=false",
    ];
    let config = with(text, &flags).unwrap();
    assert_eq!(config.cluster.name, "line");
    assert_eq!(config.controllers, BTreeSet::from([Controller::ServiceLb]));
    assert!(!config.leader_election.enabled);
    assert_eq!(config.kubeconfig, Some(PathBuf::from("/file")));
    // Of two flags that need each other, one may be in the file and one on the command line.
    let config = with("tls-cert-file: /a\n", &["--tls-private-key-file=/b"]).unwrap();
    assert!(config.serve.tls.files.is_some());
}

#[test]
fn b_m5_what_is_wrong_with_a_file_is_named_with_its_line() {
    for (text, words) in [
        (
            "cluster-name: a\nleader-elct: true\n",
            &["FILE:2: leader-elct: no flag has this name; did you mean leader-elect?"][..],
        ),
        (
            "clusterName: a\n",
            &["FILE:1: clusterName", "did you mean cluster-name?"],
        ),
        (
            "--secure_port: 1\n",
            &["FILE:1:", "did you mean secure-port?"],
        ),
        ("zzz: 1\n", &["FILE:1: zzz", "ccm --help"]),
        (
            "\nsecure-port: many\n",
            &["FILE:2: secure-port: \"many\"", "invalid digit"],
        ),
        (
            "secure-port: 70000\n",
            &["FILE:1: secure-port: \"70000\"", "65535"],
        ),
        (
            "leader-elect: maybe\n",
            &["FILE:1: leader-elect: \"maybe\": expected one of true, false"],
        ),
        (
            "node-monitor-period: 5\n",
            &["FILE:1: node-monitor-period: \"5\": expected a duration such as 5s"],
        ),
        (
            "logging-format: xml\n",
            &["FILE:1: logging-format: \"xml\": expected one of text, json"],
        ),
        (
            "cluster-name: [a, b]\n",
            &["FILE:1: cluster-name: expected one value, not a list"],
        ),
        (
            "cluster-name: {a: b}\n",
            &["FILE:1: cluster-name: expected one value, not a mapping"],
        ),
        (
            "controllers: [[a]]\n",
            &["FILE:1: controllers", "plain values"],
        ),
        (
            "cluster-cidr: [10.0.0.0/8, here]\n",
            &["FILE:1: cluster-cidr: \"here\""],
        ),
        (
            "cluster-name:\n",
            &["FILE:1: cluster-name: a value is missing"],
        ),
        (
            "config: other.yaml\n",
            &["FILE:1: config: this is for the command line only"],
        ),
        ("- a\n", &["FILE: expected a mapping", "not a list"]),
        ("a: [\n", &["FILE:"]),
        // All errors at once.
        (
            "leader-elct: 1\nsecure-port: x\n",
            &["FILE:1: leader-elct", "FILE:2: secure-port"],
        ),
        // An error that shows only in the whole configuration.
        (
            "cluster-name: a\nleader-elect-lease-duration: 5s\n",
            &["FILE:2: --leader-elect-lease-duration=5s: expected longer than"],
        ),
    ] {
        let error = with(text, &[]).expect_err(text);
        for word in words {
            assert!(
                error.contains(word),
                "{text:?}: {word:?} is not in: {error}"
            );
        }
    }
    let error = config(&["--config=/nonexistent/ccm.yaml"])
        .unwrap_err()
        .join("");
    assert!(
        error.contains("/nonexistent/ccm.yaml: --config cannot be read"),
        "{error}"
    );
}

#[test]
fn b_m5_a_value_is_taken_as_it_is_written() {
    for text in [
        "12e4", "0123456", "0x1f", "0o17", "no", "1.10", "TRUE", "1_000", ".INF", "-.inf", ".NaN",
        "-0", "+1", "1e999",
    ] {
        for source in [
            format!("cluster-name: {text}\n"),
            format!("# \u{e4}\nv: 2\ncluster-name:   {text}   # a comment\n"),
            format!("\u{feff}{{v: 2, cluster-name: {text}}}\n"),
            format!("cluster-name: &name {text}\nv: 2\n"),
            format!("cluster-name: !!str {text}\n"),
            format!("cluster-name: '{text}'\n"),
            format!("cluster-name: |-\n  {text}\n"),
        ] {
            let config = with(&source, &[]).unwrap();
            assert_eq!(config.cluster.name, text, "{source:?}");
        }
    }
    // In a list, and at another place.
    let source =
        "load-balancer-classes: [1.10, 0x1f]\nfeature-gates: {CloudControllerManagerWebhook: no}\n";
    let config = with(source, &[]).unwrap();
    let text = serde_json::to_string(&config).unwrap();
    assert!(
        text.contains("\"1.10\"") && text.contains("\"0x1f\""),
        "{text}"
    );
    let source = "v: &number 0123\ncluster-name: *number\n";
    assert_eq!(with(source, &[]).unwrap().cluster.name, "0123");
    // Where a flag takes a boolean or a number, it may be written as YAML writes it.
    let source = "leader-elect: no\nsecure-port: 0x2844\nkube-api-qps: 1.50\n";
    let config = with(source, &[]).unwrap();
    assert!(!config.leader_election.enabled);
    assert_eq!(config.serve.port, 10_308);
    let error = with("bind-address: 1.10\n", &[]).unwrap_err();
    assert!(
        error.contains("FILE:1: bind-address: \"1.10\": "),
        "{error}"
    );
}

#[test]
fn b_m5_a_key_that_is_given_twice_is_an_error() {
    let error = with("cluster-name: a\nv: 2\ncluster-name: b\n", &[]).unwrap_err();
    assert_eq!(error, "FILE:3:1: cluster-name: given twice; keep one");
}
