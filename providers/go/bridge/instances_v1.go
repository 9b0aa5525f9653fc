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

// askV1 asks the older interface: by the provider ID where the Node has one (INST-3), else by the Node's name.
func (b *Bridge) askV1(ctx context.Context, node *v1.Node, wanted asked) (*contract.Instance, error) {
	found := &contract.Instance{State: contract.InstanceState_INSTANCE_STATE_PRESENT}
	id, existed, err := b.identityV1(ctx, node, wanted.existence)
	if err != nil {
		return nil, err
	}
	if !existed {
		found.State = contract.InstanceState_INSTANCE_STATE_ABSENT
		return found, nil
	}
	known := wanted.existence || node.Spec.ProviderID == ""
	if wanted.metadata {
		metadata, err := b.metadataV1(ctx, node, id)
		switch {
		case err != nil && known && absent(err):
			return nil, wrong("the cloud shows the instance, and then says that it does not exist: " + err.Error())
		case err != nil:
			return nil, err
		}
		known = true
		if err := b.describe(found, metadata); err != nil {
			return nil, err
		}
	}
	if wanted.power {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		return found, b.power(found, known, func() (bool, error) { return b.parts().instances.InstanceShutdownByProviderID(ctx, id) })
	}
	return found, nil
}

// identityV1 is the provider ID of a Node's instance, and whether there is one. Where the Node has an ID the cloud is asked only if existence is wanted.
func (b *Bridge) identityV1(ctx context.Context, node *v1.Node, existence bool) (id string, exists bool, err error) {
	if id := node.Spec.ProviderID; id != "" {
		if !existence {
			return id, true, nil
		}
		exists, err := b.parts().instances.InstanceExistsByProviderID(ctx, id)
		return id, exists, err
	}
	id, err = b.parts().instances.InstanceID(ctx, types.NodeName(node.Name))
	if err != nil {
		return "", false, err
	}
	if id == "" {
		return "", false, wrong("InstanceID answered an empty ID for node " + node.Name)
	}
	// As upstream makes a provider ID of what InstanceID answers.
	if !strings.HasPrefix(id, b.name+"://") {
		id = b.name + "://" + id
	}
	return id, true, nil
}

// metadataV1 puts together what the older interface tells one by one. What it does not implement by provider ID is asked by name; nothing else is: another instance may
// have this name.
func (b *Bridge) metadataV1(ctx context.Context, node *v1.Node, id string) (*cloudprovider.InstanceMetadata, error) {
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
	kind, err := instances.InstanceTypeByProviderID(ctx, id)
	if errors.Is(err, cloudprovider.NotImplemented) {
		kind, err = instances.InstanceType(ctx, name)
		if absent(err) {
			// The cloud knows the instance by its ID and not by this name: its type stays unknown.
			err = nil
		}
	}
	if err != nil && !errors.Is(err, cloudprovider.NotImplemented) {
		return nil, err
	}
	return &cloudprovider.InstanceMetadata{ProviderID: id, InstanceType: kind, NodeAddresses: addresses}, nil
}

func (b *Bridge) askZone(ctx context.Context, node *v1.Node) (cloudprovider.Zone, error) {
	if node.Spec.ProviderID != "" {
		zone, err := b.parts().zones.GetZoneByProviderID(ctx, node.Spec.ProviderID)
		if !errors.Is(err, cloudprovider.NotImplemented) {
			return zone, err
		}
	}
	return b.parts().zones.GetZoneByNodeName(ctx, types.NodeName(node.Name))
}
