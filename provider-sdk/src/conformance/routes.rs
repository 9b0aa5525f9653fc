//! RouteService (ROUTE).

use cloud_provider_api::v1alpha1 as pb;
use pb::route_result::Outcome;

use super::check::{Check, Need, Verdict, check};
use super::run::Run;

pub(super) fn checks() -> Vec<Check> {
    vec![check!(
        "routes/a-made-route-is-listed-as-ours",
        ["ROUTE-1", "ROUTE-2", "ROUTE-3"],
        "a route that was made is listed, marked as ours",
        [Need::Routes],
        made_is_listed
    )]
}

async fn made_is_listed(run: &Run) -> Verdict {
    let known = run.instances(1).await?;
    let session = run.session().await?;
    let cidr = run.cidr();
    let asked = session
        .call(pb::CreateRoutesRequest {
            cluster: None,
            routes: vec![pb::Route {
                route_key: "one".into(),
                name_hint: run.uid(),
                destination_cidr: cidr.clone(),
                node_name: Some(known[0].name.clone()),
                provider_id: known[0].provider_id.clone(),
                ..Default::default()
            }],
        })
        .await;
    let answer = asked.success("ROUTE-2")?;
    let done = matches!(
        answer.results.as_slice(),
        [pb::RouteResult { route_key, outcome: Some(Outcome::Done(_)) }] if route_key == "one"
    );
    asked.must(
        done,
        "ROUTE-2",
        "one result, `done`, with the route_key `one`",
    )?;
    let listed = session.list(pb::ListRoutesRequest::default()).await;
    let ours = listed
        .items()?
        .into_iter()
        .any(|route| route.destination_cidr == cidr && route.ownership() == pb::Ownership::Ours);
    listed.must(ours, "ROUTE-3", format_args!("the route to {cidr}, OURS"))
}
