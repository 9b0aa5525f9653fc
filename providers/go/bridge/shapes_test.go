package bridge

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	cloudprovider "k8s.io/cloud-provider"

	"github.com/grpc-ccm/grpc-ccm/providers/go/bridge/shapes/byid"
	"github.com/grpc-ccm/grpc-ccm/providers/go/bridge/shapes/careless"
	"github.com/grpc-ccm/grpc-ccm/providers/go/bridge/shapes/lister"
	"github.com/grpc-ccm/grpc-ccm/providers/go/bridge/shapes/store"
	"github.com/grpc-ccm/grpc-ccm/providers/go/contract"
)

const (
	existence = contract.InstanceFacet_INSTANCE_FACET_EXISTENCE
	power     = contract.InstanceFacet_INSTANCE_FACET_POWER
	metadata  = contract.InstanceFacet_INSTANCE_FACET_METADATA
)

// world is a shape of a cloud behind the bridge, and the file with the state of its cloud.
type world struct {
	*served
	path  string
	state *store.Store
	// The number of calls of the cloud's API that were checked.
	seen int
}

func newWorld(t *testing.T) *world {
	path := filepath.Join(t.TempDir(), "state.json")
	return &world{path: path, state: store.At(path)}
}

// withByID serves the cloud byid, initialised, with machines of these names.
func withByID(t *testing.T, names ...string) (*world, map[string]string) {
	t.Helper()
	w := newWorld(t)
	ids := map[string]string{}
	for _, name := range names {
		id, err := w.state.Add(name)
		must(t, err)
		ids[name] = "byid://" + id
	}
	w.served = serve(t, byid.New(byid.Settings{State: w.path}), Options{Classify: ClassifyHTTPStatus})
	w.initialise()
	return w, ids
}

// called returns the calls of the cloud's API since called last ran.
func (w *world) called(t *testing.T) string {
	t.Helper()
	calls, err := w.state.Calls()
	must(t, err)
	var what []string
	for _, call := range calls[w.seen:] {
		what = append(what, call.What)
	}
	w.seen = len(calls)
	return strings.Join(what, ", ")
}

// ask looks up one Node.
func (w *world) ask(node *contract.NodeView, facets ...contract.InstanceFacet) *contract.LookupInstanceResult {
	w.t.Helper()
	answer, err := w.instances.LookupInstances(w.context(patience), &contract.LookupInstancesRequest{Cluster: cluster(), Nodes: []*contract.NodeView{node}, Facets: facets})
	must(w.t, err)
	if len(answer.GetResults()) != 1 {
		w.t.Fatalf("%v", answer)
	}
	return answer.GetResults()[0]
}

func (w *world) edit(t *testing.T, change func(*store.State)) {
	t.Helper()
	must(t, w.state.Edit(func(state *store.State) (bool, error) {
		change(state)
		return true, nil
	}))
}

func view(name, id string) *contract.NodeView {
	view := &contract.NodeView{Name: name, Uid: "uid-" + name, Ready: new(true), Labels: map[string]string{"kubernetes.io/hostname": name}}
	if id != "" {
		view.ProviderId = &id
	}
	return view
}

func targetsOfViews(views ...*contract.NodeView) *contract.TargetSet {
	return &contract.TargetSet{Set: &contract.TargetSet_Inline{Inline: &contract.TargetList{Nodes: views}}}
}

func whole(name string) *contract.ServiceView {
	made := service(name)
	made.IpFamilyPolicy = new("SingleStack")
	return made
}

func TestANodeWithoutAProviderIDIsAskedAboutByItsMetadataAlone(t *testing.T) {
	w, ids := withByID(t, "new")
	for _, facets := range [][]contract.InstanceFacet{{existence, metadata}, {existence}} {
		found := w.ask(view("new", ""), facets...).GetFound()
		if found.GetState() != contract.InstanceState_INSTANCE_STATE_PRESENT || len(facets) == 2 && found.GetProviderId() != ids["new"] {
			t.Errorf("%v: %v", facets, found)
		}
		if called := w.called(t); called != "GET /machines?name=new" {
			t.Errorf("%v: the cloud was asked %s", facets, called)
		}
	}
	// For the power state the cloud gets the ID that it has just returned.
	if found := w.ask(view("new", ""), existence, power).GetFound(); found.GetState() != contract.InstanceState_INSTANCE_STATE_RUNNING {
		t.Errorf("%v", found)
	}
	// Only the text of the error says that the machine does not exist, so nothing is certain. The operator reads the text.
	failed := w.ask(view("unknown", ""), existence, metadata).GetFailed()
	code(t, failed, contract.FailureCode_FAILURE_CODE_INTERNAL)
	if failed.GetMessage() != "getting the machine by name: instance not found" {
		t.Errorf("%v", failed)
	}
}

func TestEachSituationOfANodeCostsTheCallsOfUpstream(t *testing.T) {
	w, ids := withByID(t, "a")
	id := strings.TrimPrefix(ids["a"], "byid://")
	get := "GET /machines/" + id
	for _, row := range []struct {
		what   string
		change func(*store.State)
		facets []contract.InstanceFacet
		state  contract.InstanceState
		code   contract.FailureCode
		calls  []string
	}{
		{"a refresh", nil, []contract.InstanceFacet{existence, metadata}, contract.InstanceState_INSTANCE_STATE_PRESENT, 0, []string{get}},
		{"not ready", nil, []contract.InstanceFacet{existence, power}, contract.InstanceState_INSTANCE_STATE_RUNNING, 0, []string{get, get}},
		{"a witness", nil, []contract.InstanceFacet{existence}, contract.InstanceState_INSTANCE_STATE_PRESENT, 0, []string{get}},
		{"off", func(state *store.State) { state.Instances["a"].Stopped = true }, []contract.InstanceFacet{existence, power}, contract.InstanceState_INSTANCE_STATE_STOPPED, 0, []string{get, get}},
		{"429 at a refresh", func(state *store.State) { state.Fail = "throttled" }, []contract.InstanceFacet{existence, metadata}, 0, throttled, []string{get}},
		{"401 at a refresh", func(state *store.State) { state.Fail = "credentials" }, []contract.InstanceFacet{existence, metadata}, 0, credentials, []string{get}},
		{"503 at a refresh", func(state *store.State) { state.Fail = "unavailable" }, []contract.InstanceFacet{existence, metadata}, 0, unavailable, []string{get}},
		// The method that describes an instance does not decide that it is gone. The method by which upstream removes Nodes does.
		{"gone at a refresh", func(state *store.State) { state.Fail = ""; delete(state.Instances, "a") }, []contract.InstanceFacet{existence, metadata}, contract.InstanceState_INSTANCE_STATE_ABSENT, 0, []string{get, get}},
		{"gone", nil, []contract.InstanceFacet{existence, power}, contract.InstanceState_INSTANCE_STATE_ABSENT, 0, []string{get}},
	} {
		if row.change != nil {
			w.edit(t, row.change)
		}
		result := w.ask(view("a", ids["a"]), row.facets...)
		if result.GetFound().GetState() != row.state || result.GetFailed().GetCode() != row.code {
			t.Errorf("%s: %v", row.what, result)
		}
		if called := w.called(t); called != strings.Join(row.calls, ", ") {
			t.Errorf("%s: the cloud was asked %q, not %q", row.what, called, row.calls)
		}
	}
}

func TestEachSituationOfAServiceCostsTheCallsOfUpstream(t *testing.T) {
	w, ids := withByID(t, "a", "b")
	a, b := view("a", ids["a"]), view("b", ids["b"])
	served := service("web")
	ensure := func(targets ...*contract.NodeView) *contract.EnsureLoadBalancerResponse {
		answer, err := w.balancers.EnsureLoadBalancer(w.context(patience), &contract.EnsureLoadBalancerRequest{Cluster: cluster(), Service: served, Targets: targetsOfViews(targets...)})
		must(t, err)
		for key, value := range answer.GetAnnotations().GetSet() {
			served.Annotations[key] = value
		}
		return answer
	}
	update := func(targets ...*contract.NodeView) *contract.UpdateLoadBalancerResponse {
		answer, err := w.balancers.UpdateLoadBalancer(w.context(patience), &contract.UpdateLoadBalancerRequest{Cluster: cluster(), Service: served, Targets: targetsOfViews(targets...)})
		must(t, err)
		return answer
	}
	expect := func(what string, good bool, answer any, calls ...string) {
		t.Helper()
		if called := w.called(t); !good || called != strings.Join(calls, ", ") {
			t.Errorf("%s: %v after %q, not %q", what, answer, called, calls)
		}
	}
	w.called(t)
	made := ensure(a)
	expect("made", made.GetReady() != nil, made, "GET /load_balancers", "POST /load_balancers")
	id := served.GetAnnotations()[byid.AnnotationID]
	get, put := "GET /load_balancers/"+id, "PUT /load_balancers/"+id
	again := ensure(a)
	expect("a restart", again.GetReady() != nil, again, get, put)
	joined := update(a, b)
	expect("a Node joins", joined.GetDone() != nil, joined, get, put)
	w.edit(t, func(state *store.State) { state.Fail = "throttled" })
	slow := update(a)
	expect("429", slow.GetFailed().GetCode() == throttled, slow, get)
	w.edit(t, func(state *store.State) { state.Fail = "invalid" })
	bad := ensure(a)
	expect("422", bad.GetFailed().GetCode() == invalidCode && strings.Contains(bad.GetFailed().GetMessage(), "422"), bad, get)
	w.edit(t, func(state *store.State) { state.Fail = ""; delete(state.LoadBalancers, id) })
	// As upstream, after a failed update the bridge checks whether a load balancer exists at all.
	missing := update(a)
	expect("removed behind the back", missing.GetFailed().GetCode() == contract.FailureCode_FAILURE_CODE_NOT_FOUND, missing, get, get)
	delete(served.Annotations, byid.AnnotationID)
	ensure(a)
	w.called(t)
	id = served.GetAnnotations()[byid.AnnotationID]
	gone, err := w.balancers.DeleteLoadBalancer(w.context(patience), &contract.DeleteLoadBalancerRequest{Cluster: cluster(), Service: served})
	must(t, err)
	expect("deleted", gone.GetDone() != nil, gone, "GET /load_balancers/"+id, "DELETE /load_balancers/"+id)
}

func TestAnnotationsThatTheCloudWritesWhileItLooksComeBack(t *testing.T) {
	w, ids := withByID(t, "a")
	made, err := w.balancers.EnsureLoadBalancer(w.context(patience), &contract.EnsureLoadBalancerRequest{Cluster: cluster(), Service: service("web"), Targets: targetsOfViews(view("a", ids["a"]))})
	must(t, err)
	// The Service has lost its annotations, or never had them.
	found, err := w.balancers.GetLoadBalancer(w.context(patience), &contract.GetLoadBalancerRequest{Cluster: cluster(), Service: service("web")})
	must(t, err)
	if found.GetFound().GetPresence() != contract.LoadBalancerPresence_LOAD_BALANCER_PRESENCE_PRESENT || found.GetAnnotations().GetSet()[byid.AnnotationID] != made.GetAnnotations().GetSet()[byid.AnnotationID] ||
		found.GetAnnotations().GetSet()[byid.AnnotationType] != "regional" || made.GetAnnotations().GetSet()[byid.AnnotationID] == "" {
		t.Errorf("%v after %v", found, made)
	}
}

func TestALoadBalancerThatIsBeingMadeIsPendingAlsoInAnAggregate(t *testing.T) {
	w, ids := withByID(t, "a")
	w.edit(t, func(state *store.State) { state.PendingFor = 1 })
	made, err := w.balancers.EnsureLoadBalancer(w.context(patience), &contract.EnsureLoadBalancerRequest{Cluster: cluster(), Service: service("web"), Targets: targetsOfViews(view("a", ids["a"]))})
	must(t, err)
	if made.GetPending().GetRetryAfter().AsDuration() != byid.Again || made.GetPending().GetMessage() != "the load balancer is being created" || made.GetAnnotations().GetSet()[byid.AnnotationID] == "" || made.GetHandle() == "" {
		t.Errorf("%v", made)
	}
}

func TestACloudThatTakesReadyNodesOnlySeesWhichAreReady(t *testing.T) {
	w, ids := withByID(t, "a", "b")
	info, err := w.provider.GetProviderInfo(w.context(patience), &contract.GetProviderInfoRequest{})
	must(t, err)
	if !slices.Contains(info.GetNodeProjection().GetFieldGroups(), contract.NodeFieldGroup_NODE_FIELD_GROUP_READINESS) {
		t.Errorf("whether Nodes are ready is not asked for: %v", info.GetNodeProjection())
	}
	a, b := view("a", ids["a"]), view("b", ids["b"])
	b.Ready = new(false)
	ensure := func(targets ...*contract.NodeView) *contract.EnsureLoadBalancerResponse {
		answer, err := w.balancers.EnsureLoadBalancer(w.context(patience), &contract.EnsureLoadBalancerRequest{Cluster: cluster(), Service: service("web"), Targets: targetsOfViews(targets...)})
		must(t, err)
		return answer
	}
	if made := ensure(a, b); made.GetReady() == nil {
		t.Errorf("%v", made)
	}
	w.edit(t, func(state *store.State) {
		for _, one := range state.LoadBalancers {
			if !slices.Equal(one.Targets, []string{strings.TrimPrefix(ids["a"], "byid://")}) {
				t.Errorf("the targets are %v", one.Targets)
			}
		}
	})
	if failed := ensure(b).GetFailed(); !strings.Contains(failed.GetMessage(), "no ready nodes available for load balancer") {
		t.Errorf("%v", failed)
	}
}

func TestACloudThatWatchesAllServicesDoesNotStartOnAPartOfThem(t *testing.T) {
	w := newWorld(t)
	w.edit(t, func(state *store.State) { state.Firewall = []string{"TCP 30080"} })
	w.served = serve(t, byid.New(byid.Settings{State: w.path, Firewall: true}), Options{})
	for range 2 {
		// The cloud's own Initialize waits for a listing that never comes.
		failed := w.startWithin(patience).GetFailed()
		code(t, failed, contract.FailureCode_FAILURE_CODE_PRECONDITION)
		for _, text := range []string{"services with a client of its own", "a provider knows only the Nodes and Services that calls named", "--kubeconfig FILE", "list and watch them, and write what the cloud writes"} {
			if failed.GetReason() != "NeedsKubernetes" || !strings.Contains(failed.GetMessage(), text) {
				t.Errorf("no %q in %v", text, failed)
			}
		}
	}
	code(t, w.ensure(patience, service("a")).GetFailed(), contract.FailureCode_FAILURE_CODE_NOT_INITIALIZED)
	probe, err := w.provider.Probe(w.context(patience), &contract.ProbeRequest{})
	must(t, err)
	if probe.GetState() != contract.ProbeState_PROBE_STATE_DEGRADED || !strings.Contains(probe.GetMessage(), "--kubeconfig") {
		t.Errorf("the probe says %v", probe)
	}
	must(t, w.state.Edit(func(state *store.State) (bool, error) {
		if !slices.Equal(state.Firewall, []string{"TCP 30080"}) {
			t.Errorf("the firewall is %v", state.Firewall)
		}
		return false, nil
	}))
}

// apiServer serves the stand-in's Nodes and Services over HTTP, as an API server does, and returns the path of a kubeconfig.
func apiServer(t *testing.T, objects *standIn) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(writer http.ResponseWriter, request *http.Request) {
		answer, err := objects.RoundTrip(request)
		if err != nil {
			http.Error(writer, err.Error(), http.StatusInternalServerError)
			return
		}
		defer func() { _ = answer.Body.Close() }()
		writer.Header().Set("Content-Type", "application/json")
		writer.WriteHeader(answer.StatusCode)
		text := make([]byte, 4096)
		for {
			read, err := answer.Body.Read(text)
			_, _ = writer.Write(text[:read])
			http.NewResponseController(writer).Flush()
			if err != nil {
				return
			}
		}
	}))
	t.Cleanup(func() {
		objects.close()
		server.CloseClientConnections()
		server.Close()
	})
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: server.URL}
	config.Contexts["c"] = &clientcmdapi.Context{Cluster: "c"}
	config.CurrentContext = "c"
	path := filepath.Join(t.TempDir(), "kubeconfig")
	must(t, clientcmd.WriteToFile(*config, path))
	return path
}

func TestACloudThatWatchesAllServicesSeesThemAllWithAKubeconfig(t *testing.T) {
	objects := newStandIn()
	for number, name := range []string{"a", "b"} {
		made := service(name)
		made.Ports[0].NodePort = new(int32(30080 + number))
		objects.knowService(serviceOf(made))
	}
	w := newWorld(t)
	w.served = serve(t, byid.New(byid.Settings{State: w.path, Firewall: true}), Options{Kubeconfig: apiServer(t, objects)})
	w.initialise()
	eventually(t, "the firewall has the ports of both", func() bool {
		both := false
		must(t, w.state.Edit(func(state *store.State) (bool, error) {
			both = slices.Equal(state.Firewall, []string{"TCP 30080", "TCP 30081"})
			return false, nil
		}))
		return both
	})
}

func TestACloudWhoseOwnServerFindsItsPortTakenServesAllTheSame(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer func() { _ = taken.Close() }()
	log := logged(t)
	w := newWorld(t)
	w.served = serve(t, byid.New(byid.Settings{State: w.path, Listen: taken.Addr().String()}), Options{})
	w.initialise()
	eventually(t, "the log names the port", func() bool {
		return strings.Contains(log(), "The debug server failed") && strings.Contains(log(), taken.Addr().String()+": bind: address already in use")
	})
	if failed := w.ask(view("a", "byid://1"), existence).GetFailed(); failed != nil {
		t.Errorf("%v", failed)
	}
}

// listerOptions make the cloud that wants a lister, as its vendor's main would.
func listerOptions(state string) Options {
	return Options{
		Name: lister.Name, Offers: []string{"instances", "load-balancers", "routes"},
		New: func(_ context.Context, deps Deps) (cloudprovider.Interface, error) {
			return lister.NewCloud(state, strings.Join(deps.ClusterCIDRs, ","), deps.Nodes)
		},
		Classify: func(err error) contract.FailureCode {
			if strings.HasSuffix(err.Error(), "(unauthorized)") {
				return credentials
			}
			return unspecified
		},
	}
}

func (s *served) startFor(cidrs ...string) *contract.InitializeResponse {
	s.t.Helper()
	answer, err := s.provider.Initialize(s.context(patience), &contract.InitializeRequest{Cluster: cluster(), ClusterCidrs: cidrs, KubernetesVersion: "v1.36.3"})
	must(s.t, err)
	return answer
}

func TestACloudThatIsMadeByCodeGetsItsListerAndTheClustersFacts(t *testing.T) {
	w := newWorld(t)
	_, err := w.state.Add("a")
	must(t, err)
	w.served = serve(t, nil, listerOptions(w.path))
	info, err := w.provider.GetProviderInfo(w.context(patience), &contract.GetProviderInfoRequest{})
	must(t, err)
	if info.GetProviderName() != "lister" || info.GetProviderIdPrefixes()[0] != "lister://" || info.GetCapabilities().Routes == nil {
		t.Errorf("%v", info)
	}
	if called := w.called(t); called != "" {
		t.Errorf("the cloud was asked %s before anybody initialised it", called)
	}
	// A missing argument or a refused token fails Initialize, and the next one tries again.
	failed := w.startFor().GetFailed()
	code(t, failed, contract.FailureCode_FAILURE_CODE_INTERNAL)
	if !strings.Contains(failed.GetMessage(), "the cluster's CIDR: invalid CIDR address") {
		t.Errorf("%v", failed)
	}
	w.edit(t, func(state *store.State) { state.Fail = "credentials" })
	failed = w.startFor("10.244.0.0/16").GetFailed()
	code(t, failed, credentials)
	if failed.GetMessage() != "lister/NewCloud: the token is not valid (unauthorized)" {
		t.Errorf("%v", failed)
	}
	w.edit(t, func(state *store.State) { state.Fail = "" })
	if answer := w.startFor("10.244.0.0/16"); answer.GetInitialized() == nil {
		t.Fatalf("%v", answer)
	}
	found := w.ask(view("a", ""), existence, metadata).GetFound()
	if found.GetState() != contract.InstanceState_INSTANCE_STATE_PRESENT {
		t.Fatalf("%v", found)
	}
	// The cloud looks for the Node in its lister, and for the server's address among those of the route.
	route := &contract.Route{RouteKey: "a", NameHint: "uid-a", DestinationCidr: "10.244.1.0/24", NodeName: new("a"), ProviderId: found.ProviderId, NodeAddresses: found.GetAddresses()}
	made, err := w.routes.CreateRoutes(w.context(patience), &contract.CreateRoutesRequest{Cluster: cluster(), Routes: []*contract.Route{route}})
	must(t, err)
	if made.GetResults()[0].GetDone() == nil {
		t.Errorf("%v", made)
	}
}

func TestARouteOfAProviderThatHasJustStartedHasItsNodeAndAddresses(t *testing.T) {
	w := newWorld(t)
	id, err := w.state.Add("a")
	must(t, err)
	w.served = serve(t, nil, listerOptions(w.path))
	w.startFor("10.244.0.0/16")
	address := []*contract.NodeAddress{{Type: contract.NodeAddressType_NODE_ADDRESS_TYPE_INTERNAL_IP, Address: "10.0.0.2"}}
	route := func(addresses []*contract.NodeAddress) *contract.RouteResult {
		made, err := w.routes.CreateRoutes(w.context(patience), &contract.CreateRoutesRequest{Cluster: cluster(), Routes: []*contract.Route{{
			RouteKey: "a", NameHint: "uid-a", DestinationCidr: "10.244.1.0/24", NodeName: new("a"), ProviderId: new("lister://" + id), NodeAddresses: addresses,
		}}})
		must(t, err)
		return made.GetResults()[0]
	}
	if made := route(address); made.GetDone() == nil {
		t.Errorf("%v", made)
	}
	w.edit(t, func(state *store.State) { delete(state.Routes, "10.244.1.0/24") })
	// An older controller sends no addresses; the bridge uses those that it knows.
	if made := route(nil); made.GetDone() == nil {
		t.Errorf("%v", made)
	}
}

func TestACloudThatIsMadeByCodeMustSayBeforeWhatItIs(t *testing.T) {
	made := func(context.Context, Deps) (cloudprovider.Interface, error) { return &scripted{}, nil }
	for text, options := range map[string]Options{
		"there is no cloud: give one, or Options.New": {},
		"options: Name is not set":                    {New: made, Offers: []string{"instances"}},
		"offer: the list is empty":                    {New: made, Name: "late"},
	} {
		if _, err := New(nil, options); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%v, not %q", err, text)
		}
	}
	for text, cloud := range map[string]cloudprovider.Interface{
		"gave neither a cloud nor an error":                                         nil,
		`the cloud that was made calls itself "scripted"; Options.Name says "late"`: &scripted{},
	} {
		failed := serve(t, nil, Options{Name: "late", Offers: []string{"instances"}, New: func(context.Context, Deps) (cloudprovider.Interface, error) { return cloud, nil }}).startWithin(patience).GetFailed()
		if !strings.Contains(failed.GetMessage(), text) {
			t.Errorf("%v, not %q", failed, text)
		}
	}
	failed := serve(t, nil, Options{Name: "late", Offers: []string{"instances"}, New: func(context.Context, Deps) (cloudprovider.Interface, error) { panic("no token in the environment") }}).startWithin(patience).GetFailed()
	if failed.GetReason() != "Panic" || !strings.Contains(failed.GetMessage(), "no token in the environment") {
		t.Errorf("%v", failed)
	}
}

func withCareless(t *testing.T, options Options, names ...string) (*world, map[string]string) {
	t.Helper()
	w := newWorld(t)
	ids := map[string]string{}
	for _, name := range names {
		id, err := w.state.Add(name)
		must(t, err)
		ids[name] = "careless://" + id
	}
	w.served = serve(t, careless.New(w.path), options)
	w.initialise()
	return w, ids
}

func TestACloudThatKeepsItsOwnCacheIsNotTakenAtItsWordBeforeItHasOne(t *testing.T) {
	w, ids := withCareless(t, Options{}, "a")
	// The cloud's Initialize fills the cache, and a goroutine refills it.
	eventually(t, "the cache is filled", func() bool { return w.ask(view("a", ids["a"]), existence, power).GetFound() != nil })
	if found := w.ask(view("a", ids["a"]), existence, power, metadata).GetFound(); found.GetState() != contract.InstanceState_INSTANCE_STATE_RUNNING {
		t.Errorf("%v", found)
	}
	// Nil metadata is UNMANAGED, as for upstream. False from InstanceExists is ABSENT.
	if found := w.ask(view("b", "careless://i-99"), existence, metadata).GetFound(); found.GetState() != contract.InstanceState_INSTANCE_STATE_UNMANAGED {
		t.Errorf("%v", found)
	}
	if found := w.ask(view("b", "careless://i-99"), existence).GetFound(); found.GetState() != contract.InstanceState_INSTANCE_STATE_ABSENT {
		t.Errorf("%v", found)
	}
}

func TestACloudThatTakesMuchForGrantedFailsWithItsOwnWords(t *testing.T) {
	t.Parallel()
	w, ids := withCareless(t, Options{GetBeforeUpdate: true}, "a")
	ensure := func(within time.Duration, view *contract.ServiceView, targets *contract.TargetSet) *contract.EnsureLoadBalancerResponse {
		answer, err := w.balancers.EnsureLoadBalancer(w.context(within), &contract.EnsureLoadBalancerRequest{Cluster: cluster(), Service: view, Targets: targets})
		must(t, err)
		return answer
	}
	a := targetsOfViews(view("a", ids["a"]))
	// The cloud writes to its arguments, and does not check pointers for nil.
	if made := ensure(patience, whole("web"), a); made.GetReady() == nil || made.GetAnnotations() != nil {
		t.Errorf("%v", made)
	}
	bare := view("a", ids["a"])
	bare.Labels = nil
	if made := ensure(patience, whole("web"), targetsOfViews(bare)); made.GetReady() == nil {
		t.Errorf("a Node without labels: %v", made)
	}
	failed := ensure(patience, service("nil"), a).GetFailed()
	if failed.GetReason() != "Panic" || !strings.Contains(failed.GetMessage(), "the cloud's method EnsureLoadBalancer panicked: runtime error: invalid memory address or nil pointer dereference") {
		t.Errorf("%v", failed)
	}
	// EnsureLoadBalancer returns nil without an error.
	w.edit(t, func(state *store.State) { state.PendingFor = 1 })
	failed = ensure(patience, whole("being-made"), a).GetFailed()
	if failed.GetMessage() != "EnsureLoadBalancer answered neither a status nor an error for Service default/being-made" {
		t.Errorf("%v", failed)
	}
	// Its UpdateLoadBalancer succeeds without a load balancer, so the bridge calls GetLoadBalancer first.
	update := func(name string) *contract.UpdateLoadBalancerResponse {
		answer, err := w.balancers.UpdateLoadBalancer(w.context(patience), &contract.UpdateLoadBalancerRequest{Cluster: cluster(), Service: whole(name), Targets: a})
		must(t, err)
		return answer
	}
	code(t, update("never-made").GetFailed(), contract.FailureCode_FAILURE_CODE_NOT_FOUND)
	if answer := update("web"); answer.GetDone() == nil {
		t.Errorf("%v", answer)
	}
	// The cloud checks no context.
	w.edit(t, func(state *store.State) { state.SlowMS = 3_600_000 })
	failed = ensure(shortDeadline, whole("web"), a).GetFailed()
	if failed.GetReason() != "ContextIgnored" || !strings.Contains(failed.GetMessage(), "the cloud's method EnsureLoadBalancer had not returned after") || !strings.Contains(failed.GetMessage(), "other calls that change the object are answered BUSY") {
		t.Errorf("%v", failed)
	}
	code(t, ensure(patience, whole("web"), a).GetFailed(), contract.FailureCode_FAILURE_CODE_BUSY)
}
