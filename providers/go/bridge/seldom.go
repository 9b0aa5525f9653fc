package bridge

import (
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	cloudproviderapi "k8s.io/cloud-provider/api"
)

// seldomEvery is the period of requests for the type or zone of an instance whose Node already shows
// it.
const seldomEvery = time.Hour

// seldom has the time of the next request for a fact that needs a separate call with the older interfaces: an instance's type, or its zone. Upstream asks
// for both once in a Node's life. The bridge asks again once an hour. Until then it leaves the fact out of its answer, so the Node's label stays and a
// refresh is one call. It asks at once for a fact that a Node does not show yet.
type seldom struct {
	// The labels that show the fact. One of them suffices, because the controller sets all at once.
	labels []string

	mu   sync.Mutex
	next map[string]time.Time
}

var (
	typeLabels = []string{v1.LabelInstanceTypeStable}
	zoneLabels = []string{v1.LabelTopologyZone, v1.LabelTopologyRegion}
)

// rests reports whether the bridge still leaves the fact out, because the next request for it is not due. After a start
// the first request comes at a random time within the hour, so that a restart causes no burst of calls.
func (s *seldom) rests(node *v1.Node) bool {
	shown := slices.ContainsFunc(s.labels, func(label string) bool { return node.Labels[label] != "" })
	// A kubelet may have set the labels of a Node that is not initialised.
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

// told records that the cloud has answered the request.
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
		// Remove the entries of deleted Nodes: they were due an hour ago, and no call has asked since.
		for id, next := range s.next {
			if time.Since(next) > seldomEvery {
				delete(s.next, id)
			}
		}
	}
	s.next[id] = next
}
