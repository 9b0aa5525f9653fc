// Package socket is a provider's Unix socket: where it may lie, how it gets its name, whom it accepts (CORE-2, CORE-3).
package socket

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"log"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

const (
	// DefaultEndpoint is where a provider serves unless told.
	DefaultEndpoint = "unix:///run/cloud-provider/socket/provider.sock"
	// The longest path that fits into sockaddr_un on Linux.
	maxPathBytes = 107
)

// Socket is bound under a private name, set right, and renamed: nobody ever reaches it with another mode, and a stale one is replaced in one step.
type Socket struct {
	*net.UnixListener
	path    string
	ours    os.FileInfo
	peerUID int
}

// Listen claims the endpoint. Where peerUID is not negative, only that user and our own may connect.
func Listen(endpoint string, peerUID int) (*Socket, error) {
	path, found := strings.CutPrefix(endpoint, "unix://")
	if !found || !filepath.IsAbs(path) || filepath.Clean(path) != path || strings.ContainsRune(path, 0) {
		return nil, fmt.Errorf("the endpoint %q is not unix:// and the absolute path of a file; right would be %s", endpoint, DefaultEndpoint)
	}
	if len(path) > maxPathBytes {
		return nil, fmt.Errorf("%s has %d bytes; a Unix socket's path has at most %d", path, len(path), maxPathBytes)
	}
	directory := filepath.Dir(path)
	if err := errors.Join(refuseSymlinks(path), makeDirectory(directory)); err != nil {
		return nil, err
	}
	if err := refuseLiving(path); err != nil {
		return nil, err
	}
	private := filepath.Join(directory, "."+rand.Text()[:4])
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: private, Net: "unix"})
	if err != nil {
		return nil, err
	}
	listener.SetUnlinkOnClose(false)
	err = os.Chmod(private, 0o660)
	var ours os.FileInfo
	if err == nil {
		ours, err = os.Lstat(private)
	}
	if err == nil {
		err = os.Rename(private, path)
	}
	if err != nil {
		return nil, errors.Join(err, listener.Close(), os.Remove(private))
	}
	return &Socket{listener, path, ours, peerUID}, nil
}

func refuseSymlinks(path string) error {
	for part := path; part != "/"; part = filepath.Dir(part) {
		if info, err := os.Lstat(part); err == nil && info.Mode()&fs.ModeSymlink != 0 {
			return fmt.Errorf("%s is a symbolic link; give the endpoint by a path without one", part)
		}
	}
	return nil
}

// 0750, whatever the umask, for each level that is made.
func makeDirectory(directory string) error {
	if info, err := os.Lstat(directory); err == nil && info.IsDir() || directory == "/" {
		return nil
	}
	if err := makeDirectory(filepath.Dir(directory)); err != nil {
		return err
	}
	if err := os.Mkdir(directory, 0o750); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return os.Chmod(directory, 0o750)
}

func refuseLiving(path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode()&fs.ModeSocket == 0:
		return fmt.Errorf("%s exists and is not a socket; it was left alone: remove it, or choose another endpoint", path)
	}
	connection, err := net.Dial("unix", path)
	if errors.Is(err, syscall.ECONNREFUSED) {
		return nil // Stale: nobody answers on it.
	}
	if err == nil {
		connection.Close()
	}
	return fmt.Errorf("another provider answers on %s; stop it, or choose another endpoint", path)
}

// Accept gives the next connection of an accepted peer.
func (s *Socket) Accept() (net.Conn, error) {
	for {
		connection, err := s.AcceptUnix()
		if err != nil {
			return nil, err
		}
		uid, err := peerOf(connection)
		if err == nil && (s.peerUID < 0 || uid == s.peerUID || uid == os.Geteuid()) {
			return connection, nil
		}
		log.Printf("a connection of uid %d was refused (%v)", uid, err)
		connection.Close()
	}
}

func peerOf(connection *net.UnixConn) (uid int, err error) {
	raw, err := connection.SyscallConn()
	if err != nil {
		return -1, err
	}
	var credentials *syscall.Ucred
	controlled := raw.Control(func(fd uintptr) {
		credentials, err = syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	})
	if err = errors.Join(err, controlled); err != nil {
		return -1, err
	}
	return int(credentials.Uid), nil
}

// Remove takes the file away, if it is still ours.
func (s *Socket) Remove() {
	if info, err := os.Lstat(s.path); err == nil && os.SameFile(info, s.ours) {
		if err := os.Remove(s.path); err != nil {
			log.Printf("the socket could not be removed: %v", err)
		}
	}
}
