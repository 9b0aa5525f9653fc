// The cloud provider contract, v1alpha1.
//
// A cloud-controller-manager ("the controller") holds the Kubernetes credentials. A cloud provider
// ("the provider") is another process that holds the cloud's credentials. The provider serves the
// services of this package on one Unix socket. The controller dials the socket and serves none of
// them. The comments of this package's files are the whole contract. MUST and SHOULD are normative
// (RFC 2119). Each rule has an ID, such as CORE-1, which tests cite. Each RPC's comment lists the
// IDs of the rules that the RPC has to keep. Initialize alone lists PROV-11, PROV-18 and PROV-20,
// which bind other RPCs too.
//
// Some rules hold for many RPCs. CORE-1 to CORE-3, CORE-5, CORE-17, CORE-18 and PROV-7 bind the
// process, not one RPC. Every RPC keeps CORE-4, CORE-6, CORE-11, CORE-12 and CORE-13. Every RPC
// with failures also keeps CORE-15 and CORE-21, and every RPC with a deadline CORE-19. Every RPC
// whose request has `cluster` also keeps CORE-20. Each of these RPCs also keeps CORE-10 and
// CORE-22, with the exceptions that these two rules name. Every RPC that writes to the cloud also
// keeps CORE-7, CORE-8 and PROV-20, and CORE-14 if it makes or marks objects.
//
// Transport
//
// CORE-1: The provider MUST serve gRPC over HTTP/2 without TLS and without compression on a Unix
// stream socket. The endpoint is `unix:///run/cloud-provider/socket/provider.sock` unless
// configured. `:authority` is `localhost`. Neither side sends HTTP/2 pings or closes an idle
// connection. One ping is allowed: some stacks send it with GOAWAY, to learn that the GOAWAY
// arrived (CORE-17).
//
// Why no pings: every 10 s Probe shows whether the process answers, and a ping does not show that.
// A Unix socket has no middlebox that drops idle connections. And a stack that counts pings as
// abuse ends the connection (ENHANCE_YOUR_CALM), even during a call. Most stacks ping for two
// reasons, keepalive and bandwidth measurement (BDP). Switch both off:
//
//   grpc-go      KeepaliveParams(keepalive.ServerParameters{Time: math.MaxInt64}),
//                StaticStreamWindowSize(1 << 20) and StaticConnWindowSize(4 << 20). Set both: if
//                only one is set, the other window has 64 KiB. In releases that lack these two,
//                InitialWindowSize and InitialConnWindowSize do the same.
//                No MaxConnectionIdle, no MaxConnectionAge.
//   grpc-java    NettyServerBuilder.keepAliveTime(Long.MAX_VALUE, NANOSECONDS) and
//                flowControlWindow(4 << 20), not initialFlowControlWindow. No maxConnectionIdle, no
//                maxConnectionAge.
//   grpc-python  options grpc.keepalive_time_ms = 2147483647 and grpc.http2.bdp_probe = 0; the same
//                for C++ and Ruby.
//   grpc-js      nothing to set: no grpc.keepalive_time_ms, no grpc.max_connection_idle_ms, no
//                grpc.max_connection_age_ms.
//   tonic        nothing to set: no http2_keepalive_interval, no http2_adaptive_window, no
//                max_connection_age.
//
// CORE-2: The socket's directory MUST have mode 0750 and the socket mode 0660; the two processes
// share a primary group. Abstract sockets and symlinks (anywhere in the path) MUST NOT be used. A
// socket's path has at most 107 bytes. The provider removes a stale socket file only when no
// process answers on it. The directory holds only the socket. If the directory does not exist, the
// provider makes it with mode 0750. If the directory exists, the provider leaves it unchanged,
// whatever its owner and mode, because the deployment has made it (a volume that two containers
// mount). The directories above it belong to the deployment too, and a provider need not make them.
// "Anywhere" means every part of the configured path, from `/` on. `/var/run` is a symlink on most
// machines, so use `/run`. A provider MUST NOT serve if it finds a symlink, a file that is not a
// socket, or a socket on which another process answers. In each of these cases the provider exits
// and names the part of the path that is wrong.
//
// CORE-3: A provider SHOULD check the peer's uid (SO_PEERCRED) if one is configured.
//
// Failures and statuses
//
// CORE-4: The provider MUST state its outcome in the body of the answer. Every answer except those
// of GetProviderInfo and Probe has `failed` for that. In the answer to a batch, `failed` is beside
// `results`. In every other answer and in every item of a batch, it is in a oneof with the other
// outcomes. A gRPC status other than OK means "unknown": the controller concludes nothing from it,
// and tries again later. One exception: UNIMPLEMENTED for GetProviderInfo shows that the process
// does not speak this version of the contract.
//
// CORE-5: A provider MUST leave out of `Capabilities` the block, or the field, of each service and
// RPC that it does not implement. It MUST NOT advertise an RPC there and answer it with gRPC status
// UNIMPLEMENTED. The controller calls only RPCs that are advertised. If another caller calls an RPC
// that is not advertised, the provider answers gRPC status UNIMPLEMENTED, or `failed` with
// INTERNAL.
//
// Idempotency, concurrency, deadlines
//
// CORE-6: Every RPC MUST be safe to repeat, and to resume after an interruption at any point.
//
// CORE-7: A provider that sees two overlapping mutating calls for the same object MUST answer BUSY
// to one of them, or serialise them.
//
// A controller process has at most one mutating call in flight for each Service and for each route.
// It keeps to the `max_in_flight` (CORE-22) and `max_request_bytes` that the provider states.
//
// CORE-8: A provider MUST start no write to the cloud outside an open call. When a call is
// cancelled, or its connection is lost, the provider stops before its next write to the cloud. A
// controller that loses its Lease cancels its calls, so the provider then starts no further write
// for it. A frozen controller cannot cancel (CORE-19).
//
// CORE-9: The controller sets a deadline on every call except WatchChanges. A provider SHOULD
// answer `pending` (if the RPC has it) before 80 % of the `grpc-timeout` has passed since the
// request arrived. At the deadline the controller cancels the call. The `grpc-timeout` that it
// sends may be longer (for the `ccm` by a second), so that the provider's own timer fires only when
// the controller does not cancel. A call without `grpc-timeout` has no deadline. The controller
// applies the default deadlines in the RPCs' comments; the provider does not. A provider MAY end a
// call without a deadline after 5 min or more, so that the call does not occupy a place in
// `max_in_flight` for ever.
//
// CORE-10: Every request except GetProviderInfo and Probe carries `cluster`. A provider MUST answer
// NOT_INITIALIZED to a request that carries `cluster`, except to Initialize, if no Initialize has
// succeeded in this process when the request arrives. It MUST also answer NOT_INITIALIZED to such a
// request if the owner ID in the request is not that of the last Initialize that succeeded.
//
// Connections
//
// The controller connects to the socket and calls GetProviderInfo. When it leads, it also calls
// Initialize. After a lost connection it dials again for ever, with delays from 0.1 s to 5 s. If it
// cannot work with the provider (because of a prefix that breaks PROV-8, for example), it first
// waits 30 s, or until the connection ends. A new `boot_id` shows that another process answers. On
// a connection that it uses, the controller calls Probe at least every 10 s. It closes the
// connection after two failed Probes in a row. Without a connection the control loops pause. They
// draw no conclusions from missing answers.
//
// Limits
//
// CORE-11: Names have at most 253 bytes, provider IDs and handles at most 1,024 bytes, messages and
// reasons at most 1,024 bytes. A value beyond its limit is a fault of its item. A provider MUST
// accept requests up to the `max_request_bytes` that it states (4 MiB unless stated). An answer
// beyond the limits below is a fault, and the controller does not read it to its end. The provider
// MUST cut a longer `message`, `reason` or `load_balancer_name` (LB-33) at its end and between two
// characters. The controller also cuts a longer `message` or `reason`. An identifier (a name, a
// provider ID, a handle, a resume token, a cloud scope) MUST stay whole, because a shortened
// identifier names something else. So neither side cuts one. For an item with an identifier beyond
// its limit, the provider answers `failed` with INTERNAL. An item of a listing cannot be `failed`,
// so the whole listing fails. The controller sends no request with an identifier beyond its limit,
// and a provider need not check for one. Bytes are those of UTF-8.
//
//   What the provider answers, at most                                   | bytes
//   ---------------------------------------------------------------------+--------
//   GetProviderInfo, Initialize, Probe, each message of WatchChanges     | 64 KiB
//   GetLoadBalancer, EnsureLoadBalancer, UpdateLoadBalancer,             | 1 MiB
//     DeleteLoadBalancer, GetVolumeLabels                                |
//   a whole listing: ListInstances, ListLoadBalancers, ListRoutes,       | 32 MiB
//     ListClusters; each of its messages has at most 16 MiB              |
//   every other RPC                                                      | 16 MiB
//
// The bytes are those of the encoded messages. Before the controller decodes an answer, it also
// counts the memory that decoding would take, because many empty items need few bytes and much
// memory. It decodes no answer that would take more than 96 MiB. All answers of one provider that
// it reads at one time take at most 128 MiB together. The first 128 KiB of each answer do not count
// towards this limit. If the limit leaves no room for an answer, the controller does not read the
// answer, and tries again later.
//
// An `Instance`, a `LoadBalancerStatus` and `VolumeLabels` have at most 64 KiB each, because the
// controller writes them into one Kubernetes object. The controller reads the first 32 `events` of
// an answer and ignores the others.
//
// CORE-12: Secrets MUST NOT cross the contract, in either direction.
//
// Versions
//
// CORE-13: The package is the major version. A minor version only adds optional fields, RPCs,
// capabilities and enum values. The effective minor is the lower one of the two sides' minors. Both
// sides MUST ignore unknown fields. An unknown enum value in an outcome is a fault. Zero is always
// UNSPECIFIED, and a fault where a value is required. An enum's comment may say instead how the
// reader treats these values. Examples are `FailureCode` and `ProbeState`. Removed numbers and
// names are reserved.
//
// In a request, the provider ignores an unknown value or zero in `facets`, as it ignores an unknown
// field. It ignores a `NodeAddress` of an unknown type too. If an unknown value describes what the
// provider has to make (a port's protocol, an IP family), the provider answers INVALID (CORE-20).
//
// CORE-14: A provider MUST mark each cloud object that it makes for a cluster with
// `ClusterRef.owner_id`. The rules of load balancers and routes say how.
//
// CORE-15: A provider MUST choose the failure code by the meanings that `FailureCode` states; in
// doubt INTERNAL.
//
// CORE-16: The stream of a listing MUST end with `ListEnd`. The controller discards a listing
// without it, or with a total that differs from the number of items sent. The total counts items
// (instances, load balancers, routes, names), not messages. A message of ListInstances, ListRoutes
// and ListClusters may carry any number of items, or none. How the provider groups items into
// messages has no meaning. After `failed` or `end` nothing follows, and the stream ends with status
// OK.
//
// The end of a process and of a call
//
// CORE-17: On SIGTERM a provider MUST accept no further connection. It MUST let the calls in flight
// end for up to 20 s (streams of hints end at once, PROV-6), and exit. A connection without a call,
// or a call whose request never ends, MUST NOT delay the exit for longer. The provider first
// removes the socket file, so that the next process can bind it. Then it sends GOAWAY on every
// connection, and ends the streams of hints. It exits as soon as no call is in flight. 20 s after
// the signal it ends the remaining calls with gRPC status UNAVAILABLE, or closes their connection.
// That takes 2 s at most. A new call may arrive after GOAWAY on an existing connection, because its
// caller has not seen GOAWAY yet. The provider MUST either answer the call like any other, within
// the rest of the 20 s, or refuse it before any work. It refuses with REFUSED_STREAM, or with gRPC
// status UNAVAILABLE (or CANCELLED, which gRPC's C core uses). The caller repeats the call with the
// next process. A second SIGTERM changes nothing.
//
// CORE-18: The resources that a provider holds (memory, descriptors, files) SHOULD NOT grow with
// the number of calls and connections that it has served.
//
// CORE-19: When the deadline of a call has passed (`grpc-timeout`), the provider MUST end the call
// itself within two seconds. It MUST start no further write to the cloud for that call. This also
// holds if the caller does not cancel, because a frozen controller cancels nothing. The call ends
// with gRPC status DEADLINE_EXCEEDED (or CANCELLED, which some stacks use), or with an answer that
// is ready by then. The caller reads each of these statuses as "unknown". A stack that ends such a
// call by itself may also reset the stream (RST_STREAM), after trailers or instead of them.
//
// Requests and failures
//
// CORE-20: If a request breaks the contract, a provider MUST answer `failed` with INVALID for the
// whole request. It changes nothing and does not ask the cloud. A request breaks the contract in
// each of these cases. It has more items than the capability's `max_batch`. It names one item
// twice: two Nodes of one name, whatever their UIDs, or two routes of one key. It lacks a required
// field: `cluster` or its `owner_id`; a Node's name; a Service's name or UID; `service`; `volume`.
// It has a oneof that is unset. The `route_key` identifies a route, and an empty key is a key like
// any other. An error in one route is a failure of that route alone (ROUTE-10). An empty batch does
// not break the contract: the answer has no results. An empty list of facets (INST-10) does not
// break it either, nor does a value that CORE-13 tells the provider to ignore. If the request also
// calls for NOT_INITIALIZED (CORE-10), either code is right.
//
// CORE-21: An RPC's list "Failures:" binds: a provider MUST NOT answer a code outside of it, except
// for INVALID (CORE-20), PRECONDITION, BUSY (CORE-22), THROTTLED, NOT_INITIALIZED (CORE-10) and
// INTERNAL. Every RPC with `cluster` may answer those. So NOT_FOUND and CONFLICT have a meaning
// only in an RPC that lists them. The controller reads any other code as INTERNAL. Unless the list
// says otherwise, it holds for the whole call and for each item.
//
// CORE-22: For each service, one controller process has at most `max_in_flight` calls in flight,
// listings included. It may have fewer (the `ccm` has at most 32). More calls can still arrive:
// from tools, or from a new leader while calls of the former leader still run. A provider MUST
// answer calls beyond the limit like any other, let them wait within their deadline, or answer
// BUSY. It MUST NOT refuse them with a gRPC status, and MUST NOT drop a call that it has begun.
// GetProviderInfo, Initialize, Probe and WatchChanges do not count towards the limit.
//
// Coming from Go's cloudprovider.Interface
//
// Go's InstanceNotFound is the state ABSENT. NotImplemented is a missing capability.
// ImplementedElsewhere is `handled_elsewhere`. RetryError is `pending`, or `failed` with
// `retry_after`. Nil metadata is the state UNMANAGED. DiskNotFound is `failed` with NOT_FOUND. Any
// other error is `failed` with the code that fits (CORE-15).
//
// A field that is `optional`, a message, or a oneof has explicit presence. If such a field is
// absent, its sender does not state a value. Absent does not mean zero, unless the field's comment
// says so.

// Code generated by protoc-gen-go. DO NOT EDIT.
// versions:
// 	protoc-gen-go v1.36.11
// 	protoc        (unknown)
// source: cloudprovider/v1alpha1/types.proto

package contract

import (
	protoreflect "google.golang.org/protobuf/reflect/protoreflect"
	protoimpl "google.golang.org/protobuf/runtime/protoimpl"
	durationpb "google.golang.org/protobuf/types/known/durationpb"
	timestamppb "google.golang.org/protobuf/types/known/timestamppb"
	reflect "reflect"
	sync "sync"
	unsafe "unsafe"
)

const (
	// Verify that this generated code is sufficiently up-to-date.
	_ = protoimpl.EnforceVersion(20 - protoimpl.MinVersion)
	// Verify that runtime/protoimpl is sufficiently up-to-date.
	_ = protoimpl.EnforceVersion(protoimpl.MaxVersion - 20)
)

// The kinds of failure (CORE-15). The comment of each RPC lists those that it may answer (CORE-21).
// Events and delays below are those of a call about one object. The controller may repeat a failed
// listing or periodic lookup of Nodes at another time. It records no event about such a failure,
// unless a failed listing delays the deletion of a Node.
type FailureCode int32

const (
	// Never sent; read as INTERNAL. The controller reads any value that it does not know as INTERNAL
	// too.
	FailureCode_FAILURE_CODE_UNSPECIFIED FailureCode = 0
	// The object itself is wrong or unsupported. The controller records a Warning event and calls
	// again when the object changes, or after 30 min.
	FailureCode_FAILURE_CODE_INVALID FailureCode = 1
	// Something that the object needs is missing: a subnet, a tag, a setting or quota. The controller
	// records an event and backs off (for a Service from 5 s to 300 s).
	FailureCode_FAILURE_CODE_PRECONDITION FailureCode = 2
	// UpdateLoadBalancer: the load balancer is gone, and the controller calls Ensure.
	// GetVolumeLabels: no such disk, and the controller leaves the volume alone.
	// GetControlPlaneAddress: no such cluster. In an answer of any other RPC the controller reads it
	// as INTERNAL. So it never means that an instance is gone.
	FailureCode_FAILURE_CODE_NOT_FOUND FailureCode = 3
	// The object or a part of it belongs to another owner, has no mark, or collides with another
	// object. The RPCs' rules say when. The controller records an event and calls again after 5 min.
	FailureCode_FAILURE_CODE_CONFLICT FailureCode = 4
	// Another operation works on the same object (CORE-7), or the provider has too much to do
	// (CORE-22). The controller tries again five times, each time after `retry_after` or after 1 s to
	// 1.5 s. Then it backs off and records an event.
	FailureCode_FAILURE_CODE_BUSY FailureCode = 5
	// The cloud asks the provider to slow down. The controller records an event. For `retry_after` (5
	// s if absent) it starts no call of this service.
	FailureCode_FAILURE_CODE_THROTTLED FailureCode = 6
	// The cloud refuses the provider's credentials: they are wrong, expired, or lack a right. At
	// first each controller records at most one event for all its objects, and repeats the event from
	// time to time. An object that waits longer may get an event of its own. The controller tries one
	// object every 20 s, in turns. When the cloud accepts that object, it tries all others at once.
	// It tries each object in any case after 5 min.
	FailureCode_FAILURE_CODE_CREDENTIALS FailureCode = 7
	// The cloud's API is down or unreachable, or does not answer within the provider's own timeout.
	// The controller records an event and backs off.
	FailureCode_FAILURE_CODE_UNAVAILABLE FailureCode = 8
	// No Initialize has succeeded in this process, or the last one that succeeded named another owner
	// ID (CORE-10). The controller initialises the provider and tries again.
	FailureCode_FAILURE_CODE_NOT_INITIALIZED FailureCode = 9
	// A fault of the provider, or an answer of the cloud that the provider does not understand. The
	// controller records an event and backs off.
	FailureCode_FAILURE_CODE_INTERNAL FailureCode = 10
)

// Enum value maps for FailureCode.
var (
	FailureCode_name = map[int32]string{
		0:  "FAILURE_CODE_UNSPECIFIED",
		1:  "FAILURE_CODE_INVALID",
		2:  "FAILURE_CODE_PRECONDITION",
		3:  "FAILURE_CODE_NOT_FOUND",
		4:  "FAILURE_CODE_CONFLICT",
		5:  "FAILURE_CODE_BUSY",
		6:  "FAILURE_CODE_THROTTLED",
		7:  "FAILURE_CODE_CREDENTIALS",
		8:  "FAILURE_CODE_UNAVAILABLE",
		9:  "FAILURE_CODE_NOT_INITIALIZED",
		10: "FAILURE_CODE_INTERNAL",
	}
	FailureCode_value = map[string]int32{
		"FAILURE_CODE_UNSPECIFIED":     0,
		"FAILURE_CODE_INVALID":         1,
		"FAILURE_CODE_PRECONDITION":    2,
		"FAILURE_CODE_NOT_FOUND":       3,
		"FAILURE_CODE_CONFLICT":        4,
		"FAILURE_CODE_BUSY":            5,
		"FAILURE_CODE_THROTTLED":       6,
		"FAILURE_CODE_CREDENTIALS":     7,
		"FAILURE_CODE_UNAVAILABLE":     8,
		"FAILURE_CODE_NOT_INITIALIZED": 9,
		"FAILURE_CODE_INTERNAL":        10,
	}
)

func (x FailureCode) Enum() *FailureCode {
	p := new(FailureCode)
	*p = x
	return p
}

func (x FailureCode) String() string {
	return protoimpl.X.EnumStringOf(x.Descriptor(), protoreflect.EnumNumber(x))
}

func (FailureCode) Descriptor() protoreflect.EnumDescriptor {
	return file_cloudprovider_v1alpha1_types_proto_enumTypes[0].Descriptor()
}

func (FailureCode) Type() protoreflect.EnumType {
	return &file_cloudprovider_v1alpha1_types_proto_enumTypes[0]
}

func (x FailureCode) Number() protoreflect.EnumNumber {
	return protoreflect.EnumNumber(x)
}

// Deprecated: Use FailureCode.Descriptor instead.
func (FailureCode) EnumDescriptor() ([]byte, []int) {
	return file_cloudprovider_v1alpha1_types_proto_rawDescGZIP(), []int{0}
}

// The kinds of a Node's addresses.
type NodeAddressType int32

const (
	// Never sent; in an answer a fault of the item.
	NodeAddressType_NODE_ADDRESS_TYPE_UNSPECIFIED NodeAddressType = 0
	// `Hostname`.
	NodeAddressType_NODE_ADDRESS_TYPE_HOSTNAME NodeAddressType = 1
	// `InternalIP`: reachable inside the cluster's network.
	NodeAddressType_NODE_ADDRESS_TYPE_INTERNAL_IP NodeAddressType = 2
	// `ExternalIP`: reachable from outside.
	NodeAddressType_NODE_ADDRESS_TYPE_EXTERNAL_IP NodeAddressType = 3
	// `InternalDNS`.
	NodeAddressType_NODE_ADDRESS_TYPE_INTERNAL_DNS NodeAddressType = 4
	// `ExternalDNS`.
	NodeAddressType_NODE_ADDRESS_TYPE_EXTERNAL_DNS NodeAddressType = 5
)

// Enum value maps for NodeAddressType.
var (
	NodeAddressType_name = map[int32]string{
		0: "NODE_ADDRESS_TYPE_UNSPECIFIED",
		1: "NODE_ADDRESS_TYPE_HOSTNAME",
		2: "NODE_ADDRESS_TYPE_INTERNAL_IP",
		3: "NODE_ADDRESS_TYPE_EXTERNAL_IP",
		4: "NODE_ADDRESS_TYPE_INTERNAL_DNS",
		5: "NODE_ADDRESS_TYPE_EXTERNAL_DNS",
	}
	NodeAddressType_value = map[string]int32{
		"NODE_ADDRESS_TYPE_UNSPECIFIED":  0,
		"NODE_ADDRESS_TYPE_HOSTNAME":     1,
		"NODE_ADDRESS_TYPE_INTERNAL_IP":  2,
		"NODE_ADDRESS_TYPE_EXTERNAL_IP":  3,
		"NODE_ADDRESS_TYPE_INTERNAL_DNS": 4,
		"NODE_ADDRESS_TYPE_EXTERNAL_DNS": 5,
	}
)

func (x NodeAddressType) Enum() *NodeAddressType {
	p := new(NodeAddressType)
	*p = x
	return p
}

func (x NodeAddressType) String() string {
	return protoimpl.X.EnumStringOf(x.Descriptor(), protoreflect.EnumNumber(x))
}

func (NodeAddressType) Descriptor() protoreflect.EnumDescriptor {
	return file_cloudprovider_v1alpha1_types_proto_enumTypes[1].Descriptor()
}

func (NodeAddressType) Type() protoreflect.EnumType {
	return &file_cloudprovider_v1alpha1_types_proto_enumTypes[1]
}

func (x NodeAddressType) Number() protoreflect.EnumNumber {
	return protoreflect.EnumNumber(x)
}

// Deprecated: Use NodeAddressType.Descriptor instead.
func (NodeAddressType) EnumDescriptor() ([]byte, []int) {
	return file_cloudprovider_v1alpha1_types_proto_rawDescGZIP(), []int{1}
}

// Groups of a Node's fields that a provider may ask for.
type NodeFieldGroup int32

const (
	// Never sent; ignored.
	NodeFieldGroup_NODE_FIELD_GROUP_UNSPECIFIED NodeFieldGroup = 0
	// `pod_cidrs`.
	NodeFieldGroup_NODE_FIELD_GROUP_POD_CIDRS NodeFieldGroup = 1
	// `taints`.
	NodeFieldGroup_NODE_FIELD_GROUP_TAINTS NodeFieldGroup = 2
	// `node_info`.
	NodeFieldGroup_NODE_FIELD_GROUP_NODE_INFO NodeFieldGroup = 3
	// `ready`.
	NodeFieldGroup_NODE_FIELD_GROUP_READINESS NodeFieldGroup = 4
	// `creation_time`.
	NodeFieldGroup_NODE_FIELD_GROUP_CREATION_TIME NodeFieldGroup = 5
)

// Enum value maps for NodeFieldGroup.
var (
	NodeFieldGroup_name = map[int32]string{
		0: "NODE_FIELD_GROUP_UNSPECIFIED",
		1: "NODE_FIELD_GROUP_POD_CIDRS",
		2: "NODE_FIELD_GROUP_TAINTS",
		3: "NODE_FIELD_GROUP_NODE_INFO",
		4: "NODE_FIELD_GROUP_READINESS",
		5: "NODE_FIELD_GROUP_CREATION_TIME",
	}
	NodeFieldGroup_value = map[string]int32{
		"NODE_FIELD_GROUP_UNSPECIFIED":   0,
		"NODE_FIELD_GROUP_POD_CIDRS":     1,
		"NODE_FIELD_GROUP_TAINTS":        2,
		"NODE_FIELD_GROUP_NODE_INFO":     3,
		"NODE_FIELD_GROUP_READINESS":     4,
		"NODE_FIELD_GROUP_CREATION_TIME": 5,
	}
)

func (x NodeFieldGroup) Enum() *NodeFieldGroup {
	p := new(NodeFieldGroup)
	*p = x
	return p
}

func (x NodeFieldGroup) String() string {
	return protoimpl.X.EnumStringOf(x.Descriptor(), protoreflect.EnumNumber(x))
}

func (NodeFieldGroup) Descriptor() protoreflect.EnumDescriptor {
	return file_cloudprovider_v1alpha1_types_proto_enumTypes[2].Descriptor()
}

func (NodeFieldGroup) Type() protoreflect.EnumType {
	return &file_cloudprovider_v1alpha1_types_proto_enumTypes[2]
}

func (x NodeFieldGroup) Number() protoreflect.EnumNumber {
	return protoreflect.EnumNumber(x)
}

// Deprecated: Use NodeFieldGroup.Descriptor instead.
func (NodeFieldGroup) EnumDescriptor() ([]byte, []int) {
	return file_cloudprovider_v1alpha1_types_proto_rawDescGZIP(), []int{2}
}

// The owner of a cloud object, by the mark that the object carries (LB-27 and ROUTE-12 define
// marks). The tables of LB-24 (load balancers) and ROUTE-9 (routes) say how each RPC treats each
// owner.
type Ownership int32

const (
	// A fault, except in requests and for a load balancer that is ABSENT.
	Ownership_OWNERSHIP_UNSPECIFIED Ownership = 0
	// Marked with this cluster's owner ID, or with a previous one
	// (`InitializeRequest.previous_owner_ids`). A load balancer is also marked with this Service's
	// UID.
	Ownership_OWNERSHIP_OURS Ownership = 1
	// Marked for another owner.
	Ownership_OWNERSHIP_FOREIGN Ownership = 2
	// Carries no mark: a person or another program made it, or the cloud cannot keep a mark.
	Ownership_OWNERSHIP_UNMARKED Ownership = 3
)

// Enum value maps for Ownership.
var (
	Ownership_name = map[int32]string{
		0: "OWNERSHIP_UNSPECIFIED",
		1: "OWNERSHIP_OURS",
		2: "OWNERSHIP_FOREIGN",
		3: "OWNERSHIP_UNMARKED",
	}
	Ownership_value = map[string]int32{
		"OWNERSHIP_UNSPECIFIED": 0,
		"OWNERSHIP_OURS":        1,
		"OWNERSHIP_FOREIGN":     2,
		"OWNERSHIP_UNMARKED":    3,
	}
)

func (x Ownership) Enum() *Ownership {
	p := new(Ownership)
	*p = x
	return p
}

func (x Ownership) String() string {
	return protoimpl.X.EnumStringOf(x.Descriptor(), protoreflect.EnumNumber(x))
}

func (Ownership) Descriptor() protoreflect.EnumDescriptor {
	return file_cloudprovider_v1alpha1_types_proto_enumTypes[3].Descriptor()
}

func (Ownership) Type() protoreflect.EnumType {
	return &file_cloudprovider_v1alpha1_types_proto_enumTypes[3]
}

func (x Ownership) Number() protoreflect.EnumNumber {
	return protoreflect.EnumNumber(x)
}

// Deprecated: Use Ownership.Descriptor instead.
func (Ownership) EnumDescriptor() ([]byte, []int) {
	return file_cloudprovider_v1alpha1_types_proto_rawDescGZIP(), []int{3}
}

// The cluster on whose behalf a request is made.
type ClusterRef struct {
	state protoimpl.MessageState `protogen:"open.v1"`
	// The cluster's name, `--cluster-name` of the controller. It is for people: a provider may use it
	// in the names that a cloud shows. It is not unique.
	Name string `protobuf:"bytes,1,opt,name=name,proto3" json:"name,omitempty"`
	// The identity of the cluster as an owner of cloud objects: the UID of its `kube-system`
	// namespace unless the operator sets one. A restored cluster that keeps its owner ID and the UIDs
	// of its Services keeps its load balancers (LB-1). At most 253 bytes, never empty. Marks carry it
	// (CORE-14).
	OwnerId       string `protobuf:"bytes,2,opt,name=owner_id,json=ownerId,proto3" json:"owner_id,omitempty"`
	unknownFields protoimpl.UnknownFields
	sizeCache     protoimpl.SizeCache
}

func (x *ClusterRef) Reset() {
	*x = ClusterRef{}
	mi := &file_cloudprovider_v1alpha1_types_proto_msgTypes[0]
	ms := protoimpl.X.MessageStateOf(protoimpl.Pointer(x))
	ms.StoreMessageInfo(mi)
}

func (x *ClusterRef) String() string {
	return protoimpl.X.MessageStringOf(x)
}

func (*ClusterRef) ProtoMessage() {}

func (x *ClusterRef) ProtoReflect() protoreflect.Message {
	mi := &file_cloudprovider_v1alpha1_types_proto_msgTypes[0]
	if x != nil {
		ms := protoimpl.X.MessageStateOf(protoimpl.Pointer(x))
		if ms.LoadMessageInfo() == nil {
			ms.StoreMessageInfo(mi)
		}
		return ms
	}
	return mi.MessageOf(x)
}

// Deprecated: Use ClusterRef.ProtoReflect.Descriptor instead.
func (*ClusterRef) Descriptor() ([]byte, []int) {
	return file_cloudprovider_v1alpha1_types_proto_rawDescGZIP(), []int{0}
}

func (x *ClusterRef) GetName() string {
	if x != nil {
		return x.Name
	}
	return ""
}

func (x *ClusterRef) GetOwnerId() string {
	if x != nil {
		return x.OwnerId
	}
	return ""
}

// An error that the provider states. Except for NOT_FOUND, it says nothing about whether an object
// exists.
type Failure struct {
	state protoimpl.MessageState `protogen:"open.v1"`
	// The kind of failure. It decides what the controller does next.
	Code FailureCode `protobuf:"varint,1,opt,name=code,proto3,enum=cloudprovider.v1alpha1.FailureCode" json:"code,omitempty"`
	// CamelCase, one word, for machines, for example `SubnetMissing`. The `ccm` shows it in the text
	// of an event, with the message. At most 1,024 bytes; may be empty.
	Reason string `protobuf:"bytes,2,opt,name=reason,proto3" json:"reason,omitempty"`
	// One sentence for the operator who reads the event: which value is wrong, and what would be
	// right. At most 1,024 bytes. No secrets.
	Message string `protobuf:"bytes,3,opt,name=message,proto3" json:"message,omitempty"`
	// How long the controller should wait before it repeats the call, clamped to 1 s..10 min. The
	// controller honours it for every code but NOT_FOUND in a call about an object. For a Service it
	// may be raised to 30 s, as in `Pending`. In a periodic lookup of Nodes the controller may ignore
	// it. For Initialize it waits 30 s at most. In WatchChanges it ignores this field.
	RetryAfter    *durationpb.Duration `protobuf:"bytes,4,opt,name=retry_after,json=retryAfter,proto3" json:"retry_after,omitempty"`
	unknownFields protoimpl.UnknownFields
	sizeCache     protoimpl.SizeCache
}

func (x *Failure) Reset() {
	*x = Failure{}
	mi := &file_cloudprovider_v1alpha1_types_proto_msgTypes[1]
	ms := protoimpl.X.MessageStateOf(protoimpl.Pointer(x))
	ms.StoreMessageInfo(mi)
}

func (x *Failure) String() string {
	return protoimpl.X.MessageStringOf(x)
}

func (*Failure) ProtoMessage() {}

func (x *Failure) ProtoReflect() protoreflect.Message {
	mi := &file_cloudprovider_v1alpha1_types_proto_msgTypes[1]
	if x != nil {
		ms := protoimpl.X.MessageStateOf(protoimpl.Pointer(x))
		if ms.LoadMessageInfo() == nil {
			ms.StoreMessageInfo(mi)
		}
		return ms
	}
	return mi.MessageOf(x)
}

// Deprecated: Use Failure.ProtoReflect.Descriptor instead.
func (*Failure) Descriptor() ([]byte, []int) {
	return file_cloudprovider_v1alpha1_types_proto_rawDescGZIP(), []int{1}
}

func (x *Failure) GetCode() FailureCode {
	if x != nil {
		return x.Code
	}
	return FailureCode_FAILURE_CODE_UNSPECIFIED
}

func (x *Failure) GetReason() string {
	if x != nil {
		return x.Reason
	}
	return ""
}

func (x *Failure) GetMessage() string {
	if x != nil {
		return x.Message
	}
	return ""
}

func (x *Failure) GetRetryAfter() *durationpb.Duration {
	if x != nil {
		return x.RetryAfter
	}
	return nil
}

// Not finished yet, and not a failure: the controller asks again after the delay and counts no
// failure.
type Pending struct {
	state protoimpl.MessageState `protogen:"open.v1"`
	// When to ask again. Clamped to 1 s..10 min; 5 s where absent. For a Service it is at least 30 s
	// if the call before was unfinished too, and this answer changes the handle or the annotations.
	RetryAfter *durationpb.Duration `protobuf:"bytes,1,opt,name=retry_after,json=retryAfter,proto3" json:"retry_after,omitempty"`
	// The reason for the wait, for people. At most 1,024 bytes.
	Message       string `protobuf:"bytes,2,opt,name=message,proto3" json:"message,omitempty"`
	unknownFields protoimpl.UnknownFields
	sizeCache     protoimpl.SizeCache
}

func (x *Pending) Reset() {
	*x = Pending{}
	mi := &file_cloudprovider_v1alpha1_types_proto_msgTypes[2]
	ms := protoimpl.X.MessageStateOf(protoimpl.Pointer(x))
	ms.StoreMessageInfo(mi)
}

func (x *Pending) String() string {
	return protoimpl.X.MessageStringOf(x)
}

func (*Pending) ProtoMessage() {}

func (x *Pending) ProtoReflect() protoreflect.Message {
	mi := &file_cloudprovider_v1alpha1_types_proto_msgTypes[2]
	if x != nil {
		ms := protoimpl.X.MessageStateOf(protoimpl.Pointer(x))
		if ms.LoadMessageInfo() == nil {
			ms.StoreMessageInfo(mi)
		}
		return ms
	}
	return mi.MessageOf(x)
}

// Deprecated: Use Pending.ProtoReflect.Descriptor instead.
func (*Pending) Descriptor() ([]byte, []int) {
	return file_cloudprovider_v1alpha1_types_proto_rawDescGZIP(), []int{2}
}

func (x *Pending) GetRetryAfter() *durationpb.Duration {
	if x != nil {
		return x.RetryAfter
	}
	return nil
}

func (x *Pending) GetMessage() string {
	if x != nil {
		return x.Message
	}
	return ""
}

// The work is done.
type Done struct {
	state         protoimpl.MessageState `protogen:"open.v1"`
	unknownFields protoimpl.UnknownFields
	sizeCache     protoimpl.SizeCache
}

func (x *Done) Reset() {
	*x = Done{}
	mi := &file_cloudprovider_v1alpha1_types_proto_msgTypes[3]
	ms := protoimpl.X.MessageStateOf(protoimpl.Pointer(x))
	ms.StoreMessageInfo(mi)
}

func (x *Done) String() string {
	return protoimpl.X.MessageStringOf(x)
}

func (*Done) ProtoMessage() {}

func (x *Done) ProtoReflect() protoreflect.Message {
	mi := &file_cloudprovider_v1alpha1_types_proto_msgTypes[3]
	if x != nil {
		ms := protoimpl.X.MessageStateOf(protoimpl.Pointer(x))
		if ms.LoadMessageInfo() == nil {
			ms.StoreMessageInfo(mi)
		}
		return ms
	}
	return mi.MessageOf(x)
}

// Deprecated: Use Done.ProtoReflect.Descriptor instead.
func (*Done) Descriptor() ([]byte, []int) {
	return file_cloudprovider_v1alpha1_types_proto_rawDescGZIP(), []int{3}
}

// Another component of the cluster takes care of this object (Go's ImplementedElsewhere). The
// controller calls again for the object only after a change, after a hint, or when it begins to
// lead. The one exception is in DeleteLoadBalancerResponse.
type HandledElsewhere struct {
	state         protoimpl.MessageState `protogen:"open.v1"`
	unknownFields protoimpl.UnknownFields
	sizeCache     protoimpl.SizeCache
}

func (x *HandledElsewhere) Reset() {
	*x = HandledElsewhere{}
	mi := &file_cloudprovider_v1alpha1_types_proto_msgTypes[4]
	ms := protoimpl.X.MessageStateOf(protoimpl.Pointer(x))
	ms.StoreMessageInfo(mi)
}

func (x *HandledElsewhere) String() string {
	return protoimpl.X.MessageStringOf(x)
}

func (*HandledElsewhere) ProtoMessage() {}

func (x *HandledElsewhere) ProtoReflect() protoreflect.Message {
	mi := &file_cloudprovider_v1alpha1_types_proto_msgTypes[4]
	if x != nil {
		ms := protoimpl.X.MessageStateOf(protoimpl.Pointer(x))
		if ms.LoadMessageInfo() == nil {
			ms.StoreMessageInfo(mi)
		}
		return ms
	}
	return mi.MessageOf(x)
}

// Deprecated: Use HandledElsewhere.ProtoReflect.Descriptor instead.
func (*HandledElsewhere) Descriptor() ([]byte, []int) {
	return file_cloudprovider_v1alpha1_types_proto_rawDescGZIP(), []int{4}
}

// The end of a listing (CORE-16).
type ListEnd struct {
	state protoimpl.MessageState `protogen:"open.v1"`
	// How many items (not messages) were sent before this message.
	Total         uint64 `protobuf:"varint,1,opt,name=total,proto3" json:"total,omitempty"`
	unknownFields protoimpl.UnknownFields
	sizeCache     protoimpl.SizeCache
}

func (x *ListEnd) Reset() {
	*x = ListEnd{}
	mi := &file_cloudprovider_v1alpha1_types_proto_msgTypes[5]
	ms := protoimpl.X.MessageStateOf(protoimpl.Pointer(x))
	ms.StoreMessageInfo(mi)
}

func (x *ListEnd) String() string {
	return protoimpl.X.MessageStringOf(x)
}

func (*ListEnd) ProtoMessage() {}

func (x *ListEnd) ProtoReflect() protoreflect.Message {
	mi := &file_cloudprovider_v1alpha1_types_proto_msgTypes[5]
	if x != nil {
		ms := protoimpl.X.MessageStateOf(protoimpl.Pointer(x))
		if ms.LoadMessageInfo() == nil {
			ms.StoreMessageInfo(mi)
		}
		return ms
	}
	return mi.MessageOf(x)
}

// Deprecated: Use ListEnd.ProtoReflect.Descriptor instead.
func (*ListEnd) Descriptor() ([]byte, []int) {
	return file_cloudprovider_v1alpha1_types_proto_rawDescGZIP(), []int{5}
}

func (x *ListEnd) GetTotal() uint64 {
	if x != nil {
		return x.Total
	}
	return 0
}

// A Node of the cluster, with the fields that the provider asked for (`NodeProjection`). The
// controller always sends name, UID, provider ID and addresses, as far as the Node has them.
type NodeView struct {
	state protoimpl.MessageState `protogen:"open.v1"`
	// `metadata.name`.
	Name string `protobuf:"bytes,1,opt,name=name,proto3" json:"name,omitempty"`
	// `metadata.uid`.
	Uid string `protobuf:"bytes,2,opt,name=uid,proto3" json:"uid,omitempty"`
	// `spec.providerID`; absent while the Node has none, and for one of more than 1,024 bytes; never
	// empty.
	ProviderId *string `protobuf:"bytes,3,opt,name=provider_id,json=providerId,proto3,oneof" json:"provider_id,omitempty"`
	// `status.addresses`, in their order, without those that a `NodeAddress` cannot express.
	Addresses []*NodeAddress `protobuf:"bytes,4,rep,name=addresses,proto3" json:"addresses,omitempty"`
	// The labels that the projection names.
	Labels map[string]string `protobuf:"bytes,5,rep,name=labels,proto3" json:"labels,omitempty" protobuf_key:"bytes,1,opt,name=key" protobuf_val:"bytes,2,opt,name=value"`
	// The annotations that the projection names.
	Annotations map[string]string `protobuf:"bytes,6,rep,name=annotations,proto3" json:"annotations,omitempty" protobuf_key:"bytes,1,opt,name=key" protobuf_val:"bytes,2,opt,name=value"`
	// `spec.podCIDRs`; with NODE_FIELD_GROUP_POD_CIDRS.
	PodCidrs []string `protobuf:"bytes,7,rep,name=pod_cidrs,json=podCidrs,proto3" json:"pod_cidrs,omitempty"`
	// `spec.taints`; with NODE_FIELD_GROUP_TAINTS.
	Taints []*Taint `protobuf:"bytes,8,rep,name=taints,proto3" json:"taints,omitempty"`
	// From `status.nodeInfo`; with NODE_FIELD_GROUP_NODE_INFO.
	NodeInfo *NodeInfo `protobuf:"bytes,9,opt,name=node_info,json=nodeInfo,proto3,oneof" json:"node_info,omitempty"`
	// Whether the Ready condition is True; with NODE_FIELD_GROUP_READINESS. A change of it alone
	// causes a call about a load balancer only if `LoadBalancerCapability.target_projection` has that
	// group, or `max_targets` excludes Nodes.
	Ready *bool `protobuf:"varint,10,opt,name=ready,proto3,oneof" json:"ready,omitempty"`
	// `metadata.creationTimestamp`; with NODE_FIELD_GROUP_CREATION_TIME.
	CreationTime  *timestamppb.Timestamp `protobuf:"bytes,11,opt,name=creation_time,json=creationTime,proto3" json:"creation_time,omitempty"`
	unknownFields protoimpl.UnknownFields
	sizeCache     protoimpl.SizeCache
}

func (x *NodeView) Reset() {
	*x = NodeView{}
	mi := &file_cloudprovider_v1alpha1_types_proto_msgTypes[6]
	ms := protoimpl.X.MessageStateOf(protoimpl.Pointer(x))
	ms.StoreMessageInfo(mi)
}

func (x *NodeView) String() string {
	return protoimpl.X.MessageStringOf(x)
}

func (*NodeView) ProtoMessage() {}

func (x *NodeView) ProtoReflect() protoreflect.Message {
	mi := &file_cloudprovider_v1alpha1_types_proto_msgTypes[6]
	if x != nil {
		ms := protoimpl.X.MessageStateOf(protoimpl.Pointer(x))
		if ms.LoadMessageInfo() == nil {
			ms.StoreMessageInfo(mi)
		}
		return ms
	}
	return mi.MessageOf(x)
}

// Deprecated: Use NodeView.ProtoReflect.Descriptor instead.
func (*NodeView) Descriptor() ([]byte, []int) {
	return file_cloudprovider_v1alpha1_types_proto_rawDescGZIP(), []int{6}
}

func (x *NodeView) GetName() string {
	if x != nil {
		return x.Name
	}
	return ""
}

func (x *NodeView) GetUid() string {
	if x != nil {
		return x.Uid
	}
	return ""
}

func (x *NodeView) GetProviderId() string {
	if x != nil && x.ProviderId != nil {
		return *x.ProviderId
	}
	return ""
}

func (x *NodeView) GetAddresses() []*NodeAddress {
	if x != nil {
		return x.Addresses
	}
	return nil
}

func (x *NodeView) GetLabels() map[string]string {
	if x != nil {
		return x.Labels
	}
	return nil
}

func (x *NodeView) GetAnnotations() map[string]string {
	if x != nil {
		return x.Annotations
	}
	return nil
}

func (x *NodeView) GetPodCidrs() []string {
	if x != nil {
		return x.PodCidrs
	}
	return nil
}

func (x *NodeView) GetTaints() []*Taint {
	if x != nil {
		return x.Taints
	}
	return nil
}

func (x *NodeView) GetNodeInfo() *NodeInfo {
	if x != nil {
		return x.NodeInfo
	}
	return nil
}

func (x *NodeView) GetReady() bool {
	if x != nil && x.Ready != nil {
		return *x.Ready
	}
	return false
}

func (x *NodeView) GetCreationTime() *timestamppb.Timestamp {
	if x != nil {
		return x.CreationTime
	}
	return nil
}

// One address of a Node or an instance (`NodeAddress` of Kubernetes).
type NodeAddress struct {
	state protoimpl.MessageState `protogen:"open.v1"`
	// The kind of address.
	Type NodeAddressType `protobuf:"varint,1,opt,name=type,proto3,enum=cloudprovider.v1alpha1.NodeAddressType" json:"type,omitempty"`
	// An IPv4 or IPv6 address without a prefix length, or a DNS name (RFC 1123), as the type asks. In
	// an answer anything else is a fault of the item. In a request it is what the Node shows.
	Address       string `protobuf:"bytes,2,opt,name=address,proto3" json:"address,omitempty"`
	unknownFields protoimpl.UnknownFields
	sizeCache     protoimpl.SizeCache
}

func (x *NodeAddress) Reset() {
	*x = NodeAddress{}
	mi := &file_cloudprovider_v1alpha1_types_proto_msgTypes[7]
	ms := protoimpl.X.MessageStateOf(protoimpl.Pointer(x))
	ms.StoreMessageInfo(mi)
}

func (x *NodeAddress) String() string {
	return protoimpl.X.MessageStringOf(x)
}

func (*NodeAddress) ProtoMessage() {}

func (x *NodeAddress) ProtoReflect() protoreflect.Message {
	mi := &file_cloudprovider_v1alpha1_types_proto_msgTypes[7]
	if x != nil {
		ms := protoimpl.X.MessageStateOf(protoimpl.Pointer(x))
		if ms.LoadMessageInfo() == nil {
			ms.StoreMessageInfo(mi)
		}
		return ms
	}
	return mi.MessageOf(x)
}

// Deprecated: Use NodeAddress.ProtoReflect.Descriptor instead.
func (*NodeAddress) Descriptor() ([]byte, []int) {
	return file_cloudprovider_v1alpha1_types_proto_rawDescGZIP(), []int{7}
}

func (x *NodeAddress) GetType() NodeAddressType {
	if x != nil {
		return x.Type
	}
	return NodeAddressType_NODE_ADDRESS_TYPE_UNSPECIFIED
}

func (x *NodeAddress) GetAddress() string {
	if x != nil {
		return x.Address
	}
	return ""
}

// A taint of a Node.
type Taint struct {
	state protoimpl.MessageState `protogen:"open.v1"`
	// The taint's key.
	Key string `protobuf:"bytes,1,opt,name=key,proto3" json:"key,omitempty"`
	// The taint's value; absent where it has none.
	Value *string `protobuf:"bytes,2,opt,name=value,proto3,oneof" json:"value,omitempty"`
	// `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
	Effect        string `protobuf:"bytes,3,opt,name=effect,proto3" json:"effect,omitempty"`
	unknownFields protoimpl.UnknownFields
	sizeCache     protoimpl.SizeCache
}

func (x *Taint) Reset() {
	*x = Taint{}
	mi := &file_cloudprovider_v1alpha1_types_proto_msgTypes[8]
	ms := protoimpl.X.MessageStateOf(protoimpl.Pointer(x))
	ms.StoreMessageInfo(mi)
}

func (x *Taint) String() string {
	return protoimpl.X.MessageStringOf(x)
}

func (*Taint) ProtoMessage() {}

func (x *Taint) ProtoReflect() protoreflect.Message {
	mi := &file_cloudprovider_v1alpha1_types_proto_msgTypes[8]
	if x != nil {
		ms := protoimpl.X.MessageStateOf(protoimpl.Pointer(x))
		if ms.LoadMessageInfo() == nil {
			ms.StoreMessageInfo(mi)
		}
		return ms
	}
	return mi.MessageOf(x)
}

// Deprecated: Use Taint.ProtoReflect.Descriptor instead.
func (*Taint) Descriptor() ([]byte, []int) {
	return file_cloudprovider_v1alpha1_types_proto_rawDescGZIP(), []int{8}
}

func (x *Taint) GetKey() string {
	if x != nil {
		return x.Key
	}
	return ""
}

func (x *Taint) GetValue() string {
	if x != nil && x.Value != nil {
		return *x.Value
	}
	return ""
}

func (x *Taint) GetEffect() string {
	if x != nil {
		return x.Effect
	}
	return ""
}

// The facts that the kubelet reports about its machine (`status.nodeInfo`).
type NodeInfo struct {
	state protoimpl.MessageState `protogen:"open.v1"`
	// `machineID`.
	MachineId string `protobuf:"bytes,1,opt,name=machine_id,json=machineId,proto3" json:"machine_id,omitempty"`
	// `systemUUID`.
	SystemUuid string `protobuf:"bytes,2,opt,name=system_uuid,json=systemUuid,proto3" json:"system_uuid,omitempty"`
	// `bootID`.
	BootId string `protobuf:"bytes,3,opt,name=boot_id,json=bootId,proto3" json:"boot_id,omitempty"`
	// `architecture`, by Go's names: `amd64`, `arm64` and so on.
	Architecture string `protobuf:"bytes,4,opt,name=architecture,proto3" json:"architecture,omitempty"`
	// `operatingSystem`: `linux` or `windows`.
	OperatingSystem string `protobuf:"bytes,5,opt,name=operating_system,json=operatingSystem,proto3" json:"operating_system,omitempty"`
	// `kubeletVersion`.
	KubeletVersion string `protobuf:"bytes,6,opt,name=kubelet_version,json=kubeletVersion,proto3" json:"kubelet_version,omitempty"`
	unknownFields  protoimpl.UnknownFields
	sizeCache      protoimpl.SizeCache
}

func (x *NodeInfo) Reset() {
	*x = NodeInfo{}
	mi := &file_cloudprovider_v1alpha1_types_proto_msgTypes[9]
	ms := protoimpl.X.MessageStateOf(protoimpl.Pointer(x))
	ms.StoreMessageInfo(mi)
}

func (x *NodeInfo) String() string {
	return protoimpl.X.MessageStringOf(x)
}

func (*NodeInfo) ProtoMessage() {}

func (x *NodeInfo) ProtoReflect() protoreflect.Message {
	mi := &file_cloudprovider_v1alpha1_types_proto_msgTypes[9]
	if x != nil {
		ms := protoimpl.X.MessageStateOf(protoimpl.Pointer(x))
		if ms.LoadMessageInfo() == nil {
			ms.StoreMessageInfo(mi)
		}
		return ms
	}
	return mi.MessageOf(x)
}

// Deprecated: Use NodeInfo.ProtoReflect.Descriptor instead.
func (*NodeInfo) Descriptor() ([]byte, []int) {
	return file_cloudprovider_v1alpha1_types_proto_rawDescGZIP(), []int{9}
}

func (x *NodeInfo) GetMachineId() string {
	if x != nil {
		return x.MachineId
	}
	return ""
}

func (x *NodeInfo) GetSystemUuid() string {
	if x != nil {
		return x.SystemUuid
	}
	return ""
}

func (x *NodeInfo) GetBootId() string {
	if x != nil {
		return x.BootId
	}
	return ""
}

func (x *NodeInfo) GetArchitecture() string {
	if x != nil {
		return x.Architecture
	}
	return ""
}

func (x *NodeInfo) GetOperatingSystem() string {
	if x != nil {
		return x.OperatingSystem
	}
	return ""
}

func (x *NodeInfo) GetKubeletVersion() string {
	if x != nil {
		return x.KubeletVersion
	}
	return ""
}

// The fields of each Node that a provider wants to see beyond name, UID, provider ID and addresses.
type NodeProjection struct {
	state protoimpl.MessageState `protogen:"open.v1"`
	// Exact keys of labels.
	LabelKeys []string `protobuf:"bytes,1,rep,name=label_keys,json=labelKeys,proto3" json:"label_keys,omitempty"`
	// All labels; `label_keys` is then ignored. A request for 5,000 Nodes grows by several MiB.
	AllLabels bool `protobuf:"varint,2,opt,name=all_labels,json=allLabels,proto3" json:"all_labels,omitempty"`
	// Exact keys of annotations. `kubectl.kubernetes.io/last-applied-configuration` is never sent.
	AnnotationKeys []string `protobuf:"bytes,3,rep,name=annotation_keys,json=annotationKeys,proto3" json:"annotation_keys,omitempty"`
	// Groups of further fields.
	FieldGroups   []NodeFieldGroup `protobuf:"varint,4,rep,packed,name=field_groups,json=fieldGroups,proto3,enum=cloudprovider.v1alpha1.NodeFieldGroup" json:"field_groups,omitempty"`
	unknownFields protoimpl.UnknownFields
	sizeCache     protoimpl.SizeCache
}

func (x *NodeProjection) Reset() {
	*x = NodeProjection{}
	mi := &file_cloudprovider_v1alpha1_types_proto_msgTypes[10]
	ms := protoimpl.X.MessageStateOf(protoimpl.Pointer(x))
	ms.StoreMessageInfo(mi)
}

func (x *NodeProjection) String() string {
	return protoimpl.X.MessageStringOf(x)
}

func (*NodeProjection) ProtoMessage() {}

func (x *NodeProjection) ProtoReflect() protoreflect.Message {
	mi := &file_cloudprovider_v1alpha1_types_proto_msgTypes[10]
	if x != nil {
		ms := protoimpl.X.MessageStateOf(protoimpl.Pointer(x))
		if ms.LoadMessageInfo() == nil {
			ms.StoreMessageInfo(mi)
		}
		return ms
	}
	return mi.MessageOf(x)
}

// Deprecated: Use NodeProjection.ProtoReflect.Descriptor instead.
func (*NodeProjection) Descriptor() ([]byte, []int) {
	return file_cloudprovider_v1alpha1_types_proto_rawDescGZIP(), []int{10}
}

func (x *NodeProjection) GetLabelKeys() []string {
	if x != nil {
		return x.LabelKeys
	}
	return nil
}

func (x *NodeProjection) GetAllLabels() bool {
	if x != nil {
		return x.AllLabels
	}
	return false
}

func (x *NodeProjection) GetAnnotationKeys() []string {
	if x != nil {
		return x.AnnotationKeys
	}
	return nil
}

func (x *NodeProjection) GetFieldGroups() []NodeFieldGroup {
	if x != nil {
		return x.FieldGroups
	}
	return nil
}

var File_cloudprovider_v1alpha1_types_proto protoreflect.FileDescriptor

const file_cloudprovider_v1alpha1_types_proto_rawDesc = "" +
	"\n" +
	"\"cloudprovider/v1alpha1/types.proto\x12\x16cloudprovider.v1alpha1\x1a\x1egoogle/protobuf/duration.proto\x1a\x1fgoogle/protobuf/timestamp.proto\";\n" +
	"\n" +
	"ClusterRef\x12\x12\n" +
	"\x04name\x18\x01 \x01(\tR\x04name\x12\x19\n" +
	"\bowner_id\x18\x02 \x01(\tR\aownerId\"\xb0\x01\n" +
	"\aFailure\x127\n" +
	"\x04code\x18\x01 \x01(\x0e2#.cloudprovider.v1alpha1.FailureCodeR\x04code\x12\x16\n" +
	"\x06reason\x18\x02 \x01(\tR\x06reason\x12\x18\n" +
	"\amessage\x18\x03 \x01(\tR\amessage\x12:\n" +
	"\vretry_after\x18\x04 \x01(\v2\x19.google.protobuf.DurationR\n" +
	"retryAfter\"_\n" +
	"\aPending\x12:\n" +
	"\vretry_after\x18\x01 \x01(\v2\x19.google.protobuf.DurationR\n" +
	"retryAfter\x12\x18\n" +
	"\amessage\x18\x02 \x01(\tR\amessage\"\x06\n" +
	"\x04Done\"\x12\n" +
	"\x10HandledElsewhere\"\x1f\n" +
	"\aListEnd\x12\x14\n" +
	"\x05total\x18\x01 \x01(\x04R\x05total\"\xcb\x05\n" +
	"\bNodeView\x12\x12\n" +
	"\x04name\x18\x01 \x01(\tR\x04name\x12\x10\n" +
	"\x03uid\x18\x02 \x01(\tR\x03uid\x12$\n" +
	"\vprovider_id\x18\x03 \x01(\tH\x00R\n" +
	"providerId\x88\x01\x01\x12A\n" +
	"\taddresses\x18\x04 \x03(\v2#.cloudprovider.v1alpha1.NodeAddressR\taddresses\x12D\n" +
	"\x06labels\x18\x05 \x03(\v2,.cloudprovider.v1alpha1.NodeView.LabelsEntryR\x06labels\x12S\n" +
	"\vannotations\x18\x06 \x03(\v21.cloudprovider.v1alpha1.NodeView.AnnotationsEntryR\vannotations\x12\x1b\n" +
	"\tpod_cidrs\x18\a \x03(\tR\bpodCidrs\x125\n" +
	"\x06taints\x18\b \x03(\v2\x1d.cloudprovider.v1alpha1.TaintR\x06taints\x12B\n" +
	"\tnode_info\x18\t \x01(\v2 .cloudprovider.v1alpha1.NodeInfoH\x01R\bnodeInfo\x88\x01\x01\x12\x19\n" +
	"\x05ready\x18\n" +
	" \x01(\bH\x02R\x05ready\x88\x01\x01\x12?\n" +
	"\rcreation_time\x18\v \x01(\v2\x1a.google.protobuf.TimestampR\fcreationTime\x1a9\n" +
	"\vLabelsEntry\x12\x10\n" +
	"\x03key\x18\x01 \x01(\tR\x03key\x12\x14\n" +
	"\x05value\x18\x02 \x01(\tR\x05value:\x028\x01\x1a>\n" +
	"\x10AnnotationsEntry\x12\x10\n" +
	"\x03key\x18\x01 \x01(\tR\x03key\x12\x14\n" +
	"\x05value\x18\x02 \x01(\tR\x05value:\x028\x01B\x0e\n" +
	"\f_provider_idB\f\n" +
	"\n" +
	"_node_infoB\b\n" +
	"\x06_ready\"d\n" +
	"\vNodeAddress\x12;\n" +
	"\x04type\x18\x01 \x01(\x0e2'.cloudprovider.v1alpha1.NodeAddressTypeR\x04type\x12\x18\n" +
	"\aaddress\x18\x02 \x01(\tR\aaddress\"V\n" +
	"\x05Taint\x12\x10\n" +
	"\x03key\x18\x01 \x01(\tR\x03key\x12\x19\n" +
	"\x05value\x18\x02 \x01(\tH\x00R\x05value\x88\x01\x01\x12\x16\n" +
	"\x06effect\x18\x03 \x01(\tR\x06effectB\b\n" +
	"\x06_value\"\xdb\x01\n" +
	"\bNodeInfo\x12\x1d\n" +
	"\n" +
	"machine_id\x18\x01 \x01(\tR\tmachineId\x12\x1f\n" +
	"\vsystem_uuid\x18\x02 \x01(\tR\n" +
	"systemUuid\x12\x17\n" +
	"\aboot_id\x18\x03 \x01(\tR\x06bootId\x12\"\n" +
	"\farchitecture\x18\x04 \x01(\tR\farchitecture\x12)\n" +
	"\x10operating_system\x18\x05 \x01(\tR\x0foperatingSystem\x12'\n" +
	"\x0fkubelet_version\x18\x06 \x01(\tR\x0ekubeletVersion\"\xc2\x01\n" +
	"\x0eNodeProjection\x12\x1d\n" +
	"\n" +
	"label_keys\x18\x01 \x03(\tR\tlabelKeys\x12\x1d\n" +
	"\n" +
	"all_labels\x18\x02 \x01(\bR\tallLabels\x12'\n" +
	"\x0fannotation_keys\x18\x03 \x03(\tR\x0eannotationKeys\x12I\n" +
	"\ffield_groups\x18\x04 \x03(\x0e2&.cloudprovider.v1alpha1.NodeFieldGroupR\vfieldGroups*\xc7\x02\n" +
	"\vFailureCode\x12\x1c\n" +
	"\x18FAILURE_CODE_UNSPECIFIED\x10\x00\x12\x18\n" +
	"\x14FAILURE_CODE_INVALID\x10\x01\x12\x1d\n" +
	"\x19FAILURE_CODE_PRECONDITION\x10\x02\x12\x1a\n" +
	"\x16FAILURE_CODE_NOT_FOUND\x10\x03\x12\x19\n" +
	"\x15FAILURE_CODE_CONFLICT\x10\x04\x12\x15\n" +
	"\x11FAILURE_CODE_BUSY\x10\x05\x12\x1a\n" +
	"\x16FAILURE_CODE_THROTTLED\x10\x06\x12\x1c\n" +
	"\x18FAILURE_CODE_CREDENTIALS\x10\a\x12\x1c\n" +
	"\x18FAILURE_CODE_UNAVAILABLE\x10\b\x12 \n" +
	"\x1cFAILURE_CODE_NOT_INITIALIZED\x10\t\x12\x19\n" +
	"\x15FAILURE_CODE_INTERNAL\x10\n" +
	"*\xe2\x01\n" +
	"\x0fNodeAddressType\x12!\n" +
	"\x1dNODE_ADDRESS_TYPE_UNSPECIFIED\x10\x00\x12\x1e\n" +
	"\x1aNODE_ADDRESS_TYPE_HOSTNAME\x10\x01\x12!\n" +
	"\x1dNODE_ADDRESS_TYPE_INTERNAL_IP\x10\x02\x12!\n" +
	"\x1dNODE_ADDRESS_TYPE_EXTERNAL_IP\x10\x03\x12\"\n" +
	"\x1eNODE_ADDRESS_TYPE_INTERNAL_DNS\x10\x04\x12\"\n" +
	"\x1eNODE_ADDRESS_TYPE_EXTERNAL_DNS\x10\x05*\xd3\x01\n" +
	"\x0eNodeFieldGroup\x12 \n" +
	"\x1cNODE_FIELD_GROUP_UNSPECIFIED\x10\x00\x12\x1e\n" +
	"\x1aNODE_FIELD_GROUP_POD_CIDRS\x10\x01\x12\x1b\n" +
	"\x17NODE_FIELD_GROUP_TAINTS\x10\x02\x12\x1e\n" +
	"\x1aNODE_FIELD_GROUP_NODE_INFO\x10\x03\x12\x1e\n" +
	"\x1aNODE_FIELD_GROUP_READINESS\x10\x04\x12\"\n" +
	"\x1eNODE_FIELD_GROUP_CREATION_TIME\x10\x05*i\n" +
	"\tOwnership\x12\x19\n" +
	"\x15OWNERSHIP_UNSPECIFIED\x10\x00\x12\x12\n" +
	"\x0eOWNERSHIP_OURS\x10\x01\x12\x15\n" +
	"\x11OWNERSHIP_FOREIGN\x10\x02\x12\x16\n" +
	"\x12OWNERSHIP_UNMARKED\x10\x03BW\n" +
	"\x16cloudprovider.v1alpha1P\x01Z;github.com/grpc-ccm/grpc-ccm/providers/go/contract;contractb\x06proto3"

var (
	file_cloudprovider_v1alpha1_types_proto_rawDescOnce sync.Once
	file_cloudprovider_v1alpha1_types_proto_rawDescData []byte
)

func file_cloudprovider_v1alpha1_types_proto_rawDescGZIP() []byte {
	file_cloudprovider_v1alpha1_types_proto_rawDescOnce.Do(func() {
		file_cloudprovider_v1alpha1_types_proto_rawDescData = protoimpl.X.CompressGZIP(unsafe.Slice(unsafe.StringData(file_cloudprovider_v1alpha1_types_proto_rawDesc), len(file_cloudprovider_v1alpha1_types_proto_rawDesc)))
	})
	return file_cloudprovider_v1alpha1_types_proto_rawDescData
}

var file_cloudprovider_v1alpha1_types_proto_enumTypes = make([]protoimpl.EnumInfo, 4)
var file_cloudprovider_v1alpha1_types_proto_msgTypes = make([]protoimpl.MessageInfo, 13)
var file_cloudprovider_v1alpha1_types_proto_goTypes = []any{
	(FailureCode)(0),              // 0: cloudprovider.v1alpha1.FailureCode
	(NodeAddressType)(0),          // 1: cloudprovider.v1alpha1.NodeAddressType
	(NodeFieldGroup)(0),           // 2: cloudprovider.v1alpha1.NodeFieldGroup
	(Ownership)(0),                // 3: cloudprovider.v1alpha1.Ownership
	(*ClusterRef)(nil),            // 4: cloudprovider.v1alpha1.ClusterRef
	(*Failure)(nil),               // 5: cloudprovider.v1alpha1.Failure
	(*Pending)(nil),               // 6: cloudprovider.v1alpha1.Pending
	(*Done)(nil),                  // 7: cloudprovider.v1alpha1.Done
	(*HandledElsewhere)(nil),      // 8: cloudprovider.v1alpha1.HandledElsewhere
	(*ListEnd)(nil),               // 9: cloudprovider.v1alpha1.ListEnd
	(*NodeView)(nil),              // 10: cloudprovider.v1alpha1.NodeView
	(*NodeAddress)(nil),           // 11: cloudprovider.v1alpha1.NodeAddress
	(*Taint)(nil),                 // 12: cloudprovider.v1alpha1.Taint
	(*NodeInfo)(nil),              // 13: cloudprovider.v1alpha1.NodeInfo
	(*NodeProjection)(nil),        // 14: cloudprovider.v1alpha1.NodeProjection
	nil,                           // 15: cloudprovider.v1alpha1.NodeView.LabelsEntry
	nil,                           // 16: cloudprovider.v1alpha1.NodeView.AnnotationsEntry
	(*durationpb.Duration)(nil),   // 17: google.protobuf.Duration
	(*timestamppb.Timestamp)(nil), // 18: google.protobuf.Timestamp
}
var file_cloudprovider_v1alpha1_types_proto_depIdxs = []int32{
	0,  // 0: cloudprovider.v1alpha1.Failure.code:type_name -> cloudprovider.v1alpha1.FailureCode
	17, // 1: cloudprovider.v1alpha1.Failure.retry_after:type_name -> google.protobuf.Duration
	17, // 2: cloudprovider.v1alpha1.Pending.retry_after:type_name -> google.protobuf.Duration
	11, // 3: cloudprovider.v1alpha1.NodeView.addresses:type_name -> cloudprovider.v1alpha1.NodeAddress
	15, // 4: cloudprovider.v1alpha1.NodeView.labels:type_name -> cloudprovider.v1alpha1.NodeView.LabelsEntry
	16, // 5: cloudprovider.v1alpha1.NodeView.annotations:type_name -> cloudprovider.v1alpha1.NodeView.AnnotationsEntry
	12, // 6: cloudprovider.v1alpha1.NodeView.taints:type_name -> cloudprovider.v1alpha1.Taint
	13, // 7: cloudprovider.v1alpha1.NodeView.node_info:type_name -> cloudprovider.v1alpha1.NodeInfo
	18, // 8: cloudprovider.v1alpha1.NodeView.creation_time:type_name -> google.protobuf.Timestamp
	1,  // 9: cloudprovider.v1alpha1.NodeAddress.type:type_name -> cloudprovider.v1alpha1.NodeAddressType
	2,  // 10: cloudprovider.v1alpha1.NodeProjection.field_groups:type_name -> cloudprovider.v1alpha1.NodeFieldGroup
	11, // [11:11] is the sub-list for method output_type
	11, // [11:11] is the sub-list for method input_type
	11, // [11:11] is the sub-list for extension type_name
	11, // [11:11] is the sub-list for extension extendee
	0,  // [0:11] is the sub-list for field type_name
}

func init() { file_cloudprovider_v1alpha1_types_proto_init() }
func file_cloudprovider_v1alpha1_types_proto_init() {
	if File_cloudprovider_v1alpha1_types_proto != nil {
		return
	}
	file_cloudprovider_v1alpha1_types_proto_msgTypes[6].OneofWrappers = []any{}
	file_cloudprovider_v1alpha1_types_proto_msgTypes[8].OneofWrappers = []any{}
	type x struct{}
	out := protoimpl.TypeBuilder{
		File: protoimpl.DescBuilder{
			GoPackagePath: reflect.TypeOf(x{}).PkgPath(),
			RawDescriptor: unsafe.Slice(unsafe.StringData(file_cloudprovider_v1alpha1_types_proto_rawDesc), len(file_cloudprovider_v1alpha1_types_proto_rawDesc)),
			NumEnums:      4,
			NumMessages:   13,
			NumExtensions: 0,
			NumServices:   0,
		},
		GoTypes:           file_cloudprovider_v1alpha1_types_proto_goTypes,
		DependencyIndexes: file_cloudprovider_v1alpha1_types_proto_depIdxs,
		EnumInfos:         file_cloudprovider_v1alpha1_types_proto_enumTypes,
		MessageInfos:      file_cloudprovider_v1alpha1_types_proto_msgTypes,
	}.Build()
	File_cloudprovider_v1alpha1_types_proto = out.File
	file_cloudprovider_v1alpha1_types_proto_goTypes = nil
	file_cloudprovider_v1alpha1_types_proto_depIdxs = nil
}
