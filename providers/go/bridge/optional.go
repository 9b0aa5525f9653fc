package bridge

import (
	"context"

	v1 "k8s.io/api/core/v1"
	cloudprovider "k8s.io/cloud-provider"

	"github.com/grpc-ccm/grpc-ccm/providers/go/contract"
)

// Optional interfaces that a vendor can add, because the contract asks for more than Go's interface has. The bridge looks for each on the cloud itself.
// It looks for those about load balancers or instances also on the result of LoadBalancer(), InstancesV2() or Instances().

// ScopeTeller returns the account, project and region that the credentials reach (PROV-9), and so verifies them (PROV-3): its error fails Initialize.
// Without it the scope is the value of --cloud-scope, else the provider's name, and a change of the account alone goes unnoticed.
type ScopeTeller interface {
	CloudScope(ctx context.Context) (string, error)
}

// OwnerChecker returns the owner of the load balancer that the cloud would use for this Service, by a mark with the owner ID of OwnerOf(ctx). The bridge
// calls it before each method that writes a load balancer, and after GetLoadBalancer has found one. Without it a load balancer that the cloud finds for a Service counts as that Service's: see
// the README.
type OwnerChecker interface {
	LoadBalancerOwnership(ctx context.Context, clusterName string, service *v1.Service) (contract.Ownership, error)
}

// SyncChecker reports whether EnsureLoadBalancer with these arguments would write nothing to the cloud and succeed (LB-14). It must ask the cloud.
// Without it the bridge does not offer in_sync.
type SyncChecker interface {
	LoadBalancerInSync(ctx context.Context, clusterName string, service *v1.Service, nodes []*v1.Node) (bool, error)
}

// LoadBalancerLister lists all load balancers that are marked for the cluster of OwnerOf(ctx), or returns an error. Without it the bridge does not offer
// the listing.
type LoadBalancerLister interface {
	ListLoadBalancers(ctx context.Context, clusterName string) ([]*contract.ListedLoadBalancer, error)
}

// InstanceLister lists all instances of the cluster, or returns an error. Without it the bridge does not offer the listing.
type InstanceLister interface {
	ListInstances(ctx context.Context) ([]ListedInstance, error)
}

// ListedInstance is one instance of a listing.
type ListedInstance struct {
	cloudprovider.InstanceMetadata
	// State is PRESENT, RUNNING or STOPPED.
	State contract.InstanceState
}

// Owner is the cluster for which a call is made.
type Owner struct {
	// ID is the cluster's owner ID, with which the cloud should mark the cluster's objects (CORE-14).
	ID string
	// Previous are the owner IDs that the cluster had before.
	Previous []string
	// ClusterName is the argument clusterName of Go's methods.
	ClusterName string
	// Handle is the handle that the controller sent with a call about a load balancer; nil if it sent none.
	Handle *string
	// AdoptUnmarked says that the operator allows the adoption (LB-9) or removal (LB-26) of an unmarked load balancer.
	AdoptUnmarked bool
}

// Owns reports whether an owner ID is this cluster's present one or a previous one.
func (o *Owner) Owns(id string) bool {
	for _, previous := range o.Previous {
		if id == previous {
			return true
		}
	}
	return id == o.ID
}

type ownerKey struct{}

// OwnerOf returns the cluster for which the bridge calls the method with this context. It is nil outside of such a call.
func OwnerOf(ctx context.Context) *Owner {
	owner, _ := ctx.Value(ownerKey{}).(*Owner)
	return owner
}

func withOwner(ctx context.Context, owner *Owner) context.Context {
	return context.WithValue(ctx, ownerKey{}, owner)
}

// optional returns the first of the values that implements the interface.
func optional[Wanted any](values ...any) (Wanted, bool) {
	for _, value := range values {
		if wanted, ok := value.(Wanted); ok {
			return wanted, true
		}
	}
	var none Wanted
	return none, false
}
