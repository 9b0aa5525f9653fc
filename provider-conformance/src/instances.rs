//! InstanceService (INST).

mod absent;
pub(super) mod ask;
mod batches;
mod changes;
mod facets;
mod identity;
mod listing;
mod odd;
mod owners;

use super::check::Check;
use super::run::{Run, batch_size};

pub(super) fn checks() -> Vec<Check> {
    let mut all = identity::checks();
    all.extend(batches::checks());
    all.extend(facets::checks());
    all.extend(odd::checks());
    all.extend(absent::checks());
    all.extend(changes::checks());
    all.extend(owners::checks());
    all.extend(listing::checks());
    all
}

/// The most Nodes in one lookup.
pub(super) fn max_batch(run: &Run) -> usize {
    batch_size(run.capabilities().instances.and_then(|of| of.max_batch))
}
