package adapter

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/grpc-ccm/grpc-ccm/providers/go/contract"
)

const (
	// lastApplied is the annotation with kubectl's copy of the object. The adapter never sends it.
	lastApplied = "kubectl.kubernetes.io/last-applied-configuration"
	// handleAnnotation is the annotation with the provider's handle from the Rust ccm.
	handleAnnotation = "grpc-ccm.io/load-balancer"
)

var addressTypes = map[v1.NodeAddressType]contract.NodeAddressType{
	v1.NodeHostName:    contract.NodeAddressType_NODE_ADDRESS_TYPE_HOSTNAME,
	v1.NodeInternalIP:  contract.NodeAddressType_NODE_ADDRESS_TYPE_INTERNAL_IP,
	v1.NodeExternalIP:  contract.NodeAddressType_NODE_ADDRESS_TYPE_EXTERNAL_IP,
	v1.NodeInternalDNS: contract.NodeAddressType_NODE_ADDRESS_TYPE_INTERNAL_DNS,
	v1.NodeExternalDNS: contract.NodeAddressType_NODE_ADDRESS_TYPE_EXTERNAL_DNS,
}

// owns tells whether the Node's provider ID begins with one of this provider's prefixes.
func (c *Cloud) owns(node *v1.Node) bool {
	for _, prefix := range c.info.GetProviderIdPrefixes() {
		if prefix != "" && strings.HasPrefix(node.Spec.ProviderID, prefix) {
			return true
		}
	}
	return false
}

// nodeView returns the Node with the fields that the provider requests.
func (c *Cloud) nodeView(node *v1.Node) *contract.NodeView {
	return view(node, c.info.GetNodeProjection())
}

// targetView returns the Node with the fields that the provider requests of each Node and of each
// target.
func (c *Cloud) targetView(node *v1.Node) *contract.NodeView {
	wanted := &contract.NodeProjection{}
	proto.Merge(wanted, c.info.GetNodeProjection())
	proto.Merge(wanted, c.info.GetCapabilities().GetLoadBalancers().GetTargetProjection())
	groups := wanted.GetFieldGroups()
	slices.Sort(groups)
	wanted.FieldGroups = slices.Compact(groups)
	return view(node, wanted)
}

func view(node *v1.Node, wanted *contract.NodeProjection) *contract.NodeView {
	view := &contract.NodeView{
		Name:        node.Name,
		Uid:         string(node.UID),
		ProviderId:  filled(node.Spec.ProviderID),
		Addresses:   addressViews(node.Status.Addresses),
		Annotations: pick(node.Annotations, wanted.GetAnnotationKeys()),
	}
	if wanted.GetAllLabels() {
		view.Labels = node.Labels
	} else {
		view.Labels = pick(node.Labels, wanted.GetLabelKeys())
	}
	for _, group := range wanted.GetFieldGroups() {
		switch group {
		case contract.NodeFieldGroup_NODE_FIELD_GROUP_POD_CIDRS:
			view.PodCidrs = node.Spec.PodCIDRs
		case contract.NodeFieldGroup_NODE_FIELD_GROUP_TAINTS:
			for _, taint := range node.Spec.Taints {
				view.Taints = append(view.Taints, &contract.Taint{Key: taint.Key, Value: filled(taint.Value), Effect: string(taint.Effect)})
			}
		case contract.NodeFieldGroup_NODE_FIELD_GROUP_NODE_INFO:
			info := node.Status.NodeInfo
			view.NodeInfo = &contract.NodeInfo{
				MachineId: info.MachineID, SystemUuid: info.SystemUUID, BootId: info.BootID,
				Architecture: info.Architecture, OperatingSystem: info.OperatingSystem, KubeletVersion: info.KubeletVersion,
			}
		case contract.NodeFieldGroup_NODE_FIELD_GROUP_READINESS:
			view.Ready = new(isReady(node))
		case contract.NodeFieldGroup_NODE_FIELD_GROUP_CREATION_TIME:
			view.CreationTime = timestamppb.New(node.CreationTimestamp.Time)
		}
	}
	return view
}

func isReady(node *v1.Node) bool {
	for _, condition := range node.Status.Conditions {
		if condition.Type == v1.NodeReady {
			return condition.Status == v1.ConditionTrue
		}
	}
	return false
}

func pick(all map[string]string, keys []string) map[string]string {
	picked := map[string]string{}
	for _, key := range keys {
		if value, ok := all[key]; ok && key != lastApplied {
			picked[key] = value
		}
	}
	return picked
}

// addressViews leaves out addresses of a type that the contract does not know.
func addressViews(addresses []v1.NodeAddress) []*contract.NodeAddress {
	var views []*contract.NodeAddress
	for _, address := range addresses {
		if kind, ok := addressTypes[address.Type]; ok {
			views = append(views, &contract.NodeAddress{Type: kind, Address: address.Address})
		}
	}
	return views
}

func nodeAddresses(views []*contract.NodeAddress) ([]v1.NodeAddress, error) {
	var addresses []v1.NodeAddress
	for _, view := range views {
		kind, ok := addressType(view.GetType())
		if !ok || view.GetAddress() == "" {
			return nil, fmt.Errorf("address %q has no known type (%d)", view.GetAddress(), view.GetType())
		}
		addresses = append(addresses, v1.NodeAddress{Type: kind, Address: view.GetAddress()})
	}
	return addresses, nil
}

func addressType(wanted contract.NodeAddressType) (v1.NodeAddressType, bool) {
	for kind, view := range addressTypes {
		if view == wanted {
			return kind, true
		}
	}
	return "", false
}

// serviceView is the Service as the provider sees it.
func serviceView(service *v1.Service) *contract.ServiceView {
	spec := &service.Spec
	view := &contract.ServiceView{
		Namespace:                     service.Namespace,
		Name:                          service.Name,
		Uid:                           string(service.UID),
		Labels:                        service.Labels,
		Annotations:                   map[string]string{},
		Finalizers:                    service.Finalizers,
		CreationTime:                  timestamppb.New(service.CreationTimestamp.Time),
		Type:                          string(spec.Type),
		LoadBalancerClass:             spec.LoadBalancerClass,
		ClusterIps:                    spec.ClusterIPs,
		ExternalIps:                   spec.ExternalIPs,
		LoadBalancerIp:                filled(spec.LoadBalancerIP),
		LoadBalancerSourceRanges:      spec.LoadBalancerSourceRanges,
		SessionAffinity:               string(spec.SessionAffinity),
		ExternalTrafficPolicy:         string(spec.ExternalTrafficPolicy),
		InternalTrafficPolicy:         text(spec.InternalTrafficPolicy),
		HealthCheckNodePort:           positive(spec.HealthCheckNodePort),
		IpFamilyPolicy:                text(spec.IPFamilyPolicy),
		AllocateLoadBalancerNodePorts: spec.AllocateLoadBalancerNodePorts,
		PublishNotReadyAddresses:      spec.PublishNotReadyAddresses,
		Status:                        statusView(service.Status.LoadBalancer),
	}
	for key, value := range service.Annotations {
		if key != lastApplied {
			view.Annotations[key] = value
		}
	}
	if service.Generation != 0 {
		view.Generation = new(service.Generation)
	}
	if service.DeletionTimestamp != nil {
		view.DeletionTime = timestamppb.New(service.DeletionTimestamp.Time)
	}
	if config := spec.SessionAffinityConfig; config != nil && config.ClientIP != nil && config.ClientIP.TimeoutSeconds != nil {
		view.SessionAffinityTimeout = durationpb.New(time.Duration(*config.ClientIP.TimeoutSeconds) * time.Second)
	}
	for _, family := range spec.IPFamilies {
		view.IpFamilies = append(view.IpFamilies, string(family))
	}
	for _, port := range spec.Ports {
		view.Ports = append(view.Ports, &contract.ServicePort{
			Name: port.Name, Protocol: string(port.Protocol), AppProtocol: port.AppProtocol,
			Port: port.Port, TargetPort: targetPort(port.TargetPort), NodePort: positive(port.NodePort),
		})
	}
	return view
}

// targetPort returns the target port as text. It is empty for 0, which means no target port in
// Kubernetes.
func targetPort(port intstr.IntOrString) string {
	if port == intstr.FromInt32(0) {
		return ""
	}
	return port.String()
}

func statusView(status v1.LoadBalancerStatus) *contract.LoadBalancerStatus {
	view := &contract.LoadBalancerStatus{}
	for _, point := range status.Ingress {
		ingress := &contract.LoadBalancerIngress{Ip: filled(point.IP), Hostname: filled(point.Hostname)}
		if point.IPMode != nil {
			switch *point.IPMode {
			case v1.LoadBalancerIPModeVIP:
				ingress.IpMode = new(contract.IpMode_IP_MODE_VIP)
			case v1.LoadBalancerIPModeProxy:
				ingress.IpMode = new(contract.IpMode_IP_MODE_PROXY)
			}
		}
		for _, port := range point.Ports {
			ingress.Ports = append(ingress.Ports, &contract.PortStatus{Port: port.Port, Protocol: string(port.Protocol), Error: port.Error})
		}
		view.Ingress = append(view.Ingress, ingress)
	}
	return view
}

// loadBalancerStatus has the addresses of the load balancer. An absent ip_mode becomes VIP, as in
// the API server.
func loadBalancerStatus(view *contract.LoadBalancerStatus) (*v1.LoadBalancerStatus, error) {
	status := &v1.LoadBalancerStatus{}
	for _, point := range view.GetIngress() {
		ingress := v1.LoadBalancerIngress{IP: point.GetIp(), Hostname: point.GetHostname()}
		if ingress.IP != "" {
			mode := v1.LoadBalancerIPModeVIP
			switch {
			case point.IpMode == nil || point.GetIpMode() == contract.IpMode_IP_MODE_VIP:
			case point.GetIpMode() == contract.IpMode_IP_MODE_PROXY:
				mode = v1.LoadBalancerIPModeProxy
			default:
				return nil, fmt.Errorf("ingress ip_mode %d of the load balancer is not known", point.GetIpMode())
			}
			ingress.IPMode = &mode
		}
		for _, port := range point.GetPorts() {
			ingress.Ports = append(ingress.Ports, v1.PortStatus{Port: port.GetPort(), Protocol: v1.Protocol(port.GetProtocol()), Error: port.Error})
		}
		status.Ingress = append(status.Ingress, ingress)
	}
	return status, nil
}

// handle returns the handle that the Rust ccm stored on this Service for this provider, if it led
// before. Without a handle the provider finds its load balancer by mark, name and UID.
func (c *Cloud) handle(service *v1.Service) *string {
	var record struct {
		Provider string  `json:"provider"`
		UID      *string `json:"uid"`
		Handle   *string `json:"handle"`
	}
	if json.Unmarshal([]byte(service.Annotations[handleAnnotation]), &record) != nil ||
		record.Provider != c.info.GetProviderName() ||
		(record.UID != nil && *record.UID != string(service.UID)) {
		return nil
	}
	return record.Handle
}

func cloneRoute(route *contract.Route) *contract.Route {
	return proto.Clone(route).(*contract.Route)
}

func filled(value string) *string {
	if value == "" {
		return nil
	}
	return &value
}

func text[Text ~string](value *Text) *string {
	if value == nil {
		return nil
	}
	return new(string(*value))
}

func positive(value int32) *int32 {
	if value == 0 {
		return nil
	}
	return &value
}
