package main

import (
	"context"

	cloudprovider "k8s.io/cloud-provider"
)

var _ cloudprovider.Routes = (*benchCloud)(nil)

// Routes is supported.
func (b *benchCloud) Routes() (cloudprovider.Routes, bool) { return b, true }

// ListRoutes returns the routes that CreateRoute kept.
func (b *benchCloud) ListRoutes(ctx context.Context, _ string) ([]*cloudprovider.Route, error) {
	if err := b.calls.call(ctx, "ListRoutes"); err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	routes := make([]*cloudprovider.Route, 0, len(b.routes))
	for _, route := range b.routes {
		routes = append(routes, &route)
	}
	return routes, nil
}

// CreateRoute keeps the route under its destination.
func (b *benchCloud) CreateRoute(ctx context.Context, clusterName, nameHint string, route *cloudprovider.Route) error {
	if err := b.calls.call(ctx, "CreateRoute"); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	made := *route
	made.Name = clusterName + "-" + nameHint
	b.routes[route.DestinationCIDR] = made
	return nil
}

// DeleteRoute forgets the route.
func (b *benchCloud) DeleteRoute(ctx context.Context, _ string, route *cloudprovider.Route) error {
	if err := b.calls.call(ctx, "DeleteRoute"); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.routes, route.DestinationCIDR)
	return nil
}
