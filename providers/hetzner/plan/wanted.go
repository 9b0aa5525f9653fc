package plan

import (
	"cmp"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/grpc-ccm/grpc-ccm/providers/go/sdk"
)

// Settings are the operator's settings.
type Settings struct {
	InstanceSettings
	// Type, Location, NetworkZone and Algorithm are the defaults for load balancers whose Service
	// does not set them. If empty, a new load balancer is an lb11, the algorithm is round_robin, and
	// a Service that names no place gets no load balancer (LocationMissing).
	Type, Location, NetworkZone, Algorithm string
	// The other fields are the defaults of the annotations with these names.
	UsePrivateIP, DisablePrivateIngress, DisablePublicNetwork, DisableIPv6, ProxyProtocol bool
	SubnetIPRange                                                                         string
	HealthInterval, HealthTimeout                                                         time.Duration
	HealthRetries                                                                         int
	// TargetSelector selects the targets of all load balancers by the servers' labels in Hetzner Cloud. If empty, the targets are the servers of the
	// Nodes.
	TargetSelector string
	// Robot says that dedicated servers can be targets, by their addresses.
	Robot bool
}

// The default type of a load balancer, and the API's defaults.
const (
	defaultType        = "lb11"
	defaultInterval    = 15 * time.Second
	defaultTimeout     = 10 * time.Second
	defaultRetries     = 3
	defaultCookie      = "HCLBSTICKY"
	defaultLifetime    = 300 * time.Second
	defaultTimeoutIdle = 60 * time.Second
)

// Wanted is the desired state of a load balancer.
type Wanted struct {
	// If Name or Type is empty, the existing one stays. Kind has the limits of the wanted or existing type.
	Name, Type            string
	Kind                  *hcloud.LoadBalancerType
	Labels                map[string]string
	Location, NetworkZone string
	Algorithm             hcloud.LoadBalancerAlgorithmType
	Public                bool
	Network               int64
	PrivateIP             net.IP
	Subnet                *net.IPNet
	Services              []hcloud.LoadBalancerService
	IPv4DNS, IPv6DNS      *string
	// Targets are the desired targets; LeaveTargets leaves the existing ones alone.
	Targets      []Target
	LeaveTargets bool
}

// Certificates returns the names of certificates in the annotation. The caller looks them up before Want.
func Certificates(service *sdk.Service) (names []string) {
	for _, item := range read(service).list("http-certificates") {
		if _, isID := ParseID(item); !isID {
			names = append(names, item)
		}
	}
	return names
}

// Want returns the desired load balancer of a Service. The argument `there` has the existing one, or nil; `certificates` has the IDs for the names of Certificates.
func Want(service *sdk.Service, call *sdk.Call, settings *Settings, there *hcloud.LoadBalancer, certificates map[string]int64) (*Wanted, error) {
	r := read(service)
	wanted := &Wanted{
		Algorithm: hcloud.LoadBalancerAlgorithmType(r.oneOf("algorithm-type", cmp.Or(settings.Algorithm, "round_robin"), "round_robin", "least_connections")),
		Public:    !r.truth("disable-public-network", settings.DisablePublicNetwork), Network: settings.NetworkID, PrivateIP: r.address("private-ipv4"),
		Subnet: r.network("private-subnet-ip-range", settings.SubnetIPRange), Type: r.text("type", settings.Type), Name: r.text("name", ""),
		Location: r.text("location", ""), NetworkZone: r.text("network-zone", ""), LeaveTargets: true,
	}
	for name, pointer := range map[string]**string{"ipv4-rdns": &wanted.IPv4DNS, "ipv6-rdns": &wanted.IPv6DNS} {
		if r.has(name) {
			text := r.text(name, "")
			*pointer = &text
		}
	}
	hidden := r.truth("disable-private-ingress", settings.DisablePrivateIngress)
	r.truth("ipv6-disabled", false)
	if wanted.Location != "" && wanted.NetworkZone != "" {
		r.fail("network-zone", "the location is given too; right would be one of the two")
	}
	if settings.NetworkID == 0 {
		for _, name := range []string{"private-ipv4", "private-subnet-ip-range"} {
			if r.has(name) {
				r.fail(name, "the provider has no network; start it with --network")
			}
		}
		if r.truth("use-private-ip", settings.UsePrivateIP) {
			r.fail("use-private-ip", "the provider has no network; start it with --network")
		}
		if !wanted.Public {
			r.fail("disable-public-network", "the provider has no network, so that nothing would reach the load balancer; start it with --network")
		}
	} else if !wanted.Public && !r.truth("use-private-ip", settings.UsePrivateIP) {
		r.fail("disable-public-network", "the load balancer reaches its targets by their public addresses; set "+Prefix+"use-private-ip: \"true\" too")
	}
	if !wanted.Public && hidden && r.text("hostname", "") == "" {
		r.fail("disable-public-network", "the private addresses are hidden too, so the Service would get no address; set "+Prefix+"disable-private-ingress: \"false\", or "+Prefix+"hostname")
	}
	if there == nil {
		for _, name := range []string{"ipv4", "ipv6"} {
			if r.has(name) {
				r.fail(name, "Hetzner chooses the addresses of a new load balancer; remove the annotation")
			}
		}
	}
	if r.err == nil {
		wanted.Services, r.err = listeners(r, service, settings, certificates)
	}
	if r.err != nil {
		return nil, r.err
	}
	if len(service.SourceRanges) > 0 {
		return nil, sdk.Invalid("spec.loadBalancerSourceRanges: load balancers of Hetzner Cloud let everybody in; remove the ranges, or close the Nodes with a firewall").Because("SourceRangesUnsupported")
	}
	labelsThere := map[string]string{}
	if there == nil {
		wanted.Name, wanted.Type = Name(call, service), cmp.Or(wanted.Type, defaultType)
		if wanted.Location == "" && wanted.NetworkZone == "" {
			wanted.Location, wanted.NetworkZone = settings.Location, settings.NetworkZone
			if r.has("location") {
				wanted.Location = ""
			}
			if wanted.Location != "" {
				wanted.NetworkZone = ""
			}
		}
		if wanted.Location == "" && wanted.NetworkZone == "" {
			return nil, sdk.Invalid("nothing says where the load balancer shall be: set the annotation %slocation or %snetwork-zone, or start the provider with --load-balancer-location", Prefix, Prefix).Because("LocationMissing")
		}
	} else {
		labelsThere = there.Labels
		if err := stays(wanted, there, service); err != nil {
			return nil, err
		}
	}
	wanted.Labels = labelsOf(labelsThere, call, service)
	return wanted, nil
}

// KeepType keeps the present type, and leaves out the new ports and targets for which it has no room.
func (w *Wanted) KeepType(there *hcloud.LoadBalancer) {
	w.Type, w.Kind = "", there.LoadBalancerType
	if w.Kind == nil {
		return
	}
	w.Targets = limited(w.Targets, there, w.Kind.MaxTargets)
	most := w.Kind.MaxServices
	if most <= 0 || len(w.Services) <= most {
		return
	}
	// Existing ports come first.
	isNew := func(service hcloud.LoadBalancerService) int {
		if slices.ContainsFunc(there.Services, func(other hcloud.LoadBalancerService) bool { return other.ListenPort == service.ListenPort }) {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(w.Services, func(one, other hcloud.LoadBalancerService) int { return isNew(one) - isNew(other) })
	w.Services = w.Services[:most]
}

// stays returns an error if an annotation asks for another location, network zone or public address than the existing load balancer has: none
// of them can change.
func stays(wanted *Wanted, there *hcloud.LoadBalancer, service *sdk.Service) error {
	for _, fact := range []struct{ name, asked, is string }{
		{"location", wanted.Location, locationOf(there).Name}, {"network-zone", wanted.NetworkZone, string(locationOf(there).NetworkZone)},
		{"ipv4", service.Annotations[Prefix+"ipv4"], there.PublicNet.IPv4.IP.String()}, {"ipv6", service.Annotations[Prefix+"ipv6"], there.PublicNet.IPv6.IP.String()},
	} {
		if fact.asked != "" && fact.asked != fact.is {
			return sdk.Invalid("the annotation %s%s: %q: the load balancer %d has %q, and that cannot change; restore that value, or delete the Service and create it again", Prefix, fact.name, fact.asked, there.ID, fact.is).Because("AnnotationInvalid")
		}
	}
	return nil
}

func locationOf(lb *hcloud.LoadBalancer) hcloud.Location {
	if lb.Location == nil {
		return hcloud.Location{}
	}
	return *lb.Location
}

// CheckID returns an error if the annotation with a load balancer's ID does not name the found one. A user may write any ID, so the annotation never makes a
// load balancer this Service's.
func CheckID(service *sdk.Service, found *Found) error {
	text, is := service.Annotations[AnnotationID]
	if !is {
		return nil
	}
	id, ok := ParseID(text)
	if !ok {
		return sdk.Invalid("the annotation %s: %q is no load balancer's ID", AnnotationID, text).Because("AnnotationInvalid")
	}
	if found == nil || found.LB.ID != id {
		return sdk.Conflict("the annotation %s names the load balancer %d, which neither a label, nor the name made of the Service's UID, nor an address in the Service's status, nor an earlier answer says to be this Service's; remove the annotation, or give that load balancer the label %s=%s and grant its adoption", AnnotationID, id, LabelService, sdk.LabelValue.Tag(service.UID)).Because("LoadBalancerNotOurs")
	}
	return nil
}

func listeners(r *reader, service *sdk.Service, settings *Settings, certificates map[string]int64) (all []hcloud.LoadBalancerService, err error) {
	protocol := hcloud.LoadBalancerServiceProtocol(r.oneOf("protocol", "tcp", "tcp", "http", "https"))
	shared := hcloud.LoadBalancerService{Protocol: protocol, Proxyprotocol: r.truth("uses-proxyprotocol", settings.ProxyProtocol)}
	http := hcloud.LoadBalancerServiceHTTP{
		CookieName: r.text("http-cookie-name", defaultCookie), CookieLifetime: r.duration("http-cookie-lifetime", defaultLifetime, time.Second, 24*365*time.Hour),
		RedirectHTTP: r.truth("http-redirect-http", false), StickySessions: r.truth("http-sticky-sessions", false),
		TimeoutIdle: r.duration("http-timeout-idle", defaultTimeoutIdle, 30*time.Second, 300*time.Second),
	}
	if r.oneOf("certificate-type", "uploaded", "uploaded", "managed") == "managed" && !r.has("http-certificates") {
		r.fail("certificate-type", "this provider makes no certificates; make a managed certificate in the project and name it in "+Prefix+"http-certificates")
	}
	for _, item := range r.list("http-certificates") {
		id, isID := ParseID(item)
		if !isID {
			if id = certificates[item]; id == 0 {
				r.fail("http-certificates", "the project has no certificate "+item)
			}
		}
		http.Certificates = append(http.Certificates, &hcloud.Certificate{ID: id})
	}
	slices.SortFunc(http.Certificates, func(one, other *hcloud.Certificate) int { return cmp.Compare(one.ID, other.ID) })
	switch {
	case protocol == "https" && len(http.Certificates) == 0:
		r.fail("protocol", "https needs a certificate in "+Prefix+"http-certificates")
	case protocol == "tcp":
		for _, name := range []string{"http-certificates", "http-cookie-name", "http-cookie-lifetime", "http-redirect-http", "http-sticky-sessions", "http-timeout-idle"} {
			if r.has(name) {
				r.fail(name, "it needs "+Prefix+"protocol to be http or https")
			}
		}
	case protocol == "http" && http.RedirectHTTP:
		r.fail("http-redirect-http", "it needs "+Prefix+"protocol to be https")
	case protocol == "http" && len(http.Certificates) > 0:
		r.fail("http-certificates", "it needs "+Prefix+"protocol to be https")
	}
	if protocol != "tcp" {
		shared.HTTP = http
	}
	check := health(r, service, settings, protocol)
	if r.err != nil {
		return nil, r.err
	}
	if len(service.Ports) == 0 {
		return nil, sdk.Invalid("the Service has no ports").Because("PortsMissing")
	}
	for _, port := range service.Ports {
		switch {
		case port.Protocol != "TCP":
			return nil, sdk.Invalid("port %d has the protocol %s; load balancers of Hetzner Cloud have TCP alone", port.Port, port.Protocol).Because("ProtocolUnsupported")
		case port.Port < 1 || port.Port > 65535:
			return nil, sdk.Invalid("port %d is not within 1 to 65535", port.Port).Because("PortInvalid")
		case port.NodePort == nil || *port.NodePort < 1:
			return nil, sdk.Invalid("port %d has no node port, by which the load balancer reaches the Nodes; allocateLoadBalancerNodePorts must be true", port.Port).Because("NodePortMissing")
		}
		listener := shared
		listener.ListenPort, listener.DestinationPort, listener.HealthCheck = port.Port, *port.NodePort, check
		if listener.HealthCheck.Port == 0 {
			listener.HealthCheck.Port = *port.NodePort
		}
		all = append(all, listener)
	}
	return all, nil
}

// health returns the health check. With externalTrafficPolicy Local kube-proxy answers by HTTP whether a Node has endpoints.
func health(r *reader, service *sdk.Service, settings *Settings, protocol hcloud.LoadBalancerServiceProtocol) hcloud.LoadBalancerServiceHealthCheck {
	names := []string{"health-check-protocol", "health-check-port", "health-check-interval", "health-check-timeout", "health-check-retries", "health-check-http-domain", "health-check-http-path", "health-check-http-validate-certificate", "http-status-codes"}
	asked := slices.ContainsFunc(names, r.has)
	local := service.ExternalTrafficPolicy == "Local" && service.HealthCheckNodePort != 0 && !r.has("health-check-port") && !r.has("health-check-protocol")
	unless := "tcp"
	if asked && protocol != "tcp" || local {
		unless = "http"
	}
	kind := r.oneOf("health-check-protocol", unless, "tcp", "http", "https")
	check := hcloud.LoadBalancerServiceHealthCheck{
		Protocol: hcloud.LoadBalancerServiceProtocol(kind), Port: r.number("health-check-port", 0, 1, 65535),
		Interval: r.duration("health-check-interval", cmp.Or(settings.HealthInterval, defaultInterval), 3*time.Second, 60*time.Second),
		Timeout:  r.duration("health-check-timeout", cmp.Or(settings.HealthTimeout, defaultTimeout), time.Second, 60*time.Second),
		Retries:  r.number("health-check-retries", cmp.Or(settings.HealthRetries, defaultRetries), 1, 5),
	}
	if !r.has("health-check-timeout") {
		check.Timeout = min(check.Timeout, check.Interval)
	}
	if check.Timeout > check.Interval {
		r.fail("health-check-timeout", "it is longer than the interval "+check.Interval.String())
	}
	if kind == "tcp" {
		for _, name := range names[5:] {
			if r.has(name) {
				r.fail(name, "it needs "+Prefix+"health-check-protocol to be http")
			}
		}
		return check
	}
	// The API has only tcp and http; https is http with TLS.
	check.Protocol = hcloud.LoadBalancerServiceProtocolHTTP
	check.HTTP = &hcloud.LoadBalancerServiceHealthCheckHTTP{
		Domain: r.text("health-check-http-domain", ""), Path: r.text("health-check-http-path", "/"), StatusCodes: r.list("http-status-codes"),
		TLS: r.truth("health-check-http-validate-certificate", kind == "https"),
	}
	if local {
		check.Port = service.HealthCheckNodePort
		check.HTTP.Path = r.text("health-check-http-path", "/healthz")
	}
	if len(check.HTTP.StatusCodes) == 0 {
		check.HTTP.StatusCodes = []string{"2??", "3??"}
	}
	if strings.ContainsAny(check.HTTP.Path, " \t") || !strings.HasPrefix(check.HTTP.Path, "/") {
		r.fail("health-check-http-path", "right would be a path that begins with / and has no spaces")
	}
	return check
}

// Shown says which of a load balancer's addresses the Service's status has.
type Shown struct {
	Hostname                     string
	IPv6, Private, ProxyProtocol bool
}

// Shows reads the annotations that select the addresses in the Service's status. It ignores invalid annotations, because Ensure refuses them.
func Shows(service *sdk.Service, settings *Settings) Shown {
	r := read(service)
	return Shown{
		Hostname: strings.ToLower(r.text("hostname", "")), IPv6: !r.truth("ipv6-disabled", settings.DisableIPv6), Private: !r.truth("disable-private-ingress", settings.DisablePrivateIngress),
		ProxyProtocol: r.truth("uses-proxyprotocol", settings.ProxyProtocol),
	}
}
