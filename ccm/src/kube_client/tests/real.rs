//! Over TLS to a real API server.

use testenv::{ControlPlane, User};

use super::*;

#[tokio::test]
async fn m11_many_patches_at_once_over_few_connections() {
    let plane = ControlPlane::shared().await;
    let base = connect_to(Some(&plane.kubeconfig(User::Admin)), None)
        .await
        .unwrap();
    assert!(base.host.starts_with("127.0.0.1:"), "{}", base.host);
    let mut registry = Registry::default();
    let metrics = Metrics::register(&mut registry);
    let write = clients(base, Fence::open(), &metrics, None, 1).write;
    let map = |name: &str| -> ConfigMap {
        serde_json::from_value(json!({"metadata": {"name": name}, "data": {"a": "0"}})).unwrap()
    };
    let api = api(&write);
    for index in 0..16 {
        let name = format!("kube-client-{index}");
        api.create(&kube::api::PostParams::default(), &map(&name))
            .await
            .unwrap();
    }
    let start = std::time::Instant::now();
    for round in 0..20 {
        let patches = (0..16).map(|index| {
            let api = &api;
            async move {
                let patch = Patch::Merge(json!({"data": {"a": round.to_string()}}));
                let name = format!("kube-client-{index}");
                api.patch(&name, &PatchParams::default(), &patch).await
            }
        });
        for patched in futures::future::join_all(patches).await {
            patched.unwrap();
        }
    }
    let took = start.elapsed();
    println!("20 times 16 patches at once took {took:?}");
    assert!(took < Duration::from_mins(5), "{took:?}");
    // The server derives the manager in the managed fields from the user agent.
    let fields = api
        .get("kube-client-0")
        .await
        .unwrap()
        .metadata
        .managed_fields
        .unwrap();
    assert!(
        fields
            .iter()
            .any(|entry| entry.manager.as_deref() == Some("ccm")),
        "{fields:?}"
    );
}
