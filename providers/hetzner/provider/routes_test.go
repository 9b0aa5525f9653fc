package provider

import (
	"fmt"
	"testing"

	"github.com/grpc-ccm/grpc-ccm/providers/go/contract"
	"github.com/grpc-ccm/grpc-ccm/providers/go/sdk"
	"github.com/grpc-ccm/grpc-ccm/providers/hetzner/testapi"
	api "github.com/grpc-ccm/grpc-ccm/providers/testapi"
)

func (h *harness) createRoutes(routes ...*contract.Route) *contract.CreateRoutesResponse {
	h.Helper()
	for i, route := range routes {
		route.RouteKey = fmt.Sprint(i)
	}
	answer, err := h.routes.CreateRoutes(h.ctx, &contract.CreateRoutesRequest{Cluster: us, Routes: routes})
	if err != nil {
		h.Fatal(err)
	}
	return answer
}

func (h *harness) route(cidr string, server int) *contract.Route {
	id, name := fmt.Sprintf("hcloud://%d", h.servers[server]), fmt.Sprintf("node-%d", server)
	return &contract.Route{DestinationCidr: cidr, ProviderId: &id, NodeName: &name, NameHint: "hint"}
}

func (h *harness) listRoutes() (all []*contract.Route) {
	h.Helper()
	stream, err := h.routes.ListRoutes(h.ctx, &contract.ListRoutesRequest{Cluster: us})
	if err != nil {
		h.Fatal(err)
	}
	for {
		part, err := stream.Recv()
		if err != nil || part.GetFailed() != nil {
			h.Fatal(part, err)
		}
		if part.GetEnd() != nil {
			return all
		}
		all = append(all, part.GetRoutes().GetRoutes()...)
	}
}

// ROUTE-9 and ROUTE-12 for a cloud that keeps no marks.
func TestRoutesAreUnmarkedAndNeverTurned(t *testing.T) {
	h := initialized(t)
	for range 2 {
		if answer := h.createRoutes(h.route("10.244.1.0/24", 0)); answer.Results[0].GetDone() == nil {
			t.Fatalf("%v", answer)
		}
	}
	all := h.listRoutes()
	if len(all) != 1 || all[0].Ownership != contract.Ownership_OWNERSHIP_UNMARKED || *all[0].NodeName != "node-0" || all[0].Name == "" {
		t.Fatalf("%v", all)
	}
	h.must(h.createRoutes(h.route("10.244.1.0/24", 1)).Results[0].GetFailed(), sdk.CodeConflict, "DestinationTaken", "10.244.1.0/24")
	if len(h.cloud.Routes()) != 1 {
		t.Errorf("%v", h.cloud.Routes())
	}
	if err := h.cloud.SetServer("node-0", ""); err != nil {
		t.Fatal(err)
	}
	if all := h.listRoutes(); len(all) != 1 || !all[0].Blackhole {
		t.Errorf("the route of a server that is gone: %v", all)
	}
	// ROUTE-8: another name, the same destination.
	for _, name := range []string{"other", all[0].Name} {
		if len(h.cloud.Routes()) != 1 {
			t.Fatal("it was removed by another name")
		}
		answer, err := h.routes.DeleteRoutes(h.ctx, &contract.DeleteRoutesRequest{Cluster: us, Routes: []*contract.Route{{RouteKey: "a", Name: name, DestinationCidr: "10.244.1.0/24"}}})
		if err != nil || answer.Results[0].GetDone() == nil {
			t.Fatal(answer, err)
		}
	}
	if left := h.cloud.Routes(); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

func TestRoutesThatCannotBeAreSaidEachAlone(t *testing.T) {
	h := initialized(t)
	outside := h.cloud.AddServer(testapi.NewServer{Name: "outside", Outside: true})
	h.servers = append(h.servers, outside)
	name, gone := "node-9", "hcloud://99999"
	var answer *contract.CreateRoutesResponse
	networkReads := func(work func()) int {
		_, routes := h.calls(work)
		return routes["GET /v1/networks/{id}"]
	}
	if reads := networkReads(func() {
		answer = h.createRoutes(h.route("fd00::/64", 0), h.route("10.244.2.0/24", 1), &contract.Route{DestinationCidr: "10.244.3.0/24", NodeName: &name, ProviderId: &gone}, h.route("10.244.4.0/24", 3))
	}); reads != 1 {
		t.Errorf("the network was read %d times", reads)
	}
	h.must(answer.Results[0].GetFailed(), sdk.CodeInvalid, "NoIPv6Routes")
	if answer.Results[1].GetDone() == nil {
		t.Errorf("%v", answer.Results[1])
	}
	h.must(answer.Results[2].GetFailed(), sdk.CodePrecondition, "InstanceMissing", `"node-9 hcloud://99999"`)
	h.must(answer.Results[3].GetFailed(), sdk.CodePrecondition, "ServerNotInNetwork", "outside")
	h.plan(api.Plan{Match: "POST /v1/networks", Status: 409})
	h.must(h.createRoutes(h.route("10.244.5.0/24", 0)).Results[0].GetFailed(), sdk.CodeBusy, "Busy")
	for i := range 99 {
		if err := h.cloud.AddRoute(fmt.Sprintf("10.200.%d.0/24", i), h.servers[0]); err != nil {
			t.Fatal(err)
		}
	}
	if reads := networkReads(func() {
		answer = h.createRoutes(h.route("10.244.6.0/24", 0), h.route("10.244.7.0/24", 0))
	}); reads != 1 {
		t.Errorf("the network was read %d times", reads)
	}
	for _, result := range answer.Results {
		h.must(result.GetFailed(), sdk.CodePrecondition, "QuotaReached")
	}
}

// An earlier create that was cut off reaches Hetzner after this call has read the network.
func TestARouteThatAppearsWhileItIsMadeIsDone(t *testing.T) {
	for name, status := range map[string]int{"refused as a second route": 0, "refused as not found": 404} {
		t.Run(name, func(t *testing.T) {
			h := initialized(t)
			h.plan(api.Plan{Match: "POST /v1/networks/.*/add_route", Status: status, Before: func() {
				if err := h.cloud.AddRoute("10.244.1.0/24", h.servers[0]); err != nil {
					t.Error(err)
				}
			}})
			if answer := h.createRoutes(h.route("10.244.1.0/24", 0)); answer.Results[0].GetDone() == nil || h.cloud.Planned() != 0 || len(h.cloud.Routes()) != 1 {
				t.Errorf("CORE-6: %v %v", answer, h.cloud.Routes())
			}
		})
	}
}

// The answer of each call is lost once: the next try makes the route once.
func TestRoutesWhoseAnswerIsLostAreMadeOnce(t *testing.T) {
	for skip := range 3 {
		h := initialized
		t.Run(fmt.Sprint(skip), func(t *testing.T) {
			h := h(t)
			h.plan(api.Plan{Skip: skip, Lose: true})
			h.createRoutes(h.route("10.244.1.0/24", 0))
			h.cloud.NoPlans()
			if answer := h.createRoutes(h.route("10.244.1.0/24", 0)); answer.Results[0].GetDone() == nil || len(h.cloud.Routes()) != 1 {
				t.Errorf("%v %v", answer, h.cloud.Routes())
			}
		})
	}
}
