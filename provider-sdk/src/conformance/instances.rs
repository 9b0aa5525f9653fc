//! InstanceService (INST).

pub(super) mod absent;
pub(super) mod ask;
pub(super) mod batches;
mod identity;
mod listing;

use super::check::Check;
use super::run::Run;

pub(super) fn checks() -> Vec<Check> {
    let mut all = identity::checks();
    all.extend(batches::checks());
    all.extend(absent::checks());
    all.extend(listing::checks());
    all
}

/// How many Nodes one lookup takes: 100 where it is not stated.
pub(super) fn max_batch(run: &Run) -> usize {
    let stated = run.capabilities().instances.and_then(|of| of.max_batch);
    stated.filter(|most| *most > 0).unwrap_or(100) as usize
}
