package adapter

import (
	"context"
	"sort"

	"google.golang.org/grpc"
	v1 "k8s.io/api/core/v1"
	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/klog/v2"

	"github.com/grpc-ccm/grpc-ccm/providers/go/contract"
)

var _ cloudprovider.LoadBalancer = (*Cloud)(nil)

func (c *Cloud) balancerCalls() kind {
	return kind{c.balancers, balancerDeadline, (*contract.DeadlineHints).GetLoadBalancer}
}

// GetLoadBalancerName is upstream's default name; the contract leaves names to the provider.
func (c *Cloud) GetLoadBalancerName(_ context.Context, _ string, service *v1.Service) string {
	return cloudprovider.DefaultLoadBalancerName(service)
}

// GetLoadBalancer reports an existing load balancer unless the provider answers ABSENT. If none
// exists, the framework removes the Service's finalizer without a call of
// EnsureLoadBalancerDeleted.
func (c *Cloud) GetLoadBalancer(ctx context.Context, _ string, service *v1.Service) (*v1.LoadBalancerStatus, bool, error) {
	client := contract.NewLoadBalancerServiceClient(c.session.connection)
	answer, err := call(ctx, c.session, c.balancerCalls(),
		func(ctx context.Context, cluster *contract.ClusterRef, options ...grpc.CallOption) (*contract.GetLoadBalancerResponse, error) {
			return client.GetLoadBalancer(ctx, &contract.GetLoadBalancerRequest{
				Cluster: cluster, Service: serviceView(service), Handle: c.handle(service),
			}, options...)
		},
		told(c, service, (*contract.GetLoadBalancerResponse).GetFailed))
	if err != nil {
		return nil, false, err
	}
	switch found := answer.GetFound(); found.GetPresence() {
	case contract.LoadBalancerPresence_LOAD_BALANCER_PRESENCE_ABSENT:
		return nil, false, nil
	case contract.LoadBalancerPresence_LOAD_BALANCER_PRESENCE_PRESENT, contract.LoadBalancerPresence_LOAD_BALANCER_PRESENCE_REMNANTS:
		status, err := loadBalancerStatus(found.GetStatus())
		return status, true, err
	default:
		return nil, false, errUnset
	}
}

// EnsureLoadBalancer creates the load balancer, or changes it to match the Service.
func (c *Cloud) EnsureLoadBalancer(ctx context.Context, _ string, service *v1.Service, nodes []*v1.Node) (*v1.LoadBalancerStatus, error) {
	done, err := c.turns.wait(ctx, service.UID)
	if err != nil {
		return nil, err
	}
	defer done()
	// A user can edit the handle. With the grant, an edited handle could make the provider adopt
	// another load balancer.
	handle := c.handle(service)
	if c.config.AdoptUnmarked {
		handle = nil
	}
	client := contract.NewLoadBalancerServiceClient(c.session.connection)
	answer, err := call(ctx, c.session, c.balancerCalls(),
		func(ctx context.Context, cluster *contract.ClusterRef, options ...grpc.CallOption) (*contract.EnsureLoadBalancerResponse, error) {
			return client.EnsureLoadBalancer(ctx, &contract.EnsureLoadBalancerRequest{
				Cluster: cluster, Service: serviceView(service), Handle: handle,
				Targets: c.targets(nodes), AdoptUnmarked: c.config.AdoptUnmarked,
			}, options...)
		},
		told(c, service, (*contract.EnsureLoadBalancerResponse).GetFailed))
	if err != nil {
		return nil, err
	}
	switch outcome := answer.GetOutcome().(type) {
	case *contract.EnsureLoadBalancerResponse_Ready:
		return loadBalancerStatus(outcome.Ready.GetStatus())
	case *contract.EnsureLoadBalancerResponse_Pending:
		return nil, pending(outcome.Pending)
	case *contract.EnsureLoadBalancerResponse_HandledElsewhere:
		return nil, cloudprovider.ImplementedElsewhere
	default:
		return nil, errUnset
	}
}

// UpdateLoadBalancer makes these Nodes the targets of the load balancer.
func (c *Cloud) UpdateLoadBalancer(ctx context.Context, _ string, service *v1.Service, nodes []*v1.Node) error {
	if c.info.GetCapabilities().GetLoadBalancers().GetIgnoresNodes() {
		return nil
	}
	done, err := c.turns.wait(ctx, service.UID)
	if err != nil {
		return err
	}
	defer done()
	client := contract.NewLoadBalancerServiceClient(c.session.connection)
	answer, err := call(ctx, c.session, c.balancerCalls(),
		func(ctx context.Context, cluster *contract.ClusterRef, options ...grpc.CallOption) (*contract.UpdateLoadBalancerResponse, error) {
			return client.UpdateLoadBalancer(ctx, &contract.UpdateLoadBalancerRequest{
				Cluster: cluster, Service: serviceView(service), Handle: c.handle(service), Targets: c.targets(nodes),
			}, options...)
		},
		told(c, service, (*contract.UpdateLoadBalancerResponse).GetFailed))
	if err != nil {
		return err
	}
	switch outcome := answer.GetOutcome().(type) {
	case *contract.UpdateLoadBalancerResponse_Done:
		return nil
	case *contract.UpdateLoadBalancerResponse_Pending:
		return pending(outcome.Pending)
	case *contract.UpdateLoadBalancerResponse_HandledElsewhere:
		return cloudprovider.ImplementedElsewhere
	default:
		return errUnset
	}
}

// EnsureLoadBalancerDeleted removes the Service's cloud objects. If the provider keeps the load
// balancer on purpose, an event reports that, and the method succeeds.
func (c *Cloud) EnsureLoadBalancerDeleted(ctx context.Context, _ string, service *v1.Service) error {
	done, err := c.turns.wait(ctx, service.UID)
	if err != nil {
		return err
	}
	defer done()
	client := contract.NewLoadBalancerServiceClient(c.session.connection)
	answer, err := call(ctx, c.session, c.balancerCalls(),
		func(ctx context.Context, cluster *contract.ClusterRef, options ...grpc.CallOption) (*contract.DeleteLoadBalancerResponse, error) {
			return client.DeleteLoadBalancer(ctx, &contract.DeleteLoadBalancerRequest{
				Cluster: cluster, Service: serviceView(service), Handle: c.handle(service),
			}, options...)
		},
		told(c, service, (*contract.DeleteLoadBalancerResponse).GetFailed))
	if err != nil {
		return err
	}
	switch outcome := answer.GetOutcome().(type) {
	case *contract.DeleteLoadBalancerResponse_Done:
		return nil
	case *contract.DeleteLoadBalancerResponse_Retained:
		c.events.Eventf(service, v1.EventTypeWarning, "RetainedLoadBalancer", "The provider keeps the load balancer in the cloud: %s", outcome.Retained.GetReason())
		return nil
	case *contract.DeleteLoadBalancerResponse_Pending:
		return pending(outcome.Pending)
	case *contract.DeleteLoadBalancerResponse_HandledElsewhere:
		return cloudprovider.ImplementedElsewhere
	default:
		return errUnset
	}
}

// remarks are fields beside the outcome that every answer about a load balancer has.
type remarks interface {
	GetEvents() []*contract.Event
	GetAnnotations() *contract.AnnotationChanges
	GetTargetErrors() []*contract.TargetError
}

// told returns a function that records an answer's events and target errors on the Service, and
// returns the answer's failure. The adapter does not store the answer's handle and annotations: see
// docs/migration.md.
func told[Answer remarks](c *Cloud, service *v1.Service, failed func(Answer) *contract.Failure) func(Answer) *contract.Failure {
	return func(answer Answer) *contract.Failure {
		for _, event := range answer.GetEvents() {
			severity := v1.EventTypeNormal
			if event.GetSeverity() == contract.EventSeverity_EVENT_SEVERITY_WARNING {
				severity = v1.EventTypeWarning
			}
			c.events.Event(service, severity, event.GetReason(), event.GetMessage())
		}
		for _, target := range answer.GetTargetErrors() {
			c.events.Eventf(service, v1.EventTypeWarning, "UpdateLoadBalancerFailed", "Error updating load balancer with new hosts [%s]: %v",
				target.GetNodeName(), failure(target.GetFailure()))
		}
		if changes := answer.GetAnnotations(); len(changes.GetSet())+len(changes.GetRemove()) > 0 {
			klog.V(2).InfoS("The provider's annotations are not written", "service", klog.KObj(service))
		}
		return failed(answer)
	}
}

// targets returns the Nodes that can be targets of this provider, in the order of their names, at
// most max_targets of them.
func (c *Cloud) targets(nodes []*v1.Node) *contract.TargetSet {
	offered := c.info.GetCapabilities().GetLoadBalancers()
	views := make([]*contract.NodeView, 0, len(nodes))
	for _, node := range nodes {
		if offered.GetTargetScope() == contract.TargetScope_TARGET_SCOPE_ALL || c.owns(node) {
			views = append(views, c.targetView(node))
		}
	}
	sort.Slice(views, func(i, j int) bool { return views[i].GetName() < views[j].GetName() })
	if most := int(offered.GetMaxTargets()); most > 0 && len(views) > most {
		views = views[:most]
	}
	return &contract.TargetSet{Set: &contract.TargetSet_Inline{Inline: &contract.TargetList{Nodes: views}}}
}
