package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/grpc-ccm/grpc-ccm/providers/go/contract"
)

// aRoute makes a route to a machine, if there is one, and checks that it exists.
func (t *trial) aRoute(ctx context.Context, machine *contract.Instance) error {
	t.step("make a route to %s", t.config.Route)
	if machine == nil {
		t.say("left out: no machine runs that it could lead to")
		return nil
	}
	there, err := t.routeTo(ctx, t.config.Route)
	if err != nil {
		return err
	}
	if there != nil { // The cloud may keep no marks of routes, so the owner is unknown.
		return fmt.Errorf("there is a route to %s already: remove it if a killed run of this command left it, or give another destination in ROUTE_CIDR", t.config.Route)
	}
	name := "smoke"
	route := &contract.Route{RouteKey: "smoke", Name: name, NameHint: name, DestinationCidr: t.config.Route, NodeName: &name, ProviderId: machine.ProviderId, NodeAddresses: machine.Addresses}
	t.mutex.Lock()
	t.route = route
	t.mutex.Unlock()
	client := contract.NewRouteServiceClient(t.connection)
	if err := t.each(ctx, "CreateRoutes", func(ctx context.Context) (*contract.Failure, []*contract.RouteResult, error) {
		answer, err := client.CreateRoutes(ctx, &contract.CreateRoutesRequest{Cluster: cluster, Routes: []*contract.Route{route}})
		return answer.GetFailed(), answer.GetResults(), err
	}); err != nil {
		return err
	}
	if there, err = t.routeTo(ctx, t.config.Route); err != nil || there == nil {
		return errors.Join(err, otherwise(there == nil, "ListRoutes: the route that was just made is not there"))
	}
	t.say("it leads to %s", machine.GetProviderId())
	return nil
}

// deleteRoute removes the cloud's route to the destination of this route, by its name in the cloud's list.
func (t *trial) deleteRoute(ctx context.Context, route *contract.Route) error {
	there, err := t.routeTo(ctx, route.DestinationCidr)
	if err != nil {
		return err
	}
	if there != nil {
		there.RouteKey = "smoke"
		client := contract.NewRouteServiceClient(t.connection)
		if err := t.each(ctx, "DeleteRoutes", func(ctx context.Context) (*contract.Failure, []*contract.RouteResult, error) {
			answer, err := client.DeleteRoutes(ctx, &contract.DeleteRoutesRequest{Cluster: cluster, Routes: []*contract.Route{there}})
			return answer.GetFailed(), answer.GetResults(), err
		}); err != nil {
			return err
		}
		if there, err = t.routeTo(ctx, route.DestinationCidr); err != nil || there != nil {
			return errors.Join(err, otherwise(there != nil, "ListRoutes: the route is still there"))
		}
	}
	t.mutex.Lock()
	t.route = nil
	t.mutex.Unlock()
	return nil
}

// each is again for a call about one route.
func (t *trial) each(ctx context.Context, what string, ask func(context.Context) (*contract.Failure, []*contract.RouteResult, error)) error {
	return again(ctx, t, what, func(ctx context.Context) (bool, *contract.Pending, *contract.Failure, error) {
		failure, results, err := ask(ctx)
		if err != nil || failure != nil || len(results) != 1 {
			return false, nil, failure, err
		}
		return results[0].GetDone() != nil, nil, results[0].GetFailed(), nil
	})
}

// routeTo returns the route to a destination, or nil.
func (t *trial) routeTo(ctx context.Context, destination string) (*contract.Route, error) {
	client := contract.NewRouteServiceClient(t.connection)
	all, err := collect(ctx, func(ctx context.Context) (stream[*contract.ListRoutesResponse], error) {
		return client.ListRoutes(ctx, &contract.ListRoutesRequest{Cluster: cluster})
	}, func(part *contract.ListRoutesResponse) []*contract.Route { return part.GetRoutes().GetRoutes() })
	if err != nil {
		return nil, fmt.Errorf("ListRoutes: %w", err)
	}
	at := slices.IndexFunc(all, func(route *contract.Route) bool { return route.DestinationCidr == destination })
	if at < 0 {
		return nil, nil
	}
	return all[at], nil
}
