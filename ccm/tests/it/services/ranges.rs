//! A provider that gives a load balancer an address in the range of the cluster's Services.

use k8s_openapi::api::networking::v1::ServiceCIDR;
use kube::api::{Api, PostParams};
use provider_mock::Fixture;
use serde_json::json;
use testenv::objects::ingress;
use testenv::{User, deployed, eventually};

use super::{ENSURE, balancer};
use crate::world::{SOON, World};

const FAILED: &str = "Warning SyncLoadBalancerFailed";

/// A cloud that gives out addresses of this range.
fn giving_out(pool: &str) -> Fixture {
    let mut fixture = Fixture::default();
    fixture.addressing.pools = vec![pool.parse().unwrap()];
    fixture
}

impl World {
    /// Creates a Service. Checks that an event names this range, and that the status has no
    /// address.
    async fn refused_for(&self, name: &str, range: &str) {
        self.create_service(balancer(name)).await;
        let why = format!(
            "of the load balancer is in the range of the cluster's Services, {range}: expected one outside of it"
        );
        let event = self.event(name, FAILED).await;
        assert!(event.contains(&why), "{event}");
        assert!(self.times(ENSURE, name) > 0);
        assert_eq!(ingress(&self.service(name).await), None);
    }
}

/// Finding B13: a load balancer at the address of another Service, such as the cluster's DNS, would
/// get that Service's traffic.
#[tokio::test]
async fn s22_no_load_balancer_is_at_an_address_of_the_clusters_services() {
    let (world, _ccm) = World::with_ccm(giving_out("192.0.2.0/24")).await;
    world.create_service(balancer("before")).await;
    world.shows_address("before").await;
    let more: ServiceCIDR = serde_json::from_value(json!({
        "metadata": {"name": "more"}, "spec": {"cidrs": ["192.0.2.0/24"]},
    }))
    .unwrap();
    let ranges: Api<ServiceCIDR> = Api::all(world.client.clone());
    ranges.create(&PostParams::default(), &more).await.unwrap();
    // The ccm's watch shows the new range a moment later.
    let mut number = 0;
    eventually("a new Service gets no address", SOON, async || {
        number += 1;
        let name = format!("between-{number}");
        world.create_service(balancer(&name)).await;
        let told = format!("the Service {name} shows an address or has an event");
        let address = eventually(&told, SOON, async || {
            let address = ingress(&world.service(&name).await);
            let events = world.events(&name).await;
            let failed = events.iter().any(|event| event.starts_with(FAILED));
            (failed || address.is_some())
                .then_some(address)
                .ok_or_else(|| format!("{events:?}"))
        });
        match address.await {
            None => Ok(()),
            Some(address) => Err(address),
        }
    })
    .await;
    world.refused_for("after", "192.0.2.0/24").await;
}

#[tokio::test]
async fn s22_the_flag_names_the_service_range_where_servicecidrs_may_not_be_read() {
    let base = std::fs::read_to_string(deployed("kustomize/base/rbac.yaml")).unwrap();
    let without = base.replace("servicecidrs", "none");
    let mut world = World::with_rights(giving_out("192.0.2.0/24"), &without).await;
    let _ccm = world.ccm(&["--service-cluster-ip-range=192.0.2.0/24"]);
    world.leader().await;
    world.refused_for("web", "192.0.2.0/24").await;
    let log = world.audit_log();
    let mut asked = log.lines().filter(|line| line.contains(User::Ccm.name()));
    assert!(!asked.any(|line| line.contains("servicecidrs")), "{log}");
}
