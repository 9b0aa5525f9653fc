package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc"

	"github.com/grpc-ccm/grpc-ccm/providers/go/contract"
)

// LoadBalancerService: the RPCs carry out what load_balancer_plan.go decides.

// GetLoadBalancer writes nothing (LB-6).
func (p *Provider) GetLoadBalancer(ctx context.Context, request *contract.GetLoadBalancerRequest) (*contract.GetLoadBalancerResponse, error) {
	failed := func(failure *contract.Failure) *contract.GetLoadBalancerResponse {
		return &contract.GetLoadBalancerResponse{Outcome: &contract.GetLoadBalancerResponse_Failed{Failed: failure}}
	}
	return answer(ctx, p, "GetLoadBalancer", request.Cluster, failed, func(owner *Owner) (*contract.GetLoadBalancerResponse, error) {
		asker, err := askerOf(owner, request.Service, request.GetHandle())
		if err != nil {
			return nil, err
		}
		targets, err := targetsOf(request.Targets)
		if err != nil {
			return nil, err
		}
		state, err := p.cloud.Read(ctx, 0)
		if err != nil {
			return nil, err
		}
		found := &contract.LoadBalancer{Presence: contract.LoadBalancerPresence_LOAD_BALANCER_PRESENCE_ABSENT}
		response := &contract.GetLoadBalancerResponse{Outcome: &contract.GetLoadBalancerResponse_Found{Found: found}}
		lb := find(state, asker)
		if lb == nil {
			return response, nil
		}
		found.Ownership, found.LoadBalancerName = asker.ownership(lb), lb.Name
		if found.Ownership == ours {
			response.Handle = &lb.Handle
		}
		if lb.Remnant || lb.GoneAtMs != nil {
			found.Presence = contract.LoadBalancerPresence_LOAD_BALANCER_PRESENCE_REMNANTS
			return response, nil
		}
		found.Presence = contract.LoadBalancerPresence_LOAD_BALANCER_PRESENCE_PRESENT
		found.Status = statusOf(lb)
		// Whether Ensure would write nothing and answer ready (LB-14): the same decision, asked beforehand.
		there, asked, err := wanted(state, asker, targets, false, &p.settings)
		inSync := err == nil && equal(there, &asked) && lb.ReadyAtMs <= state.NowMs() && !says(request.Service, "handled-elsewhere")
		found.InSync = &inSync
		return response, nil
	})
}

// Runs a mutating call: one at a time for each Service, and late when three quarters of its time are over (CORE-9): then nothing is written any more, and the next call goes on
// from what is there.
func (p *Provider) mutate(ctx context.Context, asker *Asker, work func(ctx context.Context) error) (late bool, err error) {
	release, err := p.hold(asker.Owner, "the load balancer of Service "+asker.service.Uid)
	if err != nil {
		return false, err
	}
	defer release()
	inTime := ctx
	if deadline, ok := ctx.Deadline(); ok {
		var stop context.CancelFunc
		inTime, stop = context.WithTimeout(ctx, time.Until(deadline)*3/4)
		defer stop()
	}
	err = work(inTime)
	late = errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil
	if late {
		err = nil
	}
	return late, err
}

const notYet = "the cloud has not answered yet"

// EnsureLoadBalancer makes the load balancer, or makes it as the Service asks.
func (p *Provider) EnsureLoadBalancer(ctx context.Context, request *contract.EnsureLoadBalancerRequest) (*contract.EnsureLoadBalancerResponse, error) {
	failed := func(failure *contract.Failure) *contract.EnsureLoadBalancerResponse {
		return &contract.EnsureLoadBalancerResponse{Outcome: &contract.EnsureLoadBalancerResponse_Failed{Failed: failure}}
	}
	return answer(ctx, p, "EnsureLoadBalancer", request.Cluster, failed, func(owner *Owner) (*contract.EnsureLoadBalancerResponse, error) {
		asker, err := askerOf(owner, request.Service, request.GetHandle())
		if err != nil {
			return nil, err
		}
		if says(request.Service, "handled-elsewhere") {
			return &contract.EnsureLoadBalancerResponse{Outcome: &contract.EnsureLoadBalancerResponse_HandledElsewhere{}}, nil
		}
		targets, err := targetsOf(request.Targets)
		if err != nil {
			return nil, err
		}
		response := &contract.EnsureLoadBalancerResponse{}
		waits := func(message string, leftMs int64) {
			response.Outcome = &contract.EnsureLoadBalancerResponse_Pending{Pending: pending(message, leftMs)}
		}
		late, err := p.mutate(ctx, asker, func(ctx context.Context) error {
			return p.cloud.Write(ctx, func(state *State) (write *Write, err error) {
				found, lb, err := wanted(state, asker, targets, request.AdoptUnmarked, &p.settings)
				if err != nil {
					return nil, err
				}
				response.Handle = &lb.Handle
				if lb.GoneAtMs != nil {
					waits("the former load balancer is being deleted", *lb.GoneAtMs-state.NowMs())
					return nil, nil
				}
				verb, number := "change", state.LastNumber
				if found == nil {
					number++
					verb, lb.Handle, lb.ReadyAtMs = "create", fmt.Sprintf("lb-%d", number), state.NowMs()+p.settings.Provisioning.Milliseconds()
				}
				if found == nil || !equal(found, &lb) {
					line := fmt.Sprintf("%s load balancer %s of %s", verb, lb.Handle, nameOf(request.Service))
					write = &Write{Line: line, LastNumber: number, Change: put(lb)}
				}
				if left := lb.ReadyAtMs - state.NowMs(); left > 0 {
					waits("the load balancer is being made", left)
				} else {
					ready := &contract.LoadBalancerReady{Status: statusOf(&lb)}
					response.Outcome = &contract.EnsureLoadBalancerResponse_Ready{Ready: ready}
				}
				return write, nil
			})
		})
		if late {
			response = &contract.EnsureLoadBalancerResponse{}
			waits(notYet, 5_000)
		}
		return response, err
	})
}

// UpdateLoadBalancer sets the targets and nothing else.
func (p *Provider) UpdateLoadBalancer(ctx context.Context, request *contract.UpdateLoadBalancerRequest) (*contract.UpdateLoadBalancerResponse, error) {
	failed := func(failure *contract.Failure) *contract.UpdateLoadBalancerResponse {
		return &contract.UpdateLoadBalancerResponse{Outcome: &contract.UpdateLoadBalancerResponse_Failed{Failed: failure}}
	}
	return answer(ctx, p, "UpdateLoadBalancer", request.Cluster, failed, func(owner *Owner) (*contract.UpdateLoadBalancerResponse, error) {
		asker, err := askerOf(owner, request.Service, request.GetHandle())
		if err != nil {
			return nil, err
		}
		if says(request.Service, "handled-elsewhere") {
			return &contract.UpdateLoadBalancerResponse{Outcome: &contract.UpdateLoadBalancerResponse_HandledElsewhere{}}, nil
		}
		targets, err := targetsOf(request.Targets)
		if err == nil && targets == nil {
			err = invalid("the request has no targets; an update is about nothing else")
		}
		if err != nil {
			return nil, err
		}
		response := &contract.UpdateLoadBalancerResponse{Outcome: &contract.UpdateLoadBalancerResponse_Done{Done: &contract.Done{}}}
		late, err := p.mutate(ctx, asker, func(ctx context.Context) error {
			return p.cloud.Write(ctx, func(state *State) (*Write, error) {
				lb, err := findOwn(state, asker)
				if err != nil {
					return nil, err
				}
				if lb == nil || lb.Remnant || lb.GoneAtMs != nil {
					return nil, failf(contract.FailureCode_FAILURE_CODE_NOT_FOUND, "Service %s has no load balancer", nameOf(request.Service))
				}
				response.Handle = &lb.Handle
				if slices.Equal(lb.Targets, targets) {
					return nil, nil
				}
				changed := *lb
				changed.Targets, changed.Owner = targets, asker.mark()
				line := fmt.Sprintf("set the %d targets of load balancer %s", len(targets), lb.Handle)
				return &Write{Line: line, Change: put(changed)}, nil
			})
		})
		if late {
			response.Outcome = &contract.UpdateLoadBalancerResponse_Pending{Pending: pending(notYet, 5_000)}
		}
		return response, err
	})
}

// DeleteLoadBalancer removes what was made for this Service, and has looked for it (LB-12).
func (p *Provider) DeleteLoadBalancer(ctx context.Context, request *contract.DeleteLoadBalancerRequest) (*contract.DeleteLoadBalancerResponse, error) {
	failed := func(failure *contract.Failure) *contract.DeleteLoadBalancerResponse {
		return &contract.DeleteLoadBalancerResponse{Outcome: &contract.DeleteLoadBalancerResponse_Failed{Failed: failure}}
	}
	return answer(ctx, p, "DeleteLoadBalancer", request.Cluster, failed, func(owner *Owner) (*contract.DeleteLoadBalancerResponse, error) {
		asker, err := askerOf(owner, request.Service, request.GetHandle())
		if err != nil {
			return nil, err
		}
		if says(request.Service, "handled-elsewhere") {
			return &contract.DeleteLoadBalancerResponse{Outcome: &contract.DeleteLoadBalancerResponse_HandledElsewhere{}}, nil
		}
		response := &contract.DeleteLoadBalancerResponse{Outcome: &contract.DeleteLoadBalancerResponse_Done{Done: &contract.Done{}}}
		waits := func(message string, leftMs int64) {
			response.Outcome = &contract.DeleteLoadBalancerResponse_Pending{Pending: pending(message, leftMs)}
		}
		late, err := p.mutate(ctx, asker, func(ctx context.Context) error {
			return p.cloud.Write(ctx, func(state *State) (write *Write, err error) {
				lb, err := findOwn(state, asker)
				if err != nil || lb == nil {
					return nil, err
				}
				if says(request.Service, "retain") {
					reason := fmt.Sprintf("load balancer %s is kept: the annotation %sretain asks for it", lb.Handle, annotations)
					response.Handle = &lb.Handle
					response.Outcome = &contract.DeleteLoadBalancerResponse_Retained{Retained: &contract.Retained{Reason: reason}}
					return nil, nil
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
					response.Handle = &lb.Handle
					waits("the load balancer is being deleted", left)
				}
				return write, nil
			})
		})
		if late {
			waits(notYet, 5_000)
		}
		return response, err
	})
}

// ListLoadBalancers gives all that are marked for this cluster.
func (p *Provider) ListLoadBalancers(request *contract.ListLoadBalancersRequest, stream grpc.ServerStreamingServer[contract.ListLoadBalancersResponse]) error {
	type response = contract.ListLoadBalancersResponse
	failed := func(failure *contract.Failure) []*response {
		return []*response{{Part: &contract.ListLoadBalancersResponse_Failed{Failed: failure}}}
	}
	parts, err := answer(stream.Context(), p, "ListLoadBalancers", request.Cluster, failed, func(owner *Owner) (parts []*response, err error) {
		state, err := p.cloud.Read(stream.Context(), 0)
		if err != nil {
			return nil, err
		}
		for _, lb := range state.Living() {
			if mark := lb.Owner; mark != nil && owner.Owns(mark.OwnerID) {
				owners := []*contract.ServiceRef{{Namespace: mark.Namespace, Name: mark.Name, Uid: mark.UID}}
				listed := &contract.ListedLoadBalancer{LoadBalancerName: lb.Name, Handle: &lb.Handle, Owners: owners}
				parts = append(parts, &response{Part: &contract.ListLoadBalancersResponse_LoadBalancer{LoadBalancer: listed}})
			}
		}
		end := &contract.ListEnd{Total: uint64(len(parts))}
		return append(parts, &response{Part: &contract.ListLoadBalancersResponse_End{End: end}}), nil
	})
	for _, part := range parts {
		if err == nil {
			err = stream.Send(part)
		}
	}
	return err
}
