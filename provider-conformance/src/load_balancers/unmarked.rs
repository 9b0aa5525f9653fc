//! Unmarked load balancers: the provider touches none without a grant. With the grant, Ensure
//! adopts those that match the Service.

use cloud_provider_api::v1alpha1::{FailureCode, LoadBalancerPresence, Ownership};

use crate::check::{Check, Need, Stop, Verdict, check};
use crate::hooks::Hook;
use crate::run::Run;

use super::answer::{found, untold};
use super::balancer::Balancer;
use super::ownership::is_done;
use super::stage::{Stage, Writes};

pub(super) fn checks() -> Vec<Check> {
    CHECKS.to_vec()
}

const CHECKS: &[Check] = &[
    check!(
        "load-balancers/owner-unmarked-untouched",
        ["LB-2", "LB-9", "LB-24", "LB-27", "LB-32"],
        "A load balancer without a mark is UNMARKED; Ensure without adopt_unmarked, and Update and Delete, with its handle are CONFLICT and change nothing",
        [Need::LoadBalancers, Need::Hook(Hook::LoadBalancerUnmarked)],
        unmarked_untouched
    ),
    check!(
        "load-balancers/owner-unmarked-adopted",
        ["LB-9", "CORE-14"],
        "With adopt_unmarked and its handle Ensure adopts and marks an unmarked load balancer, and Delete removes it",
        [Need::LoadBalancers, Need::Hook(Hook::LoadBalancerUnmarked)],
        unmarked_adopted
    ),
    check!(
        "load-balancers/owner-unmarked-by-name",
        ["LB-24", "LB-26", "LB-9", "LB-32"],
        "An unmarked load balancer with the native name of the Service: CONFLICT to Ensure and Delete, NOT_FOUND to Update; with the grant Ensure adopts it, and Delete removes it",
        [Need::LoadBalancers, Need::Hook(Hook::LoadBalancerUnmarked)],
        unmarked_by_name
    ),
    check!(
        "load-balancers/owner-unmarked-by-address",
        ["LB-24", "LB-9", "LB-32"],
        "An unmarked load balancer with an address of the Service's status: CONFLICT to Ensure, NOT_FOUND to Update, `done` to Delete, which leaves it alone; with the grant Ensure adopts it",
        [Need::LoadBalancers, Need::Hook(Hook::LoadBalancerUnmarked)],
        unmarked_by_address
    ),
    check!(
        "load-balancers/owner-unmarked-of-others",
        ["LB-9"],
        "Even with adopt_unmarked the provider adopts only what matches by name, tag, handle or address",
        [Need::LoadBalancers, Need::Hook(Hook::LoadBalancerUnmarked)],
        unmarked_of_others
    ),
];

/// An unmarked load balancer, and a Service with its handle.
async fn unmarked(run: &Run) -> Verdict<(Stage<'_>, Balancer)> {
    let stage = Stage::new(run).await?;
    let handle = run.unmarked_load_balancer(&run.name("by-hand")).await?;
    let balancer = stage.balancer("adopter").with_handle(handle);
    Ok((stage, balancer))
}

async fn is_unmarked(balancer: &Balancer) -> Verdict {
    let mut balancer = balancer.clone();
    let asked = balancer.get(None).await?;
    let found = found(&asked)?;
    asked.must(
        found.presence() == LoadBalancerPresence::Present
            && found.ownership() == Ownership::Unmarked
            && found.in_sync != Some(true),
        "LB-27",
        "PRESENT, UNMARKED, not in sync: its handle names an unmarked one",
    )
}

async fn unmarked_untouched(run: &Run) -> Verdict {
    let (stage, balancer) = unmarked(run).await?;
    is_unmarked(&balancer).await?;
    let before = stage.writes().await?;
    let asked = balancer
        .clone()
        .ensure(Some(stage.targets()), false)
        .await?;
    asked.failure("LB-9", &[FailureCode::Conflict])?;
    untold(&asked, balancer.handle.as_ref())?;
    let asked = balancer.clone().update(stage.targets()).await?;
    asked.failure("LB-24", &[FailureCode::Conflict])?;
    let asked = balancer.clone().delete().await?;
    asked.failure("LB-4", &[FailureCode::Conflict])?;
    let asked = balancer.clone().delete_granted().await?;
    asked.failure("LB-24", &[FailureCode::Conflict])?;
    let sent =
        "Ensure without adopt_unmarked, Update and Delete with the handle of an unmarked one";
    stage.wrote_by(before, Writes::None, "LB-2", sent).await?;
    is_unmarked(&balancer).await?;
    stage.listed_times(&balancer, 0, "LB-13").await
}

async fn unmarked_adopted(run: &Run) -> Verdict {
    let (stage, mut balancer) = unmarked(run).await?;
    let given = balancer.handle.clone();
    balancer.adopted(Some(stage.targets())).await?;
    balancer.present(Some(stage.targets())).await?;
    // Get now finds it by its mark, without the handle.
    let mut forgetful = balancer.forgetful();
    forgetful.present(Some(stage.targets())).await?;
    stage.listed_times(&balancer, 1, "LB-9").await?;
    stage
        .converged(&mut balancer, Some(stage.targets()))
        .await?;
    balancer.deleted().await?;
    let mut former = stage.balancer("look");
    former.handle = given;
    former
        .absent("LB-12", "it was adopted, and Delete has answered `done`")
        .await
}

/// Whether Get finds an unmarked load balancer without a handle.
async fn matched(balancer: &Balancer) -> Verdict<bool> {
    let mut balancer = balancer.forgetful();
    let asked = balancer.get(None).await?;
    let found = found(&asked)?;
    if found.presence() == LoadBalancerPresence::Absent {
        return Ok(false);
    }
    asked.must(
        found.ownership() == Ownership::Unmarked && found.in_sync != Some(true),
        "LB-24",
        "UNMARKED, not in sync; or ABSENT",
    )?;
    let told = asked.answer()?.handle.is_some();
    asked.must(!told, "LB-32", "no handle: the load balancer is not OURS")?;
    Ok(true)
}

fn no_address() -> Stop {
    Stop::not_offered(
        "the load balancer that the hook `load-balancer-unmarked` makes has no address",
    )
}

async fn unmarked_by_name(run: &Run) -> Verdict {
    let stage = Stage::new(run).await?;
    // The provider's native name for a load balancer of this Service.
    let mut balancer = stage.ready("named").await?;
    let name = balancer.present(None).await?.load_balancer_name;
    balancer.deleted().await?;
    let balancer = balancer.forgetful();
    let by_hand = run.unmarked_load_balancer(&run.name("by-hand")).await?;
    let unmarked = run.unmarked_load_balancer(&name).await?;
    if !matched(&balancer).await? {
        // The provider's native name for this Service is another one now, or the provider does not
        // search by native names.
        is_done(
            &balancer.clone().delete().await?,
            "Get has just said ABSENT",
        )?;
        return Err(Stop::not_offered(
            "the provider finds no load balancer by its native name alone",
        ));
    }
    let asked = stage
        .balancer("look")
        .with_handle(by_hand)
        .get(None)
        .await?;
    let other = found(&asked)?;
    let (other, status) = (
        other.load_balancer_name.clone(),
        other.status.clone().unwrap_or_default(),
    );
    if status.ingress.is_empty() {
        run.unseen(no_address());
    } else {
        // With that one's address in the Service's status, the name still decides.
        let mut moved = balancer.changed(|service| service.status = Some(status));
        let asked = moved.get(None).await?;
        asked.must(
            found(&asked)?.load_balancer_name != other,
            "LB-24",
            format_args!("the one with the native name, not {other}: the search by name comes before the one by addresses"),
        )?;
    }
    let before = stage.writes().await?;
    let set = || Some(stage.targets());
    let asked = balancer.clone().ensure(set(), false).await?;
    asked.failure("LB-24", &[FailureCode::Conflict])?;
    untold(&asked, Some(&unmarked))?;
    let asked = balancer.clone().update(stage.targets()).await?;
    asked.failure("LB-24", &[FailureCode::NotFound])?;
    let asked = balancer.clone().delete().await?;
    asked.failure("LB-26", &[FailureCode::Conflict])?;
    let sent = "Ensure, Update and Delete without the grant";
    stage.wrote_by(before, Writes::None, "LB-2", sent).await?;
    let mut adopter = balancer.clone();
    adopter.adopted(set()).await?;
    stage.listed_times(&adopter, 1, "LB-9").await?;
    stage.converged(&mut adopter, set()).await?;
    adopter.deleted().await?;
    // A Service that was deleted before Ensure adopted its load balancer: first without the handle,
    // then with it.
    for keeps_handle in [false, true] {
        let handle = run.unmarked_load_balancer(&name).await?;
        let mut late = balancer.clone();
        late.handle = keeps_handle.then_some(handle);
        late.deleted_granted().await?;
        let why = "Delete with the grant has answered `done`";
        late.forgetful().absent("LB-26", why).await?;
    }
    Ok(())
}

async fn unmarked_by_address(run: &Run) -> Verdict {
    let (stage, by_hand) = unmarked(run).await?;
    let asked = by_hand.clone().get(None).await?;
    let status = found(&asked)?.status.clone().unwrap_or_default();
    if status.ingress.is_empty() {
        return Err(no_address());
    }
    let mut balancer = stage.balancer("moved");
    balancer.service.status = Some(status);
    let before = stage.writes().await?;
    let finds = matched(&balancer).await?;
    if finds {
        let asked = balancer
            .clone()
            .ensure(Some(stage.targets()), false)
            .await?;
        asked.failure("LB-24", &[FailureCode::Conflict])?;
        untold(&asked, by_hand.handle.as_ref())?;
    }
    let asked = balancer.clone().update(stage.targets()).await?;
    asked.failure("LB-24", &[FailureCode::NotFound])?;
    let why = "the address of its status is no proof that it is this Service's";
    is_done(&balancer.clone().delete().await?, why)?;
    is_done(&balancer.clone().delete_granted().await?, why)?;
    let sent = "Ensure and Update without the grant, Delete with it and without, of a Service whose status has the address";
    stage.wrote_by(before, Writes::None, "LB-2", sent).await?;
    is_unmarked(&by_hand).await?;
    if !finds {
        return Err(Stop::not_offered(
            "the provider finds no load balancer by its address",
        ));
    }
    balancer.adopted(Some(stage.targets())).await?;
    stage
        .converged(&mut balancer, Some(stage.targets()))
        .await?;
    balancer.deleted().await
}

async fn unmarked_of_others(run: &Run) -> Verdict {
    let (stage, balancer) = unmarked(run).await?;
    let mut other = balancer.forgetful();
    other.adopted(Some(stage.targets())).await?;
    other.present(Some(stage.targets())).await?;
    let mut look = stage.balancer("look");
    look.handle = balancer.handle.clone();
    is_unmarked(&look).await
}
