package sdk

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"slices"
	"sync"

	"google.golang.org/grpc"

	"github.com/grpc-ccm/grpc-ccm/providers/go/contract"
)

func (s *session) ListRoutes(request *contract.ListRoutesRequest, stream grpc.ServerStreamingServer[contract.ListRoutesResponse]) error {
	type response = contract.ListRoutesResponse
	list := func(ctx context.Context, call *Call) ([]Route, error) {
		if s.offers.routeBatches != nil {
			return s.offers.routeBatches.ListRoutes(ctx, call)
		}
		return s.offers.routes.ListRoutes(ctx, call)
	}
	return listing(stream, s, "ListRoutes", request.Cluster, list, routeTo, sizeOf,
		func(part []*contract.Route) *response {
			return &response{Part: &contract.ListRoutesResponse_Routes{Routes: &contract.RouteList{Routes: part}}}
		},
		func(end *contract.ListEnd) *response {
			return &response{Part: &contract.ListRoutesResponse_End{End: end}}
		},
		func(failure *contract.Failure) *response {
			return &response{Part: &contract.ListRoutesResponse_Failed{Failed: failure}}
		})
}

func routeTo(route Route) (*contract.Route, error) {
	if route.Ownership < Ours || route.Ownership > Unmarked {
		return nil, contractBroken("the route %q has no ownership (ROUTE-5)", route.Name)
	}
	// A route that is not ours may lead to a gateway (ROUTE-11).
	if route.Ownership == Ours && !route.Blackhole && route.NodeName == "" && route.ProviderID == "" && !route.NextHop.IsValid() {
		return nil, contractBroken("the route %q is no blackhole and has no target (ROUTE-5)", route.Name)
	}
	addresses, err := addressesTo(route.NodeAddresses)
	if err == nil {
		err = errors.Join(fits("the name of a route", route.Name, nameBytes), fits("the destination of a route", route.DestinationCIDR, nameBytes),
			atMost("the Node's name", route.NodeName, nameBytes), atMost("the provider ID", route.ProviderID, idBytes))
	}
	sent := &contract.Route{
		Name: route.Name, DestinationCidr: route.DestinationCIDR, NodeName: optional(route.NodeName), ProviderId: optional(route.ProviderID), NodeAddresses: addresses,
		Blackhole: route.Blackhole, Ownership: contract.Ownership(route.Ownership),
	}
	if route.NextHop.IsValid() {
		sent.NextHop = optional(route.NextHop.WithZone("").String())
	}
	return sent, err
}

func routeFrom(route *contract.Route) Route {
	read := Route{
		Key: route.RouteKey, Name: route.Name, NameHint: route.NameHint, DestinationCIDR: route.DestinationCidr, NodeName: route.GetNodeName(), ProviderID: route.GetProviderId(),
		NodeAddresses: addressesFrom(route.NodeAddresses), Blackhole: route.Blackhole, Ownership: Ownership(route.Ownership),
	}
	// A next hop that does not parse stays the zero value. In CreateRoutes, checkRoute refuses the route if that was its only target.
	read.NextHop, _ = netip.ParseAddr(route.GetNextHop())
	return read
}

// An error in one route fails only that route (ROUTE-2, ROUTE-10).
func checkRoute(sent *contract.Route, route *Route, creates bool) error {
	_, err := netip.ParsePrefix(sent.DestinationCidr)
	switch {
	case !creates && route.Name == "":
		return Invalid("the route to %s has no name; send it as ListRoutes gave it", sent.DestinationCidr)
	case !creates:
		return nil
	case err != nil:
		return Invalid("destination_cidr %q is not a CIDR; send one such as 10.0.1.0/24", sent.DestinationCidr)
	case route.NodeName != "" || route.ProviderID != "" || route.NextHop.IsValid():
		return nil
	case sent.GetNextHop() != "":
		return Invalid("next_hop %q of the route to %s is not an IP address", sent.GetNextHop(), sent.DestinationCidr)
	default:
		return Invalid("the route to %s has no target; send provider_id, node_name or next_hop", sent.DestinationCidr)
	}
}

func (s *session) CreateRoutes(ctx context.Context, request *contract.CreateRoutesRequest) (*contract.CreateRoutesResponse, error) {
	results, failure, err := s.writeRoutes(ctx, "CreateRoutes", request.Cluster, request.Routes)
	return &contract.CreateRoutesResponse{Failed: failure, Results: results}, err
}

func (s *session) DeleteRoutes(ctx context.Context, request *contract.DeleteRoutesRequest) (*contract.DeleteRoutesResponse, error) {
	results, failure, err := s.writeRoutes(ctx, "DeleteRoutes", request.Cluster, request.Routes)
	return &contract.DeleteRoutesResponse{Failed: failure, Results: results}, err
}

func (s *session) writeRoutes(ctx context.Context, rpc string, cluster *contract.ClusterRef, asked []*contract.Route) (results []*contract.RouteResult, failure *contract.Failure, err error) {
	creates := rpc == "CreateRoutes"
	work := func(ctx context.Context, call *Call) (Answers[struct{}], error) {
		if err := withinBatch("routes", len(asked), s.info.Routes.MaxBatch); err != nil {
			return nil, err
		}
		routes, answers, twins, err := readRoutes(asked, creates)
		if err != nil {
			return nil, err
		}
		written, err := s.eachRoute(ctx, call, creates, routes)
		if err != nil {
			return nil, err
		}
		keys := map[string]bool{}
		for _, route := range routes {
			keys[route.Key] = true
		}
		logStrangers(ctx, s, rpc, written, keys)
		maps.Copy(answers, written)
		for key, twin := range twins {
			if answer, ok := written[twin]; ok {
				answers[key] = answer
			}
		}
		return answers, nil
	}
	type said struct {
		results []*contract.RouteResult
		failure *contract.Failure
	}
	failed := func(failure *contract.Failure) said { return said{failure: failure} }
	done, err := answer(ctx, s, rpc, "", cluster, failed, work, func(answers Answers[struct{}]) (all said, err error) {
		for _, route := range asked {
			result := &contract.RouteResult{RouteKey: route.RouteKey, Outcome: &contract.RouteResult_Done{Done: &contract.Done{}}}
			answer, ok := answers[route.RouteKey]
			if !ok {
				answer.Err = contractBroken("the provider has no answer for this route")
			}
			if answer.Err != nil {
				result.Outcome = &contract.RouteResult_Failed{Failed: s.failed(ctx, rpc, route.RouteKey, answer.Err)}
			}
			all.results = append(all.results, result)
		}
		return all, nil
	})
	return done.results, done.failure, err
}

// readRoutes returns the routes that a request writes, the answers for those that it refuses, and for each repeated route the key of the first.
func readRoutes(asked []*contract.Route, creates bool) (routes []Route, answers Answers[struct{}], twins map[string]string, err error) {
	keys := map[string]bool{}
	answers, twins = Answers[struct{}]{}, map[string]string{}
	for _, sent := range asked {
		if keys[sent.RouteKey] {
			return nil, nil, nil, Invalid("the request has the route_key %q twice; each may occur once", sent.RouteKey)
		}
		keys[sent.RouteKey] = true
		route := routeFrom(sent)
		if err := checkRoute(sent, &route, creates); err != nil {
			answers.Set(route.Key, struct{}{}, err)
			continue
		}
		at := slices.IndexFunc(routes, func(other Route) bool { return sameRoute(&route, &other, creates) })
		switch {
		case at < 0:
			routes = append(routes, route)
		case creates && !sameTarget(&route, &routes[at]):
			answers.Set(route.Key, struct{}{}, Conflict("the request has another route to %s, with another target", route.DestinationCIDR).Because("DestinationTwice"))
		default:
			twins[route.Key] = routes[at].Key
		}
	}
	return routes, answers, twins, nil
}

// sameRoute reports whether two routes of one request are the same: for CreateRoutes by the destination (ROUTE-13), for DeleteRoutes by name and
// destination (ROUTE-8).
func sameRoute(one, other *Route, creates bool) bool {
	return network(one.DestinationCIDR) == network(other.DestinationCIDR) && (creates || one.Name == other.Name)
}

// sameTarget reports whether two routes certainly have the same target. It compares the first of provider ID, Node name and next hop that both have.
func sameTarget(one, other *Route) bool {
	switch {
	case one.ProviderID != "" && other.ProviderID != "":
		return one.ProviderID == other.ProviderID
	case one.NodeName != "" && other.NodeName != "":
		return one.NodeName == other.NodeName
	default:
		return one.NextHop.IsValid() && one.NextHop == other.NextHop
	}
}

// network returns a CIDR in one form, so that all ways to write the same network are equal (ROUTE-8).
func network(cidr string) string {
	prefix, err := netip.ParsePrefix(cidr)
	if err != nil {
		return cidr
	}
	return prefix.Masked().String()
}

// eachRoute writes the routes, in a batch if the vendor has [RouteBatches], else one by one. It holds the destination of each route meanwhile.
func (s *session) eachRoute(ctx context.Context, call *Call, creates bool, routes []Route) (Answers[struct{}], error) {
	hold := s.holdDestinations()
	batches := s.offers.routeBatches
	if batches == nil {
		key := func(route Route) string { return route.Key }
		return oneByOne(ctx, s, call, routes, orDefault(s.info.Routes.AtOnce, 8), key, hold, func(ctx context.Context, route Route) (struct{}, error) {
			if creates {
				return struct{}{}, s.offers.routes.CreateRoute(ctx, call, route)
			}
			return struct{}{}, s.offers.routes.DeleteRoute(ctx, call, route)
		}), nil
	}
	busy, free := Answers[struct{}]{}, []Route(nil)
	for _, route := range routes {
		release, err := hold(route)
		if err != nil {
			busy.Set(route.Key, struct{}{}, err)
			continue
		}
		defer release() // This goroutine runs the vendor's code, so the release comes when that code has really ended.
		free = append(free, route)
	}
	if len(free) == 0 {
		return busy, nil
	}
	write := batches.DeleteRoutes
	if creates {
		write = batches.CreateRoutes
	}
	answers, err := write(ctx, call, free)
	if err != nil {
		return nil, err
	}
	all := maps.Clone(busy)
	for key, answer := range answers {
		if _, refused := busy[key]; !refused {
			all[key] = answer
		}
	}
	return all, nil
}

// holdDestinations holds the destinations of the routes of one call. Several routes of a DeleteRoutes may share a destination: the last of them
// releases it.
func (s *session) holdDestinations() func(Route) (func(), error) {
	type held struct {
		routes  int
		release func()
	}
	var mutex sync.Mutex
	holds := map[string]*held{}
	return func(route Route) (func(), error) {
		mutex.Lock()
		defer mutex.Unlock()
		to := network(route.DestinationCIDR)
		if holds[to] == nil {
			release, err := s.hold("the route to " + to)
			if err != nil {
				return nil, err
			}
			holds[to] = &held{release: release}
		}
		holds[to].routes++
		return func() {
			mutex.Lock()
			defer mutex.Unlock()
			if holds[to].routes--; holds[to].routes == 0 {
				holds[to].release()
				delete(holds, to)
			}
		}, nil
	}
}
