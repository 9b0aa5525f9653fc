// Package byid is a cloud that resembles that of DigitalOcean's CCM: all methods about instances except InstanceMetadata use the provider ID alone. It wraps
// errors of its API as text. It writes the ID of a load balancer onto the Service when it finds one, also in GetLoadBalancer. Targets are the Ready
// Nodes. While a new load balancer is being made, Ensure returns a retry error, the first time inside of an aggregate. With a firewall the cloud watches all Services by itself. The code is
// as a vendor's and does not know the bridge.
package byid

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	listersv1 "k8s.io/client-go/listers/core/v1"
	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/cloud-provider/api"
	"k8s.io/klog/v2"

	"github.com/grpc-ccm/grpc-ccm/providers/go/bridge/shapes/store"
)

const (
	// Name is what --cloud-provider takes.
	Name = "byid"
	// AnnotationID is the key of the load balancer's ID.
	AnnotationID = "byid.example/load-balancer-id"
	// AnnotationType is a second annotation that the cloud writes, with another prefix.
	AnnotationType = "service.byid.example/type"
	// Again is the time in the retry error while a load balancer is being made.
	Again = 2 * time.Second

	scheme = Name + "://"
)

// Settings are the contents of the configuration file.
type Settings struct {
	// State is the file of the cloud.
	State string `json:"state"`
	// Firewall lets the cloud manage a firewall with the ports of all Services.
	Firewall bool `json:"firewall"`
	// Listen is the address of the cloud's own debug page, if the cloud serves one.
	Listen string `json:"listen"`
}

// Cloud is the cloud.
type Cloud struct {
	store.Newer

	settings Settings
	store    *store.Store
	client   kubernetes.Interface
}

// New makes the cloud.
func New(settings Settings) *Cloud {
	return &Cloud{settings: settings, store: store.At(settings.State)}
}

// Register registers it under its name.
func Register() {
	store.Register(Name, func(settings Settings) cloudprovider.Interface { return New(settings) })
}

// Initialize makes the client and starts the cloud's goroutines.
func (c *Cloud) Initialize(clients cloudprovider.ControllerClientBuilder, stop <-chan struct{}) {
	c.client = clients.ClientOrDie(Name)
	if c.settings.Listen != "" {
		go c.serve(stop)
	}
	if !c.settings.Firewall {
		return
	}
	factory := informers.NewSharedInformerFactory(c.client, 0)
	services := factory.Core().V1().Services().Lister()
	factory.Start(nil)
	factory.WaitForCacheSync(nil)
	go c.manageFirewall(services, stop)
}

// serve serves a debug page; if it cannot, it logs that and goes on.
func (c *Cloud) serve(stop <-chan struct{}) {
	server := &http.Server{Addr: c.settings.Listen, ReadHeaderTimeout: time.Second}
	go func() {
		<-stop
		_ = server.Close()
	}()
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		klog.ErrorS(err, "The debug server failed")
	}
}

// manageFirewall opens the ports of all Services, and no others.
func (c *Cloud) manageFirewall(services listersv1.ServiceLister, stop <-chan struct{}) {
	for {
		if err := c.openPorts(services); err != nil {
			klog.ErrorS(err, "The firewall is not as it should be")
		}
		select {
		case <-stop:
			return
		case <-time.After(time.Second):
		}
	}
}

func (c *Cloud) openPorts(services listersv1.ServiceLister) error {
	all, err := services.List(labels.Everything())
	if err != nil {
		return err
	}
	wanted := []string{}
	for _, service := range all {
		for _, port := range service.Spec.Ports {
			if port.NodePort != 0 {
				wanted = append(wanted, fmt.Sprintf("%s %d", port.Protocol, port.NodePort))
			}
		}
	}
	slices.Sort(wanted)
	return c.write(context.Background(), http.MethodPut, "/firewalls", func(state *store.State) (bool, error) {
		changed := !slices.Equal(state.Firewall, wanted)
		state.Firewall = wanted
		return changed, nil
	})
}

// LoadBalancer returns the cloud itself.
func (c *Cloud) LoadBalancer() (cloudprovider.LoadBalancer, bool) { return c, true }

// InstancesV2 returns the cloud itself.
func (c *Cloud) InstancesV2() (cloudprovider.InstancesV2, bool) { return c, true }

// Routes returns false: the cloud has none.
func (c *Cloud) Routes() (cloudprovider.Routes, bool) { return nil, false }

// ProviderName returns the cloud's name.
func (c *Cloud) ProviderName() string { return Name }

// HasClusterID always returns false: the cloud's own main does not check it.
func (c *Cloud) HasClusterID() bool { return false }

// apiError is an answer of the API, as its SDK returns it.
type apiError struct {
	method, path string
	refusal      *store.Refusal
}

func (e *apiError) Error() string {
	return fmt.Sprintf("%s https://api.byid.example/v2%s: %d (request %q) %s", e.method, e.path, e.refusal.Status, "9f1c4a07", e.refusal.Message)
}

func sdk(method, path string, err error) error {
	var refusal *store.Refusal
	if errors.As(err, &refusal) {
		return &apiError{method, path, refusal}
	}
	return err
}

func (c *Cloud) read(ctx context.Context, path string, look func(*store.State) error) error {
	return sdk(http.MethodGet, path, c.store.Read(ctx, http.MethodGet+" "+path, look))
}

func (c *Cloud) write(ctx context.Context, method, path string, change func(*store.State) (bool, error)) error {
	return sdk(method, path, c.store.Write(ctx, method+" "+path, change))
}

// idOf is the ID of a Node's instance.
func idOf(node *v1.Node) (string, error) {
	id, ours := strings.CutPrefix(node.Spec.ProviderID, scheme)
	switch {
	case node.Spec.ProviderID == "":
		return "", errors.New("provider ID cannot be empty")
	case !ours || id == "":
		return "", fmt.Errorf("provider ID %q is none of %s", node.Spec.ProviderID, scheme)
	}
	return id, nil
}

func (c *Cloud) byID(ctx context.Context, id string) (name string, found *store.Instance, err error) {
	err = c.read(ctx, "/machines/"+id, func(state *store.State) error {
		if name, found = state.ByID(id); found == nil {
			return store.ErrNotFound
		}
		return nil
	})
	return name, found, err
}

// InstanceExists asks by ID.
func (c *Cloud) InstanceExists(ctx context.Context, node *v1.Node) (bool, error) {
	id, err := idOf(node)
	if err != nil {
		return false, fmt.Errorf("determining the machine's ID: %s", err)
	}
	_, _, err = c.byID(ctx, id)
	var said *apiError
	switch {
	case err == nil:
		return true, nil
	case errors.As(err, &said) && said.refusal.Status == http.StatusNotFound:
		return false, nil
	}
	return false, fmt.Errorf("checking if the machine exists: %s", err)
}

// InstanceShutdown asks by ID.
func (c *Cloud) InstanceShutdown(ctx context.Context, node *v1.Node) (bool, error) {
	id, err := idOf(node)
	if err != nil {
		return false, fmt.Errorf("determining the machine's ID: %s", err)
	}
	_, found, err := c.byID(ctx, id)
	if err != nil {
		return false, fmt.Errorf("getting the machine by ID: %s", err)
	}
	return found.Stopped, nil
}

// InstanceMetadata asks by ID if the Node has one, else by name.
func (c *Cloud) InstanceMetadata(ctx context.Context, node *v1.Node) (*cloudprovider.InstanceMetadata, error) {
	name := node.Name
	var found *store.Instance
	if node.Spec.ProviderID == "" {
		if err := c.read(ctx, "/machines?name="+node.Name, func(state *store.State) error {
			found = state.Instances[node.Name]
			return nil
		}); err != nil {
			return nil, fmt.Errorf("getting the machine by name: %s", err)
		}
		if found == nil {
			return nil, fmt.Errorf("getting the machine by name: %s", cloudprovider.InstanceNotFound)
		}
	} else {
		id, err := idOf(node)
		if err != nil {
			return nil, fmt.Errorf("determining the machine's ID: %s", err)
		}
		if name, found, err = c.byID(ctx, id); err != nil {
			return nil, fmt.Errorf("getting the machine by ID: %s", err)
		}
	}
	return found.Metadata(scheme, name), nil
}

// GetLoadBalancerName returns Go's default name.
func (c *Cloud) GetLoadBalancerName(_ context.Context, _ string, service *v1.Service) string {
	return cloudprovider.DefaultLoadBalancerName(service)
}

var errNone = errors.New("load balancer not found")

// retrieve finds the load balancer by the ID on the Service, else by its name, and records its ID.
func (c *Cloud) retrieve(ctx context.Context, service *v1.Service) (*store.LoadBalancer, error) {
	var found *store.LoadBalancer
	if id := service.Annotations[AnnotationID]; id != "" {
		err := c.read(ctx, "/load_balancers/"+id, func(state *store.State) error {
			found = state.LoadBalancers[id]
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("getting the load balancer by ID %s: %s", id, err)
		}
	} else {
		err := c.read(ctx, "/load_balancers", func(state *store.State) error {
			for _, one := range state.LoadBalancers {
				if one.Name == cloudprovider.DefaultLoadBalancerName(service) {
					found = one
				}
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	if found == nil {
		return nil, errNone
	}
	annotate(service, found)
	return found, nil
}

func annotate(service *v1.Service, balancer *store.LoadBalancer) {
	if service.Annotations == nil {
		service.Annotations = map[string]string{}
	}
	service.Annotations[AnnotationID] = balancer.ID
	service.Annotations[AnnotationType] = "regional"
}

// patch writes the changed annotations of the Service, and joins its own error with the existing one.
func (c *Cloud) patch(ctx context.Context, before, after *v1.Service, err error) error {
	changed := map[string]string{}
	for key, value := range after.Annotations {
		if old, ok := before.Annotations[key]; !ok || old != value {
			changed[key] = value
		}
	}
	if len(changed) == 0 {
		return err
	}
	text, failed := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": changed}})
	if failed == nil {
		_, failed = c.client.CoreV1().Services(after.Namespace).Patch(ctx, after.Name, types.StrategicMergePatchType, text, metav1.PatchOptions{})
	}
	return utilerrors.NewAggregate([]error{err, failed})
}

// GetLoadBalancer writes to the Service too.
func (c *Cloud) GetLoadBalancer(ctx context.Context, _ string, service *v1.Service) (_ *v1.LoadBalancerStatus, _ bool, err error) {
	before := service.DeepCopy()
	defer func() { err = c.patch(ctx, before, service, err) }()
	found, err := c.retrieve(ctx, service)
	switch {
	case err == errNone:
		return nil, false, nil
	case err != nil:
		return nil, false, err
	}
	return found.Status(), true, nil
}

// wantedOf returns the desired rules and targets; the targets are the Ready Nodes.
func wantedOf(service *v1.Service, nodes []*v1.Node) (rules, targets []string, err error) {
	for _, node := range nodes {
		ready := slices.ContainsFunc(node.Status.Conditions, func(one v1.NodeCondition) bool {
			return one.Type == v1.NodeReady && one.Status == v1.ConditionTrue
		})
		if ready {
			targets = append(targets, strings.TrimPrefix(node.Spec.ProviderID, scheme))
		}
	}
	if len(nodes) > 0 && len(targets) == 0 {
		return nil, nil, errors.New("no ready nodes available for load balancer")
	}
	slices.Sort(targets)
	return store.PortRules(service), targets, nil
}

func (c *Cloud) put(ctx context.Context, balancer *store.LoadBalancer, rules, targets []string) (*store.LoadBalancer, error) {
	err := c.write(ctx, http.MethodPut, "/load_balancers/"+balancer.ID, func(state *store.State) (bool, error) {
		there := state.LoadBalancers[balancer.ID]
		if there == nil {
			return false, store.ErrNotFound
		}
		changed := !slices.Equal(there.Rules, rules) || !slices.Equal(there.Targets, targets) || there.PendingFor > 0
		if there.PendingFor > 0 {
			there.PendingFor--
		}
		there.Rules, there.Targets = rules, targets
		balancer = there
		return changed, nil
	})
	if err != nil {
		return nil, fmt.Errorf("failed to update the load balancer with ID %s: %s", balancer.ID, err)
	}
	return balancer, nil
}

// EnsureLoadBalancer makes or changes the load balancer.
func (c *Cloud) EnsureLoadBalancer(ctx context.Context, _ string, service *v1.Service, nodes []*v1.Node) (_ *v1.LoadBalancerStatus, err error) {
	before := service.DeepCopy()
	defer func() { err = c.patch(ctx, before, service, err) }()
	rules, targets, err := wantedOf(service, nodes)
	if err != nil {
		return nil, fmt.Errorf("failed to build the request for the load balancer: %s", err)
	}
	balancer, err := c.retrieve(ctx, service)
	switch {
	case err == nil:
		if balancer, err = c.put(ctx, balancer, rules, targets); err != nil {
			return nil, err
		}
	case err == errNone:
		err = c.write(ctx, http.MethodPost, "/load_balancers", func(state *store.State) (bool, error) {
			state.Next++
			balancer = &store.LoadBalancer{
				ID: fmt.Sprintf("lb-%d", state.Next), Name: cloudprovider.DefaultLoadBalancerName(service), IP: fmt.Sprintf("198.51.100.%d", state.Next%250+1),
				Rules: rules, Targets: targets, PendingFor: state.PendingFor,
			}
			state.LoadBalancers[balancer.ID] = balancer
			return true, nil
		})
		if err != nil {
			return nil, fmt.Errorf("failed to create the load balancer: %s", err)
		}
		annotate(service, balancer)
	default:
		return nil, err
	}
	if balancer.PendingFor > 0 {
		return nil, api.NewRetryError("the load balancer is being created", Again)
	}
	return balancer.Status(), nil
}

// UpdateLoadBalancer finds the load balancer and writes all of it.
func (c *Cloud) UpdateLoadBalancer(ctx context.Context, _ string, service *v1.Service, nodes []*v1.Node) (err error) {
	before := service.DeepCopy()
	defer func() { err = c.patch(ctx, before, service, err) }()
	balancer, err := c.retrieve(ctx, service)
	if err != nil {
		return err
	}
	rules, targets, err := wantedOf(service, nodes)
	if err != nil {
		return fmt.Errorf("failed to build the request for the load balancer: %s", err)
	}
	_, err = c.put(ctx, balancer, rules, targets)
	return err
}

// EnsureLoadBalancerDeleted finds the load balancer and removes it.
func (c *Cloud) EnsureLoadBalancerDeleted(ctx context.Context, _ string, service *v1.Service) error {
	balancer, err := c.retrieve(ctx, service.DeepCopy())
	switch {
	case err == errNone:
		return nil
	case err != nil:
		return err
	}
	err = c.write(ctx, http.MethodDelete, "/load_balancers/"+balancer.ID, func(state *store.State) (bool, error) {
		_, there := state.LoadBalancers[balancer.ID]
		delete(state.LoadBalancers, balancer.ID)
		return there, nil
	})
	if err != nil {
		return fmt.Errorf("failed to delete the load balancer: %s", err)
	}
	return nil
}
