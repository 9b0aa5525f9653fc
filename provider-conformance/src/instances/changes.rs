//! Changes in the cloud: states (INST-10), and the age of answers (INST-5).

use std::time::Duration;

use cloud_provider_api::v1alpha1::{InstanceFacet, InstanceState};
use tokio::time::Instant;

use super::super::check::{Check, Need, Stop, Verdict, check, must};
use super::super::hooks::Hook;
use super::super::run::Run;
use super::super::session::Session;
use super::super::well_formed;
use super::absent::is_not_absent;
use super::ask::{ALL, Known, aged, look_up, lookup, short_state};
use super::max_batch;

/// The time between two questions.
const LOOK: Duration = Duration::from_millis(50);

const ADD: Need = Need::Hook(Hook::InstanceAdd);
const REMOVE: Need = Need::Hook(Hook::InstanceRemove);

pub(super) fn checks() -> Vec<Check> {
    vec![
        check!(
            "instances/stopped-is-not-absent",
            ["INST-1"],
            "an instance that is shut down still exists, whatever the facets",
            [Need::Instances, ADD, Need::Hook(Hook::InstanceStop)],
            stopped_exists
        ),
        check!(
            "instances/stop-and-start-are-seen",
            ["INST-10", "INST-5"],
            "an instance that is shut down is STOPPED, and RUNNING once it was started",
            [
                Need::Instances,
                Need::PowerState,
                ADD,
                Need::Hook(Hook::InstanceStop),
                Need::Hook(Hook::InstanceStart)
            ],
            stop_and_start
        ),
        check!(
            "instances/known-states",
            ["INST-10"],
            "instances are in the states that suite.yaml says",
            [Need::Instances],
            known_states
        ),
        check!(
            "instances/new-is-found-or-pending",
            ["INST-1", "INST-5"],
            "an instance that was just made exists or is PENDING, never anything else",
            [Need::Instances, ADD],
            new
        ),
        check!(
            "instances/max-age-zero-asks-the-cloud",
            ["INST-5"],
            "after a cacheable answer a lookup with max_age zero sees later changes",
            [Need::Instances, ADD, REMOVE],
            age_zero
        ),
        check!(
            "instances/max-age-left-out-is-zero",
            ["INST-5"],
            "a lookup without max_age also asks the cloud",
            [Need::Instances, ADD, REMOVE],
            age_left_out
        ),
        check!(
            "instances/never-older-than-max-age",
            ["INST-5"],
            "with a max_age of 0.5 s and of 2 s no answer is older than that",
            [Need::Instances, ADD, REMOVE],
            age_bound
        ),
        check!(
            "instances/large-max-age-is-answered",
            ["INST-5"],
            "with the largest max_age every Node is answered, and no instance that exists is ABSENT",
            [Need::Instances],
            age_large
        ),
    ]
}

async fn stopped_exists(run: &Run) -> Verdict {
    let session = run.session().await?;
    let (known, made) = Known::made(run, &session).await?;
    run.change_instance(Hook::InstanceStop, &made).await?;
    for facets in [
        &[][..],
        &[InstanceFacet::Existence],
        &[InstanceFacet::Metadata],
        &ALL,
    ] {
        for node in [known.node(), known.node_without_id()] {
            look_up(run, &session, lookup(vec![node], facets))
                .await?
                .existing(0, "INST-1")?;
        }
    }
    Ok(())
}

async fn stop_and_start(run: &Run) -> Verdict {
    let session = run.session().await?;
    let (known, made) = Known::made(run, &session).await?;
    for (hook, state) in [
        (Hook::InstanceStop, InstanceState::Stopped),
        (Hook::InstanceStart, InstanceState::Running),
        (Hook::InstanceStop, InstanceState::Stopped),
    ] {
        run.change_instance(hook, &made).await?;
        // A cloud may take a while. The contract defines only the result.
        let patience = Instant::now() + Duration::from_mins(1);
        let came = loop {
            let power = lookup(vec![known.node()], &[InstanceFacet::Power]);
            let looked_up = look_up(run, &session, power).await?;
            let came = looked_up.existing(0, "INST-1")?.state();
            if came == state || Instant::now() > patience {
                break came;
            }
            tokio::time::sleep(LOOK).await;
        };
        must(
            came == state,
            "INST-10",
            format_args!(
                "the hook {} for {}, then LookupInstances with POWER",
                hook.key(),
                known.provider_id
            ),
            short_state(state),
            short_state(came),
        )?;
    }
    Ok(())
}

async fn known_states(run: &Run) -> Verdict {
    let session = run.session().await?;
    let stated: Vec<_> = run
        .config()
        .instances
        .iter()
        .filter(|one| one.state.is_some())
        .collect();
    if stated.is_empty() {
        return Err(Stop::not_set_up(
            "suite.yaml names no instance with its state",
        ));
    }
    // Without this capability, the provider does not distinguish RUNNING and STOPPED.
    let power = run.sees(&[Need::PowerState]);
    for instance in stated {
        let nodes = vec![run.node_of(instance)];
        let looked_up = look_up(run, &session, lookup(nodes, &ALL)).await?;
        let state = looked_up.existing(0, "INST-1")?.state();
        let expected = instance.state.as_deref().unwrap_or_default();
        if power && short_state(state) != expected {
            return Err(looked_up.broke(
                0,
                "INST-10",
                format_args!("{expected}, as suite.yaml says"),
            ));
        }
    }
    Ok(())
}

async fn new(run: &Run) -> Verdict {
    let session = run.session().await?;
    // An earlier answer, which the provider may cache.
    let request = aged(
        lookup(vec![run.node("nobody")], &ALL),
        Duration::from_hours(1),
    );
    look_up(run, &session, request).await?;
    let made = run.add_instance("new").await?;
    let nodes = vec![run.node_of(&made)];
    let looked_up = look_up(run, &session, lookup(nodes, &ALL)).await?;
    let state = looked_up.state(0, "INST-1")?;
    if well_formed::exists(state) || state == InstanceState::Pending {
        return Ok(());
    }
    Err(looked_up.broke(
        0,
        "INST-1",
        "that it exists, or PENDING: the cloud has just made it",
    ))
}

/// Creates an instance, looks it up so that the provider may cache it, and removes it.
async fn cached_and_removed(run: &Run, session: &Session) -> Verdict<Known> {
    let (known, made) = Known::made(run, session).await?;
    let request = aged(lookup(vec![known.node()], &ALL), Duration::from_hours(1));
    look_up(run, session, request)
        .await?
        .existing(0, "INST-5")?;
    run.change_instance(Hook::InstanceRemove, &made).await?;
    Ok(known)
}

async fn age_zero(run: &Run) -> Verdict {
    let session = run.session().await?;
    for _ in 0..3 {
        let known = cached_and_removed(run, &session).await?;
        let looked_up = look_up(run, &session, lookup(vec![known.node()], &ALL)).await?;
        looked_up.must_be(0, InstanceState::Absent, "INST-5")?;
    }
    Ok(())
}

async fn age_left_out(run: &Run) -> Verdict {
    let session = run.session().await?;
    let known = cached_and_removed(run, &session).await?;
    let mut request = lookup(vec![known.node()], &ALL);
    request.max_age = None;
    let looked_up = look_up(run, &session, request).await?;
    looked_up.must_be(0, InstanceState::Absent, "INST-5")
}

async fn age_bound(run: &Run) -> Verdict {
    let session = run.session().await?;
    for age in [Duration::from_millis(500), Duration::from_secs(2)] {
        let known = cached_and_removed(run, &session).await?;
        // After this, everything learned before the removal is older than `age`.
        tokio::time::sleep_until(Instant::now() + age + Duration::from_millis(100)).await;
        let request = aged(lookup(vec![known.node()], &ALL), age);
        let looked_up = look_up(run, &session, request).await?;
        looked_up.must_be(0, InstanceState::Absent, "INST-5")?;
    }
    Ok(())
}

async fn age_large(run: &Run) -> Verdict {
    let session = run.session().await?;
    let known = Known::one(run, &session).await?;
    for seconds in [1, 86_400, 315_576_000_000] {
        let mut nodes = vec![known.node(), run.node("nobody")];
        nodes.truncate(max_batch(run));
        let mut request = lookup(nodes, &ALL);
        request.max_age = Some(prost_types::Duration {
            seconds,
            nanos: 999_999_999,
        });
        look_up(run, &session, request)
            .await?
            .existing(0, "INST-5")?;
    }
    // An invalid value is no reason to answer from a cache, or to crash.
    let mut request = lookup(vec![known.node()], &ALL);
    request.max_age = Some(prost_types::Duration {
        seconds: -1,
        nanos: 0,
    });
    is_not_absent(&session, &known, request, "the instance exists").await
}
