package bridge

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	cloudprovider "k8s.io/cloud-provider"

	"github.com/grpc-ccm/grpc-ccm/providers/go/contract"
)

func all(*kept) bool { return true }

// nodesNow returns the names of the stand-in's Nodes.
func (s *standIn) nodesNow() []string {
	var names []string
	there, _ := s.list(nodeKind, all)
	for _, one := range there {
		names = append(names, one.key)
	}
	slices.Sort(names)
	return names
}

// told returns the changes that a watch has had since the last call of told, such as DELETED a.
func (w *watch) told() []string {
	var said []string
	for {
		select {
		case event := <-w.sent:
			said = append(said, event.Type+" "+event.Object.(*v1.Node).Name)
		default:
			slices.Sort(said)
			return said
		}
	}
}

func nodeWith(name, providerID string) *v1.Node {
	return nodeOf(&contract.NodeView{Name: name, Uid: name, ProviderId: &providerID})
}

func TestANodeUnderANewNameReplacesTheFormerOne(t *testing.T) {
	s := newStandIn()
	_, _, watch := s.startWatch(nodeKind, all)
	old, others := nodeWith("old", "cloud://1"), []*v1.Node{nodeWith("other", "cloud://2"), nodeWith("bare-1", ""), nodeWith("bare-2", "")}
	s.knowNodes(append(others, old))
	watch.told()
	later := nodeWith("new", "cloud://1")
	later.CreationTimestamp = metav1.Now()
	s.knowNodes([]*v1.Node{later, nodeWith("bare-3", "")})
	if now, said := s.nodesNow(), watch.told(); !slices.Equal(now, []string{"bare-1", "bare-2", "bare-3", "new", "other"}) || !slices.Equal(said, []string{"ADDED bare-3", "ADDED new", "DELETED old"}) {
		t.Errorf("%v, told %v", now, said)
	}
	// A gap in which this provider's controller did not lead.
	s.pass(24 * time.Hour)
	last := nodeWith("last", "cloud://1")
	last.CreationTimestamp = metav1.NewTime(later.CreationTimestamp.Add(-time.Hour))
	later.CreationTimestamp = metav1.NewTime(last.CreationTimestamp.Add(-time.Hour))
	s.knowNodes([]*v1.Node{later})
	s.pass(24 * time.Hour)
	watch.told()
	s.knowNodes([]*v1.Node{last})
	if said := watch.told(); !slices.Equal(said, []string{"ADDED last", "DELETED new"}) {
		t.Errorf("after a gap: told %v", said)
	}
	later = last
	// Nodes that one call names both exist.
	s.knowNodes([]*v1.Node{later, nodeWith("twin", "cloud://1")})
	if said := watch.told(); !slices.Equal(said, []string{"ADDED twin"}) {
		t.Errorf("told %v", said)
	}
}

func TestAFormerNodeThatStillExistsDoesNotReplaceTheLivingOne(t *testing.T) {
	made := metav1.NewTime(time.Now().Add(-24 * time.Hour))
	for name, row := range map[string]struct {
		later   time.Duration
		unnamed time.Duration
	}{
		"both are named":                      {0, formerUnnamed - time.Minute},
		"the living Node is seldom refreshed": {time.Second, 3 * time.Hour},
	} {
		s := newStandIn()
		_, _, watch := s.startWatch(nodeKind, all)
		living, former := nodeWith("living", "cloud://1"), nodeWith("former", "cloud://1")
		living.CreationTimestamp, former.CreationTimestamp = metav1.NewTime(made.Add(row.later)), made
		s.knowNodes([]*v1.Node{living, former})
		watch.told()
		s.pass(row.unnamed)
		// The lifecycle controller asks about the former Node alone, because it is not Ready.
		s.knowNodes([]*v1.Node{former})
		if said := watch.told(); len(said) > 0 {
			t.Errorf("%s: told %v", name, said)
		}
	}
}

func TestARouteWithTheProviderIDOfANewNodeRemovesTheFormerOne(t *testing.T) {
	s := newStandIn()
	s.knowNodes([]*v1.Node{nodeWith("old", "cloud://1")})
	later := nodeWith("new", "")
	later.CreationTimestamp = metav1.Now()
	s.knowNodes([]*v1.Node{later})
	id := "cloud://1"
	s.knowNodeIfNew(nodeOf(&contract.NodeView{Name: "new", ProviderId: &id}))
	if now := s.nodesNow(); !slices.Equal(now, []string{"new"}) {
		t.Errorf("%v", now)
	}
}

func TestARouteBringsTheProviderIDThatAKnownNodeLacks(t *testing.T) {
	s := newStandIn()
	s.knowNodes([]*v1.Node{nodeWith("a", "")})
	_, _, watch := s.startWatch(nodeKind, all)
	for _, row := range []struct {
		id   string
		told []string
		now  string
	}{
		{"", nil, ""},
		{"cloud://1", []string{"MODIFIED a"}, "cloud://1"},
		{"cloud://2", nil, "cloud://1"},
	} {
		s.knowNodeIfNew(nodeOf(&contract.NodeView{Name: "a", ProviderId: &row.id}))
		now := s.objects[nodeKind+"/a"].value.(*v1.Node)
		if said := watch.told(); !slices.Equal(said, row.told) || now.Spec.ProviderID != row.now || now.UID != "a" {
			t.Errorf("%q: told %v, the Node is %v", row.id, said, now)
		}
	}
}

// pass lets time pass for the stand-in.
func (s *standIn) pass(duration time.Duration) {
	s.swept, s.called = s.swept.Add(-duration), s.called.Add(-duration)
	for _, one := range s.objects {
		one.named, one.seen = one.named.Add(-duration), one.seen.Add(-duration)
	}
}

func TestTheStandInForgetsOnlyNodesThatManyCallsHaveNotNamed(t *testing.T) {
	s := newStandIn()
	_, _, watch := s.startWatch(nodeKind, all)
	seldom, often := []*v1.Node{nodeWith("seldom", "cloud://1")}, []*v1.Node{nodeWith("often", "cloud://2")}
	s.knowNodes(slices.Concat(seldom, often))
	watch.told()
	hours := func(many int, nodes []*v1.Node) {
		for range 2 * many {
			s.pass(time.Hour / 2)
			s.knowNodes(nodes)
		}
	}
	// With a long --node-status-update-frequency a call names the Node again after 49 hours.
	hours(47, often)
	s.pass(2 * time.Hour)
	s.knowNodes(seldom)
	if said := watch.told(); len(said) > 0 {
		t.Errorf("the call that names a Node: told %v", said)
	}
	// Another replica leads for days. The first calls then name the Nodes one after the other.
	s.pass(100 * time.Hour)
	hours(2, often)
	if said := watch.told(); len(said) > 0 {
		t.Errorf("after a gap: told %v", said)
	}
	hours(47, often)
	if said := watch.told(); !slices.Equal(said, []string{"DELETED seldom"}) {
		t.Errorf("a Node that is gone: told %v", said)
	}
}

func TestOfManyNodesThatNoCallNamesTheStandInHoldsTheLatest(t *testing.T) {
	s := newStandIn()
	_, _, watch := s.startWatch(nodeKind, all)
	const batch = 50
	nodes := func(name string, first int) (nodes []*v1.Node) {
		for number := range batch {
			nodes = append(nodes, nodeWith(fmt.Sprintf("%s-%04d", name, first+number), ""))
		}
		return nodes
	}
	// The Nodes that are gone are three batches more than the stand-in holds beside the living batch.
	gone, removed := mostUnnamed+4*batch, 3*batch
	for first := 0; first < gone; first += batch {
		s.knowNodes(nodes("gone", first))
		s.pass(time.Minute)
	}
	living := nodes("living", 0)
	s.knowNodes(living)
	watch.told()
	for range 5 {
		s.pass(time.Hour / 2)
		s.knowNodes(living)
	}
	if said := watch.told(); len(said) != removed || said[0] != "DELETED gone-0000" || said[removed-1] != fmt.Sprintf("DELETED gone-%04d", removed-1) {
		t.Errorf("told %v", said)
	}
	// Another replica leads for some hours. The first call then names only a part of the living Nodes.
	s.pass(5 * time.Hour)
	s.knowNodes(living[:1])
	if said := watch.told(); len(said) > 0 {
		t.Errorf("after a gap: told %v", said)
	}
}

func TestADeletionThatEndsLeavesNothingInTheStandIn(t *testing.T) {
	cloud := &marked{scripted: scripted{tagged: true}}
	bridge, err := New(cloud, Options{})
	must(t, err)
	started, err := bridge.Initialize(t.Context(), &contract.InitializeRequest{Cluster: cluster(), KubernetesVersion: "v1.36.3"})
	if err != nil || started.GetInitialized() == nil {
		t.Fatal(started, err)
	}
	s := bridge.standIn
	for name, row := range map[string]struct {
		ownership contract.Ownership
		err       error
		stays     bool
	}{
		"done":      {contract.Ownership_OWNERSHIP_OURS, nil, false},
		"elsewhere": {contract.Ownership_OWNERSHIP_OURS, cloudprovider.ImplementedElsewhere, false},
		"foreign":   {contract.Ownership_OWNERSHIP_FOREIGN, nil, false},
		"fails":     {contract.Ownership_OWNERSHIP_OURS, errors.New("odd"), true},
	} {
		about := &v1.ObjectReference{Kind: "Service", Namespace: "default", Name: name, UID: types.UID("uid-" + name)}
		cloud.ownership = row.ownership
		cloud.remove = func(context.Context, *v1.Service) error { return row.err }
		answer, err := bridge.DeleteLoadBalancer(t.Context(), &contract.DeleteLoadBalancerRequest{Cluster: cluster(), Service: service(name)})
		must(t, err)
		if row.stays != (answer.GetFailed() != nil) {
			t.Errorf("%s: %v", name, answer)
		}
		// Go's recorder may send an event after the answer.
		kept := s.keepEvent(about, &contract.Event{Reason: "Late"})
		if stays := s.objects[serviceKind+"/default/"+name] != nil; stays != row.stays || kept != row.stays || len(s.takeEvents(about.UID)) > 0 != row.stays {
			t.Errorf("%s: the Service stays: %t, its event: %t", name, stays, kept)
		}
	}
}

func TestAServiceWithAnOpenCallIsNotForgotten(t *testing.T) {
	s, made := newStandIn(), serviceOf(service("a"))
	closed := s.openFor(made)
	s.knowService(made)
	s.keepWritten(made.UID, map[string]*string{"a": nil})
	s.forgetService(made)
	if s.objects[serviceKind+"/default/a"] == nil || len(s.written) != 1 {
		t.Error("a Service was forgotten during a call")
	}
	closed()
	s.forgetService(made)
	if len(s.objects) > 0 || len(s.written) > 0 {
		t.Errorf("%v %v", s.objects, s.written)
	}
}

func TestTheOldestEntryMakesRoomForANewOne(t *testing.T) {
	s := newStandIn()
	for number := range mostWaiting + 1 {
		s.keepWritten(types.UID(fmt.Sprint(number)), map[string]*string{"a": nil})
	}
	if len(s.written) != mostWaiting || s.takeWritten("0") != nil || s.takeWritten("1") == nil || s.takeWritten(types.UID(fmt.Sprint(mostWaiting))) == nil {
		t.Errorf("%d entries", len(s.written))
	}
}
