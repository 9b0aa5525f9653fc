//! Items that every module may use. Nothing here starts a task, opens a socket or logs.

mod backoff;
mod changed;
mod clock;
mod fence;
mod key;
mod label;
mod labels;
mod lenient;
mod lock;
#[cfg(test)]
mod log_to;
mod metric;
mod node;
mod prune;
pub mod text;

pub(crate) use backoff::Backoff;
pub(crate) use changed::changed;
pub(crate) use clock::{WallClock, millis, wall_time};
pub(crate) use fence::{Fence, Fenced};
pub(crate) use key::Key;
pub(crate) use label::{ProviderLabel, set_gauge};
pub(crate) use labels::{is_dns_name, is_reserved_key, is_valid_key, is_valid_value};
pub(crate) use lenient::Lenient;
pub(crate) use lock::lock;
#[cfg(test)]
pub(crate) use log_to::{at_each_line, log_to};
pub(crate) use metric::registered;
pub(crate) use node::{is_ready, provider_id, ready_condition, taints};
pub(crate) use prune::{LAST_APPLIED, Prune};

/// The domain of all labels and annotations that the ccm defines.
pub(crate) const DOMAIN: &str = "grpc-ccm.io/";
