package bridge

import (
	"context"

	v1 "k8s.io/api/core/v1"
	cloudprovider "k8s.io/cloud-provider"

	"github.com/grpc-ccm/grpc-ccm/providers/go/contract"
)

// Interfaces that a vendor can add, because the contract asks for more than Go's interface gives. The bridge looks for each on the cloud itself, and
// for those about load balancers or instances also on the result of LoadBalancer() or InstancesV2(). All are optional.

// ScopeTeller says which account, project and region the credentials reach (PROV-9), and so also verifies them (PROV-3): its error fails Initialize. Without it
// the scope is what --cloud-scope says, else the provider's name, and a change of the account is not noticed.
type ScopeTeller interface {
	CloudScope(ctx context.Context) (string, error)
}

// OwnerChecker says whose the load balancer is that the cloud would work on for this Service, by a mark with the owner ID of OwnerOf(ctx). It is asked before every
// call that changes something. Without it what the cloud finds for a Service is that Service's: see the README.
type OwnerChecker interface {
	LoadBalancerOwnership(ctx context.Context, clusterName string, service *v1.Service) (contract.Ownership, error)
}

// SyncChecker reports whether EnsureLoadBalancer with these arguments would write nothing to the cloud and succeed (LB-14). It must ask the cloud.
// Without it the bridge does not offer in_sync.
type SyncChecker interface {
	LoadBalancerInSync(ctx context.Context, clusterName string, service *v1.Service, nodes []*v1.Node) (bool, error)
}

// LoadBalancerLister lists all load balancers that are marked for the cluster of OwnerOf(ctx), completely or with an error. Without it the capability is not offered.
type LoadBalancerLister interface {
	ListLoadBalancers(ctx context.Context, clusterName string) ([]*contract.ListedLoadBalancer, error)
}

// InstanceLister lists all instances of the cluster, completely or with an error. Without it the capability is not offered.
type InstanceLister interface {
	ListInstances(ctx context.Context) ([]ListedInstance, error)
}

// ListedInstance is one instance of a listing.
type ListedInstance struct {
	cloudprovider.InstanceMetadata
	// PRESENT, RUNNING or STOPPED.
	State contract.InstanceState
}

// Owner is for whom a call is made.
type Owner struct {
	// ID is the cluster's identity, by which what is made for it is to be marked (CORE-14).
	ID string
	// Previous are the IDs that it had before.
	Previous []string
	// ClusterName is what Go's methods get as clusterName.
	ClusterName string
	// Handle is the handle that the controller sent with a call about a load balancer; nil if it sent none.
	Handle *string
	// AdoptUnmarked: EnsureLoadBalancer may take over a load balancer without a mark (LB-9).
	AdoptUnmarked bool
}

// Owns tells whether a mark with this owner ID is this cluster's.
func (o *Owner) Owns(id string) bool {
	for _, previous := range o.Previous {
		if id == previous {
			return true
		}
	}
	return id == o.ID
}

type ownerKey struct{}

// OwnerOf is for whom the method that got this context is called; nil outside of a call of the bridge.
func OwnerOf(ctx context.Context) *Owner {
	owner, _ := ctx.Value(ownerKey{}).(*Owner)
	return owner
}

func withOwner(ctx context.Context, owner *Owner) context.Context {
	return context.WithValue(ctx, ownerKey{}, owner)
}

// optional finds an interface on the first of several values that has it.
func optional[Wanted any](values ...any) (Wanted, bool) {
	for _, value := range values {
		if wanted, ok := value.(Wanted); ok {
			return wanted, true
		}
	}
	var none Wanted
	return none, false
}
