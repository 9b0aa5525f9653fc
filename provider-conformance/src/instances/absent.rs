//! ABSENT, and only ABSENT, means that an instance does not exist (INST-1).

use std::time::Duration;

use cloud_provider_api::v1alpha1::lookup_instance_result::Outcome;
use cloud_provider_api::v1alpha1::{self as pb, FailureCode, InstanceFacet, InstanceState};
use tokio::time::Instant;

use super::super::check::{Check, Need, Verdict, after, check};
use super::super::hooks::Hook;
use super::super::run::{Run, holds_two};
use super::super::session::Session;
use super::super::well_formed;
use super::ask::{ALL, Known, aged, id_of_none, look_up, lookup, node};
use super::max_batch;

/// The time between two questions.
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
            "while the cloud throttles, every Node is `failed` with THROTTLED",
            [Need::Instances, FAIL],
            throttled
        ),
        check!(
            "instances/refused-credentials-are-not-absent",
            ["INST-1", "CORE-15"],
            "while the cloud refuses the credentials, every Node is `failed` with CREDENTIALS",
            [Need::Instances, FAIL],
            credentials
        ),
        check!(
            "instances/unavailable-is-not-absent",
            ["INST-1", "CORE-15"],
            "while the cloud is down, every Node is `failed` with UNAVAILABLE",
            [Need::Instances, FAIL],
            unavailable
        ),
        check!(
            "instances/precondition-is-not-absent",
            ["INST-1", "CORE-15"],
            "while the cloud lacks a precondition, every Node is `failed` with PRECONDITION",
            [Need::Instances, FAIL],
            precondition
        ),
        check!(
            "instances/removed-but-failing-is-not-absent",
            ["INST-1"],
            "a removed instance is not ABSENT while the cloud does not answer",
            [Need::Instances, ADD, REMOVE, FAIL],
            removed_but_failing
        ),
        check!(
            "instances/failing-cloud-and-old-answers",
            ["INST-1", "INST-5"],
            "with a large max_age, a failing cloud makes no instance ABSENT either",
            [Need::Instances, FAIL],
            failing_with_age
        ),
        check!(
            "instances/heals-with-the-cloud",
            ["INST-1", "CORE-6"],
            "when the cloud answers again, the provider finds the instance again",
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
            "the provider waits for a cloud that is slow within the deadline",
            [Need::Instances, SLOW],
            slow_but_in_time
        ),
        check!(
            "instances/cut-off-anywhere",
            ["INST-1", "CORE-6"],
            "lookups that are cut off by 38 short deadlines get no wrong answer, nor does the one after them",
            [Need::Instances],
            cut_off
        ),
        check!(
            "instances/killed-midway",
            ["INST-1", "CORE-6"],
            "a lookup whose provider is killed gets no wrong answer, and the next process finds the instance",
            [Need::Instances, Need::Command],
            killed
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
    // By its name alone: the cloud has nothing with that name.
    let nodes = vec![known.node_without_id()];
    look_up(run, &session, lookup(nodes, &ALL))
        .await?
        .must_not_exist(0, "INST-1")
}

async fn neighbours(run: &Run) -> Verdict {
    holds_two(max_batch(run))?;
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

/// The results: `Ok` is a failure, `Err` is an instance. A failure of the whole call is the only
/// result.
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
        let mut nodes = vec![
            known.node(),
            run.node("nobody"),
            node(&run.name("nobody"), Some(&id_of_none(run))),
        ];
        nodes.truncate(max_batch(run));
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
                    let expected = format!("failed with {word}: the cloud's code");
                    exchange.must(failed.code() == code, "CORE-15", expected)?;
                }
                Err(Outcome::Found(found)) if found.state() == InstanceState::Absent => {
                    let expected = format!(
                        "failed with {word}: a cloud that fails reports no instance as gone"
                    );
                    return Err(exchange.broke("INST-1", expected));
                }
                Err(_) => {
                    let expected = format!(
                        "failed with {word}: max_age is zero, so the provider must ask the cloud"
                    );
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

/// Looks up this instance and perhaps others. The instance must not be ABSENT.
pub(super) async fn is_not_absent(
    session: &Session,
    known: &Known,
    request: pb::LookupInstancesRequest,
    why: &str,
) -> Verdict {
    let exchange = session.call(request).await;
    let answer = exchange.answer()?;
    let absent = answer.results.iter().any(|one| match &one.outcome {
        Some(Outcome::Found(found)) if one.node_name == known.name => {
            found.state() == InstanceState::Absent
        }
        _ => false,
    });
    let expected = format!("{} is not ABSENT: {why}", known.name);
    exchange.must(!absent, "INST-1", expected)
}

async fn removed_but_failing(run: &Run) -> Verdict {
    let session = run.session().await?;
    let (known, made) = Known::made(run, &session).await?;
    run.change_instance(Hook::InstanceRemove, &made).await?;
    run.cloud_fail("UNAVAILABLE").await?;
    is_not_absent(
        &session,
        &known,
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
        for mut nodes in [vec![known.node()], vec![known.node(), run.node("nobody")]] {
            nodes.truncate(max_batch(run));
            let request = aged(lookup(nodes, &ALL), Duration::from_hours(24));
            is_not_absent(
                &session,
                &known,
                request,
                "the cloud fails, and has not reported that the instance is gone",
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
        // A provider may wait for the delay that the cloud asked for.
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
        // No answer is fine. An answer must not be wrong.
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
    let mut nodes = vec![known.node(), run.node("nobody")];
    nodes.truncate(max_batch(run));
    let fixed = (0..30_u64).map(|step| step * step * 20);
    let moments = run.and_drawn(fixed, 8, &(1..=20_000));
    for &microseconds in &moments {
        let deadline = Duration::from_micros(microseconds.max(1));
        let exchange = session
            .call_within(lookup(nodes.clone(), &ALL), deadline)
            .await;
        if let Ok(answer) = &exchange.came {
            let wrong = answer.results.iter().any(|one| match &one.outcome {
                Some(Outcome::Found(found)) if one.node_name == known.name => {
                    !well_formed::exists(found.state())
                }
                _ => false,
            });
            let expected = "no answer, or that the instance exists";
            let came = exchange.must(!wrong, "INST-1", expected);
            after(format_args!("a deadline of {deadline:?}"), came)?;
        }
    }
    let whole = look_up(run, &session, lookup(vec![known.node()], &ALL)).await;
    let found = whole.and_then(|whole| whole.existing(0, "CORE-6").map(|_| ()));
    after(
        format_args!("lookups with deadlines of {moments:?} microseconds"),
        found,
    )
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
