package sdk

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/grpc-ccm/grpc-ccm/providers/go/contract"
)

// A cloud that answers with a test's values, and records its calls.
type ruledCloud struct {
	scriptedCloud
	mutex  sync.Mutex
	asked  []string
	err    error
	health Health
	create func(Route) error
}

func (c *ruledCloud) ask(what string, arguments ...any) error {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.asked = append(c.asked, fmt.Sprintf(what, arguments...))
	return c.err
}

func (c *ruledCloud) Info() Info {
	info := c.scriptedCloud.Info()
	info.Without = nil
	return info
}

func (c *ruledCloud) Health() Health { return c.health }

func (c *ruledCloud) LookupInstance(_ context.Context, _ *Call, _ Node, query InstanceQuery) (Instance, error) {
	return Instance{State: InstanceAbsent}, c.ask("existence %t, power %t, metadata %t", query.Existence, query.Power, query.Metadata)
}

func (c *ruledCloud) ListInstances(_ context.Context, _ *Call, query InstanceQuery) ([]Instance, error) {
	return nil, c.ask("existence %t, power %t, metadata %t", query.Existence, query.Power, query.Metadata)
}

func (c *ruledCloud) GetLoadBalancer(context.Context, *Call, GetLoadBalancer) (LoadBalancer, error) {
	return LoadBalancer{Presence: LoadBalancerPresent, Ownership: Ours, Name: strings.Repeat("ä", 200)}, c.ask("get")
}

func (c *ruledCloud) EnsureLoadBalancer(context.Context, *Call, EnsureLoadBalancer) (LoadBalancerStatus, error) {
	return LoadBalancerStatus{}, c.ask("ensure")
}

func (c *ruledCloud) UpdateLoadBalancer(context.Context, *Call, UpdateLoadBalancer) error {
	return c.ask("update")
}

func (c *ruledCloud) DeleteLoadBalancer(context.Context, *Call, DeleteLoadBalancer) error {
	return c.ask("delete")
}

func (c *ruledCloud) ListLoadBalancers(context.Context, *Call) ([]ListedLoadBalancer, error) {
	return []ListedLoadBalancer{{Name: strings.Repeat("n", 300)}}, c.ask("list")
}

func (c *ruledCloud) ListRoutes(context.Context, *Call) ([]Route, error) { return nil, c.ask("list") }

func (c *ruledCloud) CreateRoute(_ context.Context, _ *Call, route Route) error {
	if err := c.ask("create %s", route.Key); err != nil || c.create == nil {
		return err
	}
	return c.create(route)
}

func (c *ruledCloud) DeleteRoute(_ context.Context, _ *Call, route Route) error {
	return c.ask("delete %s", route.Key)
}

func (c *ruledCloud) ListClusters(context.Context, *Call) ([]string, error) {
	return nil, c.ask("clusters")
}

func (c *ruledCloud) ControlPlaneAddress(context.Context, *Call, string) (string, error) {
	return "", c.ask("address")
}

func (c *ruledCloud) VolumeLabels(context.Context, *Call, Volume) (map[string]string, error) {
	return nil, c.ask("labels")
}

func TestNoFacetThatIsKnownAsksForExistence(t *testing.T) {
	cloud := &ruledCloud{}
	s := serveScripted(t, cloud)
	instances := contract.NewInstanceServiceClient(s.connection)
	for _, facets := range [][]contract.InstanceFacet{nil, {0, 99}, {contract.InstanceFacet_INSTANCE_FACET_POWER}} {
		if _, err := instances.LookupInstances(t.Context(), &contract.LookupInstancesRequest{Cluster: us, Nodes: []*contract.NodeView{{Name: "a"}}, Facets: facets}); err != nil {
			t.Error(err)
		}
	}
	listing, err := instances.ListInstances(t.Context(), &contract.ListInstancesRequest{Cluster: us})
	if err == nil {
		_, err = listing.Recv()
	}
	existence := "existence true, power false, metadata false"
	if expected := []string{existence, existence, "existence false, power true, metadata false", existence}; err != nil || !slices.Equal(cloud.asked, expected) {
		t.Error(err, cloud.asked)
	}
}

// LB-33: the server cuts a long name, because the name is for people.
func TestANameOfALoadBalancerIsCutBetweenCharacters(t *testing.T) {
	s := serveScripted(t, &ruledCloud{})
	balancers := contract.NewLoadBalancerServiceClient(s.connection)
	found, err := balancers.GetLoadBalancer(t.Context(), &contract.GetLoadBalancerRequest{Cluster: us, Service: &contract.ServiceView{Namespace: "n", Name: "s", Uid: "u"}})
	if name := found.GetFound().GetLoadBalancerName(); err != nil || name != strings.Repeat("ä", 126) {
		t.Error(found, err)
	}
	listing, err := balancers.ListLoadBalancers(t.Context(), &contract.ListLoadBalancersRequest{Cluster: us})
	if err != nil {
		t.Fatal(err)
	}
	if part, err := listing.Recv(); err != nil || part.GetLoadBalancer().GetLoadBalancerName() != strings.Repeat("n", 253) {
		t.Error(part, err)
	}
}

// CORE-11: the controller reads no answer about a load balancer of more than 1 MiB, and only the
// first 32 events.
func TestManyEventsAndTargetErrorsLeaveRoomForTheRestOfTheAnswer(t *testing.T) {
	for name, row := range map[string]struct{ targets, nodeBytes, messageBytes, least int }{
		"short messages":       {1000, 10, 100, 1000},
		"long messages":        {3000, 63, MaxTextBytes, 3000},
		"too many long names":  {9000, nameBytes, MaxTextBytes, 1000},
		"no room for messages": {2000, nameBytes, 0, 1000},
	} {
		s := serveScripted(t, scriptedCloud{ensure: func(_ context.Context, request EnsureLoadBalancer) (LoadBalancerStatus, error) {
			request.Notes.Handle("lb-1")
			for number := range 2000 {
				request.Notes.Event("Made", fmt.Sprint(number, strings.Repeat("e", MaxTextBytes)))
			}
			for number := range row.targets {
				request.Notes.TargetError(fmt.Sprintf("%0*d", row.nodeBytes, number), Invalid("%s", strings.Repeat("m", row.messageBytes)))
			}
			return LoadBalancerStatus{Ingress: []Ingress{{Hostname: "a.example"}}}, nil
		}})
		said, err := s.ensure(t.Context(), "uid")
		if err != nil {
			t.Fatal(name, err)
		}
		if size := proto.Size(said); size > 1024*1024 || said.GetHandle() != "lb-1" || said.GetReady() == nil || len(said.Events) != 32 || !strings.HasPrefix(said.Events[31].Message, "31e") {
			t.Errorf("%s: %d bytes, the handle %q, %v, %d events", name, size, said.GetHandle(), said.GetReady(), len(said.Events))
		}
		if many := len(said.TargetErrors); many < row.least || name == "short messages" && said.TargetErrors[0].Failure.Message != strings.Repeat("m", 100) {
			t.Errorf("%s: %d target errors", name, many)
		}
	}
}

func TestATargetErrorOfNilIsNone(t *testing.T) {
	s := serveScripted(t, scriptedCloud{ensure: func(_ context.Context, request EnsureLoadBalancer) (LoadBalancerStatus, error) {
		request.Notes.TargetError("a", nil)
		return LoadBalancerStatus{Ingress: []Ingress{{Hostname: "a.example"}}}, nil
	}})
	if said, err := s.ensure(t.Context(), "uid"); err != nil || said.GetReady() == nil || len(said.TargetErrors) > 0 {
		t.Error(said, err)
	}
}

// CORE-20: the server does not call the provider for a Service without a name or UID.
func TestAServiceWithoutNameOrUIDIsInvalid(t *testing.T) {
	cloud := &ruledCloud{}
	s := serveScripted(t, cloud)
	balancers := contract.NewLoadBalancerServiceClient(s.connection)
	for _, service := range []*contract.ServiceView{{Namespace: "n", Uid: "u"}, {Namespace: "n", Name: "s"}, nil} {
		got, err1 := balancers.GetLoadBalancer(t.Context(), &contract.GetLoadBalancerRequest{Cluster: us, Service: service})
		ensured, err2 := balancers.EnsureLoadBalancer(t.Context(), &contract.EnsureLoadBalancerRequest{Cluster: us, Service: service})
		updated, err3 := balancers.UpdateLoadBalancer(t.Context(), &contract.UpdateLoadBalancerRequest{Cluster: us, Service: service})
		deleted, err4 := balancers.DeleteLoadBalancer(t.Context(), &contract.DeleteLoadBalancerRequest{Cluster: us, Service: service})
		for i, failed := range []*contract.Failure{got.GetFailed(), ensured.GetFailed(), updated.GetFailed(), deleted.GetFailed()} {
			if failed.GetCode() != contract.FailureCode_FAILURE_CODE_INVALID {
				t.Error(service, i, failed, err1, err2, err3, err4)
			}
		}
	}
	if len(cloud.asked) > 0 {
		t.Error(cloud.asked)
	}
}

// ROUTE-2 and ROUTE-10: an invalid route fails alone, and the server does not call the provider for it.
func TestARouteWithoutTargetOrNameIsInvalidAlone(t *testing.T) {
	cloud := &ruledCloud{}
	s := serveScripted(t, cloud)
	routes := contract.NewRouteServiceClient(s.connection)
	node, hop, none := "node", "10.0.0.1", "nowhere"
	created, err := routes.CreateRoutes(t.Context(), &contract.CreateRoutesRequest{Cluster: us, Routes: []*contract.Route{
		{RouteKey: "node", DestinationCidr: "10.1.0.0/24", NodeName: &node}, {RouteKey: "hop", DestinationCidr: "10.2.0.0/24", NextHop: &hop},
		{RouteKey: "no target", DestinationCidr: "10.3.0.0/24"}, {RouteKey: "no address", DestinationCidr: "10.4.0.0/24", NextHop: &none},
		{RouteKey: "no CIDR", DestinationCidr: "10.5.0.0", NodeName: &node},
	}})
	wrong := refusedRoutes(created.GetResults(), contract.FailureCode_FAILURE_CODE_INVALID)
	if err != nil || !slices.Equal(wrong, []string{"no target", "no address", "no CIDR"}) {
		t.Error(created, err)
	}
	removed, err := routes.DeleteRoutes(t.Context(), &contract.DeleteRoutesRequest{Cluster: us, Routes: []*contract.Route{
		{RouteKey: "named", Name: "r", DestinationCidr: "10.1.0.0/24"}, {RouteKey: "nameless", DestinationCidr: "10.2.0.0/24"},
	}})
	if wrong := refusedRoutes(removed.GetResults(), contract.FailureCode_FAILURE_CODE_INVALID); err != nil || !slices.Equal(wrong, []string{"nameless"}) {
		t.Error(removed, err)
	}
	slices.Sort(cloud.asked)
	if !slices.Equal(cloud.asked, []string{"create hop", "create node", "delete named"}) {
		t.Error(cloud.asked)
	}
}

// The keys of the results that failed with this code; other failures appear as text.
func refusedRoutes(results []*contract.RouteResult, code contract.FailureCode) (keys []string) {
	for _, result := range results {
		if failed := result.GetFailed(); failed.GetCode() == code {
			keys = append(keys, result.RouteKey)
		} else if failed != nil {
			keys = append(keys, result.String())
		}
	}
	return keys
}

// CORE-21: NOT_FOUND and CONFLICT occur only if the contract lists them; an unknown code is INTERNAL.
func TestACodeThatIsNotListedIsInternal(t *testing.T) {
	rpcs := []string{"LookupInstances", "ListInstances", "GetLoadBalancer", "EnsureLoadBalancer", "UpdateLoadBalancer", "DeleteLoadBalancer", "ListLoadBalancers", "ListRoutes", "CreateRoutes",
		"DeleteRoutes", "ListClusters", "GetControlPlaneAddress", "GetVolumeLabels"}
	for code, listing := range map[Code][]string{
		CodeNotFound: {"UpdateLoadBalancer", "GetControlPlaneAddress", "GetVolumeLabels"},
		CodeConflict: {"LookupInstances", "GetLoadBalancer", "EnsureLoadBalancer", "UpdateLoadBalancer", "DeleteLoadBalancer", "CreateRoutes", "DeleteRoutes"},
		CodeBusy:     rpcs, CodePrecondition: rpcs, CodeCredentials: rpcs, CodeInternal: rpcs,
		Code(0): nil, Code(99): nil,
	} {
		s := serveScripted(t, &ruledCloud{err: Fail(code, "the vendor's words").Because("Word")})
		failures := s.failures()
		for _, rpc := range rpcs {
			failed, expected := failures[rpc], CodeInternal
			if slices.Contains(listing, rpc) {
				expected = code
			}
			if failed == nil || Code(failed.GetCode()) != expected || failed.Reason != "Word" || !strings.Contains(failed.Message, "the vendor's words") {
				t.Errorf("%s of %s: %v; expected %s", code, rpc, failed, expected)
			}
		}
	}
	if listed("LookupInstances", "", CodeConflict) {
		t.Error("CONFLICT is listed for LookupInstances as a whole")
	}
}

// A joined error is no failure only if all its branches say the same.
func TestAFailureBesideAnotherOutcomeIsAFailure(t *testing.T) {
	down, elsewhere := Unavailable("the cloud is down"), fmt.Errorf("asking: %w", ErrHandledElsewhere)
	for name, row := range map[string]struct {
		err    error
		wanted string
	}{
		"retained and a failure":     {errors.Join(Retained("kept"), down), "UNAVAILABLE"},
		"elsewhere and a failure":    {errors.Join(elsewhere, down), "UNAVAILABLE"},
		"pending and a failure":      {errors.Join(Pending(0, "soon"), down), "UNAVAILABLE"},
		"pending and another error":  {fmt.Errorf("%w: %w", Pending(0, "soon"), errors.New("odd")), "INTERNAL"},
		"retained and elsewhere":     {errors.Join(Retained("kept"), elsewhere), "INTERNAL"},
		"retained twice":             {errors.Join(Retained("kept"), fmt.Errorf("too: %w", Retained("kept"))), "retained"},
		"elsewhere twice":            {errors.Join(elsewhere, ErrHandledElsewhere), "elsewhere"},
		"pending, joined with nil":   {errors.Join(nil, Pending(0, "soon")), "pending"},
		"a failure wraps pending":    {Unavailable("so: %w", Pending(0, "soon")), "pending"},
		"a failure without an inner": {errors.Join(down), "UNAVAILABLE"},
	} {
		s := serveScripted(t, &ruledCloud{err: row.err})
		said, err := contract.NewLoadBalancerServiceClient(s.connection).DeleteLoadBalancer(t.Context(), &contract.DeleteLoadBalancerRequest{Cluster: us, Service: &contract.ServiceView{Name: "s", Uid: "u"}})
		got := map[bool]string{said.GetPending() != nil: "pending", said.GetRetained() != nil: "retained", said.GetHandledElsewhere() != nil: "elsewhere"}[true]
		if failed := said.GetFailed(); failed != nil {
			got = Code(failed.Code).String()
		}
		if err != nil || got != row.wanted {
			t.Errorf("%s: %v %v", name, said, err)
		}
	}
}

// The failure in the answer of each RPC that it calls. If the answer has items, it is the failure
// of the first item.
func (s *served) failures() map[string]*contract.Failure {
	s.Helper()
	instances, balancers, routes := contract.NewInstanceServiceClient(s.connection), contract.NewLoadBalancerServiceClient(s.connection), contract.NewRouteServiceClient(s.connection)
	clusters, volumes := contract.NewClusterServiceClient(s.connection), contract.NewVolumeServiceClient(s.connection)
	ctx, service, node := s.Context(), &contract.ServiceView{Namespace: "n", Name: "s", Uid: "u"}, "node"
	route := []*contract.Route{{RouteKey: "k", Name: "r", DestinationCidr: "10.1.0.0/24", NodeName: &node}}
	looked, err1 := instances.LookupInstances(ctx, &contract.LookupInstancesRequest{Cluster: us, Nodes: []*contract.NodeView{{Name: "a"}}})
	got, err2 := balancers.GetLoadBalancer(ctx, &contract.GetLoadBalancerRequest{Cluster: us, Service: service})
	ensured, err3 := balancers.EnsureLoadBalancer(ctx, &contract.EnsureLoadBalancerRequest{Cluster: us, Service: service})
	targets := &contract.TargetSet{Set: &contract.TargetSet_Inline{}}
	updated, err4 := balancers.UpdateLoadBalancer(ctx, &contract.UpdateLoadBalancerRequest{Cluster: us, Service: service, Targets: targets})
	deleted, err5 := balancers.DeleteLoadBalancer(ctx, &contract.DeleteLoadBalancerRequest{Cluster: us, Service: service})
	created, err6 := routes.CreateRoutes(ctx, &contract.CreateRoutesRequest{Cluster: us, Routes: route})
	removed, err7 := routes.DeleteRoutes(ctx, &contract.DeleteRoutesRequest{Cluster: us, Routes: route})
	address, err8 := clusters.GetControlPlaneAddress(ctx, &contract.GetControlPlaneAddressRequest{Cluster: us, ClusterName: "c"})
	labels, err9 := volumes.GetVolumeLabels(ctx, &contract.GetVolumeLabelsRequest{Cluster: us, Volume: &contract.VolumeView{Name: "v"}})
	for _, err := range []error{err1, err2, err3, err4, err5, err6, err7, err8, err9} {
		if err != nil {
			s.Fatal(err)
		}
	}
	all := map[string]*contract.Failure{
		"LookupInstances": looked.Results[0].GetFailed(), "GetLoadBalancer": got.GetFailed(), "EnsureLoadBalancer": ensured.GetFailed(), "UpdateLoadBalancer": updated.GetFailed(),
		"DeleteLoadBalancer": deleted.GetFailed(), "CreateRoutes": created.Results[0].GetFailed(), "DeleteRoutes": removed.Results[0].GetFailed(),
		"GetControlPlaneAddress": address.GetFailed(), "GetVolumeLabels": labels.GetFailed(),
	}
	listed := func(rpc string, failed *contract.Failure, err error) {
		if err != nil {
			s.Fatal(rpc, err)
		}
		all[rpc] = failed
	}
	machines, _ := instances.ListInstances(ctx, &contract.ListInstancesRequest{Cluster: us})
	instance, err := machines.Recv()
	listed("ListInstances", instance.GetFailed(), err)
	of, _ := balancers.ListLoadBalancers(ctx, &contract.ListLoadBalancersRequest{Cluster: us})
	balancer, err := of.Recv()
	listed("ListLoadBalancers", balancer.GetFailed(), err)
	ways, _ := routes.ListRoutes(ctx, &contract.ListRoutesRequest{Cluster: us})
	way, err := ways.Recv()
	listed("ListRoutes", way.GetFailed(), err)
	names, _ := clusters.ListClusters(ctx, &contract.ListClustersRequest{Cluster: us})
	name, err := names.Recv()
	listed("ListClusters", name.GetFailed(), err)
	return all
}

func TestAStateOfHealthThatIsNoneIsBroken(t *testing.T) {
	s := serveScripted(t, &ruledCloud{health: Health{State: 7, Message: "all is well"}})
	said, err := contract.NewProviderServiceClient(s.connection).Probe(t.Context(), &contract.ProbeRequest{})
	if err != nil || said.State != contract.ProbeState_PROBE_STATE_BROKEN || !strings.Contains(said.Message, "the unknown state 7") {
		t.Error(said, err)
	}
}

// ROUTE-13: the provider makes a repeated destination once; if the targets differ, the later route is CONFLICT.
func TestADestinationTwiceIsMadeOnce(t *testing.T) {
	first, second := "s://1", "s://2"
	for name, offered := range map[string]func(*ruledCloud) Provider{
		"one by one": func(cloud *ruledCloud) Provider { return cloud }, "in a batch": func(cloud *ruledCloud) Provider { return batchedRoutes{cloud} },
	} {
		cloud := &ruledCloud{}
		s := serveScripted(t, offered(cloud))
		routes := contract.NewRouteServiceClient(s.connection)
		made, err := routes.CreateRoutes(t.Context(), &contract.CreateRoutesRequest{Cluster: us, Routes: []*contract.Route{
			{RouteKey: "one", DestinationCidr: "fd00::/64", ProviderId: &first}, {RouteKey: "twin", DestinationCidr: "fd00:0:0::/64", ProviderId: &first},
			{RouteKey: "rival", DestinationCidr: "fd00::/64", ProviderId: &second}, {RouteKey: "unlike", DestinationCidr: "fd00::/64", NodeName: &second},
		}})
		if wrong := refusedRoutes(made.GetResults(), contract.FailureCode_FAILURE_CODE_CONFLICT); err != nil || len(made.Results) != 4 || !slices.Equal(wrong, []string{"rival", "unlike"}) {
			t.Errorf("%s: %v %v", name, made, err)
		}
		removed, err := routes.DeleteRoutes(t.Context(), &contract.DeleteRoutesRequest{Cluster: us, Routes: []*contract.Route{
			{RouteKey: "one", Name: "a", DestinationCidr: "fd00::/64"}, {RouteKey: "twin", Name: "a", DestinationCidr: "fd00:0::/64"},
			{RouteKey: "other", Name: "b", DestinationCidr: "fd00::/64"},
		}})
		if wrong := refusedRoutes(removed.GetResults(), contract.FailureCode_FAILURE_CODE_CONFLICT); err != nil || len(removed.Results) != 3 || len(wrong) > 0 {
			t.Errorf("%s: %v %v", name, removed, err)
		}
		if slices.Sort(cloud.asked[1:]); !slices.Equal(cloud.asked, []string{"create one", "delete one", "delete other"}) {
			t.Errorf("%s: %v", name, cloud.asked)
		}
	}
}

type batchedRoutes struct{ *ruledCloud }

func (c batchedRoutes) CreateRoutes(ctx context.Context, call *Call, routes []Route) (Answers[struct{}], error) {
	answers := Answers[struct{}]{}
	for _, route := range routes {
		answers.Set(route.Key, struct{}{}, c.CreateRoute(ctx, call, route))
	}
	return answers, nil
}

func (c batchedRoutes) DeleteRoutes(ctx context.Context, call *Call, routes []Route) (Answers[struct{}], error) {
	answers := Answers[struct{}]{}
	for _, route := range routes {
		answers.Set(route.Key, struct{}{}, c.DeleteRoute(ctx, call, route))
	}
	return answers, nil
}

// A cloud whose EnsureLoadBalancer waits.
type waitingCloud struct {
	*ruledCloud
	wait func()
}

func (c waitingCloud) EnsureLoadBalancer(context.Context, *Call, EnsureLoadBalancer) (LoadBalancerStatus, error) {
	c.wait()
	return LoadBalancerStatus{}, Invalid("ended")
}

// PROV-18, CORE-7: a call of the former owner goes on after another Initialize, and its Service and its destination stay BUSY for the new owner.
func TestAnObjectIsHeldForAllOwners(t *testing.T) {
	began, release, ended := make(chan struct{}), make(chan struct{}), make(chan error, 2)
	wait := func() {
		began <- struct{}{}
		<-release
	}
	create := func(Route) error {
		wait()
		return nil
	}
	s := serveScripted(t, waitingCloud{&ruledCloud{create: create}, wait})
	heir, node := &contract.ClusterRef{Name: "test", OwnerId: "heir"}, "node"
	balancers, routes := contract.NewLoadBalancerServiceClient(s.connection), contract.NewRouteServiceClient(s.connection)
	service, route := &contract.ServiceView{Namespace: "n", Name: "s", Uid: "one"}, &contract.Route{Name: "r", DestinationCidr: "10.1.0.0/16", NodeName: &node}
	go func() {
		_, err := balancers.EnsureLoadBalancer(t.Context(), &contract.EnsureLoadBalancerRequest{Cluster: us, Service: service})
		ended <- err
	}()
	go func() {
		_, err := routes.CreateRoutes(t.Context(), &contract.CreateRoutesRequest{Cluster: us, Routes: []*contract.Route{route}})
		ended <- err
	}()
	<-began
	<-began
	initialize := &contract.InitializeRequest{Cluster: heir, PreviousOwnerIds: []string{us.OwnerId}}
	if _, err := contract.NewProviderServiceClient(s.connection).Initialize(t.Context(), initialize); err != nil {
		t.Fatal(err)
	}
	deleted, err := balancers.DeleteLoadBalancer(t.Context(), &contract.DeleteLoadBalancerRequest{Cluster: heir, Service: service})
	if err != nil || deleted.GetFailed().GetCode() != contract.FailureCode_FAILURE_CODE_BUSY {
		t.Errorf("%v %v", deleted, err)
	}
	removed, err := routes.DeleteRoutes(t.Context(), &contract.DeleteRoutesRequest{Cluster: heir, Routes: []*contract.Route{route}})
	if err != nil || len(refusedRoutes(removed.GetResults(), contract.FailureCode_FAILURE_CODE_BUSY)) != 1 {
		t.Errorf("%v %v", removed, err)
	}
	close(release)
	if err := errors.Join(<-ended, <-ended); err != nil {
		t.Error(err)
	}
}

// CORE-7: while a call writes a route, the routes of another call to its destination are BUSY. Two routes of one call to a destination are not.
func TestADestinationIsHeldForAllRoutesOfItsCall(t *testing.T) {
	began, release := make(chan struct{}), make(chan struct{})
	cloud := &ruledCloud{create: func(Route) error {
		close(began)
		<-release
		return nil
	}}
	s := serveScripted(t, cloud)
	routes, node, ended := contract.NewRouteServiceClient(s.connection), "node", make(chan error, 1)
	go func() {
		_, err := routes.CreateRoutes(t.Context(), &contract.CreateRoutesRequest{Cluster: us, Routes: []*contract.Route{{RouteKey: "k", DestinationCidr: "10.1.0.0/16", NodeName: &node}}})
		ended <- err
	}()
	<-began
	remove := func() []string {
		removed, err := routes.DeleteRoutes(t.Context(), &contract.DeleteRoutesRequest{Cluster: us, Routes: []*contract.Route{
			{RouteKey: "a", Name: "a", DestinationCidr: "10.1.2.3/16"}, {RouteKey: "b", Name: "b", DestinationCidr: "10.1.0.0/16"},
		}})
		if err != nil {
			t.Fatal(err)
		}
		return refusedRoutes(removed.Results, contract.FailureCode_FAILURE_CODE_BUSY)
	}
	if busy := remove(); !slices.Equal(busy, []string{"a", "b"}) {
		t.Error(busy)
	}
	close(release)
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if busy := remove(); len(busy) > 0 {
		t.Error(busy)
	}
}

// LB-24: what FindOwn returns for handles, with the grant and without it.
func TestTheOwnerTableIsThatOfFindOwn(t *testing.T) {
	type balancer struct {
		handle string
		is     Ownership
	}
	all := []balancer{{"foreign", Foreign}, {"unmarked", Unmarked}, {"ours", Ours}}
	for _, row := range []struct {
		handle   string
		grant    bool
		expected string
	}{
		{"", false, "ours 1"}, {"", true, "ours 1"}, {"ours", false, "ours 1"}, {"gone", false, "ours 1"},
		{"unmarked", true, "unmarked 3"}, {"unmarked", false, "CONFLICT 3"}, {"foreign", true, "CONFLICT 2"}, {"foreign", false, "CONFLICT 2"},
	} {
		found, ownership, err := FindOwn(all, row.handle, row.grant, func(lb *balancer) string { return lb.handle }, func(lb *balancer) Ownership { return lb.is })
		said := "CONFLICT"
		if err == nil {
			said = found.handle
		}
		if said = fmt.Sprint(said, " ", int(ownership)); said != row.expected {
			t.Errorf("%q, grant %t: %s; expected %s", row.handle, row.grant, said, row.expected)
		}
	}
	found, ownership, err := FindOwn(all[:2], "", true, func(lb *balancer) string { return lb.handle }, func(lb *balancer) Ownership { return lb.is })
	if found != nil || ownership != 0 || err != nil {
		t.Error(found, ownership, err)
	}
	call := &Call{Cluster: Cluster{OwnerID: "us"}}
	if route := call.Mark("", Place{63, labelValue}); route != (Mark{"us", ""}) || call.Ownership(route, "", Place{Most: 63}) != Ours {
		t.Error(route)
	}
}

func TestATextIsCutBetweenCharactersAndATagIsADigest(t *testing.T) {
	if text := cut("a" + strings.Repeat("ä", 600)); len(text) != 1023 {
		t.Error(len(text))
	}
	place := Place{63, labelValue}
	if tag := place.Tag(strings.Repeat("x", 64)); len(tag) != DigestBytes || tag == place.Tag(strings.Repeat("x", 65)) {
		t.Error(tag)
	}
	// LB-30: the characters count too.
	for _, wrong := range []string{"prod/eu west", "ü"} {
		if tag := place.Tag(wrong); len(tag) != DigestBytes || !labelValue.MatchString(tag) {
			t.Errorf("%q: %q", wrong, tag)
		}
	}
	if tag := place.Tag("fits"); tag != "fits" {
		t.Error(tag)
	}
	if tag := (Place{Most: 40}).Tag("prod/eu west"); tag != "prod/eu west" {
		t.Error(tag)
	}
	call := &Call{Cluster: Cluster{OwnerID: "us"}, PreviousOwnerIDs: []string{strings.Repeat("o", 100)}}
	for mark, ownership := range map[Mark]Ownership{
		{"us", "uid"}: Ours, {place.Tag(strings.Repeat("o", 100)), "uid"}: Ours, {"us", "other"}: Foreign, {"them", "uid"}: Foreign, {"", "uid"}: Unmarked,
		// LB-27: owner ID or UID alone is no mark; with only another cluster's owner ID the answer is FOREIGN.
		{"us", ""}: Unmarked, {"them", ""}: Foreign, {}: Unmarked,
	} {
		if is := call.Ownership(mark, "uid", place); is != ownership {
			t.Errorf("%v is %v", mark, is)
		}
	}
}

// INST-8, INST-15: the answer leaves out a name that is no DNS name.
func TestANameThatIsNoDNSNameIsLeftOut(t *testing.T) {
	for _, good := range []string{"a", "Host-1.example.com", "1.2.3.example"} {
		if !isName(NodeAddress{Hostname, good}) {
			t.Error(good)
		}
	}
	for _, bad := range []string{"", ".", "a.", "-a", "a-.b", "a_b", "a..b", "ü", "a b", "a\n", strings.Repeat("a", 254)} {
		if isName(NodeAddress{Hostname, bad}) {
			t.Errorf("%q", bad)
		}
	}
	s := serveScripted(t, scriptedCloud{lookup: func(context.Context, Node) (Instance, error) {
		return Instance{State: InstanceRunning, ProviderID: "s://1", Addresses: []NodeAddress{{Hostname, "a_b"}, {InternalIP, "10.0.0.1"}}}, nil
	}})
	answer, err := contract.NewInstanceServiceClient(s.connection).LookupInstances(t.Context(), &contract.LookupInstancesRequest{Cluster: us, Nodes: []*contract.NodeView{{Name: "a"}}})
	if err != nil || len(answer.GetResults()) != 1 {
		t.Fatal(answer, err)
	}
	if sent := answer.GetResults()[0].GetFound().GetAddresses(); len(sent) != 1 || sent[0].GetAddress() != "10.0.0.1" {
		t.Error(answer)
	}
}

type zonedCloud struct{ scriptedCloud }

func (zonedCloud) LookupZone(context.Context, *Call, Node) (Zone, error) {
	return Zone{Zone: "Rack 1, left", Region: "eu_west.1"}, nil
}

// ZONE-2.
func TestAZoneThatIsNoLabelValueIsLeftOut(t *testing.T) {
	s := serveScripted(t, zonedCloud{})
	said, err := contract.NewZoneServiceClient(s.connection).LookupZones(t.Context(), &contract.LookupZonesRequest{Cluster: us, Nodes: []*contract.NodeView{{Name: "a"}}})
	if err != nil {
		t.Fatal(err)
	}
	if zone := said.Results[0].GetZone(); zone == nil || zone.Zone != nil || zone.GetRegion() != "eu_west.1" {
		t.Error(said)
	}
}

func TestAFailureIsEachErrorThatItsTextWraps(t *testing.T) {
	failure := Internal("%w, and %w", context.Canceled, fs.ErrNotExist)
	for _, wrapped := range []error{context.Canceled, fs.ErrNotExist} {
		if !errors.Is(failure, wrapped) {
			t.Errorf("%q is not found in %q", wrapped, failure)
		}
	}
}
