//! Older and newer controllers (CORE-13).

use std::time::Duration;

use bytes::{Buf, Bytes};
use cloud_provider_api::v1alpha1 as pb;
use pb::lookup_instance_result::Outcome;
use prost::Message;
use prost::encoding::{
    DecodeContext, WireType, decode_key, decode_varint, encode_key, encode_varint, skip_field,
};

use super::super::call::{Answer, Rpc, shown};
use super::super::check::{Check, Need, Stop, Verdict, check, must, must_equal};
use super::super::run::Run;
use super::super::session::Session;
use super::tour;

const PATIENCE: Duration = Duration::from_secs(30);

pub(super) fn checks() -> Vec<Check> {
    vec![
        check!(
            "core/an-older-controller-is-answered",
            ["CORE-13"],
            "GetProviderInfo answers a controller of minor 0, whatever the provider's own minor",
            |run| of_minor(run, 0)
        ),
        check!(
            "core/a-newer-controller-is-answered",
            ["CORE-13"],
            "GetProviderInfo answers a controller of a much later minor in the same way",
            |run| of_minor(run, 1_000)
        ),
        check!(
            "core/minors-are-honest",
            ["CORE-13", "PROV-10"],
            "min_controller_minor is not above contract_minor",
            minors
        ),
        check!(
            "core/unknown-fields-of-the-handshake-are-ignored",
            ["CORE-13"],
            "unknown fields in GetProviderInfo, Probe and Initialize are ignored",
            handshake
        ),
        check!(
            "core/unknown-fields-of-lookups-are-ignored",
            ["CORE-13"],
            "unknown fields in LookupInstances, its cluster and its Nodes are ignored",
            [Need::Instances],
            lookup
        ),
        check!(
            "core/unknown-fields-of-load-balancers-are-ignored",
            ["CORE-13"],
            "unknown fields in GetLoadBalancer and its Service are ignored",
            [Need::LoadBalancers],
            load_balancer
        ),
        check!(
            "core/unknown-fields-of-volumes-are-ignored",
            ["CORE-13"],
            "unknown fields in GetVolumeLabels and its volume are ignored",
            [Need::Volumes],
            volume
        ),
        check!(
            "core/unknown-facets-are-ignored",
            ["CORE-13"],
            "the provider ignores facets of a later minor and answers the known ones beside them",
            [Need::Instances],
            facets
        ),
        check!(
            "core/zero-enums-are-never-sent",
            ["CORE-13"],
            "no feature, field group or ProbeState is UNSPECIFIED",
            no_zero
        ),
    ]
}

async fn of_minor(run: &Run, contract_minor: u32) -> Verdict {
    let session = run.connect().await?;
    let request = pb::GetProviderInfoRequest {
        controller_version: "0.0.1-conformance".into(),
        contract_minor,
    };
    let asked = session.call(request).await;
    let info = asked.answer()?;
    asked.must(
        info.contract_minor == run.info().contract_minor
            && info.provider_name == run.info().provider_name,
        "CORE-13",
        "the same provider_name and contract_minor for every controller",
    )?;
    // The next controller is served as usual.
    run.session().await.map(|_| ())
}

async fn minors(run: &Run) -> Verdict {
    let info = run.info();
    must(
        info.min_controller_minor <= info.contract_minor,
        "CORE-13",
        "GetProviderInfo",
        format_args!(
            "min_controller_minor of at most contract_minor, which is {}",
            info.contract_minor
        ),
        format_args!("min_controller_minor {}", info.min_controller_minor),
    )
}

/// Fields of each wire type that no minor version has.
fn unknown_fields() -> Vec<u8> {
    let mut bytes = Vec::new();
    encode_key(1_001, WireType::Varint, &mut bytes);
    encode_varint(u64::MAX, &mut bytes);
    encode_key(1_002, WireType::LengthDelimited, &mut bytes);
    encode_varint(5, &mut bytes);
    bytes.extend(b"later");
    encode_key(1_003, WireType::SixtyFourBit, &mut bytes);
    bytes.extend([7; 8]);
    encode_key(536_870_911, WireType::ThirtyTwoBit, &mut bytes);
    bytes.extend([7; 4]);
    bytes
}

/// The message with unknown fields at its beginning and its end, and the same in each of these
/// message fields. No known field occurs more often than before.
fn with_unknown_fields(message: &[u8], within: &[u32]) -> Option<Vec<u8>> {
    let mut bytes = unknown_fields();
    let mut rest = message;
    while rest.has_remaining() {
        let whole = rest;
        let (field, wire_type) = decode_key(&mut rest).ok()?;
        if wire_type == WireType::LengthDelimited && within.contains(&field) {
            let length = usize::try_from(decode_varint(&mut rest).ok()?).ok()?;
            let (inner, behind) = rest.split_at_checked(length)?;
            let inner = with_unknown_fields(inner, &[])?;
            encode_key(field, wire_type, &mut bytes);
            encode_varint(inner.len() as u64, &mut bytes);
            bytes.extend(inner);
            rest = behind;
        } else {
            skip_field(wire_type, field, &mut rest, DecodeContext::default()).ok()?;
            bytes.extend(&whole[..whole.len() - rest.len()]);
        }
    }
    bytes.extend(unknown_fields());
    Some(bytes)
}

async fn with_unknown<R: Rpc>(
    session: &Session,
    request: R,
    within: &[u32],
) -> Verdict<R::Response> {
    let message = tour::encoded(session, request);
    let message = with_unknown_fields(&message, within).ok_or_else(|| {
        Stop::failed(
            "(the suite)",
            R::NAME,
            "its own message is whole",
            "it is not",
        )
    })?;
    let sent = format!(
        "{} with unknown fields in it{}",
        R::NAME,
        if within.is_empty() {
            ""
        } else {
            " and in its messages"
        }
    );
    let answer = session.raw(R::PATH, Bytes::from(message), PATIENCE).await;
    let answer = answer.map_err(|status| {
        Stop::failed(
            "CORE-13",
            &sent,
            "the same answer as without them",
            shown(&status),
        )
    })?;
    R::Response::decode(answer)
        .map_err(|error| Stop::failed("CORE-13", &sent, "an answer that can be read", error))
}

fn no_failure<T: Answer>(answer: &T, what: &str) -> Verdict {
    must(
        answer.failed().is_none() && answer.says_something(),
        "CORE-13",
        format_args!("{what} with unknown fields in it"),
        "the same answer as without them",
        format_args!("{answer:?}"),
    )
}

async fn handshake(run: &Run) -> Verdict {
    let session = run.connect().await?;
    let info: pb::GetProviderInfoResponse =
        with_unknown(&session, pb::GetProviderInfoRequest::default(), &[]).await?;
    must_equal(
        &info.boot_id,
        &session
            .call(pb::ProbeRequest::default())
            .await
            .answer()?
            .boot_id,
        "CORE-13",
        "GetProviderInfo with unknown fields",
    )?;
    with_unknown(&session, pb::ProbeRequest::default(), &[]).await?;
    let initialized = with_unknown(&session, pb::InitializeRequest::default(), &[1]).await?;
    no_failure(&initialized, "Initialize")
}

async fn lookup(run: &Run) -> Verdict {
    let session = run.session().await?;
    let mut request = tour::lookup(run);
    request.nodes.push(run.node("later"));
    let answer = with_unknown(&session, request, &[1, 2]).await?;
    no_failure(&answer, "LookupInstances")?;
    must_equal(
        &answer.results.len(),
        &2,
        "CORE-13",
        "LookupInstances for 2 Nodes with unknown fields in each message",
    )
}

async fn load_balancer(run: &Run) -> Verdict {
    let session = run.session().await?;
    let answer = with_unknown(&session, tour::get_load_balancer(run), &[1, 2]).await?;
    no_failure(&answer, "GetLoadBalancer")
}

async fn volume(run: &Run) -> Verdict {
    let session = run.session().await?;
    let plain = session.call(tour::volume(run)).await;
    let answer = with_unknown(&session, tour::volume(run), &[1, 2]).await?;
    let code = |answer: &pb::GetVolumeLabelsResponse| answer.failed().map(pb::Failure::code);
    must_equal(
        &code(&answer),
        &code(plain.answer()?),
        "CORE-13",
        "GetVolumeLabels with unknown fields",
    )
}

async fn facets(run: &Run) -> Verdict {
    let known = run.instances(1).await?;
    let session = run.session().await?;
    let asked = session
        .call(pb::LookupInstancesRequest {
            nodes: vec![run.node_of(&known[0])],
            facets: vec![77, pb::InstanceFacet::Metadata.into(), 0],
            ..Default::default()
        })
        .await;
    let found = asked.success("CORE-13")?.results.iter().any(|result| {
        matches!(&result.outcome, Some(Outcome::Found(found)) if found.provider_id.is_some())
    });
    asked.must(
        found,
        "CORE-13",
        "the instance with its METADATA: other facets are ignored",
    )
}

async fn no_zero(run: &Run) -> Verdict {
    let info = run.info();
    let balancers = run.capabilities().load_balancers.unwrap_or_default();
    let groups = info.node_projection.clone().unwrap_or_default();
    let more = balancers.target_projection.unwrap_or_default();
    let groups = [groups.field_groups, more.field_groups].concat();
    let features = balancers.features;
    must(
        !groups.contains(&0) && !features.contains(&0),
        "CORE-13",
        "GetProviderInfo",
        "no UNSPECIFIED in node_projection.field_groups, load_balancers.target_projection.field_groups and load_balancers.features",
        format_args!("field_groups {groups:?}, features {features:?}"),
    )?;
    let probe = run.connect().await?.call(pb::ProbeRequest::default()).await;
    let state = probe.answer()?.state;
    probe.must(
        (1..=4).contains(&state),
        "CORE-13",
        "a ProbeState of this minor, not UNSPECIFIED",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_fields_stand_in_each_message_and_change_nothing_that_is_known() {
        let request = pb::LookupInstancesRequest {
            cluster: Some(pb::ClusterRef {
                name: "test".into(),
                owner_id: "us".into(),
            }),
            nodes: vec![
                pb::NodeView {
                    name: "a".into(),
                    ..Default::default()
                };
                2
            ],
            facets: vec![1, 2],
            ..Default::default()
        };
        let plain = request.encode_to_vec();
        let more = with_unknown_fields(&plain, &[1, 2]).unwrap();
        assert_eq!(pb::LookupInstancesRequest::decode(&*more).unwrap(), request);
        let twice_in_each = 2 * 4 * unknown_fields().len();
        // The lengths of the three messages grow to two bytes at most.
        assert!((twice_in_each..=twice_in_each + 3).contains(&(more.len() - plain.len())));
    }
}
