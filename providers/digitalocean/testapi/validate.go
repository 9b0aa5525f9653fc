package testapi

import (
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

var balancerName = regexp.MustCompile(`^[a-zA-Z0-9][-.a-zA-Z0-9]*$`)

// check returns the error for a body that the API refuses. lb is the written load balancer; check does not compare it with itself.
func (c *Cloud) check(body *asked, lb *LoadBalancer) error {
	switch {
	case len(body.Name) > 255 || !balancerName.MatchString(body.Name) || strings.HasSuffix(body.Name, "-"):
		return invalid("name is invalid")
	case slices.ContainsFunc(c.balancers, func(other *LoadBalancer) bool { return other.ID != lb.ID && strings.EqualFold(other.Name, body.Name) }):
		return invalid("name is not unique")
	case regionNames[body.Region] == "":
		return invalid("region is invalid")
	case body.Tag == "" && body.DropletIDs == nil:
		return invalid("need to provide either a tag or a list of droplets")
	case body.Tag != "" && len(body.DropletIDs) > 0:
		return invalid("droplet_ids and tag are mutually exclusive")
	case body.VPCUUID != "" && body.VPCUUID != VPC && body.VPCUUID != VPCElsewhere:
		return invalid("vpc_uuid does not exist")
	case !slices.Contains([]string{"REGIONAL", "REGIONAL_NETWORK"}, body.Type):
		return invalid("type is invalid")
	case !slices.Contains([]string{"EXTERNAL", "INTERNAL"}, body.Network):
		return invalid("network is invalid")
	case !slices.Contains([]string{"IPV4", "DUALSTACK"}, body.NetworkStack):
		return invalid("network_stack is invalid")
	case body.Network == "INTERNAL" && body.NetworkStack == "DUALSTACK":
		return invalid("internal load balancers do not support DUALSTACK")
	case body.SizeUnit != nil && body.Size != "":
		return invalid("size and size_unit are mutually exclusive")
	case body.SizeUnit != nil && (*body.SizeUnit < 1 || *body.SizeUnit > 100):
		return invalid("size_unit is not within 1 to 100")
	case body.Size != "" && !slices.Contains([]string{"lb-small", "lb-medium", "lb-large"}, body.Size):
		return invalid("size is invalid")
	case body.HTTPIdleTimeout < 30 || body.HTTPIdleTimeout > 600:
		return invalid("http_idle_timeout_seconds is not within 30 to 600")
	case !slices.Contains([]string{"none", "cookies"}, body.StickySessions.Type):
		return invalid("sticky_sessions.type is invalid")
	case body.StickySessions.Type == "cookies" && (body.StickySessions.CookieName == "" || body.StickySessions.CookieTTL < 1):
		return invalid("sticky_sessions need cookie_name and cookie_ttl_seconds")
	case body.Type == "REGIONAL_NETWORK" && (body.StickySessions.Type != "none" || body.EnableProxyProtocol || body.EnableKeepalive || body.RedirectToHTTPS):
		return invalid("network load balancers do not support HTTP settings or PROXY protocol")
	}
	for _, id := range body.DropletIDs {
		if err := c.checkTarget(id, body.Region, or(lb.VPCUUID, or(body.VPCUUID, defaultVPC[body.Region]))); err != nil {
			return err
		}
	}
	if err := checkFirewall(body.Firewall); err != nil {
		return err
	}
	if err := checkHealth(body.HealthCheck); err != nil {
		return err
	}
	return c.checkRules(body)
}

func checkFirewall(firewall Firewall) error {
	for _, rule := range append(slices.Clone(firewall.Allow), firewall.Deny...) {
		kind, source, _ := strings.Cut(rule, ":")
		_, notIP := netip.ParseAddr(source)
		prefix, notCIDR := netip.ParsePrefix(source)
		if !(kind == "ip" && notIP == nil || kind == "cidr" && notCIDR == nil && prefix.Masked() == prefix) {
			return invalid("firewall rule %q is invalid", rule)
		}
	}
	return nil
}

func checkHealth(check HealthCheck) error {
	switch {
	case !slices.Contains([]string{"http", "https", "tcp"}, check.Protocol):
		return invalid("health_check.protocol is invalid")
	case check.Port < 1 || check.Port > 65_535:
		return invalid("health_check.port is invalid")
	case check.Interval < 3 || check.Interval > 300 || check.Timeout < 3 || check.Timeout > 300:
		return invalid("health_check intervals are not within 3 to 300")
	case check.UnhealthyThreshold < 2 || check.UnhealthyThreshold > 10 || check.HealthyThreshold < 2 || check.HealthyThreshold > 10:
		return invalid("health_check thresholds are not within 2 to 10")
	case check.Protocol != "tcp" && !strings.HasPrefix(check.Path, "/"):
		return invalid("health_check.path is invalid")
	}
	return nil
}

// checkTarget returns an error if a droplet cannot be a target of a load balancer in this region and network.
func (c *Cloud) checkTarget(id int, region, vpc string) error {
	droplet := c.dropletOf(id)
	switch {
	case droplet == nil:
		return invalid("droplet %d does not exist", id)
	case droplet.Region.Slug != region:
		return invalid("droplet %d is not in the region %s", id, region)
	case droplet.VPCUUID != vpc:
		return invalid("droplet %d is not in the VPC of the load balancer", id)
	default:
		return nil
	}
}

func (c *Cloud) checkRules(body *asked) error {
	if len(body.ForwardingRules) == 0 {
		return invalid("forwarding_rules is empty")
	}
	listeners := map[string]bool{}
	for _, rule := range body.ForwardingRules {
		transport := "tcp"
		if rule.EntryProtocol == "udp" || rule.EntryProtocol == "http3" {
			transport = "udp"
		}
		listener := transport + strconv.Itoa(rule.EntryPort)
		secure := rule.EntryProtocol == "https" || rule.EntryProtocol == "http2" || rule.EntryProtocol == "http3"
		known := slices.ContainsFunc(c.certificates, func(certificate *Certificate) bool { return certificate.ID == rule.CertificateID })
		switch {
		case rule.EntryPort < 1 || rule.EntryPort > 65_535 || rule.TargetPort < 1 || rule.TargetPort > 65_535:
			return invalid("forwarding rule port is not within 1 to 65535")
		case !slices.Contains([]string{"http", "https", "http2", "http3", "tcp", "udp"}, rule.EntryProtocol):
			return invalid("entry_protocol %q is invalid", rule.EntryProtocol)
		case !slices.Contains([]string{"http", "https", "http2", "tcp", "udp"}, rule.TargetProtocol):
			return invalid("target_protocol %q is invalid", rule.TargetProtocol)
		case (rule.EntryProtocol == "udp") != (rule.TargetProtocol == "udp"):
			return invalid("udp rules need udp on both sides")
		case secure && (rule.CertificateID == "") == !rule.TLSPassthrough:
			return invalid("%s rules need a certificate or TLS passthrough", rule.EntryProtocol)
		case rule.CertificateID != "" && !known:
			return invalid("certificate %s does not exist", rule.CertificateID)
		case body.Type == "REGIONAL_NETWORK" && (rule.EntryProtocol != rule.TargetProtocol || rule.EntryProtocol != "tcp" && rule.EntryProtocol != "udp" || rule.EntryPort != rule.TargetPort):
			return invalid("network load balancers forward tcp and udp to the same port")
		case listeners[listener]:
			return invalid("forwarding rules have entry port %d twice", rule.EntryPort)
		}
		listeners[listener] = true
	}
	return nil
}
