//! Steps and a fault that rarely coincide by chance, such as a step while a request is on its way.

use std::time::Duration;

use provider_mock::{Fault, FaultKind};
use provider_sdk::FailureCode;
use rand::RngExt as _;

use super::{Class, Generator, Step, Strike, Trait, Wrong};
use crate::faults::ApiFault;

impl Generator {
    /// Plans one of five coincidences.
    pub(super) fn coincidence(&mut self, at: u64) {
        let node = self.random.random_range(0..self.nodes);
        let service = self.random.random_range(0..self.services);
        let ccm = self.random.random_range(0..self.setup.ccms);
        // A cancelled operation that goes on in the cloud matters if its process ends. So worlds
        // with `GoesOn` mostly get the last coincidence.
        let kind = match self.random.random_range(0..5) {
            0..=2 if self.setup.has(Trait::GoesOn) => 4,
            kind => kind,
        };
        let (steps, site, after, wrong) = match kind {
            // A process is cut off when its watch breaks, and the API server forgets the missed
            // changes.
            0 => {
                let label = (node + 1) % self.nodes;
                let steps = vec![
                    (0, Step::Terminate(node)),
                    (5_000, Step::CutOff(ccm, 20)),
                    (5_100, Step::LabelNode(label)),
                    (9_000, Step::DeleteNode(node)),
                    (10_000, Step::Compact),
                ];
                (steps, "EVENT nodes", 5_000, Wrong::Api(ApiFault::Broken))
            }
            // The machine is suspended while a request waits for its next try.
            1 => {
                let class = self.class();
                let (site, step) = if self.chance(1, 2) {
                    ("PATCH services", Step::Create(self.services + 1, class))
                } else {
                    ("PATCH nodes", Step::Join(self.nodes + 2))
                };
                let when = self.random.random_range(100..700);
                let seconds = self.pick(&[20, 45, 90]);
                let steps = vec![(0, step), (when, Step::Suspend(seconds))];
                (steps, site, 0, Wrong::Api(ApiFault::Code(429)))
            }
            // Another machine replaces a missing one while the ccm asks about it.
            2 => {
                let site = self.pick(&["GET nodes", "ListInstances", "LookupInstances"]);
                let steps = vec![(0, Step::Replace(node, 1))];
                let again = vec![Step::DeleteNode(node), Step::Join(node)];
                (steps, site, 41_000, Wrong::Meanwhile(again))
            }
            // The ccm does not learn whether a Node was deleted.
            3 => {
                let fault = self.pick(&[ApiFault::Broken, ApiFault::Lost, ApiFault::Code(503)]);
                let steps = vec![(0, Step::Terminate(node))];
                (steps, "DELETE nodes", 0, Wrong::Api(fault))
            }
            // Processes end while a call is in flight, and its connection may break too.
            _ => {
                let (site, step) = if self.chance(2, 3) {
                    ("EnsureLoadBalancer", Step::EditPort(service))
                } else {
                    ("DeleteLoadBalancer", Step::Delete(service))
                };
                let ends = if self.chance(1, 2) {
                    Step::RollAll
                } else {
                    Step::RollCcm(ccm)
                };
                let mut steps = vec![(0, step)];
                if self.chance(1, 2) {
                    let breaks = self.random.random_range(1_000..15_000);
                    steps.push((breaks, Step::Disconnect));
                }
                (steps, site, 0, Wrong::Meanwhile(vec![ends]))
            }
        };
        self.coincide(at, steps, Some((site, after, wrong)), 1);
    }

    /// Plans one of four coincidences that hardly any plan has by chance. They need two processes,
    /// and most of them a cloud that is slow or quick, so they change the setup.
    pub(super) fn rare(&mut self, at: u64) {
        if self.setup.ccms < 2 {
            self.setup.ccms = 2;
            self.setup.clocks.push(0);
        }
        self.setup.traits.set(Trait::DefaultClass, true);
        let ccm = self.random.random_range(0..self.setup.ccms);
        // No other part of a plan has a Service with this number.
        let new = self.services + 2;
        let (steps, strike) = match self.random.random_range(0..4) {
            // A renewal of the Lease meets a conflict, and the API server answers slowly.
            0 => {
                self.setup.lease_seconds = 15;
                let slow = self.random.random_range(800..1_600);
                let when = self.random.random_range(0..2_000);
                let steps = vec![(0, Step::EditLease), (when, Step::SlowApi(slow, 20))];
                (steps, None)
            }
            // The provider forgets its Initialize during the pause that THROTTLED asked for.
            1 => {
                self.quicken();
                self.setup.traits.set(Trait::Routes, true);
                let when = self.random.random_range(4_000..12_000);
                let steps = vec![
                    (0, Step::Join(self.nodes + 3)),
                    (when, Step::Forget),
                    (when + 100, Step::Join(self.nodes + 4)),
                ];
                let rpc = "CreateRoutes";
                let mut pause = Fault::failure(rpc, FailureCode::Throttled).times(1);
                if let Some(failure) = &mut pause.failure {
                    failure.retry_after = Some(Duration::from_secs(25).into());
                }
                (steps, Some((rpc, 0, Wrong::Rpc(Box::new(pause)))))
            }
            // The ccms reach no API server and end, and a call goes on in the cloud.
            2 => {
                self.setup.slow_ms = 40_000;
                self.setup.traits.set(Trait::GoesOn, true);
                self.setup.lease_seconds = 120;
                let when = self.random.random_range(10_000..20_000);
                let mut steps = vec![
                    (0, Step::Create(new, Class::Default)),
                    (when + self.random.random_range(0..300), Step::RollAll),
                    (when + 16_000, Step::EditLease),
                ];
                steps.extend((0..self.setup.ccms).map(|ccm| (when, Step::CutOff(ccm, 20))));
                (steps, None)
            }
            // A ccm ends right after the leader has released a Service, and a watch is late.
            _ => {
                self.quicken();
                let ends = 50_000 + self.random.random_range(200..2_000);
                let steps = vec![
                    (0, Step::Create(new, Class::Default)),
                    (50_000, Step::Delete(new)),
                    (ends, Step::RollCcm(ccm)),
                ];
                let late = Wrong::Api(ApiFault::Late(Duration::from_secs(12)));
                (steps, Some(("EVENT services", 49_900, late)))
            }
        };
        let number = self.random.random_range(1..=2);
        self.coincide(at, steps, strike, number);
    }

    /// A zone fails: many machines are gone at once, but fewer than half. The provider asks its
    /// slow cloud about each Node separately, so the answers come over a long time.
    pub(super) fn zone(&mut self, at: u64) {
        let traits = &mut self.setup.traits;
        traits.set(Trait::NodeByNode, true);
        traits.set(Trait::ListsInstances, self.random.random_ratio(1, 4));
        self.setup.max_in_flight = self.pick(&[1, 2, 3]);
        self.setup.slow_ms = self.pick(&[1_000, 2_000, 3_000]);
        let nodes = self.pick(&[9, 11, 12]);
        for node in self.nodes..nodes {
            let join = self.random.random_range(0..60_000);
            self.steps.push((join, Step::Join(node)));
        }
        let gone = self.random.random_range(3..nodes / 2);
        let first = self.random.random_range(0..=nodes - gone);
        let lost = first..first + gone;
        let steps = lost.map(|node| (0, Step::Terminate(node))).collect();
        let strike = self.chance(1, 3).then(|| {
            let hangs = Wrong::failure("LookupInstances", FaultKind::Hang, None);
            ("LookupInstances", 40_000, hangs)
        });
        let number = self.random.random_range(1..=4);
        self.coincide(at, steps, strike, number);
    }

    /// Adds steps to the plan, and the fault of the `number`th request at a site. Their times count
    /// from `at`.
    fn coincide(
        &mut self,
        at: u64,
        steps: Vec<(u64, Step)>,
        strike: Option<(&str, u64, Wrong)>,
        number: u32,
    ) {
        let steps = steps.into_iter();
        self.steps
            .extend(steps.map(|(after, step)| (at + after, step)));
        self.strikes
            .extend(strike.map(|(site, after, wrong)| Strike {
                site: site.to_owned(),
                from_ms: at + after,
                number,
                wrong,
            }));
    }

    /// Makes the cloud quick: each operation ends at once.
    fn quicken(&mut self) {
        self.setup.slow_ms = 0;
        self.setup.traits.set(Trait::GoesOn, false);
        self.setup.made_in_s = 0;
        self.setup.gone_in_s = 0;
    }
}
