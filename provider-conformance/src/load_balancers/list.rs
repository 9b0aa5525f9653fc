//! ListLoadBalancers: complete, or it fails.

use std::collections::BTreeSet;

use cloud_provider_api::v1alpha1 as pb;
use futures::future::try_join_all;

use crate::check::{Check, Need, Verdict, check, must, must_equal};
use crate::listings::is_owner;
use crate::run::Run;

use super::balancer::Balancer;
use super::stage::{Stage, is_of, list};

pub(super) fn checks() -> Vec<Check> {
    vec![
        check!(
            "load-balancers/list-empty",
            ["LB-13", "CORE-16"],
            "The list of a cluster without load balancers is `end` with total 0",
            [Need::LoadBalancers, Need::LoadBalancerListing],
            empty
        ),
        check!(
            "load-balancers/list-complete",
            ["LB-13", "CORE-16"],
            "Each load balancer is listed once, with namespace, name and UID of its Service, until it is deleted",
            [Need::LoadBalancers, Need::LoadBalancerListing],
            complete
        ),
        check!(
            "load-balancers/list-handles",
            ["LB-3", "LB-13"],
            "A listed handle is the one of Ensure's answer, and Get and Delete work with it",
            [Need::LoadBalancers, Need::LoadBalancerListing],
            handles
        ),
        check!(
            "load-balancers/list-name",
            ["LB-13"],
            "The list has a load balancer's name as Get answers it",
            [Need::LoadBalancers, Need::LoadBalancerListing],
            name
        ),
        check!(
            "load-balancers/list-repeated",
            ["CORE-6", "LB-13"],
            "The list, asked five times at once and five times after each other, is the same",
            [Need::LoadBalancers, Need::LoadBalancerListing],
            repeated
        ),
        check!(
            "load-balancers/list-while-changing",
            ["LB-13", "CORE-16"],
            "A list that is read while other load balancers are made and deleted has each load balancer that existed all the time, and its `end`",
            [Need::LoadBalancers, Need::LoadBalancerListing],
            while_changing
        ),
        check!(
            "load-balancers/list-not-initialised",
            ["CORE-10"],
            "The list for an owner that was not initialised is NOT_INITIALIZED, never an empty list",
            [Need::LoadBalancers, Need::LoadBalancerListing],
            not_initialised
        ),
    ]
}

async fn empty(run: &Run) -> Verdict {
    let stage = Stage::new(run).await?;
    let listed = stage.list().await?;
    must(
        listed.is_empty(),
        "LB-13",
        "ListLoadBalancers for a cluster that is new",
        "no load balancer, then the end",
        format_args!("{listed:?}"),
    )
}

async fn complete(run: &Run) -> Verdict {
    let stage = Stage::new(run).await?;
    let mut made = Vec::new();
    for _ in 0..5 {
        made.push(stage.ready("listed").await?);
        let listed = stage.list().await?;
        let expected: BTreeSet<_> = made.iter().map(|one| of(&one.service)).collect();
        let came: BTreeSet<_> = listed.iter().flat_map(|one| owners(one, &made)).collect();
        must_equal(
            &came,
            &expected,
            "LB-13",
            format_args!(
                "ListLoadBalancers after {} were made: their owners",
                made.len()
            ),
        )?;
        for balancer in &made {
            stage.listed_times(balancer, 1, "LB-13").await?;
        }
    }
    for balancer in &mut made {
        balancer.deleted().await?;
        stage.listed_times(balancer, 0, "LB-12").await?;
    }
    Ok(())
}

type Owner = (String, String, String);

fn of(service: &pb::ServiceView) -> Owner {
    let service = service.clone();
    (service.namespace, service.name, service.uid)
}

/// Who owns the listed load balancer. An owner without a UID has that of its Service.
fn owners(listed: &pb::ListedLoadBalancer, made: &[Balancer]) -> Vec<Owner> {
    let owners = listed.owners.iter().map(|owner| {
        let service = made
            .iter()
            .map(|one| &one.service)
            .find(|service| owner.uid.is_empty() && is_owner(owner, service));
        let uid = service.map_or(&owner.uid, |service| &service.uid);
        (owner.namespace.clone(), owner.name.clone(), uid.clone())
    });
    owners.collect()
}

async fn handles(run: &Run) -> Verdict {
    let stage = Stage::new(run).await?;
    let balancer = stage.ready("handle").await?;
    let listed = stage.list().await?;
    let handle = listed
        .iter()
        .find(|one| is_of(one, &balancer.service))
        .and_then(|one| one.handle.clone());
    must_equal(
        &handle,
        &balancer.handle,
        "LB-3",
        "ListLoadBalancers after Ensure: the handle",
    )?;
    let mut listed = balancer.forgetful();
    listed.handle = handle;
    listed.present(Some(stage.targets())).await?;
    listed.deleted().await?;
    stage.listed_times(&balancer, 0, "LB-12").await
}

async fn name(run: &Run) -> Verdict {
    let stage = Stage::new(run).await?;
    let mut balancer = stage.ready("name").await?;
    let found = balancer.present(None).await?;
    let listed = stage.list().await?;
    let names: Vec<_> = listed
        .iter()
        .filter(|one| is_of(one, &balancer.service))
        .map(|one| one.load_balancer_name.clone())
        .collect();
    must_equal(
        &names,
        &vec![found.load_balancer_name],
        "LB-13",
        "ListLoadBalancers: the name of the load balancer that Get has just named",
    )
}

async fn repeated(run: &Run) -> Verdict {
    let stage = Stage::new(run).await?;
    for _ in 0..3 {
        stage.ready("same").await?;
    }
    let first = sorted(stage.list().await?);
    let at_once = try_join_all((0..5).map(|_| list(&stage.session))).await?;
    let mut all = at_once;
    for _ in 0..5 {
        all.push(stage.list().await?);
    }
    for listed in all {
        must_equal(
            &sorted(listed),
            &first,
            "CORE-6",
            "ListLoadBalancers, repeated: nothing was changed in between",
        )?;
    }
    Ok(())
}

fn sorted(mut listed: Vec<pb::ListedLoadBalancer>) -> Vec<pb::ListedLoadBalancer> {
    listed.sort_by(|one, other| {
        let key =
            |one: &pb::ListedLoadBalancer| (one.handle.clone(), one.load_balancer_name.clone());
        key(one).cmp(&key(other))
    });
    listed
}

async fn while_changing(run: &Run) -> Verdict {
    let stage = Stage::new(run).await?;
    let mut steady = Vec::new();
    for _ in 0..3 {
        steady.push(stage.ready("steady").await?);
    }
    let (ended, mut changing) = tokio::sync::watch::channel(false);
    let change = async {
        for _ in 0..8 {
            stage.ready("moving").await?.deleted().await?;
        }
        // The list that is being read now is the last one.
        let _ = ended.send(true);
        Ok(())
    };
    let look = async {
        loop {
            let listed = stage.list().await?;
            for balancer in &steady {
                let service = &balancer.service;
                let times = listed.iter().filter(|one| is_of(one, service)).count();
                must(
                    times == 1,
                    "LB-13",
                    "ListLoadBalancers while others are made and deleted",
                    format_args!(
                        "the load balancer of the Service with UID {} once",
                        service.uid
                    ),
                    format_args!("{times} times, in {listed:?}"),
                )?;
            }
            if *changing.borrow_and_update() {
                return Ok(());
            }
        }
    };
    futures::future::try_join(change, look).await.map(|_| ())
}

async fn not_initialised(run: &Run) -> Verdict {
    let stage = Stage::new(run).await?;
    let stranger = stage.session.speaking_for(run.other_cluster("stranger"));
    let asked = stranger.list(pb::ListLoadBalancersRequest::default()).await;
    asked.failure("CORE-10", &[pb::FailureCode::NotInitialized])?;
    Ok(())
}
