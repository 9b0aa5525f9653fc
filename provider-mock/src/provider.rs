//! The provider: the SDK's traits on top of the cloud in memory.

mod instances;
mod load_balancers;
mod routes;

pub(crate) use self::load_balancers::status;
pub(crate) use self::routes::{one, wanted};

use std::collections::BTreeMap;
use std::sync::Arc;

use provider_sdk::{
    Answers, Call, Change, Changes, Clusters, Failure, Health, Hints, InitializeRequest,
    Initialized, Instances, LoadBalancers, Node, NodeFieldGroup, NodeProjection, Provider,
    ProviderInfo, Routes, Volume, VolumeOptions, Volumes, Zone, Zones, async_trait,
};

use crate::cloud::{Cloud, State};
use crate::error::CloudError;
use crate::instances::Found;
use crate::load_balancers::{Honest, Marks};
use crate::weather::is_trouble;

/// An honest provider of this cloud.
#[derive(Debug, Clone)]
pub struct MockProvider {
    pub(crate) cloud: Cloud,
    marks: Arc<dyn Marks>,
}

impl MockProvider {
    /// A provider of this cloud.
    pub fn new(cloud: Cloud) -> Self {
        let marks = Arc::new(Honest);
        Self { cloud, marks }
    }

    /// The same provider with other marks on load balancers.
    pub(crate) fn marking(mut self, marks: Arc<dyn Marks>) -> Self {
        self.marks = marks;
        self
    }
}

impl MockProvider {
    /// One operation of the cloud, subject to its weather.
    pub(crate) async fn reach(&self, call: &Call) -> Result<(), Failure> {
        let weather = self.cloud.weather();
        if weather.slow_ms > 0 {
            tokio::time::sleep(weather.delay()).await;
        }
        if let Some(failure) = weather.failure() {
            if !is_trouble(&failure) {
                call.cloud_answered();
            }
            return Err(failure);
        }
        call.cloud_answered();
        Ok(())
    }

    /// The answer of Initialize.
    pub(crate) fn initialized(&self) -> Initialized {
        let settings = self.cloud.settings();
        let mut initialized = Initialized::new(&settings.provider.cloud_scope);
        initialized
            .cluster_id
            .clone_from(&settings.provider.cluster_id);
        initialized
    }

    /// Sends the hints after the hint with the number `last`.
    pub(crate) async fn follow(&self, mut last: u64, hints: &Hints) -> Result<(), Failure> {
        let mut announced = self.cloud.watch_hints();
        loop {
            announced.borrow_and_update();
            if let Some(news) = self.cloud.hints_after(last) {
                for (number, change) in news {
                    hints.send(change, self.cloud.token(number)).await?;
                    last = number;
                }
            } else {
                last = *self.cloud.watch_hints().borrow();
                hints.send(Change::Resync, self.cloud.token(last)).await?;
            }
            if announced.changed().await.is_err() {
                return Ok(());
            }
        }
    }
}

/// If a cloud cannot write its state file, the operation has failed.
pub(crate) fn not_saved(error: &CloudError) -> Failure {
    Failure::internal(error.to_string()).with_reason("StateFileNotWritten")
}

#[async_trait]
impl Provider for MockProvider {
    fn info(&self) -> ProviderInfo {
        let settings = self.cloud.settings();
        let provider = &settings.provider;
        let mut info =
            ProviderInfo::new(&provider.name, &provider.version).node_projection(NodeProjection {
                label_keys: provider.node_labels.clone(),
                field_groups: provider
                    .node_readiness
                    .then_some(NodeFieldGroup::Readiness)
                    .into_iter()
                    .collect(),
                ..NodeProjection::default()
            });
        info.provider_id_prefixes
            .clone_from(&provider.provider_id_prefixes);
        info.min_controller_minor = provider.min_controller_minor;
        info
    }

    async fn initialize(
        &self,
        call: &Call,
        _request: &InitializeRequest,
    ) -> Result<Initialized, Failure> {
        self.reach(call).await?;
        Ok(self.initialized())
    }

    fn health(&self) -> Health {
        let state = self.cloud.state();
        match state.weather.failure().filter(is_trouble) {
            Some(failure) if state.health == Health::ready() => Health::degraded(failure.message()),
            _ => state.health.clone(),
        }
    }

    fn instances(&self) -> Option<&dyn Instances> {
        let offered = self.cloud.settings().capabilities.instances.offered;
        offered.then_some(self as &dyn Instances)
    }

    fn zones(&self) -> Option<&dyn Zones> {
        let offered = self.cloud.settings().capabilities.zones.offered;
        offered.then_some(self as &dyn Zones)
    }

    fn load_balancers(&self) -> Option<&dyn LoadBalancers> {
        let offered = self.cloud.settings().capabilities.load_balancers.offered;
        offered.then_some(self as &dyn LoadBalancers)
    }

    fn routes(&self) -> Option<&dyn Routes> {
        let offered = self.cloud.settings().capabilities.routes.offered;
        offered.then_some(self as &dyn Routes)
    }

    fn clusters(&self) -> Option<&dyn Clusters> {
        let offered = self.cloud.settings().capabilities.clusters.offered;
        offered.then_some(self as &dyn Clusters)
    }

    fn volumes(&self) -> Option<&dyn Volumes> {
        let offered = self.cloud.settings().capabilities.volumes.offered;
        offered.then_some(self as &dyn Volumes)
    }

    fn changes(&self) -> Option<&dyn Changes> {
        let offered = self.cloud.settings().capabilities.changes.offered;
        offered.then_some(self as &dyn Changes)
    }
}

#[async_trait]
impl Zones for MockProvider {
    async fn zone(&self, call: &Call, node: &Node) -> Result<Zone, Failure> {
        self.reach(call).await?;
        Ok(place_of(&self.cloud.state(), node))
    }

    /// One operation of the cloud for all Nodes.
    async fn zone_batch(&self, call: &Call, nodes: &[Node]) -> Result<Answers<Zone>, Failure> {
        self.reach(call).await?;
        let state = self.cloud.state();
        let mut answers = Answers::new();
        for node in nodes {
            answers.set(&node.name, Ok(place_of(&state, node)));
        }
        Ok(answers)
    }
}

/// The place of a Node: the configured one, else its instance's.
fn place_of(state: &State, node: &Node) -> Zone {
    if let Some(place) = state.settings.zones.get(&node.name) {
        return Zone {
            zone: place.zone.clone(),
            region: place.region.clone(),
        };
    }
    let prefixes = &state.settings.provider.provider_id_prefixes;
    let instances = &state.objects.instances;
    match instances.look_up(&node.name, node.provider_id.as_deref(), prefixes) {
        Found::Instance(instance) => Zone {
            zone: instance.zone.clone(),
            region: instance.region.clone(),
        },
        Found::Absent | Found::Pending | Found::Unmanaged => Zone::default(),
    }
}

#[async_trait]
impl Clusters for MockProvider {
    async fn list(&self, call: &Call) -> Result<Vec<String>, Failure> {
        self.reach(call).await?;
        Ok(self.cloud.settings().clusters.keys().cloned().collect())
    }

    async fn control_plane_address(
        &self,
        call: &Call,
        cluster_name: &str,
    ) -> Result<String, Failure> {
        self.reach(call).await?;
        let settings = self.cloud.settings();
        settings.clusters.get(cluster_name).cloned().ok_or_else(|| {
            Failure::not_found(format!("the cloud knows no cluster {cluster_name:?}"))
        })
    }
}

#[async_trait]
impl Volumes for MockProvider {
    async fn labels(
        &self,
        call: &Call,
        volume: &Volume,
    ) -> Result<BTreeMap<String, String>, Failure> {
        self.reach(call).await?;
        let settings = self.cloud.settings();
        let ours = &settings.capabilities.volumes.source_types;
        if !ours.is_empty() && !ours.contains(&volume.source_name()) {
            return Ok(BTreeMap::new());
        }
        let labels = volume
            .source
            .values()
            .find_map(|value| settings.volumes.get(value));
        labels.cloned().ok_or_else(|| {
            Failure::not_found(format!(
                "the cloud knows no disk of volume {:?}",
                volume.name
            ))
        })
    }

    fn options(&self) -> VolumeOptions {
        let settings = self.cloud.settings();
        let offered = &settings.capabilities.volumes;
        VolumeOptions {
            source_types: offered.source_types.clone(),
            max_in_flight: offered.max_in_flight,
        }
    }
}

#[async_trait]
impl Changes for MockProvider {
    async fn watch(&self, _: &Call, resume_token: &str, hints: &Hints) -> Result<(), Failure> {
        let latest = *self.cloud.watch_hints().borrow();
        let known = if resume_token.is_empty() {
            Some(latest)
        } else {
            self.cloud.hint_number(resume_token)
        };
        if let Some(known) = known {
            hints.bookmark(self.cloud.token(known)).await?;
        } else {
            // The resync serves as the bookmark (PROV-21).
            hints.send(Change::Resync, self.cloud.token(latest)).await?;
        }
        self.follow(known.unwrap_or(latest), hints).await
    }
}
