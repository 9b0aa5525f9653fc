//! The instances of the provider's hints since the last pass (▲L7).

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Node;

use super::plan;
use crate::provider::Hint;

#[derive(Default)]
pub(super) struct Hinted {
    /// Any instance may have changed.
    all: bool,
    /// Provider IDs and names of Nodes.
    some: BTreeSet<String>,
}

impl Hinted {
    /// If `some` has at least this many entries, the next hint about an instance sets `all`. Hints
    /// also come while the provider is not usable; no pass takes them then.
    const MOST: usize = 10_000;

    /// Takes a hint. Returns whether it may be about instances.
    pub(super) fn add(&mut self, hint: &Hint) -> bool {
        match hint {
            Hint::LoadBalancer { .. } | Hint::Routes => return false,
            Hint::Instance {
                provider_id,
                node_name,
            } if !self.all
                && self.some.len() < Self::MOST
                && !(provider_id.is_empty() && node_name.is_empty()) =>
            {
                self.some.extend([provider_id.clone(), node_name.clone()]);
            }
            Hint::Instance { .. } | Hint::Resync => {
                self.all = true;
                self.some.clear();
            }
        }
        true
    }

    /// Whether a hint may be about this Node.
    pub(super) fn concerns(&self, node: &Node) -> bool {
        self.all
            || self.some.contains(plan::provider_id(node))
            || self.some.contains(plan::name(node))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A provider that is not READY may send hints all the same.
    #[test]
    fn l7_hints_that_no_pass_takes_are_kept_up_to_a_bound() {
        let mut hinted = Hinted::default();
        for number in 0..=Hinted::MOST {
            let about_instances = hinted.add(&Hint::Instance {
                provider_id: format!("mock://{number}"),
                node_name: String::new(),
            });
            assert!(about_instances && hinted.some.len() <= Hinted::MOST);
        }
        assert!(hinted.all, "any of them may be meant");
        assert!(!hinted.add(&Hint::Routes));
    }
}
