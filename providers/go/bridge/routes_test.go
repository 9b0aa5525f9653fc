package bridge

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	cloudprovider "k8s.io/cloud-provider"

	"github.com/grpc-ccm/grpc-ccm/providers/go/contract"
)

// router is a cloud with these routes. Its DeleteRoute deletes only the very object that the cloud listed.
func router(routes ...*cloudprovider.Route) *scripted {
	there := routes
	return &scripted{
		list: func(context.Context) ([]*cloudprovider.Route, error) { return slices.Clone(there), nil },
		unmake: func(_ context.Context, route *cloudprovider.Route) error {
			there = slices.DeleteFunc(slices.Clone(there), func(one *cloudprovider.Route) bool { return one == route })
			return nil
		},
	}
}

func to(cidr, node, name string) *cloudprovider.Route {
	return &cloudprovider.Route{Name: name, TargetNode: types.NodeName(node), DestinationCIDR: cidr}
}

func (s *served) listed() []*contract.Route {
	s.t.Helper()
	stream, err := s.routes.ListRoutes(s.context(patience), &contract.ListRoutesRequest{Cluster: cluster()})
	must(s.t, err)
	var routes []*contract.Route
	for {
		part, err := stream.Recv()
		must(s.t, err)
		if part.GetFailed() != nil {
			s.t.Fatalf("%v", part)
		}
		if part.GetEnd() != nil {
			return routes
		}
		routes = append(routes, part.GetRoutes().GetRoutes()...)
	}
}

func (s *served) deleteRoute(route *contract.Route) *contract.RouteResult {
	s.t.Helper()
	route.RouteKey = "key"
	answer, err := s.routes.DeleteRoutes(s.context(patience), &contract.DeleteRoutesRequest{Cluster: cluster(), Routes: []*contract.Route{route}})
	must(s.t, err)
	return answer.GetResults()[0]
}

func TestOfTwoRoutesToOneDestinationTheOneThatWasListedGoes(t *testing.T) {
	const cidr = "10.1.0.0/24"
	for what, name := range map[string]string{"named by their destination": cidr, "named nothing": "", "named alike": "pods"} {
		for _, goes := range []string{"former", "live"} {
			bridge := initialised(t, router(to(cidr, "live", name), to(cidr, "former", name), to("10.2.0.0/24", "live", name)), Options{})
			listed := bridge.listed()
			names := map[string]bool{}
			for _, route := range listed {
				names[route.GetName()] = true
			}
			if len(names) != 3 || names[""] {
				t.Errorf("%s: the names are %v", what, names)
			}
			asked := listed[slices.IndexFunc(listed, func(route *contract.Route) bool {
				return route.GetNodeName() == goes && route.GetDestinationCidr() == cidr
			})]
			// A second delete finds the route gone. The other route, which may have another name now, stays.
			for range 2 {
				if result := bridge.deleteRoute(asked); result.GetDone() == nil {
					t.Errorf("%s: %v", what, result)
				}
			}
			left := bridge.listed()
			if len(left) != 2 || slices.ContainsFunc(left, func(route *contract.Route) bool {
				return route.GetNodeName() == goes && route.GetDestinationCidr() == cidr
			}) {
				t.Errorf("%s: without %q there is left %v", what, goes, left)
			}
		}
	}
}

func TestARouteWhoseNodeDiedSinceItWasListedGoes(t *testing.T) {
	for _, name := range []string{"r-1", "", "10.1.0.0/24"} {
		for _, target := range []types.NodeName{"", "192.0.2.7"} {
			route := to("10.1.0.0/24", "one", name)
			other := to("10.1.0.0/24", "two", name)
			bridge := initialised(t, router(route, other), Options{})
			asked := bridge.listed()[0]
			route.Blackhole, route.TargetNode = true, target
			if result := bridge.deleteRoute(asked); result.GetDone() == nil {
				t.Errorf("%q, %q: %v", name, target, result)
			}
			if left := bridge.listed(); len(left) != 1 || left[0].GetNodeName() != "two" {
				t.Errorf("%q, %q: there is left %v", name, target, left)
			}
		}
	}
}

func TestARouteThatLeadsSomewhereAgainIsNotDeletedAsABlackhole(t *testing.T) {
	route := to("10.1.0.0/24", "one", "r-1")
	route.Blackhole = true
	bridge := initialised(t, router(route), Options{})
	asked := bridge.listed()[0]
	route.Blackhole = false
	if result := bridge.deleteRoute(asked); result.GetDone() == nil || len(bridge.listed()) != 1 {
		t.Errorf("%v", result)
	}
	route.Blackhole = true
	if result := bridge.deleteRoute(asked); result.GetDone() == nil || len(bridge.listed()) != 0 {
		t.Errorf("%v", result)
	}
}

func TestARequestThatCouldMeanRoutesOfTwoNodesDeletesNone(t *testing.T) {
	bridge := initialised(t, router(to("10.1.0.0/24", "one", ""), to("10.1.0.0/24", "two", "")), Options{})
	failed := bridge.deleteRoute(&contract.Route{DestinationCidr: "10.1.0.0/24"}).GetFailed()
	code(t, failed, contract.FailureCode_FAILURE_CODE_INVALID)
	if !strings.Contains(failed.GetMessage(), "has no name") || len(bridge.listed()) != 2 {
		t.Errorf("%v", failed)
	}
}

func TestEachRouteHasANameOfItsOwn(t *testing.T) {
	long := strings.Repeat("é", 126)
	for _, row := range []struct {
		routes []*cloudprovider.Route
		names  []string
	}{
		// A unique name of the cloud stays.
		{[]*cloudprovider.Route{to("10.1.0.0/24", "one", "r-1"), to("10.2.0.0/24", "two", "10.2.0.0/24")}, []string{"r-1", "10.2.0.0/24"}},
		{[]*cloudprovider.Route{to("10.1.0.0/24", "one", ""), to("10.2.0.0/24", "", "")}, []string{"10.1.0.0/24 to one", "10.2.0.0/24 to nowhere"}},
		{[]*cloudprovider.Route{to("10.1.0.0/24", "one", "r"), nil, to("10.1.0.0/24", "one", "r")}, []string{"r 10.1.0.0/24 to one", "", "r 10.1.0.0/24 to one (2)"}},
		{[]*cloudprovider.Route{to("10.1.0.0/24", "one", ""), to("10.3.0.0/24", "two", "10.1.0.0/24 to one")}, []string{"10.1.0.0/24 to one (2)", "10.1.0.0/24 to one"}},
	} {
		if names := routeNames(row.routes); !slices.Equal(names, row.names) {
			t.Errorf("%q, not %q", names, row.names)
		}
	}
	names := routeNames([]*cloudprovider.Route{to("10.1.0.0/24", "one", long), to("10.1.0.0/24", "two", long), to("10.1.0.0/24", "two", long)})
	for index, name := range names {
		if err := fits("the name", name, nameBytes); err != nil || slices.Index(names, name) != index {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func TestRoutesAreListedOnceForWhatFollowsTheList(t *testing.T) {
	var lists int
	var there []*cloudprovider.Route
	cloud := &scripted{
		list: func(context.Context) ([]*cloudprovider.Route, error) { lists++; return slices.Clone(there), nil },
		unmake: func(_ context.Context, route *cloudprovider.Route) error {
			there = slices.DeleteFunc(slices.Clone(there), func(one *cloudprovider.Route) bool { return one == route })
			return nil
		},
	}
	there = []*cloudprovider.Route{to("10.1.0.0/24", "one", ""), to("10.2.0.0/24", "two", "")}
	bridge := initialised(t, cloud, Options{})
	listed := bridge.listed()
	for number, route := range listed {
		// No call has worked on this destination since the controller's list, so the bridge uses that list.
		if result := bridge.deleteRoute(route); result.GetDone() == nil || lists != 1 {
			t.Errorf("%d: %v after %d lists", number, result, lists)
		}
	}
	// A call has worked on the destination since the list, so the bridge reads the list again (ROUTE-4).
	if result := bridge.deleteRoute(listed[0]); result.GetDone() == nil || lists != 2 {
		t.Errorf("%v after %d lists", result, lists)
	}
}

func TestARouteThatSomebodyElseRemovedAfterTheListIsGone(t *testing.T) {
	there := []*cloudprovider.Route{to("10.1.0.0/24", "one", "")}
	cloud := &scripted{
		list:   func(context.Context) ([]*cloudprovider.Route, error) { return there, nil },
		unmake: func(context.Context, *cloudprovider.Route) error { return errors.New("no such route") },
	}
	bridge := initialised(t, cloud, Options{})
	listed := bridge.listed()
	there = nil
	if result := bridge.deleteRoute(listed[0]); result.GetDone() == nil {
		t.Errorf("%v", result)
	}
	there = []*cloudprovider.Route{to("10.1.0.0/24", "one", "")}
	listed = bridge.listed()
	if result := bridge.deleteRoute(listed[0]); result.GetFailed() == nil {
		t.Errorf("it is still there: %v", result)
	}
}

// ROUTE-8: all ways to write one network are one destination.
func TestADestinationIsComparedAsANetwork(t *testing.T) {
	var created int
	cloud := router(to("fd00::/64", "one", "r-1"))
	cloud.create = func(context.Context, *cloudprovider.Route) error {
		created++
		return nil
	}
	bridge := initialised(t, cloud, Options{})
	made, err := bridge.routes.CreateRoutes(bridge.context(patience), &contract.CreateRoutesRequest{Cluster: cluster(), Routes: []*contract.Route{
		{RouteKey: "key", NodeName: new("one"), DestinationCidr: "fd00:0:0::/64"},
	}})
	must(t, err)
	if made.GetResults()[0].GetDone() == nil || created != 0 {
		t.Errorf("%v; created %d", made, created)
	}
	asked := &contract.Route{Name: "r-1", NodeName: new("one"), DestinationCidr: "fd00:0::/64"}
	if result := bridge.deleteRoute(asked); result.GetDone() == nil || len(bridge.listed()) != 0 {
		t.Errorf("%v", result)
	}
}

// ROUTE-13: the cloud is asked once for routes of one request that are the same. CORE-7: routes of one request are not in each other's way.
func TestRoutesOfOneRequestToOneDestination(t *testing.T) {
	var mutex sync.Mutex
	var calls []string
	note := func(call string) {
		mutex.Lock()
		defer mutex.Unlock()
		calls = append(calls, call)
	}
	there := []*cloudprovider.Route{to("fd00::/64", "one", "a"), to("fd00::/64", "two", "b")}
	cloud := &scripted{
		list: func(context.Context) ([]*cloudprovider.Route, error) { return slices.Clone(there), nil },
		create: func(_ context.Context, route *cloudprovider.Route) error {
			note("create " + route.DestinationCIDR)
			return nil
		},
		unmake: func(_ context.Context, route *cloudprovider.Route) error {
			note("delete " + route.Name)
			return nil
		},
	}
	bridge := initialised(t, cloud, Options{})
	route := func(key, name, node, cidr string) *contract.Route {
		return &contract.Route{RouteKey: key, Name: name, NodeName: &node, DestinationCidr: cidr}
	}
	for range 2 {
		calls = nil
		made, err := bridge.routes.CreateRoutes(bridge.context(patience), &contract.CreateRoutesRequest{Cluster: cluster(), Routes: []*contract.Route{
			{RouteKey: "nowhere", DestinationCidr: "fd01::/64"}, route("one", "", "one", "fd01::/64"), route("twin", "", "one", "fd01::/64"),
			route("spelt", "", "one", "fd01:0::/64"), route("rival", "", "two", "fd01:0:0::/64"),
		}})
		must(t, err)
		results := made.GetResults()
		code(t, results[0].GetFailed(), contract.FailureCode_FAILURE_CODE_INVALID)
		for _, result := range results[1:4] {
			if result.GetDone() == nil {
				t.Errorf("%v", result)
			}
		}
		code(t, results[4].GetFailed(), contract.FailureCode_FAILURE_CODE_CONFLICT)
		removed, err := bridge.routes.DeleteRoutes(bridge.context(patience), &contract.DeleteRoutesRequest{Cluster: cluster(), Routes: []*contract.Route{
			route("one", "a", "one", "fd00::/64"), route("twin", "a", "one", "fd00::/64"), route("spelt", "a", "one", "fd00:0::/64"), route("other", "b", "two", "fd00::/64"),
		}})
		must(t, err)
		for _, result := range removed.GetResults() {
			if result.GetDone() == nil {
				t.Errorf("%v", result)
			}
		}
		if slices.Sort(calls[1:]); !slices.Equal(calls, []string{"create fd01::/64", "delete a", "delete b"}) {
			t.Errorf("%q", calls)
		}
	}
}
