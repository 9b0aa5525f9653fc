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

	"github.com/grpc-ccm/grpc-ccm/providers/go/bridge/shapes/store"
)

// The CSI driver of the fake's one volume.
const fakeDriver = "disk.fake.example"

// Upstream's fake has one answer for the existence of all instances, and cannot fail for one of them alone. So the answers about instances come from
// a file, if one is configured. The rest is the fake, which only records calls: its one load balancer always exists, and its routes do not outlive
// the process.
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
			cloud.file = store.At(strings.TrimSpace(string(path)))
		}
		return cloud, nil
	})
}

type fakeCloud struct {
	*fake.Cloud
	// nil if no file is configured.
	file *store.Store
	mu   sync.Mutex
}

// These methods return the type with the file, not the embedded fake.
func (f *fakeCloud) InstancesV2() (cloudprovider.InstancesV2, bool)   { return f, true }
func (f *fakeCloud) LoadBalancer() (cloudprovider.LoadBalancer, bool) { return f, true }
func (f *fakeCloud) Routes() (cloudprovider.Routes, bool)             { return f, true }
func (f *fakeCloud) Clusters() (cloudprovider.Clusters, bool)         { return f, true }

// reads is one operation of the cloud's API, with the delay and the failure of the file.
func (f *fakeCloud) reads(ctx context.Context) error {
	if f.file == nil {
		return nil
	}
	return f.file.Read(ctx, "GET", func(*store.State) error { return nil })
}

// writes is such an operation too, and counts as a write.
func (f *fakeCloud) writes(ctx context.Context) error {
	if f.file == nil {
		return nil
	}
	return f.file.Write(ctx, "PUT", func(*store.State) (bool, error) { return true, nil })
}

// instance returns the file's instance of a Node, by its provider ID or else by its name.
func (f *fakeCloud) instance(ctx context.Context, node *v1.Node) (name string, found *store.Instance, err error) {
	if f.file == nil {
		return node.Name, &store.Instance{}, nil
	}
	err = f.file.Read(ctx, "GET", func(state *store.State) error {
		if id := strings.TrimPrefix(node.Spec.ProviderID, "fake://"); id != "" {
			name, found = id, state.Instances[id]
		} else {
			name, found = node.Name, state.Instances[node.Name]
		}
		return nil
	})
	return name, found, err
}

// InstanceExists returns false for an instance that the file lacks.
func (f *fakeCloud) InstanceExists(ctx context.Context, node *v1.Node) (bool, error) {
	_, found, err := f.instance(ctx, node)
	if err != nil || found == nil {
		return false, err
	}
	return f.Cloud.InstanceExists(ctx, node)
}

// InstanceShutdown returns true for an instance that is off in the file.
func (f *fakeCloud) InstanceShutdown(ctx context.Context, node *v1.Node) (bool, error) {
	_, found, err := f.instance(ctx, node)
	switch {
	case err != nil:
		return false, err
	case found == nil:
		return false, cloudprovider.InstanceNotFound
	case found.Stopped:
		return true, nil
	}
	return f.Cloud.InstanceShutdown(ctx, node)
}

// metadata names each instance after its Node: the fake itself would need a table.
func (f *fakeCloud) metadata(ctx context.Context, node *v1.Node) (*cloudprovider.InstanceMetadata, error) {
	name, found, err := f.instance(ctx, node)
	switch {
	case err != nil:
		return nil, err
	case found == nil:
		return nil, cloudprovider.InstanceNotFound
	}
	return &cloudprovider.InstanceMetadata{
		ProviderID: "fake://" + name, InstanceType: "standard-2", NodeAddresses: f.Addresses, Zone: f.Zone.FailureDomain, Region: f.Zone.Region,
	}, nil
}

func (f *fakeCloud) GetLoadBalancer(ctx context.Context, cluster string, service *v1.Service) (*v1.LoadBalancerStatus, bool, error) {
	if err := f.reads(ctx); err != nil {
		return nil, false, err
	}
	return f.Cloud.GetLoadBalancer(ctx, cluster, service)
}

func (f *fakeCloud) EnsureLoadBalancer(ctx context.Context, cluster string, service *v1.Service, nodes []*v1.Node) (*v1.LoadBalancerStatus, error) {
	if err := f.writes(ctx); err != nil {
		return nil, err
	}
	// The fake fills a map without a lock.
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.Cloud.EnsureLoadBalancer(ctx, cluster, service, nodes)
}

func (f *fakeCloud) UpdateLoadBalancer(ctx context.Context, cluster string, service *v1.Service, nodes []*v1.Node) error {
	if err := f.writes(ctx); err != nil {
		return err
	}
	return f.Cloud.UpdateLoadBalancer(ctx, cluster, service, nodes)
}

func (f *fakeCloud) EnsureLoadBalancerDeleted(ctx context.Context, cluster string, service *v1.Service) error {
	if err := f.writes(ctx); err != nil {
		return err
	}
	return f.Cloud.EnsureLoadBalancerDeleted(ctx, cluster, service)
}

func (f *fakeCloud) ListRoutes(ctx context.Context, cluster string) ([]*cloudprovider.Route, error) {
	if err := f.reads(ctx); err != nil {
		return nil, err
	}
	routes, err := f.Cloud.ListRoutes(ctx, cluster)
	if err != nil || f.file == nil {
		return routes, err
	}
	return routes, f.file.Read(ctx, "GET", func(state *store.State) error {
		for _, route := range routes {
			route.Blackhole = state.Instances[string(route.TargetNode)] == nil
		}
		return nil
	})
}

func (f *fakeCloud) CreateRoute(ctx context.Context, cluster, hint string, route *cloudprovider.Route) error {
	if err := f.writes(ctx); err != nil {
		return err
	}
	return f.Cloud.CreateRoute(ctx, cluster, hint, route)
}

func (f *fakeCloud) DeleteRoute(ctx context.Context, cluster string, route *cloudprovider.Route) error {
	if err := f.writes(ctx); err != nil {
		return err
	}
	return f.Cloud.DeleteRoute(ctx, cluster, route)
}

func (f *fakeCloud) ListClusters(ctx context.Context) ([]string, error) {
	if err := f.reads(ctx); err != nil {
		return nil, err
	}
	return f.Cloud.ListClusters(ctx)
}

func (f *fakeCloud) Master(ctx context.Context, name string) (string, error) {
	if err := f.reads(ctx); err != nil {
		return "", err
	}
	return f.Cloud.Master(ctx, name)
}

// GetLabelsForVolume asks the fake with the volume's handle as the name, because the fake finds volumes by the names of PersistentVolumes.
func (f *fakeCloud) GetLabelsForVolume(ctx context.Context, volume *v1.PersistentVolume) (map[string]string, error) {
	if err := f.reads(ctx); err != nil {
		return nil, err
	}
	if source := volume.Spec.CSI; source != nil {
		volume = volume.DeepCopy()
		volume.Name = source.VolumeHandle
	}
	return f.Cloud.GetLabelsForVolume(ctx, volume)
}
