package provider

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/grpc-ccm/grpc-ccm/providers/digitalocean/plan"
	"github.com/grpc-ccm/grpc-ccm/providers/digitalocean/testapi"
	"github.com/grpc-ccm/grpc-ccm/providers/go/contract"
	"github.com/grpc-ccm/grpc-ccm/providers/go/sdk"
)

// The controller's calls in an hour without changes: docs/configuration.md has the periods (node-status-update-frequency,
// orphaned-load-balancer-period).
const (
	refreshes = 12
	searches  = 6
)

// The limit is a tenth of DigitalOcean's 5,000 calls an hour. DigitalOcean documents no general limit of load balancers, so the test goes up to a thousand.
func TestAnIdleHourTakesAFewCallsHoweverManyLoadBalancersThereAre(t *testing.T) {
	for _, balancers := range []int{20, 200, 1_000} {
		t.Run(fmt.Sprintf("load balancers=%d", balancers), func(t *testing.T) {
			h := initialized(t)
			h.cloud.Limit(0, time.Hour)
			nodes := []*contract.NodeView{node("node-0", h.droplets[0]), node("node-1", h.droplets[1]), node("node-2", h.droplets[2])}
			for i := len(nodes); i < 1_000; i++ {
				name := fmt.Sprintf("node-%d", i)
				nodes = append(nodes, node(name, h.cloud.AddDroplet(testapi.NewDroplet{Name: name})))
			}
			for i := range balancers {
				mark := plan.MarkOf(&sdk.Service{Namespace: "default", Name: fmt.Sprintf("web-%d", i), UID: fmt.Sprintf("8f7c0000-0000-4000-8000-%012d", i)}, us.OwnerId)
				if _, err := h.cloud.AddLoadBalancer(mark.String()); err != nil {
					t.Fatal(err)
				}
			}
			refresh, _ := h.calls(func() {
				// The first batch needs a new list, because the list of the earlier refresh is too old. The other batches use the list of the first.
				for i, batch := range slices.Collect(slices.Chunk(nodes, maxBatch)) {
					request := &contract.LookupInstancesRequest{Cluster: us, Nodes: batch, MaxAge: durationpb.New(time.Duration(min(i, 1)) * 150 * time.Second)}
					answer, err := h.instances.LookupInstances(h.ctx, request)
					if err != nil || answer.Failed != nil || len(answer.Results) != len(batch) {
						t.Fatal(err, answer)
					}
				}
			})
			search, _ := h.calls(func() {
				if listed := h.listed(); listed != balancers {
					t.Fatalf("%d load balancers were listed, not %d", listed, balancers)
				}
			})
			calls := refreshes*refresh + searches*search
			t.Logf("an idle hour, 1,000 Nodes and %d load balancers: %d calls", balancers, calls)
			if refresh != 5 || calls > 500 {
				t.Errorf("%d calls for each refresh, %d for each list, %d in all; docs/digitalocean.md says 5, and at most 500 in all are wanted", refresh, search, calls)
			}
		})
	}
}
