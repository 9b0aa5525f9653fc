//! ListRoutes: complete, or `failed` (ROUTE-1, CORE-16).

use std::time::Duration;

use cloud_provider_api::v1alpha1::{self as pb, FailureCode};

use super::super::check::{Check, Need, Verdict, check, must};
use super::super::hooks::Hook;
use super::super::listings::{self, cut_off_anywhere, fails_whole, many_at_once, read_slowly};
use super::super::run::Run;
use super::ask::{list, made, target, wanted};

const FAIL: Need = Need::Hook(Hook::CloudFail);

pub(super) fn checks() -> Vec<Check> {
    vec![
        check!(
            "routes/list-is-whole",
            ["ROUTE-1", "ROUTE-5", "CORE-16"],
            "the listing ends with the right total; each route has a name, a destination, an owner, and a target or is a blackhole",
            [Need::Routes],
            whole
        ),
        check!(
            "routes/list-fails-throttled",
            ["ROUTE-1", "CORE-15"],
            "while the cloud throttles, the listing is `failed` with THROTTLED",
            [Need::Routes, FAIL],
            list_throttled
        ),
        check!(
            "routes/list-fails-with-credentials",
            ["ROUTE-1", "CORE-15"],
            "while the cloud refuses the credentials, the listing is `failed` with CREDENTIALS",
            [Need::Routes, FAIL],
            list_credentials
        ),
        check!(
            "routes/list-fails-unavailable",
            ["ROUTE-1", "CORE-15"],
            "while the cloud is down, the listing is `failed` with UNAVAILABLE",
            [Need::Routes, FAIL],
            list_unavailable
        ),
        check!(
            "routes/list-read-slowly",
            ["ROUTE-1", "CORE-16"],
            "a consumer that reads slowly gets the whole listing",
            [Need::Routes],
            slowly
        ),
        check!(
            "routes/list-cut-off",
            ["CORE-6", "CORE-16"],
            "listings that are cut off by 30 short deadlines do no harm",
            [Need::Routes],
            list_cut_off
        ),
        check!(
            "routes/list-at-once",
            ["CORE-6", "ROUTE-1"],
            "several listings at once are all complete",
            [Need::Routes],
            at_once
        ),
        check!(
            "routes/list-writes-nothing",
            ["ROUTE-6"],
            "listing writes nothing to the cloud",
            [Need::Routes, Need::Hook(Hook::CloudWrites)],
            list_writes_nothing
        ),
    ]
}

async fn whole(run: &Run) -> Verdict {
    let session = run.session().await?;
    let known = target(run, &session).await?;
    // Now at least one route exists. The clean-up after the check deletes it.
    made(&session, &wanted(run, &known)).await?;
    list(&session).await?;
    Ok(())
}

async fn list_throttled(run: &Run) -> Verdict {
    fails_whole(
        run,
        pb::ListRoutesRequest::default(),
        "ROUTE-1",
        FailureCode::Throttled,
    )
    .await
}

async fn list_credentials(run: &Run) -> Verdict {
    fails_whole(
        run,
        pb::ListRoutesRequest::default(),
        "ROUTE-1",
        FailureCode::Credentials,
    )
    .await
}

async fn list_unavailable(run: &Run) -> Verdict {
    fails_whole(
        run,
        pb::ListRoutesRequest::default(),
        "ROUTE-1",
        FailureCode::Unavailable,
    )
    .await
}

async fn slowly(run: &Run) -> Verdict {
    read_slowly(
        run,
        pb::ListRoutesRequest::default(),
        Duration::from_millis(100),
    )
    .await
}

async fn list_cut_off(run: &Run) -> Verdict {
    cut_off_anywhere(run, pb::ListRoutesRequest::default()).await
}

async fn at_once(run: &Run) -> Verdict {
    many_at_once(run, pb::ListRoutesRequest::default(), 4).await?;
    listings::another_owner(run, pb::ListRoutesRequest::default()).await
}

async fn list_writes_nothing(run: &Run) -> Verdict {
    let session = run.session().await?;
    let before = run.cloud_writes().await?;
    list(&session).await?;
    list(&session).await?;
    let after = run.cloud_writes().await?;
    let expected = format!("{before} writes to the cloud, as before");
    must(
        after == before,
        "ROUTE-6",
        "ListRoutes, twice",
        expected,
        after,
    )
}
