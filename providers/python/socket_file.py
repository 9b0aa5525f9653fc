"""The Unix socket: the rules for its path (CORE-2)."""

import asyncio
import os
import secrets
import stat
from pathlib import Path

DEFAULT_ENDPOINT = "unix:///run/cloud-provider/socket/provider.sock"
#: The longest path that fits into `sockaddr_un` on Linux.
MAX_PATH_BYTES = 107


class SocketError(Exception):
    """The reason why the provider does not serve."""


class SocketFile:
    """The provider binds the socket under a private name, sets its mode, and renames it. So the socket never has another mode at its path, and replaces a stale one atomically."""

    def __init__(self, endpoint: str) -> None:
        path = endpoint.removeprefix("unix://")
        plain = path.startswith("/") and not path.endswith("/") and ".." not in path.split("/") and "\0" not in path
        if path == endpoint or not plain:
            raise SocketError(f"the endpoint {endpoint!r} is not unix:// and the absolute path of a file; use one like {DEFAULT_ENDPOINT}")
        self.path = Path(path)
        self.directory = self.path.parent
        self.private = self.directory / f".{secrets.token_hex(2)}"
        if len(os.fsencode(self.path)) > MAX_PATH_BYTES:
            raise SocketError(f"{path} has {len(os.fsencode(self.path))} bytes; a Unix socket's path has at most {MAX_PATH_BYTES}")
        self._ours: tuple[int, int] | None = None

    async def claim(self) -> None:
        """Makes missing directories, 0750. Refuses symbolic links, another kind of file, and a socket on which a process answers."""
        for part in [*reversed(self.path.parents), self.path]:
            if part.is_symlink():
                raise SocketError(f"{part} is a symbolic link; give the endpoint by a path without one, such as {part.resolve()}")
        missing = [level for level in [self.directory, *self.directory.parents] if not level.exists()]
        for level in reversed(missing):
            level.mkdir(0o750)
            level.chmod(0o750)  # Whatever the umask.
        if not self.path.exists():
            return
        if not stat.S_ISSOCK(self.path.lstat().st_mode):
            raise SocketError(f"{self.path} exists and is not a socket: remove it, or choose another endpoint")
        try:
            _, writer = await asyncio.wait_for(asyncio.open_unix_connection(str(self.path)), 5)
            writer.close()
        except ConnectionRefusedError:
            return  # Stale: no process answers on it.
        except TimeoutError:
            pass
        raise SocketError(f"another provider answers on {self.path}; stop it, or choose another endpoint")

    def publish(self) -> None:
        """Gives the bound socket its mode and its name."""
        self.private.chmod(0o660)
        status = self.private.lstat()
        os.rename(self.private, self.path)
        self._ours = (status.st_dev, status.st_ino)

    def remove(self) -> None:
        """Removes the file, if it is still this provider's socket."""
        try:
            status = self.path.lstat()
            if (status.st_dev, status.st_ino) == self._ours:
                self.path.unlink()
        except FileNotFoundError:
            pass
        self._ours = None
