//! Overlapping calls, for one Service and for many.

use cloud_provider_api::v1alpha1::{self as pb, FailureCode};
use futures::StreamExt;
use futures::future::join_all;
use pb::delete_load_balancer_response::Outcome as Deleted;
use pb::ensure_load_balancer_response::Outcome as Ensured;

use crate::call::Exchange;
use crate::check::{Check, Need, Verdict, check, must, must_equal};
use crate::listings::is_owner;
use crate::run::Run;

use super::answer::Said;
use super::balancer::Balancer;
use super::interrupted::{gone, resumed};
use super::stage::{Stage, Writes, offered};

pub(super) fn checks() -> Vec<Check> {
    vec![
        check!(
            "load-balancers/at-once-ensure-same",
            ["CORE-7", "CORE-6"],
            "Sixteen Ensures of one Service at once are serialised or BUSY, and make one load balancer",
            [Need::LoadBalancers],
            same_at_once
        ),
        check!(
            "load-balancers/at-once-ensure-same-connections",
            ["CORE-7", "CORE-6"],
            "Eight Ensures of one Service at once on eight connections, as while one controller hands over to another, make one load balancer",
            [Need::LoadBalancers],
            same_on_connections
        ),
        check!(
            "load-balancers/at-once-ensure-and-delete",
            ["CORE-7", "CORE-6"],
            "Ensures and Deletes of one Service at once are serialised or BUSY; after `done` of Delete the load balancer is gone",
            [Need::LoadBalancers],
            ensure_and_delete
        ),
        check!(
            "load-balancers/at-once-ensure-and-update",
            ["CORE-7", "LB-11"],
            "Ensure and Update of one Service at once are serialised or BUSY, and the next Ensure makes all as asked",
            [Need::LoadBalancers],
            ensure_and_update
        ),
        check!(
            "load-balancers/at-once-sixty-four",
            ["CORE-6", "LB-1"],
            "64 Services, as many at once as max_in_flight allows, get a load balancer each, and lose it again",
            [Need::LoadBalancers],
            sixty_four
        ),
    ]
}

/// Checks that an overlapping call was served or BUSY.
fn served_or_busy<T: Said>(asked: &Exchange<T>) -> Verdict {
    match asked.answer()?.failed() {
        None => Ok(()),
        Some(_) => asked.failure("CORE-7", &[FailureCode::Busy]).map(|_| ()),
    }
}

async fn same_at_once(run: &Run) -> Verdict {
    let stage = Stage::new(run).await?;
    let balancer = stage.balancer("same");
    let calls = (0..16).map(|_| {
        let mut one = balancer.clone();
        let set = stage.targets();
        async move { one.ensure(Some(set), false).await }
    });
    for asked in join_all(calls).await {
        served_or_busy(&asked?)?;
    }
    resumed(&stage, balancer).await
}

async fn same_on_connections(run: &Run) -> Verdict {
    let stage = Stage::new(run).await?;
    let balancer = stage.balancer("same");
    let mut connected = Vec::new();
    for _ in 0..8 {
        connected.push(balancer.through(&run.connect().await?));
    }
    let calls = connected.into_iter().map(|mut one| {
        let set = stage.targets();
        async move { one.ensure(Some(set), false).await }
    });
    for asked in join_all(calls).await {
        served_or_busy(&asked?)?;
    }
    resumed(&stage, balancer).await
}

async fn ensure_and_delete(run: &Run) -> Verdict {
    let stage = Stage::new(run).await?;
    let balancer = stage.ready("both").await?;
    for _ in 0..4 {
        let ensures = (0..4).map(|_| {
            let mut one = balancer.clone();
            let set = stage.targets();
            async move { one.ensure(Some(set), false).await }
        });
        let deletes = (0..4).map(|_| {
            let mut one = balancer.clone();
            async move { one.delete().await }
        });
        let (ensured, deleted) = tokio::join!(join_all(ensures), join_all(deletes));
        for asked in ensured {
            let asked = asked?;
            served_or_busy(&asked)?;
            asked.must(
                !matches!(asked.answer()?.outcome, Some(Ensured::HandledElsewhere(_))),
                "CORE-7",
                "`ready`, `pending` or BUSY",
            )?;
        }
        for asked in deleted {
            let asked = asked?;
            served_or_busy(&asked)?;
            asked.must(
                !matches!(asked.answer()?.outcome, Some(Deleted::HandledElsewhere(_))),
                "CORE-7",
                "`done`, `pending` or BUSY",
            )?;
        }
    }
    gone(&stage, balancer.clone()).await?;
    resumed(&stage, balancer.forgetful()).await
}

async fn ensure_and_update(run: &Run) -> Verdict {
    let stage = Stage::new(run).await?;
    let balancer = stage.ready("both").await?;
    for round in 0..4 {
        let mut ensuring = balancer.changed(|service| service.ports[0].port = 8_000 + round);
        let mut updating = balancer.clone();
        let (ensured, updated) = tokio::join!(
            ensuring.ensure(Some(stage.targets()), false),
            updating.update(stage.few())
        );
        served_or_busy(&ensured?)?;
        served_or_busy(&updated?)?;
    }
    resumed(&stage, balancer).await
}

async fn sixty_four(run: &Run) -> Verdict {
    let stage = Stage::new(run).await?;
    let listing = run.sees(&[Need::LoadBalancerListing]);
    let offered = offered(run);
    let at_once = offered.max_in_flight.filter(|most| *most > 0).unwrap_or(8) as usize;
    let balancers: Vec<_> = (0..64).map(|_| stage.balancer("many")).collect();
    let make = balancers.into_iter().map(|mut balancer| {
        let set = stage.targets();
        async move { balancer.ensured(Some(set)).await.map(|_| balancer) }
    });
    let made: Vec<_> = futures::stream::iter(make.collect::<Vec<_>>())
        .buffer_unordered(at_once)
        .collect()
        .await;
    let made: Vec<Balancer> = made.into_iter().collect::<Verdict<_>>()?;
    if listing {
        let listed = stage.list().await?;
        let owners: Vec<_> = listed.iter().flat_map(|one| &one.owners).collect();
        let services = made.iter().map(|one| &one.service);
        let missing: Vec<_> = services
            .filter(|service| !owners.iter().any(|owner| is_owner(owner, service)))
            .map(|service| &service.uid)
            .collect();
        must(
            missing.is_empty(),
            "LB-13",
            "ListLoadBalancers after 64 were made: the UIDs of those that are missing",
            "none",
            format_args!("{missing:?}"),
        )?;
        must_equal(
            &owners.len(),
            &64,
            "CORE-6",
            "ListLoadBalancers after 64 were made: how many owners",
        )?;
    }
    let before = stage.writes().await?;
    let again = made.iter().map(|balancer| {
        let mut balancer = balancer.clone();
        let set = stage.targets();
        async move { balancer.ensured(Some(set)).await.map(|_| ()) }
    });
    for verdict in join_at_most(at_once, again.collect()).await {
        verdict?;
    }
    let sent = "Ensure of 64 load balancers that are as asked";
    stage.wrote_by(before, Writes::None, "LB-8", sent).await?;
    let deleted = made.iter().map(|balancer| {
        let mut balancer = balancer.clone();
        async move { balancer.deleted().await }
    });
    for verdict in join_at_most(at_once, deleted.collect()).await {
        verdict?;
    }
    for balancer in made.iter().take(8) {
        balancer
            .forgetful()
            .absent("LB-12", "Delete has answered `done`")
            .await?;
    }
    if listing {
        let left = stage.list().await?;
        must(
            left.is_empty(),
            "LB-12",
            "ListLoadBalancers after all 64 were deleted",
            "no load balancer",
            format_args!("{left:?}"),
        )?;
    }
    Ok(())
}

async fn join_at_most<T, F: Future<Output = T>>(at_once: usize, calls: Vec<F>) -> Vec<T> {
    futures::stream::iter(calls)
        .buffer_unordered(at_once)
        .collect()
        .await
}
