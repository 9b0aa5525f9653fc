//! The life of one Service and of one Node, in a small and quick world. `exhaustive.rs` plays it
//! with single faults and with pairs.

use std::collections::BTreeMap;

use super::{Class, Plan, Setup, Step, Strike, Trait, Traits, Wrong};

/// The object whose life a plan plays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    /// A Service is created, edited and deleted.
    Service,
    /// A Node joins, stops, starts and loses its instance.
    Node,
}

impl Life {
    /// Both lives.
    pub const ALL: [Self; 2] = [Self::Service, Self::Node];

    /// The plan without faults.
    #[must_use]
    pub fn plan(self) -> Plan {
        let mut steps = vec![(0, Step::Join(0)), (0, Step::Join(1)), (0, Step::Join(2))];
        steps.extend(match self {
            Self::Service => vec![
                (30_000, Step::Create(0, Class::Default)),
                (60_000, Step::EditPort(0)),
                (90_000, Step::Delete(0)),
            ],
            Self::Node => vec![
                (10_000, Step::Create(0, Class::Default)),
                (30_000, Step::Join(3)),
                (60_000, Step::Stop(3)),
                (150_000, Step::Start(3)),
                (200_000, Step::Terminate(3)),
            ],
        });
        Plan {
            seed: 1,
            setup: Setup {
                traits: Traits::with([(Trait::Routes, self == Self::Node)]),
                gone_in_s: 3,
                made_in_s: 3,
                ..Setup::default()
            },
            steps,
            strikes: Vec::new(),
        }
    }

    /// Each fault of `everything`, at each of the first requests of its site. `counts`: the number
    /// of requests at each site in this life.
    #[must_use]
    pub fn singles(self, counts: &BTreeMap<String, u64>) -> Vec<Strike> {
        let mut all = Vec::new();
        for (site, wrong) in super::everything() {
            let most = counts.get(&site).copied().unwrap_or_default().min(MOST);
            for number in 1..=u32::try_from(most).unwrap_or_default() {
                all.push(Strike {
                    site: site.clone(),
                    from_ms: BEGINS,
                    number,
                    wrong: wrong.clone(),
                });
            }
        }
        all
    }

    /// The plan with these faults.
    #[must_use]
    pub fn with(self, strikes: &[Strike]) -> Plan {
        let mut plan = self.plan();
        plan.strikes = strikes.to_vec();
        plan
    }
}

/// Faults begin at this time, in milliseconds.
const BEGINS: u64 = 30_000;
/// At a site with many requests, only the first ones get faults.
const MOST: u64 = 4;

/// Whether pairs include this fault: some kinds of refusals stand for all.
#[must_use]
pub fn counts_in_pairs(strike: &Strike) -> bool {
    use crate::faults::ApiFault;
    match &strike.wrong {
        Wrong::Api(ApiFault::Code(code)) => matches!(code, 409 | 503),
        Wrong::Api(_) | Wrong::Dies { .. } | Wrong::Meanwhile(_) => true,
        Wrong::Rpc(fault) => fault.failure.as_ref().is_none_or(|failure| {
            use provider_sdk::FailureCode::{Internal, NotInitialized};
            matches!(failure.code, Internal | NotInitialized)
        }),
    }
}
