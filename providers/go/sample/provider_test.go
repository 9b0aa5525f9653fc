package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"example.invalid/providers/go/contract"
)

// Tests over a real socket: a provider, and a controller in front of it.

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

// A cloud with the instances a, b and c, served.
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
	go func() { h.served <- Serve(ctx, h.provider, h.endpoint, -1) }()
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

// The harness is told of what its client sends.
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

// Waits until a call has arrived: it was sent, and another one that was sent after it on the same connection is answered.
func (h *harness) arrived(rpc string) {
	h.Helper()
	h.eventually(func() bool { _, sent := h.sent.Load(rpc); return sent })
	_, err := h.info.Probe(h.ctx, &contract.ProbeRequest{})
	h.check(err)
}

// The same, initialised.
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

// Changes the cloud behind the provider's back, as its console would.
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

func (h *harness) lookUp(request *contract.LookupInstancesRequest) (states []string) {
	h.Helper()
	response, err := h.instances.LookupInstances(h.ctx, request)
	h.check(err)
	if response.Failed != nil {
		return []string{code(response.Failed)}
	}
	for i, result := range response.Results {
		h.equal(result.NodeUid, request.Nodes[i].Uid)
		if failed := result.GetFailed(); failed != nil {
			states = append(states, "failed "+code(failed))
		} else {
			states = append(states, strings.TrimPrefix(result.GetFound().State.String(), "INSTANCE_STATE_"))
		}
	}
	return states
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

func TestANodeIsFoundByProviderIDAndElseByName(t *testing.T) {
	h := serveInitialized(t)
	h.edit(func(content map[string]any) {
		content["instances"] = append(content["instances"].([]any), instance("p", "pending"), instance("s", "stopped"))
	})
	nodes := []*contract.NodeView{
		node("a"), node("renamed", "mock://zone-a/b"), node("x"), node("c", "mock://zone-a/gone"), node("y", "aws://i-1"), node("p"), node("s"), node("z", "mock://"),
	}
	found := h.lookUp(&contract.LookupInstancesRequest{Cluster: us, Nodes: nodes})
	h.equal(found, []string{"RUNNING", "RUNNING", "ABSENT", "ABSENT", "UNMANAGED", "PENDING", "STOPPED", "failed INVALID"})
	zones, err := h.zones.LookupZones(h.ctx, &contract.LookupZonesRequest{Cluster: us, Nodes: nodes[:3]})
	h.check(err)
	h.equal(zones.Results[0].GetZone().GetZone(), "zone-a")
	h.equal(zones.Results[2].GetZone() != nil && zones.Results[2].GetZone().Zone == nil, true)
}

func TestACloudThatFailsOrIsLostNeverSaysAbsent(t *testing.T) {
	h := serveInitialized(t)
	request := &contract.LookupInstancesRequest{Cluster: us, Nodes: []*contract.NodeView{node("a"), node("gone")}}
	for _, code := range []string{"THROTTLED", "CREDENTIALS", "UNAVAILABLE"} {
		h.weather(code, 0)
		h.equal(h.lookUp(request), []string{code})
	}
	// What was learned a moment ago may still be told to whom that is enough.
	h.equal(h.lookUp(&contract.LookupInstancesRequest{Cluster: us, Nodes: request.Nodes, MaxAge: durationpb.New(time.Hour)}), []string{"RUNNING", "ABSENT"})
	h.weather(nil, 0)
	h.check(os.WriteFile(h.state, []byte("{"), 0o644))
	h.equal(h.lookUp(request), []string{"UNAVAILABLE"})
	h.check(os.Remove(h.state))
	h.equal(h.lookUp(request), []string{"UNAVAILABLE"})
}

func TestWhoMayNotAskIsToldSo(t *testing.T) {
	h := serve(t)
	request := &contract.LookupInstancesRequest{Cluster: us, Nodes: []*contract.NodeView{node("a")}}
	h.equal(h.lookUp(request), []string{"NOT_INITIALIZED"})
	h.initialize(us)
	h.equal(h.lookUp(request), []string{"RUNNING"})
	request.Cluster = them
	h.equal(h.lookUp(request), []string{"NOT_INITIALIZED"})
	request.Cluster = nil
	h.equal(h.lookUp(request), []string{"INVALID"})
	request = &contract.LookupInstancesRequest{Cluster: us, Nodes: []*contract.NodeView{node("a"), node("a")}}
	h.equal(h.lookUp(request), []string{"INVALID"})
	request.Nodes = nil
	for n := range maxBatch + 1 {
		request.Nodes = append(request.Nodes, node(fmt.Sprint("n-", n)))
	}
	h.equal(h.lookUp(request), []string{"INVALID"})
}

func TestAListingIsCompleteAndEnds(t *testing.T) {
	h := serveInitialized(t)
	h.edit(func(content map[string]any) {
		for n := range 1_200 {
			content["instances"] = append(content["instances"].([]any), instance(fmt.Sprint("n-", n), "running"))
		}
	})
	request := &contract.ListInstancesRequest{Cluster: us, Facets: []contract.InstanceFacet{contract.InstanceFacet_INSTANCE_FACET_METADATA}}
	stream, err := h.instances.ListInstances(h.ctx, request)
	parts, total := drained(h, stream, err), 0
	for _, part := range parts {
		total += len(part.GetInstances().GetInstances())
	}
	h.equal(total, 1_203)
	h.equal(parts[len(parts)-1].GetEnd().GetTotal(), 1_203)
	h.equal(parts[0].GetInstances().Instances[0].GetInstanceType(), "mock.large")
	h.weather("THROTTLED", 0)
	stream, err = h.instances.ListInstances(h.ctx, request)
	parts = drained(h, stream, err)
	h.equal(len(parts), 1)
	h.equal(code(parts[0].GetFailed()), "THROTTLED")
}

func service(uid string) *contract.ServiceView {
	port := int32(30080)
	return &contract.ServiceView{
		Namespace: "default", Name: "web", Uid: uid, SessionAffinity: "None", ExternalTrafficPolicy: "Cluster",
		Ports: []*contract.ServicePort{{Protocol: "TCP", Port: 80, NodePort: &port}},
	}
}

func targets(names ...string) *contract.TargetSet {
	list := &contract.TargetList{}
	for _, name := range names {
		list.Nodes = append(list.Nodes, node(name))
	}
	return &contract.TargetSet{Set: &contract.TargetSet_Inline{Inline: list}}
}

func (h *harness) ensure(request *contract.EnsureLoadBalancerRequest) *contract.EnsureLoadBalancerResponse {
	h.Helper()
	response, err := h.balancers.EnsureLoadBalancer(h.ctx, request)
	h.check(err)
	return response
}

func (h *harness) inSync(request *contract.GetLoadBalancerRequest) bool {
	h.Helper()
	response, err := h.balancers.GetLoadBalancer(h.ctx, request)
	h.check(err)
	return response.GetFound().GetInSync()
}

func (h *harness) remove(request *contract.DeleteLoadBalancerRequest) *contract.DeleteLoadBalancerResponse {
	h.Helper()
	response, err := h.balancers.DeleteLoadBalancer(h.ctx, request)
	h.check(err)
	return response
}

func TestAConvergedEnsureWritesNothingAndAClearedFieldIsRemoved(t *testing.T) {
	h := serveInitialized(t)
	asked := service("uid-1")
	asked.LoadBalancerSourceRanges, asked.IpFamilies = []string{"10.0.0.0/8"}, []string{"IPv4", "IPv6"}
	made := h.ensure(&contract.EnsureLoadBalancerRequest{Cluster: us, Service: asked, Targets: targets("a", "b")})
	h.equal(h.loadBalancers()[0].Addresses, []string{"192.0.2.1", "2001:db8::1"})
	h.equal(h.writes(), 1)
	h.equal(h.inSync(&contract.GetLoadBalancerRequest{Cluster: us, Service: asked, Targets: targets("a", "b")}), true)
	again := h.ensure(&contract.EnsureLoadBalancerRequest{Cluster: us, Service: asked, Handle: made.Handle}) // Absent targets are left alone.
	h.equal(again.GetReady().GetStatus(), made.GetReady().GetStatus())
	h.equal(h.writes(), 1)
	h.equal(h.inSync(&contract.GetLoadBalancerRequest{Cluster: us, Service: service("uid-1")}), false)
	h.ensure(&contract.EnsureLoadBalancerRequest{Cluster: us, Service: service("uid-1")})
	lb := h.loadBalancers()[0]
	h.equal(lb.Config.SourceRanges, []string{})
	h.equal(lb.Addresses, []string{"192.0.2.1"})
	h.equal(lb.Targets, []string{"a", "b"})
}

func TestAServiceThatCannotBeServedIsInvalidAndTheFieldIsNamed(t *testing.T) {
	h := serveInitialized(t)
	for field, change := range map[string]func(*contract.ServiceView){
		"ports is empty":        func(s *contract.ServiceView) { s.Ports = nil },
		"protocol":              func(s *contract.ServiceView) { s.Ports[0].Protocol = "ICMP" },
		"port 0":                func(s *contract.ServiceView) { s.Ports[0].Port = 0 },
		"twice":                 func(s *contract.ServiceView) { s.Ports = append(s.Ports, s.Ports[0]) },
		"SourceRanges":          func(s *contract.ServiceView) { s.LoadBalancerSourceRanges = []string{"10.0.0.0"} },
		"ipFamilies":            func(s *contract.ServiceView) { s.IpFamilies = []string{"IPv5"} },
		"loadBalancerClass":     func(s *contract.ServiceView) { s.LoadBalancerClass = &s.Name },
		"spec.loadBalancerIP":   func(s *contract.ServiceView) { s.LoadBalancerIp = &s.Name },
		"externalTrafficPolicy": func(s *contract.ServiceView) { s.ExternalTrafficPolicy = "Near" },
	} {
		asked := service("uid-1")
		change(asked)
		failed := h.ensure(&contract.EnsureLoadBalancerRequest{Cluster: us, Service: asked}).GetFailed()
		h.equal(code(failed), "INVALID")
		h.equal(strings.Contains(failed.Message, field), true)
	}
	h.equal(h.writes(), 0)
}

func TestAnUpdateSetsTheTargetsAndNeedsALoadBalancer(t *testing.T) {
	h := serveInitialized(t)
	request := &contract.UpdateLoadBalancerRequest{Cluster: us, Service: service("uid-1"), Targets: targets("c")}
	update := func() *contract.UpdateLoadBalancerResponse {
		response, err := h.balancers.UpdateLoadBalancer(h.ctx, request)
		h.check(err)
		return response
	}
	h.equal(code(update().GetFailed()), "NOT_FOUND")
	h.ensure(&contract.EnsureLoadBalancerRequest{Cluster: us, Service: service("uid-1"), Targets: targets("a")})
	h.equal(update().GetDone() != nil, true)
	h.equal(h.loadBalancers()[0].Targets, []string{"c"})
	request.Targets = nil
	h.equal(code(update().GetFailed()), "INVALID")
}

func TestWhatIsNotOursIsNotTouched(t *testing.T) {
	h := serveInitialized(t)
	made := h.ensure(&contract.EnsureLoadBalancerRequest{Cluster: us, Service: service("uid-1")})
	h.initialize(them)
	h.equal(code(h.ensure(&contract.EnsureLoadBalancerRequest{Cluster: them, Service: service("uid-2"), Handle: made.Handle}).GetFailed()), "CONFLICT")
	h.equal(code(h.remove(&contract.DeleteLoadBalancerRequest{Cluster: them, Service: service("uid-2"), Handle: made.Handle}).GetFailed()), "CONFLICT")
	h.equal(h.writes(), 1)
	// A former owner's is ours, and is marked anew when it is next written.
	h.initialize(them, "us")
	h.ensure(&contract.EnsureLoadBalancerRequest{Cluster: them, Service: service("uid-1")})
	h.equal(h.writes(), 1)
	h.ensure(&contract.EnsureLoadBalancerRequest{Cluster: them, Service: service("uid-1"), Targets: targets("a")})
	h.equal(h.loadBalancers()[0].Owner.OwnerID, "them")
}

func TestAnUnmarkedLoadBalancerIsAdoptedOnlyWhereThatIsGranted(t *testing.T) {
	h := serveInitialized(t)
	h.edit(func(content map[string]any) {
		content["load_balancers"] = []any{map[string]any{"handle": "lb-7", "name": "auid1", "addresses": []string{"192.0.2.9"}, "targets": []string{}, "config": map[string]any{}}}
	})
	request := &contract.EnsureLoadBalancerRequest{Cluster: us, Service: service("uid-1")}
	h.equal(code(h.ensure(request).GetFailed()), "CONFLICT")
	request.AdoptUnmarked = true
	h.equal(h.ensure(request).GetHandle(), "lb-7")
	h.equal(h.loadBalancers()[0].Owner.UID, "uid-1")
}

func TestADeleteFindsByTheMarkAndIsDoneWhereNothingIs(t *testing.T) {
	h := serveInitialized(t)
	h.ensure(&contract.EnsureLoadBalancerRequest{Cluster: us, Service: service("uid-1")})
	lost := "lb-lost"
	request := &contract.DeleteLoadBalancerRequest{Cluster: us, Service: service("uid-1"), Handle: &lost}
	h.equal(h.remove(request).GetDone() != nil, true)
	h.equal(len(h.loadBalancers()), 0)
	h.equal(h.remove(request).GetDone() != nil, true)
	h.equal(h.writes(), 2)
	h.weather("UNAVAILABLE", 0)
	h.equal(code(h.remove(request).GetFailed()), "UNAVAILABLE")
}

func TestOverlappingCallsMakeOneLoadBalancer(t *testing.T) {
	h := serveInitialized(t)
	h.weather(nil, 300)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			response, err := h.balancers.EnsureLoadBalancer(h.ctx, &contract.EnsureLoadBalancerRequest{Cluster: us, Service: service("uid-1")})
			if err != nil || response.GetReady() == nil && code(response.GetFailed()) != "BUSY" {
				h.Errorf("%v %v", response, err)
			}
		})
	}
	all.Wait()
	h.equal(h.writes(), 1)
}

func TestACallThatIsCancelledOrOutOfTimeWritesNothing(t *testing.T) {
	h := serveInitialized(t)
	h.weather(nil, 4_000)
	cancelled, cancel := context.WithCancel(h.ctx)
	ended := make(chan error)
	go func() {
		_, err := h.balancers.EnsureLoadBalancer(cancelled, &contract.EnsureLoadBalancerRequest{Cluster: us, Service: service("uid-1")})
		ended <- err
	}()
	h.arrived("EnsureLoadBalancer")
	cancel()
	h.equal(status.Code(<-ended), codes.Canceled)
	longer, stop := context.WithTimeout(h.ctx, 3*time.Second)
	defer stop()
	response, err := h.balancers.EnsureLoadBalancer(longer, &contract.EnsureLoadBalancerRequest{Cluster: us, Service: service("uid-2")})
	h.check(err)
	h.equal(response.GetPending() != nil, true)
	// Whatever went on would come before this one, which takes as long and began later.
	h.ensure(&contract.EnsureLoadBalancerRequest{Cluster: us, Service: service("uid-3")})
	h.equal(h.writes(), 1)
}

func TestWhatTakesTimeIsPending(t *testing.T) {
	h := serve(t)
	h.provider.settings.Provisioning = 200 * time.Millisecond
	h.initialize(us)
	request := &contract.EnsureLoadBalancerRequest{Cluster: us, Service: service("uid-1")}
	made := h.ensure(request)
	h.equal(made.GetPending() != nil && made.GetHandle() != "", true)
	h.eventually(func() bool { return h.ensure(request).GetReady() != nil })
	h.equal(h.remove(&contract.DeleteLoadBalancerRequest{Cluster: us, Service: service("uid-1")}).GetPending() != nil, true)
	h.eventually(func() bool {
		return h.remove(&contract.DeleteLoadBalancerRequest{Cluster: us, Service: service("uid-1")}).GetDone() != nil
	})
	h.equal(h.writes(), 2)
}

func (h *harness) eventually(holds func() bool) {
	h.Helper()
	for deadline := time.Now().Add(20 * time.Second); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			h.Fatal("it does not hold")
		}
	}
}

func TestAListingShowsWhatIsMarkedForUs(t *testing.T) {
	h := serveInitialized(t)
	h.ensure(&contract.EnsureLoadBalancerRequest{Cluster: us, Service: service("uid-1")})
	h.initialize(them)
	h.ensure(&contract.EnsureLoadBalancerRequest{Cluster: them, Service: service("uid-2")})
	stream, err := h.balancers.ListLoadBalancers(h.ctx, &contract.ListLoadBalancersRequest{Cluster: them})
	parts := drained(h, stream, err)
	h.equal(len(parts), 2)
	h.equal(parts[0].GetLoadBalancer().Owners[0].Uid, "uid-2")
	h.equal(parts[1].GetEnd().Total, 1)
}

func route(cidr, node string) *contract.Route {
	return &contract.Route{RouteKey: cidr, NameHint: "uid", DestinationCidr: cidr, NodeName: &node}
}

func outcomes(results []*contract.RouteResult) (outcomes []string) {
	for _, result := range results {
		if result.GetDone() != nil {
			outcomes = append(outcomes, "done")
		} else {
			outcomes = append(outcomes, code(result.GetFailed()))
		}
	}
	return outcomes
}

func (h *harness) createRoutes(cluster *contract.ClusterRef, routes ...*contract.Route) []string {
	h.Helper()
	response, err := h.routes.CreateRoutes(h.ctx, &contract.CreateRoutesRequest{Cluster: cluster, Routes: routes})
	h.check(err)
	return outcomes(response.Results)
}

func TestEachRouteHasItsOwnResultAndAConvergedOneWritesNothing(t *testing.T) {
	h := serveInitialized(t)
	one, four := route("10.0.1.0/24", "a"), route("10.0.4.0/24", "b")
	h.equal(h.createRoutes(us, one, route("10.0.2.0", "a"), route("10.0.3.0/24", "gone"), four), []string{"done", "INVALID", "PRECONDITION", "done"})
	h.equal(h.createRoutes(us, one, four), []string{"done", "done"})
	h.equal(h.writes(), 2)
	h.equal(h.createRoutes(us, route("10.0.1.0/24", "b")), []string{"CONFLICT"})
	h.edit(func(content map[string]any) { content["instances"] = content["instances"].([]any)[1:] })
	stream, err := h.routes.ListRoutes(h.ctx, &contract.ListRoutesRequest{Cluster: us})
	parts, blackholes := drained(h, stream, err), []string{}
	for _, route := range parts[0].GetRoutes().GetRoutes() {
		if route.Blackhole {
			blackholes = append(blackholes, route.DestinationCidr)
		}
	}
	h.equal(blackholes, []string{"10.0.1.0/24"})
	h.equal(h.createRoutes(us, route("10.0.1.0/24", "b")), []string{"done"}) // A blackhole is replaced.
}

func TestAForeignRouteIsNeverRemoved(t *testing.T) {
	h := serveInitialized(t)
	h.createRoutes(us, route("10.0.1.0/24", "a"))
	h.initialize(them)
	h.equal(h.createRoutes(them, route("10.0.1.0/24", "a")), []string{"CONFLICT"})
	request := &contract.DeleteRoutesRequest{Cluster: them, Routes: []*contract.Route{route("10.0.1.0/24", "a"), route("10.9.9.0/24", "a")}}
	response, err := h.routes.DeleteRoutes(h.ctx, request)
	h.check(err)
	h.equal(outcomes(response.Results), []string{"CONFLICT", "done"})
	h.initialize(us)
	request.Cluster = us
	response, err = h.routes.DeleteRoutes(h.ctx, request)
	h.check(err)
	h.equal(outcomes(response.Results), []string{"done", "done"})
}

func TestClustersAndDisksAreTold(t *testing.T) {
	h := serveInitialized(t)
	stream, err := h.clusters.ListClusters(h.ctx, &contract.ListClustersRequest{Cluster: us})
	parts := drained(h, stream, err)
	h.equal(parts[0].GetClusters().Names, []string{"test"})
	address, err := h.clusters.GetControlPlaneAddress(h.ctx, &contract.GetControlPlaneAddressRequest{Cluster: us, ClusterName: "test"})
	h.check(err)
	h.equal(address.GetAddress(), "192.0.2.77")
	labels := func(driver, handle string) *contract.GetVolumeLabelsResponse {
		volume := &contract.VolumeView{Name: "v", SourceType: "csi", Source: map[string]string{"driver": driver, "volumeHandle": handle}}
		response, err := h.volumes.GetVolumeLabels(h.ctx, &contract.GetVolumeLabelsRequest{Cluster: us, Volume: volume})
		h.check(err)
		return response
	}
	h.equal(labels("disk.mock.grpc-ccm.io", "disk-1").GetLabels().Labels, map[string]string{"topology.kubernetes.io/zone": "zone-a"})
	h.equal(code(labels("disk.mock.grpc-ccm.io", "gone").GetFailed()), "NOT_FOUND")
	h.equal(len(labels("ebs.csi.aws.com", "disk-1").GetLabels().Labels), 0)
}

func TestAProbeAnswersFromMemoryWhileTheCloudIsSlow(t *testing.T) {
	h := serveInitialized(t)
	h.weather("CREDENTIALS", 0)
	h.equal(code(h.initialize(us).GetFailed()), "CREDENTIALS")
	h.weather(nil, 20_000)
	slow, stop := context.WithCancel(h.ctx)
	var all sync.WaitGroup
	for range 64 {
		all.Go(func() { _, _ = h.info.Initialize(slow, &contract.InitializeRequest{Cluster: us}) })
	}
	short, done := context.WithTimeout(h.ctx, 15*time.Second)
	defer done()
	probe, err := h.info.Probe(short, &contract.ProbeRequest{})
	h.check(err)
	h.equal(probe.State, contract.ProbeState_PROBE_STATE_DEGRADED)
	h.equal(strings.Contains(probe.Message, "CREDENTIALS"), true)
	stop()
	all.Wait()
}

func TestHintsTellWhatOthersChangedAndUnknownTokensAreAResync(t *testing.T) {
	h := serveInitialized(t)
	watch := func(token string) grpc.ServerStreamingClient[contract.WatchChangesResponse] {
		stream, err := h.info.WatchChanges(h.ctx, &contract.WatchChangesRequest{Cluster: us, ResumeToken: token})
		h.check(err)
		return stream
	}
	unknown := watch("of-another-process/1")
	first, err := unknown.Recv()
	h.check(err)
	h.equal(first.GetResync() != nil, true)
	h.edit(func(content map[string]any) {
		content["instances"] = append(content["instances"].([]any), instance("d", "running"))
	})
	second, err := unknown.Recv()
	h.check(err)
	h.equal(second.GetInstance().NodeName, "d")
	resumed, err := watch(first.ResumeToken).Recv()
	h.check(err)
	h.equal(resumed.ResumeToken, second.ResumeToken)
	h.stop()
	if _, err = unknown.Recv(); err != io.EOF { // Status OK.
		t.Fatal(err)
	}
}

func TestTheSocketIsGuardedAndALivingOneIsLeftAlone(t *testing.T) {
	h := serveInitialized(t)
	path := strings.TrimPrefix(h.endpoint, "unix://")
	directory := filepath.Dir(path)
	for path, mode := range map[string]os.FileMode{path: 0o660, directory: 0o750} {
		info, err := os.Stat(path)
		h.check(err)
		h.equal(info.Mode().Perm(), mode)
	}
	refused := func(endpoint, why string) {
		t.Helper()
		if _, err := Listen(endpoint, -1); err == nil || !strings.Contains(err.Error(), why) {
			t.Fatal(err)
		}
	}
	refused(h.endpoint, "another provider answers")
	link := filepath.Join(filepath.Dir(directory), "link")
	h.check(os.Symlink(directory, link))
	refused("unix://"+link+"/p.sock", "symbolic link")
	h.check(os.WriteFile(directory+"/file", nil, 0o644))
	refused("unix://"+directory+"/file", "not a socket")
	for _, endpoint := range []string{"unix:p.sock", "unix-abstract:x", "unix:///a/../b", "unix:///a/"} {
		refused(endpoint, "right would be")
	}
	refused("unix:///"+strings.Repeat("x", 120), "at most 107")
	// A stale one is taken over.
	stale, err := net.ListenUnix("unix", &net.UnixAddr{Name: directory + "/stale", Net: "unix"})
	h.check(err)
	stale.SetUnlinkOnClose(false)
	stale.Close()
	socket, err := Listen("unix://"+directory+"/stale", os.Geteuid())
	h.check(err)
	socket.Close()
	socket.Remove()
	names, err := filepath.Glob(directory + "/.*")
	h.check(err)
	h.equal(slices.Compact(names), []string{})
}

func TestAtShutdownACallInFlightMayFinish(t *testing.T) {
	h := serve(t)
	_, err := h.info.GetProviderInfo(h.ctx, &contract.GetProviderInfoRequest{})
	h.check(err)
	h.weather(nil, 1_000)
	answered := make(chan error, 1)
	go func() {
		response, err := h.info.Initialize(h.ctx, &contract.InitializeRequest{Cluster: us})
		if err == nil && response.GetInitialized() == nil {
			err = fmt.Errorf("%v", response)
		}
		answered <- err
	}()
	h.arrived("Initialize")
	h.stop()
	h.check(<-answered)
	h.check(<-h.served)
	h.served <- nil
	if _, err := os.Lstat(strings.TrimPrefix(h.endpoint, "unix://")); !os.IsNotExist(err) {
		t.Fatal(err)
	}
}
