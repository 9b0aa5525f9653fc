//! A run in a simulated world: the caller passes an API server, a provider and a clock.

use std::sync::Arc;

use tokio::io::DuplexStream;
use tokio_util::sync::CancellationToken;

use super::{Deps, RunError, run};
use crate::args::Config;
use crate::core::WallClock;
use crate::provider::{Connector, Pipe};

/// Dials the provider; `None` if no process listens.
pub type Dial = Arc<dyn Fn() -> Option<DuplexStream> + Send + Sync>;

/// The environment of a simulated ccm.
pub struct World {
    /// The API server.
    pub kube: kube::Client,
    /// The provider.
    pub dial: Dial,
    /// Wall time.
    pub wall: WallClock,
    /// The seed of all randomness.
    pub seed: u64,
    /// The process's name in the Lease.
    pub identity: String,
    /// Cancelled for a graceful end.
    pub shutdown: CancellationToken,
}

struct Dialled(Dial);

#[async_trait::async_trait]
impl Connector for Dialled {
    async fn connect(&self) -> Result<Box<dyn Pipe>, String> {
        match (self.0)() {
            Some(pipe) => Ok(Box::new(pipe)),
            None => Err("waiting for the socket /in/memory: it does not exist yet".to_owned()),
        }
    }
}

/// Runs until `shutdown`, or until the run fails, for example because the Lease is lost. Opens no
/// ports.
pub async fn run_in(world: World, config: Config) -> Result<(), RunError> {
    let deps = Deps {
        kube: world.kube.into(),
        anonymous: None,
        connector: Arc::new(Dialled(world.dial)),
        wall: world.wall,
        seed: world.seed,
        identity: world.identity,
        listener: None,
        webhook_listener: None,
        authentication: None,
        authorization: None,
        shutdown: world.shutdown,
    };
    Box::pin(run(deps, config)).await
}
