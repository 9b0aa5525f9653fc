//! The rules of all services (CORE).

mod cuts;
mod failures;
mod growth;
mod life;
mod limits;
mod listings;
mod owners;
mod requests;
mod socket;
pub(super) mod tour;
mod transport;
mod versions;

use super::check::Check;

pub(super) fn checks() -> Vec<Check> {
    let mut all = socket::checks();
    all.extend(transport::checks());
    all.extend(versions::checks());
    all.extend(owners::checks());
    all.extend(failures::checks());
    all.extend(requests::checks());
    all.extend(listings::checks());
    all.extend(limits::checks());
    all.extend(cuts::checks());
    all.extend(life::checks());
    all.extend(growth::checks());
    all
}

/// Checks that run after all others.
pub(super) fn at_the_end() -> Vec<Check> {
    transport::at_the_end()
}
