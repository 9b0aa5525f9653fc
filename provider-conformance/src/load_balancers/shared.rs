//! A load balancer that Services share. Each has its own parts, and keeps them when its neighbours
//! change.

use cloud_provider_api::v1alpha1::{self as pb, FailureCode, LoadBalancerPresence, Ownership};
use pb::delete_load_balancer_response::Outcome as Deleted;

use crate::call::Answer;
use crate::check::{Check, Need, Stop, Verdict, check, must, must_equal};
use crate::listings::is_owner;
use crate::run::Run;

use super::answer::found;
use super::balancer::Balancer;
use super::stage::{Stage, Writes, is_of};

pub(super) fn checks() -> Vec<Check> {
    vec![
        check!(
            "load-balancers/shared-served",
            ["LB-20", "LB-8"],
            "Two Services that share a load balancer are ready at the same address, each in sync with ports of its own",
            [Need::LoadBalancers, Need::SharedLoadBalancer],
            served
        ),
        check!(
            "load-balancers/shared-port-taken",
            ["LB-21", "LB-2"],
            "A Service that asks for its neighbour's port gets CONFLICT; both neighbours are untouched, and a free port works",
            [Need::LoadBalancers, Need::SharedLoadBalancer],
            port_taken
        ),
        check!(
            "load-balancers/shared-port-changed-to-taken",
            ["LB-21", "LB-2"],
            "A Service that changes its port to its neighbour's gets CONFLICT, and both keep their ports",
            [Need::LoadBalancers, Need::SharedLoadBalancer],
            changed_to_taken
        ),
        check!(
            "load-balancers/shared-port-at-once",
            ["LB-21"],
            "If two Services ask for the same port at the same time, one gets it and the other CONFLICT; if both get CONFLICT, this holds when they ask again in turn",
            [Need::LoadBalancers, Need::SharedLoadBalancer],
            at_once
        ),
        check!(
            "load-balancers/shared-ensure",
            ["LB-20", "LB-2"],
            "A Service that changes its ports and targets changes nothing of its neighbour",
            [Need::LoadBalancers, Need::SharedLoadBalancer],
            ensure
        ),
        check!(
            "load-balancers/shared-update",
            ["LB-20", "LB-16"],
            "Update sets the targets of one Service, not those of its neighbour",
            [Need::LoadBalancers, Need::SharedLoadBalancer],
            update
        ),
        check!(
            "load-balancers/shared-delete-one",
            ["LB-22", "LB-2"],
            "Delete of one Service leaves its neighbour and the address; the port is free then",
            [Need::LoadBalancers, Need::SharedLoadBalancer],
            delete_one
        ),
        check!(
            "load-balancers/shared-delete-last",
            ["LB-22", "LB-12"],
            "When the last Service that shares a load balancer is deleted nothing of it is left",
            [Need::LoadBalancers, Need::SharedLoadBalancer],
            delete_last
        ),
        check!(
            "load-balancers/shared-listed",
            ["LB-23", "LB-13"],
            "Each Service that shares a load balancer is listed as an owner, once, with the handle of Ensure's answer",
            [
                Need::LoadBalancers,
                Need::SharedLoadBalancer,
                Need::LoadBalancerListing
            ],
            listed
        ),
        check!(
            "load-balancers/shared-handle",
            ["LB-20", "LB-4"],
            "A Service without a part finds none with its neighbour's handle, and can neither change nor delete the neighbour's part; if all Services have the same handle, it gets a free port with that handle",
            [Need::LoadBalancers, Need::SharedLoadBalancer],
            handle
        ),
        check!(
            "load-balancers/shared-without-handle",
            ["LB-20", "LB-5"],
            "A Service that lost its handle finds its own part, and not its neighbour's",
            [Need::LoadBalancers, Need::SharedLoadBalancer],
            without_handle
        ),
        check!(
            "load-balancers/shared-outlives-the-process",
            ["LB-20", "CORE-14"],
            "After the provider was killed and started again each Service has its own part as it was",
            [Need::LoadBalancers, Need::SharedLoadBalancer, Need::Command],
            outlives
        ),
    ]
}

const FIRST_PORT: i32 = 8_081;

/// A Service with one TCP port and the annotations of `shared_load_balancer`.
fn sharing(stage: &Stage<'_>, word: &str, port: i32) -> Balancer {
    let mut balancer = stage.balancer(word);
    let shares = stage.run.config().shared_load_balancer.clone();
    balancer
        .service
        .annotations
        .extend(shares.unwrap_or_default());
    listen(&mut balancer.service, port);
    balancer
}

fn listen(service: &mut pb::ServiceView, port: i32) {
    service.ports[0].port = port;
    service.ports[0].node_port = Some(22_000 + port);
}

/// Two Services with ready parts. Skips the check if they share nothing: then suite.yaml is wrong,
/// and the provider violates no rule.
async fn neighbours(stage: &Stage<'_>) -> Verdict<[Neighbour; 2]> {
    let mut made = Vec::new();
    for (number, word) in ["one", "other"].into_iter().enumerate() {
        let port = FIRST_PORT + i32::try_from(number).unwrap_or_default();
        let mut balancer = sharing(stage, word, port);
        let status = balancer.ensured(Some(stage.targets())).await?;
        made.push((balancer, status));
    }
    let shares = made
        .windows(2)
        .all(|two| same_address(&two[0].1, &two[1].1));
    if !shares {
        return Err(Stop::not_set_up(
            "suite.yaml: two Services with the annotations of `shared_load_balancer` have neither an address nor a host name in common: write the annotations that make them share one",
        ));
    }
    let [one, other] = [made.swap_remove(0).0, made.swap_remove(0).0];
    Ok([
        Neighbour::of(stage, one).await?,
        Neighbour::of(stage, other).await?,
    ])
}

fn same_address(one: &pb::LoadBalancerStatus, other: &pb::LoadBalancerStatus) -> bool {
    let of = |point: &pb::LoadBalancerIngress| [point.ip.clone(), point.hostname.clone()];
    let there: Vec<_> = other.ingress.iter().flat_map(of).flatten().collect();
    let mut here = one.ingress.iter().flat_map(of).flatten();
    here.any(|address| there.contains(&address))
}

/// A Service that shares a load balancer, and Get's answer about it.
struct Neighbour {
    balancer: Balancer,
    was: pb::LoadBalancer,
}

impl Neighbour {
    async fn of(stage: &Stage<'_>, mut balancer: Balancer) -> Verdict<Self> {
        let was = balancer.present(Some(stage.targets())).await?;
        Ok(Self { balancer, was })
    }

    /// Checks that it is unchanged and in sync.
    async fn stands(&mut self, stage: &Stage<'_>, rule: &str, what: &str) -> Verdict {
        let asked = self.balancer.get(Some(stage.targets())).await?;
        let now = found(&asked)?;
        let sent = format!("{what}; then Get for its neighbour");
        must_equal(now, &self.was, rule, sent)?;
        stage
            .converged(&mut self.balancer, Some(stage.targets()))
            .await
    }
}

async fn stand(stage: &Stage<'_>, neighbours: &mut [Neighbour], rule: &str, what: &str) -> Verdict {
    for neighbour in neighbours {
        neighbour.stands(stage, rule, what).await?;
    }
    Ok(())
}

async fn served(run: &Run) -> Verdict {
    let stage = Stage::new(run).await?;
    let mut both = neighbours(&stage).await?;
    let what = "Ensure of two Services that share a load balancer";
    for one in &both {
        let own: Vec<_> = one.balancer.service.ports.iter().map(listener).collect();
        let points = one.was.status.iter().flat_map(|status| &status.ingress);
        let others: Vec<_> = points
            .flat_map(|point| &point.ports)
            .filter(|port| !own.contains(&(port.protocol.as_str(), port.port)))
            .collect();
        must(
            others.is_empty(),
            "LB-20",
            what,
            format_args!("a status of {own:?} alone: a Service has parts of its own"),
            format_args!("{others:?} too"),
        )?;
    }
    stand(&stage, &mut both, "LB-20", what).await
}

fn listener(port: &pb::ServicePort) -> (&str, i32) {
    (port.protocol.as_str(), port.port)
}

async fn port_taken(run: &Run) -> Verdict {
    let stage = Stage::new(run).await?;
    let mut both = neighbours(&stage).await?;
    let mut late = sharing(&stage, "late", FIRST_PORT);
    let before = stage.writes().await?;
    late.conflicted(Some(stage.targets()), "LB-21").await?;
    let what = "Ensure of a port that its neighbour has";
    stage.wrote_by(before, Writes::None, "LB-21", what).await?;
    stand(&stage, &mut both, "LB-21", what).await?;
    stage.listed_times(&late, 0, "LB-21").await?;
    let mut late = late.changed(|service| listen(service, FIRST_PORT + 2));
    let status = late.ensured(Some(stage.targets())).await?;
    let theirs = both[0].was.status.clone().unwrap_or_default();
    must(
        same_address(&status, &theirs),
        "LB-20",
        "Ensure with a port that is free, after CONFLICT",
        format_args!("the address that they share, as in {theirs:?}"),
        format_args!("{status:?}"),
    )?;
    stand(&stage, &mut both, "LB-20", "Ensure of a third one").await
}

async fn changed_to_taken(run: &Run) -> Verdict {
    let stage = Stage::new(run).await?;
    let mut both = neighbours(&stage).await?;
    let mut changed = both[1]
        .balancer
        .changed(|service| listen(service, FIRST_PORT));
    let before = stage.writes().await?;
    changed.conflicted(Some(stage.targets()), "LB-21").await?;
    let what = "Ensure of a Service whose port was changed to that of its neighbour";
    stage.wrote_by(before, Writes::None, "LB-21", what).await?;
    let why = "its port is its neighbour's";
    let set = Some(stage.targets());
    stage.told_in_sync(&mut changed, set, false, why).await?;
    stand(&stage, &mut both, "LB-21", what).await
}

async fn at_once(run: &Run) -> Verdict {
    let stage = Stage::new(run).await?;
    let mut first = neighbours(&stage).await?;
    let port = FIRST_PORT + 2;
    let mut one = sharing(&stage, "at-once", port);
    let mut other = sharing(&stage, "at-once", port);
    let set = Some(stage.targets());
    let (came, also) = futures::join!(one.contended(set.clone()), other.contended(set.clone()));
    let (mut came, mut also) = (came?, also?);
    if !came && !also {
        // Each call may have seen the other call's unfinished part. Now one must get the port.
        came = one.contended(set.clone()).await?;
        also = other.contended(set).await?;
    }
    must(
        came != also,
        "LB-21",
        "Ensure of two Services with the same port of the load balancer that they share, at the same time",
        "one ready, the other CONFLICT",
        if came {
            "both are ready"
        } else {
            "CONFLICT for both, also when they were asked again in turn"
        },
    )?;
    let mut winner = if came { one } else { other };
    stage.converged(&mut winner, Some(stage.targets())).await?;
    stand(&stage, &mut first, "LB-20", "Ensure of two more").await
}

async fn ensure(run: &Run) -> Verdict {
    let stage = Stage::new(run).await?;
    let [one, mut neighbour] = neighbours(&stage).await?;
    let mut changed = one.balancer.changed(|service| {
        listen(service, FIRST_PORT + 2);
        let mut more = service.ports[0].clone();
        more.name = "more".into();
        more.port += 1;
        more.node_port = more.node_port.map(|port| port + 1);
        service.ports.push(more);
    });
    changed.ensured(Some(stage.few())).await?;
    let what = "Ensure of other ports and targets";
    neighbour.stands(&stage, "LB-20", what).await?;
    stage.converged(&mut changed, Some(stage.few())).await
}

async fn update(run: &Run) -> Verdict {
    let stage = Stage::with_targets(run, 1).await?;
    let [mut one, mut neighbour] = neighbours(&stage).await?;
    one.balancer.updated(stage.few()).await?;
    neighbour.stands(&stage, "LB-20", "Update").await?;
    stage.converged(&mut one.balancer, Some(stage.few())).await
}

async fn delete_one(run: &Run) -> Verdict {
    let stage = Stage::new(run).await?;
    let [mut one, mut neighbour] = neighbours(&stage).await?;
    one.balancer.deleted().await?;
    neighbour.stands(&stage, "LB-22", "Delete").await?;
    let why = "Delete has answered `done` for it; its neighbour's part is not its own";
    let mut gone = one.balancer.forgetful();
    gone.absent("LB-22", why).await?;
    one.balancer.absent("LB-22", why).await?;
    stage.listed_times(&gone, 0, "LB-22").await?;
    stage.listed_times(&neighbour.balancer, 1, "LB-22").await?;
    // The Service's part is deleted: another Delete is `done` too, and affects no other Service.
    one.balancer.deleted().await?;
    let mut next = sharing(&stage, "next", FIRST_PORT);
    next.ensured(Some(stage.targets())).await?;
    let what = "Delete twice, then Ensure of the port that has become free";
    neighbour.stands(&stage, "LB-22", what).await
}

async fn delete_last(run: &Run) -> Verdict {
    let stage = Stage::new(run).await?;
    let [mut one, mut other] = neighbours(&stage).await?;
    other.balancer.deleted().await?;
    one.stands(&stage, "LB-22", "Delete").await?;
    // The last Service has lost its handle. Its Delete must still leave nothing.
    one.balancer.forgetful().deleted().await?;
    for gone in [&one.balancer, &other.balancer] {
        let why = "Delete has answered `done` for all that shared it";
        gone.forgetful().absent("LB-22", why).await?;
        stage.listed_times(gone, 0, "LB-22").await?;
    }
    if run.sees(&[Need::LoadBalancerListing]) {
        let left = stage.list().await?;
        must(
            left.is_empty(),
            "LB-22",
            "ListLoadBalancers after all Services that shared one were deleted",
            "nothing",
            format_args!("{left:?}"),
        )?;
    }
    Ok(())
}

async fn listed(run: &Run) -> Verdict {
    let stage = Stage::new(run).await?;
    let both = neighbours(&stage).await?;
    let listed = stage.list().await?;
    for one in &both {
        let service = &one.balancer.service;
        let uid = &service.uid;
        let of_it: Vec<_> = listed.iter().filter(|it| is_of(it, service)).collect();
        let handles: Vec<_> = of_it.iter().map(|it| it.handle.clone()).collect();
        let sent = format!("ListLoadBalancers: the handles of what the UID {uid} owns");
        must_equal(&handles, &vec![one.balancer.handle.clone()], "LB-23", sent)?;
        let named = of_it
            .iter()
            .flat_map(|it| &it.owners)
            .filter(|owner| is_owner(owner, service));
        let names: Vec<_> = named
            .map(|owner| (owner.namespace.as_str(), owner.name.as_str()))
            .collect();
        must_equal(
            &names,
            &vec![(service.namespace.as_str(), service.name.as_str())],
            "LB-23",
            format_args!("ListLoadBalancers: the owners with the UID {uid}"),
        )?;
    }
    Ok(())
}

async fn handle(run: &Run) -> Verdict {
    let stage = Stage::new(run).await?;
    let mut both = neighbours(&stage).await?;
    let Some(given) = both[0].balancer.handle.clone() else {
        return Err(Stop::not_offered("the provider gives no handles"));
    };
    // If all Services have one handle, it is also this Service's: Get does not answer FOREIGN, and
    // Update and Delete do not answer CONFLICT (LB-20).
    let whole = both[1].balancer.handle.as_ref() == Some(&given);
    // Each request has the edited handle, whatever handle an answer has.
    let edited = || sharing(&stage, "edited", FIRST_PORT).with_handle(given.clone());
    let before = stage.writes().await?;
    let asked = edited().get(Some(stage.targets())).await?;
    if !whole && asked.answer()?.failed().is_some() {
        asked.failure("LB-4", &[FailureCode::Conflict])?;
    } else {
        let told = found(&asked)?;
        let is_none = told.presence() == LoadBalancerPresence::Absent
            || (!whole && told.ownership() == Ownership::Foreign && told.in_sync != Some(true));
        let expected = if whole {
            "ABSENT: it has no part, and all have the same handle"
        } else {
            "ABSENT, FOREIGN or CONFLICT: it has no part"
        };
        asked.must(is_none, "LB-20", expected)?;
    }
    let asked = edited().update(stage.few()).await?;
    let codes = [FailureCode::NotFound, FailureCode::Conflict];
    asked.failure("LB-20", if whole { &codes[..1] } else { &codes })?;
    let asked = edited().delete().await?;
    if !whole && asked.answer()?.failed().is_some() {
        asked.failure("LB-4", &[FailureCode::Conflict])?;
    } else {
        let done = matches!(asked.answer()?.outcome, Some(Deleted::Done(_)));
        let expected = if whole {
            "`done`: it has no part, and all have the same handle"
        } else {
            "`done` or CONFLICT: it has no part"
        };
        asked.must(done, "LB-20", expected)?;
    }
    edited().conflicted(Some(stage.targets()), "LB-21").await?;
    let what = "Get, Update, Delete and Ensure of its port with the handle of a neighbour";
    stage.wrote_by(before, Writes::None, "LB-20", what).await?;
    stand(&stage, &mut both, "LB-20", what).await?;
    if !whole {
        return Ok(());
    }
    let mut third = sharing(&stage, "third", FIRST_PORT + 2).with_handle(given);
    third.ensured(Some(stage.targets())).await?;
    let what = "Ensure of a port that is free, with the handle that all have";
    stand(&stage, &mut both, "LB-20", what).await
}

async fn without_handle(run: &Run) -> Verdict {
    let stage = Stage::new(run).await?;
    let mut both = neighbours(&stage).await?;
    for one in &both {
        let mut forgetful = one.balancer.forgetful();
        stage.converged_without_handle(&mut forgetful).await?;
    }
    both[0].balancer.forgetful().deleted().await?;
    let what = "Delete without a handle";
    both[1].stands(&stage, "LB-22", what).await
}

async fn outlives(run: &Run) -> Verdict {
    let stage = Stage::new(run).await?;
    let mut both = neighbours(&stage).await?;
    run.target().restart().await?;
    let session = stage.back().await?;
    for one in &mut both {
        one.balancer = one.balancer.through(&session);
    }
    let what = "the provider was killed and started again";
    stand(&stage, &mut both, "LB-20", what).await
}
