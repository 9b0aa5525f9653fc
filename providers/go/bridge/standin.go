package bridge

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/grpc-ccm/grpc-ccm/providers/go/contract"
)

// standIn replaces the API server in memory. It knows the Nodes and Services that calls named. The cloud's clients can read one of them by its name, and
// write only the annotations of a Service with an open call, and events. The answers of the contract have the annotations, and the events about Services.
type standIn struct {
	mu       sync.Mutex
	version  string
	revision uint64
	objects  map[string]*kept
	watches  map[*watch]struct{}
	// The calls that are open for a Service, by its key.
	open map[string][]*openService
	// Events that no answer has had yet, by the UID of the Service.
	events map[types.UID]*waits[[]*contract.Event]
	// Annotations that the cloud wrote and no answer has had yet, by the UID of the Service.
	written map[types.UID]*waits[map[string]*string]
	swept   time.Time
	// When the last call named Nodes.
	called time.Time
	closed bool
	// The cloud's first request for all objects of a kind.
	lacks *lacks
}

const (
	nodeKind    = "nodes"
	serviceKind = "services"
	// The stand-in removes a Node that no lookup and no target set has named for this time. The controller names each Node every few minutes, but less
	// often with a long --node-status-update-frequency.
	forgetNodes = 48 * time.Hour
	// How long no call may have named a Node before a later Node with its provider ID replaces it, although calls named both.
	formerUnnamed = 10 * time.Minute
	// In a cluster with much churn the Nodes of two days would need much memory. So of the Nodes that no call has named for unnamedAfter, the stand-in holds
	// at most as many as there are others, and mostUnnamed more.
	unnamedAfter = 2 * time.Hour
	mostUnnamed  = 1000
	// In a longer gap without calls this provider's controller did not lead. Such a gap does not count as time in which no call has named a Node.
	longGap    = time.Hour
	sweepEvery = time.Minute
	// The most events that a watch may lag behind; then the stand-in ends it.
	watchBuffer = 8192
	// The most events that wait for an answer of one Service, and the most Services with such events or annotations.
	mostEvents, mostWaiting = 20, 10000
)

// kept is one object of the stand-in.
type kept struct {
	object
	value runtime.Object
	meta  *metav1.ObjectMeta
	// When a call last named the object: `named` without the long gaps between calls, `seen` by the clock.
	named, seen time.Time
}

// object names one version of an object.
type object struct {
	kind, key, revision string
}

// knownTo reports whether an informer's store has this version, or a newer one.
func (o object) knownTo(store cache.Store) bool {
	found, ok, err := store.GetByKey(o.key)
	if err != nil || !ok {
		return false
	}
	meta, ok := found.(metav1.Object)
	return ok && !older(meta.GetResourceVersion(), o.revision)
}

// older compares revisions, which are numbers without leading zeros.
func older(one, other string) bool {
	if len(one) != len(other) {
		return len(one) < len(other)
	}
	return one < other
}

// watch is one open watch.
type watch struct {
	kind   string
	wanted func(*kept) bool
	sent   chan watchEvent
}

type watchEvent struct {
	Type   string `json:"type"`
	Object any    `json:"object"`
}

// openService is one call that is open for a Service.
type openService struct {
	// The annotations that the cloud wrote with a client; nil removes one.
	changes map[string]*string
}

// waits is what waits for the next answer about a Service.
type waits[T any] struct {
	since time.Time
	what  T
}

// waitingOf returns what waits for a Service. If too many Services have such entries, it removes the oldest one.
func waitingOf[T any](all map[types.UID]*waits[T], service types.UID) *waits[T] {
	if all[service] != nil {
		return all[service]
	}
	if len(all) >= mostWaiting {
		var oldest types.UID
		for uid, one := range all {
			if there := all[oldest]; there == nil || one.since.Before(there.since) {
				oldest = uid
			}
		}
		delete(all, oldest)
	}
	all[service] = &waits[T]{since: time.Now()}
	return all[service]
}

// take returns, and removes, what waits for a Service.
func take[T any](all map[types.UID]*waits[T], service types.UID) (what T) {
	if there := all[service]; there != nil {
		what = there.what
		delete(all, service)
	}
	return what
}

func newStandIn() *standIn {
	return &standIn{
		objects: map[string]*kept{}, watches: map[*watch]struct{}{}, open: map[string][]*openService{},
		events: map[types.UID]*waits[[]*contract.Event]{}, written: map[types.UID]*waits[map[string]*string]{},
		lacks: &lacks{noted: make(chan struct{})},
	}
}

func (s *standIn) setVersion(version string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version = version
}

// knowNodes stores the Nodes of a call.
func (s *standIn) knowNodes(nodes []*v1.Node) []object {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.resume()
	known := make([]object, 0, len(nodes))
	for _, node := range nodes {
		known = append(known, s.put(nodeKind, node.Name, node.DeepCopy()))
	}
	s.removeFormer(nodes)
	s.sweep()
	return known
}

// removeFormer removes each other Node with a provider ID of these Nodes, if it was not made later, and no call has named it for a while or since the later
// one was made: the machine has registered under another name. A cloud that looks up a Node by its instance would otherwise find two. Until an operator
// deletes the former Node, the controller names both, and the later one is alive.
func (s *standIn) removeFormer(nodes []*v1.Node) {
	names, ids := map[string]bool{}, map[string]*v1.Node{}
	for _, node := range nodes {
		names[node.Name] = true
		if node.Spec.ProviderID != "" {
			ids[node.Spec.ProviderID] = node
		}
	}
	for _, old := range s.objects {
		if old.kind != nodeKind || names[old.key] {
			continue
		}
		node := ids[old.value.(*v1.Node).Spec.ProviderID]
		if node == nil || old.meta.CreationTimestamp.After(node.CreationTimestamp.Time) {
			continue
		}
		if bothNamed := time.Since(old.seen) < formerUnnamed && old.seen.After(node.CreationTimestamp.Time); !bothNamed {
			s.remove(old)
		}
	}
}

// knowNodeIfNew stores a Node with the few fields that a route has. If the stand-in knows the Node already, it takes only a provider ID that it lacks.
func (s *standIn) knowNodeIfNew(node *v1.Node) object {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := node.DeepCopy()
	if there := s.objects[nodeKind+"/"+node.Name]; there != nil {
		next = there.value.DeepCopyObject().(*v1.Node)
		if next.Spec.ProviderID != "" || node.Spec.ProviderID == "" {
			return there.object
		}
		next.Spec.ProviderID = node.Spec.ProviderID
		defer s.removeFormer([]*v1.Node{next})
	}
	return s.put(nodeKind, node.Name, next)
}

// addressesOf returns the addresses of a Node; nil if the stand-in does not know the Node.
func (s *standIn) addressesOf(node string) []v1.NodeAddress {
	s.mu.Lock()
	defer s.mu.Unlock()
	if there := s.objects[nodeKind+"/"+node]; there != nil {
		return there.value.(*v1.Node).Status.Addresses
	}
	return nil
}

func (s *standIn) knowService(service *v1.Service) object {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.put(serviceKind, serviceKey(service), service.DeepCopy())
}

// forgetService removes a Service with which this provider has nothing more to do, unless another call about it is open. No answer will have its events.
func (s *standIn) forgetService(service *v1.Service) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := serviceKey(service)
	if old := s.objects[serviceKind+"/"+key]; old != nil && old.meta.UID == service.UID {
		if len(s.open[key]) > 0 {
			return
		}
		s.remove(old)
	}
	delete(s.events, service.UID)
	delete(s.written, service.UID)
}

func serviceKey(service *v1.Service) string { return service.Namespace + "/" + service.Name }

// put stores an object, and sends it to the watches if it is new or has changed.
func (s *standIn) put(kind, key string, value runtime.Object) object {
	now := time.Now()
	meta := metaOf(value)
	old := s.objects[kind+"/"+key]
	if old != nil && old.meta.UID != meta.UID && old.meta.UID != "" {
		s.remove(old)
		old = nil
	}
	if old != nil {
		meta.ResourceVersion = old.revision
		if equal(old.value, value) {
			old.named, old.seen = now, now
			return old.object
		}
	}
	s.revision++
	meta.ResourceVersion = fmt.Sprint(s.revision)
	next := &kept{object: object{kind, key, meta.ResourceVersion}, value: value, meta: meta, named: now, seen: now}
	s.objects[kind+"/"+key] = next
	if old == nil {
		s.tell("ADDED", next)
	} else {
		s.tell("MODIFIED", next)
	}
	return next.object
}

func (s *standIn) remove(old *kept) {
	delete(s.objects, old.kind+"/"+old.key)
	s.revision++
	gone := old.value.DeepCopyObject()
	meta := metaOf(gone)
	meta.ResourceVersion = fmt.Sprint(s.revision)
	s.tell("DELETED", &kept{object: object{old.kind, old.key, meta.ResourceVersion}, value: gone, meta: meta})
}

// resume leaves a long gap since the last call out of each Node's time without a call.
func (s *standIn) resume() {
	now := time.Now()
	if gap := now.Sub(s.called); gap > longGap && !s.called.IsZero() {
		for _, one := range s.objects {
			one.named = one.named.Add(gap)
		}
	}
	s.called = now
}

// sweep removes the Nodes that no call has named for a long time. It runs after the Nodes of a call are stored, so that it removes none of them.
func (s *standIn) sweep() {
	now := time.Now()
	if now.Sub(s.swept) < sweepEvery {
		return
	}
	s.swept = now
	var unnamed []*kept
	named := 0
	for _, old := range s.objects {
		switch since := now.Sub(old.named); {
		case old.kind != nodeKind:
		case since > forgetNodes:
			s.remove(old)
		case since > unnamedAfter:
			unnamed = append(unnamed, old)
		default:
			named++
		}
	}
	if tooMany := len(unnamed) - named - mostUnnamed; tooMany > 0 {
		slices.SortFunc(unnamed, func(one, other *kept) int { return one.named.Compare(other.named) })
		for _, old := range unnamed[:tooMany] {
			s.remove(old)
		}
	}
}

// tell sends a change to the watches. It ends a watch that does not keep up; its client lists again.
func (s *standIn) tell(what string, changed *kept) {
	for open := range s.watches {
		if open.kind != changed.kind || !open.wanted(changed) {
			continue
		}
		select {
		case open.sent <- watchEvent{what, changed.value}:
		default:
			s.endWatch(open)
		}
	}
}

// startWatch returns the present objects, and a watch of all later changes.
func (s *standIn) startWatch(kind string, wanted func(*kept) bool) (now []*kept, revision string, opened *watch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	opened = &watch{kind, wanted, make(chan watchEvent, watchBuffer)}
	s.watches[opened] = struct{}{}
	if s.closed {
		s.endWatch(opened)
	}
	return s.matching(kind, wanted), fmt.Sprint(s.revision), opened
}

func (s *standIn) endWatch(open *watch) {
	if _, ok := s.watches[open]; ok {
		delete(s.watches, open)
		close(open.sent)
	}
}

func (s *standIn) stopWatch(open *watch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endWatch(open)
}

func (s *standIn) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for open := range s.watches {
		s.endWatch(open)
	}
}

func (s *standIn) list(kind string, wanted func(*kept) bool) ([]*kept, string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.matching(kind, wanted), fmt.Sprint(s.revision)
}

func (s *standIn) matching(kind string, wanted func(*kept) bool) []*kept {
	var found []*kept
	for _, one := range s.objects {
		if one.kind == kind && wanted(one) {
			found = append(found, one)
		}
	}
	return found
}

// openFor lets the cloud write annotations of a Service until the returned function collects them.
func (s *standIn) openFor(service *v1.Service) (taken func() map[string]*string) {
	key := serviceKey(service)
	s.mu.Lock()
	defer s.mu.Unlock()
	mine := &openService{changes: map[string]*string{}}
	s.open[key] = append(s.open[key], mine)
	return func() map[string]*string {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.open[key] = slices.DeleteFunc(s.open[key], func(one *openService) bool { return one == mine })
		if len(s.open[key]) == 0 {
			delete(s.open, key)
		}
		return mine.changes
	}
}

// annotate stores the annotations that a cloud writes to a Service, for the answers of the calls
// that are open for it.
func (s *standIn) annotate(key string, changes map[string]*string) (*v1.Service, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.objects[serviceKind+"/"+key]
	calls := s.open[key]
	if old == nil || len(calls) == 0 {
		return nil, fmt.Errorf("no call about the load balancer of Service %s is open; outside of one nothing can be written to it", key)
	}
	next := old.value.DeepCopyObject().(*v1.Service)
	if next.Annotations == nil {
		next.Annotations = map[string]string{}
	}
	apply(next.Annotations, changes)
	for _, call := range calls {
		maps.Copy(call.changes, changes)
	}
	s.put(serviceKind, key, next)
	return next, nil
}

// keepEvent keeps an event about a Service for the next answer about that Service. It returns false for a Service of which the stand-in does not know: an
// event may come after the last answer.
func (s *standIn) keepEvent(service *v1.ObjectReference, event *contract.Event) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	there := s.objects[serviceKind+"/"+service.Namespace+"/"+service.Name]
	if there == nil || there.meta.UID != service.UID {
		return false
	}
	waiting := waitingOf(s.events, service.UID)
	if len(waiting.what) >= mostEvents {
		waiting.what = waiting.what[1:]
	}
	waiting.what = append(waiting.what, event)
	return true
}

func (s *standIn) takeEvents(service types.UID) []*contract.Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	return take(s.events, service)
}

// keepWritten keeps annotations that the cloud wrote, for the answer of this call, or of the next call if this one has ended.
func (s *standIn) keepWritten(service types.UID, changes map[string]*string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(changes) == 0 {
		return
	}
	waiting := waitingOf(s.written, service)
	if waiting.what == nil {
		waiting.what = map[string]*string{}
	}
	maps.Copy(waiting.what, changes)
}

func (s *standIn) takeWritten(service types.UID) map[string]*string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return take(s.written, service)
}
