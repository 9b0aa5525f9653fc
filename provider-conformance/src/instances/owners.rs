//! The cluster of lookups (CORE-10).

use std::time::Duration;

use cloud_provider_api::v1alpha1::lookup_instance_result::Outcome;
use cloud_provider_api::v1alpha1::{self as pb, FailureCode};

use super::super::check::{Check, Need, Verdict, check};
use super::super::run::Run;
use super::super::session::Session;
use super::ask::{ALL, Known, look_up, lookup};

pub(super) fn checks() -> Vec<Check> {
    vec![
        check!(
            "instances/another-owner",
            ["CORE-10", "INST-1"],
            "a lookup for an owner that was not initialised is NOT_INITIALIZED and says nothing of any Node",
            [Need::Instances],
            another_owner
        ),
        check!(
            "instances/before-initialize",
            ["CORE-10", "INST-1"],
            "a new process answers NOT_INITIALIZED, and nothing is ABSENT",
            [Need::Instances, Need::Command],
            before_initialize
        ),
    ]
}

/// NOT_INITIALIZED, as a whole or for every Node.
async fn not_initialized(session: &Session, nodes: Vec<pb::NodeView>) -> Verdict {
    let exchange = session
        .call_within(lookup(nodes, &ALL), Duration::from_mins(1))
        .await;
    let answer = exchange.answer()?;
    if answer.failed.is_some() {
        exchange.failure("CORE-10", &[FailureCode::NotInitialized])?;
        return Ok(());
    }
    let all = answer.results.iter().all(|one| {
        matches!(&one.outcome, Some(Outcome::Failed(failed)) if failed.code() == FailureCode::NotInitialized)
    });
    exchange.must(
        all && !answer.results.is_empty(),
        "CORE-10",
        "failed with NOT_INITIALIZED",
    )
}

async fn another_owner(run: &Run) -> Verdict {
    let session = run.session().await?;
    let known = Known::one(run, &session).await?;
    let stranger = session.speaking_for(run.other_cluster("stranger"));
    not_initialized(&stranger, vec![known.node(), run.node("nobody")]).await?;
    // The provider serves the initialised owner as before.
    look_up(run, &session, lookup(vec![known.node()], &ALL))
        .await?
        .existing(0, "CORE-10")?;
    Ok(())
}

async fn before_initialize(run: &Run) -> Verdict {
    let known = Known::one(run, &run.session().await?).await?;
    run.target().restart().await?;
    let session = run.connect().await?;
    not_initialized(&session, vec![known.node(), run.node("nobody")]).await?;
    let session = run.session().await?;
    look_up(run, &session, lookup(vec![known.node()], &ALL))
        .await?
        .existing(0, "CORE-10")?;
    Ok(())
}
