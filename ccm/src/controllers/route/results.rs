//! What calls bring: the ledger learns, Nodes get their conditions and events.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use tokio::time::Instant;

use super::jobs::{Batch, Item, Kind};
use super::ledger::{Ended, Failed, NodeName};
use super::plan::Pass;
use super::work::{Work, deletions};
use super::{Found, condition};
use crate::provider::batch::because_of_itself;
use crate::provider::{Session, Trouble, TroubleCode};

/// After so many calls that failed as a whole, in a row, it is not what they asked for.
const NOT_ITSELF: u32 = 10;
/// So many names in a line of the log.
const NAMED: usize = 5;

type Answers = Vec<Result<(), Trouble>>;

impl Work {
    pub(super) fn wrote(
        &mut self,
        session: &Arc<Session>,
        batch: Batch,
        answer: Option<Result<Answers, Trouble>>,
        took: Duration,
    ) {
        let answers: Vec<Option<Result<(), Trouble>>> = match answer {
            Some(Ok(answers)) => {
                self.failed_in_row = 0;
                self.say(&batch, &answers, took);
                answers.into_iter().map(Some).collect()
            }
            Some(Err(trouble)) => {
                self.failed_in_row += 1;
                let itself = because_of_itself(trouble.code) && self.failed_in_row < NOT_ITSELF;
                if itself && batch.items.len() > 1 && self.is_current(session) {
                    // Repeating is safe (every call of a provider is): one route that makes a call fail starves no other.
                    for part in batch.cut(trouble.code) {
                        self.send(session, part);
                    }
                    return;
                }
                self.say_failed(&batch, &trouble);
                if itself && let [item] = batch.items.as_slice() {
                    self.ledger.set_alone(item.destination);
                }
                self.unknown(&batch, &trouble, took);
                return;
            }
            None => batch.items.iter().map(|_| None).collect(),
        };
        let (batch, answers) = self.busy_again(session, batch, answers);
        let mut unsent = false;
        let mut touched = BTreeSet::new();
        let mut follow = Vec::new();
        for (item, answer) in batch.items.iter().zip(&answers) {
            let ended = match answer {
                Some(Ok(())) => Ended::Done,
                Some(Err(trouble)) => Ended::Failed(trouble),
                None => {
                    unsent = true;
                    Ended::Unsent
                }
            };
            self.one(batch.kind, item, ended, took, &mut touched, &mut follow);
        }
        if unsent {
            self.look_at(Instant::now());
        }
        self.after(session, touched, follow);
    }

    /// Sends what was BUSY again, without another look: a second or so is enough for most of what is under way (the contract's table). The rest of the batch.
    fn busy_again(
        &mut self,
        session: &Arc<Session>,
        batch: Batch,
        answers: Vec<Option<Result<(), Trouble>>>,
    ) -> (Batch, Vec<Option<Result<(), Trouble>>>) {
        if self.context.stop.is_cancelled() || !self.is_current(session) {
            return (batch, answers);
        }
        let kind = batch.kind;
        let (mut busy, mut wait) = (Vec::new(), Duration::ZERO);
        let (mut items, mut rest) = (Vec::new(), Vec::new());
        for (mut item, answer) in batch.items.into_iter().zip(answers) {
            let again = match &answer {
                Some(Err(trouble)) if trouble.code == TroubleCode::Busy => {
                    trouble.busy_again(item.busy, self.jitter())
                }
                _ => None,
            };
            if let Some(again) = again {
                wait = wait.max(again);
                item.busy += 1;
                busy.push(item);
            } else {
                items.push(item);
                rest.push(answer);
            }
        }
        if !busy.is_empty() {
            let batch = Batch { kind, items: busy };
            let again = self.tools().write_later(Arc::clone(session), batch, wait);
            self.jobs.spawn(again);
        }
        (Batch { kind, items }, rest)
    }

    /// A call failed as a whole: what it did all the same is for the next list to say.
    fn unknown(&mut self, batch: &Batch, trouble: &Trouble, took: Duration) {
        let (mut touched, mut follow) = (BTreeSet::new(), Vec::new());
        for item in &batch.items {
            let ended = Ended::Whole(trouble);
            self.one(batch.kind, item, ended, took, &mut touched, &mut follow);
        }
        for node in touched {
            self.conclude(&node);
        }
        self.look_if_passed_over();
    }

    fn after(
        &mut self,
        session: &Arc<Session>,
        touched: BTreeSet<NodeName>,
        follow: Vec<(IpNet, cloud_provider_api::v1alpha1::Route)>,
    ) {
        if !follow.is_empty() {
            self.send(session, Batch::creates(follow));
        }
        for node in touched {
            self.conclude(&node);
        }
        self.look_if_passed_over();
    }

    fn look_if_passed_over(&mut self) {
        if self.ledger.take_look_again() {
            self.look_at(Instant::now());
        }
    }

    /// One route of a call.
    fn one(
        &mut self,
        kind: Kind,
        item: &Item,
        ended: Ended<'_>,
        took: Duration,
        touched: &mut BTreeSet<NodeName>,
        follow: &mut Vec<(IpNet, cloud_provider_api::v1alpha1::Route)>,
    ) {
        let now = Instant::now();
        let destination = item.destination;
        let node = self.ledger.node_of(&destination);
        let failed = match kind {
            Kind::Create => self.ledger.created(destination, &item.route, ended, now),
            Kind::Delete => self
                .ledger
                .deleted(destination, item.in_the_way, ended, now),
        };
        if kind == Kind::Delete {
            self.chained(destination, matches!(ended, Ended::Done), follow);
        }
        if let Some(Failed { again_in, .. }) = failed {
            self.look_at(now + again_in);
        }
        if !self.ledger.is_failing(&destination) {
            self.waiting.gone(&destination);
        }
        let Some(node) = node else {
            return;
        };
        if let (Some(failed), Ended::Failed(trouble) | Ended::Whole(trouble)) = (failed, ended)
            && trouble.code != TroubleCode::Fenced
            && (kind == Kind::Create || item.in_the_way)
        {
            self.not_routed(&node, item, kind, trouble, took, failed);
        }
        touched.insert(node);
    }

    /// A route was removed, or not: what follows for its destination.
    fn chained(
        &mut self,
        destination: IpNet,
        removed: bool,
        follow: &mut Vec<(IpNet, cloud_provider_api::v1alpha1::Route)>,
    ) {
        let Some(chain) = self.chains.get_mut(&destination) else {
            return;
        };
        chain.left = chain.left.saturating_sub(1);
        chain.failed |= !removed;
        if chain.left > 0 {
            // Others of the destination are still on their way.
            self.ledger.begin(destination);
            return;
        }
        let Some(chain) = self.chains.remove(&destination) else {
            return;
        };
        if !chain.failed
            && let Some(create) = chain.create
        {
            self.ledger.begin(destination);
            follow.push((destination, create));
        }
    }

    /// What is known of a Node's routes becomes its condition; where nothing is known it stays as it is.
    pub(super) fn conclude(&mut self, node: &NodeName) {
        if let Some(created) = self.ledger.verdict(&node.uid) {
            self.set_condition(node, created);
        }
    }

    /// One write for each Node at a time.
    pub(super) fn set_condition(&mut self, node: &NodeName, created: bool) {
        if let Some((_, next)) = self.writing.get_mut(&node.uid) {
            *next = Some(created);
            return;
        }
        let Some(object) = self.node(node) else {
            return;
        };
        if condition::change(&object, created, (self.context.wall)()).is_none()
            || self.context.stop.is_cancelled()
        {
            return;
        }
        self.writing.insert(node.uid.clone(), (created, None));
        let tools = self.tools();
        let write = tools.condition(node.clone(), object, created);
        self.jobs.spawn(write);
    }

    pub(super) fn condition_written(&mut self, node: &NodeName, written: bool) {
        let Some((was, next)) = self.writing.remove(&node.uid) else {
            return;
        };
        if !written {
            self.condition_again();
        }
        match next {
            Some(next) if next != was => self.set_condition(node, next),
            Some(_) | None => {}
        }
    }

    /// Says what a look found, once.
    pub(super) fn tell(&mut self, pass: &Pass) {
        let provider = &self.context.provider;
        let complaint = pass.faults.first().map(|(route, what)| {
            format!("the route {route:?} of the listing breaks the contract: {what}; what leads to its destination is left alone")
        });
        if complaint.is_some() && complaint != self.complaint {
            tracing::warn!(%provider, faults = pass.faults.len(), error = complaint.as_deref(), "routes are left alone");
        }
        if complaint.is_none() && self.complaint.is_some() {
            tracing::info!(%provider, "routes are listed again");
        }
        self.complaint = complaint;
        if pass.held > self.held {
            tracing::info!(
                %provider,
                routes = pass.held,
                "routes stay that should go: the provider is not READY, or no Node is known"
            );
        }
        self.held = pass.held;
        let found = Found::Routes {
            listed: pass.inside,
            missing: pass.tasks.iter().filter(|it| it.create.is_some()).count(),
            wrong: deletions(&pass.tasks),
            held: pass.held,
            complaint: self.complaint.clone(),
        };
        self.metrics.found(provider, found);
        let clashes: BTreeSet<(String, IpNet)> = pass
            .clashes
            .iter()
            .map(|(node, cidr, _)| (node.uid.clone(), *cidr))
            .collect();
        for (node, cidr, other) in &pass.clashes {
            if self.clashes.contains(&(node.uid.clone(), *cidr)) {
                continue;
            }
            self.tell_of_clash(node, cidr, other);
        }
        self.clashes = clashes;
    }

    /// One line for each call.
    fn say(&self, batch: &Batch, answers: &Answers, took: Duration) {
        let provider = &self.context.provider;
        let done = answers.iter().filter(|answer| answer.is_ok()).count();
        let what = match batch.kind {
            Kind::Create => "made",
            Kind::Delete => "removed",
        };
        if done > 0 {
            let good = batch.items.iter().zip(answers);
            let good = good.filter(|(_, answer)| answer.is_ok());
            let names: Vec<&str> = good.map(|(item, _)| shown(item)).take(NAMED).collect();
            tracing::info!(%provider, routes = done, first = ?names, ?took, "routes {what}");
        }
        let mut failed = batch.items.iter().zip(answers);
        let first = failed.find_map(|(item, answer)| Some((item, answer.as_ref().err()?)));
        if let Some((item, trouble)) = first {
            let routes = answers.len() - done;
            tracing::warn!(%provider, routes, first = shown(item), error = %trouble, "routes not {what}");
        }
    }

    fn say_failed(&self, batch: &Batch, trouble: &Trouble) {
        if trouble.code == TroubleCode::Fenced {
            return;
        }
        let what = match batch.kind {
            Kind::Create => "made",
            Kind::Delete => "removed",
        };
        let first = batch.items.first().map(shown);
        tracing::warn!(
            provider = %self.context.provider,
            routes = batch.items.len(),
            first,
            error = %trouble,
            "whether routes were {what} is not known: the next list will tell"
        );
    }
}

fn shown(item: &Item) -> &str {
    match &item.route.node_name {
        Some(name) => name,
        None => &item.route.destination_cidr,
    }
}
