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

// seldom has the time of the last request for a fact that needs a separate call with the older interfaces and hardly ever changes: an instance's
// type, or its zone. Upstream asks for them once in a Node's life, and a refresh is one call. The bridge keeps them current (it asks again within the
// hour), and a refresh is one call too. Until they are due, it leaves them out of the answer, so the Node's labels stay. It asks at once for a fact
// that a Node does not show yet.
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
	// A kubelet may set such labels itself; then they are not the cloud's answer.
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

// told records that the cloud has answered the fact.
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
		// The entries of deleted Nodes: no call has asked since they were due.
		for id, next := range s.next {
			if time.Since(next) > seldomEvery {
				delete(s.next, id)
			}
		}
	}
	s.next[id] = next
}
