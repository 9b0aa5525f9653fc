package plan

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/grpc-ccm/grpc-ccm/providers/go/sdk"
)

// The annotations of DigitalOcean's own controller.
const (
	annotationBase = "service.beta.kubernetes.io/do-loadbalancer-"
	// AnnotationID names a load balancer by its ID. DigitalOcean's controller uses it; this provider adopts no load balancer by it.
	AnnotationID = "kubernetes.digitalocean.com/load-balancer-id"
	// AnnotationDisown forbids the provider to touch the load balancer.
	AnnotationDisown = "service.kubernetes.io/do-loadbalancer-disown"
	// AnnotationCertificateID names the certificate of listeners with TLS.
	AnnotationCertificateID = annotationBase + "certificate-id"
	// AnnotationCertificateName names that certificate by its name.
	AnnotationCertificateName = annotationBase + "certificate-name"
	// AnnotationType is the type of the load balancer.
	AnnotationType = annotationBase + "type"
	annotationName = annotationBase + "name"
)

// The known annotations; the provider refuses all others that begin with annotationBase.
var known = []string{
	"name", "type", "network", "network-stack", "protocol", "http-ports", "tls-ports", "http2-ports", "http3-port", "tls-passthrough", "certificate-id", "certificate-name",
	"hostname", "algorithm", "size-slug", "size-unit", "sticky-sessions-type", "sticky-sessions-cookie-name", "sticky-sessions-cookie-ttl", "redirect-http-to-https",
	"disable-lets-encrypt-dns-records", "enable-proxy-protocol", "enable-backend-keepalive", "http-idle-timeout-seconds", "deny-rules", "allow-rules", "ip", "subnet-uuid",
	"override-health-check", "healthcheck-port", "healthcheck-path", "healthcheck-protocol", "healthcheck-check-interval-seconds", "healthcheck-response-timeout-seconds",
	"healthcheck-unhealthy-threshold", "healthcheck-healthy-threshold",
}

// The annotations that Want refuses for the type REGIONAL_NETWORK, unless their value turns them off.
var regionalOnly = []string{
	"protocol", "http-ports", "tls-ports", "http2-ports", "http3-port", "tls-passthrough", "certificate-id", "certificate-name", "sticky-sessions-type", "redirect-http-to-https",
	"disable-lets-encrypt-dns-records", "enable-proxy-protocol", "enable-backend-keepalive", "http-idle-timeout-seconds",
}

// values reads annotations. The first invalid one sets err; later results have no meaning.
type values struct {
	annotations map[string]string
	err         error
	// Warnings for the user, which are no failures.
	warnings []string
}

func (v *values) refuse(name, text string, arguments ...any) {
	if v.err == nil {
		v.err = sdk.Invalid("annotation %s: %s", annotationBase+name, fmt.Sprintf(text, arguments...)).Because("AnnotationInvalid")
	}
}

func (v *values) warn(text string, arguments ...any) {
	v.warnings = append(v.warnings, fmt.Sprintf(text, arguments...))
}

func (v *values) text(name string) string {
	return strings.TrimSpace(v.annotations[annotationBase+name])
}

func (v *values) has(name string) bool { return v.text(name) != "" }

func (v *values) word(name, unless string, right ...string) string {
	value := v.text(name)
	if value == "" {
		return unless
	}
	if !slices.Contains(right, value) {
		v.refuse(name, "%q is none of %s", value, strings.Join(right, ", "))
	}
	return value
}

func (v *values) flag(name string) bool {
	value := v.text(name)
	if value == "" {
		return false
	}
	set, err := strconv.ParseBool(value)
	if err != nil {
		v.refuse(name, "%q is neither \"true\" nor \"false\"", value)
	}
	return set
}

func (v *values) number(name string, unless, least, most int) int {
	value := v.text(name)
	if value == "" {
		return unless
	}
	number, err := strconv.Atoi(value)
	if err != nil || number < least || number > most {
		v.refuse(name, "%q is no number from %d to %d", value, least, most)
	}
	return number
}

// Ports of the Service, such as "443,8443".
func (v *values) ports(name string, service *sdk.Service) (ports []int) {
	if !v.has(name) {
		return nil
	}
	for _, text := range strings.Split(v.text(name), ",") {
		port, err := strconv.Atoi(strings.TrimSpace(text))
		if err != nil || !slices.ContainsFunc(service.Ports, func(p sdk.ServicePort) bool { return p.Port == port }) {
			v.refuse(name, "%q is no port of the Service; right would be a list such as %q", strings.TrimSpace(text), strconv.Itoa(service.Ports[0].Port))
			return nil
		}
		ports = append(ports, port)
	}
	return ports
}

// Rules of the firewall, such as "ip:192.0.2.1,cidr:198.51.100.0/24".
func (v *values) rules(name string) (rules []string) {
	if !v.has(name) {
		return nil
	}
	for _, text := range strings.Split(v.text(name), ",") {
		rule := strings.TrimSpace(text)
		kind, source, _ := strings.Cut(rule, ":")
		var err error
		switch kind {
		case "ip":
			_, err = netip.ParseAddr(source)
		case "cidr":
			_, err = netip.ParsePrefix(source)
		default:
			err = strconv.ErrSyntax
		}
		if err != nil {
			v.refuse(name, "%q is no rule; right would be \"ip:192.0.2.1\" or \"cidr:198.51.100.0/24\"", rule)
			return nil
		}
		rules = append(rules, rule)
	}
	slices.Sort(rules)
	return slices.Compact(rules)
}
