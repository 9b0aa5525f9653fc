package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/stats"

	"github.com/grpc-ccm/grpc-ccm/providers/go/contract"
	"github.com/grpc-ccm/grpc-ccm/providers/go/sdk"
)

// Tests over a real socket: a provider, and a test client in place of the controller.

var (
	us   = &contract.ClusterRef{Name: "test", OwnerId: "us"}
	them = &contract.ClusterRef{Name: "other", OwnerId: "them"}
)

type harness struct {
	*testing.T
	ctx       context.Context
	state     string
	endpoint  string
	provider  *Provider
	stop      func()
	served    chan error
	sent      sync.Map
	info      contract.ProviderServiceClient
	instances contract.InstanceServiceClient
	zones     contract.ZoneServiceClient
	balancers contract.LoadBalancerServiceClient
	routes    contract.RouteServiceClient
	clusters  contract.ClusterServiceClient
	volumes   contract.VolumeServiceClient
}

func instance(name, power string) map[string]any {
	return map[string]any{
		"id": name, "name": name, "provider_id": "mock://zone-a/" + name, "type": "mock.large", "zone": "zone-a", "region": "region-1",
		"addresses": []map[string]string{{"InternalIP": "10.0.0.1"}, {"Hostname": name}}, "power": power,
	}
}

// Serves a cloud with the instances a, b and c.
func serve(t *testing.T) *harness {
	t.Parallel()
	directory := t.TempDir()
	h := &harness{T: t, ctx: t.Context(), state: directory + "/cloud.json", endpoint: "unix://" + directory + "/socket/p.sock", served: make(chan error, 1)}
	h.write("", map[string]any{
		"format": 1, "now_ms": 0, "saved_at_unix_ms": 0, "last_number": 0, "load_balancers": []any{}, "routes": []any{},
		"instances": []any{instance("a", "running"), instance("b", "running"), instance("c", "running")},
	})
	h.write(".catalogue.json", map[string]any{
		"clusters": map[string]any{"test": "192.0.2.77"},
		"volumes":  map[string]any{"disk-1": map[string]any{"topology.kubernetes.io/zone": "zone-a"}},
	})
	cloud, err := Open(h.state)
	h.check(err)
	h.provider = NewProvider(cloud, Settings{
		Name: "mock", Prefix: "mock://", CloudScope: "here", Pools: []string{"192.0.2.0/24", "2001:db8::/112"}, SourceTypes: []string{"csi/disk.mock.grpc-ccm.io"},
	})
	ctx, stop := context.WithCancel(context.Background())
	h.stop = stop
	go func() { h.served <- (&sdk.Server{Provider: h.provider, Endpoint: h.endpoint}).Serve(ctx) }()
	connection, err := grpc.NewClient(h.endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithAuthority("localhost"),
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true)), grpc.WithStatsHandler(h))
	h.check(err)
	t.Cleanup(func() {
		stop()
		connection.Close()
		if err := <-h.served; err != nil {
			t.Error(err)
		}
	})
	h.info, h.instances, h.zones = contract.NewProviderServiceClient(connection), contract.NewInstanceServiceClient(connection), contract.NewZoneServiceClient(connection)
	h.balancers, h.routes = contract.NewLoadBalancerServiceClient(connection), contract.NewRouteServiceClient(connection)
	h.clusters, h.volumes = contract.NewClusterServiceClient(connection), contract.NewVolumeServiceClient(connection)
	return h
}

// The harness sees its client's requests.
func (h *harness) TagRPC(ctx context.Context, info *stats.RPCTagInfo) context.Context {
	return context.WithValue(ctx, h, info.FullMethodName)
}

func (h *harness) HandleRPC(ctx context.Context, event stats.RPCStats) {
	if _, ok := event.(*stats.OutPayload); ok {
		h.sent.Store(filepath.Base(ctx.Value(h).(string)), true)
	}
}

func (h *harness) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

func (h *harness) HandleConn(context.Context, stats.ConnStats) {}

// Waits until a call has arrived: until it was sent, and a Probe that was sent after it on the same connection is answered.
func (h *harness) arrived(rpc string) {
	h.Helper()
	h.eventually(func() bool { _, sent := h.sent.Load(rpc); return sent })
	_, err := h.info.Probe(h.ctx, &contract.ProbeRequest{})
	h.check(err)
}

// Does what serve does, and initialises the provider.
func serveInitialized(t *testing.T) *harness {
	h := serve(t)
	h.initialize(us)
	return h
}

func (h *harness) check(err error) {
	h.Helper()
	if err != nil {
		h.Fatal(err)
	}
}

func (h *harness) equal(found, expected any) {
	h.Helper()
	if fmt.Sprint(found) != fmt.Sprint(expected) {
		h.Fatalf("found    %v\nexpected %v", found, expected)
	}
}

func (h *harness) initialize(cluster *contract.ClusterRef, previous ...string) *contract.InitializeResponse {
	h.Helper()
	response, err := h.info.Initialize(h.ctx, &contract.InitializeRequest{Cluster: cluster, PreviousOwnerIds: previous})
	h.check(err)
	return response
}

func (h *harness) write(suffix string, content any) {
	h.Helper()
	text, err := json.Marshal(content)
	h.check(err)
	h.check(os.WriteFile(h.state+".edited", text, 0o644))
	h.check(os.Rename(h.state+".edited", h.state+suffix))
}

func (h *harness) weather(code any, slowMs int) {
	h.Helper()
	h.write(".weather.json", map[string]any{"fail": code, "slow_ms": slowMs})
}

// Changes the cloud without the provider, as the cloud's console would.
func (h *harness) edit(change func(content map[string]any)) {
	h.Helper()
	content := map[string]any{}
	h.load(&content)
	change(content)
	h.write("", content)
}

func (h *harness) load(content any) {
	h.Helper()
	text, err := os.ReadFile(h.state)
	h.check(err)
	h.check(json.Unmarshal(text, content))
}

func (h *harness) loadBalancers() []LoadBalancer {
	h.Helper()
	var content struct {
		LoadBalancers []LoadBalancer `json:"load_balancers"`
	}
	h.load(&content)
	return content.LoadBalancers
}

func (h *harness) writes() int {
	text, _ := os.ReadFile(h.state + ".writes")
	return strings.Count(string(text), "\n")
}

func node(name string, providerID ...string) *contract.NodeView {
	view := &contract.NodeView{Name: name, Uid: "uid-" + name}
	if len(providerID) > 0 {
		view.ProviderId = &providerID[0]
	}
	return view
}

func code(failure *contract.Failure) string {
	return strings.TrimPrefix(failure.GetCode().String(), "FAILURE_CODE_")
}

func drained[T any](h *harness, stream grpc.ServerStreamingClient[T], err error) (parts []*T) {
	h.Helper()
	h.check(err)
	for {
		part, err := stream.Recv()
		if err == io.EOF {
			return parts
		}
		h.check(err)
		parts = append(parts, part)
	}
}

func (h *harness) eventually(holds func() bool) {
	h.Helper()
	for deadline := time.Now().Add(20 * time.Second); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			h.Fatal("it does not hold")
		}
	}
}
