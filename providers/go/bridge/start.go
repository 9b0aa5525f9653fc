package bridge

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	listersv1 "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/klog/v2"

	"github.com/grpc-ccm/grpc-ccm/providers/go/contract"
	"github.com/grpc-ccm/grpc-ccm/providers/go/sdk"
)

// starting is the one run of the cloud's own Initialize and SetInformers.
type starting struct {
	mu  sync.Mutex
	run *startRun
	// Initialize and SetInformers have run to their end, so the bridge does not run them again. Only the one current run uses this field.
	initialised bool
	// The cloud's own Initialize has returned.
	ran bool
	// Closed when the process ends: the stop channel of Go's Initialize.
	stop chan struct{}
	// All informers of the cloud. Only the current run uses this field.
	informers informers.SharedInformerFactory
	// The informers that the stand-in feeds, for a cloud that can use informers.
	nodes, services cache.SharedIndexInformer
}

type startRun struct {
	// The controller's data about the cluster.
	cluster *contract.InitializeRequest
	done    chan struct{}
	err     error
	// The current step.
	at string
}

// start initialises the cloud unless that was done, and waits for it within the call's time. If the cloud's Initialize hangs, it keeps only one goroutine,
// because later calls wait for the same run.
func (b *Bridge) start(ctx context.Context, within sdk.Budget, cluster *contract.InitializeRequest) *contract.Failure {
	b.starting.mu.Lock()
	if b.starting.stop == nil {
		b.starting.stop = make(chan struct{})
	}
	run := b.starting.run
	if run == nil {
		run = &startRun{cluster: cluster, done: make(chan struct{})}
		b.starting.run = run
		go b.runStart(run)
	}
	b.starting.mu.Unlock()
	timeout := time.NewTimer(time.Until(within.Stop))
	defer timeout.Stop()
	select {
	case <-run.done:
	case <-b.standIn.lacks.noted:
		select {
		case <-run.done:
		default:
			// The cloud's Initialize may wait for ever for a listing.
			return b.lacking()
		}
	case <-ctx.Done():
		return b.failure(ctx.Err())
	case <-timeout.C:
		b.starting.mu.Lock()
		defer b.starting.mu.Unlock()
		return fail(contract.FailureCode_FAILURE_CODE_UNAVAILABLE, "StillStarting", "the cloud is still at %s; the next Initialize waits for the same", run.at)
	}
	var own *refusal
	switch {
	case run.err == nil:
		return nil
	case errors.As(run.err, &own):
		return own.failure
	default:
		return b.failure(run.err)
	}
}

// lacking returns the failure for a cloud that needs more of Kubernetes than the stand-in has, or nil.
func (b *Bridge) lacking() *contract.Failure {
	what := b.standIn.lacks.now()
	if what == "" {
		return nil
	}
	return fail(contract.FailureCode_FAILURE_CODE_PRECONDITION, "NeedsKubernetes", "%s", what)
}

func (b *Bridge) runStart(run *startRun) {
	err := error(&sdk.PanicError{Method: "Initialize", Value: "its goroutine was ended by runtime.Goexit"})
	defer func() {
		b.starting.mu.Lock()
		defer b.starting.mu.Unlock()
		run.err = err
		if err != nil {
			// The next Initialize tries again.
			b.starting.run = nil
		}
		close(run.done)
	}()
	result, trouble := guarded("Initialize", func() error { return b.startCloud(run) })
	err = trouble
	if err == nil {
		err = result
	}
	if failure := b.lacking(); failure != nil {
		err = &refusal{failure}
	}
}

// startCloud calls the cloud's methods in the order in which upstream's cloud-controller-manager calls them before its controllers start. Then it asks the
// cloud for its parts, as those controllers do.
func (b *Bridge) startCloud(run *startRun) error {
	at := func(what string) {
		b.starting.mu.Lock()
		defer b.starting.mu.Unlock()
		run.at = what
	}
	if !b.starting.initialised {
		if err := b.initialiseCloud(at, run.cluster); err != nil {
			return err
		}
		b.starting.initialised = true
	}
	at("what it offers")
	return b.take()
}

func (b *Bridge) initialiseCloud(at func(what string), cluster *contract.InitializeRequest) error {
	clients := &clientBuilder{config: b.standIn.cloudConfig()}
	feed := b.standIn.config()
	if b.options.Kubeconfig != "" {
		config, err := clientcmd.BuildConfigFromFlags("", b.options.Kubeconfig)
		if err != nil {
			return fmt.Errorf("--kubeconfig: %w", err)
		}
		clients.config, feed = config, config
	}
	if b.starting.informers == nil {
		client, err := kubernetes.NewForConfig(rest.AddUserAgent(rest.CopyConfig(feed), "informers"))
		if err != nil {
			return err
		}
		b.starting.informers = informers.NewSharedInformerFactory(client, 0)
	}
	factory := b.starting.informers
	fed := &fedInformers{factory, b.standIn.lacks}
	shown := informers.SharedInformerFactory(fed)
	if b.options.Kubeconfig != "" {
		shown = factory
	}
	if b.cloud == nil {
		at("its constructor (Options.New)")
		if err := b.construct(clients, shown, cluster); err != nil {
			return err
		}
	}
	at("HasClusterID")
	if !b.cloud.HasClusterID() && !b.options.AllowUntagged {
		// Some clouds never have a cluster ID, and their own main does not check.
		klog.Warning("The cloud has no cluster ID (HasClusterID is false): if it needs one to distinguish clusters, such as a tag, configure it; if not, --allow-untagged-cloud ends this warning")
	}
	if !b.starting.ran {
		at("its own Initialize")
		b.cloud.Initialize(clients, b.starting.stop)
		// Initialize may have started goroutines. So after it has returned it does not run again, also if a later step fails and is repeated.
		b.starting.ran = true
	}
	user, ok := b.cloud.(cloudprovider.InformerUser)
	if ok {
		at("SetInformers")
		user.SetInformers(shown)
	}
	if !ok && b.options.New == nil {
		return nil
	}
	if b.options.Kubeconfig != "" {
		factory.Start(b.starting.stop)
		at("the first listing of its informers")
		factory.WaitForCacheSync(b.starting.stop)
		return nil
	}
	nodes, services := factory.Core().V1().Nodes().Informer(), factory.Core().V1().Services().Informer()
	factory.Start(b.starting.stop)
	if kind, found := fed.others(); found {
		_ = b.standIn.lacks.note("the cloud has an informer of " + kind)
	}
	cache.WaitForCacheSync(b.starting.stop, nodes.HasSynced, services.HasSynced)
	b.starting.mu.Lock()
	defer b.starting.mu.Unlock()
	b.starting.nodes, b.starting.services = nodes, services
	return nil
}

// Deps are the arguments of [Options.New].
type Deps struct {
	// Clients is the client builder that the cloud's Initialize gets too.
	Clients cloudprovider.ControllerClientBuilder
	// Informers is the factory that the cloud's SetInformers gets too. The bridge starts it after the cloud's Initialize.
	Informers informers.SharedInformerFactory
	// Nodes finds a Node by its name.
	Nodes listersv1.NodeLister
	// ClusterName is the controller's name of the cluster.
	ClusterName string
	// ClusterCIDRs are the ranges of its Pods; empty if the controller knows none.
	ClusterCIDRs []string
	// KubernetesVersion is the API server's, such as v1.36.3.
	KubernetesVersion string
	// CloudConfig is the path of the cloud's configuration file; empty for none.
	CloudConfig string
}

// construct makes the cloud by the vendor's constructor.
func (b *Bridge) construct(clients cloudprovider.ControllerClientBuilder, factory informers.SharedInformerFactory, cluster *contract.InitializeRequest) error {
	// This context ends when the process ends.
	ctx := wait.ContextForChannel(b.starting.stop)
	cloud, err := b.options.New(ctx, Deps{
		Clients:           clients,
		Informers:         factory,
		Nodes:             factory.Core().V1().Nodes().Lister(),
		ClusterName:       cluster.GetCluster().GetName(),
		ClusterCIDRs:      cluster.GetClusterCidrs(),
		KubernetesVersion: cluster.GetKubernetesVersion(),
		CloudConfig:       b.options.CloudConfig,
	})
	switch {
	case err != nil:
		return err
	case cloud == nil:
		return &refusal{fault("the constructor (Options.New) gave neither a cloud nor an error")}
	case cloud.ProviderName() != b.name:
		return &refusal{fail(contract.FailureCode_FAILURE_CODE_PRECONDITION, "OtherName", "the cloud that was made calls itself %q; Options.Name says %q", cloud.ProviderName(), b.name)}
	}
	b.cloud = cloud
	return nil
}

// Close closes the stop channel that the cloud's Initialize got, and ends the watches of the stand-in.
func (b *Bridge) Close() {
	b.starting.mu.Lock()
	defer b.starting.mu.Unlock()
	if b.starting.stop == nil {
		b.starting.stop = make(chan struct{})
	}
	select {
	case <-b.starting.stop:
	default:
		close(b.starting.stop)
	}
	b.standIn.close()
}

// settle waits at most 2 s until the informers of the cloud have the objects of this call.
func (b *Bridge) settle(ctx context.Context, brought []object) {
	b.starting.mu.Lock()
	nodes, services := b.starting.nodes, b.starting.services
	b.starting.mu.Unlock()
	if nodes == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for _, thing := range brought {
		store := nodes.GetStore()
		if thing.kind == serviceKind {
			store = services.GetStore()
		}
		for !thing.knownTo(store) {
			select {
			case <-ctx.Done():
				klog.InfoS("The informers of the cloud did not get an object in time", "object", thing.key)
				return
			case <-tick.C:
			}
		}
	}
}

// clientBuilder gives each client the same configuration: that of the stand-in, or of the kubeconfig.
type clientBuilder struct {
	config *rest.Config
}

var _ cloudprovider.ControllerClientBuilder = (*clientBuilder)(nil)

func (c *clientBuilder) Config(name string) (*rest.Config, error) {
	return rest.AddUserAgent(rest.CopyConfig(c.config), name), nil
}

// ConfigOrDie returns the configuration; it cannot fail.
func (c *clientBuilder) ConfigOrDie(name string) *rest.Config {
	return rest.AddUserAgent(rest.CopyConfig(c.config), name)
}

func (c *clientBuilder) Client(name string) (kubernetes.Interface, error) {
	return kubernetes.NewForConfig(c.ConfigOrDie(name))
}

// ClientOrDie panics if it cannot make the client. The bridge catches the panic, except in a
// goroutine of the cloud. Upstream's ClientOrDie ends the process.
func (c *clientBuilder) ClientOrDie(name string) kubernetes.Interface {
	client, err := c.Client(name)
	if err != nil {
		panic(fmt.Sprintf("no client for %s: %v", name, err))
	}
	return client
}
