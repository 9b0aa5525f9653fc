package bridge

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"k8s.io/klog/v2"
)

const (
	unixScheme = "unix://"
	// DefaultEndpoint is where a provider listens unless configured.
	DefaultEndpoint = unixScheme + "/run/cloud-provider/socket/provider.sock"
	// What fits into sockaddr_un on Linux, without its closing zero.
	maxPathBytes = 107
	// How long another process may take to answer on the socket, or to bind it, before it counts as alive.
	neighbour = 5 * time.Second
)

// socketPath is the path of an endpoint.
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

// listener is the bound socket: it accepts only whom it may, and its file goes when it is closed, if it is still ours.
type listener struct {
	*net.UnixListener
	path    string
	ours    os.FileInfo
	peerUID int
}

// listen binds the socket as CORE-2 asks: mode 0660 before its name exists, in a directory that is made with 0750, no symbolic link in the path, a stale socket replaced
// only when nobody answers on it. Providers that start at once take turns by a lock on the directory. peerUID: whom to accept beside ourselves; -1 is everybody that
// the file's mode lets in (CORE-3).
func listen(endpoint string, peerUID int) (*listener, error) {
	path, err := socketPath(endpoint)
	if err != nil {
		return nil, err
	}
	directory := filepath.Dir(path)
	if err := refuseLinks(path); err != nil {
		return nil, err
	}
	if err := makeDirectory(directory); err != nil {
		return nil, err
	}
	unlock, err := lock(directory)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := refuseLiving(path); err != nil {
		return nil, err
	}
	// A private name that is never longer than the socket's own would not be unique: the directory itself is the way to it.
	private := filepath.Join(directory, fmt.Sprintf(".%x", time.Now().UnixNano()))
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
		ours, err := os.Lstat(private)
		if err != nil {
			return nil, err
		}
		// Replaces a stale socket in one step.
		return ours, os.Rename(private, path)
	}()
	if err != nil {
		_ = os.Remove(private)
		return nil, errors.Join(fmt.Errorf("cannot make the socket %s: %w", path, err), socket.Close())
	}
	return &listener{socket, path, ours, peerUID}, nil
}

// Accept waits for the next connection of somebody who may connect.
func (l *listener) Accept() (net.Conn, error) {
	for {
		connection, err := l.AcceptUnix()
		if err != nil {
			return nil, err
		}
		uid, err := peer(connection)
		if err == nil && (l.peerUID < 0 || uid == l.peerUID || uid == os.Geteuid()) {
			return connection, nil
		}
		klog.InfoS("A connection was refused", "uid", uid, "allowed", l.peerUID, "error", err)
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

// Close stops listening and removes the socket's file.
func (l *listener) Close() error {
	if now, err := os.Lstat(l.path); err == nil && os.SameFile(now, l.ours) {
		if err := os.Remove(l.path); err != nil {
			klog.ErrorS(err, "The socket could not be removed", "path", l.path)
		}
	}
	return l.UnixListener.Close()
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

// makeDirectory makes each missing level with mode 0750: one that its group cannot pass would keep the controller from all below it.
func makeDirectory(directory string) error {
	found, err := os.Lstat(directory)
	switch {
	case err == nil && !found.IsDir():
		return fmt.Errorf("cannot use %s as the socket's directory: it is none", directory)
	case err == nil:
		if found.Mode().Perm()&0o007 != 0 {
			klog.InfoS("The socket's directory is open to everybody; it should have mode 0750: name a subdirectory that does not exist yet, and it is made so",
				"directory", directory, "mode", found.Mode().Perm().String())
		}
		return nil
	case !errors.Is(err, os.ErrNotExist):
		return err
	}
	if err := makeDirectory(filepath.Dir(directory)); err != nil {
		return err
	}
	if err := os.Mkdir(directory, 0o750); err != nil {
		if errors.Is(err, os.ErrExist) {
			return nil
		}
		return fmt.Errorf("cannot make the socket's directory: %w", err)
	}
	// The umask may have taken bits away.
	return os.Chmod(directory, 0o750)
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

// refuseLiving tells whether the name is free, or taken by a socket on which nobody answers.
func refuseLiving(path string) error {
	found, err := os.Lstat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return err
	case found.Mode()&os.ModeSocket == 0:
		return fmt.Errorf("%s exists and is not a socket; it was left alone: remove it, or choose another endpoint", path)
	}
	connection, err := net.DialTimeout("unix", path, neighbour)
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		klog.InfoS("A stale socket is replaced: nobody answers on it", "path", path)
		return nil
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err == nil:
		_ = connection.Close()
	}
	return fmt.Errorf("another provider answers on %s; stop it, or choose another endpoint", path)
}
