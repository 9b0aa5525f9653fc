package sdk

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/grpc-ccm/grpc-ccm/providers/go/contract"
)

// LoadBalancers manages the load balancers of Services of type LoadBalancer. The cluster's owner ID and the Service's UID identify a load balancer
// (LB-1); namespace and name are for people.
//
// A provider must not touch a load balancer, listener, frontend or rule that it did not make or adopt for this owner (LB-2). It must check the owner of the
// load balancer that a handle names, because a user can edit the handle (LB-4). It must work without a handle (LB-5). [FindOwn], [Call.Mark],
// [Call.Ownership] and [MayTake] help.
//
// While Ensure, Update or Delete of a Service runs, the server answers BUSY to another such call
// for the same Service (CORE-7). Their context ends at 70 % of the call's time. If the method then
// returns the context's error, or still runs, the server answers pending (CORE-9), and a later call
// continues the work.
type LoadBalancers interface {
	// GetLoadBalancer returns the state of this Service's load balancer. It writes nothing (LB-6). Deadline 5 min.
	GetLoadBalancer(ctx context.Context, call *Call, request GetLoadBalancer) (LoadBalancer, error)
	// EnsureLoadBalancer makes the load balancer, or changes it to match the Service. The request is the full state: it removes what a user has cleared
	// (LB-7). If the load balancer already matches, it writes nothing (LB-8). Errors also: [Pending], [ErrHandledElsewhere]. Deadline 5 min.
	EnsureLoadBalancer(ctx context.Context, call *Call, request EnsureLoadBalancer) (LoadBalancerStatus, error)
	// UpdateLoadBalancer sets the targets to the given ones, and changes no other setting (LB-16).
	// If the load balancer does not exist, it returns [NotFound] (LB-11). Errors also: [Pending],
	// [ErrHandledElsewhere]. Deadline 5 min.
	UpdateLoadBalancer(ctx context.Context, call *Call, request UpdateLoadBalancer) error
	// DeleteLoadBalancer removes all cloud objects of this Service. nil means that a search of the cloud found no object left, also if none existed
	// before. In doubt return an error (LB-12). Errors also: [Pending], [Retained], [ErrHandledElsewhere]. Deadline 5 min.
	DeleteLoadBalancer(ctx context.Context, call *Call, request DeleteLoadBalancer) error
}

// LoadBalancerLister lists all load balancers.
type LoadBalancerLister interface {
	// ListLoadBalancers returns all load balancers that are marked for this cluster. It must be complete, or fail (LB-13). Deadline 5 min.
	ListLoadBalancers(ctx context.Context, call *Call) ([]ListedLoadBalancer, error)
}

// ServiceFeature is a field of a Service that a cloud may or may not honour.
type ServiceFeature int32

// The fields of a Service that a cloud may or may not honour.
const (
	FeatureSourceRanges               = ServiceFeature(contract.ServiceFeature_SERVICE_FEATURE_SOURCE_RANGES)
	FeatureSessionAffinity            = ServiceFeature(contract.ServiceFeature_SERVICE_FEATURE_SESSION_AFFINITY)
	FeatureExternalTrafficPolicyLocal = ServiceFeature(contract.ServiceFeature_SERVICE_FEATURE_EXTERNAL_TRAFFIC_POLICY_LOCAL)
	FeatureUDP                        = ServiceFeature(contract.ServiceFeature_SERVICE_FEATURE_UDP)
	FeatureSCTP                       = ServiceFeature(contract.ServiceFeature_SERVICE_FEATURE_SCTP)
	FeatureDualStack                  = ServiceFeature(contract.ServiceFeature_SERVICE_FEATURE_DUAL_STACK)
	FeatureIPMode                     = ServiceFeature(contract.ServiceFeature_SERVICE_FEATURE_IP_MODE)
	FeatureLoadBalancerIP             = ServiceFeature(contract.ServiceFeature_SERVICE_FEATURE_LOAD_BALANCER_IP)
	FeatureAppProtocol                = ServiceFeature(contract.ServiceFeature_SERVICE_FEATURE_APP_PROTOCOL)
)

// Targets are the Nodes that a load balancer balances to.
type Targets struct {
	// Nodes are in the order of their names.
	Nodes []Node
}

// GetLoadBalancer is the request of the method of that name.
type GetLoadBalancer struct {
	// Service is the Service of the load balancer.
	Service Service
	// Handle is the handle of an earlier answer; empty if there is none.
	Handle string
	// Targets are the targets that it should have, for [LoadBalancer.InSync]; nil if they do not matter.
	Targets *Targets
	// Notes collects the parts of the answer beside its outcome.
	Notes *Notes
}

// EnsureLoadBalancer is the request of the method of that name.
type EnsureLoadBalancer struct {
	// Service is the Service of the load balancer.
	Service Service
	// Handle is the handle of an earlier answer; empty if there is none.
	Handle string
	// Targets are the targets that it shall have. nil leaves the existing targets alone; an empty set removes all (LB-10).
	Targets *Targets
	// AdoptUnmarked is the operator's grant to take over an unmarked load balancer if the native name, a tag, the handle or a status address matches.
	// The provider must then mark it (LB-9). See [MayTake].
	AdoptUnmarked bool
	// Notes collects the parts of the answer beside its outcome.
	Notes *Notes
}

// UpdateLoadBalancer is the request of the method of that name.
type UpdateLoadBalancer struct {
	// Service is the Service of the load balancer.
	Service Service
	// Handle is the handle of an earlier answer; empty if there is none.
	Handle string
	// Targets are the targets that it shall have; an empty set removes all.
	Targets Targets
	// Notes collects the parts of the answer beside its outcome.
	Notes *Notes
}

// DeleteLoadBalancer is the request of the method of that name.
type DeleteLoadBalancer struct {
	// Service is the Service of the load balancer, as the controller last saw it.
	Service Service
	// Handle is the handle of an earlier answer; empty if there is none.
	Handle string
	// AdoptUnmarked is the operator's grant to remove the unmarked load balancer with the Service's native name or tag. Without the grant the answer
	// for such a load balancer is CONFLICT or retained (LB-24), never done (LB-26).
	AdoptUnmarked bool
	// Notes collects the parts of the answer beside its outcome.
	Notes *Notes
}

const (
	// The most events of one answer that the controller reads (CORE-11).
	mostEvents = 32
	// The most bytes that the target errors of one answer take. The whole answer has at most 1 MiB (CORE-11).
	mostTargetErrors = 512 * 1024
)

// Notes takes the handle, events, annotations and target errors of a call about a load balancer. The server sends them beside every outcome, also beside
// a failure, a panic or a time limit. Several goroutines may write to one Notes. A nil Notes drops what it gets.
type Notes struct {
	mutex        sync.Mutex
	handle       *string
	events       []*contract.Event
	set          map[string]string
	remove       []string
	targetErrors map[string]error
}

func (n *Notes) write(change func()) {
	if n != nil {
		n.mutex.Lock()
		defer n.mutex.Unlock()
		change()
	}
}

// Handle sets the cloud's own ID of the load balancer: opaque, 1 to 1,024 bytes. Call it as soon as
// the cloud has given the ID. The controller stores the handle before its next call and sends it in
// later calls, but not in those with AdoptUnmarked. Without it the earlier handle stays (LB-3).
func (n *Notes) Handle(handle string) { n.write(func() { n.handle = &handle }) }

// Event records an event of type Normal on the Service: a reason of one word in CamelCase, and a sentence. It drops all events of a call after the 32nd,
// which the controller would not read (CORE-11).
func (n *Notes) Event(reason, message string) {
	n.event(contract.EventSeverity_EVENT_SEVERITY_NORMAL, reason, message)
}

// Warn records an event of type Warning on the Service, with the limit of [Notes.Event].
func (n *Notes) Warn(reason, message string) {
	n.event(contract.EventSeverity_EVENT_SEVERITY_WARNING, reason, message)
}

func (n *Notes) event(severity contract.EventSeverity, reason, message string) {
	n.write(func() {
		if len(n.events) < mostEvents {
			n.events = append(n.events, &contract.Event{Severity: severity, Reason: cut(reason), Message: cut(message)})
		}
	})
}

// SetAnnotation sets an annotation on the Service. The controller applies only keys with a prefix that the operator granted.
func (n *Notes) SetAnnotation(key, value string) {
	n.write(func() {
		if n.set == nil {
			n.set = map[string]string{}
		}
		n.set[key] = value
	})
}

// RemoveAnnotation removes an annotation from the Service, with the limit of [Notes.SetAnnotation].
func (n *Notes) RemoveAnnotation(key string) { n.write(func() { n.remove = append(n.remove, key) }) }

// TargetError records that a target, by its Node's name, could not be attached. It does not fail
// the other targets (LB-17). The controller repeats the call after the error's RetryAfter, or with
// backoff, unless [LoadBalancerOptions.IgnoresNodes] is set. TargetError records nothing if the
// error is nil.
func (n *Notes) TargetError(node string, err error) {
	if err == nil {
		return
	}
	n.write(func() {
		if n.targetErrors == nil {
			n.targetErrors = map[string]error{}
		}
		n.targetErrors[node] = err
	})
}

// Service is a Service, with the fields that concern a load balancer. Empty fields and nil pointers
// are absent, as in the Kubernetes API.
type Service struct {
	// Namespace, Name and UID are of metadata.
	Namespace, Name, UID string
	// Labels, and Annotations without kubectl's last-applied-configuration.
	Labels, Annotations map[string]string
	// Finalizers are of metadata.
	Finalizers []string
	// Generation is metadata.generation; zero where the API server keeps none.
	Generation int64
	// Created and Deleted are the timestamps of metadata; Deleted is zero while the Service is not being deleted.
	Created, Deleted time.Time
	// Type is spec.type.
	Type string
	// LoadBalancerClass is spec.loadBalancerClass.
	LoadBalancerClass *string
	// Ports are spec.ports.
	Ports []ServicePort
	// ClusterIPs and ExternalIPs are of spec.
	ClusterIPs, ExternalIPs []string
	// LoadBalancerIP is spec.loadBalancerIP, as the user wrote it.
	LoadBalancerIP string
	// SourceRanges are spec.loadBalancerSourceRanges, or the ranges of its annotation: CIDRs as the user wrote them. An empty list admits all clients.
	SourceRanges []string
	// SessionAffinity is None or ClientIP, and SessionAffinityTimeout its timeoutSeconds.
	SessionAffinity        string
	SessionAffinityTimeout time.Duration
	// ExternalTrafficPolicy is Cluster or Local. HealthCheckNodePort belongs to Local, and is zero without it.
	ExternalTrafficPolicy string
	HealthCheckNodePort   int
	// InternalTrafficPolicy is of spec.
	InternalTrafficPolicy string
	// IPFamilies are IPv4 and IPv6 in the order of preference; IPFamilyPolicy is SingleStack, PreferDualStack or RequireDualStack.
	IPFamilies     []string
	IPFamilyPolicy string
	// AllocateNodePorts is spec.allocateLoadBalancerNodePorts; nil is true.
	AllocateNodePorts *bool
	// PublishNotReadyAddresses is of spec.
	PublishNotReadyAddresses bool
	// Status is status.loadBalancer.
	Status LoadBalancerStatus
}

// ServicePort is a port of a Service.
type ServicePort struct {
	// Name, Protocol (TCP, UDP or SCTP), and AppProtocol; empty where it has none.
	Name, Protocol, AppProtocol string
	// Port is the port on which the load balancer listens.
	Port int
	// TargetPort is a number or a name, as text.
	TargetPort string
	// NodePort is the port on which the Nodes listen; nil if none is allocated.
	NodePort *int
}

// LoadBalancerStatus is status.loadBalancer of a Service.
type LoadBalancerStatus struct {
	// Ingress are the addresses of the load balancer.
	Ingress []Ingress
}

// Ingress is one point at which clients reach a load balancer: an address, a host name or both (LB-19).
type Ingress struct {
	// IP is the address; the zero value if there is only a host name.
	IP netip.Addr
	// Hostname is a DNS name in lower case.
	Hostname string
	// IPMode says how traffic to IP arrives at the Nodes (KEP-1860).
	IPMode IPMode
	// Ports are the ports and their errors.
	Ports []PortStatus
}

// IPMode is status.loadBalancer.ingress.ipMode: the destination that traffic has when it arrives at the Nodes.
type IPMode int32

// How traffic to an address arrives at the Nodes; the zero value counts as VIP.
const (
	// IPModeVIP: the destination is the load balancer's address. Nodes may deliver traffic from inside the cluster directly.
	IPModeVIP = IPMode(contract.IpMode_IP_MODE_VIP)
	// IPModeProxy: the destination is a Node's or Pod's address. Nodes must send traffic from inside the cluster to the load balancer.
	IPModeProxy = IPMode(contract.IpMode_IP_MODE_PROXY)
)

// PortStatus is a port of a load balancer.
type PortStatus struct {
	// Port is its number.
	Port int
	// Protocol is TCP, UDP or SCTP. Error is its error, in CamelCase; empty without one.
	Protocol, Error string
}

// Presence says whether a load balancer exists.
type Presence int32

// Whether a load balancer exists. The zero value is not valid: the server answers INTERNAL.
const (
	// LoadBalancerAbsent says that no load balancer exists.
	LoadBalancerAbsent = Presence(contract.LoadBalancerPresence_LOAD_BALANCER_PRESENCE_ABSENT)
	// LoadBalancerPresent says that a load balancer exists.
	LoadBalancerPresent = Presence(contract.LoadBalancerPresence_LOAD_BALANCER_PRESENCE_PRESENT)
	// LoadBalancerRemnants says that parts remain that a delete would remove.
	LoadBalancerRemnants = Presence(contract.LoadBalancerPresence_LOAD_BALANCER_PRESENCE_REMNANTS)
)

// LoadBalancer is a load balancer as the cloud has it.
type LoadBalancer struct {
	// Presence says whether the load balancer exists.
	Presence Presence
	// Ownership is its owner; zero only if the load balancer is absent.
	Ownership Ownership
	// Name is its name in the cloud, for people. The SDK cuts it to 253 bytes (LB-33).
	Name string
	// Status has its addresses.
	Status LoadBalancerStatus
	// InSync says whether Ensure with the same Service, targets and handle would write nothing and
	// answer ready without a target error (LB-14). The server sends it only with
	// [LoadBalancerOptions.InSync], and only for a present load balancer. [Same] helps to compute
	// it.
	InSync bool
}

// ListedLoadBalancer is a load balancer that is marked for this cluster.
type ListedLoadBalancer struct {
	// Name is its name in the cloud, cut to 253 bytes (LB-33); Handle is as in [Notes.Handle], and may be empty.
	Name, Handle string
	// Owners are the Services for which the load balancer, or a part of it, is marked.
	Owners []ServiceRef
}

// ServiceRef names a Service.
type ServiceRef struct {
	// Namespace, Name and UID are of metadata. UID is empty if the mark holds only the UID's digits
	// (LB-30). A new Service can have the name of a deleted one, but never its UID, so marks have
	// the UID (LB-1).
	Namespace, Name, UID string
}

func targetsFrom(set *contract.TargetSet) (*Targets, error) {
	if set == nil {
		return nil, nil
	}
	inline, ok := set.Set.(*contract.TargetSet_Inline)
	if !ok {
		return nil, Invalid("the targets are not inline; this minor of the contract has no other form")
	}
	views := inline.Inline.GetNodes()
	if err := checkNodes(views); err != nil {
		return nil, err
	}
	targets := &Targets{}
	for _, view := range views {
		targets.Nodes = append(targets.Nodes, nodeFrom(view))
	}
	return targets, nil
}

func serviceFrom(view *contract.ServiceView) (Service, error) {
	if view.GetUid() == "" {
		return Service{}, Invalid("the request's service %s/%s has no uid; a load balancer is identified by it", view.GetNamespace(), view.GetName())
	}
	if view.Name == "" {
		return Service{}, Invalid("the request's service with the uid %s has no name (CORE-20)", view.Uid)
	}
	service := Service{
		Namespace: view.Namespace, Name: view.Name, UID: view.Uid, Labels: maps.Clone(view.Labels), Annotations: maps.Clone(view.Annotations),
		Finalizers: slices.Clone(view.Finalizers), Generation: view.GetGeneration(), Type: view.Type, LoadBalancerClass: view.LoadBalancerClass,
		ClusterIPs: view.ClusterIps, ExternalIPs: view.ExternalIps, LoadBalancerIP: view.GetLoadBalancerIp(), SourceRanges: view.LoadBalancerSourceRanges,
		SessionAffinity: view.SessionAffinity, SessionAffinityTimeout: view.SessionAffinityTimeout.AsDuration(), ExternalTrafficPolicy: view.ExternalTrafficPolicy,
		HealthCheckNodePort: int(view.GetHealthCheckNodePort()), InternalTrafficPolicy: view.GetInternalTrafficPolicy(), IPFamilies: view.IpFamilies,
		IPFamilyPolicy: view.GetIpFamilyPolicy(), AllocateNodePorts: view.AllocateLoadBalancerNodePorts, PublishNotReadyAddresses: view.PublishNotReadyAddresses,
	}
	if view.CreationTime != nil {
		service.Created = view.CreationTime.AsTime()
	}
	if view.DeletionTime != nil {
		service.Deleted = view.DeletionTime.AsTime()
	}
	for _, port := range view.Ports {
		read := ServicePort{Name: port.Name, Protocol: port.Protocol, AppProtocol: port.GetAppProtocol(), Port: int(port.Port), TargetPort: port.TargetPort}
		if port.NodePort != nil {
			number := int(*port.NodePort)
			read.NodePort = &number
		}
		service.Ports = append(service.Ports, read)
	}
	for _, point := range view.GetStatus().GetIngress() {
		read := Ingress{Hostname: point.GetHostname(), IPMode: IPMode(point.GetIpMode())}
		// An address that does not parse is left out.
		read.IP, _ = netip.ParseAddr(point.GetIp())
		for _, port := range point.Ports {
			read.Ports = append(read.Ports, PortStatus{int(port.Port), port.Protocol, port.GetError()})
		}
		service.Status.Ingress = append(service.Status.Ingress, read)
	}
	return service, nil
}

func statusTo(status LoadBalancerStatus) (*contract.LoadBalancerStatus, error) {
	sent := &contract.LoadBalancerStatus{}
	for _, point := range status.Ingress {
		if !point.IP.IsValid() && point.Hostname == "" {
			return nil, contractBroken("a point of the status has neither an address nor a host name (LB-19)")
		}
		if err := atMost("the host name of the status", point.Hostname, nameBytes); err != nil {
			return nil, err
		}
		ingress := &contract.LoadBalancerIngress{Hostname: optional(point.Hostname)}
		if point.IP.IsValid() {
			ingress.Ip = optional(point.IP.Unmap().WithZone("").String())
		}
		if point.IPMode != 0 {
			ingress.IpMode = contract.IpMode(point.IPMode).Enum()
		}
		for _, port := range point.Ports {
			if err := errors.Join(atMost("a port's protocol", port.Protocol, nameBytes), atMost("a port's error", port.Error, idBytes)); err != nil {
				return nil, err
			}
			ingress.Ports = append(ingress.Ports, &contract.PortStatus{Port: int32(port.Port), Protocol: port.Protocol, Error: optional(port.Error)})
		}
		sent.Ingress = append(sent.Ingress, ingress)
	}
	return sent, nil
}

func (s *session) loadBalancerTo(found LoadBalancer) (*contract.LoadBalancer, error) {
	switch found.Presence {
	case LoadBalancerAbsent:
		return &contract.LoadBalancer{Presence: contract.LoadBalancerPresence_LOAD_BALANCER_PRESENCE_ABSENT}, nil
	case LoadBalancerPresent, LoadBalancerRemnants:
	default:
		return nil, contractBroken("the contract has no presence %d", found.Presence)
	}
	if found.Ownership < Ours || found.Ownership > Unmarked {
		return nil, contractBroken("an existing load balancer has no ownership")
	}
	status, err := statusTo(found.Status)
	if err != nil {
		return nil, err
	}
	sent := &contract.LoadBalancer{Presence: contract.LoadBalancerPresence(found.Presence), Ownership: contract.Ownership(found.Ownership), LoadBalancerName: cutTo(found.Name, nameBytes), Status: status}
	if s.info.LoadBalancers.InSync && found.Presence == LoadBalancerPresent {
		sent.InSync = &found.InSync
	}
	return sent, nil
}
