//! The next test on a control plane of the pool finds nothing that an earlier test did to it.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::{fs, path::PathBuf, thread};

use k8s_openapi::{
    api::{
        coordination::v1::Lease,
        core::v1::{
            ConfigMap, Event, Namespace, Node, PersistentVolume, Secret, Service, ServiceAccount,
        },
        networking::v1::IPAddress,
        rbac::v1::ClusterRole,
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{
    Api, Client,
    api::{DeleteParams, ListParams, PostParams},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use testenv::{
    ControlPlane, Pool,
    objects::{LoadBalancerBuilder, NodeBuilder},
};

fn prepare(plane: &ControlPlane) {
    let mut command = plane.kubectl();
    command.args([
        "create",
        "clusterrole",
        "prepared",
        "--verb=get",
        "--resource=pods",
    ]);
    assert!(command.output().unwrap().status.success());
}

async fn create<K>(api: Api<K>, object: Value)
where
    K: kube::Resource + Clone + Serialize + DeserializeOwned + std::fmt::Debug,
{
    let object = serde_json::from_value(object).unwrap();
    api.create(&PostParams::default(), &object).await.unwrap();
}

/// A Service with an address and a node port that only one Service can have.
fn service() -> Service {
    let mut service = LoadBalancerBuilder::new("default", "web").build();
    service.metadata.finalizers = Some(vec!["example.com/kept".into()]);
    let spec = service.spec.as_mut().unwrap();
    spec.cluster_ip = Some("10.0.0.77".into());
    spec.ports.as_mut().unwrap()[0].node_port = Some(30_123);
    service
}

async fn names<K>(client: &Client) -> Vec<String>
where
    K: kube::Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug,
{
    let api = Api::<K>::all(client.clone());
    let objects = api.list(&ListParams::default()).await.unwrap().items;
    objects
        .into_iter()
        .filter_map(|object| object.meta().name.clone())
        .filter(|name| !name.starts_with("apiserver-"))
        .collect()
}

#[tokio::test]
async fn what_one_test_leaves_behind_the_next_one_does_not_find() {
    static POOL: Pool = Pool::new(prepare);
    let first = POOL.take().await.unwrap();
    let url = first.url();
    let file = first.directory().join("log");
    fs::write(&file, "of the first").unwrap();
    let client = first.client();
    let system = names::<ConfigMap>(&client).await;

    let nodes = Api::<Node>::all(client.clone());
    for name in ["node-1", "node-2"] {
        let node = NodeBuilder::new(name).build();
        nodes.create(&PostParams::default(), &node).await.unwrap();
    }
    let services = Api::<Service>::namespaced(client.clone(), "default");
    services
        .create(&PostParams::default(), &service())
        .await
        .unwrap();
    // Its finalizer keeps the deleted object.
    services
        .delete("web", &DeleteParams::default())
        .await
        .unwrap();
    let extra = ObjectMeta {
        name: Some("extra".into()),
        ..ObjectMeta::default()
    };
    create(
        Api::<Namespace>::all(client.clone()),
        json!({ "metadata": extra }),
    )
    .await;
    for namespace in ["default", "extra", "kube-system"] {
        let named = json!({ "metadata": { "name": "left" } });
        create(
            Api::<ConfigMap>::namespaced(client.clone(), namespace),
            named.clone(),
        )
        .await;
        create(
            Api::<Secret>::namespaced(client.clone(), namespace),
            named.clone(),
        )
        .await;
        create(
            Api::<ServiceAccount>::namespaced(client.clone(), namespace),
            named.clone(),
        )
        .await;
        create(Api::<Lease>::namespaced(client.clone(), namespace), named).await;
        let event = json!({
            "metadata": { "name": "left" }, "reason": "Left",
            "involvedObject": { "kind": "Service", "namespace": namespace, "name": "web" },
        });
        create(Api::<Event>::namespaced(client.clone(), namespace), event).await;
    }
    let volume = json!({
        "metadata": { "name": "left", "finalizers": ["example.com/kept"] },
        "spec": {
            "capacity": { "storage": "1Gi" }, "accessModes": ["ReadWriteOnce"], "hostPath": { "path": "/nowhere" },
        },
    });
    create(Api::<PersistentVolume>::all(client.clone()), volume).await;
    drop(first);

    let second = POOL.take().await.unwrap();
    assert_eq!(second.url(), url, "it is another control plane");
    let client = second.client();
    assert!(names::<Node>(&client).await.is_empty());
    assert_eq!(names::<Service>(&client).await, ["kubernetes"]);
    assert_eq!(names::<IPAddress>(&client).await, ["10.0.0.1"]);
    assert_eq!(names::<Namespace>(&client).await.len(), 4);
    assert_eq!(names::<ConfigMap>(&client).await, system);
    assert!(names::<Secret>(&client).await.is_empty());
    assert!(names::<ServiceAccount>(&client).await.is_empty());
    assert!(names::<Lease>(&client).await.is_empty());
    // kube-apiserver may report a Service whose address is freed, also after the objects are gone.
    let events = names::<Event>(&client).await;
    assert!(!events.contains(&"left".to_owned()), "{events:?}");
    assert!(names::<PersistentVolume>(&client).await.is_empty());
    assert!(
        names::<ClusterRole>(&client)
            .await
            .contains(&"prepared".to_owned())
    );
    assert!(!file.exists() && second.directory().exists());
    // The address and the node port are free again.
    let services = Api::<Service>::namespaced(client.clone(), "default");
    services
        .create(&PostParams::default(), &service())
        .await
        .unwrap();

    // The pool does not know what a test that panicked left behind.
    let directory = second.directory().parent().map(PathBuf::from).unwrap();
    let panics = thread::spawn(move || {
        let _second = second;
        panic!("as a test does");
    });
    assert!(panics.join().is_err());
    assert!(!directory.exists());
}

#[tokio::test]
async fn what_cannot_be_put_back_is_not_used_again() {
    static POOL: Pool = Pool::new(prepare);
    let first = POOL.take().await.unwrap();
    let url = first.url();
    let roles = Api::<ClusterRole>::all(first.client());
    roles
        .delete("prepared", &DeleteParams::default())
        .await
        .unwrap();
    drop(first);

    let mut second = POOL.take().await.unwrap();
    assert_ne!(second.url(), url);
    let directory = second.directory().parent().map(PathBuf::from).unwrap();
    second.suspend_api_server();
    second.resume_api_server();
    drop(second);
    assert!(!directory.exists());
}
