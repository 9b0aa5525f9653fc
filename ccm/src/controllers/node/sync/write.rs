//! From an answer to the writes of one Node.

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
        let writes = &self.driver.context.writes;
        let mut node = Arc::clone(node);
        let mut managed = self.managed.of(&node);
        // An answer with another Node's ID counts as failed.
        let mut refused = None;
        for _ in 0..ATTEMPTS {
            let answer = refused.as_ref().unwrap_or(answer);
            let known = Known {
                prefixes,
                managed: managed.as_deref(),
            };
            let mut plan = plan::changes(&node, answer, known);
            if plan.needs_managed {
                node = self.read(&node).await?;
                managed = Some(self.managed.learn(&node));
                plan = plan::changes(
                    &node,
                    answer,
                    Known {
                        prefixes,
                        managed: managed.as_deref(),
                    },
                );
            }
            let id = plan
                .main
                .as_ref()
                .and_then(|main| main.provider_id.as_deref());
            match id {
                Some(id) => {
                    if let Err(trouble) = self.claim(&node, id) {
                        refused = Some(Err(trouble));
                        continue;
                    }
                }
                // The Node loses the ID of an earlier answer: the machine may have returned as
                // another Node.
                None => self.claims.settled(name(&node)),
            }
            let mut outcome = Ok(());
            if let Some(status) = &plan.status {
                if let Some(addresses) = &status.addresses
                    && plan::is_uninitialized(&node)
                {
                    let written = addresses.clone();
                    self.addressed().insert(name(&node).to_owned(), written);
                }
                match writes.patch_node_status(&node, status).await {
                    // The main patch carries the resourceVersion, so it is planned from the patched
                    // Node.
                    Ok(fresh) => {
                        node = Arc::new(fresh);
                        plan = plan::changes(
                            &node,
                            answer,
                            Known {
                                prefixes,
                                managed: managed.as_deref(),
                            },
                        );
                    }
                    Err(error) => outcome = Err(error),
                }
            }
            if let (Ok(()), Some(main)) = (&outcome, &plan.main) {
                self.managed.forget(&node);
                outcome = writes.patch_node(&node, main).await.map(drop);
            }
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

    fn claim(&self, node: &Node, id: &str) -> Result<(), CallError> {
        let nodes = &self.driver.context.cluster.nodes;
        self.claims
            .claim(node, id, nodes, (self.driver.context.wall)())
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
