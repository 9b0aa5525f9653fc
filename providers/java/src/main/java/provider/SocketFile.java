package provider;

import java.io.IOException;
import java.net.ConnectException;
import java.net.StandardProtocolFamily;
import java.net.UnixDomainSocketAddress;
import java.nio.channels.SocketChannel;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.UUID;

/**
 * The Unix socket's file: the rules for its place and its name (CORE-2). The provider binds it under a private name, sets its mode, and renames it. So the socket never has another mode
 * under its own name, and replaces a stale one in one step.
 */
final class SocketFile {
  static final String DEFAULT_ENDPOINT = "unix:///run/cloud-provider/socket/provider.sock";
  /** The longest path that fits into sockaddr_un on Linux. */
  private static final int MAX_PATH_BYTES = 107;

  final Path path;
  final Path bound;
  private Object ours;

  SocketFile(String endpoint) throws IOException {
    String file = endpoint.startsWith("unix:///") ? endpoint.substring("unix://".length()) : "";
    if (file.isEmpty() || file.endsWith("/") || file.contains("\0") || !Path.of(file).normalize().toString().equals(file)) {
      throw new IOException("the endpoint \"" + endpoint + "\" is not unix:// and the absolute path of a file; right would be " + DEFAULT_ENDPOINT);
    }
    int bytes = Provider.bytes(file);
    if (bytes > MAX_PATH_BYTES) throw new IOException(file + " has " + bytes + " bytes; a Unix socket's path has at most " + MAX_PATH_BYTES);
    path = Path.of(file);
    bound = path.resolveSibling("." + UUID.randomUUID().toString().substring(0, 4));
  }

  /** Makes missing directories, 0750. Refuses symbolic links, a path that is not a socket, and a socket on which a process answers. */
  void claim() throws IOException {
    for (int count = 1; count <= path.getNameCount(); count++) {
      Path level = path.getRoot().resolve(path.subpath(0, count));
      if (Files.isSymbolicLink(level)) throw new IOException(level + " is a symbolic link; give the endpoint by a path without one, such as " + level.toRealPath());
      boolean there = Files.exists(level, LinkOption.NOFOLLOW_LINKS);
      if (!there && !level.equals(path)) {
        Files.createDirectory(level);
        Files.setPosixFilePermissions(level, PosixFilePermissions.fromString("rwxr-x---")); // Whatever the umask.
      }
      if (there && level.equals(path)) refuseLiving();
    }
  }

  private void refuseLiving() throws IOException {
    int kind = (Integer) Files.getAttribute(path, "unix:mode") & 0170000;
    if (kind != 0140000) throw new IOException(path + " exists and is not a socket: remove it, or choose another endpoint");
    try (SocketChannel channel = SocketChannel.open(StandardProtocolFamily.UNIX)) {
      channel.connect(UnixDomainSocketAddress.of(path));
    } catch (ConnectException refused) {
      if (String.valueOf(refused.getMessage()).contains("refused")) return; // Stale: no process answers on it.
    } catch (IOException other) {
      // Any other error does not show that no process answers.
    }
    throw new IOException("another provider answers on " + path + "; stop it, or choose another endpoint");
  }

  /** Gives the bound socket its mode and its name. */
  void publish() throws IOException {
    Files.setPosixFilePermissions(bound, PosixFilePermissions.fromString("rw-rw----"));
    ours = Files.getAttribute(bound, "unix:ino");
    Files.move(bound, path, StandardCopyOption.ATOMIC_MOVE);
  }

  /** Removes the file, if it is still this provider's socket. */
  void remove() throws IOException {
    if (ours != null && Files.exists(path, LinkOption.NOFOLLOW_LINKS) && ours.equals(Files.getAttribute(path, "unix:ino", LinkOption.NOFOLLOW_LINKS))) Files.delete(path);
  }
}
