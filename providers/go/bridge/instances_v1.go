package bridge

import (
	"context"
	"errors"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	cloudprovider "k8s.io/cloud-provider"

	"github.com/grpc-ccm/grpc-ccm/providers/go/contract"
)

// askV1 calls the older interface: by the provider ID if the Node has one (INST-3), else by the Node's name.
func (b *Bridge) askV1(ctx context.Context, node *v1.Node, wanted asked) (*contract.Instance, error) {
	found := &contract.Instance{State: contract.InstanceState_INSTANCE_STATE_PRESENT}
	given := node.Spec.ProviderID != ""
	exists := func() (bool, error) { return b.parts().instances.InstanceExistsByProviderID(ctx, node.Spec.ProviderID) }
	id := node.Spec.ProviderID
	if !given {
		var err error
		if id, err = b.identityV1(ctx, node); err != nil {
			return nil, err
		}
	}
	switch {
	case wanted.metadata:
		metadata, err := b.metadataV1(ctx, node, id, wanted.refresh)
		switch {
		case err != nil && given:
			return b.goneOr(ctx, err, exists)
		case absent(err):
			return nil, wrong("the cloud shows the instance, and then says that it does not exist: " + err.Error())
		case err != nil:
			return nil, err
		}
		if err := b.describe(found, metadata); err != nil {
			return nil, err
		}
	case given:
		there, err := exists()
		if err != nil {
			return nil, err
		}
		if !there {
			found.State = contract.InstanceState_INSTANCE_STATE_ABSENT
			return found, nil
		}
	}
	if wanted.power {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		return found, b.power(found, func() (bool, error) { return b.parts().instances.InstanceShutdownByProviderID(ctx, id) })
	}
	return found, nil
}

// identityV1 returns the provider ID of the instance of a Node that has none yet.
func (b *Bridge) identityV1(ctx context.Context, node *v1.Node) (string, error) {
	id, err := b.parts().instances.InstanceID(ctx, types.NodeName(node.Name))
	if err != nil {
		return "", err
	}
	if id == "" {
		return "", wrong("InstanceID answered an empty ID for node " + node.Name)
	}
	// Upstream too makes a provider ID of the result of InstanceID.
	if !strings.HasPrefix(id, b.name+"://") {
		id = b.name + "://" + id
	}
	return id, nil
}

// metadataV1 combines the answers of the older interface's methods. It asks by name only if a method by provider ID is not implemented, because
// another instance may have this name. At a refresh it leaves the type out until the next request for the type is due.
func (b *Bridge) metadataV1(ctx context.Context, node *v1.Node, id string, refresh bool) (*cloudprovider.InstanceMetadata, error) {
	instances, name := b.parts().instances, types.NodeName(node.Name)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	addresses, err := instances.NodeAddressesByProviderID(ctx, id)
	if errors.Is(err, cloudprovider.NotImplemented) {
		addresses, err = instances.NodeAddresses(ctx, name)
	}
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if refresh && b.types.rests(node) {
		return &cloudprovider.InstanceMetadata{ProviderID: id, NodeAddresses: addresses}, nil
	}
	kind, err := instances.InstanceTypeByProviderID(ctx, id)
	if errors.Is(err, cloudprovider.NotImplemented) {
		kind, err = instances.InstanceType(ctx, name)
		if absent(err) {
			// The cloud knows the instance by its ID, but not by this name: its type stays unknown.
			err = nil
		}
	}
	if err != nil && !errors.Is(err, cloudprovider.NotImplemented) {
		return nil, err
	}
	b.types.told(node)
	return &cloudprovider.InstanceMetadata{ProviderID: id, InstanceType: kind, NodeAddresses: addresses}, nil
}

// askZone asks for the zone of a Node. It returns no zone if the Node already shows one and the next request is not due: the Node then keeps its zone.
func (b *Bridge) askZone(ctx context.Context, node *v1.Node) (zone cloudprovider.Zone, err error) {
	if b.placed.rests(node) {
		return cloudprovider.Zone{}, nil
	}
	defer func() {
		if err == nil {
			b.placed.told(node)
		}
	}()
	if node.Spec.ProviderID != "" {
		zone, err := b.parts().zones.GetZoneByProviderID(ctx, node.Spec.ProviderID)
		if !errors.Is(err, cloudprovider.NotImplemented) {
			return zone, err
		}
	}
	return b.parts().zones.GetZoneByNodeName(ctx, types.NodeName(node.Name))
}
