package bridge

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"regexp"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/klog/v2"

	"github.com/grpc-ccm/grpc-ccm/providers/go/contract"
	"github.com/grpc-ccm/grpc-ccm/providers/go/sdk"
)

const (
	// contractMinor is the minor of the contract that the bridge speaks.
	contractMinor = 0
	// MaxMessageBytes is the largest size of a request or an answer.
	MaxMessageBytes = sdk.DefaultMaxMessageBytes
)

// Bridge serves the contract from a Go cloud.
type Bridge struct {
	contract.UnimplementedProviderServiceServer
	contract.UnimplementedInstanceServiceServer
	contract.UnimplementedZoneServiceServer
	contract.UnimplementedLoadBalancerServiceServer
	contract.UnimplementedRouteServiceServer
	contract.UnimplementedClusterServiceServer
	contract.UnimplementedVolumeServiceServer

	// nil until Options.New has made the cloud.
	cloud   cloudprovider.Interface
	options Options
	name    string
	bootID  string
	// The offered parts, from which the capabilities follow. They do not change.
	offers partSet
	// The parts that calls use; none before the cloud's own Initialize has succeeded.
	taken atomic.Pointer[parts]

	contact  contact
	holds    sdk.Holds
	recent   recentRoutes
	starting starting
	standIn  *standIn
	// Types and zones of a cloud with the older interfaces.
	types, placed seldom

	// Limits on how many of the cloud's methods run at once. Each group has its own limit, so that load balancers that hang do not delay the lookups
	// of Nodes.
	general, instances, balancers, routes *places

	mu sync.RWMutex
	// The cluster for which the provider works; nil before Initialize has succeeded.
	owner *Owner
	// Whether the bridge refuses calls that write (PROV-20).
	readOnly bool
}

var providerName = regexp.MustCompile(`^[a-z0-9-]{1,63}$`)

// New makes a bridge to the cloud. The cloud is nil if Options.New makes it later. New calls only the method that returns the cloud's name and, unless
// Options.Offers lists the parts, the methods that return them.
func New(cloud cloudprovider.Interface, options Options) (*Bridge, error) {
	name := options.Name
	if cloud != nil {
		var err error
		if name, err = guarded("ProviderName", cloud.ProviderName); err != nil {
			return nil, err
		}
	} else if err := options.checkNew(); err != nil {
		return nil, err
	}
	if !providerName.MatchString(name) {
		return nil, fmt.Errorf("the cloud calls itself %q; the contract wants at most 63 lower-case letters, digits and dashes", name)
	}
	if err := options.complete(name); err != nil {
		return nil, err
	}
	offers, err := guarded("for its parts", func() partSet { return offersOf(cloud, options.Offers) })
	if err != nil {
		return nil, fmt.Errorf("%w: with --offer the bridge asks the cloud for its parts only after the cloud's Initialize", err)
	}
	return &Bridge{
		cloud: cloud, options: options, name: name, bootID: rand.Text(), offers: offers,
		standIn:   newStandIn(),
		types:     seldom{labels: typeLabels},
		placed:    seldom{labels: zoneLabels},
		general:   newPlaces(options.ConcurrentCalls),
		instances: newPlaces(options.ConcurrentCalls),
		balancers: newPlaces(options.ConcurrentServices),
		routes:    newPlaces(options.ConcurrentCalls),
	}, nil
}

// Register adds the services that the cloud offers to a gRPC server.
func (b *Bridge) Register(server grpc.ServiceRegistrar) {
	contract.RegisterProviderServiceServer(server, b)
	if b.offers[partInstances] {
		contract.RegisterInstanceServiceServer(server, b)
	}
	if b.offers[partZones] {
		contract.RegisterZoneServiceServer(server, b)
	}
	if b.offers[partBalancers] {
		contract.RegisterLoadBalancerServiceServer(server, b)
	}
	if b.offers[partRoutes] {
		contract.RegisterRouteServiceServer(server, b)
	}
	if b.offers[partClusters] {
		contract.RegisterClusterServiceServer(server, b)
	}
	if b.offers[partVolumes] {
		contract.RegisterVolumeServiceServer(server, b)
	}
}

// GetProviderInfo answers with the cloud's name and capabilities, from memory (PROV-1).
func (b *Bridge) GetProviderInfo(_ context.Context, request *contract.GetProviderInfoRequest) (*contract.GetProviderInfoResponse, error) {
	klog.V(2).InfoS("A controller called GetProviderInfo", "version", request.GetControllerVersion(), "minor", request.GetContractMinor())
	projection := &contract.NodeProjection{
		LabelKeys:      b.options.NodeLabels,
		AllLabels:      len(b.options.NodeLabels) == 0,
		AnnotationKeys: b.options.NodeAnnotations,
		FieldGroups: []contract.NodeFieldGroup{
			contract.NodeFieldGroup_NODE_FIELD_GROUP_POD_CIDRS,
			contract.NodeFieldGroup_NODE_FIELD_GROUP_TAINTS,
			contract.NodeFieldGroup_NODE_FIELD_GROUP_NODE_INFO,
			contract.NodeFieldGroup_NODE_FIELD_GROUP_READINESS,
			contract.NodeFieldGroup_NODE_FIELD_GROUP_CREATION_TIME,
		},
	}
	return &contract.GetProviderInfoResponse{
		ProviderName:       b.name,
		ProviderVersion:    b.options.Version,
		ContractMinor:      contractMinor,
		BootId:             b.bootID,
		ProviderIdPrefixes: b.options.ProviderIDPrefixes,
		MaxRequestBytes:    new(uint64(MaxMessageBytes)),
		Capabilities:       b.capabilities(),
		NodeProjection:     projection,
	}, nil
}

func (b *Bridge) capabilities() *contract.Capabilities {
	options := &b.options
	offered := &contract.Capabilities{}
	if b.offers[partInstances] {
		offered.Instances = &contract.InstanceCapability{
			MaxBatch:    new(options.MaxBatch),
			Listing:     b.offers[partInstanceListing],
			PowerState:  !options.NoPowerState,
			MaxInFlight: new(uint32(4)),
		}
	}
	if b.offers[partZones] {
		offered.Zones = &contract.ZoneCapability{}
	}
	if b.offers[partBalancers] {
		scope := contract.TargetScope_TARGET_SCOPE_OWNED
		if options.AllTargets {
			scope = contract.TargetScope_TARGET_SCOPE_ALL
		}
		offered.LoadBalancers = &contract.LoadBalancerCapability{
			Classes:      options.Classes,
			DefaultClass: !options.OnlyClasses,
			Listing:      b.offers[partBalancerListing],
			InSync:       b.offers[partInSync],
			IgnoresNodes: options.IgnoresNodes,
			TargetScope:  scope,
			MaxTargets:   new(options.MaxTargets),
			Features:     options.Features,
			MaxInFlight:  new(uint32(options.ConcurrentServices)),
		}
	}
	if b.offers[partRoutes] {
		offered.Routes = &contract.RouteCapability{
			MaxBatch: new(options.MaxBatch), TracksNodeAddresses: options.RoutesTrackAddresses, MaxInFlight: new(uint32(4)),
		}
	}
	if b.offers[partClusters] {
		offered.Clusters = &contract.ClusterCapability{}
	}
	if b.offers[partVolumes] {
		offered.Volumes = &contract.VolumeCapability{SourceTypes: options.VolumeSources, MaxInFlight: new(uint32(options.ConcurrentCalls))}
	}
	return offered
}

// admit returns the Owner (the cluster) that a call is for, or the failure if its cluster is not the initialised one (CORE-10).
func (b *Bridge) admit(cluster *contract.ClusterRef) (*Owner, *contract.Failure) {
	if cluster.GetOwnerId() == "" {
		return nil, invalid("the request's cluster %q has no owner_id", cluster.GetName())
	}
	b.mu.RLock()
	owner := b.owner
	b.mu.RUnlock()
	switch {
	case owner == nil:
		return nil, fail(contract.FailureCode_FAILURE_CODE_NOT_INITIALIZED, "NotInitialized", "this provider process has not seen a successful Initialize")
	case owner.ID != cluster.GetOwnerId():
		return nil, fail(contract.FailureCode_FAILURE_CODE_NOT_INITIALIZED, "NotInitialized",
			"this provider is initialised for the cluster with owner ID %q, not for %q", owner.ID, cluster.GetOwnerId())
	}
	return &Owner{ID: owner.ID, Previous: owner.Previous, ClusterName: cluster.GetName()}, nil
}

// mayWrite returns a failure after an Initialize with read_only (PROV-20).
func (b *Bridge) mayWrite() *contract.Failure {
	b.mu.RLock()
	defer b.mu.RUnlock()
	if b.readOnly {
		return fail(contract.FailureCode_FAILURE_CODE_PRECONDITION, "ReadOnly", "this provider was initialised with read_only and writes nothing")
	}
	return nil
}

// Initialize sets the cluster for which the provider works. It runs the cloud's own Initialize and SetInformers until each
// has succeeded once in the process.
func (b *Bridge) Initialize(ctx context.Context, request *contract.InitializeRequest) (*contract.InitializeResponse, error) {
	failed := func(failure *contract.Failure) (*contract.InitializeResponse, error) {
		return &contract.InitializeResponse{Outcome: &contract.InitializeResponse_Failed{Failed: failure}}, nil
	}
	cluster := request.GetCluster()
	if cluster.GetOwnerId() == "" {
		return failed(invalid("the request's cluster %q has no owner_id", cluster.GetName()))
	}
	if err := fits("the owner ID", cluster.GetOwnerId(), nameBytes); err != nil {
		return failed(invalid("%v", err))
	}
	within := sdk.BudgetOf(ctx)
	owner := &Owner{ID: cluster.GetOwnerId(), Previous: request.GetPreviousOwnerIds(), ClusterName: cluster.GetName()}
	b.standIn.setVersion(request.GetKubernetesVersion())
	if failure := b.start(ctx, within, request); failure != nil {
		return failed(failure)
	}
	scope := b.options.CloudScope
	if teller := b.parts().scope; teller != nil {
		var err error
		scope, err = ask(withOwner(ctx, owner), b, b.general, "CloudScope", within, nil, teller.CloudScope)
		if err != nil {
			return failed(b.failure(err))
		}
		if err := fits("the cloud scope", scope, nameBytes); err != nil || scope == "" {
			return failed(fault("CloudScope answered %q: it must be 1 to %d bytes", scope, nameBytes))
		}
		if err := checkScope(scope); err != nil {
			return failed(fault("CloudScope did not answer a valid scope: %v", err))
		}
	}
	// If the call's context has ended, the caller sees a failure: the bridge keeps the earlier cluster (PROV-17).
	if err := ctx.Err(); err != nil {
		return failed(b.failure(err))
	}
	b.mu.Lock()
	b.owner, b.readOnly = owner, request.GetReadOnly()
	b.mu.Unlock()
	return &contract.InitializeResponse{Outcome: &contract.InitializeResponse_Initialized{Initialized: &contract.Initialized{
		CloudScope: scope, ReadOnly: request.GetReadOnly(), DeadlineHints: hintsTo(b.options.Deadlines),
	}}}, nil
}

// hintsTo returns the longer deadlines that the vendor asks for; nil for none.
func hintsTo(asked DeadlineHints) *contract.DeadlineHints {
	if asked == (DeadlineHints{}) {
		return nil
	}
	hint := func(deadline time.Duration) *durationpb.Duration {
		if deadline <= 0 {
			return nil
		}
		return durationpb.New(deadline)
	}
	return &contract.DeadlineHints{Lookup: hint(asked.Lookup), List: hint(asked.List), LoadBalancer: hint(asked.LoadBalancer), Routes: hint(asked.Routes)}
}

// Probe reports the provider's state from memory (PROV-4).
func (b *Bridge) Probe(context.Context, *contract.ProbeRequest) (*contract.ProbeResponse, error) {
	answer := &contract.ProbeResponse{State: contract.ProbeState_PROBE_STATE_READY, BootId: b.bootID}
	success, failures, last := b.contact.now()
	if !success.IsZero() {
		answer.LastCloudSuccess = timestamppb.New(success)
	}
	if failures >= manyFailures {
		answer.State = contract.ProbeState_PROBE_STATE_DEGRADED
		answer.Message = shorten(fmt.Sprintf("the last %d calls to the cloud failed, the last one with: %s", failures, last))
	}
	for _, taken := range []*places{b.general, b.instances, b.balancers, b.routes} {
		if method, since, many := taken.overrunning(); many > 0 {
			answer.State = contract.ProbeState_PROBE_STATE_DEGRADED
			answer.Message = shorten(fmt.Sprintf("%d of %d places are taken by methods of the cloud that ignore their context; the oldest is %s, since %s",
				many, cap(taken.free), method, since.Format(time.RFC3339)))
		}
	}
	if lacking := b.standIn.lacks.now(); lacking != "" {
		answer.State = contract.ProbeState_PROBE_STATE_DEGRADED
		answer.Message = shorten(lacking)
	}
	return answer, nil
}

// manyFailures in a row make the state DEGRADED.
const manyFailures = 5

// contact has the results of the last calls to the cloud.
type contact struct {
	mu       sync.Mutex
	success  time.Time
	failures int
	last     string
}

// noteContact records the result of a call to the cloud. InstanceNotFound, DiskNotFound and a retry error count as answers. It leaves out any other error
// of a method whose context has ended, and errors that say nothing about the cloud, such as NotImplemented. Else a refusal of one object counts as an
// answer.
func (b *Bridge) noteContact(ctx context.Context, err error) {
	if err == nil || errors.Is(err, cloudprovider.InstanceNotFound) || errors.Is(err, cloudprovider.DiskNotFound) || retryOf(err) != nil {
		b.contact.note(nil)
		return
	}
	var own *refusal
	if ctx.Err() != nil || errors.As(err, &own) || errors.Is(err, errNothingOurs) || errors.Is(err, context.Canceled) || errors.Is(err, cloudprovider.NotImplemented) || errors.Is(err, cloudprovider.ImplementedElsewhere) {
		return
	}
	switch b.failure(err).GetCode() {
	case contract.FailureCode_FAILURE_CODE_INVALID, contract.FailureCode_FAILURE_CODE_NOT_FOUND, contract.FailureCode_FAILURE_CODE_CONFLICT, contract.FailureCode_FAILURE_CODE_PRECONDITION:
		b.contact.note(nil)
	default:
		b.contact.note(err)
	}
}

func (c *contact) note(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil {
		c.success, c.failures, c.last = time.Now(), 0, ""
		return
	}
	c.failures++
	c.last = err.Error()
}

func (c *contact) now() (success time.Time, failures int, last string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.success, c.failures, c.last
}
