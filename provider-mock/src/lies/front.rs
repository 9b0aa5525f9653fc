//! A socket in front of the provider's own that gives some connections garbage.

use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinHandle;

/// No HTTP/2.
const GARBAGE: &[u8] = b"\x15\x03\x01\x00\x02\x02\x16 this is no HTTP/2 at all\r\n\r\n";
/// How long the provider behind may take to serve.
const START: Duration = Duration::from_secs(30);
const LOOK: Duration = Duration::from_millis(10);
/// How long the others are good.
const GOOD: Duration = Duration::from_secs(3);

/// See the module; it ends when it is dropped.
#[derive(Debug)]
pub(crate) struct Front(JoinHandle<()>);

impl Drop for Front {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Front {
    /// Serves `path`; the real provider is at `behind`.
    pub(crate) fn serve(path: &Path, behind: &Path) -> std::io::Result<Self> {
        if let Some(directory) = path.parent() {
            std::fs::DirBuilder::new()
                .recursive(true)
                .mode(0o750)
                .create(directory)?;
        }
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = UnixListener::bind(path)?;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o660))?;
        let behind = behind.to_owned();
        Ok(Self(tokio::spawn(async move {
            let spoke = Arc::new(AtomicU32::new(0));
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                connections.spawn(connection(stream, behind.clone(), Arc::clone(&spoke)));
            }
        })))
    }
}

async fn connection(mut stream: UnixStream, behind: std::path::PathBuf, spoke: Arc<AtomicU32>) {
    // Who only looks whether somebody listens is not counted.
    let mut first = vec![0; 1024];
    let said = match stream.read(&mut first).await {
        Ok(0) | Err(_) => return,
        Ok(said) => said,
    };
    let good = !(spoke.fetch_add(1, Ordering::Relaxed) + 1).is_multiple_of(4);
    if good && let Ok(mut provider) = tokio::time::timeout(START, reached(&behind)).await {
        if provider.write_all(&first[..said]).await.is_err() {
            return;
        }
        let copied = tokio::io::copy_bidirectional(&mut stream, &mut provider);
        if tokio::time::timeout(GOOD, copied).await.is_ok() {
            return;
        }
    }
    // Whoever has gone does not read it.
    let _ = stream.write_all(GARBAGE).await;
    let _ = stream.shutdown().await;
}

/// A connection to the provider behind, which begins to serve a little later than this socket in front.
async fn reached(behind: &Path) -> UnixStream {
    loop {
        if let Ok(provider) = UnixStream::connect(behind).await {
            return provider;
        }
        tokio::time::sleep(LOOK).await;
    }
}
