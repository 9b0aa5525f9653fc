//! The only module that uses the provider's socket: sessions with a provider, and the meaning of
//! its answers.

mod batch;
mod call_log;
mod calls;
mod claims;
mod connect;
mod error;
mod failures;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
mod handshake;
mod hint;
mod limits;
pub(crate) mod lookup;
mod maintain;
mod memory;
mod metrics;
mod probe;
mod session;
mod status;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
mod view;
mod weigh;

pub(crate) use call_log::CallId;
pub(crate) use calls::BalancerAnswer;
#[cfg(any(test, fuzzing))]
pub(crate) use calls::Parts;
#[cfg(feature = "simulation")]
pub(crate) use connect::Pipe;
pub(crate) use connect::{Connector, UnixConnector};
pub(crate) use error::{CallError, CallErrorCode, Retry};
pub(crate) use hint::Hint;
pub(crate) use limits::{cut, pending_after};
pub(crate) use maintain::{Maintain, PROBE_PERIOD, maintain};
pub(crate) use memory::Memory;
pub(crate) use metrics::Metrics;
pub(crate) use probe::probe;
#[cfg(test)]
pub(crate) use session::DEFAULT_MAX_BATCH;
pub(crate) use session::{Projections, Session};
pub(crate) use status::{Capability, ProviderStatus, probe_word};
pub(crate) use view::{
    is_asked_about, load_balancer_status, node_address, node_view, service_view, source_ranges,
    volume_view,
};
