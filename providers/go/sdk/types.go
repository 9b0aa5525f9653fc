package sdk

import (
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/grpc-ccm/grpc-ccm/providers/go/contract"
)

const (
	nameBytes = 253
	idBytes   = 1024
	// The largest batch and the number of concurrent calls, if a provider states none.
	defaultBatch    = 100
	defaultInFlight = 8
)

// Cluster is the cluster on whose behalf a call is made.
type Cluster struct {
	// Name is for people, and may be part of names in the cloud. It is not unique.
	Name string
	// OwnerID is the cluster's identity as an owner of cloud objects. The provider marks the cluster's objects with it (CORE-14).
	OwnerID string
}

// Call describes the call for which a method runs. Several goroutines may use it.
type Call struct {
	// RPC is the name of the RPC, for example EnsureLoadBalancer.
	RPC string
	// Cluster is the cluster on whose behalf the call is made.
	Cluster Cluster
	// PreviousOwnerIDs are earlier owner IDs of this cluster: those of the last Initialize that succeeded before the call. In Initialize they are those of
	// its request.
	PreviousOwnerIDs []string

	contact *contact
}

// Owns reports whether an owner ID is this cluster's present one or a previous one.
func (c *Call) Owns(ownerID string) bool {
	owns := ownerID == c.Cluster.OwnerID
	for _, previous := range c.PreviousOwnerIDs {
		owns = owns || ownerID == previous
	}
	return owns && ownerID != ""
}

// CloudAnswered records that the cloud answered with success just now; Probe reports the last time.
func (c *Call) CloudAnswered() {
	if c.contact != nil {
		c.contact.record()
	}
}

// Node is a Node of the cluster, with the fields that [NodeProjection] names. Name, UID, provider ID and addresses are not subject to it.
type Node struct {
	// Name is metadata.name, UID is metadata.uid.
	Name, UID string
	// ProviderID is spec.providerID; empty while the Node has none, and for one of more than 1,024 bytes. It identifies the instance. Without it the Node's
	// name does (INST-3).
	ProviderID string
	// Addresses are status.addresses in their order, without kinds that this version does not know.
	Addresses []NodeAddress
	// Labels and Annotations are those that the projection names.
	Labels, Annotations map[string]string
	// PodCIDRs are spec.podCIDRs; with [FieldPodCIDRs].
	PodCIDRs []string
	// Taints are spec.taints; with [FieldTaints].
	Taints []Taint
	// Info is from status.nodeInfo; with [FieldNodeInfo], else nil.
	Info *NodeInfo
	// Ready says whether the Ready condition is True; with [FieldReadiness], else nil. A change of it alone causes a call about a load balancer only if
	// [LoadBalancerOptions.TargetProjection] has [FieldReadiness], or [LoadBalancerOptions.MaxTargets] excludes Nodes.
	Ready *bool
	// Created is metadata.creationTimestamp; with [FieldCreationTime], else zero.
	Created time.Time
}

// AddressType is the kind of a Node's address.
type AddressType int32

// The kinds of a Node's addresses, as Kubernetes names them.
const (
	Hostname    = AddressType(contract.NodeAddressType_NODE_ADDRESS_TYPE_HOSTNAME)
	InternalIP  = AddressType(contract.NodeAddressType_NODE_ADDRESS_TYPE_INTERNAL_IP)
	ExternalIP  = AddressType(contract.NodeAddressType_NODE_ADDRESS_TYPE_EXTERNAL_IP)
	InternalDNS = AddressType(contract.NodeAddressType_NODE_ADDRESS_TYPE_INTERNAL_DNS)
	ExternalDNS = AddressType(contract.NodeAddressType_NODE_ADDRESS_TYPE_EXTERNAL_DNS)
)

// NodeAddress is one address of a Node or an instance.
type NodeAddress struct {
	// Type is its kind.
	Type AddressType
	// Address is an IPv4 or IPv6 address without a prefix length, or a DNS name (RFC 1123), depending on the kind.
	Address string
}

// Taint is a taint of a Node.
type Taint struct {
	// Key and Value are the taint's; Value may be empty. Effect is NoSchedule, PreferNoSchedule or NoExecute.
	Key, Value, Effect string
}

// NodeInfo is the kubelet's description of its machine (status.nodeInfo).
type NodeInfo struct {
	// The fields of the same names in Kubernetes.
	MachineID, SystemUUID, BootID, Architecture, OperatingSystem, KubeletVersion string
}

// NodeField is a group of a Node's fields that a provider may ask for.
type NodeField int32

// The groups of a Node's fields.
const (
	FieldPodCIDRs     = NodeField(contract.NodeFieldGroup_NODE_FIELD_GROUP_POD_CIDRS)
	FieldTaints       = NodeField(contract.NodeFieldGroup_NODE_FIELD_GROUP_TAINTS)
	FieldNodeInfo     = NodeField(contract.NodeFieldGroup_NODE_FIELD_GROUP_NODE_INFO)
	FieldReadiness    = NodeField(contract.NodeFieldGroup_NODE_FIELD_GROUP_READINESS)
	FieldCreationTime = NodeField(contract.NodeFieldGroup_NODE_FIELD_GROUP_CREATION_TIME)
)

// NodeProjection names the fields that a provider wants to see of each Node, so that a request for 5,000 Nodes stays small. The zero value asks for
// no further fields.
type NodeProjection struct {
	// LabelKeys and AnnotationKeys are exact keys.
	LabelKeys, AnnotationKeys []string
	// AllLabels asks for all labels; LabelKeys is then ignored.
	AllLabels bool
	// Fields are groups of further fields.
	Fields []NodeField
}

func (p *NodeProjection) texts() []string { return slices.Concat(p.LabelKeys, p.AnnotationKeys) }

// Ownership is the owner of a cloud object, by the mark that it carries.
type Ownership int32

// The owner of a cloud object.
const (
	// Ours is marked with this cluster's owner ID or a previous one ([Call.Owns]) and, for a load balancer, with this Service's UID.
	Ours = Ownership(contract.Ownership_OWNERSHIP_OURS)
	// Foreign is marked for another owner.
	Foreign = Ownership(contract.Ownership_OWNERSHIP_FOREIGN)
	// Unmarked carries no mark: a person or another program made it, or the cloud cannot keep a mark.
	Unmarked = Ownership(contract.Ownership_OWNERSHIP_UNMARKED)
)

// Answer is the result for one item of a batch.
type Answer[T any] struct {
	// Value is the answer if Err is nil.
	Value T
	// Err is the failure of this item; it does not fail the others (INST-4, ROUTE-2).
	Err error
}

// Answers are the answers of a batch by key: the Node's name, or [Route.Key]. A requested key without an answer is a failure of that item. The server
// logs a key that is not in the request, and leaves it out.
type Answers[T any] map[string]Answer[T]

// Set records the answer for a key.
func (a Answers[T]) Set(key string, value T, err error) { a[key] = Answer[T]{value, err} }

// labelValue matches a label's value that is not empty.
var labelValue = regexp.MustCompile(`^[A-Za-z0-9]([-_.A-Za-z0-9]{0,61}[A-Za-z0-9])?$`)

// dnsName matches a DNS name (RFC 1123) of any length, in upper or lower case.
var dnsName = regexp.MustCompile(`^[A-Za-z0-9]([-A-Za-z0-9]*[A-Za-z0-9])?(\.[A-Za-z0-9]([-A-Za-z0-9]*[A-Za-z0-9])?)*$`)

func optional(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}

// fits returns an error unless value has 1 to most bytes of UTF-8.
func fits(what, value string, most int) error {
	if value == "" {
		return contractBroken("%s is empty", what)
	}
	return atMost(what, value, most)
}

// atMost returns an error if value is too long or no UTF-8. gRPC does not send invalid UTF-8, so one such text would fail the whole answer.
func atMost(what, value string, most int) error {
	switch {
	case len(value) > most:
		return contractBroken("%s has %d bytes, more than %d", what, len(value), most)
	case !utf8.ValidString(value):
		return contractBroken("%s %q is not UTF-8", what, value)
	default:
		return nil
	}
}

// textsOf returns an error unless all keys and values are UTF-8.
func textsOf(what string, texts map[string]string) error {
	for key, value := range texts {
		if !utf8.ValidString(key) || !utf8.ValidString(value) {
			return contractBroken("%s %q: %q is not UTF-8", what, key, value)
		}
	}
	return nil
}

func addressesTo(addresses []NodeAddress) (sent []*contract.NodeAddress, err error) {
	for _, address := range addresses {
		switch address.Type {
		case InternalIP, ExternalIP:
			if ip, err := netip.ParseAddr(address.Address); err != nil || ip.Zone() != "" {
				return nil, contractBroken("the address %q is not an IP address", address.Address)
			}
		case Hostname, InternalDNS, ExternalDNS:
			if err := fits("an address", address.Address, nameBytes); err != nil {
				return nil, err
			}
		default:
			return nil, contractBroken("the address %q has no known type", address.Address)
		}
		sent = append(sent, &contract.NodeAddress{Type: contract.NodeAddressType(address.Type), Address: address.Address})
	}
	return sent, nil
}

// isName says whether an address that is a name is a DNS name (INST-8). The server does not check a route's addresses with it, because they came from
// the controller.
func isName(address NodeAddress) bool {
	return len(address.Address) <= nameBytes && dnsName.MatchString(address.Address)
}

func addressesFrom(addresses []*contract.NodeAddress) (read []NodeAddress) {
	for _, address := range addresses {
		if kind := AddressType(address.GetType()); kind >= Hostname && kind <= ExternalDNS {
			read = append(read, NodeAddress{kind, address.GetAddress()})
		}
	}
	return read
}

func nodeFrom(view *contract.NodeView) Node {
	node := Node{
		Name: view.GetName(), UID: view.GetUid(), ProviderID: view.GetProviderId(), Addresses: addressesFrom(view.GetAddresses()),
		Labels: maps.Clone(view.GetLabels()), Annotations: maps.Clone(view.GetAnnotations()), PodCIDRs: view.GetPodCidrs(), Ready: view.Ready,
	}
	for _, taint := range view.GetTaints() {
		node.Taints = append(node.Taints, Taint{taint.GetKey(), taint.GetValue(), taint.GetEffect()})
	}
	if info := view.GetNodeInfo(); info != nil {
		node.Info = &NodeInfo{info.MachineId, info.SystemUuid, info.BootId, info.Architecture, info.OperatingSystem, info.KubeletVersion}
	}
	if view.GetCreationTime() != nil {
		node.Created = view.CreationTime.AsTime()
	}
	return node
}

// checkNodes returns an error if a request has a Node's name twice, or an empty one.
func checkNodes(views []*contract.NodeView) error {
	seen := map[string]bool{}
	for _, view := range views {
		if name := view.GetName(); name == "" || seen[name] {
			return Invalid("the request names the Node %q twice, or not at all", name)
		}
		seen[view.GetName()] = true
	}
	return nil
}

func withinBatch(what string, size, stated int) error {
	if most := orDefault(stated, defaultBatch); size > most {
		return Invalid("the request has %d %s, more than max_batch %d", size, what, most)
	}
	return nil
}

func orDefault[N int | time.Duration](stated, otherwise N) N {
	if stated <= 0 {
		return otherwise
	}
	return stated
}
