//! What is done beside the loop: lists, calls, reads and writes, each with an end.

use std::sync::Arc;
use std::time::Duration;

use cloud_provider_api::v1alpha1 as api;
use ipnet::IpNet;
use k8s_openapi::api::core::v1::Node;
use tokio::sync::{Semaphore, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::facts::NodeFacts;
use super::ledger::NodeName;
use super::{condition, fresh, plan};
use crate::core::{Fence, WallClock};
use crate::provider::{Capability, ProviderStatus, Session, Trouble, TroubleCode, batch};
use crate::writes::Writes;

/// What the API server may take to list all Nodes.
const READ: Duration = Duration::from_mins(1);

/// A route of a batch.
#[derive(Clone, Debug)]
pub(super) struct Item {
    pub(super) destination: IpNet,
    pub(super) route: api::Route,
    /// Of a route that goes: while it is there the Node's own is not.
    pub(super) in_the_way: bool,
    /// How often it was BUSY, in a row.
    pub(super) busy: u32,
}

/// Routes of one call.
#[derive(Clone, Debug)]
pub(super) struct Batch {
    pub(super) kind: Kind,
    pub(super) items: Vec<Item>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Create,
    Delete,
}

impl Batch {
    pub(super) fn creates(routes: Vec<(IpNet, api::Route)>) -> Self {
        let item = |(destination, route)| Item {
            destination,
            route,
            in_the_way: false,
            busy: 0,
        };
        Self {
            kind: Kind::Create,
            items: routes.into_iter().map(item).collect(),
        }
    }

    pub(super) fn deletes(routes: Vec<(IpNet, api::Route, bool)>) -> Self {
        let item = |(destination, route, in_the_way)| Item {
            destination,
            route,
            in_the_way,
            busy: 0,
        };
        Self {
            kind: Kind::Delete,
            items: routes.into_iter().map(item).collect(),
        }
    }

    /// Calls of at most `most` routes; a destination that is `alone` has one of its own.
    pub(super) fn split(self, most: usize, alone: impl Fn(&IpNet) -> bool) -> Vec<Self> {
        let kind = self.kind;
        let mut parts: Vec<Vec<Item>> = Vec::new();
        let mut last: Vec<Vec<Item>> = Vec::new();
        for item in self.items {
            let lonely = alone(&item.destination);
            let among = if lonely { &mut last } else { &mut parts };
            let joins = |part: &Vec<Item>| {
                let before = part.last().map(|before| before.destination);
                part.len() < most.max(1) && (!lonely || before == Some(item.destination))
            };
            match among.last_mut() {
                Some(part) if joins(part) => part.push(item),
                _ => among.push(vec![item]),
            }
        }
        parts.append(&mut last);
        let batch = |items| Self { kind, items };
        parts.into_iter().map(batch).collect()
    }

    /// The calls that follow one that failed so.
    pub(super) fn cut(self, code: TroubleCode) -> impl Iterator<Item = Self> {
        let kind = self.kind;
        let parts = batch::cut(self.items, code).into_iter();
        parts.map(move |items| Self { kind, items })
    }
}

/// What a job brought.
pub(super) enum Done {
    Listed {
        session: Arc<Session>,
        asked_at: Instant,
        /// `None`: given up.
        routes: Option<Result<Vec<api::Route>, Trouble>>,
    },
    /// The API server's own Nodes.
    Read {
        session: Arc<Session>,
        asked_at: Instant,
        routes: Vec<api::Route>,
        first: Vec<plan::Task>,
        nodes: Option<Result<Vec<NodeFacts>, String>>,
    },
    Wrote {
        session: Arc<Session>,
        batch: Batch,
        /// `None`: not sent.
        answer: Option<Result<Vec<Result<(), Trouble>>, Trouble>>,
        took: Duration,
    },
    Condition {
        node: NodeName,
        written: bool,
    },
}

/// What jobs need.
pub(super) struct Tools {
    pub(super) provider: Arc<str>,
    pub(super) writes: Writes,
    pub(super) fence: Fence,
    pub(super) status: watch::Receiver<ProviderStatus>,
    pub(super) stop: CancellationToken,
    pub(super) wall: WallClock,
    pub(super) calls: Arc<Semaphore>,
    pub(super) writers: Arc<Semaphore>,
}

impl Tools {
    pub(super) async fn list(self, session: Arc<Session>, asked_at: Instant) -> Done {
        let routes = self.stop.run_until_cancelled(session.list_routes()).await;
        Done::Listed {
            session,
            asked_at,
            routes,
        }
    }

    pub(super) async fn read(
        self,
        session: Arc<Session>,
        asked_at: Instant,
        routes: Vec<api::Route>,
        first: Vec<plan::Task>,
    ) -> Done {
        let client = self.writes.client.clone();
        let read = fresh::nodes(client, &session.ownership, &self.provider);
        let read = tokio::time::timeout(READ, read);
        let nodes = self.stop.run_until_cancelled(read).await.map(|read| {
            read.unwrap_or_else(|_| Err(format!("no answer within {} s", READ.as_secs())))
        });
        Done::Read {
            session,
            asked_at,
            routes,
            first,
            nodes,
        }
    }

    /// As `write`, after a while.
    pub(super) async fn write_later(
        self,
        session: Arc<Session>,
        batch: Batch,
        wait: Duration,
    ) -> Done {
        // Told to stop, nothing is sent.
        let sleep = tokio::time::sleep(wait);
        let _slept = self.stop.run_until_cancelled(sleep).await;
        self.write(session, batch).await
    }

    pub(super) async fn write(self, session: Arc<Session>, batch: Batch) -> Done {
        // Never closed.
        let _permit = self.calls.acquire().await;
        let began = Instant::now();
        let answer = if self.may_send(&session, batch.kind) {
            let routes = batch.items.iter().map(|item| item.route.clone()).collect();
            Some(match batch.kind {
                Kind::Create => session.create_routes(&self.fence, routes).await,
                Kind::Delete => session.delete_routes(&self.fence, routes).await,
            })
        } else {
            None
        };
        Done::Wrote {
            session,
            batch,
            answer,
            took: began.elapsed(),
        }
    }

    /// Asked at the last moment.
    fn may_send(&self, session: &Arc<Session>, kind: Kind) -> bool {
        let status = self.status.borrow();
        let current = status.usable(Capability::Routes);
        let current = current.is_some_and(|current| Arc::ptr_eq(&current, session));
        !self.stop.is_cancelled() && current && (kind == Kind::Create || status.may_delete_routes())
    }

    pub(super) async fn condition(self, name: NodeName, node: Arc<Node>, created: bool) -> Done {
        // Never closed.
        let _permit = self.writers.acquire().await;
        let written = condition::write(&self.writes, &self.wall, &self.stop, node, created).await;
        Done::Condition {
            node: name,
            written,
        }
    }
}
