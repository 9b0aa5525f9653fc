package plan

import (
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/grpc-ccm/grpc-ccm/providers/go/sdk"
)

// Prefix is the prefix of the annotations of Hetzner's own controller. The other constants are annotations with it.
const (
	Prefix         = "load-balancer.hetzner.cloud/"
	AnnotationName = Prefix + "name"
	AnnotationID   = Prefix + "id"
)

// Honoured are the annotations that the provider reads. The table in docs/hetzner.md has these and those in Refused; a
// test compares them.
var Honoured = []string{
	"algorithm-type", "certificate-type", "disable-private-ingress", "disable-public-network", "health-check-http-domain", "health-check-http-path",
	"health-check-http-validate-certificate", "health-check-interval", "health-check-port", "health-check-protocol", "health-check-retries", "health-check-timeout", "hostname",
	"http-certificates", "http-cookie-lifetime", "http-cookie-name", "http-redirect-http", "http-status-codes", "http-sticky-sessions", "http-timeout-idle", "id", "ipv4", "ipv4-rdns",
	"ipv6", "ipv6-disabled", "ipv6-rdns", "location", "name", "network-zone", "node-selector", "private-ipv4", "private-subnet-ip-range", "protocol", "type", "use-private-ip",
	"uses-proxyprotocol",
}

// Refused are annotations that Hetzner's controller honours and this provider refuses, each with a remedy.
var Refused = map[string]string{
	"http-managed-certificate-name":         "this provider makes no certificates; make a managed certificate in the project and name it in " + Prefix + "http-certificates",
	"http-managed-certificate-domains":      "this provider makes no certificates; make a managed certificate in the project and name it in " + Prefix + "http-certificates",
	"http-managed-certificate-acme-staging": "this provider makes no certificates; make one in the project and name it in " + Prefix + "http-certificates",
}

// reader reads annotations. Its error is that of the first invalid annotation.
type reader struct {
	annotations map[string]string
	err         error
}

func read(service *sdk.Service) *reader {
	r := &reader{annotations: service.Annotations}
	for _, key := range slices.Sorted(maps.Keys(service.Annotations)) {
		name, ours := strings.CutPrefix(key, Prefix)
		if !ours {
			continue
		}
		if why := Refused[name]; why != "" {
			r.fail(name, why)
		} else if !slices.Contains(Honoured, name) {
			r.fail(name, "there is no such annotation; docs/hetzner.md lists them")
		}
	}
	return r
}

func (r *reader) fail(name, right string) {
	if r.err == nil {
		r.err = sdk.Invalid("the annotation %s%s: %q: %s", Prefix, name, r.annotations[Prefix+name], right).Because("AnnotationInvalid")
	}
}

func (r *reader) text(name, unless string) string {
	if value, is := r.annotations[Prefix+name]; is {
		return strings.TrimSpace(value)
	}
	return unless
}

func (r *reader) has(name string) bool {
	_, has := r.annotations[Prefix+name]
	return has
}

func (r *reader) oneOf(name, unless string, values ...string) string {
	value := r.text(name, unless)
	if !slices.Contains(values, value) {
		r.fail(name, "right would be one of "+strings.Join(values, ", "))
		return unless
	}
	return value
}

func (r *reader) truth(name string, unless bool) bool {
	if !r.has(name) {
		return unless
	}
	value, err := strconv.ParseBool(r.text(name, ""))
	if err != nil {
		r.fail(name, "right would be true or false")
	}
	return value
}

func (r *reader) number(name string, unless, least, most int) int {
	if !r.has(name) {
		return unless
	}
	value, err := strconv.Atoi(r.text(name, ""))
	if err != nil || value < least || value > most {
		r.fail(name, "right would be a number from "+strconv.Itoa(least)+" to "+strconv.Itoa(most))
		return unless
	}
	return value
}

// duration reads durations such as 15s, which Hetzner's controller takes, and plain seconds, which its documentation also shows.
func (r *reader) duration(name string, unless, least, most time.Duration) time.Duration {
	if !r.has(name) {
		return unless
	}
	text := r.text(name, "")
	value, err := time.ParseDuration(text)
	if seconds, is := strconv.Atoi(text); is == nil {
		value, err = time.Duration(seconds)*time.Second, nil
	}
	if err != nil || value < least || value > most || value%time.Second != 0 {
		r.fail(name, "right would be whole seconds from "+least.String()+" to "+most.String()+", such as 15s")
		return unless
	}
	return value
}

func (r *reader) address(name string) net.IP {
	if !r.has(name) {
		return nil
	}
	ip := net.ParseIP(r.text(name, "")).To4()
	if ip == nil {
		r.fail(name, "right would be an IPv4 address of the private network")
	}
	return ip
}

func (r *reader) network(name, unless string) *net.IPNet {
	text := r.text(name, unless)
	if text == "" {
		return nil
	}
	_, network, err := net.ParseCIDR(text)
	if err != nil {
		r.fail(name, "right would be the CIDR of a subnet, such as 10.0.1.0/24")
	}
	return network
}

func (r *reader) list(name string) (values []string) {
	for value := range strings.SplitSeq(r.text(name, ""), ",") {
		if value = strings.TrimSpace(value); value != "" {
			values = append(values, value)
		}
	}
	return values
}
