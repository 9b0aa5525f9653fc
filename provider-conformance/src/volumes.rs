//! VolumeService (VOL).

use std::collections::BTreeMap;
use std::time::Duration;

use cloud_provider_api::v1alpha1::get_volume_labels_response::Outcome;
use cloud_provider_api::v1alpha1::{self as pb, FailureCode};

use super::call::{Answer as _, Exchange, short_code};
use super::check::{Check, Need, Stop, Verdict, check, must, must_equal, should};
use super::config::KnownVolume;
use super::hooks::Hook;
use super::run::{Run, codes_of_unknown};
use super::unknown::call_with_unknown_fields;
use super::well_formed;

const FAIL: Need = Need::Hook(Hook::CloudFail);

pub(super) fn checks() -> Vec<Check> {
    CHECKS.to_vec()
}

const CHECKS: &[Check] = &[
    check!(
        "volumes/labels",
        ["VOL-1", "VOL-4"],
        "a disk that the cloud has gets its labels, with valid keys and values",
        [Need::Volumes],
        labels
    ),
    check!(
        "volumes/labels-are-facts",
        ["VOL-3", "CORE-6"],
        "the labels are the same each time, whatever the volume's name and labels",
        [Need::Volumes],
        facts
    ),
    check!(
        "volumes/zone-is-right-or-absent",
        ["VOL-3"],
        "zone and region are those of suite.yaml, or absent",
        [Need::Volumes],
        zone
    ),
    check!(
        "volumes/unknown-disk",
        ["VOL-1"],
        "a disk that does not exist is NOT_FOUND",
        [Need::Volumes],
        no_such_disk
    ),
    check!(
        "volumes/foreign-source",
        ["VOL-1"],
        "a source of another cloud has no labels, and is no failure",
        [Need::Volumes],
        foreign
    ),
    check!(
        "volumes/source-types",
        ["VOL-2"],
        "the provider names the sources of this cloud",
        [Need::Volumes],
        source_types
    ),
    check!(
        "volumes/known-sources-are-named",
        ["VOL-2"],
        "the volumes of suite.yaml are of sources that source_types names",
        [Need::Volumes],
        known_sources
    ),
    check!(
        "volumes/before-it-is-made",
        ["VOL-1"],
        "a volume without name and UID gets the same labels",
        [Need::Volumes],
        before_it_is_made
    ),
    check!(
        "volumes/no-volume",
        ["CORE-4", "CORE-15"],
        "the provider answers a request without a volume, or without a source, in the body",
        [Need::Volumes],
        no_volume
    ),
    check!(
        "volumes/failing-cloud-is-not-not-found",
        ["VOL-1", "CORE-15"],
        "while the cloud fails, labels that need the cloud are `failed` with the cloud's code, never NOT_FOUND nor empty",
        [Need::Volumes, FAIL],
        failing
    ),
    check!(
        "volumes/cut-off-anywhere",
        ["CORE-6"],
        "calls that are cut off by 20 short deadlines do no harm",
        [Need::Volumes],
        cut_off
    ),
    check!(
        "volumes/at-once",
        ["CORE-6"],
        "max_in_flight calls at once each get the answer about their own disk",
        [Need::Volumes],
        at_once
    ),
    check!(
        "volumes/write-nothing",
        ["VOL-5"],
        "asking for labels writes nothing to the cloud",
        [Need::Volumes, Need::Hook(Hook::CloudWrites)],
        write_nothing
    ),
    check!(
        "volumes/unknown-fields",
        ["CORE-13"],
        "the provider ignores fields of a later minor version",
        [Need::Volumes],
        unknown_fields
    ),
    check!(
        "volumes/another-owner",
        ["CORE-10"],
        "a call for an owner that was not initialised is NOT_INITIALIZED",
        [Need::Volumes],
        another_owner
    ),
];

fn request(volume: pb::VolumeView) -> pb::GetVolumeLabelsRequest {
    pb::GetVolumeLabelsRequest {
        cluster: None,
        volume: Some(volume),
    }
}

fn known(run: &Run) -> Verdict<&KnownVolume> {
    let known = run.config().volumes.first();
    known.ok_or_else(|| Stop::not_set_up("suite.yaml names no volume under `volumes`"))
}

fn view(run: &Run, known: &KnownVolume) -> pb::VolumeView {
    pb::VolumeView {
        name: run.name("pv"),
        uid: "uid-of-a-volume".into(),
        source_type: known.source_type.clone(),
        source: known.source.clone(),
        ..Default::default()
    }
}

/// A source of this cloud with a disk that does not exist. If suite.yaml names volumes, it is the
/// source of the first, with each value changed except `driver` and `fsType`. Otherwise it is a
/// source of a CSI driver, if `source_types` begins with one.
fn of_no_disk(run: &Run) -> Verdict<pb::VolumeView> {
    if let Some(known) = run.config().volumes.first() {
        let mut volume = view(run, known);
        for (key, value) in &mut volume.source {
            if !["driver", "fsType"].contains(&key.as_str()) {
                value.push_str("-that-is-not-there");
            }
        }
        return Ok(volume);
    }
    let stated = run.capabilities().volumes.unwrap_or_default().source_types;
    let of = |key: &str, value: String| (key.to_owned(), value);
    match stated
        .first()
        .map(|source| source.split_once('/').unwrap_or((source, "")))
    {
        Some(("csi", driver)) => Ok(pb::VolumeView {
            name: run.name("pv"),
            source_type: "csi".into(),
            source: [
                of("driver", driver.into()),
                of("volumeHandle", run.name("none")),
            ]
            .into(),
            ..Default::default()
        }),
        _ => Err(Stop::not_set_up(
            "suite.yaml names no volume under `volumes`, and source_types does not begin with a CSI driver",
        )),
    }
}

/// The labels in an answer that must not be a failure.
fn labels_of(
    exchange: &Exchange<pb::GetVolumeLabelsResponse>,
) -> Verdict<&BTreeMap<String, String>> {
    match &exchange.success("VOL-1")?.outcome {
        Some(Outcome::Labels(labels)) => {
            well_formed::judge(exchange, [well_formed::volume_labels(labels)])?;
            Ok(&labels.labels)
        }
        _ => Err(exchange.broke("VOL-1", "labels")),
    }
}

async fn labels(run: &Run) -> Verdict {
    known(run)?;
    let session = run.session().await?;
    for known in &run.config().volumes {
        let exchange = session.call(request(view(run, known))).await;
        let labels = labels_of(&exchange)?;
        for (key, value) in &known.labels {
            let there = labels.get(key) == Some(value);
            exchange.must(
                there,
                "VOL-1",
                format_args!("the label {key}={value}, as suite.yaml says"),
            )?;
        }
    }
    Ok(())
}

async fn facts(run: &Run) -> Verdict {
    let session = run.session().await?;
    let known = known(run)?;
    let exchange = session.call(request(view(run, known))).await;
    let first = labels_of(&exchange)?.clone();
    let mut volume = view(run, known);
    for (key, value) in [("topology.kubernetes.io/zone", "elsewhere"), ("a", "b")] {
        volume.labels.insert(key.into(), value.into());
        volume.annotations.insert(key.into(), value.into());
        volume.uid.push('x');
        let exchange = session.call(request(volume.clone())).await;
        must_equal(labels_of(&exchange)?, &first, "VOL-3", exchange.sent())?;
    }
    Ok(())
}

async fn zone(run: &Run) -> Verdict {
    known(run)?;
    if run.config().volumes.iter().all(|one| one.labels.is_empty()) {
        run.unseen(Stop::not_set_up(
            "suite.yaml states no labels of any volume",
        ));
    }
    let session = run.session().await?;
    for known in &run.config().volumes {
        let exchange = session.call(request(view(run, known))).await;
        let labels = labels_of(&exchange)?;
        for key in [
            "topology.kubernetes.io/zone",
            "topology.kubernetes.io/region",
            "failure-domain.beta.kubernetes.io/zone",
            "failure-domain.beta.kubernetes.io/region",
        ] {
            let (came, stated) = (labels.get(key), known.labels.get(key));
            exchange.must(
                came.is_none() || came == stated || known.labels.is_empty(),
                "VOL-3",
                format_args!(
                    "{key} is {stated:?}, as suite.yaml says, or absent: it becomes node affinity"
                ),
            )?;
            exchange.must(
                came.is_none_or(|value| !value.is_empty()),
                "VOL-3",
                format_args!("{key} is not empty"),
            )?;
        }
    }
    Ok(())
}

async fn no_such_disk(run: &Run) -> Verdict {
    let session = run.session().await?;
    let volume = of_no_disk(run)?;
    for _ in 0..2 {
        let exchange = session.call(request(volume.clone())).await;
        let failed = exchange.failure("VOL-1", &[FailureCode::NotFound])?;
        well_formed::judge(&exchange, [well_formed::failure(failed)])?;
    }
    Ok(())
}

async fn foreign(run: &Run) -> Verdict {
    let session = run.session().await?;
    let stated = run.capabilities().volumes.unwrap_or_default().source_types;
    if stated.is_empty() {
        return Err(Stop::not_offered(
            "source_types names no source, so no source is known to be foreign",
        ));
    }
    let sources = [
        ("nfs", [("server", "192.0.2.1"), ("path", "/")]),
        (
            "csi",
            [
                ("driver", "elsewhere.conformance.example"),
                ("volumeHandle", "x"),
            ],
        ),
        ("hostPath", [("path", "/"), ("type", "")]),
    ];
    for (source_type, fields) in sources {
        if stated.iter().any(|name| name == source_type) {
            continue;
        }
        let volume = pb::VolumeView {
            name: run.name("pv"),
            source_type: source_type.into(),
            source: fields.map(|(key, value)| (key.into(), value.into())).into(),
            ..Default::default()
        };
        let exchange = session.call(request(volume)).await;
        let none = labels_of(&exchange)?.is_empty();
        exchange.must(
            none,
            "VOL-1",
            "labels without entries: it is no source of this cloud",
        )?;
    }
    Ok(())
}

async fn source_types(run: &Run) -> Verdict {
    let stated = run.capabilities().volumes.unwrap_or_default().source_types;
    let came = format!("{stated:?}");
    let named = !stated.is_empty() && stated.iter().all(|name| !name.is_empty() && name != "csi/");
    should(
        named,
        "VOL-2",
        "GetProviderInfo",
        "capabilities.volumes.source_types names this cloud's sources, such as csi/ebs.csi.aws.com",
        came,
    )
}

async fn known_sources(run: &Run) -> Verdict {
    known(run)?;
    let stated = run.capabilities().volumes.unwrap_or_default().source_types;
    if stated.is_empty() {
        return Err(Stop::not_offered(
            "source_types names no source, so the controller asks about all",
        ));
    }
    for known in &run.config().volumes {
        let name = match known.source.get("driver") {
            Some(driver) if known.source_type == "csi" => format!("csi/{driver}"),
            _ => known.source_type.clone(),
        };
        let there = stated.contains(&name);
        should(
            there,
            "VOL-2",
            "GetProviderInfo",
            format_args!("source_types has {name:?}"),
            format_args!("{stated:?}"),
        )?;
    }
    Ok(())
}

async fn before_it_is_made(run: &Run) -> Verdict {
    let session = run.session().await?;
    let known = known(run)?;
    let exchange = session.call(request(view(run, known))).await;
    let first = labels_of(&exchange)?.clone();
    let volume = pb::VolumeView {
        name: String::new(),
        uid: String::new(),
        ..view(run, known)
    };
    let exchange = session.call(request(volume)).await;
    must_equal(labels_of(&exchange)?, &first, "VOL-1", exchange.sent())
}

async fn no_volume(run: &Run) -> Verdict {
    let session = run.session().await?;
    let nothing = pb::GetVolumeLabelsRequest::default();
    for request in [nothing, request(pb::VolumeView::default())] {
        let exchange = session.call(request).await;
        let answer = exchange.answer()?;
        match &answer.outcome {
            Some(Outcome::Labels(labels)) => {
                exchange.must(
                    labels.labels.is_empty(),
                    "VOL-1",
                    "no labels: it has no source",
                )?;
            }
            Some(Outcome::Failed(_)) => {
                let codes = [FailureCode::Invalid, FailureCode::NotFound];
                exchange.failure("CORE-15", &codes)?;
            }
            None => return Err(exchange.broke("CORE-4", "an outcome")),
        }
    }
    Ok(())
}

async fn failing(run: &Run) -> Verdict {
    let session = run.session().await?;
    let known = known(run)?;
    let before = session.call(request(view(run, known))).await;
    let before = labels_of(&before)?;
    for code in [
        FailureCode::Throttled,
        FailureCode::Credentials,
        FailureCode::Unavailable,
    ] {
        run.cloud_fail(short_code(code)).await?;
        let exchange = session.call(request(view(run, known))).await;
        let same = labels_of(&exchange).is_ok_and(|labels| labels == before);
        let knows = run.knows(exchange.rpc, same);
        if !knows {
            let failed = exchange.failure("CORE-15", &[code])?;
            well_formed::judge(&exchange, [well_formed::failure(failed)])?;
        }
        let codes = codes_of_unknown(code, knows);
        let exchange = session.call(request(of_no_disk(run)?)).await;
        let failed = exchange.failure("CORE-15", &codes)?;
        well_formed::judge(&exchange, [well_formed::failure(failed)])?;
    }
    Ok(())
}

async fn cut_off(run: &Run) -> Verdict {
    let session = run.session().await?;
    let known = known(run)?;
    let exchange = session.call(request(view(run, known))).await;
    let first = labels_of(&exchange)?.clone();
    for step in 0..20_u64 {
        let deadline = Duration::from_micros(50 + step * step * 20);
        let exchange = session
            .call_within(request(view(run, known)), deadline)
            .await;
        // If the provider's own timer fires first, it may answer UNAVAILABLE.
        let unavailable = exchange.came.as_ref().is_ok_and(|answer| {
            answer
                .failed()
                .is_some_and(|failed| failed.code() == FailureCode::Unavailable)
        });
        if exchange.came.is_ok() && !unavailable {
            must_equal(labels_of(&exchange)?, &first, "CORE-6", exchange.sent())?;
        }
    }
    let exchange = session.call(request(view(run, known))).await;
    must_equal(labels_of(&exchange)?, &first, "CORE-6", exchange.sent())
}

async fn at_once(run: &Run) -> Verdict {
    let session = run.session().await?;
    let known = known(run)?;
    let exchange = session.call(request(view(run, known))).await;
    let first = labels_of(&exchange)?.clone();
    let most = run.capabilities().volumes.and_then(|of| of.max_in_flight);
    let most = most.filter(|most| *most > 0).unwrap_or(8).min(64);
    let none = of_no_disk(run)?;
    let calls: Vec<_> = (0..most)
        .map(|number| {
            let volume = if number % 2 == 0 {
                view(run, known)
            } else {
                none.clone()
            };
            session.call(request(volume))
        })
        .collect();
    for (number, exchange) in futures::future::join_all(calls)
        .await
        .into_iter()
        .enumerate()
    {
        if number % 2 == 0 {
            must_equal(labels_of(&exchange)?, &first, "CORE-6", exchange.sent())?;
        } else {
            exchange.failure("VOL-1", &[FailureCode::NotFound])?;
        }
    }
    Ok(())
}

async fn write_nothing(run: &Run) -> Verdict {
    let session = run.session().await?;
    let known = known(run)?;
    let before = run.cloud_writes().await?;
    for _ in 0..2 {
        labels_of(&session.call(request(view(run, known))).await)?;
    }
    let after = run.cloud_writes().await?;
    let expected = format!("{before} writes to the cloud, as before");
    must(
        after == before,
        "VOL-5",
        "GetVolumeLabels, twice",
        expected,
        after,
    )
}

async fn unknown_fields(run: &Run) -> Verdict {
    let session = run.session().await?;
    let volume = of_no_disk(run)?;
    let exchange = call_with_unknown_fields(&session, request(volume)).await;
    exchange.failure("CORE-13", &[FailureCode::NotFound])?;
    Ok(())
}

async fn another_owner(run: &Run) -> Verdict {
    let session = run.session().await?;
    let stranger = session.speaking_for(run.other_cluster("stranger"));
    let exchange = stranger.call(request(pb::VolumeView::default())).await;
    exchange.failure("CORE-10", &[FailureCode::NotInitialized])?;
    Ok(())
}
