// Package careless is a cloud that relies on what upstream's controllers happen to pass, such as Services without nil pointers. Its Initialize fills
// a cache for answers about instances, and a goroutine refills it. No method checks its context. The cloud does not check a Service's pointers for
// nil, and writes to its argument. While a load balancer is being made, Ensure returns nil without an error. UpdateLoadBalancer succeeds without a load
// balancer. A vendor would write the code so: it does not know the bridge.
package careless

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/klog/v2"

	"github.com/grpc-ccm/grpc-ccm/providers/go/bridge/shapes/store"
)

const (
	// Name is what --cloud-provider takes.
	Name = "careless"
	// periodVariable is the environment variable with the time between two refills of the cache.
	periodVariable = "CARELESS_PERIOD"
	// defaultPeriod is that time if CARELESS_PERIOD is not set.
	defaultPeriod = 5 * time.Second

	scheme = Name + "://"
)

// Cloud is the cloud.
type Cloud struct {
	store.Newer

	store  *store.Store
	period time.Duration

	mu     sync.Mutex
	known  map[string]store.Instance
	filled bool
}

// New makes the cloud whose state is in the file.
func New(state string) *Cloud { return &Cloud{store: store.At(state), period: period()} }

func period() time.Duration {
	text := os.Getenv(periodVariable)
	if text == "" {
		return defaultPeriod
	}
	period, err := time.ParseDuration(text)
	if err != nil {
		klog.Fatalf("%s: %s: %v", Name, periodVariable, err)
	}
	return period
}

// Register registers it under its name.
func Register() {
	store.Register(Name, func(settings store.File) cloudprovider.Interface { return New(settings.State) })
}

// Initialize fills the cache, and starts the goroutine that refills it.
func (c *Cloud) Initialize(_ cloudprovider.ControllerClientBuilder, stop <-chan struct{}) {
	c.fill()
	go func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(c.period):
				c.fill()
			}
		}
	}()
}

func (c *Cloud) fill() {
	known := map[string]store.Instance{}
	err := c.store.Read(context.Background(), "GET /instances", func(state *store.State) error {
		for name, one := range state.Instances {
			known[name] = *one
		}
		return nil
	})
	if err != nil {
		klog.ErrorS(err, "The cache is not filled")
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.known, c.filled = known, true
}

// LoadBalancer returns the cloud itself.
func (c *Cloud) LoadBalancer() (cloudprovider.LoadBalancer, bool) { return c, true }

// InstancesV2 returns the cloud itself.
func (c *Cloud) InstancesV2() (cloudprovider.InstancesV2, bool) { return c, true }

// Routes returns false: the cloud has none.
func (c *Cloud) Routes() (cloudprovider.Routes, bool) { return nil, false }

// ProviderName returns the cloud's name.
func (c *Cloud) ProviderName() string { return Name }

// HasClusterID always returns true.
func (c *Cloud) HasClusterID() bool { return true }

func (c *Cloud) find(node *v1.Node) (*store.Instance, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.filled {
		return nil, fmt.Errorf("the cache of instances is not filled yet")
	}
	for name, one := range c.known {
		if node.Spec.ProviderID == "" && name == node.Name || node.Spec.ProviderID == scheme+one.ID {
			return &one, nil
		}
	}
	return nil, nil
}

// InstanceExists asks the cache.
func (c *Cloud) InstanceExists(_ context.Context, node *v1.Node) (bool, error) {
	found, err := c.find(node)
	return found != nil, err
}

// InstanceShutdown asks the cache; an instance that the cache lacks is not shut down.
func (c *Cloud) InstanceShutdown(_ context.Context, node *v1.Node) (bool, error) {
	found, err := c.find(node)
	return found != nil && found.Stopped, err
}

// InstanceMetadata asks the cache; for an instance that the cache lacks it returns nil.
func (c *Cloud) InstanceMetadata(_ context.Context, node *v1.Node) (*cloudprovider.InstanceMetadata, error) {
	found, err := c.find(node)
	if err != nil || found == nil {
		return nil, err
	}
	return found.Metadata(scheme, node.Name), nil
}

// GetLoadBalancerName returns Go's default name.
func (c *Cloud) GetLoadBalancerName(_ context.Context, _ string, service *v1.Service) string {
	return cloudprovider.DefaultLoadBalancerName(service)
}

// GetLoadBalancer returns no status for a load balancer that is being made.
func (c *Cloud) GetLoadBalancer(_ context.Context, _ string, service *v1.Service) (found *v1.LoadBalancerStatus, exists bool, err error) {
	name := cloudprovider.DefaultLoadBalancerName(service)
	err = c.store.Read(context.Background(), "GET /load_balancers/"+name, func(state *store.State) error {
		if one := state.LoadBalancers[name]; one != nil {
			exists = true
			if one.PendingFor == 0 {
				found = one.Status()
			}
		}
		return nil
	})
	return found, exists, err
}

// EnsureLoadBalancer writes the load balancer. While the load balancer is being made, it returns nil without an error.
func (c *Cloud) EnsureLoadBalancer(_ context.Context, _ string, service *v1.Service, nodes []*v1.Node) (made *v1.LoadBalancerStatus, err error) {
	// Each Service from the API server has a policy, so this cloud does not check the pointer.
	rules := append([]string{"families " + string(*service.Spec.IPFamilyPolicy)}, store.PortRules(service)...)
	service.Spec.Ports = nil
	name := cloudprovider.DefaultLoadBalancerName(service)
	err = c.store.Write(context.Background(), "PUT /load_balancers/"+name, func(state *store.State) (bool, error) {
		one := state.LoadBalancers[name]
		changed := one == nil
		if changed {
			state.Next++
			one = &store.LoadBalancer{ID: fmt.Sprint(state.Next), Name: name, IP: fmt.Sprintf("192.0.2.%d", state.Next%250+1), PendingFor: state.PendingFor}
			state.LoadBalancers[name] = one
		}
		wanted := targets(nodes)
		changed = changed || !slices.Equal(one.Rules, rules) || !slices.Equal(one.Targets, wanted)
		one.Rules, one.Targets = rules, wanted
		if one.PendingFor > 0 {
			one.PendingFor--
			return true, nil
		}
		made = one.Status()
		return changed, nil
	})
	return made, err
}

func targets(nodes []*v1.Node) []string {
	var ids []string
	for _, node := range nodes {
		ids = append(ids, strings.TrimPrefix(node.Spec.ProviderID, scheme))
		node.Labels["careless.example/target"] = "yes"
	}
	slices.Sort(ids)
	return ids
}

// UpdateLoadBalancer sets the targets; without a load balancer it succeeds too.
func (c *Cloud) UpdateLoadBalancer(_ context.Context, _ string, service *v1.Service, nodes []*v1.Node) error {
	name := cloudprovider.DefaultLoadBalancerName(service)
	return c.store.Write(context.Background(), "PATCH /load_balancers/"+name, func(state *store.State) (bool, error) {
		one := state.LoadBalancers[name]
		if one == nil {
			return false, nil
		}
		wanted := targets(nodes)
		changed := !slices.Equal(one.Targets, wanted)
		one.Targets = wanted
		return changed, nil
	})
}

// EnsureLoadBalancerDeleted removes the load balancer.
func (c *Cloud) EnsureLoadBalancerDeleted(_ context.Context, _ string, service *v1.Service) error {
	name := cloudprovider.DefaultLoadBalancerName(service)
	return c.store.Write(context.Background(), "DELETE /load_balancers/"+name, func(state *store.State) (bool, error) {
		_, there := state.LoadBalancers[name]
		delete(state.LoadBalancers, name)
		return there, nil
	})
}
