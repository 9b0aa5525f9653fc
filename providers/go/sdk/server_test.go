package sdk

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/grpc-ccm/grpc-ccm/providers/go/contract"
)

// A cloud whose methods a test writes.
type scriptedCloud struct {
	lookup func(context.Context, Node) (Instance, error)
	ensure func(context.Context, EnsureLoadBalancer) (LoadBalancerStatus, error)
	watch  func(context.Context, *Hints) error
}

func (scriptedCloud) Info() Info {
	return Info{Name: "scripted", Version: "1", ProviderIDPrefixes: []string{"s://"}, Without: []ServiceName{ServiceRoutes},
		LoadBalancers: LoadBalancerOptions{TargetProjection: NodeProjection{LabelKeys: []string{"rack"}, Fields: []NodeField{FieldTaints}}}}
}

func (scriptedCloud) Initialize(context.Context, *Call, InitializeRequest) (Initialized, error) {
	return Initialized{CloudScope: "here"}, nil
}

func (c scriptedCloud) LookupInstance(ctx context.Context, _ *Call, node Node, _ InstanceQuery) (Instance, error) {
	return c.lookup(ctx, node)
}

func (scriptedCloud) GetLoadBalancer(context.Context, *Call, GetLoadBalancer) (LoadBalancer, error) {
	return LoadBalancer{}, nil
}

func (c scriptedCloud) EnsureLoadBalancer(ctx context.Context, _ *Call, request EnsureLoadBalancer) (LoadBalancerStatus, error) {
	return c.ensure(ctx, request)
}

func (scriptedCloud) UpdateLoadBalancer(context.Context, *Call, UpdateLoadBalancer) error { return nil }

func (scriptedCloud) DeleteLoadBalancer(context.Context, *Call, DeleteLoadBalancer) error {
	return Retained("kept")
}

func (scriptedCloud) ListRoutes(context.Context, *Call) ([]Route, error) { return nil, nil }
func (scriptedCloud) CreateRoute(context.Context, *Call, Route) error    { return nil }
func (scriptedCloud) DeleteRoute(context.Context, *Call, Route) error    { return nil }
func (c scriptedCloud) WatchChanges(ctx context.Context, _ *Call, _ string, hints *Hints) error {
	return c.watch(ctx, hints)
}

type served struct {
	*testing.T
	connection *grpc.ClientConn
	path       string
	stop       context.CancelFunc
	ended      chan error
	seen       func() []Observation
}

// shortDeadline is that of calls whose methods hang. The SDK answers them before 80 % of it is over
// (CORE-9), and a slow machine needs some of the rest. Tests that wait for it run in parallel.
const shortDeadline = 20 * time.Second

var us = &contract.ClusterRef{Name: "test", OwnerId: "us"}

func serveScripted(t *testing.T, cloud Provider, changes ...func(*Server)) *served {
	t.Helper()
	s := &served{T: t, path: filepath.Join(t.TempDir(), "socket", "p.sock"), ended: make(chan error, 1)}
	ctx, stop := context.WithCancel(context.Background())
	s.stop = stop
	var mutex sync.Mutex
	var observed []Observation
	s.seen = func() []Observation {
		mutex.Lock()
		defer mutex.Unlock()
		return slices.Clone(observed)
	}
	server := Server{Provider: cloud, Endpoint: "unix://" + s.path, Logger: slog.New(slog.DiscardHandler), Observe: func(o Observation) {
		mutex.Lock()
		defer mutex.Unlock()
		observed = append(observed, o)
	}}
	for _, change := range changes {
		change(&server)
	}
	go func() { s.ended <- server.Serve(ctx) }()
	connection, err := grpc.NewClient("unix://"+s.path, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithAuthority("localhost"),
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true)))
	if err != nil {
		t.Fatal(err)
	}
	s.connection = connection
	t.Cleanup(func() {
		stop()
		connection.Close()
		if err := <-s.ended; err != nil {
			t.Error(err)
		}
	})
	if _, err := contract.NewProviderServiceClient(connection).Initialize(t.Context(), &contract.InitializeRequest{Cluster: us}); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *served) lookUp(ctx context.Context, nodes ...*contract.NodeView) []string {
	s.Helper()
	response, err := contract.NewInstanceServiceClient(s.connection).LookupInstances(ctx, &contract.LookupInstancesRequest{Cluster: us, Nodes: nodes})
	if err != nil {
		s.Fatal(err)
	}
	if response.Failed != nil {
		s.Fatal(response.Failed)
	}
	said := []string{}
	for _, result := range response.Results {
		if failed := result.GetFailed(); failed != nil {
			said = append(said, Code(failed.Code).String()+" "+failed.Message)
		} else {
			said = append(said, strings.TrimPrefix(result.GetFound().State.String(), "INSTANCE_STATE_"))
		}
	}
	return said
}

func (s *served) ensure(ctx context.Context, uid string) (*contract.EnsureLoadBalancerResponse, error) {
	request := &contract.EnsureLoadBalancerRequest{Cluster: us, Service: &contract.ServiceView{Namespace: "n", Name: "s", Uid: uid}}
	return contract.NewLoadBalancerServiceClient(s.connection).EnsureLoadBalancer(ctx, request)
}

func TestWhatIsImplementedIsOfferedUnlessItIsLeftOut(t *testing.T) {
	s := serveScripted(t, scriptedCloud{})
	info, err := contract.NewProviderServiceClient(s.connection).GetProviderInfo(t.Context(), &contract.GetProviderInfoRequest{})
	if err != nil {
		t.Fatal(err)
	}
	offered := info.Capabilities
	if offered.Instances == nil || offered.Instances.Listing || offered.LoadBalancers == nil || offered.Changes == nil || offered.Routes != nil || offered.Zones != nil || offered.Volumes != nil {
		t.Errorf("%v", offered)
	}
	if targets := offered.LoadBalancers.TargetProjection; !slices.Equal(targets.GetLabelKeys(), []string{"rack"}) || !slices.Equal(targets.GetFieldGroups(), []contract.NodeFieldGroup{contract.NodeFieldGroup_NODE_FIELD_GROUP_TAINTS}) {
		t.Errorf("%v", targets)
	}
	if info.NodeProjection == nil || len(info.NodeProjection.FieldGroups) > 0 {
		t.Errorf("%v", info.NodeProjection)
	}
}

func TestOneNodesTroubleIsItsOwnAndForeignIDsAreNotAsked(t *testing.T) {
	t.Parallel()
	s := serveScripted(t, scriptedCloud{lookup: func(ctx context.Context, node Node) (Instance, error) {
		switch node.Name {
		case "panics":
			panic("a secret")
		case "fails":
			return Instance{}, fmt.Errorf("a secret")
		case "wraps":
			return Instance{}, fmt.Errorf("asking for %s: %w", node.Name, Credentials("the token is refused"))
		case "alien":
			return Instance{State: InstanceRunning, ProviderID: "other://x"}, nil
		case "hangs":
			select {}
		case "foreign":
			t.Error("asked about a Node with another cloud's provider ID")
		}
		return Instance{State: InstanceRunning, ProviderID: "s://" + node.Name}, nil
	}})
	foreign := "other://1"
	nodes := []*contract.NodeView{{Name: "works"}, {Name: "panics"}, {Name: "fails"}, {Name: "wraps"}, {Name: "alien"}, {Name: "foreign", ProviderId: &foreign}, {Name: "hangs"}}
	ctx, stop := context.WithTimeout(t.Context(), shortDeadline)
	defer stop()
	said := s.lookUp(ctx, nodes...)
	for i, expected := range []string{
		"RUNNING", "INTERNAL the provider's code panicked", "INTERNAL a fault of the provider", "CREDENTIALS asking for wraps: the token is refused", "INTERNAL the provider's answer breaks",
		"UNMANAGED", "UNAVAILABLE the cloud has not answered",
	} {
		if !strings.HasPrefix(said[i], expected) || strings.Contains(said[i], "secret") {
			t.Errorf("%s: %q; expected %q", nodes[i].Name, said[i], expected)
		}
	}
}

// A method that ignores its context: the answer to its call is pending, with the known handle. Its Service is BUSY until it has really ended.
func TestALateEnsureIsPendingKeepsItsHandleAndItsObject(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	s := serveScripted(t, scriptedCloud{ensure: func(ctx context.Context, request EnsureLoadBalancer) (LoadBalancerStatus, error) {
		request.Notes.Handle("lb-1")
		<-release
		return LoadBalancerStatus{}, BeforeWrite(ctx)
	}})
	ctx, stop := context.WithTimeout(t.Context(), shortDeadline)
	defer stop()
	late, err := s.ensure(ctx, "one")
	if err != nil || late.GetPending() == nil || late.GetHandle() != "lb-1" {
		t.Fatalf("%v %v", late, err)
	}
	busy, err := s.ensure(t.Context(), "one")
	if err != nil || busy.GetFailed().GetCode() != contract.FailureCode_FAILURE_CODE_BUSY {
		t.Fatalf("%v %v", busy, err)
	}
	close(release)
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		again, err := s.ensure(t.Context(), "one")
		if err != nil || time.Now().After(deadline) {
			t.Fatalf("%v %v", again, err)
		}
		if again.GetFailed().GetCode() != contract.FailureCode_FAILURE_CODE_BUSY {
			break
		}
	}
	if !slices.ContainsFunc(s.seen(), func(o Observation) bool { return nameOf(o.Method) == "EnsureLoadBalancer" && o.Outcome == "PENDING" }) {
		t.Errorf("not observed: %v", s.seen())
	}
}

func TestACallThatIsCancelledIsAStatusAndMayWriteNothing(t *testing.T) {
	began, told := make(chan struct{}), make(chan error, 1)
	s := serveScripted(t, scriptedCloud{ensure: func(ctx context.Context, _ EnsureLoadBalancer) (LoadBalancerStatus, error) {
		close(began)
		<-ctx.Done()
		told <- BeforeWrite(ctx)
		return LoadBalancerStatus{}, ctx.Err()
	}})
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-began; cancel() }()
	if _, err := s.ensure(ctx, "one"); status.Code(err) != codes.Canceled {
		t.Error(err)
	}
	if err := <-told; err == nil {
		t.Error("a write was allowed")
	}
}

func TestReadyWithoutAnAddressIsAFault(t *testing.T) {
	s := serveScripted(t, scriptedCloud{ensure: func(context.Context, EnsureLoadBalancer) (LoadBalancerStatus, error) {
		return LoadBalancerStatus{}, nil
	}})
	said, err := s.ensure(t.Context(), "one")
	if err != nil || !strings.Contains(said.GetFailed().GetMessage(), "LB-19") {
		t.Errorf("%v %v", said, err)
	}
	deleted, err := contract.NewLoadBalancerServiceClient(s.connection).DeleteLoadBalancer(t.Context(), &contract.DeleteLoadBalancerRequest{Cluster: us, Service: &contract.ServiceView{Name: "s", Uid: "u"}})
	if err != nil || deleted.GetRetained().GetReason() != "kept" {
		t.Errorf("%v %v", deleted, err)
	}
}

// At the end streams of hints end with status OK. A stream of health, which its client would keep for ever, ends too. A call in flight may finish.
func TestTheEndDrains(t *testing.T) {
	began, release := make(chan struct{}), make(chan struct{})
	s := serveScripted(t, scriptedCloud{
		lookup: func(context.Context, Node) (Instance, error) {
			close(began)
			<-release
			return Instance{State: InstanceAbsent}, nil
		},
		watch: func(ctx context.Context, hints *Hints) error {
			if err := hints.Send(Change{Routes: true}, "1"); err != nil {
				return err
			}
			<-ctx.Done()
			return nil
		},
	})
	hints, err := contract.NewProviderServiceClient(s.connection).WatchChanges(t.Context(), &contract.WatchChangesRequest{Cluster: us})
	if err == nil {
		_, err = hints.Recv()
	}
	watching, err2 := grpc_health_v1.NewHealthClient(s.connection).Watch(t.Context(), &grpc_health_v1.HealthCheckRequest{})
	if err2 == nil {
		_, err2 = watching.Recv()
	}
	if err != nil || err2 != nil {
		t.Fatal(err, err2)
	}
	answered := make(chan []string, 1)
	go func() { answered <- s.lookUp(t.Context(), &contract.NodeView{Name: "a"}) }()
	<-began
	s.stop()
	if _, err := hints.Recv(); err != io.EOF {
		t.Error(err)
	}
	for err = nil; err == nil; {
		_, err = watching.Recv()
	}
	if err != io.EOF {
		t.Error(err)
	}
	close(release)
	if said := <-answered; !slices.Equal(said, []string{"ABSENT"}) {
		t.Error(said)
	}
	if err := <-s.ended; err != nil {
		t.Error(err)
	}
	s.ended <- nil
	if _, err := os.Lstat(s.path); !os.IsNotExist(err) {
		t.Error(err)
	}
}

func TestAFeedResumesAndAnUnknownTokenIsAResync(t *testing.T) {
	feed := NewFeed(2)
	changes := func(token string) (said []string) {
		number := feed.number(token)
		list, tokenOf, _ := feed.after(&number)
		for i, change := range list {
			said = append(said, fmt.Sprint(change.Resync, strings.TrimPrefix(tokenOf(i), feed.id)))
		}
		return said
	}
	for range 3 {
		feed.Add(Change{Routes: true})
	}
	for token, expected := range map[string][]string{
		"": nil, feed.id + "/1": {"false/2", "false/3"}, feed.id + "/2": {"false/3"}, feed.id + "/3": nil, feed.id + "/0": {"true/3"}, feed.id + "/4": {"true/3"}, "x/1": {"true/3"},
		feed.id + "/-1": {"true/3"},
	} {
		if said := changes(token); !slices.Equal(said, expected) {
			t.Errorf("%q: %v; expected %v", token, said, expected)
		}
	}
}

func TestAStreamBeginsWithABookmarkOrAResync(t *testing.T) {
	feed := NewFeed(1)
	s := serveScripted(t, scriptedCloud{watch: func(ctx context.Context, hints *Hints) error { return feed.Watch(ctx, "", hints) }})
	provider := contract.NewProviderServiceClient(s.connection)
	stream, err := provider.WatchChanges(t.Context(), &contract.WatchChangesRequest{Cluster: us})
	if err != nil {
		t.Fatal(err)
	}
	first, err := stream.Recv()
	if err != nil || first.Change != nil || first.ResumeToken != feed.id+"/0" {
		t.Errorf("%v %v", first, err)
	}
	feed.Add(Change{Routes: true})
	feed.Add(Change{Instance: &InstanceChange{NodeName: "a"}})
	for token, expected := range map[string][]string{
		"": {"bookmark/2"}, feed.id + "/1": {"bookmark/1", "instance/2"}, feed.id + "/0": {"resync/2"}, "unknown": {"resync/2"},
	} {
		ctx, stop := context.WithCancel(t.Context())
		hints := &Hints{ctx, slog.New(slog.DiscardHandler), make(chan *contract.WatchChangesResponse, waitingHints)}
		ended := make(chan error, 1)
		go func() { ended <- feed.Watch(ctx, token, hints) }()
		for _, one := range expected {
			hint := <-hints.sent
			said := "bookmark"
			switch {
			case hint.GetResync() != nil:
				said = "resync"
			case hint.GetInstance() != nil:
				said = "instance"
			}
			if said += strings.TrimPrefix(hint.ResumeToken, feed.id); said != one {
				t.Errorf("%q: %s; expected %s", token, said, one)
			}
		}
		stop()
		if err := <-ended; err != nil || len(hints.sent) > 0 {
			t.Errorf("%q: %v, and %d more", token, err, len(hints.sent))
		}
	}
}

func TestAWrongServerSaysWhatIsWrong(t *testing.T) {
	for words, server := range map[string]Server{
		"no Provider":                {},
		"lower-case letters":         {Provider: named{Info{Name: "My Cloud"}}},
		"without a prefix":           {Provider: named{Info{Name: "mycloud", Version: "1"}}},
		"is empty":                   {Provider: named{Info{Name: "mycloud", Version: "1", ProviderIDPrefixes: []string{""}}}},
		"is longer than 253 bytes":   {Provider: named{Info{Name: "mycloud", Version: "1", ProviderIDPrefixes: []string{strings.Repeat("m", 251) + "://"}}}},
		"does not contain ://":       {Provider: named{Info{Name: "mycloud", Version: "1", ProviderIDPrefixes: []string{"mycloud:"}}}},
		"characters other than":      {Provider: named{Info{Name: "mycloud", Version: "1", ProviderIDPrefixes: []string{"my cloud://"}}}},
		"which does not exist":       {Provider: named{Info{Name: "mycloud", Version: "1", ProviderIDPrefixes: []string{"m://"}, Without: []ServiceName{"x"}}}},
		"is not UTF-8":               {Provider: named{Info{Name: "mycloud", Version: noUTF8, ProviderIDPrefixes: []string{"m://"}}}},
		"Classes is empty":           {Provider: named{Info{Name: "mycloud", Version: "1", ProviderIDPrefixes: []string{"m://"}, LoadBalancers: LoadBalancerOptions{OnlyClasses: true}}}},
		"more than 64":               {Provider: classes(slices.Repeat([]string{"m/lb"}, 65)...)},
		"Services without a class":   {Provider: classes("default")},
		"class \"mmm":                {Provider: classes(strings.Repeat("m", 254))},
		"class \"m lb\"":             {Provider: classes("m lb")},
		"class \"\"":                 {Provider: classes("")},
		"is there twice":             {Provider: classes("m/lb", "m/lb")},
		"right would be unix:///run": {Provider: named{Info{Name: "mycloud", Version: "1", ProviderIDPrefixes: []string{"m://"}}}, Endpoint: "p.sock"},
	} {
		if err := server.Serve(t.Context()); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%s: %v", words, err)
		}
	}
}

func TestAnInfoThatTheContractForbidsNamesItsFieldAtTheStart(t *testing.T) { // PROV-8
	good := Info{Name: "mycloud", Version: "1.2.3", ProviderIDPrefixes: []string{"mycloud://", "mycloud://a/"}}
	versionless, twice, withoutAll := good, good, good
	versionless.Version = ""
	twice.ProviderIDPrefixes = []string{"mycloud://", "other://", "mycloud://"}
	withoutAll.Without = []ServiceName{ServiceInstances}
	for _, row := range []struct {
		provider Provider
		words    []string
	}{
		{named{versionless}, []string{"Version", `""`, `"1.2.3"`}},
		{named{twice}, []string{"ProviderIDPrefixes", `"mycloud://"`, "is there twice", "right would be"}},
		{named{withoutAll}, []string{"no service", "sdk.named", `["instances"]`, "right would be"}},
		{struct{ Provider }{named{good}}, []string{"no service", "Without: []", "right would be"}},
	} {
		_, err := (&Server{Provider: row.provider}).session()
		for _, word := range row.words {
			if err == nil || !strings.Contains(err.Error(), word) {
				t.Errorf("%s: %v", word, err)
			}
		}
	}
	if _, err := (&Server{Provider: named{good}}).session(); err != nil {
		t.Error(err)
	}
}

func classes(classes ...string) Provider {
	return named{Info{Name: "mycloud", Version: "1", ProviderIDPrefixes: []string{"m://"}, LoadBalancers: LoadBalancerOptions{Classes: classes}}}
}

type named struct{ info Info }

func (n named) Info() Info { return n.info }
func (named) Initialize(context.Context, *Call, InitializeRequest) (Initialized, error) {
	return Initialized{}, nil
}
func (named) LookupInstance(context.Context, *Call, Node, InstanceQuery) (Instance, error) {
	return Instance{}, nil
}

func TestOnlyTheConfiguredUserAndOurselvesMayConnect(t *testing.T) {
	path := filepath.Join(t.TempDir(), "deep", "own", "p.sock")
	other := os.Geteuid() + 1
	bound, err := listen("unix://"+path, &other, nil, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = bound.Close() }()
	for _, directory := range []string{filepath.Dir(path), filepath.Dir(filepath.Dir(path))} {
		if info, err := os.Stat(directory); err != nil || info.Mode().Perm() != 0o750 {
			t.Errorf("%s: %v %v", directory, info, err)
		}
	}
	go func() { _, _ = net.Dial("unix", path) }()
	connection, err := bound.Accept()
	if err != nil {
		t.Fatal(err)
	}
	if uid, err := peer(connection.(*net.UnixConn)); err != nil || uid != os.Geteuid() {
		t.Errorf("the peer is %d: %v", uid, err)
	}
}

func TestTheSocketIsGuardedAndALivingOneIsLeftAlone(t *testing.T) {
	s := serveScripted(t, scriptedCloud{})
	directory := filepath.Dir(s.path)
	for path, mode := range map[string]os.FileMode{s.path: 0o660, directory: 0o750} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s: %v %v", path, info, err)
		}
	}
	quiet := slog.New(slog.DiscardHandler)
	refused := func(endpoint, why string) {
		t.Helper()
		if _, err := listen(endpoint, nil, nil, quiet); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%s: %v", endpoint, err)
		}
	}
	refused("unix://"+s.path, "another provider answers")
	link := filepath.Join(filepath.Dir(directory), "link")
	if err := os.Symlink(directory, link); err != nil {
		t.Fatal(err)
	}
	refused("unix://"+link+"/p.sock", "symbolic link")
	if err := os.WriteFile(directory+"/file", nil, 0o644); err != nil {
		t.Fatal(err)
	}
	refused("unix://"+directory+"/file", "not a socket")
	for _, endpoint := range []string{"unix:p.sock", "unix-abstract:x", "unix:///a/../b", "unix:///a/", "unix:///p.sock"} {
		refused(endpoint, "right would be")
	}
	refused("unix:///"+strings.Repeat("x", 120), "more than the 107")
	// The server takes over a stale socket.
	stale, err := net.ListenUnix("unix", &net.UnixAddr{Name: directory + "/stale", Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	stale.SetUnlinkOnClose(false)
	stale.Close()
	own := os.Geteuid()
	taken, err := listen("unix://"+directory+"/stale", &own, nil, quiet)
	if err != nil {
		t.Fatal(err)
	}
	taken.Close()
	taken.remove()
	if left, err := filepath.Glob(directory + "/.*"); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
}

// CORE-2: it may be that a process listens on a socket to which nobody can connect now. So the start is refused, and the error does not claim more than was found.
func TestASocketThatCannotBeTriedIsRefusedWithWhatWasFound(t *testing.T) {
	directory := t.TempDir()
	at := func(name string) *net.UnixAddr {
		return &net.UnixAddr{Name: filepath.Join(directory, name), Net: "unix"}
	}
	closed, err := net.ListenUnix("unix", at("closed"))
	if err != nil {
		t.Fatal(err)
	}
	defer closed.Close()
	datagrams, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(directory, "datagrams"), Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer datagrams.Close()
	for _, one := range []struct {
		path string
		mode os.FileMode
	}{{filepath.Dir(directory), 0o755}, {directory, 0o755}, {filepath.Join(directory, "closed"), 0}} {
		if err := os.Chmod(one.path, one.mode); err != nil {
			t.Fatal(err)
		}
	}
	for name, found := range map[string]error{"closed": syscall.EACCES, "datagrams": syscall.EPROTOTYPE} {
		refused := make(chan error)
		go func() {
			// root may connect to every socket. Setfsuid changes the user of this thread, which ends with the goroutine.
			runtime.LockOSThread()
			if os.Geteuid() == 0 && name == "closed" {
				if err := syscall.Setfsuid(65534); err != nil {
					t.Error(err)
				}
			}
			refused <- refuseLiving(at(name).Name, slog.New(slog.DiscardHandler))
		}()
		err := <-refused
		if !errors.Is(err, found) || !strings.Contains(err.Error(), at(name).Name) || !strings.Contains(err.Error(), "remove the socket if none does") {
			t.Errorf("%s: %v; expected %v", name, err, found)
		}
	}
}
