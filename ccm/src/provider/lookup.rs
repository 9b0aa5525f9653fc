//! Calls about many items, mostly Nodes. One item that makes a whole call fail does not starve the
//! others.

use std::cell::LazyCell;
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
                    Err(trouble) if items.len() > 1 && may_be_one_items(trouble) => {
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

/// Whether one item may have made the whole call fail. A call that got no place before its deadline
/// was never sent.
fn may_be_one_items(trouble: &CallError) -> bool {
    because_of_itself(trouble.code) && (trouble.code != CallErrorCode::Deadline || is_late(trouble))
}

/// Whether a call was sent, and not answered before its deadline.
fn is_late(trouble: &CallError) -> bool {
    trouble.code == CallErrorCode::Deadline && trouble.call_id.is_some()
}

/// At most this many calls find one item among `count`, by tenths or by halves.
fn calls_down_to_one(count: usize) -> usize {
    let levels = count.saturating_sub(1).checked_ilog(PARTS_OF_LATE);
    levels.map_or(0, |levels| PARTS_OF_LATE * (levels as usize + 1))
}

/// An item of a call.
pub(crate) trait Item: Clone {
    type Key: Ord;

    /// Its name in [`IsolatedKeys`], if it has one.
    fn key(&self) -> Option<Self::Key>;
}

impl Item for Arc<Node> {
    type Key = String;

    /// The UID.
    fn key(&self) -> Option<String> {
        self.metadata.uid.clone()
    }
}

/// The answer for one item.
#[derive(Debug)]
pub(crate) struct Lookup<T, I = Arc<Node>> {
    /// The item of the request.
    pub(crate) item: I,
    /// The answer for it.
    pub(crate) answer: Result<T, CallError>,
    /// The answer is the failure of a whole call, not this item's own.
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

/// The answer of one call, for each of its items.
pub(crate) fn of_call<I, T>(
    items: Vec<I>,
    outcome: Result<Vec<Result<T, CallError>>, CallError>,
) -> Vec<Lookup<T, I>> {
    let whole = outcome.is_err();
    let mut found = outcome.map(Vec::into_iter);
    let mut next = || match &mut found {
        Ok(found) => found
            .next()
            .unwrap_or_else(|| Err(CallError::fault("no answer for this item"))),
        Err(trouble) => Err(trouble.clone()),
    };
    items
        .into_iter()
        .map(|item| Lookup {
            item,
            answer: next(),
            whole,
        })
        .collect()
}

/// In [`IsolatedKeys`]: a call about this item alone was not answered before its deadline.
const HUNG: usize = 0;

/// Limits the size of calls about items that made a call fail or miss its deadline. So other items
/// do not wait for these items each time. If a call about a single item fails because of that item,
/// the next calls about it contain no other item. After a call without an answer in time, each of
/// its items is asked about in smaller calls, until the slow item is known.
#[derive(Debug, Default)]
pub(crate) struct IsolatedKeys<K = String> {
    /// The most items of a call that contains this one, or [`HUNG`].
    most: Mutex<BTreeMap<K, usize>>,
}

impl<K: Ord> IsolatedKeys<K> {
    /// Batches of at most `max` items: first those of unrestricted items, last those of one item
    /// each.
    pub(crate) fn batches<I: Item<Key = K>>(&self, items: Vec<I>, max: usize) -> Vec<Vec<I>> {
        let max = max.max(1);
        let mut groups: BTreeMap<Reverse<usize>, Vec<I>> = BTreeMap::new();
        let most = self.most();
        for item in items {
            let allowed = most_of(&most, &item).unwrap_or(max);
            groups
                .entry(Reverse(allowed.clamp(1, max)))
                .or_default()
                .push(item);
        }
        drop(most);
        let mut batches: Vec<Vec<I>> = Vec::new();
        for (Reverse(size), items) in groups {
            batches.extend(items.chunks(size).map(<[_]>::to_vec));
        }
        batches
    }

    /// Whether a call about this item contains no other.
    pub(crate) fn is_alone(&self, item: &impl Item<Key = K>) -> bool {
        most_of(&self.most(), item).is_some_and(|most| most <= 1)
    }

    /// Whether these are the items of a call about one isolated item.
    pub(crate) fn are_alone(&self, items: &[impl Item<Key = K>]) -> bool {
        matches!(items, [item] if self.is_alone(item))
    }

    /// Whether these are the items of a call about one item that hung before, in a call of its own.
    /// An isolated item that did not may be a companion of one that hung.
    pub(crate) fn are_hung(&self, items: &[impl Item<Key = K>]) -> bool {
        matches!(items, [item] if most_of(&self.most(), item) == Some(HUNG))
    }

    /// Learns from the answers of one call.
    pub(crate) fn learn<T, I: Item<Key = K>>(&self, found: &[Lookup<T, I>]) {
        let mut most = self.most();
        for lookup in found {
            match &lookup.answer {
                Err(trouble) if lookup.whole => {
                    if found.len() == 1 && may_be_one_items(trouble) {
                        let size = if is_late(trouble) { HUNG } else { 1 };
                        most.extend(lookup.item.key().map(|key| (key, size)));
                    }
                }
                _ if most.is_empty() => {}
                _ => {
                    lookup.item.key().map(|key| most.remove(&key));
                }
            }
        }
    }

    /// If a call about these items was not answered before its deadline, the next calls about them
    /// are smaller. Returns whether that is so.
    pub(crate) fn late<T>(
        &self,
        items: &[impl Item<Key = K>],
        outcome: &Result<Vec<Result<T, CallError>>, CallError>,
    ) -> bool {
        let late = outcome.as_ref().is_err_and(is_late);
        if late {
            let size = match items {
                [_] => HUNG,
                _ => batch::smaller(items.len(), CallErrorCode::Deadline),
            };
            let keys = items.iter().filter_map(Item::key);
            self.most().extend(keys.map(|key| (key, size)));
        }
        late
    }

    /// Forgets the items that are gone.
    pub(crate) fn keep(&self, is_there: impl Fn(&K) -> bool) {
        self.most().retain(|key, _| is_there(key));
    }

    fn most(&self) -> MutexGuard<'_, BTreeMap<K, usize>> {
        lock(&self.most)
    }
}

/// Most maps are empty: then no key is made.
fn most_of<I: Item>(most: &BTreeMap<I::Key, usize>, item: &I) -> Option<usize> {
    if most.is_empty() {
        return None;
    }
    most.get(&item.key()?).copied()
}

/// Returns a function that tells whether one of these Nodes has a given UID. Its first call
/// collects the UIDs.
pub(crate) fn has_uid(nodes: &[Arc<Node>]) -> impl Fn(&String) -> bool {
    let uids = LazyCell::new(|| {
        let uids = nodes.iter();
        let uids = uids.filter_map(|node| node.metadata.uid.as_deref());
        uids.collect::<BTreeSet<&str>>()
    });
    move |uid| uids.contains(uid.as_str())
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
            call_id: Some("1".into()),
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
            failed.map(|lookup| number(&lookup.item)).collect(),
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
                let number = number(&lookup.item);
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
                item: all[2].clone(),
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
        isolated.keep(has_uid(&all[..2]));
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
                    isolated.late::<()>(&batch, &Err(trouble(CallErrorCode::Deadline)));
                } else {
                    let answered = batch.into_iter().map(|item| Lookup {
                        item,
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

    #[test]
    fn m10_only_a_call_about_a_node_alone_shows_that_it_hangs() {
        let isolated = IsolatedKeys::default();
        let all = nodes(10);
        let late = || Err(trouble(CallErrorCode::Deadline));
        let one = |code| {
            vec![Lookup::<()> {
                item: all[7].clone(),
                answer: Err(trouble(code)),
                whole: true,
            }]
        };
        assert!(isolated.late::<()>(&all, &late()));
        assert!(all.iter().all(|node| isolated.is_alone(node)));
        assert!(!isolated.are_hung(&all[7..8]), "it may be a companion");
        isolated.late::<()>(&all[7..8], &late());
        isolated.learn(&one(CallErrorCode::Deadline));
        assert!(isolated.is_alone(&all[7]) && isolated.are_hung(&all[7..8]));
        assert!(!isolated.are_hung(&all[6..7]));
        assert_eq!(isolated.batches(all.clone(), 10).len(), 10);
        isolated.learn(&one(CallErrorCode::Internal));
        assert!(isolated.is_alone(&all[7]) && !isolated.are_hung(&all[7..8]));
    }
}
