package sdk

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/grpc-ccm/grpc-ccm/providers/go/contract"
)

func queryFrom(facets []contract.InstanceFacet, maxAge time.Duration) InstanceQuery {
	query := InstanceQuery{MaxAge: max(0, maxAge)}
	for _, facet := range facets {
		switch facet {
		case contract.InstanceFacet_INSTANCE_FACET_EXISTENCE:
			query.Existence = true
		case contract.InstanceFacet_INSTANCE_FACET_POWER:
			query.Power = true
		case contract.InstanceFacet_INSTANCE_FACET_METADATA:
			query.Metadata = true
		}
	}
	// Without a known facet the request asks for existence.
	query.Existence = query.Existence || !query.Power && !query.Metadata
	return query
}

// ours reports whether to ask the provider about a Node: the Node has no provider ID, or its provider ID has one of our prefixes (INST-9).
func (s *session) ours(node *contract.NodeView) bool {
	return node.ProviderId == nil || s.hasPrefix(*node.ProviderId)
}

func (s *session) hasPrefix(id string) bool {
	for _, prefix := range s.info.ProviderIDPrefixes {
		if strings.HasPrefix(id, prefix) {
			return true
		}
	}
	return false
}

// lookUp asks the provider about the Nodes that are ours, in a batch or one by one. foreign is the answer for the other Nodes.
func lookUp[T any](ctx context.Context, s *session, call *Call, views []*contract.NodeView, foreign T, batch func([]Node) (Answers[T], error), each func(context.Context, Node) (T, error)) (Answers[T], error) {
	if err := withinBatch("Nodes", len(views), s.info.Instances.MaxBatch); err != nil {
		return nil, err
	}
	if err := checkNodes(views); err != nil {
		return nil, err
	}
	others, asked := Answers[T]{}, map[string]bool{}
	var nodes []Node
	for _, view := range views {
		switch {
		case !s.ours(view):
			others.Set(view.Name, foreign, nil)
		case len(view.GetProviderId()) > idBytes:
			others.Set(view.Name, foreign, Invalid("the provider ID %.64q has %d bytes, more than %d", view.GetProviderId(), len(view.GetProviderId()), idBytes))
		default:
			nodes, asked[view.Name] = append(nodes, nodeFrom(view)), true
		}
	}
	answers := Answers[T]{}
	if batch != nil && len(nodes) > 0 {
		var err error
		if answers, err = batch(nodes); err != nil {
			return nil, err
		}
		logStrangers(ctx, s, call.RPC, answers, asked)
	} else if len(nodes) > 0 {
		answers = oneByOne(ctx, s, call, nodes, orDefault(s.info.Instances.AtOnce, 16), func(node Node) string { return node.Name }, nil, each)
	}
	all := Answers[T]{}
	for _, view := range views {
		if answer, ok := others[view.Name]; ok {
			all[view.Name] = answer
		} else if answer, ok := answers[view.Name]; ok {
			all[view.Name] = answer
		} else {
			var none T
			all.Set(view.Name, none, contractBroken("the provider has no answer for this Node"))
		}
	}
	return all, nil
}

func (s *session) LookupInstances(ctx context.Context, request *contract.LookupInstancesRequest) (*contract.LookupInstancesResponse, error) {
	type response = contract.LookupInstancesResponse
	query := queryFrom(request.Facets, request.MaxAge.AsDuration())
	work := func(ctx context.Context, call *Call) (Answers[Instance], error) {
		var batch func([]Node) (Answers[Instance], error)
		if s.offers.instanceBatches != nil {
			batch = func(nodes []Node) (Answers[Instance], error) {
				return s.offers.instanceBatches.LookupInstances(ctx, call, nodes, query)
			}
		}
		return lookUp(ctx, s, call, request.Nodes, Instance{State: InstanceUnmanaged}, batch, func(ctx context.Context, node Node) (Instance, error) {
			return s.offers.instances.LookupInstance(ctx, call, node, query)
		})
	}
	failed := func(failure *contract.Failure) *response { return &response{Failed: failure} }
	return answer(ctx, s, "LookupInstances", "", request.Cluster, failed, work, func(answers Answers[Instance]) (*response, error) {
		said, log := &response{}, ofCall(ctx, s.log)
		for _, node := range request.Nodes {
			result, found := &contract.LookupInstanceResult{NodeName: node.Name, NodeUid: node.Uid}, (*contract.Instance)(nil)
			answer := answers[node.Name]
			if answer.Err == nil {
				found, answer.Err = s.instanceTo(log, answer.Value, query.Metadata)
			}
			if answer.Err != nil {
				result.Outcome = &contract.LookupInstanceResult_Failed{Failed: s.failed(ctx, "LookupInstances", node.Name, answer.Err)}
			} else {
				result.Outcome = &contract.LookupInstanceResult_Found{Found: found}
			}
			said.Results = append(said.Results, result)
		}
		return said, nil
	})
}

func (s *session) instanceTo(log *slog.Logger, instance Instance, metadata bool) (*contract.Instance, error) {
	switch instance.State {
	case InstancePresent, InstanceRunning, InstanceStopped:
		if metadata && instance.ProviderID == "" {
			return nil, contractBroken("an instance that exists has no provider ID (INST-7)")
		}
	case InstanceAbsent, InstancePending, InstanceUnmanaged:
	default:
		return nil, contractBroken("the contract has no instance state %d", instance.State)
	}
	if id := instance.ProviderID; id != "" {
		if err := atMost("the provider ID", id, idBytes); err != nil {
			return nil, err
		}
		if !s.hasPrefix(id) {
			return nil, contractBroken("the provider ID %q begins with none of the stated prefixes %q (PROV-8)", id, s.info.ProviderIDPrefixes)
		}
	}
	// INST-15: leave out facts that the contract cannot express.
	fact := func(what, value string) *string { return formed(log, "instance", instance.ProviderID, what, value) }
	labels := maps.Clone(instance.Labels)
	maps.DeleteFunc(labels, func(key, value string) bool {
		err := textsOf("the label", map[string]string{key: value})
		if err != nil {
			log.Warn("a label of an instance is left out", "instance", instance.ProviderID, "error", err)
		}
		return err != nil
	})
	of := slices.DeleteFunc(slices.Clone(instance.Addresses), func(address NodeAddress) bool {
		why := ""
		switch address.Type {
		case InternalIP, ExternalIP:
		case Hostname, InternalDNS, ExternalDNS:
			if !isName(address) {
				why = "it is not a DNS name"
			}
		default:
			why = "it has no known type"
		}
		if why != "" {
			log.Warn("an address of an instance is left out", "instance", instance.ProviderID, "address", address.Address, "why", why)
		}
		return why != ""
	})
	addresses, err := addressesTo(of)
	return &contract.Instance{
		State: contract.InstanceState(instance.State), ProviderId: optional(instance.ProviderID), InstanceType: fact("type", instance.Type), Addresses: addresses,
		Zone: fact("zone", instance.Zone), Region: fact("region", instance.Region), Labels: labels, RetryAfter: durationTo(instance.RetryAfter),
	}, err
}

// formed returns nil for a fact that is no label value, and logs the fact. The arguments `of` and `name` are a key and its value in the log line.
func formed(log *slog.Logger, of, name, what, value string) *string {
	if value != "" && !labelValue.MatchString(value) {
		log.Warn("a fact is no label value and is left out", of, name, "fact", what, "value", value)
		return nil
	}
	return optional(value)
}

func (s *session) ListInstances(request *contract.ListInstancesRequest, stream grpc.ServerStreamingServer[contract.ListInstancesResponse]) error {
	type response = contract.ListInstancesResponse
	query := queryFrom(request.Facets, 0)
	list := func(ctx context.Context, call *Call) ([]Instance, error) {
		if s.offers.instanceLister == nil {
			return nil, notOffered("ListInstances")
		}
		return s.offers.instanceLister.ListInstances(ctx, call, query)
	}
	log := ofCall(stream.Context(), s.log)
	return listing(stream, s, "ListInstances", request.Cluster, list, func(instance Instance) (*contract.Instance, error) { return s.instanceTo(log, instance, true) }, sizeOf,
		func(part []*contract.Instance) *response {
			return &response{Part: &contract.ListInstancesResponse_Instances{Instances: &contract.InstanceList{Instances: part}}}
		},
		func(end *contract.ListEnd) *response {
			return &response{Part: &contract.ListInstancesResponse_End{End: end}}
		},
		func(failure *contract.Failure) *response {
			return &response{Part: &contract.ListInstancesResponse_Failed{Failed: failure}}
		})
}

func sizeOf[M proto.Message](message M) int { return proto.Size(message) }

func (s *session) LookupZones(ctx context.Context, request *contract.LookupZonesRequest) (*contract.LookupZonesResponse, error) {
	type response = contract.LookupZonesResponse
	work := func(ctx context.Context, call *Call) (Answers[Zone], error) {
		var batch func([]Node) (Answers[Zone], error)
		if s.offers.zoneBatches != nil {
			batch = func(nodes []Node) (Answers[Zone], error) { return s.offers.zoneBatches.LookupZones(ctx, call, nodes) }
		}
		return lookUp(ctx, s, call, request.Nodes, Zone{}, batch, func(ctx context.Context, node Node) (Zone, error) {
			return s.offers.zones.LookupZone(ctx, call, node)
		})
	}
	failed := func(failure *contract.Failure) *response { return &response{Failed: failure} }
	return answer(ctx, s, "LookupZones", "", request.Cluster, failed, work, func(answers Answers[Zone]) (*response, error) {
		said, log := &response{}, ofCall(ctx, s.log)
		for _, node := range request.Nodes {
			result, answer := &contract.LookupZoneResult{NodeName: node.Name, NodeUid: node.Uid}, answers[node.Name]
			// ZONE-2: leave out what is no label value, as INST-15 asks for an instance.
			fact := func(what, value string) *string { return formed(log, "node", node.Name, what, value) }
			if answer.Err != nil {
				result.Outcome = &contract.LookupZoneResult_Failed{Failed: s.failed(ctx, "LookupZones", node.Name, answer.Err)}
			} else {
				result.Outcome = &contract.LookupZoneResult_Zone{Zone: &contract.Zone{Zone: fact("zone", answer.Value.Zone), Region: fact("region", answer.Value.Region)}}
			}
			said.Results = append(said.Results, result)
		}
		return said, nil
	})
}

func (s *session) ListClusters(request *contract.ListClustersRequest, stream grpc.ServerStreamingServer[contract.ListClustersResponse]) error {
	type response = contract.ListClustersResponse
	list := func(ctx context.Context, call *Call) ([]string, error) {
		return s.offers.clusters.ListClusters(ctx, call)
	}
	name := func(name string) (string, error) { return name, fits("a cluster's name", name, nameBytes) }
	return listing(stream, s, "ListClusters", request.Cluster, list, name, func(name string) int { return len(name) },
		func(part []string) *response {
			return &response{Part: &contract.ListClustersResponse_Clusters{Clusters: &contract.ClusterNames{Names: part}}}
		},
		func(end *contract.ListEnd) *response {
			return &response{Part: &contract.ListClustersResponse_End{End: end}}
		},
		func(failure *contract.Failure) *response {
			return &response{Part: &contract.ListClustersResponse_Failed{Failed: failure}}
		})
}

func (s *session) GetControlPlaneAddress(ctx context.Context, request *contract.GetControlPlaneAddressRequest) (*contract.GetControlPlaneAddressResponse, error) {
	type response = contract.GetControlPlaneAddressResponse
	failed := func(failure *contract.Failure) *response {
		return &response{Outcome: &contract.GetControlPlaneAddressResponse_Failed{Failed: failure}}
	}
	work := func(ctx context.Context, call *Call) (string, error) {
		if request.ClusterName == "" {
			return "", Invalid("cluster_name is empty; right would be one that ListClusters names")
		}
		return s.offers.clusters.ControlPlaneAddress(ctx, call, request.ClusterName)
	}
	return answer(ctx, s, "GetControlPlaneAddress", request.ClusterName, request.Cluster, failed, work, func(address string) (*response, error) {
		return &response{Outcome: &contract.GetControlPlaneAddressResponse_Address{Address: address}}, fits("the address", address, nameBytes)
	})
}

func (s *session) GetVolumeLabels(ctx context.Context, request *contract.GetVolumeLabelsRequest) (*contract.GetVolumeLabelsResponse, error) {
	type response = contract.GetVolumeLabelsResponse
	view := request.GetVolume()
	failed := func(failure *contract.Failure) *response {
		return &response{Outcome: &contract.GetVolumeLabelsResponse_Failed{Failed: failure}}
	}
	work := func(ctx context.Context, call *Call) (map[string]string, error) {
		if view == nil {
			return nil, Invalid("the request has no volume")
		}
		return s.offers.volumes.VolumeLabels(ctx, call, Volume{view.Name, view.Uid, view.Labels, view.Annotations, view.SourceType, view.Source})
	}
	return answer(ctx, s, "GetVolumeLabels", view.GetName(), request.Cluster, failed, work, func(labels map[string]string) (*response, error) {
		return &response{Outcome: &contract.GetVolumeLabelsResponse_Labels{Labels: &contract.VolumeLabels{Labels: labels}}}, textsOf("the label", labels)
	})
}
