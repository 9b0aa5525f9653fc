//! Refreshes initialised Nodes every `--node-status-update-frequency` (B-N10 to ▲N12). The batches
//! are planned at regular intervals of at most [`LONGEST_PACE`].

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::{Worker, name, plan};
use crate::core::provider_id;
use crate::ownership::NodeOwner;
use crate::provider::lookup::has_uid;
use crate::provider::{Capability, Session};

/// The longest planned pause between batches of a round. With longer pauses, a Node that joins
/// during a round could wait almost two periods for its first refresh.
const LONGEST_PACE: Duration = Duration::from_secs(2);

impl Worker {
    /// Runs rounds until `stop`.
    pub(super) async fn refresh(self: &Arc<Self>) {
        let (mut tasks, mut alone) = (JoinSet::new(), JoinSet::new());
        let rounds = async {
            // The first round waits for the store's first list.
            self.context().cluster.nodes.synced().await;
            loop {
                self.round(&mut tasks, &mut alone).await;
            }
        };
        self.context().stop.run_until_cancelled(rounds).await;
        for mut tasks in [tasks, alone] {
            while let Some(ended) = tasks.join_next().await {
                self.driver.ended(ended);
            }
        }
    }

    /// `alone` refreshes the isolated Nodes, which may hang. No batch waits for it.
    async fn round(self: &Arc<Self>, tasks: &mut JoinSet<()>, alone: &mut JoinSet<()>) {
        let mut status = self.context().status.clone();
        let Ok(session) = status
            .wait_for(|status| status.usable(Capability::Instances).is_some())
            .await
            .map(|status| status.usable(Capability::Instances))
        else {
            // The sender of the status is gone, so no session will come.
            return std::future::pending().await;
        };
        let Some(session) = session else { return };
        let start = Instant::now();
        let period = self.context().config.node.status_update_frequency;
        let period = period.max(Duration::from_millis(100));

        let all = self.context().cluster.nodes.all();
        {
            let is_there = has_uid(&all);
            self.isolated.keep(&is_there);
            self.managed.keep(&is_there);
        }
        let refreshed = all.iter().filter(|node| self.is_refreshed(&session, node));
        let others = refreshed.filter(|node| !self.isolated.is_alone(*node));
        let names: Vec<String> = others.map(|node| name(node).to_owned()).collect();
        drop(all);
        while let Some(ended) = alone.try_join_next() {
            self.driver.ended(ended);
        }
        if alone.is_empty() {
            let worker = Arc::clone(self);
            alone.spawn(async move { worker.refresh_isolated().await });
        }
        let batches: Vec<&[String]> = names.chunks(session.max_batch().max(1)).collect();
        let pace = period / u32::try_from(batches.len().max(1)).unwrap_or(u32::MAX);
        let pace = pace.min(LONGEST_PACE);
        let most = self.places.refreshes(&session);
        drop(session);
        for (place, names) in batches.into_iter().enumerate() {
            let due = start + pace * u32::try_from(place).unwrap_or(u32::MAX);
            self.wait_until(due, most, tasks).await;
            let worker = Arc::clone(self);
            let names = names.to_vec();
            tasks.spawn(async move { worker.refresh_batch(names).await });
        }
        self.wait_until(start + period, most, tasks).await;
    }

    /// Waits until `due`, and until there is room for another batch.
    async fn wait_until(&self, due: Instant, most: usize, tasks: &mut JoinSet<()>) {
        let sleep = tokio::time::sleep_until(due);
        tokio::pin!(sleep);
        loop {
            tokio::select! {
                biased;
                Some(ended) = tasks.join_next(), if !tasks.is_empty() => self.driver.ended(ended),
                () = &mut sleep, if !sleep.is_elapsed() => {}
                else => return,
            }
            if sleep.is_elapsed() && tasks.len() < most {
                return;
            }
        }
    }

    /// Refreshes the isolated Nodes, a quarter of the lookups at once, in the order of the names.
    /// This may take hours if they hang. So each call is about the Nodes as they are then, and few
    /// of them wait for a place where new Nodes wait too.
    async fn refresh_isolated(&self) {
        let mut last = String::new();
        while let Some(session) = self
            .driver
            .session()
            .filter(|_| !self.context().stop.is_cancelled())
        {
            let few = self.places.hung(&session);
            let all = self.context().cluster.nodes.all();
            let left = all.into_iter().filter(|node| name(node) > last.as_str());
            let isolated = left
                .filter(|node| self.is_refreshed(&session, node) && self.isolated.is_alone(node));
            let next: Vec<Arc<Node>> = isolated.take(few).collect();
            let Some(node) = next.last() else { return };
            name(node).clone_into(&mut last);
            self.refresh_nodes(&session, next).await;
        }
    }

    async fn refresh_batch(&self, names: Vec<String>) {
        // Without a session this round skips the batch. The next round has it again.
        let Some(session) = self.driver.session() else {
            return;
        };
        let nodes: Vec<Arc<Node>> = names
            .iter()
            .filter_map(|name| self.node(name))
            .filter(|node| self.is_refreshed(&session, node) && !self.isolated.is_alone(node))
            .collect();
        if !nodes.is_empty() {
            self.refresh_nodes(&session, nodes).await;
        }
    }

    async fn refresh_nodes(&self, session: &Arc<Session>, nodes: Vec<Arc<Node>>) {
        let max_age = self.context().config.node.status_update_frequency / 2;
        let batch = self.driver.batch(Vec::new());
        self.sync(session, nodes, max_age, &batch).await;
    }

    /// Whether the Node is initialised and has an ID of this provider. The label of a Node without
    /// an ID names a provider, but no machine (▲N15).
    fn is_refreshed(&self, session: &Session, node: &Node) -> bool {
        let ours = NodeOwner::Provider(&self.context().provider);
        !plan::is_uninitialized(node)
            && provider_id(node).is_some()
            && session.ownership.node_owner(node) == ours
    }
}
