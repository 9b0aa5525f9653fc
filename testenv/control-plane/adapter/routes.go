package adapter

import (
	"context"
	"errors"
	"fmt"
	"io"

	"google.golang.org/grpc"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	cloudprovider "k8s.io/cloud-provider"

	"github.com/grpc-ccm/grpc-ccm/providers/go/contract"
)

var _ cloudprovider.Routes = (*Cloud)(nil)

// ListRoutes lists the routes that this cluster may change. It hides routes that are marked for
// another owner, because the framework would delete them.
func (c *Cloud) ListRoutes(ctx context.Context, _ string) ([]*cloudprovider.Route, error) {
	client := contract.NewRouteServiceClient(c.session.connection)
	found, err := listed(ctx, c.session, kind{c.routes, listDeadline, (*contract.DeadlineHints).GetList},
		func(ctx context.Context, cluster *contract.ClusterRef, options ...grpc.CallOption) (stream[*contract.ListRoutesResponse], error) {
			return client.ListRoutes(ctx, &contract.ListRoutesRequest{Cluster: cluster}, options...)
		},
		func(part *contract.ListRoutesResponse) []*contract.Route { return part.GetRoutes().GetRoutes() })
	if err != nil {
		return nil, err
	}
	names, err := c.nodeNames()
	if err != nil {
		return nil, err
	}
	c.listed.Clear()
	var routes []*cloudprovider.Route
	for _, route := range found {
		switch route.GetOwnership() {
		case contract.Ownership_OWNERSHIP_FOREIGN:
			continue
		case contract.Ownership_OWNERSHIP_OURS, contract.Ownership_OWNERSHIP_UNMARKED:
		default:
			return nil, fmt.Errorf("route %q: %w", route.GetName(), errUnset)
		}
		addresses, err := nodeAddresses(route.GetNodeAddresses())
		if err != nil {
			return nil, fmt.Errorf("route %q: %w", route.GetName(), err)
		}
		shown := &cloudprovider.Route{
			Name:                route.GetName(),
			TargetNode:          names.of(route),
			EnableNodeAddresses: c.info.GetCapabilities().GetRoutes().GetTracksNodeAddresses(),
			TargetNodeAddresses: addresses,
			DestinationCIDR:     route.GetDestinationCidr(),
			Blackhole:           route.GetBlackhole(),
		}
		c.listed.Store(listedKey(shown), route)
		routes = append(routes, shown)
	}
	return routes, nil
}

func listedKey(route *cloudprovider.Route) string {
	return route.Name + " " + route.DestinationCIDR
}

// CreateRoute makes one route.
func (c *Cloud) CreateRoute(ctx context.Context, _ string, nameHint string, route *cloudprovider.Route) error {
	wanted := &contract.Route{
		RouteKey:        route.DestinationCIDR,
		NameHint:        nameHint,
		DestinationCidr: route.DestinationCIDR,
		NodeName:        new(string(route.TargetNode)),
	}
	wanted.NodeAddresses = addressViews(route.TargetNodeAddresses)
	if node, err := c.nodes.Get(string(route.TargetNode)); err == nil && node.Spec.ProviderID != "" {
		wanted.ProviderId = new(node.Spec.ProviderID)
	}
	client := contract.NewRouteServiceClient(c.session.connection)
	answer, err := call(ctx, c.session, c.routeCalls(),
		func(ctx context.Context, cluster *contract.ClusterRef, options ...grpc.CallOption) (*contract.CreateRoutesResponse, error) {
			return client.CreateRoutes(ctx, &contract.CreateRoutesRequest{Cluster: cluster, Routes: []*contract.Route{wanted}}, options...)
		},
		func(answer *contract.CreateRoutesResponse) *contract.Failure {
			return routeFailure(route, answer.GetFailed(), answer.GetResults())
		})
	if err != nil {
		return err
	}
	return routeDone(route, answer.GetResults())
}

// DeleteRoute removes one route. It sends the route as ListRoutes received it.
func (c *Cloud) DeleteRoute(ctx context.Context, _ string, route *cloudprovider.Route) error {
	kept, ok := c.listed.Load(listedKey(route))
	if !ok {
		return fmt.Errorf("route %q to %s was not in the last listing", route.Name, route.DestinationCIDR)
	}
	unwanted := cloneRoute(kept.(*contract.Route))
	unwanted.RouteKey = route.DestinationCIDR
	client := contract.NewRouteServiceClient(c.session.connection)
	answer, err := call(ctx, c.session, c.routeCalls(),
		func(ctx context.Context, cluster *contract.ClusterRef, options ...grpc.CallOption) (*contract.DeleteRoutesResponse, error) {
			return client.DeleteRoutes(ctx, &contract.DeleteRoutesRequest{Cluster: cluster, Routes: []*contract.Route{unwanted}}, options...)
		},
		func(answer *contract.DeleteRoutesResponse) *contract.Failure {
			return routeFailure(route, answer.GetFailed(), answer.GetResults())
		})
	if err != nil {
		return err
	}
	return routeDone(route, answer.GetResults())
}

func (c *Cloud) routeCalls() kind {
	return kind{c.routes, routesDeadline, (*contract.DeadlineHints).GetRoutes}
}

// routeFailure returns the failure of the whole call, or else of its only route.
func routeFailure(route *cloudprovider.Route, whole *contract.Failure, results []*contract.RouteResult) *contract.Failure {
	if whole != nil || !isOnly(route, results) {
		return whole
	}
	return results[0].GetFailed()
}

func routeDone(route *cloudprovider.Route, results []*contract.RouteResult) error {
	if !isOnly(route, results) || results[0].GetDone() == nil {
		return errUnset
	}
	return nil
}

// isOnly tells whether there is exactly one result, and its key is this route's destination, which
// the adapter sends as the key.
func isOnly(route *cloudprovider.Route, results []*contract.RouteResult) bool {
	return len(results) == 1 && results[0].GetRouteKey() == route.DestinationCIDR
}

// names finds the Node that a route goes to.
type names struct {
	byName       map[types.NodeName]*v1.Node
	byProviderID map[string]types.NodeName
	byAddress    map[string]types.NodeName
}

func (c *Cloud) nodeNames() (names, error) {
	nodes, err := c.nodes.List(labels.Everything())
	if err != nil {
		return names{}, err
	}
	return namesOf(nodes), nil
}

func namesOf(nodes []*v1.Node) names {
	found := names{map[types.NodeName]*v1.Node{}, map[string]types.NodeName{}, map[string]types.NodeName{}}
	for _, node := range nodes {
		name := types.NodeName(node.Name)
		found.byName[name] = node
		if node.Spec.ProviderID != "" {
			found.byProviderID[node.Spec.ProviderID] = name
		}
		for _, address := range node.Status.Addresses {
			if address.Type == v1.NodeInternalIP || address.Type == v1.NodeExternalIP {
				found.byAddress[address.Address] = name
			}
		}
	}
	return found
}

// of returns the name of the route's Node. It finds the Node by provider ID, else by name, or by
// address if the route has no name. If the Node of that name has another provider ID, the route
// belonged to a former Node. The framework deletes a route whose Node it does not know. For such a
// route, of returns the known part of the target.
func (n names) of(route *contract.Route) types.NodeName {
	if name, ok := n.byProviderID[route.GetProviderId()]; ok {
		return name
	}
	name := types.NodeName(route.GetNodeName())
	node, known := n.byName[name]
	switch {
	case known && node.Spec.ProviderID != "" && route.GetProviderId() != "":
		return types.NodeName(route.GetProviderId())
	case name != "":
		return name
	}
	if name, ok := n.byAddress[route.GetNextHop()]; ok {
		return name
	}
	return types.NodeName(route.GetProviderId() + route.GetNextHop())
}

// part is one message of a listing.
type part interface {
	GetFailed() *contract.Failure
	GetEnd() *contract.ListEnd
}

// listed reads a listing to its end. It returns an error if the end is missing, or has another
// total.
func listed[Part part, Item any](
	ctx context.Context,
	s *session,
	kind kind,
	open func(context.Context, *contract.ClusterRef, ...grpc.CallOption) (stream[Part], error),
	items func(Part) []Item,
) ([]Item, error) {
	whole, err := call(ctx, s, kind,
		func(ctx context.Context, cluster *contract.ClusterRef, options ...grpc.CallOption) (listing[Item], error) {
			var read listing[Item]
			messages, err := open(ctx, cluster, options...)
			if err != nil {
				return read, err
			}
			for {
				message, err := messages.Recv()
				if errors.Is(err, io.EOF) {
					return read, errors.New("the listing has no end")
				}
				if err != nil {
					return read, err
				}
				read.items = append(read.items, items(message)...)
				if read.failed = message.GetFailed(); read.failed != nil {
					return read, nil
				}
				if end := message.GetEnd(); end != nil {
					if end.GetTotal() != uint64(len(read.items)) {
						return read, fmt.Errorf("the listing has %d items and says that it has %d", len(read.items), end.GetTotal())
					}
					return read, nil
				}
			}
		},
		func(read listing[Item]) *contract.Failure { return read.failed })
	return whole.items, err
}

type listing[Item any] struct {
	items  []Item
	failed *contract.Failure
}

type stream[Part any] interface {
	Recv() (Part, error)
}
