//! Calls that are cut off, repeated or concurrent (CORE-6 to CORE-8).

use std::time::Duration;

use cloud_provider_api::v1alpha1::route_result::Outcome;
use cloud_provider_api::v1alpha1::{self as pb, FailureCode};

use super::super::check::{Check, Need, Stop, Verdict, after, check, must};
use super::super::hooks::Hook;
use super::super::run::Run;
use super::super::session::Session;
use super::ask::{
    as_listed, by_key, create, delete, list, list_to, made, max_batch, none, only, removed, target,
    wanted,
};

const SLOW: Need = Need::Hook(Hook::CloudSlow);

pub(super) fn checks() -> Vec<Check> {
    vec![
        check!(
            "routes/making-cut-off",
            ["CORE-6", "ROUTE-2"],
            "creates that are cut off by 14 short deadlines and repeated make each route once",
            [Need::Routes],
            making
        ),
        check!(
            "routes/removing-cut-off",
            ["CORE-6", "ROUTE-4"],
            "route removals that are cut off by 14 short deadlines and repeated leave nothing",
            [Need::Routes],
            removing
        ),
        check!(
            "routes/killed-while-making",
            ["CORE-6", "ROUTE-2"],
            "after kill -9 during the call the next process makes each route once",
            [Need::Routes, Need::Command],
            killed
        ),
        check!(
            "routes/made-at-once",
            ["CORE-7", "ROUTE-2"],
            "eight calls at once for the same route make it once; each is done or BUSY",
            [Need::Routes],
            same_at_once
        ),
        check!(
            "routes/different-ones-at-once",
            ["CORE-6", "ROUTE-2"],
            "calls at once for different routes are all done",
            [Need::Routes],
            different_at_once
        ),
        check!(
            "routes/made-and-removed-at-once",
            ["CORE-7"],
            "making and removing the same route at once ends in a route or in none",
            [Need::Routes],
            both_at_once
        ),
        check!(
            "routes/nothing-written-after-the-end",
            ["CORE-8"],
            "a call that ran past its deadline writes nothing more to the cloud",
            [Need::Routes, SLOW, Need::Hook(Hook::CloudWrites)],
            nothing_after
        ),
        check!(
            "routes/slow-cloud",
            ["CORE-6", "ROUTE-2"],
            "with a slow cloud, a batch of routes is still done",
            [Need::Routes, SLOW],
            slow
        ),
    ]
}

async fn batch(run: &Run, session: &Session) -> Verdict<Vec<pb::Route>> {
    let known = target(run, session).await?;
    let count = max_batch(run).min(10);
    Ok((0..count).map(|_| wanted(run, &known)).collect())
}

/// Each route of the batch, listed once.
async fn each_once(session: &Session, routes: &[pb::Route]) -> Verdict<Vec<pb::Route>> {
    let listed = list(session).await?;
    let mut seen = Vec::new();
    for route in routes {
        let cidr = &route.destination_cidr;
        let there: Vec<_> = listed
            .iter()
            .filter(|listed| listed.destination_cidr == *cidr)
            .collect();
        must(
            there.len() == 1,
            "CORE-6",
            "ListRoutes",
            format_args!("one route to {cidr}"),
            format_args!("{there:?}"),
        )?;
        seen.extend(there.into_iter().cloned());
    }
    Ok(seen)
}

async fn remove_all(session: &Session, routes: &[pb::Route]) -> Verdict {
    delete(session, routes.iter().map(as_listed).collect())
        .await?
        .all_done("ROUTE-4")
}

/// Deadlines that cut a call off at different moments. Two are random.
fn deadlines(run: &Run) -> impl Iterator<Item = Duration> {
    let fixed = (0..12_u64).map(|step| 100 + step * step * 100);
    let moments = run.and_drawn(fixed, 2, &(1..=15_000));
    moments.into_iter().map(Duration::from_micros)
}

async fn making(run: &Run) -> Verdict {
    let session = run.session().await?;
    for deadline in deadlines(run) {
        let routes = batch(run, &session).await?;
        let request = pb::CreateRoutesRequest {
            cluster: None,
            routes: routes.clone(),
        };
        // The result, if any, does not matter.
        session.call_within(request, deadline).await;
        let what = format!("CreateRoutes with a deadline of {deadline:?}");
        after(what, done_once(&session, &routes).await)?;
    }
    Ok(())
}

/// Creates the routes that an interrupted call may have created, checks that each exists once, and
/// deletes them.
async fn done_once(session: &Session, routes: &[pb::Route]) -> Verdict {
    done_in_the_end(session, routes).await?;
    let listed = each_once(session, routes).await?;
    remove_all(session, &listed).await
}

/// Creates the routes. The interrupted call may still hold one of them for a moment (BUSY).
async fn done_in_the_end(session: &Session, routes: &[pb::Route]) -> Verdict {
    for _ in 0..40 {
        let written = create(session, routes.to_vec()).await?;
        let busy = written.outcomes.iter().any(|outcome| {
            matches!(outcome, Outcome::Failed(failed) if failed.code() == FailureCode::Busy)
        });
        if !busy {
            return written.all_done("CORE-6");
        }
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
    create(session, routes.to_vec()).await?.all_done("CORE-6")
}

async fn removing(run: &Run) -> Verdict {
    let session = run.session().await?;
    for deadline in deadlines(run) {
        let routes = batch(run, &session).await?;
        create(&session, routes.clone())
            .await?
            .all_done("ROUTE-2")?;
        let listed: Vec<_> = each_once(&session, &routes)
            .await?
            .iter()
            .map(as_listed)
            .collect();
        let request = pb::DeleteRoutesRequest {
            cluster: None,
            routes: listed.clone(),
        };
        session.call_within(request, deadline).await;
        let what = format!("DeleteRoutes with a deadline of {deadline:?}");
        after(what, gone_in_the_end(&session, &listed).await)?;
    }
    Ok(())
}

/// Deletes the routes. The interrupted call may still hold one of them for a moment (BUSY).
async fn gone_in_the_end(session: &Session, listed: &[pb::Route]) -> Verdict {
    for _ in 0..40 {
        let written = delete(session, listed.to_vec()).await?;
        if written.all_done("CORE-6").is_ok() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
    delete(session, listed.to_vec()).await?.all_done("CORE-6")?;
    for route in listed {
        none(session, &route.destination_cidr, "CORE-6").await?;
    }
    Ok(())
}

async fn killed(run: &Run) -> Verdict {
    for wait in [0, run.draw(1..=9), 10, run.draw(11..=60)] {
        let session = run.session().await?;
        let routes = batch(run, &session).await?;
        let request = pb::CreateRoutesRequest {
            cluster: None,
            routes: routes.clone(),
        };
        let (_, dead) = tokio::join!(session.call(request), async {
            tokio::time::sleep(Duration::from_millis(wait)).await;
            run.target().kill().await
        });
        dead?;
        run.target().revive().await?;
        let session = run.session().await?;
        let what = format!("CreateRoutes, the provider killed {wait} ms after it began");
        after(what, done_once(&session, &routes).await)?;
    }
    Ok(())
}

async fn same_at_once(run: &Run) -> Verdict {
    let session = run.session().await?;
    let known = target(run, &session).await?;
    for _ in 0..5 {
        let route = wanted(run, &known);
        let request = pb::CreateRoutesRequest {
            cluster: None,
            routes: vec![route.clone()],
        };
        let calls: Vec<_> = (0..8).map(|_| session.call(request.clone())).collect();
        let mut done = 0;
        for exchange in futures::future::join_all(calls).await {
            let answer = exchange.success("CORE-7")?;
            let written = by_key(&exchange, &request.routes, &answer.results)?;
            if written.done(0, "CORE-7").is_ok() {
                done += 1;
            } else {
                written.failed(0, "CORE-7", &[FailureCode::Busy])?;
            }
        }
        let sent = "eight CreateRoutes at once for one route";
        must(
            done > 0,
            "CORE-7",
            sent,
            "one of them is done",
            "all are BUSY",
        )?;
        let route = only(&session, &route.destination_cidr, "CORE-7").await?;
        removed(&session, &route).await?;
    }
    Ok(())
}

async fn different_at_once(run: &Run) -> Verdict {
    let session = run.session().await?;
    let known = target(run, &session).await?;
    let at_once = run.capabilities().routes.and_then(|of| of.max_in_flight);
    let at_once = at_once.filter(|most| *most > 0).unwrap_or(8).min(16);
    let routes: Vec<_> = (0..at_once).map(|_| wanted(run, &known)).collect();
    let calls: Vec<_> = routes
        .iter()
        .map(|route| create(&session, vec![route.clone()]))
        .collect();
    for written in futures::future::join_all(calls).await {
        written?.all_done("ROUTE-2")?;
    }
    let listed = each_once(&session, &routes).await?;
    let calls: Vec<_> = listed
        .iter()
        .map(|route| removed(&session, route))
        .collect();
    for gone in futures::future::join_all(calls).await {
        gone?;
    }
    Ok(())
}

async fn both_at_once(run: &Run) -> Verdict {
    let session = run.session().await?;
    let known = target(run, &session).await?;
    for _ in 0..5 {
        let wanted = wanted(run, &known);
        let route = made(&session, &wanted).await?;
        let making = session.call(pb::CreateRoutesRequest {
            cluster: None,
            routes: vec![wanted.clone()],
        });
        let removing = session.call(pb::DeleteRoutesRequest {
            cluster: None,
            routes: vec![as_listed(&route)],
        });
        let (making, removing) = tokio::join!(making, removing);
        making.success("CORE-7")?;
        removing.success("CORE-7")?;
        let routes = list_to(&session, &wanted.destination_cidr).await?;
        let came = format!("{routes:?}");
        must(
            routes.len() <= 1,
            "CORE-7",
            "CreateRoutes and DeleteRoutes of one route at once",
            "one route, or none",
            came,
        )?;
        let route = made(&session, &wanted).await?;
        removed(&session, &route).await?;
        none(&session, &wanted.destination_cidr, "CORE-7").await?;
    }
    Ok(())
}

async fn nothing_after(run: &Run) -> Verdict {
    let session = run.session().await?;
    let known = target(run, &session).await?;
    let count = max_batch(run).min(30);
    if count < 2 {
        return Err(Stop::not_offered("max_batch is 1: a call writes once"));
    }
    let each = Duration::from_millis(700);
    for deadline in [each / 2, each + each / 2] {
        let routes: Vec<_> = (0..count).map(|_| wanted(run, &known)).collect();
        run.cloud_slow(each).await?;
        let request = pb::CreateRoutesRequest {
            cluster: None,
            routes: routes.clone(),
        };
        let exchange = session.call_within(request, deadline).await;
        // A write that was on its way when the call ended may still arrive.
        tokio::time::sleep(each).await;
        let after_the_end = run.cloud_writes().await?;
        tokio::time::sleep(each * 4).await;
        let later = run.cloud_writes().await?;
        must(
            later == after_the_end,
            "CORE-8",
            format_args!("with a deadline of {deadline:?}: {}", exchange.sent()),
            format_args!("no more writes than the {after_the_end} at the end of the call"),
            later,
        )?;
        run.cloud_slow(Duration::ZERO).await?;
        done_in_the_end(&session, &routes).await?;
        let listed = each_once(&session, &routes).await?;
        remove_all(&session, &listed).await?;
    }
    Ok(())
}

async fn slow(run: &Run) -> Verdict {
    let session = run.session().await?;
    let routes = batch(run, &session).await?;
    run.cloud_slow(Duration::from_millis(200)).await?;
    create(&session, routes.clone())
        .await?
        .all_done("ROUTE-2")?;
    let listed = each_once(&session, &routes).await?;
    remove_all(&session, &listed).await
}
