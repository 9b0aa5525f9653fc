package sdk

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/grpc-ccm/grpc-ccm/providers/go/contract"
)

// A program that implements the services itself.
type lower struct {
	contract.UnimplementedProviderServiceServer
	hangs chan struct{}
}

func (l *lower) GetProviderInfo(context.Context, *contract.GetProviderInfoRequest) (*contract.GetProviderInfoResponse, error) {
	panic("a secret")
}

func (l *lower) Probe(ctx context.Context, _ *contract.ProbeRequest) (*contract.ProbeResponse, error) {
	close(l.hangs)
	<-ctx.Done()
	return nil, ctx.Err()
}

// Serve handles the socket, panics, health, Observe and the drain for services that are no Provider.
func TestServeIsTheLayerBelow(t *testing.T) {
	path := filepath.Join(t.TempDir(), "socket", "p.sock")
	ctx, stop := context.WithCancel(t.Context())
	service, closed, ended := &lower{hangs: make(chan struct{})}, make(chan struct{}), make(chan error, 1)
	observed := make(chan Observation, 10)
	go func() {
		ended <- Serve(ctx, func(server grpc.ServiceRegistrar) { contract.RegisterProviderServiceServer(server, service) }, ServeOptions{
			Endpoint: "unix://" + path, Drain: time.Millisecond, Logger: slog.New(slog.DiscardHandler), Closing: func() { close(closed) }, Observe: func(o Observation) { observed <- o },
		})
	}()
	connection, err := grpc.NewClient("unix://"+path, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithAuthority("localhost"),
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true)))
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	provider := contract.NewProviderServiceClient(connection)
	if _, err := provider.GetProviderInfo(t.Context(), &contract.GetProviderInfoRequest{}); status.Convert(err).Message() != "the provider's code panicked in GetProviderInfo; its log says more" {
		t.Error(err)
	}
	if seen := <-observed; nameOf(seen.Method) != "GetProviderInfo" || seen.Outcome != codes.Internal.String() {
		t.Error(seen)
	}
	healthy, err := grpc_health_v1.NewHealthClient(connection).Check(t.Context(), &grpc_health_v1.HealthCheckRequest{Service: "cloudprovider.v1alpha1.ProviderService"})
	if err != nil || healthy.Status != grpc_health_v1.HealthCheckResponse_SERVING {
		t.Error(healthy, err)
	}
	cut := make(chan error, 1)
	go func() {
		_, err := provider.Probe(t.Context(), &contract.ProbeRequest{})
		cut <- err
	}()
	<-service.hangs
	stop()
	<-closed
	if err := <-cut; err == nil {
		t.Error("a call that does not end was answered")
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestHoldsAreOneCallsAtATime(t *testing.T) {
	var holds Holds
	release, free := holds.Take("a")
	if _, again := holds.Take("a"); !free || again {
		t.Error(free, again)
	}
	if _, other := holds.Take("b"); !other {
		t.Error("another object is held")
	}
	release()
	if _, free := holds.Take("a"); !free {
		t.Error("it is held for ever")
	}
}

func TestAnAttemptEndsWithItsMethodOrWithItsBudget(t *testing.T) {
	quiet := slog.New(slog.DiscardHandler)
	attemptWith := func(grace time.Duration, work func(context.Context) (int, error)) (int, error) {
		return Attempt(t.Context(), Budget{time.Now().Add(10 * time.Millisecond), grace}, quiet, "Method", nil, work)
	}
	attempt := func(work func(context.Context) (int, error)) (int, error) { return attemptWith(time.Minute, work) }
	if answer, err := attempt(func(context.Context) (int, error) { return 1, nil }); answer != 1 || err != nil {
		t.Error(answer, err)
	}
	if _, err := attempt(func(context.Context) (int, error) { panic("boom") }); err == nil || err.Error() != "the cloud's method Method panicked: boom" {
		t.Error(err)
	}
	if _, err := attempt(func(ctx context.Context) (int, error) { <-ctx.Done(); return 0, ctx.Err() }); err != context.DeadlineExceeded {
		t.Error(err)
	}
	release := make(chan struct{})
	defer close(release)
	_, err := attemptWith(10*time.Millisecond, func(context.Context) (int, error) { <-release; return 0, nil })
	if overran, ok := err.(*OverrunError); !ok || overran.Method != "Method" {
		t.Error(err)
	}
	// A method that changes nothing, such as a lookup, keeps no other call waiting.
	if err == nil || !strings.HasSuffix(err.Error(), "; if it changes an object, other calls that change the object are answered BUSY until it returns") {
		t.Error(err)
	}
}

// The SDK logs the ID of a call with a panic and with a failure of the provider's code. The caller logs the same ID.
func TestTheLogOfACallHasItsID(t *testing.T) {
	var log bytes.Buffer
	ctx := metadata.NewIncomingContext(t.Context(), metadata.Pairs("ccm-call-id", "0000002a-7"))
	_, err := Attempt(ctx, BudgetOf(ctx), slog.New(slog.NewTextHandler(&log, nil)), "Method", nil, func(context.Context) (int, error) { panic("boom") })
	if err == nil || !strings.Contains(log.String(), "call_id=0000002a-7") {
		t.Error(err, log.String())
	}
	// The log has the text of an error that is no Failure.
	log.Reset()
	s := &session{log: slog.New(slog.NewTextHandler(&log, nil))}
	s.failed(ctx, "LookupInstances", "node-1", errors.New("the text"))
	if !strings.Contains(log.String(), "the text") || !strings.Contains(log.String(), "call_id=0000002a-7") {
		t.Error(log.String())
	}
}

// The log lines about hints, and about what the SDK leaves out of an answer, have the ID of the call too.
func TestTheLogOfWhatIsLeftOutHasTheIDOfItsCall(t *testing.T) {
	var log lines
	s := serveScripted(t, zonedCloud{scriptedCloud{lookup: func(context.Context, Node) (Instance, error) {
		return Instance{State: InstanceRunning, ProviderID: "s://1", Type: "a type!", Labels: map[string]string{"bad": noUTF8}, Addresses: []NodeAddress{{AddressType(99), "x"}}}, nil
	}, watch: func(_ context.Context, hints *Hints) error {
		return errors.Join(hints.Send(Change{Instance: &InstanceChange{NodeName: noUTF8}}, "1"), hints.Bookmark(noUTF8))
	}}}, func(server *Server) { server.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
	ctx := metadata.AppendToOutgoingContext(t.Context(), "ccm-call-id", "0000002a-7")
	s.lookUp(ctx, &contract.NodeView{Name: "a"})
	if _, err := contract.NewZoneServiceClient(s.connection).LookupZones(ctx, &contract.LookupZonesRequest{Cluster: us, Nodes: []*contract.NodeView{{Name: "a"}}}); err != nil {
		t.Error(err)
	}
	stream, err := contract.NewProviderServiceClient(s.connection).WatchChanges(ctx, &contract.WatchChangesRequest{Cluster: us})
	if err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = stream.Recv()
	}
	for _, text := range []string{"instance=s://1 fact=type", "a label of an instance", "no known type", "node=a fact=zone", "a hint becomes a resync", "a resume token is left out"} {
		if !slices.ContainsFunc(log.all(), func(line string) bool {
			return strings.Contains(line, text) && strings.Contains(line, "call_id=0000002a-7")
		}) {
			t.Errorf("%s: %q", text, log.all())
		}
	}
}

// lines collects the lines of a log.
type lines struct {
	mutex sync.Mutex
	text  bytes.Buffer
}

func (l *lines) Write(text []byte) (int, error) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return l.text.Write(text)
}

func (l *lines) all() []string {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return strings.Split(l.text.String(), "\n")
}

// A method that has returned does not count as an overrun, even if its caller gets CPU time late.
func TestAMethodThatHasReturnedIsNotTakenForOneThatOverruns(t *testing.T) {
	for range 20_000 {
		work := func(context.Context) (int, error) { return 7, nil }
		answer, err := Attempt(t.Context(), Budget{time.Now().Add(time.Hour), 0}, slog.New(slog.DiscardHandler), "Method", nil, work)
		if answer != 7 || err != nil {
			t.Fatal(answer, err)
		}
	}
}

// CORE-9: the provider adds no deadline.
func TestACallWithoutADeadlineGetsNone(t *testing.T) {
	if budget := BudgetOf(t.Context()); time.Until(budget.Stop) < 365*24*time.Hour {
		t.Error(budget)
	}
	ctx, cancel := context.WithCancel(t.Context())
	began, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		_, err := Attempt(ctx, Budget{BudgetOf(ctx).Stop, time.Minute}, slog.New(slog.DiscardHandler), "Method", nil, func(ctx context.Context) (int, error) {
			close(began)
			<-ctx.Done()
			return 0, ctx.Err()
		})
		ended <- err
	}()
	<-began
	cancel()
	if err := <-ended; err != context.Canceled {
		t.Error(err)
	}
	ctx, stop := context.WithTimeout(t.Context(), time.Hour)
	defer stop()
	if left := time.Until(BudgetOf(ctx).Stop); left > 43*time.Minute || left < 41*time.Minute {
		t.Error(left)
	}
}
