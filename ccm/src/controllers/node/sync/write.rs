//! From an answer to the writes of one Node.

use std::collections::BTreeSet;
use std::sync::Arc;

use cloud_provider_api::v1alpha1 as api;
use k8s_openapi::api::core::v1::Node;

use super::super::plan::{self, Known, NodePlan};
use super::super::{Worker, name};
use crate::provider::CallError;
use crate::writes::WriteError;

/// The most attempts for a Node that somebody else writes in between.
const ATTEMPTS: usize = 5;

impl Worker {
    /// Plans and writes. After a conflict, it reads the Node and plans again. Returns the last
    /// version of the Node, and the last plan for it.
    pub(super) async fn write(
        &self,
        prefixes: &[String],
        node: &Arc<Node>,
        answer: &Result<api::Instance, CallError>,
    ) -> Result<(Arc<Node>, NodePlan), WriteError> {
        let mut node = Arc::clone(node);
        let mut managed = self.managed.of(&node);
        // An answer with another Node's ID counts as failed.
        let mut refused = None;
        for _ in 0..ATTEMPTS {
            let answer = refused.as_ref().unwrap_or(answer);
            let planned = |node: &Node, managed: Option<&BTreeSet<String>>| {
                plan::changes(node, answer, Known { prefixes, managed })
            };
            let mut plan = planned(&node, managed.as_deref());
            if plan.needs_managed {
                node = self.read(&node).await?;
                managed = Some(self.managed.learn(&node));
                plan = planned(&node, managed.as_deref());
            }
            if let Err(trouble) = self.claim_planned(&node, &plan) {
                refused = Some(Err(trouble));
                continue;
            }
            let again = |node: &Node| planned(node, managed.as_deref());
            let outcome = self.patch(&mut node, &mut plan, again).await;
            match outcome {
                Ok(()) => return Ok((node, plan)),
                Err(WriteError::Conflict) => {
                    node = self.read(&node).await?;
                    managed = self.managed.of(&node);
                }
                Err(error) => {
                    // The claim goes if nothing was written. Without an answer that is unknown, so
                    // the claim stays until the next attempt.
                    if matches!(error, WriteError::Refused(_) | WriteError::Gone) {
                        self.claims.settled(name(&node));
                    }
                    return Err(error);
                }
            }
        }
        self.claims.settled(name(&node));
        Err(WriteError::Conflict)
    }

    /// Writes a plan, the status first. Then `node` and `plan` are what they are after it: the main patch carries the resourceVersion.
    async fn patch(
        &self,
        node: &mut Arc<Node>,
        plan: &mut NodePlan,
        planned_again: impl Fn(&Node) -> NodePlan,
    ) -> Result<(), WriteError> {
        let writes = &self.driver.context.writes;
        if let Some(status) = &plan.status {
            if let Some(addresses) = &status.addresses
                && plan::is_uninitialized(node)
            {
                let written = addresses.clone();
                self.addressed().insert(name(node).to_owned(), written);
            }
            let fresh = writes.patch_node_status(node, status).await?;
            *node = Arc::new(fresh);
            *plan = planned_again(node);
        }
        if let Some(main) = &plan.main {
            self.managed.forget(node);
            writes.patch_node(node, main).await?;
        }
        Ok(())
    }

    /// Claims the ID that the plan gives the Node.
    fn claim_planned(&self, node: &Node, plan: &NodePlan) -> Result<(), CallError> {
        let main = plan.main.as_ref();
        let Some(id) = main.and_then(|main| main.provider_id.as_deref()) else {
            // An earlier answer no longer counts: the machine may have come back as another Node.
            self.claims.settled(name(node));
            return Ok(());
        };
        let nodes = &self.driver.context.cluster.nodes;
        let wall = (self.driver.context.wall)();
        self.claims.claim(node, id, nodes, wall)
    }

    /// The same Node from the API server. `Gone` if it now belongs to another provider.
    async fn read(&self, node: &Node) -> Result<Arc<Node>, WriteError> {
        let fresh = self.driver.context.writes.read_node(name(node)).await?;
        let same = fresh.filter(|fresh| fresh.metadata.uid == node.metadata.uid);
        let same = same.filter(|fresh| {
            let session = self.session();
            session.is_none_or(|session| {
                session
                    .ownership
                    .concerns(&self.driver.context.provider, fresh)
            })
        });
        same.map(Arc::new).ok_or(WriteError::Gone)
    }
}
