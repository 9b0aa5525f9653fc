//! The only room that touches the socket: sessions with a provider, and what its answers mean.

mod error;
mod limits;
mod session;
mod view;

pub(crate) use error::{Reaction, Retry, Trouble, TroubleCode};
#[allow(unused_imports)] // By the rooms that are being built.
pub(crate) use limits::{check_provider_id, pending_after};
pub(crate) use session::{ProviderStatus, Session};
#[allow(unused_imports)] // As above.
pub(crate) use view::{Projection, load_balancer_status, node_addresses, node_view, service_view};
