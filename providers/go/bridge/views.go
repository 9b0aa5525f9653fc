package bridge

import (
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/types/known/timestamppb"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/grpc-ccm/grpc-ccm/providers/go/contract"
)

// The limits of the contract (CORE-11), in bytes.
const (
	nameBytes = 253
	idBytes   = 1024
	textBytes = 1024
)

var addressTypes = map[contract.NodeAddressType]v1.NodeAddressType{
	contract.NodeAddressType_NODE_ADDRESS_TYPE_HOSTNAME:     v1.NodeHostName,
	contract.NodeAddressType_NODE_ADDRESS_TYPE_INTERNAL_IP:  v1.NodeInternalIP,
	contract.NodeAddressType_NODE_ADDRESS_TYPE_EXTERNAL_IP:  v1.NodeExternalIP,
	contract.NodeAddressType_NODE_ADDRESS_TYPE_INTERNAL_DNS: v1.NodeInternalDNS,
	contract.NodeAddressType_NODE_ADDRESS_TYPE_EXTERNAL_DNS: v1.NodeExternalDNS,
}

// nodeOf returns the Node with the fields that the controller sent.
func nodeOf(view *contract.NodeView) *v1.Node {
	node := &v1.Node{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"},
		ObjectMeta: metav1.ObjectMeta{
			Name:              view.GetName(),
			UID:               types.UID(view.GetUid()),
			Labels:            view.GetLabels(),
			Annotations:       view.GetAnnotations(),
			CreationTimestamp: timeOf(view.GetCreationTime()),
		},
		Spec: v1.NodeSpec{ProviderID: view.GetProviderId(), PodCIDRs: view.GetPodCidrs()},
	}
	if len(view.GetPodCidrs()) > 0 {
		node.Spec.PodCIDR = view.GetPodCidrs()[0]
	}
	for _, table := range []*map[string]string{&node.Labels, &node.Annotations} {
		if *table == nil {
			// A cloud may write into its copy.
			*table = map[string]string{}
		}
	}
	for _, taint := range view.GetTaints() {
		node.Spec.Taints = append(node.Spec.Taints, v1.Taint{Key: taint.GetKey(), Value: taint.GetValue(), Effect: v1.TaintEffect(taint.GetEffect())})
		// The field and the taint mean the same in Kubernetes, and clouds read either.
		node.Spec.Unschedulable = node.Spec.Unschedulable || taint.GetKey() == v1.TaintNodeUnschedulable
	}
	for _, address := range view.GetAddresses() {
		if kind, ok := addressTypes[address.GetType()]; ok {
			node.Status.Addresses = append(node.Status.Addresses, v1.NodeAddress{Type: kind, Address: address.GetAddress()})
		}
	}
	if info := view.GetNodeInfo(); info != nil {
		node.Status.NodeInfo = v1.NodeSystemInfo{
			MachineID: info.GetMachineId(), SystemUUID: info.GetSystemUuid(), BootID: info.GetBootId(),
			Architecture: info.GetArchitecture(), OperatingSystem: info.GetOperatingSystem(), KubeletVersion: info.GetKubeletVersion(),
		}
	}
	if view.Ready != nil {
		ready := v1.ConditionFalse
		if view.GetReady() {
			ready = v1.ConditionTrue
		}
		node.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady, Status: ready}}
	}
	return node
}

// serviceOf returns the Service with the fields that the controller sent.
func serviceOf(view *contract.ServiceView) *v1.Service {
	service := &v1.Service{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace:         view.GetNamespace(),
			Name:              view.GetName(),
			UID:               types.UID(view.GetUid()),
			Labels:            view.GetLabels(),
			Annotations:       view.GetAnnotations(),
			Finalizers:        view.GetFinalizers(),
			Generation:        view.GetGeneration(),
			CreationTimestamp: timeOf(view.GetCreationTime()),
		},
		Spec: v1.ServiceSpec{
			Type:                          v1.ServiceType(view.GetType()),
			LoadBalancerClass:             view.LoadBalancerClass,
			ClusterIPs:                    view.GetClusterIps(),
			ExternalIPs:                   view.GetExternalIps(),
			LoadBalancerIP:                view.GetLoadBalancerIp(),
			LoadBalancerSourceRanges:      view.GetLoadBalancerSourceRanges(),
			SessionAffinity:               v1.ServiceAffinity(view.GetSessionAffinity()),
			ExternalTrafficPolicy:         v1.ServiceExternalTrafficPolicy(view.GetExternalTrafficPolicy()),
			InternalTrafficPolicy:         named[v1.ServiceInternalTrafficPolicy](view.InternalTrafficPolicy),
			HealthCheckNodePort:           view.GetHealthCheckNodePort(),
			IPFamilyPolicy:                named[v1.IPFamilyPolicy](view.IpFamilyPolicy),
			AllocateLoadBalancerNodePorts: view.AllocateLoadBalancerNodePorts,
			PublishNotReadyAddresses:      view.GetPublishNotReadyAddresses(),
		},
		Status: v1.ServiceStatus{LoadBalancer: statusOf(view.GetStatus())},
	}
	if service.Annotations == nil {
		// A cloud may write into the map.
		service.Annotations = map[string]string{}
	}
	if len(view.GetClusterIps()) > 0 {
		service.Spec.ClusterIP = view.GetClusterIps()[0]
	}
	if view.GetDeletionTime() != nil {
		service.DeletionTimestamp = new(timeOf(view.GetDeletionTime()))
	}
	if view.GetSessionAffinityTimeout() != nil {
		seconds := int32(view.GetSessionAffinityTimeout().GetSeconds())
		service.Spec.SessionAffinityConfig = &v1.SessionAffinityConfig{ClientIP: &v1.ClientIPConfig{TimeoutSeconds: &seconds}}
	}
	for _, family := range view.GetIpFamilies() {
		service.Spec.IPFamilies = append(service.Spec.IPFamilies, v1.IPFamily(family))
	}
	for _, port := range view.GetPorts() {
		target := intstr.FromInt32(0)
		if port.GetTargetPort() != "" {
			target = intstr.Parse(port.GetTargetPort())
		}
		service.Spec.Ports = append(service.Spec.Ports, v1.ServicePort{
			Name: port.GetName(), Protocol: v1.Protocol(port.GetProtocol()), AppProtocol: port.AppProtocol,
			Port: port.GetPort(), TargetPort: target, NodePort: port.GetNodePort(),
		})
	}
	return service
}

// checkService returns an error for a Service that cannot get a load balancer. Clouds rely on the API server's checks, and a cloud might treat an
// invalid source range as no restriction.
func checkService(service *v1.Service) error {
	if len(service.Spec.Ports) == 0 {
		return fmt.Errorf("the Service %s has no ports", serviceKey(service))
	}
	for _, port := range service.Spec.Ports {
		if port.Port < 1 || port.Port > 65535 {
			return fmt.Errorf("port %d of the Service %s is not valid; write 1 to 65535", port.Port, serviceKey(service))
		}
	}
	for _, source := range service.Spec.LoadBalancerSourceRanges {
		if _, _, err := net.ParseCIDR(strings.TrimSpace(source)); err != nil {
			return fmt.Errorf("%q in loadBalancerSourceRanges of the Service %s is no CIDR; write one such as 192.0.2.0/24", source, serviceKey(service))
		}
	}
	return nil
}

func statusOf(view *contract.LoadBalancerStatus) v1.LoadBalancerStatus {
	var status v1.LoadBalancerStatus
	for _, point := range view.GetIngress() {
		ingress := v1.LoadBalancerIngress{IP: point.GetIp(), Hostname: point.GetHostname()}
		switch point.GetIpMode() {
		case contract.IpMode_IP_MODE_VIP:
			ingress.IPMode = new(v1.LoadBalancerIPModeVIP)
		case contract.IpMode_IP_MODE_PROXY:
			ingress.IPMode = new(v1.LoadBalancerIPModeProxy)
		}
		for _, port := range point.GetPorts() {
			ingress.Ports = append(ingress.Ports, v1.PortStatus{Port: port.GetPort(), Protocol: v1.Protocol(port.GetProtocol()), Error: port.Error})
		}
		status.Ingress = append(status.Ingress, ingress)
	}
	return status
}

// statusView returns the cloud's addresses of a load balancer. Nil, and an ingress without address
// and host name, count as no address. An invalid IP address or IP mode, or a host name that the
// contract cannot express, is an error.
func statusView(status *v1.LoadBalancerStatus) (*contract.LoadBalancerStatus, error) {
	view := &contract.LoadBalancerStatus{}
	if status == nil {
		return view, nil
	}
	for _, point := range status.Ingress {
		if point.IP == "" && point.Hostname == "" {
			// A cloud may add an ingress before it knows the address; the contract does not allow that (LB-19).
			continue
		}
		ingress := &contract.LoadBalancerIngress{Ip: filled(point.IP), Hostname: filled(point.Hostname)}
		if point.IP != "" && net.ParseIP(point.IP) == nil {
			return nil, fmt.Errorf("the address %q of the load balancer is no IP address", point.IP)
		}
		if err := fits("the host name of the load balancer", point.Hostname, nameBytes); err != nil {
			return nil, err
		}
		if point.IPMode != nil {
			switch *point.IPMode {
			case v1.LoadBalancerIPModeVIP:
				ingress.IpMode = new(contract.IpMode_IP_MODE_VIP)
			case v1.LoadBalancerIPModeProxy:
				ingress.IpMode = new(contract.IpMode_IP_MODE_PROXY)
			default:
				return nil, fmt.Errorf("the IP mode %q of the load balancer is neither VIP nor Proxy", *point.IPMode)
			}
		}
		for _, port := range point.Ports {
			told := &contract.PortStatus{Port: port.Port, Protocol: readable(string(port.Protocol))}
			if port.Error != nil {
				told.Error = new(readable(*port.Error))
			}
			ingress.Ports = append(ingress.Ports, told)
		}
		view.Ingress = append(view.Ingress, ingress)
	}
	return view, nil
}

// addressViews returns the addresses of an instance, without those that the contract cannot express.
func addressViews(addresses []v1.NodeAddress, leftOut func(what, value string, why ...string)) []*contract.NodeAddress {
	var views []*contract.NodeAddress
	for _, address := range addresses {
		kind := contract.NodeAddressType_NODE_ADDRESS_TYPE_UNSPECIFIED
		for view, known := range addressTypes {
			if known == address.Type {
				kind = view
			}
		}
		if address.Address == "" {
			// Some clouds list empty addresses.
			continue
		}
		if kind == contract.NodeAddressType_NODE_ADDRESS_TYPE_UNSPECIFIED {
			leftOut("address", address.Address, fmt.Sprintf("Kubernetes does not know the type %q", address.Type))
			continue
		}
		if why := unfit(address); why != "" {
			leftOut("address", address.Address, why)
			continue
		}
		views = append(views, &contract.NodeAddress{Type: kind, Address: address.Address})
	}
	return views
}

// dnsName matches a DNS name (RFC 1123) of any length, in upper or lower case.
var dnsName = regexp.MustCompile(`^[A-Za-z0-9]([-A-Za-z0-9]*[A-Za-z0-9])?(\.[A-Za-z0-9]([-A-Za-z0-9]*[A-Za-z0-9])?)*$`)

// unfit says why an address does not have the form of its type (INST-8); empty if it has.
func unfit(address v1.NodeAddress) string {
	if address.Type == v1.NodeInternalIP || address.Type == v1.NodeExternalIP {
		if ip, err := netip.ParseAddr(address.Address); err != nil || ip.Zone() != "" {
			return "it is not an IP address"
		}
	} else if len(address.Address) > nameBytes || !dnsName.MatchString(address.Address) {
		return "it is not a DNS name"
	}
	return ""
}

// targetsOf returns the Nodes of a target set; set is false if the set is absent (LB-10).
func targetsOf(targets *contract.TargetSet) (nodes []*v1.Node, set bool, err error) {
	if targets == nil {
		return nil, false, nil
	}
	list, ok := targets.GetSet().(*contract.TargetSet_Inline)
	if !ok {
		return nil, false, fmt.Errorf("the targets are not given as a list; this minor of the contract knows nothing else")
	}
	nodes = make([]*v1.Node, 0, len(list.Inline.GetNodes()))
	seen := map[string]bool{}
	for _, view := range list.Inline.GetNodes() {
		if seen[view.GetName()] {
			return nil, false, fmt.Errorf("the target %q is named twice", view.GetName())
		}
		seen[view.GetName()] = true
		nodes = append(nodes, nodeOf(view))
	}
	return nodes, true, nil
}

// volumeOf returns a PersistentVolume with the source of the view. It leaves out unknown fields: the controller takes the fields from the API server's
// object, so an unknown field belongs to a newer version of Kubernetes than this code.
func volumeOf(view *contract.VolumeView) (*v1.PersistentVolume, error) {
	volume := &v1.PersistentVolume{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolume"},
		ObjectMeta: metav1.ObjectMeta{
			Name: view.GetName(), UID: types.UID(view.GetUid()), Labels: view.GetLabels(), Annotations: view.GetAnnotations(),
		},
	}
	// The values come as text; the API's JSON has some of them as numbers and booleans.
	fields := map[string]json.RawMessage{}
	for name, value := range view.GetSource() {
		quoted, err := json.Marshal(value)
		if err != nil {
			return nil, err
		}
		fields[name] = quoted
		if value == "true" || value == "false" || number(value) {
			alone := map[string]map[string]json.RawMessage{view.GetSourceType(): {name: quoted}}
			if text, err := json.Marshal(alone); err != nil || json.Unmarshal(text, &v1.PersistentVolumeSource{}) != nil {
				fields[name] = json.RawMessage(value)
			}
		}
	}
	source, err := json.Marshal(map[string]any{view.GetSourceType(): fields})
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(source, &volume.Spec.PersistentVolumeSource); err != nil {
		return nil, fmt.Errorf("the source %s of the volume cannot be read: %w", view.GetSourceType(), err)
	}
	return volume, nil
}

func number(text string) bool {
	var value json.Number
	return json.Unmarshal([]byte(text), &value) == nil && text != "null"
}

func timeOf(time *timestamppb.Timestamp) metav1.Time {
	if time == nil {
		return metav1.Time{}
	}
	return metav1.NewTime(time.AsTime())
}

func filled(value string) *string {
	if value == "" {
		return nil
	}
	return &value
}

func named[Name ~string](value *string) *Name {
	if value == nil {
		return nil
	}
	return new(Name(*value))
}

// fits returns an error unless the contract accepts the text: valid UTF-8 of at most this length.
func fits(what, value string, most int) error {
	if len(value) > most {
		return fmt.Errorf("%s has %d bytes; the contract allows %d", what, len(value), most)
	}
	if !utf8.ValidString(value) {
		return fmt.Errorf("%s %q is not valid UTF-8", what, value)
	}
	return nil
}

// readable replaces invalid UTF-8, which an answer of the contract cannot have.
func readable(text string) string { return strings.ToValidUTF8(text, "\uFFFD") }

// shorten cuts a text for people to the limit of CORE-11.
func shorten(text string) string {
	text = readable(text)
	if len(text) <= textBytes {
		return text
	}
	const more = "…"
	return cutTo(text, textBytes-len(more)) + more
}

// cutTo cuts a text for people between two characters.
func cutTo(text string, most int) string {
	text = readable(text)
	if len(text) <= most {
		return text
	}
	for most > 0 && !utf8.RuneStart(text[most]) {
		most--
	}
	return text[:most]
}
