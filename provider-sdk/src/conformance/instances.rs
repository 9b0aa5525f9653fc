//! InstanceService (INST).

use cloud_provider_api::v1alpha1 as pb;
use pb::InstanceFacet;
use pb::lookup_instance_result::Outcome;

use super::check::{Check, Need, Verdict, check};
use super::run::Run;

pub(super) fn checks() -> Vec<Check> {
    vec![check!(
        "instances/every-node-has-one-result",
        ["INST-2"],
        "each Node of the request has exactly one result, with its name and UID",
        [Need::Instances],
        one_result_each
    )]
}

async fn one_result_each(run: &Run) -> Verdict {
    let known = run.instances(1).await?;
    let nodes = vec![Run::node_of(&known[0]), run.node("nobody")];
    let session = run.session().await?;
    let asked = session
        .call(pb::LookupInstancesRequest {
            nodes: nodes.clone(),
            facets: vec![InstanceFacet::Existence.into()],
            ..Default::default()
        })
        .await;
    let answer = asked.success("INST-2")?;
    for node in &nodes {
        let of_node: Vec<_> = answer
            .results
            .iter()
            .filter(|result| result.node_name == node.name && result.node_uid == node.uid)
            .collect();
        asked.must(
            of_node.len() == 1,
            "INST-2",
            format_args!("one result for {} with UID {}", node.name, node.uid),
        )?;
        asked.must(
            matches!(
                of_node[0].outcome,
                Some(Outcome::Found(_) | Outcome::Failed(_))
            ),
            "INST-2",
            format_args!("an outcome for {}", node.name),
        )?;
    }
    asked.must(
        answer.results.len() == nodes.len(),
        "INST-2",
        "no result for a Node that was not asked about",
    )
}
