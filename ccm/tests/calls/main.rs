//! `make calls`: counts the calls to a Go cloud's API, from upstream's Go CCM and from the ccm with
//! the same cloud behind the bridge. Both go through the same situations, each on an API server of
//! its own. `allowed` lists the situations in which the ccm may make more calls.
//!
//! The test counts each situation for at least a fixed time, so it waits for time to pass. It
//! counts both sides at once, except for two restarts of the ccm's side alone.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    unreachable_pub,
    reason = "helpers of tests"
)]

mod allowed;
#[path = "../bridge/binary.rs"]
mod binary;
mod half;
mod life;
mod table;

use futures::future::join_all;

/// The clouds, by their values of `--cloud-provider`.
const CLOUDS: [&str; 6] = [
    "annotated",
    "byid",
    "careless",
    "fake",
    "instancesv1",
    "lister",
];

/// This environment variable limits the test to these clouds, separated by commas. With it, the
/// test neither writes docs/go-clouds.md nor compares it with the results.
const ONLY: &str = "CALLS_CLOUDS";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_cloud_sees_more_calls_than_from_upstream_but_for_safety() {
    // Building takes minutes the first time.
    tokio::task::spawn_blocking(binary::binary).await.unwrap();
    let only = std::env::var(ONLY).ok();
    let wanted = |cloud: &&&str| {
        only.as_ref()
            .is_none_or(|only| only.split(',').any(|it| it == **cloud))
    };
    let clouds: Vec<&str> = CLOUDS.iter().filter(wanted).copied().collect();
    assert!(!clouds.is_empty(), "{ONLY} names none of {CLOUDS:?}");
    // All clouds at once: the test mostly waits.
    let counted = join_all(
        clouds
            .into_iter()
            .map(async |cloud| (cloud, life::of(cloud).await)),
    )
    .await;
    for (cloud, rows) in &counted {
        eprintln!("{}", table::of_cloud(cloud, rows));
    }
    let wrong: Vec<String> = counted
        .iter()
        .flat_map(|(cloud, rows)| rows.iter().filter_map(|row| allowed::wrong(cloud, row)))
        .collect();
    // The test writes wrong counts too, so that the page shows them.
    let written = only.is_none() && table::write(&counted);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    if only.is_none() && !written {
        table::check(&counted);
    }
}
