//! A kubeconfig that is wrong.

use std::path::Path;

use serde_json::json;

use super::{run, text};

#[test]
fn a_kubeconfig_that_is_wrong_is_named_with_what_is_wrong_and_without_its_secrets() {
    let directory = tempfile::tempdir().unwrap();
    let user = json!({"token": "t0p-secret"});
    let config = |current: &str, cluster: serde_json::Value, user: &serde_json::Value| {
        json!({
            "apiVersion": "v1", "kind": "Config", "current-context": current,
            "contexts": [{"name": "here", "context": {"cluster": "one", "user": "me"}}],
            "clusters": [{"name": "one", "cluster": cluster}],
            "users": [{"name": "me", "user": user}],
        })
        .to_string()
    };
    let server = json!({"server": "https://127.0.0.1:1"});
    let table = [
        (
            "empty",
            String::new(),
            "failed to determine current context",
        ),
        (
            "broken",
            "users:\n- name: me\n  user: {token: t0p-secret\nclusters: 3\n".to_owned(),
            "at line 4",
        ),
        (
            "type",
            "users:\n- name: me\n  user: {token: {t0p: t0p-secret}}\n".to_owned(),
            "at line 3",
        ),
        ("context", config("there", server.clone(), &user), "there"),
        (
            "server",
            config("here", json!({"server": "not a url"}), &user),
            "cluster url",
        ),
        (
            "ca",
            config(
                "here",
                json!({"server": "https://127.0.0.1:1", "certificate-authority": "/nonexistent/ca.crt"}),
                &user,
            ),
            "/nonexistent/ca.crt",
        ),
        (
            "token",
            config(
                "here",
                server.clone(),
                &json!({"tokenFile": "/nonexistent/token"}),
            ),
            "/nonexistent/token",
        ),
        (
            "certificate",
            config(
                "here",
                server,
                &json!({"client-certificate": "/nonexistent/crt", "client-key": "/nonexistent/key"}),
            ),
            "/nonexistent/crt",
        ),
    ];
    for (name, content, expected) in table {
        let path = directory.path().join(name);
        std::fs::write(&path, content).unwrap();
        let (log, code) = fails(&path);
        assert_eq!(code, Some(1), "{name}: {log}");
        assert!(
            log.contains(&format!("kubeconfig {}", path.display())),
            "{name}: {log}"
        );
        assert!(
            log.contains(expected),
            "{name}: {expected:?} is not in: {log}"
        );
        assert!(!log.contains("t0p-secret"), "{name}: {log}");
        let said: Vec<&str> = log
            .lines()
            .filter(|line| !line.contains("starting the ccm"))
            .collect();
        assert_eq!(said.len(), 1, "{name}: {log}");
    }
    let (log, _) = fails(&directory.path().join("missing"));
    assert!(
        log.contains("missing: cannot be read: No such file"),
        "{log}"
    );
    let output = run(&["--secure-port=0"]);
    let log = text(&output.stderr);
    assert!(
        log.contains("no --kubeconfig is given and this is not a pod"),
        "{log}"
    );
}

fn fails(kubeconfig: &Path) -> (String, Option<i32>) {
    let flag = format!("--kubeconfig={}", kubeconfig.display());
    let output = run(&[&flag, "--secure-port=0"]);
    (text(&output.stderr), output.status.code())
}
