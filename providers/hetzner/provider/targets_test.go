package provider

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"

	"github.com/grpc-ccm/grpc-ccm/providers/go/contract"
	"github.com/grpc-ccm/grpc-ccm/providers/go/sdk"
	"github.com/grpc-ccm/grpc-ccm/providers/hetzner/testapi"
	api "github.com/grpc-ccm/grpc-ccm/providers/testapi"
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

func TestATargetThatHetznerCannotAddNowStopsNoOtherTarget(t *testing.T) { // LB-17
	for reason, plan := range map[string]api.Plan{
		"APIFails":     {Status: 503, Body: `{"error":{"code":"robot_unavailable","message":"robot is not available","details":{}}}`},
		"ActionFailed": {Status: 201, Body: failedAction("add_target", "action_failed")},
	} {
		t.Run(reason, func(t *testing.T) {
			h := initialized(t)
			b := h.service(uid)
			all := b.targets
			b.targets = nil
			b.ensured()
			plan.Match = "add_target$"
			h.plan(plan)
			b.targets = all
			answer := b.ensure()
			if answer.GetReady() == nil || len(answer.TargetErrors) != 1 || len(h.only().Targets) != 2 {
				t.Fatalf("%v, %+v", answer, h.only().Targets)
			}
			h.must(answer.TargetErrors[0].Failure, sdk.CodeUnavailable, reason)
			b.ensured()
			if targets := h.only().Targets; len(targets) != 3 {
				t.Errorf("%+v", targets)
			}
		})
	}
}

// The server is deleted after the provider has read the load balancer. Hetzner then removes the target itself.
func TestATargetThatIsGoneAlreadyStopsNothing(t *testing.T) {
	h := initialized(t)
	b := h.service(uid)
	for name, call := range map[string]func() bool{
		"Update": func() bool { return b.update().GetDone() != nil },
		"Ensure": func() bool { return b.ensure().GetReady() != nil },
	} {
		h.servers = append(h.servers[:2], h.cloud.AddServer(testapi.NewServer{Name: "gone-" + name}))
		b.targets = h.service(uid).targets
		b.ensured()
		calls := h.cloud.Calls()
		at := slices.IndexFunc(calls, func(call api.Call) bool {
			return call.Route == "GET /v1/load_balancers" && strings.Contains(string(call.Answer), fmt.Sprint(h.servers[2]))
		})
		h.plan(api.Plan{Match: "GET /v1/load_balancers[?]", Body: string(calls[at].Answer)})
		if err := h.cloud.SetServer("gone-"+name, ""); err != nil {
			t.Fatal(err)
		}
		h.servers[2] = h.cloud.AddServer(testapi.NewServer{Name: "new-" + name})
		b.targets = h.service(uid).targets
		_, routes := h.calls(func() {
			if !call() {
				t.Errorf("%s: the target that is gone fails the call", name)
			}
		})
		if writes := routes["POST /v1/load_balancers/{id}/actions/{action}"]; writes != 2 || len(h.only().Targets) != 3 {
			t.Errorf("%s: %v, %+v", name, routes, h.only().Targets)
		}
	}
}

func TestATargetThatHetznerDoesNotRemoveStopsNoOtherTarget(t *testing.T) {
	h := initialized(t)
	b := h.service(uid)
	all := b.targets
	b.targets = all[:2]
	b.ensured()
	h.plan(api.Plan{Match: "remove_target$", Status: 422})
	b.targets = all[1:]
	h.must(b.update().GetFailed(), sdk.CodeInvalid, "RefusedByHetzner", fmt.Sprintf("removing server %d", h.servers[0]))
	if targets := h.only().Targets; len(targets) != 3 {
		t.Errorf("%+v", targets)
	}
}

func TestALockedTargetIsItsOwnTroubleAlone(t *testing.T) { // LB-17
	h := initialized(t)
	for i := range 5 {
		h.servers = append(h.servers, h.cloud.AddServer(testapi.NewServer{Name: fmt.Sprintf("node-%d", 3+i)}))
	}
	b := h.service(uid)
	all := b.targets
	b.targets = nil
	b.ensured()
	said := func(errors []*contract.TargetError, count int) {
		t.Helper()
		if len(errors) != count || len(h.only().Targets) != len(all)-count {
			t.Fatalf("%v, %+v", errors, h.only().Targets)
		}
		for _, target := range errors {
			h.must(target.Failure, sdk.CodeBusy, "Busy", "adding server")
			if wait := target.Failure.RetryAfter.AsDuration(); wait != againWhileLocked {
				t.Errorf("the controller asks again after %v", wait)
			}
		}
	}
	locked := api.Plan{Match: "add_target$", Status: 423, Body: `{"error":{"code":"locked","message":"item is locked","details":{}}}`}
	several := locked
	several.Times = mostLocked + 2
	h.plan(several)
	b.targets = all
	answer := b.update()
	if answer.GetDone() == nil {
		t.Errorf("%v", answer)
	}
	said(answer.TargetErrors, mostLocked+2)
	h.plan(several) // Now there is nothing else to do.
	ensured := b.ensure()
	if ensured.GetReady() == nil {
		t.Errorf("%v", ensured)
	}
	said(ensured.TargetErrors, mostLocked+2)
	h.plan(locked)
	said(b.update().TargetErrors, 1)
	b.ensured()
	said(nil, 0)
}

func TestALockedLoadBalancerIsPending(t *testing.T) {
	for targets, tries := range map[int]int{1: 1, 3: mostLocked + 1} {
		t.Run(fmt.Sprint(targets), func(t *testing.T) {
			h := initialized(t)
			b := h.service(uid)
			all := b.targets[:targets]
			b.targets = nil
			b.ensured()
			lb := h.only().ID
			h.plan(
				api.Plan{Match: "add_target$", Status: 423, Times: -1},
				api.Plan{Match: fmt.Sprintf("GET /v1/load_balancers/%d/actions", lb), Body: fmt.Sprintf(`{"actions":[{"id":1,"command":"change_type","status":"running","progress":0,"started":"2026-01-01T00:00:00Z","finished":null,"resources":[{"id":%d,"type":"load_balancer"}],"error":null}]}`, lb)},
			)
			b.targets = all
			_, routes := h.calls(func() {
				if answer := b.update(); answer.GetPending() == nil {
					t.Errorf("%v", answer)
				}
			})
			if got := routes["POST /v1/load_balancers/{id}/actions/{action}"]; got != tries {
				t.Errorf("%d calls to add targets: %v", got, routes)
			}
		})
	}
}

func TestALockedTargetStopsNoNewLoadBalancer(t *testing.T) {
	for status, left := range map[int]int{409: 0, 423: 1} { // After a 409 the provider repeats the call.
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			h := initialized(t)
			b := h.service(uid)
			h.plan(api.Plan{Match: "POST /v1/load_balancers$", Status: status}, api.Plan{Match: "add_target$", Status: status})
			if answer := b.ensure(); answer.GetReady() == nil || len(answer.TargetErrors) != left || len(h.only().Targets) != 3-left {
				t.Errorf("%v", answer)
			}
		})
	}
}

// The API asks for another try soon, so the next call comes sooner than after a target error.
func TestALoadBalancerThatChangesDuringTheRequestsIsPending(t *testing.T) {
	h := initialized(t)
	b := h.service(uid)
	all := b.targets
	b.targets = nil
	b.ensured()
	b.targets = all
	h.plan(api.Plan{Match: "add_target$", Status: 409, Times: 2})
	if answer := b.update(); answer.GetPending().GetRetryAfter().AsDuration() != againWhileBusy || len(answer.TargetErrors) > 0 {
		t.Errorf("%v", answer)
	}
	b.ensured()
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
