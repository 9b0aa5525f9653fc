package sdk

import (
	"context"
	"net/netip"
	"time"

	"github.com/grpc-ccm/grpc-ccm/providers/go/contract"
)

// Instances are the machines behind the Nodes.
//
// Only [InstanceAbsent] means that an instance is gone (INST-1): the controller may then delete its Node. Return it only if the cloud itself answered
// so for that instance, with a complete answer. In doubt return an error.
type Instances interface {
	// LookupInstance returns the instance of this Node. The provider ID identifies it, or the Node's name if there is none (INST-3). If the provider ID
	// has none of the provider's prefixes, the server answers without this method (INST-9). Several run at once, see [InstanceOptions]. Deadline of the
	// whole call: 60 s.
	LookupInstance(ctx context.Context, call *Call, node Node, query InstanceQuery) (Instance, error)
}

// InstanceBatches replaces [Instances] for a cloud that answers for many machines at once. If a provider has both, the server calls only
// InstanceBatches.
type InstanceBatches interface {
	// LookupInstances is [Instances.LookupInstance] for several Nodes. The key of an answer is the Node's name. An error fails the call as a whole.
	LookupInstances(ctx context.Context, call *Call, nodes []Node, query InstanceQuery) (Answers[Instance], error)
}

// InstanceLister lists all instances.
type InstanceLister interface {
	// ListInstances returns all instances that the provider sees for this cluster, each with its provider ID. It must be complete, or fail (INST-6). The
	// controller uses it to prevent the deletion of a Node. Deadline 5 min.
	ListInstances(ctx context.Context, call *Call, query InstanceQuery) ([]Instance, error)
}

// InstanceQuery says which facts about instances the controller asks for. A provider may leave out the others.
type InstanceQuery struct {
	// Existence asks whether the instance exists, and Power whether it runs or is stopped. Metadata asks for provider ID, type, addresses, zone, region
	// and labels.
	Existence, Power, Metadata bool
	// MaxAge is how old an answer from a cache may be. If it is zero, ask the cloud (INST-5).
	MaxAge time.Duration
}

// InstanceState is the state of an instance, as the cloud reports it.
type InstanceState int32

// The states of an instance. The zero value is not valid: the server answers INTERNAL.
const (
	// InstancePresent: the instance exists; whether it runs is not known.
	InstancePresent = InstanceState(contract.InstanceState_INSTANCE_STATE_PRESENT)
	// InstanceRunning: the instance exists and runs, or is starting.
	InstanceRunning = InstanceState(contract.InstanceState_INSTANCE_STATE_RUNNING)
	// InstanceStopped: the instance exists and is shut down. With [InstanceOptions.PowerState] the Node can get the shutdown taint.
	InstanceStopped = InstanceState(contract.InstanceState_INSTANCE_STATE_STOPPED)
	// InstanceAbsent: the cloud answered for certain that the instance does not exist, so the controller may delete its Node (INST-1). These are no
	// such answer: an error, an empty page, a timeout, refused credentials, or a missing entry in a cache or in the list of another account or region.
	// Return an error then.
	InstanceAbsent = InstanceState(contract.InstanceState_INSTANCE_STATE_ABSENT)
	// InstancePending: the cloud does not show the instance completely yet. The controller deletes
	// nothing, keeps the taint of an uninitialised Node, and asks again.
	InstancePending = InstanceState(contract.InstanceState_INSTANCE_STATE_PENDING)
	// InstanceUnmanaged: the instance is not this cloud's. The controller leaves the Node alone.
	InstanceUnmanaged = InstanceState(contract.InstanceState_INSTANCE_STATE_UNMANAGED)
)

// Instance is an instance, or its absence. If the contract does not allow its state, its provider
// ID or an IP address, a lookup fails only for its Node, but a listing fails as a whole. The server
// logs that failure.
type Instance struct {
	// State is the state that the cloud reports.
	State InstanceState
	// ProviderID begins with one of the provider's prefixes and is unique and stable for the life of the instance (INST-7, PROV-8). It has at most 1,024
	// bytes.
	ProviderID string
	// Type, Zone and Region are valid label values (INST-8), or empty if not known. The server leaves out other values (INST-15).
	Type, Zone, Region string
	// Addresses are in the order in which the Node shall show them. If there are none, the Node keeps its addresses.
	Addresses []NodeAddress
	// Labels are further labels for the Node. The controller drops keys in the namespaces
	// kubernetes.io, k8s.io and grpc-ccm.io and in their subdomains, and invalid keys and values.
	Labels map[string]string
	// RetryAfter: with [InstancePending], when to ask again.
	RetryAfter time.Duration
}

// Zones returns the zones of Nodes, for clouds whose instances do not state them. The controller asks only if an instance states no zone or no region.
type Zones interface {
	// LookupZone returns the zone and region of this Node. Several run at once, see [InstanceOptions]. Deadline of the whole call: 60 s.
	LookupZone(ctx context.Context, call *Call, node Node) (Zone, error)
}

// ZoneBatches replaces [Zones] for a cloud that answers for many Nodes at once. If a provider has both, the server calls only ZoneBatches.
type ZoneBatches interface {
	// LookupZones is [Zones.LookupZone] for several Nodes. The key of an answer is the Node's name. An error fails the call as a whole.
	LookupZones(ctx context.Context, call *Call, nodes []Node) (Answers[Zone], error)
}

// Zone is a place in a cloud. A field is empty if it is not known, or if the cloud has no such thing.
type Zone struct {
	// Zone is the failure domain, and Region the region that contains it: valid label values. The server leaves out other values (ZONE-2).
	Zone, Region string
}

// Routes manages the routes of the network that the cluster uses. While a call writes a route to a destination, the server answers BUSY to another call's
// route to the same destination.
type Routes interface {
	RouteLister
	// CreateRoute makes one route and, if the cloud can, marks it with the cluster's owner ID (ROUTE-3). It returns nil if the route already is as asked
	// (ROUTE-2). Several run at once, see [RouteOptions]. Deadline of the whole call: 2 min.
	CreateRoute(ctx context.Context, call *Call, route Route) error
	// DeleteRoute removes one route, as ListRoutes returned it. It returns nil if the route does not exist, and [Conflict] for a foreign one (ROUTE-4).
	DeleteRoute(ctx context.Context, call *Call, route Route) error
}

// RouteLister is the listing that [Routes] and [RouteBatches] have in common.
type RouteLister interface {
	// ListRoutes returns all routes of the network that this cluster uses, also those of other owners, each with its ownership. It must be complete, or
	// fail, and include routes whose target no longer exists (ROUTE-1). Deadline 5 min.
	ListRoutes(ctx context.Context, call *Call) ([]Route, error)
}

// RouteBatches replaces [Routes] for a cloud that writes many routes at once. If a provider has both, the server calls only RouteBatches.
type RouteBatches interface {
	RouteLister
	// CreateRoutes is [Routes.CreateRoute] for several routes. The key of an answer is [Route.Key]. An error fails the call as a whole.
	CreateRoutes(ctx context.Context, call *Call, routes []Route) (Answers[struct{}], error)
	// DeleteRoutes is [Routes.DeleteRoute] for several routes. The key of an answer is [Route.Key]. An error fails the call as a whole.
	DeleteRoutes(ctx context.Context, call *Call, routes []Route) (Answers[struct{}], error)
}

// Route is a route: packets to the destination go to the Node.
//
// In a listing it needs a name, a destination and an ownership. A route that is [Ours] and no blackhole also needs a target (ROUTE-5). A listing with a
// route that breaks this fails as a whole: without the route it would not be complete.
type Route struct {
	// Key names this route among those of a request. Empty in listings.
	Key string
	// Name is the cloud's name of the route, at most 253 bytes; empty in CreateRoute.
	Name string
	// NameHint is set in CreateRoute: a text that is unique to the Node (its UID), from which the cloud's name may be made.
	NameHint string
	// DestinationCIDR is where packets go to, for example 10.0.1.0/24. In CreateRoute it is a valid CIDR.
	DestinationCIDR string
	// NodeName and ProviderID name the target; either may be empty.
	NodeName, ProviderID string
	// NextHop is the target's address; the zero value if it is not known.
	NextHop netip.Addr
	// NodeAddresses are the target's addresses. CreateRoute gets them; a listing needs them only with [RouteOptions.TracksNodeAddresses].
	NodeAddresses []NodeAddress
	// Blackhole says that the target does not exist any more.
	Blackhole bool
	// Ownership is the route's owner; set in listings.
	Ownership Ownership
}

// Clusters lists the clusters that the cloud knows. It is for tools: no controller of ccm calls it.
type Clusters interface {
	// ListClusters returns the names of the clusters in the cloud's scope. It must be complete, or fail (CLUSTER-1). Deadline 5 min.
	ListClusters(ctx context.Context, call *Call) ([]string, error)
	// ControlPlaneAddress returns the host name or address of a cluster's control plane, without a port. If the cloud does not know the cluster, it
	// returns [NotFound] (CLUSTER-2). Deadline 60 s.
	ControlPlaneAddress(ctx context.Context, call *Call, name string) (string, error)
}

// Volumes gives labels to persistent volumes.
type Volumes interface {
	// VolumeLabels returns the labels of this volume. It returns [NotFound] if the disk does not exist, and no labels if the source is not this cloud's
	// (VOL-1). Zone and region become node affinity, which is immutable (VOL-3); __ joins several zones. Deadline 60 s.
	VolumeLabels(ctx context.Context, call *Call, volume Volume) (map[string]string, error)
}

// Volume is a persistent volume.
type Volume struct {
	// Name is metadata.name, and UID metadata.uid. UID is empty if the volume does not exist yet; Name is then empty only if the API server generates it.
	Name, UID string
	// Labels are those of metadata. So are Annotations, but without kubectl's last-applied-configuration.
	Labels, Annotations map[string]string
	// SourceType is the field of spec that holds the source, for example awsElasticBlockStore or csi.
	SourceType string
	// Source has the fields of that source with their values as text, for example volumeID, without objects and lists.
	Source map[string]string
}

// SourceName returns the source in the form of [VolumeOptions.SourceTypes]: csi/DRIVER for a CSI volume, else the field of spec.
func (v *Volume) SourceName() string {
	if driver, ok := v.Source["driver"]; ok && v.SourceType == "csi" {
		return "csi/" + driver
	}
	return v.SourceType
}

// Changes sends hints that something changed in the cloud. The controller still asks the cloud: a lost hint delays it, but causes no wrong result (PROV-5).
// [Feed] keeps hints for a cloud that has no event feed with resume tokens.
type Changes interface {
	// WatchChanges sends hints until its context ends: the controller has ended the stream, or the server shuts down. resumeToken is the last token that
	// the controller received, empty in its first call. A stream should begin with [Hints.Bookmark] (PROV-21), or with [Change.Resync] if the token is unknown.
	// WatchChanges may also return nil: the stream then ends with status OK. After an error the
	// server sends failed. After both the controller calls again, with backoff if the stream ended
	// early. There is no deadline.
	WatchChanges(ctx context.Context, call *Call, resumeToken string, hints *Hints) error
}

// Change says what may have changed, in one of its fields.
type Change struct {
	// Instance is an instance that was made, changed or removed.
	Instance *InstanceChange
	// LoadBalancer is a load balancer that something other than the controller changed or removed.
	LoadBalancer *LoadBalancerChange
	// Routes says that routes were changed.
	Routes bool
	// Resync says that hints were lost: anything may have changed.
	Resync bool
}

// InstanceChange names an instance; at least one of its fields is not empty.
type InstanceChange struct {
	// ProviderID is the instance's, NodeName its Node's.
	ProviderID, NodeName string
}

// LoadBalancerChange names the Service of a load balancer.
type LoadBalancerChange struct {
	// Namespace and Name are the Service's.
	Namespace, Name string
}
