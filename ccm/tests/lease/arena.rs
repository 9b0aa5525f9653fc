//! Contenders for one Lease, and a Node that gives the leader something to write all the time.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Namespace, Node};
use kube::Client;
use kube::api::{Api, DeleteParams, PostParams};
use provider_mock::{Fixture, Instance, Mock};
use serde_json::json;
use testenv::objects::NodeBuilder;
use testenv::{ControlPlane, eventually};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use crate::contender::{Contender, Kind, Start};
use crate::history::{self, History};

/// Longer than anything takes here, on a busy machine.
pub const SOON: Duration = Duration::from_mins(1);

const LEASE: &str = "cloud-controller-manager";

/// How often the test checks whether a leader has initialised the Node. If so, it registers the
/// Node again.
const BEAT: Duration = Duration::from_millis(300);

/// How many contenders may start at once. The start of a Go process takes a second of CPU time.
static STARTING: Semaphore = Semaphore::const_new(2);

/// A namespace with its Lease and the processes that compete for it. Other arenas may use the same
/// API server.
pub struct Arena {
    name: String,
    client: Client,
    mock: Mock,
    directory: PathBuf,
    pub history: History,
    pub contenders: Vec<Contender>,
    beats: JoinHandle<()>,
    /// The measurements for `docs/leader-election.md`.
    report: String,
}

impl Arena {
    pub async fn new(plane: &ControlPlane, name: &str) -> Self {
        let client = plane.client();
        let directory = plane.directory().join(name);
        std::fs::create_dir(&directory).unwrap();
        let namespace = json!({ "metadata": { "name": name } });
        let namespace: Namespace = serde_json::from_value(namespace).unwrap();
        let namespaces = Api::<Namespace>::all(client.clone());
        let made = namespaces.create(&PostParams::default(), &namespace).await;
        made.unwrap();
        grant(plane, name, &directory);

        let node = format!("beat-{name}");
        let socket = directory.join("provider/p.sock");
        let mock = Mock::start(Fixture::default(), &socket, None);
        let mock = mock.await.unwrap();
        let instance = Instance::new(&node).internal_ip([10, 1, 1, 1].into());
        mock.cloud().add_instance(instance).unwrap();
        let nodes = Api::<Node>::all(client.clone());
        let built = NodeBuilder::new(node).label("arena", name).uninitialized();
        let leases = Api::<Lease>::namespaced(client.clone(), name);
        Self {
            name: name.to_owned(),
            history: History::watch(leases, LEASE),
            beats: tokio::spawn(beat(nodes, built.build())),
            client,
            mock,
            directory,
            contenders: Vec::new(),
            report: String::new(),
        }
    }

    /// Starts a contender. Returns its index. It competes for the Lease when this returns.
    pub async fn start(&mut self, plane: &ControlPlane, kind: Kind) -> usize {
        self.start_at(plane, kind, None).await
    }

    /// Like [`Self::start`], with a wrong wall clock if `clock` is given.
    pub async fn start_at(
        &mut self,
        plane: &ControlPlane,
        kind: Kind,
        clock: Option<PathBuf>,
    ) -> usize {
        let starting = STARTING.acquire().await.unwrap();
        let number = self.contenders.len();
        let start = Start {
            plane,
            mock: &self.mock,
            namespace: &self.name,
            directory: &self.directory,
            number,
            clock,
        };
        let contender = Contender::start(kind, start).await;
        let stands = match kind {
            Kind::Go => "Attempting to acquire leader lease",
            Kind::Ours => "lead",
        };
        eventually("it stands for election", SOON, async || {
            let log = contender.process.log();
            log.contains(stands).then_some(()).ok_or(log)
        })
        .await;
        drop(starting);
        self.contenders.push(contender);
        number
    }

    /// Waits until this contender has the Lease and works. Returns when it took the Lease.
    pub async fn led_by(&self, index: usize) -> Instant {
        let contender = &self.contenders[index];
        let took = eventually(&format!("{index} leads"), SOON, async || {
            let identity = contender.identity().ok_or("it never had the Lease")?;
            let holder = self.history.holders().last().cloned();
            if holder.as_ref() != Some(&identity) {
                return Err(format!("{holder:?} leads"));
            }
            let seen = self.history.seen();
            let others = |holder: &Option<String>| holder.as_ref() != Some(&identity);
            let before = seen
                .iter()
                .rposition(|seen| others(&seen.holder) && seen.holder.is_some());
            Ok(seen[before.map_or(0, |before| before + 1)].at)
        })
        .await;
        eventually(&format!("{index} works"), SOON, async || {
            let writes = contender.link.writes();
            let works = writes.iter().any(|write| write.sent >= took);
            if works && contender.leads() {
                Ok(())
            } else {
                Err(format!(
                    "{} writes, leads: {}",
                    writes.len(),
                    contender.leads()
                ))
            }
        })
        .await;
        took
    }

    /// Waits until this leader has renewed the Lease this many times more.
    pub async fn renewals(&self, index: usize, times: usize) {
        let renewals = || self.contenders[index].link.claims().len();
        let enough = renewals() + times;
        eventually("the Lease is renewed", SOON, async || {
            (renewals() >= enough).then_some(()).ok_or(renewals())
        })
        .await;
    }

    /// Waits until this contender has ended. Returns the time at which the test
    /// saw that, and the exit code.
    pub async fn ends(&mut self, index: usize) -> (Instant, Option<i32>) {
        let process = &mut self.contenders[index].process;
        let status = process.wait(SOON).await.unwrap();
        (Instant::now(), status.code())
    }

    pub async fn delete_lease(&self) {
        let leases = Api::<Lease>::namespaced(self.client.clone(), &self.name);
        leases
            .delete(LEASE, &DeleteParams::default())
            .await
            .unwrap();
    }

    /// The Lease on the API server.
    pub async fn lease(&self) -> Lease {
        let leases = Api::<Lease>::namespaced(self.client.clone(), &self.name);
        leases.get(LEASE).await.unwrap()
    }

    /// A figure for the documentation.
    pub fn measured(&mut self, what: &str, took: Duration) {
        let _ = writeln!(
            self.report,
            "{}: {what}: {:.2} s",
            self.name,
            took.as_secs_f64()
        );
    }

    /// Checks that [`history::wrong`] finds nothing, and that these led, one after the other.
    pub fn verdict(&self, led: &[usize]) {
        let wrong = history::wrong(&self.history.seen(), &self.contenders);
        let first = wrong
            .iter()
            .take(10)
            .cloned()
            .collect::<Vec<_>>()
            .join("\n");
        assert!(
            wrong.is_empty(),
            "{} times, first:\n{first}\n{}",
            wrong.len(),
            self.logs()
        );
        let identity = |index: &usize| self.contenders[*index].identity().unwrap_or_default();
        let expected: Vec<String> = led.iter().map(identity).collect();
        assert_eq!(self.history.holders(), expected, "{}", self.logs());
        for contender in self.contenders.iter().filter(|it| it.kind == Kind::Ours) {
            // The rights in `deploy/kustomize/base/rbac.yaml` are enough.
            assert_eq!(contender.link.forbidden(), Vec::<String>::new());
        }
        for index in led {
            let writes = self.contenders[*index].link.writes().len();
            assert!(writes > 0, "{index} led and never wrote");
        }
        print!("{}", self.report);
    }

    fn logs(&self) -> String {
        let tails = self.contenders.iter().map(|contender| {
            let log = contender.process.log();
            let lines: Vec<&str> = log.lines().collect();
            let last = &lines[lines.len().saturating_sub(12)..];
            format!("--- {:?}: {}\n", contender.kind, last.join("\n"))
        });
        tails.collect()
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        self.beats.abort();
    }
}

static APPLYING: Mutex<()> = Mutex::new(());

/// Applies `deploy/kustomize/base/rbac.yaml`, with the Lease in this namespace
/// (`--leader-elect-resource-namespace`).
fn grant(plane: &ControlPlane, namespace: &str, directory: &std::path::Path) {
    let rbac = include_str!("../../../deploy/kustomize/base/rbac.yaml");
    let place = |document: &str| {
        // Moves the Role and the RoleBinding, but not the subject of the RoleBinding.
        let moved = document.replacen(
            "leader-election\n  namespace: kube-system",
            &format!("leader-election\n  namespace: {namespace}"),
            1,
        );
        assert_eq!(moved != document, document.contains("leader-election\n"));
        moved
    };
    let documents: Vec<String> = rbac.split("\n---\n").map(place).collect();
    let file = directory.join("rbac.yaml");
    std::fs::write(&file, documents.join("\n---\n")).unwrap();
    // One after the other: if two create the same object at once, one of them fails.
    let _applying = APPLYING.lock().unwrap_or_else(PoisonError::into_inner);
    plane.apply(&file);
}

/// Registers the Node again and again. The leader initialises it.
async fn beat(nodes: Api<Node>, node: Node) {
    let name = node.metadata.name.clone().unwrap_or_default();
    loop {
        let done = nodes.get_opt(&name).await.map(|found| {
            let spec = found.and_then(|node| node.spec).unwrap_or_default();
            spec.taints.is_none_or(|taints| taints.is_empty())
        });
        if done.is_ok_and(|done| done) {
            let _ = nodes.delete(&name, &DeleteParams::default()).await;
            let _ = nodes.create(&PostParams::default(), &node).await;
        }
        sleep(BEAT).await;
    }
}
