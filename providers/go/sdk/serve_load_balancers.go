package sdk

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/grpc-ccm/grpc-ccm/providers/go/contract"
)

// outcome is the result of a call about one load balancer. Each of the four responses takes the fields that it has.
type outcome struct {
	handle       *string
	events       []*contract.Event
	annotations  *contract.AnnotationChanges
	targetErrors []*contract.TargetError

	failed    *contract.Failure
	pending   *contract.Pending
	retained  *contract.Retained
	elsewhere *contract.HandledElsewhere
}

// aboutOne runs a call about the load balancer of one Service. If it mutates, only one such call runs for a Service at a time (CORE-7), and the answer
// is pending when its time is over (CORE-9).
func aboutOne[T, R any](ctx context.Context, s *session, rpc string, cluster *contract.ClusterRef, view *contract.ServiceView, mutates bool, work func(context.Context, *Call, Service, *Notes) (T, error), to func(T) (R, error)) (answer R, said outcome, err error) {
	item, notes := view.GetNamespace()+"/"+view.GetName(), &Notes{}
	call, err := s.admit(rpc, cluster)
	release, late := func() {}, false
	var service Service
	if err == nil {
		service, err = serviceFrom(view)
	}
	if err == nil && mutates {
		release, err = s.hold("the load balancer of the Service " + service.UID)
	}
	if err == nil {
		budget := BudgetOf(ctx)
		var value T
		value, err = ask(ctx, s, rpc, item, budget, release, func(ctx context.Context) (T, error) { return work(ctx, call, service, notes) })
		if err == nil {
			answer, err = to(value)
		}
		if err != nil && ctx.Err() != nil {
			return answer, said, status.FromContextError(ctx.Err()).Err()
		}
		// A time limit of the vendor's own, which ends before the budget, is a failure.
		late = errors.Is(err, context.DeadlineExceeded) && !time.Now().Before(budget.Stop)
	}
	if fault := s.say(ctx, &said, rpc, item, notes); err == nil {
		err = fault
	} else if fault != nil {
		ofCall(ctx, s.log).Error("leaving out what breaks the contract beside another outcome", "rpc", rpc, "item", item, "error", fault)
	}
	var pending *PendingError
	var retained *RetainedError
	isPending := func(err error) bool { return errors.As(err, &pending) && pending != nil }
	isRetained := func(err error) bool { return errors.As(err, &retained) && retained != nil }
	isElsewhere := func(err error) bool { return errors.Is(err, ErrHandledElsewhere) }
	switch {
	case err == nil:
	case mutates && only(err, isPending):
		said.pending = &contract.Pending{Message: cut(pending.Message), RetryAfter: durationTo(pending.RetryAfter)}
	case mutates && late:
		said.pending = &contract.Pending{Message: "the cloud has not answered yet", RetryAfter: durationTo(5 * time.Second)}
	case rpc == "DeleteLoadBalancer" && only(err, isRetained):
		said.retained = &contract.Retained{Reason: cut(retained.Reason)}
	case mutates && only(err, isElsewhere):
		said.elsewhere = &contract.HandledElsewhere{}
	default:
		said.failed = s.failed(ctx, rpc, item, err)
	}
	return answer, said, nil
}

// say sets the fields beside the outcome. It leaves out values that break the contract, and returns an error for them.
func (s *session) say(ctx context.Context, said *outcome, rpc, item string, notes *Notes) error {
	notes.mutex.Lock()
	defer notes.mutex.Unlock()
	// These are copies, because a method that ignores its context may still write to the Notes.
	said.events = slices.Clone(notes.events)
	fault := textsOf("the annotation", notes.set)
	for _, key := range notes.remove {
		fault = errors.Join(fault, atMost("the annotation", key, idBytes))
	}
	if fault == nil && len(notes.set)+len(notes.remove) > 0 {
		said.annotations = &contract.AnnotationChanges{Set: maps.Clone(notes.set), Remove: slices.Clone(notes.remove)}
	}
	for _, node := range slices.Sorted(maps.Keys(notes.targetErrors)) {
		if err := fits("a target's Node", node, nameBytes); err != nil {
			fault = errors.Join(fault, err)
			continue
		}
		said.targetErrors = append(said.targetErrors, &contract.TargetError{NodeName: node, Failure: s.failed(ctx, rpc, item+" target "+node, notes.targetErrors[node])})
	}
	said.targetErrors = bounded(said.targetErrors)
	if notes.handle != nil {
		err := fits("the handle", *notes.handle, idBytes)
		if err == nil {
			said.handle = optional(*notes.handle)
		}
		fault = errors.Join(fault, err)
	}
	return fault
}

// bounded cuts the messages if the target errors are too large for an answer. It leaves out the last ones if that is not enough. The controller calls
// again because of the others, and so learns of them later.
func bounded(all []*contract.TargetError) []*contract.TargetError {
	const tagAndLength = 4
	bytes, messages := 0, 0
	for _, one := range all {
		bytes += proto.Size(one) + tagAndLength
		messages += len(one.Failure.Message)
	}
	if bytes <= mostTargetErrors {
		return all
	}
	each := max(0, mostTargetErrors-(bytes-messages)) / len(all)
	bytes = 0
	for i, one := range all {
		one.Failure.Message = cutTo(one.Failure.Message, each)
		if bytes += proto.Size(one) + tagAndLength; bytes > mostTargetErrors {
			return all[:i]
		}
	}
	return all
}

func (s *session) GetLoadBalancer(ctx context.Context, request *contract.GetLoadBalancerRequest) (*contract.GetLoadBalancerResponse, error) {
	work := func(ctx context.Context, call *Call, service Service, notes *Notes) (LoadBalancer, error) {
		targets, err := targetsFrom(request.Targets)
		if err != nil {
			return LoadBalancer{}, err
		}
		return s.offers.loadBalancers.GetLoadBalancer(ctx, call, GetLoadBalancer{service, request.GetHandle(), targets, notes})
	}
	found, said, err := aboutOne(ctx, s, "GetLoadBalancer", request.Cluster, request.Service, false, work, s.loadBalancerTo)
	if err != nil {
		return nil, err
	}
	response := &contract.GetLoadBalancerResponse{Handle: said.handle, Events: said.events, Annotations: said.annotations, TargetErrors: said.targetErrors}
	if said.failed != nil {
		response.Outcome = &contract.GetLoadBalancerResponse_Failed{Failed: said.failed}
	} else {
		response.Outcome = &contract.GetLoadBalancerResponse_Found{Found: found}
	}
	return response, nil
}

func (s *session) EnsureLoadBalancer(ctx context.Context, request *contract.EnsureLoadBalancerRequest) (*contract.EnsureLoadBalancerResponse, error) {
	work := func(ctx context.Context, call *Call, service Service, notes *Notes) (LoadBalancerStatus, error) {
		targets, err := targetsFrom(request.Targets)
		if err != nil {
			return LoadBalancerStatus{}, err
		}
		return s.offers.loadBalancers.EnsureLoadBalancer(ctx, call, EnsureLoadBalancer{service, request.GetHandle(), targets, request.AdoptUnmarked, notes})
	}
	ready := func(status LoadBalancerStatus) (*contract.LoadBalancerStatus, error) {
		if len(status.Ingress) == 0 {
			return nil, contractBroken("the load balancer is ready and has no address (LB-19); right would be sdk.Pending until it has one")
		}
		return statusTo(status)
	}
	status, said, err := aboutOne(ctx, s, "EnsureLoadBalancer", request.Cluster, request.Service, true, work, ready)
	if err != nil {
		return nil, err
	}
	response := &contract.EnsureLoadBalancerResponse{Handle: said.handle, Events: said.events, Annotations: said.annotations, TargetErrors: said.targetErrors}
	switch {
	case said.failed != nil:
		response.Outcome = &contract.EnsureLoadBalancerResponse_Failed{Failed: said.failed}
	case said.pending != nil:
		response.Outcome = &contract.EnsureLoadBalancerResponse_Pending{Pending: said.pending}
	case said.elsewhere != nil:
		response.Outcome = &contract.EnsureLoadBalancerResponse_HandledElsewhere{HandledElsewhere: said.elsewhere}
	default:
		response.Outcome = &contract.EnsureLoadBalancerResponse_Ready{Ready: &contract.LoadBalancerReady{Status: status}}
	}
	return response, nil
}

func (s *session) UpdateLoadBalancer(ctx context.Context, request *contract.UpdateLoadBalancerRequest) (*contract.UpdateLoadBalancerResponse, error) {
	work := func(ctx context.Context, call *Call, service Service, notes *Notes) (struct{}, error) {
		targets, err := targetsFrom(request.Targets)
		if err == nil && targets == nil {
			err = Invalid("the request has no targets; an update is about nothing else (LB-15)")
		}
		if err != nil {
			return struct{}{}, err
		}
		return struct{}{}, s.offers.loadBalancers.UpdateLoadBalancer(ctx, call, UpdateLoadBalancer{service, request.GetHandle(), *targets, notes})
	}
	_, said, err := aboutOne(ctx, s, "UpdateLoadBalancer", request.Cluster, request.Service, true, work, done)
	if err != nil {
		return nil, err
	}
	response := &contract.UpdateLoadBalancerResponse{Handle: said.handle, Events: said.events, Annotations: said.annotations, TargetErrors: said.targetErrors}
	switch {
	case said.failed != nil:
		response.Outcome = &contract.UpdateLoadBalancerResponse_Failed{Failed: said.failed}
	case said.pending != nil:
		response.Outcome = &contract.UpdateLoadBalancerResponse_Pending{Pending: said.pending}
	case said.elsewhere != nil:
		response.Outcome = &contract.UpdateLoadBalancerResponse_HandledElsewhere{HandledElsewhere: said.elsewhere}
	default:
		response.Outcome = &contract.UpdateLoadBalancerResponse_Done{Done: &contract.Done{}}
	}
	return response, nil
}

func done(struct{}) (struct{}, error) { return struct{}{}, nil }

func (s *session) DeleteLoadBalancer(ctx context.Context, request *contract.DeleteLoadBalancerRequest) (*contract.DeleteLoadBalancerResponse, error) {
	work := func(ctx context.Context, call *Call, service Service, notes *Notes) (struct{}, error) {
		return struct{}{}, s.offers.loadBalancers.DeleteLoadBalancer(ctx, call, DeleteLoadBalancer{service, request.GetHandle(), request.AdoptUnmarked, notes})
	}
	_, said, err := aboutOne(ctx, s, "DeleteLoadBalancer", request.Cluster, request.Service, true, work, done)
	if err != nil {
		return nil, err
	}
	response := &contract.DeleteLoadBalancerResponse{Handle: said.handle, Events: said.events, Annotations: said.annotations, TargetErrors: said.targetErrors}
	switch {
	case said.failed != nil:
		response.Outcome = &contract.DeleteLoadBalancerResponse_Failed{Failed: said.failed}
	case said.pending != nil:
		response.Outcome = &contract.DeleteLoadBalancerResponse_Pending{Pending: said.pending}
	case said.retained != nil:
		response.Outcome = &contract.DeleteLoadBalancerResponse_Retained{Retained: said.retained}
	case said.elsewhere != nil:
		response.Outcome = &contract.DeleteLoadBalancerResponse_HandledElsewhere{HandledElsewhere: said.elsewhere}
	default:
		response.Outcome = &contract.DeleteLoadBalancerResponse_Done{Done: &contract.Done{}}
	}
	return response, nil
}

// ListLoadBalancers sends all load balancers that are marked for this cluster, one in each part.
func (s *session) ListLoadBalancers(request *contract.ListLoadBalancersRequest, stream grpc.ServerStreamingServer[contract.ListLoadBalancersResponse]) error {
	type response = contract.ListLoadBalancersResponse
	failed := func(failure *contract.Failure) []*response {
		return []*response{{Part: &contract.ListLoadBalancersResponse_Failed{Failed: failure}}}
	}
	list := func(ctx context.Context, call *Call) ([]ListedLoadBalancer, error) {
		if s.offers.balancerLister == nil {
			return nil, notOffered("ListLoadBalancers")
		}
		return s.offers.balancerLister.ListLoadBalancers(ctx, call)
	}
	parts, err := answer(stream.Context(), s, "ListLoadBalancers", "", request.Cluster, failed, list, func(found []ListedLoadBalancer) (parts []*response, err error) {
		for _, lb := range found {
			if err := atMost("the handle", lb.Handle, idBytes); err != nil {
				return nil, err
			}
			listed := &contract.ListedLoadBalancer{LoadBalancerName: cutTo(lb.Name, nameBytes), Handle: optional(lb.Handle)}
			for _, owner := range lb.Owners {
				if err := errors.Join(atMost("the namespace", owner.Namespace, nameBytes), atMost("the Service's name", owner.Name, nameBytes), atMost("the Service's UID", owner.UID, nameBytes)); err != nil {
					return nil, err
				}
				listed.Owners = append(listed.Owners, &contract.ServiceRef{Namespace: owner.Namespace, Name: owner.Name, Uid: owner.UID})
			}
			parts = append(parts, &response{Part: &contract.ListLoadBalancersResponse_LoadBalancer{LoadBalancer: listed}})
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
