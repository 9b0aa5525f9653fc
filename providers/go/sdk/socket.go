package sdk

import (
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

const (
	unixScheme = "unix://"
	// DefaultEndpoint is where a provider serves unless configured.
	DefaultEndpoint = unixScheme + "/run/cloud-provider/socket/provider.sock"
	// The greatest length of a path in sockaddr_un on Linux, without its closing zero.
	maxPathBytes = 107
	// How long the start waits for the directory's lock, and for a connection to the existing socket.
	neighbour = 5 * time.Second
)

// socketPath returns the path of an endpoint.
func socketPath(endpoint string) (string, error) {
	path, ok := strings.CutPrefix(endpoint, unixScheme)
	what := ""
	switch {
	case !ok:
		what = "does not begin with unix://"
	case !strings.HasPrefix(path, "/"):
		what = "has no absolute path after unix:// (three slashes)"
	case len(path) > maxPathBytes:
		what = fmt.Sprintf("has a path of %d bytes, more than the %d that a Unix socket can have", len(path), maxPathBytes)
	case filepath.Clean(path) != path || strings.Count(path, "/") < 2 || strings.Contains(path, "\x00"):
		what = "does not name a file in a directory of its own, without `..` and without a slash at its end"
	default:
		return path, nil
	}
	return "", fmt.Errorf("the endpoint %q %s; right would be %s", endpoint, what, DefaultEndpoint)
}

// listener is the bound socket. It accepts only permitted users. remove deletes its file.
type listener struct {
	*net.UnixListener
	path    string
	ours    os.FileInfo
	peerUID *int
	log     *slog.Logger
}

// listen binds the socket as CORE-2 demands. The socket has mode 0660 before its name exists. A new directory has mode 0750, and the path has no
// symbolic link. listen replaces an existing socket only if no process listens on it. A lock on the directory keeps two starting providers apart.
// peerUID is the user to accept beside the process's own; nil accepts all users that the file's mode admits (CORE-3).
func listen(endpoint string, peerUID, group *int, log *slog.Logger) (*listener, error) {
	path, err := socketPath(endpoint)
	if err != nil {
		return nil, err
	}
	directory := filepath.Dir(path)
	if err := refuseLinks(path); err != nil {
		return nil, err
	}
	if err := makeDirectory(directory, group); err != nil {
		return nil, err
	}
	if found, err := os.Lstat(directory); err == nil && found.Mode().Perm()&0o007 != 0 {
		log.Warn("the socket's directory is open to everybody; it should have mode 0750: name a subdirectory that does not exist yet, and the provider makes it with this mode",
			"directory", directory, "mode", found.Mode().Perm().String())
	}
	unlock, err := lock(directory)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := refuseLiving(path, log); err != nil {
		return nil, err
	}
	// The private name may be too long for a socket address. A path through the open directory is shorter.
	private := filepath.Join(directory, "."+rand.Text()[:8])
	bound := private
	if len(private) > maxPathBytes {
		held, err := os.Open(directory)
		if err != nil {
			return nil, err
		}
		defer func() { _ = held.Close() }()
		bound = fmt.Sprintf("/proc/self/fd/%d/%s", held.Fd(), filepath.Base(private))
	}
	socket, err := net.ListenUnix("unix", &net.UnixAddr{Name: bound, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("cannot bind a socket at %s: %w", private, err)
	}
	socket.SetUnlinkOnClose(false)
	ours, err := func() (os.FileInfo, error) {
		if err := os.Chmod(private, 0o660); err != nil {
			return nil, err
		}
		if err := setGroup(private, group); err != nil {
			return nil, err
		}
		ours, err := os.Lstat(private)
		if err != nil {
			return nil, err
		}
		// The rename replaces a stale socket in one step.
		return ours, os.Rename(private, path)
	}()
	if err != nil {
		_ = os.Remove(private)
		return nil, errors.Join(fmt.Errorf("cannot make the socket %s: %w", path, err), socket.Close())
	}
	return &listener{socket, path, ours, peerUID, log}, nil
}

// Accept waits for the next connection of a permitted user.
func (l *listener) Accept() (net.Conn, error) {
	for {
		connection, err := l.AcceptUnix()
		if err != nil {
			return nil, err
		}
		uid, err := peer(connection)
		if err == nil && (l.peerUID == nil || uid == *l.peerUID || uid == os.Geteuid()) {
			return connection, nil
		}
		l.log.Warn("refused a connection of another user", "uid", uid, "error", err)
		_ = connection.Close()
	}
}

func peer(connection *net.UnixConn) (int, error) {
	raw, err := connection.SyscallConn()
	if err != nil {
		return -1, err
	}
	var credentials *syscall.Ucred
	var failed error
	if err := raw.Control(func(descriptor uintptr) {
		credentials, failed = syscall.GetsockoptUcred(int(descriptor), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	}); err != nil || failed != nil {
		return -1, errors.Join(err, failed)
	}
	return int(credentials.Uid), nil
}

// remove deletes the socket's file, unless another socket has replaced it.
func (l *listener) remove() {
	if now, err := os.Lstat(l.path); err == nil && os.SameFile(now, l.ours) {
		if err := os.Remove(l.path); err != nil {
			l.log.Error("cannot remove the socket", "path", l.path, "error", err)
		}
	}
}

func refuseLinks(path string) error {
	for part := path; part != "/"; part = filepath.Dir(part) {
		found, err := os.Lstat(part)
		switch {
		case errors.Is(err, os.ErrNotExist):
		case err != nil:
			return err
		case found.Mode()&os.ModeSymlink != 0:
			target, _ := filepath.EvalSymlinks(part)
			return fmt.Errorf("%s is a symbolic link; give the endpoint by a path without one, such as %s", part, target)
		}
	}
	return nil
}

// makeDirectory makes each missing level with mode 0750. The controller reaches the socket only if
// its group can pass every such level.
func makeDirectory(directory string, group *int) error {
	found, err := os.Lstat(directory)
	switch {
	case err == nil && !found.IsDir():
		return fmt.Errorf("cannot use %s as the socket's directory: it is no directory", directory)
	case err == nil:
		return nil
	case !errors.Is(err, os.ErrNotExist):
		return err
	}
	if err := makeDirectory(filepath.Dir(directory), group); err != nil {
		return err
	}
	if err := os.Mkdir(directory, 0o750); err != nil {
		if errors.Is(err, os.ErrExist) {
			return nil
		}
		return fmt.Errorf("cannot make the socket's directory: %w", err)
	}
	if err := setGroup(directory, group); err != nil {
		return err
	}
	// The umask may have cleared bits of the mode.
	return os.Chmod(directory, 0o750)
}

func setGroup(path string, group *int) error {
	if group == nil {
		return nil
	}
	return os.Chown(path, -1, *group)
}

func lock(directory string) (unlock func(), err error) {
	held, err := os.Open(directory)
	if err != nil {
		return nil, err
	}
	for patience := time.Now().Add(neighbour); ; time.Sleep(50 * time.Millisecond) {
		err := syscall.Flock(int(held.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { _ = held.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) || time.Now().After(patience) {
			_ = held.Close()
			return nil, fmt.Errorf("cannot lock %s: %w", directory, err)
		}
	}
}

// refuseLiving checks that the name is free, or belongs to a socket that refuses connections.
func refuseLiving(path string, log *slog.Logger) error {
	found, err := os.Lstat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return err
	case found.Mode()&os.ModeSocket == 0:
		return fmt.Errorf("%s exists and is not a socket: remove it, or choose another endpoint", path)
	}
	connection, err := net.DialTimeout("unix", path, neighbour)
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		log.Info("replacing a stale socket: no process answers on it", "path", path)
		return nil
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("uid %d cannot find out whether a provider answers on %s: %w; remove the socket if none does, or choose another endpoint", os.Geteuid(), path, err)
	}
	_ = connection.Close()
	return fmt.Errorf("another provider answers on %s; stop it, or choose another endpoint", path)
}
