package bridge

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/klog/v2"

	"github.com/grpc-ccm/grpc-ccm/providers/go/contract"
)

// patience is meant to be longer than any call takes on a slow machine.
const patience = 30 * time.Second

// shortDeadline is that of calls whose methods hang. The bridge answers them before 80 % of it is
// over (CORE-9), and a slow machine needs some of the rest. Tests that wait for it run in parallel.
const shortDeadline = 20 * time.Second

// scripted is a cloud whose methods a test sets.
type scripted struct {
	tagged     bool
	initialize func(cloudprovider.ControllerClientBuilder, <-chan struct{})
	informers  func(informers.SharedInformerFactory)

	exists   func(context.Context, *v1.Node) (bool, error)
	shutdown func(context.Context, *v1.Node) (bool, error)
	metadata func(context.Context, *v1.Node) (*cloudprovider.InstanceMetadata, error)

	get    func(context.Context, *v1.Service) (*v1.LoadBalancerStatus, bool, error)
	ensure func(context.Context, *v1.Service, []*v1.Node) (*v1.LoadBalancerStatus, error)
	update func(context.Context, *v1.Service, []*v1.Node) error
	remove func(context.Context, *v1.Service) error

	list   func(context.Context) ([]*cloudprovider.Route, error)
	create func(context.Context, *cloudprovider.Route) error
	unmake func(context.Context, *cloudprovider.Route) error

	labels func(context.Context, *v1.PersistentVolume) (map[string]string, error)
}

func (s *scripted) Initialize(clients cloudprovider.ControllerClientBuilder, stop <-chan struct{}) {
	if s.initialize != nil {
		s.initialize(clients, stop)
	}
}

func (s *scripted) SetInformers(factory informers.SharedInformerFactory) {
	if s.informers != nil {
		s.informers(factory)
	}
}
func (s *scripted) LoadBalancer() (cloudprovider.LoadBalancer, bool) { return s, true }
func (s *scripted) Instances() (cloudprovider.Instances, bool)       { return nil, false }
func (s *scripted) InstancesV2() (cloudprovider.InstancesV2, bool)   { return s, true }
func (s *scripted) Zones() (cloudprovider.Zones, bool)               { return nil, false }
func (s *scripted) Clusters() (cloudprovider.Clusters, bool)         { return nil, false }
func (s *scripted) Routes() (cloudprovider.Routes, bool)             { return s, true }
func (s *scripted) ProviderName() string                             { return "scripted" }
func (s *scripted) HasClusterID() bool                               { return s.tagged }

func (s *scripted) InstanceExists(ctx context.Context, node *v1.Node) (bool, error) {
	return s.exists(ctx, node)
}

func (s *scripted) InstanceShutdown(ctx context.Context, node *v1.Node) (bool, error) {
	return s.shutdown(ctx, node)
}

func (s *scripted) InstanceMetadata(ctx context.Context, node *v1.Node) (*cloudprovider.InstanceMetadata, error) {
	return s.metadata(ctx, node)
}

func (s *scripted) GetLoadBalancerName(_ context.Context, _ string, service *v1.Service) string {
	return "lb-" + service.Name
}

func (s *scripted) GetLoadBalancer(ctx context.Context, _ string, service *v1.Service) (*v1.LoadBalancerStatus, bool, error) {
	if s.get == nil {
		return ready("203.0.113.1"), true, nil
	}
	return s.get(ctx, service)
}

func (s *scripted) EnsureLoadBalancer(ctx context.Context, _ string, service *v1.Service, nodes []*v1.Node) (*v1.LoadBalancerStatus, error) {
	return s.ensure(ctx, service, nodes)
}

func (s *scripted) UpdateLoadBalancer(ctx context.Context, _ string, service *v1.Service, nodes []*v1.Node) error {
	return s.update(ctx, service, nodes)
}

func (s *scripted) EnsureLoadBalancerDeleted(ctx context.Context, _ string, service *v1.Service) error {
	return s.remove(ctx, service)
}

func (s *scripted) ListRoutes(ctx context.Context, _ string) ([]*cloudprovider.Route, error) {
	return s.list(ctx)
}

func (s *scripted) CreateRoute(ctx context.Context, _, _ string, route *cloudprovider.Route) error {
	return s.create(ctx, route)
}

func (s *scripted) DeleteRoute(ctx context.Context, _ string, route *cloudprovider.Route) error {
	return s.unmake(ctx, route)
}

func (s *scripted) GetLabelsForVolume(ctx context.Context, volume *v1.PersistentVolume) (map[string]string, error) {
	return s.labels(ctx, volume)
}

// served is a cloud behind the bridge on a real socket, and its clients.
type served struct {
	t         *testing.T
	path      string
	stop      context.CancelFunc
	ended     chan error
	provider  contract.ProviderServiceClient
	instances contract.InstanceServiceClient
	balancers contract.LoadBalancerServiceClient
	routes    contract.RouteServiceClient
	volumes   contract.VolumeServiceClient
	clusters  contract.ClusterServiceClient
	zones     contract.ZoneServiceClient
}

// serve serves a cloud until the test ends, not yet initialised.
func serve(t *testing.T, cloud cloudprovider.Interface, options Options) *served {
	t.Helper()
	return serveDraining(t, cloud, options, patience)
}

func serveDraining(t *testing.T, cloud cloudprovider.Interface, options Options, drain time.Duration) *served {
	t.Helper()
	directory, err := os.MkdirTemp("", "bridge")
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(directory) })
	path := filepath.Join(directory, "socket", "provider.sock")
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- Serve(ctx, cloud, options, Serving{Endpoint: "unix://" + path, PeerUID: -1, Drain: drain})
	}()
	connection, err := grpc.NewClient("unix://"+path, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithAuthority("localhost"),
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true), grpc.MaxCallRecvMsgSize(MaxMessageBytes)))
	must(t, err)
	t.Cleanup(func() {
		_ = connection.Close()
		stop()
	})
	eventually(t, "the socket is there", func() bool {
		_, err := os.Lstat(path)
		return err == nil
	})
	return &served{
		t, path, stop, ended,
		contract.NewProviderServiceClient(connection), contract.NewInstanceServiceClient(connection), contract.NewLoadBalancerServiceClient(connection),
		contract.NewRouteServiceClient(connection), contract.NewVolumeServiceClient(connection), contract.NewClusterServiceClient(connection), contract.NewZoneServiceClient(connection),
	}
}

// initialised serves a cloud, gives it a cluster ID, and initialises it for cluster().
func initialised(t *testing.T, cloud *scripted, options Options) *served {
	t.Helper()
	cloud.tagged = true
	bridge := serve(t, cloud, options)
	bridge.initialise()
	return bridge
}

func (s *served) initialise() {
	s.t.Helper()
	answer, err := s.provider.Initialize(s.context(patience), &contract.InitializeRequest{Cluster: cluster(), KubernetesVersion: "v1.36.3"})
	must(s.t, err)
	if answer.GetInitialized() == nil {
		s.t.Fatalf("not initialised: %v", answer)
	}
}

func (s *served) context(within time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	s.t.Cleanup(cancel)
	return ctx
}

// lookup asks for all facets of the Nodes.
func (s *served) lookup(within time.Duration, nodes ...*contract.NodeView) map[string]*contract.LookupInstanceResult {
	s.t.Helper()
	answer, err := s.instances.LookupInstances(s.context(within), &contract.LookupInstancesRequest{Cluster: cluster(), Nodes: nodes, Facets: []contract.InstanceFacet{
		contract.InstanceFacet_INSTANCE_FACET_EXISTENCE, contract.InstanceFacet_INSTANCE_FACET_POWER, contract.InstanceFacet_INSTANCE_FACET_METADATA,
	}})
	must(s.t, err)
	if answer.GetFailed() != nil {
		s.t.Fatalf("the whole call failed: %v", answer.GetFailed())
	}
	results := map[string]*contract.LookupInstanceResult{}
	for _, result := range answer.GetResults() {
		results[result.GetNodeName()] = result
	}
	return results
}

func (s *served) ensure(within time.Duration, service *contract.ServiceView) *contract.EnsureLoadBalancerResponse {
	s.t.Helper()
	answer, err := s.balancers.EnsureLoadBalancer(s.context(within), &contract.EnsureLoadBalancerRequest{Cluster: cluster(), Service: service, Targets: targets("one")})
	must(s.t, err)
	return answer
}

func cluster() *contract.ClusterRef { return &contract.ClusterRef{Name: "test", OwnerId: "owner-1"} }

func node(name string) *contract.NodeView {
	return &contract.NodeView{Name: name, Uid: "uid-" + name, ProviderId: new("scripted://" + name)}
}

func service(name string) *contract.ServiceView {
	return &contract.ServiceView{
		Namespace: "default", Name: name, Uid: "uid-" + name, Type: "LoadBalancer",
		Annotations: map[string]string{"kept": "as it is", "old": "value"},
		Ports:       []*contract.ServicePort{{Protocol: "TCP", Port: 80, TargetPort: "http", NodePort: new(int32(30080))}},
	}
}

func targets(names ...string) *contract.TargetSet {
	list := &contract.TargetList{}
	for _, name := range names {
		list.Nodes = append(list.Nodes, node(name))
	}
	return &contract.TargetSet{Set: &contract.TargetSet_Inline{Inline: list}}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		if holds() {
			return
		}
	}
	t.Fatalf("not within %s: %s", patience, what)
}

func code(t *testing.T, failed *contract.Failure, wanted contract.FailureCode) {
	t.Helper()
	if failed.GetCode() != wanted || failed == nil {
		t.Fatalf("expected a failure %s, came %v", wanted, failed)
	}
}

func ready(ip string) *v1.LoadBalancerStatus {
	return &v1.LoadBalancerStatus{Ingress: []v1.LoadBalancerIngress{{IP: ip}}}
}

func metadataOf(node *v1.Node) *cloudprovider.InstanceMetadata {
	return &cloudprovider.InstanceMetadata{
		ProviderID: "scripted://" + node.Name, InstanceType: "big", Zone: "a", Region: "b",
		NodeAddresses: []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: "10.0.0.1"}},
	}
}

// logged returns a function that returns what klog has logged since logged ran.
func logged(t *testing.T) func() string {
	t.Helper()
	said := &logKeeper{}
	klog.LogToStderr(false)
	klog.SetOutput(said)
	t.Cleanup(func() {
		klog.LogToStderr(true)
	})
	return func() string {
		klog.Flush()
		return said.String()
	}
}

// logKeeper keeps what is written.
type logKeeper struct {
	mu   sync.Mutex
	text strings.Builder
}

func (r *logKeeper) Write(text []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.Write(text)
}

func (r *logKeeper) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.String()
}

func numbered(number int) string { return fmt.Sprintf("node-%03d", number) }
