//! GetProviderInfo.

use std::collections::BTreeSet;
use std::time::Duration;

use cloud_provider_api::v1alpha1 as pb;
use futures::future::join_all;
use pb::InstanceFacet;
use pb::lookup_instance_result::Outcome;

use super::super::check::{Check, Need, Stop, Verdict, check, must, must_equal};
use super::super::hooks::Hook;
use super::super::run::Run;
use super::super::session::Session;
use super::super::well_formed::NAME_BYTES;

const SLOW: Duration = Duration::from_secs(8);
/// Half of the cloud's delay, and far more time than an answer from memory needs on a busy machine.
const FROM_MEMORY: Duration = Duration::from_secs(4);
/// The most classes of load balancers.
const MOST_CLASSES: usize = 64;

pub(super) fn checks() -> Vec<Check> {
    vec![
        check!(
            "provider/info-before-initialize",
            ["PROV-1"],
            "a new process answers GetProviderInfo before Initialize",
            [Need::Command],
            before_initialize
        ),
        check!(
            "provider/info-without-a-cloud-call",
            ["PROV-1"],
            "GetProviderInfo does not wait for a slow cloud",
            [Need::Hook(Hook::CloudSlow)],
            slow_cloud
        ),
        check!(
            "provider/info-while-the-cloud-fails",
            ["PROV-1"],
            "GetProviderInfo answers the same while the cloud fails",
            [Need::Hook(Hook::CloudFail)],
            failing_cloud
        ),
        check!(
            "provider/info-needs-no-fields",
            ["PROV-1"],
            "an empty GetProviderInfo request gets the same answer",
            empty_request
        ),
        check!(
            "provider/name-is-well-formed",
            ["PROV-10"],
            "provider_name is lower-case letters, digits and dashes, at most 63 bytes; there is a version",
            name
        ),
        check!(
            "provider/prefixes-keep-their-limits",
            ["PROV-10", "PROV-8"],
            "there are 1 to 16 provider ID prefixes if the provider offers instances, each of 1 to 253 characters that PROV-8 allows, with `://`, none twice",
            prefixes
        ),
        check!(
            "provider/max-request-bytes-is-sensible",
            ["PROV-10", "CORE-11"],
            "max_request_bytes is at least 64 KiB",
            max_request_bytes
        ),
        check!(
            "provider/capabilities-are-stated",
            ["PROV-10", "CORE-5"],
            "there is a capabilities message with at least one block",
            capabilities
        ),
        check!(
            "provider/load-balancer-classes-are-well-formed",
            ["PROV-10", "CORE-11", "PROV-8"],
            "there are at most 64 classes, each of 1 to 253 characters that PROV-8 allows, none twice; with load balancers some class or the default is served",
            [Need::LoadBalancers],
            classes
        ),
        check!(
            "provider/info-is-the-same-every-time",
            ["PROV-7", "PROV-10"],
            "GetProviderInfo answers the same on two connections, before and after an Initialize",
            the_same
        ),
        check!(
            "provider/info-is-the-same-after-a-restart",
            ["PROV-10"],
            "a new process answers the same except for the boot_id",
            [Need::Command],
            after_restart
        ),
        check!(
            "provider/boot-id-stays",
            ["PROV-7"],
            "boot_id has 1 to 253 bytes and stays the same over 100 calls on several connections",
            boot_id_stays
        ),
        check!(
            "provider/boot-id-is-new-for-every-process",
            ["PROV-7"],
            "boot_id is another one after each kill -9 and restart",
            [Need::Command],
            boot_id_new
        ),
        check!(
            "provider/listed-provider-ids-begin-with-a-prefix",
            ["PROV-8", "INST-7"],
            "every provider ID of ListInstances begins with one of the prefixes",
            [Need::InstanceListing],
            listed_ids
        ),
        check!(
            "provider/found-provider-ids-begin-with-a-prefix",
            ["PROV-8"],
            "a provider ID of LookupInstances begins with one of the prefixes",
            [Need::Instances],
            found_ids
        ),
    ]
}

async fn info(session: &Session) -> Verdict<pb::GetProviderInfoResponse> {
    let request = pb::GetProviderInfoRequest {
        controller_version: "0.1.0".into(),
        contract_minor: pb::CONTRACT_MINOR,
    };
    session.call(request).await.answer().cloned()
}

async fn before_initialize(run: &Run) -> Verdict {
    run.target().restart().await?;
    let told = info(&run.connect().await?).await?;
    must_equal(
        &told.provider_name,
        &run.info().provider_name,
        "PROV-1",
        "GetProviderInfo of a new process",
    )
}

async fn slow_cloud(run: &Run) -> Verdict {
    run.cloud_slow(SLOW).await?;
    let session = run.connect().await?;
    let asked = session.call(pb::GetProviderInfoRequest::default()).await;
    asked.answer()?;
    asked.must(
        asked.took < FROM_MEMORY,
        "PROV-1",
        format_args!("an answer without a call to the cloud, which takes {SLOW:?} for each; this one took {:?}", asked.took),
    )
}

async fn failing_cloud(run: &Run) -> Verdict {
    let session = run.connect().await?;
    let before = info(&session).await?;
    for code in ["UNAVAILABLE", "CREDENTIALS"] {
        run.cloud_fail(code).await?;
        let sent = format!("GetProviderInfo while the cloud answers {code}");
        must_equal(&info(&session).await?, &before, "PROV-1", sent)?;
    }
    Ok(())
}

async fn empty_request(run: &Run) -> Verdict {
    let session = run.connect().await?;
    let expected = info(&session).await?;
    let asked = session.call(pb::GetProviderInfoRequest::default()).await;
    asked.must(
        asked.answer()? == &expected,
        "PROV-1",
        "the same as for a request with all fields",
    )
}

fn of_info(run: &Run, holds: bool, expected: impl std::fmt::Display) -> Verdict {
    must(
        holds,
        "PROV-10",
        "GetProviderInfo",
        expected,
        format_args!("{:?}", run.info()),
    )
}

async fn name(run: &Run) -> Verdict {
    let name = &run.info().provider_name;
    let well_formed = (1..=63).contains(&name.len())
        && name
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
    of_info(
        run,
        well_formed,
        "a provider_name of 1 to 63 lower-case letters, digits and dashes",
    )?;
    of_info(
        run,
        !run.info().provider_version.is_empty(),
        "a provider_version",
    )
}

/// Checks that each prefix or class has 1 to 253 bytes of the characters that PROV-8 allows.
fn of_claims(claims: &[String], expected: &str) -> Verdict {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._:/@+-".contains(&byte);
    let well_formed =
        |claim: &String| (1..=NAME_BYTES).contains(&claim.len()) && claim.bytes().all(allowed);
    must(
        claims.iter().all(well_formed),
        "PROV-8",
        "GetProviderInfo",
        expected,
        format_args!("{claims:?}"),
    )
}

async fn prefixes(run: &Run) -> Verdict {
    let prefixes = &run.info().provider_id_prefixes;
    let offered = run.capabilities().instances.is_some();
    of_info(
        run,
        prefixes.len() <= 16 && (!offered || !prefixes.is_empty()),
        "1 to 16 provider_id_prefixes",
    )?;
    of_claims(
        prefixes,
        "prefixes of 1 to 253 letters, digits and . _ : / @ + -",
    )?;
    must(
        prefixes.iter().all(|prefix| prefix.contains("://")),
        "PROV-8",
        "GetProviderInfo",
        "prefixes with `://`",
        format_args!("{prefixes:?}"),
    )?;
    let unique: BTreeSet<_> = prefixes.iter().collect();
    of_info(run, unique.len() == prefixes.len(), "no prefix twice")
}

async fn max_request_bytes(run: &Run) -> Verdict {
    let bytes = run.info().max_request_bytes;
    of_info(
        run,
        bytes.is_none_or(|bytes| bytes >= 64 * 1024),
        "max_request_bytes of at least 65,536, or none",
    )
}

async fn capabilities(run: &Run) -> Verdict {
    of_info(
        run,
        run.info()
            .capabilities
            .as_ref()
            .is_some_and(|of| *of != pb::Capabilities::default()),
        "capabilities with at least one block",
    )
}

async fn classes(run: &Run) -> Verdict {
    let offered = run.capabilities().load_balancers.unwrap_or_default();
    let unique: BTreeSet<_> = offered.classes.iter().collect();
    of_info(
        run,
        offered.default_class || !offered.classes.is_empty(),
        "default_class, or some class",
    )?;
    of_info(run, unique.len() == offered.classes.len(), "no class twice")?;
    must(
        offered.classes.len() <= MOST_CLASSES,
        "CORE-11",
        "GetProviderInfo",
        format_args!("at most {MOST_CLASSES} classes"),
        format_args!("{} classes", offered.classes.len()),
    )?;
    of_claims(
        &offered.classes,
        "classes of 1 to 253 letters, digits and . _ : / @ + -",
    )
}

async fn the_same(run: &Run) -> Verdict {
    let before = info(&run.connect().await?).await?;
    let after = info(&run.session().await?).await?;
    must_equal(
        &after,
        &before,
        "PROV-10",
        "GetProviderInfo again, on another connection, after Initialize",
    )
}

async fn after_restart(run: &Run) -> Verdict {
    let before = info(&run.connect().await?).await?;
    run.target().restart().await?;
    let after = info(&run.connect().await?).await?;
    let expected = pb::GetProviderInfoResponse {
        boot_id: after.boot_id.clone(),
        ..before
    };
    must_equal(
        &after,
        &expected,
        "PROV-10",
        "GetProviderInfo of a new process of the same command",
    )
}

async fn boot_id_stays(run: &Run) -> Verdict {
    let expected = info(&run.connect().await?).await?.boot_id;
    must(
        (1..=253).contains(&expected.len()),
        "PROV-7",
        "GetProviderInfo",
        "a boot_id of 1 to 253 bytes",
        format_args!("{expected:?}"),
    )?;
    for _ in 0..5 {
        let session = run.connect().await?;
        let calls: Vec<_> = (0..20).map(|_| info(&session)).collect();
        for told in join_all(calls).await {
            must_equal(
                &told?.boot_id,
                &expected,
                "PROV-7",
                "GetProviderInfo again, on another connection",
            )?;
        }
    }
    Ok(())
}

async fn boot_id_new(run: &Run) -> Verdict {
    let mut seen = BTreeSet::from([info(&run.connect().await?).await?.boot_id]);
    for _ in 0..3 {
        run.target().restart().await?;
        let boot_id = info(&run.connect().await?).await?.boot_id;
        must(
            seen.insert(boot_id.clone()),
            "PROV-7",
            "GetProviderInfo of a new process",
            "a boot_id that no other process had",
            format_args!("{boot_id:?} again"),
        )?;
    }
    Ok(())
}

fn begins(run: &Run, id: &str) -> bool {
    let prefixes = &run.info().provider_id_prefixes;
    prefixes
        .iter()
        .any(|prefix| id.starts_with(prefix.as_str()) && id.len() > prefix.len())
}

async fn listed_ids(run: &Run) -> Verdict {
    let session = run.session().await?;
    let request = pb::ListInstancesRequest {
        facets: vec![InstanceFacet::Metadata.into()],
        ..Default::default()
    };
    let listed = session.list(request).await;
    let mut seen = BTreeSet::new();
    for instance in listed.items()? {
        let id = instance.provider_id.unwrap_or_default();
        listed.must(
            begins(run, &id),
            "PROV-8",
            format_args!(
                "a provider ID that begins with one of {:?}, not {id:?}",
                run.info().provider_id_prefixes
            ),
        )?;
        listed.must(
            seen.insert(id.clone()),
            "INST-7",
            format_args!("{id:?} once: provider IDs are unique"),
        )?;
    }
    if seen.is_empty() {
        return Err(Stop::not_set_up("the cloud lists no instance"));
    }
    Ok(())
}

async fn found_ids(run: &Run) -> Verdict {
    let known = run.instances(1).await?;
    let session = run.session().await?;
    let asked = session
        .call(pb::LookupInstancesRequest {
            nodes: vec![run.node_of(&known[0])],
            facets: vec![InstanceFacet::Metadata.into()],
            ..Default::default()
        })
        .await;
    let id = asked
        .success("PROV-8")?
        .results
        .iter()
        .find_map(|result| match &result.outcome {
            Some(Outcome::Found(found)) => found.provider_id.clone(),
            _ => None,
        });
    asked.must(
        id.is_some_and(|id| begins(run, &id)),
        "PROV-8",
        format_args!(
            "a provider ID that begins with one of {:?}",
            run.info().provider_id_prefixes
        ),
    )
}
