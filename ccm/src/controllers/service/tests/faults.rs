//! A Service's whole life with a fault of the provider, the API server or the ccm. Each life
//! creates one load balancer for the Service, and leaves none.

mod api_server;
mod killed;
mod provider;

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use tokio::time::{Instant, sleep};

use super::World;
use super::cloud::{Call, Fault};
use crate::controllers::service::fixtures::{node, service};
use crate::controllers::service::handle::{ANNOTATION, Stored};
use crate::controllers::service::plan::has_finalizer;
use crate::controllers::service::tests::named;

/// How long a test waits: the slowest retry comes after half an hour.
const PATIENCE: Duration = Duration::from_mins(40);
/// Services without a fault are served in this time.
const AT_ONCE: Duration = Duration::from_secs(2);

/// Why a load balancer is no longer wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Deleted,
    TypeChanged,
}

impl World {
    /// Waits until the condition holds, and restarts processes that died.
    async fn comes(&mut self, what: &str, met: impl Fn(&Self) -> bool) {
        self.comes_within(what, PATIENCE, met).await;
    }

    async fn comes_within(&mut self, what: &str, most: Duration, met: impl Fn(&Self) -> bool) {
        let began = Instant::now();
        while !met(self) {
            assert!(
                began.elapsed() < most,
                "never: {what}; {:?}, {:?}",
                self.calls(),
                self.events.recorded()
            );
            let (provider_died, terminated, ccm_dies) = {
                let mut state = self.cloud.state();
                let ccm_dies = state.kill_ccm || self.server.kills_ccm();
                state.kill_ccm = false;
                let dead = std::mem::take(&mut state.dead);
                (dead, std::mem::take(&mut state.terminated), ccm_dies)
            };
            if terminated {
                self.provider.shut_down();
                self.provider.start(self.cloud.service());
            }
            if provider_died {
                self.provider.kill();
                sleep(Duration::from_secs(1)).await;
                self.provider.start(self.cloud.service());
            }
            if ccm_dies {
                self.kill_ccm().await;
            }
            // Longer waits are checked less often.
            let step = began.elapsed() / 50;
            sleep(step.clamp(Duration::from_millis(10), Duration::from_secs(1))).await;
        }
    }

    /// Ends the ccm as SIGKILL does, and starts a new process.
    async fn kill_ccm(&mut self) {
        self.tasks.abort_all();
        while self.tasks.join_next().await.is_some() {}
        self.memory = Arc::default();
        self.start();
    }

    fn times(&self, call: &str) -> usize {
        self.cloud.called(call)
    }

    /// The first call about `web` with a fault, and the next call about `web`.
    fn wrong_and_next(&self) -> (Call, Call) {
        let state = self.cloud.state();
        let of_web: Vec<&Call> = state.log.iter().filter(|call| call.name == "web").collect();
        let pair = of_web.windows(2).find(|pair| pair[0].fault.is_some());
        let pair = pair.expect("a call went wrong and was made again");
        (pair[0].clone(), pair[1].clone())
    }

    /// The time between the first call about `web` with a fault and the next call.
    fn waited(&self) -> Duration {
        let (wrong, next) = self.wrong_and_next();
        next.at - wrong.at
    }

    fn is_whole(&self, name: &str) -> bool {
        let Some(service) = self.server.get(name) else {
            return false;
        };
        let handle = format!("h-{}", service.metadata.uid.as_deref().unwrap());
        has_finalizer(&service)
            && Stored::of(&service).handle_of("mock") == Some(handle.as_str())
            && self.address(name).is_some()
    }

    /// Plays the life of `web`, with another Service beside it whose calls get no faults. `pace`:
    /// the other Service must not wait longer than this.
    async fn lives(&mut self, end: End, pace: Option<Duration>) {
        let began = Instant::now();
        self.server.put(&service());
        self.server.put(&named(2));
        self.comes("the other is made", |w| w.is_whole("s2")).await;
        if let Some(pace) = pace {
            assert!(
                began.elapsed() < pace,
                "serves other Services meanwhile: {:?}",
                began.elapsed()
            );
        }
        self.comes("makes the load balancer", |w| w.is_whole("web"))
            .await;
        assert_eq!(self.cloud.state().made, 2, "each once");
        self.rest().await;

        // A new ccm process sends Get and changes nothing.
        let asked = self.answered("Get");
        let (ensures, writes) = (self.times("Ensure web"), self.server.writes().len());
        self.kill_ccm().await;
        self.comes("it was asked about", |w| w.answered("Get") > asked)
            .await;
        self.rest().await;
        assert_eq!(self.times("Ensure web"), ensures);
        assert_eq!(self.server.writes().len(), writes);

        let confirmed = |w: &Self| w.answered("Update") + w.answered("Ensure") + w.answered("Get");
        let before = confirmed(self);
        self.server.put_node(node("n1"));
        self.comes("its targets follow", |w| {
            w.targets() == ["n0", "n1"] && confirmed(w) > before
        })
        .await;
        self.rest().await;
        assert_eq!(self.cloud.state().made, 2, "never makes it again");
        assert!(self.is_whole("web"));

        self.server.edit("web", |service| match end {
            End::Deleted => {
                service.metadata.deletion_timestamp = Some(Time(jiff::Timestamp::UNIX_EPOCH));
            }
            End::TypeChanged => service.spec.as_mut().unwrap().type_ = Some("ClusterIP".into()),
        });
        self.comes("it goes", |w| match w.server.get("web") {
            None => end == End::Deleted,
            Some(web) => !has_finalizer(&web) && Stored::of(&web) == Stored::Nothing,
        })
        .await;
        self.rest().await;
        assert_eq!(self.address("web"), None);
        let state = self.cloud.state();
        let left: Vec<&String> = state.balancers.keys().collect();
        assert_eq!(left, ["u2"], "leaves nothing");
        assert_eq!(state.made, 2, "makes nothing twice");
    }

    /// How many calls of this RPC about `web` got their normal answer.
    fn answered(&self, rpc: &str) -> usize {
        let state = self.cloud.state();
        let of_web = state.log.iter().filter(|call| call.name == "web");
        of_web
            .filter(|call| call.rpc == rpc && matches!(call.fault, None | Some(Fault::Drains(_))))
            .count()
    }
}

fn has_event(world: &World, words: &[&str]) -> bool {
    let events = world.events.recorded();
    let has = |event: &String| words.iter().all(|word| event.contains(word));
    events.iter().any(has)
}

#[tokio::test(start_paused = true)]
async fn a_life_without_faults_costs_these_calls_and_writes() {
    let mut world = World::new(1).await;
    world.lives(End::Deleted, Some(AT_ONCE)).await;
    let calls = world.calls();
    let of_web: Vec<&str> = calls
        .iter()
        .filter(|call| call.contains(" web "))
        .map(|call| call.split(' ').next().unwrap())
        .collect();
    assert_eq!(of_web, ["Ensure", "Get", "Update", "Delete"]);
    let writes = world.server.writes();
    let of_web = writes.iter().filter(|name| name.starts_with("web")).count();
    assert_eq!(of_web, 4, "{writes:?}");
    assert!(
        world
            .server
            .get("s2")
            .unwrap()
            .metadata
            .annotations
            .unwrap()[ANNOTATION]
            .contains("h-u2")
    );
}
