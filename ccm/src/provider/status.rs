//! The state of a provider, and whether its cloud is the accepted one.

use std::sync::Arc;
use std::time::Duration;

use cloud_provider_api::v1alpha1 as api;
use tokio::time::Instant;

use super::Session;
use super::claims::within_bounds;
use crate::args::ProviderEndpoint;
use crate::ownership::Ownership;

/// The state of a provider, published in a `watch` channel. `default()` means: never connected.
///
/// A new `Arc<Session>` means that the provider was initialised again. A change of `last_answer`
/// alone wakes no receiver: read it when needed.
#[derive(Clone, Default)]
pub(crate) struct ProviderStatus {
    /// The initialised session, if there is one. Only a leader has one.
    pub(crate) session: Option<Arc<Session>>,
    /// The state in the last Probe. UNSPECIFIED before the first Probe, and without a connection.
    pub(crate) probe: api::ProbeState,
    /// For people: the message of the last Probe. Empty if READY.
    pub(crate) probe_message: String,
    /// For people: why there is no session, or why the scope is not accepted. Empty if all is well.
    pub(crate) message: String,
    /// For people: the claims that are not served. Empty if there are none (▲S21).
    pub(crate) held: String,
    /// When the provider last answered GetProviderInfo, Probe or Initialize.
    pub(crate) last_answer: Option<Instant>,
    /// Whether the session's cloud scope is the accepted one; false without a session. While it is
    /// false, the ccm creates and deletes nothing (▲S20).
    pub(crate) scope_accepted: bool,
    /// The provider's info while it is connected, also on standbys.
    pub(crate) info: Option<Arc<api::GetProviderInfoResponse>>,
    /// The cloud scope in the last answer of Initialize.
    pub(crate) cloud_scope: Option<String>,
    /// Which Nodes belong to the provider: by its last session with the accepted scope, or before
    /// the first session by its last GetProviderInfo. Kept while the provider is away. `None`
    /// before both.
    pub(crate) ownership: Option<Arc<Ownership>>,
    /// Whether a session gave `ownership`.
    pub(crate) of_session: bool,
}

/// A capability that a controller needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Capability {
    /// The provider knows instances.
    Instances,
    /// It makes load balancers.
    LoadBalancers,
    /// It makes routes.
    Routes,
    /// It knows volumes.
    Volumes,
}

impl Capability {
    /// Whether the provider offers it.
    pub(crate) fn is_in(self, offered: &api::Capabilities) -> bool {
        match self {
            Self::Instances => offered.instances.is_some(),
            Self::LoadBalancers => offered.load_balancers.is_some(),
            Self::Routes => offered.routes.is_some(),
            Self::Volumes => offered.volumes.is_some(),
        }
    }
}

/// The values of [`ProviderStatus::state`].
pub(super) const STATES: [&str; 6] = [
    "disconnected",
    "connected",
    "starting",
    "ready",
    "degraded",
    "broken",
];

impl ProviderStatus {
    /// The state as a metric shows it, by the connection and the last Probe. Standbys show it too.
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

    /// The session, if the controllers may work now, the scope is accepted (▲S20), and the provider
    /// offers this capability. Another account may have instances, routes and disks with the same
    /// IDs. Answers about those must not reach objects of this cluster.
    pub(crate) fn usable(&self, capability: Capability) -> Option<Arc<Session>> {
        let session = self.working().filter(|_| self.scope_accepted)?;
        let offered = session.offers(|offered| capability.is_in(offered));
        offered.then(|| Arc::clone(session))
    }

    /// The provider answered GetProviderInfo on a new connection.
    pub(super) fn connected(
        &mut self,
        info: Arc<api::GetProviderInfoResponse>,
        endpoint: &ProviderEndpoint,
    ) {
        let before = std::mem::take(self);
        // Before the first session the cloud scope is not known, so only the operator's flags limit
        // the claims. The ownership of a session stays.
        let ownership = before.ownership.filter(|_| before.of_session);
        let ownership = ownership.or_else(|| {
            let within = within_bounds(&info, endpoint);
            let ownership = Ownership::of(&[(&endpoint.name, &within)], None);
            ownership.ok().map(Arc::new)
        });
        *self = Self {
            last_answer: Some(Instant::now()),
            info: Some(info),
            cloud_scope: before.cloud_scope,
            ownership,
            of_session: before.of_session,
            ..Self::default()
        };
    }

    /// The session's scope was compared with the accepted one. Another account's Nodes are not this
    /// cluster's.
    pub(super) fn judged(&mut self, accepted: bool, message: String) {
        self.scope_accepted = accepted;
        self.message = message;
        let session = self.session.as_ref().filter(|_| accepted);
        if let Some(session) = session {
            self.ownership = Some(Arc::clone(&session.ownership));
            self.of_session = true;
        }
    }

    /// Whether Nodes and routes may be deleted: the provider is READY, and its scope is accepted.
    pub(crate) fn may_delete(&self) -> bool {
        self.session.is_some() && self.probe == api::ProbeState::Ready && self.scope_accepted
    }

    /// For people: what is wrong. Empty if all is well.
    pub(crate) fn complaint(&self) -> &str {
        let all = [&self.message, &self.probe_message, &self.held];
        all.into_iter()
            .find(|it| !it.is_empty())
            .map_or("", |it| it)
    }

    /// Whether this replica's own provider is connected.
    pub(crate) fn reachable(&self) -> bool {
        self.info.is_some()
    }

    /// Until when this replica may stand for election if its own provider answers no more. `None`:
    /// it is not connected. `timeout` is the silence after which a leader steps down.
    pub(crate) fn stands_until(&self, timeout: Duration) -> Option<Instant> {
        let heard = self.last_answer.filter(|_| self.reachable())?;
        Some(heard + timeout)
    }
}

/// The state of a Probe, for people.
pub(crate) fn probe_word(state: api::ProbeState) -> &'static str {
    state.as_str_name().trim_start_matches("PROBE_STATE_")
}

/// Whether a cloud scope is the accepted one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It is the accepted one.
    Accepted,
    /// It is accepted, and the Lease has to remember it.
    AcceptedAndNew,
    /// Another scope is accepted, so the ccm creates and deletes nothing.
    Refused {
        /// The scope that was accepted.
        accepted: String,
    },
}

/// Decides about a scope. `last_seen` is the scope that the Lease remembers, `operator_accepts` the
/// value of `--accept-cloud-scope`.
///
/// The first scope ever is accepted, unless the flag names another. If an operator later accepts
/// another scope by the annotation, the flag still names the old one. Then the newer one stays
/// accepted.
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
    fn s21_prefixes_outside_of_the_flag_do_not_count_before_initialize_either() {
        let owner = |flag: Option<&str>, id: &str| {
            let status = connected(ProviderStatus::default(), &["mock://", "aws://"], flag);
            let ownership = status.ownership.unwrap();
            ownership.owner_of_id(id).map(str::to_owned)
        };
        let flag = Some("mock://");
        assert_eq!(owner(flag, "mock://1").as_deref(), Some("mock"));
        assert_eq!(owner(flag, "aws://1"), None);
        assert_eq!(owner(None, "aws://1").as_deref(), Some("mock"));
    }

    #[test]
    fn s21_what_a_session_knew_stays_until_the_next_one() {
        let owns = |status: &ProviderStatus, id: &str| {
            let ownership = status.ownership.as_ref().unwrap();
            ownership.owner_of_id(id).is_some()
        };
        let first = connected(ProviderStatus::default(), &["mock://"], None);
        // Another version claims more. Before the first session its claims count.
        let more = ["mock://", "aws://"];
        let second = connected(first.clone(), &more, None);
        assert!(!owns(&first, "aws://1") && owns(&second, "aws://1"));
        // After a session, the stored claims limit new ones, so the former claims count until the
        // next session.
        let initialized = ProviderStatus {
            of_session: true,
            ..first
        };
        let third = connected(initialized, &more, None);
        assert!(owns(&third, "mock://1") && !owns(&third, "aws://1"));
    }

    /// The status after a provider with these claims connected.
    fn connected(
        mut status: ProviderStatus,
        claims: &[&str],
        flag: Option<&str>,
    ) -> ProviderStatus {
        let info = api::GetProviderInfoResponse {
            provider_id_prefixes: claims.iter().map(|&prefix| prefix.to_owned()).collect(),
            ..Default::default()
        };
        let endpoint = ProviderEndpoint {
            name: "mock".into(),
            socket: "/a.sock".into(),
            peer_uid: None,
            accepted_cloud_scope: None,
            load_balancer_classes: None,
            provider_id_prefixes: flag.map(|prefix| vec![prefix.to_owned()]),
        };
        status.connected(Arc::new(info), &endpoint);
        status
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
            assert!(!status.may_delete());
            assert!(!status.reachable());
        }
    }
}
