package bridge

import (
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	cloudproviderapi "k8s.io/cloud-provider/api"
)

// seldomEvery is how often the type, and the zone, of an instance is asked for whose Node shows it
// already.
const seldomEvery = time.Hour

// seldom is when a fact was last asked for that a cloud with the older interfaces tells by a call
// of its own, and that hardly ever changes: an instance's type, or its zone. Upstream asks for them
// once in a Node's life, and a refresh is one call. Here they are kept current (they are asked for
// again within the hour), and a refresh is one call too: until they are due they are left out of
// the answer, which leaves the Node's labels as they are. What a Node does not show yet is asked
// for at once.
type seldom struct {
	// The labels that show it: one of them does, as all are set at once.
	labels []string

	mu   sync.Mutex
	next map[string]time.Time
}

var (
	typeLabels = []string{v1.LabelInstanceTypeStable}
	zoneLabels = []string{v1.LabelTopologyZone, v1.LabelTopologyRegion}
)

// rests tells whether the fact need not be asked for now. After a start the first time is some time
// within the hour, a different one for each instance: a restart is no flood of calls.
func (s *seldom) rests(node *v1.Node) bool {
	shown := slices.ContainsFunc(s.labels, func(label string) bool { return node.Labels[label] != "" })
	// A kubelet may have labels of its own: they are not what the cloud said.
	initialised := !slices.ContainsFunc(node.Spec.Taints, func(taint v1.Taint) bool { return taint.Key == cloudproviderapi.TaintExternalCloudProvider })
	if !shown || !initialised || node.Spec.ProviderID == "" {
		return false
	}
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	next, known := s.next[node.Spec.ProviderID]
	if !known {
		next = now.Add(rand.N(seldomEvery))
		s.set(node.Spec.ProviderID, next)
	}
	return now.Before(next)
}

// told notes that the cloud has told the fact.
func (s *seldom) told(node *v1.Node) {
	if node.Spec.ProviderID == "" {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.set(node.Spec.ProviderID, time.Now().Add(seldomEvery))
}

func (s *seldom) set(id string, next time.Time) {
	if s.next == nil {
		s.next = map[string]time.Time{}
	}
	if _, known := s.next[id]; !known && len(s.next)%256 == 255 {
		// Those of Nodes that are gone: nobody has asked since they were due.
		for id, next := range s.next {
			if time.Since(next) > seldomEvery {
				delete(s.next, id)
			}
		}
	}
	s.next[id] = next
}
