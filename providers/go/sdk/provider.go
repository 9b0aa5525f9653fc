package sdk

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// Provider is a cloud. A vendor implements it and, on the same value, the other interfaces that its cloud supports.
//
// The server calls all methods except Info concurrently. Only one Initialize runs at a time. A
// repeated call must do no harm (CORE-6). A panic in a call of the contract fails only its call, or
// its item of a batch. The server logs it. A panic in a goroutine that a method has started ends
// the process.
type Provider interface {
	// Info describes the provider. The server calls it once, at its start. It must make no call to the cloud (PROV-1).
	Info() Info
	// Initialize gets the cluster for which the provider works from now on. The elected leader calls it, also after every reconnect. It should verify
	// the credentials and fail with [Credentials] if the cloud refuses them. Calls of Initialize never overlap. Until one has succeeded, the server
	// answers NOT_INITIALIZED to every other call with a cluster. Deadline 60 s.
	Initialize(ctx context.Context, call *Call, request InitializeRequest) (Initialized, error)
}

// HealthReporter is for a provider that knows its state. Without it a provider is READY.
//
// The provider should report DEGRADED after at most 5 failures of the cloud in a row: UNAVAILABLE,
// CREDENTIALS, THROTTLED, or no answer in the provider's own time. The first call that the cloud
// answers ends this state. A refusal of one object (INVALID, NOT_FOUND, CONFLICT, PRECONDITION) is
// an answer. A call that the controller cancelled, or whose deadline passed, is neither a failure
// nor an answer (PROV-16).
type HealthReporter interface {
	// Health answers from memory and must not block: the controller calls it at least every 10 s (PROV-4).
	Health() Health
}

// ServiceName names one of the contract's services, or WatchChanges.
type ServiceName string

// What can be left out with [Info.Without].
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
	// Version is the provider's own; never empty.
	Version string
	// ProviderIDPrefixes are the prefixes of the cloud's provider IDs, for example aws://. There must be at least one if instances are offered, and at
	// most 16, each of at most 253 bytes. Each contains ://; the characters are ASCII letters, digits and ._:/@+- (PROV-8). To a lookup of a Node's instance the server answers UNMANAGED if the provider ID begins with none of them (INST-9).
	ProviderIDPrefixes []string
	// NodeProjection names the fields of each Node that the provider wants to see.
	NodeProjection NodeProjection
	// MinControllerMinor is the lowest minor of the contract that the controller must speak.
	MinControllerMinor uint32
	// Without names implemented services that the server must not offer, such as one that the configuration switches off. At least one service must remain.
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

// InstanceOptions describe the instances to the controller. MaxBatch, MaxInFlight and AtOnce hold for zones too.
type InstanceOptions struct {
	// MaxBatch is the most Nodes that one call takes; 100 if zero. The server answers INVALID to a call with more.
	MaxBatch int
	// PowerState states that the provider distinguishes running from stopped. Without it the controller never sets the shutdown taint.
	PowerState bool
	// MaxInFlight is the most calls of this service that the controller may make at once; 8 if zero.
	MaxInFlight int
	// AtOnce is how many LookupInstance or LookupZone of one call run at once; 16 if zero. The server does not send it to the controller.
	AtOnce int
}

// LoadBalancerOptions describe the load balancers to the controller.
type LoadBalancerOptions struct {
	// Classes are the served values of spec.loadBalancerClass. The controller calls Ensure and Update for no Service with another class. Get and Delete
	// must answer for a Service whose class has changed (LB-29). The SDK does not check the class of a Service. There are at most 64 classes of 1 to 253 ASCII
	// letters, digits and ._:/@+-, none twice and none with the name default.
	Classes []string
	// OnlyClasses states that the provider does not serve Services without a class. Then Classes must have one.
	OnlyClasses bool
	// InSync states that the provider sets [LoadBalancer.InSync]. After a restart the controller then calls no Ensure for
	// a load balancer that is in sync.
	InSync bool
	// IgnoresNodes states that the targets do not matter to this cloud: changes of Nodes cause no call.
	IgnoresNodes bool
	// AllTargets states that Nodes without a provider ID, or with that of another provider, can be targets too. It is for clouds that balance to plain
	// IP addresses.
	AllTargets bool
	// MaxTargets is the most targets that one load balancer takes; no limit if zero.
	MaxTargets int
	// TargetProjection names further fields of a target that matter. A change of one causes an UpdateLoadBalancer of every load balancer with the
	// target. Name, UID, provider ID and addresses always matter. Leave it empty if you can. With [FieldTaints] a cordon of a Node updates every load
	// balancer that has the Node as a target. With [FieldReadiness] each change of a Node's readiness does. A target also has the fields of
	// [Info.NodeProjection]. A change of one of these causes a call only if other Nodes become the targets.
	TargetProjection NodeProjection
	// Features are the fields of a Service that the provider honours. The controller records a Warning event on a Service that uses another one.
	Features []ServiceFeature
	// MaxInFlight is the most calls of this service that the controller may make at once; 8 if zero.
	MaxInFlight int
}

// RouteOptions describe the routes to the controller.
type RouteOptions struct {
	// MaxBatch is the most routes that one call takes; 100 if zero. The server answers INVALID to a call with more.
	MaxBatch int
	// TracksNodeAddresses states that a route depends on its Node's addresses: the controller makes the route again when they change.
	TracksNodeAddresses bool
	// MaxInFlight is the most calls of this service that the controller may make at once; 8 if zero.
	MaxInFlight int
	// AtOnce is how many CreateRoute or DeleteRoute of one call run at once; 8 if zero. The server does not send it to the controller.
	AtOnce int
}

// VolumeOptions describe the volumes to the controller.
type VolumeOptions struct {
	// SourceTypes are the sources of this cloud's volumes (VOL-2): a field of spec such as awsElasticBlockStore, or csi/DRIVER. The controller does not
	// ask about volumes with other sources. If it is empty, the controller asks about all.
	SourceTypes []string
	// MaxInFlight is the most calls of this service that the controller may make at once; 8 if zero.
	MaxInFlight int
}

// InitializeRequest has the arguments of Initialize beside the cluster and its previous owner IDs, which are in [Call].
type InitializeRequest struct {
	// ClusterCIDRs are the cluster's Pod CIDRs; empty if the controller has none configured.
	ClusterCIDRs []string
	// KubernetesVersion is that of the API server, for example v1.36.3; empty if not known.
	KubernetesVersion string
	// ReadOnly forbids writes to the cloud until an Initialize without it succeeds. The server refuses the RPCs that write (PROV-20). Initialize itself
	// must not write either.
	ReadOnly bool
}

// Initialized says that the provider is ready for calls.
type Initialized struct {
	// CloudScope names the account, project and region that the credentials reach. Every process with credentials for the same account, project and
	// region must return the same text (PROV-9). If it differs from the accepted one, the controller creates and deletes nothing until an operator
	// accepts it. It has 1 to 253 ASCII letters, digits, spaces and . _ : / , @ = + -.
	CloudScope string
	// ClusterID is the cloud's own ID of this cluster, if the cloud has one.
	ClusterID string
	// Deadlines asks for longer deadlines.
	Deadlines DeadlineHints
}

// DeadlineHints asks for longer deadlines. Each hint raises the controller's default, at most to the operator's cap, and never lowers it. Zero leaves the
// default.
type DeadlineHints struct {
	// Lookup is for lookups of instances, zones and labels of volumes (default 60 s), and List for listings (5 min). LoadBalancer is for calls about
	// one load balancer (5 min), and Routes for creating and deleting routes (2 min).
	Lookup, List, LoadBalancer, Routes time.Duration
}

// HealthState is the state of a provider.
type HealthState int

// The states of a provider; the zero value is READY.
const (
	// HealthReady says that the provider works.
	HealthReady HealthState = iota
	// HealthStarting says that the provider is not ready yet: the controllers pause.
	HealthStarting
	// HealthDegraded says that calls to the cloud fail: the controllers work, but delete no Node and no route.
	HealthDegraded
	// HealthBroken says that the provider cannot work: the controllers pause.
	HealthBroken
)

// Health is the state of a provider, and its cause.
type Health struct {
	// State is the state.
	State HealthState
	// Message is the cause, for people; empty if the provider is ready.
	Message string
	// LastCloudSuccess is when the cloud last answered with success, as the vendor knows it. The
	// server reports the later of this and the last [Call.CloudAnswered].
	LastCloudSuccess time.Time
}

const (
	// The most classes of load balancers of one provider.
	mostClasses = 64
	// The name that the controller uses for Services without a class.
	noClass = "default"
)

var (
	providerName     = regexp.MustCompile(`^[a-z0-9-]{1,63}$`)
	prefixCharacters = regexp.MustCompile(`^[A-Za-z0-9._:/@+-]+$`)
)

// check returns the first error in the Info, if any. The server then refuses to start.
func (i *Info) check(offersInstances bool) error {
	if !providerName.MatchString(i.Name) {
		return fmt.Errorf("the provider's name %q is not 1 to 63 lower-case letters, digits and dashes", i.Name)
	}
	if i.Version == "" {
		return errors.New("the provider's Version \"\" is empty; right would be one such as \"1.2.3\"")
	}
	if offersInstances && len(i.ProviderIDPrefixes) == 0 {
		return fmt.Errorf("instances are offered without a prefix of provider IDs; right would be ProviderIDPrefixes: []string{%q}", i.Name+"://")
	}
	if len(i.ProviderIDPrefixes) > 16 {
		return fmt.Errorf("%d prefixes of provider IDs are more than 16", len(i.ProviderIDPrefixes))
	}
	for at, prefix := range i.ProviderIDPrefixes {
		wrong := ""
		switch {
		case prefix == "":
			wrong = "is empty"
		case len(prefix) > nameBytes:
			wrong = fmt.Sprintf("is longer than %d bytes", nameBytes)
		case !strings.Contains(prefix, "://"):
			wrong = "does not contain ://"
		case !prefixCharacters.MatchString(prefix):
			wrong = "has characters other than ASCII letters, digits and ._:/@+-"
		case slices.Contains(i.ProviderIDPrefixes[:at], prefix):
			return fmt.Errorf("the prefix %q in ProviderIDPrefixes is there twice; right would be once", prefix)
		}
		if wrong != "" {
			return fmt.Errorf("the prefix %q in ProviderIDPrefixes %s; right would be one such as %q (PROV-8)", prefix, wrong, i.Name+"://")
		}
	}
	balancers := &i.LoadBalancers
	if err := balancers.checkClasses(); err != nil {
		return err
	}
	for _, text := range slices.Concat([]string{i.Version}, i.ProviderIDPrefixes, i.Volumes.SourceTypes, i.NodeProjection.texts(), balancers.TargetProjection.texts()) {
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

// checkClasses returns an error for classes that the contract does not allow.
func (o *LoadBalancerOptions) checkClasses() error {
	if o.OnlyClasses && len(o.Classes) == 0 {
		return errors.New("OnlyClasses is set, but Classes is empty: the provider would serve no Service; right would be Classes: []string{\"example.com/lb\"}")
	}
	if len(o.Classes) > mostClasses {
		return fmt.Errorf("%d classes of load balancers are more than %d", len(o.Classes), mostClasses)
	}
	for at, class := range o.Classes {
		wrong := ""
		switch {
		case class == noClass:
			wrong = "stands for Services without a class"
		case len(class) > nameBytes:
			wrong = fmt.Sprintf("is longer than %d bytes", nameBytes)
		case !prefixCharacters.MatchString(class):
			wrong = "is not one or more ASCII letters, digits and ._:/@+-"
		case slices.Contains(o.Classes[:at], class):
			wrong = "is there twice"
		}
		if wrong != "" {
			return fmt.Errorf("the class %q in LoadBalancers.Classes %s; right would be one such as \"example.com/lb\"", class, wrong)
		}
	}
	return nil
}
