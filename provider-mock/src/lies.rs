//! Named lies: ways in which a provider can break the contract. Each is a row of a table with the rules that it breaks and the check of the conformance suite that finds
//! it. Some are made of scripted faults; the others are twists, which the layer and the provider ask about where they must behave otherwise.

pub(crate) mod answers;
pub(crate) mod calls;
mod front;
mod table;

use crate::cloud::Cloud;
use crate::error::CloudError;
use crate::faults::Fault;

pub(crate) use front::Front;
pub(crate) use table::Twist;

/// A way to break the contract.
#[derive(Debug)]
pub struct Lie {
    /// Its name, as `serve --fault` takes it.
    pub name: &'static str,
    /// What the provider does.
    pub what: &'static str,
    /// The rules that it breaks, by the IDs in the contract's `.proto` files. None where the contract allows it: then it harms nobody.
    pub rules: &'static [&'static str],
    /// The check of the conformance suite that finds it; empty where the contract allows it.
    pub check: &'static str,
    does: Does,
}

#[derive(Debug)]
enum Does {
    Twist(Twist),
    Script(fn() -> Vec<Fault>),
}

impl Lie {
    /// All of them.
    pub fn all() -> impl Iterator<Item = &'static Self> {
        table::SERVICES.iter().flat_map(|lies| lies.iter())
    }

    /// The one with this name; the error names the one that is most like it.
    pub fn find(name: &str) -> Result<&'static Self, String> {
        if let Some(lie) = Self::all().find(|lie| lie.name == name) {
            return Ok(lie);
        }
        let alike = |lie: &&Self| (strsim::jaro_winkler(name, lie.name) * 1_000.0) as u64;
        let nearest = Self::all().max_by_key(alike).map_or("", |lie| lie.name);
        Err(format!(
            "{name:?} is no fault; did you mean {nearest:?}? `provider-mock faults` prints all of them"
        ))
    }
}

/// The twists that are on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Twists(u128);

impl Twists {
    pub(crate) fn none(self) -> bool {
        self.0 == 0
    }

    pub(crate) fn has(self, twist: Twist) -> bool {
        self.0 & (1 << twist as u32) != 0
    }

    pub(crate) fn without(self, twists: &[Twist]) -> Self {
        let others = twists
            .iter()
            .fold(0, |bits, twist| bits | 1 << *twist as u32);
        Self(self.0 & !others)
    }

    fn with(self, twist: Twist) -> Self {
        Self(self.0 | (1 << twist as u32))
    }
}

impl Cloud {
    /// The provider lies from here on: `serve --fault`. The names are in [`Lie::all`].
    pub fn tell(&self, name: &str) -> Result<(), CloudError> {
        let lie = Lie::find(name).map_err(CloudError::Invalid)?;
        match lie.does {
            Does::Twist(twist) => {
                let mut state = self.state();
                state.twists = state.twists.with(twist);
            }
            Does::Script(faults) => {
                for fault in faults() {
                    self.set_fault(fault)?;
                }
            }
        }
        self.changed();
        Ok(())
    }

    /// The provider is honest again: no twists, no scripted faults.
    pub fn be_honest(&self) {
        self.state().twists = Twists::default();
        self.clear_faults();
    }

    pub(crate) fn twists(&self) -> Twists {
        self.state().twists
    }

    pub(crate) fn twisted(&self, twist: Twist) -> bool {
        self.twists().has(twist)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_lie_has_a_name_of_its_own_and_says_what_it_breaks() {
        let mut seen = std::collections::BTreeSet::new();
        for lie in Lie::all() {
            assert!(seen.insert(lie.name), "{} is there twice", lie.name);
            assert!(!lie.what.is_empty(), "{}", lie.name);
            assert_eq!(lie.rules.is_empty(), lie.check.is_empty(), "{}", lie.name);
            let cloud = Cloud::new(crate::Fixture::default()).unwrap();
            cloud.tell(lie.name).unwrap();
            assert!(
                !cloud.twists().none() || !cloud.faults().is_empty(),
                "{} does nothing",
                lie.name
            );
            cloud.be_honest();
            assert!(cloud.twists().none() && cloud.faults().is_empty());
        }
        assert!(seen.len() >= 45, "{}", seen.len());
    }

    #[test]
    fn a_name_that_is_none_gets_the_nearest() {
        let error = Lie::find("absent-on-throtle").unwrap_err();
        assert!(error.contains("\"absent-on-throttle\""), "{error}");
    }
}
