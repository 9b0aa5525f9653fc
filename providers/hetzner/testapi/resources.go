package testapi

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"
)

var locations = []schema.Location{
	{ID: 1, Name: "fsn1", Description: "Falkenstein DC Park 1", Country: "DE", City: "Falkenstein", NetworkZone: "eu-central"},
	{ID: 2, Name: "nbg1", Description: "Nuremberg DC Park 1", Country: "DE", City: "Nuremberg", NetworkZone: "eu-central"},
	{ID: 4, Name: "ash", Description: "Ashburn, VA", Country: "US", City: "Ashburn, VA", NetworkZone: "us-east"},
}

var types = []*schema.LoadBalancerType{
	{ID: 1, Name: "lb11", Description: "LB11", MaxConnections: 10_000, MaxServices: 5, MaxTargets: 25, MaxAssignedCertificates: 10, Prices: []schema.PricingLoadBalancerTypePrice{}},
	{ID: 2, Name: "lb21", Description: "LB21", MaxConnections: 20_000, MaxServices: 15, MaxTargets: 75, MaxAssignedCertificates: 25, Prices: []schema.PricingLoadBalancerTypePrice{}},
	{ID: 3, Name: "lb31", Description: "LB31", MaxConnections: 40_000, MaxServices: 30, MaxTargets: 150, MaxAssignedCertificates: 50, Prices: []schema.PricingLoadBalancerTypePrice{}},
}

func (c *Cloud) listServers(r *http.Request) (int, any, error) {
	left, err := chosen(r, c.servers, func(s *schema.Server) (string, map[string]string) { return s.Name, s.Labels })
	if err != nil {
		return 0, nil, err
	}
	return page(r, "servers", left)
}

func (c *Cloud) serverOf(id int64) *schema.Server {
	at := slices.IndexFunc(c.servers, func(s *schema.Server) bool { return s.ID == id })
	if at < 0 {
		return nil
	}
	return c.servers[at]
}

func (c *Cloud) getServer(r *http.Request) (int, any, error) {
	server := c.serverOf(pathID(r))
	if server == nil {
		return 0, nil, errNotFound
	}
	return http.StatusOK, schema.ServerGetResponse{Server: *server}, nil
}

func (c *Cloud) listLocations(r *http.Request) (int, any, error) {
	all := []*schema.Location{}
	for i := range locations {
		all = append(all, &locations[i])
	}
	left, err := chosen(r, all, func(l *schema.Location) (string, map[string]string) { return l.Name, nil })
	if err != nil {
		return 0, nil, err
	}
	return page(r, "locations", left)
}

func (c *Cloud) listTypes(r *http.Request) (int, any, error) {
	left, err := chosen(r, types, func(t *schema.LoadBalancerType) (string, map[string]string) { return t.Name, nil })
	if err != nil {
		return 0, nil, err
	}
	return page(r, "load_balancer_types", left)
}

func (c *Cloud) listCertificates(r *http.Request) (int, any, error) {
	left, err := chosen(r, c.certificates, func(x *schema.Certificate) (string, map[string]string) { return x.Name, x.Labels })
	if err != nil {
		return 0, nil, err
	}
	return page(r, "certificates", left)
}

func (c *Cloud) listNetworks(r *http.Request) (int, any, error) {
	left, err := chosen(r, c.networks, func(n *schema.Network) (string, map[string]string) { return n.Name, n.Labels })
	if err != nil {
		return 0, nil, err
	}
	return page(r, "networks", left)
}

func (c *Cloud) networkOf(id int64) *schema.Network {
	at := slices.IndexFunc(c.networks, func(n *schema.Network) bool { return n.ID == id })
	if at < 0 {
		return nil
	}
	return c.networks[at]
}

func (c *Cloud) getNetwork(r *http.Request) (int, any, error) {
	network := c.networkOf(pathID(r))
	if network == nil {
		return 0, nil, errNotFound
	}
	return http.StatusOK, schema.NetworkGetResponse{Network: *network}, nil
}

func (c *Cloud) networkAction(r *http.Request) (int, any, error) {
	network := c.networkOf(pathID(r))
	if network == nil {
		return 0, nil, errNotFound
	}
	if err := c.locked(network.ID); err != nil {
		return 0, nil, refuse(http.StatusConflict, "conflict", "another change of the network is running")
	}
	var asked schema.NetworkActionAddRouteRequest
	if err := body(r, &asked); err != nil {
		return 0, nil, err
	}
	at := slices.IndexFunc(network.Routes, func(route schema.NetworkRoute) bool {
		return route.Destination == asked.Destination && (route.Gateway == asked.Gateway || r.PathValue("action") == "add_route")
	})
	switch r.PathValue("action") {
	case "add_route":
		if err := c.checkRoute(network, asked, at >= 0); err != nil {
			return 0, nil, err
		}
		network.Routes = append(slices.Clone(network.Routes), schema.NetworkRoute(asked))
	case "delete_route":
		if at < 0 {
			return 0, nil, invalid("destination", "the route does not exist")
		}
		network.Routes = slices.Delete(slices.Clone(network.Routes), at, at+1)
	default:
		return 0, nil, errNotFound
	}
	return http.StatusCreated, schema.NetworkActionAddRouteResponse{Action: *c.begin(r.PathValue("action"), "network", network.ID)}, nil
}

// checkRoute applies the description's rules for destinations and gateways.
func (c *Cloud) checkRoute(network *schema.Network, asked schema.NetworkActionAddRouteRequest, there bool) error {
	destination, err := netip.ParsePrefix(asked.Destination)
	gateway, wrong := netip.ParseAddr(asked.Gateway)
	whole := netip.MustParsePrefix(network.IPRange)
	switch {
	case err != nil || !destination.Addr().Is4() || destination.Masked() != destination:
		return invalid("destination", "not an IPv4 network")
	case wrong != nil || !whole.Contains(gateway) || gateway == whole.Addr().Next():
		return invalid("gateway", "not an address of the network")
	case !destination.Addr().IsPrivate():
		return invalid("destination", "not a private range")
	case there:
		return invalid("destination", "overlaps with a route")
	case len(network.Routes) >= 100:
		return refuse(http.StatusForbidden, "resource_limit_exceeded", "route limit exceeded")
	}
	for _, route := range network.Routes {
		if netip.MustParsePrefix(route.Destination).Overlaps(destination) {
			return invalid("destination", "overlaps with a route")
		}
	}
	for _, subnet := range network.Subnets {
		if netip.MustParsePrefix(subnet.IPRange).Overlaps(destination) {
			return invalid("destination", "overlaps with a subnet")
		}
	}
	return nil
}

// NewServer has the properties of a new server.
type NewServer struct {
	Name string `json:"name"`
	// Type is cx22, Location fsn1 and Status running if empty.
	Type     string            `json:"type"`
	Location string            `json:"location"`
	Status   string            `json:"status"`
	Labels   map[string]string `json:"labels"`
	// Outside says that the server is not in the network.
	Outside bool `json:"outside"`
}

// AddServer makes a server and returns its ID.
func (c *Cloud) AddServer(asked NewServer) int64 {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	or := func(value, unless string) string {
		if value == "" {
			return unless
		}
		return value
	}
	c.nextID++
	n := len(c.made) + len(c.servers) + 2
	location := locations[slices.IndexFunc(locations, func(l schema.Location) bool { return l.Name == or(asked.Location, "fsn1") })]
	server := &schema.Server{
		ID: c.nextID, Name: asked.Name, Status: or(asked.Status, "running"), Created: epoch, Location: location, Labels: asked.Labels, Volumes: []int64{}, LoadBalancers: []int64{},
		ServerType: schema.ServerType{ID: 104, Name: or(asked.Type, "cx22"), Cores: 2, Memory: 4, Disk: 40, StorageType: "local", CPUType: "shared", Architecture: "x86", Prices: []schema.PricingServerTypePrice{}, Locations: []schema.ServerTypeLocation{}},
		PublicNet: schema.ServerPublicNet{
			IPv4: schema.ServerPublicNetIPv4{ID: c.nextID, IP: fmt.Sprintf("203.%d.%d.%d", n>>16, n>>8&255, n&255)}, IPv6: schema.ServerPublicNetIPv6{ID: c.nextID, IP: fmt.Sprintf("2001:db8:%x::/64", n), DNSPtr: []schema.ServerPublicNetIPv6DNSPtr{}},
			FloatingIPs: []int64{}, Firewalls: []schema.ServerFirewall{},
		},
		PrivateNet: []schema.ServerPrivateNet{}, PrimaryDiskSize: 40,
	}
	if server.Labels == nil {
		server.Labels = map[string]string{}
	}
	if !asked.Outside {
		server.PrivateNet = append(server.PrivateNet, schema.ServerPrivateNet{Network: NetworkID, IP: fmt.Sprintf("10.1.%d.%d", n/250, n%250+2), AliasIPs: []string{}, MACAddress: "86:00:ff:2a:7d:e1"})
	}
	c.servers = append(c.servers, server)
	c.made[server.ID] = time.Now()
	return server.ID
}

// SetServer gives a server, by its name, a status; "" removes it.
func (c *Cloud) SetServer(name, status string) error {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	at := slices.IndexFunc(c.servers, func(s *schema.Server) bool { return s.Name == name })
	if at < 0 {
		return fmt.Errorf("there is no server %q", name)
	}
	server := c.servers[at]
	if server.Status = status; status == "" {
		c.servers = slices.Delete(c.servers, at, at+1)
		for _, lb := range c.balancers {
			lb.Targets = slices.DeleteFunc(slices.Clone(lb.Targets), func(t schema.LoadBalancerTarget) bool { return t.Server != nil && t.Server.ID == server.ID })
		}
	}
	return nil
}

// AddRoute adds a route to a server without the API; if the server does not exist, to an address that no server has.
func (c *Cloud) AddRoute(destination string, server int64) error {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	gateway := "10.1.255.254"
	if s := c.serverOf(server); s != nil {
		gateway = s.PrivateNet[0].IP
	}
	if _, _, err := net.ParseCIDR(destination); err != nil {
		return err
	}
	c.networks[0].Routes = append(slices.Clone(c.networks[0].Routes), schema.NetworkRoute{Destination: destination, Gateway: gateway})
	return nil
}

// RemoveRoute removes the routes to a destination without the API.
func (c *Cloud) RemoveRoute(destination string) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.networks[0].Routes = slices.DeleteFunc(slices.Clone(c.networks[0].Routes), func(route schema.NetworkRoute) bool { return route.Destination == destination })
}

// Routes returns the routes of the network.
func (c *Cloud) Routes() []schema.NetworkRoute {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	return slices.Clone(c.networks[0].Routes)
}

// AddCertificate makes a certificate and returns its ID.
func (c *Cloud) AddCertificate(name string) int64 {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.nextID++
	c.certificates = append(c.certificates, &schema.Certificate{ID: c.nextID, Name: name, Type: "uploaded", Labels: map[string]string{}, Created: epoch, DomainNames: []string{"example.com"}, UsedBy: []schema.CertificateUsedByRef{}})
	return c.nextID
}

// Set sets the behaviour of the cloud.
func (c *Cloud) Set(settings Settings) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.settings = settings
}
