//! Calls about many items. An item that makes a whole call fail starves no other.

use futures::stream::{FuturesUnordered, Stream, StreamExt, unfold};

use super::CallError;
use super::batch::{self, PARTS_OF_LATE, because_of_itself};

/// The items of one call, and the answers in their order.
pub(crate) type Called<I, T> = (Vec<I>, Result<Vec<Result<T, CallError>>, CallError>);

/// Makes one call for each batch, all at once; `call` limits how many are in flight. A call that
/// fails as a whole because of its items is split into smaller ones, down to single items. Yields
/// the result of each call as it comes. Each item comes once.
///
/// Splitting ends when call after call fails: then no single item is the cause.
pub(crate) fn answers<I, T, C, F>(batches: Vec<Vec<I>>, call: C) -> impl Stream<Item = Called<I, T>>
where
    C: Fn(Vec<I>) -> F,
    F: Future<Output = Called<I, T>>,
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
                            running.extend(batch::cut(items, trouble.code).into_iter().map(&call));
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

/// How many calls it takes to find one item among `count`. Halves take no more calls than tenths.
fn calls_down_to_one(count: usize) -> usize {
    let levels = count.saturating_sub(1).checked_ilog(PARTS_OF_LATE);
    levels.map_or(0, |levels| PARTS_OF_LATE * (levels as usize + 1))
}
