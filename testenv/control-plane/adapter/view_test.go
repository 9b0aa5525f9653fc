package adapter

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/grpc-ccm/grpc-ccm/providers/go/contract"
)

func same(t *testing.T, found proto.Message, wanted string) {
	t.Helper()
	expected := found.ProtoReflect().New().Interface()
	if err := protojson.Unmarshal([]byte(wanted), expected); err != nil {
		t.Fatal(err)
	}
	if !proto.Equal(found, expected) {
		t.Errorf("it is\n%s\ninstead of\n%s", protojson.Format(found), protojson.Format(expected))
	}
}

func TestANodeIsShownAsFarAsTheProviderAskedToSeeIt(t *testing.T) {
	node := &v1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: "n", UID: "u",
			Labels:            map[string]string{"a": "1", "b": "2"},
			Annotations:       map[string]string{"c": "3", "d": "4", lastApplied: "{}"},
			CreationTimestamp: metav1.NewTime(time.Unix(1_000_000_000, 0)),
		},
		Spec: v1.NodeSpec{
			ProviderID: "test://n",
			PodCIDRs:   []string{"10.0.1.0/24"},
			Taints:     []v1.Taint{{Key: "t", Effect: v1.TaintEffectNoSchedule}},
		},
		Status: v1.NodeStatus{
			Addresses: []v1.NodeAddress{
				{Type: v1.NodeInternalIP, Address: "10.1.0.1"},
				{Type: "Unheard", Address: "x"},
			},
			Conditions: []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionUnknown}},
			NodeInfo:   v1.NodeSystemInfo{MachineID: "m", Architecture: "arm64"},
		},
	}
	shown := func(projection *contract.NodeProjection) *contract.NodeView {
		cloud := Cloud{info: &contract.GetProviderInfoResponse{NodeProjection: projection}}
		return cloud.nodeView(node)
	}
	same(t, shown(nil), `{"name": "n", "uid": "u", "providerId": "test://n",
		"addresses": [{"type": "NODE_ADDRESS_TYPE_INTERNAL_IP", "address": "10.1.0.1"}]}`)
	same(t, shown(&contract.NodeProjection{
		LabelKeys:      []string{"a", "absent"},
		AnnotationKeys: []string{"c", lastApplied},
		FieldGroups: []contract.NodeFieldGroup{
			contract.NodeFieldGroup_NODE_FIELD_GROUP_POD_CIDRS,
			contract.NodeFieldGroup_NODE_FIELD_GROUP_TAINTS,
			contract.NodeFieldGroup_NODE_FIELD_GROUP_NODE_INFO,
			contract.NodeFieldGroup_NODE_FIELD_GROUP_READINESS,
			contract.NodeFieldGroup_NODE_FIELD_GROUP_CREATION_TIME,
		},
	}), `{"name": "n", "uid": "u", "providerId": "test://n",
		"addresses": [{"type": "NODE_ADDRESS_TYPE_INTERNAL_IP", "address": "10.1.0.1"}],
		"labels": {"a": "1"}, "annotations": {"c": "3"}, "podCidrs": ["10.0.1.0/24"],
		"taints": [{"key": "t", "effect": "NoSchedule"}],
		"nodeInfo": {"machineId": "m", "architecture": "arm64"},
		"ready": false, "creationTime": "2001-09-09T01:46:40Z"}`)
	if all := shown(&contract.NodeProjection{AllLabels: true}).GetLabels(); len(all) != 2 {
		t.Errorf("all labels are %v", all)
	}
	taints := []contract.NodeFieldGroup{contract.NodeFieldGroup_NODE_FIELD_GROUP_TAINTS}
	cloud := Cloud{info: &contract.GetProviderInfoResponse{
		NodeProjection: &contract.NodeProjection{LabelKeys: []string{"a"}, FieldGroups: taints},
		Capabilities: &contract.Capabilities{LoadBalancers: &contract.LoadBalancerCapability{
			TargetProjection: &contract.NodeProjection{AnnotationKeys: []string{"c"}, FieldGroups: taints},
		}},
	}}
	same(t, cloud.targetView(node), `{"name": "n", "uid": "u", "providerId": "test://n",
		"addresses": [{"type": "NODE_ADDRESS_TYPE_INTERNAL_IP", "address": "10.1.0.1"}],
		"labels": {"a": "1"}, "annotations": {"c": "3"}, "taints": [{"key": "t", "effect": "NoSchedule"}]}`)
}

func TestAServiceIsShownWhole(t *testing.T) {
	timeout, class, both := int32(60), "example.com/fast", v1.IPFamilyPolicyPreferDualStack
	protocol, generation := "http", int64(3)
	service := &v1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: "web", UID: "u", Generation: generation,
			Annotations:       map[string]string{"a": "1", lastApplied: "{}"},
			Finalizers:        []string{"f"},
			CreationTimestamp: metav1.NewTime(time.Unix(1_000_000_000, 0)),
			DeletionTimestamp: new(metav1.NewTime(time.Unix(1_000_000_060, 0))),
		},
		Spec: v1.ServiceSpec{
			Type: v1.ServiceTypeLoadBalancer, LoadBalancerClass: &class,
			ClusterIPs: []string{"10.0.0.1", "fd00::1"}, ExternalIPs: []string{"192.0.2.1"},
			LoadBalancerIP: "192.0.2.2", LoadBalancerSourceRanges: []string{"198.51.100.0/24"},
			SessionAffinity:       v1.ServiceAffinityClientIP,
			SessionAffinityConfig: &v1.SessionAffinityConfig{ClientIP: &v1.ClientIPConfig{TimeoutSeconds: &timeout}},
			ExternalTrafficPolicy: v1.ServiceExternalTrafficPolicyLocal, HealthCheckNodePort: 30001,
			IPFamilies: []v1.IPFamily{v1.IPv4Protocol, v1.IPv6Protocol}, IPFamilyPolicy: &both,
			Ports: []v1.ServicePort{
				{Name: "http", Protocol: v1.ProtocolTCP, AppProtocol: &protocol, Port: 80, TargetPort: intstr.FromString("web"), NodePort: 30002},
				{Name: "none", Protocol: v1.ProtocolUDP, Port: 53},
			},
		},
		Status: v1.ServiceStatus{LoadBalancer: v1.LoadBalancerStatus{Ingress: []v1.LoadBalancerIngress{{IP: "192.0.2.3", IPMode: new(v1.LoadBalancerIPModeProxy)}}}},
	}
	same(t, serviceView(service), `{"namespace": "ns", "name": "web", "uid": "u", "generation": "3",
		"annotations": {"a": "1"}, "finalizers": ["f"],
		"creationTime": "2001-09-09T01:46:40Z", "deletionTime": "2001-09-09T01:47:40Z",
		"type": "LoadBalancer", "loadBalancerClass": "example.com/fast",
		"clusterIps": ["10.0.0.1", "fd00::1"], "externalIps": ["192.0.2.1"], "loadBalancerIp": "192.0.2.2",
		"loadBalancerSourceRanges": ["198.51.100.0/24"], "sessionAffinity": "ClientIP", "sessionAffinityTimeout": "60s",
		"externalTrafficPolicy": "Local", "healthCheckNodePort": 30001,
		"ipFamilies": ["IPv4", "IPv6"], "ipFamilyPolicy": "PreferDualStack",
		"ports": [
			{"name": "http", "protocol": "TCP", "appProtocol": "http", "port": 80, "targetPort": "web", "nodePort": 30002},
			{"name": "none", "protocol": "UDP", "port": 53}
		],
		"status": {"ingress": [{"ip": "192.0.2.3", "ipMode": "IP_MODE_PROXY"}]}}`)
}

func TestALoadBalancersStatusIsAsTheAPIServerWouldMakeIt(t *testing.T) {
	view := &contract.LoadBalancerStatus{Ingress: []*contract.LoadBalancerIngress{
		{Ip: new("192.0.2.1"), Ports: []*contract.PortStatus{{Port: 80, Protocol: "TCP", Error: new("Full")}}},
		{Ip: new("192.0.2.2"), IpMode: new(contract.IpMode_IP_MODE_PROXY)},
		{Hostname: new("lb.example.com")},
	}}
	status, err := loadBalancerStatus(view)
	if err != nil {
		t.Fatal(err)
	}
	first, second, third := status.Ingress[0], status.Ingress[1], status.Ingress[2]
	if first.IP != "192.0.2.1" || *first.IPMode != v1.LoadBalancerIPModeVIP || *first.Ports[0].Error != "Full" {
		t.Errorf("%+v", first)
	}
	if *second.IPMode != v1.LoadBalancerIPModeProxy {
		t.Errorf("%+v", second)
	}
	if third.Hostname != "lb.example.com" || third.IPMode != nil {
		t.Errorf("%+v", third)
	}
	view.Ingress[1].IpMode = new(contract.IpMode(9))
	if _, err := loadBalancerStatus(view); err == nil || !strings.Contains(err.Error(), "ip_mode 9") {
		t.Errorf("an unknown mode became %v", err)
	}
}

func TestAddressesOfUnknownTypesAreErrorsAndNotLost(t *testing.T) {
	found, err := nodeAddresses([]*contract.NodeAddress{{Type: contract.NodeAddressType_NODE_ADDRESS_TYPE_EXTERNAL_DNS, Address: "n.example.com"}})
	if err != nil || len(found) != 1 || found[0] != (v1.NodeAddress{Type: v1.NodeExternalDNS, Address: "n.example.com"}) {
		t.Errorf("%v, %v", found, err)
	}
	for _, wrong := range []*contract.NodeAddress{{Address: "10.0.0.1"}, {Type: 77, Address: "10.0.0.1"}, {Type: contract.NodeAddressType_NODE_ADDRESS_TYPE_INTERNAL_IP}} {
		if found, err := nodeAddresses([]*contract.NodeAddress{wrong}); err == nil {
			t.Errorf("%v became %v", wrong, found)
		}
	}
}

// The Rust ccm stores the handle. The adapter sends it if it belongs to this provider and this
// Service.
func TestAStoredHandleIsUsedOnlyWhereItIsOurs(t *testing.T) {
	rows := map[string]string{
		`{"provider": "test", "uid": "u", "handle": "lb-1"}`:  "lb-1",
		`{"provider": "test", "handle": "lb-1"}`:              "lb-1",
		`{"provider": "other", "uid": "u", "handle": "lb-1"}`: "",
		`{"provider": "test", "uid": "v", "handle": "lb-1"}`:  "",
		`{"provider": "test", "uid": "u"}`:                    "",
		`lb-1`:                                                "",
		``:                                                    "",
	}
	cloud := Cloud{info: &contract.GetProviderInfoResponse{ProviderName: "test"}}
	for stored, wanted := range rows {
		service := &v1.Service{ObjectMeta: metav1.ObjectMeta{UID: "u", Annotations: map[string]string{handleAnnotation: stored}}}
		found := ""
		if handle := cloud.handle(service); handle != nil {
			found = *handle
		}
		if found != wanted {
			t.Errorf("%s became %q instead of %q", stored, found, wanted)
		}
	}
}

func TestARoutesNodeIsFoundByProviderIDNameOrAddress(t *testing.T) {
	node := func(name, id, address string) *v1.Node {
		node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1.NodeSpec{ProviderID: id}}
		if address != "" {
			node.Status.Addresses = []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: address}}
		}
		return node
	}
	nodes := namesOf([]*v1.Node{node("a", "test://a", "10.1.0.1"), node("b", "test://b-second", ""), node("c", "", "")})
	rows := []struct {
		name  string
		route *contract.Route
		found types.NodeName
	}{
		{"by ID", &contract.Route{ProviderId: new("test://a")}, "a"},
		{"by ID before the name", &contract.Route{ProviderId: new("test://a"), NodeName: new("c")}, "a"},
		{"by name", &contract.Route{NodeName: new("b")}, "b"},
		{"by name, the Node has no ID yet", &contract.Route{NodeName: new("c"), ProviderId: new("test://c")}, "c"},
		{"the name's former instance", &contract.Route{NodeName: new("b"), ProviderId: new("test://b-first")}, "test://b-first"},
		{"by name, there is no such Node", &contract.Route{NodeName: new("gone"), ProviderId: new("test://gone")}, "gone"},
		{"by address", &contract.Route{NextHop: new("10.1.0.1")}, "a"},
		{"not found", &contract.Route{ProviderId: new("test://x"), NextHop: new("10.9.9.9")}, "test://x10.9.9.9"},
	}
	for _, row := range rows {
		if found := nodes.of(row.route); found != row.found {
			t.Errorf("%s: %q instead of %q", row.name, found, row.found)
		}
	}
}
