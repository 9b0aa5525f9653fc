package plan

import (
	"slices"
	"strconv"

	"github.com/digitalocean/godo"

	"github.com/grpc-ccm/grpc-ccm/providers/go/sdk"
)

func checkPorts(service *sdk.Service) error {
	if len(service.Ports) == 0 {
		return sdk.Invalid("spec.ports is empty; a load balancer listens on at least one port")
	}
	listeners := map[string]bool{}
	for _, port := range service.Ports {
		if port.Port < 1 || port.Port > 65_535 {
			return sdk.Invalid("spec.ports[].port %d is not within 1 to 65535", port.Port)
		}
		if port.NodePort != nil && (*port.NodePort < 1 || *port.NodePort > 65_535) {
			return sdk.Invalid("spec.ports[].nodePort %d is not within 1 to 65535", *port.NodePort)
		}
		if port.Protocol != "TCP" && port.Protocol != "UDP" {
			return sdk.Invalid("spec.ports[].protocol %q of port %d: DigitalOcean's load balancers have TCP and UDP", port.Protocol, port.Port)
		}
		listener := port.Protocol + strconv.Itoa(port.Port)
		if listeners[listener] {
			return sdk.Invalid("spec.ports has %s %d twice; a load balancer listens once on it", port.Protocol, port.Port)
		}
		listeners[listener] = true
	}
	return nil
}

func nodePort(v *values, port sdk.ServicePort) int {
	if port.NodePort == nil {
		if v.err == nil {
			v.err = sdk.Invalid("port %d has no node port, which a load balancer of the type REGIONAL balances to; right would be spec.allocateLoadBalancerNodePorts: true", port.Port)
		}
		return 0
	}
	return *port.NodePort
}

// The forwarding rules, in the order of their ports.
func forwardingRules(v *values, service *sdk.Service, kind, certificate string) (rules []godo.ForwardingRule) {
	protocols := portProtocols(v, service, certificate)
	for _, port := range service.Ports {
		if kind == godo.LoadBalancerTypeRegionalNetwork {
			protocol := map[string]string{"TCP": "tcp", "UDP": "udp"}[port.Protocol]
			rules = append(rules, godo.ForwardingRule{EntryProtocol: protocol, EntryPort: port.Port, TargetProtocol: protocol, TargetPort: port.Port})
			continue
		}
		protocol := protocols[port.Port]
		if port.Protocol == "UDP" {
			protocol = "udp"
		}
		rule := godo.ForwardingRule{EntryProtocol: protocol, EntryPort: port.Port, TargetProtocol: protocol, TargetPort: nodePort(v, port)}
		if protocol == "https" || protocol == "http2" {
			secure(v, &rule, certificate)
		}
		rules = append(rules, rule)
	}
	if port := v.number("http3-port", 0, 1, 65_535); port != 0 && kind == godo.LoadBalancerTypeRegional {
		rules = append(rules, http3(v, service, port, certificate)...)
	}
	slices.SortFunc(rules, byPort)
	return rules
}

func byPort(one, other godo.ForwardingRule) int {
	if one.EntryPort != other.EntryPort {
		return one.EntryPort - other.EntryPort
	}
	if one.EntryProtocol < other.EntryProtocol {
		return -1
	}
	return 1
}

// The protocol of each port of the Service. The caller replaces it for UDP ports.
func portProtocols(v *values, service *sdk.Service, certificate string) map[int]string {
	unless := v.word("protocol", "tcp", "tcp", "http", "https", "http2")
	if v.text("protocol") == "http3" { // DigitalOcean's controller accepts this value. DigitalOcean's API then refuses the rule, because a target cannot have HTTP/3.
		v.err = sdk.Invalid("annotation %sprotocol: \"http3\" is no protocol for all ports; right would be %shttp3-port beside %stls-ports", annotationBase, annotationBase, annotationBase)
	}
	secure := certificate != "" || v.has("certificate-id") || v.has("certificate-name") || v.flag("tls-passthrough")
	tls, http2 := v.ports("tls-ports", service), v.ports("http2-ports", service)
	if secure && len(tls) == 0 && !slices.Contains(http2, 443) {
		tls = []int{443}
	}
	protocols := map[int]string{}
	for _, port := range service.Ports {
		protocols[port.Port] = unless
	}
	said := map[int]string{}
	for _, list := range []struct {
		name, protocol string
		ports          []int
	}{{"http-ports", "http", v.ports("http-ports", service)}, {"tls-ports", "https", tls}, {"http2-ports", "http2", http2}} {
		for _, port := range list.ports {
			if other := said[port]; other != "" && v.has(list.name) {
				v.refuse(list.name, "port %d is in %s%s too; name it in one of them", port, annotationBase, other)
			}
			said[port], protocols[port] = list.name, list.protocol
		}
	}
	return protocols
}

func secure(v *values, rule *godo.ForwardingRule, certificate string) {
	passthrough := v.flag("tls-passthrough")
	switch {
	case passthrough && certificate != "":
		v.refuse("tls-passthrough", "it conflicts with the certificate; set only one of them")
	case passthrough:
		rule.TlsPassthrough = true
	case certificate != "":
		rule.CertificateID, rule.TargetProtocol = certificate, "http"
	default:
		v.refuse("certificate-id", "port %d is to have %s and there is neither a certificate nor %stls-passthrough", rule.EntryPort, rule.EntryProtocol, annotationBase)
	}
}

func http3(v *values, service *sdk.Service, port int, certificate string) []godo.ForwardingRule {
	if v.flag("tls-passthrough") || certificate == "" {
		v.refuse("http3-port", "HTTP/3 needs a certificate, and no %stls-passthrough", annotationBase)
	}
	for _, p := range service.Ports {
		if p.Port == port {
			return []godo.ForwardingRule{{EntryProtocol: "http3", EntryPort: port, CertificateID: certificate, TargetProtocol: "http", TargetPort: nodePort(v, p)}}
		}
	}
	v.refuse("http3-port", "%d is no port of the Service", port)
	return nil
}

// healthCheck returns the check of kube-proxy, or that of externalTrafficPolicy Local, unless annotations of the Service set another.
func healthCheck(v *values, service *sdk.Service) *godo.HealthCheck {
	check := &godo.HealthCheck{
		Protocol: "http", Path: "/healthz", Port: kubeProxyHealthPort, ProxyProtocol: godo.PtrTo(false),
		CheckIntervalSeconds:   v.number("healthcheck-check-interval-seconds", 3, 3, 300),
		ResponseTimeoutSeconds: v.number("healthcheck-response-timeout-seconds", 5, 3, 300),
		UnhealthyThreshold:     v.number("healthcheck-unhealthy-threshold", 3, 2, 10),
		HealthyThreshold:       v.number("healthcheck-healthy-threshold", 5, 2, 10),
	}
	if service.ExternalTrafficPolicy == "Local" && service.HealthCheckNodePort != 0 {
		check.Port = service.HealthCheckNodePort
	}
	if !v.has("override-health-check") {
		for _, name := range []string{"healthcheck-port", "healthcheck-path", "healthcheck-protocol"} {
			if v.has(name) {
				v.warn("annotation %s%s does nothing without %soverride-health-check", annotationBase, name, annotationBase)
			}
		}
		return check
	}
	unless := "tcp"
	if v.has("healthcheck-path") {
		unless = "http"
	}
	check.Protocol, check.Path, check.ProxyProtocol = v.word("healthcheck-protocol", unless, "tcp", "http", "https"), "", nil
	if check.Protocol != "tcp" {
		check.Path = or(v.text("healthcheck-path"), "/")
	}
	tcp := slices.DeleteFunc(slices.Clone(service.Ports), func(port sdk.ServicePort) bool { return port.Protocol != "TCP" })
	if ports := v.ports("healthcheck-port", service); len(ports) > 0 {
		tcp = slices.DeleteFunc(tcp, func(port sdk.ServicePort) bool { return len(ports) != 1 || port.Port != ports[0] })
	}
	if len(tcp) == 0 {
		v.refuse("healthcheck-port", "%q is no single TCP port of the Service, which a health check needs", v.text("healthcheck-port"))
		return check
	}
	check.Port = nodePort(v, tcp[0])
	return check
}
