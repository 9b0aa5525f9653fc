//! ClusterService (CLUSTER).

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use cloud_provider_api::v1alpha1::get_control_plane_address_response::Outcome;
use cloud_provider_api::v1alpha1::{self as pb, FailureCode};

use super::call::short_code;
use super::check::{Check, Need, Stop, Verdict, check, must, must_equal};
use super::hooks::Hook;
use super::listings::{self, cut_off_anywhere, fails_whole, many_at_once, read_slowly};
use super::run::{Run, codes_of_unknown};
use super::session::Session;
use super::unknown::call_with_unknown_fields;
use super::well_formed;

const FAIL: Need = Need::Hook(Hook::CloudFail);

pub(super) fn checks() -> Vec<Check> {
    vec![
        check!(
            "clusters/list-is-whole",
            ["CLUSTER-1", "CORE-11", "CORE-16"],
            "the listing ends with the right total; each name is there once and has 1 to 253 bytes",
            [Need::Clusters],
            whole
        ),
        check!(
            "clusters/list-has-what-is-known",
            ["CLUSTER-1"],
            "every cluster of suite.yaml is in the listing",
            [Need::Clusters],
            has_known
        ),
        check!(
            "clusters/list-fails-throttled",
            ["CLUSTER-1", "CORE-15"],
            "while the cloud throttles, a listing that needs the cloud is `failed` with THROTTLED",
            [Need::Clusters, FAIL],
            list_throttled
        ),
        check!(
            "clusters/list-fails-with-credentials",
            ["CLUSTER-1", "CORE-15"],
            "while the cloud refuses the credentials, a listing that needs the cloud is `failed` with CREDENTIALS",
            [Need::Clusters, FAIL],
            list_credentials
        ),
        check!(
            "clusters/list-fails-unavailable",
            ["CLUSTER-1", "CORE-15"],
            "while the cloud is down, a listing that needs the cloud is `failed` with UNAVAILABLE",
            [Need::Clusters, FAIL],
            list_unavailable
        ),
        check!(
            "clusters/list-read-slowly",
            ["CLUSTER-1", "CORE-16"],
            "a consumer that reads slowly gets the whole listing",
            [Need::Clusters],
            slowly
        ),
        check!(
            "clusters/list-cut-off",
            ["CORE-6", "CORE-16"],
            "listings that are cut off by 30 short deadlines, and several at once, do no harm",
            [Need::Clusters],
            cut_off
        ),
        check!(
            "clusters/address",
            ["CLUSTER-2", "CORE-6"],
            "a known cluster has the same address each time: a host name or an IP address, without a port",
            [Need::Clusters],
            address
        ),
        check!(
            "clusters/unknown-is-not-found",
            ["CLUSTER-2", "CORE-15"],
            "a cluster that the cloud does not know is NOT_FOUND",
            [Need::Clusters],
            unknown
        ),
        check!(
            "clusters/failing-cloud-is-not-not-found",
            ["CLUSTER-2", "CORE-15"],
            "while the cloud fails, an address that needs the cloud is `failed` with the cloud's code, never NOT_FOUND",
            [Need::Clusters, FAIL],
            failing
        ),
        check!(
            "clusters/unknown-fields",
            ["CORE-13"],
            "the provider ignores fields of a later minor version",
            [Need::Clusters],
            unknown_fields
        ),
        check!(
            "clusters/another-owner",
            ["CORE-10"],
            "calls for an owner that was not initialised are NOT_INITIALIZED",
            [Need::Clusters],
            another_owner
        ),
    ]
}

fn request(name: &str) -> pb::GetControlPlaneAddressRequest {
    pb::GetControlPlaneAddressRequest {
        cluster: None,
        cluster_name: name.into(),
    }
}

async fn names(session: &Session) -> Verdict<BTreeSet<String>> {
    let exchange = session.list(pb::ListClustersRequest::default()).await;
    let names = exchange.items()?;
    let judged = names
        .iter()
        .map(|name| well_formed::name("the name of a cluster", name));
    well_formed::judge(&exchange, judged)?;
    let unique: BTreeSet<_> = names.iter().cloned().collect();
    exchange.must(
        unique.len() == names.len(),
        "CLUSTER-1",
        "each cluster is listed once",
    )?;
    Ok(unique)
}

/// The name of a cluster that the cloud knows.
async fn known(run: &Run, session: &Session) -> Verdict<String> {
    if let Some(known) = run.config().clusters.first() {
        return Ok(known.name.clone());
    }
    let name = names(session).await?.pop_first();
    name.ok_or_else(|| {
        Stop::not_set_up("the cloud knows no cluster; name one in suite.yaml under `clusters`")
    })
}

async fn whole(run: &Run) -> Verdict {
    names(&run.session().await?).await?;
    Ok(())
}

async fn has_known(run: &Run) -> Verdict {
    if run.config().clusters.is_empty() {
        return Err(Stop::not_set_up(
            "suite.yaml names no cluster under `clusters`",
        ));
    }
    let names = names(&run.session().await?).await?;
    for known in &run.config().clusters {
        let expected = format!("{:?} is listed", known.name);
        must(
            names.contains(&known.name),
            "CLUSTER-1",
            "ListClusters",
            expected,
            format_args!("{names:?}"),
        )?;
    }
    Ok(())
}

async fn list_throttled(run: &Run) -> Verdict {
    fails_whole(
        run,
        pb::ListClustersRequest::default(),
        "CLUSTER-1",
        FailureCode::Throttled,
    )
    .await
}

async fn list_credentials(run: &Run) -> Verdict {
    fails_whole(
        run,
        pb::ListClustersRequest::default(),
        "CLUSTER-1",
        FailureCode::Credentials,
    )
    .await
}

async fn list_unavailable(run: &Run) -> Verdict {
    fails_whole(
        run,
        pb::ListClustersRequest::default(),
        "CLUSTER-1",
        FailureCode::Unavailable,
    )
    .await
}

async fn slowly(run: &Run) -> Verdict {
    read_slowly(
        run,
        pb::ListClustersRequest::default(),
        Duration::from_millis(100),
    )
    .await
}

async fn cut_off(run: &Run) -> Verdict {
    cut_off_anywhere(run, pb::ListClustersRequest::default()).await?;
    many_at_once(run, pb::ListClustersRequest::default(), 4).await
}

/// The address of this cluster, which must be an IP address or a host name.
async fn address_of(session: &Session, name: &str) -> Verdict<String> {
    let exchange = session.call(request(name)).await;
    let address = match &exchange.success("CLUSTER-2")?.outcome {
        Some(Outcome::Address(address)) => address.clone(),
        _ => String::new(),
    };
    let is_host = !address.is_empty()
        && address.len() <= well_formed::NAME_BYTES
        && address
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte));
    exchange.must(
        is_host || address.parse::<IpAddr>().is_ok(),
        "CLUSTER-2",
        "a host name or an IP address, without a port",
    )?;
    Ok(address)
}

async fn address(run: &Run) -> Verdict {
    let session = run.session().await?;
    let known = known(run, &session).await?;
    let first = address_of(&session, &known).await?;
    let stated = run.config().clusters.iter().find(|one| one.name == known);
    let sent = format!("GetControlPlaneAddress of {known:?}");
    if let Some(stated) = stated.and_then(|one| one.address.as_ref()) {
        must_equal(&first, stated, "CLUSTER-2", &sent)?;
    }
    for _ in 0..3 {
        let again = address_of(&session, &known).await?;
        must_equal(&again, &first, "CORE-6", &sent)?;
    }
    Ok(())
}

async fn unknown(run: &Run) -> Verdict {
    let session = run.session().await?;
    for name in [run.name("nobody"), "n".repeat(253)] {
        let exchange = session.call(request(&name)).await;
        let failed = exchange.failure("CLUSTER-2", &[FailureCode::NotFound])?;
        well_formed::judge(&exchange, [well_formed::failure(failed)])?;
    }
    let exchange = session.call(request("")).await;
    exchange.failure("CLUSTER-2", &[FailureCode::NotFound, FailureCode::Invalid])?;
    Ok(())
}

async fn failing(run: &Run) -> Verdict {
    let session = run.session().await?;
    let known = known(run, &session).await?;
    let before = session.call(request(&known)).await;
    let before = before.success("CLUSTER-2")?;
    for code in [
        FailureCode::Throttled,
        FailureCode::Credentials,
        FailureCode::Unavailable,
    ] {
        run.cloud_fail(short_code(code)).await?;
        let exchange = session.call(request(&known)).await;
        let knows = run.knows(exchange.rpc, exchange.answer()? == before);
        if !knows {
            exchange.failure("CORE-15", &[code])?;
        }
        let codes = codes_of_unknown(code, knows);
        let exchange = session.call(request(&run.name("nobody"))).await;
        exchange.failure("CORE-15", &codes)?;
    }
    Ok(())
}

async fn unknown_fields(run: &Run) -> Verdict {
    let session = run.session().await?;
    let name = run.name("nobody");
    let exchange = call_with_unknown_fields(&session, request(&name)).await;
    exchange.failure("CORE-13", &[FailureCode::NotFound])?;
    Ok(())
}

async fn another_owner(run: &Run) -> Verdict {
    let session = run.session().await?;
    let stranger = session.speaking_for(run.other_cluster("stranger"));
    let exchange = stranger.call(request("any")).await;
    exchange.failure("CORE-10", &[FailureCode::NotInitialized])?;
    listings::another_owner(run, pb::ListClustersRequest::default()).await
}
