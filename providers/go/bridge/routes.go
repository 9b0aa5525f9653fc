package bridge

import (
	"context"
	"errors"
	"net"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	cloudprovider "k8s.io/cloud-provider"

	"example.invalid/providers/go/contract"
)

// ListRoutes lists what the cloud gives for the cluster's name: by Go's interface those are the managed routes that belong to it, so they are OURS. It shows no others.
func (b *Bridge) ListRoutes(request *contract.ListRoutesRequest, stream contract.RouteService_ListRoutesServer) error {
	failed := func(failure *contract.Failure) error {
		return stream.Send(&contract.ListRoutesResponse{Part: &contract.ListRoutesResponse_Failed{Failed: failure}})
	}
	owner, failure := b.admit(request.GetCluster())
	if failure != nil {
		return failed(failure)
	}
	ctx := withOwner(stream.Context(), owner)
	listed, err := ask(ctx, b, b.routes, "ListRoutes", budgetOf(ctx), nil, func(ctx context.Context) ([]*cloudprovider.Route, error) {
		return b.parts.routes.ListRoutes(ctx, owner.ClusterName)
	})
	if err != nil {
		return failed(b.failure(err))
	}
	views := make([]*contract.Route, 0, len(listed))
	for _, route := range listed {
		view, err := b.routeView(route)
		if err != nil {
			return failed(fault("%v", err))
		}
		views = append(views, view)
	}
	for page := range slices.Chunk(views, pageItems) {
		if err := stream.Send(&contract.ListRoutesResponse{Part: &contract.ListRoutesResponse_Routes{Routes: &contract.RouteList{Routes: page}}}); err != nil {
			return err
		}
	}
	return stream.Send(&contract.ListRoutesResponse{Part: &contract.ListRoutesResponse_End{End: &contract.ListEnd{Total: uint64(len(views))}}})
}

func (b *Bridge) routeView(route *cloudprovider.Route) (*contract.Route, error) {
	if route == nil {
		return nil, errors.New("ListRoutes gave a route that is nil")
	}
	if route.TargetNode == "" && !route.Blackhole {
		// Left out it would be no complete list (ROUTE-1), and as a blackhole it would be deleted.
		return nil, errors.New("the cloud cannot name the Node of the route " + route.Name + " to " + route.DestinationCIDR +
			"; clouds that know Nodes by their informer learn them from the controller's calls, within minutes, or by --kubeconfig")
	}
	view := &contract.Route{
		Name:            route.Name,
		DestinationCidr: route.DestinationCIDR,
		NodeName:        filled(string(route.TargetNode)),
		Blackhole:       route.Blackhole,
		Ownership:       contract.Ownership_OWNERSHIP_OURS,
	}
	if b.options.RoutesTrackAddresses {
		addresses, err := addressViews(route.TargetNodeAddresses)
		if err != nil {
			return nil, err
		}
		view.NodeAddresses = addresses
	}
	return view, errors.Join(fits("the route's name", route.Name, nameBytes), fits("the route's destination", route.DestinationCIDR, nameBytes))
}

// routeOf is a route of a request as Go knows it.
func (b *Bridge) routeOf(view *contract.Route) *cloudprovider.Route {
	route := &cloudprovider.Route{
		Name:                view.GetName(),
		TargetNode:          types.NodeName(view.GetNodeName()),
		EnableNodeAddresses: b.options.RoutesTrackAddresses,
		DestinationCIDR:     view.GetDestinationCidr(),
		Blackhole:           view.GetBlackhole(),
	}
	route.TargetNodeAddresses = nodeOf(&contract.NodeView{Addresses: view.GetNodeAddresses()}).Status.Addresses
	return route
}

// CreateRoutes makes each route by one call. Go's method need not take a route that is there already, so the cloud's list is asked first (ROUTE-2).
func (b *Bridge) CreateRoutes(ctx context.Context, request *contract.CreateRoutesRequest) (*contract.CreateRoutesResponse, error) {
	results, failed := b.eachRoute(ctx, request.GetCluster(), request.GetRoutes(), "CreateRoute", func(ctx context.Context, owner *Owner, view *contract.Route, there []*cloudprovider.Route) error {
		if view.GetNodeName() == "" {
			return &refusal{invalid("the route to %s names no Node: Go's interface knows no other target", view.GetDestinationCidr())}
		}
		wanted := b.routeOf(view)
		if slices.ContainsFunc(there, func(route *cloudprovider.Route) bool { return b.sameRoute(route, wanted) }) {
			return nil
		}
		return b.parts.routes.CreateRoute(ctx, owner.ClusterName, view.GetNameHint(), wanted)
	})
	return &contract.CreateRoutesResponse{Failed: failed, Results: results}, nil
}

// sameRoute tells whether a route is as asked.
func (b *Bridge) sameRoute(route, wanted *cloudprovider.Route) bool {
	return route.DestinationCIDR == wanted.DestinationCIDR && route.TargetNode == wanted.TargetNode && !route.Blackhole &&
		(!b.options.RoutesTrackAddresses || slices.Equal(route.TargetNodeAddresses, wanted.TargetNodeAddresses))
}

// DeleteRoutes removes each route by one call, as the cloud lists it now; one that it does not list is gone (ROUTE-4).
func (b *Bridge) DeleteRoutes(ctx context.Context, request *contract.DeleteRoutesRequest) (*contract.DeleteRoutesResponse, error) {
	results, failed := b.eachRoute(ctx, request.GetCluster(), request.GetRoutes(), "DeleteRoute", func(ctx context.Context, owner *Owner, view *contract.Route, there []*cloudprovider.Route) error {
		index := slices.IndexFunc(there, func(route *cloudprovider.Route) bool {
			return route.DestinationCIDR == view.GetDestinationCidr() && (view.GetName() == "" || route.Name == view.GetName())
		})
		if index < 0 {
			return nil
		}
		return b.parts.routes.DeleteRoute(ctx, owner.ClusterName, there[index])
	})
	return &contract.DeleteRoutesResponse{Failed: failed, Results: results}, nil
}

// onRoute does one thing about one route, knowing those that are there.
type onRoute func(ctx context.Context, owner *Owner, view *contract.Route, there []*cloudprovider.Route) error

func (b *Bridge) eachRoute(ctx context.Context, cluster *contract.ClusterRef, routes []*contract.Route, method string, work onRoute) ([]*contract.RouteResult, *contract.Failure) {
	owner, failure := b.admit(cluster)
	if failure != nil {
		return nil, failure
	}
	if len(routes) > int(b.options.MaxBatch) {
		return nil, invalid("%d routes in one request; max_batch is %d", len(routes), b.options.MaxBatch)
	}
	seen := map[string]bool{}
	for _, route := range routes {
		if seen[route.GetRouteKey()] {
			return nil, invalid("the route_key %q is in the request twice", route.GetRouteKey())
		}
		seen[route.GetRouteKey()] = true
	}
	within := budgetOf(ctx)
	ctx = withOwner(ctx, owner)
	// What changes a route holds it from before the list is read: nobody makes or removes it in between.
	held := make([]func(), len(routes))
	results := make([]*contract.RouteResult, len(routes))
	for index, view := range routes {
		results[index] = &contract.RouteResult{RouteKey: view.GetRouteKey()}
		if _, _, err := net.ParseCIDR(view.GetDestinationCidr()); err != nil {
			// The cloud need not refuse it, and a listing that has it is none (ROUTE-5).
			results[index].Outcome = &contract.RouteResult_Failed{Failed: invalid("the destination_cidr %q of the route %q is no CIDR; write one such as 10.0.1.0/24", view.GetDestinationCidr(), view.GetRouteKey())}
		} else if release, free := b.holds.take("route " + view.GetDestinationCidr()); free {
			held[index] = release
		} else {
			results[index].Outcome = &contract.RouteResult_Failed{Failed: busy("the route to " + view.GetDestinationCidr())}
		}
	}
	there, err := ask(ctx, b, b.routes, "ListRoutes", within, nil, func(ctx context.Context) ([]*cloudprovider.Route, error) {
		return b.parts.routes.ListRoutes(ctx, owner.ClusterName)
	})
	fanOut(len(routes), func(index int) {
		switch {
		case held[index] == nil:
			return
		case err != nil:
			held[index]()
			results[index].Outcome = &contract.RouteResult_Failed{Failed: b.failure(err)}
			return
		}
		_, err := ask(ctx, b, b.routes, method, within, held[index], func(ctx context.Context) (struct{}, error) {
			return struct{}{}, work(ctx, owner, routes[index], there)
		})
		var own *refusal
		switch {
		case err == nil:
			results[index].Outcome = &contract.RouteResult_Done{Done: &contract.Done{}}
		case errors.As(err, &own):
			results[index].Outcome = &contract.RouteResult_Failed{Failed: own.failure}
		default:
			results[index].Outcome = &contract.RouteResult_Failed{Failed: b.failure(err)}
		}
	})
	return results, nil
}
