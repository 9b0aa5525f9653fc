//! ABSENT, and only ABSENT, means gone (INST-1); states; how old an answer may be (INST-5).

use std::time::Duration;

use cloud_provider_api::v1alpha1::lookup_instance_result::Outcome;
use cloud_provider_api::v1alpha1::{self as pb, FailureCode, InstanceFacet, InstanceState};
use tokio::time::Instant;

use super::super::check::{Check, Need, Stop, Verdict, check, must};
use super::super::hooks::Hook;
use super::super::run::Run;
use super::super::session::Session;
use super::super::well_formed;
use super::ask::{ALL, Known, aged, id_of_none, look_up, lookup, node, short_state};

/// How often a cloud is asked for what takes a while.
const LOOK: Duration = Duration::from_millis(50);

const ADD: Need = Need::Hook(Hook::InstanceAdd);
const REMOVE: Need = Need::Hook(Hook::InstanceRemove);
const FAIL: Need = Need::Hook(Hook::CloudFail);
const SLOW: Need = Need::Hook(Hook::CloudSlow);

pub(super) fn checks() -> Vec<Check> {
    vec![
        check!(
            "instances/removed-is-absent",
            ["INST-1", "INST-5"],
            "an instance that was removed is ABSENT at the next question with max_age zero",
            [Need::Instances, ADD, REMOVE],
            removed
        ),
        check!(
            "instances/removed-harms-no-neighbour",
            ["INST-1", "INST-4"],
            "beside an instance that was removed the others still exist",
            [Need::Instances, ADD, REMOVE],
            neighbours
        ),
        check!(
            "instances/throttled-is-not-absent",
            ["INST-1", "CORE-15"],
            "while the cloud throttles every Node is `failed` with THROTTLED",
            [Need::Instances, FAIL],
            throttled
        ),
        check!(
            "instances/refused-credentials-are-not-absent",
            ["INST-1", "CORE-15"],
            "while the cloud refuses the credentials every Node is `failed` with CREDENTIALS",
            [Need::Instances, FAIL],
            credentials
        ),
        check!(
            "instances/unavailable-is-not-absent",
            ["INST-1", "CORE-15"],
            "while the cloud is down every Node is `failed` with UNAVAILABLE",
            [Need::Instances, FAIL],
            unavailable
        ),
        check!(
            "instances/precondition-is-not-absent",
            ["INST-1", "CORE-15"],
            "while something around it is missing every Node is `failed` with PRECONDITION",
            [Need::Instances, FAIL],
            precondition
        ),
        check!(
            "instances/removed-but-failing-is-not-absent",
            ["INST-1"],
            "an instance that was removed is not ABSENT while the cloud cannot say so",
            [Need::Instances, ADD, REMOVE, FAIL],
            removed_but_failing
        ),
        check!(
            "instances/failing-cloud-and-old-answers",
            ["INST-1", "INST-5"],
            "with a large max_age a failing cloud makes no instance ABSENT either",
            [Need::Instances, FAIL],
            failing_with_age
        ),
        check!(
            "instances/heals-with-the-cloud",
            ["INST-1", "CORE-6"],
            "when the cloud answers again so does the provider, with the right states",
            [Need::Instances, FAIL],
            heals
        ),
        check!(
            "instances/slow-is-not-absent",
            ["INST-1", "CORE-9"],
            "a cloud that is slower than the deadline makes no instance ABSENT",
            [Need::Instances, SLOW],
            slow
        ),
        check!(
            "instances/slow-cloud-is-waited-for",
            ["INST-1", "INST-5"],
            "a cloud that takes its time within the deadline is waited for",
            [Need::Instances, SLOW],
            slow_but_in_time
        ),
        check!(
            "instances/cut-off-anywhere",
            ["INST-1", "CORE-6"],
            "lookups that are cut off at any moment say nothing wrong, nor do those after them",
            [Need::Instances],
            cut_off
        ),
        check!(
            "instances/killed-midway",
            ["INST-1", "CORE-6"],
            "a lookup whose provider is killed gets no answer, and the next provider the right one",
            [Need::Instances, Need::Command],
            killed
        ),
        check!(
            "instances/stopped-is-not-absent",
            ["INST-1"],
            "an instance that is shut down still exists, whatever was asked",
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
            "after an answer that may be kept a question with max_age zero sees what changed since",
            [Need::Instances, ADD, REMOVE],
            age_zero
        ),
        check!(
            "instances/max-age-left-out-is-zero",
            ["INST-5"],
            "a question without max_age asks the cloud too",
            [Need::Instances, ADD, REMOVE],
            age_left_out
        ),
        check!(
            "instances/never-older-than-max-age",
            ["INST-5"],
            "an answer is never older than max_age",
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

async fn removed(run: &Run) -> Verdict {
    let session = run.session().await?;
    let (known, made) = Known::made(run, &session).await?;
    run.change_instance(Hook::InstanceRemove, &made).await?;
    let nodes = vec![known.node()];
    let looked_up = look_up(run, &session, lookup(nodes, &ALL)).await?;
    looked_up.must_be(0, InstanceState::Absent, "INST-1")?;
    // By its name alone: the cloud has nothing of that name.
    let nodes = vec![known.node_without_id()];
    look_up(run, &session, lookup(nodes, &ALL))
        .await?
        .must_not_exist(0, "INST-1")
}

async fn neighbours(run: &Run) -> Verdict {
    let session = run.session().await?;
    let (known, made) = Known::made(run, &session).await?;
    let (neighbour, _) = Known::made(run, &session).await?;
    run.change_instance(Hook::InstanceRemove, &made).await?;
    for facets in [&ALL[..], &[InstanceFacet::Existence]] {
        for nodes in [
            vec![known.node(), neighbour.node()],
            vec![known.node_without_id(), neighbour.node_without_id()],
        ] {
            let looked_up = look_up(run, &session, lookup(nodes, facets)).await?;
            looked_up.must_not_exist(0, "INST-1")?;
            looked_up.existing(1, "INST-4")?;
        }
    }
    Ok(())
}

/// What a Node's lookup came to, as a failure of the whole is a failure of each.
fn failures(answer: &pb::LookupInstancesResponse) -> Vec<Result<&pb::Failure, &Outcome>> {
    if let Some(failed) = &answer.failed {
        return vec![Ok(failed)];
    }
    let outcomes = answer.results.iter().filter_map(|one| one.outcome.as_ref());
    outcomes
        .map(|outcome| match outcome {
            Outcome::Failed(failed) => Ok(failed),
            Outcome::Found(_) => Err(outcome),
        })
        .collect()
}

async fn refused(run: &Run, code: FailureCode) -> Verdict {
    let session = run.session().await?;
    let known = Known::one(run, &session).await?;
    let word = super::super::call::short_code(code);
    run.cloud_fail(word).await?;
    for facets in [&ALL[..], &[InstanceFacet::Existence]] {
        let nodes = vec![
            known.node(),
            run.node("nobody"),
            node(&run.name("nobody"), Some(&id_of_none(run))),
        ];
        let exchange = session.call(lookup(nodes, facets)).await;
        let answer = exchange.answer()?;
        let came = failures(answer);
        exchange.must(
            !came.is_empty(),
            "INST-2",
            "a result for each Node, or `failed`",
        )?;
        for one in came {
            match one {
                Ok(failed) => {
                    well_formed::judge(&exchange, [well_formed::failure(failed)])?;
                    let expected = format!("failed with {word}: that is what the cloud said");
                    exchange.must(failed.code() == code, "CORE-15", expected)?;
                }
                Err(Outcome::Found(found)) if found.state() == InstanceState::Absent => {
                    let expected = format!(
                        "failed with {word}: a cloud that fails says of nothing that it is gone"
                    );
                    return Err(exchange.broke("INST-1", expected));
                }
                Err(_) => {
                    let expected =
                        format!("failed with {word}: with max_age zero the cloud is asked");
                    return Err(exchange.broke("INST-5", expected));
                }
            }
        }
    }
    Ok(())
}

async fn throttled(run: &Run) -> Verdict {
    refused(run, FailureCode::Throttled).await
}

async fn credentials(run: &Run) -> Verdict {
    refused(run, FailureCode::Credentials).await
}

async fn unavailable(run: &Run) -> Verdict {
    refused(run, FailureCode::Unavailable).await
}

async fn precondition(run: &Run) -> Verdict {
    refused(run, FailureCode::Precondition).await
}

/// No Node of the answer is ABSENT.
async fn none_absent(session: &Session, request: pb::LookupInstancesRequest, why: &str) -> Verdict {
    let exchange = session.call(request).await;
    let answer = exchange.answer()?;
    let absent = answer.results.iter().any(|one| match &one.outcome {
        Some(Outcome::Found(found)) => found.state() == InstanceState::Absent,
        _ => false,
    });
    exchange.must(!absent, "INST-1", format_args!("no Node is ABSENT: {why}"))
}

async fn removed_but_failing(run: &Run) -> Verdict {
    let session = run.session().await?;
    let (known, made) = Known::made(run, &session).await?;
    run.change_instance(Hook::InstanceRemove, &made).await?;
    run.cloud_fail("UNAVAILABLE").await?;
    none_absent(
        &session,
        lookup(vec![known.node()], &ALL),
        "the cloud is down",
    )
    .await?;
    run.cloud_fail("NONE").await?;
    let looked_up = look_up(run, &session, lookup(vec![known.node()], &ALL)).await?;
    looked_up.must_be(0, InstanceState::Absent, "INST-1")
}

async fn failing_with_age(run: &Run) -> Verdict {
    let session = run.session().await?;
    let known = Known::one(run, &session).await?;
    for code in ["THROTTLED", "CREDENTIALS", "UNAVAILABLE"] {
        run.cloud_fail(code).await?;
        for nodes in [vec![known.node()], vec![known.node(), run.node("nobody")]] {
            let request = aged(lookup(nodes, &ALL), Duration::from_hours(24));
            none_absent(
                &session,
                request,
                "the cloud fails, and said so of none before",
            )
            .await?;
        }
    }
    Ok(())
}

async fn heals(run: &Run) -> Verdict {
    let session = run.session().await?;
    let known = Known::one(run, &session).await?;
    for code in ["THROTTLED", "CREDENTIALS", "UNAVAILABLE"] {
        run.cloud_fail(code).await?;
        let exchange = session.call(lookup(vec![known.node()], &ALL)).await;
        exchange.answer()?;
        run.cloud_fail("NONE").await?;
        let healed = format!("{code} is over: the instance is found again");
        // A provider may keep to the delay that the cloud asked for.
        let patience = Instant::now() + Duration::from_secs(50);
        loop {
            let exchange = session.call(lookup(vec![known.node()], &ALL)).await;
            if failures(exchange.answer()?).iter().any(Result::is_err) {
                break;
            }
            exchange.must(Instant::now() < patience, "CORE-6", &healed)?;
            tokio::time::sleep(LOOK).await;
        }
        look_up(run, &session, lookup(vec![known.node()], &ALL))
            .await?
            .existing(0, "INST-1")?;
    }
    Ok(())
}

async fn slow(run: &Run) -> Verdict {
    let session = run.session().await?;
    let known = Known::one(run, &session).await?;
    run.cloud_slow(Duration::from_secs(3)).await?;
    for deadline in [Duration::from_millis(200), Duration::from_millis(700)] {
        let exchange = session
            .call_within(lookup(vec![known.node()], &ALL), deadline)
            .await;
        // No answer is fine: it says nothing. An answer must say nothing wrong.
        if let Ok(answer) = &exchange.came {
            let found = failures(answer).into_iter().all(|one| match one {
                Err(Outcome::Found(found)) => well_formed::exists(found.state()),
                _ => true,
            });
            exchange.must(
                found,
                "INST-1",
                "no answer, `failed`, or that the instance exists",
            )?;
        }
    }
    run.cloud_slow(Duration::ZERO).await?;
    look_up(run, &session, lookup(vec![known.node()], &ALL))
        .await?
        .existing(0, "INST-1")?;
    Ok(())
}

async fn slow_but_in_time(run: &Run) -> Verdict {
    let session = run.session().await?;
    let known = Known::one(run, &session).await?;
    run.cloud_slow(Duration::from_millis(400)).await?;
    look_up(run, &session, lookup(vec![known.node()], &ALL))
        .await?
        .existing(0, "INST-1")?;
    Ok(())
}

async fn cut_off(run: &Run) -> Verdict {
    let session = run.session().await?;
    let known = Known::one(run, &session).await?;
    let nodes = || vec![known.node(), run.node("nobody")];
    for microseconds in (0..30_u64).map(|step| step * step * 20) {
        let deadline = Duration::from_micros(microseconds.max(1));
        let exchange = session.call_within(lookup(nodes(), &ALL), deadline).await;
        if let Ok(answer) = &exchange.came {
            let wrong = answer.results.iter().any(|one| match &one.outcome {
                Some(Outcome::Found(found)) if one.node_name == known.name => {
                    !well_formed::exists(found.state())
                }
                _ => false,
            });
            exchange.must(!wrong, "INST-1", "no answer, or that the instance exists")?;
        }
    }
    look_up(run, &session, lookup(vec![known.node()], &ALL))
        .await?
        .existing(0, "CORE-6")?;
    Ok(())
}

async fn killed(run: &Run) -> Verdict {
    let session = run.session().await?;
    let known = Known::one(run, &session).await?;
    if run.has_hook(Hook::CloudSlow) {
        run.cloud_slow(Duration::from_secs(2)).await?;
    }
    let asked = session.call(lookup(vec![known.node()], &ALL));
    let (exchange, killed) = tokio::join!(asked, async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        run.target().kill().await
    });
    killed?;
    if let Ok(answer) = &exchange.came {
        let found = failures(answer).into_iter().all(|one| match one {
            Err(Outcome::Found(found)) => well_formed::exists(found.state()),
            _ => true,
        });
        exchange.must(found, "INST-1", "no answer, or that the instance exists")?;
    }
    run.target().revive().await?;
    if run.has_hook(Hook::CloudSlow) {
        run.cloud_slow(Duration::ZERO).await?;
    }
    let session = run.session().await?;
    look_up(run, &session, lookup(vec![known.node()], &ALL))
        .await?
        .existing(0, "CORE-6")?;
    Ok(())
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
        // A cloud may take a while over it: only where it ends is said by the contract.
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
    let power = run.capabilities().instances.unwrap_or_default().power_state;
    for instance in stated {
        let nodes = vec![Run::node_of(instance)];
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
    // An answer that the provider may keep, from before.
    let request = aged(
        lookup(vec![run.node("nobody")], &ALL),
        Duration::from_hours(1),
    );
    look_up(run, &session, request).await?;
    let made = run.add_instance("new").await?;
    let nodes = vec![Run::node_of(&made)];
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

/// Makes an instance, fills the provider's cache with it, and removes it.
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
        // What was learned before the removal is older than `age` from here on.
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
        let mut request = lookup(vec![known.node(), run.node("nobody")], &ALL);
        request.max_age = Some(prost_types::Duration {
            seconds,
            nanos: 999_999_999,
        });
        look_up(run, &session, request)
            .await?
            .existing(0, "INST-5")?;
    }
    // Nonsense is no reason to answer from a cache, nor to fall over.
    let mut request = lookup(vec![known.node()], &ALL);
    request.max_age = Some(prost_types::Duration {
        seconds: -1,
        nanos: 0,
    });
    none_absent(&session, request, "the instance exists").await
}
