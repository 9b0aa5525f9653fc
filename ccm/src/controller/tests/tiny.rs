//! A made-up controller: it labels each Node with its instance type. `docs/architecture.md` walks
//! through it.

use std::sync::Arc;
use std::time::Duration;

use cloud_provider_api::v1alpha1 as api;
use k8s_openapi::api::core::v1::Node;

use super::super::{Batch, Driver, LoopContext, Reconciler, Spec, Wake, Width, changes, hints};
use crate::cluster::Change;
use crate::core::{Backoff, Key};
use crate::provider::{CallError, Capability, Hint, ProviderStatus, Session};
use crate::queue::Requeue;
use crate::writes::{EventType, NodePatch, WriteError};

pub(super) const LABEL: &str = "example.org/size";

pub(super) struct Tiny {
    pub(super) driver: Driver<String>,
    pub(super) width: Width,
}

impl Tiny {
    pub(super) fn new(context: LoopContext, width: Width) -> Self {
        let spec = Spec {
            name: "tiny-controller",
            queue: "tiny",
            backoff: Backoff::new(Duration::from_secs(1), Duration::from_mins(1)),
            needs: Capability::Instances,
        };
        let driver = Driver::new(context, spec);
        Self { driver, width }
    }

    /// The Node, if there is something to do for it.
    fn node(&self, name: &str) -> Option<Arc<Node>> {
        let node = self.driver.context.cluster.nodes.get(&Key::node(name));
        node.filter(|node| !is_labelled(node))
    }

    async fn write(&self, node: &Node, instance: api::Instance) -> Requeue {
        let size = instance.instance_type.into_iter();
        let patch = NodePatch {
            labels: size.map(|size| (LABEL.to_owned(), size)).collect(),
            ..NodePatch::default()
        };
        match self.driver.context.writes.patch_node(node, &patch).await {
            Ok(_) | Err(WriteError::Gone) => Requeue::Forget,
            Err(_) => Requeue::Retry,
        }
    }

    fn failed(&self, node: &Node, trouble: &CallError, batch: &Batch<'_, String>) {
        if batch.failed(&name(node), trouble).event {
            let writes = &self.driver.context.writes;
            writes.node_event(node, EventType::Warning, "SizeUnknown", trouble.why());
        }
    }
}

impl Reconciler for Tiny {
    type Key = String;

    fn driver(&self) -> &Driver<String> {
        &self.driver
    }

    async fn sources(&self) {
        let about = |hint: &Hint| match hint {
            Hint::Instance { node_name, .. } => vec![node_name.clone()],
            _ => Vec::new(),
        };
        let gap = Duration::from_secs(5);
        tokio::join!(
            changes(&self.driver, &self.driver.context.cluster.nodes, wakes),
            hints(&self.driver, Duration::ZERO, gap, about),
        );
    }

    fn renewed(&self, _: &Arc<Session>, _: &ProviderStatus) -> Vec<String> {
        // Another version of the provider may know Nodes that the last version did not.
        let nodes = self.driver.context.cluster.nodes.all();
        nodes.iter().map(|node| name(node)).collect()
    }

    fn width(&self, _: &Arc<Session>) -> Width {
        self.width
    }

    async fn reconcile(&self, session: &Arc<Session>, batch: &Batch<'_, String>) {
        let mut nodes = Vec::new();
        for name in batch.keys() {
            match self.node(&name) {
                Some(node) => nodes.push(node),
                None => batch.settle(&name, Requeue::Forget),
            }
        }
        if nodes.is_empty() {
            return;
        }
        let (asked, stop): (Vec<&Node>, _) = (
            nodes.iter().map(|node| &**node).collect(),
            &self.driver.context.stop,
        );
        let facets = [api::InstanceFacet::Metadata];
        let call = session.lookup_instances(&asked, &facets, Duration::ZERO);
        // Dropping a read is safe: the batch returns its unsettled keys to the queue.
        let Some(answers) = stop.run_until_cancelled(call).await else {
            return;
        };
        let answers = answers.unwrap_or_else(|trouble| vec![Err(trouble); asked.len()]);
        // From here on the keys count as writes, and the next batch may call.
        let answers: Vec<_> = answers
            .into_iter()
            .map(|it| (it, self.driver.writing()))
            .collect();
        batch.called();
        for (node, (answer, _writing)) in asked.into_iter().zip(answers) {
            match answer {
                Ok(_) if stop.is_cancelled() => return,
                Ok(instance) => {
                    batch.answered(&name(node));
                    batch.settle(&name(node), self.write(node, instance).await);
                }
                Err(trouble) => self.failed(node, &trouble, batch),
            }
        }
    }
}

fn wakes(change: &Change<Node>) -> Option<Wake<String>> {
    match (&change.old, &change.new) {
        (_, Some(node)) => (!is_labelled(node)).then(|| Wake::Due(name(node))),
        (Some(node), None) => Some(Wake::Gone(name(node))),
        (None, None) => None,
    }
}

pub(super) fn is_labelled(node: &Node) -> bool {
    let labels = node.metadata.labels.as_ref();
    labels.is_some_and(|labels| labels.contains_key(LABEL))
}

fn name(node: &Node) -> String {
    node.metadata.name.clone().unwrap_or_default()
}
