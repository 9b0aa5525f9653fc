//! A cluster in which the manifests are applied.

use std::time::Duration;

use tokio::sync::{Mutex, MutexGuard};

/// For whatever takes seconds on an idle machine.
pub const PATIENCE: Duration = Duration::from_mins(2);

/// One cluster at a time: each looks whether it leaves anything on the machine.
pub async fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::const_new(());
    ONE.lock().await
}
