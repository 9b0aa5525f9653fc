//! A run before it runs: a script of what users, kubelets, the console and operators do, and what goes wrong. All of it follows from a seed.

use std::fmt;
use std::time::Duration;

use provider_mock::FaultKind;
use provider_sdk::FailureCode;
use rand::seq::IndexedRandom as _;
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

use crate::faults::ApiFault;

/// The class that the mock serves.
pub const CLASS: &str = "mock.grpc-ccm.io/lb";

/// Something that happens at a time.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// A machine is made, and its kubelet registers.
    Join(u8),
    /// `kubectl delete node`.
    DeleteNode(u8),
    /// The kubelet is ready, or is not.
    Ready(u8, bool),
    /// The instance is stopped in the console; its Node is not ready 40 s later.
    Stop(u8),
    /// It is started again.
    Start(u8),
    /// The instance is deleted; its Node is not ready 40 s later.
    Terminate(u8),
    /// A user labels a Node.
    LabelNode(u8),
    /// A user makes a Service of type LoadBalancer; `true`: with a class of somebody else.
    Create(u8, bool),
    /// A user changes its port.
    EditPort(u8),
    /// A user changes its type.
    ToClusterIp(u8),
    /// And back.
    ToLoadBalancer(u8),
    /// A user deletes it.
    Delete(u8),
    /// A user removes our annotations from it.
    StripRecord(u8),
    /// The load balancer is deleted in the console.
    RemoveBalancer(u8),
    /// `kill -9` of a ccm; another takes its place after 5 s.
    KillCcm(u8),
    /// SIGTERM to a ccm; another takes its place when it has ended.
    RollCcm(u8),
    /// A ccm reaches no API server for so many seconds.
    CutOff(u8, u64),
    /// The API server forgets its history.
    Compact,
    /// `kill -9` of the provider, which is started again after so many seconds.
    KillProvider(u64),
    /// The provider is replaced by another one gracefully.
    RollProvider,
    /// All connections to the provider break.
    Disconnect,
    /// The provider forgets that it was initialised.
    Forget,
    /// One call of this RPC goes wrong.
    Rpc(&'static str, FaultKind, Option<FailureCode>),
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

/// A run.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// What decides all that the plan leaves open.
    pub seed: u64,
    /// How many ccms there are.
    pub ccms: u8,
    /// The lease duration in seconds. The renew deadline is two thirds of it, the retry period a sixth: renewals are most of what happens in an hour.
    pub lease_seconds: u64,
    /// What happens, by milliseconds.
    pub steps: Vec<(u64, Step)>,
    /// What goes wrong with requests to the API server: site, number, fault.
    pub faults: Vec<(&'static str, u32, ApiFault)>,
}

/// The call sites of the API server whose requests can go wrong.
pub const SITES: [&str; 14] = [
    "PATCH services",
    "PATCH services/status",
    "PATCH nodes",
    "PATCH nodes/status",
    "DELETE nodes",
    "GET nodes",
    "GET services",
    "LIST nodes",
    "LIST services",
    "WATCH nodes",
    "WATCH services",
    "EVENT nodes",
    "EVENT services",
    "PUT leases",
];

const RPCS: [&str; 9] = [
    "LookupInstances",
    "ListInstances",
    "GetLoadBalancer",
    "EnsureLoadBalancer",
    "UpdateLoadBalancer",
    "DeleteLoadBalancer",
    "ListLoadBalancers",
    "Initialize",
    "GetProviderInfo",
];

const CODES: [FailureCode; 7] = [
    FailureCode::Unavailable,
    FailureCode::Internal,
    FailureCode::Throttled,
    FailureCode::Busy,
    FailureCode::Credentials,
    FailureCode::Precondition,
    FailureCode::NotInitialized,
];

impl Plan {
    /// The plan of a seed.
    #[must_use]
    pub fn of(seed: u64) -> Self {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let (nodes, services) = (random.random_range(2..=8), random.random_range(1..=5));
        let ccms = random.random_range(1..=2);
        let mut steps = Vec::new();
        for node in 0..nodes {
            steps.push((random.random_range(0..60_000), Step::Join(node)));
        }
        for service in 0..services {
            steps.push((
                random.random_range(0..90_000),
                Step::Create(service, random.random_ratio(1, 8)),
            ));
        }
        let minutes = random.random_range(4..=12);
        for _ in 0..random.random_range(3..=20) {
            let (node, service, ccm) = (
                random.random_range(0..nodes),
                random.random_range(0..services),
                random.random_range(0..ccms),
            );
            let step = match random.random_range(0..26) {
                0 | 1 => Step::Ready(node, random.random()),
                2 => Step::Stop(node),
                3 => Step::Start(node),
                4 | 5 => Step::Terminate(node),
                6 => Step::Join(random.random_range(0..nodes + 2)),
                7 => Step::DeleteNode(node),
                8 => Step::LabelNode(node),
                9..=11 => Step::EditPort(service),
                12 => Step::ToClusterIp(service),
                13 => Step::ToLoadBalancer(service),
                14 | 15 => Step::Delete(service),
                16 | 17 => Step::Create(random.random_range(0..services + 1), false),
                18 => Step::StripRecord(service),
                19 => Step::RemoveBalancer(service),
                20 => Step::KillCcm(ccm),
                21 => Step::RollCcm(ccm),
                22 => Step::CutOff(ccm, random.random_range(1..60)),
                23 => Step::Compact,
                24 => Step::KillProvider(random.random_range(1..90)),
                _ => *[Step::RollProvider, Step::Disconnect, Step::Forget]
                    .choose(&mut random)
                    .map_or(Box::new(Step::Disconnect), |step| Box::new(step.clone())),
            };
            steps.push((random.random_range(0..minutes * 60_000), step));
        }
        let quiet = random.random_ratio(1, 8);
        for _ in 0..if quiet { 0 } else { random.random_range(0..6) } {
            let rpc = RPCS.choose(&mut random).copied().unwrap_or(RPCS[0]);
            let code = CODES.choose(&mut random).copied();
            let (kind, code) = match random.random_range(0..8) {
                0..=2 => (FaultKind::Failure, code),
                3 => (FaultKind::FailureAfter, code),
                4 => (FaultKind::HangAfter, None),
                5 => (FaultKind::Hang, None),
                6 => (FaultKind::CrashAfter, None),
                _ => (FaultKind::DisconnectAfter, None),
            };
            // Where a listing or a handshake has its effect before its answer, nothing is different.
            let fits = kind.row().rpcs.contains(&rpc)
                || kind.row().rpcs.is_empty()
                || kind.row().rpcs.len() == provider_mock::RPCS.len();
            if fits {
                steps.push((
                    random.random_range(0..minutes * 60_000),
                    Step::Rpc(rpc, kind, code),
                ));
            }
        }
        steps.sort_by_key(|(at, _)| *at);
        let mut faults = Vec::new();
        for _ in 0..if quiet { 0 } else { random.random_range(0..8) } {
            let site = SITES.choose(&mut random).copied().unwrap_or(SITES[0]);
            let fault = match random.random_range(0..8) {
                0 => ApiFault::Lost,
                1 => ApiFault::Broken,
                2 => ApiFault::Late(Duration::from_millis(random.random_range(100..15_000))),
                3 => ApiFault::Code(409),
                4 => ApiFault::Code(422),
                5 => ApiFault::Code(429),
                6 => ApiFault::Code(500),
                _ => ApiFault::Code(503),
            };
            faults.push((site, random.random_range(1..10), fault));
        }
        let lease_seconds = *[15, 60, 60, 120].choose(&mut random).unwrap_or(&15);
        Self {
            seed,
            ccms,
            lease_seconds,
            steps,
            faults,
        }
    }

    /// What goes wrong or happens, a line each.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let steps = self
            .steps
            .iter()
            .map(|(at, step)| format!("{:>9.3} {step}", *at as f64 / 1000.0));
        let faults = self
            .faults
            .iter()
            .map(|(site, number, fault)| format!("fault: {site} number {number}: {fault:?}"));
        std::iter::once(format!("seed {}, {} ccms", self.seed, self.ccms))
            .chain(steps)
            .chain(faults)
            .collect()
    }

    /// How many things could be left out.
    #[must_use]
    pub fn len(&self) -> usize {
        self.faults.len() + self.steps.len()
    }

    /// Whether nothing happens.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The same without its `index`th part: faults come first.
    #[must_use]
    pub fn without(&self, index: usize) -> Self {
        let mut less = self.clone();
        if index < less.faults.len() {
            less.faults.remove(index);
        } else {
            less.steps.remove(index - self.faults.len());
        }
        less
    }
}
