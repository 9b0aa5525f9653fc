package plan

import (
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"github.com/digitalocean/godo"

	"github.com/grpc-ccm/grpc-ccm/providers/go/sdk"
)

// Settings are the operator's.
type Settings struct {
	// Region is the slug of the cluster's region. VPC is the UUID of its network; if empty, the region's default network.
	Region, VPC string
	// DefaultType is the type of a load balancer whose Service has no annotation for it.
	DefaultType string
	// TargetTag is a tag: its droplets are the targets of load balancers. If empty, the targets are the droplets of the Nodes, by their IDs.
	TargetTag string
}

// Wanted is the load balancer that a Service asks for.
type Wanted struct {
	// Request is the whole load balancer. Address is the address for a new load balancer, if the Service asks for an address.
	Request godo.LoadBalancerRequest
	Address string
	// Hostname replaces the addresses in the status.
	Hostname string
	// Proxies says that the load balancer uses the PROXY protocol, or that one of its rules is neither TCP nor UDP.
	Proxies bool
	// Warnings are texts for the user.
	Warnings []string
}

const kubeProxyHealthPort = 10256

var customName = regexp.MustCompile(`^[a-zA-Z0-9]([-.a-zA-Z0-9]*[a-zA-Z0-9])?$`)

// Want returns the desired load balancer of this Service. The argument `there` has the existing
// load balancer, or nil. Its type, network and network stack stay, and Want refuses a Service that
// asks for others. The argument `certificate` is the ID of the certificate that the annotations
// name. With nil as targets the targets stay, unless Settings.TargetTag is set.
func Want(service *sdk.Service, call *sdk.Call, settings *Settings, there *godo.LoadBalancer, certificate string, targets *Eligible) (*Wanted, error) {
	v := &values{annotations: service.Annotations}
	for key := range service.Annotations {
		if name, ours := strings.CutPrefix(key, annotationBase); ours && !slices.Contains(known, name) {
			v.refuse(name, "it is not known; see docs/digitalocean.md for those that are")
		}
	}
	if err := checkPorts(service); err != nil {
		return nil, err
	}
	request := godo.LoadBalancerRequest{
		Name: wantedName(v, service, call), Region: settings.Region, VPCUUID: settings.VPC, VPCSubnetUUID: v.text("subnet-uuid"),
		RedirectHttpToHttps: v.flag("redirect-http-to-https"), EnableProxyProtocol: v.flag("enable-proxy-protocol"), EnableBackendKeepalive: v.flag("enable-backend-keepalive"),
		DisableLetsEncryptDNSRecords: godo.PtrTo(v.flag("disable-lets-encrypt-dns-records")),
		StickySessions:               stickySessions(v), Firewall: firewall(v, service),
	}
	if v.has("http-idle-timeout-seconds") {
		request.HTTPIdleTimeoutSeconds = godo.PtrTo(uint64(v.number("http-idle-timeout-seconds", 0, 30, 600)))
	}
	wanted := &Wanted{Address: v.text("ip"), Hostname: strings.ToLower(v.text("hostname"))}
	wantedKind(v, &request, settings, there, targets)
	wantedSize(v, &request)
	request.HealthCheck = healthCheck(v, service)
	request.ForwardingRules = forwardingRules(v, service, request.Type, certificate)
	if request.Type == godo.LoadBalancerTypeRegionalNetwork {
		for _, name := range regionalOnly {
			if v.has(name) && v.text(name) != "false" && v.text(name) != "none" && !(name == "protocol" && v.text(name) == "tcp") {
				v.refuse(name, "a load balancer of the type REGIONAL_NETWORK has nothing like it; right would be %stype: REGIONAL, or none of this annotation", annotationBase)
			}
		}
	}
	if v.word("algorithm", "", "round_robin", "least_connections") != "" {
		v.warn("annotation %salgorithm does nothing: DigitalOcean's API ignores it", annotationBase)
	}
	if wanted.Address != "" {
		if _, err := netip.ParseAddr(wanted.Address); err != nil {
			v.refuse("ip", "%q is no IP address", wanted.Address)
		} else if there != nil && there.IP != wanted.Address {
			v.warn("annotation %sip does nothing any more: the load balancer has the address %s, which stays", annotationBase, there.IP)
		}
	}
	if wanted.Hostname != "" && !isHostname(wanted.Hostname) {
		v.refuse("hostname", "%q is no DNS name", wanted.Hostname)
	}
	if there != nil { // Fields that people set in the control panel. A PUT without them would reset them.
		request.ProjectID, request.TLSCipherPolicy = there.ProjectID, there.TLSCipherPolicy
		if settings.VPC == "" {
			request.VPCUUID = there.VPCUUID
		}
		if request.VPCSubnetUUID == "" {
			request.VPCSubnetUUID = there.VPCSubnetUUID
		}
	}
	if settings.TargetTag != "" {
		request.Tag = settings.TargetTag
	} else if targets != nil {
		request.DropletIDs = targets.IDs
	} else if there != nil {
		request.DropletIDs, request.Tag = sorted(there.DropletIDs), there.Tag
	}
	wanted.Request, wanted.Warnings = request, v.warnings
	wanted.Proxies = request.EnableProxyProtocol || slices.ContainsFunc(request.ForwardingRules, func(rule godo.ForwardingRule) bool {
		return rule.EntryProtocol != "tcp" && rule.EntryProtocol != "udp"
	})
	return wanted, v.err
}

func wantedName(v *values, service *sdk.Service, call *sdk.Call) string {
	name := MarkOf(service, call.Cluster.OwnerID).String()
	custom := v.text("name")
	if custom == "" {
		return name
	}
	if most := nameBytes - len(name) - 1; len(custom) > most || !customName.MatchString(custom) {
		v.refuse("name", "%q is not 1 to %d letters, digits, dots and dashes that begin and end with a letter or digit; namespace, name and UID of the Service take the rest of the 253", custom, most)
	}
	return custom + "." + name
}

// wantedKind sets type, network and network stack, which cannot change on an existing load balancer.
func wantedKind(v *values, request *godo.LoadBalancerRequest, settings *Settings, there *godo.LoadBalancer, targets *Eligible) {
	kind, network, stack := settings.DefaultType, godo.LoadBalancerNetworkTypeExternal, ""
	if there != nil {
		kind, network, stack = or(there.Type, godo.LoadBalancerTypeRegional), or(there.Network, godo.LoadBalancerNetworkTypeExternal), or(there.NetworkStack, godo.LoadBalancerNetworkStackIPv4)
	}
	asked := []*string{&kind, &network, &stack}
	for i, name := range []string{"type", "network", "network-stack"} {
		right := [][]string{
			{godo.LoadBalancerTypeRegional, godo.LoadBalancerTypeRegionalNetwork}, {godo.LoadBalancerNetworkTypeExternal, godo.LoadBalancerNetworkTypeInternal},
			{godo.LoadBalancerNetworkStackIPv4, godo.LoadBalancerNetworkStackDualstack},
		}[i]
		value := v.word(name, *asked[i], right...)
		if there != nil && value != *asked[i] {
			v.refuse(name, "the load balancer is made as %s, which DigitalOcean cannot change to %s; right would be another Service", *asked[i], value)
		}
		*asked[i] = value
	}
	if stack == "" {
		stack = godo.LoadBalancerNetworkStackIPv4
		if network == godo.LoadBalancerNetworkTypeExternal && (kind == godo.LoadBalancerTypeRegional || targets != nil && targets.AllDualStack) {
			stack = godo.LoadBalancerNetworkStackDualstack
		}
	}
	if stack == godo.LoadBalancerNetworkStackDualstack && network == godo.LoadBalancerNetworkTypeInternal {
		v.refuse("network-stack", "an INTERNAL load balancer has no DUALSTACK; right would be IPV4")
	}
	request.Type, request.Network, request.NetworkStack = kind, network, stack
}

func wantedSize(v *values, request *godo.LoadBalancerRequest) {
	slug := v.word("size-slug", "", "lb-small", "lb-medium", "lb-large")
	unit := v.number("size-unit", 0, 0, 100)
	if slug != "" && unit > 0 {
		v.refuse("size-unit", "it conflicts with %ssize-slug; set only one of them", annotationBase)
	}
	// If the Service sets neither, the request has neither: not every region and type has sizes, and a PUT without one sets the smallest.
	request.SizeSlug, request.SizeUnit = slug, uint32(unit)
}

func stickySessions(v *values) *godo.StickySessions {
	if v.word("sticky-sessions-type", "none", "none", "cookies") == "none" {
		return &godo.StickySessions{Type: "none"}
	}
	for _, name := range []string{"sticky-sessions-cookie-name", "sticky-sessions-cookie-ttl"} {
		if !v.has(name) {
			v.refuse(name, "it is missing; sticky sessions by cookies need a name such as \"lb\" and a TTL in seconds such as \"300\"")
		}
	}
	return &godo.StickySessions{Type: "cookies", CookieName: v.text("sticky-sessions-cookie-name"), CookieTtlSeconds: v.number("sticky-sessions-cookie-ttl", 0, 1, 1<<31-1)}
}

func firewall(v *values, service *sdk.Service) *godo.LBFirewall {
	rules := &godo.LBFirewall{Deny: v.rules("deny-rules"), Allow: v.rules("allow-rules")}
	if len(service.SourceRanges) == 0 {
		return rules
	}
	if len(rules.Allow) > 0 {
		v.warn("annotation %sallow-rules does nothing beside spec.loadBalancerSourceRanges", annotationBase)
	}
	rules.Allow = nil
	for _, text := range service.SourceRanges {
		prefix, err := netip.ParsePrefix(strings.TrimSpace(text))
		if err != nil {
			if v.err == nil {
				v.err = sdk.Invalid("spec.loadBalancerSourceRanges: %q is no CIDR; right would be one such as 198.51.100.0/24", text)
			}
			return rules
		}
		rules.Allow = append(rules.Allow, "cidr:"+prefix.Masked().String())
	}
	slices.Sort(rules.Allow)
	rules.Allow = slices.Compact(rules.Allow)
	return rules
}

func isHostname(name string) bool {
	return len(name) <= 253 && !slices.ContainsFunc(strings.Split(name, "."), func(part string) bool { return len(part) > 63 || !label.MatchString(part) })
}

func or(value, unless string) string {
	if value == "" {
		return unless
	}
	return value
}

func sorted(ids []int) []int {
	ids = slices.Clone(ids)
	slices.Sort(ids)
	return slices.Compact(ids)
}
