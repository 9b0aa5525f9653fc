package bridge

import (
	"sync"
	"time"

	cloudprovider "k8s.io/cloud-provider"

	"github.com/grpc-ccm/grpc-ccm/providers/go/contract"
)

// listFresh is how old a list of routes may be by which routes are made and removed. The controller asks for both right after it listed.
const listFresh = 5 * time.Second

// recentRoutes is the list of routes that the controller received last. Upstream's controller lists once and then makes and removes routes by that
// list. The bridge does the same, except for destinations that have changed since (ROUTE-2, ROUTE-4).
type recentRoutes struct {
	mu      sync.Mutex
	cluster string
	began   time.Time
	routes  []*cloudprovider.Route
	// When each destination was last worked on, by any call of this process.
	changed map[string]time.Time
}

// keep keeps the answer to a list that was begun at this time.
func (r *recentRoutes) keep(cluster string, began time.Time, routes []*cloudprovider.Route) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if began.Before(r.began) {
		return
	}
	r.cluster, r.began, r.routes = cluster, began, routes
	for destination, at := range r.changed {
		if at.Before(began) {
			delete(r.changed, destination)
		}
	}
}

// of is the list, if it still says how these destinations are.
func (r *recentRoutes) of(cluster string, asked []*contract.Route) ([]*cloudprovider.Route, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.began.IsZero() || r.cluster != cluster || time.Since(r.began) > listFresh {
		return nil, false
	}
	for _, route := range asked {
		// Without a Node it is refused unasked: the cloud's own failure comes first (CORE-15).
		if _, worked := r.changed[route.GetDestinationCidr()]; worked || route.GetNodeName() == "" {
			return nil, false
		}
	}
	return r.routes, true
}

// work notes that a destination is worked on, or was until now.
func (r *recentRoutes) work(destination string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.changed == nil {
		r.changed = map[string]time.Time{}
	}
	r.changed[destination] = time.Now()
}
