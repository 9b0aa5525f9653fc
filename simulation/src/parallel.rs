//! Runs on all cores.

use std::sync::atomic::{AtomicU64, Ordering};

/// Calls `work` for each number in order, on all cores. After a `false`, starts no further call.
pub fn each(
    numbers: std::ops::Range<u64>,
    work: impl Fn(u64) -> anyhow::Result<bool> + Sync,
) -> anyhow::Result<()> {
    let next = AtomicU64::new(numbers.start);
    let thread = || -> anyhow::Result<()> {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= numbers.end {
                return Ok(());
            }
            if !work(number)? {
                next.store(numbers.end, Ordering::Relaxed);
            }
        }
    };
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..cores).map(|_| scope.spawn(thread)).collect();
        threads.into_iter().try_for_each(|thread| {
            thread
                .join()
                .map_err(|_| anyhow::anyhow!("a run panicked"))?
        })
    })
}
