//! GetLoadBalancer: existence and ownership, without writes.

use cloud_provider_api::v1alpha1::{LoadBalancerPresence, Ownership};

use crate::check::{Check, Need, Verdict, check, must_equal};
use crate::hooks::Hook;
use crate::run::{Run, targets};

use super::stage::{Stage, Writes};

pub(super) fn checks() -> Vec<Check> {
    vec![
        check!(
            "load-balancers/get-never-made",
            ["LB-5", "CORE-6"],
            "Get of a Service that never had a load balancer answers ABSENT every time, with targets and without",
            [Need::LoadBalancers],
            never_made
        ),
        check!(
            "load-balancers/get-made",
            ["LB-1", "LB-5"],
            "Get of a `ready` load balancer answers PRESENT, OURS, and the status of Ensure",
            [Need::LoadBalancers],
            made
        ),
        check!(
            "load-balancers/get-without-handle",
            ["LB-5"],
            "Get without the handle finds the load balancer by its mark, and answers the same",
            [Need::LoadBalancers],
            without_handle
        ),
        check!(
            "load-balancers/get-repeated",
            ["CORE-6"],
            "ten Gets answer the same",
            [Need::LoadBalancers],
            repeated
        ),
        check!(
            "load-balancers/get-by-uid-alone",
            ["LB-1", "LB-5"],
            "Get of a Service with nothing but namespace, name and UID finds its load balancer",
            [Need::LoadBalancers],
            by_uid_alone
        ),
        check!(
            "load-balancers/get-deleted",
            ["LB-12"],
            "Get after Delete answers ABSENT, also with the old handle",
            [Need::LoadBalancers],
            deleted
        ),
        check!(
            "load-balancers/get-other-class",
            ["LB-29", "LB-14"],
            "A Service whose class changed to one that the provider does not serve: Get still finds its load balancer, not in sync, and Delete removes it",
            [Need::LoadBalancers],
            other_class
        ),
        check!(
            "load-balancers/get-writes-nothing",
            ["LB-6"],
            "Get writes nothing to the cloud: absent, present, changed Service, other targets, a handle that names nothing",
            [Need::LoadBalancers, Need::Hook(Hook::CloudWrites)],
            writes_nothing
        ),
    ]
}

async fn never_made(run: &Run) -> Verdict {
    let stage = Stage::new(run).await?;
    let mut balancer = stage.balancer("never");
    for set in [None, Some(targets(Vec::new())), Some(stage.targets()), None] {
        let asked = balancer.get(set).await?;
        let found = super::answer::found(&asked)?;
        asked.must(
            found.presence() == LoadBalancerPresence::Absent,
            "LB-5",
            "ABSENT: no call ever asked for it",
        )?;
    }
    Ok(())
}

async fn made(run: &Run) -> Verdict {
    let stage = Stage::new(run).await?;
    let mut balancer = stage.balancer("made");
    let status = balancer.ensured(Some(stage.targets())).await?;
    let found = balancer.present(Some(stage.targets())).await?;
    must_equal(
        &found.status,
        &Some(status),
        "LB-5",
        "Ensure until `ready`, then Get: the status",
    )
}

async fn without_handle(run: &Run) -> Verdict {
    let stage = Stage::new(run).await?;
    let mut balancer = stage.ready("lost").await?;
    let with = balancer.present(Some(stage.targets())).await?;
    let mut forgetful = balancer.forgetful();
    let without = forgetful.present(Some(stage.targets())).await?;
    must_equal(&without, &with, "LB-5", "Get without the handle")
}

async fn repeated(run: &Run) -> Verdict {
    let stage = Stage::new(run).await?;
    let mut balancer = stage.ready("often").await?;
    let first = balancer.present(Some(stage.targets())).await?;
    for number in 2..=10 {
        let again = balancer.present(Some(stage.targets())).await?;
        must_equal(
            &again,
            &first,
            "CORE-6",
            format_args!("Get no. {number} of 10"),
        )?;
    }
    Ok(())
}

async fn by_uid_alone(run: &Run) -> Verdict {
    let stage = Stage::new(run).await?;
    let balancer = stage.ready("bare").await?;
    let mut bare = balancer.forgetful().changed(|service| {
        *service = cloud_provider_api::v1alpha1::ServiceView {
            namespace: service.namespace.clone(),
            name: service.name.clone(),
            uid: service.uid.clone(),
            ..Default::default()
        };
    });
    bare.present(None).await.map(|_| ())
}

async fn deleted(run: &Run) -> Verdict {
    let stage = Stage::new(run).await?;
    let mut balancer = stage.ready("gone").await?;
    let handle = balancer.handle.clone();
    balancer.deleted().await?;
    let why = "Delete has answered `done`";
    balancer.forgetful().absent("LB-12", why).await?;
    if let Some(handle) = handle {
        let mut stale = balancer.with_handle(handle);
        stale.absent("LB-12", why).await?;
    }
    Ok(())
}

async fn other_class(run: &Run) -> Verdict {
    let stage = Stage::new(run).await?;
    let balancer = stage.ready("class").await?;
    let mut other = balancer.changed(|service| {
        service.load_balancer_class = Some("example.com/served-by-nobody".into());
    });
    let asked = other.get(Some(stage.targets())).await?;
    let found = super::answer::found(&asked)?;
    asked.must(
        found.presence() == LoadBalancerPresence::Present && found.ownership() == Ownership::Ours,
        "LB-29",
        "PRESENT and OURS: it was made before the class was changed",
    )?;
    asked.must(
        found.in_sync != Some(true),
        "LB-29",
        "not in sync: Ensure does not answer `ready` for this class",
    )?;
    other.deleted().await?;
    let why = "Delete has answered `done` for the Service with another class";
    balancer.forgetful().absent("LB-29", why).await
}

async fn writes_nothing(run: &Run) -> Verdict {
    let stage = Stage::new(run).await?;
    let mut balancer = stage.balancer("look");
    let before = stage.writes().await?;
    balancer.get(Some(stage.targets())).await?;
    stage
        .wrote_by(before, Writes::None, "LB-6", "Get of what is not there")
        .await?;
    balancer.ensured(Some(stage.targets())).await?;
    let before = stage.writes().await?;
    balancer.get(Some(stage.targets())).await?;
    balancer.get(None).await?;
    balancer.get(Some(targets(Vec::new()))).await?;
    balancer.forgetful().get(None).await?;
    let mut changed = balancer.changed(|service| service.ports[0].port = 81);
    changed.get(Some(stage.targets())).await?;
    let mut odd = balancer.with_handle("no-such-handle");
    odd.get(None).await?;
    stage
        .wrote_by(
            before,
            Writes::None,
            "LB-6",
            "six Gets of one load balancer: as it is, without targets, with none, without handle, with another port, with a handle that names nothing",
        )
        .await
}
