//! The only room that touches the socket: sessions with a provider, and what its answers mean.

mod calls;
mod connect;
mod error;
mod handshake;
mod limits;
mod maintain;
mod metrics;
mod session;
mod status;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
mod view;

#[allow(unused_imports)] // By the rooms that are being built.
pub(crate) use connect::{Connector, DialError, Pipe, UnixConnector};
#[allow(unused_imports)]
pub(crate) use error::{Reaction, Retry, Trouble, TroubleCode};
#[allow(unused_imports)]
pub(crate) use limits::{check_provider_id, pending_after};
#[allow(unused_imports)]
pub(crate) use maintain::{Maintain, maintain};
pub(crate) use metrics::Metrics;
#[allow(unused_imports)]
pub(crate) use session::Session;
pub(crate) use status::ProviderStatus;
#[allow(unused_imports)]
pub(crate) use view::{Projection, load_balancer_status, node_addresses, node_view, service_view};
