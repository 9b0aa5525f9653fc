//! Lookups and listings of instances.

use std::sync::Arc;

use provider_sdk::{
    Answers, Call, Failure, Instance, InstanceFacet, InstanceOptions, InstanceQuery, Instances,
    ListInstances, Node, async_trait,
};

use super::Twisted;
use crate::cloud::Cloud;
use crate::lies::Twist;

impl Twisted {
    /// The Node. With the twist `NameFirst`, it loses its provider ID if the cloud knows its name.
    fn asked(&self, node: &Node) -> Node {
        let mut node = node.clone();
        if self.has(Twist::NameFirst)
            && let Some(named) = self.cloud.instance(&node.name)
            && let Some(id) = node.provider_id.take()
            && id != named.provider_id
        {
            self.cloud.count_lie();
        }
        node
    }

    fn shown(&self, mut instance: Instance) -> Instance {
        if self.has(Twist::TypesBent) {
            let bent = instance.instance_type.as_deref().map(bent);
            if bent != instance.instance_type {
                self.cloud.count_lie();
            }
            instance.instance_type = bent;
        }
        instance
    }
}

#[async_trait]
impl Instances for Twisted {
    async fn lookup(
        &self,
        call: &Call,
        node: &Node,
        query: &InstanceQuery,
    ) -> Result<Instance, Failure> {
        let answer = self.honest.lookup(call, &self.asked(node), query).await;
        Ok(self.shown(answer?))
    }

    async fn lookup_batch(
        &self,
        call: &Call,
        nodes: &[Node],
        query: &InstanceQuery,
    ) -> Result<Answers<Instance>, Failure> {
        if self.is_honest() {
            return self.honest.lookup_batch(call, nodes, query).await;
        }
        let nodes: Vec<Node> = nodes.iter().map(|node| self.asked(node)).collect();
        let honest = if self.has(Twist::LookupsGoOn) {
            // Lookups run one at a time, and a lookup does not end with its call.
            let line = Arc::clone(&self.cloud.mischief().line);
            let (provider, call) = (self.honest.clone(), call.clone());
            let (asked, query) = (nodes.clone(), query.clone());
            let work = tokio::spawn(async move {
                let _turn = line.lock().await;
                provider.lookup_batch(&call, &asked, &query).await
            });
            let mut left = GoesOn(Some(&self.cloud));
            let done = work.await;
            left.0 = None;
            done.unwrap_or_else(|error| Err(Failure::internal(error.to_string())))?
        } else {
            self.honest.lookup_batch(call, &nodes, query).await?
        };
        let twisted = nodes.iter().filter_map(|node| {
            let answer = honest.get(&node.name)?.clone();
            Some((node.name.clone(), answer.map(|found| self.shown(found))))
        });
        Ok(twisted.collect())
    }

    fn options(&self) -> InstanceOptions {
        Instances::options(&self.honest)
    }

    fn listing(&self) -> Option<&dyn ListInstances> {
        let offered = Instances::listing(&self.honest);
        offered.map(|_| self as &dyn ListInstances)
    }
}

#[async_trait]
impl ListInstances for Twisted {
    async fn list(&self, call: &Call, facets: &[InstanceFacet]) -> Result<Vec<Instance>, Failure> {
        let honest = ListInstances::list(&self.honest, call, facets).await?;
        let twisted = honest.into_iter().map(|instance| self.shown(instance));
        Ok(twisted.collect())
    }
}

/// Counts a lie if the call ends before its lookup does.
struct GoesOn<'a>(Option<&'a Cloud>);

impl Drop for GoesOn<'_> {
    fn drop(&mut self) {
        if let Some(cloud) = self.0 {
            cloud.count_lie();
        }
    }
}

/// The text with a dash for each character except ASCII letters, digits and dots, and without
/// dashes and dots at its ends.
fn bent(text: &str) -> String {
    let fits = |c: char| {
        if c.is_ascii_alphanumeric() || c == '.' {
            c
        } else {
            '-'
        }
    };
    let text: String = text.chars().map(fits).collect();
    text.trim_matches(['-', '.']).to_owned()
}
