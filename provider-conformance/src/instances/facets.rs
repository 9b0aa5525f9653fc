//! Facets, repeated lookups, and additions of later minors (CORE-13).

use cloud_provider_api::v1alpha1::lookup_instance_result::Outcome;
use cloud_provider_api::v1alpha1::{self as pb, InstanceFacet, InstanceState};

use super::super::check::{Check, Need, Stop, Verdict, check, must, must_equal};
use super::super::config::KnownInstance;
use super::super::hooks::Hook;
use super::super::run::Run;
use super::super::unknown::call_with_unknown_fields;
use super::super::well_formed::{self, exists};
use super::ask::{ALL, Known, LookedUp, look_up, lookup};
use super::batches::{mixed, shape};
use super::max_batch;

pub(super) fn checks() -> Vec<Check> {
    vec![
        check!(
            "instances/existence-alone",
            ["INST-10"],
            "with EXISTENCE alone the answer says whether the instance exists",
            [Need::Instances],
            existence
        ),
        check!(
            "instances/power-alone",
            ["INST-10"],
            "with POWER alone the answer says that the instance exists, and, with power_state, whether it runs",
            [Need::Instances],
            power
        ),
        check!(
            "instances/metadata-alone",
            ["INST-7", "INST-8"],
            "with METADATA alone the answer has the provider ID",
            [Need::Instances],
            metadata
        ),
        check!(
            "instances/no-facet",
            ["CORE-13"],
            "without facets the answer still has the state",
            [Need::Instances],
            no_facet
        ),
        check!(
            "instances/unknown-facet",
            ["CORE-13"],
            "the provider ignores facets of a later minor version, and UNSPECIFIED",
            [Need::Instances],
            unknown_facet
        ),
        check!(
            "instances/unknown-fields",
            ["CORE-13"],
            "the provider ignores fields of a later minor version",
            [Need::Instances],
            unknown_fields
        ),
        check!(
            "instances/facets-agree",
            ["INST-3", "CORE-6"],
            "the same instances exist, whatever the facets",
            [Need::Instances],
            facets_agree
        ),
        check!(
            "instances/asked-again",
            ["CORE-6"],
            "the same lookup gets the same answer",
            [Need::Instances],
            again
        ),
        check!(
            "instances/lookups-write-nothing",
            ["INST-11"],
            "lookups and listings write nothing to the cloud",
            [Need::Instances, Need::Hook(Hook::CloudWrites)],
            write_nothing
        ),
        check!(
            "instances/labels-are-the-nodes-own",
            ["INST-12"],
            "labels have valid keys and values, and none of Kubernetes' own",
            [Need::Instances],
            labels
        ),
    ]
}

async fn existence(run: &Run) -> Verdict {
    let session = run.session().await?;
    let known = Known::one(run, &session).await?;
    let request = lookup(vec![known.node()], &[InstanceFacet::Existence]);
    look_up(run, &session, request)
        .await?
        .existing(0, "INST-10")?;
    Ok(())
}

async fn power(run: &Run) -> Verdict {
    let session = run.session().await?;
    let known = Known::one(run, &session).await?;
    let request = lookup(vec![known.node()], &[InstanceFacet::Power]);
    look_up(run, &session, request)
        .await?
        .existing(0, "INST-10")?;
    // Without this capability, the provider does not distinguish RUNNING and STOPPED.
    if !run.sees(&[Need::PowerState]) {
        return Ok(());
    }
    let mut stated = 0;
    for instance in &run.config().instances {
        let Some(runs) = runs(instance) else { continue };
        stated += 1;
        let request = lookup(vec![run.node_of(instance)], &[InstanceFacet::Power]);
        let looked_up = look_up(run, &session, request).await?;
        let stopped = looked_up.existing(0, "INST-10")?.state() == InstanceState::Stopped;
        if stopped == runs {
            let expected = if runs {
                "RUNNING, or PRESENT if the cloud does not report it: suite.yaml says that it runs"
            } else {
                "STOPPED, as suite.yaml says"
            };
            return Err(looked_up.broke(0, "INST-10", expected));
        }
    }
    if stated == 0 {
        run.unseen(Stop::not_set_up(
            "suite.yaml names no instance with the state RUNNING or STOPPED",
        ));
    }
    Ok(())
}

/// Whether the instance runs. `None`: suite.yaml does not say.
fn runs(instance: &KnownInstance) -> Option<bool> {
    match instance.state.as_deref() {
        Some("RUNNING") => Some(true),
        Some("STOPPED") => Some(false),
        _ => None,
    }
}

async fn metadata(run: &Run) -> Verdict {
    let session = run.session().await?;
    let known = Known::one(run, &session).await?;
    let request = lookup(vec![known.node()], &[InstanceFacet::Metadata]);
    let looked_up = look_up(run, &session, request).await?;
    let found = looked_up.existing(0, "INST-7")?;
    if found.provider_id.as_ref() == Some(&known.provider_id) {
        return Ok(());
    }
    Err(looked_up.broke(
        0,
        "INST-7",
        format_args!("the provider_id {:?}", known.provider_id),
    ))
}

async fn no_facet(run: &Run) -> Verdict {
    let session = run.session().await?;
    let known = Known::one(run, &session).await?;
    look_up(run, &session, lookup(vec![known.node()], &[]))
        .await?
        .existing(0, "CORE-13")?;
    Ok(())
}

async fn unknown_facet(run: &Run) -> Verdict {
    let session = run.session().await?;
    let known = Known::one(run, &session).await?;
    for unknown in [0, 99, -1, i32::MAX] {
        let mut request = lookup(vec![known.node()], &ALL);
        request.facets.insert(0, unknown);
        let looked_up = look_up(run, &session, request).await?;
        let found = looked_up.existing(0, "CORE-13")?;
        if found.provider_id.as_ref() != Some(&known.provider_id) {
            return Err(looked_up.broke(0, "CORE-13", "the same as without the unknown facet"));
        }
    }
    Ok(())
}

async fn unknown_fields(run: &Run) -> Verdict {
    let session = run.session().await?;
    let known = Known::one(run, &session).await?;
    let exchange = call_with_unknown_fields(&session, lookup(vec![known.node()], &ALL)).await;
    let found =
        exchange.success("CORE-13")?.results.iter().any(
            |one| matches!(&one.outcome, Some(Outcome::Found(found)) if exists(found.state())),
        );
    exchange.must(
        found,
        "CORE-13",
        "the same as without them: the instance exists",
    )
}

async fn facets_agree(run: &Run) -> Verdict {
    let session = run.session().await?;
    let (_, nodes) = mixed(run, &session).await?;
    let mut first = None;
    for bits in 0..8_usize {
        let facets: Vec<_> = (0..3)
            .filter(|bit| bits >> bit & 1 == 1)
            .map(|bit| ALL[bit])
            .collect();
        let looked_up = look_up(run, &session, lookup(nodes.clone(), &facets)).await?;
        let there: Vec<_> = looked_up.outcomes.iter().map(|one| shape(one).0).collect();
        match &first {
            None => first = Some(there),
            Some(first) => must_equal(&there, first, "INST-3", looked_up.exchange.sent())?,
        }
    }
    Ok(())
}

async fn again(run: &Run) -> Verdict {
    let session = run.session().await?;
    let (_, nodes) = mixed(run, &session).await?;
    let first = look_up(run, &session, lookup(nodes.clone(), &ALL)).await?;
    for _ in 0..5 {
        let next = look_up(run, &session, lookup(nodes.clone(), &ALL)).await?;
        let shapes = |of: &LookedUp| -> Vec<_> {
            let shape = |one| format!("{:?}", shape(one));
            of.outcomes.iter().map(shape).collect()
        };
        must_equal(
            &shapes(&next),
            &shapes(&first),
            "CORE-6",
            next.exchange.sent(),
        )?;
    }
    Ok(())
}

async fn write_nothing(run: &Run) -> Verdict {
    let session = run.session().await?;
    let (_, nodes) = mixed(run, &session).await?;
    let before = run.cloud_writes().await?;
    for facets in [&ALL[..], &[]] {
        look_up(run, &session, lookup(nodes.clone(), facets)).await?;
    }
    if run.capabilities().instances.is_some_and(|of| of.listing) {
        session
            .list(pb::ListInstancesRequest::default())
            .await
            .items()?;
    }
    let after = run.cloud_writes().await?;
    must(
        after == before,
        "INST-11",
        "LookupInstances and ListInstances",
        format_args!("{before} writes to the cloud, as before"),
        after,
    )
}

async fn labels(run: &Run) -> Verdict {
    let session = run.session().await?;
    let count = run.config().instances.len().clamp(1, max_batch(run));
    let known = Known::some(run, &session, count).await?;
    let nodes = known.iter().map(Known::node).collect();
    let looked_up = look_up(run, &session, lookup(nodes, &ALL)).await?;
    let mut seen = 0;
    for place in 0..known.len() {
        for (key, value) in &looked_up.existing(place, "INST-3")?.labels {
            seen += 1;
            let kept = well_formed::is_label_key(key)
                && well_formed::is_label_value(value)
                && !well_formed::is_reserved(key);
            if !kept {
                let expected = format!(
                    "no label {key:?}: {value:?}: it is not valid in Kubernetes, or Kubernetes' own, and is dropped"
                );
                return Err(looked_up.broke(place, "INST-12", expected).softened());
            }
        }
    }
    if seen == 0 {
        return Err(Stop::not_offered("no known instance has labels"));
    }
    Ok(())
}
