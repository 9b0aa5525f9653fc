package provider

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"

	"github.com/grpc-ccm/grpc-ccm/providers/go/contract"
	"github.com/grpc-ccm/grpc-ccm/providers/go/sdk"
	"github.com/grpc-ccm/grpc-ccm/providers/hetzner/plan"
	"github.com/grpc-ccm/grpc-ccm/providers/hetzner/testapi"
	api "github.com/grpc-ccm/grpc-ccm/providers/testapi"
)

func TestATypeThatCannotBeHadLeavesNoLoadBalancerWithoutPorts(t *testing.T) {
	for name, row := range map[string]struct {
		plan   api.Plan
		code   sdk.Code
		reason string
	}{
		"refused":     {api.Plan{Status: 422}, sdk.CodeInvalid, "RefusedByHetzner"},
		"fails":       {api.Plan{Status: 503}, sdk.CodeUnavailable, "APIFails"},
		"action":      {api.Plan{Status: 201, Body: failedAction("change_type", "action_failed")}, sdk.CodeUnavailable, "ActionFailed"},
		"unavailable": {api.Plan{Status: 201, Body: failedAction("change_type", "resource_unavailable")}, sdk.CodePrecondition, "RefusedByHetzner"},
	} {
		for ports, to := range map[int]string{1: "lb11", 2: "lb31", 6: "lb11"} { // 6 ports have to go before lb11 fits.
			t.Run(fmt.Sprintf("%s,%d ports to %s", name, ports, to), func(t *testing.T) {
				h := initialized(t)
				b := h.service(uid, "type", "lb21")
				for i := range int32(ports - 1) {
					b.service.Ports = append(b.service.Ports, &contract.ServicePort{Name: fmt.Sprint("p", i), Protocol: "TCP", Port: 81 + i, NodePort: new(30081 + i)})
				}
				b.ensured()
				b.service.Annotations[plan.Prefix+"type"] = to
				b.service.Annotations[plan.Prefix+"use-private-ip"] = "true"
				b.service.Ports = b.service.Ports[:1]
				b.service.Ports[0].Port = 8080
				row.plan.Match = "POST /v1/load_balancers/.*/actions/change_type"
				h.plan(row.plan)
				h.must(b.ensure().GetFailed(), row.code, row.reason, "changing the type to "+to)
				if lb := h.only(); len(lb.Services) != 1 || lb.Services[0].ListenPort != 8080 || len(lb.Targets) != 3 || !lb.Targets[0].UsePrivateIP {
					t.Errorf("%+v", lb)
				}
				b.ensured()
				if lb := h.only(); lb.LoadBalancerType.Name != to {
					t.Errorf("%+v", lb)
				}
			})
		}
	}
}

func TestATypeThatFailedInTheBackgroundIsNotTriedAgainAtOnce(t *testing.T) {
	for name, row := range map[string]struct {
		code string
		ago  time.Duration
		is   string
	}{
		"just now": {"resource_unavailable", time.Minute, "lb11"},
		"long ago": {"resource_unavailable", againAfterType + time.Minute, "lb21"},
		"locked":   {"locked", time.Minute, "lb21"},
	} {
		t.Run(name, func(t *testing.T) {
			h := initialized(t)
			b := h.service(uid)
			b.ensured()
			b.service.Annotations[plan.Prefix+"type"] = "lb21"
			b.service.Ports[0].Port = 8080
			at := time.Now().Add(-row.ago).UTC().Format(time.RFC3339)
			action := fmt.Sprintf(`{"id":%%d,"command":%%q,"status":"error","progress":100,"started":%q,"finished":%q,"resources":[],"error":{"code":%q,"message":"no"}}`, at, at, row.code)
			h.plan(api.Plan{Match: "GET /v1/load_balancers/.*/actions.*sort=id%3Adesc&status=error", Body: `{"actions":[` + fmt.Sprintf(action, 2, "add_target") + "," + fmt.Sprintf(action, 1, "change_type") + "]}"})
			answer := b.ensure()
			if row.is == "lb11" {
				h.must(answer.GetFailed(), sdk.CodePrecondition, "RefusedByHetzner", "changing the type to lb21")
			} else if answer.GetReady() == nil {
				t.Errorf("%v", answer)
			}
			if lb := h.only(); lb.LoadBalancerType.Name != row.is || lb.Services[0].ListenPort != 8080 {
				t.Errorf("%+v", lb)
			}
			b.ensured()
		})
	}
}

func TestAfterARefusedUpgradeThePresentTypesLimitsHold(t *testing.T) {
	h := initialized(t)
	for i := range 37 {
		h.servers = append(h.servers, h.cloud.AddServer(testapi.NewServer{Name: fmt.Sprintf("node-%d", 3+i)}))
	}
	b := h.service(uid)
	all := b.targets
	b.targets = all[37:]
	for i := range int32(2) {
		b.service.Ports = append(b.service.Ports, &contract.ServicePort{Name: fmt.Sprint("p", i), Protocol: "TCP", Port: 88 + i, NodePort: new(30081 + i)})
	}
	b.ensured()
	b.targets = all
	b.service.Ports = b.service.Ports[1:]
	for i := range int32(6) {
		b.service.Ports = append([]*contract.ServicePort{{Name: fmt.Sprint("q", i), Protocol: "TCP", Port: 100 + i, NodePort: new(30100 + i)}}, b.service.Ports...)
	}
	b.service.Annotations[plan.Prefix+"type"] = "lb21"
	h.plan(api.Plan{Match: "change_type$", Status: 422})
	_, routes := h.calls(func() {
		h.must(b.ensure().GetFailed(), sdk.CodeInvalid, "RefusedByHetzner", "changing the type to lb21")
	})
	ports := []int{}
	for _, service := range h.only().Services {
		ports = append(ports, service.ListenPort)
	}
	// The type, one port removed and three added, and 22 targets.
	if writes := routes["POST /v1/load_balancers/{id}/actions/{action}"]; writes != 1+1+3+22 || len(h.only().Targets) != 25 || fmt.Sprint(ports) != "[88 89 105 104 103]" {
		t.Errorf("%v, %d targets, ports %v", routes, len(h.only().Targets), ports)
	}
	b.ensured()
	if lb := h.only(); lb.LoadBalancerType.Name != "lb21" || len(lb.Services) != 8 || len(lb.Targets) != 40 {
		t.Errorf("%+v", lb)
	}
}

// The change takes minutes.
func TestATypeThatFitsIsChangedBeforeAnythingIsRemoved(t *testing.T) {
	h := initialized(t)
	b := h.service(uid)
	b.ensured()
	b.service.Annotations = map[string]string{plan.Prefix + "type": "lb21", plan.Prefix + "use-private-ip": "true", plan.Prefix + "private-ipv4": "10.1.9.9"}
	b.service.Ports[0].Port = 8080
	h.plan(api.Plan{Match: "change_type$", Status: 423})
	if answer := b.ensure(); answer.GetPending() == nil {
		t.Fatalf("%v", answer)
	}
	if lb := h.only(); len(lb.Services) != 1 || len(lb.Targets) != 3 || len(lb.PrivateNet) != 1 {
		t.Errorf("%+v", lb)
	}
	b.ensured()
	if lb := h.only(); lb.LoadBalancerType.Name != "lb21" || lb.Services[0].ListenPort != 8080 || len(lb.Targets) != 3 || !lb.Targets[0].UsePrivateIP {
		t.Errorf("%+v", lb)
	}
}

func TestTheTypeIsNotChangedWhileTheLoadBalancerLacksWhatItReaches(t *testing.T) {
	for name, row := range map[string]struct {
		from, to string
		before   func(*balancer)
		targets  int
	}{
		"smaller": {"lb21", "lb11", func(b *balancer) {
			b.service.Annotations[plan.Prefix+"private-ipv4"] = "10.1.9.9"
			b.targets = b.targets[:20]
		}, 20},
		"detached by an earlier call": {"lb21", "lb31", func(b *balancer) {
			h := b.harness
			h.cloud.ChangeLoadBalancer(h.only().ID, func(lb *schema.LoadBalancer) { lb.PrivateNet, lb.Targets = nil, nil })
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			h := initialized(t)
			for i := range 27 {
				h.servers = append(h.servers, h.cloud.AddServer(testapi.NewServer{Name: fmt.Sprintf("node-%d", 3+i)}))
			}
			b := h.service(uid, "type", row.from, "use-private-ip", "true")
			b.ensured()
			row.before(b)
			b.service.Annotations[plan.Prefix+"type"] = row.to
			h.plan(api.Plan{Match: "change_type$", Status: 423})
			if answer := b.ensure(); answer.GetPending() == nil {
				t.Fatalf("%v", answer)
			}
			if lb := h.only(); lb.LoadBalancerType.Name != row.from || len(lb.PrivateNet) != 1 || len(lb.Targets) != row.targets {
				t.Errorf("%d targets, %+v", len(lb.Targets), lb.PrivateNet)
			}
			b.ensured()
			if lb := h.only(); lb.LoadBalancerType.Name != row.to || len(lb.Targets) != len(b.targets) {
				t.Errorf("%+v", lb)
			}
		})
	}
}

// After a failed change of type the call still tells that more has to be done.
func TestWhatFollowsAFailedTypeIsTold(t *testing.T) {
	for name, row := range map[string]struct {
		plan api.Plan
		is   func(*harness, *contract.EnsureLoadBalancerResponse)
	}{
		"refused too": {api.Plan{Status: 422}, func(h *harness, answer *contract.EnsureLoadBalancerResponse) {
			h.must(answer.GetFailed(), sdk.CodeInvalid, "RefusedByHetzner", "changing the type to lb21")
		}},
		"too many calls": {api.Plan{Status: 429}, func(h *harness, answer *contract.EnsureLoadBalancerResponse) {
			h.must(answer.GetFailed(), sdk.CodeThrottled, "Throttled", "adding port 8080")
		}},
		"locked": {api.Plan{Status: 423}, func(h *harness, answer *contract.EnsureLoadBalancerResponse) {
			if message := answer.GetPending().GetMessage(); !strings.Contains(message, "adding port 8080") || !strings.Contains(message, "changing the type to lb21") {
				h.Errorf("%v", answer)
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			h := initialized(t)
			b := h.service(uid)
			b.ensured()
			b.service.Annotations[plan.Prefix+"type"] = "lb21"
			b.service.Ports[0].Port = 8080
			row.plan.Match = "add_service$"
			h.plan(api.Plan{Match: "change_type$", Status: 422}, row.plan)
			row.is(h, b.ensure())
		})
	}
}

func TestASmallerTypeComesAfterPortsAndTargetsAreGone(t *testing.T) {
	h := initialized(t)
	for i := range 27 {
		h.servers = append(h.servers, h.cloud.AddServer(testapi.NewServer{Name: fmt.Sprintf("node-%d", 3+i)}))
	}
	b := h.service(uid, "type", "lb21")
	for i := range int32(6) {
		nodePort := 30081 + i
		b.service.Ports = append(b.service.Ports, &contract.ServicePort{Name: fmt.Sprint("p", i), Protocol: "TCP", Port: 81 + i, NodePort: &nodePort})
	}
	b.ensured()
	nodePort := int32(30100)
	b.service.Annotations[plan.Prefix+"type"] = "lb11"
	b.service.Ports = append(b.service.Ports[:4], &contract.ServicePort{Name: "other", Protocol: "TCP", Port: 100, NodePort: &nodePort})
	b.ensured()
	if lb := h.only(); lb.LoadBalancerType.Name != "lb11" || len(lb.Services) != 5 || len(lb.Targets) != 25 {
		t.Errorf("%+v", lb)
	}
	b.service.Annotations[plan.Prefix+"type"] = "lb21"
	b.ensured()
	if lb := h.only(); lb.LoadBalancerType.Name != "lb21" || len(lb.Targets) != 30 {
		t.Errorf("%+v", lb)
	}
}
