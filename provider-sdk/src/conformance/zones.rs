//! ZoneService (ZONE).

use cloud_provider_api::v1alpha1 as pb;

use super::check::{Check, Need, Verdict, check};
use super::run::Run;

pub(super) fn checks() -> Vec<Check> {
    vec![check!(
        "zones/every-node-has-one-result",
        ["ZONE-1", "INST-2"],
        "each Node of the request has exactly one result, with its name and UID",
        [Need::Zones],
        one_result_each
    )]
}

async fn one_result_each(run: &Run) -> Verdict {
    let known = run.instances(1).await?;
    let nodes = vec![Run::node_of(&known[0]), run.node("nobody")];
    let session = run.session().await?;
    let asked = session
        .call(pb::LookupZonesRequest {
            nodes: nodes.clone(),
            ..Default::default()
        })
        .await;
    let answer = asked.success("ZONE-1")?;
    for node in &nodes {
        let of_node = answer.results.iter().filter(|result| {
            result.node_name == node.name && result.node_uid == node.uid && result.outcome.is_some()
        });
        asked.must(
            of_node.count() == 1,
            "ZONE-1",
            format_args!("one result for {} with UID {}", node.name, node.uid),
        )?;
    }
    Ok(())
}
