//! What changes of Nodes do to the sets of targets, and those to Services.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use tokio::task::JoinError;
use tokio::time::Instant;
use tracing::{error, warn};

use super::{Rechecked, Work, load_balancers};
use crate::cluster::Change;
use crate::controllers::service::notes;
use crate::controllers::service::recheck::still_empty;
use crate::controllers::service::targets::{Candidate, NodeSelector, TargetSet, eligible};
use crate::core::millis;
use crate::ownership::NodeOwner;
use crate::provider::{Session, node_view};
use crate::writes::{EventType, node_reference, reason, service_reference};

/// After so long the API server is asked again whether a set is empty.
const RECHECK_AGAIN: Duration = Duration::from_secs(5);

/// The most bytes of one target in a request. A kubelet writes its Node's addresses and labels: a few Nodes must not make the requests of all load balancers too large (CORE-11).
const TARGET_BYTES: usize = 64 * 1024;

impl Work {
    /// Looks at all Nodes anew: the provider sees them with other eyes.
    pub(super) fn rebuild(&mut self) {
        self.pool.clear(self.max_targets());
        for node in self.tools.cluster.nodes.all() {
            self.observe(&node);
        }
        self.nodes_settled();
    }

    /// Says whether it can change a set.
    fn observe(&mut self, node: &Arc<Node>) -> bool {
        let Some(session) = &self.session else {
            return false;
        };
        let name = node.metadata.name.as_deref().unwrap_or_default();
        let view = is_target(node, session, &self.tools.provider)
            .then(|| node_view(node, &session.target_projection));
        let bytes = view.as_ref().map_or(0, prost::Message::encoded_len);
        let now = view.filter(|_| bytes <= TARGET_BYTES).map(|view| {
            let identity = node_view(node, &session.target_identity);
            Candidate::new(Arc::clone(node), view, &identity)
        });
        if bytes <= TARGET_BYTES {
            self.too_large.remove(name);
        } else if self.too_large.insert(name.to_owned()) {
            let text = format!(
                "the Node is no target of load balancers: what the provider would be sent of it has {bytes} bytes, and {TARGET_BYTES} are allowed; look at its addresses, labels and annotations"
            );
            warn!(node = name, "{text}");
            let (on, reason) = (node_reference(node), reason::NODE_TOO_LARGE_FOR_TARGET);
            let events = &self.tools.writes.events;
            events.record(&on, EventType::Warning, reason, text);
        }
        self.pool.observe(name, now)
    }

    pub(in crate::controllers::service) fn nodes_changed(&mut self, changes: &[Change<Node>]) {
        let mut relevant = false;
        for change in changes {
            relevant |= match (&change.new, &change.old) {
                (Some(node), _) => self.observe(node),
                (None, Some(old)) => {
                    let name = old.metadata.name.as_deref().unwrap_or_default();
                    self.too_large.remove(name);
                    self.pool.observe(name, None)
                }
                (None, None) => false,
            };
        }
        if relevant {
            self.pool.changed(Instant::now());
        }
    }

    /// Nodes have settled: makes the sets anew, once for all Services (▲S12).
    pub(in crate::controllers::service) fn nodes_settled(&mut self) {
        let cut = self.pool.settle(&self.ledger.selectors());
        for (selector, set) in cut {
            self.tell_cut(&selector, &set);
        }
        // Also where no set changed: a Service may have got one in between that has settled differently.
        self.sets_changed();
        self.doubt();
    }

    /// That a set is cut is told also where no call follows from it.
    fn tell_cut(&mut self, selector: &NodeSelector, set: &TargetSet) {
        let ignores = self.capability();
        if ignores.is_some_and(|it| it.ignores_nodes) {
            return;
        }
        for service in self.ledger.tell_cut(selector) {
            let note = notes::targets_cut(set, &service);
            let (on, events) = (service_reference(&service), &self.tools.writes.events);
            events.record(&on, note.kind, &note.reason, note.message);
        }
    }

    /// Queues the Services whose targets are others now, and only those.
    fn sets_changed(&mut self) {
        let ignores = self
            .capability()
            .is_some_and(|capability| capability.ignores_nodes);
        if ignores {
            return;
        }
        let tasks: BTreeSet<_> = self
            .ledger
            .retargeted(&self.pool.sets)
            .into_iter()
            .collect();
        for task in &tasks {
            self.queue.add(task.clone());
        }
        if !tasks.is_empty() {
            let started = self.round.take().map_or_else(Instant::now, |(at, _)| at);
            self.round = Some((started, tasks));
        }
    }

    fn max_targets(&self) -> usize {
        self.capability()
            .and_then(|capability| capability.max_targets)
            .map_or(0, |max| max as usize)
    }

    /// When the API server is to be asked again about a set.
    pub(in crate::controllers::service) fn doubt_at(&self) -> Option<Instant> {
        let free = self.recheck.is_empty() && self.session.is_some();
        self.pool.sets.next_ask().filter(|_| free)
    }

    /// Asks the API server about the sets that shrank to empty: one question at a time, which waits for nobody's next one.
    pub(in crate::controllers::service) fn doubt(&mut self) {
        if !self.recheck.is_empty() {
            return;
        }
        let selectors = self.pool.sets.to_ask(Instant::now());
        let Some(session) = self.session.clone().filter(|_| !selectors.is_empty()) else {
            return;
        };
        let provider = Arc::clone(&self.tools.provider);
        let client = self.tools.writes.client.clone();
        self.recheck.spawn(async move {
            let eligible: Arc<dyn Fn(&Node) -> bool + Send + Sync> =
                Arc::new(move |node| is_target(node, &session, &provider));
            let result = still_empty(client, selectors.clone(), eligible).await;
            (selectors, result)
        });
    }

    pub(in crate::controllers::service) fn rechecked(
        &mut self,
        verdict: Result<Rechecked, JoinError>,
    ) {
        let provider = Arc::clone(&self.tools.provider);
        match verdict {
            Ok((asked, Ok(empty))) => {
                let mut changed = false;
                for selector in &empty {
                    changed |= self.pool.sets.confirm_empty(selector);
                }
                if changed {
                    self.sets_changed();
                }
                if self.ask_again(&asked) {
                    warn!(%provider, "the watch shows no target where the API server has some: targets stay as they are");
                }
            }
            Ok((asked, Err(error))) => {
                self.ask_again(&asked);
                warn!(%provider, %error, selectors = asked.len(), retry_in_ms = millis(RECHECK_AGAIN), "cannot read the Nodes: an empty target set is not believed, load balancers keep the targets that they have");
            }
            Err(error) => {
                let asked = self.pool.sets.to_ask(Instant::now());
                self.ask_again(&asked);
                error!(%provider, %error, "reading the Nodes broke off");
            }
        }
        self.doubt();
    }

    /// Says whether any of these is still in doubt.
    fn ask_again(&mut self, asked: &[NodeSelector]) -> bool {
        let again = Instant::now() + RECHECK_AGAIN;
        let mut any = false;
        for selector in asked {
            any |= self.pool.sets.ask_again(selector, again);
        }
        any
    }
}

fn is_target(node: &Node, session: &Session, provider: &str) -> bool {
    let scope = load_balancers(session)
        .map(cloud_provider_api::v1alpha1::LoadBalancerCapability::target_scope)
        .unwrap_or_default();
    let owned = session.ownership.node_owner(node) == NodeOwner::Provider(provider);
    eligible(node, scope, owned)
}
