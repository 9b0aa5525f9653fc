package testapi

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"regexp"
	"slices"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"
)

func (c *Cloud) listBalancers(r *http.Request) (int, any, error) {
	left, err := chosen(r, c.balancers, func(lb *schema.LoadBalancer) (string, map[string]string) { return lb.Name, lb.Labels })
	if err != nil {
		return 0, nil, err
	}
	left = slices.DeleteFunc(left, func(lb *schema.LoadBalancer) bool { return time.Since(c.made[lb.ID]) < ms(c.settings.ListLagMS) })
	return page(r, "load_balancers", left)
}

func (c *Cloud) balancerOf(id int64) *schema.LoadBalancer {
	at := slices.IndexFunc(c.balancers, func(lb *schema.LoadBalancer) bool { return lb.ID == id })
	if at < 0 {
		return nil
	}
	return c.balancers[at]
}

func (c *Cloud) getBalancer(r *http.Request) (int, any, error) {
	lb := c.balancerOf(pathID(r))
	if lb == nil {
		return 0, nil, errNotFound
	}
	return http.StatusOK, schema.LoadBalancerGetResponse{LoadBalancer: *lb}, nil
}

var (
	nameForm  = regexp.MustCompile(`^[a-zA-Z0-9]([-._a-zA-Z0-9]{0,126}[a-zA-Z0-9])?$`)
	labelForm = regexp.MustCompile(`^([A-Za-z0-9]([-_.A-Za-z0-9]{0,61}[A-Za-z0-9])?)?$`)
	keyForm   = regexp.MustCompile(`^([a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-_.A-Za-z0-9]{0,61}[A-Za-z0-9])?$`)
)

func (c *Cloud) checkName(name string, self int64) error {
	if !nameForm.MatchString(name) {
		return invalid("name", "not a name")
	}
	if slices.ContainsFunc(c.balancers, func(lb *schema.LoadBalancer) bool { return lb.Name == name && lb.ID != self }) {
		return refuse(http.StatusConflict, "uniqueness_error", "name is already used")
	}
	return nil
}

func checkLabels(labels map[string]string) error {
	for key, value := range labels {
		if !keyForm.MatchString(key) || !labelForm.MatchString(value) {
			return invalid("labels", "the label %s=%s is invalid", key, value)
		}
	}
	return nil
}

func typeOf(asked schema.IDOrName) *schema.LoadBalancerType {
	at := slices.IndexFunc(types, func(t *schema.LoadBalancerType) bool { return t.Name == asked.Name || t.ID == asked.ID })
	if at < 0 {
		return nil
	}
	return types[at]
}

func (c *Cloud) createBalancer(r *http.Request) (int, any, error) {
	var asked schema.LoadBalancerCreateRequest
	if err := body(r, &asked); err != nil {
		return 0, nil, err
	}
	if err := c.checkName(asked.Name, 0); err != nil {
		return 0, nil, err
	}
	kind := typeOf(asked.LoadBalancerType)
	location := slices.IndexFunc(locations, func(l schema.Location) bool {
		return asked.Location != nil && l.Name == *asked.Location || asked.NetworkZone != nil && l.NetworkZone == *asked.NetworkZone
	})
	switch {
	case kind == nil:
		return 0, nil, invalid("load_balancer_type", "unknown type")
	case (asked.Location == nil) == (asked.NetworkZone == nil):
		return 0, nil, invalid("location", "either location or network_zone is required")
	case location < 0:
		return 0, nil, invalid("location", "unknown location or network zone")
	case c.settings.LoadBalancerLimit > 0 && len(c.balancers) >= c.settings.LoadBalancerLimit:
		return 0, nil, refuse(http.StatusForbidden, "resource_limit_exceeded", "load balancer limit exceeded")
	}
	c.nextID++
	n := c.nextID - 10_000
	lb := &schema.LoadBalancer{
		ID: c.nextID, Name: asked.Name, Location: locations[location], LoadBalancerType: *kind, Labels: map[string]string{}, Created: time.Now().UTC().Truncate(time.Second),
		PublicNet: schema.LoadBalancerPublicNet{
			Enabled: asked.PublicInterface == nil || *asked.PublicInterface,
			IPv4:    schema.LoadBalancerPublicNetIPv4{ID: n, IP: fmt.Sprintf("198.51.%d.%d", 100+n/250, n%250+1), DNSPtr: fmt.Sprintf("static.%d.clients.example.com", n)},
			IPv6:    schema.LoadBalancerPublicNetIPv6{ID: n, IP: fmt.Sprintf("2001:db8:ffff:%x::1", n), DNSPtr: fmt.Sprintf("static6.%d.clients.example.com", n)},
		},
		PrivateNet: []schema.LoadBalancerPrivateNet{}, Services: []schema.LoadBalancerService{}, Targets: []schema.LoadBalancerTarget{}, Algorithm: schema.LoadBalancerAlgorithm{Type: "round_robin"},
		IncludedTraffic: 654_321,
	}
	if asked.Labels != nil {
		lb.Labels = *asked.Labels
	}
	if asked.Algorithm != nil {
		lb.Algorithm.Type = asked.Algorithm.Type
	}
	if err := checkLabels(lb.Labels); err != nil {
		return 0, nil, err
	}
	if asked.Network != nil {
		if err := c.attach(lb, schema.LoadBalancerActionAttachToNetworkRequest{Network: *asked.Network}); err != nil {
			return 0, nil, err
		}
	}
	for _, service := range asked.Services {
		text, _ := json.Marshal(service)
		if err := c.setService(lb, text, true); err != nil {
			return 0, nil, err
		}
	}
	for _, target := range asked.Targets {
		text, _ := json.Marshal(target)
		if err := c.addTarget(lb, text); err != nil {
			return 0, nil, err
		}
	}
	c.balancers = append(c.balancers, lb)
	c.made[lb.ID] = time.Now()
	return http.StatusCreated, schema.LoadBalancerCreateResponse{LoadBalancer: *lb, Action: *c.begin("create_load_balancer", "load_balancer", lb.ID)}, nil
}

func (c *Cloud) updateBalancer(r *http.Request) (int, any, error) {
	lb := c.balancerOf(pathID(r))
	if lb == nil {
		return 0, nil, errNotFound
	}
	var asked schema.LoadBalancerUpdateRequest
	if err := body(r, &asked); err != nil {
		return 0, nil, err
	}
	if asked.Name != nil {
		if err := c.checkName(*asked.Name, lb.ID); err != nil {
			return 0, nil, err
		}
	}
	if asked.Labels != nil {
		if err := checkLabels(*asked.Labels); err != nil {
			return 0, nil, err
		}
		lb.Labels = *asked.Labels
	}
	if asked.Name != nil {
		lb.Name = *asked.Name
	}
	return http.StatusOK, schema.LoadBalancerUpdateResponse{LoadBalancer: *lb}, nil
}

func (c *Cloud) deleteBalancer(r *http.Request) (int, any, error) {
	lb := c.balancerOf(pathID(r))
	if lb == nil {
		return 0, nil, errNotFound
	}
	if err := c.locked(lb.ID); err != nil {
		return 0, nil, err
	}
	if lb.Protection.Delete {
		return 0, nil, refuse(http.StatusForbidden, "protected", "load balancer deletion is protected")
	}
	c.balancers = slices.DeleteFunc(c.balancers, func(other *schema.LoadBalancer) bool { return other == lb })
	if !c.settings.DeleteActions {
		return http.StatusNoContent, nil, nil
	}
	return http.StatusCreated, schema.ActionGetResponse{Action: *c.begin("delete_load_balancer", "load_balancer", lb.ID)}, nil
}

func (c *Cloud) balancerAction(r *http.Request) (int, any, error) {
	lb := c.balancerOf(pathID(r))
	if lb == nil {
		return 0, nil, errNotFound
	}
	if err := c.locked(lb.ID); err != nil {
		return 0, nil, err
	}
	text := json.RawMessage{}
	if err := json.NewDecoder(r.Body).Decode(&text); err != nil {
		text = json.RawMessage("{}")
	}
	changed := *lb
	command := r.PathValue("action")
	if err := c.act(&changed, command, text); err != nil {
		return 0, nil, err
	}
	*lb = changed
	return http.StatusCreated, schema.ActionGetResponse{Action: *c.begin(command, "load_balancer", lb.ID)}, nil
}

func (c *Cloud) act(lb *schema.LoadBalancer, command string, text json.RawMessage) error {
	switch command {
	case "add_service", "update_service":
		return c.setService(lb, text, command == "add_service")
	case "delete_service":
		var asked schema.LoadBalancerDeleteServiceRequest
		if err := strict(text, &asked); err != nil {
			return err
		}
		if !slices.ContainsFunc(lb.Services, func(s schema.LoadBalancerService) bool { return s.ListenPort == asked.ListenPort }) {
			return invalid("listen_port", "there is no such service")
		}
		lb.Services = slices.DeleteFunc(slices.Clone(lb.Services), func(s schema.LoadBalancerService) bool { return s.ListenPort == asked.ListenPort })
	case "add_target":
		return c.addTarget(lb, text)
	case "remove_target":
		return removeTarget(lb, text)
	case "change_algorithm":
		var asked schema.LoadBalancerActionChangeAlgorithmRequest
		if err := strict(text, &asked); err != nil {
			return err
		}
		if asked.Type != "round_robin" && asked.Type != "least_connections" {
			return invalid("type", "unknown algorithm")
		}
		lb.Algorithm.Type = asked.Type
	case "change_type":
		var asked schema.LoadBalancerActionChangeTypeRequest
		if err := strict(text, &asked); err != nil {
			return err
		}
		kind := typeOf(asked.LoadBalancerType)
		if kind == nil || len(lb.Targets) > kind.MaxTargets || len(lb.Services) > kind.MaxServices {
			return refuse(http.StatusUnprocessableEntity, "invalid_load_balancer_type", "the type does not fit")
		}
		lb.LoadBalancerType = *kind
	case "attach_to_network":
		var asked schema.LoadBalancerActionAttachToNetworkRequest
		if err := strict(text, &asked); err != nil {
			return err
		}
		return c.attach(lb, asked)
	case "detach_from_network":
		var asked schema.LoadBalancerActionDetachFromNetworkRequest
		if err := strict(text, &asked); err != nil {
			return err
		}
		lb.PrivateNet = slices.DeleteFunc(slices.Clone(lb.PrivateNet), func(p schema.LoadBalancerPrivateNet) bool { return p.Network == asked.Network })
		lb.Targets = slices.DeleteFunc(slices.Clone(lb.Targets), func(t schema.LoadBalancerTarget) bool { return t.UsePrivateIP })
	case "enable_public_interface", "disable_public_interface":
		switch {
		case command == "enable_public_interface":
		case len(lb.PrivateNet) == 0:
			return refuse(http.StatusUnprocessableEntity, "load_balancer_not_attached_to_network", "the load balancer is not attached to a network")
		case slices.ContainsFunc(lb.Targets, func(t schema.LoadBalancerTarget) bool { return !t.UsePrivateIP && t.IP == nil }):
			return refuse(http.StatusUnprocessableEntity, "targets_without_use_private_ip", "the load balancer has targets that use the public IP instead of the private IP")
		}
		lb.PublicNet.Enabled = command == "enable_public_interface"
	case "change_dns_ptr":
		var asked schema.LoadBalancerActionChangeDNSPtrRequest
		if err := strict(text, &asked); err != nil {
			return err
		}
		pointer := ""
		if asked.DNSPtr != nil {
			pointer = *asked.DNSPtr
		}
		switch asked.IP {
		case lb.PublicNet.IPv4.IP:
			lb.PublicNet.IPv4.DNSPtr = pointer
		case lb.PublicNet.IPv6.IP:
			lb.PublicNet.IPv6.DNSPtr = pointer
		default:
			return invalid("ip", "not an address of the load balancer")
		}
	default:
		return errNotFound
	}
	return nil
}

func (c *Cloud) attach(lb *schema.LoadBalancer, asked schema.LoadBalancerActionAttachToNetworkRequest) error {
	network := c.networkOf(asked.Network)
	switch {
	case network == nil:
		return invalid("network", "unknown network")
	case len(lb.PrivateNet) > 0:
		return refuse(http.StatusConflict, "load_balancer_already_attached", "already attached")
	}
	ip := fmt.Sprintf("10.1.240.%d", lb.ID%250+2)
	if asked.IP != nil {
		if address, err := netip.ParseAddr(*asked.IP); err != nil || !netip.MustParsePrefix(network.Subnets[0].IPRange).Contains(address) || *asked.IP == network.Subnets[0].Gateway || c.taken(network.ID, *asked.IP) {
			return refuse(http.StatusUnprocessableEntity, "ip_not_available", "ip %s is not available", *asked.IP)
		}
		ip = *asked.IP
	}
	if asked.IPRange != nil && *asked.IPRange != network.Subnets[0].IPRange {
		return refuse(http.StatusUnprocessableEntity, "no_subnet_available", "there is no subnet %s", *asked.IPRange)
	}
	lb.PrivateNet = []schema.LoadBalancerPrivateNet{{Network: network.ID, IP: ip}}
	return nil
}

// taken reports whether a server or load balancer has the address in the network.
func (c *Cloud) taken(network int64, ip string) bool {
	return slices.ContainsFunc(c.servers, func(server *schema.Server) bool {
		return slices.ContainsFunc(server.PrivateNet, func(p schema.ServerPrivateNet) bool { return p.Network == network && p.IP == ip })
	}) || slices.ContainsFunc(c.balancers, func(lb *schema.LoadBalancer) bool {
		return slices.ContainsFunc(lb.PrivateNet, func(p schema.LoadBalancerPrivateNet) bool { return p.Network == network && p.IP == ip })
	})
}
