//! Requests that violate the contract (CORE-20), and codes that an RPC does not list (CORE-21).

use cloud_provider_api::v1alpha1::{self as pb, FailureCode};

use super::super::check::{Check, Verdict, check};
use super::super::hooks::Hook;
use super::super::rules;
use super::super::run::{Run, batch_size, beyond_batch};
use super::super::session::Session;
use super::tour::{self, Told};

const INVALID: &[FailureCode] = &[FailureCode::Invalid];

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

/// The size of a batch with one item too many. `None`: it is more than the suite sends.
fn too_many(run: &Run, stated: Option<u32>) -> Option<usize> {
    beyond_batch(batch_size(stated))
        .map_err(|stop| run.unseen(stop))
        .ok()
}

/// A batch with a duplicate, one with a Node without a name, and one with this many Nodes.
fn batches_of_nodes(run: &Run, too_many: Option<usize>) -> Vec<Vec<pb::NodeView>> {
    let once = run.node("twice");
    let again = pb::NodeView {
        uid: run.uid(),
        ..once.clone()
    };
    let nameless = pb::NodeView {
        name: String::new(),
        ..run.node("nameless")
    };
    let many = too_many.map(|count| (0..count).map(|_| run.node("many")).collect());
    let mut all = vec![vec![once, again], vec![nameless]];
    all.extend(many);
    all
}

async fn broken(run: &Run) -> Verdict {
    let session = run.session().await?;
    let offered = run.capabilities();
    let of_instances = offered.instances.as_ref().and_then(|of| of.max_batch);
    let batches = batches_of_nodes(run, too_many(run, of_instances));
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
        let route = tour::route(run);
        // One destination for all: the network may have fewer parts than the batch has routes.
        let keyed = |number| pb::Route {
            route_key: format!("route-{number}"),
            ..route.clone()
        };
        let many = too_many(run, of.max_batch).map(|count| (0..count).map(keyed).collect());
        let twice = vec![tour::route(run), tour::route(run)];
        for routes in many.into_iter().chain([twice]) {
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
