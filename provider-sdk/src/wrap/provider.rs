//! ProviderService: identity, initialisation, health and hints.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use futures::stream::{self, StreamExt};
use tokio::sync::mpsc;
use tokio_util::sync::{CancellationToken, DropGuard};
use tonic::{Request, Response, Status};
use tracing::Instrument;

use cloud_provider_api::v1alpha1::initialize_response::Outcome;
use cloud_provider_api::v1alpha1::provider_service_server::ProviderService;
use cloud_provider_api::v1alpha1::watch_changes_response::Change as ChangeTo;
use cloud_provider_api::v1alpha1::{self as pb};

use super::limits::{ID_BYTES, NAME_BYTES, batch_of, fault, fits};
use super::run::{Ready, Task, cluster_of, died};
use super::{Parts, Wrap, convert};
use crate::{
    Call, Change, Failure, HealthState, Hints, InitializeRequest, Initialized, NodeFieldGroup,
    NodeProjection, Provider, ServiceFeature, TargetScope,
};

/// The most unread hints.
const HINTS: usize = 128;

#[tonic::async_trait]
impl ProviderService for Wrap {
    async fn get_provider_info(
        &self,
        request: Request<pb::GetProviderInfoRequest>,
    ) -> Result<Response<pb::GetProviderInfoResponse>, Status> {
        let request = request.into_inner();
        tracing::info!(
            controller_version = request.controller_version,
            contract_minor = request.contract_minor,
            "a controller called GetProviderInfo"
        );
        let (info, capabilities) = self.0.inline("GetProviderInfo", |provider| {
            (provider.info(), capabilities(provider))
        })?;
        Ok(Response::new(pb::GetProviderInfoResponse {
            provider_name: info.name,
            provider_version: info.version,
            contract_minor: pb::CONTRACT_MINOR,
            min_controller_minor: info.min_controller_minor,
            boot_id: self.0.boot_id.clone(),
            provider_id_prefixes: info.provider_id_prefixes,
            max_request_bytes: Some(self.0.max_message_bytes as u64),
            capabilities: Some(capabilities),
            node_projection: Some(projection(info.node_projection)),
        }))
    }

    async fn initialize(
        &self,
        request: Request<pb::InitializeRequest>,
    ) -> Result<Response<pb::InitializeResponse>, Status> {
        let (metadata, _, request) = request.into_parts();
        let core = Arc::clone(&self.0);
        let initialized = match cluster_of(request.cluster) {
            Err(failure) => Err(failure),
            Ok(cluster) => {
                let read_only = request.read_only;
                let ready = Arc::new(Ready {
                    cluster,
                    previous_owner_ids: request.previous_owner_ids.into(),
                    read_only,
                });
                let next = Arc::clone(&ready);
                let request = InitializeRequest {
                    cluster_cidrs: request.cluster_cidrs,
                    kubernetes_version: request.kubernetes_version,
                    read_only,
                };
                self.0
                    .run(
                        "Initialize",
                        &metadata,
                        &ready,
                        |provider, call| async move {
                            let _alone = core.initializing.lock().await;
                            let initialized = provider.initialize(&call, &request).await?;
                            let initialized = initialized_to(initialized, read_only)
                                .map_err(|what| fault("Initialize", "cloud_scope", what))?;
                            *core.ready.write().unwrap_or_else(PoisonError::into_inner) =
                                Some(next);
                            Ok::<_, Failure>(initialized)
                        },
                    )
                    .await?
            }
        };
        Ok(Response::new(pb::InitializeResponse {
            outcome: Some(match initialized {
                Ok(initialized) => Outcome::Initialized(initialized),
                Err(failure) => Outcome::Failed(convert::failure(&failure)),
            }),
        }))
    }

    async fn probe(
        &self,
        _: Request<pb::ProbeRequest>,
    ) -> Result<Response<pb::ProbeResponse>, Status> {
        let (health, last) = self.0.inline("Probe", |provider| {
            (provider.health(), provider.last_cloud_success())
        })?;
        let state = match health.state {
            HealthState::Starting => pb::ProbeState::Starting,
            HealthState::Ready => pb::ProbeState::Ready,
            HealthState::Degraded => pb::ProbeState::Degraded,
            HealthState::Broken => pb::ProbeState::Broken,
        };
        Ok(Response::new(pb::ProbeResponse {
            state: state.into(),
            message: convert::text(health.message),
            boot_id: self.0.boot_id.clone(),
            last_cloud_success: last.max(self.0.contact.last()).map(Into::into),
        }))
    }

    type WatchChangesStream = Parts<pb::WatchChangesResponse>;

    async fn watch_changes(
        &self,
        request: Request<pb::WatchChangesRequest>,
    ) -> Result<Response<Self::WatchChangesStream>, Status> {
        let request = request.into_inner();
        let ready = match self.0.admit(request.cluster) {
            Ok(ready) => ready,
            Err(failure) => {
                let refused = stream::iter([Ok(failed_to(&failure))]);
                return Ok(Response::new(refused.boxed()));
            }
        };
        let ended = self.0.streams.child_token();
        let call = Call::new(
            "WatchChanges",
            ready.cluster.clone(),
            ready.previous_owner_ids.clone(),
            None,
            ended.clone(),
            self.0.contact.clone(),
        );
        let (sender, hints) = mpsc::channel(HINTS);
        let provider = Arc::clone(&self.0.provider);
        let watching = async move {
            let Some(changes) = provider.changes() else {
                return Err(super::not_offered("WatchChanges"));
            };
            changes
                .watch(&call, &request.resume_token, &Hints { sender })
                .await
        };
        let task = tokio::spawn(watching.in_current_span());
        let watch = Watch {
            hints,
            task: Some(Task(task)),
            last: None,
            _end: ended.drop_guard(),
            stop: self.0.streams.clone(),
        };
        let span = tracing::Span::current();
        let next = move |watch| next_hint(watch).instrument(span.clone());
        Ok(Response::new(stream::unfold(Some(watch), next).boxed()))
    }
}

/// One open WatchChanges.
struct Watch {
    hints: mpsc::Receiver<(Option<Change>, String)>,
    /// The vendor's method, while it runs.
    task: Option<Task<Result<(), Failure>>>,
    /// The stream's last item, once the vendor's method has ended.
    last: Option<Result<pb::WatchChangesResponse, Status>>,
    _end: DropGuard,
    stop: CancellationToken,
}

async fn next_hint(
    watch: Option<Watch>,
) -> Option<(Result<pb::WatchChangesResponse, Status>, Option<Watch>)> {
    let mut watch = watch?;
    loop {
        let finished = async {
            match &mut watch.task {
                Some(task) => (&mut task.0).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            // At shutdown the stream ends with status OK (PROV-6).
            () = watch.stop.cancelled() => return None,
            hint = watch.hints.recv() => {
                if let Some((change, token)) = hint {
                    return Some((Ok(change_to(change, token)), Some(watch)));
                }
                // The vendor's method has dropped the sender, so its task is about to end.
                if let Some(task) = &mut watch.task {
                    watch.last = finish((&mut task.0).await);
                }
                return watch.last.map(|last| (last, None));
            }
            joined = finished => {
                watch.last = finish(joined);
                watch.task = None;
                // Hints that were sent before are still delivered.
                watch.hints.close();
            }
        }
    }
}

fn finish(
    joined: Result<Result<(), Failure>, tokio::task::JoinError>,
) -> Option<Result<pb::WatchChangesResponse, Status>> {
    match joined {
        Ok(Ok(())) => None,
        Ok(Err(failure)) => {
            tracing::warn!(%failure, "WatchChanges failed");
            Some(Ok(failed_to(&failure)))
        }
        Err(error) => Some(Err(died("WatchChanges", error))),
    }
}

fn failed_to(failure: &Failure) -> pb::WatchChangesResponse {
    pb::WatchChangesResponse {
        resume_token: String::new(),
        change: Some(ChangeTo::Failed(convert::failure(failure))),
    }
}

fn change_to(change: Option<Change>, mut resume_token: String) -> pb::WatchChangesResponse {
    if resume_token.len() > ID_BYTES {
        tracing::error!(
            rpc = "WatchChanges",
            bytes = resume_token.len(),
            "leaving out the provider's resume token: it is longer than 1,024 bytes"
        );
        resume_token.clear();
    }
    let change = change.map(|change| match change {
        Change::Resync => ChangeTo::Resync(pb::Resync {}),
        Change::Instance {
            provider_id,
            node_name,
        } => ChangeTo::Instance(pb::InstanceChange {
            provider_id,
            node_name,
        }),
        Change::LoadBalancer { namespace, name } => {
            ChangeTo::LoadBalancer(pb::LoadBalancerChange { namespace, name })
        }
        Change::Routes => ChangeTo::Routes(pb::RoutesChange {}),
    });
    pb::WatchChangesResponse {
        resume_token,
        change,
    }
}

fn initialized_to(initialized: Initialized, read_only: bool) -> Result<pb::Initialized, String> {
    fits("the cloud scope", &initialized.cloud_scope, NAME_BYTES)?;
    let scope = &initialized.cloud_scope;
    let allowed = |char: char| char.is_ascii_alphanumeric() || " ._:/,@=+-".contains(char);
    if let Some(wrong) = scope.chars().find(|char| !allowed(*char)) {
        return Err(format!(
            "the cloud scope {scope:?} has the character {wrong:?}; letters, digits, spaces and . _ : / , @ = + - are allowed (PROV-9)"
        ));
    }
    convert::optional_at_most(
        "the cluster ID",
        initialized.cluster_id.as_ref(),
        NAME_BYTES,
    )?;
    let hints = initialized.deadlines;
    // A hint is a positive time (PROV-14), and none lowers a deadline. So zero is no hint.
    let hint = |hint: Option<Duration>| {
        let hint = hint.filter(|hint| !hint.is_zero());
        hint.map(convert::duration)
    };
    Ok(pb::Initialized {
        cloud_scope: initialized.cloud_scope,
        cluster_id: initialized.cluster_id,
        deadline_hints: Some(pb::DeadlineHints {
            lookup: hint(hints.lookup),
            list: hint(hints.list),
            load_balancer: hint(hints.load_balancer),
            routes: hint(hints.routes),
        }),
        read_only,
    })
}

/// The capabilities, from the implemented traits.
fn capabilities(provider: &dyn Provider) -> pb::Capabilities {
    pb::Capabilities {
        instances: provider.instances().map(|instances| {
            let options = instances.options();
            pb::InstanceCapability {
                max_batch: Some(batch_of(options.max_batch)),
                listing: instances.listing().is_some(),
                power_state: options.power_state,
                max_in_flight: Some(options.max_in_flight),
            }
        }),
        zones: provider.zones().map(|_| pb::ZoneCapability {}),
        load_balancers: provider.load_balancers().map(|load_balancers| {
            let options = load_balancers.options();
            let scope = match options.target_scope {
                TargetScope::Owned => pb::TargetScope::Owned,
                TargetScope::All => pb::TargetScope::All,
            };
            pb::LoadBalancerCapability {
                classes: options.classes,
                default_class: options.default_class,
                listing: load_balancers.listing().is_some(),
                in_sync: options.in_sync,
                ignores_nodes: options.ignores_nodes,
                target_scope: scope.into(),
                max_targets: options.max_targets,
                features: options
                    .features
                    .into_iter()
                    .map(|feature| feature_to(feature).into())
                    .collect(),
                max_in_flight: Some(options.max_in_flight),
                target_projection: Some(projection(options.target_projection)),
            }
        }),
        routes: provider.routes().map(|routes| {
            let options = routes.options();
            pb::RouteCapability {
                max_batch: Some(batch_of(options.max_batch)),
                tracks_node_addresses: options.tracks_node_addresses,
                max_in_flight: Some(options.max_in_flight),
            }
        }),
        clusters: provider.clusters().map(|_| pb::ClusterCapability {}),
        volumes: provider.volumes().map(|volumes| {
            let options = volumes.options();
            pb::VolumeCapability {
                source_types: options.source_types,
                max_in_flight: Some(options.max_in_flight),
            }
        }),
        changes: provider.changes().map(|_| pb::ChangeCapability {}),
    }
}

fn feature_to(feature: ServiceFeature) -> pb::ServiceFeature {
    match feature {
        ServiceFeature::SourceRanges => pb::ServiceFeature::SourceRanges,
        ServiceFeature::SessionAffinity => pb::ServiceFeature::SessionAffinity,
        ServiceFeature::ExternalTrafficPolicyLocal => {
            pb::ServiceFeature::ExternalTrafficPolicyLocal
        }
        ServiceFeature::Udp => pb::ServiceFeature::Udp,
        ServiceFeature::Sctp => pb::ServiceFeature::Sctp,
        ServiceFeature::DualStack => pb::ServiceFeature::DualStack,
        ServiceFeature::IpMode => pb::ServiceFeature::IpMode,
        ServiceFeature::LoadBalancerIp => pb::ServiceFeature::LoadBalancerIp,
        ServiceFeature::AppProtocol => pb::ServiceFeature::AppProtocol,
    }
}

fn projection(projection: NodeProjection) -> pb::NodeProjection {
    let group = |group| match group {
        NodeFieldGroup::PodCidrs => pb::NodeFieldGroup::PodCidrs,
        NodeFieldGroup::Taints => pb::NodeFieldGroup::Taints,
        NodeFieldGroup::NodeInfo => pb::NodeFieldGroup::NodeInfo,
        NodeFieldGroup::Readiness => pb::NodeFieldGroup::Readiness,
        NodeFieldGroup::CreationTime => pb::NodeFieldGroup::CreationTime,
    };
    pb::NodeProjection {
        label_keys: projection.label_keys,
        all_labels: projection.all_labels,
        annotation_keys: projection.annotation_keys,
        field_groups: projection
            .field_groups
            .into_iter()
            .map(|wanted| group(wanted).into())
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DeadlineHints;

    #[test]
    fn prov_14_a_deadline_hint_of_zero_is_no_hint() {
        let hints = DeadlineHints {
            lookup: Some(Duration::ZERO),
            list: Some(Duration::from_nanos(1)),
            load_balancer: Some(Duration::ZERO),
            routes: None,
        };
        let told = initialized_to(Initialized::new("account").deadlines(hints), false);
        let told = told.unwrap().deadline_hints.unwrap();
        assert_eq!((told.lookup, told.load_balancer), (None, None));
        assert_eq!(
            told.list.map(|hint| (hint.seconds, hint.nanos)),
            Some((0, 1))
        );
        assert_eq!(told.routes, None);
    }
}
