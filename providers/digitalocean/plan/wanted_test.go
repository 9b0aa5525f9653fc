package plan

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/digitalocean/godo"

	"github.com/grpc-ccm/grpc-ccm/providers/go/sdk"
)

const serviceUID = "8f7c0000-0000-4000-8000-00000000abcd"

var (
	call     = &sdk.Call{Cluster: sdk.Cluster{Name: "test", OwnerID: "owner-1"}, PreviousOwnerIDs: []string{"owner-0"}}
	settings = &Settings{Region: "nyc1", DefaultType: godo.LoadBalancerTypeRegional}
)

func service(annotations ...string) *sdk.Service {
	port, tls := 30080, 30443
	s := &sdk.Service{Namespace: "default", Name: "web", UID: serviceUID, Annotations: map[string]string{}, Ports: []sdk.ServicePort{
		{Name: "http", Protocol: "TCP", Port: 80, NodePort: &port}, {Name: "tls", Protocol: "TCP", Port: 443, NodePort: &tls},
	}}
	for i := 0; i+1 < len(annotations); i += 2 {
		s.Annotations[annotationBase+annotations[i]] = annotations[i+1]
	}
	return s
}

func want(t *testing.T, s *sdk.Service, certificate string) *Wanted {
	t.Helper()
	wanted, err := Want(s, call, settings, nil, certificate, &Eligible{IDs: []int{1, 2}})
	if err != nil {
		t.Fatal(err)
	}
	return wanted
}

func rules(request *godo.LoadBalancerRequest) string {
	lines := []string{}
	for _, r := range request.ForwardingRules {
		lines = append(lines, fmt.Sprintf("%s %d>%s %d%s%s", r.EntryProtocol, r.EntryPort, r.TargetProtocol, r.TargetPort, map[bool]string{true: " through"}[r.TlsPassthrough], strings.TrimSuffix(" "+r.CertificateID, " ")))
	}
	return strings.Join(lines, ", ")
}

// The effect of each annotation that has one. A Service without the annotation lacks the effect (LB-7).
func TestEachAnnotationIsHonoured(t *testing.T) {
	plain := want(t, service(), "")
	for _, row := range []struct {
		annotations []string
		certificate string
		read        func(*Wanted) any
		is          any
	}{
		{[]string{"name", "shop"}, "", func(w *Wanted) any { return w.Request.Name }, "shop.default.web." + serviceUID + ".owner-1.ccm"},
		{[]string{"type", "REGIONAL_NETWORK"}, "", func(w *Wanted) any { return w.Request.Type + ": " + rules(&w.Request) }, "REGIONAL_NETWORK: tcp 80>tcp 80, tcp 443>tcp 443"},
		{[]string{"network", "INTERNAL"}, "", func(w *Wanted) any { return w.Request.Network + w.Request.NetworkStack }, "INTERNALIPV4"},
		{[]string{"network-stack", "IPV4"}, "", func(w *Wanted) any { return w.Request.NetworkStack }, "IPV4"},
		{[]string{"protocol", "http"}, "", func(w *Wanted) any { return rules(&w.Request) }, "http 80>http 30080, http 443>http 30443"},
		{[]string{"http-ports", "80"}, "", func(w *Wanted) any { return rules(&w.Request) }, "http 80>http 30080, tcp 443>tcp 30443"},
		{[]string{"tls-ports", "443", "certificate-id", "c"}, "c", func(w *Wanted) any { return rules(&w.Request) }, "tcp 80>tcp 30080, https 443>http 30443 c"},
		{[]string{"certificate-name", "n"}, "c", func(w *Wanted) any { return rules(&w.Request) }, "tcp 80>tcp 30080, https 443>http 30443 c"},
		{[]string{"http2-ports", "443", "certificate-id", "c"}, "c", func(w *Wanted) any { return rules(&w.Request) }, "tcp 80>tcp 30080, http2 443>http 30443 c"},
		{[]string{"http3-port", "443", "tls-ports", "443", "certificate-id", "c"}, "c", func(w *Wanted) any { return rules(&w.Request) }, "tcp 80>tcp 30080, http3 443>http 30443 c, https 443>http 30443 c"},
		{[]string{"tls-passthrough", "true"}, "", func(w *Wanted) any { return rules(&w.Request) }, "tcp 80>tcp 30080, https 443>https 30443 through"},
		{[]string{"hostname", "Web.Example.com"}, "", func(w *Wanted) any { return w.Hostname }, "web.example.com"},
		{[]string{"size-slug", "lb-large"}, "", func(w *Wanted) any { return fmt.Sprint(w.Request.SizeSlug, w.Request.SizeUnit) }, "lb-large0"},
		{[]string{"size-unit", "4"}, "", func(w *Wanted) any { return w.Request.SizeUnit }, uint32(4)},
		{[]string{"sticky-sessions-type", "cookies", "sticky-sessions-cookie-name", "lb", "sticky-sessions-cookie-ttl", "300"}, "", func(w *Wanted) any { return *w.Request.StickySessions }, godo.StickySessions{Type: "cookies", CookieName: "lb", CookieTtlSeconds: 300}},
		{[]string{"redirect-http-to-https", "true"}, "", func(w *Wanted) any { return w.Request.RedirectHttpToHttps }, true},
		{[]string{"disable-lets-encrypt-dns-records", "true"}, "", func(w *Wanted) any { return *w.Request.DisableLetsEncryptDNSRecords }, true},
		{[]string{"enable-proxy-protocol", "true"}, "", func(w *Wanted) any { return w.Request.EnableProxyProtocol && w.Proxies }, true},
		{[]string{"enable-backend-keepalive", "true"}, "", func(w *Wanted) any { return w.Request.EnableBackendKeepalive }, true},
		{[]string{"http-idle-timeout-seconds", "90"}, "", func(w *Wanted) any { return *normal(&w.Request).HTTPIdleTimeoutSeconds }, uint64(90)},
		{[]string{"deny-rules", "cidr:2.3.0.0/16,ip:1.2.3.4"}, "", func(w *Wanted) any { return fmt.Sprint(w.Request.Firewall.Deny) }, "[cidr:2.3.0.0/16 ip:1.2.3.4]"},
		{[]string{"allow-rules", "ip:1.2.3.4"}, "", func(w *Wanted) any { return fmt.Sprint(w.Request.Firewall.Allow) }, "[ip:1.2.3.4]"},
		{[]string{"ip", "203.0.113.9"}, "", func(w *Wanted) any { return w.Address }, "203.0.113.9"},
		{[]string{"subnet-uuid", "d4ba5b5a-9738-4a6a-b78d-4a86efb9f9e0"}, "", func(w *Wanted) any { return w.Request.VPCSubnetUUID }, "d4ba5b5a-9738-4a6a-b78d-4a86efb9f9e0"},
		{[]string{"override-health-check", "true", "healthcheck-port", "443", "healthcheck-path", "/up", "healthcheck-protocol", "https"}, "", func(w *Wanted) any {
			return fmt.Sprint(w.Request.HealthCheck.Protocol, w.Request.HealthCheck.Port, w.Request.HealthCheck.Path)
		}, "https30443/up"},
		{[]string{"override-health-check", "true"}, "", func(w *Wanted) any { return fmt.Sprint(w.Request.HealthCheck.Protocol, w.Request.HealthCheck.Port) }, "tcp30080"},
		{[]string{"healthcheck-check-interval-seconds", "9"}, "", func(w *Wanted) any { return w.Request.HealthCheck.CheckIntervalSeconds }, 9},
		{[]string{"healthcheck-response-timeout-seconds", "9"}, "", func(w *Wanted) any { return w.Request.HealthCheck.ResponseTimeoutSeconds }, 9},
		{[]string{"healthcheck-unhealthy-threshold", "9"}, "", func(w *Wanted) any { return w.Request.HealthCheck.UnhealthyThreshold }, 9},
		{[]string{"healthcheck-healthy-threshold", "9"}, "", func(w *Wanted) any { return w.Request.HealthCheck.HealthyThreshold }, 9},
	} {
		wanted := want(t, service(row.annotations...), row.certificate)
		if got := row.read(wanted); got != row.is {
			t.Errorf("%v: %v; wanted %v", row.annotations, got, row.is)
		}
		if row.read(plain) == row.is {
			t.Errorf("%v: a Service without it has the same", row.annotations)
		}
		if len(wanted.Warnings) > 0 {
			t.Errorf("%v: %v", row.annotations, wanted.Warnings)
		}
	}
}

// Want refuses a value that it cannot honour, and names the annotation or the field.
func TestWhatCannotBeHonouredIsRefusedAloud(t *testing.T) {
	for _, row := range [][]string{
		{"nmae", "shop"}, {"name", "-shop"}, {"name", strings.Repeat("x", 200)}, {"type", "GLOBAL"}, {"network", "PUBLIC"}, {"network-stack", "IPV6"}, {"protocol", "gopher"}, {"protocol", "http3"},
		{"http-ports", "81"}, {"tls-ports", "x"}, {"http2-ports", "80,"}, {"http3-port", "70000"}, {"http3-port", "443"}, {"tls-passthrough", "maybe"}, {"certificate-id", "", "protocol", "https"},
		{"hostname", "no host"}, {"algorithm", "random"}, {"size-slug", "lb-huge"}, {"size-unit", "101"}, {"size-unit", "2", "size-slug", "lb-small"}, {"sticky-sessions-type", "ip"},
		{"sticky-sessions-cookie-name", "", "sticky-sessions-type", "cookies"}, {"redirect-http-to-https", "on"}, {"disable-lets-encrypt-dns-records", "2"}, {"enable-proxy-protocol", "yes"},
		{"enable-backend-keepalive", "ja"}, {"http-idle-timeout-seconds", "29"}, {"deny-rules", "1.2.3.4"}, {"allow-rules", "cidr:1.2.3.4"}, {"ip", "here"},
		{"healthcheck-check-interval-seconds", "2"}, {"healthcheck-response-timeout-seconds", "301"}, {"healthcheck-unhealthy-threshold", "1"}, {"healthcheck-healthy-threshold", "11"},
		{"healthcheck-protocol", "udp", "override-health-check", "true"}, {"healthcheck-port", "81", "override-health-check", "true"}, {"tls-ports", "80", "http-ports", "80"},
		{"network-stack", "DUALSTACK", "network", "INTERNAL"},
		{"protocol", "http", "type", "REGIONAL_NETWORK"}, {"tls-passthrough", "true", "type", "REGIONAL_NETWORK"}, {"enable-proxy-protocol", "true", "type", "REGIONAL_NETWORK"},
	} {
		_, err := Want(service(row...), call, settings, nil, "", nil)
		var failure *sdk.Failure
		if !errors.As(err, &failure) || failure.Code != sdk.CodeInvalid || !strings.Contains(failure.Error(), annotationBase+row[0]) {
			t.Errorf("%v: %v", row, err)
		}
	}
	for word, change := range map[string]func(*sdk.Service){
		"spec.ports is empty":           func(s *sdk.Service) { s.Ports = nil },
		"spec.ports[].port 0":           func(s *sdk.Service) { s.Ports[0].Port = 0 },
		`spec.ports[].protocol "SCTP"`:  func(s *sdk.Service) { s.Ports[0].Protocol = "SCTP" },
		"TCP 80 twice":                  func(s *sdk.Service) { s.Ports[1] = s.Ports[0] },
		"allocateLoadBalancerNodePorts": func(s *sdk.Service) { s.Ports[0].NodePort = nil },
		"spec.loadBalancerSourceRanges": func(s *sdk.Service) { s.SourceRanges = []string{"10.0.0.0/33"} },
	} {
		s := service()
		change(s)
		if _, err := Want(s, call, settings, nil, "", nil); err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("%s: %v", word, err)
		}
	}
}

func TestWhatHasNoEffectIsTold(t *testing.T) {
	for _, row := range [][]string{{"algorithm", "round_robin"}, {"healthcheck-path", "/up"}, {"healthcheck-port", "80"}, {"healthcheck-protocol", "tcp"}} {
		if wanted := want(t, service(row...), ""); len(wanted.Warnings) != 1 || !strings.Contains(wanted.Warnings[0], annotationBase+row[0]) {
			t.Errorf("%v: %v", row, wanted.Warnings)
		}
	}
	s := service("allow-rules", "ip:1.2.3.4")
	s.SourceRanges = []string{"10.0.0.1/8"}
	if wanted := want(t, s, ""); len(wanted.Warnings) != 1 || fmt.Sprint(wanted.Request.Firewall.Allow) != "[cidr:10.0.0.0/8]" {
		t.Errorf("%v %v", wanted.Warnings, wanted.Request.Firewall)
	}
}

// docs/digitalocean.md names each of the known annotations.
func TestThePageNamesEachAnnotation(t *testing.T) {
	page, err := os.ReadFile("../../../docs/digitalocean.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range known {
		if !strings.Contains(string(page), "`"+name+"`") {
			t.Errorf("docs/digitalocean.md has no `%s`", name)
		}
	}
}

// Type, network and network stack of an existing load balancer stay. If the Service asks for another, it is refused.
func TestWhatCannotBeChangedStays(t *testing.T) {
	there := &godo.LoadBalancer{Type: "REGIONAL_NETWORK", Network: "EXTERNAL", NetworkStack: "IPV4", VPCUUID: "vpc", ProjectID: "project", TLSCipherPolicy: "STRONG", DropletIDs: []int{2, 1}}
	wanted, err := Want(service(), call, settings, there, "", nil)
	if err != nil || wanted.Request.Type != "REGIONAL_NETWORK" || wanted.Request.NetworkStack != "IPV4" || wanted.Request.ProjectID != "project" || wanted.Request.VPCUUID != "vpc" ||
		wanted.Request.TLSCipherPolicy != "STRONG" || fmt.Sprint(wanted.Request.DropletIDs) != "[1 2]" {
		t.Errorf("%v %+v", err, wanted.Request)
	}
	for _, row := range [][]string{{"type", "REGIONAL"}, {"network", "INTERNAL"}, {"network-stack", "DUALSTACK"}} {
		if _, err := Want(service(row...), call, settings, there, "", nil); err == nil || !strings.Contains(err.Error(), "cannot change") {
			t.Errorf("%v: %v", row, err)
		}
	}
}

func TestMarks(t *testing.T) { // LB-27, LB-30
	mark := MarkOf(service(), "owner-1")
	if read, marked := ReadMark("shop.v2." + mark.String()); !marked || read != mark {
		t.Errorf("%v %t", read, marked)
	}
	long := MarkOf(&sdk.Service{Namespace: strings.Repeat("n", 63), Name: strings.Repeat("s", 63), UID: strings.Repeat("u", 200)}, strings.Repeat("o", 253))
	if name := long.String(); len(name) > nameBytes-32 || len(long.Owner) != idBytes || !long.OwnedBy(&sdk.Call{Cluster: sdk.Cluster{OwnerID: strings.Repeat("o", 253)}}) {
		t.Errorf("%q has %d bytes", name, len(name))
	}
	for _, owner := range []string{"Owner-1", "owner.1", "-owner", "a/b"} {
		if part(owner, idBytes) == owner {
			t.Errorf("%q stands in a name as it is", owner)
		}
	}
	if part("Owner-1", idBytes) == part("owner-1", idBytes) {
		t.Error("two owners have one mark")
	}
	for _, name := range []string{"", "web", "a8f7c000000004000800000000000abc", "web.ccm", "a.b.ccm", "A.b.c.d.ccm", "..a.b.ccm"} {
		if mark, marked := ReadMark(name); marked {
			t.Errorf("%q is marked: %v", name, mark)
		}
	}
	for name, ownership := range map[string]sdk.Ownership{
		mark.String(): sdk.Ours, MarkOf(service(), "owner-0").String(): sdk.Ours, MarkOf(service(), "owner-2").String(): sdk.Foreign, VendorName(serviceUID): sdk.Unmarked,
		MarkOf(&sdk.Service{Namespace: "default", Name: "web", UID: "another"}, "owner-1").String(): sdk.Foreign,
	} {
		if found := Judge(&godo.LoadBalancer{Name: name}, call, service()); found.Ownership != ownership {
			t.Errorf("%q is %v; wanted %v", name, found.Ownership, ownership)
		}
	}
}

// LB-30: the digits of a UID are no UID.
func TestAListedOwnerHasAUIDOnlyIfTheMarkHoldsIt(t *testing.T) {
	for uid, listed := range map[string]string{serviceUID: serviceUID, "no UUID": "", strings.Repeat("a", 64): ""} {
		s := service()
		s.UID = uid
		mark, marked := ReadMark(MarkOf(s, "owner-1").String())
		if owner := mark.Service(); !marked || owner != (sdk.ServiceRef{Namespace: "default", Name: "web", UID: listed}) {
			t.Errorf("%q: %+v", uid, owner)
		}
	}
}

func TestOnlyTargetsWithBothFamiliesAreDualStack(t *testing.T) {
	node := func(id string, addresses ...string) sdk.Node {
		node := sdk.Node{Name: "node-" + id, ProviderID: "digitalocean://" + id}
		for _, address := range addresses {
			node.Addresses = append(node.Addresses, sdk.NodeAddress{Type: sdk.ExternalIP, Address: address})
		}
		return node
	}
	both, none := node("1", "203.0.113.1", "2001:db8::1"), node("2")
	for _, one := range []struct {
		nodes []sdk.Node
		want  bool
	}{{nil, false}, {[]sdk.Node{none}, false}, {[]sdk.Node{both}, true}, {[]sdk.Node{both, none}, true}, {[]sdk.Node{both, node("3", "203.0.113.3")}, false}} {
		eligible := EligibleTargets(&sdk.Targets{Nodes: one.nodes}, godo.LoadBalancerTypeRegionalNetwork, godo.LoadBalancerNetworkTypeExternal)
		if eligible.AllDualStack != one.want {
			t.Errorf("%v: %v", one.nodes, eligible.AllDualStack)
		}
	}
}
