//! One run: the world, the processes, the script.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use ccm::args::Args;
use ccm::run::simulated::{World, run_in};
use provider_mock::{Cloud, Fault, FaultKind, Fixture, Instance, Power};
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::api_server::ApiServer;
use crate::api_server::store::{Id, Patch};
use crate::checker::{self, Checker, UNINITIALIZED};
use crate::faults::Faults;
use crate::panics;
use crate::plan::{CLASS, Plan, Step};
use crate::provider::Provider;
use crate::trace::Trace;

/// When virtual time begins, as wall clocks show it.
const EPOCH: i64 = 1_800_000_000;
/// When nothing has gone wrong for so long, everything must be right.
const CALM: Duration = Duration::from_mins(25);
/// And then for so long nothing may change.
const STILL: Duration = Duration::from_mins(5);
/// A run ends sooner when everything is right and nothing has changed for so long: a timer that still runs would have to undo what is right.
/// One seed in [`PATIENT`] waits all the same, and shows that none does.
const SETTLED: Duration = Duration::from_secs(100);
/// How often it is asked whether everything is right.
const LOOK: Duration = Duration::from_secs(20);
/// See [`SETTLED`].
const PATIENT: u64 = 8;

/// What came of a run.
#[derive(Debug)]
pub struct Report {
    /// What did not hold; empty where all did.
    pub violations: Vec<String>,
    /// A digest of the trace, where that was kept.
    pub digest: u64,
    /// The trace, where that was kept.
    pub lines: Vec<String>,
    /// How often each kind of fault was hit at each site.
    pub hit: BTreeMap<(String, String), u64>,
}

/// Runs a plan, in virtual time, and keeps its trace.
pub fn run(plan: &Plan) -> anyhow::Result<Report> {
    play(plan, Trace::new)
}

/// The same without a trace, which costs more than all the rest.
pub fn judge(plan: &Plan) -> anyhow::Result<Report> {
    play(plan, Trace::of_violations)
}

/// Runs a plan with a trace that is made when virtual time begins.
pub fn play(plan: &Plan, trace: impl FnOnce() -> Trace) -> anyhow::Result<Report> {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_time().start_paused(true);
    // Which of several receivers of one `watch` channel is woken first is drawn by tokio.
    #[cfg(tokio_unstable)]
    builder.rng_seed(tokio::runtime::RngSeed::from_bytes(
        &plan.seed.to_le_bytes(),
    ));
    let runtime = builder.build()?;
    panics::forget();
    let mut report = runtime.block_on(async {
        let mut run = Run::new(plan, trace())?;
        run.play(plan).await?;
        anyhow::Ok(run.report())
    })?;
    drop(runtime);
    report.violations.extend(panics::seen());
    Ok(report)
}

struct Process {
    identity: Arc<str>,
    shutdown: CancellationToken,
    task: JoinHandle<()>,
}

/// Tells of the end of a task, also of one that is aborted or panics.
struct Ends(Arc<Notify>);

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

struct Run {
    api: ApiServer,
    cloud: Cloud,
    provider: Provider,
    checker: Checker,
    faults: Faults,
    trace: Trace,
    began: Instant,
    seed: u64,
    lease_seconds: u64,
    processes: Vec<Process>,
    /// Told when one of them has ended.
    ended: Arc<Notify>,
    started: u32,
    machines: u8,
    ports: u16,
    /// What follows from earlier steps, by time.
    later: BTreeMap<(Instant, u64), After>,
    number: u64,
}

/// What follows from a step.
enum After {
    NotReady(u8),
    IsReady(u8),
    StartCcm(usize),
    StartProvider,
}

fn wall(began: Instant) -> jiff::Timestamp {
    let since = i64::try_from(began.elapsed().as_millis()).unwrap_or(i64::MAX);
    jiff::Timestamp::from_millisecond(EPOCH * 1000 + since).unwrap_or(jiff::Timestamp::UNIX_EPOCH)
}

fn node(i: u8) -> String {
    format!("node-{i}")
}

fn service(i: u8) -> Id {
    Id::new("services", "default", &format!("web-{i}"))
}

impl Run {
    fn new(plan: &Plan, trace: Trace) -> anyhow::Result<Self> {
        let mut fixture = Fixture::default();
        fixture.capabilities.load_balancers.classes = vec![CLASS.to_owned()];
        // How long load balancers take to be made and to go.
        let takes = [0, 3, 30, 90].map(Duration::from_secs);
        let of = |number: u64| takes[usize::try_from(number % 4).unwrap_or_default()];
        fixture.provisioning.load_balancer = of(plan.seed).into();
        fixture.provisioning.deletion = of(plan.seed / 4).into();
        let cloud = Cloud::new(fixture)?;
        let checker = Checker::new(
            cloud.clone(),
            trace.clone(),
            Duration::from_secs(plan.lease_seconds * 2 / 3),
        );
        let faults = Faults::default();
        for (site, number, fault) in &plan.faults {
            faults.plan(site, *number, *fault);
        }
        let began = Instant::now();
        let seconds = move || wall(began).strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let api = ApiServer::new(
            plan.seed,
            faults.clone(),
            checker.clone(),
            trace.clone(),
            seconds,
        );
        let provider = Provider::new(cloud.clone(), checker.clone(), trace.clone());
        Ok(Self {
            api,
            cloud,
            provider,
            checker,
            faults,
            trace,
            began,
            seed: plan.seed,
            lease_seconds: plan.lease_seconds,
            processes: Vec::new(),
            ended: Arc::default(),
            started: 0,
            machines: 0,
            ports: 80,
            later: BTreeMap::new(),
            number: 0,
        })
    }

    async fn play(&mut self, plan: &Plan) -> anyhow::Result<()> {
        self.provider.start().await?;
        for place in 0..plan.ccms {
            let process = self.start_ccm(place)?;
            self.processes.push(process);
        }
        for (at, step) in &plan.steps {
            let at = self.began + Duration::from_millis(*at);
            self.until(at).await?;
            self.trace.note(format_args!("* {step}"));
            self.step(step);
            self.checker.always();
        }
        self.until(Instant::now() + Duration::from_mins(1)).await?;
        self.faults.end();
        self.cloud.clear_faults();
        self.trace.note("* from now on nothing goes wrong");
        let calm_ends = Instant::now() + CALM;
        if !plan.seed.is_multiple_of(PATIENT) && self.settles(calm_ends).await? {
            return Ok(());
        }
        self.until(calm_ends).await?;
        let before = self.checker.changes();
        self.until(Instant::now() + STILL).await?;
        let changes = self.checker.changes() - before;
        let (wrong, braked) = self.wrong();
        if changes > 0 && !braked {
            let minutes = STILL.as_secs() / 60;
            self.trace.violation(format_args!(
                "{changes} changes in the last {minutes} min, though nothing happened"
            ));
        }
        for wrong in wrong {
            self.trace.violation(wrong);
        }
        Ok(())
    }

    /// What is not right yet, and whether the deletion brake may hold Nodes.
    fn wrong(&self) -> (Vec<String>, bool) {
        let (nodes, services) = (self.api.list("nodes"), self.api.list("services"));
        let braked = self.checker.is_braked(&nodes);
        let wrong = checker::converged(&nodes, &services, &self.cloud, braked);
        (wrong, braked)
    }

    /// Lets time pass until everything is right and nothing changes any more. `false` where that is not so when the calm ends.
    async fn settles(&mut self, calm_ends: Instant) -> anyhow::Result<bool> {
        let mut last = (self.checker.changes(), Instant::now());
        while Instant::now() < calm_ends {
            self.until(Instant::now() + LOOK).await?;
            if self.checker.changes() != last.0 {
                last = (self.checker.changes(), Instant::now());
            } else if last.1.elapsed() >= SETTLED && self.wrong().0.is_empty() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn report(self) -> Report {
        Report {
            violations: self.trace.violations(),
            digest: self.trace.digest(),
            lines: self.trace.lines(),
            hit: self.faults.hit(),
        }
    }

    fn start_ccm(&mut self, place: u8) -> anyhow::Result<Process> {
        self.started += 1;
        let identity: Arc<str> = format!("ccm-{place}-{}", self.started).into();
        let lease = self.lease_seconds;
        let line = [
            "ccm",
            "--provider=mock=unix:///in/memory/provider.sock",
            "--secure-port=0",
            &format!("--leader-elect-lease-duration={lease}s"),
            &format!("--leader-elect-renew-deadline={}s", lease * 2 / 3),
            &format!("--leader-elect-retry-period={}s", lease / 6),
        ];
        let config = Args::parse_from_command_line(line)
            .map_err(|error| anyhow::anyhow!("{error:?}"))?
            .into_config()
            .map_err(|wrong| anyhow::anyhow!("{wrong:?}"))?;
        let (shutdown, began) = (CancellationToken::new(), self.began);
        let (provider, dialling) = (self.provider.clone(), Arc::clone(&identity));
        let world = World {
            kube: self.api.client(&identity),
            dial: Arc::new(move || provider.dial(&dialling)),
            wall: Arc::new(move || wall(began)),
            seed: self
                .seed
                .wrapping_mul(31)
                .wrapping_add(u64::from(self.started)),
            identity: identity.to_string(),
            shutdown: shutdown.clone(),
        };
        let (trace, name) = (self.trace.clone(), Arc::clone(&identity));
        trace.note(format_args!("{identity} starts"));
        let ends = Ends(Arc::clone(&self.ended));
        let task = tokio::spawn(async move {
            let _ends = ends;
            match run_in(world, config).await {
                Err(ccm::run::RunError::Broken(what)) => {
                    trace.violation(format!("{name}: {what} ended by itself"));
                }
                ended => trace.note(format_args!("{name} ends: {ended:?}")),
            }
        });
        Ok(Process {
            identity,
            shutdown,
            task,
        })
    }

    /// Lets time pass; what ended is started again.
    async fn until(&mut self, at: Instant) -> anyhow::Result<()> {
        loop {
            let next = self.later.keys().next().map_or(at, |(due, _)| *due).min(at);
            tokio::select! {
                biased;
                () = self.provider.died() => {
                    self.after(Duration::from_secs(3), After::StartProvider);
                    continue;
                }
                () = self.ended.notified() => self.start_again(),
                () = sleep_until(next) => {}
            }
            self.checker.always();
            while let Some(first) = self
                .later
                .first_entry()
                .filter(|first| first.key().0 <= Instant::now())
            {
                let after = first.remove();
                self.happens(after).await?;
            }
            if Instant::now() >= at {
                return Ok(());
            }
        }
    }

    /// A kubelet starts each ccm again that has ended.
    fn start_again(&mut self) {
        for place in 0..self.processes.len() {
            let waits = self
                .later
                .values()
                .any(|after| matches!(after, After::StartCcm(of) if *of == place));
            if self.processes[place].task.is_finished() && !waits {
                self.after(Duration::from_secs(5), After::StartCcm(place));
            }
        }
    }

    fn after(&mut self, wait: Duration, what: After) {
        self.number += 1;
        self.later
            .insert((Instant::now() + wait, self.number), what);
    }

    async fn happens(&mut self, after: After) -> anyhow::Result<()> {
        match after {
            After::NotReady(i) => {
                let runs = self
                    .cloud
                    .instance(&node(i))
                    .is_some_and(|one| one.power == Power::Running);
                if !runs {
                    self.ready(i, "Unknown");
                }
            }
            After::IsReady(i) => {
                let runs = self
                    .cloud
                    .instance(&node(i))
                    .is_some_and(|one| one.power == Power::Running);
                if runs {
                    self.ready(i, "True");
                }
            }
            After::StartCcm(place) => {
                let process = self.start_ccm(u8::try_from(place)?)?;
                self.processes[place] = process;
            }
            After::StartProvider => self.provider.start().await?,
        }
        Ok(())
    }

    /// The kubelet, or the node controller for it, writes the condition.
    fn ready(&self, i: u8, status: &str) {
        let now = wall(self.began).to_string();
        let condition = json!({"type": "Ready", "status": status, "reason": "Simulated", "message": "", "lastTransitionTime": now, "lastHeartbeatTime": now});
        let patch = json!({"status": {"conditions": [condition]}});
        let id = Id::new("nodes", "", &node(i));
        // It may be gone.
        let _ = self
            .api
            .act(|store| store.patch(&id, Patch::Strategic, true, &patch, "kubelet"));
    }

    fn user(&self, id: &Id, patch: &Value) {
        // What is gone cannot be edited.
        let _ = self
            .api
            .act(|store| store.patch(id, Patch::Merge, false, patch, "kubectl"));
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Join(i) => self.join(*i),
            Step::DeleteNode(i) => {
                // It may be gone.
                let _ = self
                    .api
                    .act(|store| store.delete(&Id::new("nodes", "", &node(*i)), &Value::Null));
            }
            Step::Ready(i, ready) => {
                self.ready(*i, if *ready { "True" } else { "False" });
                if !ready {
                    self.after(Duration::from_secs(70), After::IsReady(*i));
                }
            }
            Step::Stop(i) => {
                if self.cloud.stop_instance(&node(*i)).is_ok() {
                    self.after(Duration::from_secs(40), After::NotReady(*i));
                }
            }
            Step::Start(i) => {
                if self.cloud.start_instance(&node(*i)).is_ok() {
                    self.after(Duration::from_secs(20), After::IsReady(*i));
                }
            }
            Step::Terminate(i) => {
                if self.cloud.remove_instance(&node(*i)).is_ok() {
                    self.after(Duration::from_secs(40), After::NotReady(*i));
                }
            }
            Step::LabelNode(i) => {
                self.number += 1;
                self.user(
                    &Id::new("nodes", "", &node(*i)),
                    &json!({"metadata": {"labels": {"user": self.number.to_string()}}}),
                );
            }
            Step::Create(i, foreign) => self.create(*i, *foreign),
            Step::EditPort(i) => {
                self.ports += 1;
                self.user(&service(*i), &json!({"spec": {"ports": [{"port": self.ports, "protocol": "TCP", "nodePort": 30_000 + u32::from(self.ports), "targetPort": 8080}]}}));
            }
            Step::ToClusterIp(i) => self.user(
                &service(*i),
                &json!({"spec": {"type": "ClusterIP", "loadBalancerClass": null}}),
            ),
            Step::ToLoadBalancer(i) => {
                self.user(&service(*i), &json!({"spec": {"type": "LoadBalancer"}}));
            }
            Step::Delete(i) => {
                // It may be gone.
                let _ = self
                    .api
                    .act(|store| store.delete(&service(*i), &Value::Null));
            }
            Step::StripRecord(i) => {
                self.user(&service(*i), &json!({"metadata": {"annotations": null}}));
            }
            Step::RemoveBalancer(i) => {
                let uid = self
                    .api
                    .get(&service(*i))
                    .map(|one| one["metadata"]["uid"].clone());
                let all = self.cloud.load_balancers();
                let own = all.iter().find(|one| {
                    one.owner.as_ref().is_some_and(|owner| {
                        uid.as_ref().is_some_and(|uid| *uid == owner.uid.as_str())
                    })
                });
                if let Some(own) = own {
                    // It may have gone by itself.
                    let _ = self.cloud.remove_load_balancer(&own.handle);
                }
            }
            step => self.operate(step),
        }
    }

    /// What is done to processes and connections.
    fn operate(&mut self, step: &Step) {
        match step {
            Step::KillCcm(place) => self.processes[usize::from(*place)].task.abort(),
            Step::RollCcm(place) => self.processes[usize::from(*place)].shutdown.cancel(),
            Step::CutOff(place, seconds) => {
                let identity = Arc::clone(&self.processes[usize::from(*place)].identity);
                self.api.cut_off(&identity, Duration::from_secs(*seconds));
            }
            Step::Compact => self.api.act(crate::api_server::store::Store::compact),
            Step::KillProvider(seconds) => {
                self.provider.kill();
                self.after(Duration::from_secs(*seconds), After::StartProvider);
            }
            Step::RollProvider => {
                self.provider.shut_down();
                self.after(Duration::from_secs(2), After::StartProvider);
            }
            Step::Disconnect => self.provider.disconnect(),
            Step::Forget => self.cloud.forget_initialize(),
            Step::Rpc(rpc, kind, code) => {
                let mut fault = code.map_or_else(
                    || Fault::new(*rpc, *kind),
                    |code| Fault::failure(*rpc, code),
                );
                fault.kind = *kind;
                fault.times = Some(1);
                if *kind == FaultKind::Delay {
                    fault.delay = Some(Duration::from_secs(5).into());
                }
                match self.cloud.set_fault(fault) {
                    Ok(_) => self.faults.played(rpc, &kind.to_string()),
                    Err(error) => self.trace.note(format_args!("no such fault: {error}")),
                }
            }
            _ => {}
        }
    }

    /// A machine and its kubelet; where the Node is there already, nothing happens.
    fn join(&mut self, i: u8) {
        let id = Id::new("nodes", "", &node(i));
        if self.api.get(&id).is_some() {
            return;
        }
        self.machines += 1;
        if self.cloud.instance(&node(i)).is_none() {
            let mut instance = Instance::new(node(i));
            instance.id = format!("i-{}", self.machines);
            let instance = instance
                .instance_type("mock.large")
                .place("zone-a", "region-1")
                .internal_ip(IpAddr::V4(Ipv4Addr::new(10, 0, 0, self.machines)));
            if let Err(error) = self.cloud.add_instance(instance) {
                self.trace.note(format_args!("no instance: {error}"));
            }
        }
        let now = wall(self.began).to_string();
        let object = json!({
            "metadata": {"name": node(i), "labels": {"kubernetes.io/hostname": node(i)}},
            "spec": {"taints": [{"key": UNINITIALIZED, "value": "true", "effect": "NoSchedule"}]},
            "status": {
                "conditions": [{"type": "Ready", "status": "True", "reason": "Simulated", "message": "", "lastTransitionTime": now, "lastHeartbeatTime": now}],
                "addresses": [{"type": "Hostname", "address": node(i)}],
            },
        });
        // It is not there.
        let _ = self.api.act(|store| store.create("nodes", "", object));
    }

    fn create(&mut self, i: u8, foreign: bool) {
        self.ports += 1;
        let id = service(i);
        let mut spec = json!({
            "type": "LoadBalancer", "clusterIP": format!("10.96.0.{i}"), "externalTrafficPolicy": "Cluster", "sessionAffinity": "None",
            "allocateLoadBalancerNodePorts": true,
            "ports": [{"port": self.ports, "protocol": "TCP", "nodePort": 30_000 + u32::from(self.ports), "targetPort": 8080}],
        });
        if foreign {
            spec["loadBalancerClass"] = json!("example.com/other");
        } else if i % 3 == 1 {
            spec["loadBalancerClass"] = json!(CLASS);
        }
        let object =
            json!({"metadata": {"name": id.name}, "spec": spec, "status": {"loadBalancer": {}}});
        // One that is there stays.
        let _ = self
            .api
            .act(|store| store.create("services", "default", object));
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        for process in &self.processes {
            process.task.abort();
        }
        self.provider.kill();
    }
}
