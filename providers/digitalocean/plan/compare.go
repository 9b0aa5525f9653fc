package plan

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/digitalocean/godo"

	"github.com/grpc-ccm/grpc-ccm/providers/go/sdk"
)

// ProviderIDPrefix is the prefix of provider IDs.
const ProviderIDPrefix = "digitalocean://"

// DropletID reads a provider ID.
func DropletID(providerID string) (int, error) {
	text, ours := strings.CutPrefix(providerID, ProviderIDPrefix)
	id, err := strconv.Atoi(text)
	if !ours || err != nil || id <= 0 || strconv.Itoa(id) != text {
		return 0, sdk.Invalid("the provider ID %q names no droplet; right would be one such as %s316", providerID, ProviderIDPrefix)
	}
	return id, nil
}

// Eligible are the targets that a load balancer can have.
type Eligible struct {
	// IDs are the IDs of the droplets, in order, and Names the names of their Nodes.
	IDs   []int
	Names map[int]string
	// Without are Nodes that this kind of load balancer cannot reach, because they have no public IPv4 address. Unnamed has the errors of Nodes without a
	// provider ID that names a droplet.
	Without []string
	Unnamed map[string]error
	// AllDualStack is true if there are targets, and each has public addresses of both families.
	AllDualStack bool
}

// EligibleTargets returns the Nodes that can be targets. Only an external load balancer of the type REGIONAL_NETWORK needs a public address of its targets:
// it forwards packets unchanged.
func EligibleTargets(targets *sdk.Targets, kind, network string) *Eligible {
	if targets == nil {
		return nil
	}
	public := kind == godo.LoadBalancerTypeRegionalNetwork && network != godo.LoadBalancerNetworkTypeInternal
	e := &Eligible{IDs: []int{}, Names: map[int]string{}, Unnamed: map[string]error{}, AllDualStack: true}
	for _, node := range targets.Nodes {
		id, err := DropletID(node.ProviderID)
		if err != nil {
			e.Unnamed[node.Name] = err
			continue
		}
		v4, v6 := publicAddresses(&node)
		if public && !v4 {
			e.Without = append(e.Without, node.Name)
			continue
		}
		e.AllDualStack = e.AllDualStack && v4 && v6
		e.IDs = append(e.IDs, id)
		e.Names[id] = node.Name
	}
	e.IDs = sorted(e.IDs)
	e.AllDualStack = e.AllDualStack && len(e.IDs) > 0
	return e
}

func publicAddresses(node *sdk.Node) (v4, v6 bool) {
	for _, address := range node.Addresses {
		if ip, err := netip.ParseAddr(address.Address); err == nil && address.Type == sdk.ExternalIP {
			v4, v6 = v4 || ip.Is4(), v6 || ip.Is6()
		}
	}
	return v4, v6
}

// NoTarget returns the reason why a droplet can be no target of a load balancer in this region and network, or nil. A nil droplet does not exist, and an
// empty network is unknown.
func NoTarget(id int, droplet *godo.Droplet, region, vpc string) error {
	switch {
	case droplet == nil:
		return sdk.Precondition("droplet %d does not exist", id).Because("DropletMissing")
	case droplet.Region != nil && droplet.Region.Slug != region:
		return sdk.Precondition("droplet %d is in the region %s and the load balancer in %s", id, droplet.Region.Slug, region).Because("DropletElsewhere")
	case vpc != "" && droplet.VPCUUID != "" && droplet.VPCUUID != vpc:
		return sdk.Precondition("droplet %d is in the VPC %s and the load balancer in %s", id, droplet.VPCUUID, vpc).Because("DropletElsewhere")
	default:
		return nil
	}
}

// Kind returns the type and network that the load balancer of this Service has or will have. It does not check the annotations.
func Kind(service *sdk.Service, settings *Settings, there *godo.LoadBalancer) (kind, network string) {
	if there != nil {
		return or(there.Type, godo.LoadBalancerTypeRegional), or(there.Network, godo.LoadBalancerNetworkTypeExternal)
	}
	v := &values{annotations: service.Annotations}
	return or(v.text("type"), settings.DefaultType), or(v.text("network"), godo.LoadBalancerNetworkTypeExternal)
}

// Same reports whether a load balancer equals the wanted one, so that no write is needed (LB-8).
func Same(there *godo.LoadBalancer, wanted *godo.LoadBalancerRequest) bool {
	asked := normal(wanted)
	if there.VPCSubnetUUID == "" { // A preview feature of DigitalOcean; some answers lack the field.
		asked.VPCSubnetUUID = ""
	}
	return sdk.Same(normal(there.AsRequest()), asked)
}

// normal returns a load balancer with the values that DigitalOcean fills in, and with sorted lists, so that two can be compared.
func normal(lb *godo.LoadBalancerRequest) godo.LoadBalancerRequest {
	n := *lb
	n.Algorithm, n.ValidateOnly, n.IP, n.Tags = "", false, "", nil
	if n.SizeUnit == 0 {
		n.SizeUnit = map[string]uint32{"lb-medium": 3, "lb-large": 6}[n.SizeSlug]
	}
	n.SizeUnit, n.SizeSlug = max(n.SizeUnit, 1), ""
	n.Type, n.Network = or(n.Type, godo.LoadBalancerTypeRegional), or(n.Network, godo.LoadBalancerNetworkTypeExternal)
	n.NetworkStack, n.TLSCipherPolicy = or(n.NetworkStack, godo.LoadBalancerNetworkStackIPv4), or(n.TLSCipherPolicy, godo.LoadBalancerTLSCipherPolicyDefault)
	n.ForwardingRules = slices.Clone(n.ForwardingRules)
	slices.SortFunc(n.ForwardingRules, byPort)
	if n.Tag != "" {
		n.DropletIDs = nil
	}
	n.DropletIDs = sorted(n.DropletIDs)
	if n.StickySessions == nil || n.StickySessions.Type == "none" || n.StickySessions.Type == "" {
		n.StickySessions = &godo.StickySessions{Type: "none"}
	}
	if n.DisableLetsEncryptDNSRecords == nil {
		n.DisableLetsEncryptDNSRecords = godo.PtrTo(false)
	}
	if n.HTTPIdleTimeoutSeconds == nil || *n.HTTPIdleTimeoutSeconds == 0 {
		n.HTTPIdleTimeoutSeconds = godo.PtrTo(uint64(60))
	}
	if n.Firewall == nil {
		n.Firewall = &godo.LBFirewall{}
	}
	n.Firewall = &godo.LBFirewall{Allow: slices.Sorted(slices.Values(n.Firewall.Allow)), Deny: slices.Sorted(slices.Values(n.Firewall.Deny))}
	if n.HealthCheck != nil {
		check := *n.HealthCheck
		// The API's description has no such field, so the comparison ignores it.
		check.ProxyProtocol = nil
		if check.Protocol == "tcp" {
			check.Path = ""
		}
		n.HealthCheck = &check
	}
	return n
}

// Change returns the droplets to add to a load balancer, and those to remove from it.
func Change(there *godo.LoadBalancer, wanted []int) (add, remove []int) {
	for _, id := range wanted {
		if !slices.Contains(there.DropletIDs, id) {
			add = append(add, id)
		}
	}
	for _, id := range sorted(there.DropletIDs) {
		if !slices.Contains(wanted, id) {
			remove = append(remove, id)
		}
	}
	return add, remove
}

// Status returns the status of a load balancer: its addresses, or the host name of the annotation.
func Status(lb *godo.LoadBalancer, wanted *Wanted) (status sdk.LoadBalancerStatus) {
	if wanted != nil && wanted.Hostname != "" {
		return sdk.LoadBalancerStatus{Ingress: []sdk.Ingress{{Hostname: wanted.Hostname}}}
	}
	mode := sdk.IPModeVIP
	if wanted != nil && wanted.Proxies {
		mode = sdk.IPModeProxy
	}
	for _, text := range []string{lb.IP, lb.IPv6} {
		if address, err := netip.ParseAddr(text); err == nil {
			status.Ingress = append(status.Ingress, sdk.Ingress{IP: address, IPMode: mode})
		}
	}
	return status
}
