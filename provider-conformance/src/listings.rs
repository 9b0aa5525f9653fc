//! Checks of the listings of instances, routes and clusters: complete or `failed`, cut off, read
//! slowly, and concurrent.

use std::time::Duration;

use cloud_provider_api::v1alpha1::{self as pb, FailureCode};

use super::call::{Exchange, Listed, Listing, ListingPart, Part, short_code};
use super::check::{Verdict, must};
use super::run::Run;
use super::well_formed;

/// Whether a listed owner is this Service. If the mark holds only the UID's digits, the owner has
/// no UID (LB-30). Then the namespace and the name decide.
pub(super) fn is_owner(owner: &pb::ServiceRef, service: &pb::ServiceView) -> bool {
    if owner.uid.is_empty() {
        return owner.namespace == service.namespace && owner.name == service.name;
    }
    owner.uid == service.uid
}

/// While the cloud fails with this code, a listing must end with that failure, unless the provider
/// may know its items without the cloud. Afterwards the listing must be complete again.
pub(super) async fn fails_whole<R: Listing>(
    run: &Run,
    request: R,
    rule: &str,
    code: FailureCode,
) -> Verdict {
    let session = run.session().await?;
    let whole = session.list(request.clone()).await;
    let before = whole.items()?;
    let count = before.len();
    run.cloud_fail(short_code(code)).await?;
    let exchange = session.list(request.clone()).await;
    let listed = exchange.answer()?;
    let last = listed.parts.last().cloned().map(ListingPart::part);
    if let Some(Part::Failed(failed)) = last {
        well_formed::judge(&exchange, [well_formed::failure(&failed)])?;
        exchange.failure("CORE-15", &[code])?;
    } else {
        let same = exchange.items().is_ok_and(|items| {
            items.len() == count && before.iter().all(|item| items.contains(item))
        });
        if !run.knows(R::NAME, same) {
            exchange.failure(rule, &[code])?;
        }
    }
    run.cloud_fail("NONE").await?;
    // A provider may wait for the delay that the cloud asked for.
    let mut again = session.list(request.clone()).await;
    for _ in 0..60 {
        if again.items().is_ok() {
            break;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
        again = session.list(request.clone()).await;
    }
    let came = again.items()?.len();
    again.must(
        came == count,
        rule,
        format_args!("{count} items, as before the cloud failed"),
    )
}

/// A consumer that waits before each message gets all of them.
pub(super) async fn read_slowly<R: Listing>(run: &Run, request: R, pause: Duration) -> Verdict {
    let session = run.session().await?;
    let count = session.list(request.clone()).await.items()?.len();
    let exchange = session.list_slowly(request, pause).await;
    let came = exchange.items()?.len();
    exchange.must(
        came == count,
        "CORE-16",
        format_args!("{count} items, as a quick reader got"),
    )
}

/// A listing that ends with status OK and without `failed` is complete, whatever its deadline. A
/// listing after it is complete too.
pub(super) async fn cut_off_anywhere<R: Listing>(run: &Run, request: R) -> Verdict {
    let session = run.session().await?;
    let count = session.list(request.clone()).await.items()?.len();
    for microseconds in (0..30_u64).map(|step| 50 + step * step * 20) {
        let deadline = Duration::from_micros(microseconds);
        let exchange = session.list_within(request.clone(), deadline).await;
        if ended_well(&exchange) {
            let came = exchange.items()?.len();
            exchange.must(
                came == count,
                "CORE-16",
                format_args!("{count} items, or no `end`"),
            )?;
        }
    }
    let exchange = session.list(request).await;
    let came = exchange.items()?.len();
    exchange.must(
        came == count,
        "CORE-6",
        format_args!("{count} items, as before"),
    )
}

/// Whether the stream ended with status OK, and its last message is not `failed`.
fn ended_well<P: ListingPart>(exchange: &Exchange<Listed<P>>) -> bool {
    let Ok(listed) = &exchange.came else {
        return false;
    };
    let last = listed.parts.last().cloned().map(ListingPart::part);
    listed.status.is_none() && !matches!(last, Some(Part::Failed(_)))
}

/// Reads this many listings at once, each on its own connection.
pub(super) async fn many_at_once<R: Listing>(run: &Run, request: R, count: usize) -> Verdict {
    let first = run.session().await?;
    let expected = first.list(request.clone()).await.items()?.len();
    let mut sessions = Vec::new();
    for _ in 0..count {
        sessions.push(run.connect().await?);
    }
    let lists: Vec<_> = sessions
        .iter()
        .map(|session| session.list(request.clone()))
        .collect();
    for exchange in futures::future::join_all(lists).await {
        let came = exchange.items()?.len();
        let wanted = format!("{expected} items, as a single reader got");
        must(came == expected, "CORE-16", exchange.sent(), wanted, came)?;
    }
    Ok(())
}

/// An owner that was not initialised gets no listing.
pub(super) async fn another_owner<R: Listing>(run: &Run, request: R) -> Verdict {
    let session = run.session().await?;
    let stranger = session.speaking_for(run.other_cluster("stranger"));
    let exchange = stranger.list(request.clone()).await;
    exchange.failure("CORE-10", &[FailureCode::NotInitialized])?;
    session.list(request).await.items()?;
    Ok(())
}
