package bridge

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/klog/v2"

	"github.com/grpc-ccm/grpc-ccm/providers/go/contract"
)

// starting is the one run of the cloud's own Initialize and SetInformers.
type starting struct {
	mu  sync.Mutex
	run *startRun
	// Initialize and SetInformers have run to their end: they are not run again. Of the run that is under way alone, of which there is never a second.
	initialised bool
	// Closed when the process ends: the stop channel of Go's Initialize.
	stop chan struct{}
	// The informers that the cloud got, where it wanted any and they are fed by the stand-in.
	nodes, services cache.SharedIndexInformer
}

type startRun struct {
	done chan struct{}
	err  error
	// What it is at.
	at string
}

var errUntagged = errors.New("no cluster ID found: the cloud requires one (HasClusterID is false); tag the cluster's resources, or start with --allow-untagged-cloud")

// start initialises the cloud unless that was done, and waits for it within the call's time. A cloud whose Initialize hangs keeps one goroutine, however often it is asked.
func (b *Bridge) start(ctx context.Context, within budget) *contract.Failure {
	b.starting.mu.Lock()
	if b.starting.stop == nil {
		b.starting.stop = make(chan struct{})
	}
	run := b.starting.run
	if run == nil {
		run = &startRun{done: make(chan struct{})}
		b.starting.run = run
		go b.runStart(run)
	}
	b.starting.mu.Unlock()
	timeout := time.NewTimer(time.Until(within.stop))
	defer timeout.Stop()
	select {
	case <-run.done:
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
	case errors.Is(run.err, errUntagged):
		return fail(contract.FailureCode_FAILURE_CODE_PRECONDITION, "NoClusterID", "%v", run.err)
	default:
		return b.failure(run.err)
	}
}

func (b *Bridge) runStart(run *startRun) {
	err := error(&panicked{"Initialize", "its goroutine was ended by runtime.Goexit"})
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
}

// startCloud does in order what upstream's cloud-controller-manager does before its controllers start, and when they do: they ask the cloud for its parts.
func (b *Bridge) startCloud(run *startRun) error {
	at := func(what string) {
		b.starting.mu.Lock()
		defer b.starting.mu.Unlock()
		run.at = what
	}
	if !b.starting.initialised {
		if err := b.initialiseCloud(at); err != nil {
			return err
		}
		b.starting.initialised = true
	}
	at("what it offers")
	return b.take()
}

func (b *Bridge) initialiseCloud(at func(what string)) error {
	at("HasClusterID")
	if !b.cloud.HasClusterID() {
		if !b.options.AllowUntagged {
			return errUntagged
		}
		klog.InfoS("The cloud has no cluster ID and is used all the same")
	}
	clients := &clientBuilder{config: b.standIn.config()}
	if b.options.Kubeconfig != "" {
		config, err := clientcmd.BuildConfigFromFlags("", b.options.Kubeconfig)
		if err != nil {
			return fmt.Errorf("--kubeconfig: %w", err)
		}
		clients.config = config
	}
	at("its own Initialize")
	b.cloud.Initialize(clients, b.starting.stop)
	user, ok := b.cloud.(cloudprovider.InformerUser)
	if !ok {
		return nil
	}
	at("SetInformers")
	client, err := clients.Client("informers")
	if err != nil {
		return err
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	user.SetInformers(factory)
	if b.options.Kubeconfig != "" {
		factory.Start(b.starting.stop)
		at("the first listing of its informers")
		factory.WaitForCacheSync(b.starting.stop)
		return nil
	}
	// Only of these two the stand-in knows anything: an informer of something else logs why it gets nothing, and never syncs.
	nodes, services := factory.Core().V1().Nodes().Informer(), factory.Core().V1().Services().Informer()
	factory.Start(b.starting.stop)
	cache.WaitForCacheSync(b.starting.stop, nodes.HasSynced, services.HasSynced)
	b.starting.mu.Lock()
	defer b.starting.mu.Unlock()
	b.starting.nodes, b.starting.services = nodes, services
	return nil
}

// Close ends what the cloud's Initialize started.
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

// settle waits until the informers of the cloud know what this call brought, but not for long: an informer is late by nature.
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
				klog.InfoS("The informers of the cloud have not heard of an object in time", "object", thing.key)
				return
			case <-tick.C:
			}
		}
	}
}

// clientBuilder gives every client the same configuration: of the stand-in, or of the kubeconfig.
type clientBuilder struct {
	config *rest.Config
}

var _ cloudprovider.ControllerClientBuilder = (*clientBuilder)(nil)

func (c *clientBuilder) Config(name string) (*rest.Config, error) {
	return rest.AddUserAgent(rest.CopyConfig(c.config), name), nil
}

// ConfigOrDie never dies: there is nothing that could fail.
func (c *clientBuilder) ConfigOrDie(name string) *rest.Config {
	return rest.AddUserAgent(rest.CopyConfig(c.config), name)
}

func (c *clientBuilder) Client(name string) (kubernetes.Interface, error) {
	return kubernetes.NewForConfig(c.ConfigOrDie(name))
}

// ClientOrDie panics, as upstream's ends the process; the bridge catches that.
func (c *clientBuilder) ClientOrDie(name string) kubernetes.Interface {
	client, err := c.Client(name)
	if err != nil {
		panic(fmt.Sprintf("no client for %s: %v", name, err))
	}
	return client
}
