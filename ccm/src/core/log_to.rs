use tracing::Dispatch;
use tracing::subscriber::{DefaultGuard, NoSubscriber, set_default};
use tracing_subscriber::fmt::{MakeWriter, fmt};

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
