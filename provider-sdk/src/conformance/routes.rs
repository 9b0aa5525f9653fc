//! RouteService (ROUTE).

mod ask;
mod batches;
mod cut;
mod owners;
mod writes;

use super::check::Check;

pub(super) fn checks() -> Vec<Check> {
    let mut all = writes::checks();
    all.extend(batches::checks());
    all.extend(owners::checks());
    all.extend(cut::checks());
    all
}
