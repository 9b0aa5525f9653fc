// Package marked is a cloud whose load balancers carry marks: which cluster and which Service they
// were made for. Its vendor has added the method of OwnerChecker, which Go's interface lacks.
package marked

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	cloudprovider "k8s.io/cloud-provider"

	"github.com/grpc-ccm/grpc-ccm/providers/go/bridge"
	"github.com/grpc-ccm/grpc-ccm/providers/go/bridge/shapes/store"
	"github.com/grpc-ccm/grpc-ccm/providers/go/contract"
	"github.com/grpc-ccm/grpc-ccm/providers/go/sdk"
)

const (
	// Name is what --cloud-provider takes.
	Name = "marked"

	scheme = Name + "://"
)

// place has the limits of a tag of this cloud.
var place = sdk.LabelValue

// Cloud is the cloud.
type Cloud struct {
	store.Newer

	store *store.Store
}

var _ bridge.OwnerChecker = (*Cloud)(nil)

func init() {
	store.Register(Name, func(settings store.File) cloudprovider.Interface { return &Cloud{store: store.At(settings.State)} })
}

func (c *Cloud) Initialize(cloudprovider.ControllerClientBuilder, <-chan struct{}) {}
func (c *Cloud) LoadBalancer() (cloudprovider.LoadBalancer, bool)                  { return c, true }
func (c *Cloud) InstancesV2() (cloudprovider.InstancesV2, bool)                    { return c, true }
func (c *Cloud) Routes() (cloudprovider.Routes, bool)                              { return nil, false }
func (c *Cloud) ProviderName() string                                              { return Name }
func (c *Cloud) HasClusterID() bool                                                { return true }

func (c *Cloud) find(ctx context.Context, node *v1.Node) (found *store.Instance, err error) {
	err = c.store.Read(ctx, "GET /instances", func(state *store.State) error {
		if node.Spec.ProviderID == "" {
			found = state.Instances[node.Name]
		} else {
			_, found = state.ByID(strings.TrimPrefix(node.Spec.ProviderID, scheme))
		}
		if found == nil {
			return cloudprovider.InstanceNotFound
		}
		return nil
	})
	return found, err
}

func (c *Cloud) InstanceExists(ctx context.Context, node *v1.Node) (bool, error) {
	_, err := c.find(ctx, node)
	if errors.Is(err, cloudprovider.InstanceNotFound) {
		return false, nil
	}
	return err == nil, err
}

func (c *Cloud) InstanceShutdown(ctx context.Context, node *v1.Node) (bool, error) {
	found, err := c.find(ctx, node)
	return err == nil && found.Stopped, err
}

func (c *Cloud) InstanceMetadata(ctx context.Context, node *v1.Node) (*cloudprovider.InstanceMetadata, error) {
	found, err := c.find(ctx, node)
	if err != nil {
		return nil, err
	}
	return found.Metadata(scheme, node.Name), nil
}

func (c *Cloud) GetLoadBalancerName(_ context.Context, _ string, service *v1.Service) string {
	return cloudprovider.DefaultLoadBalancerName(service)
}

func of(state *store.State, service *v1.Service) *store.LoadBalancer {
	for _, one := range state.LoadBalancers {
		if one.Name == cloudprovider.DefaultLoadBalancerName(service) {
			return one
		}
	}
	return nil
}

// LoadBalancerOwnership reads the mark.
func (c *Cloud) LoadBalancerOwnership(ctx context.Context, _ string, service *v1.Service) (whose contract.Ownership, err error) {
	owner := bridge.OwnerOf(ctx)
	err = c.store.Read(ctx, "GET /load_balancers", func(state *store.State) error {
		balancer := of(state, service)
		switch {
		case balancer == nil:
		case balancer.Owner == "":
			whose = contract.Ownership_OWNERSHIP_UNMARKED
		case balancer.Service == place.Tag(string(service.UID)) && slices.ContainsFunc(append(owner.Previous, owner.ID), func(id string) bool { return balancer.Owner == place.Tag(id) }):
			whose = contract.Ownership_OWNERSHIP_OURS
		default:
			whose = contract.Ownership_OWNERSHIP_FOREIGN
		}
		return nil
	})
	return whose, err
}

func (c *Cloud) GetLoadBalancer(ctx context.Context, _ string, service *v1.Service) (found *v1.LoadBalancerStatus, exists bool, err error) {
	err = c.store.Read(ctx, "GET /load_balancers", func(state *store.State) error {
		if balancer := of(state, service); balancer != nil {
			found, exists = balancer.Status(), true
		}
		return nil
	})
	return found, exists, err
}

func (c *Cloud) EnsureLoadBalancer(ctx context.Context, _ string, service *v1.Service, nodes []*v1.Node) (made *v1.LoadBalancerStatus, err error) {
	owner := place.Tag(bridge.OwnerOf(ctx).ID)
	err = c.store.Write(ctx, "PUT /load_balancers", func(state *store.State) (bool, error) {
		balancer := of(state, service)
		changed := balancer == nil
		if changed {
			state.Next++
			balancer = &store.LoadBalancer{
				ID: fmt.Sprintf("lb-%d", state.Next), Name: cloudprovider.DefaultLoadBalancerName(service), IP: fmt.Sprintf("198.51.100.%d", state.Next%250+1),
			}
			state.LoadBalancers[balancer.ID] = balancer
		}
		wanted := *balancer
		wanted.Owner, wanted.Service = owner, place.Tag(string(service.UID))
		wanted.Rules, wanted.Targets = store.Rules(service), store.TargetIDs(scheme, nodes)
		if !sdk.Same(*balancer, wanted) {
			*balancer, changed = wanted, true
		}
		made = balancer.Status()
		return changed, nil
	})
	return made, err
}

func (c *Cloud) UpdateLoadBalancer(ctx context.Context, _ string, service *v1.Service, nodes []*v1.Node) error {
	return c.store.Write(ctx, "PUT /load_balancers", func(state *store.State) (bool, error) {
		balancer := of(state, service)
		if balancer == nil {
			return false, fmt.Errorf("no load balancer")
		}
		wanted := store.TargetIDs(scheme, nodes)
		changed := !slices.Equal(balancer.Targets, wanted)
		balancer.Targets = wanted
		return changed, nil
	})
}

func (c *Cloud) EnsureLoadBalancerDeleted(ctx context.Context, _ string, service *v1.Service) error {
	return c.store.Write(ctx, "DELETE /load_balancers", func(state *store.State) (bool, error) {
		balancer := of(state, service)
		if balancer == nil {
			return false, nil
		}
		delete(state.LoadBalancers, balancer.ID)
		return true, nil
	})
}
