package sdk

import (
	"context"
	"net/netip"
	"time"

	"github.com/grpc-ccm/grpc-ccm/providers/go/contract"
)

// Instances are the machines behind the Nodes.
//
// Only [InstanceAbsent] means gone (INST-1): the controller deletes Nodes on the strength of it. Answer it only when the cloud itself said so, for that instance, in an answer that
// was complete. In doubt: an error.
type Instances interface {
	// LookupInstance: what is this Node's instance? It is identified by the Node's provider ID where that is set, else by its name (INST-3). Where the provider ID has another
	// prefix than ours the server answers by itself (INST-9). Several run at once, see [InstanceOptions]. Deadline of the whole call: 60 s.
	LookupInstance(ctx context.Context, call *Call, node Node, query InstanceQuery) (Instance, error)
}

// InstanceBatches is what a cloud implements instead of [Instances] that answers for many machines at once. Where both are there this one is called.
type InstanceBatches interface {
	// LookupInstances is [Instances.LookupInstance] for several Nodes; answers go by the Node's name. An error fails the call as a whole.
	LookupInstances(ctx context.Context, call *Call, nodes []Node, query InstanceQuery) (Answers[Instance], error)
}

// InstanceLister lists all instances.
type InstanceLister interface {
	// ListInstances gives all instances that the provider sees for this cluster, each with its provider ID. It must be complete, or fail (INST-6): the controller uses it to keep a
	// Node from being deleted. Deadline 5 min.
	ListInstances(ctx context.Context, call *Call, query InstanceQuery) ([]Instance, error)
}

// InstanceQuery is what is asked of instances. A provider may leave out what was not asked for.
type InstanceQuery struct {
	// Existence asks whether it exists; Power whether it runs or is stopped; Metadata for provider ID, type, addresses, zone, region and labels.
	Existence, Power, Metadata bool
	// MaxAge is how old an answer from a cache may be; zero: ask the cloud (INST-5).
	MaxAge time.Duration
}

// InstanceState is what the cloud says of an instance.
type InstanceState int32

// The state of an instance, as the cloud reports it. The zero value is none of them and a fault.
const (
	// InstancePresent exists; whether it runs is not known.
	InstancePresent = InstanceState(contract.InstanceState_INSTANCE_STATE_PRESENT)
	// InstanceRunning exists and runs, or is starting.
	InstanceRunning = InstanceState(contract.InstanceState_INSTANCE_STATE_RUNNING)
	// InstanceStopped exists and is shut down. With [InstanceOptions.PowerState] the Node gets the shutdown taint.
	InstanceStopped = InstanceState(contract.InstanceState_INSTANCE_STATE_STOPPED)
	// InstanceAbsent does not exist, as the cloud said for certain: its Node may be deleted (INST-1). Not for an error, an empty page, a timeout, refused credentials, or an instance
	// that is missing from a cache or from a list of another account or region: those are errors.
	InstanceAbsent = InstanceState(contract.InstanceState_INSTANCE_STATE_ABSENT)
	// InstancePending is not shown by the cloud yet: nothing is deleted, the Node stays tainted, the controller asks again.
	InstancePending = InstanceState(contract.InstanceState_INSTANCE_STATE_PENDING)
	// InstanceUnmanaged is not this cloud's: the Node is left alone.
	InstanceUnmanaged = InstanceState(contract.InstanceState_INSTANCE_STATE_UNMANAGED)
)

// Instance is an instance, or its absence. One that breaks a limit fails for its Node alone and is logged.
type Instance struct {
	// State is what the cloud says.
	State InstanceState
	// ProviderID begins with one of the provider's prefixes and is unique and stable for the life of the instance (INST-7, PROV-8). At most 1,024 bytes.
	ProviderID string
	// Type, Zone and Region are valid label values (INST-8); empty where not known.
	Type, Zone, Region string
	// Addresses are in the order in which the Node shall show them. Empty changes nothing at the Node.
	Addresses []NodeAddress
	// Labels are further labels for the Node. The controller drops keys in the namespaces kubernetes.io, k8s.io and grpc-ccm.io.
	Labels map[string]string
	// RetryAfter: with [InstancePending], when to ask again.
	RetryAfter time.Duration
}

// Zones says where Nodes are, for clouds whose instances do not tell. Asked only where an instance left zone or region out.
type Zones interface {
	// LookupZone: in which zone and region is this Node? Several run at once, see [InstanceOptions]. Deadline of the whole call: 60 s.
	LookupZone(ctx context.Context, call *Call, node Node) (Zone, error)
}

// ZoneBatches is what a cloud implements instead of [Zones] that answers for many Nodes at once. Where both are there this one is called.
type ZoneBatches interface {
	// LookupZones is [Zones.LookupZone] for several Nodes; answers go by the Node's name. An error fails the call as a whole.
	LookupZones(ctx context.Context, call *Call, nodes []Node) (Answers[Zone], error)
}

// Zone is a place in a cloud. An empty field is not known or does not exist there.
type Zone struct {
	// Zone is the failure domain, and Region the region that contains it: valid label values.
	Zone, Region string
}

// Routes are the routes of the network that the cluster uses. While a call works on a destination, another one for the same is answered BUSY for that route.
type Routes interface {
	RouteLister
	// CreateRoute makes one route and marks it with the cluster's owner ID where the cloud can (ROUTE-3). One that already is as asked is done (ROUTE-2). Several run at once, see
	// [RouteOptions]. Deadline of the whole call: 2 min.
	CreateRoute(ctx context.Context, call *Call, route Route) error
	// DeleteRoute removes one route, as ListRoutes gave it. One that does not exist is done; a foreign one is [Conflict] (ROUTE-4).
	DeleteRoute(ctx context.Context, call *Call, route Route) error
}

// RouteLister is the listing that [Routes] and [RouteBatches] have in common.
type RouteLister interface {
	// ListRoutes gives all routes of the network that this cluster uses, also those of others, each with its ownership. It must be complete, or fail, and include routes whose target
	// no longer exists (ROUTE-1). Deadline 5 min.
	ListRoutes(ctx context.Context, call *Call) ([]Route, error)
}

// RouteBatches is what a cloud implements instead of [Routes] that writes many routes at once. Where both are there this one is called.
type RouteBatches interface {
	RouteLister
	// CreateRoutes is [Routes.CreateRoute] for several routes; answers go by [Route.Key]. An error fails the call as a whole.
	CreateRoutes(ctx context.Context, call *Call, routes []Route) (Answers[struct{}], error)
	// DeleteRoutes is [Routes.DeleteRoute] for several routes; answers go by [Route.Key]. An error fails the call as a whole.
	DeleteRoutes(ctx context.Context, call *Call, routes []Route) (Answers[struct{}], error)
}

// Route is a route: packets to the destination go to the Node.
//
// In a listing it needs a name, a destination, an ownership and, unless it is a blackhole, a target (ROUTE-5). A listing with a route that breaks that fails as a whole: it would not
// be complete.
type Route struct {
	// Key names this route among those of a request. Empty in listings.
	Key string
	// Name is the cloud's name of the route, at most 253 bytes; empty when one is to be made.
	Name string
	// NameHint is, when one is to be made, something unique to the Node (its UID) that the cloud's name may be made of.
	NameHint string
	// DestinationCIDR is where packets go to, for example 10.0.1.0/24. In CreateRoute it is a valid CIDR.
	DestinationCIDR string
	// NodeName and ProviderID name the target; either may be empty.
	NodeName, ProviderID string
	// NextHop is the target by its address; the zero value where it is not known so.
	NextHop netip.Addr
	// NodeAddresses are the target's addresses; with [RouteOptions.TracksNodeAddresses].
	NodeAddresses []NodeAddress
	// Blackhole says that the target does not exist any more.
	Blackhole bool
	// Ownership says whose it is; set in listings.
	Ownership Ownership
}

// Clusters are those that the cloud knows; for tools, no controller asks.
type Clusters interface {
	// ListClusters names the clusters in the cloud's scope; complete, or a failure (CLUSTER-1). Deadline 5 min.
	ListClusters(ctx context.Context, call *Call) ([]string, error)
	// ControlPlaneAddress says where a cluster's control plane can be reached: a host name or an address, without a port. One that the cloud does not know is [NotFound]
	// (CLUSTER-2). Deadline 60 s.
	ControlPlaneAddress(ctx context.Context, call *Call, name string) (string, error)
}

// Volumes gives labels to persistent volumes.
type Volumes interface {
	// VolumeLabels: which labels should this volume have? A disk that does not exist is [NotFound], a source that is not this cloud's has no labels
	// (VOL-1). Zone and region become node affinity, which is immutable (VOL-3); __ joins several zones. Deadline 60 s.
	VolumeLabels(ctx context.Context, call *Call, volume Volume) (map[string]string, error)
}

// Volume is a persistent volume.
type Volume struct {
	// Name is metadata.name, UID metadata.uid; both are empty where the volume is about to be created.
	Name, UID string
	// Labels and Annotations are those of metadata.
	Labels, Annotations map[string]string
	// SourceType is the field of spec that holds the source, for example awsElasticBlockStore or csi.
	SourceType string
	// Source has the fields of that source with their values as text, for example volumeID. Objects and lists are left out.
	Source map[string]string
}

// SourceName is the source as [VolumeOptions.SourceTypes] names it: csi/DRIVER for a CSI volume, else the field of spec.
func (v *Volume) SourceName() string {
	if driver, ok := v.Source["driver"]; ok && v.SourceType == "csi" {
		return "csi/" + driver
	}
	return v.SourceType
}

// Changes gives hints that something changed in the cloud. A hint is never more than a hint: losing one costs latency, never correctness (PROV-5). [Feed] keeps hints for whom
// has no feed with tokens from the cloud.
type Changes interface {
	// WatchChanges sends hints until its context ends: the controller goes away, or the server shuts down. resumeToken is the last one that the
	// controller received, empty for its first call; answer an unknown one with [Change.Resync]. A stream begins with [Hints.Bookmark] (PROV-21), or
	// with that resync. It may return nil by itself: the stream ends, and the controller calls again. An error is said as failed, and the controller
	// calls again with backoff. No deadline.
	WatchChanges(ctx context.Context, call *Call, resumeToken string, hints *Hints) error
}

// Change is what may have changed: one of its fields.
type Change struct {
	// Instance is an instance that was made, changed or removed.
	Instance *InstanceChange
	// LoadBalancer is a load balancer that was changed or removed behind the controller's back.
	LoadBalancer *LoadBalancerChange
	// Routes says that routes were changed.
	Routes bool
	// Resync says that hints were lost: anything may have changed.
	Resync bool
}

// InstanceChange names an instance; at least one of the two is not empty.
type InstanceChange struct {
	// ProviderID is the instance's, NodeName its Node's.
	ProviderID, NodeName string
}

// LoadBalancerChange names the Service of a load balancer.
type LoadBalancerChange struct {
	// Namespace and Name are the Service's.
	Namespace, Name string
}
