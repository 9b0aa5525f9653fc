package main

import (
	"testing"

	"github.com/grpc-ccm/grpc-ccm/providers/go/contract"
)

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
	stream, err := h.routes.ListRoutes(h.ctx, &contract.ListRoutesRequest{Cluster: us})
	made := drained(h, stream, err)[0].GetRoutes().GetRoutes()[0]
	gone := route("10.9.9.0/24", "a")
	made.RouteKey, gone.Name = made.DestinationCidr, "gone"
	h.initialize(them)
	h.equal(h.createRoutes(them, route("10.0.1.0/24", "a")), []string{"CONFLICT"})
	request := &contract.DeleteRoutesRequest{Cluster: them, Routes: []*contract.Route{made, gone}}
	response, err := h.routes.DeleteRoutes(h.ctx, request)
	h.check(err)
	h.equal(outcomes(response.Results), []string{"CONFLICT", "done"})
	h.initialize(us)
	request.Cluster = us
	response, err = h.routes.DeleteRoutes(h.ctx, request)
	h.check(err)
	h.equal(outcomes(response.Results), []string{"done", "done"})
}

// ROUTE-8: all ways to write one network are one destination.
func TestADestinationIsComparedAsANetwork(t *testing.T) {
	h := serveInitialized(t)
	h.equal(h.createRoutes(us, route("fd00::/64", "a"), route("fd00:0::/64", "a"), route("fd00:0:0::/64", "b")), []string{"done", "done", "CONFLICT"})
	h.equal(h.createRoutes(us, route("fd00:0:0::/64", "a")), []string{"done"})
	h.equal(h.createRoutes(us, route("fd00:0:0::/64", "b")), []string{"CONFLICT"})
	h.equal(h.writes(), 1)
	stream, err := h.routes.ListRoutes(h.ctx, &contract.ListRoutesRequest{Cluster: us})
	made := drained(h, stream, err)[0].GetRoutes().GetRoutes()[0]
	made.DestinationCidr = "fd00:0:0::/64"
	response, err := h.routes.DeleteRoutes(h.ctx, &contract.DeleteRoutesRequest{Cluster: us, Routes: []*contract.Route{made}})
	h.check(err)
	h.equal(outcomes(response.Results), []string{"done"})
	h.equal(h.writes(), 2)
}
