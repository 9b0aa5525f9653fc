package provider

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/grpc-ccm/grpc-ccm/providers/digitalocean/plan"
	"github.com/grpc-ccm/grpc-ccm/providers/digitalocean/testapi"
	"github.com/grpc-ccm/grpc-ccm/providers/go/contract"
	"github.com/grpc-ccm/grpc-ccm/providers/go/sdk"
	api "github.com/grpc-ccm/grpc-ccm/providers/testapi"
)

// Tests over a real socket: a controller's client, the provider, and the test API.

var (
	us   = &contract.ClusterRef{Name: "test", OwnerId: "5b2c1c0e-0000-4000-8000-000000000001"}
	them = &contract.ClusterRef{Name: "test", OwnerId: "5b2c1c0e-0000-4000-8000-000000000002"}
)

const annotation = "service.beta.kubernetes.io/do-loadbalancer-"

type harness struct {
	*testing.T
	ctx       context.Context
	cloud     *testapi.Cloud
	settings  Settings
	provider  *Provider
	droplets  []int
	info      contract.ProviderServiceClient
	instances contract.InstanceServiceClient
	balancers contract.LoadBalancerServiceClient
}

// A cloud with the droplets node-0, node-1 and node-2, and a provider in front of it that is not initialised.
func serve(t *testing.T, changes ...func(*Settings)) *harness {
	t.Parallel()
	cloud := testapi.New(journal(t))
	server := httptest.NewServer(cloud)
	t.Cleanup(server.Close)
	h := &harness{T: t, ctx: t.Context(), cloud: cloud}
	h.settings = Settings{Settings: plan.Settings{Region: "nyc1", DefaultType: "REGIONAL_NETWORK"}, APIURL: server.URL, TokenFile: filepath.Join(t.TempDir(), "token")}
	h.token(testapi.Token)
	for i := range 3 {
		h.droplets = append(h.droplets, cloud.AddDroplet(testapi.NewDroplet{Name: fmt.Sprintf("node-%d", i)}))
	}
	for _, change := range changes {
		change(&h.settings)
	}
	h.start()
	return h
}

// journal is the file that openapicheck reads, if DIGITALOCEAN_JOURNAL names one.
func journal(t *testing.T) io.Writer {
	t.Helper()
	path := os.Getenv("DIGITALOCEAN_JOURNAL")
	if path == "" {
		return nil
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	return file
}

func (h *harness) token(token string) {
	h.Helper()
	if err := os.WriteFile(h.settings.TokenFile, []byte(token+"\n"), 0o600); err != nil {
		h.Fatal(err)
	}
}

// start serves a new provider. Like a new process, it knows nothing of a former one; only
// sdk.ListedLate remembers the first Delete of each Service.
func (h *harness) start() {
	h.Helper()
	var err error
	if h.provider, err = New(h.settings); err != nil {
		h.Fatal(err)
	}
	directory, err := os.MkdirTemp("", "do")
	if err != nil {
		h.Fatal(err)
	}
	endpoint := "unix://" + directory + "/s/p.sock"
	ctx, stop := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- (&sdk.Server{Provider: h.provider, Endpoint: endpoint}).Serve(ctx) }()
	connection, err := grpc.NewClient(endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithAuthority("localhost"), grpc.WithDefaultCallOptions(grpc.WaitForReady(true)))
	if err != nil {
		h.Fatal(err)
	}
	h.Cleanup(func() {
		stop()
		connection.Close()
		if err := <-served; err != nil {
			h.Error(err)
		}
		os.RemoveAll(directory)
	})
	h.info, h.instances, h.balancers = contract.NewProviderServiceClient(connection), contract.NewInstanceServiceClient(connection), contract.NewLoadBalancerServiceClient(connection)
}

func initialized(t *testing.T, changes ...func(*Settings)) *harness {
	h := serve(t, changes...)
	h.initialize(us)
	return h
}

func (h *harness) tryInitialize(cluster *contract.ClusterRef, previous ...string) *contract.InitializeResponse {
	h.Helper()
	answer, err := h.info.Initialize(h.ctx, &contract.InitializeRequest{Cluster: cluster, PreviousOwnerIds: previous})
	if err != nil {
		h.Fatal(err)
	}
	return answer
}

func (h *harness) initialize(cluster *contract.ClusterRef, previous ...string) {
	h.Helper()
	if failed := h.tryInitialize(cluster, previous...).GetFailed(); failed != nil {
		h.Fatalf("Initialize: %v", failed)
	}
}

// must fails the test unless the failure has this code and reason, and its message has all of the words and not the token. Users read the message
// in kubectl describe.
func (h *harness) must(failure *contract.Failure, code sdk.Code, reason string, words ...string) {
	h.Helper()
	if failure == nil || sdk.Code(failure.Code) != code || failure.Reason != reason {
		h.Fatalf("came %v; wanted %s %s", failure, code, reason)
	}
	for _, word := range words {
		if !strings.Contains(failure.Message, word) {
			h.Errorf("the message %q lacks %q", failure.Message, word)
		}
	}
	if strings.Contains(failure.Message, testapi.Token) {
		h.Errorf("the message holds the token: %q", failure.Message)
	}
}

func (h *harness) plan(plans ...api.Plan) {
	h.Helper()
	for _, plan := range plans {
		if err := h.cloud.Plan(plan); err != nil {
			h.Fatal(err)
		}
	}
}

// calls is how many calls of the API there were while work ran.
func (h *harness) calls(work func()) (calls int, routes map[string]int) {
	h.cloud.Forget()
	work()
	routes = h.cloud.Counts()
	for _, count := range routes {
		calls += count
	}
	return calls, routes
}

func (h *harness) lookup(nodes ...*contract.NodeView) *contract.LookupInstancesResponse {
	h.Helper()
	facets := []contract.InstanceFacet{contract.InstanceFacet_INSTANCE_FACET_EXISTENCE, contract.InstanceFacet_INSTANCE_FACET_POWER, contract.InstanceFacet_INSTANCE_FACET_METADATA}
	answer, err := h.instances.LookupInstances(h.ctx, &contract.LookupInstancesRequest{Cluster: us, Nodes: nodes, Facets: facets})
	if err != nil {
		h.Fatal(err)
	}
	return answer
}

func (h *harness) found(node *contract.NodeView) *contract.Instance {
	h.Helper()
	answer := h.lookup(node)
	if answer.Failed != nil || len(answer.Results) != 1 || answer.Results[0].GetFound() == nil {
		h.Fatalf("%v", answer)
	}
	return answer.Results[0].GetFound()
}

func node(name string, id int) *contract.NodeView {
	view := &contract.NodeView{Name: name, Uid: "uid-" + name}
	if id != 0 {
		providerID := fmt.Sprintf("digitalocean://%d", id)
		view.ProviderId = &providerID
	}
	view.Addresses = []*contract.NodeAddress{{Type: contract.NodeAddressType_NODE_ADDRESS_TYPE_EXTERNAL_IP, Address: "198.51.100.7"}}
	return view
}

// balancer is a Service as the controller has it: the handle and the status are those of the last answers.
type balancer struct {
	*harness
	service *contract.ServiceView
	handle  *string
	cluster *contract.ClusterRef
	targets []*contract.NodeView
	adopt   bool
}

func (h *harness) service(uid string, annotations ...string) *balancer {
	nodePort := int32(30080)
	b := &balancer{harness: h, cluster: us, service: &contract.ServiceView{
		Namespace: "default", Name: "web", Uid: uid, Type: "LoadBalancer", Annotations: map[string]string{}, ExternalTrafficPolicy: "Cluster", SessionAffinity: "None",
		Ports: []*contract.ServicePort{{Name: "http", Protocol: "TCP", Port: 80, NodePort: &nodePort}},
	}}
	for i := 0; i+1 < len(annotations); i += 2 {
		key := annotations[i]
		if !strings.Contains(key, "/") {
			key = annotation + key
		}
		b.service.Annotations[key] = annotations[i+1]
	}
	for i, id := range h.droplets {
		b.targets = append(b.targets, node(fmt.Sprintf("node-%d", i), id))
	}
	return b
}

func set(nodes []*contract.NodeView) *contract.TargetSet {
	return &contract.TargetSet{Set: &contract.TargetSet_Inline{Inline: &contract.TargetList{Nodes: nodes}}}
}

func (b *balancer) keep(handle *string, changes *contract.AnnotationChanges) {
	if handle != nil {
		b.handle = handle
	}
	maps.Copy(b.service.Annotations, changes.GetSet())
}

func (b *balancer) get() *contract.GetLoadBalancerResponse {
	b.Helper()
	answer, err := b.balancers.GetLoadBalancer(b.ctx, &contract.GetLoadBalancerRequest{Cluster: b.cluster, Service: b.service, Handle: b.handle, Targets: set(b.targets)})
	if err != nil {
		b.Fatal(err)
	}
	b.keep(answer.Handle, answer.Annotations)
	return answer
}

func (b *balancer) ensure() *contract.EnsureLoadBalancerResponse {
	b.Helper()
	answer, err := b.balancers.EnsureLoadBalancer(b.ctx, &contract.EnsureLoadBalancerRequest{Cluster: b.cluster, Service: b.service, Handle: b.handle, Targets: set(b.targets), AdoptUnmarked: b.adopt})
	if err != nil {
		b.Fatal(err)
	}
	b.keep(answer.Handle, answer.Annotations)
	if ready := answer.GetReady(); ready != nil {
		b.service.Status = ready.Status
	}
	return answer
}

func (b *balancer) ensured() {
	b.Helper()
	b.until("Ensure is ready", func() (bool, any) {
		answer := b.ensure()
		return answer.GetReady() != nil, answer
	})
	if found := b.get().GetFound(); found == nil || !found.GetInSync() {
		b.Fatalf("after Ensure it is not in sync: %v", found)
	}
}

func (b *balancer) update() *contract.UpdateLoadBalancerResponse {
	b.Helper()
	answer, err := b.balancers.UpdateLoadBalancer(b.ctx, &contract.UpdateLoadBalancerRequest{Cluster: b.cluster, Service: b.service, Handle: b.handle, Targets: set(b.targets)})
	if err != nil {
		b.Fatal(err)
	}
	return answer
}

func (b *balancer) remove() *contract.DeleteLoadBalancerResponse {
	b.Helper()
	answer, err := b.balancers.DeleteLoadBalancer(b.ctx, &contract.DeleteLoadBalancerRequest{Cluster: b.cluster, Service: b.service, Handle: b.handle, AdoptUnmarked: b.adopt})
	if err != nil {
		b.Fatal(err)
	}
	return answer
}

func (b *balancer) removed() {
	b.Helper()
	b.until("Delete is done", func() (bool, any) {
		answer := b.remove()
		return answer.GetDone() != nil, answer
	})
}

// until repeats a call, as the controller does, until the function `is` returns true.
func (h *harness) until(what string, is func() (bool, any)) {
	h.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for {
		so, last := is()
		if so {
			return
		}
		if time.Now().After(deadline) {
			h.Fatalf("not so after 20 s: %s; the last answer: %v", what, last)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// only returns the one existing load balancer.
func (h *harness) only() testapi.LoadBalancer {
	h.Helper()
	all := h.cloud.LoadBalancers()
	if len(all) != 1 {
		h.Fatalf("there are %d load balancers, not one: %+v", len(all), all)
	}
	return all[0]
}

// listed is how many load balancers a complete list has.
func (h *harness) listed() (count int) {
	h.Helper()
	parts, err := h.balancers.ListLoadBalancers(h.ctx, &contract.ListLoadBalancersRequest{Cluster: us})
	if err != nil {
		h.Fatal(err)
	}
	for {
		part, err := parts.Recv()
		switch {
		case err != nil || part.GetFailed() != nil:
			h.Fatal(err, part)
		case part.GetEnd() != nil:
			return count
		default:
			count++
		}
	}
}
