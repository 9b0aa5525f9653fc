//! A vendor's Go CCM hands its cluster to the ccm with the bridge and takes it back, as "Switch,
//! and back" of docs/provider-guide.md describes it. The cloud's code is the same on both sides.

use std::collections::BTreeMap;

use kube::ResourceExt as _;
use kube::api::ListParams;
use serde_json::json;
use testenv::objects::{UNINITIALIZED, ingress, is_tainted};
use testenv::{LEASE, Pooled, eventually};

use crate::aws::Aws;
use crate::clouds::{Cloud, Instance};
use crate::life::{PLANES, SOON, World, instances};

/// The flags of both sides. Upstream does not release the Lease, so the Lease is short. A leader
/// gives up only after 10 s without a renewal, because nobody starts it again. Upstream exits if a
/// cloud has routes and no cluster CIDR is given, so routes are off.
const FLAGS: [&str; 5] = [
    "--configure-cloud-routes=false",
    "--leader-elect-lease-duration=12s",
    "--leader-elect-renew-deadline=10s",
    "--leader-elect-retry-period=1s",
    "--concurrent-service-syncs=1",
];

impl World {
    pub async fn holder(&self) -> Option<String> {
        let lease = self.leases().get_opt(LEASE).await.unwrap()?;
        lease.spec?.holder_identity.filter(|it| !it.is_empty())
    }

    /// Waits until a process other than `than` leads.
    pub async fn led_by_another(&self, than: Option<&str>) -> String {
        eventually("another process leads", SOON, async || {
            match self.holder().await {
                Some(holder) if than != Some(&*holder) => Ok(holder),
                other => Err(format!("{other:?}")),
            }
        })
        .await
    }

    /// State that no hand-over may change: the same Nodes, without the taint `uninitialized`, and
    /// the Service's address.
    async fn state(&self) -> (BTreeMap<String, (String, String)>, Option<String>) {
        let nodes = self.nodes().list(&ListParams::default()).await.unwrap();
        let nodes = nodes.items.iter().map(|node| {
            assert!(!is_tainted(node, UNINITIALIZED), "{node:?}");
            let id = node.spec.as_ref().and_then(|spec| spec.provider_id.clone());
            let identity = (node.uid().unwrap(), id.unwrap());
            (node.name_any(), identity)
        });
        let web = self.services().get("web").await.unwrap();
        (nodes.collect(), ingress(&web))
    }

    /// Gives the Service this port, and waits until the cloud has it.
    pub async fn listen(&self, port: u16) {
        let ports = json!([{"name": "http", "port": port, "protocol": "TCP"}]);
        let patch = json!({"spec": {"ports": ports}});
        self.edit_service("web", patch).await;
        eventually(&format!("the cloud has port {port}"), SOON, async || {
            let standing = self.cloud.load_balancers().unwrap();
            let good = standing.len() == 1 && standing[0].contains(&port.to_string());
            good.then_some(()).ok_or_else(|| standing.join("\n"))
        })
        .await;
    }

    /// Waits until the cloud has received more than `calls` calls. The new leader makes one at the
    /// hand-over.
    async fn looked(&self, calls: usize) {
        eventually("the new leader asks the cloud", SOON, async || {
            let (all, _) = self.cloud.calls(0);
            (all > calls).then_some(()).ok_or(all)
        })
        .await;
    }
}

/// Whether a call is a repeated write that changes nothing. The cloud's code makes such calls after
/// each restart of its controller.
type WritesAnew = fn(&String) -> bool;

async fn switch_and_back(
    plane: Pooled,
    cloud: Cloud,
    machines: &[Instance],
    writes_anew: WritesAnew,
) {
    let mut world = World::new(plane, cloud);
    world.start_upstream(&FLAGS);
    let theirs = world.led_by_another(None).await;
    world.join(machines).await;
    world.serve("web").await;
    world.listen(8081).await;
    let before = world.state().await;
    let balancers = world.cloud.load_balancers();

    // Ours is a standby, then takes over.
    world.start_ours(&FLAGS);
    let (calls, _) = world.cloud.calls(0);
    world.end("upstream").await;
    let ours = world.led_by_another(Some(&theirs)).await;
    world.looked(calls).await;
    let adopted = |service: &k8s_openapi::api::core::v1::Service| {
        service
            .annotations()
            .contains_key("grpc-ccm.io/load-balancer")
    };
    world
        .service_becomes("web", "has the handle of its load balancer", adopted)
        .await;
    assert_eq!(world.state().await, before);
    let changes = world.cloud.calls(calls).1;
    assert!(changes.iter().all(writes_anew), "{changes:?}");
    assert_eq!(world.cloud.load_balancers(), balancers);
    world.listen(8082).await;
    assert_eq!(world.state().await, before);

    // And back.
    world.start_upstream(&FLAGS);
    let (calls, _) = world.cloud.calls(0);
    world.end("ccm").await;
    world.end("provider").await;
    world.led_by_another(Some(&ours)).await;
    world.looked(calls).await;
    world.listen(8083).await;
    assert_eq!(world.state().await, before);
    world.unserve("web").await;
}

async fn file_switches_and_back(name: &'static str) {
    let plane = PLANES.take().await.unwrap();
    let cloud = Cloud::file(name, plane.directory());
    let machines = instances(&cloud);
    let writes_anew = |call: &String| call.contains("\"PUT ");
    switch_and_back(plane, cloud, &machines, writes_anew).await;
}

#[tokio::test]
async fn a_cloud_that_goes_by_id_moves_from_its_go_ccm_to_ours_and_back() {
    file_switches_and_back("byid").await;
}

#[tokio::test]
async fn a_cloud_that_notes_its_load_balancer_on_the_service_moves_to_ours_and_back() {
    file_switches_and_back("annotated").await;
}

/// AWS's own controller, as its vendor builds it.
#[tokio::test]
async fn whole_cloud_provider_aws_moves_from_its_own_controller_to_ours_and_back() {
    let plane = PLANES.take().await.unwrap();
    let (aws, machines) = Aws::start(plane.directory(), &["a", "b", "c"]).await;
    // The cloud compares the attributes that it wants with AWS's answer. The answer has more
    // attributes, so the cloud writes its own again.
    let writes_anew = |call: &String| call.ends_with(":ModifyLoadBalancerAttributes");
    switch_and_back(plane, Cloud::Aws(aws), &machines, writes_anew).await;
}
