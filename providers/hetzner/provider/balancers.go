package provider

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/grpc-ccm/grpc-ccm/providers/go/sdk"
	"github.com/grpc-ccm/grpc-ccm/providers/hetzner/plan"
)

// sdk.LoadBalancers: the methods carry out the decisions of package plan.

const (
	againWhileBusy = 3 * time.Second
	// After this time the controller tries a locked target again.
	againWhileLocked = 30 * time.Second
	// After this time the controller tries an address again that the provider took back, because
	// the load balancer stayed locked or the API failed.
	againAfterRestore = 5 * time.Minute
	// After this time the provider tries a change of type again that failed.
	againAfterType = 10 * time.Minute
	// While a load balancer is younger than this, the provider checks whether Hetzner still makes it.
	young = 5 * time.Minute
)

// request has the common arguments of the four calls about a load balancer.
type request struct {
	p       *Provider
	call    *sdk.Call
	service *sdk.Service
	handle  string
	notes   *sdk.Notes
	all     []*hcloud.LoadBalancer
	// The number of Nodes beyond the load balancer's limit of targets.
	left int
	// The load balancer before the call detached it from its network, until it is attached again.
	former    *hcloud.LoadBalancer
	formerNet *hcloud.LoadBalancerPrivateNet
	// The error of the change of type, which has failed in this call.
	typeError error
}

func (r *request) get(ctx context.Context, id int64) (*hcloud.LoadBalancer, error) {
	lb, _, err := r.p.api.LoadBalancer.GetByID(ctx, id)
	return lb, r.p.api.done(ctx, r.call, fmt.Sprintf("asking for load balancer %d", id), err)
}

func (r *request) list(ctx context.Context) (err error) {
	if r.all == nil {
		r.all, err = r.p.lists.List(ctx, r.call, 0)
	}
	return err
}

// byHandle returns the load balancer that the handle names, or nil. While all load balancers fit on one page, it reads the list: that is one call too, and
// several requests share it.
func (r *request) byHandle(ctx context.Context) (*plan.Found, error) {
	id, ok := plan.ParseID(r.handle)
	if !ok {
		return nil, nil
	}
	if r.p.balancerCount.Load() <= pageSize {
		if err := r.list(ctx); err != nil {
			return nil, err
		}
		if at := slices.IndexFunc(r.all, func(lb *hcloud.LoadBalancer) bool { return lb.ID == id }); at >= 0 {
			return plan.Judge(r.all[at], r.call, r.service), nil
		}
	}
	lb, err := r.get(ctx, id)
	if lb == nil || err != nil {
		return nil, err
	}
	return plan.Judge(lb, r.call, r.service), nil
}

// find returns the load balancer for the table of LB-24, or nil. byHandle says that the handle names it.
func (r *request) find(ctx context.Context) (found *plan.Found, byHandle bool, err error) {
	if found, err = r.byHandle(ctx); found != nil || err != nil {
		return found, true, err
	}
	if err := r.list(ctx); err != nil {
		return nil, false, err
	}
	if own := plan.Own(r.all, r.call, r.service); len(own) > 0 {
		return own[0], false, nil
	}
	if found = plan.Unmarked(r.all, r.call, r.service); found == nil {
		found = plan.ByAddress(r.all, r.call, r.service)
	}
	return found, false, nil
}

// wanted returns the desired load balancer, and the errors of the Nodes that cannot be its targets.
func (r *request) wanted(ctx context.Context, there *hcloud.LoadBalancer, targets *sdk.Targets) (*plan.Wanted, map[string]error, error) {
	if class := r.service.LoadBalancerClass; class != nil && *class != "" {
		return nil, nil, sdk.ErrHandledElsewhere
	}
	certificates, err := r.certificates(ctx)
	if err != nil {
		return nil, nil, err
	}
	wanted, err := plan.Want(r.service, r.call, r.p.planned(), there, certificates)
	if err != nil {
		return nil, nil, err
	}
	kind, err := r.typeOf(ctx, there, wanted.Type)
	if err != nil {
		return nil, nil, err
	}
	wanted.Kind = kind
	if kind.MaxServices > 0 && len(wanted.Services) > kind.MaxServices {
		return nil, nil, sdk.Invalid("the Service has %d ports and the type %s takes %d; set the annotation %stype to a larger one", len(wanted.Services), kind.Name, kind.MaxServices, plan.Prefix).Because("PortLimit")
	}
	if targets == nil {
		return wanted, nil, nil
	}
	var wrong map[string]error
	wanted.LeaveTargets = false
	wanted.Targets, wrong, err = r.targets(ctx, there, targets, kind.MaxTargets)
	return wanted, wrong, err
}

func (r *request) targets(ctx context.Context, there *hcloud.LoadBalancer, targets *sdk.Targets, most int) ([]plan.Target, map[string]error, error) {
	nodes, err := plan.Selected(r.service, targets)
	if err != nil {
		return nil, nil, err
	}
	all, wrong, left := plan.Targets(nodes, r.service, r.p.planned(), there, most, func(int64) bool { return true })
	// If few servers are new, the API's errors show which of them do not exist. If many are new, read the list of servers first.
	if plan.NewServers(all, there) > r.p.listCalls() {
		servers, err := r.p.servers.List(ctx, r.call, 0)
		if err != nil {
			return nil, nil, err
		}
		ids := map[int64]bool{}
		for _, server := range servers {
			ids[server.ID] = true
		}
		all, wrong, left = plan.Targets(nodes, r.service, r.p.planned(), there, most, func(id int64) bool { return ids[id] })
	}
	r.left = left
	return all, wrong, nil
}

// tellTargets adds the target errors, and a Warning event about Nodes beyond the limit, to the answer.
func (r *request) tellTargets(wrong map[string]error) {
	for node, err := range wrong {
		r.notes.TargetError(node, err)
	}
	if r.left > 0 {
		r.notes.Warn("TargetLimit", fmt.Sprintf("%d Nodes are no targets, as the load balancer's type has no room for them; set the annotation %stype to a larger one, select Nodes with %snode-selector, or start the provider with --target-selector", r.left, plan.Prefix, plan.Prefix))
	}
}

// GetLoadBalancer writes nothing (LB-6).
func (p *Provider) GetLoadBalancer(ctx context.Context, call *sdk.Call, asked sdk.GetLoadBalancer) (sdk.LoadBalancer, error) {
	r := &request{p: p, call: call, service: &asked.Service, handle: asked.Handle, notes: asked.Notes}
	found, _, err := r.find(ctx)
	if err != nil {
		return sdk.LoadBalancer{}, err
	}
	if found == nil {
		return sdk.LoadBalancer{Presence: sdk.LoadBalancerAbsent}, nil
	}
	answer := sdk.LoadBalancer{Presence: sdk.LoadBalancerPresent, Ownership: found.Ownership, Name: found.LB.Name, Status: r.status(found.LB)}
	if found.Ownership != sdk.Ours {
		return answer, nil
	}
	r.notes.Handle(plan.Handle(found.LB))
	answer.InSync, err = r.inSync(ctx, found, asked.Targets)
	return answer, err
}

// inSync reports whether Ensure would write nothing and answer ready, by the same decision (LB-14).
func (r *request) inSync(ctx context.Context, found *plan.Found, targets *sdk.Targets) (bool, error) {
	if plan.CheckID(r.service, found) != nil {
		return false, nil
	}
	wanted, wrong, err := r.wanted(ctx, found.LB, targets)
	var failure *sdk.Failure
	if errors.As(err, &failure) && failure.Code != sdk.CodeInvalid && failure.Code != sdk.CodePrecondition && failure.Code != sdk.CodeConflict {
		return false, err
	}
	if err != nil || len(wrong) > 0 || len(plan.Steps(found.LB, wanted)) > 0 || len(r.status(found.LB).Ingress) == 0 {
		return false, nil
	}
	busy, err := r.beingMade(ctx, found.LB)
	return !busy, err
}

// beingMade reports whether actions run on a load balancer that is younger than 5 minutes.
func (r *request) beingMade(ctx context.Context, lb *hcloud.LoadBalancer) (bool, error) {
	if time.Since(lb.Created) > young {
		return false, nil
	}
	return r.running(ctx, lb)
}

// running reports whether actions run on the load balancer.
func (r *request) running(ctx context.Context, lb *hcloud.LoadBalancer) (bool, error) {
	actions, _, err := r.p.api.LoadBalancer.Action.ListFor(ctx, lb, hcloud.ActionListOpts{Status: []hcloud.ActionStatus{hcloud.ActionStatusRunning}})
	return len(actions) > 0, r.p.api.done(ctx, r.call, "asking for running actions", err)
}

// EnsureLoadBalancer makes the load balancer, or changes it to match the Service.
func (p *Provider) EnsureLoadBalancer(ctx context.Context, call *sdk.Call, asked sdk.EnsureLoadBalancer) (status sdk.LoadBalancerStatus, err error) {
	r := &request{p: p, call: call, service: &asked.Service, handle: asked.Handle, notes: asked.Notes}
	found, _, err := r.find(ctx)
	if err != nil {
		return status, err
	}
	var lb *hcloud.LoadBalancer
	if found != nil {
		if err := sdk.MayTake(found.Ownership, asked.AdoptUnmarked, "load balancer "+plan.Handle(found.LB)); err != nil {
			return status, err
		}
		if lb = found.LB; found.Ownership == sdk.Ours {
			r.notes.Handle(plan.Handle(lb))
		}
	}
	if err := plan.CheckID(r.service, found); err != nil {
		return status, err
	}
	wanted, wrong, err := r.wanted(ctx, lb, asked.Targets)
	if err != nil {
		return status, err
	}
	made := lb == nil
	if made {
		if lb, err = r.create(ctx, wanted); err != nil {
			return status, err
		}
	} else if busy, err := r.beingMade(ctx, lb); busy || err != nil {
		return status, errors.Join(err, r.waits(busy))
	} else if err := r.checkAddress(ctx, lb, wanted); err != nil {
		return status, err
	}
	if lb, err = r.carryOut(ctx, lb, wanted, wrong, made); err != nil {
		return status, err
	}
	r.tellTargets(wrong)
	if status = r.status(lb); len(status.Ingress) == 0 {
		return status, sdk.Pending(againWhileBusy, "load balancer %d has no address yet", lb.ID)
	}
	return status, nil
}

func (r *request) waits(busy bool) error {
	if !busy {
		return nil
	}
	return sdk.Pending(againWhileBusy, "Hetzner still works on the load balancer")
}

// create makes the load balancer with its mark in one call. If the answer is lost, the next call finds the load balancer.
func (r *request) create(ctx context.Context, wanted *plan.Wanted) (*hcloud.LoadBalancer, error) {
	what := "making the load balancer " + wanted.Name
	opts := plan.CreateOptions(wanted)
	if err := sdk.BeforeWrite(ctx); err != nil {
		return nil, err
	}
	result, _, err := r.p.api.LoadBalancer.Create(ctx, opts)
	if len(opts.Targets) > 0 && isCode(err, hcloud.ErrorCodeNotFound, hcloud.ErrorCodeInvalidInput, hcloud.ErrorCodeServerNotAttachedToNetwork, hcloud.ErrorCodeMissingIPv4, hcloud.ErrorCodeLocked, hcloud.ErrorCodeConflict) {
		// A target may be the cause. So make the load balancer without targets; the steps then try each target alone.
		if err := sdk.BeforeWrite(ctx); err != nil {
			return nil, err
		}
		opts.Targets = nil
		result, _, err = r.p.api.LoadBalancer.Create(ctx, opts)
	}
	if isCode(err, hcloud.ErrorCodeUniquenessError) {
		at := slices.IndexFunc(r.all, func(lb *hcloud.LoadBalancer) bool { return lb.Name == wanted.Name })
		switch derived := wanted.Name == plan.DerivedName(r.call.Cluster.OwnerID, r.service.UID); {
		case derived && at < 0:
			return nil, sdk.Pending(againWhileBusy, "the load balancer %s is there, and is not listed yet", wanted.Name)
		case derived: // The search passed it over, so it is not marked for this Service (LB-24, row 7).
			return nil, sdk.Conflict("load balancer %d has the name %s and is not marked for this Service of this cluster; rename it, or choose another name with the annotation %s", r.all[at].ID, wanted.Name, plan.AnnotationName).Because("NameTaken")
		}
		return nil, sdk.Conflict("the annotation %s: the project has a load balancer %q, which is not marked for this Service; choose another name, or give it the label %s=%s and grant its adoption", plan.AnnotationName, wanted.Name, plan.LabelService, sdk.LabelValue.Tag(r.service.UID)).Because("NameTaken")
	}
	if err := r.p.api.done(ctx, r.call, what, err); err != nil {
		return nil, err
	}
	r.notes.Handle(plan.Handle(result.LoadBalancer))
	if err := r.ended(ctx, what, r.p.api.await(ctx, result.Action)); err != nil {
		return nil, err
	}
	return r.again(ctx, result.LoadBalancer.ID)
}

func (r *request) again(ctx context.Context, id int64) (*hcloud.LoadBalancer, error) {
	lb, err := r.get(ctx, id)
	if err == nil && lb == nil {
		err = sdk.Pending(againWhileBusy, "load balancer %d was removed meanwhile", id)
	}
	return lb, err
}

// ended returns the outcome of a write: pending while Hetzner still works.
func (r *request) ended(ctx context.Context, what string, err error) error {
	if errors.Is(err, errStillRunning) || isBusy(err) {
		return sdk.Pending(againWhileBusy, "%s: Hetzner still works on it", what)
	}
	return r.p.api.done(ctx, r.call, what, err)
}

// UpdateLoadBalancer sets the targets to the given ones, and changes nothing else (LB-16).
func (p *Provider) UpdateLoadBalancer(ctx context.Context, call *sdk.Call, asked sdk.UpdateLoadBalancer) error {
	r := &request{p: p, call: call, service: &asked.Service, handle: asked.Handle, notes: asked.Notes}
	found, byHandle, err := r.find(ctx)
	if err != nil {
		return err
	}
	if found == nil || found.Ownership != sdk.Ours && !byHandle {
		return sdk.NotFound("Service %s/%s has no load balancer of this cluster", asked.Service.Namespace, asked.Service.Name)
	}
	if err := sdk.MayTake(found.Ownership, false, "load balancer "+plan.Handle(found.LB)); err != nil {
		return err
	}
	r.notes.Handle(plan.Handle(found.LB))
	most := 0
	if found.LB.LoadBalancerType != nil {
		most = found.LB.LoadBalancerType.MaxTargets
	}
	targets, wrong, err := r.targets(ctx, found.LB, &asked.Targets, most)
	if err != nil {
		return err
	}
	if err := r.run(ctx, found.LB, plan.TargetSteps(found.LB, targets), wrong); err != nil {
		return err
	}
	r.tellTargets(wrong)
	return nil
}

// DeleteLoadBalancer removes all load balancers that have the mark of this Service, also a second one from a create whose answer was lost (LB-12).
func (p *Provider) DeleteLoadBalancer(ctx context.Context, call *sdk.Call, asked sdk.DeleteLoadBalancer) error {
	r := &request{p: p, call: call, service: &asked.Service, handle: asked.Handle, notes: asked.Notes}
	named, err := r.byHandle(ctx)
	if err != nil {
		return err
	}
	if named != nil && named.Ownership != sdk.Ours {
		if err := sdk.MayTake(named.Ownership, asked.AdoptUnmarked && named.Known, "load balancer "+plan.Handle(named.LB)); err != nil {
			return err
		}
	}
	if err := r.list(ctx); err != nil {
		return err
	}
	doomed := plan.Own(r.all, call, r.service)
	if named != nil && !slices.ContainsFunc(doomed, func(found *plan.Found) bool { return found.LB.ID == named.LB.ID }) {
		doomed = append(doomed, named)
	}
	for _, found := range doomed {
		if err := r.remove(ctx, found.LB); err != nil {
			return err
		}
	}
	unmarked := plan.Unmarked(r.all, call, r.service)
	switch {
	case unmarked == nil && len(doomed) == 0:
		return sdk.ListedLate(r.service, r.handle, time.Now())
	case unmarked == nil || named != nil && unmarked.LB.ID == named.LB.ID:
		return nil
	}
	if err := sdk.MayTake(sdk.Unmarked, asked.AdoptUnmarked, "load balancer "+plan.Handle(unmarked.LB)); err != nil {
		return err // LB-26
	}
	return r.remove(ctx, unmarked.LB)
}

func (r *request) remove(ctx context.Context, lb *hcloud.LoadBalancer) error {
	if err := sdk.BeforeWrite(ctx); err != nil {
		return err
	}
	action, err := r.p.api.deleteBalancer(ctx, lb.ID)
	if err == nil {
		err = r.p.api.await(ctx, action)
	}
	if isCode(err, hcloud.ErrorCodeNotFound) {
		err = nil
	}
	return r.ended(ctx, fmt.Sprintf("removing load balancer %d", lb.ID), err)
}

// ListLoadBalancers returns all load balancers that are marked for this cluster (LB-13).
func (p *Provider) ListLoadBalancers(ctx context.Context, call *sdk.Call) (list []sdk.ListedLoadBalancer, err error) {
	all, err := p.lists.List(ctx, call, 0)
	if err != nil {
		return nil, err
	}
	owners := plan.Owners(call)
	for _, lb := range all {
		if slices.Contains(owners, lb.Labels[plan.LabelOwner]) && lb.Labels[plan.LabelService] != "" {
			list = append(list, sdk.ListedLoadBalancer{Name: lb.Name, Handle: plan.Handle(lb), Owners: []sdk.ServiceRef{plan.Owner(lb)}})
		}
	}
	return list, nil
}

// status returns the addresses of a load balancer, as Hetzner's own controller does.
func (r *request) status(lb *hcloud.LoadBalancer) (status sdk.LoadBalancerStatus) {
	shows := plan.Shows(r.service, r.p.planned())
	if shows.Hostname != "" {
		return sdk.LoadBalancerStatus{Ingress: []sdk.Ingress{{Hostname: shows.Hostname}}}
	}
	mode := sdk.IPModeVIP
	if shows.ProxyProtocol {
		mode = sdk.IPModeProxy
	}
	add := func(ip net.IP) {
		if address, err := netip.ParseAddr(ip.String()); err == nil && !address.IsUnspecified() {
			status.Ingress = append(status.Ingress, sdk.Ingress{IP: address, IPMode: mode})
		}
	}
	if lb.PublicNet.Enabled {
		add(lb.PublicNet.IPv4.IP)
		if shows.IPv6 {
			add(lb.PublicNet.IPv6.IP)
		}
	}
	for _, private := range lb.PrivateNet {
		if shows.Private {
			add(private.IP)
		}
	}
	return status
}
