//! WatchChanges.

use std::time::Duration;

use cloud_provider_api::v1alpha1::{self as pb, FailureCode};
use futures::future::join_all;
use futures::stream::{BoxStream, StreamExt, TryStreamExt};
use pb::watch_changes_response::Change;
use tokio::time::timeout;
use tonic::Status;

use super::super::call::shown;
use super::super::check::{Check, Need, Stop, Verdict, check, must, should};
use super::super::config::KnownInstance;
use super::super::hooks::Hook;
use super::super::run::Run;
use super::super::session::Session;

/// The limit for the hint about a change (PROV-13), with a margin for a busy machine.
const HINT: Duration = Duration::from_secs(40);
const PATIENCE: Duration = Duration::from_secs(20);
/// The limit for the first message of a stream. A provider without bookmarks costs this time for
/// each stream.
const BOOKMARK: Duration = Duration::from_secs(10);
/// The first messages of a stream are over if nothing more comes for this long. A stream counts as
/// open if it does not end within three times this long.
const QUIET: Duration = Duration::from_millis(500);
const HINTS: [Need; 2] = [Need::Changes, Need::Hook(Hook::InstanceAdd)];

pub(super) fn checks() -> Vec<Check> {
    CHECKS.to_vec()
}

const CHECKS: &[Check] = &[
    check!(
        "provider/watch-with-an-unknown-token-resyncs",
        ["PROV-5"],
        "the answer to an unknown resume token is `resync`",
        [Need::Changes],
        |run| unknown_token(run, "no-such-token".into())
    ),
    check!(
        "provider/watch-with-a-long-token-resyncs",
        ["PROV-5", "CORE-11"],
        "the answer to an unknown resume token of 1,024 bytes is `resync`",
        [Need::Changes],
        |run| unknown_token(run, "x".repeat(1_024))
    ),
    check!(
        "provider/watch-with-a-token-of-a-former-process-resyncs-or-resumes",
        ["PROV-5"],
        "a token of a former process is resumed or answered with `resync`, not with a failure",
        [HINTS[0], HINTS[1], Need::Command],
        former_token
    ),
    check!(
        "provider/watch-stays-open",
        ["PROV-6"],
        "WatchChanges without a token stays open while nothing changes",
        [Need::Changes],
        stays_open
    ),
    check!(
        "provider/watch-hints-at-a-new-instance",
        ["PROV-13", "PROV-5"],
        "a new instance causes a hint",
        [HINTS[0], HINTS[1]],
        |run| hinted(run, None)
    ),
    check!(
        "provider/watch-hints-at-a-removed-instance",
        ["PROV-13", "PROV-5"],
        "a removed instance causes a hint",
        [HINTS[0], HINTS[1], Need::Hook(Hook::InstanceRemove)],
        |run| hinted(run, Some(Hook::InstanceRemove))
    ),
    check!(
        "provider/watch-hints-at-a-stopped-instance",
        ["PROV-13", "PROV-5"],
        "an instance that is shut down causes a hint",
        [
            HINTS[0],
            HINTS[1],
            Need::PowerState,
            Need::Hook(Hook::InstanceStop)
        ],
        |run| hinted(run, Some(Hook::InstanceStop))
    ),
    check!(
        "provider/watch-resumes-after-its-token",
        ["PROV-5", "PROV-13"],
        "after a change while no stream was open, a stream that resumes from the last token has a hint or `resync`",
        [HINTS[0], HINTS[1]],
        resumes
    ),
    check!(
        "provider/watch-before-initialize-fails-in-the-stream",
        ["PROV-6", "CORE-10"],
        "WatchChanges for another owner is `failed` with NOT_INITIALIZED in the stream, which then ends with OK",
        [Need::Changes],
        another_owner
    ),
    check!(
        "provider/watch-of-a-new-process-fails-in-the-stream",
        ["PROV-6", "CORE-10"],
        "WatchChanges before Initialize is `failed` with NOT_INITIALIZED in the stream, which then ends with OK",
        [Need::Changes, Need::Command],
        new_process
    ),
    check!(
        "provider/watch-ends-with-ok-at-shutdown",
        ["PROV-6", "CORE-17"],
        "open streams end with status OK at SIGTERM, and the process ends",
        [Need::Changes, Need::Command],
        shutdown
    ),
    check!(
        "provider/watchers-do-not-disturb-each-other",
        ["PROV-5", "CORE-6"],
        "of 16 watchers 8 go away; the other 8 still get the hint",
        [HINTS[0], HINTS[1]],
        many
    ),
    check!(
        "provider/watch-tokens-keep-their-limit",
        ["CORE-11", "PROV-5"],
        "resume tokens have 1 to 1,024 bytes",
        [HINTS[0], HINTS[1]],
        tokens
    ),
    check!(
        "provider/watch-begins-with-a-bookmark",
        ["PROV-21"],
        "a stream begins with a resume token, before anything has changed",
        [Need::Changes],
        begins_with_bookmark
    ),
];

/// A stream that opens at the first read: its headers may come with its first message only.
struct Watch {
    stream: BoxStream<'static, Result<pb::WatchChangesResponse, Status>>,
    sent: String,
}

fn watch(session: &Session, resume_token: &str) -> Watch {
    let request = pb::WatchChangesRequest {
        cluster: Some(session.cluster().clone()),
        resume_token: resume_token.into(),
    };
    let sent = super::super::check::cut(&format_args!("WatchChanges {request:?}"));
    let session = session.clone();
    let opened = async move { session.watch(request).await };
    Watch {
        stream: futures::stream::once(opened).try_flatten().boxed(),
        sent,
    }
}

impl Watch {
    async fn next(
        &mut self,
        patience: Duration,
        rule: &str,
    ) -> Verdict<Option<Result<pb::WatchChangesResponse, Status>>> {
        match timeout(patience, self.stream.try_next()).await {
            Ok(Ok(Some(hint))) => Ok(Some(Ok(hint))),
            Ok(Err(status)) => Ok(Some(Err(status))),
            Ok(Ok(None)) => Ok(None),
            Err(_) => Err(Stop::failed(
                rule,
                &self.sent,
                "something",
                format_args!("nothing within {patience:?}"),
            )),
        }
    }

    /// Reads until a hint for this instance or for everything.
    async fn hint_of(&mut self, instance: &KnownInstance) -> Verdict<pb::WatchChangesResponse> {
        let provider_id = instance.provider_id.as_deref().unwrap_or_default();
        let found = timeout(HINT, async {
            loop {
                match self.stream.try_next().await {
                    Ok(Some(hint)) => match &hint.change {
                        Some(Change::Resync(_)) => return Ok(hint),
                        Some(Change::Instance(of))
                            if of.provider_id == provider_id || of.node_name == instance.name =>
                        {
                            return Ok(hint);
                        }
                        Some(Change::Failed(_)) => return Err(format!("{hint:?}")),
                        // Including a bookmark (PROV-21).
                        Some(_) | None => {}
                    },
                    Ok(None) => return Err("the end of the stream".to_owned()),
                    Err(status) => return Err(shown(&status)),
                }
            }
        });
        let expected = format!(
            "a hint at {} {provider_id}, or `resync`, within {HINT:?}",
            instance.name
        );
        match found.await {
            Ok(Ok(hint)) => Ok(hint),
            Ok(Err(came)) => Err(Stop::failed("PROV-13", &self.sent, expected, came)),
            Err(_) => Err(Stop::failed(
                "PROV-13",
                &self.sent,
                expected,
                "no such hint",
            )),
        }
    }

    /// Checks that the stream ends now, with status OK.
    async fn ends(&mut self, rule: &str) -> Verdict {
        let came = loop {
            match timeout(PATIENCE, self.stream.try_next()).await {
                Ok(Ok(None)) => return Ok(()),
                // Hints that the provider sent before.
                Ok(Ok(Some(hint))) if !matches!(hint.change, Some(Change::Failed(_))) => {}
                Ok(Ok(Some(hint))) => break format!("{hint:?}"),
                Ok(Err(status)) => break shown(&status),
                Err(_) => break format!("it is still open after {PATIENCE:?}"),
            }
        };
        Err(Stop::failed(
            rule,
            &self.sent,
            "the stream ends with gRPC status OK",
            came,
        ))
    }
}

async fn unknown_token(run: &Run, token: String) -> Verdict {
    let session = run.session().await?;
    let mut watch = watch(&session, &token);
    let first = watch.next(PATIENCE, "PROV-5").await?;
    let resync = matches!(&first, Some(Ok(hint)) if matches!(hint.change, Some(Change::Resync(_))));
    must(
        resync,
        "PROV-5",
        &watch.sent,
        "`resync` as the first message",
        format_args!("{first:?}"),
    )
}

async fn former_token(run: &Run) -> Verdict {
    let session = run.session().await?;
    let mut former = watch(&session, "");
    settle(&mut former).await;
    let instance = run.add_instance("hint").await?;
    let token = former.hint_of(&instance).await?.resume_token;
    run.target().restart().await?;
    let session = run.session().await?;
    let mut watch = watch(&session, &token);
    let next = run.add_instance("hint").await?;
    watch.hint_of(&next).await.map(|_| ())
}

/// Waits until a stream has begun, which its first message shows, and reads its first messages. A
/// stream without a bookmark (PROV-21) counts as begun after some time.
async fn settle(watch: &mut Watch) {
    let mut patience = BOOKMARK;
    while let Ok(Ok(Some(_))) = timeout(patience, watch.stream.try_next()).await {
        patience = QUIET;
    }
}

async fn stays_open(run: &Run) -> Verdict {
    let session = run.session().await?;
    let mut watch = watch(&session, "");
    let until = tokio::time::Instant::now() + QUIET * 3;
    loop {
        match tokio::time::timeout_at(until, watch.stream.try_next()).await {
            Err(_) => return Ok(()),
            // Other users may change the cloud during the check.
            Ok(Ok(Some(hint))) if !matches!(hint.change, Some(Change::Failed(_))) => {}
            Ok(came) => {
                return Err(Stop::failed(
                    "PROV-6",
                    &watch.sent,
                    "a stream that stays open",
                    format_args!("{came:?}"),
                ));
            }
        }
    }
}

async fn hinted(run: &Run, change: Option<Hook>) -> Verdict {
    let session = run.session().await?;
    let before = match change {
        Some(_) => Some(run.add_instance("hint").await?),
        None => None,
    };
    let mut watch = watch(&session, "");
    settle(&mut watch).await;
    let instance = match (change, before) {
        (Some(change), Some(instance)) => {
            run.change_instance(change, &instance).await?;
            instance
        }
        _ => run.add_instance("hint").await?,
    };
    watch.hint_of(&instance).await.map(|_| ())
}

async fn resumes(run: &Run) -> Verdict {
    let session = run.session().await?;
    let mut first = watch(&session, "");
    settle(&mut first).await;
    let instance = run.add_instance("hint").await?;
    let token = first.hint_of(&instance).await?.resume_token;
    drop(first);
    let missed = run.add_instance("missed").await?;
    let mut again = watch(&session, &token);
    again.hint_of(&missed).await.map(|_| ())
}

async fn refused(session: &Session) -> Verdict {
    let mut watch = watch(session, "");
    let first = watch.next(PATIENCE, "PROV-6").await?;
    let failed = matches!(&first, Some(Ok(hint))
        if matches!(&hint.change, Some(Change::Failed(failure)) if failure.code() == FailureCode::NotInitialized));
    must(
        failed,
        "PROV-6",
        &watch.sent,
        "`failed` with NOT_INITIALIZED in the stream",
        format_args!("{first:?}"),
    )?;
    watch.ends("PROV-6").await
}

async fn another_owner(run: &Run) -> Verdict {
    let session = run.session().await?;
    refused(&session.speaking_for(run.other_cluster("stranger"))).await
}

async fn new_process(run: &Run) -> Verdict {
    run.target().restart().await?;
    refused(&run.connect().await?).await
}

async fn shutdown(run: &Run) -> Verdict {
    let session = run.session().await?;
    let mut watches = Vec::new();
    for _ in 0..3 {
        let mut one = watch(&session, "");
        settle(&mut one).await;
        watches.push(one);
    }
    run.target().send_term().await?;
    for watch in &mut watches {
        watch.ends("PROV-6").await?;
    }
    let ended = run.target().wait(PATIENCE * 2).await?;
    must(
        ended.is_some(),
        "CORE-17",
        "SIGTERM with three open WatchChanges",
        "the process ends",
        "it still runs",
    )
}

async fn many(run: &Run) -> Verdict {
    let session = run.session().await?;
    let mut watches = Vec::new();
    for _ in 0..16 {
        watches.push(watch(&session, ""));
    }
    let begin = watches.iter_mut().map(|one| one.stream.try_next());
    join_all(begin.map(|first| timeout(BOOKMARK, first))).await;
    watches.truncate(8);
    let instance = run.add_instance("hint").await?;
    for one in &mut watches {
        one.hint_of(&instance).await?;
    }
    Ok(())
}

async fn tokens(run: &Run) -> Verdict {
    let session = run.session().await?;
    let mut watch = watch(&session, "");
    settle(&mut watch).await;
    let instance = run.add_instance("hint").await?;
    let hint = watch.hint_of(&instance).await?;
    must(
        (1..=1_024).contains(&hint.resume_token.len()),
        "CORE-11",
        &watch.sent,
        "a resume_token of 1 to 1,024 bytes",
        format_args!("{hint:?}"),
    )
}

async fn begins_with_bookmark(run: &Run) -> Verdict {
    let session = run.session().await?;
    let mut watch = watch(&session, "");
    let first = timeout(BOOKMARK, watch.stream.try_next()).await;
    let token = match &first {
        Ok(Ok(Some(hint))) if !matches!(hint.change, Some(Change::Failed(_))) => {
            hint.resume_token.len()
        }
        Ok(came) => {
            let came = format_args!("{came:?}");
            return Err(Stop::failed(
                "PROV-6",
                &watch.sent,
                "a stream of hints",
                came,
            ));
        }
        Err(_) => 0,
    };
    should(
        (1..=1_024).contains(&token),
        "PROV-21",
        &watch.sent,
        format_args!("a message with a resume_token within {BOOKMARK:?}, while nothing changes"),
        format_args!("{first:?}"),
    )
}
