//! The Unix socket: its path, binding it, and the accepted users (CORE-1 to CORE-3).

use std::fs::{self, DirBuilder, File, Metadata, Permissions, TryLockError};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt, chown};
use std::path::{Component, Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{UnixListener, UnixStream};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tonic::transport::server::{Connected, UdsConnectInfo};

/// The default endpoint.
pub const DEFAULT_ENDPOINT: &str = "unix:///run/cloud-provider/socket/provider.sock";

/// The longest path in Linux's `sockaddr_un`, without the terminating zero.
const MAX_PATH_BYTES: usize = 107;
/// How long the server waits for a connection to an existing socket, and how long for the
/// directory's lock if another process holds it.
const NEIGHBOUR: Duration = Duration::from_secs(5);

/// Why the server does not serve. `Debug` prints the same sentence as `Display`, so that
/// `fn main() -> Result<(), ServeError>` is readable for an operator.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The endpoint is invalid.
    #[error("the endpoint {endpoint:?} {what}; use one like {DEFAULT_ENDPOINT}")]
    Endpoint {
        /// The configured endpoint.
        endpoint: String,
        /// The error in it.
        what: String,
    },
    /// A part of the socket's path is a symbolic link. A user who can change the link could
    /// redirect the controller to another socket.
    #[error("{} is a symbolic link; give the endpoint by a path without one{}", path.display(), hint(target.as_deref()))]
    Symlink {
        /// The link.
        path: PathBuf,
        /// Its target.
        target: Option<PathBuf>,
    },
    /// The file at the socket's path is not a socket. The server does not remove it.
    #[error("{} exists and is not a socket: remove it, or choose another endpoint", path.display())]
    NotASocket {
        /// The file.
        path: PathBuf,
    },
    /// Another process serves on the socket.
    #[error("another provider answers on {}; stop it, or choose another endpoint", path.display())]
    InUse {
        /// The socket.
        path: PathBuf,
    },
    /// The system refused an operation.
    #[error("cannot {what} {}: {source}", path.display())]
    Io {
        /// The operation.
        what: &'static str,
        /// The file or the signal.
        path: PathBuf,
        /// The error.
        source: io::Error,
    },
    /// The provider's identity or its classes violate the contract, or a file descriptor that
    /// reflection should know cannot be read.
    #[error("the provider cannot be served: {0}")]
    Provider(String),
    /// The gRPC server failed.
    #[error("the gRPC server failed: {0}")]
    Transport(#[from] tonic::transport::Error),
}

impl std::fmt::Debug for ServeError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

fn hint(target: Option<&Path>) -> String {
    target.map_or_else(String::new, |target| {
        format!(", such as {}", target.display())
    })
}

fn io_error<'a>(what: &'static str, path: &'a Path) -> impl FnOnce(io::Error) -> ServeError + 'a {
    move |source| ServeError::Io {
        what,
        path: path.to_owned(),
        source,
    }
}

/// The path of an endpoint: `unix://` and an absolute path.
pub(crate) fn path_of(endpoint: &str) -> Result<PathBuf, ServeError> {
    let wrong = |what: &str| ServeError::Endpoint {
        endpoint: endpoint.to_owned(),
        what: what.to_owned(),
    };
    let Some(path) = endpoint.strip_prefix("unix://") else {
        return Err(wrong(if endpoint.starts_with("unix-abstract:") {
            "names an abstract socket, which the contract forbids"
        } else {
            "does not begin with unix://"
        }));
    };
    if !path.starts_with('/') {
        return Err(wrong("has no absolute path after unix:// (three slashes)"));
    }
    if path.len() > MAX_PATH_BYTES {
        return Err(wrong(&format!(
            "has a path of {} bytes, more than the {MAX_PATH_BYTES} that a Unix socket can have",
            path.len()
        )));
    }
    let path = Path::new(path);
    let plain = path
        .components()
        .all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
    let parents = path.components().count();
    if !plain || parents < 3 || endpoint.ends_with('/') || endpoint.contains('\0') {
        return Err(wrong(
            "does not name a file in a directory of its own, without `..` and without a slash at its end",
        ));
    }
    Ok(path.to_owned())
}

/// A bound socket. Dropping it removes the file, unless another file has replaced it.
#[derive(Debug)]
pub(crate) struct Socket {
    path: PathBuf,
    /// Device and inode of the file.
    ours: (u64, u64),
}

/// Binds the socket. Gives it mode 0660, and each directory that it creates mode 0750, whatever the
/// umask.
///
/// The socket is bound under a private name, gets its mode, and is then renamed. So no client can
/// reach it at `path` with another mode. A lock on the directory serialises providers that start at
/// the same time.
pub(crate) async fn bind(
    path: PathBuf,
    group: Option<u32>,
) -> Result<(Socket, UnixListener), ServeError> {
    let directory = path.parent().unwrap_or(Path::new("/")).to_owned();
    refuse_symlinks(&path)?;
    make_directory(&directory, group)?;
    let turn = lock(&directory).await?;
    refuse_living(&path).await?;

    let name = format!(".{}", &uuid::Uuid::new_v4().simple().to_string()[..8]);
    let private = directory.join(&name);
    // The private name may be too long for `sockaddr_un`. A path through the open directory's file
    // descriptor is shorter.
    let way = if private.as_os_str().len() > MAX_PATH_BYTES {
        PathBuf::from(format!("/proc/self/fd/{}/{name}", turn.as_raw_fd()))
    } else {
        private.clone()
    };
    let listener = UnixListener::bind(&way).map_err(io_error("bind a socket at", &private))?;
    let named = (|| {
        fs::set_permissions(&private, Permissions::from_mode(0o660))
            .map_err(io_error("set the mode of", &private))?;
        if group.is_some() {
            chown(&private, None, group).map_err(io_error("set the group of", &private))?;
        }
        let metadata = fs::symlink_metadata(&private).map_err(io_error("read", &private))?;
        // Replaces a stale socket atomically.
        fs::rename(&private, &path).map_err(io_error("give its name to the socket", &path))?;
        Ok(identity(&metadata))
    })();
    match named {
        Ok(ours) => Ok((Socket { path, ours }, listener)),
        Err(error) => {
            // No other process uses the private name. A failure to remove it matters less than the
            // error itself.
            let _ = fs::remove_file(&private);
            Err(error)
        }
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        let still_ours =
            fs::symlink_metadata(&self.path).is_ok_and(|metadata| identity(&metadata) == self.ours);
        if still_ours && let Err(error) = fs::remove_file(&self.path) {
            tracing::warn!(path = %self.path.display(), %error, "cannot remove the socket");
        }
    }
}

fn identity(metadata: &Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}

fn refuse_symlinks(path: &Path) -> Result<(), ServeError> {
    let mut parts: Vec<&Path> = path.ancestors().collect();
    parts.reverse();
    for part in parts {
        match fs::symlink_metadata(part) {
            Ok(metadata) if metadata.is_symlink() => {
                return Err(ServeError::Symlink {
                    path: part.to_owned(),
                    target: fs::canonicalize(part).ok(),
                });
            }
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => break,
            Err(source) => return Err(io_error("read", part)(source)),
        }
    }
    Ok(())
}

fn make_directory(directory: &Path, group: Option<u32>) -> Result<(), ServeError> {
    match fs::symlink_metadata(directory) {
        Ok(metadata) if !metadata.is_dir() => Err(io_error(
            "use as the socket's directory",
            directory,
        )(io::ErrorKind::NotADirectory.into())),
        Ok(metadata) => {
            let mode = metadata.mode() & 0o7777;
            if mode & 0o007 != 0 {
                tracing::warn!(
                    directory = %directory.display(),
                    mode = format!("{mode:04o}"),
                    "the socket's directory is open to all users; it should have mode 0750: name a subdirectory that \
                     does not exist yet, and the provider creates it with that mode"
                );
            }
            Ok(())
        }
        Err(_) => {
            let mut missing: Vec<&Path> = directory
                .ancestors()
                .take_while(|level| fs::symlink_metadata(level).is_err())
                .collect();
            missing.reverse();
            // Each level gets the group and the mode, because the controller has to pass them all.
            missing
                .into_iter()
                .try_for_each(|level| make_level(level, group))
        }
    }
}

fn make_level(level: &Path, group: Option<u32>) -> Result<(), ServeError> {
    match DirBuilder::new().mode(0o750).create(level) {
        // Another starting provider just created it, and sets its mode.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(()),
        made => made.map_err(io_error("make the socket's directory", level))?,
    }
    if group.is_some() {
        chown(level, None, group).map_err(io_error("set the group of", level))?;
    }
    // The umask may have removed bits.
    fs::set_permissions(level, Permissions::from_mode(0o750))
        .map_err(io_error("set the mode of", level))
}

/// The directory, locked against other providers that bind in it. Dropping the file releases the
/// lock.
async fn lock(directory: &Path) -> Result<File, ServeError> {
    let file = File::open(directory).map_err(io_error("open", directory))?;
    let patience = tokio::time::Instant::now() + NEIGHBOUR;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) if tokio::time::Instant::now() < patience => {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            Err(TryLockError::WouldBlock) => {
                return Err(io_error(
                    "lock (another process holds it for too long)",
                    directory,
                )(io::ErrorKind::WouldBlock.into()));
            }
            Err(TryLockError::Error(source)) => return Err(io_error("lock", directory)(source)),
        }
    }
}

/// Succeeds if the path does not exist, or is a socket on which no process answers.
async fn refuse_living(path: &Path) -> Result<(), ServeError> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(source) => return Err(io_error("read", path)(source)),
        Ok(metadata) if !metadata.file_type().is_socket() => {
            return Err(ServeError::NotASocket {
                path: path.to_owned(),
            });
        }
        Ok(_) => {}
    }
    match tokio::time::timeout(NEIGHBOUR, UnixStream::connect(path)).await {
        Ok(Err(error)) if error.kind() == io::ErrorKind::ConnectionRefused => {
            tracing::info!(path = %path.display(), "replacing a stale socket: no process answers on it");
            Ok(())
        }
        Ok(Err(error)) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Ok(Err(source)) => Err(io_error("find out whether a process answers on", path)(
            source,
        )),
        // Connected, or no result in time: a process listens.
        Ok(Ok(_)) | Err(_) => Err(ServeError::InUse {
            path: path.to_owned(),
        }),
    }
}

/// The users that the socket accepts.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Peers {
    pub(crate) uid: Option<u32>,
    pub(crate) own: u32,
}

impl Peers {
    /// With a configured uid, accepts it and the process's own uid (for a probe in the same
    /// container). Without one, accepts every uid.
    fn accept(self, uid: u32) -> bool {
        self.uid
            .is_none_or(|allowed| uid == allowed || uid == self.own)
    }
}

/// The next connection of an accepted user. Logs errors and refused connections.
pub(crate) async fn accept(
    listener: &UnixListener,
    peers: Peers,
    connections: &Connections,
) -> Connection {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => match stream.peer_cred() {
                Ok(peer) if peers.accept(peer.uid()) => return connections.guard(stream),
                Ok(peer) => tracing::warn!(
                    uid = peer.uid(),
                    pid = peer.pid(),
                    allowed = peers.uid,
                    "refused a connection of another user"
                ),
                Err(error) => {
                    tracing::warn!(%error, "refused a connection whose peer is not known");
                }
            },
            Err(error) => {
                // Most likely out of file descriptors: an immediate retry would spin.
                tracing::error!(%error, "could not accept a connection");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

/// Cuts the connections of a server. tonic moves connections into tasks of its own, and never ends
/// a connection whose call hangs.
///
/// [`Server::connections`](crate::Server::connections) takes it, and other servers can use it too.
/// Clones share the connections.
#[derive(Clone, Debug, Default)]
pub struct Connections {
    /// The token of the connections that are open now. Cutting them replaces it.
    open: Arc<Mutex<CancellationToken>>,
}

impl Connections {
    /// A set without connections.
    pub fn new() -> Self {
        Self::default()
    }

    /// Cuts the open connections, and with them the calls in flight. The server accepts new
    /// connections as before.
    pub fn cut(&self) {
        std::mem::take(&mut *self.open()).cancel();
    }

    /// Adds a connection.
    pub fn guard(&self, stream: UnixStream) -> Connection {
        let cut = self.open().clone();
        Connection {
            stream,
            cut: Box::pin(cut.cancelled_owned()),
        }
    }

    fn open(&self) -> MutexGuard<'_, CancellationToken> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A connection that [`Connections::cut`] cuts.
#[derive(Debug)]
pub struct Connection {
    stream: UnixStream,
    cut: Pin<Box<WaitForCancellationFutureOwned>>,
}

impl Connection {
    fn alive(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        match self.cut.as_mut().poll(context) {
            Poll::Ready(()) => Err(io::ErrorKind::ConnectionAborted.into()),
            Poll::Pending => Ok(()),
        }
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.alive(context)?;
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, data)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        data: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, data)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

impl Connected for Connection {
    type ConnectInfo = UdsConnectInfo;

    fn connect_info(&self) -> Self::ConnectInfo {
        self.stream.connect_info()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bad_endpoint_is_named_with_what_is_right() {
        for (endpoint, what) in [
            ("tcp://127.0.0.1:1", "does not begin with unix://"),
            ("/run/x/y.sock", "does not begin with unix://"),
            ("unix-abstract:x", "abstract"),
            ("unix://run/x.sock", "no absolute path"),
            ("unix:///x.sock", "directory of its own"),
            ("unix:///run/x/", "directory of its own"),
            ("unix:///run/../x.sock", "directory of its own"),
        ] {
            let error = path_of(endpoint).expect_err(endpoint).to_string();
            assert!(error.contains(what), "{error}");
            assert!(
                error.contains(endpoint) && error.contains(DEFAULT_ENDPOINT),
                "{error}"
            );
        }
        let long = format!("unix:///run/{}/s", "x".repeat(120));
        assert!(
            path_of(&long)
                .expect_err("long")
                .to_string()
                .contains("107")
        );
        assert_eq!(
            path_of(DEFAULT_ENDPOINT).unwrap(),
            Path::new("/run/cloud-provider/socket/provider.sock")
        );
    }

    #[test]
    fn only_the_configured_uid_and_our_own_are_accepted() {
        let peers = Peers {
            uid: Some(1000),
            own: 2000,
        };
        assert!(peers.accept(1000) && peers.accept(2000));
        assert!(!peers.accept(0) && !peers.accept(1001));
        assert!(Peers { uid: None, own: 1 }.accept(7));
    }
}
