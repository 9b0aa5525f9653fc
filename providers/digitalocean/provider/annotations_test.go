package provider

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/grpc-ccm/grpc-ccm/providers/digitalocean/testapi"
	"github.com/grpc-ccm/grpc-ccm/providers/go/contract"
)

// The test API accepts each of these sets of annotations. The load balancer is then in sync, and a
// second Ensure does not write it (LB-8, LB-14). After the annotations are removed, it is like one of
// a Service that never had them, except for the fields that cannot change (LB-7). The set with
// REGIONAL_NETWORK is not tried without its annotations.
func TestServicesOfEveryKindAreInSyncAfterEnsure(t *testing.T) {
	h := initialized(t, func(s *Settings) { s.VPC, s.DefaultType = testapi.VPC, "REGIONAL" })
	h.cloud.Limit(0, time.Hour)
	certificate := h.cloud.AddCertificate("web", "custom")
	for _, annotations := range [][]string{
		{}, {"type", "REGIONAL_NETWORK"}, {"network", "INTERNAL"}, {"network-stack", "IPV4"}, {"name", "shop"}, {"protocol", "http"}, {"http-ports", "80"}, {"tls-passthrough", "true", "tls-ports", "80"},
		{"certificate-id", certificate, "tls-ports", "80"}, {"certificate-name", "web", "http2-ports", "80"}, {"certificate-name", "web", "tls-ports", "80", "http3-port", "80"}, {"hostname", "web.example.com"},
		{"size-slug", "lb-medium"}, {"size-unit", "6"}, {"sticky-sessions-type", "cookies", "sticky-sessions-cookie-name", "lb", "sticky-sessions-cookie-ttl", "300"},
		{"redirect-http-to-https", "true"}, {"disable-lets-encrypt-dns-records", "true"}, {"enable-proxy-protocol", "true"}, {"enable-backend-keepalive", "true"}, {"http-idle-timeout-seconds", "90"},
		{"deny-rules", "ip:1.2.3.4,cidr:2.3.0.0/16"}, {"allow-rules", "cidr:2.3.0.0/16"}, {"ip", "203.0.113.200"}, {"override-health-check", "true"}, {"subnet-uuid", testapi.VPCElsewhere},
		{"override-health-check", "true", "healthcheck-path", "/up"}, {"healthcheck-check-interval-seconds", "9", "healthcheck-healthy-threshold", "9"},
	} {
		b := h.service(uid, annotations...)
		b.ensured()
		made := h.only()
		if calls, routes := h.calls(func() { b.ensure() }); routes["PUT /v2/load_balancers/{id}"] != 0 {
			t.Errorf("%v: written again: %d calls %v", annotations, calls, routes)
		}
		b.service.Annotations = map[string]string{}
		if strings.Contains(strings.Join(annotations, " "), "ype REGIONAL_NETWORK") {
			b.removed()
			continue
		}
		b.ensured()
		plain := h.only()
		b.removed()
		fresh := h.service(uid)
		fresh.ensured()
		want := h.only()
		want.ID, want.IP, want.IPv6, want.Created, want.Network, want.NetworkStack = plain.ID, plain.IP, plain.IPv6, plain.Created, made.Network, made.NetworkStack
		want.SubnetUUID = plain.SubnetUUID // The load balancer stays in the subnet in which it was made.
		if got, wanted := text(t, plain), text(t, want); got != wanted {
			t.Errorf("%v: taken away it left %s; without it there is %s", annotations, got, wanted)
		}
		fresh.removed()
	}
}

func TestTheStatusSaysHowTrafficArrives(t *testing.T) { // LB-19
	h := initialized(t)
	for _, row := range []struct {
		annotations []string
		want        []string
	}{
		{nil, []string{"IP_MODE_VIP"}},
		{[]string{"type", "REGIONAL"}, []string{"IP_MODE_VIP", "IP_MODE_VIP"}},
		{[]string{"type", "REGIONAL", "enable-proxy-protocol", "true", "network-stack", "IPV4"}, []string{"IP_MODE_PROXY"}},
		{[]string{"type", "REGIONAL", "protocol", "http", "network", "INTERNAL"}, []string{"IP_MODE_PROXY"}},
		{[]string{"type", "REGIONAL", "hostname", "web.example.com"}, []string{"web.example.com"}},
	} {
		b := h.service(uid, row.annotations...)
		b.ensured()
		got := []string{}
		for _, point := range b.service.Status.Ingress {
			if point.Hostname != nil {
				got = append(got, *point.Hostname)
			} else {
				got = append(got, point.GetIpMode().String())
			}
		}
		if !reflect.DeepEqual(got, row.want) {
			t.Errorf("%v: %v; wanted %v", row.annotations, got, row.want)
		}
		b.removed()
	}
}

func TestNodesWithoutAPublicAddressAreNoTargetsOfANetworkLoadBalancer(t *testing.T) {
	h := initialized(t)
	b := h.service(uid)
	for _, target := range b.targets {
		target.Addresses = nil
	}
	h.must(b.ensure().GetFailed(), 2, "NoEligibleTargets", "node-0", "REGIONAL")
	b.targets[0] = h.service(uid).targets[0]
	answer := b.ensure()
	if answer.GetReady() == nil || len(answer.Events) != 1 || answer.Events[0].Reason != "NodesWithoutPublicAddress" || len(h.only().DropletIDs) != 1 {
		t.Errorf("%v %+v", answer, h.only())
	}
	// DigitalOcean cannot change the type of the one that is there.
	b.targets[0].Addresses = nil
	for _, failed := range []*contract.Failure{b.ensure().GetFailed(), b.update().GetFailed()} {
		h.must(failed, 2, "NoEligibleTargets", "node-0", "another Service", "REGIONAL")
	}
	b.removed()
	private := h.service(uid, "type", "REGIONAL")
	for _, target := range private.targets {
		target.Addresses = nil
	}
	private.ensured()
	if len(h.only().DropletIDs) != 3 {
		t.Errorf("%+v", h.only())
	}
	// If all Nodes have both families, the load balancer has both too.
	private.removed()
	for _, target := range b.targets {
		target.Addresses = append(h.service(uid).targets[0].Addresses, &contract.NodeAddress{Type: contract.NodeAddressType_NODE_ADDRESS_TYPE_EXTERNAL_IP, Address: "2604:a880::1"})
	}
	b.ensured()
	if h.only().NetworkStack != "DUALSTACK" {
		t.Errorf("%+v", h.only())
	}
}
