use std::sync::{Arc, Mutex};

use tracing::Dispatch;
use tracing::subscriber::{DefaultGuard, NoSubscriber, set_default};
use tracing_subscriber::fmt::{MakeWriter, fmt};

use super::lock;

/// Writes the log of this thread to `writer` until the result is dropped. `filter` is in the syntax
/// of `RUST_LOG`.
pub(crate) fn log_to<W>(filter: &str, writer: W) -> (DefaultGuard, Dispatch)
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    // While a process has one subscriber, tracing asks only the thread that comes first to a log
    // statement, and if that is the thread of another test, it switches the statement off for all.
    // With two subscribers it asks both.
    let second = Dispatch::new(NoSubscriber::default());
    let log = fmt()
        .with_ansi(false)
        .with_env_filter(filter)
        .with_writer(writer);
    (set_default(log.finish()), second)
}

/// Calls `look` at each line of this thread's log until the second result is dropped. Returns the
/// results of all calls.
pub(crate) fn at_each_line<T: Send + 'static>(
    filter: &str,
    look: impl Fn() -> T + Send + Sync + 'static,
) -> (Arc<Mutex<Vec<T>>>, (DefaultGuard, Dispatch)) {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let into = Arc::clone(&seen);
    let logging = log_to(filter, move || {
        let now = look();
        lock(&into).push(now);
        std::io::sink()
    });
    (seen, logging)
}
