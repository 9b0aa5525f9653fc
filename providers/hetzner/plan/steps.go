package plan

import (
	"context"
	"fmt"
	"maps"
	"net"
	"slices"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/grpc-ccm/grpc-ccm/providers/go/sdk"
)

// Step is one call of the API that brings a load balancer closer to its desired state.
type Step struct {
	// What describes the step, for people. Node is the Node whose target the step attaches; a
	// refusal of such a step is only that target's.
	What, Node string
	// Removes is the target that the step removes.
	Removes *Target
	// Network says that the later steps have to be computed again, because addresses and targets depend on the network.
	Network bool
	// Type says that the step changes the type. If that fails, the other steps go on with the present type.
	Type bool
	// Former is what the step detaches. If the attach after it fails, the caller attaches this again.
	Former *hcloud.LoadBalancerPrivateNet
	Do     func(ctx context.Context, api *hcloud.LoadBalancerClient, lb *hcloud.LoadBalancer) (*hcloud.Action, error)
}

func step(what string, do func(context.Context, *hcloud.LoadBalancerClient, *hcloud.LoadBalancer) (*hcloud.Action, *hcloud.Response, error)) Step {
	return Step{What: what, Do: func(ctx context.Context, api *hcloud.LoadBalancerClient, lb *hcloud.LoadBalancer) (*hcloud.Action, error) {
		action, _, err := do(ctx, api, lb)
		return action, err
	}}
}

// Steps returns the necessary calls; none if the load balancer is as asked (LB-8).
func Steps(there *hcloud.LoadBalancer, wanted *Wanted) (steps []Step) {
	type (
		client = *hcloud.LoadBalancerClient
		lb     = *hcloud.LoadBalancer
		action = *hcloud.Action
		answer = *hcloud.Response
	)
	if wanted.Name != "" && wanted.Name != there.Name || !maps.Equal(wanted.Labels, there.Labels) {
		steps = append(steps, Step{What: "changing name and labels", Do: func(ctx context.Context, api client, lb lb) (action, error) {
			_, _, err := api.Update(ctx, lb, hcloud.LoadBalancerUpdateOpts{Name: wanted.Name, Labels: wanted.Labels})
			return nil, err
		}})
	}
	// The change of type can take minutes, so it comes before anything is removed, but not while the
	// load balancer is detached. A type that has no room for what is there comes after the removals;
	// one with no more room than the present type comes after the targets are set.
	network, kind := networkSteps(there, wanted), typeSteps(there, wanted)
	if len(network) > 0 && network[0].Former == nil {
		steps, network = append(steps, network...), nil
	}
	fits := wanted.Kind == nil || len(there.Services) <= wanted.Kind.MaxServices && len(there.Targets) <= wanted.Kind.MaxTargets
	smaller := wanted.Kind != nil && there.LoadBalancerType != nil && wanted.Kind.MaxServices <= there.LoadBalancerType.MaxServices && wanted.Kind.MaxTargets <= there.LoadBalancerType.MaxTargets
	if fits && !smaller {
		steps = append(steps, kind...)
	}
	if wanted.Algorithm != there.Algorithm.Type {
		steps = append(steps, step("changing the algorithm", func(ctx context.Context, api client, lb lb) (action, answer, error) {
			return api.ChangeAlgorithm(ctx, lb, hcloud.LoadBalancerChangeAlgorithmOpts{Type: wanted.Algorithm})
		}))
	}
	steps = append(steps, network...)
	if wanted.Public && !there.PublicNet.Enabled {
		steps = append(steps, step("switching the public network on", func(ctx context.Context, api client, lb lb) (action, answer, error) {
			return api.EnablePublicInterface(ctx, lb)
		}))
	}
	for _, dns := range []struct {
		ip     net.IP
		is     string
		wanted *string
	}{{there.PublicNet.IPv4.IP, there.PublicNet.IPv4.DNSPtr, wanted.IPv4DNS}, {there.PublicNet.IPv6.IP, there.PublicNet.IPv6.DNSPtr, wanted.IPv6DNS}} {
		if dns.wanted != nil && *dns.wanted != dns.is && dns.ip != nil {
			steps = append(steps, step("setting the reverse DNS of "+dns.ip.String(), func(ctx context.Context, api client, lb lb) (action, answer, error) {
				return api.ChangeDNSPtr(ctx, lb, dns.ip.String(), dns.wanted)
			}))
		}
	}
	lessServices, moreServices := serviceSteps(there, wanted)
	var lessTargets, moreTargets []Step
	if !wanted.LeaveTargets {
		lessTargets, moreTargets = targetSteps(there, wanted.Targets)
	}
	steps = append(append(steps, lessServices...), lessTargets...)
	if !fits && !smaller {
		steps = append(steps, kind...)
	}
	steps = append(append(steps, moreServices...), moreTargets...)
	if smaller {
		steps = append(steps, kind...)
	}
	// The API keeps the public interface as long as it leads to a target.
	if !wanted.Public && there.PublicNet.Enabled {
		steps = append(steps, step("switching the public network off", func(ctx context.Context, api client, lb lb) (action, answer, error) {
			return api.DisablePublicInterface(ctx, lb)
		}))
	}
	return steps
}

func typeSteps(there *hcloud.LoadBalancer, wanted *Wanted) []Step {
	if kind := there.LoadBalancerType; wanted.Type == "" || kind != nil && kind.Name == wanted.Type {
		return nil
	}
	change := step("changing the type to "+wanted.Type, func(ctx context.Context, api *hcloud.LoadBalancerClient, lb *hcloud.LoadBalancer) (*hcloud.Action, *hcloud.Response, error) {
		return api.ChangeType(ctx, lb, hcloud.LoadBalancerChangeTypeOpts{LoadBalancerType: &hcloud.LoadBalancerType{Name: wanted.Type}})
	})
	change.Type = true
	return []Step{change}
}

func networkSteps(there *hcloud.LoadBalancer, wanted *Wanted) (steps []Step) {
	attached := false
	for _, private := range there.PrivateNet {
		if private.Network == nil {
			continue
		}
		network := private.Network
		if network.ID == wanted.Network && (wanted.PrivateIP == nil || wanted.PrivateIP.Equal(private.IP)) {
			attached = true
			continue
		}
		detach := step(fmt.Sprintf("detaching network %d", network.ID), func(ctx context.Context, api *hcloud.LoadBalancerClient, lb *hcloud.LoadBalancer) (*hcloud.Action, *hcloud.Response, error) {
			return api.DetachFromNetwork(ctx, lb, hcloud.LoadBalancerDetachFromNetworkOpts{Network: network})
		})
		detach.Network, detach.Former = true, &private
		steps = append(steps, detach)
	}
	if wanted.Network != 0 && !attached {
		steps = append(steps, Attach(&hcloud.Network{ID: wanted.Network}, wanted.PrivateIP, wanted.Subnet))
	}
	return steps
}

// Attach returns the step that attaches a load balancer to a network.
func Attach(network *hcloud.Network, ip net.IP, subnet *net.IPNet) Step {
	attach := step(fmt.Sprintf("attaching network %d", network.ID), func(ctx context.Context, api *hcloud.LoadBalancerClient, lb *hcloud.LoadBalancer) (*hcloud.Action, *hcloud.Response, error) {
		return api.AttachToNetwork(ctx, lb, hcloud.LoadBalancerAttachToNetworkOpts{Network: network, IP: ip, IPRange: subnet})
	})
	attach.Network = true
	return attach
}

// Moves reports whether the load balancer has to be detached from its network to get the annotation's private address.
func Moves(there *hcloud.LoadBalancer, wanted *Wanted) bool {
	return wanted.PrivateIP != nil && slices.ContainsFunc(networkSteps(there, wanted), func(step Step) bool { return step.Former != nil })
}

// CheckAddress returns an error if the annotation's private address is outside of the network's
// subnets, reserved there, or an address of a server or of another load balancer.
func CheckAddress(wanted *Wanted, there *hcloud.LoadBalancer, network *hcloud.Network, servers []*hcloud.Server, all []*hcloud.LoadBalancer) error {
	ip := wanted.PrivateIP
	reserved := func(subnet hcloud.NetworkSubnet) bool { return ip.Equal(subnet.Gateway) || ip.Equal(subnet.IPRange.IP) }
	inside := slices.ContainsFunc(network.Subnets, func(subnet hcloud.NetworkSubnet) bool {
		return subnet.IPRange != nil && subnet.IPRange.Contains(ip) && !reserved(subnet) && (wanted.Subnet == nil || subnet.IPRange.String() == wanted.Subnet.String())
	})
	if !inside {
		return sdk.Invalid("the annotation %sprivate-ipv4: %q: network %d has no subnet in which it can be used; right would be a free address of a subnet", Prefix, ip, network.ID).Because("AnnotationInvalid")
	}
	taken := func(what string, id int64) error {
		return sdk.Precondition("the annotation %sprivate-ipv4: %q: it is the address of %s %d; choose a free one", Prefix, ip, what, id).Because("AddressTaken")
	}
	for _, server := range servers {
		for _, private := range server.PrivateNet {
			if private.Network != nil && private.Network.ID == network.ID && slices.ContainsFunc(append(private.Aliases, private.IP), ip.Equal) {
				return taken("server", server.ID)
			}
		}
	}
	for _, lb := range all {
		for _, private := range lb.PrivateNet {
			if lb.ID != there.ID && private.Network != nil && private.Network.ID == network.ID && private.IP.Equal(ip) {
				return taken("load balancer", lb.ID)
			}
		}
	}
	return nil
}

// compared returns a listener for a comparison: with the values that the API fills in, and with only the IDs of certificates.
func compared(service hcloud.LoadBalancerService) hcloud.LoadBalancerService {
	ids := []*hcloud.Certificate{}
	for _, certificate := range service.HTTP.Certificates {
		ids = append(ids, &hcloud.Certificate{ID: certificate.ID})
	}
	slices.SortFunc(ids, func(one, other *hcloud.Certificate) int { return int(one.ID - other.ID) })
	service.HTTP.Certificates = ids
	if service.Protocol == hcloud.LoadBalancerServiceProtocolTCP {
		service.HTTP = hcloud.LoadBalancerServiceHTTP{}
	} else if service.HTTP.TimeoutIdle == 0 {
		service.HTTP.TimeoutIdle = defaultTimeoutIdle // For an API that does not return the field.
	}
	if service.HealthCheck.Protocol == hcloud.LoadBalancerServiceProtocolTCP {
		service.HealthCheck.HTTP = nil
	}
	return service
}

// serviceSteps returns the calls that remove ports, and those that add or change ports.
func serviceSteps(there *hcloud.LoadBalancer, wanted *Wanted) (less, more []Step) {
	is := map[int]hcloud.LoadBalancerService{}
	for _, service := range there.Services {
		is[service.ListenPort] = service
	}
	asked := map[int]bool{}
	for _, service := range wanted.Services {
		asked[service.ListenPort] = true
	}
	for _, service := range there.Services {
		if !asked[service.ListenPort] {
			port := service.ListenPort
			less = append(less, step(fmt.Sprintf("removing port %d", port), func(ctx context.Context, api *hcloud.LoadBalancerClient, lb *hcloud.LoadBalancer) (*hcloud.Action, *hcloud.Response, error) {
				return api.DeleteService(ctx, lb, port)
			}))
		}
	}
	for _, service := range wanted.Services {
		old, exists := is[service.ListenPort]
		switch {
		case !exists:
			more = append(more, step(fmt.Sprintf("adding port %d", service.ListenPort), func(ctx context.Context, api *hcloud.LoadBalancerClient, lb *hcloud.LoadBalancer) (*hcloud.Action, *hcloud.Response, error) {
				o := createService(service, false)
				return api.AddService(ctx, lb, hcloud.LoadBalancerAddServiceOpts{
					Protocol: o.Protocol, ListenPort: o.ListenPort, DestinationPort: o.DestinationPort, Proxyprotocol: o.Proxyprotocol, HTTP: (*hcloud.LoadBalancerAddServiceOptsHTTP)(o.HTTP),
					HealthCheck: &hcloud.LoadBalancerAddServiceOptsHealthCheck{
						Protocol: o.HealthCheck.Protocol, Port: o.HealthCheck.Port, Interval: o.HealthCheck.Interval, Timeout: o.HealthCheck.Timeout, Retries: o.HealthCheck.Retries,
						HTTP: (*hcloud.LoadBalancerAddServiceOptsHealthCheckHTTP)(o.HealthCheck.HTTP),
					},
				})
			}))
		case !sdk.Same(compared(old), compared(service)):
			more = append(more, step(fmt.Sprintf("changing port %d", service.ListenPort), func(ctx context.Context, api *hcloud.LoadBalancerClient, lb *hcloud.LoadBalancer) (*hcloud.Action, *hcloud.Response, error) {
				o := createService(service, true)
				return api.UpdateService(ctx, lb, service.ListenPort, hcloud.LoadBalancerUpdateServiceOpts{
					Protocol: o.Protocol, DestinationPort: o.DestinationPort, Proxyprotocol: o.Proxyprotocol, HTTP: (*hcloud.LoadBalancerUpdateServiceOptsHTTP)(o.HTTP),
					HealthCheck: &hcloud.LoadBalancerUpdateServiceOptsHealthCheck{
						Protocol: o.HealthCheck.Protocol, Port: o.HealthCheck.Port, Interval: o.HealthCheck.Interval, Timeout: o.HealthCheck.Timeout, Retries: o.HealthCheck.Retries,
						HTTP: (*hcloud.LoadBalancerUpdateServiceOptsHealthCheckHTTP)(o.HealthCheck.HTTP),
					},
				})
			}))
		}
	}
	return less, more
}

// createService returns the options with each field, also with the API's default, so that the call replaces earlier values of the Service.
func createService(s hcloud.LoadBalancerService, change bool) hcloud.LoadBalancerCreateOptsService {
	o := hcloud.LoadBalancerCreateOptsService{
		Protocol: s.Protocol, ListenPort: &s.ListenPort, DestinationPort: &s.DestinationPort, Proxyprotocol: &s.Proxyprotocol,
		HealthCheck: &hcloud.LoadBalancerCreateOptsServiceHealthCheck{
			Protocol: s.HealthCheck.Protocol, Port: &s.HealthCheck.Port, Interval: &s.HealthCheck.Interval, Timeout: &s.HealthCheck.Timeout, Retries: &s.HealthCheck.Retries,
		},
	}
	if s.Protocol != hcloud.LoadBalancerServiceProtocolTCP {
		o.HTTP = &hcloud.LoadBalancerCreateOptsServiceHTTP{CookieName: &s.HTTP.CookieName, CookieLifetime: &s.HTTP.CookieLifetime, StickySessions: &s.HTTP.StickySessions}
		if change || s.HTTP.TimeoutIdle != defaultTimeoutIdle { // Older descriptions of the API lack this field.
			o.HTTP.TimeoutIdle = &s.HTTP.TimeoutIdle
		}
		if s.Protocol == hcloud.LoadBalancerServiceProtocolHTTPS {
			o.HTTP.Certificates, o.HTTP.RedirectHTTP = s.HTTP.Certificates, &s.HTTP.RedirectHTTP
		}
	}
	if http := s.HealthCheck.HTTP; http != nil {
		o.HealthCheck.HTTP = &hcloud.LoadBalancerCreateOptsServiceHealthCheckHTTP{Domain: &http.Domain, Path: &http.Path, Response: &http.Response, StatusCodes: http.StatusCodes, TLS: &http.TLS}
	}
	return o
}

// TargetSteps returns the calls that set the wanted targets.
func TargetSteps(there *hcloud.LoadBalancer, wanted []Target) []Step {
	less, more := targetSteps(there, wanted)
	return append(less, more...)
}

// targetSteps returns the calls that remove targets, and those that add targets.
func targetSteps(there *hcloud.LoadBalancer, wanted []Target) (less, more []Step) {
	is, asked := map[Target]bool{}, map[Target]bool{}
	for _, target := range wanted {
		asked[target.key()] = true
	}
	for _, target := range TargetsOf(there) {
		is[target] = true
		if !asked[target] {
			less = append(less, target.remove())
		}
	}
	for _, target := range wanted {
		if !is[target.key()] {
			more = append(more, target.add())
		}
	}
	return less, more
}

func (t Target) String() string {
	switch {
	case t.Server != 0:
		return fmt.Sprintf("server %d", t.Server)
	case t.IP != "":
		return "address " + t.IP
	default:
		return "servers with " + t.Selector
	}
}

func (t Target) add() Step {
	add := step("adding "+t.String(), func(ctx context.Context, api *hcloud.LoadBalancerClient, lb *hcloud.LoadBalancer) (*hcloud.Action, *hcloud.Response, error) {
		switch {
		case t.Server != 0:
			return api.AddServerTarget(ctx, lb, hcloud.LoadBalancerAddServerTargetOpts{Server: &hcloud.Server{ID: t.Server}, UsePrivateIP: &t.Private})
		case t.IP != "":
			return api.AddIPTarget(ctx, lb, hcloud.LoadBalancerAddIPTargetOpts{IP: net.ParseIP(t.IP)})
		default:
			return api.AddLabelSelectorTarget(ctx, lb, hcloud.LoadBalancerAddLabelSelectorTargetOpts{Selector: t.Selector, UsePrivateIP: &t.Private})
		}
	})
	add.Node = t.Node
	return add
}

func (t Target) remove() Step {
	remove := step("removing "+t.String(), func(ctx context.Context, api *hcloud.LoadBalancerClient, lb *hcloud.LoadBalancer) (*hcloud.Action, *hcloud.Response, error) {
		switch {
		case t.Server != 0:
			return api.RemoveServerTarget(ctx, lb, &hcloud.Server{ID: t.Server})
		case t.IP != "":
			return api.RemoveIPTarget(ctx, lb, net.ParseIP(t.IP))
		default:
			return api.RemoveLabelSelectorTarget(ctx, lb, t.Selector)
		}
	})
	remove.Removes = &t
	return remove
}

// CreateOptions returns the options of the call that makes a load balancer with its mark, its services, and what else that call can set. Later calls do the
// rest. So if the answer is lost, the next call finds the load balancer by its mark.
func CreateOptions(wanted *Wanted) hcloud.LoadBalancerCreateOpts {
	opts := hcloud.LoadBalancerCreateOpts{
		Name: wanted.Name, LoadBalancerType: &hcloud.LoadBalancerType{Name: wanted.Type}, Labels: wanted.Labels, PublicInterface: &wanted.Public, NetworkZone: hcloud.NetworkZone(wanted.NetworkZone),
		Algorithm: &hcloud.LoadBalancerAlgorithm{Type: wanted.Algorithm},
	}
	if wanted.Location != "" {
		opts.Location = &hcloud.Location{Name: wanted.Location}
	}
	plain := wanted.Network != 0 && wanted.PrivateIP == nil && wanted.Subnet == nil
	if plain {
		opts.Network = &hcloud.Network{ID: wanted.Network}
	}
	for _, service := range wanted.Services {
		opts.Services = append(opts.Services, createService(service, false))
	}
	for _, target := range wanted.Targets {
		if target.Server != 0 && (!target.Private || plain) {
			opts.Targets = append(opts.Targets, hcloud.LoadBalancerCreateOptsTarget{
				Type: hcloud.LoadBalancerTargetTypeServer, Server: hcloud.LoadBalancerCreateOptsTargetServer{Server: &hcloud.Server{ID: target.Server}}, UsePrivateIP: &target.Private,
			})
		}
	}
	return opts
}
