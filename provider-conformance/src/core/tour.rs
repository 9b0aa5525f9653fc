//! The RPCs of all services except ProviderService, each with a valid request.

use std::time::Duration;

use cloud_provider_api::v1alpha1::{self as pb, FailureCode};
use pb::InstanceFacet;
use pb::ensure_load_balancer_response::Outcome as Ensured;
use tokio::time::Instant;

use super::super::call::{Exchange, Listed, ListingPart, Part, Rpc, shown};
use super::super::check::{Stop, Verdict, cut};
use super::super::run::{Run, targets};
use super::super::session::Session;

/// A service of the contract.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Service {
    Instances,
    Zones,
    LoadBalancers,
    Routes,
    Clusters,
    Volumes,
}

impl Service {
    pub(super) const ALL: [Self; 6] = [
        Self::Instances,
        Self::Zones,
        Self::LoadBalancers,
        Self::Routes,
        Self::Clusters,
        Self::Volumes,
    ];

    pub(super) fn is_offered(self, by: &pb::Capabilities) -> bool {
        match self {
            Self::Instances => by.instances.is_some(),
            Self::Zones => by.zones.is_some(),
            Self::LoadBalancers => by.load_balancers.is_some(),
            Self::Routes => by.routes.is_some(),
            Self::Clusters => by.clusters.is_some(),
            Self::Volumes => by.volumes.is_some(),
        }
    }
}

/// The common parts of an RPC's answer.
#[derive(Debug)]
pub(in super::super) struct Told {
    pub(in super::super) rpc: &'static str,
    pub(super) sent: String,
    /// The failures of the call and of its items. `Err`: a gRPC status.
    pub(in super::super) failures: Result<Vec<pb::Failure>, tonic::Status>,
    /// Whether the call failed, or each of its items did.
    pub(super) failed: bool,
    pub(super) came: String,
    /// The whole answer, to search in.
    pub(super) whole: String,
}

impl Told {
    fn of<T: std::fmt::Debug>(
        asked: &Exchange<T>,
        failures: impl FnOnce(&T) -> (Vec<pb::Failure>, bool),
    ) -> Self {
        let (came, whole) = match &asked.came {
            Ok(answer) => (cut(&format_args!("{answer:?}")), format!("{answer:?}")),
            Err(status) => (shown(status), format!("{status:?}")),
        };
        let (failures, failed) = match &asked.came {
            Ok(answer) => {
                let (failures, failed) = failures(answer);
                (Ok(failures), failed)
            }
            Err(status) => (Err(status.clone()), true),
        };
        Self {
            rpc: asked.rpc,
            sent: asked.sent(),
            failures,
            failed,
            came,
            whole,
        }
    }

    /// Fails unless the call or each item failed, and only with these codes.
    pub(in super::super) fn must_fail(&self, rule: &str, codes: &[FailureCode]) -> Verdict {
        let ours = |failures: &Vec<pb::Failure>| {
            failures
                .iter()
                .all(|failure| codes.contains(&failure.code()))
        };
        let names: Vec<_> = codes.iter().map(FailureCode::as_str_name).collect();
        self.must(
            self.failed && self.failures.as_ref().is_ok_and(ours),
            rule,
            format!(
                "`failed` with {}, in an answer with gRPC status OK",
                names.join(" or ")
            ),
        )
    }

    pub(in super::super) fn must(&self, holds: bool, rule: &str, expected: String) -> Verdict {
        if holds {
            Ok(())
        } else {
            Err(Stop::failed(rule, &self.sent, expected, &self.came))
        }
    }

    /// The gRPC status instead of an answer.
    pub(in super::super) fn status(&self) -> Option<&tonic::Status> {
        self.failures.as_ref().err()
    }
}

pub(super) fn unary<T: super::super::call::Answer>(asked: &Exchange<T>) -> Told {
    Told::of(asked, |answer| {
        let failures: Vec<_> = answer.failed().cloned().into_iter().collect();
        let failed = !failures.is_empty();
        (failures, failed)
    })
}

pub(super) fn listed<P: ListingPart>(asked: &Exchange<Listed<P>>) -> Told {
    let mut told = Told::of(asked, |listed| {
        let last = listed.parts.last().cloned().map(ListingPart::part);
        match last {
            Some(Part::Failed(failure)) => (vec![failure], true),
            _ => (Vec::new(), false),
        }
    });
    if let Ok(Listed {
        status: Some((code, message)),
        ..
    }) = &asked.came
    {
        told.failures = Err(tonic::Status::new(*code, message));
        told.failed = true;
    }
    told
}

macro_rules! items {
    ($asked:expr, $outcome:path) => {
        Told::of(&$asked, |answer| {
            if let Some(failure) = &answer.failed {
                return (vec![failure.clone()], true);
            }
            let failures: Vec<_> = answer
                .results
                .iter()
                .filter_map(|result| match &result.outcome {
                    Some($outcome(failure)) => Some(failure.clone()),
                    _ => None,
                })
                .collect();
            let failed = !failures.is_empty() && failures.len() == answer.results.len();
            (failures, failed)
        })
    };
}

/// Calls each RPC of a service once, also the mutating ones (with a new load balancer and a new
/// route). It calls ListInstances and ListLoadBalancers only if they are offered.
pub(super) async fn service(run: &Run, session: &Session, service: Service) -> Vec<Told> {
    let mut all = Vec::new();
    match service {
        Service::Instances => {
            let asked = session.call(lookup(run)).await;
            all.push(items!(asked, pb::lookup_instance_result::Outcome::Failed));
            if run.capabilities().instances.is_some_and(|of| of.listing) {
                let request = pb::ListInstancesRequest::default();
                all.push(listed(&session.list(request).await));
            }
        }
        Service::Zones => {
            let asked = session
                .call(pb::LookupZonesRequest {
                    nodes: vec![run.node("zone")],
                    ..Default::default()
                })
                .await;
            all.push(items!(asked, pb::lookup_zone_result::Outcome::Failed));
        }
        Service::LoadBalancers => {
            all.push(unary(&session.call(get_load_balancer(run)).await));
            all.push(unary(&session.call(update(run)).await));
            let of = Some(run.service("tour"));
            let ensure = pb::EnsureLoadBalancerRequest {
                service: of.clone(),
                targets: Some(targets(nodes(run))),
                ..Default::default()
            };
            all.push(unary(&session.call(ensure).await));
            let delete = pb::DeleteLoadBalancerRequest {
                service: of,
                ..Default::default()
            };
            all.push(unary(&session.call(delete).await));
            if run
                .capabilities()
                .load_balancers
                .is_some_and(|of| of.listing)
            {
                let request = pb::ListLoadBalancersRequest::default();
                all.push(listed(&session.list(request).await));
            }
        }
        Service::Routes => {
            let route = route(run);
            all.push(listed(
                &session.list(pb::ListRoutesRequest::default()).await,
            ));
            let asked = session
                .call(pb::CreateRoutesRequest {
                    cluster: None,
                    routes: vec![route.clone()],
                })
                .await;
            all.push(items!(asked, pb::route_result::Outcome::Failed));
            let asked = session
                .call(pb::DeleteRoutesRequest {
                    cluster: None,
                    routes: vec![pb::Route {
                        name: run.name("tour"),
                        ..route
                    }],
                })
                .await;
            all.push(items!(asked, pb::route_result::Outcome::Failed));
        }
        Service::Clusters => {
            all.push(listed(
                &session.list(pb::ListClustersRequest::default()).await,
            ));
            all.push(unary(&session.call(address(run)).await));
        }
        Service::Volumes => all.push(unary(&session.call(volume(run)).await)),
    }
    all
}

/// Calls the RPCs of all offered services.
pub(in super::super) async fn everything(run: &Run, session: &Session) -> Vec<Told> {
    let offered = run.capabilities();
    let mut all = Vec::new();
    for of in Service::ALL {
        if of.is_offered(&offered) {
            all.extend(service(run, session, of).await);
        }
    }
    all
}

pub(super) fn lookup(run: &Run) -> pb::LookupInstancesRequest {
    pb::LookupInstancesRequest {
        nodes: vec![run.node("lookup")],
        facets: vec![
            InstanceFacet::Existence.into(),
            InstanceFacet::Power.into(),
            InstanceFacet::Metadata.into(),
        ],
        ..Default::default()
    }
}

/// Looks up the targets of [`everything`] before the cloud fails. This may initialise the process
/// for this check's own cluster, so call it before all other calls.
pub(super) async fn look_up_targets(run: &Run) -> Verdict {
    match run.few_nodes().await {
        // The Node of `nodes` then has no instance.
        Ok(_) | Err(Stop::Skipped(_)) => Ok(()),
        Err(stop) => Err(stop),
    }
}

/// The fewest targets for one call: those of [`Run::few_nodes`], if the check has called it. This
/// itself calls nothing, because a check may need the process uninitialised, or the cloud may fail.
/// If suite.yaml has no instance either, the Node has none.
fn nodes(run: &Run) -> Vec<pb::NodeView> {
    if run.takes_empty_sets() {
        return Vec::new();
    }
    if let Some(nodes) = run.few.get() {
        return nodes.clone();
    }
    let known = run.config().instances.first();
    vec![known.map_or_else(|| run.node("tour"), |known| run.node_of(known))]
}

pub(super) fn get_load_balancer(run: &Run) -> pb::GetLoadBalancerRequest {
    pb::GetLoadBalancerRequest {
        service: Some(run.service("tour")),
        ..Default::default()
    }
}

pub(super) fn update(run: &Run) -> pb::UpdateLoadBalancerRequest {
    pb::UpdateLoadBalancerRequest {
        service: Some(run.service("tour")),
        targets: Some(targets(nodes(run))),
        ..Default::default()
    }
}

pub(in super::super) fn route(run: &Run) -> pb::Route {
    pb::Route {
        route_key: "one".into(),
        name_hint: run.uid(),
        destination_cidr: run.cidr(),
        next_hop: Some("10.0.0.9".into()),
        ..Default::default()
    }
}

pub(super) fn address(run: &Run) -> pb::GetControlPlaneAddressRequest {
    pb::GetControlPlaneAddressRequest {
        cluster: None,
        cluster_name: run.name("no-cluster"),
    }
}

pub(super) fn volume(run: &Run) -> pb::GetVolumeLabelsRequest {
    let (source_type, source) = match run.config().volumes.first() {
        Some(known) => (known.source_type.clone(), known.source.clone()),
        None => (
            "csi".to_owned(),
            [
                ("driver".to_owned(), "csi.example".to_owned()),
                ("volumeHandle".to_owned(), run.name("disk")),
            ]
            .into(),
        ),
    };
    pb::GetVolumeLabelsRequest {
        cluster: None,
        volume: Some(pb::VolumeView {
            name: run.name("volume"),
            uid: run.uid(),
            source_type,
            source: source.into_iter().collect(),
            ..Default::default()
        }),
    }
}

/// An encoded request with this session's cluster.
pub(super) fn encoded<R: Rpc>(session: &Session, mut request: R) -> Vec<u8> {
    request.set_cluster(Some(session.cluster().clone()));
    request.encode_to_vec()
}

/// How long a load balancer may be pending.
const MADE: Duration = Duration::from_mins(2);
/// The longest wait between two Ensures.
const LOOK: Duration = Duration::from_millis(200);

/// Repeats Ensure until the load balancer is ready. Returns the last answer.
pub(in super::super) async fn ensure(
    session: &Session,
    service: &pb::ServiceView,
    nodes: Vec<pb::NodeView>,
) -> Verdict<Exchange<pb::EnsureLoadBalancerResponse>> {
    let until = Instant::now() + MADE;
    let mut handle = None;
    loop {
        let asked = session
            .call(pb::EnsureLoadBalancerRequest {
                service: Some(service.clone()),
                handle: handle.clone(),
                targets: Some(targets(nodes.clone())),
                ..Default::default()
            })
            .await;
        let answer = asked.success("LB-7")?;
        // Absent means unchanged (LB-3).
        handle = answer.handle.clone().or(handle);
        let Some(Ensured::Pending(pending)) = &answer.outcome else {
            let ready = matches!(answer.outcome, Some(Ensured::Ready(_)));
            asked.must(ready, "LB-7", "`ready`")?;
            return Ok(asked);
        };
        asked.must(
            Instant::now() < until,
            "LB-7",
            format_args!("`ready` within {MADE:?}"),
        )?;
        let wait = pending
            .retry_after
            .and_then(|wait| Duration::try_from(wait).ok());
        tokio::time::sleep(wait.unwrap_or(LOOK).min(LOOK)).await;
    }
}
