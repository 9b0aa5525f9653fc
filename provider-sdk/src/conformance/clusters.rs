//! ClusterService (CLUSTER).

use cloud_provider_api::v1alpha1 as pb;

use super::check::{Check, Need, Verdict, check};
use super::run::Run;

pub(super) fn checks() -> Vec<Check> {
    vec![check!(
        "clusters/the-listing-is-complete",
        ["CLUSTER-1", "CORE-16"],
        "ListClusters ends with `end` and the right total",
        [Need::Clusters],
        listing_is_complete
    )]
}

async fn listing_is_complete(run: &Run) -> Verdict {
    let session = run.session().await?;
    let listed = session.list(pb::ListClustersRequest::default()).await;
    let names = listed.items()?;
    for known in &run.config().clusters {
        listed.must(
            names.contains(&known.name),
            "CLUSTER-1",
            format_args!("the cluster {} of suite.yaml", known.name),
        )?;
    }
    Ok(())
}
