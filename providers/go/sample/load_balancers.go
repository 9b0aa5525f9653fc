package main

import (
	"context"
	"fmt"
	"time"

	"github.com/grpc-ccm/grpc-ccm/providers/go/sdk"
)

// sdk.LoadBalancers: the methods carry out the decisions of load_balancer_plan.go.

// GetLoadBalancer writes nothing (LB-6).
func (p *Provider) GetLoadBalancer(ctx context.Context, call *sdk.Call, request sdk.GetLoadBalancer) (sdk.LoadBalancer, error) {
	asker := &Asker{call, &request.Service, request.Handle}
	state, err := p.cloud.Read(ctx, 0)
	if err != nil {
		return sdk.LoadBalancer{}, err
	}
	lb := find(state, asker)
	if lb == nil {
		return sdk.LoadBalancer{Presence: sdk.LoadBalancerAbsent}, nil
	}
	found := sdk.LoadBalancer{Presence: sdk.LoadBalancerPresent, Ownership: asker.ownership(lb), Name: lb.Name}
	if found.Ownership == sdk.Ours {
		request.Notes.Handle(lb.Handle)
	}
	if lb.Remnant || lb.GoneAtMs != nil {
		found.Presence = sdk.LoadBalancerRemnants
		return found, nil
	}
	found.Status = statusOf(lb)
	// InSync says whether Ensure would write nothing and answer ready (LB-14). So it uses the function that Ensure uses.
	there, asked, err := wanted(state, asker, namesOf(request.Targets), false, &p.settings)
	found.InSync = err == nil && sdk.Same(*there, asked) && lb.ReadyAtMs <= state.NowMs() && !says(&request.Service, "handled-elsewhere")
	return found, nil
}

// EnsureLoadBalancer makes the load balancer, or changes it to match the Service.
func (p *Provider) EnsureLoadBalancer(ctx context.Context, call *sdk.Call, request sdk.EnsureLoadBalancer) (status sdk.LoadBalancerStatus, err error) {
	if says(&request.Service, "handled-elsewhere") {
		return status, sdk.ErrHandledElsewhere
	}
	asker := &Asker{call, &request.Service, request.Handle}
	handle, waits := "", error(nil)
	err = p.cloud.Write(ctx, func(state *State) (write *Write, err error) {
		found, lb, err := wanted(state, asker, namesOf(request.Targets), request.AdoptUnmarked, &p.settings)
		if err != nil {
			return nil, err
		}
		if lb.GoneAtMs != nil {
			handle, waits = lb.Handle, pending("the former load balancer is being deleted", *lb.GoneAtMs-state.NowMs())
			return nil, nil
		}
		verb, number := "change", state.LastNumber
		if found == nil {
			number++
			verb, lb.Handle, lb.ReadyAtMs = "create", fmt.Sprintf("lb-%d", number), state.NowMs()+p.settings.Provisioning.Milliseconds()
		}
		if found == nil || !sdk.Same(*found, lb) {
			line := fmt.Sprintf("%s load balancer %s of %s", verb, lb.Handle, nameOf(&request.Service))
			write = &Write{Line: line, LastNumber: number, Change: put(lb)}
		}
		if left := lb.ReadyAtMs - state.NowMs(); left > 0 {
			waits = pending("the load balancer is being made", left)
		}
		handle, status = lb.Handle, statusOf(&lb)
		return write, nil
	})
	if err != nil {
		return status, err
	}
	request.Notes.Handle(handle)
	return status, waits
}

// UpdateLoadBalancer sets the targets and, in the same write, the mark (LB-24, note c).
func (p *Provider) UpdateLoadBalancer(ctx context.Context, call *sdk.Call, request sdk.UpdateLoadBalancer) error {
	if says(&request.Service, "handled-elsewhere") {
		return sdk.ErrHandledElsewhere
	}
	asker := &Asker{call, &request.Service, request.Handle}
	return p.cloud.Write(ctx, func(state *State) (*Write, error) {
		lb, err := findOwn(state, asker)
		if err != nil {
			return nil, err
		}
		if lb == nil || lb.Remnant || lb.GoneAtMs != nil {
			return nil, sdk.NotFound("Service %s has no load balancer", nameOf(&request.Service))
		}
		request.Notes.Handle(lb.Handle)
		changed := *lb
		if changed.Targets = namesOf(&request.Targets); sdk.Same(*lb, changed) {
			return nil, nil
		}
		changed.Owner = asker.mark()
		return &Write{Line: "set the targets of load balancer " + lb.Handle, Change: put(changed)}, nil
	})
}

// DeleteLoadBalancer removes the load balancer of this Service. If there is none, it returns nil (LB-12).
func (p *Provider) DeleteLoadBalancer(ctx context.Context, call *sdk.Call, request sdk.DeleteLoadBalancer) error {
	if says(&request.Service, "handled-elsewhere") {
		return sdk.ErrHandledElsewhere
	}
	asker := &Asker{call, &request.Service, request.Handle}
	waits := error(nil)
	err := p.cloud.Write(ctx, func(state *State) (write *Write, err error) {
		lb, err := findToDelete(state, asker, request.AdoptUnmarked)
		if err != nil || lb == nil {
			return nil, err
		}
		if says(&request.Service, "retain") {
			request.Notes.Handle(lb.Handle)
			return nil, sdk.Retained("load balancer %s is kept: the annotation %sretain asks for it", lb.Handle, annotations)
		}
		goneAt := state.NowMs() + p.settings.Provisioning.Milliseconds()
		if lb.GoneAtMs != nil {
			goneAt = *lb.GoneAtMs
		} else {
			write = &Write{Line: "delete load balancer " + lb.Handle, Change: func(all map[string]LoadBalancer, _ map[string]Route) {
				if left := *lb; p.settings.Provisioning > 0 {
					left.GoneAtMs = &goneAt
					all[lb.Handle] = left
				} else {
					delete(all, lb.Handle)
				}
			}}
		}
		if left := goneAt - state.NowMs(); left > 0 {
			request.Notes.Handle(lb.Handle)
			waits = pending("the load balancer is being deleted", left)
			return write, nil
		}
		// Delete is not done while another load balancer of this Service remains. An unmarked one without the grant is CONFLICT (LB-26).
		if other, err := findToDelete(state.Without(lb.Handle), asker, request.AdoptUnmarked); err != nil {
			waits = err
		} else if other != nil {
			waits = pending("another load balancer of this Service is deleted next", 0)
		}
		return write, nil
	})
	if err != nil {
		return err
	}
	return waits
}

func pending(message string, leftMs int64) error {
	return sdk.Pending(max(time.Duration(leftMs)*time.Millisecond, time.Second), "%s", message)
}

// ListLoadBalancers returns all load balancers that are marked for this cluster.
func (p *Provider) ListLoadBalancers(ctx context.Context, call *sdk.Call) (list []sdk.ListedLoadBalancer, err error) {
	state, err := p.cloud.Read(ctx, 0)
	if err != nil {
		return nil, err
	}
	for _, lb := range state.Living() {
		if mark := lb.Owner; mark != nil && call.Owns(mark.OwnerID) {
			owner := sdk.ServiceRef{Namespace: mark.Namespace, Name: mark.Name, UID: mark.UID}
			list = append(list, sdk.ListedLoadBalancer{Name: lb.Name, Handle: lb.Handle, Owners: []sdk.ServiceRef{owner}})
		}
	}
	return list, nil
}
