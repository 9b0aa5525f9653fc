package provider

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/digitalocean/godo"

	"github.com/grpc-ccm/grpc-ccm/providers/digitalocean/plan"
	"github.com/grpc-ccm/grpc-ccm/providers/go/sdk"
)

// UpdateLoadBalancer adds and removes droplets. It changes nothing else of the load balancer (LB-16).
func (p *Provider) UpdateLoadBalancer(ctx context.Context, call *sdk.Call, asked sdk.UpdateLoadBalancer) error {
	r := &request{p: p, call: call, service: &asked.Service, handle: asked.Handle, notes: asked.Notes}
	// Only Ensure refuses an invalid value (LB-24).
	if elsewhere, err := disowned(r.service); elsewhere && err == nil {
		return sdk.ErrHandledElsewhere
	}
	// Read the list, not the one load balancer: when a Node joins, each load balancer gets an Update, and waiting Updates share the list.
	if err := r.list(ctx); err != nil {
		return err
	}
	var found *plan.Found
	byHandle, err := true, error(nil)
	if at := slices.IndexFunc(r.all, func(lb godo.LoadBalancer) bool { return r.handle != "" && lb.ID == r.handle }); at >= 0 {
		found = plan.Judge(&r.all[at], call, r.service)
	} else if found, byHandle, err = r.find(ctx); err != nil {
		return err
	}
	switch {
	case found != nil && found.Ownership != sdk.Ours && byHandle:
		return sdk.MayTake(found.Ownership, false, "load balancer "+found.LB.ID)
	case found == nil || found.Ownership != sdk.Ours || p.leaving.has(found.LB.ID, p.now()):
		return sdk.NotFound("Service %s/%s has no load balancer", r.service.Namespace, r.service.Name)
	}
	lb := found.LB
	r.tell(lb)
	if p.settings.TargetTag != "" || lb.Tag != "" {
		return nil // DigitalOcean itself adds and removes the droplets of the tag.
	}
	eligible := plan.EligibleTargets(&asked.Targets, lb.Type, lb.Network)
	if err := r.noneEligible(eligible, lb); err != nil {
		return err
	}
	r.tellTargets(eligible)
	add, remove := plan.Change(lb, eligible.IDs)
	if len(add)+len(remove) > 0 && lb.Status == "new" {
		return sdk.Pending(againWhileNew, "DigitalOcean makes load balancer %s; its targets are set after that", lb.ID)
	}
	if len(add) > 0 {
		if err := r.setDroplets(ctx, lb, eligible, add, p.api.LoadBalancers.AddDroplets); err != nil {
			return err
		}
	}
	if len(remove) == 0 {
		return nil
	}
	err = r.setDroplets(ctx, lb, nil, remove, p.api.LoadBalancers.RemoveDroplets)
	if status, _ := answered(err); status == 422 {
		// DigitalOcean itself removes destroyed droplets from a load balancer, and then refuses a call that removes them.
		now, lookErr := r.get(ctx, lb.ID)
		if lookErr == nil && now != nil {
			_, left := plan.Change(now, eligible.IDs)
			switch {
			case len(left) == 0:
				return nil
			case len(left) < len(remove):
				return r.setDroplets(ctx, now, nil, left, p.api.LoadBalancers.RemoveDroplets)
			}
		}
	}
	return err
}

func (r *request) setDroplets(ctx context.Context, lb *godo.LoadBalancer, eligible *plan.Eligible, ids []int, set func(context.Context, string, ...int) (*godo.Response, error)) error {
	_, err := r.write(ctx, "setting the targets of load balancer "+lb.ID, &godo.LoadBalancerRequest{DropletIDs: ids, VPCUUID: lb.VPCUUID}, eligible, func(request *godo.LoadBalancerRequest) (*godo.LoadBalancer, *godo.Response, error) {
		if len(request.DropletIDs) == 0 {
			return lb, nil, nil
		}
		response, err := set(ctx, lb.ID, request.DropletIDs...)
		return lb, response, err
	})
	switch {
	case isBusy(err):
		return sdk.Pending(againWhileBusy, "DigitalOcean works on load balancer %s", lb.ID)
	case isNotFound(err):
		return sdk.NotFound("load balancer %s was deleted, and not by the provider", lb.ID)
	}
	return err
}

// DeleteLoadBalancer removes all load balancers that are marked for this Service. It returns nil only if none of them is left (LB-12).
func (p *Provider) DeleteLoadBalancer(ctx context.Context, call *sdk.Call, asked sdk.DeleteLoadBalancer) error {
	r := &request{p: p, call: call, service: &asked.Service, handle: asked.Handle, notes: asked.Notes}
	elsewhere, err := disowned(r.service)
	if err != nil { // An invalid value keeps the load balancer. An error would block the deletion of the Service.
		elsewhere = true
	}
	found, err := r.byHandle(ctx)
	if err != nil {
		return err
	}
	kept := false
	if found != nil && found.Ownership != sdk.Ours && !(found.ByName && found.Ownership == sdk.Unmarked) {
		if !elsewhere {
			return sdk.MayTake(found.Ownership, false, "load balancer "+found.LB.ID)
		}
		kept, found = true, nil // The new owner of a disowned load balancer may have renamed it. It is no reason to keep the Service.
	}
	if err := r.list(ctx); err != nil {
		return err
	}
	own, unmarked := plan.Own(r.all, call, r.service), plan.Unmarked(r.all, call, r.service)
	// The list may lack the load balancer that the handle names.
	if found != nil && found.Ownership == sdk.Unmarked {
		unmarked = found
	} else if found != nil && !slices.ContainsFunc(own, func(other *plan.Found) bool { return other.LB.ID == found.LB.ID }) {
		own = append(own, found)
	}
	if elsewhere {
		if len(own) == 0 && unmarked == nil && !kept {
			return nil
		}
		// The mark stays: the API changes a name only by a write of the whole load balancer, which would undo what its new owner has changed meanwhile.
		marked := []string{}
		for _, lb := range own {
			marked = append(marked, lb.LB.ID)
		}
		why := fmt.Sprintf("the load balancer is kept: the annotation %s asks for it", plan.AnnotationDisown)
		if len(marked) > 0 {
			why += fmt.Sprintf("; once the Service is gone, rename %s, so that the name does not end in %s: else --orphaned-load-balancers=delete deletes it", some(marked), plan.NameEnd)
		}
		return sdk.Retained("%s", why)
	}
	if asked.AdoptUnmarked && unmarked != nil {
		own, unmarked = append(own, unmarked), nil
	}
	for _, lb := range own {
		if err := r.remove(ctx, lb); err != nil {
			return err
		}
	}
	switch {
	case unmarked != nil:
		return sdk.MayTake(sdk.Unmarked, false, fmt.Sprintf("load balancer %s (%s)", unmarked.LB.ID, unmarked.LB.Name))
	case len(own) == 0:
		return sdk.ListedLate(r.service, r.handle, p.now())
	}
	return nil
}

// leaving are the load balancers whose deletion DigitalOcean has accepted. Its API has no such state: until the load balancer is gone, the API shows it
// unchanged. A new process does not know them, and deletes them once more.
type leaving struct {
	mutex sync.Mutex
	ids   map[string]time.Time
}

// How long a deletion may take; after that the provider deletes the load balancer once more.
const leavingFor = 3 * time.Minute

func (l *leaving) add(id string, now time.Time) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	maps.DeleteFunc(l.ids, func(_ string, since time.Time) bool { return now.Sub(since) > leavingFor })
	l.ids[id] = now
}

func (l *leaving) has(id string, now time.Time) bool {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	since, has := l.ids[id]
	return has && now.Sub(since) <= leavingFor
}

func (l *leaving) gone(id string) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	delete(l.ids, id)
}

// remove deletes a load balancer and checks that it no longer exists, because done must mean that nothing is left (LB-12).
func (r *request) remove(ctx context.Context, lb *plan.Found) error {
	if err := sdk.BeforeWrite(ctx); err != nil {
		return err
	}
	if lb.Ownership == sdk.Ours {
		r.notes.Handle(lb.LB.ID)
	}
	if !r.p.leaving.has(lb.LB.ID, r.p.now()) {
		_, err := r.p.api.LoadBalancers.Delete(ctx, lb.LB.ID)
		if isBusy(err) {
			return sdk.Pending(againWhileBusy, "DigitalOcean works on load balancer %s; it is deleted after that", lb.LB.ID)
		}
		if !isNotFound(err) {
			if err := r.p.api.done(ctx, r.call, "deleting load balancer "+lb.LB.ID, err); err != nil {
				return err
			}
		}
		r.p.leaving.add(lb.LB.ID, r.p.now())
	}
	left, err := r.get(ctx, lb.LB.ID)
	if err != nil {
		return err
	}
	if left != nil {
		return sdk.Pending(againWhileBusy, "DigitalOcean deletes load balancer %s", lb.LB.ID)
	}
	return nil
}

// ListLoadBalancers returns all load balancers that are marked for this cluster (LB-13).
func (p *Provider) ListLoadBalancers(ctx context.Context, call *sdk.Call) (list []sdk.ListedLoadBalancer, err error) {
	all, err := p.lists.List(ctx, call, 0)
	if err != nil {
		return nil, err
	}
	for _, lb := range all {
		if mark, marked := plan.ReadMark(lb.Name); marked && mark.OwnedBy(call) {
			list = append(list, sdk.ListedLoadBalancer{Name: lb.Name, Handle: lb.ID, Owners: []sdk.ServiceRef{mark.Service()}})
		}
	}
	return list, nil
}
