package bridge

import (
	"fmt"
	"reflect"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/informers/core"
	corev1 "k8s.io/client-go/informers/core/v1"
	listersv1 "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// The stand-in knows the Nodes and Services that calls named. It can answer for one of them by its name, but it does not know all. After a restart of
// the provider it knows none. A cloud that took a part for all could close its firewall or remove routes. So the stand-in refuses and records requests
// for all Nodes or all Services. If a cloud makes such a request while it starts, it does not start without real clients.

// lacks has the cloud's first request for all objects of a kind, which the stand-in cannot serve.
type lacks struct {
	mu    sync.Mutex
	what  string
	noted chan struct{}
}

// note records the request if it is the first, and returns the error for the cloud.
func (l *lacks) note(what string) error {
	text := what + ": a provider knows only the Nodes and Services that calls named, and a cloud that took these for all could remove the others; " +
		"start it with --kubeconfig FILE, whose user may get, list and watch them, and write what the cloud writes"
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.what == "" {
		l.what = text
		close(l.noted)
		klog.ErrorS(nil, "The cloud needs more of Kubernetes than a provider has", "what", text)
	}
	return fmt.Errorf("%s", text)
}

// now returns the recorded request; empty if there is none.
func (l *lacks) now() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.what
}

// fedInformers are informers whose objects come from the stand-in. They refuse to list all objects.
type fedInformers struct {
	informers.SharedInformerFactory
	lacks *lacks
}

func (f *fedInformers) Core() core.Interface {
	return &fedCore{f.SharedInformerFactory.Core(), f.lacks}
}

// others names an informer of a kind that the stand-in does not know, if the cloud made one. Such an informer would stay empty.
func (f *fedInformers) others() (kind string, found bool) {
	ended := make(chan struct{})
	close(ended)
	for kind := range f.WaitForCacheSync(ended) {
		if kind != reflect.TypeFor[*v1.Node]() && kind != reflect.TypeFor[*v1.Service]() {
			return strings.TrimPrefix(kind.String(), "*"), true
		}
	}
	return "", false
}

type fedCore struct {
	core.Interface
	lacks *lacks
}

func (c *fedCore) V1() corev1.Interface { return &fedV1{c.Interface.V1(), c.lacks} }

type fedV1 struct {
	corev1.Interface
	lacks *lacks
}

func (v *fedV1) Nodes() corev1.NodeInformer {
	nodes := v.Interface.Nodes()
	return &fedKind[listersv1.NodeLister]{nodes.Informer, func() listersv1.NodeLister { return &nodeLister{nodes.Lister(), v.lacks} }, nodeKind, v.lacks}
}

func (v *fedV1) Services() corev1.ServiceInformer {
	services := v.Interface.Services()
	return &fedKind[listersv1.ServiceLister]{services.Informer, func() listersv1.ServiceLister { return &serviceLister{services.Lister(), v.lacks} }, serviceKind, v.lacks}
}

// fedKind is the informer of Nodes, or that of Services.
type fedKind[Lister any] struct {
	informer func() cache.SharedIndexInformer
	lister   func() Lister
	kind     string
	lacks    *lacks
}

func (k *fedKind[Lister]) Informer() cache.SharedIndexInformer {
	return &fedInformer{k.informer(), k.kind, k.lacks}
}

func (k *fedKind[Lister]) Lister() Lister { return k.lister() }

type nodeLister struct {
	listersv1.NodeLister
	lacks *lacks
}

func (l *nodeLister) List(labels.Selector) ([]*v1.Node, error) {
	return nil, l.lacks.note("the cloud lists the Nodes of its informer")
}

type serviceLister struct {
	listersv1.ServiceLister
	lacks *lacks
}

const listsServices = "the cloud lists the Services of its informer"

func (l *serviceLister) List(labels.Selector) ([]*v1.Service, error) {
	return nil, l.lacks.note(listsServices)
}

func (l *serviceLister) Services(namespace string) listersv1.ServiceNamespaceLister {
	return &serviceNamespaceLister{l.ServiceLister.Services(namespace), l.lacks}
}

type serviceNamespaceLister struct {
	listersv1.ServiceNamespaceLister
	lacks *lacks
}

func (l *serviceNamespaceLister) List(labels.Selector) ([]*v1.Service, error) {
	return nil, l.lacks.note(listsServices)
}

// fedInformer is an informer of Nodes or Services. A handler for Nodes gets only the Nodes named in calls. A handler for Services would need all Services,
// so it is refused.
type fedInformer struct {
	cache.SharedIndexInformer
	kind  string
	lacks *lacks
}

func (i *fedInformer) handler(add func() (cache.ResourceEventHandlerRegistration, error)) (cache.ResourceEventHandlerRegistration, error) {
	if i.kind == serviceKind {
		return nil, i.lacks.note("the cloud wants events of every Service (AddEventHandler)")
	}
	klog.Info("The cloud gets Nodes by an informer: each Node when the controller first names it, which takes minutes after a restart; with --kubeconfig it gets all at once")
	return add()
}

func (i *fedInformer) AddEventHandler(handler cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	return i.handler(func() (cache.ResourceEventHandlerRegistration, error) {
		return i.SharedIndexInformer.AddEventHandler(handler)
	})
}

func (i *fedInformer) AddEventHandlerWithResyncPeriod(handler cache.ResourceEventHandler, period time.Duration) (cache.ResourceEventHandlerRegistration, error) {
	return i.handler(func() (cache.ResourceEventHandlerRegistration, error) {
		return i.SharedIndexInformer.AddEventHandlerWithResyncPeriod(handler, period)
	})
}

func (i *fedInformer) AddEventHandlerWithOptions(handler cache.ResourceEventHandler, options cache.HandlerOptions) (cache.ResourceEventHandlerRegistration, error) {
	return i.handler(func() (cache.ResourceEventHandlerRegistration, error) {
		return i.SharedIndexInformer.AddEventHandlerWithOptions(handler, options)
	})
}

func (i *fedInformer) GetStore() cache.Store { return i.GetIndexer() }
func (i *fedInformer) GetIndexer() cache.Indexer {
	return &fedIndexer{i.SharedIndexInformer.GetIndexer(), i.kind, i.lacks}
}

// fedIndexer finds one object by its key, and Nodes by an index. It does not list objects or find Services by an index, because it has only those that
// calls have named. List cannot return an error, so it returns an empty list, and Probe reports the reason.
type fedIndexer struct {
	cache.Indexer
	kind  string
	lacks *lacks
}

func (i *fedIndexer) note() {
	_ = i.lacks.note("the cloud lists the " + i.kind + " in the store of its informer")
}

func (i *fedIndexer) List() []any {
	i.note()
	return nil
}

func (i *fedIndexer) ListKeys() []string {
	i.note()
	return nil
}

func (i *fedIndexer) ListIndexFuncValues(string) []string {
	i.note()
	return nil
}

func (i *fedIndexer) byIndex() error {
	if i.kind != serviceKind {
		return nil
	}
	return i.lacks.note("the cloud looks for Services by an index in the store of its informer")
}

func (i *fedIndexer) Index(name string, object any) ([]any, error) {
	if err := i.byIndex(); err != nil {
		return nil, err
	}
	return i.Indexer.Index(name, object)
}

func (i *fedIndexer) IndexKeys(name, value string) ([]string, error) {
	if err := i.byIndex(); err != nil {
		return nil, err
	}
	return i.Indexer.IndexKeys(name, value)
}

func (i *fedIndexer) ByIndex(name, value string) ([]any, error) {
	if err := i.byIndex(); err != nil {
		return nil, err
	}
	return i.Indexer.ByIndex(name, value)
}
