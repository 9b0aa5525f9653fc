package bridge

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	listersv1 "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/klog/v2"

	"github.com/grpc-ccm/grpc-ccm/providers/go/contract"
)

// panicking is a cloud that returns its parts. The methods of the parts panic.
type panicking struct{ *scripted }

func (*panicking) Clusters() (cloudprovider.Clusters, bool) { return panickingClusters{}, true }
func (*panicking) LoadBalancer() (cloudprovider.LoadBalancer, bool) {
	return panickingBalancers{}, true
}

// Methods of interfaces that are nil.
type (
	panickingClusters  struct{ cloudprovider.Clusters }
	panickingBalancers struct{ cloudprovider.LoadBalancer }
)

func TestAPanicInAnyMethodIsThatCallsFailure(t *testing.T) {
	bridge := serve(t, &panicking{&scripted{tagged: true}}, Options{})
	bridge.initialise()
	ctx := bridge.context(patience)
	of := func(failed *contract.Failure, err error) *contract.Failure {
		t.Helper()
		must(t, err)
		return failed
	}
	routes := []*contract.Route{{RouteKey: "a", NodeName: new("a"), DestinationCidr: "10.1.0.0/24"}}
	for method, failed := range map[string]func() *contract.Failure{
		"InstancesV2": func() *contract.Failure {
			answer, err := bridge.instances.LookupInstances(ctx, &contract.LookupInstancesRequest{Cluster: cluster(), Nodes: []*contract.NodeView{node("a")}})
			return of(answer.GetResults()[0].GetFailed(), err)
		},
		"GetLoadBalancer": func() *contract.Failure {
			answer, err := bridge.balancers.GetLoadBalancer(ctx, &contract.GetLoadBalancerRequest{Cluster: cluster(), Service: service("a")})
			return of(answer.GetFailed(), err)
		},
		"EnsureLoadBalancer": func() *contract.Failure { return bridge.ensure(patience, service("a")).GetFailed() },
		"UpdateLoadBalancer": func() *contract.Failure {
			answer, err := bridge.balancers.UpdateLoadBalancer(ctx, &contract.UpdateLoadBalancerRequest{Cluster: cluster(), Service: service("a"), Targets: targets()})
			return of(answer.GetFailed(), err)
		},
		"EnsureLoadBalancerDeleted": func() *contract.Failure {
			answer, err := bridge.balancers.DeleteLoadBalancer(ctx, &contract.DeleteLoadBalancerRequest{Cluster: cluster(), Service: service("a")})
			return of(answer.GetFailed(), err)
		},
		"ListRoutes": func() *contract.Failure {
			stream, err := bridge.routes.ListRoutes(ctx, &contract.ListRoutesRequest{Cluster: cluster()})
			must(t, err)
			part, err := stream.Recv()
			return of(part.GetFailed(), err)
		},
		"ListRoutes ": func() *contract.Failure {
			answer, err := bridge.routes.DeleteRoutes(ctx, &contract.DeleteRoutesRequest{Cluster: cluster(), Routes: routes})
			return of(answer.GetResults()[0].GetFailed(), err)
		},
		"ListClusters": func() *contract.Failure {
			stream, err := bridge.clusters.ListClusters(ctx, &contract.ListClustersRequest{Cluster: cluster()})
			must(t, err)
			part, err := stream.Recv()
			return of(part.GetFailed(), err)
		},
		"Master": func() *contract.Failure {
			answer, err := bridge.clusters.GetControlPlaneAddress(ctx, &contract.GetControlPlaneAddressRequest{Cluster: cluster(), ClusterName: "a"})
			return of(answer.GetFailed(), err)
		},
		"GetLabelsForVolume": func() *contract.Failure {
			answer, err := bridge.volumes.GetVolumeLabels(ctx, &contract.GetVolumeLabelsRequest{Cluster: cluster(), Volume: &contract.VolumeView{Name: "a", SourceType: "csi", Source: map[string]string{"driver": "d"}}})
			return of(answer.GetFailed(), err)
		},
	} {
		for range 2 {
			failed := failed()
			text := "the cloud's method " + strings.TrimSpace(method) + " panicked: runtime error: invalid memory address or nil pointer dereference"
			if failed.GetCode() != contract.FailureCode_FAILURE_CODE_INTERNAL || failed.GetReason() != "Panic" || failed.GetMessage() != text {
				t.Errorf("%s: %v", method, failed)
			}
		}
	}
}

func TestAPanicInWhatTheVendorAddsIsNoEnd(t *testing.T) {
	cloud := &scripted{metadata: func(context.Context, *v1.Node) (*cloudprovider.InstanceMetadata, error) {
		return nil, errors.New("boom")
	}}
	cloud.exists = func(context.Context, *v1.Node) (bool, error) { return true, nil }
	bridge := initialised(t, cloud, Options{Classify: func(error) contract.FailureCode { panic("no such error") }})
	for range 2 {
		failed := bridge.lookup(patience, node("a"))["a"].GetFailed()
		if failed.GetCode() != contract.FailureCode_FAILURE_CODE_INTERNAL || failed.GetMessage() != "boom" {
			t.Errorf("%v", failed)
		}
	}
	informed := &scripted{informers: func(informers.SharedInformerFactory) { panic("no informers, please") }}
	failed := serve(t, informed, Options{}).startWithin(patience).GetFailed()
	if failed.GetReason() != "Panic" || !strings.Contains(failed.GetMessage(), "no informers, please") {
		t.Errorf("%v", failed)
	}
}

func TestWhatTheStandInDoesNotHaveCannotBeWritten(t *testing.T) {
	var client kubernetes.Interface
	ctx := context.Background()
	writes := map[string]struct {
		write func() error
		text  string
	}{
		"a Service of no call": {func() error {
			_, err := client.CoreV1().Services("default").Patch(ctx, "other", types.MergePatchType, []byte(`{"metadata":{"annotations":{"x":"y"}}}`), metav1.PatchOptions{})
			return err
		}, "no call about the load balancer of Service default/other is open"},
		"the spec": {func() error {
			_, err := client.CoreV1().Services("default").Patch(ctx, "web", types.MergePatchType, []byte(`{"spec":{"type":"NodePort"}}`), metav1.PatchOptions{})
			return err
		}, "Service default/web: the patch changes spec: a provider has no access to Kubernetes"},
		"the status": {func() error {
			_, err := client.CoreV1().Services("default").Patch(ctx, "web", types.MergePatchType, []byte(`{"status":{}}`), metav1.PatchOptions{}, "status")
			return err
		}, "PATCH /api/v1/namespaces/default/services/web/status: a provider has no access to Kubernetes"},
		"a finalizer": {func() error {
			_, err := client.CoreV1().Services("default").Patch(ctx, "web", types.MergePatchType, []byte(`{"metadata":{"finalizers":["x"]}}`), metav1.PatchOptions{})
			return err
		}, "the patch changes metadata.finalizers"},
		"a Node": {func() error {
			_, err := client.CoreV1().Nodes().Patch(ctx, "one", types.MergePatchType, []byte(`{"metadata":{"labels":{"x":"y"}}}`), metav1.PatchOptions{})
			return err
		}, "PATCH /api/v1/nodes/one: a provider has no access to Kubernetes"},
		"a ConfigMap": {func() error {
			_, err := client.CoreV1().ConfigMaps("kube-system").Create(ctx, &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "state"}}, metav1.CreateOptions{})
			return err
		}, "POST /api/v1/namespaces/kube-system/configmaps: a provider has no access to Kubernetes"},
	}
	name := ""
	cloud := &scripted{
		initialize: func(clients cloudprovider.ControllerClientBuilder, _ <-chan struct{}) {
			client = clients.ClientOrDie("test")
		},
		ensure: func(context.Context, *v1.Service, []*v1.Node) (*v1.LoadBalancerStatus, error) {
			return nil, fmt.Errorf("cannot write %s: %w", name, writes[name].write())
		},
	}
	bridge := initialised(t, cloud, Options{})
	for what, row := range writes {
		name = what
		// The operator reads the cloud's error in the event of the Service.
		failed := bridge.ensure(patience, service("web")).GetFailed()
		if failed.GetCode() != contract.FailureCode_FAILURE_CODE_INTERNAL || !strings.Contains(failed.GetMessage(), row.text) {
			t.Errorf("%s: %v, not %q", what, failed, row.text)
		}
	}
}

func TestWhatWantsAllOfKubernetesDoesNotStart(t *testing.T) {
	handler := cache.ResourceEventHandlerFuncs{}
	for text, wants := range map[string]func(informers.SharedInformerFactory){
		"the cloud lists the Services of its informer": func(factory informers.SharedInformerFactory) {
			_, _ = factory.Core().V1().Services().Lister().List(labels.Everything())
		},
		"the cloud lists the Services of its informer: ": func(factory informers.SharedInformerFactory) {
			_, _ = factory.Core().V1().Services().Lister().Services("default").List(labels.Everything())
		},
		"the cloud wants events of every Service (AddEventHandler)": func(factory informers.SharedInformerFactory) {
			_, _ = factory.Core().V1().Services().Informer().AddEventHandler(handler)
		},
		"the cloud lists the services in the store of its informer": func(factory informers.SharedInformerFactory) {
			factory.Core().V1().Services().Informer().GetStore().List()
		},
		"the cloud lists the Nodes of its informer": func(factory informers.SharedInformerFactory) {
			_, _ = factory.Core().V1().Nodes().Lister().List(labels.Everything())
		},
		"the cloud has an informer of v1.Secret": func(factory informers.SharedInformerFactory) {
			factory.Core().V1().Secrets().Informer()
		},
		"the cloud has an informer of v1.EndpointSlice": func(factory informers.SharedInformerFactory) {
			factory.Discovery().V1().EndpointSlices().Lister()
		},
	} {
		failed := serve(t, &scripted{informers: wants}, Options{}).startWithin(patience).GetFailed()
		code(t, failed, contract.FailureCode_FAILURE_CODE_PRECONDITION)
		if !strings.HasPrefix(failed.GetMessage(), text) || !strings.Contains(failed.GetMessage(), "start it with --kubeconfig FILE") {
			t.Errorf("%v, not %q", failed, text)
		}
	}
	for text, wants := range map[string]func(kubernetes.Interface) error{
		"the cloud lists nodes with a client of its own": func(client kubernetes.Interface) error {
			_, err := client.CoreV1().Nodes().List(context.Background(), metav1.ListOptions{})
			return err
		},
		"the cloud watches services with a client of its own": func(client kubernetes.Interface) error {
			_, err := client.CoreV1().Services("").Watch(context.Background(), metav1.ListOptions{})
			return err
		},
		"the cloud lists endpointslices.discovery.k8s.io with a client of its own": func(client kubernetes.Interface) error {
			_, err := client.DiscoveryV1().EndpointSlices("").List(context.Background(), metav1.ListOptions{})
			return err
		},
	} {
		failed := serve(t, &scripted{initialize: func(clients cloudprovider.ControllerClientBuilder, _ <-chan struct{}) {
			if err := wants(clients.ClientOrDie("test")); err == nil || !strings.Contains(err.Error(), "--kubeconfig") {
				t.Errorf("%s: the cloud reads %v", text, err)
			}
		}}, Options{}).startWithin(patience).GetFailed()
		code(t, failed, contract.FailureCode_FAILURE_CODE_PRECONDITION)
		if !strings.HasPrefix(failed.GetMessage(), text) {
			t.Errorf("%v, not %q", failed, text)
		}
	}
}

func TestAListOfNodesInTheMiddleOfACallIsThatCallsFailureAndSeenInTheProbe(t *testing.T) {
	var nodes listersv1.NodeLister
	cloud := &scripted{
		informers: func(factory informers.SharedInformerFactory) { nodes = factory.Core().V1().Nodes().Lister() },
		// A cloud that mistakes a part of the Nodes for all would list the routes of the other Nodes as blackholes.
		list: func(context.Context) ([]*cloudprovider.Route, error) {
			_, err := nodes.List(labels.Everything())
			return nil, err
		},
		metadata: func(_ context.Context, node *v1.Node) (*cloudprovider.InstanceMetadata, error) {
			return metadataOf(node), nil
		},
		exists:   func(context.Context, *v1.Node) (bool, error) { return true, nil },
		shutdown: func(context.Context, *v1.Node) (bool, error) { return false, nil },
	}
	bridge := initialised(t, cloud, Options{})
	stream, err := bridge.routes.ListRoutes(bridge.context(patience), &contract.ListRoutesRequest{Cluster: cluster()})
	must(t, err)
	part, err := stream.Recv()
	must(t, err)
	if !strings.Contains(part.GetFailed().GetMessage(), "the cloud lists the Nodes of its informer: a provider knows only") {
		t.Errorf("%v", part)
	}
	probe, err := bridge.provider.Probe(bridge.context(patience), &contract.ProbeRequest{})
	must(t, err)
	if probe.GetState() != contract.ProbeState_PROBE_STATE_DEGRADED || !strings.Contains(probe.GetMessage(), "--kubeconfig") {
		t.Errorf("the probe says %v", probe)
	}
	// Other parts still work, also for the next controller.
	bridge.initialise()
	if found := bridge.lookup(patience, node("a"))["a"].GetFound(); found == nil {
		t.Error("the rest does not work any more")
	}
}

// PROV-16: no answer comes between the calls, so nothing else sets the count of failures to 0.
func TestCallsThatTheCallerGaveUpAccuseNotTheCloud(t *testing.T) {
	for what, ended := range map[string]func(error) error{
		"with the context's error":      func(err error) error { return fmt.Errorf("getting the machine: %w", err) },
		"with the end only as its text": func(err error) error { return fmt.Errorf("getting the machine: %s", err) },
	} {
		t.Run(what, func(t *testing.T) {
			began := make(chan struct{})
			burning := false
			cloud := &scripted{
				metadata: func(ctx context.Context, _ *v1.Node) (*cloudprovider.InstanceMetadata, error) {
					if burning {
						return nil, errors.New("the cloud is on fire")
					}
					began <- struct{}{}
					<-ctx.Done()
					return nil, ended(ctx.Err())
				},
				exists: func(context.Context, *v1.Node) (bool, error) { return true, nil },
			}
			// In the only place, a call begins when the bridge has noted how the method of the call before has ended.
			bridge := initialised(t, cloud, Options{ConcurrentCalls: 1})
			for range manyFailures + 1 {
				ctx, cancel := context.WithTimeout(context.Background(), patience)
				go func() {
					<-began
					cancel()
				}()
				_, err := bridge.instances.LookupInstances(ctx, &contract.LookupInstancesRequest{Cluster: cluster(), Nodes: []*contract.NodeView{node("a")}, Facets: []contract.InstanceFacet{metadata}})
				if err == nil {
					t.Error("a cancelled call was answered")
				}
			}
			burning = true
			for failures := range manyFailures {
				if state := probed(t, bridge); state != contract.ProbeState_PROBE_STATE_READY {
					t.Errorf("after %d failures of the cloud Probe says %v", failures, state)
				}
				code(t, bridge.lookup(patience, node("a"))["a"].GetFailed(), contract.FailureCode_FAILURE_CODE_INTERNAL)
			}
			probe, err := bridge.provider.Probe(bridge.context(patience), &contract.ProbeRequest{})
			must(t, err)
			if text := fmt.Sprintf("the last %d calls to the cloud failed", manyFailures); !strings.Contains(probe.GetMessage(), text) {
				t.Errorf("after as many failures of the cloud the probe says %v, not %q", probe, text)
			}
		})
	}
}

func TestNilInAListOfRoutesIsNoRoute(t *testing.T) {
	cloud := &scripted{list: func(context.Context) ([]*cloudprovider.Route, error) { return []*cloudprovider.Route{nil}, nil }}
	bridge := initialised(t, cloud, Options{})
	stream, err := bridge.routes.ListRoutes(bridge.context(patience), &contract.ListRoutesRequest{Cluster: cluster()})
	must(t, err)
	part, err := stream.Recv()
	must(t, err)
	if part.GetFailed().GetMessage() != "ListRoutes gave a route that is nil" {
		t.Errorf("%v", part)
	}
}

// childCloud is the variable that says what the cloud of a child process does in the next test.
const childCloud = "BRIDGE_TEST_CHILD"

func TestWhatACloudDoesInAGoroutineOfItsOwnEndsTheProcessWithItsText(t *testing.T) {
	if what := os.Getenv(childCloud); what != "" {
		cloud := &scripted{tagged: true, initialize: func(cloudprovider.ControllerClientBuilder, <-chan struct{}) {
			go func() {
				if what == "panic" {
					panic("the tag controller has no session")
				}
				klog.Fatalf("listen tcp :10258: bind: address already in use")
			}()
		}}
		bridge := serve(t, cloud, Options{})
		_, _ = bridge.provider.Initialize(bridge.context(patience), &contract.InitializeRequest{Cluster: cluster()})
		eventually(t, "the goroutine of the cloud ends the process", func() bool { return false })
	}
	for what, text := range map[string]string{"panic": "panic: the tag controller has no session", "fatal": "listen tcp :10258: bind: address already in use"} {
		// A short name, because a socket's path is limited. The child does not remove its files.
		directory, err := os.MkdirTemp("", "child")
		must(t, err)
		defer func() { _ = os.RemoveAll(directory) }()
		child := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
		child.Env = append(os.Environ(), childCloud+"="+what, "TMPDIR="+directory)
		said, err := child.CombinedOutput()
		var ended *exec.ExitError
		if !errors.As(err, &ended) || ended.ExitCode() == 0 || !strings.Contains(string(said), text) {
			t.Errorf("%s: %v\n%s", what, err, said)
		}
	}
}
