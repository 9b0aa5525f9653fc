//! One run: the world, the processes, the plan.

mod by_hand;
mod calm;
mod setup;
mod steps;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use ccm::run::RunError;
use ccm::run::simulated::{World, run_in};
use provider_mock::Cloud;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::api_server::ApiServer;
use crate::checker::{Checker, Hindered, SECOND};
use crate::faults::Faults;
use crate::panics;
use crate::plan::{Plan, Setup, Trait};
use crate::provider::Provider;
use crate::trace::Trace;

pub use setup::FOREIGN_OWNER;

/// After this many turns of the scheduler, all tasks wait for a timer.
const SETTLES: u32 = 200;
/// How often the run checks for conditions that last too long. In the calm: [`calm::LOOK`].
const LOOK: Duration = Duration::from_secs(5);
/// The start of virtual time, in Unix seconds.
const EPOCH: i64 = 1_800_000_000;
/// The result of a run.
#[derive(Debug)]
pub struct Report {
    /// The violated invariants; empty if all held.
    pub violations: Vec<String>,
    /// A digest of the trace, if it was kept.
    pub digest: u64,
    /// The trace, if it was kept.
    pub lines: Vec<String>,
    /// How often each kind of fault was hit at each site.
    pub hit: BTreeMap<(String, String), u64>,
    /// How many requests there were at each site.
    pub counts: BTreeMap<String, u64>,
}

/// Runs a plan, in virtual time, and keeps its trace.
pub fn run(plan: &Plan) -> anyhow::Result<Report> {
    play(plan, Trace::new)
}

/// Runs a plan without a trace: a trace costs more than the rest of the run.
pub fn judge(plan: &Plan) -> anyhow::Result<Report> {
    play(plan, Trace::of_violations)
}

/// Runs a plan. `trace` is called when virtual time begins.
pub fn play(plan: &Plan, trace: impl FnOnce() -> Trace) -> anyhow::Result<Report> {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_time().start_paused(true);
    // tokio draws which of several receivers of a `watch` channel wakes first.
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

/// Notifies of the end of a task, even if it is aborted or panics.
struct Ends(Arc<Notify>);

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

struct Run {
    api: ApiServer,
    cloud: Cloud,
    /// All clouds, with that of the second ccm.
    clouds: Vec<Cloud>,
    provider: Provider,
    second: Option<Provider>,
    checker: Checker,
    faults: Faults,
    trace: Trace,
    began: Instant,
    seed: u64,
    setup: Setup,
    /// From the setup. Changes when the faults end.
    slow_ms: u64,
    routes: bool,
    /// The faults have ended.
    calm: bool,
    /// Nodes that had an `AbsentOnce`. Each Node gets only one.
    lied: BTreeSet<u8>,
    /// Nodes whose route was led to an unknown address.
    strays: BTreeSet<u8>,
    processes: Vec<Process>,
    /// Notified when a process has ended.
    ended: Arc<Notify>,
    started: u32,
    machines: u8,
    ports: u16,
    /// How long all processes will be suspended.
    suspended: Option<Duration>,
    /// The consequences of earlier steps, by time.
    later: BTreeMap<(Instant, u64), After>,
    number: u64,
}

/// A consequence of a step.
enum After {
    NotReady(u8),
    IsReady(u8),
    /// The kubelet of a machine registers.
    Register(u8),
    /// A machine boots.
    Boot(u8),
    /// The fault with this number ends.
    Honest(u64),
    FairWeather,
    StartCcm(usize),
    StartProvider,
}

fn wall(began: Instant) -> jiff::Timestamp {
    let since = i64::try_from(began.elapsed().as_millis()).unwrap_or(i64::MAX);
    jiff::Timestamp::from_millisecond(EPOCH * 1000 + since).unwrap_or(jiff::Timestamp::UNIX_EPOCH)
}

impl Run {
    fn new(plan: &Plan, trace: Trace) -> anyhow::Result<Self> {
        let began = Instant::now();
        let setup = &plan.setup;
        let clouds = setup::clouds(setup)?;
        let cloud = clouds
            .first()
            .ok_or_else(|| anyhow::anyhow!("there is no cloud"))?
            .clone();
        let checker = Checker::new(clouds.clone(), trace.clone(), setup::rules(setup));
        let slow = Duration::from_millis(setup.slow_ms);
        let faults = Faults::new(&plan.strikes, slow);
        let seconds = move || wall(began).strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let api = ApiServer::new(
            plan.seed,
            faults.clone(),
            checker.clone(),
            trace.clone(),
            seconds,
        );
        let provider = |cloud: &Cloud, faults: &Faults| {
            Provider::new(
                cloud.clone(),
                checker.clone(),
                faults.clone(),
                trace.clone(),
            )
        };
        // The second provider has no planned faults.
        let second = clouds
            .get(1)
            .map(|cloud| provider(cloud, &Faults::new(&[], slow)));
        let provider = provider(&cloud, &faults);
        Ok(Self {
            api,
            cloud,
            clouds,
            provider,
            second,
            checker,
            faults,
            trace,
            began,
            seed: plan.seed,
            slow_ms: setup.slow_ms,
            routes: setup.has(Trait::Routes),
            setup: setup.clone(),
            calm: false,
            lied: BTreeSet::new(),
            strays: BTreeSet::new(),
            processes: Vec::new(),
            ended: Arc::default(),
            started: 0,
            machines: 0,
            ports: 80,
            suspended: None,
            later: BTreeMap::new(),
            number: 0,
        })
    }

    async fn play(&mut self, plan: &Plan) -> anyhow::Result<()> {
        self.provider.start().await?;
        if let Some(second) = &self.second {
            second.start().await?;
        }
        for place in 0..usize::from(plan.setup.ccms) + usize::from(plan.setup.has(Trait::Second)) {
            let process = self.start_ccm(place)?;
            self.processes.push(process);
        }
        for (at, step) in &plan.steps {
            let at = self.began + Duration::from_millis(*at);
            self.until(at).await?;
            self.trace.note(format_args!("* {step}"));
            self.step(step);
            self.always();
        }
        self.until(Instant::now() + Duration::from_mins(1)).await?;
        self.calm().await
    }

    fn always(&self) {
        let (nodes, services) = (self.api.list("nodes"), self.api.list("services"));
        let hindered = Hindered {
            until: self.faults.hindered(),
            condition_refused: self.faults.condition_refused(),
        };
        self.checker.always(&nodes, &services, hindered);
    }

    fn report(self) -> Report {
        Report {
            violations: self.trace.violations(),
            digest: self.trace.digest(),
            lines: self.trace.lines(),
            hit: self.faults.hit(),
            counts: self.faults.counts(),
        }
    }

    /// Starts the ccm of this place. The last place is the second ccm's, if it runs.
    fn start_ccm(&mut self, place: usize) -> anyhow::Result<Process> {
        self.started += 1;
        let second = place >= usize::from(self.setup.ccms);
        let name = if second { SECOND } else { "ccm" };
        let identity: Arc<str> = format!("{name}-{place}-{}", self.started).into();
        let config = setup::config(&self.setup, second)?;
        let (shutdown, began) = (CancellationToken::new(), self.began);
        let own = self.second.as_ref().filter(|_| second);
        let (provider, dialling) = (own.unwrap_or(&self.provider).clone(), Arc::clone(&identity));
        let ahead = self.setup.clocks.get(place).copied().unwrap_or_default();
        let ahead = jiff::SignedDuration::from_secs(ahead);
        let world = World {
            kube: self.api.client(&identity),
            dial: Arc::new(move || provider.dial(&dialling)),
            wall: Arc::new(move || wall(began) + ahead),
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
        let (checker, faults) = (self.checker.clone(), self.faults.clone());
        let lease = Duration::from_secs(self.setup.lease_seconds);
        let task = tokio::spawn(async move {
            let _ends = ends;
            match run_in(world, config).await {
                Err(RunError::Broken(what)) => {
                    trace.violation(format!("{name}: {what} ended by itself"));
                }
                ended => {
                    trace.note(format_args!("{name} ends: {ended:?}"));
                    if let Err(RunError::LeaseLost(_)) = ended {
                        let excused = faults.had_lease_trouble(lease);
                        checker.lost_lease(&name, excused);
                    }
                }
            }
        });
        Ok(Process {
            identity,
            shutdown,
            task,
        })
    }

    /// Lets time pass until `at`, and plays what is due. Plans to start ended processes again.
    async fn until(&mut self, at: Instant) -> anyhow::Result<()> {
        loop {
            if let Some(wait) = self.suspended.take() {
                // A process that is suspended between its check of the fence and the send cannot
                // notice the suspension. So all ready tasks run first.
                for _ in 0..SETTLES {
                    tokio::task::yield_now().await;
                }
                tokio::time::advance(wait).await;
            }
            let next = self.later.keys().next().map_or(at, |(due, _)| *due).min(at);
            let look = if self.calm { calm::LOOK } else { LOOK };
            let look = next.min(Instant::now() + look);
            tokio::select! {
                biased;
                () = self.provider.died() => {
                    self.after(Duration::from_secs(3), After::StartProvider);
                    continue;
                }
                identity = self.faults.death() => {
                    self.kill_sender(&identity);
                    continue;
                }
                step = self.faults.happens() => {
                    self.trace.note(format_args!("* {step}"));
                    self.step(&step);
                }
                () = self.ended.notified() => self.start_again(),
                () = self.provider.changed() => {}
                () = sleep_until(look) => {}
            }
            self.always();
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

    /// Plans to start each ccm again that has ended, as a kubelet does.
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
}

impl Drop for Run {
    fn drop(&mut self) {
        for process in &self.processes {
            process.task.abort();
        }
        self.provider.kill();
        if let Some(second) = &self.second {
            second.kill();
        }
    }
}
