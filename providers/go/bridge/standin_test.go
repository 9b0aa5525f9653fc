package bridge

import (
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

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
	s.knowNodes([]*v1.Node{nodeWith("old", "cloud://1"), nodeWith("other", "cloud://2"), nodeWith("bare-1", ""), nodeWith("bare-2", "")})
	watch.told()
	s.knowNodes([]*v1.Node{nodeWith("new", "cloud://1"), nodeWith("bare-3", "")})
	if now, said := s.nodesNow(), watch.told(); !slices.Equal(now, []string{"bare-1", "bare-2", "bare-3", "new", "other"}) || !slices.Equal(said, []string{"ADDED bare-3", "ADDED new", "DELETED old"}) {
		t.Errorf("%v, told %v", now, said)
	}
	// Nodes that one call names both exist.
	s.knowNodes([]*v1.Node{nodeWith("new", "cloud://1"), nodeWith("twin", "cloud://1")})
	if said := watch.told(); !slices.Equal(said, []string{"ADDED twin"}) {
		t.Errorf("told %v", said)
	}
}

// pass lets time pass for the stand-in.
func (s *standIn) pass(duration time.Duration) {
	s.swept, s.called, s.resumed = s.swept.Add(-duration), s.called.Add(-duration), s.resumed.Add(-duration)
	for _, one := range s.objects {
		one.named = one.named.Add(-duration)
	}
}

func TestTheStandInForgetsOnlyNodesThatManyCallsHaveNotNamed(t *testing.T) {
	s := newStandIn()
	_, _, watch := s.startWatch(nodeKind, all)
	seldom, often := []*v1.Node{nodeWith("seldom", "cloud://1")}, []*v1.Node{nodeWith("often", "cloud://2")}
	s.knowNodes(slices.Concat(seldom, often))
	watch.told()
	hours := func(many int, nodes []*v1.Node) {
		for range many {
			s.pass(time.Hour)
			s.knowNodes(nodes)
		}
	}
	// A frequency of more than two hours.
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
