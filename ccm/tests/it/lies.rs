//! The ccm with a provider that behaves in each of the ways that `provider-mock faults` names: no
//! live Node is deleted, another owner's objects that every row plants stay as they are, and the
//! process lives. An event or a metric reports the violation if its row says so.

mod document;
mod stage;
mod table;

use std::time::Duration;

use k8s_openapi::api::core::v1::{Event, Node};
use kube::ResourceExt;
use kube::api::{Api, ListParams, Patch, PatchParams};
use provider_mock::{Cloud, Fixture, LoadBalancer, Mark, Route, Weather};
use provider_sdk::FailureCode;
use serde_json::json;
use testenv::objects::NodeBuilder;
use testenv::{Process, View, eventually, free_port};

use self::stage::{Stage, served};
use crate::input::get;
use crate::world::{World, instance};

/// A route as a deleted Node leaves it.
const LEFT_ROUTE: &str = "left";
/// Longer than any row needs on a slow machine.
const PATIENCE: Duration = Duration::from_secs(90);

/// Passes of all controllers follow each other quickly, and a Node may be deleted as soon as it is
/// a second old.
const FLAGS: [&str; 9] = [
    "--bind-address=127.0.0.1",
    "--node-monitor-period=1s",
    "--node-status-update-frequency=1s",
    "--node-deletion-brake=min-age=1s,floor=20",
    "--allocate-node-cidrs",
    "--cluster-cidr=10.244.0.0/16",
    "--route-reconciliation-period=1s",
    "--controllers=*",
    "--orphaned-load-balancer-period=1s",
];

/// A condition that must hold before a lie is judged.
#[derive(Clone, Copy, Debug)]
enum Work {
    /// This many calls of this RPC have begun.
    Calls(&'static str, u64),
    /// This many calls. Halfway, another process replaces the provider.
    Restarted(&'static str, u64),
    /// This many calls of the first RPC. After a call of the second RPC, another process replaces
    /// the provider.
    RestartedAfter(&'static str, u64, &'static str),
    /// This many calls. From halfway on, the cloud throttles.
    Throttled(&'static str, u64),
    /// After this many calls the cloud throttles, and another process replaces the provider. The
    /// new process gets this many calls too.
    ThrottledRestarted(&'static str, u64),
    /// An honest provider serves three Services. Then one Service is deleted, one is changed, and
    /// another ccm starts with a provider that lies. Then this many calls.
    Served(&'static str, u64),
}

/// The evidence that the ccm received the lie.
#[derive(Clone, Copy, Debug)]
enum Met {
    /// The provider deviated from an honest one: [`Cloud::lied`] counts the deviations.
    Lied,
    /// The provider wrote this to the cloud.
    Wrote(&'static str),
    /// This RPC about this object (any object if empty) had an outcome with this prefix.
    Answered(&'static str, &'static str, &'static str),
    /// The ccm's report, which only the lie causes: only with [`Tells::Told`].
    ByWhatIsTold,
    /// The ccm gives the provider no occasion to lie, so [`Cloud::lied`] counts nothing.
    Never,
}

/// The ccm's report about the lie.
#[derive(Clone, Copy, Debug)]
enum Tells {
    /// Events, as `kind/name Warning reason message`, or lines of `/metrics` have all these words.
    Told(&'static [&'static str]),
    /// An honest provider causes the same report. The second text says why the report cannot say
    /// more.
    Alike(&'static [&'static str], &'static str),
    /// An honest provider may cause the same report. The second text says why.
    Either(&'static [&'static str], &'static str),
    /// Nothing, and why.
    Untold(&'static str),
}

/// One lie.
#[derive(Debug)]
struct Row {
    /// As `provider-mock faults` names it.
    lie: &'static str,
    work: Work,
    stage: Stage,
    met: Met,
    tells: Tells,
}

/// Lies that need the listing of instances.
const LISTS: [&str; 7] = [
    "absent-when-stopped",
    "empty-list",
    "partial-list",
    "ok-list-on-throttle",
    "list-without-end",
    "wrong-total",
    "unimplemented",
];

/// Services of type LoadBalancer.
const SERVICES: [&str; 3] = ["web", "api", "kept"];

/// The cluster, the cloud and the ccm at the beginning of a row.
struct Scene {
    world: World,
    port: u16,
    ccm: Process,
    /// Nodes that must live.
    alive: Vec<Node>,
    /// Handles of load balancers that must be kept.
    kept: Vec<String>,
    /// The objects of another cluster.
    load_balancer: LoadBalancer,
    route: Route,
}

/// `lie`: the violation by the provider from here on. `None`: the provider keeps to the contract.
async fn scene(row: &Row, lie: Option<&str>) -> Scene {
    let mut fixture = Fixture::default();
    // A listing can veto a deletion, so the provider offers it only for lies that need it.
    fixture.capabilities.instances.listing = LISTS.contains(&row.lie);
    row.stage.offers(&mut fixture);
    let mut world = World::new(fixture).await;
    let cloud = world.cloud().clone();
    let (load_balancer, route) = of_another(&cloud);
    let mut alive = nodes(&world).await;
    for name in SERVICES {
        world.create_service(row.stage.service(name)).await;
    }
    let kept = if let Work::Served(..) = row.work {
        served_before(&mut world, row.stage).await
    } else {
        Vec::new()
    };
    alive.extend(row.stage.set(&world).await);
    if let Some(lie) = lie {
        cloud.tell(lie).unwrap();
    }
    cloud.reset_calls();
    // A lie about a connection begins with a new connection.
    world.mock.restart().await.unwrap();
    let port = free_port();
    let ccm = ccm(&mut world, port, row.stage.flags());
    Scene {
        world,
        port,
        ccm,
        alive,
        kept,
        load_balancer,
        route,
    }
}

/// Without the lie, the words of its row are not reported together within about a dozen passes. If
/// the row says that an honest provider causes the same report, the report is there.
async fn is_told_of_the_honest(row: &Row) {
    let (words, wanted) = match row.tells {
        Tells::Told(words) => (words, false),
        Tells::Alike(words, _) => (words, true),
        Tells::Either(_, why) | Tells::Untold(why) => panic!("{row:?} has no control: {why}"),
    };
    let mut scene = scene(row, None).await;
    let (world, port) = (&mut scene.world, scene.port);
    let stage = row.stage;
    stage
        .play(world, &mut scene.ccm, port, &mut scene.kept)
        .await;
    // Some of the work ends only with a lie.
    let _ = tokio::time::timeout(Duration::from_secs(30), work(world, row.work)).await;
    // Only all words together are the report of a lie.
    let told = |evidence: &str| words.iter().all(|words| evidence.contains(words));
    if wanted {
        eventually(
            &format!("{row:?}, of an honest provider"),
            PATIENCE,
            async || {
                let evidence = evidence(world, port).await.join("\n");
                told(&evidence).then_some(()).ok_or(evidence)
            },
        )
        .await;
        return;
    }
    let cloud = world.cloud().clone();
    let passes = |cloud: &Cloud| cloud.call_count("ListLoadBalancers");
    let enough = passes(&cloud) + 12;
    // If no controller lists load balancers, the wait ends after 30 s.
    let _ = cloud
        .wait_until(Duration::from_secs(30), |cloud| passes(cloud) >= enough)
        .await;
    let evidence = evidence(world, port).await.join("\n");
    println!("{} (honest)\n{evidence}", row.lie);
    assert!(
        !told(&evidence),
        "{row:?}, of an honest provider:\n{evidence}"
    );
}

async fn stands(row: &Row) {
    let Scene {
        mut world,
        port,
        mut ccm,
        alive,
        mut kept,
        load_balancer,
        route,
    } = scene(row, Some(row.lie)).await;
    let cloud = world.cloud().clone();

    row.stage.play(&mut world, &mut ccm, port, &mut kept).await;
    work(&world, row.work).await;
    eventually(&format!("{row:?}"), PATIENCE, async || {
        keep_serving(&world).await;
        let evidence = evidence(&world, port).await.join("\n");
        let met = match row.met {
            Met::Lied => cloud.lied() > 0,
            Met::Wrote(what) => cloud.writes().iter().any(|line| line.contains(what)),
            Met::Answered(rpc, name, outcome) => cloud.calls(Some(rpc)).iter().any(|call| {
                let about = name.is_empty() || call.names.iter().any(|it| it == name);
                about && call.outcome.starts_with(outcome)
            }),
            Met::ByWhatIsTold | Met::Never => true,
        };
        if !met {
            return Err(format!(
                "the violation did not occur: {:?} {:?}\n{evidence}",
                cloud.call_counts(),
                cloud.writes()
            ));
        }
        let (told, why) = match row.tells {
            Tells::Told(words) => (words, "told"),
            Tells::Alike(words, why) | Tells::Either(words, why) => (words, why),
            Tells::Untold(why) => (&[][..], why),
        };
        if let Some(words) = told.iter().find(|words| !evidence.contains(**words)) {
            return Err(format!("{words:?} is not in:\n{evidence}"));
        }
        println!("{}: {why}\n{evidence}", row.lie);
        Ok(())
    })
    .await;
    if matches!(row.met, Met::Never) {
        assert_eq!(cloud.lied(), 0, "{row:?}: {:?}", cloud.call_counts());
    }
    harmless(row.lie, &world, &alive, &mut ccm).await;
    let now = cloud.load_balancers();
    assert!(now.contains(&load_balancer), "{row:?}: {now:?}");
    for handle in kept {
        assert!(now.iter().any(|lb| lb.handle == handle), "{row:?}: {now:?}");
    }
    assert!(
        cloud.routes().contains(&route),
        "{row:?}: {:?}",
        cloud.routes()
    );
}

fn ccm(world: &mut World, port: u16, more: &[&str]) -> Process {
    let port = format!("--secure-port={port}");
    let flags: Vec<&str> = FLAGS
        .into_iter()
        .chain([port.as_str()])
        .chain(more.iter().copied())
        .collect();
    world.ccm(&flags)
}

/// Another ccm serves all Services and ends. Then one Service is deleted and one is changed.
/// Returns the handles of the two Services that are not deleted.
async fn served_before(world: &mut World, stage: Stage) -> Vec<String> {
    let mut first = ccm(world, free_port(), &[]);
    for name in SERVICES {
        shows_address(world, name).await;
    }
    if stage == Stage::NoInSync {
        // The first Ensure of Service `kept` by the next ccm must have nothing to change.
        served(world.cloud(), &SERVICES).await;
    }
    world.crash(&mut first).await;
    change(world).await;
    world.delete_service("api").await;
    let handle = |name| own(world.cloud(), name).handle;
    vec![handle("web"), handle("kept")]
}

async fn shows_address(world: &World, service: &str) {
    let view = View {
        patience: PATIENCE,
        ..View::clone(world)
    };
    view.shows_address(service).await;
}

/// The load balancer of this cluster's Service. Another cluster has a Service of the same name.
fn own(cloud: &Cloud, service: &str) -> LoadBalancer {
    let found = cloud.load_balancers().into_iter().find(|lb| {
        let owner = lb.owner.as_ref();
        owner.is_some_and(|it| it.name == service && it.owner_id != "another-cluster")
    });
    found.unwrap()
}

/// Changes the source ranges of Service `web`.
async fn change(world: &World) {
    let ranges = json!({"spec": {"loadBalancerSourceRanges": ["198.51.100.0/24"]}});
    let (services, patch) = (world.services(), PatchParams::default());
    services
        .patch("web", &patch, &Patch::Merge(ranges))
        .await
        .unwrap();
}

/// Checks that no Node of `alive` was deleted, that no Node has another's provider ID, and that the
/// process runs.
async fn harmless(lie: &str, world: &World, alive: &[Node], ccm: &mut Process) {
    let now = nodes_now(world).await;
    for node in alive {
        let found = now.iter().any(|now| now.uid() == node.uid());
        assert!(found, "{lie}: {} was deleted", node.name_any());
    }
    // A Node keeps its provider ID. With another instance's ID, the Node would be deleted with that
    // instance.
    for node in &now {
        let id = node
            .spec
            .as_ref()
            .and_then(|spec| spec.provider_id.as_deref());
        let others = now
            .iter()
            .filter(|other| other.name_any() != node.name_any());
        let of_another = others
            .map(|other| format!("mock://zone-1/{}", other.name_any()))
            .any(|other| id == Some(other.as_str()));
        assert!(!of_another, "{lie}: {} has {id:?}", node.name_any());
    }
    assert_eq!(
        ccm.exit_status(),
        None,
        "{lie}: the ccm ended\n{}",
        ccm.log()
    );
    assert!(!ccm.log().contains("panicked"), "{lie}: {}", ccm.log());
}

/// The load balancer of another cluster's Service.
fn load_balancer_of_another(name: &str, service: &str, uid: &str, address: u8) -> LoadBalancer {
    LoadBalancer {
        name: name.into(),
        owner: Some(Mark {
            owner_id: "another-cluster".into(),
            namespace: "default".into(),
            name: service.into(),
            uid: uid.into(),
        }),
        addresses: vec![[192, 0, 2, address].into()],
        targets: vec!["theirs".into()],
        ..LoadBalancer::default()
    }
}

/// The objects of another cluster in the same cloud.
fn of_another(cloud: &Cloud) -> (LoadBalancer, Route) {
    let planted = load_balancer_of_another("of-another", "web", "another-uid", 200);
    let handle = cloud.plant_load_balancer(planted).unwrap();
    let load_balancer = cloud
        .load_balancers()
        .into_iter()
        .find(|lb| lb.handle == handle);
    // In the range of this cluster's Pods, and to no Node of it: the controller would delete it if
    // this cluster owned it.
    let route = Route {
        provider_id: Some("mock://zone-1/theirs".into()),
        owner_id: Some("another-cluster".into()),
        ..Route::new("of-another", "10.244.99.0/24")
    };
    cloud.plant_route(route.clone()).unwrap();
    // A route as a former Node of this cluster leaves it: without an owner's mark, to an instance
    // that does not exist.
    let left = Route {
        provider_id: Some("mock://zone-1/left".into()),
        ..Route::new(LEFT_ROUTE, "10.244.98.0/24")
    };
    cloud.plant_route(left).unwrap();
    (load_balancer.unwrap(), route)
}

/// Registers three Nodes that are Ready, one that is not, one whose instance is gone, and a new
/// one. Returns all except the Node whose instance is gone.
async fn nodes(world: &World) -> Vec<Node> {
    let mut nodes = Vec::new();
    for (number, name) in ["ready-0", "ready-1", "ready-2", "ill", "gone", "fresh"]
        .into_iter()
        .enumerate()
    {
        let cidr = format!("10.244.{number}.0/24");
        let node = NodeBuilder::new(name).pod_cidrs(&[&cidr]);
        let node = match name {
            "fresh" => node.uninitialized(),
            _ => node.provider_id(format!("mock://zone-1/{name}")),
        };
        let ready = if ["ill", "gone"].contains(&name) {
            "False"
        } else {
            "True"
        };
        if name != "gone" {
            world.cloud().add_instance(instance(name)).unwrap();
        }
        let node = world.register(node.ready(ready)).await;
        if name != "gone" {
            nodes.push(node);
        }
    }
    nodes
}

async fn nodes_now(world: &World) -> Vec<Node> {
    let nodes = world.nodes().list(&ListParams::default()).await;
    nodes.unwrap().items
}

/// Waits until the ccm has made the calls of the row. If the row says so, restarts the provider or
/// lets the cloud throttle meanwhile.
async fn work(world: &World, work: Work) {
    let (Work::Calls(rpc, calls)
    | Work::Restarted(rpc, calls)
    | Work::RestartedAfter(rpc, calls, _)
    | Work::Throttled(rpc, calls)
    | Work::ThrottledRestarted(rpc, calls)
    | Work::Served(rpc, calls)) = work;
    let throttle = || {
        world.cloud().set_weather(Weather {
            fail: Some(FailureCode::Throttled),
            slow_ms: 0,
        });
    };
    let reach_of = async |rpc: &str, calls| {
        eventually(&format!("{calls} calls of {rpc}"), PATIENCE, async || {
            keep_serving(world).await;
            let begun = world.cloud().call_count(rpc) + world.cloud().in_flight(rpc);
            if begun >= calls {
                Ok(())
            } else {
                Err(format!("{begun}: {:?}", world.cloud().call_counts()))
            }
        })
        .await;
    };
    let reach = async |calls| reach_of(rpc, calls).await;
    let replace = async || {
        world.mock.shutdown().await;
        world.mock.restart().await.unwrap();
    };
    match work {
        Work::Restarted(..) => {
            reach(calls / 2).await;
            replace().await;
        }
        Work::RestartedAfter(_, _, first) => {
            reach_of(first, 1).await;
            replace().await;
        }
        Work::Throttled(..) => {
            reach(calls / 2).await;
            // Right after a Probe, because the next one reports DEGRADED, and then the ccm judges
            // no answers.
            reach_of("Probe", world.cloud().call_count("Probe") + 1).await;
            throttle();
            // An Ensure follows, even if all Services were served before.
            change(world).await;
        }
        Work::ThrottledRestarted(..) => {
            reach(calls).await;
            throttle();
            world.cloud().reset_calls();
            world.mock.restart().await.unwrap();
        }
        Work::Calls(..) | Work::Served(..) => {}
    }
    reach(calls).await;
}

/// Restarts the provider if the lie made it exit, as a supervisor does.
async fn keep_serving(world: &World) {
    if !world.mock.is_running() {
        world.mock.restart().await.unwrap();
    }
}

/// All Warning events, and the lines of `/metrics` that count something that went wrong.
async fn evidence(world: &World, port: u16) -> Vec<String> {
    let events: Api<Event> = Api::all(world.client.clone());
    let events = events.list(&ListParams::default()).await;
    let events = events.map(|list| list.items).unwrap_or_default();
    let warnings = events
        .into_iter()
        .filter(|event| event.type_.as_deref() == Some("Warning"));
    let mut lines: Vec<String> = warnings
        .map(|event| {
            let about = event.involved_object;
            format!(
                "{}/{} Warning {} {}",
                about.kind.unwrap_or_default(),
                about.name.unwrap_or_default(),
                event.reason.unwrap_or_default(),
                event.message.unwrap_or_default()
            )
        })
        .collect();
    let (_, metrics) = get(port, "/metrics", Some("testenv-admin")).await;
    let wrong = metrics.lines().filter(|line| {
        let counts = line
            .rsplit(' ')
            .next()
            .is_some_and(|value| value != "0" && value != "0.0");
        let of_calls =
            line.starts_with("ccm_provider_rpc_total") && !line.contains("outcome=\"ok\"");
        let void = line.starts_with("node_lifecycle_controller_void_passes_total");
        let reserved = line.starts_with("ccm_node_reserved_labels_total");
        let refused = line.starts_with("ccm_provider_cloud_scope_accepted") && !counts;
        refused || counts && (of_calls || void || reserved)
    });
    lines.extend(wrong.map(str::to_owned));
    lines
}
