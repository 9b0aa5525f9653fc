//! The states of the Lease over time, and whether the contenders' actions and views match them.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::runtime::watcher::watch_object;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::contender::{Contender, Kind, View};

/// The renew deadline of all contenders. The ccm writes nothing more when this time has passed
/// since its last successful renewal began.
const RENEW_DEADLINE: Duration = Duration::from_secs(10);
/// How long a resumed ccm may still say that it leads.
const LOOKS: Duration = Duration::from_secs(5);
/// How long a resumed CCM of upstream may still say that it leads, and may write. It continues for
/// its whole renew deadline, even if it has seen another leader.
const LOOKS_UPSTREAM: Duration = Duration::from_secs(20);

/// How late the test may observe what a contender did, on a busy machine.
const ON_THE_WAY: Duration = Duration::from_millis(250);

/// If somebody deletes the leader's Lease and another process creates it, the leader's requests
/// count as in flight until its read of the Lease is answered. The read begins with the watch event
/// of the deletion, and has this limit.
const LOOK: Duration = Duration::from_millis(3_333);

/// Records the holders of the Lease.
pub struct History {
    seen: Arc<Mutex<Vec<Seen>>>,
    task: JoinHandle<()>,
}

/// An observed state of the Lease.
#[derive(Clone, Debug)]
pub struct Seen {
    pub at: Instant,
    /// Empty after a release. `None`: there is no Lease.
    pub holder: Option<String>,
}

impl History {
    pub fn watch(leases: Api<Lease>, name: &'static str) -> Self {
        let seen = Arc::<Mutex<Vec<Seen>>>::default();
        let written = Arc::clone(&seen);
        let task = tokio::spawn(async move {
            let mut changes = std::pin::pin!(watch_object(leases, name));
            while let Some(change) = changes.next().await {
                let Ok(lease) = change else { continue };
                let holder = lease.map(|lease| {
                    let spec = lease.spec.unwrap_or_default();
                    spec.holder_identity.unwrap_or_default()
                });
                let at = Instant::now();
                written.lock().unwrap().push(Seen { at, holder });
            }
        });
        Self { seen, task }
    }

    pub fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    /// The processes that held the Lease, one after the other.
    pub fn holders(&self) -> Vec<String> {
        let mut holders: Vec<String> = self
            .seen()
            .into_iter()
            .filter_map(|seen| seen.holder)
            .filter(|holder| !holder.is_empty())
            .collect();
        holders.dedup();
        holders
    }
}

impl Drop for History {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The observations that show two leaders, or a write of the ccm after its renew deadline.
pub fn wrong(history: &[Seen], contenders: &[Contender]) -> Vec<String> {
    let mut wrong = Vec::new();
    for contender in contenders {
        // A process of upstream that was suspended writes on for a while: it has no fence. The test
        // measures how long, and does not count these writes as errors.
        let excused = |at: Instant| {
            contender.kind == Kind::Go
                && contender
                    .woken
                    .is_some_and(|woken| at < woken + LOOKS_UPSTREAM)
        };
        let writes = wrong_writes(history, contender);
        let writes = writes.into_iter().filter(|(at, _)| !excused(*at));
        wrong.extend(writes.map(|(_, what)| what));
    }
    for (index, one) in contenders.iter().enumerate() {
        for other in &contenders[index + 1..] {
            wrong.extend(both_lead(history, one, other));
        }
    }
    wrong
}

/// When this contender sent its last write beside another leader.
pub fn last_wrong_write(history: &[Seen], contender: &Contender) -> Option<Instant> {
    let writes = wrong_writes(history, contender);
    writes.last().map(|(at, _)| *at)
}

/// Writes of a contender that did not hold the Lease, or no longer. Also writes of the ccm after
/// its renew deadline.
fn wrong_writes(history: &[Seen], contender: &Contender) -> Vec<(Instant, String)> {
    let identity = contender.identity().unwrap_or_default();
    let claims = contender.link.claims();
    let mut wrong = Vec::new();
    for write in contender.link.writes() {
        let confirmed = claims
            .iter()
            .rfind(|claim| claim.holder == identity && claim.answered <= write.sent);
        let before = history.iter().rfind(|seen| seen.at <= write.sent);
        // After a deletion, the last holder still counts.
        let held = history
            .iter()
            .rfind(|seen| seen.at <= write.sent && seen.holder.is_some());
        let held = held.and_then(|seen| seen.holder.as_deref());
        let newer =
            confirmed.is_some_and(|claim| before.is_none_or(|seen| claim.answered > seen.at));
        let in_flight =
            contender.kind == Kind::Ours && in_flight(history, contender, &identity, write.sent);
        if held != Some(&identity) && !newer && !in_flight {
            let text = format!(
                "{:?} {identity} sent {} while {held:?} held the Lease",
                contender.kind, write.what
            );
            wrong.push((write.sent, text));
        }
        // ▲M12: upstream has no such fence.
        let age = confirmed.map(|claim| write.sent - claim.sent);
        if contender.kind == Kind::Ours && age.is_none_or(|age| age > RENEW_DEADLINE + ON_THE_WAY) {
            let text = format!(
                "{identity} sent {} {age:?} after its last renewal",
                write.what
            );
            wrong.push((write.sent, text));
        }
    }
    wrong
}

/// Whether the process sent a request before it could read that it had lost the Lease. This counts
/// only if somebody deleted the Lease and another process created it.
fn in_flight(history: &[Seen], contender: &Contender, identity: &str, sent: Instant) -> bool {
    let is = |seen: &Seen| seen.holder.as_deref() == Some(identity);
    let Some(last) = history.iter().rposition(is) else {
        return false;
    };
    let [deleted, made, ..] = &history[last + 1..] else {
        return false;
    };
    if deleted.holder.is_some() || made.holder.is_none() {
        return false;
    }
    let told = contender.link.told().into_iter();
    let told = told.filter(|told| told.answered >= deleted.at && told.holder != identity);
    let told = told.map(|told| told.answered).min();
    let end = told.map_or(deleted.at + LOOK, |told| told.min(deleted.at + LOOK));
    sent <= end + ON_THE_WAY
}

/// Times at which both said that they led. A ccm that led before may still say so for as long as
/// its requests count as [`in_flight`].
fn both_lead(history: &[Seen], one: &Contender, other: &Contender) -> Vec<String> {
    let excused = |at: Instant| {
        [one, other].into_iter().any(|contender| {
            let identity = contender.identity().unwrap_or_default();
            contender.kind == Kind::Ours && in_flight(history, contender, &identity, at)
        })
    };
    let terms = |contender: &Contender| {
        let looks = match contender.kind {
            Kind::Ours => LOOKS,
            Kind::Go => LOOKS_UPSTREAM,
        };
        let settled = |view: &View| {
            contender
                .woken
                .is_none_or(|woken| view.answered < woken || view.asked > woken + looks)
        };
        let views: Vec<View> = contender.views().into_iter().filter(settled).collect();
        let runs = views.chunk_by(|a, b| a.leads == b.leads);
        // It surely led between the first and the last answer in a row that say so.
        let sure = |run: &[View]| {
            let (first, last) = (run.first()?, run.last()?);
            (first.leads && first.answered < last.asked).then_some((first.answered, last.asked))
        };
        runs.filter_map(sure).collect::<Vec<_>>()
    };
    let mut wrong = Vec::new();
    for (begin, end) in terms(one) {
        for (other_begin, other_end) in terms(other) {
            let (from, to) = (begin.max(other_begin), end.min(other_end));
            if from < to && !excused(to) {
                let both = to - from;
                wrong.push(format!(
                    "{:?} and {:?} both said for {both:?} that they led",
                    one.kind, other.kind
                ));
            }
        }
    }
    wrong
}
