//! Lookups of several Nodes (INST-2, INST-4), of too many, and many at once.

use std::time::Duration;

use cloud_provider_api::v1alpha1::lookup_instance_result::Outcome;
use cloud_provider_api::v1alpha1::{self as pb, FailureCode, InstanceFacet};
use futures::StreamExt;
use prost::Message;

use super::super::check::{Check, Need, Stop, Verdict, check, must_equal};
use super::super::hooks::Hook;
use super::super::run::{Run, beyond_batch};
use super::super::session::Session;
use super::super::well_formed::{self, exists};
use super::ask::{ALL, Known, LookedUp, look_up, lookup, node};
use super::max_batch;

pub(super) fn checks() -> Vec<Check> {
    CHECKS.to_vec()
}

const CHECKS: &[Check] = &[
    check!(
        "instances/each-node-once",
        ["INST-2"],
        "every Node of a batch has exactly one result, by its name and UID, and no other Node has one",
        [Need::Instances],
        each_once
    ),
    check!(
        "instances/order-does-not-matter",
        ["INST-2", "CORE-6"],
        "the same Nodes in another order get the same results",
        [Need::Instances],
        any_order
    ),
    check!(
        "instances/nobody-is-mixed-up",
        ["INST-2", "INST-3"],
        "in a mixed batch each Node gets its own instance",
        [Need::Instances],
        not_mixed_up
    ),
    check!(
        "instances/empty-batch",
        ["INST-2", "CORE-4"],
        "a request without Nodes gets no results",
        [Need::Instances],
        empty
    ),
    check!(
        "instances/full-batch",
        ["INST-2"],
        "max_batch Nodes, but at most 20,000, are answered in one call",
        [Need::Instances],
        full
    ),
    check!(
        "instances/beyond-max-batch",
        ["CORE-20", "CORE-4"],
        "more Nodes than max_batch are `failed` with INVALID: never a gRPC status, never a part of them",
        [Need::Instances],
        beyond
    ),
    check!(
        "instances/same-name-other-uid",
        ["CORE-20", "CORE-4"],
        "two Nodes of one name and two UIDs are `failed` with INVALID as a whole",
        [Need::Instances],
        same_name
    ),
    check!(
        "instances/same-node-twice",
        ["CORE-20", "CORE-4"],
        "a Node that is sent twice is `failed` with INVALID as a whole",
        [Need::Instances],
        same_node
    ),
    check!(
        "instances/one-bad-node-fails-alone",
        ["INST-4"],
        "Nodes with unknown names and IDs do not fail the others",
        [Need::Instances],
        bad_neighbours
    ),
    check!(
        "instances/node-without-a-name",
        ["CORE-20", "CORE-4"],
        "a Node without a name is `failed` with INVALID as a whole",
        [Need::Instances],
        nameless
    ),
    check!(
        "instances/5000-nodes-in-batches",
        ["INST-2", "INST-4"],
        "5,000 Nodes in batches of max_batch, max_in_flight of them at once, are all answered",
        [Need::Instances],
        many_split
    ),
    check!(
        "instances/5000-nodes-at-once",
        ["CORE-11", "CORE-4"],
        "the provider reads a request with 5,000 Nodes, and may answer INVALID",
        [Need::Instances],
        many_unsplit
    ),
    check!(
        "instances/request-as-large-as-stated",
        ["CORE-11"],
        "a request of max_request_bytes, but at most 64 MiB, is accepted",
        [Need::Instances],
        largest_request
    ),
    check!(
        "instances/beyond-max-in-flight",
        ["CORE-22", "CORE-4"],
        "four times as many lookups at once as max_in_flight are each answered, or BUSY",
        [Need::Instances],
        overload
    ),
    check!(
        "instances/concurrent-batches",
        ["INST-2", "CORE-6"],
        "max_in_flight lookups at once are each answered with their own Nodes",
        [Need::Instances],
        concurrent
    ),
];

/// Alternating known and unknown Nodes, at most one batch.
pub(super) async fn mixed(
    run: &Run,
    session: &Session,
) -> Verdict<(Vec<Known>, Vec<pb::NodeView>)> {
    let known = match Known::some(run, session, 3).await {
        Ok(known) => known,
        Err(Stop::Skipped(_)) => Known::some(run, session, 1).await?,
        Err(stop) => return Err(stop),
    };
    let mut nodes = Vec::new();
    for known in &known {
        nodes.push(known.node());
        nodes.push(run.node("nobody"));
    }
    nodes.truncate(max_batch(run));
    Ok((known, nodes))
}

/// Whether the instance exists, and its provider ID.
pub(super) fn shape(outcome: &Outcome) -> (bool, Option<&String>) {
    match outcome {
        Outcome::Found(found) => (exists(found.state()), found.provider_id.as_ref()),
        Outcome::Failed(_) => (false, None),
    }
}

async fn each_once(run: &Run) -> Verdict {
    let session = run.session().await?;
    let (_, nodes) = mixed(run, &session).await?;
    for length in 1..=nodes.len() {
        look_up(run, &session, lookup(nodes[..length].to_vec(), &ALL)).await?;
    }
    Ok(())
}

async fn any_order(run: &Run) -> Verdict {
    let session = run.session().await?;
    let (_, mut nodes) = mixed(run, &session).await?;
    let mut first = None;
    for _ in 0..nodes.len() {
        nodes.rotate_left(1);
        let looked_up = look_up(run, &session, lookup(nodes.clone(), &ALL)).await?;
        let mut came: Vec<_> = nodes
            .iter()
            .zip(&looked_up.outcomes)
            .map(|(node, outcome)| format!("{}: {:?}", node.name, shape(outcome)))
            .collect();
        came.sort();
        match &first {
            None => first = Some(came),
            Some(first) => must_equal(&came, first, "INST-2", looked_up.exchange.sent())?,
        }
    }
    Ok(())
}

async fn not_mixed_up(run: &Run) -> Verdict {
    let session = run.session().await?;
    let (known, nodes) = mixed(run, &session).await?;
    let looked_up = look_up(run, &session, lookup(nodes.clone(), &ALL)).await?;
    for (place, node) in nodes.iter().enumerate() {
        let Some(known) = known.iter().find(|known| known.name == node.name) else {
            looked_up.must_not_exist(place, "INST-3")?;
            continue;
        };
        let found = looked_up.existing(place, "INST-3")?;
        if found.provider_id.as_ref() != Some(&known.provider_id) {
            let expected = format!("{} has the provider_id {:?}", node.name, known.provider_id);
            return Err(looked_up.broke(place, "INST-2", expected));
        }
    }
    Ok(())
}

async fn empty(run: &Run) -> Verdict {
    let session = run.session().await?;
    look_up(run, &session, lookup(Vec::new(), &ALL)).await?;
    Ok(())
}

async fn full(run: &Run) -> Verdict {
    let session = run.session().await?;
    let known = Known::one(run, &session).await?;
    let mut nodes = vec![known.node()];
    nodes.resize_with(max_batch(run), || run.node("nobody"));
    nodes.reverse();
    let last = nodes.len() - 1;
    let looked_up = look_up(run, &session, lookup(nodes, &ALL)).await?;
    looked_up.existing(last, "INST-2")?;
    Ok(())
}

/// Checks that these Nodes are refused as a whole.
async fn refused(session: &Session, nodes: Vec<pb::NodeView>) -> Verdict {
    let exchange = session.call(lookup(nodes, &ALL)).await;
    exchange
        .failure("CORE-20", &[FailureCode::Invalid])
        .map(|_| ())
}

/// A request that may have more Nodes than `max_batch`: INVALID as a whole, or answered normally.
async fn invalid_or_answered(
    run: &Run,
    session: &Session,
    request: pb::LookupInstancesRequest,
) -> Verdict<Option<LookedUp>> {
    let exchange = session.call(request.clone()).await;
    let answer = exchange.answer()?;
    if let Some(failed) = &answer.failed {
        well_formed::judge(&exchange, [well_formed::failure(failed)])?;
        exchange.failure("CORE-15", &[FailureCode::Invalid])?;
        return Ok(None);
    }
    look_up(run, session, request).await.map(Some)
}

async fn beyond(run: &Run) -> Verdict {
    let session = run.session().await?;
    let known = Known::one(run, &session).await?;
    let mut nodes = vec![known.node()];
    nodes.resize_with(beyond_batch(max_batch(run))?, || run.node("nobody"));
    refused(&session, nodes).await
}

async fn same_name(run: &Run) -> Verdict {
    let session = run.session().await?;
    let known = Known::one(run, &session).await?;
    let mut other = known.node();
    other.uid = "another-uid".into();
    refused(&session, vec![known.node(), other]).await
}

async fn same_node(run: &Run) -> Verdict {
    let session = run.session().await?;
    let known = Known::one(run, &session).await?;
    refused(&session, vec![known.node(), known.node()]).await
}

async fn overload(run: &Run) -> Verdict {
    let session = run.session().await?;
    let known = Known::one(run, &session).await?;
    let stated = run.capabilities().instances.and_then(|of| of.max_in_flight);
    let at_once = stated.filter(|most| *most > 0).unwrap_or(8).min(64) * 4;
    if run.has_hook(Hook::CloudSlow) {
        // Keeps all of them in flight at once.
        run.cloud_slow(Duration::from_secs(1)).await?;
    }
    let calls = (0..at_once).map(|_| session.call(lookup(vec![known.node()], &ALL)));
    for exchange in futures::future::join_all(calls).await {
        exchange.must(
            exchange.came.is_ok(),
            "CORE-22",
            format_args!("an answer, or BUSY: one of {at_once} calls at once"),
        )?;
        let answer = exchange.answer()?;
        let outcomes = answer.results.iter().filter_map(|one| one.outcome.as_ref());
        let failures = outcomes.filter_map(|outcome| match outcome {
            Outcome::Failed(failure) => Some(failure),
            Outcome::Found(_) => None,
        });
        let may = [FailureCode::Busy, FailureCode::Throttled];
        exchange.must(
            failures
                .chain(&answer.failed)
                .all(|failure| may.contains(&failure.code())),
            "CORE-22",
            "an answer, or `failed` with BUSY (or with THROTTLED, if the cloud throttles)",
        )?;
    }
    Ok(())
}

async fn bad_neighbours(run: &Run) -> Verdict {
    let session = run.session().await?;
    let known = Known::one(run, &session).await?;
    let prefix = run
        .info()
        .provider_id_prefixes
        .first()
        .cloned()
        .unwrap_or_default();
    let long_id = format!("{prefix}{}", "z".repeat(1_024 - prefix.len()));
    let odd = [
        node(&"n".repeat(253), None),
        node(&format!("{}.example", "a.b-c.".repeat(30)), None),
        node("UPPER_case and space", None),
        node("knoten-ä-节点-\u{1f980}", None),
        node("'; DROP TABLE nodes; --", None),
        node("../../../etc/passwd", None),
        node("%s%n{}$(id)", None),
        node("with-long-id", Some(&long_id)),
        node("with-empty-id", Some("")),
        node("with-odd-id", Some(&format!("{prefix}\u{7}\u{fffd}\n"))),
        node("with-foreign-id", Some("conformance-elsewhere:///x")),
    ];
    let room = max_batch(run).saturating_sub(1).max(1);
    for odd in odd.chunks(room) {
        let mut nodes = odd.to_vec();
        nodes.push(known.node());
        nodes.truncate(max_batch(run));
        let has_known = nodes.len() > odd.len();
        let looked_up = look_up(run, &session, lookup(nodes, &ALL)).await?;
        for place in 0..odd.len() {
            looked_up.must_not_exist(place, "INST-3")?;
        }
        if has_known {
            looked_up.existing(odd.len(), "INST-4")?;
        }
    }
    Ok(())
}

async fn nameless(run: &Run) -> Verdict {
    let session = run.session().await?;
    refused(&session, vec![node("", None)]).await
}

/// 5,000 Nodes as in a large cluster, one of them known.
async fn many(run: &Run, session: &Session) -> Verdict<(Known, Vec<pb::NodeView>)> {
    let known = Known::one(run, session).await?;
    let mut nodes: Vec<_> = (0..5_000)
        .map(|number: u32| {
            let [_, _, high, low] = number.to_be_bytes();
            let mut node = node(&format!("{}-{number}", run.shared.ledger.run_id()), None);
            node.addresses = ["10.64", "198.18"]
                .iter()
                .map(|net| pb::NodeAddress {
                    r#type: pb::NodeAddressType::InternalIp.into(),
                    address: format!("{net}.{high}.{low}"),
                })
                .collect();
            node
        })
        .collect();
    nodes[2_345] = known.node();
    Ok((known, nodes))
}

async fn many_split(run: &Run) -> Verdict {
    let session = run.session().await?;
    let (known, nodes) = many(run, &session).await?;
    let at_once = run.capabilities().instances.and_then(|of| of.max_in_flight);
    let at_once = at_once.filter(|most| *most > 0).unwrap_or(8) as usize;
    let batches: Vec<_> = nodes
        .chunks(max_batch(run))
        .map(|batch| {
            let place = batch.iter().position(|node| node.name == known.name);
            let request = lookup(batch.to_vec(), &[InstanceFacet::Existence]);
            let session = session.clone();
            async move {
                let looked_up = look_up(run, &session, request).await?;
                if let Some(place) = place {
                    looked_up.existing(place, "INST-4")?;
                }
                Ok::<_, Stop>(())
            }
        })
        .collect();
    let answered: Vec<Verdict> = futures::stream::iter(batches)
        .buffer_unordered(at_once)
        .collect()
        .await;
    answered.into_iter().collect()
}

async fn many_unsplit(run: &Run) -> Verdict {
    let session = run.session().await?;
    let (_, nodes) = many(run, &session).await?;
    let request = lookup(nodes, &[InstanceFacet::Existence]);
    if request.encoded_len() as u64 > max_request_bytes(run) {
        return Err(Stop::not_offered(
            "5,000 Nodes are more than max_request_bytes",
        ));
    }
    if let Some(looked_up) = invalid_or_answered(run, &session, request).await? {
        looked_up.existing(2_345, "INST-2")?;
    }
    Ok(())
}

fn max_request_bytes(run: &Run) -> u64 {
    run.info().max_request_bytes.unwrap_or(4 * 1024 * 1024)
}

async fn largest_request(run: &Run) -> Verdict {
    let session = run.session().await?;
    let known = Known::one(run, &session).await?;
    // At most 64 MiB, even if the provider states more.
    let most = max_request_bytes(run).min(64 * 1024 * 1024) as usize;
    let with = |bytes: usize| {
        let mut node = known.node();
        let padding = "x".repeat(bytes);
        node.annotations
            .insert("conformance.example/padding".into(), padding);
        let mut request = lookup(vec![node], &ALL);
        request.cluster = Some(run.cluster());
        request
    };
    // With a long padding, the lengths around it take a few more bytes.
    let padding = most.saturating_sub(with(0).encoded_len() + 32);
    let looked_up = look_up_large(run, &session, with(padding)).await?;
    looked_up.existing(0, "CORE-11")?;
    Ok(())
}

async fn look_up_large(
    run: &Run,
    session: &Session,
    request: pb::LookupInstancesRequest,
) -> Verdict<LookedUp> {
    let bytes = request.encoded_len();
    let exchange = session.call(request.clone()).await;
    match &exchange.came {
        Ok(_) => look_up(run, session, request).await,
        Err(status) => Err(Stop::failed(
            "CORE-11",
            format_args!(
                "LookupInstances of one Node with an annotation of many bytes: {bytes} bytes in all"
            ),
            format_args!(
                "it is accepted: max_request_bytes is {}",
                max_request_bytes(run)
            ),
            super::super::call::shown(status),
        )),
    }
}

async fn concurrent(run: &Run) -> Verdict {
    let session = run.session().await?;
    let known = Known::one(run, &session).await?;
    let at_once = run.capabilities().instances.and_then(|of| of.max_in_flight);
    let at_once = at_once.filter(|most| *most > 0).unwrap_or(8).min(64);
    for _ in 0..4 {
        let calls: Vec<_> = (0..at_once)
            .map(|number| {
                let nodes = vec![run.node("nobody"), known.node()];
                let place = (number % 2) as usize;
                let nodes = if max_batch(run) < 2 {
                    vec![nodes[place].clone()]
                } else {
                    nodes
                };
                let session = session.clone();
                async move {
                    let known_at = nodes.iter().position(|node| node.provider_id.is_some());
                    let looked_up = look_up(run, &session, lookup(nodes, &ALL)).await?;
                    if let Some(place) = known_at {
                        looked_up.existing(place, "CORE-6")?;
                    }
                    Ok::<_, Stop>(())
                }
            })
            .collect();
        futures::future::try_join_all(calls).await?;
    }
    Ok(())
}
