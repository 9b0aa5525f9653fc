package provider

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/grpc-ccm/grpc-ccm/providers/go/contract"
	"github.com/grpc-ccm/grpc-ccm/providers/hetzner/plan"
	"github.com/grpc-ccm/grpc-ccm/providers/hetzner/testapi"
)

// The controller's calls in an hour without changes: docs/configuration.md has the periods (node-status-update-frequency,
// orphaned-load-balancer-period).
const (
	refreshes = 12
	searches  = 6
)

// The limit is a tenth of Hetzner's 3,600 calls an hour. Hetzner grants 20 load balancers unless somebody asks
// for more.
func TestAnIdleHourTakesAFewCallsHoweverManyLoadBalancersThereAre(t *testing.T) {
	for _, balancers := range []int{20, 200, 1_000} {
		t.Run(fmt.Sprintf("load balancers=%d", balancers), func(t *testing.T) {
			h := initialized(t)
			nodes := h.nodes(1_000)
			for i := range balancers {
				labels := map[string]string{plan.LabelService: fmt.Sprintf("0d4fcd77-3818-4000-8299-%012d", i), plan.LabelOwner: us.OwnerId}
				if _, err := h.cloud.AddLoadBalancer(fmt.Sprintf("web-%d", i), labels); err != nil {
					t.Fatal(err)
				}
			}
			refresh, _ := h.calls(func() {
				// The list of the earlier refresh is too old.
				answer, err := h.instances.LookupInstances(h.ctx, &contract.LookupInstancesRequest{Cluster: us, Nodes: nodes, MaxAge: durationpb.New(0)})
				if err != nil || answer.Failed != nil || len(answer.Results) != len(nodes) {
					t.Fatal(err, answer)
				}
			})
			search, _ := h.calls(func() {
				if listed := h.listed(); listed != balancers {
					t.Fatalf("%d load balancers were listed, not %d", listed, balancers)
				}
			})
			calls := refreshes*refresh + searches*search
			t.Logf("an idle hour, 1,000 Nodes and %d load balancers: %d calls", balancers, calls)
			if refresh != 20 || calls > 360 {
				t.Errorf("%d calls for each refresh, %d for each list, %d in all; docs/hetzner.md says 20, and at most 360 in all are wanted", refresh, search, calls)
			}
		})
	}
}

// The controller retries a target error every few minutes. If Nodes beyond the limit of targets were target errors, it would retry for ever, for each load
// balancer.
func TestNodesThatALoadBalancerHasNoRoomForAreToldAndNotTriedAgain(t *testing.T) { // LB-8, LB-14, LB-17
	h := initialized(t)
	h.cloud.Limit(0, time.Hour)
	b := h.service(uid)
	b.targets = h.nodes(100)
	b.ensured()
	if targets := len(h.only().Targets); targets != 25 {
		t.Fatalf("an lb11 has %d targets", targets)
	}
	writes := h.cloud.Writes()
	answer := b.ensure()
	if len(answer.TargetErrors) > 0 || len(answer.Events) != 1 || answer.Events[0].Reason != "TargetLimit" || !strings.Contains(answer.Events[0].Message, "75 Nodes are no targets") {
		t.Errorf("%v", answer)
	}
	// Another Node beyond the limit.
	b.targets = h.nodes(101)
	calls, routes := h.calls(func() {
		if answer := b.update(); answer.GetDone() == nil || len(answer.TargetErrors) > 0 {
			t.Errorf("%v", answer)
		}
	})
	if calls != 1 || h.cloud.Writes() != writes {
		t.Errorf("it cost %v; wanted one list", routes)
	}
	// A target goes, and another Node takes its place.
	gone := h.only().Targets[0].Server.ID
	for i, target := range b.targets {
		if target.GetProviderId() == fmt.Sprintf("%s%d", plan.CloudPrefix, gone) {
			b.targets = append(b.targets[:i], b.targets[i+1:]...)
			break
		}
	}
	if answer := b.update(); answer.GetDone() == nil || len(answer.TargetErrors) > 0 {
		t.Errorf("%v", answer)
	}
	targets := h.only().Targets
	if len(targets) != 25 {
		t.Errorf("%d targets are left", len(targets))
	}
	for _, target := range targets {
		if target.Server.ID == gone {
			t.Errorf("server %d is a target still", gone)
		}
	}
}

// nodes returns this number of Nodes with servers, including the initial ones.
func (h *harness) nodes(count int) (nodes []*contract.NodeView) {
	for i := range count {
		name := fmt.Sprintf("node-%d", i)
		if i >= len(h.servers) {
			h.servers = append(h.servers, h.cloud.AddServer(testapi.NewServer{Name: name}))
		}
		nodes = append(nodes, node(name, fmt.Sprintf("%s%d", plan.CloudPrefix, h.servers[i])))
	}
	return nodes
}
