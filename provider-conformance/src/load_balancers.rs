//! LoadBalancerService (LB).

#![allow(
    clippy::large_futures,
    reason = "a check is one future, which `check!` puts into a box"
)]

mod answer;
mod balancer;
mod delete;
mod ensure;
mod failures;
mod fields;
mod get;
mod handle;
mod in_sync;
mod interrupted;
mod list;
mod overlap;
mod ownership;
mod requests;
mod shared;
mod stage;
mod targets;
mod unmarked;
mod update;

use super::check::Check;

pub(super) fn checks() -> Vec<Check> {
    [
        get::checks(),
        ensure::checks(),
        fields::checks(),
        targets::checks(),
        in_sync::checks(),
        update::checks(),
        delete::checks(),
        list::checks(),
        handle::checks(),
        ownership::checks(),
        unmarked::checks(),
        shared::checks(),
        requests::checks(),
        interrupted::checks(),
        overlap::checks(),
        failures::checks(),
    ]
    .into_iter()
    .flatten()
    .collect()
}
