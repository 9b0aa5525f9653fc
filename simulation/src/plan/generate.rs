//! Makes a plan from a seed. One object gets several steps in a row, and faults come near them. The
//! generator knows the kinds of steps and faults, but no planted bug.

mod coincidence;

use std::time::Duration;

use provider_mock::{FaultKind, MUTATING_RPCS};
use provider_sdk::FailureCode;
use rand::seq::IndexedRandom as _;
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

use super::wrong::{CODES, RPC_KINDS, STATUSES, could_hit};
use super::{ByHand, Class, Plan, RPCS, Setup, Step, Strike, Trait, Traits, Wrong};
use crate::faults::ApiFault;

/// The sites of faults that concern a Node.
const NODE_SITES: [&str; 11] = [
    "PATCH nodes",
    "PATCH nodes/status",
    "DELETE nodes",
    "GET nodes",
    "LIST nodes",
    "WATCH nodes",
    "EVENT nodes",
    "LookupInstances",
    "ListInstances",
    "UpdateLoadBalancer",
    "Initialize",
];

/// The sites of faults that concern a Node's route.
const ROUTE_SITES: [&str; 3] = ["ListRoutes", "CreateRoutes", "DeleteRoutes"];

/// The sites of faults that concern a Service.
const SERVICE_SITES: [&str; 12] = [
    "PATCH services",
    "PATCH services/status",
    "GET services",
    "LIST services",
    "WATCH services",
    "EVENT services",
    "GetLoadBalancer",
    "EnsureLoadBalancer",
    "UpdateLoadBalancer",
    "DeleteLoadBalancer",
    "ListLoadBalancers",
    "Initialize",
];

/// The sites of faults that concern the election and the provider's process.
const PROCESS_SITES: [&str; 5] = [
    "PUT leases",
    "GET leases",
    "Initialize",
    "GetProviderInfo",
    "WatchChanges",
];

/// The subject of several steps in a row.
#[derive(Clone, Copy)]
enum About {
    Node(u8),
    Service(u8),
    Processes,
}

impl About {
    fn sites(self) -> &'static [&'static str] {
        match self {
            Self::Node(_) => &NODE_SITES,
            Self::Service(_) => &SERVICE_SITES,
            Self::Processes => &PROCESS_SITES,
        }
    }
}

/// Of the seeds with faults, one in this many has a coincidence of [`Generator::rare`].
const RARE: u32 = 24;
/// In one of this many seeds with faults a zone fails.
const ZONE: u32 = 32;

struct Generator {
    random: ChaCha8Rng,
    setup: Setup,
    nodes: u8,
    services: u8,
    quiet: bool,
    steps: Vec<(u64, Step)>,
    strikes: Vec<Strike>,
}

pub(super) fn plan(seed: u64) -> Plan {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let setup = setup(&mut random);
    let nodes = pick(&mut random, &[2, 2, 2, 3, 3, 4, 5, 6, 8, 12]);
    let services = pick(&mut random, &[1, 1, 2, 2, 3, 4, 6, 8]);
    let quiet = random.random_ratio(1, 8);
    let mut generator = Generator {
        random,
        setup,
        nodes,
        services,
        quiet,
        steps: Vec::new(),
        strikes: Vec::new(),
    };
    generator.begin();
    let minutes = generator.pick(&[3, 4, 5, 5, 8, 12]);
    for _ in 0..generator.random.random_range(2..=8) {
        let at = generator.random.random_range(20_000..minutes * 60_000);
        generator.episode(at);
    }
    // These draw from streams of their own, so that the draws above stay the same.
    generator.random = ChaCha8Rng::seed_from_u64(seed);
    generator.random.set_stream(1);
    if !quiet && generator.chance(1, 3) {
        let at = generator.random.random_range(60_000..minutes * 60_000);
        generator.coincidence(at);
    }
    generator.random = ChaCha8Rng::seed_from_u64(seed);
    generator.random.set_stream(2);
    if !quiet && generator.chance(1, RARE) {
        let at = generator.random.random_range(60_000..minutes * 60_000);
        generator.rare(at);
    }
    generator.random = ChaCha8Rng::seed_from_u64(seed);
    generator.random.set_stream(3);
    if !quiet && generator.chance(1, ZONE) {
        let at = generator
            .random
            .random_range(120_000..(minutes + 2) * 60_000);
        generator.zone(at);
    }
    let Generator {
        setup,
        mut steps,
        strikes,
        ..
    } = generator;
    steps.sort_by_key(|(at, _)| *at);
    Plan {
        seed,
        setup,
        steps,
        strikes,
    }
}

fn pick<T: Copy>(random: &mut ChaCha8Rng, from: &[T]) -> T {
    let at = random.random_range(0..from.len());
    from[at]
}

fn setup(random: &mut ChaCha8Rng) -> Setup {
    let ccms = pick(random, &[1, 1, 2, 2, 2, 3]);
    let slow_ms = pick(random, &[0, 0, 0, 0, 50, 500, 3_000, 8_000, 20_000, 40_000]);
    let clocks = (0..ccms)
        .map(|_| pick(random, &[0, 0, 0, -20, 20, 3_600]))
        .collect();
    let lease_seconds = pick(random, &[15, 60, 60, 60, 120, 120, 120, 120]);
    let mut traits = vec![
        (Trait::Migration, random.random_ratio(1, 4)),
        (Trait::Second, random.random_ratio(1, 5)),
        (Trait::Routes, random.random_ratio(2, 5)),
        (Trait::TracksAddresses, random.random()),
        (Trait::ListsInstances, random.random()),
        (Trait::ListsBalancers, random.random_ratio(2, 3)),
        (Trait::PowerState, random.random_ratio(3, 4)),
        (Trait::InSync, random.random_ratio(3, 4)),
        (Trait::Hints, random.random_ratio(2, 3)),
        (Trait::DefaultClass, random.random_ratio(3, 4)),
        (Trait::Class, random.random_ratio(3, 4)),
    ];
    let max_in_flight = pick(random, &[1, 2, 8, 8]);
    traits.push((Trait::GoesOn, slow_ms >= 3_000 && random.random()));
    traits.push((Trait::SilentGet, random.random_ratio(1, 8)));
    Setup {
        ccms,
        clocks,
        lease_seconds,
        traits: Traits::with(traits),
        max_in_flight,
        slow_ms,
        made_in_s: pick(random, &[0, 3, 30, 90]),
        gone_in_s: pick(random, &[0, 3, 30, 90]),
    }
}

impl Generator {
    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        pick(&mut self.random, from)
    }

    fn chance(&mut self, of: u32, in_all: u32) -> bool {
        self.random.random_ratio(of, in_all)
    }

    fn class(&mut self) -> Class {
        let second = if self.setup.has(Trait::Second) {
            Class::Second
        } else {
            Class::Foreign
        };
        self.pick(&[
            Class::Default,
            Class::Default,
            Class::Default,
            Class::Ours,
            Class::Ours,
            second,
        ])
    }

    /// Machines join, and a user creates Services.
    fn begin(&mut self) {
        for node in 0..self.nodes {
            let at = self.random.random_range(0..60_000);
            self.steps.push((at, Step::Join(node)));
            if self.chance(1, 4) {
                self.strike_near(at, About::Node(node));
            }
        }
        if !self.setup.has(Trait::Class) && self.random.random() {
            let at = self.random.random_range(60_000..300_000);
            self.steps.push((at, Step::ServeClass));
        }
        for service in 0..self.services {
            let at = self.random.random_range(0..90_000);
            let class = self.class();
            self.steps.push((at, Step::Create(service, class)));
            if self.chance(1, 4) {
                self.strike_near(at, About::Service(service));
            }
        }
    }

    /// Several steps in a row, mostly for one object, with faults near them.
    fn episode(&mut self, mut at: u64) {
        let about = match self.random.random_range(0..20) {
            0..=7 => About::Node(self.random.random_range(0..self.nodes)),
            8..=15 => About::Service(self.random.random_range(0..self.services)),
            _ => About::Processes,
        };
        let mut script = self.script(about);
        if let About::Processes = about {
            script.extend(self.script(about));
        }
        let pace = self.pick(&[300, 3_000, 15_000, 60_000]);
        let strikes = if self.quiet {
            0
        } else {
            self.pick(&[0, 0, 1, 1, 2, 3])
        };
        let struck = self.random.random_range(0..script.len().max(1));
        let interrupted = self.chance(1, 2);
        for (place, step) in script.into_iter().enumerate() {
            self.steps.push((at, step));
            if place == struck {
                for _ in 0..strikes {
                    self.strike_near(at, about);
                }
                if interrupted {
                    let spread = self.pick(&[500, 5_000, 60_000]);
                    let when = at + self.random.random_range(0..spread);
                    let step = self.of_process();
                    self.steps.push((when, step));
                }
            }
            at += self.random.random_range(0..pace);
        }
    }

    fn script(&mut self, about: About) -> Vec<Step> {
        match about {
            About::Node(i) => self.of_node(i),
            About::Service(i) => self.of_service(i),
            About::Processes => vec![self.of_process()],
        }
    }

    fn of_node(&mut self, i: u8) -> Vec<Step> {
        let new = self.random.random_range(0..self.nodes + 2);
        let away = self.random.random_range(0..200);
        let mut script = match self.random.random_range(0..27) {
            0 => vec![Step::Ready(i, false)],
            1 => vec![
                Step::Ready(i, false),
                Step::Ready(i, true),
                Step::Ready(i, false),
                Step::Ready(i, true),
            ],
            2 => vec![Step::Stop(i)],
            3 => vec![Step::Stop(i), Step::Start(i)],
            4..=6 => vec![Step::Terminate(i)],
            7 => vec![Step::Terminate(i), Step::DeleteNode(i)],
            8 => vec![Step::Replace(i, away)],
            9 => vec![Step::DeleteNode(i), Step::Join(i)],
            10 | 11 => vec![Step::Join(new)],
            12 => vec![Step::Readdress(i)],
            13 => vec![Step::LabelNode(i), Step::TaintNode(i)],
            14 => vec![Step::OverwriteLabel(i)],
            15 => vec![Step::Exclude(i, true)],
            16 => vec![Step::Exclude(i, true), Step::Exclude(i, false)],
            17 => vec![Step::TargetTrouble(i, true), Step::Readdress(i)],
            18 => vec![Step::TaintNode(i), Step::Ready(i, false)],
            19 => vec![Step::Ready(i, false), Step::AbsentOnce(i)],
            20 => vec![Step::Stop(i), Step::AbsentOnce(i)],
            21 => vec![Step::Stop(i), Step::AllAbsent(60), Step::Start(i)],
            22 => vec![Step::Ready(i, false), Step::AllAbsent(60)],
            _ if self.setup.has(Trait::Routes) => self.of_route(i),
            _ => vec![Step::Terminate(i), Step::Join(new)],
        };
        // Often something else happens while a Node joins.
        if let Some(Step::Join(joined)) = script.last().cloned()
            && self.chance(1, 2)
        {
            script.push(match self.random.random_range(0..3) {
                0 => Step::TaintNode(joined),
                1 => Step::Terminate(joined),
                _ => Step::Readdress(joined),
            });
        }
        script
    }

    fn of_route(&mut self, i: u8) -> Vec<Step> {
        match self.random.random_range(0..6) {
            0 | 1 => vec![Step::NoRoutes(90), Step::Join(self.nodes + 1)],
            // Without hints, the route controller may see such a change only after an hour.
            _ if !self.setup.has(Trait::Hints) => vec![Step::NoRoutes(60), Step::Readdress(i)],
            2 => vec![Step::RemoveRoute(i)],
            3 => vec![Step::PlantRoute(i, ByHand::Stray)],
            4 => vec![Step::PlantRoute(i, ByHand::WrongNode)],
            _ => vec![
                Step::PlantRoute(i, ByHand::Foreign),
                Step::PlantRoute(i, ByHand::Unmarked),
            ],
        }
    }

    fn of_service(&mut self, i: u8) -> Vec<Step> {
        let (class, other) = (self.class(), self.class());
        // Without hints, only a list surely shows the ccm that a load balancer was removed.
        let shown = self.setup.has(Trait::Hints) || self.setup.has(Trait::ListsBalancers);
        match self.random.random_range(0..18) {
            0 | 1 => vec![Step::EditPort(i)],
            2 => vec![Step::EditPort(i), Step::EditPort(i)],
            3 => vec![Step::Annotate(i), Step::EditPort(i)],
            4 => vec![Step::ToClusterIp(i)],
            5 => vec![Step::ToClusterIp(i), Step::ToLoadBalancer(i, class)],
            6 => vec![
                Step::ToClusterIp(i),
                Step::ToLoadBalancer(i, class),
                Step::ToClusterIp(i),
                Step::ToLoadBalancer(i, other),
            ],
            7 | 8 => vec![Step::Delete(i)],
            9 | 10 => vec![Step::Delete(i), Step::Create(i, class)],
            11 => vec![
                Step::Create(self.services, class),
                Step::Delete(self.services),
            ],
            12 => vec![Step::StripRecord(i)],
            13 => vec![Step::StripRecord(i), Step::ToClusterIp(i)],
            14 => vec![Step::EditPort(i), Step::Delete(i)],
            15 if shown => vec![Step::RemoveBalancer(i)],
            16 if shown => vec![Step::RemoveBalancer(i), Step::EditPort(i)],
            _ => {
                let whose = self.pick(&[ByHand::Foreign, ByHand::Unmarked]);
                vec![Step::PlantBalancer(whose), Step::EditPort(i)]
            }
        }
    }

    fn of_process(&mut self) -> Step {
        let ccm = self.random.random_range(0..self.setup.ccms);
        let seconds = self.pick(&[1, 5, 20, 45, 90]);
        match self.random.random_range(0..18) {
            0 | 1 => Step::KillCcm(ccm),
            2 => Step::RollCcm(ccm),
            3 => Step::RollAll,
            4 => Step::CutOff(ccm, seconds),
            5 => Step::SlowApi(self.pick(&[300, 1_150]), seconds.max(20)),
            7 | 16 => Step::EditLease,
            8 => Step::KillProvider(seconds),
            17 => Step::Suspend(seconds),
            9 | 10 => Step::RollProvider,
            11 => Step::Disconnect,
            12 | 13 => Step::Forget,
            14 if !self.setup.has(Trait::Class) => Step::ServeClass,
            6 | 14 => Step::Compact,
            _ => Step::Outage(self.pick(&CODES), seconds),
        }
    }

    /// Plans a fault near `at`, in one of the next requests to a site.
    fn strike_near(&mut self, at: u64, about: About) {
        if self.quiet {
            return;
        }
        let site = self.site(about);
        let wrong = if self.chance(1, 5) {
            Wrong::Meanwhile(self.script(about))
        } else if RPCS.contains(&site) {
            self.wrong_call(site)
        } else {
            self.wrong_request(site)
        };
        let before = self.pick(&[0, 0, 500]);
        let after = self.pick(&[0, 0, 2_000, 40_000]);
        let number = self.pick(&[1, 1, 1, 2, 3]);
        // Two faults in a row may show what one does not.
        let twice = self.chance(1, 4);
        for number in number..=number + u32::from(twice) {
            self.strikes.push(Strike {
                site: site.to_owned(),
                from_ms: (at + after).saturating_sub(before),
                number,
                wrong: wrong.clone(),
            });
        }
    }

    /// The site of a fault. Calls about routes are few, and only some seeds have them.
    fn site(&mut self, about: About) -> &'static str {
        let routed =
            matches!(about, About::Node(_)) && self.setup.has(Trait::Routes) && self.chance(1, 3);
        let sites = if routed {
            &ROUTE_SITES[..]
        } else {
            about.sites()
        };
        sites
            .choose(&mut self.random)
            .copied()
            .unwrap_or("PATCH nodes")
    }

    fn wrong_request(&mut self, site: &str) -> Wrong {
        let late = Duration::from_millis(self.random.random_range(100..15_000));
        if site.starts_with("EVENT") {
            return Wrong::Api(self.pick(&[ApiFault::Broken, ApiFault::Late(late)]));
        }
        let code = self.pick(&STATUSES);
        let writes = site.starts_with('P') || site.starts_with('D');
        match self.random.random_range(0..8) {
            0 | 1 if !site.starts_with("WATCH") => Wrong::Api(ApiFault::Lost),
            0..=2 => Wrong::Api(ApiFault::Broken),
            3 => Wrong::Api(ApiFault::Late(late)),
            4 if writes => Wrong::Dies { after: false },
            5 if writes => Wrong::Dies { after: true },
            _ if code == 410 && !site.starts_with("WATCH") => Wrong::Api(ApiFault::Code(409)),
            _ => Wrong::Api(ApiFault::Code(code)),
        }
    }

    fn wrong_call(&mut self, rpc: &'static str) -> Wrong {
        let changes = MUTATING_RPCS.contains(&rpc);
        if changes && self.chance(1, 6) {
            return Wrong::Dies {
                after: self.random.random(),
            };
        }
        let kind = match self.random.random_range(0..6) {
            0 if changes => FaultKind::FailureAfter,
            0..=2 => FaultKind::Failure,
            _ => self.pick(&RPC_KINDS),
        };
        let code = self.pick(&CODES);
        let retry = self.pick(&[0, 3, 10, 25]);
        let delay = Duration::from_secs(self.pick(&[1, 8, 30, 100]));
        could_hit(rpc, kind, code).map_or_else(
            || Wrong::failure(rpc, FaultKind::Hang, None),
            |mut fault| {
                if let Some(failure) = &mut fault.failure
                    && code == FailureCode::Throttled
                    && retry > 0
                {
                    failure.retry_after = Some(Duration::from_secs(retry).into());
                }
                if kind == FaultKind::Delay {
                    fault.delay = Some(delay.into());
                }
                Wrong::Rpc(Box::new(fault))
            },
        )
    }
}
