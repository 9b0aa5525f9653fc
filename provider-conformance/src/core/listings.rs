//! Listings end with `end` and the right total, or fail (CORE-16).

use std::time::Duration;

use cloud_provider_api::v1alpha1::{self as pb, FailureCode};

use super::super::call::{Listing, ListingPart, Part};
use super::super::check::{Check, Need, Stop, Verdict, check};
use super::super::hooks::Hook;
use super::super::run::Run;

const FAIL: Need = Need::Hook(Hook::CloudFail);

pub(super) fn checks() -> Vec<Check> {
    vec![
        check!(
            "core/list-instances-ends-with-its-total",
            ["CORE-16", "INST-6"],
            "ListInstances ends with `end` and the number of instances, and status OK, three times in a row",
            [Need::InstanceListing],
            ends::<pb::ListInstancesRequest>
        ),
        check!(
            "core/list-load-balancers-ends-with-its-total",
            ["CORE-16", "LB-13"],
            "ListLoadBalancers ends with `end` and the number of load balancers, and status OK, three times in a row",
            [Need::LoadBalancerListing],
            ends::<pb::ListLoadBalancersRequest>
        ),
        check!(
            "core/list-routes-ends-with-its-total",
            ["CORE-16", "ROUTE-1"],
            "ListRoutes ends with `end` and the number of routes, and status OK, three times in a row",
            [Need::Routes],
            ends::<pb::ListRoutesRequest>
        ),
        check!(
            "core/list-clusters-ends-with-its-total",
            ["CORE-16", "CLUSTER-1"],
            "ListClusters ends with `end` and the number of clusters, and status OK, three times in a row",
            [Need::Clusters],
            ends::<pb::ListClustersRequest>
        ),
        check!(
            "core/a-failed-instance-listing-has-no-end",
            ["CORE-16", "INST-6"],
            "while the cloud fails, the last message of ListInstances is `failed`, and there is no `end`",
            [Need::InstanceListing, FAIL],
            fails::<pb::ListInstancesRequest>
        ),
        check!(
            "core/a-failed-load-balancer-listing-has-no-end",
            ["CORE-16", "LB-13"],
            "while the cloud fails, the last message of ListLoadBalancers is `failed`, and there is no `end`",
            [Need::LoadBalancerListing, FAIL],
            fails::<pb::ListLoadBalancersRequest>
        ),
        check!(
            "core/a-failed-route-listing-has-no-end",
            ["CORE-16", "ROUTE-1"],
            "while the cloud fails, the last message of ListRoutes is `failed`, and there is no `end`",
            [Need::Routes, FAIL],
            fails::<pb::ListRoutesRequest>
        ),
        check!(
            "core/cancelled-listings-cost-nothing",
            ["CORE-6", "CORE-16"],
            "listings that are cancelled after 0.3 ms block no other call",
            cancelled
        ),
    ]
}

async fn ends<R: Listing>(run: &Run) -> Verdict {
    let session = run.session().await?;
    for _ in 0..3 {
        session.list(R::default()).await.items()?;
    }
    Ok(())
}

async fn fails<R: Listing>(run: &Run) -> Verdict {
    let session = run.session().await?;
    run.cloud_fail("UNAVAILABLE").await?;
    let asked = session.list(R::default()).await;
    asked.failure("CORE-16", &[FailureCode::Unavailable])?;
    let ended = asked
        .answer()?
        .parts
        .iter()
        .any(|part| matches!(part.clone().part(), Part::End(_)));
    asked.must(!ended, "CORE-16", "no `end`: it is no listing")
}

async fn cancelled(run: &Run) -> Verdict {
    let offered = run.capabilities();
    let instances = offered.instances.as_ref().is_some_and(|of| of.listing);
    if !instances && offered.routes.is_none() {
        return Err(Stop::not_offered(
            "the provider lists neither instances nor routes",
        ));
    }
    let session = run.session().await?;
    for _ in 0..20 {
        let short = Duration::from_micros(300);
        if instances {
            let _ = tokio::time::timeout(short, session.list(pb::ListInstancesRequest::default()))
                .await;
        }
        if offered.routes.is_some() {
            let _ =
                tokio::time::timeout(short, session.list(pb::ListRoutesRequest::default())).await;
        }
    }
    // An HTTP/2 stack may close the connection after many cancellations at once. The controller
    // then dials again.
    let session = run.connect().await?;
    if instances {
        session
            .list(pb::ListInstancesRequest::default())
            .await
            .items()?;
    }
    if offered.routes.is_some() {
        session
            .list(pb::ListRoutesRequest::default())
            .await
            .items()?;
    }
    session
        .call(pb::ProbeRequest::default())
        .await
        .answer()
        .map(|_| ())
}
