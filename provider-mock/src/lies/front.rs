//! A socket in front of the provider's own that gives some connections garbage.

use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::Path;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinHandle;

/// No HTTP/2.
const GARBAGE: &[u8] = b"\x15\x03\x01\x00\x02\x02\x16 this is no HTTP/2 at all\r\n\r\n";
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
            let mut good = false;
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                good = !good;
                connections.spawn(connection(stream, behind.clone(), good));
            }
        })))
    }
}

async fn connection(mut stream: UnixStream, behind: std::path::PathBuf, good: bool) {
    if good && let Ok(mut provider) = UnixStream::connect(behind).await {
        let copied = tokio::io::copy_bidirectional(&mut stream, &mut provider);
        if tokio::time::timeout(GOOD, copied).await.is_ok() {
            return;
        }
    }
    // Whoever has gone does not read it.
    let _ = stream.write_all(GARBAGE).await;
    let _ = stream.shutdown().await;
}
