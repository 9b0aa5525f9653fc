//! Steps and a fault that rarely coincide by chance, such as a step while a request is on its way.

use rand::RngExt as _;

use super::{Generator, Step, Strike, Trait, Wrong};
use crate::faults::ApiFault;

impl Generator {
    /// Plans one of five coincidences.
    pub(super) fn coincidence(&mut self, at: u64) {
        let node = self.random.random_range(0..self.nodes);
        let service = self.random.random_range(0..self.services);
        let ccm = self.random.random_range(0..self.setup.ccms);
        // An operation that goes on after its cancellation matters when processes end.
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
        let steps = steps.into_iter();
        self.steps
            .extend(steps.map(|(after, step)| (at + after, step)));
        self.strikes.push(Strike {
            site: site.to_owned(),
            from_ms: at + after,
            number: 1,
            wrong,
        });
    }
}
