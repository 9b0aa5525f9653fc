//! A run before it is played: the world, the faults, and a script of steps by users, kubelets, the
//! console and operators. [`Plan::of`] makes all of it from a seed.

mod generate;
mod single;
mod wrong;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use provider_mock::{Fault, FaultKind};
use provider_sdk::FailureCode;
use serde::{Deserialize, Serialize};

use crate::faults::ApiFault;

pub use single::{Life, counts_in_pairs};
pub use wrong::everything;

/// A class that the ccm serves while its provider offers it.
pub const CLASS: &str = "mock.grpc-ccm.io/lb";
/// The class that the second ccm serves, if it runs.
pub const SECOND_CLASS: &str = "mock.grpc-ccm.io/second";
/// A class that no Service has.
pub const UNUSED_CLASS: &str = "mock.grpc-ccm.io/unused";
/// A class without a ccm.
pub const FOREIGN_CLASS: &str = "example.com/other";

/// The class that a user gives a Service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Class {
    /// None.
    Default,
    /// [`CLASS`].
    Ours,
    /// [`SECOND_CLASS`].
    Second,
    /// [`FOREIGN_CLASS`].
    Foreign,
}

impl Class {
    /// `spec.loadBalancerClass`.
    #[must_use]
    pub fn text(self) -> Option<&'static str> {
        match self {
            Self::Default => None,
            Self::Ours => Some(CLASS),
            Self::Second => Some(SECOND_CLASS),
            Self::Foreign => Some(FOREIGN_CLASS),
        }
    }
}

/// An object that a person creates in the cloud.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ByHand {
    /// Another cluster's.
    Foreign,
    /// An unmarked object for another purpose.
    Unmarked,
    /// Unmarked: a route to a Node's Pods over an address that no Node has.
    Stray,
    /// Unmarked: a route to a Node's Pods that leads to another Node.
    WrongNode,
}

/// Something that happens at a time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Step {
    /// A machine is created, and its kubelet registers. If the instance exists, only the kubelet
    /// registers.
    Join(u8),
    /// `kubectl delete node`. If the machine runs, its kubelet registers again 30 s later.
    DeleteNode(u8),
    /// The kubelet reports Ready, or not. If not, and its machine runs, it reports Ready again 70 s
    /// later.
    Ready(u8, bool),
    /// The instance is stopped in the console; its Node is not ready 40 s later.
    Stop(u8),
    /// The instance is started again in the console.
    Start(u8),
    /// The instance is deleted; its Node is not ready 40 s later.
    Terminate(u8),
    /// The instance is deleted, and another one boots under its name after this many seconds. Its
    /// kubelet registers when the old Node is gone.
    Replace(u8, u64),
    /// The instance gets another address.
    Readdress(u8),
    /// A user labels a Node.
    LabelNode(u8),
    /// A user overwrites the labels with the instance type.
    OverwriteLabel(u8),
    /// A user taints a Node.
    TaintNode(u8),
    /// A user takes a Node out of load balancers, or puts it back.
    Exclude(u8, bool),
    /// The cloud cannot attach the Node to load balancers, or can again.
    TargetTrouble(u8, bool),
    /// The provider says once that this Node's instance does not exist.
    AbsentOnce(u8),
    /// For this many seconds, LookupInstances says that no instance exists.
    AllAbsent(u64),
    /// A user makes a Service of type LoadBalancer.
    Create(u8, Class),
    /// A user changes the Service's port.
    EditPort(u8),
    /// A user sets an annotation on the Service.
    Annotate(u8),
    /// A user changes the Service's type to ClusterIP.
    ToClusterIp(u8),
    /// A user changes the type back, perhaps with another class.
    ToLoadBalancer(u8, Class),
    /// A user deletes the Service.
    Delete(u8),
    /// A user removes the annotation with the load balancer's record from the Service.
    StripRecord(u8),
    /// The load balancer is deleted in the console.
    RemoveBalancer(u8),
    /// Somebody creates a load balancer in the console.
    PlantBalancer(ByHand),
    /// A Node's route is deleted in the console.
    RemoveRoute(u8),
    /// Somebody creates a route in the console. If it leads to a Node's Pods, it replaces that
    /// Node's own route.
    PlantRoute(u8, ByHand),
    /// `kill -9` of a ccm; another takes its place after 5 s.
    KillCcm(u8),
    /// SIGTERM to a ccm; another takes its place 5 s after it has ended.
    RollCcm(u8),
    /// SIGTERM to all ccms at once.
    RollAll,
    /// A ccm reaches no API server for this many seconds.
    CutOff(u8, u64),
    /// All processes are suspended for this many seconds, as on a suspended machine. Timers that
    /// end meanwhile fire at once afterwards.
    Suspend(u64),
    /// Each request to the API server takes this many milliseconds longer, for this many seconds.
    SlowApi(u64, u64),
    /// The API server forgets its history.
    Compact,
    /// Somebody edits the Lease.
    EditLease,
    /// `kill -9` of the provider, which is started again after this many seconds.
    KillProvider(u64),
    /// The provider is replaced by another one gracefully.
    RollProvider,
    /// The provider is replaced by one that serves [`CLASS`] too.
    ServeClass,
    /// All connections to the provider break.
    Disconnect,
    /// The provider forgets that it was initialised.
    Forget,
    /// The cloud answers everything with this failure, for this many seconds.
    Outage(#[serde(with = "code")] FailureCode, u64),
    /// The cloud creates no routes, for this many seconds.
    NoRoutes(u64),
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

mod code {
    use provider_mock::fixture::FailureSpec;
    use provider_sdk::FailureCode;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[allow(clippy::trivially_copy_pass_by_ref)] // serde asks for a reference
    pub(super) fn serialize<S: Serializer>(code: &FailureCode, to: S) -> Result<S::Ok, S::Error> {
        FailureSpec::new(*code).serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<FailureCode, D::Error> {
        FailureSpec::deserialize(from).map(|spec| spec.code)
    }
}

/// The fault of a request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Wrong {
    /// The fault of a request to the API server.
    Api(ApiFault),
    /// The fault of a call of the provider.
    Rpc(Box<Fault>),
    /// The sender dies: before the effect of its request, or after it.
    Dies {
        /// Whether the effect comes first.
        after: bool,
    },
    /// These steps happen while the request is on its way.
    Meanwhile(Vec<Step>),
}

impl Wrong {
    /// A faulty call of this RPC. `code`: the failure in its answer.
    #[must_use]
    pub fn failure(rpc: &str, kind: FaultKind, code: Option<FailureCode>) -> Self {
        let mut fault = match code {
            Some(code) => Fault::failure(rpc, code),
            None => Fault::new(rpc, kind),
        };
        fault.kind = kind;
        Self::Rpc(Box::new(fault.times(1)))
    }

    /// Its name in the coverage.
    #[must_use]
    pub fn kind(&self) -> String {
        match self {
            Self::Api(fault) => fault.kind(),
            Self::Rpc(fault) => match &fault.failure {
                Some(failure) => format!("{} {}", fault.kind, failure.code),
                None => fault.kind.to_string(),
            },
            Self::Dies { after: false } => "the sender dies before".to_owned(),
            Self::Dies { after: true } => "the sender dies after".to_owned(),
            Self::Meanwhile(_) => "something happens meanwhile".to_owned(),
        }
    }
}

/// A faulty request: the `number`th (from 1) at this site after `from_ms`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Strike {
    /// An RPC, the verb and kind of a request to the API server, or `EVENT` and the kind of a watch
    /// for its events.
    pub site: String,
    /// The number counts from this time on.
    pub from_ms: u64,
    /// From 1.
    pub number: u32,
    /// The fault.
    pub wrong: Wrong,
}

/// The initial setup of a run. A plan in a file may omit fields that were added later.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Setup {
    /// The number of ccms.
    pub ccms: u8,
    /// How many seconds each ccm's wall clock is ahead.
    pub clocks: Vec<i64>,
    /// The lease duration in seconds. The renew deadline is two thirds of it, the retry period a
    /// sixth.
    pub lease_seconds: u64,
    /// The traits of the world. In a file, each trait is a separate field.
    #[serde(flatten)]
    pub traits: Traits,
    /// How many calls of one service the provider takes at once.
    pub max_in_flight: u32,
    /// How long each operation of the cloud takes, in milliseconds.
    pub slow_ms: u64,
    /// How long the creation of load balancers takes, in seconds.
    pub made_in_s: u64,
    /// How long the deletion of load balancers takes, in seconds.
    pub gone_in_s: u64,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            ccms: 1,
            clocks: Vec::new(),
            lease_seconds: 60,
            traits: Traits::default(),
            max_in_flight: 8,
            slow_ms: 0,
            made_in_s: 0,
            gone_in_s: 0,
        }
    }
}

impl Setup {
    /// Whether the world has this trait.
    pub fn has(&self, what: Trait) -> bool {
        self.traits.0.contains(&what)
    }
}

/// A trait that a world has, or does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Trait {
    /// Some controllers run under the Lease of the leader migration.
    Migration,
    /// Another ccm, with a provider of the same name, serves [`SECOND_CLASS`].
    Second,
    /// The ccm manages routes.
    Routes,
    /// Routes follow the addresses of their Nodes.
    TracksAddresses,
    /// The provider lists its instances.
    ListsInstances,
    /// The provider lists its load balancers.
    ListsBalancers,
    /// The provider reports whether an instance runs or is stopped.
    PowerState,
    /// The provider's Get says `in_sync`.
    InSync,
    /// The provider's Get returns no address.
    SilentGet,
    /// The provider sends hints of changes.
    Hints,
    /// The provider serves Services without a class.
    DefaultClass,
    /// The provider serves [`CLASS`] from the beginning.
    Class,
    /// A cancelled EnsureLoadBalancer goes on in the cloud.
    GoesOn,
    /// The provider takes one Node in each call about Nodes.
    NodeByNode,
}

impl Trait {
    const ALL: [Self; 14] = [
        Self::Migration,
        Self::Second,
        Self::Routes,
        Self::TracksAddresses,
        Self::ListsInstances,
        Self::ListsBalancers,
        Self::PowerState,
        Self::InSync,
        Self::SilentGet,
        Self::Hints,
        Self::DefaultClass,
        Self::Class,
        Self::GoesOn,
        Self::NodeByNode,
    ];
}

/// The traits of a world. A file has `true` or `false` for a trait; an absent one keeps its
/// default.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(from = "BTreeMap<Trait, bool>", into = "BTreeMap<Trait, bool>")]
pub struct Traits(BTreeSet<Trait>);

impl Default for Traits {
    fn default() -> Self {
        Self(BTreeSet::from([
            Trait::ListsInstances,
            Trait::ListsBalancers,
            Trait::PowerState,
            Trait::InSync,
            Trait::Hints,
            Trait::DefaultClass,
            Trait::Class,
        ]))
    }
}

impl Traits {
    /// The default traits with these changes.
    pub fn with(changes: impl IntoIterator<Item = (Trait, bool)>) -> Self {
        let mut traits = Self::default();
        for (what, has) in changes {
            traits.set(what, has);
        }
        traits
    }

    /// Changes one trait.
    pub fn set(&mut self, what: Trait, has: bool) {
        if has {
            self.0.insert(what);
        } else {
            self.0.remove(&what);
        }
    }
}

impl From<BTreeMap<Trait, bool>> for Traits {
    fn from(said: BTreeMap<Trait, bool>) -> Self {
        Self::with(said)
    }
}

impl From<Traits> for BTreeMap<Trait, bool> {
    fn from(traits: Traits) -> Self {
        let all = Trait::ALL.into_iter();
        all.map(|what| (what, traits.0.contains(&what))).collect()
    }
}

/// A run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// The seed for everything outside of the plan.
    pub seed: u64,
    /// The world.
    pub setup: Setup,
    /// The steps, by milliseconds.
    pub steps: Vec<(u64, Step)>,
    /// The faults.
    pub strikes: Vec<Strike>,
}

/// The call sites of the API server whose requests can have faults. `EVENT` stands for the events
/// of a watch.
pub const SITES: [&str; 15] = [
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
    "GET leases",
];

/// The RPCs whose calls can have faults.
pub const RPCS: [&str; 13] = [
    "LookupInstances",
    "ListInstances",
    "GetLoadBalancer",
    "EnsureLoadBalancer",
    "UpdateLoadBalancer",
    "DeleteLoadBalancer",
    "ListLoadBalancers",
    "ListRoutes",
    "CreateRoutes",
    "DeleteRoutes",
    "Initialize",
    "GetProviderInfo",
    "WatchChanges",
];

impl Plan {
    /// The plan of a seed.
    #[must_use]
    pub fn of(seed: u64) -> Self {
        generate::plan(seed)
    }

    /// The setup, the steps and the faults, each on its own line.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let steps = self
            .steps
            .iter()
            .map(|(at, step)| format!("{:>9.3} {step}", *at as f64 / 1000.0));
        let strikes = self.strikes.iter().map(|strike| {
            let from = strike.from_ms as f64 / 1000.0;
            let what = &strike.wrong;
            format!(
                "{from:>9.3} {} number {} from then on: {what:?}",
                strike.site, strike.number
            )
        });
        std::iter::once(format!("seed {}: {:?}", self.seed, self.setup))
            .chain(steps)
            .chain(strikes)
            .collect()
    }

    /// How many parts the plan has: its steps and faults.
    #[must_use]
    pub fn len(&self) -> usize {
        self.strikes.len() + self.steps.len()
    }

    /// Whether the plan has no part.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The plan without its `index`th part. Faults come before steps.
    #[must_use]
    pub fn without(&self, index: usize) -> Self {
        let mut less = self.clone();
        if index < less.strikes.len() {
            less.strikes.remove(index);
        } else {
            less.steps.remove(index - self.strikes.len());
        }
        less
    }
}
