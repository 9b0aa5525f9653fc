//! Requests that violate the contract (CORE-20), and codes that an RPC does not list (CORE-21).

use cloud_provider_api::v1alpha1::{self as pb, FailureCode};

use super::super::check::{Check, Verdict, check};
use super::super::hooks::Hook;
use super::super::rules;
use super::super::run::Run;
use super::super::session::Session;
use super::tour::{self, Told};

const INVALID: &[FailureCode] = &[FailureCode::Invalid];
/// The largest batch if the provider states none.
const BATCH: usize = 100;

pub(super) fn checks() -> Vec<Check> {
    vec![
        check!(
            "core/requests-that-break-the-contract-are-invalid",
            ["CORE-20"],
            "requests with too many items, with an item twice or without a required field are `failed` with INVALID as a whole",
            broken
        ),
        check!(
            "core/failures-are-listed",
            ["CORE-21"],
            "no RPC fails with a code that CORE-21 does not allow it",
            listed
        ),
    ]
}

fn size_of(stated: Option<u32>) -> usize {
    stated
        .filter(|most| *most > 0)
        .map_or(BATCH, |most| most as usize)
}

/// A batch with one Node too many, one with a duplicate, and one with a Node without a name.
fn batches_of_nodes(run: &Run, most: usize) -> [Vec<pb::NodeView>; 3] {
    let once = run.node("twice");
    let again = pb::NodeView {
        uid: run.uid(),
        ..once.clone()
    };
    let nameless = pb::NodeView {
        name: String::new(),
        ..run.node("nameless")
    };
    let many = (0..=most).map(|_| run.node("many")).collect();
    [many, vec![once, again], vec![nameless]]
}

async fn broken(run: &Run) -> Verdict {
    let session = run.session().await?;
    let offered = run.capabilities();
    let of_instances = size_of(offered.instances.as_ref().and_then(|of| of.max_batch));
    let batches = batches_of_nodes(run, of_instances);
    for nodes in &batches {
        if offered.instances.is_some() {
            let request = pb::LookupInstancesRequest {
                nodes: nodes.clone(),
                facets: vec![pb::InstanceFacet::Existence.into()],
                ..Default::default()
            };
            refused(&session, request).await?;
        }
        if offered.zones.is_some() {
            let nodes = nodes.clone();
            refused(
                &session,
                pb::LookupZonesRequest {
                    cluster: None,
                    nodes,
                },
            )
            .await?;
        }
    }
    if let Some(of) = &offered.routes {
        let mut routes: Vec<_> = (0..=size_of(of.max_batch))
            .map(|_| tour::route(run))
            .collect();
        for (number, route) in routes.iter_mut().enumerate() {
            route.route_key = format!("route-{number}");
        }
        let twice = vec![tour::route(run), tour::route(run)];
        for routes in [routes, twice] {
            let cluster = None;
            let created = routes.clone();
            refused(
                &session,
                pb::CreateRoutesRequest {
                    cluster,
                    routes: created,
                },
            )
            .await?;
            let cluster = None;
            refused(&session, pb::DeleteRoutesRequest { cluster, routes }).await?;
        }
    }
    if offered.load_balancers.is_some() {
        refused(&session, pb::GetLoadBalancerRequest::default()).await?;
        refused(&session, pb::EnsureLoadBalancerRequest::default()).await?;
        refused(&session, pb::UpdateLoadBalancerRequest::default()).await?;
        refused(&session, pb::DeleteLoadBalancerRequest::default()).await?;
    }
    if offered.volumes.is_some() {
        refused(&session, pb::GetVolumeLabelsRequest::default()).await?;
    }
    Ok(())
}

async fn refused<R: super::super::call::Rpc>(session: &Session, request: R) -> Verdict {
    session
        .call(request)
        .await
        .failure("CORE-20", INVALID)
        .map(|_| ())
}

fn judge(told: &[Told]) -> Verdict {
    told.iter().try_for_each(|one| {
        let may = rules::may_answer(one.rpc);
        let Ok(failures) = &one.failures else {
            // Another check tests gRPC statuses.
            return Ok(());
        };
        let names: Vec<_> = may.iter().map(FailureCode::as_str_name).collect();
        one.must(
            failures.iter().all(|failure| may.contains(&failure.code())),
            "CORE-21",
            format!("a code that {} may answer: {}", one.rpc, names.join(", ")),
        )
    })
}

async fn listed(run: &Run) -> Verdict {
    tour::look_up_targets(run).await?;
    let session = run.session().await?;
    judge(&tour::everything(run, &session).await)?;
    if !run.has_hook(Hook::CloudFail) {
        return Ok(());
    }
    for word in ["UNAVAILABLE", "CREDENTIALS", "THROTTLED"] {
        run.cloud_fail(word).await?;
        judge(&tour::everything(run, &session).await)?;
    }
    Ok(())
}
