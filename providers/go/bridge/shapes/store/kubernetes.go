package store

import (
	"fmt"
	"io"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	cloudprovider "k8s.io/cloud-provider"
	"sigs.k8s.io/yaml"
)

// The code for Go's interface that the shapes share.

// Register registers a cloud under its name; its configuration file is read into the settings that
// its constructor takes.
func Register[Settings any](name string, cloud func(Settings) cloudprovider.Interface) {
	cloudprovider.RegisterCloudProvider(name, func(config io.Reader) (cloudprovider.Interface, error) {
		var settings Settings
		if config == nil {
			return nil, fmt.Errorf("%s needs --cloud-config with state: FILE", name)
		}
		text, err := io.ReadAll(config)
		if err != nil {
			return nil, err
		}
		if err := yaml.UnmarshalStrict(text, &settings); err != nil {
			return nil, err
		}
		return cloud(settings), nil
	})
}

// File is the configuration of a cloud with only a state.
type File struct {
	State string `json:"state"`
}

// Newer has the methods for parts that a cloud with InstancesV2 lacks.
type Newer struct{}

// Instances is older than InstancesV2.
func (Newer) Instances() (cloudprovider.Instances, bool) { return nil, false }

// Zones is older than InstancesV2.
func (Newer) Zones() (cloudprovider.Zones, bool) { return nil, false }

// Clusters returns false: the cloud has none.
func (Newer) Clusters() (cloudprovider.Clusters, bool) { return nil, false }

// Addresses returns the addresses of the instance's Node, without a host name if hostName is empty.
func (i *Instance) Addresses(hostName string) []v1.NodeAddress {
	internal := v1.NodeAddress{Type: v1.NodeInternalIP, Address: i.Address}
	if hostName == "" {
		return []v1.NodeAddress{internal}
	}
	return []v1.NodeAddress{{Type: v1.NodeHostName, Address: hostName}, internal}
}

// Metadata returns the instance's result of InstanceMetadata; the provider ID begins with the scheme.
func (i *Instance) Metadata(scheme, hostName string) *cloudprovider.InstanceMetadata {
	return &cloudprovider.InstanceMetadata{ProviderID: scheme + i.ID, InstanceType: i.Type, Zone: i.Zone, Region: i.Region, NodeAddresses: i.Addresses(hostName)}
}

// Status returns the load balancer's address.
func (l *LoadBalancer) Status() *v1.LoadBalancerStatus {
	return &v1.LoadBalancerStatus{Ingress: []v1.LoadBalancerIngress{{IP: l.IP}}}
}

// PortRules are the rules for the ports of a Service.
func PortRules(service *v1.Service) []string {
	var rules []string
	for _, port := range service.Spec.Ports {
		rules = append(rules, fmt.Sprintf("%s %d to %d", port.Protocol, port.Port, port.NodePort))
	}
	return rules
}

// Rules are the rules for the ports and the source ranges.
func Rules(service *v1.Service) []string {
	rules := PortRules(service)
	for _, source := range service.Spec.LoadBalancerSourceRanges {
		rules = append(rules, "from "+source)
	}
	return rules
}

// TargetIDs are the IDs of the Nodes' instances, sorted.
func TargetIDs(scheme string, nodes []*v1.Node) []string {
	var ids []string
	for _, node := range nodes {
		ids = append(ids, strings.TrimPrefix(node.Spec.ProviderID, scheme))
	}
	slices.Sort(ids)
	return ids
}
