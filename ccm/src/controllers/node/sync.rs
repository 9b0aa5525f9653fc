//! From a batch of Nodes to their writes.

mod conclude;
mod write;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use cloud_provider_api::v1alpha1 as api;
use futures::stream::{self, StreamExt};
use k8s_openapi::api::core::v1::Node;

use super::plan;
use super::{Worker, claims, name};
use crate::controller::Batch;
use crate::core::lock;
use crate::provider::Session;
use crate::provider::lookup::{self, Called, Lookup};

/// The facets that the node controller requests.
const FACETS: [api::InstanceFacet; 2] =
    [api::InstanceFacet::Existence, api::InstanceFacet::Metadata];
/// The RPC that looks Nodes up.
const RPC: &str = "LookupInstances";

impl Worker {
    /// Looks these Nodes up and writes the changes. It settles the keys of those with the taint.
    pub(super) async fn sync(
        &self,
        session: &Arc<Session>,
        nodes: Vec<Arc<Node>>,
        max_age: Duration,
        batch: &Batch<'_, String>,
    ) {
        let (_, permits) = self.lookups(session);
        let lookups = lookup::answers(self.isolated.batches(nodes, session.max_batch()), |nodes| {
            let (session, permits) = (Arc::clone(session), Arc::clone(&permits));
            async move {
                // The semaphore is never closed.
                let _permit = permits.acquire().await;
                let asked: Vec<&Node> = nodes.iter().map(|node| &**node).collect();
                let outcome = session.lookup_instances(&asked, &FACETS, max_age).await;
                (nodes, outcome) as Called<api::Instance>
            }
        });
        let over = stream::once(async move {
            batch.called();
            Vec::new()
        });
        // The stop drops lookups, but not writes.
        lookups
            .take_until(self.driver.context.stop.cancelled())
            .chain(over)
            .for_each_concurrent(None, |found| self.apply(session, found, batch))
            .await;
    }

    /// Handles the answer of one call.
    async fn apply(
        &self,
        session: &Arc<Session>,
        mut found: Vec<Lookup<api::Instance>>,
        batch: &Batch<'_, String>,
    ) {
        if let Some(Lookup {
            node,
            answer: Err(trouble),
            whole: true,
            ..
        }) = found.first()
        {
            let (provider, error, nodes) = (&self.driver.context.provider, trouble, found.len());
            let call_id = trouble.call_id();
            tracing::warn!(%provider, rpc = RPC, call_id, nodes, first = name(node), %error, "Node lookup failed");
        }
        claims::refuse_what_is_given_twice(&mut found, (self.driver.context.wall)());
        let offered = session.info.capabilities.as_ref();
        let zones = offered.is_some_and(|offered| offered.zones.is_some());
        let lacks = |found: &Lookup<api::Instance>| {
            zones && found.answer.as_ref().is_ok_and(plan::lacks_zone)
        };
        let (lacking, found): (Vec<_>, Vec<_>) = found.into_iter().partition(lacks);
        self.isolated.learn(&found);
        tokio::join!(
            self.settle_all(session, found, batch),
            self.add_zones(session, lacking, batch),
        );
    }

    /// Writes the changes for these Nodes.
    async fn settle_all(
        &self,
        session: &Session,
        found: Vec<Lookup<api::Instance>>,
        batch: &Batch<'_, String>,
    ) {
        let found = found.into_iter();
        let found: Vec<_> = found.map(|it| (it, self.driver.writing())).collect();
        stream::iter(found)
            .for_each_concurrent(None, |(lookup, writing)| async move {
                // The semaphore is never closed.
                let _permit = self.writers.acquire().await;
                // The next leader writes it.
                if self.driver.context.stop.is_cancelled() {
                    return;
                }
                self.settle(&session.info.provider_id_prefixes, lookup, batch)
                    .await;
                drop(writing);
            })
            .await;
    }

    /// Adds zones and regions that the metadata lacks. It settles each call's Nodes when the call
    /// is answered.
    async fn add_zones(
        &self,
        session: &Arc<Session>,
        lacking: Vec<Lookup<api::Instance>>,
        batch: &Batch<'_, String>,
    ) {
        let nodes: Vec<Arc<Node>> = lacking
            .iter()
            .map(|found| Arc::clone(&found.node))
            .collect();
        let mut lacking: BTreeMap<String, Lookup<api::Instance>> = lacking
            .into_iter()
            .map(|found| (name(&found.node).to_owned(), found))
            .collect();
        let (_, permits) = self.lookups(session);
        lookup::answers(vec![nodes], |nodes| {
            let (session, permits) = (Arc::clone(session), Arc::clone(&permits));
            async move {
                // The semaphore is never closed.
                let _permit = permits.acquire().await;
                let asked: Vec<&Node> = nodes.iter().map(|node| &**node).collect();
                let outcome = session.lookup_zones(&asked).await;
                (nodes, outcome) as Called<api::Zone>
            }
        })
        .take_until(self.driver.context.stop.cancelled())
        .map(|zones| {
            // A Node that made its call fail is looked up alone from now on.
            self.isolated.learn(&zones);
            let with_zone = zones.into_iter().filter_map(|zone| {
                let found = lacking.remove(name(&zone.node))?;
                let answer = found.answer;
                Some(Lookup {
                    answer: answer.and_then(|i| plan::with_zone(&found.node, i, zone.answer)),
                    ..found
                })
            });
            with_zone.collect()
        })
        .for_each_concurrent(None, |found| self.settle_all(session, found, batch))
        .await;
    }

    /// Writes the changes for one Node.
    pub(super) async fn settle(
        &self,
        prefixes: &[String],
        lookup: Lookup<api::Instance>,
        batch: &Batch<'_, String>,
    ) {
        let key = name(&lookup.node).to_owned();
        let asked = lock(&self.asked).remove(&key);
        let took = asked.map(|since| since.elapsed());
        let (node, report) = match self.write(prefixes, &lookup.node, &lookup.answer).await {
            Ok((node, plan)) => {
                let report = self.conclude(&node, plan, took, batch);
                (node, report)
            }
            Err(error) => {
                let (outcome, report) = Self::excuse(&error);
                batch.settle(&key, outcome);
                (Arc::clone(&lookup.node), report)
            }
        };
        if let Some(report) = report {
            self.report(&node, &report, lookup.whole);
        }
    }
}
