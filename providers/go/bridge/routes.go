package bridge

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"
	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/klog/v2"

	"github.com/grpc-ccm/grpc-ccm/providers/go/contract"
	"github.com/grpc-ccm/grpc-ccm/providers/go/sdk"
)

// ListRoutes lists the routes that the cloud returns for the cluster's name. By Go's interface these are the managed routes of that cluster, so they are
// OURS. It lists no others.
func (b *Bridge) ListRoutes(request *contract.ListRoutesRequest, stream contract.RouteService_ListRoutesServer) error {
	failed := func(failure *contract.Failure) error {
		return stream.Send(&contract.ListRoutesResponse{Part: &contract.ListRoutesResponse_Failed{Failed: failure}})
	}
	owner, failure := b.admit(request.GetCluster())
	if failure != nil {
		return failed(failure)
	}
	ctx := withOwner(stream.Context(), owner)
	began := time.Now()
	listed, err := ask(ctx, b, b.routes, "ListRoutes", sdk.BudgetOf(ctx), nil, func(ctx context.Context) ([]*cloudprovider.Route, error) {
		return b.parts().routes.ListRoutes(ctx, owner.ClusterName)
	})
	if err != nil {
		return failed(b.failure(err))
	}
	b.recent.keep(owner.ClusterName, began, listed)
	views := make([]*contract.Route, 0, len(listed))
	names := routeNames(listed)
	for index, route := range listed {
		view, err := b.routeView(route, names[index])
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

// routeNames returns the names of the routes in a listing: each route has one (ROUTE-5), and no two are equal. The cloud's own names may be empty or equal.
func routeNames(routes []*cloudprovider.Route) []string {
	many := map[string]int{}
	for _, route := range routes {
		if route != nil {
			many[route.Name]++
		}
	}
	names := make([]string, len(routes))
	taken := map[string]bool{}
	for index, route := range routes {
		if route != nil && route.Name != "" && many[route.Name] == 1 {
			names[index] = route.Name
			taken[route.Name] = true
		}
	}
	for index, route := range routes {
		if route == nil || names[index] != "" {
			continue
		}
		name := nameWithTarget(route)
		for number := 2; taken[name]; number++ {
			name = fmt.Sprintf("%s (%d)", nameWithTarget(route), number)
		}
		names[index] = name
		taken[name] = true
	}
	return names
}

// nameWithTarget makes a name of the route alone, so that it does not depend on the other routes of the list.
func nameWithTarget(route *cloudprovider.Route) string {
	name := route.DestinationCIDR
	if route.Name != "" && route.Name != name {
		name = route.Name + " " + name
	}
	if route.TargetNode == "" {
		name += " to nowhere"
	} else {
		name += " to " + string(route.TargetNode)
	}
	// 16 bytes remain for a number.
	if most := nameBytes - 16; len(name) > most {
		sum := fmt.Sprintf("~%x", sha256.Sum256([]byte(name)))[:17]
		name = strings.ToValidUTF8(name[:most-len(sum)], "") + sum
	}
	return name
}

// listedRoute returns the listed route that a request names, or nil. Clouds distinguish routes to one destination only by their targets, so the target of
// the request decides. If routes of several Nodes still fit, the result is an error.
func listedRoute(there []*cloudprovider.Route, view *contract.Route) (*cloudprovider.Route, error) {
	names := routeNames(there)
	var found []int
	for index, route := range there {
		switch {
		case route == nil || network(route.DestinationCIDR) != network(view.GetDestinationCidr()):
		case view.GetNodeName() != "" && view.GetNodeName() != string(route.TargetNode):
			if died(route, view) {
				found = append(found, index)
			}
		case view.GetBlackhole() && !route.Blackhole:
			// The Node of the former blackhole exists again.
		case view.GetName() == "" || view.GetName() == names[index] || view.GetName() == route.Name || view.GetName() == nameWithTarget(route):
			// Other routes may have changed since the listing, and the name of this one with them.
			found = append(found, index)
		}
	}
	for _, better := range []func(int) bool{
		func(index int) bool { return names[index] == view.GetName() },
		func(index int) bool { return there[index].Blackhole == view.GetBlackhole() },
	} {
		if slices.ContainsFunc(found, better) {
			found = slices.DeleteFunc(found, func(index int) bool { return !better(index) })
		}
	}
	if len(found) == 0 {
		return nil, nil
	}
	first := there[found[0]]
	for _, index := range found[1:] {
		if there[index].TargetNode != first.TargetNode {
			return nil, &refusal{invalid("the cloud has several routes to %s: name the Node of the one to delete", view.GetDestinationCidr())}
		}
	}
	return first, nil
}

// died reports whether this blackhole is the named route, whose Node no longer exists. The cloud then names no target, or only an address.
func died(route *cloudprovider.Route, view *contract.Route) bool {
	if !route.Blackhole || route.TargetNode != "" && net.ParseIP(string(route.TargetNode)) == nil {
		return false
	}
	alive := *route
	alive.TargetNode = types.NodeName(view.GetNodeName())
	return view.GetName() == "" || view.GetName() == route.Name || view.GetName() == nameWithTarget(&alive)
}

func (b *Bridge) routeView(route *cloudprovider.Route, name string) (*contract.Route, error) {
	if route == nil {
		return nil, errors.New("ListRoutes gave a route that is nil")
	}
	if route.TargetNode == "" && !route.Blackhole {
		// Without this route the list would not be complete (ROUTE-1). If the bridge listed it as a blackhole, the controller would delete it.
		return nil, errors.New("the cloud cannot name the Node of the route " + route.Name + " to " + route.DestinationCIDR +
			"; clouds that know Nodes by their informer learn them from the controller's calls, within minutes, or by --kubeconfig")
	}
	view := &contract.Route{
		Name:            name,
		DestinationCidr: route.DestinationCIDR,
		NodeName:        filled(string(route.TargetNode)),
		Blackhole:       route.Blackhole,
		Ownership:       contract.Ownership_OWNERSHIP_OURS,
	}
	if b.options.RoutesTrackAddresses {
		addresses := addressViews(route.TargetNodeAddresses, func(what, value string, why ...string) {
			klog.InfoS("An address of a route's Node has no form in the contract and is left out", "route", route.Name, "address", value, "reason", strings.Join(why, "; "))
		})
		view.NodeAddresses = addresses
	}
	return view, errors.Join(fits("the route's name", name, nameBytes), fits("the route's destination", route.DestinationCIDR, nameBytes))
}

// routeOf returns a route of a request as Go's type.
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

// CreateRoutes makes each route by one call. Go's method need not accept an existing route, so the
// bridge reads the cloud's list first (ROUTE-2). It uses the list of the last ListRoutes, if that
// list is at most 5 s old, no call has worked on these destinations since, and each route names its
// Node.
func (b *Bridge) CreateRoutes(ctx context.Context, request *contract.CreateRoutesRequest) (*contract.CreateRoutesResponse, error) {
	if _, failure := b.admit(request.GetCluster()); failure == nil {
		b.knowTargets(ctx, request.GetRoutes())
	}
	made := func(view *contract.Route, there []*cloudprovider.Route) bool {
		wanted := b.routeAsked(view)
		return slices.ContainsFunc(there, func(route *cloudprovider.Route) bool { return b.sameRoute(route, wanted) })
	}
	results, failed := b.eachRoute(ctx, request.GetCluster(), request.GetRoutes(), "CreateRoute", made, func(ctx context.Context, owner *Owner, view *contract.Route, there []*cloudprovider.Route) error {
		if view.GetNodeName() == "" {
			return &refusal{invalid("the route to %s names no Node: Go's interface knows no other target", view.GetDestinationCidr())}
		}
		if made(view, there) {
			return nil
		}
		return b.parts().routes.CreateRoute(ctx, owner.ClusterName, view.GetNameHint(), b.routeAsked(view))
	})
	return &contract.CreateRoutesResponse{Failed: failed, Results: results}, nil
}

// routeAsked returns a route of CreateRoutes, with its Node's addresses.
func (b *Bridge) routeAsked(view *contract.Route) *cloudprovider.Route {
	wanted := b.routeOf(view)
	if len(wanted.TargetNodeAddresses) == 0 {
		// Upstream always fills in the addresses.
		wanted.TargetNodeAddresses = b.standIn.addressesOf(view.GetNodeName())
	}
	return wanted
}

// knowTargets adds the Nodes of routes to the cloud's informers. A provider that has just started has no Nodes, and clouds look up the Node by its name.
func (b *Bridge) knowTargets(ctx context.Context, routes []*contract.Route) {
	var brought []object
	for _, view := range routes {
		if view.GetNodeName() == "" {
			continue
		}
		node := nodeOf(&contract.NodeView{Name: view.GetNodeName(), ProviderId: view.ProviderId, Addresses: view.GetNodeAddresses()})
		brought = append(brought, b.standIn.knowNodeIfNew(node))
	}
	b.settle(ctx, brought)
}

// sameRoute reports whether a route is as asked.
func (b *Bridge) sameRoute(route, wanted *cloudprovider.Route) bool {
	return network(route.DestinationCIDR) == network(wanted.DestinationCIDR) && route.TargetNode == wanted.TargetNode && !route.Blackhole &&
		(!b.options.RoutesTrackAddresses || slices.Equal(route.TargetNodeAddresses, wanted.TargetNodeAddresses))
}

// DeleteRoutes removes each route by one call, as the cloud lists it. The result for a route that the cloud does not list is done (ROUTE-4).
func (b *Bridge) DeleteRoutes(ctx context.Context, request *contract.DeleteRoutesRequest) (*contract.DeleteRoutesResponse, error) {
	gone := func(view *contract.Route, there []*cloudprovider.Route) bool {
		route, err := listedRoute(there, view)
		return err == nil && route == nil
	}
	results, failed := b.eachRoute(ctx, request.GetCluster(), request.GetRoutes(), "DeleteRoute", gone, func(ctx context.Context, owner *Owner, view *contract.Route, there []*cloudprovider.Route) error {
		if view.GetName() == "" {
			return &refusal{invalid("the route to %s has no name; send it as ListRoutes gave it", view.GetDestinationCidr())}
		}
		route, err := listedRoute(there, view)
		if err != nil || route == nil {
			return err
		}
		return b.parts().routes.DeleteRoute(ctx, owner.ClusterName, route)
	})
	return &contract.DeleteRoutesResponse{Failed: failed, Results: results}, nil
}

// network returns a CIDR in one form, so that all ways to write the same network are equal (ROUTE-8).
func network(cidr string) string {
	_, parsed, err := net.ParseCIDR(cidr)
	if err != nil {
		return cidr
	}
	return parsed.String()
}

// twinOf returns the index of the earlier route of one request that is the same as this one: for CreateRoute by the destination (ROUTE-13), for
// DeleteRoute by name and destination (ROUTE-8). It is -1 if there is none. A route without a Node or name is refused, so it is nobody's twin.
func twinOf(routes []*contract.Route, index int, creates bool) int {
	identity := func(route *contract.Route) string {
		if creates {
			return route.GetNodeName()
		}
		return route.GetName()
	}
	view := routes[index]
	return slices.IndexFunc(routes[:index], func(route *contract.Route) bool {
		return identity(view) != "" && identity(route) != "" && network(route.GetDestinationCidr()) == network(view.GetDestinationCidr()) &&
			(creates || route.GetName() == view.GetName())
	})
}

// onRoute makes or removes one route. The argument `there` has the existing routes.
type onRoute func(ctx context.Context, owner *Owner, view *contract.Route, there []*cloudprovider.Route) error

// settled reports whether a route needs no call, given the existing routes.
type settled func(view *contract.Route, there []*cloudprovider.Route) bool

func (b *Bridge) eachRoute(ctx context.Context, cluster *contract.ClusterRef, routes []*contract.Route, method string, settled settled, work onRoute) ([]*contract.RouteResult, *contract.Failure) {
	owner, failure := b.admit(cluster)
	if failure == nil {
		failure = b.mayWrite()
	}
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
	within := sdk.BudgetOf(ctx)
	ctx = withOwner(ctx, owner)
	// Take the destinations before the list is read, so that no other call makes or removes these routes in between. Several routes of a DeleteRoutes may
	// share a destination: the last of them releases it.
	creates := method == "CreateRoute"
	held := make([]func(), len(routes))
	shared := map[string]*heldDestination{}
	results := make([]*contract.RouteResult, len(routes))
	twins := map[int]int{}
	for index, view := range routes {
		results[index] = &contract.RouteResult{RouteKey: view.GetRouteKey()}
		refuse := func(failure *contract.Failure) {
			results[index].Outcome = &contract.RouteResult_Failed{Failed: failure}
		}
		if _, _, err := net.ParseCIDR(view.GetDestinationCidr()); err != nil {
			// The cloud need not refuse such a destination, and a listing with it would be invalid (ROUTE-5).
			refuse(invalid("the destination_cidr %q of the route %q is no CIDR; write one such as 10.0.1.0/24", view.GetDestinationCidr(), view.GetRouteKey()))
			continue
		}
		if first := twinOf(routes, index, creates); first >= 0 {
			if creates && routes[first].GetNodeName() != view.GetNodeName() {
				refuse(fail(contract.FailureCode_FAILURE_CODE_CONFLICT, "DestinationTwice", "another route of the request leads %s to another Node", view.GetDestinationCidr()))
			} else {
				twins[index] = first
			}
			continue
		}
		to := network(view.GetDestinationCidr())
		if shared[to] == nil {
			release, free := b.holds.Take("route " + to)
			if !free {
				refuse(busy("the route to " + view.GetDestinationCidr()))
				continue
			}
			shared[to] = &heldDestination{release: release}
		}
		held[index] = shared[to].share()
	}
	var err error
	there, known := b.recent.of(owner.ClusterName, routes)
	if !known {
		there, err = ask(ctx, b, b.routes, "ListRoutes", within, nil, func(ctx context.Context) ([]*cloudprovider.Route, error) {
			return b.parts().routes.ListRoutes(ctx, owner.ClusterName)
		})
	}
	fanOut(len(routes), func(index int) {
		switch {
		case held[index] == nil:
			return
		case err != nil:
			held[index]()
			results[index].Outcome = &contract.RouteResult_Failed{Failed: b.failure(err)}
			return
		}
		destination := network(routes[index].GetDestinationCidr())
		b.recent.work(destination)
		ended := func() {
			b.recent.work(destination)
			held[index]()
		}
		_, err := ask(ctx, b, b.routes, method, within, ended, func(ctx context.Context) (struct{}, error) {
			err := work(ctx, owner, routes[index], there)
			var own *refusal
			if err == nil || !known || errors.As(err, &own) || !b.answers(ctx, err) {
				return struct{}{}, err
			}
			// Something else may have made or removed the route since the list was read.
			fresh, failed := b.parts().routes.ListRoutes(ctx, owner.ClusterName)
			if failed == nil && settled(routes[index], fresh) {
				return struct{}{}, nil
			}
			return struct{}{}, err
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
	for index, first := range twins {
		results[index].Outcome = results[first].Outcome
	}
	return results, nil
}

// heldDestination is a destination that a call holds. The last of its routes to end releases it.
type heldDestination struct {
	routes  atomic.Int32
	release func()
}

// share returns the function that ends one route's work. A call takes the shares of all its routes before work on any of them begins, so no early end releases the destination.
func (h *heldDestination) share() func() {
	h.routes.Add(1)
	return func() {
		if h.routes.Add(-1) == 0 {
			h.release()
		}
	}
}
