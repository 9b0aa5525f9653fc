package provider

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/digitalocean/godo"

	"github.com/grpc-ccm/grpc-ccm/providers/digitalocean/plan"
	"github.com/grpc-ccm/grpc-ccm/providers/go/sdk"
)

// sdk.LoadBalancers: the methods carry out the decisions of package plan.

const (
	// DigitalOcean takes a minute or two to make a load balancer.
	againWhileNew  = 10 * time.Second
	againWhileBusy = 5 * time.Second
)

// request has the common arguments of the four calls about a load balancer.
type request struct {
	p       *Provider
	call    *sdk.Call
	service *sdk.Service
	handle  string
	notes   *sdk.Notes
	// The list of load balancers, if the call has read it.
	all []godo.LoadBalancer
}

var uuid = regexp.MustCompile(`^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$`)

// get returns a load balancer by its ID, or nil. A user can write the ID, so get puts only a UUID into a URL, and returns nil for any other text.
func (r *request) get(ctx context.Context, id string) (*godo.LoadBalancer, error) {
	if !uuid.MatchString(id) {
		return nil, nil
	}
	lb, _, err := r.p.api.LoadBalancers.Get(ctx, id)
	if isNotFound(err) {
		r.p.leaving.gone(id)
		return nil, r.p.api.done(ctx, r.call, "", nil)
	}
	return lb, r.p.api.done(ctx, r.call, "asking for load balancer "+id, err)
}

// byHandle returns the load balancer that the handle names, or nil.
func (r *request) byHandle(ctx context.Context) (*plan.Found, error) {
	if r.handle == "" {
		return nil, nil
	}
	lb, err := r.get(ctx, r.handle)
	if lb == nil || err != nil {
		return nil, err
	}
	return plan.Judge(lb, r.call, r.service), nil
}

func (r *request) list(ctx context.Context) (err error) {
	if r.all == nil {
		r.all, err = r.p.lists.List(ctx, r.call, 0)
	}
	return err
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

// wanted returns the desired load balancer, and the Nodes that can be its targets; nil leaves the targets alone.
func (r *request) wanted(ctx context.Context, there *godo.LoadBalancer, targets *sdk.Targets) (*plan.Wanted, *plan.Eligible, error) {
	if r.service.LoadBalancerClass != nil && *r.service.LoadBalancerClass != "" {
		return nil, nil, sdk.ErrHandledElsewhere
	}
	kind, network := plan.Kind(r.service, &r.p.settings.Settings, there)
	eligible := plan.EligibleTargets(targets, kind, network)
	certificate, err := r.certificate(ctx, there)
	if err != nil {
		return nil, nil, err
	}
	wanted, err := plan.Want(r.service, r.call, &r.p.settings.Settings, there, certificate, eligible)
	if err != nil {
		return nil, nil, err
	}
	return wanted, eligible, r.noneEligible(eligible, there)
}

// noneEligible returns an error if no Node can be a target, and one lacks a public IPv4 address.
func (r *request) noneEligible(eligible *plan.Eligible, there *godo.LoadBalancer) error {
	if r.p.settings.TargetTag != "" || eligible == nil || len(eligible.IDs) > 0 || len(eligible.Without) == 0 {
		return nil
	}
	right := fmt.Sprintf("the annotation %s: REGIONAL", plan.AnnotationType)
	if there != nil {
		right = fmt.Sprintf("Nodes with such an address, or another Service with %s, because DigitalOcean cannot change the type of load balancer %s", right, there.ID)
	}
	return sdk.Precondition("none of the Nodes has a public IPv4 address, which an external load balancer of the type REGIONAL_NETWORK needs: %s; right would be %s", some(eligible.Without), right).Because("NoEligibleTargets")
}

func some(names []string) string {
	if len(names) > 5 {
		return strings.Join(names[:5], ", ") + fmt.Sprintf(" and %d more", len(names)-5)
	}
	return strings.Join(names, ", ")
}

// certificate returns the ID of the certificate that the annotations name. A certificate of Let's Encrypt gets another ID when DigitalOcean renews it, and
// DigitalOcean sets that ID on the load balancer. certificate then returns that ID.
func (r *request) certificate(ctx context.Context, there *godo.LoadBalancer) (string, error) {
	id := strings.TrimSpace(r.service.Annotations[plan.AnnotationCertificateID])
	name := strings.TrimSpace(r.service.Annotations[plan.AnnotationCertificateName])
	if id == "" && name == "" {
		return "", nil
	}
	if id == "" {
		list, _, err := r.p.api.Certificates.ListByName(ctx, name, &godo.ListOptions{Page: 1, PerPage: pageSize})
		if err := r.p.api.done(ctx, r.call, "looking for certificate "+name, err); err != nil {
			return "", err
		}
		if len(list) == 0 {
			return "", sdk.Invalid("annotation %s: the account has no certificate %q", plan.AnnotationCertificateName, name).Because("CertificateMissing")
		}
		return list[0].ID, nil
	}
	if there == nil {
		return id, nil
	}
	for _, rule := range there.ForwardingRules {
		if rule.CertificateID == "" || rule.CertificateID == id {
			continue
		}
		used, err := r.askCertificate(ctx, rule.CertificateID)
		if err != nil || used == nil || used.Type != "lets_encrypt" {
			return id, err
		}
		asked, err := r.askCertificate(ctx, id)
		if err != nil || asked != nil && asked.Name != used.Name {
			return id, err
		}
		r.notes.SetAnnotation(plan.AnnotationCertificateID, used.ID)
		return used.ID, nil
	}
	return id, nil
}

func (r *request) askCertificate(ctx context.Context, id string) (*godo.Certificate, error) {
	if !uuid.MatchString(id) {
		return nil, nil
	}
	certificate, _, err := r.p.api.Certificates.Get(ctx, id)
	if isNotFound(err) {
		return nil, r.p.api.done(ctx, r.call, "", nil)
	}
	return certificate, r.p.api.done(ctx, r.call, "asking for certificate "+id, err)
}

// disowned reports whether an annotation of the Service forbids the provider to touch its load balancer.
func disowned(service *sdk.Service) (bool, error) {
	switch value := strings.ToLower(strings.TrimSpace(service.Annotations[plan.AnnotationDisown])); value {
	case "", "false":
		return false, nil
	case "true":
		return true, nil
	default:
		return false, sdk.Invalid("annotation %s: %q is neither \"true\" nor \"false\"", plan.AnnotationDisown, value).Because("AnnotationInvalid")
	}
}

// tell adds the handle to the answer and, if the operator asks for it, the annotation by which DigitalOcean's own controller finds the load balancer.
func (r *request) tell(lb *godo.LoadBalancer) {
	r.notes.Handle(lb.ID)
	if r.p.settings.WriteID && r.service.Annotations[plan.AnnotationID] != lb.ID {
		r.notes.SetAnnotation(plan.AnnotationID, lb.ID)
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
	answer := sdk.LoadBalancer{Presence: sdk.LoadBalancerPresent, Ownership: found.Ownership, Name: found.LB.Name}
	if found.Ownership != sdk.Ours {
		answer.Status = plan.Status(found.LB, nil)
		return answer, nil
	}
	r.tell(found.LB)
	if p.leaving.has(found.LB.ID, p.now()) {
		answer.Presence = sdk.LoadBalancerRemnants
		return answer, nil
	}
	// InSync says whether Ensure would write nothing and answer ready (LB-14), by the same decision.
	wanted, eligible, err := r.wanted(ctx, found.LB, asked.Targets)
	if failure := failureOfCloud(err); failure != nil {
		return sdk.LoadBalancer{}, failure
	}
	answer.Status = plan.Status(found.LB, wanted)
	if err != nil {
		return answer, nil
	}
	elsewhere, err := disowned(r.service)
	answer.InSync = err == nil && !elsewhere && found.LB.Status == "active" && len(answer.Status.Ingress) > 0 && plan.Same(found.LB, &wanted.Request) && (eligible == nil || len(eligible.Unnamed) == 0) && r.checkID(ctx, found) == nil
	return answer, nil
}

// failureOfCloud returns an error for which Get must fail. It returns nil for an error by which Ensure would refuse the Service.
func failureOfCloud(err error) error {
	if err == nil || err == sdk.ErrHandledElsewhere {
		return nil
	}
	failure, is := err.(*sdk.Failure)
	if is && (failure.Code == sdk.CodeInvalid || failure.Code == sdk.CodePrecondition) {
		return nil
	}
	return err
}

// checkID refuses an annotation with the ID of a load balancer that is not this Service's. The provider must not take a load balancer by an ID that any
// user with the right to write the Service can set.
func (r *request) checkID(ctx context.Context, found *plan.Found) error {
	id := strings.TrimSpace(r.service.Annotations[plan.AnnotationID])
	if id == "" || found != nil && found.LB.ID == id {
		return nil
	}
	other, err := r.get(ctx, id)
	if err != nil {
		return err
	}
	if other == nil {
		r.notes.Warn("LoadBalancerIDUnknown", fmt.Sprintf("annotation %s: ignored, because there is no load balancer %q", plan.AnnotationID, id))
		return nil
	}
	if judged := plan.Judge(other, r.call, r.service); judged.Ownership == sdk.Ours {
		return nil
	}
	return sdk.Invalid("annotation %s: the load balancer %q (%s) is not marked as this Service's; remove the annotation or, if the Service has no other load balancer, rename that one to %s", plan.AnnotationID, id, other.Name, plan.VendorName(r.service.UID)).Because("LoadBalancerIDNotOurs")
}

// EnsureLoadBalancer makes the load balancer, or changes it to match the Service.
func (p *Provider) EnsureLoadBalancer(ctx context.Context, call *sdk.Call, asked sdk.EnsureLoadBalancer) (status sdk.LoadBalancerStatus, err error) {
	if elsewhere, err := disowned(&asked.Service); elsewhere || err != nil {
		if elsewhere {
			err = sdk.ErrHandledElsewhere
		}
		return status, err
	}
	r := &request{p: p, call: call, service: &asked.Service, handle: asked.Handle, notes: asked.Notes}
	found, _, err := r.find(ctx)
	if err != nil {
		return status, err
	}
	var there *godo.LoadBalancer
	if found != nil {
		there = found.LB
		if found.Ownership == sdk.Foreign {
			return status, sdk.MayTake(found.Ownership, false, "load balancer "+there.ID)
		}
		if p.leaving.has(there.ID, p.now()) {
			return status, sdk.Pending(againWhileBusy, "DigitalOcean deletes load balancer %s; another one is made after that", there.ID)
		}
	}
	wanted, eligible, err := r.wanted(ctx, there, asked.Targets)
	if err != nil {
		return status, err
	}
	if found != nil {
		if err := sdk.MayTake(found.Ownership, asked.AdoptUnmarked, "load balancer "+there.ID+" ("+there.Name+")"); err != nil {
			return status, err
		}
	}
	if err := r.checkID(ctx, found); err != nil {
		return status, err
	}
	for _, warning := range wanted.Warnings {
		r.notes.Warn("AnnotationHasNoEffect", warning)
	}
	r.tellTargets(eligible)
	if there == nil {
		there, err = r.create(ctx, wanted, eligible)
	} else if !plan.Same(there, &wanted.Request) {
		there, err = r.change(ctx, there, wanted, eligible)
	}
	if err != nil {
		return status, err
	}
	r.tell(there)
	switch {
	case there.Status == "new" || there.Status == "active" && len(plan.Status(there, wanted).Ingress) == 0:
		return status, sdk.Pending(againWhileNew, "DigitalOcean makes load balancer %s", there.ID)
	case there.Status != "active":
		return status, sdk.Unavailable("load balancer %s has the status %q; if that lasts, delete it in DigitalOcean's control panel, and the provider makes it again", there.ID, there.Status).Because("LoadBalancerErrored")
	}
	return plan.Status(there, wanted), nil
}

func (r *request) tellTargets(eligible *plan.Eligible) {
	if eligible == nil || r.p.settings.TargetTag != "" {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(eligible.Unnamed)) {
		r.notes.TargetError(name, eligible.Unnamed[name])
	}
	if len(eligible.Without) > 0 {
		r.notes.Warn("NodesWithoutPublicAddress", "left out, as they have no public IPv4 address: "+some(eligible.Without))
	}
}

func (r *request) create(ctx context.Context, wanted *plan.Wanted, eligible *plan.Eligible) (*godo.LoadBalancer, error) {
	if err := r.list(ctx); err != nil {
		return nil, err
	}
	if other := plan.InTheWay(r.all, r.service); other != nil {
		return nil, sdk.Conflict("load balancer %s has the name %s that the Service asks for, and nothing says that it is the Service's: rename it to %s and grant its adoption, or ask for another name", other.ID, other.Name, plan.VendorName(r.service.UID)).Because("NameTaken")
	}
	lb := wanted.Request
	lb.IP = wanted.Address
	made, err := r.write(ctx, "making a load balancer", &lb, eligible, func(request *godo.LoadBalancerRequest) (*godo.LoadBalancer, *godo.Response, error) {
		return r.p.api.send(ctx, http.MethodPost, "v2/load_balancers", request)
	})
	if isNameTaken(err) {
		// The answer to an earlier create was lost, and the list does not show its load balancer yet.
		return nil, sdk.Pending(againWhileBusy, "DigitalOcean has a load balancer %s, and does not list it yet", lb.Name)
	}
	return made, err
}

func (r *request) change(ctx context.Context, there *godo.LoadBalancer, wanted *plan.Wanted, eligible *plan.Eligible) (*godo.LoadBalancer, error) {
	if there.Status == "new" {
		r.tellIfOurs(there)
		return nil, sdk.Pending(againWhileNew, "DigitalOcean makes load balancer %s; it is changed after that", there.ID)
	}
	changed, err := r.write(ctx, "changing load balancer "+there.ID, &wanted.Request, eligible, func(request *godo.LoadBalancerRequest) (*godo.LoadBalancer, *godo.Response, error) {
		return r.p.api.send(ctx, http.MethodPut, "v2/load_balancers/"+there.ID, request)
	})
	switch {
	case isBusy(err):
		r.tellIfOurs(there)
		return nil, sdk.Pending(againWhileBusy, "DigitalOcean works on load balancer %s", there.ID)
	case isNotFound(err):
		return nil, sdk.Pending(time.Second, "load balancer %s was deleted, and not by the provider", there.ID)
	case isNameTaken(err):
		r.tellIfOurs(there)
		return nil, sdk.Conflict("load balancer %s cannot get the name %s: another one of this Service has it; delete that one in DigitalOcean's control panel, or ask for another name", there.ID, wanted.Request.Name).Because("NameTaken")
	}
	return changed, err
}

func (r *request) tellIfOurs(there *godo.LoadBalancer) {
	if plan.Judge(there, r.call, r.service).Ownership == sdk.Ours {
		r.tell(there)
	}
}

// write sends a whole load balancer, or only its droplets. If DigitalOcean refuses the request with 422, and droplets are gone or in another region or
// network, write sends the request without them. Their Nodes become target errors and fail nothing else (LB-17).
func (r *request) write(ctx context.Context, what string, lb *godo.LoadBalancerRequest, eligible *plan.Eligible, send func(*godo.LoadBalancerRequest) (*godo.LoadBalancer, *godo.Response, error)) (*godo.LoadBalancer, error) {
	if err := sdk.BeforeWrite(ctx); err != nil {
		return nil, err
	}
	answer, _, err := send(lb)
	if status, _ := answered(err); status == 422 && !isNameTaken(err) && len(lb.DropletIDs) > 0 && eligible != nil {
		left, found, lookErr := r.usable(ctx, lb, eligible)
		if lookErr != nil {
			return nil, lookErr
		}
		if found {
			without := *lb
			without.DropletIDs = left
			if err := sdk.BeforeWrite(ctx); err != nil {
				return nil, err
			}
			answer, _, err = send(&without)
		}
	}
	if isBusy(err) || isNotFound(err) || isNameTaken(err) {
		return nil, err
	}
	return answer, r.p.api.done(ctx, r.call, what, err)
}

// usable returns the droplets without those that do not exist, and without those in another region or network than the load balancer. found says that it
// left out some.
func (r *request) usable(ctx context.Context, lb *godo.LoadBalancerRequest, eligible *plan.Eligible) (left []int, found bool, err error) {
	droplets, err := r.p.droplets.List(ctx, r.call, 0)
	if err != nil {
		return nil, false, err
	}
	for _, id := range lb.DropletIDs {
		droplet := dropletOfID(droplets, id)
		if droplet == nil {
			if droplet, _, err = r.p.api.Droplets.Get(ctx, id); isNotFound(err) {
				droplet, err = nil, nil
			}
			if err := r.p.api.done(ctx, r.call, "asking for a droplet", err); err != nil {
				return nil, false, err
			}
		}
		if wrong := plan.NoTarget(id, droplet, r.p.settings.Region, lb.VPCUUID); wrong != nil {
			found = true
			r.notes.TargetError(eligible.Names[id], wrong)
			continue
		}
		left = append(left, id)
	}
	return left, found, nil
}
