// Package lister is a cloud that resembles that of Hetzner's CCM: its own main makes it, with the cluster's CIDR and a lister of Nodes. It asks its API for the
// location in its constructor, keeps servers in its own cache, makes routes only to an address that the route names, and records events about Nodes.
// A vendor would write the code so: it does not know the bridge.
package lister

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	typedv1 "k8s.io/client-go/kubernetes/typed/core/v1"
	listersv1 "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/record"
	cloudprovider "k8s.io/cloud-provider"

	"github.com/grpc-ccm/grpc-ccm/providers/go/bridge/shapes/store"
)

const (
	// Name is the cloud's own name.
	Name = "lister"

	prefix = Name + "://"
	// cacheVariable is the environment variable with the greatest age of a server in the cache.
	cacheVariable = "LISTER_CACHE"
	// defaultMaxAge is how old a cached server may be if LISTER_CACHE is not set.
	defaultMaxAge = 2 * time.Second
)

// Cloud is the cloud.
type Cloud struct {
	store.Newer

	store    *store.Store
	cidr     *net.IPNet
	nodes    listersv1.NodeLister
	recorder record.EventRecorder
	maxAge   time.Duration

	mu      sync.Mutex
	servers map[string]store.Instance
	filled  time.Time
}

// NewCloud makes the cloud whose state is in the file. The CIDR is that of the cluster's Pods.
func NewCloud(state, cidr string, nodes listersv1.NodeLister) (*Cloud, error) {
	_, pods, err := net.ParseCIDR(cidr)
	if err != nil {
		return nil, fmt.Errorf("lister/NewCloud: the cluster's CIDR: %w", err)
	}
	if nodes == nil {
		return nil, errors.New("lister/NewCloud: no lister of Nodes")
	}
	c := &Cloud{store: store.At(state), cidr: pods, nodes: nodes, maxAge: defaultMaxAge}
	if text := os.Getenv(cacheVariable); text != "" {
		if c.maxAge, err = time.ParseDuration(text); err != nil {
			return nil, fmt.Errorf("lister/NewCloud: %s: %w", cacheVariable, err)
		}
	}
	// This call checks the token.
	if err := c.read(context.Background(), "/locations", func(*store.State) error { return nil }); err != nil {
		return nil, fmt.Errorf("lister/NewCloud: %w", err)
	}
	return c, nil
}

func (c *Cloud) read(ctx context.Context, path string, look func(*store.State) error) error {
	return answered(c.store.Read(ctx, http.MethodGet+" "+path, look))
}

func (c *Cloud) write(ctx context.Context, method, path string, change func(*store.State) (bool, error)) error {
	return answered(c.store.Write(ctx, method+" "+path, change))
}

// answered returns an error in the form of the cloud's SDK: a message and a code in words.
func answered(err error) error {
	var refusal *store.Refusal
	if errors.As(err, &refusal) {
		return fmt.Errorf("%s (%s)", refusal.Message, strings.ReplaceAll(strings.ToLower(http.StatusText(refusal.Status)), " ", "_"))
	}
	return err
}

// Initialize makes the recorder of the cloud's events.
func (c *Cloud) Initialize(clients cloudprovider.ControllerClientBuilder, stop <-chan struct{}) {
	client := clients.ClientOrDie(Name)
	broadcaster := record.NewBroadcaster()
	broadcaster.StartRecordingToSink(&typedv1.EventSinkImpl{Interface: client.CoreV1().Events("")})
	go func() {
		<-stop
		broadcaster.Shutdown()
	}()
	c.recorder = broadcaster.NewRecorder(scheme.Scheme, v1.EventSource{Component: Name})
}

// LoadBalancer returns the cloud itself.
func (c *Cloud) LoadBalancer() (cloudprovider.LoadBalancer, bool) { return c, true }

// InstancesV2 returns the cloud itself.
func (c *Cloud) InstancesV2() (cloudprovider.InstancesV2, bool) { return c, true }

// Routes returns the cloud itself.
func (c *Cloud) Routes() (cloudprovider.Routes, bool) { return c, true }

// ProviderName returns the cloud's name.
func (c *Cloud) ProviderName() string { return Name }

// HasClusterID always returns false.
func (c *Cloud) HasClusterID() bool { return false }

// all returns the servers by name, from the cache if it is young enough.
func (c *Cloud) all(ctx context.Context) (map[string]store.Instance, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.filled) < c.maxAge {
		return c.servers, nil
	}
	servers := map[string]store.Instance{}
	err := c.read(ctx, "/servers", func(state *store.State) error {
		for name, one := range state.Instances {
			servers[name] = *one
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("lister/servers: %w", err)
	}
	c.servers, c.filled = servers, time.Now()
	return servers, nil
}

// server returns the server of a Node, or nil.
func (c *Cloud) server(ctx context.Context, node *v1.Node) (*store.Instance, error) {
	servers, err := c.all(ctx)
	if err != nil {
		return nil, err
	}
	for name, one := range servers {
		if node.Spec.ProviderID == "" && name == node.Name || node.Spec.ProviderID == prefix+one.ID {
			return &one, nil
		}
	}
	return nil, nil
}

// InstanceExists asks the cache.
func (c *Cloud) InstanceExists(ctx context.Context, node *v1.Node) (bool, error) {
	found, err := c.server(ctx, node)
	return found != nil, err
}

// InstanceShutdown asks the cache.
func (c *Cloud) InstanceShutdown(ctx context.Context, node *v1.Node) (bool, error) {
	found, err := c.server(ctx, node)
	switch {
	case err != nil:
		return false, err
	case found == nil:
		return false, fmt.Errorf("lister/InstanceShutdown: failed to get the server: %w", cloudprovider.InstanceNotFound)
	}
	return found.Stopped, nil
}

// InstanceMetadata asks the cache.
func (c *Cloud) InstanceMetadata(ctx context.Context, node *v1.Node) (*cloudprovider.InstanceMetadata, error) {
	found, err := c.server(ctx, node)
	switch {
	case err != nil:
		return nil, err
	case found == nil:
		return nil, fmt.Errorf("lister/InstanceMetadata: failed to get the server: %w", cloudprovider.InstanceNotFound)
	}
	return found.Metadata(prefix, node.Name), nil
}

// ListRoutes lists the routes of its network. A route to a server that is gone is a blackhole.
func (c *Cloud) ListRoutes(ctx context.Context, _ string) ([]*cloudprovider.Route, error) {
	there := map[string]string{}
	err := c.read(ctx, "/networks/1", func(state *store.State) error {
		for destination, gateway := range state.Routes {
			there[destination] = gateway
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("lister/ListRoutes: %w", err)
	}
	servers, err := c.all(ctx)
	if err != nil {
		return nil, err
	}
	var routes []*cloudprovider.Route
	for destination, gateway := range there {
		route := &cloudprovider.Route{Name: gateway + "-" + destination, DestinationCIDR: destination, Blackhole: true}
		for name, one := range servers {
			if one.Address == gateway {
				route.TargetNode, route.Blackhole = types.NodeName(name), false
			}
		}
		routes = append(routes, route)
	}
	slices.SortFunc(routes, func(a, b *cloudprovider.Route) int { return strings.Compare(a.DestinationCIDR, b.DestinationCIDR) })
	return routes, nil
}

// CreateRoute makes a route to the server of the Node, if its address is one that the route names.
func (c *Cloud) CreateRoute(ctx context.Context, _, _ string, route *cloudprovider.Route) error {
	node, err := c.nodes.Get(string(route.TargetNode))
	if err != nil {
		return fmt.Errorf("lister/CreateRoute: error fetching node %s by name: %w", route.TargetNode, err)
	}
	server, err := c.server(ctx, node)
	switch {
	case err != nil:
		return err
	case server == nil:
		return fmt.Errorf("lister/CreateRoute: the server of node %s was not found", route.TargetNode)
	}
	if !slices.Contains(route.TargetNodeAddresses, v1.NodeAddress{Type: v1.NodeInternalIP, Address: server.Address}) {
		return fmt.Errorf("lister/CreateRoute: IP %s not part of routes target addresses", server.Address)
	}
	_, wanted, err := net.ParseCIDR(route.DestinationCIDR)
	if err != nil {
		return fmt.Errorf("lister/CreateRoute: %w", err)
	}
	if !c.cidr.Contains(wanted.IP) {
		c.recorder.Eventf(node, v1.EventTypeWarning, "ClusterCIDRMisconfigured", "route CIDR %s is not contained within cluster CIDR %s", wanted, c.cidr)
	}
	return c.write(ctx, http.MethodPost, "/networks/1/actions/add_route", func(state *store.State) (bool, error) {
		changed := state.Routes[wanted.String()] != server.Address
		state.Routes[wanted.String()] = server.Address
		return changed, nil
	})
}

// DeleteRoute removes a route by its destination.
func (c *Cloud) DeleteRoute(ctx context.Context, _ string, route *cloudprovider.Route) error {
	return c.write(ctx, http.MethodPost, "/networks/1/actions/delete_route", func(state *store.State) (bool, error) {
		if _, there := state.Routes[route.DestinationCIDR]; !there {
			return false, fmt.Errorf("lister/DeleteRoute: route %s not found", route.Name)
		}
		delete(state.Routes, route.DestinationCIDR)
		return true, nil
	})
}

// GetLoadBalancerName returns Go's default name.
func (c *Cloud) GetLoadBalancerName(_ context.Context, _ string, service *v1.Service) string {
	return cloudprovider.DefaultLoadBalancerName(service)
}

// balancer finds the load balancer by the label with the Service's UID, or returns nil.
func (c *Cloud) balancer(ctx context.Context, service *v1.Service) (found *store.LoadBalancer, err error) {
	err = c.read(ctx, "/load_balancers?label_selector=service-uid="+string(service.UID), func(state *store.State) error {
		found = state.LoadBalancers[string(service.UID)]
		return nil
	})
	return found, err
}

// GetLoadBalancer finds the load balancer by the label.
func (c *Cloud) GetLoadBalancer(ctx context.Context, _ string, service *v1.Service) (*v1.LoadBalancerStatus, bool, error) {
	found, err := c.balancer(ctx, service)
	if err != nil || found == nil {
		return nil, false, err
	}
	return found.Status(), true, nil
}

// EnsureLoadBalancer makes the load balancer, and then calls the API for each part that differs.
func (c *Cloud) EnsureLoadBalancer(ctx context.Context, _ string, service *v1.Service, nodes []*v1.Node) (*v1.LoadBalancerStatus, error) {
	found, err := c.balancer(ctx, service)
	if err != nil {
		return nil, fmt.Errorf("lister/EnsureLoadBalancer: %w", err)
	}
	if found == nil {
		err := c.write(ctx, http.MethodPost, "/load_balancers", func(state *store.State) (bool, error) {
			state.Next++
			found = &store.LoadBalancer{ID: fmt.Sprint(state.Next), Name: cloudprovider.DefaultLoadBalancerName(service), IP: fmt.Sprintf("203.0.113.%d", state.Next%250+1)}
			state.LoadBalancers[string(service.UID)] = found
			return true, nil
		})
		if err != nil {
			return nil, fmt.Errorf("lister/EnsureLoadBalancer: %w", err)
		}
	}
	rules := store.PortRules(service)
	if !slices.Equal(found.Rules, rules) {
		if err := c.change(ctx, service, "change_service", func(one *store.LoadBalancer) { one.Rules = rules }); err != nil {
			return nil, err
		}
	}
	if err := c.target(ctx, service, found, nodes); err != nil {
		return nil, err
	}
	return found.Status(), nil
}

func (c *Cloud) target(ctx context.Context, service *v1.Service, found *store.LoadBalancer, nodes []*v1.Node) error {
	targets := store.TargetIDs(prefix, nodes)
	if slices.Equal(found.Targets, targets) {
		return nil
	}
	return c.change(ctx, service, "add_target", func(one *store.LoadBalancer) { one.Targets = targets })
}

func (c *Cloud) change(ctx context.Context, service *v1.Service, action string, change func(*store.LoadBalancer)) error {
	err := c.write(ctx, http.MethodPost, "/load_balancers/"+string(service.UID)+"/actions/"+action, func(state *store.State) (bool, error) {
		one := state.LoadBalancers[string(service.UID)]
		if one == nil {
			return false, store.ErrNotFound
		}
		change(one)
		return true, nil
	})
	if err != nil {
		return fmt.Errorf("lister/%s: %w", action, err)
	}
	return nil
}

// UpdateLoadBalancer sets the targets if they differ.
func (c *Cloud) UpdateLoadBalancer(ctx context.Context, _ string, service *v1.Service, nodes []*v1.Node) error {
	found, err := c.balancer(ctx, service)
	switch {
	case err != nil:
		return fmt.Errorf("lister/UpdateLoadBalancer: %w", err)
	case found == nil:
		return errors.New("lister/UpdateLoadBalancer: not found")
	}
	return c.target(ctx, service, found, nodes)
}

// EnsureLoadBalancerDeleted removes the load balancer, if it is there.
func (c *Cloud) EnsureLoadBalancerDeleted(ctx context.Context, _ string, service *v1.Service) error {
	found, err := c.balancer(ctx, service)
	if err != nil || found == nil {
		return err
	}
	return c.write(ctx, http.MethodDelete, "/load_balancers/"+string(service.UID), func(state *store.State) (bool, error) {
		_, there := state.LoadBalancers[string(service.UID)]
		delete(state.LoadBalancers, string(service.UID))
		return there, nil
	})
}
