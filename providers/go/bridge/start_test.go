package bridge

import (
	"context"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	listersv1 "k8s.io/client-go/listers/core/v1"
	cloudprovider "k8s.io/cloud-provider"

	"github.com/grpc-ccm/grpc-ccm/providers/go/contract"
)

func (s *served) startWithin(within time.Duration) *contract.InitializeResponse {
	s.t.Helper()
	answer, err := s.provider.Initialize(s.context(within), &contract.InitializeRequest{Cluster: cluster(), KubernetesVersion: "v1.36.3"})
	must(s.t, err)
	return answer
}

func TestNothingIsAnsweredBeforeInitializeOrForAnotherOwner(t *testing.T) {
	cloud := &scripted{tagged: true, list: func(context.Context) ([]*cloudprovider.Route, error) { return nil, nil }}
	bridge := serve(t, cloud, Options{})
	refused := func(cluster *contract.ClusterRef, wanted contract.FailureCode) {
		t.Helper()
		looked, err := bridge.instances.LookupInstances(bridge.context(patience), &contract.LookupInstancesRequest{Cluster: cluster})
		must(t, err)
		code(t, looked.GetFailed(), wanted)
		made, err := bridge.balancers.EnsureLoadBalancer(bridge.context(patience), &contract.EnsureLoadBalancerRequest{Cluster: cluster, Service: service("a"), Targets: targets()})
		must(t, err)
		code(t, made.GetFailed(), wanted)
		routes, err := bridge.routes.ListRoutes(bridge.context(patience), &contract.ListRoutesRequest{Cluster: cluster})
		must(t, err)
		part, err := routes.Recv()
		must(t, err)
		code(t, part.GetFailed(), wanted)
		volume, err := bridge.volumes.GetVolumeLabels(bridge.context(patience), &contract.GetVolumeLabelsRequest{Cluster: cluster})
		must(t, err)
		code(t, volume.GetFailed(), wanted)
	}
	refused(cluster(), contract.FailureCode_FAILURE_CODE_NOT_INITIALIZED)
	probe, err := bridge.provider.Probe(bridge.context(patience), &contract.ProbeRequest{})
	must(t, err)
	info, err := bridge.provider.GetProviderInfo(bridge.context(patience), &contract.GetProviderInfoRequest{})
	must(t, err)
	if probe.GetBootId() == "" || probe.GetBootId() != info.GetBootId() || info.GetProviderIdPrefixes()[0] != "scripted://" {
		t.Errorf("%v %v", probe, info)
	}
	if offered := info.GetCapabilities(); offered.Zones != nil || offered.Clusters != nil || offered.Changes != nil || offered.GetInstances().GetListing() || offered.GetLoadBalancers().GetInSync() || offered.GetLoadBalancers().GetListing() {
		t.Errorf("more is offered than the cloud has: %v", offered)
	}
	bridge.initialise()
	refused(&contract.ClusterRef{Name: "test", OwnerId: "owner-2"}, contract.FailureCode_FAILURE_CODE_NOT_INITIALIZED)
	refused(&contract.ClusterRef{Name: "test"}, contract.FailureCode_FAILURE_CODE_INVALID)
}

func TestTheCloudsOwnInitializeRunsOnce(t *testing.T) {
	var runs atomic.Int64
	stopped := make(chan struct{})
	cloud := &scripted{tagged: true, initialize: func(_ cloudprovider.ControllerClientBuilder, stop <-chan struct{}) {
		runs.Add(1)
		go func() {
			<-stop
			close(stopped)
		}()
	}}
	bridge := serve(t, cloud, Options{CloudScope: "account 1"})
	for range 3 {
		if scope := bridge.startWithin(patience).GetInitialized().GetCloudScope(); scope != "account 1" {
			t.Errorf("the scope is %q", scope)
		}
	}
	if runs.Load() != 1 {
		t.Errorf("%d times", runs.Load())
	}
	bridge.stop()
	select {
	case <-stopped:
	case <-time.After(patience):
		t.Fatal("the stop channel was not closed")
	}
	must(t, <-bridge.ended)
}

func TestAnInitializeThatPanicsIsTriedAgainAndOneThatHangsIsNotBegunTwice(t *testing.T) {
	t.Parallel()
	var runs atomic.Int64
	release := make(chan struct{})
	cloud := &scripted{tagged: true, initialize: func(cloudprovider.ControllerClientBuilder, <-chan struct{}) {
		switch runs.Add(1) {
		case 1:
			panic("no metadata service here")
		case 2:
			<-release
		}
	}}
	bridge := serve(t, cloud, Options{})
	failed := bridge.startWithin(patience).GetFailed()
	code(t, failed, contract.FailureCode_FAILURE_CODE_INTERNAL)
	if !strings.Contains(failed.GetMessage(), "no metadata service here") {
		t.Errorf("%v", failed)
	}
	for range 2 {
		began := time.Now()
		failed := bridge.startWithin(shortDeadline).GetFailed()
		code(t, failed, contract.FailureCode_FAILURE_CODE_UNAVAILABLE)
		if time.Since(began) >= shortDeadline || !strings.Contains(failed.GetMessage(), "its own Initialize") {
			t.Errorf("%v", failed)
		}
	}
	close(release)
	eventually(t, "it is initialised", func() bool { return bridge.startWithin(patience).GetInitialized() != nil })
	if runs.Load() != 2 {
		t.Errorf("%d runs", runs.Load())
	}
}

func TestACloudWithoutClusterIDStartsWithAWarning(t *testing.T) {
	for _, allowed := range []bool{false, true} {
		log := logged(t)
		if serve(t, &scripted{}, Options{AllowUntagged: allowed}).startWithin(patience).GetInitialized() == nil {
			t.Error("it does not start")
		}
		if warned := strings.Contains(log(), "The cloud has no cluster ID (HasClusterID is false)"); warned == allowed {
			t.Errorf("allowed %v: warned %v:\n%s", allowed, warned, log())
		}
	}
}

func TestListersAndClientsKnowWhatTheCallsShowed(t *testing.T) {
	var client kubernetes.Interface
	var nodes listersv1.NodeLister
	seen := map[string]bool{}
	cloud := &scripted{
		initialize: func(clients cloudprovider.ControllerClientBuilder, _ <-chan struct{}) {
			client = clients.ClientOrDie("test")
		},
		informers: func(factory informers.SharedInformerFactory) { nodes = factory.Core().V1().Nodes().Lister() },
	}
	cloud.ensure = func(ctx context.Context, service *v1.Service, targets []*v1.Node) (*v1.LoadBalancerStatus, error) {
		for _, target := range targets {
			found, err := nodes.Get(target.Name)
			seen[target.Name] = err == nil && found.Spec.ProviderID == target.Spec.ProviderID
		}
		return ready("203.0.113.1"), nil
	}
	bridge := initialised(t, cloud, Options{})
	for range 3 {
		answer, err := bridge.balancers.EnsureLoadBalancer(bridge.context(patience), &contract.EnsureLoadBalancerRequest{Cluster: cluster(), Service: service("a"), Targets: targets("one", "two")})
		must(t, err)
		if answer.GetReady() == nil || !seen["one"] || !seen["two"] {
			t.Fatalf("%v, the lister knows %v", answer, seen)
		}
	}
	version, err := client.Discovery().ServerVersion()
	must(t, err)
	if version.Minor != "36" || version.GitVersion != "v1.36.3" {
		t.Errorf("%+v", version)
	}
	// A watch begins with the existing objects, and then sends the changes.
	watch, err := client.CoreV1().Nodes().Watch(context.Background(), metav1.ListOptions{FieldSelector: "metadata.name=one"})
	must(t, err)
	defer watch.Stop()
	changed := targets("one", "two")
	changed.GetInline().GetNodes()[0].Labels = map[string]string{"new": "label"}
	_, err = bridge.balancers.EnsureLoadBalancer(bridge.context(patience), &contract.EnsureLoadBalancerRequest{Cluster: cluster(), Service: service("a"), Targets: changed})
	must(t, err)
	for _, wanted := range []string{"ADDED", "MODIFIED"} {
		select {
		case event := <-watch.ResultChan():
			if string(event.Type) != wanted || event.Object.(*v1.Node).Name != "one" {
				t.Errorf("%s came, not %s: %v", event.Type, wanted, event.Object)
			}
		case <-time.After(patience):
			t.Fatalf("no %s", wanted)
		}
	}
	for what, write := range map[string]func() error{
		"a Secret": func() error {
			_, err := client.CoreV1().Secrets("kube-system").Get(context.Background(), "token", metav1.GetOptions{})
			return err
		},
		"secrets": func() error {
			_, err := client.CoreV1().Secrets("kube-system").List(context.Background(), metav1.ListOptions{})
			return err
		},
		"a Node": func() error {
			return client.CoreV1().Nodes().Delete(context.Background(), "one", metav1.DeleteOptions{})
		},
		"a subresource": func() error {
			_, err := client.CoreV1().Services("default").UpdateStatus(context.Background(), &v1.Service{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "default"}}, metav1.UpdateOptions{})
			return err
		},
	} {
		if err := write(); err == nil || !strings.Contains(err.Error(), "--kubeconfig") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestRoutesAreDoneOnlyAsAsked(t *testing.T) {
	there := []*cloudprovider.Route{{Name: "r-1", TargetNode: "one", DestinationCIDR: "10.1.0.0/24"}}
	var created, deleted []string
	cloud := &scripted{
		list: func(context.Context) ([]*cloudprovider.Route, error) { return there, nil },
		create: func(_ context.Context, route *cloudprovider.Route) error {
			if route.DestinationCIDR == "10.9.0.0/24" {
				panic("no such table")
			}
			created = append(created, route.DestinationCIDR+" "+string(route.TargetNode))
			return nil
		},
		unmake: func(_ context.Context, route *cloudprovider.Route) error {
			deleted = append(deleted, route.Name)
			return nil
		},
	}
	bridge := initialised(t, cloud, Options{ConcurrentCalls: 1})
	route := func(key, node, cidr string) *contract.Route {
		return &contract.Route{RouteKey: key, NodeName: &node, DestinationCidr: cidr}
	}
	made, err := bridge.routes.CreateRoutes(bridge.context(patience), &contract.CreateRoutesRequest{Cluster: cluster(), Routes: []*contract.Route{
		route("there", "one", "10.1.0.0/24"), route("new", "two", "10.2.0.0/24"), route("bad", "two", "10.9.0.0/24"), {RouteKey: "nowhere", DestinationCidr: "10.3.0.0/24"},
		route("no CIDR", "two", "10.4.0.0"),
	}})
	must(t, err)
	results := map[string]*contract.RouteResult{}
	for _, result := range made.GetResults() {
		results[result.GetRouteKey()] = result
	}
	if results["there"].GetDone() == nil || results["new"].GetDone() == nil || strings.Join(created, ",") != "10.2.0.0/24 two" {
		t.Errorf("%v; created %v", made, created)
	}
	code(t, results["bad"].GetFailed(), contract.FailureCode_FAILURE_CODE_INTERNAL)
	code(t, results["nowhere"].GetFailed(), contract.FailureCode_FAILURE_CODE_INVALID)
	// Go's cloud need not check the destination, and would then list an invalid one.
	code(t, results["no CIDR"].GetFailed(), contract.FailureCode_FAILURE_CODE_INVALID)
	gone, err := bridge.routes.DeleteRoutes(bridge.context(patience), &contract.DeleteRoutesRequest{Cluster: cluster(), Routes: []*contract.Route{
		{RouteKey: "a", Name: "r-1", DestinationCidr: "10.1.0.0/24"}, {RouteKey: "b", Name: "r-2", DestinationCidr: "10.2.0.0/24"},
	}})
	must(t, err)
	if gone.GetResults()[0].GetDone() == nil || gone.GetResults()[1].GetDone() == nil || strings.Join(deleted, ",") != "r-1" {
		t.Errorf("%v; deleted %v", gone, deleted)
	}
	// The bridge cannot list a route that has no Node and is no blackhole, so the listing fails.
	there = append(there, &cloudprovider.Route{Name: "r-3", DestinationCIDR: "10.3.0.0/24"})
	stream, err := bridge.routes.ListRoutes(bridge.context(patience), &contract.ListRoutesRequest{Cluster: cluster()})
	must(t, err)
	part, err := stream.Recv()
	must(t, err)
	code(t, part.GetFailed(), contract.FailureCode_FAILURE_CODE_INTERNAL)
	there[1].Blackhole = true
	stream, err = bridge.routes.ListRoutes(bridge.context(patience), &contract.ListRoutesRequest{Cluster: cluster()})
	must(t, err)
	part, err = stream.Recv()
	must(t, err)
	end, err := stream.Recv()
	must(t, err)
	if len(part.GetRoutes().GetRoutes()) != 2 || !part.GetRoutes().GetRoutes()[1].GetBlackhole() || end.GetEnd().GetTotal() != 2 {
		t.Errorf("%v %v", part, end)
	}
	if _, err := stream.Recv(); err != io.EOF {
		t.Errorf("after the end: %v", err)
	}
}

func TestAVolumeIsMadeOfItsView(t *testing.T) {
	var seen *v1.PersistentVolume
	cloud := &scripted{labels: func(_ context.Context, volume *v1.PersistentVolume) (map[string]string, error) {
		seen = volume
		if volume.Name == "gone" {
			return nil, cloudprovider.DiskNotFound
		}
		return map[string]string{"topology.kubernetes.io/zone": "a"}, nil
	}}
	bridge := initialised(t, cloud, Options{VolumeSources: []string{"awsElasticBlockStore", "csi/ebs.example"}})
	ask := func(name, kind string, source map[string]string) *contract.GetVolumeLabelsResponse {
		answer, err := bridge.volumes.GetVolumeLabels(bridge.context(patience), &contract.GetVolumeLabelsRequest{Cluster: cluster(), Volume: &contract.VolumeView{Name: name, SourceType: kind, Source: source}})
		must(t, err)
		return answer
	}
	answer := ask("a", "awsElasticBlockStore", map[string]string{"volumeID": "12345", "partition": "2", "readOnly": "true"})
	if disk := seen.Spec.AWSElasticBlockStore; answer.GetLabels().GetLabels()["topology.kubernetes.io/zone"] != "a" || disk.VolumeID != "12345" || disk.Partition != 2 || !disk.ReadOnly {
		t.Errorf("%v: %+v", answer, seen.Spec)
	}
	ask("b", "csi", map[string]string{"driver": "ebs.example", "volumeHandle": "true"})
	if seen.Spec.CSI.VolumeHandle != "true" {
		t.Errorf("%+v", seen.Spec.CSI)
	}
	code(t, ask("gone", "csi", map[string]string{"driver": "ebs.example", "volumeHandle": "x"}).GetFailed(), contract.FailureCode_FAILURE_CODE_NOT_FOUND)
	seen = nil
	if answer := ask("c", "csi", map[string]string{"driver": "other.example", "volumeHandle": "x"}); answer.GetLabels() == nil || len(answer.GetLabels().GetLabels()) != 0 || seen != nil {
		t.Errorf("another driver's volume: %v", answer)
	}
}

func TestInitializeAsksForLongerDeadlines(t *testing.T) {
	bridge := serve(t, &scripted{tagged: true}, Options{Deadlines: DeadlineHints{LoadBalancer: 15 * time.Minute}})
	hints := bridge.startWithin(patience).GetInitialized().GetDeadlineHints()
	if hints.GetLoadBalancer().AsDuration() != 15*time.Minute || hints.GetLookup() != nil || hints.GetList() != nil || hints.GetRoutes() != nil {
		t.Errorf("%v", hints)
	}
	if hints := serve(t, &scripted{tagged: true}, Options{}).startWithin(patience).GetInitialized().GetDeadlineHints(); hints != nil {
		t.Errorf("without the option: %v", hints)
	}
}
