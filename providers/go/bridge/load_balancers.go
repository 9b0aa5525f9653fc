package bridge

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	v1 "k8s.io/api/core/v1"
	cloudprovider "k8s.io/cloud-provider"

	"github.com/grpc-ccm/grpc-ccm/providers/go/contract"
	"github.com/grpc-ccm/grpc-ccm/providers/go/sdk"
)

// aboutService is one call about the load balancer of a Service.
type aboutService struct {
	b       *Bridge
	owner   *Owner
	service *v1.Service
	within  sdk.Budget
	nodes   []*v1.Node
}

// remarks are the events and annotations that an answer has beside its outcome.
type remarks struct {
	events      []*contract.Event
	annotations *contract.AnnotationChanges
}

// begin reads the fields that all four requests have.
func (b *Bridge) begin(ctx context.Context, cluster *contract.ClusterRef, view *contract.ServiceView, handle *string) (*aboutService, *contract.Failure) {
	owner, failure := b.admit(cluster)
	if failure != nil {
		return nil, failure
	}
	if view == nil {
		return nil, invalid("the request has no service")
	}
	if view.GetUid() == "" {
		return nil, invalid("the Service %s/%s of the request has no uid", view.GetNamespace(), view.GetName())
	}
	if view.GetName() == "" {
		return nil, invalid("the Service %s of the request has no name", view.GetUid())
	}
	service := serviceOf(view)
	if handle != nil && *handle != "" {
		if failure := owner.checkHandle(*handle, service); failure != nil {
			return nil, failure
		}
		owner.Handle = handle
	}
	return &aboutService{b: b, owner: owner, service: service, within: sdk.BudgetOf(ctx)}, nil
}

// takeTargets reads the targets, and waits at most 2 s until the cloud's informers have them.
func (a *aboutService) takeTargets(ctx context.Context, targets *contract.TargetSet) (set bool, failure *contract.Failure) {
	nodes, set, err := targetsOf(targets)
	if err != nil {
		return false, invalid("%v", err)
	}
	a.nodes = nodes
	a.b.settle(ctx, a.b.standIn.knowNodes(nodes))
	return set, nil
}

// change runs a method that writes. No other such method runs for the Service meanwhile, and the cloud may write the Service's annotations. change
// returns the cloud's answer, and the remarks.
func change[Answer any](ctx context.Context, a *aboutService, method string, work func(context.Context, cloudprovider.LoadBalancer, *v1.Service) (Answer, error)) (Answer, remarks, error) {
	var none Answer
	if failure := a.b.mayWrite(); failure != nil {
		return none, remarks{}, &refusal{failure}
	}
	what := "the load balancer of Service " + serviceKey(a.service) + " (" + string(a.service.UID) + ")"
	release, free := a.b.holds.Take("load balancer " + string(a.service.UID))
	if !free {
		return none, remarks{}, &refusal{busy(what)}
	}
	given, closed := a.open(ctx)
	answer, err := ask(withOwner(ctx, a.owner), a.b, a.b.balancers, method, a.within, func() { closed(); release() }, func(ctx context.Context) (Answer, error) {
		if err := a.mayTouch(ctx, method); err != nil {
			return none, err
		}
		return work(ctx, a.b.parts().balancer, given)
	})
	return answer, a.remarks(ctx), err
}

// open returns the Service for the cloud. Until closed runs, the cloud may write its annotations, in the object or with a client. closed keeps the
// changes for an answer, also if the method panicked or its call has ended.
func (a *aboutService) open(ctx context.Context) (given *v1.Service, closed func()) {
	given = a.service.DeepCopy()
	// Apply the changes of a method whose call had ended: the controller does not know them yet.
	apply(given.Annotations, a.b.standIn.takeWritten(a.service.UID))
	taken := a.b.standIn.openFor(given)
	// A deletion that has just ended may have removed the Service from the stand-in, so add it again.
	a.b.settle(ctx, []object{a.b.standIn.knowService(given)})
	return given, func() {
		written := annotationChanges(a.service.Annotations, given.Annotations)
		maps.Copy(written, taken())
		if a.b.options.Kubeconfig == "" {
			// With --kubeconfig the cloud has written its changes itself, as in Go's CCM.
			a.b.standIn.keepWritten(a.service.UID, written)
		}
	}
}

// remarks returns the events and annotations that the next answer about the Service has to have. After a cancelled call they wait for the next one, because
// nobody receives the answer.
func (a *aboutService) remarks(ctx context.Context) remarks {
	if ctx.Err() != nil {
		return remarks{}
	}
	return remarks{a.b.standIn.takeEvents(a.service.UID), changesOf(a.b.standIn.takeWritten(a.service.UID))}
}

// apply makes the changes to annotations.
func apply(annotations map[string]string, changes map[string]*string) {
	for key, value := range changes {
		if value == nil {
			delete(annotations, key)
		} else {
			annotations[key] = *value
		}
	}
}

func changesOf(written map[string]*string) *contract.AnnotationChanges {
	if len(written) == 0 {
		return nil
	}
	changes := &contract.AnnotationChanges{Set: map[string]string{}}
	for key, value := range written {
		if value == nil {
			changes.Remove = append(changes.Remove, readable(key))
		} else {
			changes.Set[readable(key)] = readable(*value)
		}
	}
	slices.Sort(changes.Remove)
	return changes
}

// refusal is a failure of the bridge itself, as an error.
type refusal struct{ failure *contract.Failure }

func (r *refusal) Error() string { return r.failure.GetMessage() }

// errNothingOurs ends a deletion that has nothing to do: the load balancer that the cloud finds belongs to another owner.
var errNothingOurs = errors.New("the load balancer belongs to another owner")

// mayTouch asks a cloud with OwnerChecker for the owner of the load balancer, and decides by the table of LB-24 whether the method may run.
func (a *aboutService) mayTouch(ctx context.Context, method string) error {
	if a.b.parts().owners == nil {
		return nil
	}
	ownership, err := a.b.parts().owners.LoadBalancerOwnership(ctx, a.owner.ClusterName, a.service.DeepCopy())
	if err != nil {
		return err
	}
	conflict := func(reason, format string) error {
		return &refusal{fail(contract.FailureCode_FAILURE_CODE_CONFLICT, reason, format, a.name(ctx))}
	}
	none := &refusal{fail(contract.FailureCode_FAILURE_CODE_NOT_FOUND, "NoLoadBalancer", "the cloud has no load balancer of Service %s", serviceKey(a.service))}
	named := a.owner.Handle != nil
	switch {
	case ownership == contract.Ownership_OWNERSHIP_FOREIGN && (named || method == "EnsureLoadBalancer"):
		return conflict("ForeignLoadBalancer", "the load balancer %s belongs to another owner")
	case ownership == contract.Ownership_OWNERSHIP_FOREIGN && method == "EnsureLoadBalancerDeleted":
		return errNothingOurs
	case ownership == contract.Ownership_OWNERSHIP_FOREIGN:
		return none
	case ownership != contract.Ownership_OWNERSHIP_UNMARKED || a.owner.AdoptUnmarked:
		return nil
	case method == "UpdateLoadBalancer" && !named:
		return none
	default:
		return conflict("UnmarkedLoadBalancer", "the load balancer %s has no mark; the provider adopts it only if the operator grants that")
	}
}

// name returns the cloud's name of the load balancer, cut as LB-33 says; empty if the method panics.
func (a *aboutService) name(ctx context.Context) string {
	name, err := guarded("GetLoadBalancerName", func() string {
		return a.b.parts().balancer.GetLoadBalancerName(withOwner(ctx, a.owner), a.owner.ClusterName, a.service.DeepCopy())
	})
	if err != nil {
		return ""
	}
	return cutTo(name, nameBytes)
}

// outcomeOf returns the outcome for the error of a method that writes.
func (b *Bridge) outcomeOf(err error, within sdk.Budget) (pending *contract.Pending, elsewhere bool, failure *contract.Failure) {
	var own *refusal
	switch {
	case err == nil:
		return nil, false, nil
	case errors.As(err, &own):
		return nil, false, own.failure
	case only(err, cloudprovider.ImplementedElsewhere):
		return nil, true, nil
	}
	if pending := pendingOf(err); pending != nil {
		return pending, false, nil
	}
	var ran *sdk.OverrunError
	// A deadline before the end of the budget is the cloud's own, such as its HTTP client's, and a failure.
	if errors.Is(err, context.DeadlineExceeded) && !errors.As(err, &ran) && !time.Now().Before(within.Stop) {
		// The method stopped when its context ended: the next call continues the work (CORE-6, CORE-9).
		return &contract.Pending{Message: shorten("the cloud needs more time than one call has: " + err.Error())}, false, nil
	}
	return nil, false, b.failure(err)
}

// GetLoadBalancer returns the load balancer that the cloud finds for the Service.
func (b *Bridge) GetLoadBalancer(ctx context.Context, request *contract.GetLoadBalancerRequest) (*contract.GetLoadBalancerResponse, error) {
	answer := &contract.GetLoadBalancerResponse{}
	failed := func(failure *contract.Failure) (*contract.GetLoadBalancerResponse, error) {
		answer.Outcome = &contract.GetLoadBalancerResponse_Failed{Failed: failure}
		return answer, nil
	}
	about, failure := b.begin(ctx, request.GetCluster(), request.GetService(), request.Handle)
	if failure != nil {
		return failed(failure)
	}
	targets, failure := about.takeTargets(ctx, request.GetTargets())
	if failure != nil {
		return failed(failure)
	}
	given, closed := about.open(ctx)
	found, err := ask(withOwner(ctx, about.owner), b, b.balancers, "GetLoadBalancer", about.within, closed, func(ctx context.Context) (*contract.LoadBalancer, error) {
		return about.look(ctx, given, targets)
	})
	said := about.remarks(ctx)
	answer.Events, answer.Annotations = said.events, said.annotations
	var own *refusal
	switch {
	case errors.As(err, &own):
		return failed(own.failure)
	case only(err, cloudprovider.ImplementedElsewhere):
		found = &contract.LoadBalancer{Presence: contract.LoadBalancerPresence_LOAD_BALANCER_PRESENCE_ABSENT}
	case err != nil:
		return failed(b.failure(err))
	}
	answer.Outcome = &contract.GetLoadBalancerResponse_Found{Found: found}
	if found.GetPresence() == contract.LoadBalancerPresence_LOAD_BALANCER_PRESENCE_PRESENT && found.GetOwnership() == contract.Ownership_OWNERSHIP_OURS {
		answer.Handle = about.owner.handle(about.service, found.GetLoadBalancerName())
	}
	return answer, nil
}

// look returns the load balancer that the cloud finds, its owner, and, if the cloud knows, whether it is in sync. An existing load balancer is
// PRESENT, also without an address in the status.
func (a *aboutService) look(ctx context.Context, given *v1.Service, targets bool) (*contract.LoadBalancer, error) {
	status, exists, err := a.b.parts().balancer.GetLoadBalancer(ctx, a.owner.ClusterName, given)
	if err != nil {
		return nil, err
	}
	found := &contract.LoadBalancer{Presence: contract.LoadBalancerPresence_LOAD_BALANCER_PRESENCE_ABSENT}
	if !exists {
		return found, nil
	}
	found.Presence = contract.LoadBalancerPresence_LOAD_BALANCER_PRESENCE_PRESENT
	found.LoadBalancerName = a.name(ctx)
	// Without OwnerChecker, a load balancer that the cloud finds for this Service counts as the Service's.
	found.Ownership = contract.Ownership_OWNERSHIP_OURS
	if a.b.parts().owners != nil {
		if found.Ownership, err = a.b.parts().owners.LoadBalancerOwnership(ctx, a.owner.ClusterName, a.service.DeepCopy()); err != nil {
			return nil, err
		}
	}
	view, err := statusView(status)
	if err != nil {
		return nil, &refusal{fault("%v", err)}
	}
	found.Status = view
	if a.b.parts().sync != nil && targets && found.Ownership == contract.Ownership_OWNERSHIP_OURS {
		same, err := a.b.parts().sync.LoadBalancerInSync(ctx, a.owner.ClusterName, a.service.DeepCopy(), a.nodes)
		if err != nil {
			return nil, err
		}
		// Without an address Ensure would answer pending, not ready (LB-14).
		same = same && len(view.GetIngress()) > 0
		found.InSync = &same
	}
	return found, nil
}

// EnsureLoadBalancer calls Go's method, which makes or changes the load balancer.
func (b *Bridge) EnsureLoadBalancer(ctx context.Context, request *contract.EnsureLoadBalancerRequest) (*contract.EnsureLoadBalancerResponse, error) {
	answer := &contract.EnsureLoadBalancerResponse{}
	failed := func(failure *contract.Failure) (*contract.EnsureLoadBalancerResponse, error) {
		answer.Outcome = &contract.EnsureLoadBalancerResponse_Failed{Failed: failure}
		return answer, nil
	}
	about, failure := b.begin(ctx, request.GetCluster(), request.GetService(), request.Handle)
	if failure != nil {
		return failed(failure)
	}
	about.owner.AdoptUnmarked = request.GetAdoptUnmarked()
	set, failure := about.takeTargets(ctx, request.GetTargets())
	if failure != nil {
		return failed(failure)
	}
	if err := checkService(about.service); err != nil {
		return failed(invalid("%v", err))
	}
	if class := about.service.Spec.LoadBalancerClass; class != nil && !slices.Contains(b.options.Classes, *class) {
		// Upstream's controller leaves every Service with a class alone, so Go's clouds need not check the class (LB-18).
		return failed(invalid("spec.loadBalancerClass %q of the Service %s is not one of the served classes, %q: name it with --load-balancer-class", *class, serviceKey(about.service), b.options.Classes))
	}
	if !set && !b.options.IgnoresNodes {
		// LB-10: Go's method gets all Nodes; without Nodes it would remove the targets.
		return failed(invalid("the request has no targets: Go's EnsureLoadBalancer cannot leave them alone"))
	}
	status, said, err := change(ctx, about, "EnsureLoadBalancer", func(ctx context.Context, balancer cloudprovider.LoadBalancer, service *v1.Service) (*v1.LoadBalancerStatus, error) {
		return balancer.EnsureLoadBalancer(ctx, about.owner.ClusterName, service, about.nodes)
	})
	answer.Events, answer.Annotations = said.events, said.annotations
	pending, elsewhere, failure := b.outcomeOf(err, about.within)
	if failure == nil && !elsewhere || len(said.annotations.GetSet()) > 0 {
		// The load balancer exists, is being made, or the cloud wrote annotations before it failed.
		answer.Handle = about.owner.handle(about.service, about.name(ctx))
	}
	switch {
	case failure != nil:
		return failed(failure)
	case elsewhere:
		answer.Outcome = &contract.EnsureLoadBalancerResponse_HandledElsewhere{HandledElsewhere: &contract.HandledElsewhere{}}
	case pending != nil:
		answer.Outcome = &contract.EnsureLoadBalancerResponse_Pending{Pending: pending}
	default:
		view, err := statusView(status)
		if err != nil {
			return failed(fault("%v", err))
		}
		switch {
		case status == nil:
			// Upstream too takes this for an error.
			return failed(fault("EnsureLoadBalancer answered neither a status nor an error for Service %s", serviceKey(about.service)))
		case len(view.GetIngress()) == 0:
			// Upstream accepts this. The controller would refuse `ready` without an address (LB-19). So the answer is `pending`, and the controller
			// calls Ensure again after 30 s, also for a cloud that never states an address.
			answer.Outcome = &contract.EnsureLoadBalancerResponse_Pending{Pending: &contract.Pending{
				RetryAfter: durationpb.New(addressAgain), Message: "the cloud has named no address of the load balancer yet",
			}}
			return answer, nil
		}
		answer.Outcome = &contract.EnsureLoadBalancerResponse_Ready{Ready: &contract.LoadBalancerReady{Status: view}}
	}
	return answer, nil
}

// addressAgain is the retry_after of the answer to an Ensure without an address.
const addressAgain = 30 * time.Second

// UpdateLoadBalancer sets the targets. Go's method has no error for a missing load balancer. So after an error the bridge calls GetLoadBalancer, unless
// it is ImplementedElsewhere or a retry error, or shows that the cloud answers no calls. With Options.GetBeforeUpdate it calls GetLoadBalancer before the
// update instead (LB-11).
func (b *Bridge) UpdateLoadBalancer(ctx context.Context, request *contract.UpdateLoadBalancerRequest) (*contract.UpdateLoadBalancerResponse, error) {
	answer := &contract.UpdateLoadBalancerResponse{}
	failed := func(failure *contract.Failure) (*contract.UpdateLoadBalancerResponse, error) {
		answer.Outcome = &contract.UpdateLoadBalancerResponse_Failed{Failed: failure}
		return answer, nil
	}
	about, failure := b.begin(ctx, request.GetCluster(), request.GetService(), request.Handle)
	if failure != nil {
		return failed(failure)
	}
	set, failure := about.takeTargets(ctx, request.GetTargets())
	switch {
	case failure != nil:
		return failed(failure)
	case !set:
		return failed(invalid("the request has no targets"))
	}
	_, said, err := change(ctx, about, "UpdateLoadBalancer", func(ctx context.Context, balancer cloudprovider.LoadBalancer, service *v1.Service) (struct{}, error) {
		none := func() error {
			_, exists, err := balancer.GetLoadBalancer(ctx, about.owner.ClusterName, service)
			if err == nil && !exists {
				return &refusal{fail(contract.FailureCode_FAILURE_CODE_NOT_FOUND, "NoLoadBalancer", "the cloud has no load balancer for Service %s", serviceKey(service))}
			}
			return err
		}
		if b.options.GetBeforeUpdate {
			if err := errors.Join(none(), ctx.Err()); err != nil {
				return struct{}{}, err
			}
			return struct{}{}, balancer.UpdateLoadBalancer(ctx, about.owner.ClusterName, service, about.nodes)
		}
		err := balancer.UpdateLoadBalancer(ctx, about.owner.ClusterName, service, about.nodes)
		if err != nil && !errors.Is(err, cloudprovider.ImplementedElsewhere) && b.answers(ctx, err) {
			// As upstream, the error counts only if the load balancer still exists.
			var own *refusal
			if missing := none(); errors.As(missing, &own) {
				return struct{}{}, missing
			}
		}
		return struct{}{}, err
	})
	answer.Events, answer.Annotations = said.events, said.annotations
	switch pending, elsewhere, failure := b.outcomeOf(err, about.within); {
	case failure != nil:
		return failed(failure)
	case elsewhere:
		answer.Outcome = &contract.UpdateLoadBalancerResponse_HandledElsewhere{HandledElsewhere: &contract.HandledElsewhere{}}
	case pending != nil:
		answer.Outcome = &contract.UpdateLoadBalancerResponse_Pending{Pending: pending}
	default:
		answer.Outcome = &contract.UpdateLoadBalancerResponse_Done{Done: &contract.Done{}}
	}
	return answer, nil
}

// DeleteLoadBalancer removes the Service's cloud objects. It does not first ask GetLoadBalancer whether a load balancer exists, because parts may remain
// without one.
func (b *Bridge) DeleteLoadBalancer(ctx context.Context, request *contract.DeleteLoadBalancerRequest) (*contract.DeleteLoadBalancerResponse, error) {
	answer := &contract.DeleteLoadBalancerResponse{}
	failed := func(failure *contract.Failure) (*contract.DeleteLoadBalancerResponse, error) {
		answer.Outcome = &contract.DeleteLoadBalancerResponse_Failed{Failed: failure}
		return answer, nil
	}
	about, failure := b.begin(ctx, request.GetCluster(), request.GetService(), request.Handle)
	if failure != nil {
		return failed(failure)
	}
	about.owner.AdoptUnmarked = request.GetAdoptUnmarked()
	_, said, err := change(ctx, about, "EnsureLoadBalancerDeleted", func(ctx context.Context, balancer cloudprovider.LoadBalancer, service *v1.Service) (struct{}, error) {
		return struct{}{}, balancer.EnsureLoadBalancerDeleted(ctx, about.owner.ClusterName, service)
	})
	answer.Events, answer.Annotations = said.events, said.annotations
	if errors.Is(err, errNothingOurs) {
		err = nil
	}
	forget := func() {
		if ctx.Err() == nil { // The remarks of a cancelled call wait for the next one.
			b.standIn.forgetService(about.service)
		}
	}
	switch pending, elsewhere, failure := b.outcomeOf(err, about.within); {
	case failure != nil:
		return failed(failure)
	case elsewhere:
		forget()
		answer.Outcome = &contract.DeleteLoadBalancerResponse_HandledElsewhere{HandledElsewhere: &contract.HandledElsewhere{}}
	case pending != nil:
		answer.Outcome = &contract.DeleteLoadBalancerResponse_Pending{Pending: pending}
	default:
		forget()
		answer.Outcome = &contract.DeleteLoadBalancerResponse_Done{Done: &contract.Done{}}
	}
	return answer, nil
}

// ListLoadBalancers lists the load balancers of a cloud with a LoadBalancerLister.
func (b *Bridge) ListLoadBalancers(request *contract.ListLoadBalancersRequest, stream contract.LoadBalancerService_ListLoadBalancersServer) error {
	failed := func(failure *contract.Failure) error {
		return stream.Send(&contract.ListLoadBalancersResponse{Part: &contract.ListLoadBalancersResponse_Failed{Failed: failure}})
	}
	owner, failure := b.admit(request.GetCluster())
	if failure != nil {
		return failed(failure)
	}
	if b.parts().balancers == nil {
		return failed(notOffered("ListLoadBalancers"))
	}
	ctx := withOwner(stream.Context(), owner)
	listed, err := ask(ctx, b, b.balancers, "ListLoadBalancers", sdk.BudgetOf(ctx), nil, func(ctx context.Context) ([]*contract.ListedLoadBalancer, error) {
		return b.parts().balancers.ListLoadBalancers(ctx, owner.ClusterName)
	})
	if err != nil {
		return failed(b.failure(err))
	}
	for number, one := range listed {
		if one == nil {
			return failed(fault("ListLoadBalancers answered nil as its item %d", number))
		}
		view, err := listedView(one)
		if err != nil {
			return failed(fault("ListLoadBalancers answered %.64q as its item %d: %v", one.LoadBalancerName, number, err))
		}
		if err := stream.Send(&contract.ListLoadBalancersResponse{Part: &contract.ListLoadBalancersResponse_LoadBalancer{LoadBalancer: view}}); err != nil {
			return err
		}
	}
	return stream.Send(&contract.ListLoadBalancersResponse{Part: &contract.ListLoadBalancersResponse_End{End: &contract.ListEnd{Total: uint64(len(listed))}}})
}

// listedView returns a listed load balancer with its name cut (LB-33). It returns an error if the contract does not accept another of its texts.
func listedView(one *contract.ListedLoadBalancer) (*contract.ListedLoadBalancer, error) {
	errs := []error{fits("the handle", one.GetHandle(), idBytes)}
	for _, owner := range one.Owners {
		errs = append(errs, fits("the namespace", owner.GetNamespace(), nameBytes), fits("the Service's name", owner.GetName(), nameBytes), fits("the Service's UID", owner.GetUid(), nameBytes))
	}
	return &contract.ListedLoadBalancer{LoadBalancerName: cutTo(one.LoadBalancerName, nameBytes), Handle: one.Handle, Owners: one.Owners}, errors.Join(errs...)
}
