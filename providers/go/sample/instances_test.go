package main

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/grpc-ccm/grpc-ccm/providers/go/contract"
)

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
	// With a maximum age the provider may repeat a recent answer.
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
