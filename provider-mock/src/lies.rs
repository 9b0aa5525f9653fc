//! Named lies: violations of the contract by a provider, and a few deviations that the contract
//! allows. Each is a row of a table. The row of a violation has the rules that it violates and the
//! check of the conformance suite that finds it. Some are scripted faults. The others are twists,
//! which the layer, [`Twisted`], [`Front`] and the server apply to an honest provider.

pub(crate) mod answers;
pub(crate) mod calls;
mod front;
mod mischief;
mod provider;
mod table;

use crate::faults::Fault;

pub(crate) use front::Front;
pub(crate) use mischief::Mischief;
pub(crate) use provider::Twisted;
pub(crate) use table::Twist;

/// A violation of the contract, or a deviation that the contract allows.
#[derive(Debug)]
pub struct Lie {
    /// Its name for `serve --fault`.
    pub name: &'static str,
    /// The provider's behaviour.
    pub what: &'static str,
    /// The violated rules, by their IDs in the contract's `.proto` files. Empty if the contract
    /// allows the behaviour.
    pub rules: &'static [&'static str],
    /// The check of the conformance suite that finds it. Empty if the contract allows the
    /// behaviour.
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

    /// The lie with this name. The error names the most similar one.
    pub fn find(name: &str) -> Result<&'static Self, String> {
        if let Some(lie) = Self::all().find(|lie| lie.name == name) {
            return Ok(lie);
        }
        let alike = |lie: &&Self| (strsim::jaro_winkler(name, lie.name) * 1_000.0) as u64;
        let nearest = Self::all().max_by_key(alike).map_or("", |lie| lie.name);
        Err(format!(
            "{name:?} is no named fault; did you mean {nearest:?}? `provider-mock faults` prints all of them"
        ))
    }
}

/// The active twists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Twists(u128);

impl Twists {
    pub(crate) fn none(self) -> bool {
        self.0 == 0
    }

    pub(crate) fn has(self, twist: Twist) -> bool {
        self.0 & (1 << twist as u32) != 0
    }

    fn with(self, twist: Twist) -> Self {
        Self(self.0 | (1 << twist as u32))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::Cloud;

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

    /// The mock applies faults and twists around the cloud and its provider, not inside them.
    #[test]
    fn the_cloud_and_its_provider_know_of_no_fault() {
        let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("src")];
        let mut read = 0;
        let honest = ["instances", "load_balancers", "provider", "routes", "store"];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                let name = path.file_stem().unwrap().to_str().unwrap();
                let is_top = path.parent().unwrap().ends_with("src");
                if is_top && !honest.contains(&name) {
                    continue;
                }
                if path.is_dir() {
                    folders.push(path);
                    continue;
                }
                let text = std::fs::read_to_string(&path).unwrap();
                read += 1;
                for word in ["crate::lies", "crate::faults", "wist", "mischief"] {
                    let found = text.contains(word);
                    assert!(!found, "{} names {word}", path.display());
                }
            }
        }
        assert!(read > 12, "{read}");
    }
}
