//! Limits on sizes (CORE-11).

use std::collections::BTreeMap;

use cloud_provider_api::v1alpha1 as pb;
use prost::Message;

use super::super::check::{Check, Need, Verdict, check, must};
use super::super::run::{Run, batch_size};
use super::super::session::Session;
use super::tour;

const DEFAULT: u64 = 4 * 1024 * 1024;
const MIB: usize = 1024 * 1024;

pub(super) fn checks() -> Vec<Check> {
    vec![
        check!(
            "core/requests-up-to-the-stated-size-are-accepted",
            ["CORE-11"],
            "a request of max_request_bytes, but at most 16 MiB, is answered",
            |run| accepted(run, 0)
        ),
        check!(
            "core/requests-of-4-mib-are-accepted",
            ["CORE-11", "PROV-10"],
            "the provider answers a request of 4 MiB, unless it states less",
            |run| accepted(run, 4 * MIB)
        ),
        check!(
            "core/requests-of-16-mib-are-accepted",
            ["CORE-11"],
            "the provider answers a request of 16 MiB if its max_request_bytes allows that",
            |run| accepted(run, 16 * MIB)
        ),
        check!(
            "core/oversized-requests-kill-nothing",
            ["CORE-11", "CORE-4"],
            "after a request beyond max_request_bytes the provider still answers",
            oversized
        ),
        check!(
            "core/a-full-batch-of-large-nodes-is-answered",
            ["CORE-11", "INST-2"],
            "a LookupInstances of max_batch Nodes (at most 5,000, and as many as fit) with about 4 KiB of labels each is answered",
            [Need::Instances],
            full_batch
        ),
        check!(
            "core/the-longest-names-are-accepted",
            ["CORE-11"],
            "names of 253 bytes and provider IDs of 1,024 bytes are looked up",
            [Need::Instances],
            longest_names
        ),
    ]
}

fn stated(run: &Run) -> usize {
    let bytes = run
        .info()
        .max_request_bytes
        .filter(|bytes| *bytes > 0)
        .unwrap_or(DEFAULT);
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

/// A request of this size. It is an Initialize, because every provider serves that RPC. Previous
/// owner IDs and a long version fill it.
fn of_size(session: &Session, bytes: usize) -> pb::InitializeRequest {
    let mut request = pb::InitializeRequest {
        cluster: Some(session.cluster().clone()),
        kubernetes_version: "v1.36.3".into(),
        ..Default::default()
    };
    // 250 bytes with three bytes of header each. The version takes the rest.
    let owner = format!("{:x<250}", session.cluster().owner_id);
    let fits = bytes.saturating_sub(request.encoded_len() + 10) / 253;
    request.previous_owner_ids = vec![owner; fits];
    while request.encoded_len() < bytes {
        request.kubernetes_version.push('0');
    }
    request
}

async fn accepted(run: &Run, bytes: usize) -> Verdict {
    let stated = stated(run);
    let bytes = if bytes == 0 {
        stated.min(16 * MIB)
    } else {
        bytes
    };
    if bytes > stated {
        return Err(super::super::check::Stop::not_offered(format!(
            "the provider states max_request_bytes {stated}"
        )));
    }
    let session = run.connect().await?;
    let asked = session.call(of_size(&session, bytes)).await;
    asked.answer()?;
    // The provider's reaction to so many previous owner IDs does not matter.
    run.session().await.map(|_| ())
}

async fn oversized(run: &Run) -> Verdict {
    let session = run.session().await?;
    let bytes = stated(run).saturating_add(64 * 1024);
    if bytes > 64 * MIB {
        return Err(super::super::check::Stop::not_offered(
            "the provider states more than 64 MiB",
        ));
    }
    let asked = session.call(of_size(&session, bytes)).await;
    // The provider may accept more than its stated limit. Only the next call counts.
    let came = asked
        .came
        .as_ref()
        .map(|_| "an answer")
        .map_err(super::super::call::shown);
    for session in [&session, &run.connect().await?] {
        let probe = session.call(pb::ProbeRequest::default()).await;
        must(
            probe.came.is_ok(),
            "CORE-11",
            format_args!("a request of {bytes} bytes ({came:?}), then Probe"),
            "Probe is answered",
            format_args!("{:?}", probe.came),
        )?;
    }
    Ok(())
}

async fn full_batch(run: &Run) -> Verdict {
    let max_batch = batch_size(run.capabilities().instances.and_then(|of| of.max_batch));
    let room = stated(run).saturating_sub(4_096) / 5_000;
    let count = max_batch.min(5_000).min(room);
    let labels: BTreeMap<String, String> = (0..32)
        .map(|number| (format!("example.com/label-{number}"), "x".repeat(100)))
        .collect();
    let nodes: Vec<_> = (0..count)
        .map(|number| pb::NodeView {
            name: format!("{}-{number}", run.name("large")),
            uid: uuid::Uuid::new_v4().to_string(),
            labels: labels.clone().into_iter().collect(),
            ..Default::default()
        })
        .collect();
    let session = run.session().await?;
    let asked = session
        .call(pb::LookupInstancesRequest {
            nodes,
            facets: vec![pb::InstanceFacet::Existence.into()],
            ..Default::default()
        })
        .await;
    let results = asked.success("CORE-11")?.results.len();
    asked.must(
        results == count,
        "INST-2",
        format_args!("{count} results, one for each Node"),
    )
}

async fn longest_names(run: &Run) -> Verdict {
    let session = run.session().await?;
    let prefix = run
        .info()
        .provider_id_prefixes
        .first()
        .cloned()
        .unwrap_or_default();
    let mut request = tour::lookup(run);
    request.nodes = vec![
        pb::NodeView {
            name: format!("{:x<253}", run.name("long")),
            ..run.node("x")
        },
        pb::NodeView {
            provider_id: Some(format!("{prefix:x<1024}")),
            ..run.node("long-id")
        },
    ];
    let names: Vec<_> = request.nodes.iter().map(|node| node.name.clone()).collect();
    let asked = session.call(request).await;
    let answer = asked.success("CORE-11")?;
    let all = names.iter().all(|name| {
        answer
            .results
            .iter()
            .any(|result| &result.node_name == name)
    });
    asked.must(
        all,
        "CORE-11",
        "a result for each of the two Nodes, with the whole name",
    )
}
