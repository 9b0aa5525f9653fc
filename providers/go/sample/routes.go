package main

import (
	"context"
	"fmt"
	"net/netip"
	"strings"

	"github.com/grpc-ccm/grpc-ccm/providers/go/sdk"
)

// sdk.Routes.

func (r *Route) isBlackhole(state *State) bool {
	switch {
	case r.ProviderID != nil:
		return state.ByProviderID[*r.ProviderID] == nil
	case r.NodeName != nil:
		return state.ByName[*r.NodeName] == nil
	default:
		return r.NextHop == nil && r.Gateway == nil
	}
}

func (r *Route) sameTarget(other *Route) bool {
	if r.ProviderID != nil && other.ProviderID != nil {
		return *r.ProviderID == *other.ProviderID
	}
	return text(r.NodeName) == text(other.NodeName) && text(r.NextHop) == text(other.NextHop)
}

func (r *Route) ownership(call *sdk.Call) sdk.Ownership {
	switch {
	case r.OwnerID == nil:
		return sdk.Unmarked
	case call.Owns(*r.OwnerID):
		return sdk.Ours
	default:
		return sdk.Foreign
	}
}

func optional(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}

func text(optional *string) string {
	if optional == nil {
		return ""
	}
	return *optional
}

// sameNetwork reports whether two CIDRs are the same network: fd00::/64 is fd00:0:0::/64 (ROUTE-8).
func sameNetwork(one, other string) bool {
	first, err := netip.ParsePrefix(one)
	second, otherErr := netip.ParsePrefix(other)
	if err != nil || otherErr != nil {
		return one == other
	}
	return first.Masked() == second.Masked()
}

// routeTo returns the first route, by name, to this destination.
func routeTo(state *State, cidr string) *Route {
	for _, route := range sorted(state.Routes) {
		if sameNetwork(route.DestinationCIDR, cidr) {
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

// planCreate returns the write that makes this route with its mark (ROUTE-3). A new route's name has the cluster's name, the hint and the destination. If
// the route is already as asked, the result is nil.
func planCreate(state *State, asked sdk.Route, call *sdk.Call) (*Write, error) {
	cidr := asked.DestinationCIDR
	route := Route{
		Name:            fmt.Sprintf("%s-%s-%s", call.Cluster.Name, asked.NameHint, strings.NewReplacer("/", "-", ":", "-", ".", "-").Replace(cidr)),
		DestinationCIDR: cidr,
		NodeName:        optional(asked.NodeName),
		ProviderID:      optional(asked.ProviderID),
		OwnerID:         &call.Cluster.OwnerID,
	}
	if asked.NextHop.IsValid() {
		route.NextHop = optional(asked.NextHop.String())
	}
	if route.isBlackhole(state) {
		return nil, sdk.Precondition("the target %q of the route to %s is no instance of this cloud", text(route.ProviderID)+text(route.NodeName), cidr).Because("InstanceMissing")
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
	sameDestination := sameNetwork(there.DestinationCIDR, cidr)
	if sameDestination && there.sameTarget(&route) && there.ownership(call) != sdk.Foreign {
		return nil, nil // It has the right target; an unmarked route is not adopted (ROUTE-9).
	}
	if there.ownership(call) != sdk.Ours {
		return nil, sdk.Conflict("the route %q to %s was not made for this cluster; remove it or choose another CIDR", there.Name, there.DestinationCIDR)
	}
	if sameDestination && !there.isBlackhole(state) {
		return nil, sdk.Conflict("the route %q leads %s to another instance; delete it first", there.Name, cidr).Because("DestinationTaken")
	}
	route.Name = there.Name
	return putRoute(route), nil
}

// planDelete returns the write that removes a listed route, or nil if the route does not exist.
func planDelete(state *State, asked sdk.Route, call *sdk.Call) (*Write, error) {
	there, ok := state.Routes[asked.Name]
	if !ok || !sameNetwork(there.DestinationCIDR, asked.DestinationCIDR) {
		return nil, nil
	}
	if there.ownership(call) == sdk.Foreign {
		return nil, sdk.Conflict("the route %q to %s is marked for another owner", there.Name, there.DestinationCIDR)
	}
	name := there.Name
	return &Write{Line: "remove route " + name, Change: func(_ map[string]LoadBalancer, all map[string]Route) { delete(all, name) }}, nil
}

// ListRoutes returns all routes of the network, also those of other owners and those whose target is gone (ROUTE-1).
func (p *Provider) ListRoutes(ctx context.Context, call *sdk.Call) (list []sdk.Route, err error) {
	state, err := p.cloud.Read(ctx, 0)
	if err != nil {
		return nil, err
	}
	for _, route := range sorted(state.Routes) {
		listed := sdk.Route{
			Name:            route.Name,
			DestinationCIDR: route.DestinationCIDR,
			NodeName:        text(route.NodeName),
			ProviderID:      text(route.ProviderID),
			Blackhole:       route.isBlackhole(state),
			Ownership:       route.ownership(call),
		}
		listed.NextHop, _ = netip.ParseAddr(text(route.NextHop))
		list = append(list, listed)
	}
	return list, nil
}

// CreateRoute makes a route.
func (p *Provider) CreateRoute(ctx context.Context, call *sdk.Call, route sdk.Route) error {
	return p.cloud.Write(ctx, func(state *State) (*Write, error) { return planCreate(state, route, call) })
}

// DeleteRoute removes a route. If the route does not exist, it returns nil (ROUTE-4).
func (p *Provider) DeleteRoute(ctx context.Context, call *sdk.Call, route sdk.Route) error {
	return p.cloud.Write(ctx, func(state *State) (*Write, error) { return planDelete(state, route, call) })
}
