//! Facts of the cloud that the contract cannot express (INST-15).

use std::time::Duration;

use cloud_provider_api::v1alpha1::{self as pb, InstanceFacet};

use super::super::check::{Check, Need, Verdict, check, must};
use super::super::hooks::Hook;
use super::super::run::Run;
use super::ask::{ALL, look_up, lookup, node};

/// An instance type as a cloud shows it to people. It is no valid label value.
const TYPE: &str = "8 vCPU, 32 GiB (burst)";
/// How long a cloud may take to show a new object.
const PATIENCE: Duration = Duration::from_secs(30);

pub(super) fn checks() -> Vec<Check> {
    vec![check!(
        "instances/what-has-no-form-is-left-out",
        ["INST-15", "INST-8"],
        "if an instance type is no label value, the answer leaves it out, does not change it, and has the rest",
        [
            Need::Instances,
            Need::Hook(Hook::InstanceOdd),
            Need::Hook(Hook::InstanceRemove)
        ],
        left_out
    )]
}

async fn left_out(run: &Run) -> Verdict {
    let session = run.session().await?;
    let made = run.add_odd_instance(TYPE).await?;
    let nodes = vec![node(&made.name, made.provider_id.as_deref())];
    let looked_up = run
        .eventually(PATIENCE, || async {
            let looked_up = look_up(run, &session, lookup(nodes.clone(), &ALL)).await;
            let pending = looked_up.as_ref().is_ok_and(|seen| {
                seen.state(0, "INST-15").ok() == Some(pb::InstanceState::Pending)
            });
            (!pending).then_some(looked_up)
        })
        .await;
    let looked_up = match looked_up {
        Some(looked_up) => looked_up?,
        None => look_up(run, &session, lookup(nodes, &ALL)).await?,
    };
    // The odd type did not make the lookup fail.
    let instance = looked_up.existing(0, "INST-15")?;
    looked_up.exchange.must(
        instance.instance_type.is_none(),
        "INST-15",
        format_args!("no instance_type: the cloud says {TYPE:?}, which is no label value"),
    )?;
    if !run.capabilities().instances.is_some_and(|of| of.listing) {
        return Ok(());
    }
    let listed = session
        .list(pb::ListInstancesRequest {
            facets: vec![InstanceFacet::Metadata.into()],
            ..Default::default()
        })
        .await;
    let items = listed.items()?;
    let of_it = items.iter().find(|one| one.provider_id == made.provider_id);
    must(
        of_it.is_some_and(|one| one.instance_type.is_none()),
        "INST-15",
        format_args!("ListInstances, while an instance has the type {TYPE:?}"),
        "it is listed, without an instance_type",
        format_args!("{of_it:?}"),
    )
}
