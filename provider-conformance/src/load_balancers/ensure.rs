//! EnsureLoadBalancer: repeated until the load balancer is ready, and again without changes.

use std::fmt::Write as _;

use cloud_provider_api::v1alpha1::{self as pb, FailureCode};
use pb::ensure_load_balancer_response::Outcome as Ensured;
use prost_types::Timestamp;
use sha2::{Digest as _, Sha256};

use crate::check::{Check, Need, Stop, Verdict, check, must, must_equal, should};
use crate::hooks::Hook;
use crate::run::Run;

use super::stage::{Stage, Writes, need_feature};

/// The fewest digits of a SHA-256 that a mark may hold (LB-30). With this many, two values are
/// unlikely to have the same digits.
const LEAST_DIGITS: usize = 32;
/// The controller reads this many events of one answer (CORE-11).
const MOST_EVENTS: usize = 32;

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a String does not fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

pub(super) fn checks() -> Vec<Check> {
    CHECKS.to_vec()
}

const CHECKS: &[Check] = &[
    check!(
        "load-balancers/ensure-ready",
        ["CORE-6", "LB-19", "CORE-11"],
        "Ensure, repeated as `pending` asks, answers `ready` with a valid address or host name; no answer has more events than the controller reads",
        [Need::LoadBalancers],
        ready
    ),
    check!(
        "load-balancers/ensure-twice",
        ["LB-8", "LB-3"],
        "Ensure of a load balancer that is as asked is `ready` at once, with the same status and handle, and writes nothing to the cloud",
        [Need::LoadBalancers, Need::Hook(Hook::CloudWrites)],
        twice
    ),
    check!(
        "load-balancers/ensure-often",
        ["CORE-6", "LB-8"],
        "ten Ensures leave one load balancer, with the status of the first answer",
        [Need::LoadBalancers],
        often
    ),
    check!(
        "load-balancers/ensure-without-handle",
        ["LB-5", "LB-8"],
        "Ensure without the handle finds its load balancer: it makes no second one and writes nothing",
        [Need::LoadBalancers],
        without_handle
    ),
    check!(
        "load-balancers/ensure-pending",
        ["LB-14", "CORE-9"],
        "While Ensure answers `pending`, Get does not say that the load balancer is in sync",
        [Need::LoadBalancers],
        pending
    ),
    check!(
        "load-balancers/ensure-handle-early",
        ["LB-3"],
        "A `pending` answer carries the handle, or an earlier one did",
        [Need::LoadBalancers],
        handle_early
    ),
    check!(
        "load-balancers/ensure-status-given-back",
        ["LB-8", "LB-14"],
        "Changes of the Service that follow Ensure (status, finalizer, generation) cause no write to the cloud",
        [Need::LoadBalancers],
        status_given_back
    ),
    check!(
        "load-balancers/ensure-several-ports",
        ["LB-7", "LB-8"],
        "The load balancer of a Service with five ports becomes ready, and another Ensure changes nothing",
        [Need::LoadBalancers],
        several_ports
    ),
    check!(
        "load-balancers/ensure-neighbours",
        ["LB-1", "LB-2"],
        "Calls for one Service change nothing of another's load balancer",
        [Need::LoadBalancers],
        neighbours
    ),
    check!(
        "load-balancers/ensure-again-after-delete",
        ["CORE-6", "LB-12"],
        "A Service whose load balancer was deleted gets a new one, also with the old handle",
        [Need::LoadBalancers],
        again_after_delete
    ),
    check!(
        "load-balancers/ensure-longest-names",
        ["CORE-11"],
        "Names as long as Kubernetes allows them are served",
        [Need::LoadBalancers],
        longest_names
    ),
    check!(
        "load-balancers/ensure-longest-owner",
        ["CORE-11", "CORE-14", "LB-30"],
        "An owner ID of 253 bytes marks a load balancer, and two that differ in their last byte are two owners",
        [Need::LoadBalancers],
        longest_owner
    ),
    check!(
        "load-balancers/ensure-marks-or-their-digits",
        ["LB-30", "CORE-14"],
        "the cloud holds the owner ID and the Service's UID as they are, or at least the first 32 digits of their SHA-256",
        [Need::LoadBalancers, Need::Hook(Hook::LoadBalancerMarks)],
        marks
    ),
    check!(
        "load-balancers/ensure-invalid-port",
        ["CORE-15"],
        "A Service without ports, or with port 0, is INVALID and makes nothing",
        [Need::LoadBalancers],
        invalid_port
    ),
    check!(
        "load-balancers/ensure-invalid-source-range",
        ["CORE-15"],
        "A source range that is no CIDR is INVALID, and makes no load balancer that is open to all",
        [Need::LoadBalancers],
        invalid_source_range
    ),
    check!(
        "load-balancers/ensure-other-class",
        ["LB-18"],
        "A Service of a class that is not served gets no load balancer",
        [Need::LoadBalancers],
        other_class
    ),
    check!(
        "load-balancers/ensure-ip-mode",
        ["LB-19"],
        "If the provider offers IP_MODE, each address of the status has an `ip_mode`",
        [Need::LoadBalancers],
        ip_mode
    ),
];

async fn ready(run: &Run) -> Verdict {
    let stage = Stage::new(run).await?;
    let mut balancer = stage.balancer("ready");
    // `ensured` checks the status. The two calls after it show that the load balancer exists.
    balancer.ensured(Some(stage.targets())).await?;
    balancer.present(Some(stage.targets())).await?;
    stage.listed_times(&balancer, 1, "LB-13").await?;
    // The contract allows more, but the controller does not record them.
    should(
        balancer.most_events <= MOST_EVENTS,
        "CORE-11",
        "Ensure until `ready`, then Get",
        format_args!("at most {MOST_EVENTS} events in one answer: the controller reads no more"),
        format_args!("{} events in one answer", balancer.most_events),
    )
}

async fn twice(run: &Run) -> Verdict {
    let stage = Stage::new(run).await?;
    let mut balancer = stage.balancer("twice");
    let before = stage.writes().await?;
    balancer.ensured(Some(stage.targets())).await?;
    stage
        .wrote_by(
            before,
            Writes::Some,
            "(hook)",
            "Ensure of a new load balancer, until `ready`",
        )
        .await?;
    stage
        .converged(&mut balancer, Some(stage.targets()))
        .await?;
    stage.converged(&mut balancer, None).await
}

async fn often(run: &Run) -> Verdict {
    let stage = Stage::new(run).await?;
    let mut balancer = stage.balancer("often");
    let first = balancer.ensured(Some(stage.targets())).await?;
    for number in 2..=10 {
        let again = balancer.ensured(Some(stage.targets())).await?;
        must_equal(
            &again,
            &first,
            "LB-8",
            format_args!("Ensure no. {number} of 10, nothing was changed: the status"),
        )?;
    }
    stage.listed_times(&balancer, 1, "CORE-6").await
}

async fn without_handle(run: &Run) -> Verdict {
    let stage = Stage::new(run).await?;
    let mut balancer = stage.balancer("lost");
    let status = balancer.ensured(Some(stage.targets())).await?;
    let mut forgetful = balancer.forgetful();
    let before = stage.writes().await?;
    let again = forgetful.ensured(Some(stage.targets())).await?;
    let sent = "Ensure without the handle of a load balancer that is as asked";
    stage.wrote_by(before, Writes::None, "LB-8", sent).await?;
    must_equal(&again, &status, "LB-5", format_args!("{sent}: the status"))?;
    must_equal(
        &forgetful.handle.or(balancer.handle.clone()),
        &balancer.handle,
        "LB-5",
        format_args!("{sent}: the handle"),
    )?;
    stage.listed_times(&balancer, 1, "LB-5").await
}

async fn pending(run: &Run) -> Verdict {
    let stage = Stage::new(run).await?;
    let mut balancer = stage.balancer("pending");
    let asked = balancer.ensure(Some(stage.targets()), false).await?;
    let Some(Ensured::Pending(_)) = asked.answer()?.outcome else {
        balancer.ensured(Some(stage.targets())).await?;
        return Err(never_pending());
    };
    let looked = balancer.get(Some(stage.targets())).await?;
    let in_sync = super::answer::found(&looked)?.in_sync;
    // If the load balancer became ready in between, this Ensure answers `ready`.
    let next = balancer.ensure(Some(stage.targets()), false).await?;
    looked.must(
        in_sync != Some(true) || matches!(next.answer()?.outcome, Some(Ensured::Ready(_))),
        "LB-14",
        "not in_sync: Ensure answers `pending` before and after",
    )?;
    balancer.ensured(Some(stage.targets())).await.map(|_| ())
}

async fn handle_early(run: &Run) -> Verdict {
    let stage = Stage::new(run).await?;
    let mut balancer = stage.balancer("early");
    balancer.ensured(Some(stage.targets())).await?;
    if balancer.handle.is_none() {
        return Err(Stop::not_offered("the provider gives no handles"));
    }
    if balancer.pendings == 0 {
        return Err(never_pending());
    }
    should(
        balancer.without_handle == 0,
        "LB-3",
        format_args!("Ensure until `ready`, {} times pending", balancer.pendings),
        "the handle as soon as the cloud knows it, also in a `pending` answer",
        format_args!(
            "{} `pending` answers before any handle",
            balancer.without_handle
        ),
    )
}

fn never_pending() -> Stop {
    Stop::not_offered(
        "Ensure of a new load balancer was `ready` at once: there was no `pending` answer to check",
    )
}

async fn status_given_back(run: &Run) -> Verdict {
    let stage = Stage::new(run).await?;
    let mut balancer = stage.balancer("back");
    balancer.service.generation = Some(1);
    balancer.service.creation_time = Some(at(1_700_000_000));
    let status = balancer.ensured(Some(stage.targets())).await?;
    let mut written = balancer.changed(|service| {
        service.finalizers = vec!["service.kubernetes.io/load-balancer-cleanup".into()];
        service.status = Some(status.clone());
        service.generation = Some(7);
    });
    stage.converged(&mut written, Some(stage.targets())).await
}

fn at(seconds: i64) -> Timestamp {
    Timestamp { seconds, nanos: 0 }
}

async fn several_ports(run: &Run) -> Verdict {
    let stage = Stage::new(run).await?;
    let mut balancer = stage.balancer("ports");
    balancer.service.ports = (0..5)
        .map(|number| pb::ServicePort {
            name: format!("port-{number}"),
            port: 8_000 + number,
            node_port: Some(30_100 + number),
            ..balancer.service.ports[0].clone()
        })
        .collect();
    balancer.ensured(Some(stage.targets())).await?;
    stage.converged(&mut balancer, Some(stage.targets())).await
}

async fn neighbours(run: &Run) -> Verdict {
    let stage = Stage::new(run).await?;
    let mut one = stage.ready("one").await?;
    let before = one.present(Some(stage.targets())).await?;
    let mut other = stage.ready("other").await?;
    let mut changed = other.changed(|service| service.ports[0].port = 8_443);
    changed.ensured(Some(stage.targets())).await?;
    other.service = changed.service.clone();
    other.deleted().await?;
    let after = one.present(Some(stage.targets())).await?;
    must_equal(
        &after,
        &before,
        "LB-2",
        "Get of one Service, before and after another one's load balancer was made, changed and deleted",
    )?;
    stage.converged(&mut one, Some(stage.targets())).await
}

async fn again_after_delete(run: &Run) -> Verdict {
    let stage = Stage::new(run).await?;
    let mut balancer = stage.ready("again").await?;
    let stale = balancer.handle.clone();
    balancer.deleted().await?;
    balancer.handle = stale;
    balancer.ensured(Some(stage.targets())).await?;
    stage
        .converged(&mut balancer, Some(stage.targets()))
        .await?;
    stage.listed_times(&balancer, 1, "CORE-6").await?;
    balancer.deleted().await?;
    balancer.forgetful().ensured(Some(stage.targets())).await?;
    stage.listed_times(&balancer, 1, "CORE-6").await
}

async fn longest_names(run: &Run) -> Verdict {
    let stage = Stage::new(run).await?;
    let mut balancer = stage.balancer("longest");
    let service = &mut balancer.service;
    service.name = format!("{}{}", service.name, "n".repeat(63 - service.name.len()));
    service.namespace = "s".repeat(63);
    service.ports[0].name = "p".repeat(63);
    service
        .labels
        .insert(format!("example.com/{}", "k".repeat(63)), "v".repeat(63));
    let long = format!("example.com/{}", "a".repeat(63));
    service.annotations.insert(long, "x".repeat(64 * 1024));
    balancer.ensured(Some(stage.targets())).await?;
    stage
        .converged(&mut balancer, Some(stage.targets()))
        .await?;
    balancer.deleted().await
}

/// The longest owner ID with this end.
fn longest(run: &Run, end: &str) -> pb::ClusterRef {
    let mut cluster = run.cluster();
    let fill = 253 - cluster.owner_id.len() - 1;
    cluster.owner_id = format!("{}{}{end}", cluster.owner_id, "o".repeat(fill));
    cluster
}

async fn marks(run: &Run) -> Verdict {
    let stage = Stage::new(run).await?;
    for cluster in [run.cluster(), longest(run, "1")] {
        let session = stage.work_for(&cluster, &[]).await?;
        let mut balancer = stage.balancer("marks").through(&session);
        balancer.ensured(Some(stage.targets())).await?;
        let name = balancer.present(None).await?.load_balancer_name;
        let handle = balancer.handle.clone().unwrap_or_default();
        let variables = [("HANDLE", handle.as_str()), ("NAME", name.as_str())];
        let printed = run.hook(Hook::LoadBalancerMarks, &variables).await?;
        let (owner, uid) = (&cluster.owner_id, &balancer.service.uid);
        let joint = hex(&Sha256::digest(format!("{owner}/{uid}")));
        for (what, value) in [("the owner ID", owner), ("the Service's UID", uid)] {
            let digits = hex(&Sha256::digest(value));
            let marks = [
                value.as_str(),
                &digits[..LEAST_DIGITS],
                &joint[..LEAST_DIGITS],
            ];
            must(
                marks.iter().any(|mark| printed.contains(mark)),
                "LB-30",
                format_args!("Ensure for {what} {value:?}, then the hook load-balancer-marks"),
                format_args!(
                    "{what} as it is, or the first digits of its SHA-256, {LEAST_DIGITS} at least: {digits}. In one mark for both, the digits of the owner ID, \"/\" and the UID: {joint}"
                ),
                &printed,
            )?;
        }
        balancer.deleted().await?;
    }
    Ok(())
}

async fn longest_owner(run: &Run) -> Verdict {
    let stage = Stage::new(run).await?;
    let (one, other) = (longest(run, "1"), longest(run, "2"));
    let session = stage.work_for(&one, &[]).await?;
    let mut balancer = stage.balancer("owner").through(&session);
    balancer.ensured(Some(stage.targets())).await?;
    balancer.present(None).await?;
    stage.listed_times(&balancer, 1, "CORE-14").await?;
    let session = stage.work_for(&other, &[]).await?;
    let mut others = balancer.forgetful().through(&session);
    let asked = others.get(None).await?;
    asked.must(
        super::answer::found(&asked)?.ownership() != pb::Ownership::Ours,
        "LB-30",
        "not OURS: the owner ID differs in its last byte",
    )?;
    stage.listed_times(&others, 0, "CORE-14").await?;
    let session = stage.work_for(&one, &[]).await?;
    balancer = balancer.through(&session);
    balancer.present(None).await?;
    balancer.deleted().await
}

async fn invalid_port(run: &Run) -> Verdict {
    let stage = Stage::new(run).await?;
    let none: fn(&mut pb::ServiceView) = |service| service.ports.clear();
    let zero: fn(&mut pb::ServiceView) = |service| service.ports[0].port = 0;
    for wrong in [none, zero] {
        refused(&stage, wrong).await?;
    }
    Ok(())
}

async fn invalid_source_range(run: &Run) -> Verdict {
    need_feature(run, pb::ServiceFeature::SourceRanges)?;
    let stage = Stage::new(run).await?;
    for range in ["everybody", "10.0.0.0/33"] {
        refused(&stage, |service| {
            service.load_balancer_source_ranges = vec![range.into()];
        })
        .await?;
    }
    Ok(())
}

/// Checks that Ensure refuses a Service that the API server would not accept.
async fn refused(stage: &Stage<'_>, wrong: impl FnOnce(&mut pb::ServiceView)) -> Verdict {
    let mut balancer = stage.balancer("wrong").changed(wrong);
    let asked = balancer.ensure(Some(stage.targets()), false).await?;
    let failure = asked.failure("CORE-15", &[FailureCode::Invalid])?;
    asked.must(
        !failure.message.is_empty(),
        "CORE-15",
        "a message that says which value is wrong",
    )?;
    balancer
        .absent(
            "CORE-15",
            "Ensure has answered INVALID, and nothing was there before",
        )
        .await
}

async fn other_class(run: &Run) -> Verdict {
    let stage = Stage::new(run).await?;
    let mut balancer = stage.balancer("class");
    balancer.service.load_balancer_class = Some("example.com/served-by-nobody".into());
    let asked = balancer.ensure(Some(stage.targets()), false).await?;
    asked.should(
        matches!(
            asked.answer()?.outcome,
            Some(Ensured::Failed(_) | Ensured::HandledElsewhere(_))
        ),
        "LB-18",
        "`failed` (INVALID) or `handled_elsewhere`: the class is none of Capabilities.load_balancers.classes",
    )?;
    balancer
        .absent("LB-18", "the class of the Service is not served")
        .await
}

async fn ip_mode(run: &Run) -> Verdict {
    need_feature(run, pb::ServiceFeature::IpMode)?;
    let stage = Stage::new(run).await?;
    let status = stage
        .balancer("mode")
        .ensured(Some(stage.targets()))
        .await?;
    let addresses = status.ingress.iter().filter(|point| point.ip.is_some());
    let silent: Vec<_> = addresses.filter(|point| point.ip_mode.is_none()).collect();
    must(
        silent.is_empty(),
        "LB-19",
        "Ensure until `ready`; the provider offers IP_MODE",
        "an `ip_mode` beside each `ip`",
        format_args!("{silent:?}"),
    )
}
