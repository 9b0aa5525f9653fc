//! ListInstances: complete, or `failed` (INST-6, CORE-16).

use std::collections::BTreeSet;
use std::time::Duration;

use cloud_provider_api::v1alpha1::{self as pb, FailureCode, InstanceFacet, InstanceState};

use super::super::check::{Check, Need, Verdict, check, must, must_equal};
use super::super::hooks::Hook;
use super::super::listings::{self, cut_off_anywhere, fails_whole, many_at_once, read_slowly};
use super::super::run::Run;
use super::super::session::Session;
use super::super::well_formed::{self, exists};
use super::ask::{ALL, Known, look_up, lookup, node};
use super::max_batch;

const ADD: Need = Need::Hook(Hook::InstanceAdd);
const FAIL: Need = Need::Hook(Hook::CloudFail);

pub(super) fn checks() -> Vec<Check> {
    vec![
        check!(
            "instances/list-is-whole",
            ["INST-6", "INST-16", "CORE-16", "INST-7", "INST-8", "PROV-8"],
            "the listing ends with the right total; each instance has its own provider ID and a state",
            [Need::InstanceListing],
            whole
        ),
        check!(
            "instances/list-has-what-is-known",
            ["INST-6"],
            "every instance of suite.yaml is in the listing",
            [Need::InstanceListing],
            has_known
        ),
        check!(
            "instances/list-agrees-with-lookups",
            ["INST-6", "INST-1"],
            "LookupInstances finds the listed instances (of the first 20 batches)",
            [Need::InstanceListing],
            agrees
        ),
        check!(
            "instances/list-facets",
            ["INST-6", "INST-16", "CORE-13"],
            "the list has the same instances, each with its provider ID, whatever the facets",
            [Need::InstanceListing],
            facets
        ),
        check!(
            "instances/list-follows-the-cloud",
            ["INST-6"],
            "the list has new instances and lacks removed ones",
            [Need::InstanceListing, ADD, Need::Hook(Hook::InstanceRemove)],
            follows
        ),
        check!(
            "instances/list-has-stopped-ones",
            ["INST-6", "INST-14", "INST-16"],
            "an instance that is shut down is listed",
            [Need::InstanceListing, ADD, Need::Hook(Hook::InstanceStop)],
            stopped
        ),
        check!(
            "instances/list-fails-throttled",
            ["INST-6", "CORE-15"],
            "while the cloud throttles, the listing is `failed` with THROTTLED, not a part of it with OK",
            [Need::InstanceListing, FAIL],
            throttled
        ),
        check!(
            "instances/list-fails-with-credentials",
            ["INST-6", "CORE-15"],
            "while the cloud refuses the credentials, the listing is `failed` with CREDENTIALS",
            [Need::InstanceListing, FAIL],
            credentials
        ),
        check!(
            "instances/list-fails-unavailable",
            ["INST-6", "CORE-15"],
            "while the cloud is down, the listing is `failed` with UNAVAILABLE",
            [Need::InstanceListing, FAIL],
            unavailable
        ),
        check!(
            "instances/list-read-slowly",
            ["INST-6", "CORE-16"],
            "a consumer that reads slowly gets the whole listing",
            [Need::InstanceListing],
            slowly
        ),
        check!(
            "instances/list-cut-off",
            ["CORE-6", "CORE-16"],
            "listings that are cut off by 30 short deadlines do no harm",
            [Need::InstanceListing],
            cut_off
        ),
        check!(
            "instances/list-at-once",
            ["CORE-6", "INST-6"],
            "several listings at once are all complete",
            [Need::InstanceListing],
            at_once
        ),
        check!(
            "instances/list-another-owner",
            ["CORE-10"],
            "a listing for an owner that was not initialised is `failed` with NOT_INITIALIZED",
            [Need::InstanceListing],
            another_owner
        ),
    ]
}

fn request(facets: &[InstanceFacet]) -> pb::ListInstancesRequest {
    pb::ListInstancesRequest {
        facets: facets.iter().map(|facet| (*facet).into()).collect(),
        ..Default::default()
    }
}

/// The listed instances, and their provider IDs. Checks that each instance is well-formed and
/// occurs once.
async fn list(
    run: &Run,
    session: &Session,
    facets: &[InstanceFacet],
) -> Verdict<(Vec<pb::Instance>, BTreeSet<String>)> {
    let exchange = session.list(request(facets)).await;
    let instances = exchange.items()?;
    let prefixes = &run.info().provider_id_prefixes;
    well_formed::judge(
        &exchange,
        instances
            .iter()
            .map(|one| well_formed::instance(one, prefixes, true)),
    )?;
    let mut ids = BTreeSet::new();
    for instance in &instances {
        let Some(id) = &instance.provider_id else {
            return Err(exchange.broke("INST-6", "each instance has its provider ID"));
        };
        exchange.must(
            ids.insert(id.clone()),
            "INST-7",
            format_args!("{id:?} is listed once"),
        )?;
        exchange.must(
            !matches!(
                instance.state(),
                InstanceState::Absent | InstanceState::Unmanaged
            ),
            "INST-6",
            format_args!("{id:?} is in a state that a listed instance can have"),
        )?;
    }
    Ok((instances, ids))
}

async fn whole(run: &Run) -> Verdict {
    let session = run.session().await?;
    list(run, &session, &ALL).await?;
    Ok(())
}

async fn has_known(run: &Run) -> Verdict {
    let session = run.session().await?;
    let count = run.config().instances.len().max(1);
    let known = Known::some(run, &session, count).await?;
    let (_, ids) = list(run, &session, &ALL).await?;
    for known in known {
        must(
            ids.contains(&known.provider_id),
            "INST-6",
            "ListInstances",
            format_args!("{:?} is listed", known.provider_id),
            format_args!("{} instances without it", ids.len()),
        )?;
    }
    Ok(())
}

async fn agrees(run: &Run) -> Verdict {
    let session = run.session().await?;
    let (instances, _) = list(run, &session, &ALL).await?;
    for batch in instances.chunks(max_batch(run)).take(20) {
        let nodes = batch
            .iter()
            .enumerate()
            .map(|(number, one)| node(&format!("listed-{number}"), one.provider_id.as_deref()))
            .collect();
        let looked_up = look_up(run, &session, lookup(nodes, &ALL)).await?;
        for (place, listed) in batch.iter().enumerate() {
            let found = looked_up.found(place, "INST-6")?;
            let agree = exists(found.state()) == exists(listed.state())
                && (!exists(found.state()) || found.provider_id == listed.provider_id);
            if !agree {
                return Err(looked_up.broke(
                    place,
                    "INST-6",
                    format_args!("as listed: {listed:?}"),
                ));
            }
        }
    }
    Ok(())
}

async fn facets(run: &Run) -> Verdict {
    let session = run.session().await?;
    let (_, first) = list(run, &session, &ALL).await?;
    for facets in [
        &[][..],
        &[InstanceFacet::Existence],
        &[InstanceFacet::Power],
        &[InstanceFacet::Unspecified],
    ] {
        let (_, ids) = list(run, &session, facets).await?;
        must_equal(
            &ids,
            &first,
            "INST-6",
            format_args!("ListInstances {facets:?}, after all facets"),
        )?;
    }
    Ok(())
}

async fn follows(run: &Run) -> Verdict {
    let session = run.session().await?;
    let (known, made) = Known::made(run, &session).await?;
    let sent = |what: &str| {
        format!(
            "the hook {what} for {:?}, then ListInstances",
            known.provider_id
        )
    };
    let (_, ids) = list(run, &session, &ALL).await?;
    must(
        ids.contains(&known.provider_id),
        "INST-6",
        sent("instance-add"),
        "it is listed",
        "it is not",
    )?;
    run.change_instance(Hook::InstanceRemove, &made).await?;
    let (_, ids) = list(run, &session, &ALL).await?;
    must(
        !ids.contains(&known.provider_id),
        "INST-6",
        sent("instance-remove"),
        "it is not listed",
        "it is",
    )
}

async fn stopped(run: &Run) -> Verdict {
    let session = run.session().await?;
    let (known, made) = Known::made(run, &session).await?;
    run.change_instance(Hook::InstanceStop, &made).await?;
    let (_, ids) = list(run, &session, &ALL).await?;
    must(
        ids.contains(&known.provider_id),
        "INST-6",
        format_args!(
            "the hook instance-stop for {:?}, then ListInstances",
            known.provider_id
        ),
        "it is listed: it exists",
        "it is not",
    )
}

async fn throttled(run: &Run) -> Verdict {
    fails_whole(run, request(&ALL), "INST-6", FailureCode::Throttled).await
}

async fn credentials(run: &Run) -> Verdict {
    fails_whole(run, request(&ALL), "INST-6", FailureCode::Credentials).await
}

async fn unavailable(run: &Run) -> Verdict {
    fails_whole(run, request(&ALL), "INST-6", FailureCode::Unavailable).await
}

async fn slowly(run: &Run) -> Verdict {
    read_slowly(run, request(&ALL), Duration::from_millis(100)).await
}

async fn cut_off(run: &Run) -> Verdict {
    cut_off_anywhere(run, request(&ALL)).await
}

async fn at_once(run: &Run) -> Verdict {
    many_at_once(run, request(&ALL), 4).await
}

async fn another_owner(run: &Run) -> Verdict {
    listings::another_owner(run, request(&ALL)).await
}
