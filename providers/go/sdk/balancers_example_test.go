package sdk_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/grpc-ccm/grpc-ccm/providers/go/sdk"
)

// made is a load balancer as your cloud's API describes it.
type made struct {
	ID             string
	Mark           sdk.Mark
	Ports, Targets []string
	IP             netip.Addr
}

// api represents your cloud's client. If the client knows the cause, it makes errors by sdk.Throttled, sdk.Unavailable and so on.
type api interface {
	balancers(ctx context.Context) ([]made, error)
	create(ctx context.Context, mark sdk.Mark) (made, error)
	set(ctx context.Context, wanted made) error
	delete(ctx context.Context, id string) error
}

// balancers is a provider with load balancers.
type balancers struct {
	cloud
	api api
}

// refused returns the reason why this cloud makes no load balancer for a Service. Get calls it only
// for InSync, and Delete does not call it (LB-29).
func refused(service sdk.Service) error {
	if service.LoadBalancerClass != nil {
		return sdk.ErrHandledElsewhere // LB-18
	}
	for _, port := range service.Ports {
		if port.Port < 1 || port.Port > 65535 || port.NodePort == nil {
			return sdk.Invalid("the port %d has no node port; right would be a port from 1 to 65535 with one", port.Port)
		}
	}
	if len(service.Ports) == 0 {
		return sdk.Invalid("the Service has no ports; right would be one at least")
	}
	return nil
}

// wanted returns the load balancer that a Service asks for. Without targets in the request the
// targets stay (LB-10).
func wanted(found made, call *sdk.Call, service sdk.Service, targets *sdk.Targets) made {
	found.Mark, found.Ports = call.Mark(service.UID, sdk.LabelValue), nil
	for _, port := range service.Ports {
		found.Ports = append(found.Ports, fmt.Sprintf("%d/%s to %d", port.Port, port.Protocol, *port.NodePort))
	}
	if targets != nil {
		found.Targets = names(targets.Nodes)
	}
	return found
}

// names returns the names of the Nodes, sorted.
func names(nodes []sdk.Node) (sorted []string) {
	for _, node := range nodes {
		sorted = append(sorted, node.Name)
	}
	slices.Sort(sorted)
	return sorted
}

// find searches by the handle, else by the mark. A user can edit the handle, so the mark at the
// load balancer decides who owns it (LB-4).
func (b balancers) find(ctx context.Context, call *sdk.Call, service sdk.Service, handle string, grant bool) (*made, sdk.Ownership, error) {
	all, err := b.api.balancers(ctx)
	if err != nil {
		return nil, 0, err
	}
	whose := func(one *made) sdk.Ownership { return call.Ownership(one.Mark, service.UID, sdk.LabelValue) }
	return sdk.FindOwn(all, handle, grant, func(one *made) string { return one.ID }, whose)
}

func (b balancers) GetLoadBalancer(ctx context.Context, call *sdk.Call, request sdk.GetLoadBalancer) (sdk.LoadBalancer, error) {
	found, whose, err := b.find(ctx, call, request.Service, request.Handle, true)
	if err != nil || found == nil {
		return sdk.LoadBalancer{Presence: sdk.LoadBalancerAbsent}, err
	}
	if whose == sdk.Ours {
		request.Notes.Handle(found.ID)
	}
	// With LoadBalancerOptions.InSync this spares an Ensure at each restart of the controller (LB-14).
	inSync := whose == sdk.Ours && refused(request.Service) == nil && found.IP.IsValid() && sdk.Same(*found, wanted(*found, call, request.Service, request.Targets))
	return sdk.LoadBalancer{Presence: sdk.LoadBalancerPresent, Ownership: whose, Name: found.ID, Status: statusOf(found), InSync: inSync}, nil
}

func statusOf(found *made) (status sdk.LoadBalancerStatus) {
	if found.IP.IsValid() {
		status.Ingress = []sdk.Ingress{{IP: found.IP}}
	}
	return status
}

func (b balancers) EnsureLoadBalancer(ctx context.Context, call *sdk.Call, request sdk.EnsureLoadBalancer) (sdk.LoadBalancerStatus, error) {
	if err := refused(request.Service); err != nil {
		return sdk.LoadBalancerStatus{}, err
	}
	found, _, err := b.find(ctx, call, request.Service, request.Handle, request.AdoptUnmarked)
	if err != nil {
		return sdk.LoadBalancerStatus{}, err
	}
	if found == nil {
		if err := sdk.BeforeWrite(ctx); err != nil { // The caller has gone: write nothing (CORE-8).
			return sdk.LoadBalancerStatus{}, err
		}
		one, err := b.api.create(ctx, call.Mark(request.Service.UID, sdk.LabelValue))
		if err != nil {
			return sdk.LoadBalancerStatus{}, err
		}
		found = &one
	}
	// The cloud's ID is known now: the answer has it, also in a failure (LB-3).
	request.Notes.Handle(found.ID)
	// Write nothing if the load balancer already is as asked (LB-8).
	if wanted := wanted(*found, call, request.Service, request.Targets); !sdk.Same(*found, wanted) {
		if err := b.set(ctx, wanted); err != nil {
			return sdk.LoadBalancerStatus{}, err
		}
	}
	if !found.IP.IsValid() {
		return sdk.LoadBalancerStatus{}, sdk.Pending(10*time.Second, "the cloud gives it an address")
	}
	return statusOf(found), nil
}

func (b balancers) UpdateLoadBalancer(ctx context.Context, call *sdk.Call, request sdk.UpdateLoadBalancer) error {
	found, _, err := b.find(ctx, call, request.Service, request.Handle, false)
	switch {
	case err != nil:
		return err
	case found == nil:
		return sdk.NotFound("there is no load balancer to update") // LB-11
	}
	// Only the targets (LB-16).
	changed := *found
	changed.Targets = names(request.Targets.Nodes)
	if sdk.Same(*found, changed) {
		return nil
	}
	return b.set(ctx, changed)
}

func (b balancers) set(ctx context.Context, wanted made) error {
	if err := sdk.BeforeWrite(ctx); err != nil {
		return err
	}
	return b.api.set(ctx, wanted)
}

func (b balancers) DeleteLoadBalancer(ctx context.Context, call *sdk.Call, request sdk.DeleteLoadBalancer) error {
	found, _, err := b.find(ctx, call, request.Service, request.Handle, false)
	if err != nil || found == nil {
		return err // nil: the search found nothing (LB-12)
	}
	if err := sdk.BeforeWrite(ctx); err != nil {
		return err
	}
	return b.api.delete(ctx, found.ID)
}

// memory is a cloud of load balancers.
type memory struct {
	all    map[string]made
	writes int
}

func (m *memory) balancers(context.Context) (all []made, err error) {
	for _, one := range m.all {
		all = append(all, one)
	}
	return all, nil
}

func (m *memory) create(_ context.Context, mark sdk.Mark) (made, error) {
	m.writes++
	one := made{ID: fmt.Sprintf("lb-%d", m.writes), Mark: mark}
	m.all[one.ID] = one
	return one, nil
}

func (m *memory) set(_ context.Context, wanted made) error {
	m.writes++
	wanted.IP = netip.MustParseAddr("192.0.2.1")
	m.all[wanted.ID] = wanted
	return nil
}

func (m *memory) delete(_ context.Context, id string) error {
	m.writes++
	delete(m.all, id)
	return nil
}

// The guide shows this provider: it makes, finds, changes and removes a load balancer, writes nothing without a difference, and does not touch
// another owner's load balancer.
func TestTheLoadBalancersOfTheGuide(t *testing.T) {
	clouds := &memory{all: map[string]made{"other": {ID: "other", Mark: sdk.Mark{Owner: "them", Service: "uid"}}}}
	provider, call := balancers{api: clouds}, &sdk.Call{Cluster: sdk.Cluster{OwnerID: "us"}}
	nodePort, class := 30080, "example.com/other"
	service := sdk.Service{UID: "uid", Ports: []sdk.ServicePort{{Port: 80, Protocol: "TCP"}}}
	targets := sdk.Targets{Nodes: []sdk.Node{{Name: "b"}, {Name: "a"}}}
	ensure := func(handle string) error {
		_, err := provider.EnsureLoadBalancer(t.Context(), call, sdk.EnsureLoadBalancer{Service: service, Handle: handle, Targets: &targets})
		return err
	}
	code := func(err error) sdk.Code {
		var failure *sdk.Failure
		if errors.As(err, &failure) {
			return failure.Code
		}
		return sdk.Code(0)
	}
	get := func() sdk.LoadBalancer {
		found, err := provider.GetLoadBalancer(t.Context(), call, sdk.GetLoadBalancer{Service: service, Targets: &targets, Notes: &sdk.Notes{}})
		if err != nil {
			t.Error(err)
		}
		return found
	}
	if err := ensure(""); code(err) != sdk.CodeInvalid {
		t.Error(err)
	}
	service.Ports[0].NodePort, service.LoadBalancerClass = &nodePort, &class
	if err := ensure(""); !errors.Is(err, sdk.ErrHandledElsewhere) || clouds.writes != 0 {
		t.Error(err)
	}
	service.LoadBalancerClass = nil
	if err := provider.UpdateLoadBalancer(t.Context(), call, sdk.UpdateLoadBalancer{Service: service}); code(err) != sdk.CodeNotFound {
		t.Error(err)
	}
	if err := ensure(""); err == nil {
		t.Error("it is ready without an address")
	}
	if err := ensure(""); err != nil {
		t.Error(err)
	}
	writes := clouds.writes
	if err := ensure("lb-1"); err != nil || clouds.writes != writes {
		t.Errorf("%v, %d writes", err, clouds.writes-writes)
	}
	if err := ensure("other"); code(err) != sdk.CodeConflict {
		t.Error(err)
	}
	slices.Reverse(targets.Nodes)
	if !get().InSync {
		t.Error("the other order of its targets is out of sync")
	}
	nodePort++
	if get().InSync {
		t.Error("another node port is in sync")
	}
	nodePort--
	targets.Nodes = targets.Nodes[:1]
	if err := provider.UpdateLoadBalancer(t.Context(), call, sdk.UpdateLoadBalancer{Service: service, Targets: targets}); err != nil || len(clouds.all["lb-1"].Targets) != 1 {
		t.Errorf("%v %v", err, clouds.all)
	}
	if found := get(); found.Ownership != sdk.Ours || len(found.Status.Ingress) != 1 || !found.InSync {
		t.Errorf("%v", found)
	}
	for range 2 {
		if err := provider.DeleteLoadBalancer(t.Context(), call, sdk.DeleteLoadBalancer{Service: service}); err != nil || len(clouds.all) != 1 {
			t.Errorf("%v %v", err, clouds.all)
		}
	}
}
