// Package instancesv1 is a cloud of the older shape: Instances and Zones by provider ID and by name, load balancers by name, no routes and no clusters. It
// reads nothing from Kubernetes. A vendor would write the code so: it does not know the bridge.
package instancesv1

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	cloudprovider "k8s.io/cloud-provider"

	"github.com/grpc-ccm/grpc-ccm/providers/go/bridge/shapes/store"
)

// Name is what --cloud-provider takes.
const Name = "instancesv1"

const scheme = Name + "://"

// Cloud is the cloud.
type Cloud struct{ store *store.Store }

func init() {
	store.Register(Name, func(settings store.File) cloudprovider.Interface { return &Cloud{store.At(settings.State)} })
}

func (c *Cloud) Initialize(cloudprovider.ControllerClientBuilder, <-chan struct{}) {}
func (c *Cloud) LoadBalancer() (cloudprovider.LoadBalancer, bool)                  { return c, true }
func (c *Cloud) Instances() (cloudprovider.Instances, bool)                        { return c, true }
func (c *Cloud) InstancesV2() (cloudprovider.InstancesV2, bool)                    { return nil, false }
func (c *Cloud) Zones() (cloudprovider.Zones, bool)                                { return c, true }
func (c *Cloud) Clusters() (cloudprovider.Clusters, bool)                          { return nil, false }
func (c *Cloud) Routes() (cloudprovider.Routes, bool)                              { return nil, false }
func (c *Cloud) ProviderName() string                                              { return Name }
func (c *Cloud) HasClusterID() bool                                                { return true }

// find finds an instance by its provider ID, else by its name. If there is none, it returns a wrapped InstanceNotFound. Only InstanceExistsByProviderID
// turns this error into an answer.
func (c *Cloud) find(ctx context.Context, providerID string, name types.NodeName) (*store.Instance, error) {
	var found *store.Instance
	err := c.store.Read(ctx, "GET /hosts", func(state *store.State) error {
		if providerID == "" {
			found = state.Instances[string(name)]
		} else {
			_, found = state.ByID(strings.TrimPrefix(providerID, scheme))
		}
		return nil
	})
	switch {
	case err != nil:
		return nil, fmt.Errorf("cannot find the host: %w", err)
	case found == nil:
		return nil, fmt.Errorf("no host %s%s: %w", providerID, name, cloudprovider.InstanceNotFound)
	}
	return found, nil
}

func (c *Cloud) addresses(ctx context.Context, providerID string, name types.NodeName) ([]v1.NodeAddress, error) {
	found, err := c.find(ctx, providerID, name)
	if err != nil {
		return nil, err
	}
	return found.Addresses(""), nil
}

func (c *Cloud) NodeAddresses(ctx context.Context, name types.NodeName) ([]v1.NodeAddress, error) {
	return c.addresses(ctx, "", name)
}

func (c *Cloud) NodeAddressesByProviderID(ctx context.Context, providerID string) ([]v1.NodeAddress, error) {
	return c.addresses(ctx, providerID, "")
}

func (c *Cloud) InstanceID(ctx context.Context, name types.NodeName) (string, error) {
	found, err := c.find(ctx, "", name)
	if err != nil {
		return "", err
	}
	return found.ID, nil
}

func (c *Cloud) InstanceType(ctx context.Context, name types.NodeName) (string, error) {
	found, err := c.find(ctx, "", name)
	if err != nil {
		return "", err
	}
	return found.Type, nil
}

// InstanceTypeByProviderID is not implemented, as in some clouds of this shape.
func (c *Cloud) InstanceTypeByProviderID(context.Context, string) (string, error) {
	return "", cloudprovider.NotImplemented
}

func (c *Cloud) AddSSHKeyToAllInstances(context.Context, string, []byte) error {
	return cloudprovider.NotImplemented
}

func (c *Cloud) CurrentNodeName(_ context.Context, hostname string) (types.NodeName, error) {
	return types.NodeName(hostname), nil
}

func (c *Cloud) InstanceExistsByProviderID(ctx context.Context, providerID string) (bool, error) {
	_, err := c.find(ctx, providerID, "")
	if errors.Is(err, cloudprovider.InstanceNotFound) {
		return false, nil
	}
	return err == nil, err
}

func (c *Cloud) InstanceShutdownByProviderID(ctx context.Context, providerID string) (bool, error) {
	found, err := c.find(ctx, providerID, "")
	if err != nil {
		return false, err
	}
	return found.Stopped, nil
}

func (c *Cloud) GetZone(context.Context) (cloudprovider.Zone, error) {
	return cloudprovider.Zone{}, cloudprovider.NotImplemented
}

func (c *Cloud) zone(ctx context.Context, providerID string, name types.NodeName) (cloudprovider.Zone, error) {
	found, err := c.find(ctx, providerID, name)
	if err != nil {
		return cloudprovider.Zone{}, err
	}
	return cloudprovider.Zone{FailureDomain: found.Zone, Region: found.Region}, nil
}

func (c *Cloud) GetZoneByProviderID(ctx context.Context, providerID string) (cloudprovider.Zone, error) {
	return c.zone(ctx, providerID, "")
}

func (c *Cloud) GetZoneByNodeName(ctx context.Context, name types.NodeName) (cloudprovider.Zone, error) {
	return c.zone(ctx, "", name)
}

func (c *Cloud) GetLoadBalancerName(_ context.Context, clusterName string, service *v1.Service) string {
	return clusterName + "-" + cloudprovider.DefaultLoadBalancerName(service)
}

func (c *Cloud) GetLoadBalancer(ctx context.Context, clusterName string, service *v1.Service) (found *v1.LoadBalancerStatus, exists bool, err error) {
	err = c.store.Read(ctx, "GET /load_balancers", func(state *store.State) error {
		if balancer := state.LoadBalancers[c.GetLoadBalancerName(ctx, clusterName, service)]; balancer != nil {
			found, exists = balancer.Status(), true
		}
		return nil
	})
	return found, exists, err
}

func targets(nodes []*v1.Node) []string {
	var names []string
	for _, node := range nodes {
		names = append(names, node.Name)
	}
	slices.Sort(names)
	return names
}

func (c *Cloud) EnsureLoadBalancer(ctx context.Context, clusterName string, service *v1.Service, nodes []*v1.Node) (made *v1.LoadBalancerStatus, err error) {
	name := c.GetLoadBalancerName(ctx, clusterName, service)
	err = c.store.Write(ctx, "PUT /load_balancers", func(state *store.State) (bool, error) {
		balancer := state.LoadBalancers[name]
		changed := balancer == nil
		if changed {
			state.Next++
			balancer = &store.LoadBalancer{ID: fmt.Sprint(state.Next), Name: name, IP: fmt.Sprintf("203.0.113.%d", state.Next%250+1)}
			state.LoadBalancers[name] = balancer
		}
		if wanted := store.Rules(service); !slices.Equal(balancer.Rules, wanted) {
			balancer.Rules, changed = wanted, true
		}
		if wanted := targets(nodes); !slices.Equal(balancer.Targets, wanted) {
			balancer.Targets, changed = wanted, true
		}
		made = balancer.Status()
		return changed, nil
	})
	return made, err
}

func (c *Cloud) UpdateLoadBalancer(ctx context.Context, clusterName string, service *v1.Service, nodes []*v1.Node) error {
	return c.store.Write(ctx, "PUT /load_balancers", func(state *store.State) (bool, error) {
		balancer := state.LoadBalancers[c.GetLoadBalancerName(ctx, clusterName, service)]
		if balancer == nil {
			return false, fmt.Errorf("no load balancer")
		}
		wanted := targets(nodes)
		changed := !slices.Equal(balancer.Targets, wanted)
		balancer.Targets = wanted
		return changed, nil
	})
}

func (c *Cloud) EnsureLoadBalancerDeleted(ctx context.Context, clusterName string, service *v1.Service) error {
	return c.store.Write(ctx, "DELETE /load_balancers", func(state *store.State) (bool, error) {
		name := c.GetLoadBalancerName(ctx, clusterName, service)
		_, exists := state.LoadBalancers[name]
		delete(state.LoadBalancers, name)
		return exists, nil
	})
}
