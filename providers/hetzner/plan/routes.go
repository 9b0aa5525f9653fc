package plan

import (
	"net"
	"net/netip"
	"strconv"
	"strings"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/grpc-ccm/grpc-ccm/providers/go/sdk"
)

// RouteName returns a name for a route: the API gives routes no name.
func RouteName(route hcloud.NetworkRoute) string {
	return route.Gateway.String() + "-" + route.Destination.String()
}

// ListedRoutes returns the routes of a network. The API keeps no mark with a route, so each is UNMARKED (ROUTE-12). If no server has the gateway of a route,
// and the gateway is in a subnet of the network that is no vSwitch, the route is a blackhole. The API accepts only addresses of the network as gateways, and none behind a
// vSwitch.
func ListedRoutes(network *hcloud.Network, servers []*hcloud.Server) (list []sdk.Route) {
	byAddress := map[string]*hcloud.Server{}
	for _, server := range servers {
		for _, private := range server.PrivateNet {
			if private.Network == nil || private.Network.ID != network.ID {
				continue
			}
			for _, alias := range private.Aliases {
				byAddress[alias.String()] = server
			}
			byAddress[private.IP.String()] = server
		}
	}
	for _, route := range network.Routes {
		listed := sdk.Route{Name: RouteName(route), DestinationCIDR: route.Destination.String(), Ownership: sdk.Unmarked}
		if server := byAddress[route.Gateway.String()]; server != nil {
			listed.NodeName, listed.ProviderID = server.Name, CloudPrefix+strconv.FormatInt(server.ID, 10)
		} else if inSubnet(network, route.Gateway) {
			listed.Blackhole = true
		} else {
			listed.NextHop, _ = netip.ParseAddr(route.Gateway.String())
		}
		list = append(list, listed)
	}
	return list
}

func inSubnet(network *hcloud.Network, ip net.IP) bool {
	for _, subnet := range network.Subnets {
		if subnet.Type != hcloud.NetworkSubnetTypeVSwitch && subnet.IPRange != nil && subnet.IPRange.Contains(ip) {
			return true
		}
	}
	return false
}

// NewRoute returns the route to add to the network for a request; nil if it exists already.
func NewRoute(network *hcloud.Network, asked sdk.Route, server *hcloud.Server) (*hcloud.NetworkRoute, error) {
	_, destination, err := net.ParseCIDR(asked.DestinationCIDR)
	if err != nil {
		return nil, sdk.Invalid("the destination %q is no CIDR", asked.DestinationCIDR)
	}
	if destination.IP.To4() == nil {
		return nil, sdk.Invalid("the destination %s is IPv6, which private networks of Hetzner Cloud do not have", destination).Because("NoIPv6Routes")
	}
	if server == nil {
		target := strings.TrimSpace(asked.NodeName + " " + asked.ProviderID)
		return nil, sdk.Precondition("the target %q of the route to %s is no server of this project", target, destination).Because("InstanceMissing")
	}
	gateway := PrivateIP(server, network.ID)
	if gateway == nil {
		return nil, sdk.Precondition("server %d (%s) has no address in the network %d; attach it", server.ID, server.Name, network.ID).Because("ServerNotInNetwork")
	}
	for _, there := range network.Routes {
		if there.Destination.String() != destination.String() {
			continue
		}
		if there.Gateway.Equal(gateway) {
			return nil, nil
		}
		return nil, sdk.Conflict("the network %d has a route to %s by %s already, which is not server %d; remove that one first", network.ID, destination, there.Gateway, server.ID).Because("DestinationTaken")
	}
	return &hcloud.NetworkRoute{Destination: destination, Gateway: gateway}, nil
}

// OldRoute returns the route with this name and destination, or nil.
func OldRoute(network *hcloud.Network, asked sdk.Route) (*hcloud.NetworkRoute, error) {
	_, destination, err := net.ParseCIDR(asked.DestinationCIDR)
	if err != nil {
		return nil, sdk.Invalid("the destination %q is no CIDR", asked.DestinationCIDR)
	}
	for _, there := range network.Routes {
		if there.Destination.String() == destination.String() && RouteName(there) == asked.Name {
			return &there, nil
		}
	}
	return nil, nil
}
