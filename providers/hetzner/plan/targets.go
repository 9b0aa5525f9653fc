package plan

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/grpc-ccm/grpc-ccm/providers/go/sdk"
)

// Target is a target of a load balancer: a server, an address, or the servers that a selector selects.
type Target struct {
	Server   int64
	IP       string
	Selector string
	Private  bool
	// Node is the Node's name, for people.
	Node string
}

func (t Target) key() Target {
	t.Node = ""
	return t
}

// Selected returns the Nodes that the Service's annotation selects, or all Nodes without the annotation.
func Selected(service *sdk.Service, targets *sdk.Targets) ([]sdk.Node, error) {
	if targets == nil {
		return nil, nil
	}
	text, is := service.Annotations[Prefix+"node-selector"]
	if !is {
		return targets.Nodes, nil
	}
	selector, err := labels.Parse(text)
	if err != nil {
		return nil, sdk.Invalid("the annotation %snode-selector: %q is no label selector: %v", Prefix, text, err).Because("AnnotationInvalid")
	}
	selected := []sdk.Node{}
	for _, node := range targets.Nodes {
		if selector.Matches(labels.Set(node.Labels)) {
			selected = append(selected, node)
		}
	}
	return selected, nil
}

// Targets returns the targets for the Nodes, and the error of each Node that cannot be a target (LB-17). left is the number of Nodes beyond the limit. These
// Nodes are no target errors, because the controller would retry target errors for ever. The argument `exists` reports whether a server exists, and
// `there` has the existing load balancer, or nil.
func Targets(nodes []sdk.Node, service *sdk.Service, settings *Settings, there *hcloud.LoadBalancer, most int, exists func(int64) bool) (all []Target, wrong map[string]error, left int) {
	private := read(service).truth("use-private-ip", settings.UsePrivateIP)
	if settings.TargetSelector != "" {
		return []Target{{Selector: settings.TargetSelector, Private: private}}, nil, 0
	}
	wrong = map[string]error{}
	seen := map[Target]bool{}
	for _, node := range nodes {
		target, err := targetOf(node, private, settings, exists)
		if err != nil {
			wrong[node.Name] = err
			continue
		}
		if !seen[target.key()] {
			seen[target.key()] = true
			all = append(all, target)
		}
	}
	kept := limited(all, there, most)
	return kept, wrong, len(all) - len(kept)
}

// limited returns the targets up to the limit; all if there is none.
func limited(all []Target, there *hcloud.LoadBalancer, most int) []Target {
	if most <= 0 || len(all) <= most {
		return all
	}
	// Existing targets come first; the other Nodes follow by name.
	is := map[Target]bool{}
	for _, target := range TargetsOf(there) {
		is[target.key()] = true
	}
	slices.SortStableFunc(all, func(one, other Target) int {
		if is[one.key()] != is[other.key()] {
			if is[one.key()] {
				return -1
			}
			return 1
		}
		return cmp.Compare(one.Node, other.Node)
	})
	return all[:most]
}

// NewServers returns how many of these targets are servers that are not targets of the load balancer yet.
func NewServers(all []Target, there *hcloud.LoadBalancer) (count int) {
	is := map[int64]bool{}
	for _, target := range TargetsOf(there) {
		is[target.Server] = true
	}
	for _, target := range all {
		if target.Server != 0 && !is[target.Server] {
			count++
		}
	}
	return count
}

func targetOf(node sdk.Node, private bool, settings *Settings, exists func(int64) bool) (Target, error) {
	id, robot, err := ServerID(node.ProviderID)
	switch {
	case node.ProviderID == "":
		return Target{}, sdk.Precondition("the Node has no provider ID yet").Because("NodeNotInitialized")
	case err != nil:
		return Target{}, err
	case robot && !settings.Robot:
		return Target{}, sdk.Precondition("the Node is a dedicated server; start the provider with --robot-targets").Because("DedicatedServer")
	case robot:
		kind := sdk.ExternalIP
		if private {
			kind = sdk.InternalIP
		}
		for _, address := range node.Addresses {
			if ip, err := netip.ParseAddr(address.Address); err == nil && address.Type == kind && ip.Is4() {
				return Target{IP: ip.String(), Node: node.Name}, nil
			}
		}
		return Target{}, sdk.Precondition("the Node has no IPv4 address by which a load balancer reaches a dedicated server").Because("AddressMissing")
	case !exists(id):
		return Target{}, sdk.Precondition("the project has no server %d", id).Because("InstanceMissing")
	default:
		return Target{Server: id, Private: private, Node: node.Name}, nil
	}
}

// TargetsOf returns the targets of a load balancer.
func TargetsOf(lb *hcloud.LoadBalancer) (all []Target) {
	if lb == nil {
		return nil
	}
	for _, target := range lb.Targets {
		switch {
		case target.Server != nil && target.Server.Server != nil:
			all = append(all, Target{Server: target.Server.Server.ID, Private: target.UsePrivateIP})
		case target.IP != nil:
			all = append(all, Target{IP: target.IP.IP})
		case target.LabelSelector != nil:
			all = append(all, Target{Selector: target.LabelSelector.Selector, Private: target.UsePrivateIP})
		}
	}
	return all
}
