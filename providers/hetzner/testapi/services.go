package testapi

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/netip"
	"slices"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"
	"k8s.io/apimachinery/pkg/labels"
)

func strict(text json.RawMessage, into any) error {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		return refuse(http.StatusBadRequest, "json_error", "%s", err.Error())
	}
	return nil
}

func put[T any](into *T, value *T) {
	if value != nil {
		*into = *value
	}
}

// setService adds or changes a listener. The API sets missing fields of a new listener to defaults, and keeps those of an existing one.
func (c *Cloud) setService(lb *schema.LoadBalancer, text json.RawMessage, add bool) error {
	var asked schema.LoadBalancerActionAddServiceRequest
	if err := strict(text, &asked); err != nil {
		return err
	}
	if asked.ListenPort == nil || *asked.ListenPort < 1 || *asked.ListenPort > 65535 {
		return invalid("listen_port", "must be within 1 and 65535")
	}
	at := slices.IndexFunc(lb.Services, func(s schema.LoadBalancerService) bool { return s.ListenPort == *asked.ListenPort })
	service := schema.LoadBalancerService{ListenPort: *asked.ListenPort, HealthCheck: &schema.LoadBalancerServiceHealthCheck{Protocol: "tcp", Interval: 15, Timeout: 10, Retries: 3}}
	switch {
	case add && at >= 0:
		return refuse(http.StatusConflict, "source_port_already_used", "the source port is already used")
	case add && len(lb.Services) >= lb.LoadBalancerType.MaxServices:
		return refuse(http.StatusForbidden, "resource_limit_exceeded", "service limit exceeded")
	case !add && at < 0:
		return invalid("listen_port", "there is no such service")
	case !add:
		service = lb.Services[at]
		check := *service.HealthCheck
		service.HealthCheck = &check
	}
	if asked.Protocol != "" {
		service.Protocol = asked.Protocol
	}
	put(&service.DestinationPort, asked.DestinationPort)
	put(&service.Proxyprotocol, asked.Proxyprotocol)
	if err := c.setHTTP(&service, asked.HTTP); err != nil {
		return err
	}
	if err := setCheck(service.HealthCheck, asked.HealthCheck); err != nil {
		return err
	}
	if service.HealthCheck.Port == 0 {
		service.HealthCheck.Port = service.DestinationPort
	}
	if service.DestinationPort < 1 || service.DestinationPort > 65535 {
		return invalid("destination_port", "must be within 1 and 65535")
	}
	lb.Services = slices.Clone(lb.Services)
	if add {
		lb.Services = append(lb.Services, service)
	} else {
		lb.Services[at] = service
	}
	return nil
}

func (c *Cloud) setHTTP(service *schema.LoadBalancerService, asked *schema.LoadBalancerActionAddServiceRequestHTTP) error {
	if service.Protocol == "tcp" {
		service.HTTP = nil
		if asked != nil {
			return invalid("http", "not allowed with tcp")
		}
		return nil
	}
	if service.Protocol != "http" && service.Protocol != "https" {
		return invalid("protocol", "unknown protocol")
	}
	http := schema.LoadBalancerServiceHTTP{CookieName: "HCLBSTICKY", CookieLifetime: 300, Certificates: []int64{}, TimeoutIdle: 60}
	if service.HTTP != nil {
		http = *service.HTTP
	}
	if asked != nil {
		put(&http.CookieName, asked.CookieName)
		put(&http.CookieLifetime, asked.CookieLifetime)
		put(&http.Certificates, asked.Certificates)
		put(&http.RedirectHTTP, asked.RedirectHTTP)
		put(&http.StickySessions, asked.StickySessions)
		put(&http.TimeoutIdle, asked.TimeoutIdle)
	}
	if service.Protocol == "http" {
		http.Certificates, http.RedirectHTTP = []int64{}, false
		if asked != nil && asked.Certificates != nil && len(*asked.Certificates) > 0 {
			return invalid("certificates", "not allowed with http")
		}
	}
	for _, id := range http.Certificates {
		if !slices.ContainsFunc(c.certificates, func(certificate *schema.Certificate) bool { return certificate.ID == id }) {
			return invalid("certificates", "certificate %d not found", id)
		}
	}
	service.HTTP = &http
	return nil
}

func setCheck(check *schema.LoadBalancerServiceHealthCheck, asked *schema.LoadBalancerActionAddServiceRequestHealthCheck) error {
	if asked == nil {
		return nil
	}
	if asked.Protocol != "" {
		check.Protocol = asked.Protocol
	}
	put(&check.Port, asked.Port)
	put(&check.Interval, asked.Interval)
	put(&check.Timeout, asked.Timeout)
	put(&check.Retries, asked.Retries)
	if check.Protocol != "tcp" && check.Protocol != "http" {
		return invalid("health_check.protocol", "unknown protocol")
	}
	if check.Timeout > check.Interval {
		return invalid("health_check.timeout", "longer than the interval")
	}
	if check.Protocol == "tcp" {
		check.HTTP = nil
		return nil
	}
	http := schema.LoadBalancerServiceHealthCheckHTTP{StatusCodes: []string{"2??", "3??"}}
	if check.HTTP != nil {
		http = *check.HTTP
	}
	if asked.HTTP != nil {
		put(&http.Domain, asked.HTTP.Domain)
		put(&http.Path, asked.HTTP.Path)
		put(&http.Response, asked.HTTP.Response)
		put(&http.StatusCodes, asked.HTTP.StatusCodes)
		put(&http.TLS, asked.HTTP.TLS)
	}
	if http.Path == "" {
		return invalid("health_check.http.path", "is required")
	}
	check.HTTP = &http
	return nil
}

func sameTarget(one, other schema.LoadBalancerTarget) bool {
	switch {
	case one.Type != other.Type:
		return false
	case one.Server != nil && other.Server != nil:
		return one.Server.ID == other.Server.ID
	case one.IP != nil && other.IP != nil:
		return one.IP.IP == other.IP.IP
	case one.LabelSelector != nil && other.LabelSelector != nil:
		return one.LabelSelector.Selector == other.LabelSelector.Selector
	}
	return false
}

func (c *Cloud) addTarget(lb *schema.LoadBalancer, text json.RawMessage) error {
	var asked schema.LoadBalancerActionAddTargetRequest
	if err := strict(text, &asked); err != nil {
		return err
	}
	target := schema.LoadBalancerTarget{
		Type: asked.Type, Server: (*schema.LoadBalancerTargetServer)(asked.Server), LabelSelector: (*schema.LoadBalancerTargetLabelSelector)(asked.LabelSelector), IP: (*schema.LoadBalancerTargetIP)(asked.IP),
		HealthStatus: []schema.LoadBalancerTargetHealthStatus{},
	}
	put(&target.UsePrivateIP, asked.UsePrivateIP)
	if target.UsePrivateIP && len(lb.PrivateNet) == 0 {
		return refuse(http.StatusUnprocessableEntity, "load_balancer_not_attached_to_network", "the load balancer is not attached to a network")
	}
	if !target.UsePrivateIP && !lb.PublicNet.Enabled {
		return refuse(http.StatusUnprocessableEntity, "load_balancer_public_interface_disabled", "the load balancer's public network interface is disabled")
	}
	switch {
	case asked.Type == "server" && asked.Server != nil:
		server := c.serverOf(asked.Server.ID)
		if server == nil {
			return refuse(http.StatusNotFound, "not_found", "server not found")
		}
		if target.UsePrivateIP && !slices.ContainsFunc(server.PrivateNet, func(p schema.ServerPrivateNet) bool { return p.Network == lb.PrivateNet[0].Network }) {
			return refuse(http.StatusUnprocessableEntity, "server_not_attached_to_network", "the server is not attached to the network")
		}
	case asked.Type == "ip" && asked.IP != nil:
		if address, err := netip.ParseAddr(asked.IP.IP); err != nil || !address.Is4() {
			return invalid("ip", "not an IPv4 address")
		}
	case asked.Type == "label_selector" && asked.LabelSelector != nil:
		selector, err := labels.Parse(asked.LabelSelector.Selector)
		if err != nil {
			return invalid("label_selector.selector", "%s", err)
		}
		for _, server := range c.servers {
			if selector.Matches(labels.Set(server.Labels)) {
				target.Targets = append(target.Targets, schema.LoadBalancerTarget{Type: "server", Server: &schema.LoadBalancerTargetServer{ID: server.ID}, HealthStatus: []schema.LoadBalancerTargetHealthStatus{}})
			}
		}
	default:
		return invalid("type", "unknown type of target")
	}
	if slices.ContainsFunc(lb.Targets, func(other schema.LoadBalancerTarget) bool { return sameTarget(target, other) }) {
		return refuse(http.StatusConflict, "target_already_defined", "the target is already defined")
	}
	if len(lb.Targets) >= lb.LoadBalancerType.MaxTargets {
		return refuse(http.StatusForbidden, "resource_limit_exceeded", "target limit exceeded")
	}
	lb.Targets = append(slices.Clone(lb.Targets), target)
	return nil
}

func removeTarget(lb *schema.LoadBalancer, text json.RawMessage) error {
	var asked schema.LoadBalancerActionRemoveTargetRequest
	if err := strict(text, &asked); err != nil {
		return err
	}
	target := schema.LoadBalancerTarget{
		Type: asked.Type, Server: (*schema.LoadBalancerTargetServer)(asked.Server), LabelSelector: (*schema.LoadBalancerTargetLabelSelector)(asked.LabelSelector), IP: (*schema.LoadBalancerTargetIP)(asked.IP),
	}
	at := slices.IndexFunc(lb.Targets, func(other schema.LoadBalancerTarget) bool { return sameTarget(target, other) })
	if at < 0 {
		return invalid("target", "target not found")
	}
	lb.Targets = slices.Delete(slices.Clone(lb.Targets), at, at+1)
	return nil
}
