//! RouteService (ROUTE).

mod ask;
mod batches;
mod cloud;
mod cut;
mod listing;
mod owners;
mod writes;

use super::check::Check;

pub(super) fn checks() -> Vec<Check> {
    let mut all = writes::checks();
    all.extend(batches::checks());
    all.extend(cloud::checks());
    all.extend(listing::checks());
    all.extend(owners::checks());
    all.extend(cut::checks());
    all
}
