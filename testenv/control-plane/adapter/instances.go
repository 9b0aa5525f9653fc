package adapter

import (
	"context"
	"fmt"

	"google.golang.org/grpc"
	v1 "k8s.io/api/core/v1"
	cloudprovider "k8s.io/cloud-provider"

	"github.com/grpc-ccm/grpc-ccm/providers/go/contract"
)

var _ cloudprovider.InstancesV2 = (*Cloud)(nil)

// InstanceExists is false only for ABSENT, because the framework then deletes the Node. In doubt it
// returns an error.
func (c *Cloud) InstanceExists(ctx context.Context, node *v1.Node) (bool, error) {
	instance, err := c.lookup(ctx, node, contract.InstanceFacet_INSTANCE_FACET_EXISTENCE)
	if err != nil {
		return false, err
	}
	return instance.GetState() != contract.InstanceState_INSTANCE_STATE_ABSENT, nil
}

// InstanceShutdown is true for STOPPED. It makes no call if the provider does not distinguish
// running from stopped.
func (c *Cloud) InstanceShutdown(ctx context.Context, node *v1.Node) (bool, error) {
	if !c.info.GetCapabilities().GetInstances().GetPowerState() {
		return false, nil
	}
	instance, err := c.lookup(ctx, node, contract.InstanceFacet_INSTANCE_FACET_POWER)
	if err != nil {
		return false, err
	}
	return instance.GetState() == contract.InstanceState_INSTANCE_STATE_STOPPED, nil
}

// InstanceMetadata is nil if the instance is not this cloud's: the framework then leaves the Node
// alone.
func (c *Cloud) InstanceMetadata(ctx context.Context, node *v1.Node) (*cloudprovider.InstanceMetadata, error) {
	instance, err := c.lookup(ctx, node, contract.InstanceFacet_INSTANCE_FACET_METADATA)
	if err != nil {
		return nil, err
	}
	switch instance.GetState() {
	case contract.InstanceState_INSTANCE_STATE_ABSENT:
		return nil, cloudprovider.InstanceNotFound
	case contract.InstanceState_INSTANCE_STATE_UNMANAGED:
		return nil, nil
	case contract.InstanceState_INSTANCE_STATE_PENDING:
		return nil, fmt.Errorf("the cloud does not show the instance of node %q yet", node.Name)
	}
	addresses, err := nodeAddresses(instance.GetAddresses())
	if err != nil {
		return nil, err
	}
	metadata := &cloudprovider.InstanceMetadata{
		ProviderID:       instance.GetProviderId(),
		InstanceType:     instance.GetInstanceType(),
		NodeAddresses:    addresses,
		Zone:             instance.GetZone(),
		Region:           instance.GetRegion(),
		AdditionalLabels: instance.GetLabels(),
	}
	if (metadata.Zone == "" || metadata.Region == "") && c.info.GetCapabilities().GetZones() != nil {
		return metadata, c.addZone(ctx, node, metadata)
	}
	return metadata, nil
}

// lookup asks the provider about one Node. For a Node with another cloud's provider ID it returns
// UNMANAGED without a call.
func (c *Cloud) lookup(ctx context.Context, node *v1.Node, facet contract.InstanceFacet) (*contract.Instance, error) {
	if node.Spec.ProviderID != "" && !c.owns(node) {
		return &contract.Instance{State: contract.InstanceState_INSTANCE_STATE_UNMANAGED}, nil
	}
	client := contract.NewInstanceServiceClient(c.session.connection)
	answer, err := call(ctx, c.session, c.lookups(),
		func(ctx context.Context, cluster *contract.ClusterRef, options ...grpc.CallOption) (*contract.LookupInstancesResponse, error) {
			return client.LookupInstances(ctx, &contract.LookupInstancesRequest{
				Cluster: cluster,
				Nodes:   []*contract.NodeView{c.nodeView(node)},
				Facets:  []contract.InstanceFacet{facet},
			}, options...)
		},
		func(answer *contract.LookupInstancesResponse) *contract.Failure {
			if failed := answer.GetFailed(); failed != nil {
				return failed
			}
			return onlyResult(answer.GetResults(), node).GetFailed()
		})
	if err != nil {
		return nil, err
	}
	found := onlyResult(answer.GetResults(), node).GetFound()
	switch found.GetState() {
	case contract.InstanceState_INSTANCE_STATE_PRESENT,
		contract.InstanceState_INSTANCE_STATE_RUNNING,
		contract.InstanceState_INSTANCE_STATE_STOPPED,
		contract.InstanceState_INSTANCE_STATE_ABSENT,
		contract.InstanceState_INSTANCE_STATE_PENDING,
		contract.InstanceState_INSTANCE_STATE_UNMANAGED:
		return found, nil
	default:
		return nil, fmt.Errorf("node %q: %w", node.Name, errUnset)
	}
}

func (c *Cloud) lookups() kind {
	return kind{c.instances, lookupDeadline, (*contract.DeadlineHints).GetLookup}
}

// named is a result with the name and the UID of its Node.
type named interface {
	comparable
	GetNodeName() string
	GetNodeUid() string
}

// onlyResult returns the one result for the Node. If there is none, or more than one, it returns
// the zero value, which has no outcome.
func onlyResult[Result named](results []Result, node *v1.Node) Result {
	var found, none Result
	for _, result := range results {
		if result.GetNodeName() == node.Name && result.GetNodeUid() == string(node.UID) {
			if found != none {
				return none
			}
			found = result
		}
	}
	return found
}

// addZone looks up the Node's zone and region, and fills in those that the metadata lack.
func (c *Cloud) addZone(ctx context.Context, node *v1.Node, metadata *cloudprovider.InstanceMetadata) error {
	client := contract.NewZoneServiceClient(c.session.connection)
	answer, err := call(ctx, c.session, c.lookups(),
		func(ctx context.Context, cluster *contract.ClusterRef, options ...grpc.CallOption) (*contract.LookupZonesResponse, error) {
			return client.LookupZones(ctx, &contract.LookupZonesRequest{Cluster: cluster, Nodes: []*contract.NodeView{c.nodeView(node)}}, options...)
		},
		func(answer *contract.LookupZonesResponse) *contract.Failure {
			if failed := answer.GetFailed(); failed != nil {
				return failed
			}
			return onlyResult(answer.GetResults(), node).GetFailed()
		})
	if err != nil {
		return err
	}
	zone := onlyResult(answer.GetResults(), node).GetZone()
	if zone == nil {
		return fmt.Errorf("zone of node %q: %w", node.Name, errUnset)
	}
	if metadata.Zone == "" {
		metadata.Zone = zone.GetZone()
	}
	if metadata.Region == "" {
		metadata.Region = zone.GetRegion()
	}
	return nil
}
