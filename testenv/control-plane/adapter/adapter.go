// Package adapter lets an existing Go cloud-controller-manager use a provider of the gRPC contract:
// it is a cloudprovider.Interface whose methods call the provider over its Unix socket.
//
// A vendor's main package calls Register, as for any cloud, and starts with
// --cloud-provider=grpc-ccm --cloud-config=FILE (see Config). docs/migration.md lists the features
// that Go's interface has no place for.
package adapter

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedv1 "k8s.io/client-go/kubernetes/typed/core/v1"
	listersv1 "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/record"
	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/klog/v2"

	"github.com/grpc-ccm/grpc-ccm/providers/go/contract"
)

// Name is the adapter's value of --cloud-provider.
const Name = "grpc-ccm"

// clientName names the adapter's client of the API server.
const clientName = "grpc-ccm-adapter"

// Cloud is a provider of the contract as Go's cloud-controller-manager sees it.
type Cloud struct {
	config  Config
	session *session
	info    *contract.GetProviderInfoResponse

	// How many calls of each service may be in flight.
	instances, balancers, routes chan struct{}
	// At most one call that changes a load balancer is in flight for each Service.
	turns turns
	// The routes of the last listing, by name and destination. DeleteRoute sends a route as
	// ListRoutes received it.
	listed sync.Map
	// Initialize and SetInformers set these before the controllers start.
	events record.EventRecorder
	nodes  listersv1.NodeLister
}

var (
	_ cloudprovider.Interface    = (*Cloud)(nil)
	_ cloudprovider.InformerUser = (*Cloud)(nil)
)

// Register registers the adapter under Name, as a vendor's package does for its cloud.
func Register() {
	cloudprovider.RegisterCloudProvider(Name, func(text io.Reader) (cloudprovider.Interface, error) {
		config, err := ReadConfig(text)
		if err != nil {
			return nil, err
		}
		return Connect(config)
	})
}

// Connect dials the provider and calls GetProviderInfo. It waits for the provider, because the
// framework chooses the controllers by the provider's capabilities, but at most for the configured
// time.
func Connect(config Config) (*Cloud, error) {
	session, err := dial(config.Endpoint)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), config.ConnectTimeout.Duration)
	defer cancel()
	info, err := session.providerInfo(ctx)
	if err != nil {
		_ = session.connection.Close()
		return nil, fmt.Errorf("the provider at %s did not answer GetProviderInfo within %s: %w", config.Endpoint, config.ConnectTimeout.Duration, err)
	}
	session.takeLimits(info)
	offered := info.GetCapabilities()
	return &Cloud{
		config:    config,
		session:   session,
		info:      info,
		instances: inFlight(offered.GetInstances().GetMaxInFlight()),
		balancers: inFlight(offered.GetLoadBalancers().GetMaxInFlight()),
		routes:    inFlight(offered.GetRoutes().GetMaxInFlight()),
	}, nil
}

// inFlight makes the places for calls of one service: 8 unless the provider states max_in_flight.
func inFlight(most uint32) chan struct{} {
	if most == 0 {
		most = 8
	}
	return make(chan struct{}, most)
}

// Initialize initialises the provider for this cluster. The framework calls it on the leader,
// before the controllers start. A leader whose provider cannot be initialised must not keep the
// Lease, so the process ends.
func (c *Cloud) Initialize(clients cloudprovider.ControllerClientBuilder, stop <-chan struct{}) {
	client := clients.ClientOrDie(clientName)
	ctx, cancel := context.WithTimeout(context.Background(), c.config.ConnectTimeout.Duration)
	defer cancel()
	request, err := c.initializeRequest(ctx, client)
	if err == nil {
		c.session.setRequest(request)
		err = c.session.initializedWithin(ctx)
	}
	if err != nil {
		select {
		case <-stop:
		default:
			klog.ErrorS(err, "The provider cannot be initialised", "endpoint", c.config.Endpoint)
			klog.FlushAndExit(klog.ExitFlushTimeout, 1)
		}
	}

	broadcaster := record.NewBroadcaster()
	broadcaster.StartRecordingToSink(&typedv1.EventSinkImpl{Interface: client.CoreV1().Events("")})
	c.events = broadcaster.NewRecorder(scheme.Scheme, v1.EventSource{Component: "service-controller"})
	go func() {
		<-stop
		broadcaster.Shutdown()
	}()
}

// initializeRequest names the cluster. The owner ID is the UID of the namespace kube-system, unless
// one is configured.
func (c *Cloud) initializeRequest(ctx context.Context, client kubernetes.Interface) (*contract.InitializeRequest, error) {
	owner := c.config.OwnerID
	if owner == "" {
		namespace, err := client.CoreV1().Namespaces().Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
		if err != nil {
			return nil, fmt.Errorf("cannot read the UID of the namespace kube-system, the cluster's owner ID: %w", err)
		}
		owner = string(namespace.UID)
	}
	version, err := client.Discovery().ServerVersion()
	if err != nil {
		return nil, fmt.Errorf("cannot read the version of the API server: %w", err)
	}
	return &contract.InitializeRequest{
		Cluster:           &contract.ClusterRef{Name: c.config.ClusterName, OwnerId: owner},
		PreviousOwnerIds:  c.config.PreviousOwnerIDs,
		ClusterCidrs:      c.config.ClusterCIDRs,
		KubernetesVersion: version.GitVersion,
	}, nil
}

// SetInformers keeps the lister of Nodes, with which the adapter finds the targets of routes.
func (c *Cloud) SetInformers(factory informers.SharedInformerFactory) {
	c.nodes = factory.Core().V1().Nodes().Lister()
}

// ProviderName is the provider's own name.
func (c *Cloud) ProviderName() string { return c.info.GetProviderName() }

// HasClusterID is always true: the owner ID marks the cluster's objects.
func (c *Cloud) HasClusterID() bool { return true }

// Instances is the older interface, which InstancesV2 replaces.
func (c *Cloud) Instances() (cloudprovider.Instances, bool) { return nil, false }

// Zones is the older interface: InstanceMetadata includes the answers of LookupZones.
func (c *Cloud) Zones() (cloudprovider.Zones, bool) { return nil, false }

// InstancesV2 exists if the provider offers instances.
func (c *Cloud) InstancesV2() (cloudprovider.InstancesV2, bool) {
	return c, c.info.GetCapabilities().GetInstances() != nil
}

// LoadBalancer exists if the provider serves Services without a class: the framework handles no
// others.
func (c *Cloud) LoadBalancer() (cloudprovider.LoadBalancer, bool) {
	return c, c.info.GetCapabilities().GetLoadBalancers().GetDefaultClass()
}

// Routes exists if the provider offers routes.
func (c *Cloud) Routes() (cloudprovider.Routes, bool) {
	return c, c.info.GetCapabilities().GetRoutes() != nil
}

// Clusters exists if the provider offers clusters.
func (c *Cloud) Clusters() (cloudprovider.Clusters, bool) {
	return c, c.info.GetCapabilities().GetClusters() != nil
}

// limited waits for a free place among the calls of one service. The returned function frees the
// place.
func limited(ctx context.Context, places chan struct{}) (func(), error) {
	select {
	case places <- struct{}{}:
		return func() { <-places }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Deadlines of the contract. The provider's hints can raise all but the first two.
const (
	infoDeadline       = 10 * time.Second
	initializeDeadline = 60 * time.Second
	lookupDeadline     = 60 * time.Second
	listDeadline       = 5 * time.Minute
	balancerDeadline   = 5 * time.Minute
	routesDeadline     = 2 * time.Minute
	// No hint raises a deadline beyond this.
	longestDeadline = 15 * time.Minute
)
