//! The only room that touches the socket: sessions with a provider, and what its answers mean.

mod error;
mod limits;
mod session;
mod view;

pub(crate) use error::{Reaction, Retry, Trouble, TroubleCode};
pub(crate) use session::{ProviderStatus, Session};
pub(crate) use view::{Projection, node_view, service_view};
