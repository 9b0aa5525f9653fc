package sdk

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"time"
	"unicode/utf8"
)

// Provider is a cloud. A vendor implements it and, on the same value, those of the other interfaces that its cloud has.
//
// Every method may be called many times at once and must be safe to repeat (CORE-6). A panic fails that one call with INTERNAL and is logged; nothing else is harmed.
type Provider interface {
	// Info says who the provider is. Called once, when the server is made; makes no call to the cloud (PROV-1).
	Info() Info
	// Initialize: the elected leader says for which cluster the provider works from here on; again after every reconnect. It should verify the credentials and
	// fail with [Credentials] where they are refused. Calls of it never overlap. Until it has succeeded once, every other call that carries a cluster is answered
	// NOT_INITIALIZED. Deadline 60 s.
	Initialize(ctx context.Context, call *Call, request InitializeRequest) (Initialized, error)
}

// HealthReporter is implemented by a provider that knows how it is. Without it a provider is READY.
//
// DEGRADED begins when the cloud fails or refuses calls of its own accord, some in a row (5 are
// good): no answer in the provider's own time, UNAVAILABLE, CREDENTIALS, THROTTLED. It ends with
// the first call that the cloud answers, and a refusal of one object (INVALID, NOT_FOUND, CONFLICT,
// PRECONDITION) is an answer. A call that the controller cut off counts for neither (PROV-16).
type HealthReporter interface {
	// Health answers from memory: asked every 10 s, must not block (PROV-4).
	Health() Health
}

// ServiceName names one of the contract's services.
type ServiceName string

// The contract's services that can be left out with [Info.Without].
const (
	ServiceInstances     ServiceName = "instances"
	ServiceZones         ServiceName = "zones"
	ServiceLoadBalancers ServiceName = "load balancers"
	ServiceRoutes        ServiceName = "routes"
	ServiceClusters      ServiceName = "clusters"
	ServiceVolumes       ServiceName = "volumes"
	ServiceChanges       ServiceName = "changes"
)

// Info says who a provider is, and how it wants to be called.
type Info struct {
	// Name is the cloud's short name: lower-case letters, digits and dashes, at most 63 bytes.
	Name string
	// Version is the provider's own.
	Version string
	// ProviderIDPrefixes are what its provider IDs begin with, for example aws://. At least one where instances are offered; at most 16 of at most 253 bytes. A Node whose
	// provider ID begins with none of them is answered UNMANAGED by the server (INST-9).
	ProviderIDPrefixes []string
	// NodeProjection is what it wants to see of each Node.
	NodeProjection NodeProjection
	// MinControllerMinor is the lowest minor of the contract that the controller must speak.
	MinControllerMinor uint32
	// Without names services that the value implements and that are not to be offered, such as one that the configuration switches off.
	Without []ServiceName

	// Instances is what the controller is told about instances.
	Instances InstanceOptions
	// LoadBalancers is what the controller is told about load balancers.
	LoadBalancers LoadBalancerOptions
	// Routes is what the controller is told about routes.
	Routes RouteOptions
	// Volumes is what the controller is told about volumes.
	Volumes VolumeOptions
}

// InstanceOptions is what the controller is told about instances and, for MaxBatch and AtOnce, zones.
type InstanceOptions struct {
	// MaxBatch is the most Nodes that one call takes; 100 where zero. A call with more is answered INVALID.
	MaxBatch int
	// PowerState says that running and stopped are told apart; without it the shutdown taint is never set.
	PowerState bool
	// MaxInFlight is how many calls of this service the controller may make at once; 8 where zero.
	MaxInFlight int
	// AtOnce is how many LookupInstance of one call run at once; 16 where zero. Not sent.
	AtOnce int
}

// LoadBalancerOptions is what the controller is told about load balancers.
type LoadBalancerOptions struct {
	// Classes are the values of spec.loadBalancerClass that are served. The controller sends no other
	// Service, but for one whose class changed: to Get and Delete it is a Service like any other
	// (LB-29). The SDK compares neither classes nor ports with what is offered.
	Classes []string
	// OnlyClasses says that Services without a class are not served.
	OnlyClasses bool
	// InSync says that [LoadBalancer.InSync] is answered: that is what makes a restart of the controller free.
	InSync bool
	// IgnoresNodes says that the targets do not matter to this cloud: changes of Nodes make no call.
	IgnoresNodes bool
	// AllTargets says that Nodes which nobody or another provider owns can be targets too: clouds that balance to plain IP addresses.
	AllTargets bool
	// MaxTargets is the most targets that one load balancer takes; no limit where zero.
	MaxTargets int
	// TargetProjection is which further fields of a target matter: a change of one is a reason for an UpdateLoadBalancer of every load balancer that has the target. Name, UID,
	// provider ID and addresses always matter. Best left empty: with [FieldTaints] a cordon updates every load balancer of the cluster, with [FieldReadiness] each Node that is not
	// ready for a moment. What [Info.NodeProjection] alone names is as it is when a call is made, and no reason for one.
	TargetProjection NodeProjection
	// Features are the fields of a Service that are honoured; a Service that uses another one gets a Warning event.
	Features []ServiceFeature
	// MaxInFlight is how many calls of this service the controller may make at once; 8 where zero.
	MaxInFlight int
}

// RouteOptions is what the controller is told about routes.
type RouteOptions struct {
	// MaxBatch is the most routes that one call takes; 100 where zero. A call with more is answered INVALID.
	MaxBatch int
	// TracksNodeAddresses says that a route depends on its Node's addresses: it is made anew when they change.
	TracksNodeAddresses bool
	// MaxInFlight is how many calls of this service the controller may make at once; 8 where zero.
	MaxInFlight int
	// AtOnce is how many CreateRoute or DeleteRoute of one call run at once; 8 where zero. Not sent.
	AtOnce int
}

// VolumeOptions is what the controller is told about volumes.
type VolumeOptions struct {
	// SourceTypes are the sources that are this cloud's (VOL-2): a field of spec such as awsElasticBlockStore, or csi/DRIVER. About others the controller never asks. Empty: it
	// asks about all.
	SourceTypes []string
	// MaxInFlight is how many calls of this service the controller may make at once; 8 where zero.
	MaxInFlight int
}

// InitializeRequest is what Initialize is told beside the cluster, which stands in [Call].
type InitializeRequest struct {
	// ClusterCIDRs are the cluster's Pod CIDRs; empty where not configured.
	ClusterCIDRs []string
	// KubernetesVersion is that of the API server, for example v1.36.3.
	KubernetesVersion string
	// ReadOnly says that nothing may be written to the cloud until another Initialize without it. The server refuses the calls that would (PROV-20); Initialize itself must not write either.
	ReadOnly bool
}

// Initialized says that the provider is ready for calls.
type Initialized struct {
	// CloudScope names the account, project and region that the credentials reach. It must be the same for the same three, whatever process answers (PROV-9): when it differs
	// from the one last seen the controller creates and deletes nothing until an operator accepts it. 1 to 253 ASCII letters, digits, spaces and . _ : / , @ = + -.
	CloudScope string
	// ClusterID is the cloud's own ID of this cluster, where it has one.
	ClusterID string
	// Deadlines are wishes for longer deadlines.
	Deadlines DeadlineHints
}

// DeadlineHints are wishes for longer deadlines; each raises the controller's default up to the operator's cap and never lowers it. Zero is no wish.
type DeadlineHints struct {
	// Lookup is for lookups of instances and zones, default 60 s; List for listings, default 5 min; LoadBalancer for calls about one load balancer, default 5 min; Routes for
	// creating and deleting routes, default 2 min.
	Lookup, List, LoadBalancer, Routes time.Duration
}

// HealthState is how a provider is.
type HealthState int

// How a provider is; the zero value is READY.
const (
	// HealthReady says that all is well.
	HealthReady HealthState = iota
	// HealthStarting says that it is not ready yet: the controllers pause.
	HealthStarting
	// HealthDegraded says that it works with trouble: the controllers work and delete no Node.
	HealthDegraded
	// HealthBroken says that it cannot work: the controllers pause.
	HealthBroken
)

// Health is how a provider is, and why.
type Health struct {
	// State is how it is.
	State HealthState
	// Message says why, for people; empty when ready.
	Message string
	// LastCloudSuccess is when the cloud last answered, as the vendor knows it. The server reports the later of this and the last [Call.CloudAnswered].
	LastCloudSuccess time.Time
}

var providerName = regexp.MustCompile(`^[a-z0-9-]{1,63}$`)

// What is wrong with it, if anything; the server refuses to start then.
func (i *Info) check(offersInstances bool) error {
	if !providerName.MatchString(i.Name) {
		return fmt.Errorf("the provider's name %q is not 1 to 63 lower-case letters, digits and dashes", i.Name)
	}
	if offersInstances && len(i.ProviderIDPrefixes) == 0 {
		return fmt.Errorf("instances are offered without a prefix of provider IDs; right would be ProviderIDPrefixes: []string{%q}", i.Name+"://")
	}
	if len(i.ProviderIDPrefixes) > 16 {
		return fmt.Errorf("%d prefixes of provider IDs are more than 16", len(i.ProviderIDPrefixes))
	}
	for _, prefix := range i.ProviderIDPrefixes {
		if prefix == "" || len(prefix) > nameBytes {
			return fmt.Errorf("the prefix of provider IDs %q is empty or longer than %d bytes", prefix, nameBytes)
		}
	}
	balancers := &i.LoadBalancers
	for _, text := range slices.Concat([]string{i.Version}, i.ProviderIDPrefixes, balancers.Classes, i.Volumes.SourceTypes, i.NodeProjection.texts(), balancers.TargetProjection.texts()) {
		if !utf8.ValidString(text) {
			return fmt.Errorf("%q in the provider's Info is not UTF-8", text)
		}
	}
	for _, service := range i.Without {
		switch service {
		case ServiceInstances, ServiceZones, ServiceLoadBalancers, ServiceRoutes, ServiceClusters, ServiceVolumes, ServiceChanges:
		default:
			return fmt.Errorf("Without names the service %q, which does not exist", service)
		}
	}
	return nil
}
