// Package annotated is a cloud of the newer shape, as DigitalOcean's CCM has it: InstancesV2, and load balancers whose ID is an annotation of the
// Service. Ensure writes the annotation with the client from Initialize. It fails while a load balancer is not ready, but writes the annotation
// then too. A vendor would write the code so: it does not know the bridge.
package annotated

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	listersv1 "k8s.io/client-go/listers/core/v1"
	cloudprovider "k8s.io/cloud-provider"

	"github.com/grpc-ccm/grpc-ccm/providers/go/bridge/shapes/store"
)

const (
	// Name is what --cloud-provider takes.
	Name = "annotated"
	// Annotation is the key of the load balancer's ID.
	Annotation = "annotated.example/load-balancer-id"

	scheme = Name + "://"
)

// Cloud is the cloud.
type Cloud struct {
	store.Newer

	store    *store.Store
	client   kubernetes.Interface
	services listersv1.ServiceLister
}

var _ cloudprovider.InformerUser = (*Cloud)(nil)

func init() {
	store.Register(Name, func(settings store.File) cloudprovider.Interface { return &Cloud{store: store.At(settings.State)} })
}

func (c *Cloud) Initialize(clients cloudprovider.ControllerClientBuilder, _ <-chan struct{}) {
	c.client = clients.ClientOrDie(Name)
}

// SetInformers keeps the lister of Services, as a cloud does that searches for Services with the same load balancer.
func (c *Cloud) SetInformers(factory informers.SharedInformerFactory) {
	c.services = factory.Core().V1().Services().Lister()
}

func (c *Cloud) LoadBalancer() (cloudprovider.LoadBalancer, bool) { return c, true }
func (c *Cloud) InstancesV2() (cloudprovider.InstancesV2, bool)   { return c, true }
func (c *Cloud) Routes() (cloudprovider.Routes, bool)             { return nil, false }
func (c *Cloud) ProviderName() string                             { return Name }
func (c *Cloud) HasClusterID() bool                               { return false }

func (c *Cloud) find(ctx context.Context, node *v1.Node) (found *store.Instance, err error) {
	err = c.store.Read(ctx, "GET /instances", func(state *store.State) error {
		if node.Spec.ProviderID == "" {
			found = state.Instances[node.Name]
		} else {
			_, found = state.ByID(strings.TrimPrefix(node.Spec.ProviderID, scheme))
		}
		if found == nil {
			return cloudprovider.InstanceNotFound
		}
		return nil
	})
	return found, err
}

func (c *Cloud) InstanceExists(ctx context.Context, node *v1.Node) (bool, error) {
	_, err := c.find(ctx, node)
	if errors.Is(err, cloudprovider.InstanceNotFound) {
		return false, nil
	}
	return err == nil, err
}

func (c *Cloud) InstanceShutdown(ctx context.Context, node *v1.Node) (bool, error) {
	found, err := c.find(ctx, node)
	if err != nil {
		return false, err
	}
	return found.Stopped, nil
}

func (c *Cloud) InstanceMetadata(ctx context.Context, node *v1.Node) (*cloudprovider.InstanceMetadata, error) {
	found, err := c.find(ctx, node)
	if err != nil {
		return nil, err
	}
	return found.Metadata(scheme, node.Name), nil
}

func (c *Cloud) GetLoadBalancerName(_ context.Context, _ string, service *v1.Service) string {
	return cloudprovider.DefaultLoadBalancerName(service)
}

// of returns the load balancer of a Service, by the ID in its annotation, else by its name.
func (c *Cloud) of(state *store.State, service *v1.Service) *store.LoadBalancer {
	if found := state.LoadBalancers[service.Annotations[Annotation]]; found != nil {
		return found
	}
	for _, one := range state.LoadBalancers {
		if one.Name == cloudprovider.DefaultLoadBalancerName(service) {
			return one
		}
	}
	return nil
}

func status(balancer *store.LoadBalancer) *v1.LoadBalancerStatus {
	status := balancer.Status()
	status.Ingress[0].IPMode = new(v1.LoadBalancerIPModeVIP)
	return status
}

func (c *Cloud) GetLoadBalancer(ctx context.Context, _ string, service *v1.Service) (found *v1.LoadBalancerStatus, exists bool, err error) {
	err = c.store.Read(ctx, "GET /load_balancers", func(state *store.State) error {
		if balancer := c.of(state, service); balancer != nil {
			found, exists = status(balancer), true
		}
		return nil
	})
	return found, exists, err
}

// EnsureLoadBalancer makes the load balancer and writes its ID onto the Service. It fails while the load balancer is not ready, but
// writes the ID then too.
func (c *Cloud) EnsureLoadBalancer(ctx context.Context, _ string, service *v1.Service, nodes []*v1.Node) (made *v1.LoadBalancerStatus, err error) {
	if _, err := c.services.Services(service.Namespace).Get(service.Name); err != nil {
		return nil, fmt.Errorf("the informer does not know the Service: %w", err)
	}
	before := service.DeepCopy()
	defer func() { err = errors.Join(err, c.patch(before, service)) }()
	err = c.store.Write(ctx, "PUT /load_balancers", func(state *store.State) (bool, error) {
		balancer := c.of(state, service)
		changed := balancer == nil
		if changed {
			state.Next++
			balancer = &store.LoadBalancer{
				ID: fmt.Sprintf("lb-%d", state.Next), Name: cloudprovider.DefaultLoadBalancerName(service), IP: fmt.Sprintf("198.51.100.%d", state.Next%250+1),
				PendingFor: state.PendingFor,
			}
			state.LoadBalancers[balancer.ID] = balancer
		}
		if service.Annotations == nil {
			service.Annotations = map[string]string{}
		}
		service.Annotations[Annotation] = balancer.ID
		if wanted := store.Rules(service); !slices.Equal(balancer.Rules, wanted) {
			balancer.Rules, changed = wanted, true
		}
		if wanted := store.TargetIDs(scheme, nodes); !slices.Equal(balancer.Targets, wanted) {
			balancer.Targets, changed = wanted, true
		}
		if balancer.PendingFor > 0 {
			balancer.PendingFor--
			return true, fmt.Errorf("load balancer %s is not active yet", balancer.ID)
		}
		made = status(balancer)
		return changed, nil
	})
	return made, err
}

// patch writes the annotation if it has changed.
func (c *Cloud) patch(before, after *v1.Service) error {
	if before.Annotations[Annotation] == after.Annotations[Annotation] {
		return nil
	}
	text, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{Annotation: after.Annotations[Annotation]}}})
	if err != nil {
		return err
	}
	_, err = c.client.CoreV1().Services(after.Namespace).Patch(context.Background(), after.Name, types.StrategicMergePatchType, text, metav1.PatchOptions{})
	return err
}

func (c *Cloud) UpdateLoadBalancer(ctx context.Context, _ string, service *v1.Service, nodes []*v1.Node) error {
	return c.store.Write(ctx, "PUT /load_balancers", func(state *store.State) (bool, error) {
		balancer := c.of(state, service)
		if balancer == nil {
			return false, fmt.Errorf("no load balancer")
		}
		wanted := store.TargetIDs(scheme, nodes)
		changed := !slices.Equal(balancer.Targets, wanted)
		balancer.Targets = wanted
		return changed, nil
	})
}

func (c *Cloud) EnsureLoadBalancerDeleted(ctx context.Context, _ string, service *v1.Service) error {
	return c.store.Write(ctx, "DELETE /load_balancers", func(state *store.State) (bool, error) {
		balancer := c.of(state, service)
		if balancer == nil {
			return false, nil
		}
		delete(state.LoadBalancers, balancer.ID)
		return true, nil
	})
}
