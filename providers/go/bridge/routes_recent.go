package bridge

import (
	"sync"
	"time"

	cloudprovider "k8s.io/cloud-provider"

	"github.com/grpc-ccm/grpc-ccm/providers/go/contract"
)

// listFresh is the greatest age of a list of routes that CreateRoutes and DeleteRoutes use. The controller calls both soon after its listing.
const listFresh = 5 * time.Second

// recentRoutes has the routes that the cloud returned for the last listing. Upstream's controller lists once, and makes and removes routes by that list.
// The bridge does the same, except for destinations that have changed since (ROUTE-2, ROUTE-4).
type recentRoutes struct {
	mu      sync.Mutex
	cluster string
	began   time.Time
	routes  []*cloudprovider.Route
	// When a call of this process last worked on each destination, which is in the form of network.
	changed map[string]time.Time
}

// keep stores a list whose reading began at this time, unless a later list is stored.
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

// of returns the list, if it is fresh and no call has worked on these destinations since.
func (r *recentRoutes) of(cluster string, asked []*contract.Route) ([]*cloudprovider.Route, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.began.IsZero() || r.cluster != cluster || time.Since(r.began) > listFresh {
		return nil, false
	}
	for _, route := range asked {
		// CreateRoutes answers INVALID for a route without a Node. A failure of the cloud must come before that (CORE-15), so the kept list is not used.
		if _, worked := r.changed[network(route.GetDestinationCidr())]; worked || route.GetNodeName() == "" {
			return nil, false
		}
	}
	return r.routes, true
}

// work records that a call works on a destination, or has just ended its work.
func (r *recentRoutes) work(destination string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.changed == nil {
		r.changed = map[string]time.Time{}
	}
	r.changed[destination] = time.Now()
}
