//! ProviderService (PROV).

mod admitted;
mod changes;
mod info;
mod initialize;
mod probe;

use super::check::Check;

pub(super) fn checks() -> Vec<Check> {
    let mut all = info::checks();
    all.extend(initialize::checks());
    all.extend(admitted::checks());
    all.extend(probe::checks());
    all.extend(changes::checks());
    all
}
