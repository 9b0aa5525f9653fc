package bridge

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/klog/v2"

	"github.com/grpc-ccm/grpc-ccm/providers/go/contract"
	"github.com/grpc-ccm/grpc-ccm/providers/go/sdk"
)

// asked are the facts that a lookup asks for, beside existence (INST-10).
type asked struct {
	power, metadata bool
	// The controller accepts an older answer: it only refreshes the Node.
	refresh bool
}

func askedOf(request *contract.LookupInstancesRequest, powerState bool) asked {
	facets := request.GetFacets()
	return asked{
		refresh:  request.GetMaxAge().AsDuration() > 0,
		power:    powerState && slices.Contains(facets, contract.InstanceFacet_INSTANCE_FACET_POWER),
		metadata: slices.Contains(facets, contract.InstanceFacet_INSTANCE_FACET_METADATA),
	}
}

// LookupInstances asks the cloud about each Node, except those with a provider ID of another
// provider. Go's interface has no batches, so the bridge calls the cloud for each Node. The
// bridge's places limit how many of these calls run at once. The bridge caches no existence and no
// power state (INST-5); the cloud may cache.
func (b *Bridge) LookupInstances(ctx context.Context, request *contract.LookupInstancesRequest) (*contract.LookupInstancesResponse, error) {
	owner, failure := b.admit(request.GetCluster())
	if failure == nil {
		failure = b.checkNodes(request.GetNodes())
	}
	if failure != nil {
		return &contract.LookupInstancesResponse{Failed: failure}, nil
	}
	within := sdk.BudgetOf(ctx)
	wanted := askedOf(request, !b.options.NoPowerState)
	nodes := b.known(ctx, request.GetNodes())
	results := make([]*contract.LookupInstanceResult, len(nodes))
	fanOut(len(nodes), func(index int) {
		node := nodes[index]
		result := &contract.LookupInstanceResult{NodeName: node.Name, NodeUid: string(node.UID)}
		found, failure := b.lookup(withOwner(ctx, owner), within, node, wanted)
		if failure != nil {
			result.Outcome = &contract.LookupInstanceResult_Failed{Failed: failure}
		} else {
			result.Outcome = &contract.LookupInstanceResult_Found{Found: found}
		}
		results[index] = result
	})
	return &contract.LookupInstancesResponse{Results: results}, nil
}

// fanOut runs one goroutine for each item of a batch and waits for all.
func fanOut(many int, work func(index int)) {
	var all sync.WaitGroup
	for index := range many {
		all.Go(func() { work(index) })
	}
	all.Wait()
}

func (b *Bridge) checkNodes(nodes []*contract.NodeView) *contract.Failure {
	if len(nodes) > int(b.options.MaxBatch) {
		return invalid("%d Nodes in one request; max_batch is %d", len(nodes), b.options.MaxBatch)
	}
	seen := map[string]bool{}
	for _, node := range nodes {
		if node.GetName() == "" {
			return invalid("a Node of the request has no name")
		}
		if seen[node.GetName()] {
			return invalid("the Node %q is in the request twice", node.GetName())
		}
		seen[node.GetName()] = true
	}
	return nil
}

// known returns the Nodes of the views. It waits at most 2 s until the cloud's informers have them.
func (b *Bridge) known(ctx context.Context, views []*contract.NodeView) []*v1.Node {
	nodes := make([]*v1.Node, 0, len(views))
	for _, view := range views {
		nodes = append(nodes, nodeOf(view))
	}
	b.settle(ctx, b.standIn.knowNodes(nodes))
	return nodes
}

// lookup asks the cloud about one Node.
func (b *Bridge) lookup(ctx context.Context, within sdk.Budget, node *v1.Node, wanted asked) (*contract.Instance, *contract.Failure) {
	if node.Spec.ProviderID != "" && !b.owns(node.Spec.ProviderID) {
		// The cloud could answer that an instance of another provider does not exist, and the controller would delete the Node.
		return &contract.Instance{State: contract.InstanceState_INSTANCE_STATE_UNMANAGED}, nil
	}
	ask := func(method string, work func(context.Context) (*contract.Instance, error)) (*contract.Instance, error) {
		return ask(ctx, b, b.instances, method, within, nil, work)
	}
	var found *contract.Instance
	var err error
	if b.parts().instancesV2 != nil {
		found, err = ask("InstancesV2", func(ctx context.Context) (*contract.Instance, error) { return b.askV2(ctx, node, wanted) })
	} else {
		found, err = ask("Instances", func(ctx context.Context) (*contract.Instance, error) { return b.askV1(ctx, node, wanted) })
	}
	if err != nil {
		var wrong *wrongAnswer
		switch {
		case absent(err):
			return &contract.Instance{State: contract.InstanceState_INSTANCE_STATE_ABSENT}, nil
		case errors.As(err, &wrong):
			return nil, fault("%v", err)
		}
		return nil, b.failure(err)
	}
	return found, nil
}

// wrongAnswer is the error for an answer of the cloud that the contract cannot express, or that contradicts itself.
type wrongAnswer struct{ text string }

func (w *wrongAnswer) Error() string { return w.text }

func wrong(text string) error { return &wrongAnswer{text} }

// askV2 calls the fewest methods that answer the request. Without POWER, InstanceMetadata also shows that the instance exists: the node controller
// refreshes Nodes in this way, as upstream's does. Some clouds, such as AWS, describe an instance for a while after its end, so with POWER
// InstanceExists decides. For a Node without a provider ID InstanceMetadata decides, as upstream, because InstanceExists may need the ID.
func (b *Bridge) askV2(ctx context.Context, node *v1.Node, wanted asked) (*contract.Instance, error) {
	instances := b.parts().instancesV2
	found := &contract.Instance{State: contract.InstanceState_INSTANCE_STATE_PRESENT}
	exists := func() (bool, error) { return instances.InstanceExists(ctx, node.DeepCopy()) }
	named := node.Spec.ProviderID == ""
	if wanted.metadata || named {
		metadata, err := instances.InstanceMetadata(ctx, node.DeepCopy())
		switch {
		case err != nil && !named:
			return b.goneOr(ctx, err, exists)
		case err != nil:
			return nil, err
		case metadata == nil:
			found.State = contract.InstanceState_INSTANCE_STATE_UNMANAGED
			return found, nil
		}
		described := *metadata
		if described.ProviderID == "" {
			described.ProviderID = node.Spec.ProviderID
		}
		if wanted.metadata {
			if err := b.describe(found, &described); err != nil {
				return nil, err
			}
		}
		node = node.DeepCopy()
		node.Spec.ProviderID = described.ProviderID
	}
	if !named && (wanted.power || !wanted.metadata) {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if there, err := exists(); err != nil {
			return nil, err
		} else if !there {
			return &contract.Instance{State: contract.InstanceState_INSTANCE_STATE_ABSENT}, nil
		}
	}
	if wanted.power {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		return found, b.power(found, func() (bool, error) { return instances.InstanceShutdown(ctx, node.DeepCopy()) })
	}
	return found, nil
}

// goneOr returns the answer if the cloud could not describe an instance. It is ABSENT only if the method by which upstream removes Nodes answers so.
// goneOr does not call that method after an error that means that the cloud answers no calls.
func (b *Bridge) goneOr(ctx context.Context, err error, exists func() (bool, error)) (*contract.Instance, error) {
	doubt := "could not be asked"
	if b.answers(ctx, err) {
		there, failed := exists()
		switch {
		case failed == nil && !there, absent(failed):
			return &contract.Instance{State: contract.InstanceState_INSTANCE_STATE_ABSENT}, nil
		case failed == nil:
			doubt = "is answered with yes"
		}
	}
	if absent(err) {
		return nil, wrong("the cloud does not find the instance to describe it, and whether it exists " + doubt + ": " + err.Error())
	}
	return nil, err
}

// answers reports whether the cloud, after this error, may answer another call about the same object.
func (b *Bridge) answers(ctx context.Context, err error) bool {
	if ctx.Err() != nil || retryOf(err) != nil {
		return false
	}
	switch b.failure(err).GetCode() {
	case contract.FailureCode_FAILURE_CODE_THROTTLED, contract.FailureCode_FAILURE_CODE_CREDENTIALS, contract.FailureCode_FAILURE_CODE_UNAVAILABLE:
		return false
	default:
		return true
	}
}

// power sets RUNNING or STOPPED for an instance that exists.
func (b *Bridge) power(found *contract.Instance, shutdown func() (bool, error)) error {
	off, err := shutdown()
	switch {
	case errors.Is(err, cloudprovider.NotImplemented):
		// The instance exists; whether it runs is not known.
		return nil
	case err != nil && absent(err):
		return wrong("the cloud shows the instance, and InstanceShutdown says that it does not exist: " + err.Error())
	case err != nil:
		return err
	case off:
		found.State = contract.InstanceState_INSTANCE_STATE_STOPPED
	default:
		found.State = contract.InstanceState_INSTANCE_STATE_RUNNING
	}
	return nil
}

func (b *Bridge) owns(providerID string) bool {
	return slices.ContainsFunc(b.options.ProviderIDPrefixes, func(prefix string) bool { return strings.HasPrefix(providerID, prefix) })
}

// describe copies the metadata of an instance, without values that the contract cannot express.
func (b *Bridge) describe(found *contract.Instance, metadata *cloudprovider.InstanceMetadata) error {
	if metadata.ProviderID == "" {
		return wrong("the cloud named no provider ID for an instance that exists (INST-7)")
	}
	if !b.owns(metadata.ProviderID) {
		return wrong("the provider ID " + metadata.ProviderID + " begins with none of the prefixes " + strings.Join(b.options.ProviderIDPrefixes, ", ") + ": see --provider-id-prefix")
	}
	for _, field := range []struct {
		what, value string
		most        int
	}{
		{"the provider ID", metadata.ProviderID, idBytes},
	} {
		if err := fits(field.what, field.value, field.most); err != nil {
			return wrong(err.Error())
		}
	}
	leftOut := func(what, value string, why ...string) {
		klog.InfoS("A fact of an instance has no form in the contract and is left out (INST-15)", "instance", metadata.ProviderID, "fact", what, "value", value, "reason", strings.Join(why, "; "))
	}
	fact := func(what, value string) *string { return labelValue(what, value, leftOut) }
	labels := map[string]string{}
	for key, value := range metadata.AdditionalLabels {
		// The controller drops invalid labels, with an event (INST-12).
		if err := errors.Join(fits("a label's key", key, 2*nameBytes), fits("the label "+key, value, nameBytes)); err != nil {
			leftOut("label "+key, value, err.Error())
			continue
		}
		labels[key] = value
	}
	found.ProviderId = new(metadata.ProviderID)
	found.InstanceType = fact("instance type", metadata.InstanceType)
	found.Zone = fact("zone", metadata.Zone)
	found.Region = fact("region", metadata.Region)
	found.Labels = labels
	found.Addresses = addressViews(metadata.NodeAddresses, leftOut)
	return nil
}

// labelValue returns nil for a fact that is empty. It also returns nil for a fact that is no label value, and calls leftOut for it.
func labelValue(what, value string, leftOut func(what, value string, why ...string)) *string {
	if why := validation.IsValidLabelValue(value); len(why) > 0 {
		leftOut(what, value, why...)
		return nil
	}
	return filled(value)
}

// ListInstances lists the instances of a cloud with an InstanceLister.
func (b *Bridge) ListInstances(request *contract.ListInstancesRequest, stream contract.InstanceService_ListInstancesServer) error {
	failed := func(failure *contract.Failure) error {
		return stream.Send(&contract.ListInstancesResponse{Part: &contract.ListInstancesResponse_Failed{Failed: failure}})
	}
	owner, failure := b.admit(request.GetCluster())
	if failure != nil {
		return failed(failure)
	}
	if b.parts().lister == nil {
		return failed(notOffered("ListInstances"))
	}
	ctx := withOwner(stream.Context(), owner)
	listed, err := ask(ctx, b, b.instances, "ListInstances", sdk.BudgetOf(ctx), nil, b.parts().lister.ListInstances)
	if err != nil {
		return failed(b.failure(err))
	}
	views := make([]*contract.Instance, 0, len(listed))
	for _, one := range listed {
		view := &contract.Instance{State: one.State}
		switch one.State {
		case contract.InstanceState_INSTANCE_STATE_PRESENT, contract.InstanceState_INSTANCE_STATE_RUNNING, contract.InstanceState_INSTANCE_STATE_STOPPED:
		default:
			return failed(fault("ListInstances gave %q the state %s", one.ProviderID, one.State))
		}
		if err := b.describe(view, &one.InstanceMetadata); err != nil {
			return failed(fault("%v", err))
		}
		views = append(views, view)
	}
	for page := range slices.Chunk(views, pageItems) {
		part := &contract.ListInstancesResponse{Part: &contract.ListInstancesResponse_Instances{Instances: &contract.InstanceList{Instances: page}}}
		if err := stream.Send(part); err != nil {
			return err
		}
	}
	return stream.Send(&contract.ListInstancesResponse{Part: &contract.ListInstancesResponse_End{End: &contract.ListEnd{Total: uint64(len(views))}}})
}

// pageItems are the most items in one part of a listing.
const pageItems = 500

func notOffered(rpc string) *contract.Failure {
	return fail(contract.FailureCode_FAILURE_CODE_INTERNAL, "NotOffered", "this provider does not offer %s; its capabilities say so", rpc)
}

// LookupZones calls Go's Zones. The bridge offers zones for clouds without InstancesV2, or if Options.Offers names them.
func (b *Bridge) LookupZones(ctx context.Context, request *contract.LookupZonesRequest) (*contract.LookupZonesResponse, error) {
	owner, failure := b.admit(request.GetCluster())
	if failure == nil {
		failure = b.checkNodes(request.GetNodes())
	}
	if failure != nil {
		return &contract.LookupZonesResponse{Failed: failure}, nil
	}
	within := sdk.BudgetOf(ctx)
	nodes := b.known(ctx, request.GetNodes())
	results := make([]*contract.LookupZoneResult, len(nodes))
	fanOut(len(nodes), func(index int) {
		node := nodes[index]
		result := &contract.LookupZoneResult{NodeName: node.Name, NodeUid: string(node.UID)}
		zone, failure := b.zone(withOwner(ctx, owner), within, node)
		if failure != nil {
			result.Outcome = &contract.LookupZoneResult_Failed{Failed: failure}
		} else {
			result.Outcome = &contract.LookupZoneResult_Zone{Zone: zone}
		}
		results[index] = result
	})
	return &contract.LookupZonesResponse{Results: results}, nil
}

func (b *Bridge) zone(ctx context.Context, within sdk.Budget, node *v1.Node) (*contract.Zone, *contract.Failure) {
	if node.Spec.ProviderID != "" && !b.owns(node.Spec.ProviderID) {
		return nil, invalid("the provider ID %q is not this cloud's", node.Spec.ProviderID)
	}
	zone, err := ask(ctx, b, b.instances, "Zones", within, nil, func(ctx context.Context) (cloudprovider.Zone, error) { return b.askZone(ctx, node) })
	if err != nil {
		return nil, b.failure(err)
	}
	leftOut := func(what, value string, why ...string) {
		klog.InfoS("A fact of a Node has no form in the contract and is left out (ZONE-2)", "node", node.Name, "fact", what, "value", value, "reason", strings.Join(why, "; "))
	}
	return &contract.Zone{Zone: labelValue("zone", zone.FailureDomain, leftOut), Region: labelValue("region", zone.Region, leftOut)}, nil
}
