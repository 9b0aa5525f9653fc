package main

import (
	"context"
	"fmt"
	"hash/fnv"
	"io"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	cloudprovider "k8s.io/cloud-provider"
)

// cloudName is the bench cloud's value of --cloud-provider.
const cloudName = "bench"

// benchCloud is a cloud in memory in which every node has a machine of the same name. A machine
// runs unless the file of machines has another state.
type benchCloud struct {
	calls    *callCounter
	machines machinesFile

	mu        sync.Mutex
	balancers map[types.UID]*v1.LoadBalancerStatus
	routes    map[string]cloudprovider.Route
}

var (
	_ cloudprovider.Interface    = (*benchCloud)(nil)
	_ cloudprovider.InstancesV2  = (*benchCloud)(nil)
	_ cloudprovider.LoadBalancer = (*benchCloud)(nil)
)

// registerBenchCloud registers the cloud under its name, as a vendor's package would.
func registerBenchCloud(calls *callCounter, machines machinesFile) {
	cloud := &benchCloud{
		calls:     calls,
		machines:  machines,
		balancers: map[types.UID]*v1.LoadBalancerStatus{},
		routes:    map[string]cloudprovider.Route{},
	}
	cloudprovider.RegisterCloudProvider(cloudName, func(io.Reader) (cloudprovider.Interface, error) {
		return cloud, nil
	})
}

// Initialize needs nothing.
func (b *benchCloud) Initialize(cloudprovider.ControllerClientBuilder, <-chan struct{}) {}

// ProviderName is the name that --cloud-provider takes.
func (b *benchCloud) ProviderName() string { return cloudName }

// HasClusterID is true, so upstream does not need --allow-untagged-cloud.
func (b *benchCloud) HasClusterID() bool { return true }

// LoadBalancer is supported.
func (b *benchCloud) LoadBalancer() (cloudprovider.LoadBalancer, bool) { return b, true }

// InstancesV2 is supported.
func (b *benchCloud) InstancesV2() (cloudprovider.InstancesV2, bool) { return b, true }

// Instances is the older interface, which InstancesV2 replaces.
func (b *benchCloud) Instances() (cloudprovider.Instances, bool) { return nil, false }

// Zones is the older interface, which InstancesV2 replaces.
func (b *benchCloud) Zones() (cloudprovider.Zones, bool) { return nil, false }

// Clusters is not supported.
func (b *benchCloud) Clusters() (cloudprovider.Clusters, bool) { return nil, false }

// InstanceExists is true unless the machine is gone.
func (b *benchCloud) InstanceExists(ctx context.Context, node *v1.Node) (bool, error) {
	if err := b.calls.call(ctx, "InstanceExists"); err != nil {
		return false, err
	}
	state, err := b.machines.state(node.Name)
	return state != machineGone, err
}

// InstanceShutdown is false unless the machine is stopped.
func (b *benchCloud) InstanceShutdown(ctx context.Context, node *v1.Node) (bool, error) {
	if err := b.calls.call(ctx, "InstanceShutdown"); err != nil {
		return false, err
	}
	state, err := b.machines.state(node.Name)
	return state == machineStopped, err
}

// InstanceMetadata makes up a machine from the node's name, always the same one.
func (b *benchCloud) InstanceMetadata(ctx context.Context, node *v1.Node) (*cloudprovider.InstanceMetadata, error) {
	if err := b.calls.call(ctx, "InstanceMetadata"); err != nil {
		return nil, err
	}
	return &cloudprovider.InstanceMetadata{
		ProviderID:   cloudName + "://" + node.Name,
		InstanceType: "bench.small",
		NodeAddresses: []v1.NodeAddress{
			{Type: v1.NodeHostName, Address: node.Name},
			{Type: v1.NodeInternalIP, Address: address(10, node.Name)},
		},
		Zone:   "bench-1a",
		Region: "bench-1",
	}, nil
}

// GetLoadBalancer returns the load balancer of an earlier EnsureLoadBalancer.
func (b *benchCloud) GetLoadBalancer(ctx context.Context, _ string, service *v1.Service) (*v1.LoadBalancerStatus, bool, error) {
	if err := b.calls.call(ctx, "GetLoadBalancer"); err != nil {
		return nil, false, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	status, exists := b.balancers[service.UID]
	return status.DeepCopy(), exists, nil
}

// GetLoadBalancerName is upstream's default name; it is no call of the cloud.
func (b *benchCloud) GetLoadBalancerName(_ context.Context, _ string, service *v1.Service) string {
	return cloudprovider.DefaultLoadBalancerName(service)
}

// EnsureLoadBalancer gives the service an address made from its UID.
func (b *benchCloud) EnsureLoadBalancer(ctx context.Context, _ string, service *v1.Service, _ []*v1.Node) (*v1.LoadBalancerStatus, error) {
	if err := b.calls.call(ctx, "EnsureLoadBalancer"); err != nil {
		return nil, err
	}
	status := &v1.LoadBalancerStatus{Ingress: []v1.LoadBalancerIngress{{IP: address(203, string(service.UID))}}}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.balancers[service.UID] = status
	return status.DeepCopy(), nil
}

// UpdateLoadBalancer takes any set of nodes.
func (b *benchCloud) UpdateLoadBalancer(ctx context.Context, _ string, _ *v1.Service, _ []*v1.Node) error {
	return b.calls.call(ctx, "UpdateLoadBalancer")
}

// EnsureLoadBalancerDeleted forgets the service.
func (b *benchCloud) EnsureLoadBalancerDeleted(ctx context.Context, _ string, service *v1.Service) error {
	if err := b.calls.call(ctx, "EnsureLoadBalancerDeleted"); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.balancers, service.UID)
	return nil
}

// address returns an IPv4 address that begins with first. The other bytes are a hash of name.
func address(first byte, name string) string {
	hash := fnv.New32a()
	_, _ = io.WriteString(hash, name)
	sum := hash.Sum32()
	return fmt.Sprintf("%d.%d.%d.%d", first, byte(sum>>16), byte(sum>>8), byte(sum))
}
