//! Calls about many items, mostly Nodes. One item that makes a whole call fail does not starve the
//! others.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};

use futures::stream::{FuturesUnordered, Stream, StreamExt, unfold};
use k8s_openapi::api::core::v1::Node;

use super::batch::{self, PARTS_OF_LATE, because_of_itself};
use super::{CallError, CallErrorCode};
use crate::core::lock;

/// The items of one call, and the answers in their order.
pub(crate) type Divided<I, T> = (Vec<I>, Result<Vec<Result<T, CallError>>, CallError>);

/// Makes one call for each batch, all at once; `call` limits how many are in flight. A call that
/// fails as a whole, perhaps because of its items, is split into smaller ones, down to single
/// items. Yields the result of each call that is not split. Each item comes once.
///
/// Splitting ends when call after call fails: then no single item is the cause.
pub(crate) fn divide<I, T, C, F>(batches: Vec<Vec<I>>, call: C) -> impl Stream<Item = Divided<I, T>>
where
    C: Fn(Vec<I>) -> F,
    F: Future<Output = Divided<I, T>>,
    I: Clone,
{
    let budget: usize = batches
        .iter()
        .map(|batch| calls_down_to_one(batch.len()))
        .sum();
    let running: FuturesUnordered<F> = batches
        .into_iter()
        .filter(|batch| !batch.is_empty())
        .map(&call)
        .collect();
    unfold(
        (running, budget, call),
        |(mut running, mut budget, call)| async move {
            loop {
                let (items, outcome) = running.next().await?;
                match &outcome {
                    Ok(_) => budget = budget.saturating_add(PARTS_OF_LATE),
                    Err(trouble) if items.len() > 1 && because_of_itself(trouble.code) => {
                        let cost = batch::parts(items.len(), trouble.code);
                        if let Some(left) = budget.checked_sub(cost) {
                            budget = left;
                            running.extend(batch::cut(&items, trouble.code).into_iter().map(&call));
                            continue;
                        }
                    }
                    Err(_) => {}
                }
                return Some(((items, outcome), (running, budget, call)));
            }
        },
    )
}

/// The most calls that it takes to find one item among `count`. Halves take no more calls than
/// tenths.
fn calls_down_to_one(count: usize) -> usize {
    let levels = count.saturating_sub(1).checked_ilog(PARTS_OF_LATE);
    levels.map_or(0, |levels| PARTS_OF_LATE * (levels as usize + 1))
}

/// The answer for one Node.
#[derive(Debug)]
pub(crate) struct Lookup<T> {
    /// The Node of the request.
    pub(crate) node: Arc<Node>,
    /// The answer for it.
    pub(crate) answer: Result<T, CallError>,
    /// The answer is the failure of a whole call, not this Node's own.
    pub(crate) whole: bool,
}

/// The Nodes of one call, and the answers in their order.
pub(crate) type Called<T> = Divided<Arc<Node>, T>;

/// Makes one call for each batch, as [`divide`] does. Yields the answers of each call as
/// they come. Each Node comes once.
pub(crate) fn answers<T, C, F>(
    batches: Vec<Vec<Arc<Node>>>,
    call: C,
) -> impl Stream<Item = Vec<Lookup<T>>>
where
    C: Fn(Vec<Arc<Node>>) -> F,
    F: Future<Output = Called<T>>,
{
    divide(batches, call).map(|(nodes, outcome)| of_call(nodes, outcome))
}

/// The answer of one call, for each of its Nodes.
pub(crate) fn of_call<T>(
    nodes: Vec<Arc<Node>>,
    outcome: Result<Vec<Result<T, CallError>>, CallError>,
) -> Vec<Lookup<T>> {
    match outcome {
        Ok(found) => of_each(nodes, found),
        Err(trouble) => nodes
            .into_iter()
            .map(|node| Lookup {
                node,
                answer: Err(trouble.clone()),
                whole: true,
            })
            .collect(),
    }
}

fn of_each<T>(nodes: Vec<Arc<Node>>, found: Vec<Result<T, CallError>>) -> Vec<Lookup<T>> {
    let mut found = found.into_iter();
    nodes
        .into_iter()
        .map(|node| Lookup {
            node,
            answer: found
                .next()
                .unwrap_or_else(|| Err(CallError::fault("no answer for this Node"))),
            whole: false,
        })
        .collect()
}

/// Limits the size of calls about Nodes that made a call fail or miss its deadline. So other Nodes
/// do not wait for these Nodes each time. If a call about a single Node fails because of that Node,
/// the next calls about it contain no other Node. After a call without an answer in time, each of
/// its Nodes is asked about in smaller calls, until the slow Node is known.
#[derive(Debug, Default)]
pub(crate) struct IsolatedKeys {
    /// By UID: the most Nodes of a call that contains this one.
    most: Mutex<BTreeMap<String, usize>>,
}

impl IsolatedKeys {
    /// Batches of at most `max` Nodes: first those of unrestricted Nodes, last those of one Node
    /// each.
    pub(crate) fn batches(&self, nodes: Vec<Arc<Node>>, max: usize) -> Vec<Vec<Arc<Node>>> {
        let max = max.max(1);
        let most = self.most();
        let mut groups: BTreeMap<Reverse<usize>, Vec<Arc<Node>>> = BTreeMap::new();
        for node in nodes {
            let allowed = uid(&node).and_then(|uid| most.get(uid));
            let size = allowed.map_or(max, |allowed| max.min(*allowed)).max(1);
            groups.entry(Reverse(size)).or_default().push(node);
        }
        drop(most);
        let mut batches: Vec<Vec<Arc<Node>>> = Vec::new();
        for (Reverse(size), nodes) in groups {
            batches.extend(nodes.chunks(size).map(<[_]>::to_vec));
        }
        batches
    }

    /// Whether a call about this Node contains no other.
    pub(crate) fn is_alone(&self, node: &Node) -> bool {
        uid(node).is_some_and(|uid| self.most().get(uid) == Some(&1))
    }

    /// Learns from the answers of one call.
    pub(crate) fn learn<T>(&self, found: &[Lookup<T>]) {
        let mut most = self.most();
        for lookup in found {
            let Some(uid) = uid(&lookup.node) else {
                continue;
            };
            match &lookup.answer {
                Err(trouble) if lookup.whole => {
                    if found.len() == 1 && because_of_itself(trouble.code) {
                        most.insert(uid.to_owned(), 1);
                    }
                }
                _ => {
                    most.remove(uid);
                }
            }
        }
    }

    /// Records that a call about these Nodes had no answer before its deadline.
    pub(crate) fn late(&self, nodes: &[Arc<Node>]) {
        let size = batch::smaller(nodes.len(), CallErrorCode::Deadline);
        let mut most = self.most();
        for uid in nodes.iter().filter_map(|node| uid(node)) {
            most.insert(uid.to_owned(), size);
        }
    }

    /// Forgets the Nodes that are gone.
    pub(crate) fn keep(&self, nodes: &[Arc<Node>]) {
        let mut most = self.most();
        if !most.is_empty() {
            let there: BTreeSet<&str> = nodes.iter().filter_map(|node| uid(node)).collect();
            most.retain(|uid, _| there.contains(uid.as_str()));
        }
    }

    fn most(&self) -> MutexGuard<'_, BTreeMap<String, usize>> {
        lock(&self.most)
    }
}

fn uid(node: &Node) -> Option<&str> {
    node.metadata.uid.as_deref()
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use tokio::time::Instant;

    use super::*;

    fn nodes(count: usize) -> Vec<Arc<Node>> {
        let node = |i: usize| {
            let mut node = Node::default();
            node.metadata.name = Some(i.to_string());
            node.metadata.uid = Some(i.to_string());
            Arc::new(node)
        };
        (0..count).map(node).collect()
    }

    fn number(node: &Node) -> usize {
        node.metadata.name.as_ref().unwrap().parse().unwrap()
    }

    fn trouble(code: CallErrorCode) -> CallError {
        CallError {
            code,
            reason: String::new(),
            message: String::new(),
            retry_after: None,
            rpc: None,
            call_id: None,
        }
    }

    /// The Nodes that failed, and the number of calls. A call with one of `poison` fails.
    async fn ask(count: usize, poison: &[usize], code: CallErrorCode) -> (Vec<usize>, usize) {
        let calls = AtomicUsize::new(0);
        let calls = &calls;
        let found: Vec<Vec<Lookup<()>>> = answers(vec![nodes(count)], |nodes| async move {
            calls.fetch_add(1, Ordering::Relaxed);
            let poisoned = nodes.iter().any(|node| poison.contains(&number(node)));
            let outcome = if poisoned {
                Err(trouble(code))
            } else {
                Ok(nodes.iter().map(|_| Ok(())).collect())
            };
            (nodes, outcome)
        })
        .collect()
        .await;
        let all: Vec<&Lookup<()>> = found.iter().flatten().collect();
        assert_eq!(all.len(), count, "each Node comes once");
        let failed = all.iter().filter(|lookup| lookup.answer.is_err());
        (
            failed.map(|lookup| number(&lookup.node)).collect(),
            calls.load(Ordering::Relaxed),
        )
    }

    #[tokio::test]
    async fn one_poison_node_starves_nobody() {
        for (code, most) in [
            (CallErrorCode::Invalid, 15),
            (CallErrorCode::Unknown, 15),
            (CallErrorCode::Deadline, 21),
        ] {
            for poison in [0, 37, 99] {
                let (failed, calls) = ask(100, &[poison], code).await;
                assert_eq!(failed, [poison]);
                assert!(calls <= most, "{calls}");
            }
        }
        let (mut failed, _) = ask(100, &[3, 50, 98], CallErrorCode::Internal).await;
        failed.sort_unstable();
        assert_eq!(failed, [3, 50, 98]);
        // Each is in a different tenth, so five of the ten calls are late.
        let (mut failed, _) = ask(100, &[5, 25, 45, 65, 85], CallErrorCode::Deadline).await;
        failed.sort_unstable();
        assert_eq!(failed, [5, 25, 45, 65, 85]);
    }

    #[tokio::test(start_paused = true)]
    async fn m10_the_companions_of_a_node_that_hangs_wait_for_two_deadlines_at_most() {
        const DEADLINE: Duration = Duration::from_mins(1);
        let start = Instant::now();
        let mut found = pin!(answers(vec![nodes(100)], |nodes| async move {
            if nodes.iter().any(|node| number(node) == 37) {
                tokio::time::sleep(DEADLINE).await;
                return (nodes, Err(trouble(CallErrorCode::Deadline)));
            }
            let answers = nodes.iter().map(|_| Ok(())).collect();
            (nodes, Ok(answers))
        }));
        let mut waited = BTreeMap::new();
        while let Some(batch) = found.next().await {
            for lookup in batch {
                let number = number(&lookup.node);
                assert_eq!(lookup.answer.is_err(), number == 37);
                waited.insert(number, start.elapsed());
            }
        }
        // The slow Node is known after the third deadline.
        assert!(waited.remove(&37).unwrap() < DEADLINE * 4);
        assert_eq!(waited.len(), 99);
        let longest = waited.values().max().unwrap();
        assert!(*longest < DEADLINE * 3, "{longest:?}");
        // Most Nodes do not even wait for the second deadline.
        let soon = waited.values().filter(|waited| **waited < DEADLINE * 2);
        assert_eq!(soon.count(), 90);
    }

    #[tokio::test]
    async fn what_fails_whatever_is_asked_is_not_asked_again() {
        for code in [
            CallErrorCode::Disconnected,
            CallErrorCode::Throttled,
            CallErrorCode::Unavailable,
        ] {
            assert_eq!(ask(100, &[1], code).await.1, 1);
        }
        let all: Vec<usize> = (0..100).collect();
        let (failed, calls) = ask(100, &all, CallErrorCode::Internal).await;
        assert_eq!(failed.len(), 100);
        assert!(calls <= 21, "{calls}");
        let (failed, calls) = ask(100, &all, CallErrorCode::Deadline).await;
        assert_eq!(failed.len(), 100);
        assert!(calls <= 21, "{calls}");
        assert_eq!(
            ask(100, &[], CallErrorCode::Internal).await,
            (Vec::new(), 1)
        );
    }

    #[test]
    fn a_node_that_failed_alone_is_asked_about_alone() {
        let isolated = IsolatedKeys::default();
        let all = nodes(5);
        assert_eq!(isolated.batches(all.clone(), 3).len(), 2);
        let failed = |code| {
            vec![Lookup::<()> {
                node: all[2].clone(),
                answer: Err(trouble(code)),
                whole: true,
            }]
        };
        isolated.learn(&failed(CallErrorCode::Disconnected));
        assert_eq!(isolated.batches(all.clone(), 10).len(), 1);
        isolated.learn(&failed(CallErrorCode::Internal));
        let batches = isolated.batches(all.clone(), 10);
        assert_eq!(
            (batches.len(), batches[0].len(), number(&batches[1][0])),
            (2, 4, 2)
        );
        isolated.keep(&all[..2]);
        assert_eq!(isolated.batches(all, 10).len(), 1);
    }

    #[test]
    fn m10_two_rounds_find_the_one_of_a_hundred_that_is_not_answered() {
        let isolated = IsolatedKeys::default();
        let all = nodes(100);
        let sizes = |isolated: &IsolatedKeys| -> Vec<usize> {
            let batches = isolated.batches(all.clone(), 100);
            batches.iter().map(Vec::len).collect()
        };
        for expected in [vec![100], vec![10; 10], [vec![90], vec![1; 10]].concat()] {
            assert_eq!(sizes(&isolated), expected);
            for batch in isolated.batches(all.clone(), 100) {
                if batch.iter().any(|node| number(node) == 37) {
                    isolated.late(&batch);
                } else {
                    let answered = batch.into_iter().map(|node| Lookup {
                        node,
                        answer: Ok(()),
                        whole: false,
                    });
                    isolated.learn(&answered.collect::<Vec<_>>());
                }
            }
        }
        assert_eq!(sizes(&isolated), [99, 1]);
        assert!(isolated.is_alone(&all[37]) && !isolated.is_alone(&all[36]));
    }
}
