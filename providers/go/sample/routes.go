package main

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"google.golang.org/grpc"

	"github.com/grpc-ccm/grpc-ccm/providers/go/contract"
)

// RouteService.

// How many routes of one call are written at once.
const atOnce = 8

func (r *Route) isBlackhole(state *State) bool {
	switch {
	case r.ProviderID != nil:
		return state.ByProviderID[*r.ProviderID] == nil
	case r.NodeName != nil:
		return state.ByName[*r.NodeName] == nil
	default:
		return r.NextHop == nil
	}
}

func (r *Route) sameTarget(other *Route) bool {
	if r.ProviderID != nil && other.ProviderID != nil {
		return *r.ProviderID == *other.ProviderID
	}
	return text(r.NodeName) == text(other.NodeName) && text(r.NextHop) == text(other.NextHop)
}

func (r *Route) ownership(owner *Owner) contract.Ownership {
	switch {
	case r.OwnerID == nil:
		return unmarked
	case owner.Owns(*r.OwnerID):
		return ours
	default:
		return foreign
	}
}

func text(optional *string) string {
	if optional == nil {
		return ""
	}
	return *optional
}

// The first, by name, to this destination.
func routeTo(state *State, cidr string) *Route {
	for _, route := range sorted(state.Routes) {
		if route.DestinationCIDR == cidr {
			return &route
		}
	}
	return nil
}

func putRoute(route Route) *Write {
	return &Write{
		Line:   fmt.Sprintf("put route %s to %s", route.Name, route.DestinationCIDR),
		Change: func(_ map[string]LoadBalancer, all map[string]Route) { all[route.Name] = route },
	}
}

// What making this route takes: marked, and named after the cluster, the hint and the destination (ROUTE-3). A route that is as asked takes nothing.
func planCreate(state *State, asked *contract.Route, owner *Owner) (*Write, error) {
	cidr := asked.DestinationCidr
	if _, err := netip.ParsePrefix(cidr); err != nil {
		return nil, invalid("destination_cidr %q is not a CIDR; send one such as 10.0.1.0/24", cidr)
	}
	conflict := func(text string, arguments ...any) *Failure {
		return failf(contract.FailureCode_FAILURE_CODE_CONFLICT, text, arguments...)
	}
	route := Route{
		Name:            fmt.Sprintf("%s-%s-%s", owner.ClusterName, asked.NameHint, strings.NewReplacer("/", "-", ":", "-", ".", "-").Replace(cidr)),
		DestinationCIDR: cidr,
		NodeName:        asked.NodeName,
		ProviderID:      asked.ProviderId,
		NextHop:         asked.NextHop,
		NodeAddresses:   addressesFrom(asked.NodeAddresses),
		OwnerID:         &owner.OwnerID,
	}
	if route.isBlackhole(state) {
		return nil, failf(contract.FailureCode_FAILURE_CODE_PRECONDITION, "the target %q of the route to %s is no instance of this cloud", text(route.ProviderID)+text(route.NodeName), cidr).because("InstanceMissing")
	}
	there := routeTo(state, cidr)
	if there == nil {
		if named, ok := state.Routes[route.Name]; ok {
			there = &named
		}
	}
	if there == nil {
		return putRoute(route), nil
	}
	if there.ownership(owner) != ours {
		return nil, conflict("the route %q to %s was not made for this cluster; remove it or choose another CIDR", there.Name, there.DestinationCIDR)
	}
	if there.DestinationCIDR == cidr {
		same := slices.EqualFunc(there.NodeAddresses, route.NodeAddresses, func(one, other map[string]string) bool { return fmt.Sprint(one) == fmt.Sprint(other) })
		switch {
		case there.sameTarget(&route) && same:
			return nil, nil
		case !there.sameTarget(&route) && !there.isBlackhole(state):
			return nil, conflict("the route %q leads %s to another instance; delete it first", there.Name, cidr).because("DestinationTaken")
		}
	}
	route.Name = there.Name
	return putRoute(route), nil
}

// What removing a route that a listing gave takes.
func planDelete(state *State, asked *contract.Route, owner *Owner) (*Write, error) {
	there := routeTo(state, asked.DestinationCidr)
	if named, ok := state.Routes[asked.Name]; asked.Name != "" {
		if there = &named; !ok {
			there = nil
		}
	}
	if there == nil || there.DestinationCIDR != asked.DestinationCidr {
		return nil, nil
	}
	if there.ownership(owner) == foreign {
		return nil, failf(contract.FailureCode_FAILURE_CODE_CONFLICT, "the route %q to %s is marked for another owner", there.Name, there.DestinationCIDR)
	}
	name := there.Name
	return &Write{Line: "remove route " + name, Change: func(_ map[string]LoadBalancer, all map[string]Route) { delete(all, name) }}, nil
}

// ListRoutes gives all routes of the network, also those of others and those whose target is gone (ROUTE-1).
func (p *Provider) ListRoutes(request *contract.ListRoutesRequest, stream grpc.ServerStreamingServer[contract.ListRoutesResponse]) error {
	type response = contract.ListRoutesResponse
	list := func(owner *Owner) (list []*contract.Route, err error) {
		state, err := p.cloud.Read(stream.Context(), 0)
		if err != nil {
			return nil, err
		}
		for _, route := range sorted(state.Routes) {
			list = append(list, &contract.Route{
				Name:            route.Name,
				DestinationCidr: route.DestinationCIDR,
				NodeName:        route.NodeName,
				ProviderId:      route.ProviderID,
				NextHop:         route.NextHop,
				NodeAddresses:   addressesTo(route.NodeAddresses),
				Blackhole:       route.isBlackhole(state),
				Ownership:       route.ownership(owner),
			})
		}
		return list, nil
	}
	return listing(stream, p, "ListRoutes", request.Cluster, list,
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

// CreateRoutes makes routes.
func (p *Provider) CreateRoutes(ctx context.Context, request *contract.CreateRoutesRequest) (*contract.CreateRoutesResponse, error) {
	failed := func(failure *contract.Failure) *contract.CreateRoutesResponse {
		return &contract.CreateRoutesResponse{Failed: failure}
	}
	return answer(ctx, p, "CreateRoutes", request.Cluster, failed, func(owner *Owner) (*contract.CreateRoutesResponse, error) {
		results, err := p.eachRoute(ctx, "CreateRoutes", request.Routes, owner, planCreate)
		return &contract.CreateRoutesResponse{Results: results}, err
	})
}

// DeleteRoutes removes routes; one that does not exist is done (ROUTE-4).
func (p *Provider) DeleteRoutes(ctx context.Context, request *contract.DeleteRoutesRequest) (*contract.DeleteRoutesResponse, error) {
	failed := func(failure *contract.Failure) *contract.DeleteRoutesResponse {
		return &contract.DeleteRoutesResponse{Failed: failure}
	}
	return answer(ctx, p, "DeleteRoutes", request.Cluster, failed, func(owner *Owner) (*contract.DeleteRoutesResponse, error) {
		results, err := p.eachRoute(ctx, "DeleteRoutes", request.Routes, owner, planDelete)
		return &contract.DeleteRoutesResponse{Results: results}, err
	})
}

// Each route on its own, a few at once; cancelling the call stops them all, each before its next write. It returns when all have stopped: nothing outlives the call.
func (p *Provider) eachRoute(ctx context.Context, rpc string, routes []*contract.Route, owner *Owner, plan func(*State, *contract.Route, *Owner) (*Write, error)) ([]*contract.RouteResult, error) {
	if err := withinBatch("route keys", routes, (*contract.Route).GetRouteKey); err != nil {
		return nil, err
	}
	one := func(route *contract.Route) (err error) {
		defer caught(rpc, &err) // A goroutine's panic would end the process.
		release, err := p.hold(owner, "the route to "+route.DestinationCidr)
		if err != nil {
			return err
		}
		defer release()
		return p.cloud.Write(ctx, func(state *State) (*Write, error) { return plan(state, route, owner) })
	}
	results := make([]*contract.RouteResult, len(routes))
	turns := make(chan struct{}, atOnce)
	var all sync.WaitGroup
	for i, route := range routes {
		turns <- struct{}{}
		all.Go(func() {
			defer func() { <-turns }()
			results[i] = &contract.RouteResult{RouteKey: route.RouteKey, Outcome: &contract.RouteResult_Done{Done: &contract.Done{}}}
			if err := one(route); err != nil { // One route's trouble is not the others' (ROUTE-2).
				results[i].Outcome = &contract.RouteResult_Failed{Failed: failureOf(rpc, err)}
			}
		})
	}
	all.Wait()
	return results, ctx.Err()
}
