//! The needs of a check, and what it could not observe.

use std::sync::PoisonError;

use cloud_provider_api::v1alpha1::FailureCode;

use super::Run;
use crate::check::{Lack, Need, Skipped, Stop, Verdict};
use crate::config::RouteMarks;

/// The codes that a failing cloud allows for an object that does not exist. A provider that `knows`
/// an existing object without the cloud may also know that this one does not exist.
pub(crate) fn codes_of_unknown(code: FailureCode, knows: bool) -> Vec<FailureCode> {
    let not_found = knows.then_some(FailureCode::NotFound);
    std::iter::once(code).chain(not_found).collect()
}

/// Whether an RPC may answer without the cloud, from the provider's own knowledge.
pub(crate) fn may_know(rpc: &str) -> bool {
    matches!(
        rpc,
        "LookupZones" | "ListClusters" | "GetControlPlaneAddress" | "GetVolumeLabels"
    )
}

/// The text for a check that could not observe everything.
const REST: &str = "the rest of the check passed";

impl Run {
    /// Records that a part of the check's subject cannot be observed here. The check goes on. If it
    /// finds no violation, it ends as skipped, not as passed.
    pub(crate) fn unseen(&self, why: Stop) {
        if let Stop::Skipped(why) = why {
            let mut unseen = self.unseen.lock().unwrap_or_else(PoisonError::into_inner);
            if !unseen.iter().any(|known| known.reason == why.reason) {
                unseen.push(why);
            }
        }
    }

    /// Whether an answer that came while the cloud failed is the provider's own knowledge: the RPC
    /// may answer without the cloud, and its answer is the same as before. Then this records that
    /// the check cannot observe its subject.
    pub(crate) fn knows(&self, rpc: &str, same_as_before: bool) -> bool {
        let knows = same_as_before && may_know(rpc);
        if knows {
            self.unseen(Stop::not_offered(format!(
                "while the cloud failed, {rpc} answered as before, from the provider's own knowledge"
            )));
        }
        knows
    }

    /// The end of a check without violations: passed, if it could observe everything.
    pub(crate) fn passed(&self) -> Verdict {
        let unseen = self.unseen.lock().unwrap_or_else(PoisonError::into_inner);
        if unseen.is_empty() {
            return Ok(());
        }
        let reasons: Vec<_> = unseen.iter().map(|one| one.reason.as_str()).collect();
        let reason = format!("{}; {REST}", reasons.join("; "));
        // A missing setup outweighs a missing capability, because somebody can fix the setup.
        let setup = unseen.iter().any(|one| one.lack == Lack::Setup);
        Err(if setup {
            Stop::not_set_up(reason)
        } else {
            Stop::not_offered(reason)
        })
    }

    /// Returns whether all of these are present. Records the first that is missing, so that the
    /// check does not pass without it.
    pub(crate) fn sees(&self, needs: &[Need]) -> bool {
        let lack = self.lack(needs);
        let sees = lack.is_none();
        if let Some(lack) = lack {
            self.unseen(Stop::Skipped(lack));
        }
        sees
    }

    /// The first missing need.
    pub(crate) fn lack(&self, needs: &[Need]) -> Option<Skipped> {
        let offered = self.capabilities();
        let instances = offered.instances.as_ref();
        let load_balancers = offered.load_balancers.as_ref();
        needs.iter().find_map(|need| {
            let (there, what) = match need {
                Need::Instances => (instances.is_some(), "instances"),
                Need::InstanceListing => {
                    (instances.is_some_and(|of| of.listing), "instances.listing")
                }
                Need::PowerState => (
                    instances.is_some_and(|of| of.power_state),
                    "instances.power_state",
                ),
                Need::Zones => (offered.zones.is_some(), "zones"),
                Need::LoadBalancers => (load_balancers.is_some(), "load_balancers"),
                Need::LoadBalancerListing => (
                    load_balancers.is_some_and(|of| of.listing),
                    "load_balancers.listing",
                ),
                Need::InSync => (
                    load_balancers.is_some_and(|of| of.in_sync),
                    "load_balancers.in_sync",
                ),
                Need::Routes => (offered.routes.is_some(), "routes"),
                Need::Clusters => (offered.clusters.is_some(), "clusters"),
                Need::Volumes => (offered.volumes.is_some(), "volumes"),
                Need::Changes => (offered.changes.is_some(), "changes"),
                Need::SharedLoadBalancer if self.config().shared_load_balancer.is_none() => {
                    return skipped(Stop::not_offered(
                        "suite.yaml has no `shared_load_balancer`: if Services of this cloud can share one, write there the annotations that make them share it",
                    ));
                }
                Need::RouteMarks if self.config().route_marks == RouteMarks::None => {
                    return skipped(Stop::not_offered(
                        "this cloud keeps no marks with routes (`route_marks: none` in suite.yaml)",
                    ));
                }
                Need::Hook(hook) if !self.has_hook(*hook) => {
                    return skipped(Stop::not_set_up(format!(
                        "suite.yaml has no hook `{}`",
                        hook.key()
                    )));
                }
                Need::Command if !self.target().is_ours() => {
                    return skipped(Stop::not_set_up(
                        "the suite did not start the provider (--command)",
                    ));
                }
                Need::Hook(_)
                | Need::Command
                | Need::SharedLoadBalancer
                | Need::RouteMarks => return None,
            };
            if there {
                return None;
            }
            skipped(Stop::not_offered(format!(
                "the provider does not offer Capabilities.{what}"
            )))
        })
    }
}

fn skipped(stop: Stop) -> Option<Skipped> {
    match stop {
        Stop::Skipped(skipped) => Some(skipped),
        Stop::Failed(_) | Stop::Warned(_) => None,
    }
}
