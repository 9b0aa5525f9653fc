//! Incomplete requests, and requests of a later minor.

use bytes::{Bytes, BytesMut};
use cloud_provider_api::v1alpha1::{self as pb, FailureCode};
use prost::Message;
use std::time::Duration;

use crate::call::{Answer, Exchange, Rpc};
use crate::check::{Check, Need, Stop, Verdict, check, must};
use crate::run::Run;

use super::stage::{Stage, Writes};

pub(super) fn checks() -> Vec<Check> {
    vec![
        check!(
            "load-balancers/request-without-service",
            ["CORE-4", "CORE-15"],
            "A request without a Service is INVALID, in the body, in all four RPCs",
            [Need::LoadBalancers],
            without_service
        ),
        check!(
            "load-balancers/request-without-uid",
            ["LB-1", "CORE-15"],
            "A Service without a UID is INVALID: a mark needs the UID",
            [Need::LoadBalancers],
            without_uid
        ),
        check!(
            "load-balancers/request-without-name",
            ["CORE-20", "CORE-15"],
            "A Service without a name is INVALID, even if it has a UID",
            [Need::LoadBalancers],
            without_name
        ),
        check!(
            "load-balancers/request-without-cluster",
            ["CORE-10", "CORE-4"],
            "A request without a cluster, or with an empty owner ID, is INVALID or NOT_INITIALIZED, in the body",
            [Need::LoadBalancers],
            without_cluster
        ),
        check!(
            "load-balancers/request-unknown-fields",
            ["CORE-13"],
            "Fields of a later minor, in the request, its cluster, its Service and its target set, are ignored",
            [Need::LoadBalancers],
            unknown_fields
        ),
        check!(
            "load-balancers/request-unknown-enum",
            ["CORE-13"],
            "An address type of a later minor on a target does not fail the call",
            [Need::LoadBalancers],
            unknown_enum
        ),
    ]
}

const WITHIN: Duration = Duration::from_secs(30);

async fn without_service(run: &Run) -> Verdict {
    let stage = Stage::new(run).await?;
    let session = &stage.session;
    let before = stage.writes().await?;
    let mut ensure = stage
        .balancer("x")
        .ensure_request(Some(stage.targets()), false);
    ensure.service = None;
    invalid(&session.call(ensure).await, "CORE-15")?;
    let mut update = stage.balancer("x").update_request(stage.targets());
    update.service = None;
    invalid(&session.call(update).await, "CORE-15")?;
    invalid(
        &session.call(pb::GetLoadBalancerRequest::default()).await,
        "CORE-15",
    )?;
    invalid(
        &session.call(pb::DeleteLoadBalancerRequest::default()).await,
        "CORE-15",
    )?;
    let sent = "Get, Ensure, Update and Delete without a Service";
    stage.wrote_by(before, Writes::None, "CORE-15", sent).await
}

fn invalid<T: Answer>(asked: &Exchange<T>, rule: &str) -> Verdict {
    asked.failure(rule, &[FailureCode::Invalid]).map(|_| ())
}

async fn without_uid(run: &Run) -> Verdict {
    let without = |service: &mut pb::ServiceView| service.uid.clear();
    lacking(run, "LB-1", "a UID", without).await
}

async fn without_name(run: &Run) -> Verdict {
    let without = |service: &mut pb::ServiceView| service.name.clear();
    lacking(run, "CORE-20", "a name", without).await
}

async fn lacking(
    run: &Run,
    rule: &str,
    what: &str,
    without: impl FnOnce(&mut pb::ServiceView),
) -> Verdict {
    let stage = Stage::new(run).await?;
    let session = &stage.session;
    let before = stage.writes().await?;
    let mut balancer = stage.balancer("lacking");
    without(&mut balancer.service);
    let ensure = balancer.ensure_request(Some(stage.targets()), false);
    invalid(&session.call(ensure).await, rule)?;
    let update = balancer.update_request(stage.targets());
    invalid(&session.call(update).await, rule)?;
    invalid(&session.call(balancer.get_request(None)).await, rule)?;
    invalid(&session.call(balancer.delete_request()).await, rule)?;
    let sent = format!("Get, Ensure, Update and Delete of a Service without {what}");
    stage.wrote_by(before, Writes::None, rule, sent).await
}

async fn without_cluster(run: &Run) -> Verdict {
    let stage = Stage::new(run).await?;
    let mut balancer = stage.ready("whole").await?;
    let before = stage.writes().await?;
    let nobody = pb::ClusterRef {
        name: run.cluster().name,
        owner_id: String::new(),
    };
    for cluster in [None, Some(nobody)] {
        refused(&stage, balancer.get_request(None), cluster.clone()).await?;
        let ensure = balancer.ensure_request(Some(stage.few()), false);
        refused(&stage, ensure, cluster.clone()).await?;
        let update = balancer.update_request(stage.few());
        refused(&stage, update, cluster.clone()).await?;
        refused(&stage, balancer.delete_request(), cluster).await?;
    }
    let sent = "Get, Ensure, Update and Delete without a cluster";
    stage
        .wrote_by(before, Writes::None, "CORE-10", sent)
        .await?;
    stage.converged(&mut balancer, Some(stage.targets())).await
}

async fn refused<R: Rpc>(
    stage: &Stage<'_>,
    mut request: R,
    cluster: Option<pb::ClusterRef>,
) -> Verdict {
    request.set_cluster(cluster);
    let asked = stage.session.call_as_is(request, WITHIN).await;
    let codes = [FailureCode::Invalid, FailureCode::NotInitialized];
    asked.failure("CORE-10", &codes).map(|_| ())
}

/// Fields with the numbers 3000 to 3003, one of each wire type that later minors may use.
fn later_fields() -> Bytes {
    let mut bytes = BytesMut::new();
    prost::encoding::uint64::encode(3_000, &7, &mut bytes);
    prost::encoding::string::encode(3_001, &"of a later minor".to_owned(), &mut bytes);
    prost::encoding::double::encode(3_002, &0.5, &mut bytes);
    prost::encoding::float::encode(3_003, &0.5, &mut bytes);
    bytes.freeze()
}

/// A message followed by unknown fields.
fn with_later_fields(message: &impl Message) -> Bytes {
    let mut bytes = BytesMut::from(message.encode_to_vec().as_slice());
    bytes.extend_from_slice(&later_fields());
    bytes.freeze()
}

/// A field with this message.
fn nested(tag: u32, message: &Bytes, to: &mut BytesMut) {
    prost::encoding::bytes::encode(tag, message, to);
}

async fn unknown_fields(run: &Run) -> Verdict {
    let stage = Stage::new(run).await?;
    let mut balancer = stage.balancer("later");
    // This call also records the Service in the ledger. The status is for comparison.
    let status = balancer.ensured(Some(stage.targets())).await?;
    let before = stage.writes().await?;
    let request = balancer.ensure_request(Some(stage.targets()), false);
    let cluster = with_later_fields(stage.session.cluster());
    let mut bytes = BytesMut::new();
    nested(1, &cluster, &mut bytes);
    nested(2, &with_later_fields(&balancer.service), &mut bytes);
    if let Some(handle) = &request.handle {
        prost::encoding::string::encode(3, handle, &mut bytes);
    }
    nested(4, &with_later_fields(&stage.targets()), &mut bytes);
    bytes.extend_from_slice(&later_fields());
    let came = stage
        .session
        .raw(pb::EnsureLoadBalancerRequest::PATH, bytes.freeze(), WITHIN)
        .await;
    let sent = "Ensure of a load balancer that is as asked, with fields 3000 to 3003 in the request, its cluster, its Service and its targets";
    let broke = |came: String| {
        Stop::failed(
            "CORE-13",
            sent,
            "`ready` with the same status: unknown fields are ignored",
            came,
        )
    };
    let came = came.map_err(|status| broke(status.to_string()))?;
    let answer = pb::EnsureLoadBalancerResponse::decode(came).map_err(|error| {
        broke(format!(
            "an answer that is no EnsureLoadBalancerResponse: {error}"
        ))
    })?;
    let is_ready = matches!(
        &answer.outcome,
        Some(pb::ensure_load_balancer_response::Outcome::Ready(ready)) if ready.status.as_ref() == Some(&status)
    );
    must(
        is_ready,
        "CORE-13",
        sent,
        "`ready` with the same status: unknown fields are ignored",
        format_args!("{answer:?}"),
    )?;
    stage.wrote_by(before, Writes::None, "CORE-13", sent).await
}

async fn unknown_enum(run: &Run) -> Verdict {
    let stage = Stage::with_targets(run, 1).await?;
    let mut node = stage.nodes()[0].clone();
    node.addresses.push(pb::NodeAddress {
        r#type: 77,
        address: "fe80::1".into(),
    });
    let mut balancer = stage.balancer("later");
    let set = crate::run::targets(vec![node]);
    balancer.ensured(Some(set)).await?;
    balancer.present(None).await.map(|_| ())
}
