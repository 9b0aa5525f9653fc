//! Waits for a change that another task makes.

use std::future::pending;

use tokio::sync::watch;

/// Waits for a change. Waits for ever if the sender is gone: its task has ended, so the process
/// ends too.
pub(crate) async fn changed<T>(receiver: &mut watch::Receiver<T>) {
    if receiver.changed().await.is_err() {
        pending::<()>().await;
    }
}
