package main

import (
	"context"
	"io"
	"net"
	"strings"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/cloud-provider/fake"

	"example.invalid/providers/go/bridge/shapes/store"
)

// Upstream's fake is filled with a hundred instances. It has one answer for all of them to whether they exist: that one method asks the file, where one is configured, so
// that a single one can go. Everything else is the fake.
func init() {
	cloudprovider.RegisterCloudProvider("fake", func(config io.Reader) (cloudprovider.Interface, error) {
		cloud := &fakeCloud{Cloud: &fake.Cloud{
			EnableInstancesV2:  true,
			ExistsByProviderID: true,
			Exists:             true,
			ProviderID:         map[types.NodeName]string{},
			InstanceTypes:      map[types.NodeName]string{},
			Addresses:          []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: "10.0.0.1"}},
			ExternalIP:         net.IPv4(203, 0, 113, 1),
			ClusterList:        []string{"one", "two"},
			MasterName:         "control-plane.example",
			RouteMap:           map[string]*fake.Route{},
			Zone:               cloudprovider.Zone{FailureDomain: "one-a", Region: "one"},
			VolumeLabelMap:     map[string]map[string]string{"volume-1": {"topology.kubernetes.io/zone": "one-a"}},
		}}
		cloud.OverrideInstanceMetadata = cloud.metadata
		if config != nil {
			path, err := io.ReadAll(config)
			if err != nil {
				return nil, err
			}
			cloud.instances = store.At(strings.TrimSpace(string(path)))
		}
		return cloud, nil
	})
}

type fakeCloud struct {
	*fake.Cloud
	instances *store.Store
	mu        sync.Mutex
}

// InstanceExists is false for what is not in the file.
func (f *fakeCloud) InstanceExists(ctx context.Context, node *v1.Node) (bool, error) {
	exists, err := f.Cloud.InstanceExists(ctx, node)
	if err != nil || f.instances == nil {
		return exists, err
	}
	err = f.instances.Read(ctx, func(state *store.State) error {
		exists = state.Instances[node.Name] != nil
		return nil
	})
	return exists, err
}

// InstancesV2 is this cloud, not the fake inside of it.
func (f *fakeCloud) InstancesV2() (cloudprovider.InstancesV2, bool) { return f, true }

// metadata names every Node's instance after it: the fake would want a table of them.
func (f *fakeCloud) metadata(ctx context.Context, node *v1.Node) (*cloudprovider.InstanceMetadata, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	exists, err := f.InstanceExists(ctx, node)
	switch {
	case err != nil:
		return nil, err
	case !exists:
		return nil, cloudprovider.InstanceNotFound
	}
	return &cloudprovider.InstanceMetadata{
		ProviderID: "fake://" + node.Name, InstanceType: "standard-2", NodeAddresses: f.Addresses, Zone: f.Zone.FailureDomain, Region: f.Zone.Region,
	}, nil
}
