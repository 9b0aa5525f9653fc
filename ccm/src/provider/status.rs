//! How a provider is, and whether its cloud is the one that was accepted.

use std::sync::Arc;

use cloud_provider_api::v1alpha1 as api;
use tokio::time::Instant;

use super::Session;

/// How a provider is; published by `watch`. Tests and the wiring start from `default()`: never seen.
///
/// A new `Arc<Session>` means: back again. `last_answer` alone changes without waking anybody: read it when the time comes.
#[derive(Clone, Default)]
pub(crate) struct ProviderStatus {
    /// The initialised session, while there is one: only while we lead.
    pub(crate) session: Option<Arc<Session>>,
    /// What its last Probe said; UNSPECIFIED before the first, and while it cannot be reached.
    pub(crate) probe: api::ProbeState,
    /// For people: what its last Probe said; empty when READY.
    pub(crate) probe_message: String,
    /// For people: why there is no session, or why the scope is not accepted; empty when all is well.
    pub(crate) message: String,
    /// For people: what it claims that is not served, and how to accept it; empty where there is none (▲S21).
    pub(crate) held: String,
    /// When it last answered GetProviderInfo, Probe or Initialize.
    pub(crate) last_answer: Option<Instant>,
    /// Whether its `cloud_scope` is the accepted one; else nothing is created or deleted (▲S20).
    pub(crate) scope_accepted: bool,
    /// Who it is, while it is connected: on standbys too.
    pub(crate) info: Option<Arc<api::GetProviderInfoResponse>>,
    /// What Initialize last answered.
    pub(crate) cloud_scope: Option<String>,
}

/// What a controller needs of a provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Capability {
    /// It knows instances.
    Instances,
    /// It makes load balancers.
    LoadBalancers,
    /// It has routes.
    Routes,
    /// It knows volumes.
    Volumes,
}

/// What [`ProviderStatus::state`] may return.
pub(super) const STATES: [&str; 6] = [
    "disconnected",
    "connected",
    "starting",
    "ready",
    "degraded",
    "broken",
];

impl ProviderStatus {
    /// The state as a metric shows it: by the connection and the last Probe, also on a standby.
    pub(super) fn state(&self) -> &'static str {
        match self.probe {
            _ if self.info.is_none() => "disconnected",
            api::ProbeState::Unspecified => "connected",
            api::ProbeState::Starting => "starting",
            api::ProbeState::Ready => "ready",
            api::ProbeState::Degraded => "degraded",
            api::ProbeState::Broken => "broken",
        }
    }

    /// The session, if the controllers may work now (READY or DEGRADED).
    pub(crate) fn working(&self) -> Option<&Arc<Session>> {
        match self.probe {
            api::ProbeState::Ready | api::ProbeState::Degraded => self.session.as_ref(),
            api::ProbeState::Unspecified | api::ProbeState::Starting | api::ProbeState::Broken => {
                None
            }
        }
    }

    /// The session, where the provider has this capability and may be used: a scope that is not accepted may have instances, routes and disks with
    /// the same IDs in another account, and what is said of those must not reach our objects (▲S20).
    pub(crate) fn usable(&self, capability: Capability) -> Option<Arc<Session>> {
        let session = self.working().filter(|_| self.scope_accepted)?;
        let offered = session.offers(|offered| match capability {
            Capability::Instances => offered.instances.is_some(),
            Capability::LoadBalancers => offered.load_balancers.is_some(),
            Capability::Routes => offered.routes.is_some(),
            Capability::Volumes => offered.volumes.is_some(),
        });
        offered.then(|| Arc::clone(session))
    }

    /// Whether Nodes may be deleted: READY and the scope accepted.
    pub(crate) fn may_delete_nodes(&self) -> bool {
        self.session.is_some() && self.probe == api::ProbeState::Ready && self.scope_accepted
    }

    /// Whether routes may be removed: as Nodes.
    pub(crate) fn may_delete_routes(&self) -> bool {
        self.may_delete_nodes()
    }

    /// For people: what is wrong; empty when all is well.
    pub(crate) fn complaint(&self) -> &str {
        let all = [&self.message, &self.probe_message, &self.held];
        all.into_iter()
            .find(|it| !it.is_empty())
            .map_or("", |it| it)
    }

    /// Whether a replica may stand for election: its own provider answers.
    pub(crate) fn reachable(&self) -> bool {
        self.info.is_some()
    }
}

/// A probe's state as people read it.
pub(crate) fn probe_word(state: api::ProbeState) -> &'static str {
    state.as_str_name().trim_start_matches("PROBE_STATE_")
}

/// Whether a cloud scope is the accepted one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It is.
    Accepted,
    /// It is, and is to be remembered as the one that was last seen.
    AcceptedAndNew,
    /// It is another than this one: nothing is created or deleted.
    Refused {
        /// The scope that was accepted.
        accepted: String,
    },
}

/// Decides about a scope: `last_seen` is what the Lease remembers, `operator_accepts` what `--accept-cloud-scope` says.
///
/// The first scope ever is accepted, unless the operator named another. A flag that names an older scope than the one that was
/// accepted since (by the annotation) is no refusal.
pub(crate) fn scope_verdict(
    last_seen: Option<&str>,
    given: &str,
    operator_accepts: Option<&str>,
) -> Verdict {
    if last_seen == Some(given) {
        return Verdict::Accepted;
    }
    if operator_accepts == Some(given) {
        return Verdict::AcceptedAndNew;
    }
    match last_seen.or(operator_accepts) {
        None => Verdict::AcceptedAndNew,
        Some(accepted) => Verdict::Refused {
            accepted: accepted.to_owned(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s20_a_scope_is_accepted_first_by_the_lease_or_by_the_operator() {
        let refused = |accepted: &str| Verdict::Refused {
            accepted: accepted.to_owned(),
        };
        let rows = [
            (None, None, Verdict::AcceptedAndNew),
            (Some("new"), None, Verdict::Accepted),
            (Some("new"), Some("old"), Verdict::Accepted),
            (Some("old"), None, refused("old")),
            (Some("old"), Some("new"), Verdict::AcceptedAndNew),
            (Some("old"), Some("other"), refused("old")),
            (None, Some("new"), Verdict::AcceptedAndNew),
            (None, Some("other"), refused("other")),
            (Some(""), None, refused("")),
        ];
        for (last_seen, operator, verdict) in rows {
            assert_eq!(
                scope_verdict(last_seen, "new", operator),
                verdict,
                "{last_seen:?} {operator:?}"
            );
        }
    }

    #[test]
    fn m9_without_a_session_nobody_works_and_nothing_is_deleted() {
        for probe in [api::ProbeState::Ready, api::ProbeState::Degraded] {
            let status = ProviderStatus {
                probe,
                scope_accepted: true,
                ..Default::default()
            };
            assert!(status.working().is_none());
            assert!(!status.may_delete_nodes());
            assert!(!status.reachable());
        }
    }
}
