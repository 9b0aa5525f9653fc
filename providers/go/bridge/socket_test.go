package bridge

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/grpc-ccm/grpc-ccm/providers/go/contract"
)

func TestABadEndpointIsNamedWithWhatIsRight(t *testing.T) {
	for endpoint, what := range map[string]string{
		"tcp://127.0.0.1:1": "does not begin with unix://",
		"unix-abstract:x":   "does not begin with unix://",
		"unix://run/x.sock": "no absolute path",
		"unix:///x.sock":    "directory of its own",
		"unix:///run/x/":    "directory of its own",
		"unix:///run/../x":  "directory of its own",
		"unix:///run/" + strings.Repeat("x", 120) + "/s": "107",
	} {
		_, err := socketPath(endpoint)
		if err == nil || !strings.Contains(err.Error(), what) || !strings.Contains(err.Error(), endpoint) || !strings.Contains(err.Error(), DefaultEndpoint) {
			t.Errorf("%s: %v", endpoint, err)
		}
	}
}

func TestTheSocketIsOnlyForItsGroupAndTakesNobodysPlace(t *testing.T) {
	root, err := os.MkdirTemp("", "socket")
	must(t, err)
	defer func() { _ = os.RemoveAll(root) }()
	path := filepath.Join(root, "deep", "own", "provider.sock")
	bound, err := listen(unixScheme+path, -1)
	must(t, err)
	for name, mode := range map[string]os.FileMode{path: 0o660, filepath.Dir(path): 0o750, filepath.Join(root, "deep"): 0o750} {
		if found, err := os.Lstat(name); err != nil || found.Mode().Perm() != mode {
			t.Errorf("%s: %v %v", name, found.Mode(), err)
		}
	}
	if _, err := listen(unixScheme+path, -1); err == nil || !strings.Contains(err.Error(), "another provider answers") {
		t.Errorf("a socket on which somebody answers: %v", err)
	}
	// A process that was killed leaves its socket behind.
	must(t, bound.UnixListener.Close())
	next, err := listen(unixScheme+path, -1)
	must(t, err)
	must(t, next.Close())
	if _, err := os.Lstat(path); !os.IsNotExist(err) {
		t.Errorf("the socket is left behind: %v", err)
	}
	must(t, os.WriteFile(path, []byte("mine"), 0o600))
	if _, err := listen(unixScheme+path, -1); err == nil || !strings.Contains(err.Error(), "not a socket") {
		t.Errorf("a file in its place: %v", err)
	}
	must(t, os.Symlink(filepath.Join(root, "deep"), filepath.Join(root, "link")))
	if _, err := listen(unixScheme+filepath.Join(root, "link", "own", "s.sock"), -1); err == nil || !strings.Contains(err.Error(), "symbolic link") {
		t.Errorf("a link in its path: %v", err)
	}
	left, err := os.ReadDir(filepath.Dir(path))
	must(t, err)
	if len(left) != 1 {
		t.Errorf("left behind: %v", left)
	}
}

func TestOnlyTheConfiguredUserAndOurselvesMayConnect(t *testing.T) {
	root, err := os.MkdirTemp("", "socket")
	must(t, err)
	defer func() { _ = os.RemoveAll(root) }()
	path := filepath.Join(root, "own", "provider.sock")
	bound, err := listen(unixScheme+path, os.Geteuid()+1)
	must(t, err)
	defer func() { _ = bound.Close() }()
	go func() { _, _ = net.Dial("unix", path) }()
	connection, err := bound.Accept()
	must(t, err)
	if uid, err := peer(connection.(*net.UnixConn)); err != nil || uid != os.Geteuid() {
		t.Errorf("the peer is %d: %v", uid, err)
	}
}

func TestACallInFlightFinishesWhenTheProviderShutsDown(t *testing.T) {
	began, release := make(chan struct{}), make(chan struct{})
	cloud := &scripted{ensure: func(context.Context, *v1.Service, []*v1.Node) (*v1.LoadBalancerStatus, error) {
		close(began)
		<-release
		return ready("203.0.113.1"), nil
	}}
	bridge := initialised(t, cloud, Options{})
	answers := make(chan *contract.EnsureLoadBalancerResponse, 1)
	go func() { answers <- bridge.ensure(patience, service("a")) }()
	<-began
	bridge.stop()
	eventually(t, "nobody else can connect", func() bool {
		_, err := os.Lstat(bridge.path)
		return os.IsNotExist(err)
	})
	close(release)
	if answer := <-answers; answer.GetReady() == nil {
		t.Errorf("%v", answer)
	}
	must(t, <-bridge.ended)
}

func TestACallThatDoesNotEndIsCutAtTheEndOfTheDrain(t *testing.T) {
	began := make(chan struct{})
	cloud := &scripted{tagged: true, ensure: func(ctx context.Context, _ *v1.Service, _ []*v1.Node) (*v1.LoadBalancerStatus, error) {
		close(began)
		<-ctx.Done()
		return nil, ctx.Err()
	}}
	bridge := initialised(t, cloud, Options{})
	failed := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
		defer cancel()
		_, err := bridge.balancers.EnsureLoadBalancer(ctx, &contract.EnsureLoadBalancerRequest{Cluster: cluster(), Service: service("a"), Targets: targets()})
		failed <- err
	}()
	<-began
	bridge.stop()
	select {
	case err := <-bridge.ended:
		must(t, err)
	case <-time.After(2 * patience):
		t.Fatal("it serves for ever")
	}
	if err := <-failed; err == nil {
		t.Error("the call was answered")
	}
}
