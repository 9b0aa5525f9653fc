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
// Every method may be called many times at once and must be safe to repeat (CORE-6). A panic fails only that call with INTERNAL, and the server logs
// it.
type Provider interface {
	// Info describes the provider. The server calls it once, at its start. It makes no call to the cloud (PROV-1).
	Info() Info
	// Initialize: the elected leader names the cluster that the provider works for from now on, also after every reconnect. It should verify the
	// credentials and fail with [Credentials] if the cloud refuses them. Calls of it never overlap. Until it has succeeded once, the server answers
	// NOT_INITIALIZED to every other call with a cluster. Deadline 60 s.
	Initialize(ctx context.Context, call *Call, request InitializeRequest) (Initialized, error)
}

// HealthReporter is for a provider that knows its state. Without it a provider is READY.
//
// DEGRADED begins after some failures of the cloud in a row (5 are a good number): no answer in the provider's own time, UNAVAILABLE, CREDENTIALS,
// THROTTLED. It ends with the first call that the cloud answers. A refusal of one object (INVALID, NOT_FOUND, CONFLICT, PRECONDITION) is an answer. A
// call that the controller cancelled counts as neither (PROV-16).
type HealthReporter interface {
	// Health answers from memory and must not block: the controller calls it every 10 s (PROV-4).
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

// Info describes a provider, and states how the controller should call it.
type Info struct {
	// Name is the cloud's short name: lower-case letters, digits and dashes, at most 63 bytes.
	Name string
	// Version is the provider's own.
	Version string
	// ProviderIDPrefixes are the prefixes of its provider IDs, for example aws://. At least one if instances are offered; at most 16 of at most 253
	// bytes. The server answers UNMANAGED for a Node whose provider ID begins with none of them (INST-9).
	ProviderIDPrefixes []string
	// NodeProjection names the fields of each Node that it wants to see.
	NodeProjection NodeProjection
	// MinControllerMinor is the lowest minor of the contract that the controller must speak.
	MinControllerMinor uint32
	// Without names implemented services that the server must not offer, such as one that the configuration switches off.
	Without []ServiceName

	// Instances describes the instances to the controller.
	Instances InstanceOptions
	// LoadBalancers describes the load balancers to the controller.
	LoadBalancers LoadBalancerOptions
	// Routes describes the routes to the controller.
	Routes RouteOptions
	// Volumes describes the volumes to the controller.
	Volumes VolumeOptions
}

// InstanceOptions describe the instances to the controller. MaxBatch and AtOnce hold for zones too.
type InstanceOptions struct {
	// MaxBatch is the most Nodes that one call takes; 100 where zero. The answer to a call with more is INVALID.
	MaxBatch int
	// PowerState states that the provider distinguishes running from stopped. Without it the controller never sets the shutdown taint.
	PowerState bool
	// MaxInFlight is the most calls of this service that the controller may make at once; 8 if zero.
	MaxInFlight int
	// AtOnce is the number of LookupInstance of one call that run at once; 16 if zero. Not sent.
	AtOnce int
}

// LoadBalancerOptions describe the load balancers to the controller.
type LoadBalancerOptions struct {
	// Classes are the served values of spec.loadBalancerClass. The controller sends no other Service, except one whose class changed: for Get and
	// Delete it is a Service like any other (LB-29). The SDK compares neither classes nor ports with the offered ones.
	Classes []string
	// OnlyClasses states that the provider does not serve Services without a class.
	OnlyClasses bool
	// InSync states that the provider answers [LoadBalancer.InSync]. After a restart the controller then calls no Ensure for
	// a load balancer that is in sync.
	InSync bool
	// IgnoresNodes states that the targets do not matter to this cloud: changes of Nodes cause no call.
	IgnoresNodes bool
	// AllTargets states that Nodes of no provider or of another one can be targets too. It is for clouds that balance to plain IP addresses.
	AllTargets bool
	// MaxTargets is the most targets that one load balancer takes; no limit where zero.
	MaxTargets int
	// TargetProjection names further fields of a target that matter. A change of one causes an UpdateLoadBalancer of every load balancer with the
	// target. Name, UID, provider ID and addresses always matter. Leave it empty if you can: with [FieldTaints] a cordon updates every load balancer
	// of the cluster, and with [FieldReadiness] each Node that is not ready for a moment does. Fields that only [Info.NodeProjection] names have
	// their value at the time of a call, and cause no call.
	TargetProjection NodeProjection
	// Features are the fields of a Service that the provider honours. The controller records a Warning event on a Service that uses another one.
	Features []ServiceFeature
	// MaxInFlight is the most calls of this service that the controller may make at once; 8 if zero.
	MaxInFlight int
}

// RouteOptions describe the routes to the controller.
type RouteOptions struct {
	// MaxBatch is the most routes that one call takes; 100 where zero. The answer to a call with more is INVALID.
	MaxBatch int
	// TracksNodeAddresses states that a route depends on its Node's addresses: the controller makes it again when they change.
	TracksNodeAddresses bool
	// MaxInFlight is the most calls of this service that the controller may make at once; 8 if zero.
	MaxInFlight int
	// AtOnce is the number of CreateRoute or DeleteRoute of one call that run at once; 8 if zero. Not sent.
	AtOnce int
}

// VolumeOptions describe the volumes to the controller.
type VolumeOptions struct {
	// SourceTypes are the sources that are this cloud's (VOL-2): a field of spec such as awsElasticBlockStore, or csi/DRIVER. The controller never
	// asks about others. Empty: it asks about all.
	SourceTypes []string
	// MaxInFlight is the most calls of this service that the controller may make at once; 8 if zero.
	MaxInFlight int
}

// InitializeRequest has the arguments of Initialize beside the cluster, which is in [Call].
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
	// CloudScope names the account, project and region that the credentials reach. It must be the same for the same three, in every process (PROV-9).
	// If it differs from the accepted one, the controller creates and deletes nothing until an operator accepts it. 1 to 253 ASCII letters, digits,
	// spaces and . _ : / , @ = + -.
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
	// HealthDegraded says that it works, but calls to the cloud fail: the controllers work and delete no Node.
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

// Returns the error in it, if any. The server then refuses to start.
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
