package provider

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"

	"github.com/grpc-ccm/grpc-ccm/providers/go/contract"
)

func TestTargetsBySelectorCostNothingWhenNodesCome(t *testing.T) {
	h := initialized(t, func(s *Settings) { s.TargetSelector = "role=worker" })
	b := h.service(uid)
	b.ensured()
	if targets := h.only().Targets; len(targets) != 1 || targets[0].LabelSelector == nil || targets[0].LabelSelector.Selector != "role=worker" {
		t.Fatalf("%+v", targets)
	}
	before := h.cloud.Writes()
	b.targets = b.targets[:1]
	b.ensured()
	if writes := h.cloud.Writes() - before; writes != 0 {
		t.Errorf("other Nodes made %d writes", writes)
	}
	info, err := h.info.GetProviderInfo(h.ctx, &contract.GetProviderInfoRequest{})
	if err != nil || !info.GetCapabilities().GetLoadBalancers().GetIgnoresNodes() {
		t.Errorf("the controller is not told that Nodes do not matter: %v %v", info, err)
	}
}

func TestLoadBalancersAreNotOfferedIfTheyAreSwitchedOff(t *testing.T) {
	h := serve(t, func(s *Settings) { s.LoadBalancers = false })
	info, err := h.info.GetProviderInfo(h.ctx, &contract.GetProviderInfoRequest{})
	if err != nil || info.GetCapabilities().GetLoadBalancers() != nil || info.GetCapabilities().GetRoutes() == nil {
		t.Errorf("%v %v", info, err)
	}
}

func TestDedicatedServersAreTargetsByTheirAddressesWhereAskedFor(t *testing.T) {
	h := initialized(t, func(s *Settings) { s.Robot = true })
	b := h.service(uid)
	robot := node("robot", "hrobot://7")
	robot.Addresses = []*contract.NodeAddress{{Type: contract.NodeAddressType_NODE_ADDRESS_TYPE_EXTERNAL_IP, Address: "192.0.2.7"}}
	b.targets = append(b.targets[:1], robot)
	b.ensured()
	if targets := h.only().Targets; len(targets) != 2 || targets[1].IP == nil || targets[1].IP.IP != "192.0.2.7" {
		t.Errorf("%+v", targets)
	}
}

func TestNodesAreSelectedByTheAnnotation(t *testing.T) {
	h := initialized(t)
	b := h.service(uid, "node-selector", "pool in (a, b)")
	b.targets[1].Labels = map[string]string{"pool": "b"}
	b.ensured()
	if targets := h.only().Targets; len(targets) != 1 || targets[0].Server.ID != h.servers[1] {
		t.Errorf("%+v", targets)
	}
}

// The controller asks about each load balancer after a restart, eight at a time.
func TestARestartChangesNothing(t *testing.T) {
	h := initialized(t)
	all := []*balancer{}
	for i := range 20 {
		b := h.service(fmt.Sprintf("0d4fcd77-3818-4000-8299-%012d", i))
		b.ensured()
		h.cloud.ChangeLoadBalancer(h.cloud.LoadBalancers()[i].ID, func(lb *schema.LoadBalancer) { lb.Created = lb.Created.Add(-time.Hour) })
		all = append(all, b)
	}
	before := h.cloud.Writes()
	calls, routes := h.calls(func() {
		h.start()
		h.initialize(us)
		turns := make(chan struct{}, 8)
		var done sync.WaitGroup
		for _, b := range all {
			b.harness = h
			turns <- struct{}{}
			done.Go(func() {
				defer func() { <-turns }()
				if answer := b.get(); !answer.GetFound().GetInSync() {
					t.Errorf("%v", answer)
				}
			})
		}
		done.Wait()
	})
	t.Logf("a restart with 20 load balancers: %d calls: %v", calls, routes)
	if writes := h.cloud.Writes() - before; writes != 0 || calls > 20 {
		t.Errorf("%d writes, %d calls: %v", writes, calls, routes)
	}
}
