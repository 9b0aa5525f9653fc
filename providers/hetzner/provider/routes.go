package provider

import (
	"context"
	"errors"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/grpc-ccm/grpc-ccm/providers/go/sdk"
	"github.com/grpc-ccm/grpc-ccm/providers/hetzner/plan"
)

// sdk.RouteBatches. The API changes one route of a network at a time, so the provider writes the routes of a call one after the other.

func (p *Provider) getNetwork(ctx context.Context, call *sdk.Call) (*hcloud.Network, error) {
	network, _, err := p.api.Network.GetByID(ctx, p.network.Load())
	if err := p.api.done(ctx, call, "asking for the network "+p.settings.Network, err); err != nil {
		return nil, err
	}
	if network == nil {
		return nil, sdk.Precondition("the network %s does not exist any more; create it again, or start the provider with another --network", p.settings.Network).Because("NetworkUnknown")
	}
	return network, nil
}

// ListRoutes returns all routes of the network (ROUTE-1). It reads the network before the servers, so that the list of servers is the newer one.
func (p *Provider) ListRoutes(ctx context.Context, call *sdk.Call) ([]sdk.Route, error) {
	network, err := p.getNetwork(ctx, call)
	if err != nil || len(network.Routes) == 0 {
		return nil, err
	}
	servers, err := p.servers.List(ctx, call, 0)
	if err != nil {
		return nil, err
	}
	return plan.ListedRoutes(network, servers), nil
}

// CreateRoutes makes routes.
func (p *Provider) CreateRoutes(ctx context.Context, call *sdk.Call, routes []sdk.Route) (sdk.Answers[struct{}], error) {
	network, err := p.getNetwork(ctx, call)
	if err != nil {
		return nil, err
	}
	find, err := p.finder(ctx, call, len(routes))
	if err != nil {
		return nil, err
	}
	return p.each(ctx, call, network, routes, func(route sdk.Route) (*hcloud.NetworkRoute, error) {
		server, err := find(route)
		if err != nil {
			return nil, err
		}
		return plan.NewRoute(network, route, server)
	}, true), nil
}

// DeleteRoutes removes routes.
func (p *Provider) DeleteRoutes(ctx context.Context, call *sdk.Call, routes []sdk.Route) (sdk.Answers[struct{}], error) {
	network, err := p.getNetwork(ctx, call)
	if err != nil {
		return nil, err
	}
	return p.each(ctx, call, network, routes, func(route sdk.Route) (*hcloud.NetworkRoute, error) { return plan.OldRoute(network, route) }, false), nil
}

// finder returns a function that finds the target of a route: by single reads for few routes, in a list for many.
func (p *Provider) finder(ctx context.Context, call *sdk.Call, routes int) (func(sdk.Route) (*hcloud.Server, error), error) {
	one := func(route sdk.Route) (*hcloud.Server, error) {
		node := sdk.Node{Name: route.NodeName, ProviderID: route.ProviderID}
		if node.ProviderID == "" && node.Name == "" {
			return nil, sdk.Precondition("the route to %s names its target by the address %s alone; right would be its provider ID", route.DestinationCIDR, route.NextHop)
		}
		if node.ProviderID != "" {
			if _, robot, err := plan.ServerID(node.ProviderID); robot || err != nil {
				return nil, sdk.Precondition("the target %s of the route to %s is no server of Hetzner Cloud, and only those are in its networks", node.ProviderID, route.DestinationCIDR).Because("InstanceMissing")
			}
		}
		return p.one(ctx, call, node)
	}
	if routes <= p.listCalls() {
		return one, nil
	}
	servers, err := p.servers.List(ctx, call, 0)
	if err != nil {
		return nil, err
	}
	return func(route sdk.Route) (*hcloud.Server, error) {
		for _, server := range servers {
			id, _, err := plan.ServerID(route.ProviderID)
			if err == nil && server.ID == id || route.ProviderID == "" && route.NodeName != "" && server.Name == route.NodeName {
				return server, nil
			}
		}
		return one(route)
	}, nil
}

// each carries out the decision for each route, until the API refuses calls, and updates its copy
// of the network.
func (p *Provider) each(ctx context.Context, call *sdk.Call, network *hcloud.Network, routes []sdk.Route, decide func(sdk.Route) (*hcloud.NetworkRoute, error), add bool) sdk.Answers[struct{}] {
	answers := sdk.Answers[struct{}]{}
	var refused error
	for _, route := range routes {
		if refused != nil {
			answers.Set(route.Key, struct{}{}, refused)
			continue
		}
		change, err := decide(route)
		if err == nil && change != nil {
			err = p.change(ctx, call, network, *change, add)
		}
		var failure *sdk.Failure
		if errors.As(err, &failure) {
			switch failure.Code {
			case sdk.CodeThrottled, sdk.CodeCredentials, sdk.CodeUnavailable:
				refused = err
			case sdk.CodeInvalid, sdk.CodePrecondition:
				if change != nil && failure.Reason != "QuotaReached" { // Hetzner refused the change, and the network has room.
					err = p.again(ctx, call, network, route, decide, err)
				}
			}
		}
		answers.Set(route.Key, struct{}{}, err)
	}
	return answers
}

// again decides again after Hetzner refused a change: an earlier, interrupted call may have reached Hetzner after the network was read.
func (p *Provider) again(ctx context.Context, call *sdk.Call, network *hcloud.Network, route sdk.Route, decide func(sdk.Route) (*hcloud.NetworkRoute, error), refused error) error {
	now, err := p.getNetwork(ctx, call)
	if err != nil {
		return refused
	}
	*network = *now
	if change, err := decide(route); err != nil || change == nil {
		return err
	}
	return refused
}

func (p *Provider) change(ctx context.Context, call *sdk.Call, network *hcloud.Network, route hcloud.NetworkRoute, add bool) error {
	if err := sdk.BeforeWrite(ctx); err != nil {
		return err
	}
	what := "adding the route to " + route.Destination.String()
	do := func() (*hcloud.Action, *hcloud.Response, error) {
		return p.api.Network.AddRoute(ctx, network, hcloud.NetworkAddRouteOpts{Route: route})
	}
	if !add {
		what = "removing the route to " + route.Destination.String()
		do = func() (*hcloud.Action, *hcloud.Response, error) {
			return p.api.Network.DeleteRoute(ctx, network, hcloud.NetworkDeleteRouteOpts{Route: route})
		}
	}
	action, _, err := do()
	if err == nil {
		err = p.api.await(ctx, action)
	}
	if errors.Is(err, errStillRunning) {
		return sdk.Busy("%s: Hetzner still works on it", what)
	}
	if err := p.api.done(ctx, call, what, err); err != nil {
		return err
	}
	kept := []hcloud.NetworkRoute{}
	for _, there := range network.Routes {
		if plan.RouteName(there) != plan.RouteName(route) {
			kept = append(kept, there)
		}
	}
	if network.Routes = kept; add {
		network.Routes = append(network.Routes, route)
	}
	return nil
}
