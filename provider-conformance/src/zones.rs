//! ZoneService (ZONE).

use cloud_provider_api::v1alpha1::lookup_zone_result::Outcome;
use cloud_provider_api::v1alpha1::{self as pb, FailureCode};

use super::call::{Exchange, short_code};
use super::check::{Check, Need, Stop, Verdict, check, must, must_equal};
use super::hooks::Hook;
use super::instances::ask::{ALL, Known, by_node, id_of_none, look_up, lookup, node};
use super::instances::max_batch;
use super::run::{Run, beyond_batch};
use super::session::Session;
use super::unknown::call_with_unknown_fields;
use super::well_formed;

const FAIL: Need = Need::Hook(Hook::CloudFail);

pub(super) fn checks() -> Vec<Check> {
    CHECKS.to_vec()
}

const CHECKS: &[Check] = &[
    check!(
        "zones/each-node-once",
        ["ZONE-1", "ZONE-2"],
        "every Node of a batch has exactly one result, by its name and UID, with a valid zone and region",
        [Need::Zones],
        each_once
    ),
    check!(
        "zones/agree-with-the-metadata",
        ["ZONE-2"],
        "zone and region are those of LookupInstances, if both report them",
        [Need::Zones, Need::Instances],
        agree
    ),
    check!(
        "zones/by-name-and-by-id",
        ["ZONE-1", "INST-3"],
        "a Node's zone is the same by its name and by its provider ID",
        [Need::Zones, Need::Instances],
        by_name_and_id
    ),
    check!(
        "zones/unknown-nodes-fail-alone",
        ["ZONE-1"],
        "unknown Nodes do not fail the others",
        [Need::Zones, Need::Instances],
        unknown
    ),
    check!(
        "zones/unknown-nodes-have-no-zone",
        ["ZONE-4"],
        "for a Node that the cloud does not know, the answer is a zone without fields, or `failed`",
        [Need::Zones],
        no_zone
    ),
    check!(
        "zones/uid-is-not-remembered",
        ["ZONE-1", "INST-2"],
        "the answer names the UID of the request",
        [Need::Zones, Need::Instances],
        uid_again
    ),
    check!(
        "zones/empty-batch",
        ["ZONE-1", "CORE-4"],
        "a request without Nodes gets no results",
        [Need::Zones],
        empty
    ),
    check!(
        "zones/full-batch",
        ["ZONE-1"],
        "max_batch Nodes, but at most 20,000, are answered in one call",
        [Need::Zones],
        full
    ),
    check!(
        "zones/beyond-max-batch",
        ["CORE-20", "CORE-4"],
        "more Nodes than max_batch are `failed` with INVALID: never a gRPC status, never a part of them",
        [Need::Zones],
        beyond
    ),
    check!(
        "zones/asked-again",
        ["CORE-6", "ZONE-1"],
        "the same lookup gets the same zone of a known Node, in any order",
        [Need::Zones, Need::Instances],
        again
    ),
    check!(
        "zones/throttled",
        ["ZONE-1", "CORE-15"],
        "while the cloud throttles, the provider invents no zone: an answer that needs the cloud is `failed` with THROTTLED",
        [Need::Zones, FAIL],
        throttled
    ),
    check!(
        "zones/refused-credentials",
        ["ZONE-1", "CORE-15"],
        "while the cloud refuses the credentials, the provider invents no zone: an answer that needs the cloud is `failed` with CREDENTIALS",
        [Need::Zones, FAIL],
        credentials
    ),
    check!(
        "zones/unavailable",
        ["ZONE-1", "CORE-15"],
        "while the cloud is down, the provider invents no zone: an answer that needs the cloud is `failed` with UNAVAILABLE",
        [Need::Zones, FAIL],
        unavailable
    ),
    check!(
        "zones/write-nothing",
        ["ZONE-3"],
        "lookups write nothing to the cloud",
        [Need::Zones, Need::Hook(Hook::CloudWrites)],
        write_nothing
    ),
    check!(
        "zones/unknown-fields",
        ["CORE-13"],
        "the provider ignores fields of a later minor version",
        [Need::Zones],
        unknown_fields
    ),
    check!(
        "zones/another-owner",
        ["CORE-10"],
        "a lookup for an owner that was not initialised is NOT_INITIALIZED",
        [Need::Zones],
        another_owner
    ),
];

fn request(nodes: Vec<pb::NodeView>) -> pb::LookupZonesRequest {
    pb::LookupZonesRequest {
        nodes,
        ..Default::default()
    }
}

struct LookedUp {
    exchange: Exchange<pb::LookupZonesResponse>,
    /// In the order of the request.
    outcomes: Vec<Outcome>,
}

impl LookedUp {
    fn zone(&self, place: usize, rule: &str) -> Verdict<&pb::Zone> {
        match self.outcomes.get(place) {
            Some(Outcome::Zone(zone)) => Ok(zone),
            other => {
                let sent = self.exchange.sent();
                Err(Stop::failed(
                    rule,
                    sent,
                    "a zone, not `failed`",
                    format_args!("{other:?}"),
                ))
            }
        }
    }
}

async fn zones(session: &Session, nodes: Vec<pb::NodeView>) -> Verdict<LookedUp> {
    let exchange = session.call(request(nodes.clone())).await;
    let results = &exchange.success("ZONE-1")?.results;
    let outcomes = by_node(
        &exchange,
        &nodes,
        results
            .iter()
            .map(|one| (&*one.node_name, &*one.node_uid, one.outcome.as_ref())),
    )?;
    well_formed::judge(
        &exchange,
        outcomes.iter().map(|outcome| match outcome {
            Outcome::Failed(failure) => well_formed::failure(failure),
            Outcome::Zone(zone) => well_formed::zone(zone),
        }),
    )?;
    Ok(LookedUp { exchange, outcomes })
}

/// A Node with an instance in this cloud. If the provider offers no instances and suite.yaml names
/// none, a Node without an instance.
async fn some_node(run: &Run, session: &Session) -> Verdict<pb::NodeView> {
    if run.capabilities().instances.is_none() && run.config().instances.is_empty() {
        return Ok(run.node("nobody"));
    }
    Ok(Known::one(run, session).await?.node())
}

async fn each_once(run: &Run) -> Verdict {
    let session = run.session().await?;
    let mut nodes = vec![some_node(run, &session).await?];
    nodes.resize_with(max_batch(run).min(8), || run.node("nobody"));
    for length in 1..=nodes.len() {
        zones(&session, nodes[..length].to_vec()).await?;
    }
    Ok(())
}

async fn agree(run: &Run) -> Verdict {
    let session = run.session().await?;
    let count = run.config().instances.len().clamp(1, max_batch(run));
    let known = Known::some(run, &session, count).await?;
    let nodes: Vec<_> = known.iter().map(Known::node).collect();
    let instances = look_up(run, &session, lookup(nodes.clone(), &ALL)).await?;
    let places = zones(&session, nodes).await?;
    let mut compared = 0;
    for (place, known) in known.iter().enumerate() {
        let instance = instances.existing(place, "INST-3")?;
        let zone = places.zone(place, "ZONE-1")?;
        for (what, ours, theirs) in [
            ("zone", &zone.zone, &instance.zone),
            ("region", &zone.region, &instance.region),
        ] {
            compared += usize::from(ours.is_some() && theirs.is_some());
            must(
                ours == theirs || ours.is_none() || theirs.is_none(),
                "ZONE-2",
                places.exchange.sent(),
                format_args!(
                    "the {what} {theirs:?} for {}, as LookupInstances says",
                    known.name
                ),
                format_args!("{ours:?}"),
            )?;
        }
    }
    if compared == 0 {
        return Err(Stop::not_offered(
            "for no known instance both LookupZones and LookupInstances report a place",
        ));
    }
    Ok(())
}

async fn by_name_and_id(run: &Run) -> Verdict {
    let session = run.session().await?;
    let known = Known::named(run, &session).await?;
    let by_id = zones(&session, vec![known.node()]).await?;
    let by_name = zones(&session, vec![known.node_without_id()]).await?;
    let sent = format!("{} and by its provider ID", by_name.exchange.sent());
    must_equal(
        by_name.zone(0, "ZONE-1")?,
        by_id.zone(0, "ZONE-1")?,
        "ZONE-1",
        sent,
    )
}

async fn unknown(run: &Run) -> Verdict {
    let session = run.session().await?;
    let known = Known::one(run, &session).await?;
    let odd = [
        run.node("nobody"),
        node("of-none", Some(&id_of_none(run))),
        node("elsewhere", Some("conformance-elsewhere:///zone/x")),
        node(
            &"n".repeat(253),
            Some(&format!("{}{}", id_of_none(run), "z".repeat(900))),
        ),
    ];
    for odd in odd.chunks(max_batch(run).saturating_sub(1).max(1)) {
        let mut nodes = odd.to_vec();
        nodes.push(known.node());
        nodes.truncate(max_batch(run));
        let has_known = nodes.len() > odd.len();
        let looked_up = zones(&session, nodes).await?;
        if has_known {
            looked_up.zone(odd.len(), "ZONE-1")?;
        }
    }
    Ok(())
}

async fn no_zone(run: &Run) -> Verdict {
    let session = run.session().await?;
    let nodes = [
        run.node("nobody"),
        node(&run.name("of-none"), Some(&id_of_none(run))),
        node(
            &run.name("elsewhere"),
            Some("conformance-elsewhere:///zone/x"),
        ),
    ];
    for nodes in nodes.chunks(max_batch(run)) {
        let looked_up = zones(&session, nodes.to_vec()).await?;
        for (node, outcome) in nodes.iter().zip(&looked_up.outcomes) {
            let nowhere = match outcome {
                Outcome::Failed(_) => true,
                Outcome::Zone(zone) => *zone == pb::Zone::default(),
            };
            looked_up.exchange.must(
                nowhere,
                "ZONE-4",
                format_args!(
                    "a `zone` without fields, or `failed`, for the Node {:?}: the cloud does not know it",
                    node.name
                ),
            )?;
        }
    }
    Ok(())
}

async fn uid_again(run: &Run) -> Verdict {
    let session = run.session().await?;
    let known = Known::one(run, &session).await?;
    for uid in ["first", "second", "first"] {
        let mut node = known.node();
        node.uid = uid.into();
        zones(&session, vec![node]).await?;
    }
    Ok(())
}

async fn empty(run: &Run) -> Verdict {
    let session = run.session().await?;
    zones(&session, Vec::new()).await?;
    Ok(())
}

async fn full(run: &Run) -> Verdict {
    let session = run.session().await?;
    let mut nodes = vec![some_node(run, &session).await?];
    nodes.resize_with(max_batch(run), || run.node("nobody"));
    nodes.reverse();
    zones(&session, nodes).await?;
    Ok(())
}

async fn beyond(run: &Run) -> Verdict {
    let session = run.session().await?;
    let mut nodes = Vec::new();
    nodes.resize_with(beyond_batch(max_batch(run))?, || run.node("nobody"));
    let exchange = session.call(request(nodes)).await;
    exchange
        .failure("CORE-20", &[FailureCode::Invalid])
        .map(|_| ())
}

async fn again(run: &Run) -> Verdict {
    let session = run.session().await?;
    let known = Known::one(run, &session).await?;
    let mut nodes = vec![known.node(), run.node("nobody"), run.node("nobody")];
    nodes.truncate(max_batch(run));
    let mut first = None;
    for _ in 0..4 {
        let looked_up = zones(&session, nodes.clone()).await?;
        let place = nodes.iter().position(|node| node.name == known.name);
        let zone = looked_up.zone(place.unwrap_or_default(), "ZONE-1")?.clone();
        match &first {
            None => first = Some(zone),
            Some(first) => must_equal(&zone, first, "CORE-6", looked_up.exchange.sent())?,
        }
        nodes.rotate_left(1);
    }
    Ok(())
}

async fn refused(run: &Run, code: FailureCode) -> Verdict {
    let session = run.session().await?;
    let nodes = vec![some_node(run, &session).await?];
    let before = zones(&session, nodes.clone()).await?.exchange;
    run.cloud_fail(short_code(code)).await?;
    let exchange = session.call(request(nodes)).await;
    let answer = exchange.answer()?;
    if answer.failed.is_some() {
        well_formed::judge(
            &exchange,
            [well_formed::failure(exchange.failure("CORE-15", &[code])?)],
        )?;
        return Ok(());
    }
    let failed = answer
        .results
        .iter()
        .all(|one| matches!(&one.outcome, Some(Outcome::Failed(failed)) if failed.code() == code));
    if !failed && run.knows(exchange.rpc, answer == before.answer()?) {
        return Ok(());
    }
    let expected = format!("failed with {}: the cloud's code", short_code(code));
    exchange.must(failed && !answer.results.is_empty(), "CORE-15", expected)
}

async fn throttled(run: &Run) -> Verdict {
    refused(run, FailureCode::Throttled).await
}

async fn credentials(run: &Run) -> Verdict {
    refused(run, FailureCode::Credentials).await
}

async fn unavailable(run: &Run) -> Verdict {
    refused(run, FailureCode::Unavailable).await
}

async fn write_nothing(run: &Run) -> Verdict {
    let session = run.session().await?;
    let nodes = vec![some_node(run, &session).await?];
    let before = run.cloud_writes().await?;
    zones(&session, nodes.clone()).await?;
    zones(&session, nodes).await?;
    let after = run.cloud_writes().await?;
    let expected = format!("{before} writes to the cloud, as before");
    must(
        after == before,
        "ZONE-3",
        "LookupZones, twice",
        expected,
        after,
    )
}

async fn unknown_fields(run: &Run) -> Verdict {
    let session = run.session().await?;
    let nodes = vec![some_node(run, &session).await?];
    let exchange = call_with_unknown_fields(&session, request(nodes)).await;
    let results = exchange.success("CORE-13")?.results.len();
    exchange.must(
        results == 1,
        "CORE-13",
        "the same as without them: one result",
    )
}

async fn another_owner(run: &Run) -> Verdict {
    let session = run.session().await?;
    let nodes = vec![some_node(run, &session).await?];
    let stranger = session.speaking_for(run.other_cluster("stranger"));
    let exchange = stranger.call(request(nodes.clone())).await;
    exchange.failure("CORE-10", &[FailureCode::NotInitialized])?;
    zones(&session, nodes).await?;
    Ok(())
}
