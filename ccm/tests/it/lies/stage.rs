//! The objects and actions without which a lie does not show.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, PersistentVolume};
use kube::api::{Api, Patch, PatchParams, PostParams};
use provider_mock::fixture::{Targets, Zones};
use provider_mock::{
    Cloud, Fault, FaultKind, Fixture, Instance, LoadBalancer, Mark, Power, Weather,
};
use provider_sdk::FailureCode;
use serde_json::{Value, json};
use testenv::objects::{LoadBalancerBuilder, NodeBuilder};
use testenv::{Process, eventually};

use super::{
    LEFT_ROUTE, PATIENCE, SERVICES, ccm, load_balancer_of_another, nodes_now, own, shows_address,
};
use crate::world::{World, balancer, instance};

const HANDLE: &str = "grpc-ccm.io/load-balancer";
const SHARED: &str = "mock.grpc-ccm.io/shared-load-balancer";
/// The ports of the Services if they share one load balancer.
const PORTS: [u16; SERVICES.len()] = [80, 81, 82];
/// More hints than the mock remembers.
const MANY_HINTS: usize = 1_100;

/// The additional objects and actions of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// No more than every row has.
    Plain,
    /// All Services have their load balancers, with the Nodes that stay.
    AllServed,
    /// A Node with a stopped machine.
    Stopped,
    /// A new Node on a machine that the provider does not manage, and a Node with another
    /// provider's ID.
    Unmanaged,
    /// A Ready Node without a machine. Its route is the last one. If the provider swaps the
    /// results, the first route gets the failure of this route.
    Unroutable,
    /// A machine that is gone after the first answer about it.
    Leaves,
    /// Two Nodes, each with the name of the other one's machine.
    Renamed,
    /// Only LookupZones reports zones; two more new Nodes.
    Zones,
    /// No EnsureLoadBalancer is answered.
    Hangs,
    /// Lookups that end with a status.
    Statuses,
    /// A cloud so slow that no Probe may wait for it.
    Slow,
    /// After the first answers the cloud is so slow that no lookup is answered in time.
    SlowLater,
    /// The provider does not know the resume token of the ccm any more.
    TokenLost,
    /// The ccm is killed during an EnsureLoadBalancer; another one follows.
    Cancelled,
    /// Somebody removed the handle from a Service.
    HandleLost,
    /// A load balancer is marked for the previous owner ID.
    PreviousOwner,
    /// A load balancer is marked for another cluster and the Service's UID.
    SameUid,
    /// A load balancer carries no mark.
    Unmarked,
    /// A Service's handle names another Service's load balancer.
    EditedHandle,
    /// A load balancer has a setting that its Service no longer asks for.
    Cleared,
    /// A provider whose Get does not answer `in_sync`.
    NoInSync,
    /// No Node may be a target any more.
    NoTargets,
    /// A provider that ignores targets; a load balancer has a target all the same.
    IgnoresNodes,
    /// Somebody has removed the load balancer of a Service that the user deletes.
    AlreadyGone,
    /// Somebody removes a load balancer in the cloud before the targets change.
    RemovedBehind,
    /// All Services share one load balancer.
    Shared,
    /// All Services share one load balancer. One is deleted, and its Delete fails until the others
    /// are served.
    SharedGoes,
    /// All Services share one load balancer, and one wants the port of another.
    SharedCollides,
    /// All Services share one load balancer, which gets one more target.
    SharedGrows,
    /// A route disappears while the provider removes it.
    RouteGoes,
    /// A list of routes that shows none.
    ListLags,
    /// Volumes: one with a missing disk, and one whose disk has no labels.
    Volumes,
}

impl Stage {
    pub(super) fn offers(self, fixture: &mut Fixture) {
        let capabilities = &mut fixture.capabilities;
        match self {
            Self::Zones => capabilities.instances.zones = Zones::Lookup,
            Self::NoInSync => capabilities.load_balancers.in_sync = false,
            Self::IgnoresNodes => capabilities.load_balancers.targets = Targets::Ignored,
            // No hint reports the removal.
            Self::RemovedBehind => capabilities.changes.offered = false,
            Self::Volumes => {
                let bare = ("d-bare".to_owned(), BTreeMap::default());
                fixture.volumes = [bare].into();
            }
            _ => {}
        }
    }

    pub(super) fn flags(self) -> &'static [&'static str] {
        match self {
            Self::PreviousOwner => &["--previous-owner-ids=the-former"],
            Self::Volumes => &["--controllers=*,persistent-volume-label-controller"],
            _ => &[],
        }
    }

    /// A Service of this name.
    pub(super) fn service(self, name: &str) -> LoadBalancerBuilder {
        let shares = [
            Self::Shared,
            Self::SharedGoes,
            Self::SharedCollides,
            Self::SharedGrows,
        ];
        if !shares.contains(&self) {
            return balancer(name);
        }
        let nth = SERVICES.iter().position(|one| *one == name).unwrap();
        balancer(name)
            .annotation(SHARED, "front")
            .listens_on(PORTS[nth])
    }

    /// Prepares the stage before the lie, while no ccm runs. Returns the Nodes that must live.
    pub(super) async fn set(self, world: &World) -> Vec<Node> {
        let cloud = world.cloud();
        match self {
            Self::Stopped => {
                cloud.add_instance(instance("off")).unwrap();
                cloud.stop_instance("off").unwrap();
                vec![world.register(known("off").ready("False")).await]
            }
            Self::Unmanaged => {
                let machine = instance("unmanaged").power(Power::Unmanaged);
                cloud.add_instance(machine).unwrap();
                let new = NodeBuilder::new("unmanaged").uninitialized();
                let theirs = NodeBuilder::new("theirs").provider_id("other://zone-1/theirs");
                vec![
                    world.register(new).await,
                    world.register(theirs.ready("False")).await,
                ]
            }
            Self::Unroutable => {
                let node = known("lost").pod_cidrs(&["10.244.97.0/24"]);
                vec![world.register(node.ready("True")).await]
            }
            Self::Renamed => {
                // Each machine has the name of the other machine's Node.
                for (name, id) in [("twin-a", "twin-b"), ("twin-b", "twin-a")] {
                    let machine = Instance::new(name);
                    let machine = Instance {
                        provider_id: format!("mock://zone-1/{id}"),
                        ..machine
                    };
                    cloud.add_instance(machine).unwrap();
                }
                let mut nodes = Vec::new();
                for name in ["twin-a", "twin-b"] {
                    nodes.push(world.register(known(name).ready("False")).await);
                }
                nodes
            }
            Self::Zones => {
                let mut nodes = Vec::new();
                for name in ["fresh-2", "fresh-3"] {
                    let machine = instance(name).place(name, "region-1");
                    cloud.add_instance(machine).unwrap();
                    let new = NodeBuilder::new(name).uninitialized();
                    nodes.push(world.register(new).await);
                }
                nodes
            }
            _ => {
                self.set_balancers_and_volumes(world).await;
                Vec::new()
            }
        }
    }

    /// As [`Self::set`], for load balancers and volumes.
    async fn set_balancers_and_volumes(self, world: &World) {
        let cloud = world.cloud();
        match self {
            Self::HandleLost => {
                annotate(world, Value::Null).await;
            }
            Self::PreviousOwner => {
                change(cloud, |lb| "the-former".clone_into(&mut owner(lb).owner_id));
            }
            Self::SameUid => {
                change(cloud, |lb| {
                    "another-cluster".clone_into(&mut owner(lb).owner_id);
                });
            }
            Self::Unmarked => {
                change(cloud, |lb| lb.owner = None);
            }
            Self::EditedHandle => {
                let handle = cloud.plant_load_balancer(of_another_service()).unwrap();
                let web = world.services().get("web").await.unwrap();
                let record = web.metadata.annotations.unwrap_or_default();
                let mut record: Value = serde_json::from_str(&record[HANDLE]).unwrap();
                record["handle"] = json!(handle);
                annotate(world, json!(record.to_string())).await;
            }
            Self::Cleared => {
                change(cloud, |lb| {
                    "ClientIP:10800".clone_into(&mut lb.config.session_affinity);
                });
            }
            Self::IgnoresNodes => {
                change(cloud, |lb| lb.targets = vec!["left".to_owned()]);
            }
            Self::SharedGoes => {
                let away = Fault::failure("DeleteLoadBalancer", FailureCode::Unavailable);
                cloud.set_fault(away).unwrap();
            }
            Self::SharedCollides => {
                let ports = json!([{"name": "http", "port": PORTS[2], "protocol": "TCP"}]);
                let patch = Patch::Merge(json!({"spec": {"ports": ports}}));
                let (services, params) = (world.services(), PatchParams::default());
                services.patch("web", &params, &patch).await.unwrap();
            }
            Self::AlreadyGone => {
                let api = own(cloud, "api");
                cloud.remove_load_balancer(&api.handle).unwrap();
            }
            Self::Volumes => {
                world.apply("kustomize/components/volumes/rbac.yaml");
                for (name, disk) in [("unknown", "d-unknown"), ("bare", "d-bare")] {
                    let volume: PersistentVolume = serde_json::from_value(json!({
                        "metadata": {"name": name},
                        "spec": {
                            "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"},
                            "csi": {"driver": "disk.mock.grpc-ccm.io", "volumeHandle": disk},
                        },
                    }))
                    .unwrap();
                    let volumes: Api<PersistentVolume> = Api::all(world.client.clone());
                    let params = PostParams::default();
                    volumes.create(&params, &volume).await.unwrap();
                }
            }
            _ => {}
        }
    }

    /// Acts after the ccm has started. `kept`: the handles of load balancers that must exist at the
    /// end.
    pub(super) async fn play(
        self,
        world: &mut World,
        running: &mut Process,
        port: u16,
        kept: &mut Vec<String>,
    ) {
        let cloud = world.cloud().clone();
        match self {
            Self::AllServed => served(&cloud, &SERVICES).await,
            Self::Leaves => {
                asked(&cloud, "LookupInstances", "ill").await;
                cloud.remove_instance("ill").unwrap();
            }
            Self::Hangs => {
                let hang = Fault::new("EnsureLoadBalancer", FaultKind::Hang);
                cloud.set_fault(hang).unwrap();
            }
            Self::Statuses => {
                let status = Fault::status("LookupInstances", tonic::Code::Unknown);
                cloud.set_fault(status).unwrap();
            }
            Self::Slow => cloud.set_weather(Weather {
                fail: None,
                slow_ms: 60_000,
            }),
            Self::SlowLater => {
                asked(&cloud, "LookupInstances", "ill").await;
                cloud.set_weather(Weather {
                    fail: None,
                    slow_ms: 120_000,
                });
            }
            Self::TokenLost => {
                served(&cloud, &SERVICES).await;
                // The ccm asks about the load balancer in a hint. Then it has that hint's token.
                let asked = cloud.call_count("GetLoadBalancer");
                eventually("the ccm has a token", PATIENCE, async || {
                    change(&cloud, |_| ());
                    let heard = cloud.call_count("GetLoadBalancer") > asked;
                    heard.then_some(())
                })
                .await;
                world.mock.shutdown().await;
                (0..MANY_HINTS).for_each(|_| cloud.hint_resync());
                world.mock.restart().await.unwrap();
            }
            Self::Cancelled => cancelled(world, running, port).await,
            Self::NoTargets => {
                asked(&cloud, "GetLoadBalancer", "default/kept").await;
                let label = "node.kubernetes.io/exclude-from-external-load-balancers";
                let exclude = Patch::Merge(json!({"metadata": {"labels": {label: ""}}}));
                let (all, params) = (world.nodes(), PatchParams::default());
                for node in nodes_now(world).await {
                    let name = node.metadata.name.unwrap();
                    // One of the Nodes may be deleted meanwhile.
                    if let Err(error) = all.patch(&name, &params, &exclude).await {
                        assert!(error.to_string().contains("not found"), "{error}");
                    }
                }
            }
            Self::RemovedBehind => {
                asked(&cloud, "GetLoadBalancer", "default/kept").await;
                // Otherwise an Ensure in flight would create the load balancer again.
                served(&cloud, &["kept"]).await;
                // A list without the load balancer would cause an Ensure before the Update.
                let away = Fault::failure("ListLoadBalancers", FailureCode::Unavailable);
                cloud.set_fault(away).unwrap();
                cloud.reset_calls();
                let lb = own(&cloud, "kept");
                kept.retain(|handle| *handle != lb.handle);
                cloud.remove_load_balancer(&lb.handle).unwrap();
                world.join("late").await;
                asked(&cloud, "UpdateLoadBalancer", "default/kept").await;
                cloud.clear_faults();
            }
            Self::SharedGoes => {
                asked(&cloud, "GetLoadBalancer", "default/kept").await;
                served(&cloud, &["web", "kept"]).await;
                kept.clear();
                cloud.clear_faults();
            }
            Self::SharedGrows => {
                asked(&cloud, "GetLoadBalancer", "default/kept").await;
                // A later Ensure of `web` would already have the new target.
                asked(&cloud, "EnsureLoadBalancer", "default/web").await;
                served(&cloud, &["web", "kept"]).await;
                world.join("late").await;
            }
            Self::RouteGoes => {
                let slow = Duration::from_secs(2);
                cloud.set_latency("DeleteRoutes", slow).unwrap();
                in_flight(&cloud, "DeleteRoutes").await;
                cloud.remove_route(LEFT_ROUTE).unwrap();
            }
            Self::ListLags => {
                let none = Fault::new("ListRoutes", FaultKind::ListEmpty);
                cloud.set_fault(none).unwrap();
            }
            _ => {}
        }
    }
}

fn known(name: &str) -> NodeBuilder {
    NodeBuilder::new(name).provider_id(format!("mock://zone-1/{name}"))
}

/// Changes the load balancer of Service `web`.
fn change(cloud: &Cloud, change: impl FnOnce(&mut LoadBalancer)) {
    let web = own(cloud, "web");
    cloud.change_load_balancer(&web.handle, change).unwrap();
}

fn owner(load_balancer: &mut LoadBalancer) -> &mut Mark {
    load_balancer.owner.as_mut().unwrap()
}

/// The load balancer that the edited handle names. It belongs to a Service of another cluster.
fn of_another_service() -> LoadBalancer {
    load_balancer_of_another("of-another-service", "other", "other-uid", 201)
}

/// Writes the annotation with the handle on Service `web`.
async fn annotate(world: &World, value: Value) {
    let patch = Patch::Merge(json!({"metadata": {"annotations": {HANDLE: value}}}));
    let (services, params) = (world.services(), PatchParams::default());
    services.patch("web", &params, &patch).await.unwrap();
}

/// Waits until the load balancers of these Services have the Nodes that stay as their targets, and
/// no Ensure or Update is in flight.
pub(super) async fn served(cloud: &Cloud, services: &[&str]) {
    let stay = ["fresh", "ill", "ready-0", "ready-1", "ready-2"];
    let served = cloud.wait_until(PATIENCE, |cloud| {
        let all = cloud.load_balancers();
        let ours = all.iter().filter(|lb| {
            let owner = lb.owner.as_ref();
            owner.is_some_and(|it| {
                it.owner_id != "another-cluster" && services.contains(&it.name.as_str())
            }) && lb.targets.len() == stay.len()
                && stay
                    .iter()
                    .all(|name| lb.targets.iter().any(|it| it == name))
        });
        let calls = ["EnsureLoadBalancer", "UpdateLoadBalancer"];
        ours.count() == services.len() && calls.iter().all(|rpc| cloud.in_flight(rpc) == 0)
    });
    assert!(served.await, "{:?}", cloud.load_balancers());
}

/// Waits until a call of this RPC is under way.
async fn in_flight(cloud: &Cloud, rpc: &str) {
    let began = cloud.wait_until(PATIENCE, |cloud| cloud.in_flight(rpc) > 0);
    assert!(began.await, "no {rpc} began");
}

/// Waits until a call of this RPC about this object has ended.
async fn asked(cloud: &Cloud, rpc: &str, about: &str) {
    let asked = cloud.wait_until(PATIENCE, |cloud| {
        let calls = cloud.calls(Some(rpc));
        calls
            .iter()
            .any(|call| call.names.iter().any(|it| it == about))
    });
    assert!(asked.await, "no {rpc} about {about}");
}

/// Kills the ccm during its Ensures. They are cancelled, but go on in the cloud. Then starts
/// another ccm.
async fn cancelled(world: &mut World, running: &mut Process, port: u16) {
    let cloud = world.cloud().clone();
    cloud.set_weather(Weather {
        fail: None,
        slow_ms: 10_000,
    });
    let all = cloud.wait_until(PATIENCE, |cloud| {
        cloud.in_flight("EnsureLoadBalancer") == SERVICES.len() as u64
    });
    assert!(all.await, "{:?}", cloud.call_counts());
    world.crash(running).await;
    let written = "of default/web with";
    eventually("it is made after it was cancelled", PATIENCE, async || {
        let writes = cloud.writes();
        let made = writes.iter().any(|line| line.contains(written));
        let calls = cloud.calls(Some("EnsureLoadBalancer"));
        let cancelled = calls.iter().any(|call| call.outcome == "cancelled");
        (made && cancelled)
            .then_some(())
            .ok_or(format!("{writes:?} {calls:?}"))
    })
    .await;
    cloud.set_weather(Weather::default());
    *running = ccm(world, port, &[]);
    shows_address(world, "web").await;
    let all = cloud.load_balancers();
    let of_web = |lb: &&LoadBalancer| {
        let owner = lb.owner.as_ref();
        owner.is_some_and(|it| it.name == "web" && it.owner_id != "another-cluster")
    };
    assert_eq!(all.iter().filter(of_web).count(), 1, "{all:?}");
}
