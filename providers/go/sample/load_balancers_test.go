package main

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/grpc-ccm/grpc-ccm/providers/go/contract"
)

func service(uid string) *contract.ServiceView {
	port := int32(30080)
	return &contract.ServiceView{
		Namespace: "default", Name: "web", Uid: uid, SessionAffinity: "None", ExternalTrafficPolicy: "Cluster",
		Ports: []*contract.ServicePort{{Protocol: "TCP", Port: 80, NodePort: &port}},
	}
}

func targets(names ...string) *contract.TargetSet {
	list := &contract.TargetList{}
	for _, name := range names {
		list.Nodes = append(list.Nodes, node(name))
	}
	return &contract.TargetSet{Set: &contract.TargetSet_Inline{Inline: list}}
}

func (h *harness) ensure(request *contract.EnsureLoadBalancerRequest) *contract.EnsureLoadBalancerResponse {
	h.Helper()
	response, err := h.balancers.EnsureLoadBalancer(h.ctx, request)
	h.check(err)
	return response
}

func (h *harness) inSync(request *contract.GetLoadBalancerRequest) bool {
	h.Helper()
	response, err := h.balancers.GetLoadBalancer(h.ctx, request)
	h.check(err)
	return response.GetFound().GetInSync()
}

func (h *harness) remove(request *contract.DeleteLoadBalancerRequest) *contract.DeleteLoadBalancerResponse {
	h.Helper()
	response, err := h.balancers.DeleteLoadBalancer(h.ctx, request)
	h.check(err)
	return response
}

func TestAConvergedEnsureWritesNothingAndAClearedFieldIsRemoved(t *testing.T) {
	h := serveInitialized(t)
	asked := service("uid-1")
	asked.LoadBalancerSourceRanges, asked.IpFamilies = []string{"10.0.0.0/8"}, []string{"IPv4", "IPv6"}
	made := h.ensure(&contract.EnsureLoadBalancerRequest{Cluster: us, Service: asked, Targets: targets("a", "b")})
	h.equal(h.loadBalancers()[0].Addresses, []string{"192.0.2.1", "2001:db8::1"})
	h.equal(h.writes(), 1)
	h.equal(h.inSync(&contract.GetLoadBalancerRequest{Cluster: us, Service: asked, Targets: targets("a", "b")}), true)
	again := h.ensure(&contract.EnsureLoadBalancerRequest{Cluster: us, Service: asked, Handle: made.Handle}) // Without targets in the request the targets stay.
	h.equal(again.GetReady().GetStatus(), made.GetReady().GetStatus())
	h.equal(h.writes(), 1)
	h.equal(h.inSync(&contract.GetLoadBalancerRequest{Cluster: us, Service: service("uid-1")}), false)
	h.ensure(&contract.EnsureLoadBalancerRequest{Cluster: us, Service: service("uid-1")})
	lb := h.loadBalancers()[0]
	h.equal(lb.Config.SourceRanges, []string{})
	h.equal(lb.Addresses, []string{"192.0.2.1"})
	h.equal(lb.Targets, []string{"a", "b"})
}

func TestAServiceThatCannotBeServedIsInvalidAndTheFieldIsNamed(t *testing.T) {
	h := serveInitialized(t)
	for field, change := range map[string]func(*contract.ServiceView){
		"ports is empty":        func(s *contract.ServiceView) { s.Ports = nil },
		"protocol":              func(s *contract.ServiceView) { s.Ports[0].Protocol = "ICMP" },
		"port 0":                func(s *contract.ServiceView) { s.Ports[0].Port = 0 },
		"twice":                 func(s *contract.ServiceView) { s.Ports = append(s.Ports, s.Ports[0]) },
		"SourceRanges":          func(s *contract.ServiceView) { s.LoadBalancerSourceRanges = []string{"10.0.0.0"} },
		"ipFamilies":            func(s *contract.ServiceView) { s.IpFamilies = []string{"IPv5"} },
		"loadBalancerClass":     func(s *contract.ServiceView) { s.LoadBalancerClass = &s.Name },
		"spec.loadBalancerIP":   func(s *contract.ServiceView) { s.LoadBalancerIp = &s.Name },
		"externalTrafficPolicy": func(s *contract.ServiceView) { s.ExternalTrafficPolicy = "Near" },
	} {
		asked := service("uid-1")
		change(asked)
		failed := h.ensure(&contract.EnsureLoadBalancerRequest{Cluster: us, Service: asked}).GetFailed()
		h.equal(code(failed), "INVALID")
		h.equal(strings.Contains(failed.Message, field), true)
	}
	h.equal(h.writes(), 0)
}

func TestAnUpdateSetsTheTargetsAndNeedsALoadBalancer(t *testing.T) {
	h := serveInitialized(t)
	request := &contract.UpdateLoadBalancerRequest{Cluster: us, Service: service("uid-1"), Targets: targets("c")}
	update := func() *contract.UpdateLoadBalancerResponse {
		response, err := h.balancers.UpdateLoadBalancer(h.ctx, request)
		h.check(err)
		return response
	}
	h.equal(code(update().GetFailed()), "NOT_FOUND")
	h.ensure(&contract.EnsureLoadBalancerRequest{Cluster: us, Service: service("uid-1"), Targets: targets("a")})
	h.equal(update().GetDone() != nil, true)
	h.equal(h.loadBalancers()[0].Targets, []string{"c"})
	request.Targets = nil
	h.equal(code(update().GetFailed()), "INVALID")
}

func TestWhatIsNotOursIsNotTouched(t *testing.T) {
	h := serveInitialized(t)
	made := h.ensure(&contract.EnsureLoadBalancerRequest{Cluster: us, Service: service("uid-1")})
	h.initialize(them)
	h.equal(code(h.ensure(&contract.EnsureLoadBalancerRequest{Cluster: them, Service: service("uid-2"), Handle: made.Handle}).GetFailed()), "CONFLICT")
	h.equal(code(h.remove(&contract.DeleteLoadBalancerRequest{Cluster: them, Service: service("uid-2"), Handle: made.Handle}).GetFailed()), "CONFLICT")
	h.equal(h.writes(), 1)
	// A load balancer with a previous owner ID is ours, and Ensure writes the new mark (LB-25).
	h.initialize(them, "us")
	h.ensure(&contract.EnsureLoadBalancerRequest{Cluster: them, Service: service("uid-1")})
	h.equal(h.writes(), 2)
	h.ensure(&contract.EnsureLoadBalancerRequest{Cluster: them, Service: service("uid-1"), Targets: targets("a")})
	h.equal(h.loadBalancers()[0].Owner.OwnerID, "them")
}

func TestAnUnmarkedLoadBalancerIsAdoptedOnlyWhereThatIsGranted(t *testing.T) {
	h := serveInitialized(t)
	h.edit(func(content map[string]any) {
		content["load_balancers"] = []any{map[string]any{"handle": "lb-7", "name": "auid1", "addresses": []string{"192.0.2.9"}, "targets": []string{}, "config": map[string]any{}}}
	})
	request := &contract.EnsureLoadBalancerRequest{Cluster: us, Service: service("uid-1")}
	h.equal(code(h.ensure(request).GetFailed()), "CONFLICT")
	request.AdoptUnmarked = true
	h.equal(h.ensure(request).GetHandle(), "lb-7")
	h.equal(h.loadBalancers()[0].Owner.UID, "uid-1")
}

// LB-24: the native name comes before an address, and another owner's load balancer with the name
// comes last.
func TestTheNativeNameComesBeforeAnAddressOfTheStatus(t *testing.T) {
	h := serveInitialized(t)
	lb := func(handle, name, address string) map[string]any {
		return map[string]any{"handle": handle, "name": name, "addresses": []string{address}, "targets": []string{}, "config": map[string]any{}}
	}
	at, named, foreign := lb("lb-1", "by-hand", "192.0.2.9"), lb("lb-2", "auid1", "192.0.2.8"), lb("lb-0", "auid1", "192.0.2.7")
	foreign["owner"] = map[string]any{"owner_id": "them", "namespace": "default", "name": "web", "uid": "uid-1"}
	asked, ip := service("uid-1"), "192.0.2.9"
	asked.Status = &contract.LoadBalancerStatus{Ingress: []*contract.LoadBalancerIngress{{Ip: &ip}}}
	for _, c := range []struct {
		there  []any
		adopts string
	}{{[]any{at, named}, "lb-2"}, {[]any{foreign, at, named}, "lb-2"}, {[]any{foreign, at}, "lb-1"}, {[]any{foreign}, ""}} {
		h.edit(func(content map[string]any) { content["load_balancers"] = c.there })
		h.equal(h.ensure(&contract.EnsureLoadBalancerRequest{Cluster: us, Service: asked, AdoptUnmarked: true}).GetHandle(), c.adopts)
	}
}

func TestADeleteFindsByTheMarkAndIsDoneWhereNothingIs(t *testing.T) {
	h := serveInitialized(t)
	h.ensure(&contract.EnsureLoadBalancerRequest{Cluster: us, Service: service("uid-1")})
	lost := "lb-lost"
	request := &contract.DeleteLoadBalancerRequest{Cluster: us, Service: service("uid-1"), Handle: &lost}
	h.equal(h.remove(request).GetDone() != nil, true)
	h.equal(len(h.loadBalancers()), 0)
	h.equal(h.remove(request).GetDone() != nil, true)
	h.equal(h.writes(), 2)
	h.weather("UNAVAILABLE", 0)
	h.equal(code(h.remove(request).GetFailed()), "UNAVAILABLE")
}

// LB-26: Delete removes the Service's own load balancer, and is not done while an unmarked load balancer of the Service remains.
func TestADeleteIsNotDoneWhileAnUnmarkedLoadBalancerRemains(t *testing.T) {
	h := serveInitialized(t)
	for _, adopt := range []bool{false, true} {
		h.ensure(&contract.EnsureLoadBalancerRequest{Cluster: us, Service: service("uid-1")})
		h.edit(func(content map[string]any) {
			unmarked := map[string]any{"handle": "lb-7", "name": "auid1", "addresses": []string{"192.0.2.9"}, "targets": []string{}, "config": map[string]any{}}
			content["load_balancers"] = append(content["load_balancers"].([]any), unmarked)
		})
		request := &contract.DeleteLoadBalancerRequest{Cluster: us, Service: service("uid-1"), AdoptUnmarked: adopt}
		if first := h.remove(request); adopt {
			h.equal(first.GetPending() != nil, true)
		} else {
			h.equal(code(first.GetFailed()), "CONFLICT")
		}
		h.equal(len(h.loadBalancers()), 1)
		h.equal(h.loadBalancers()[0].Handle, "lb-7")
		if !adopt {
			h.equal(code(h.remove(request).GetFailed()), "CONFLICT")
			request.AdoptUnmarked = true
		}
		h.equal(h.remove(request).GetDone() != nil, true)
		h.equal(len(h.loadBalancers()), 0)
	}
}

func TestOverlappingCallsMakeOneLoadBalancer(t *testing.T) {
	h := serveInitialized(t)
	h.weather(nil, 300)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			response, err := h.balancers.EnsureLoadBalancer(h.ctx, &contract.EnsureLoadBalancerRequest{Cluster: us, Service: service("uid-1")})
			if err != nil || response.GetReady() == nil && code(response.GetFailed()) != "BUSY" {
				h.Errorf("%v %v", response, err)
			}
		})
	}
	all.Wait()
	h.equal(h.writes(), 1)
}

func TestACallThatIsCancelledOrOutOfTimeWritesNothing(t *testing.T) {
	h := serveInitialized(t)
	h.weather(nil, 25_000)
	cancelled, cancel := context.WithCancel(h.ctx)
	ended := make(chan error)
	go func() {
		_, err := h.balancers.EnsureLoadBalancer(cancelled, &contract.EnsureLoadBalancerRequest{Cluster: us, Service: service("uid-1")})
		ended <- err
	}()
	h.arrived("EnsureLoadBalancer")
	cancel()
	h.equal(status.Code(<-ended), codes.Canceled)
	longer, stop := context.WithTimeout(h.ctx, 20*time.Second)
	defer stop()
	response, err := h.balancers.EnsureLoadBalancer(longer, &contract.EnsureLoadBalancerRequest{Cluster: us, Service: service("uid-2")})
	h.check(err)
	h.equal(response.GetPending() != nil, true)
	// If the cancelled call still wrote, its write would come before the write of this Ensure, which takes equally long and began later.
	h.ensure(&contract.EnsureLoadBalancerRequest{Cluster: us, Service: service("uid-3")})
	h.equal(h.writes(), 1)
}

func TestWhatTakesTimeIsPending(t *testing.T) {
	h := serve(t)
	h.provider.settings.Provisioning = 200 * time.Millisecond
	h.initialize(us)
	request := &contract.EnsureLoadBalancerRequest{Cluster: us, Service: service("uid-1")}
	made := h.ensure(request)
	h.equal(made.GetPending() != nil && made.GetHandle() != "", true)
	h.eventually(func() bool { return h.ensure(request).GetReady() != nil })
	h.equal(h.remove(&contract.DeleteLoadBalancerRequest{Cluster: us, Service: service("uid-1")}).GetPending() != nil, true)
	h.eventually(func() bool {
		return h.remove(&contract.DeleteLoadBalancerRequest{Cluster: us, Service: service("uid-1")}).GetDone() != nil
	})
	h.equal(h.writes(), 2)
}

func TestAListingShowsWhatIsMarkedForUs(t *testing.T) {
	h := serveInitialized(t)
	h.ensure(&contract.EnsureLoadBalancerRequest{Cluster: us, Service: service("uid-1")})
	h.initialize(them)
	h.ensure(&contract.EnsureLoadBalancerRequest{Cluster: them, Service: service("uid-2")})
	stream, err := h.balancers.ListLoadBalancers(h.ctx, &contract.ListLoadBalancersRequest{Cluster: them})
	parts := drained(h, stream, err)
	h.equal(len(parts), 2)
	h.equal(parts[0].GetLoadBalancer().Owners[0].Uid, "uid-2")
	h.equal(parts[1].GetEnd().Total, 1)
}
