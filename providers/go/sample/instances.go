package main

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/grpc-ccm/grpc-ccm/providers/go/contract"
)

// InstanceService and ZoneService.

var addressTypes = map[string]contract.NodeAddressType{
	"Hostname":    contract.NodeAddressType_NODE_ADDRESS_TYPE_HOSTNAME,
	"InternalIP":  contract.NodeAddressType_NODE_ADDRESS_TYPE_INTERNAL_IP,
	"ExternalIP":  contract.NodeAddressType_NODE_ADDRESS_TYPE_EXTERNAL_IP,
	"InternalDNS": contract.NodeAddressType_NODE_ADDRESS_TYPE_INTERNAL_DNS,
	"ExternalDNS": contract.NodeAddressType_NODE_ADDRESS_TYPE_EXTERNAL_DNS,
}

var states = map[string]contract.InstanceState{
	"":          contract.InstanceState_INSTANCE_STATE_RUNNING,
	"running":   contract.InstanceState_INSTANCE_STATE_RUNNING,
	"stopped":   contract.InstanceState_INSTANCE_STATE_STOPPED,
	"unknown":   contract.InstanceState_INSTANCE_STATE_PRESENT,
	"pending":   contract.InstanceState_INSTANCE_STATE_PENDING,
	"unmanaged": contract.InstanceState_INSTANCE_STATE_UNMANAGED,
}

// LookupInstances asks the cloud once for all, and its answer is complete: what is not in it does not exist (INST-1).
func (p *Provider) LookupInstances(ctx context.Context, request *contract.LookupInstancesRequest) (*contract.LookupInstancesResponse, error) {
	failed := func(failure *contract.Failure) *contract.LookupInstancesResponse {
		return &contract.LookupInstancesResponse{Failed: failure}
	}
	return answer(ctx, p, "LookupInstances", request.Cluster, failed, func(*Owner) (*contract.LookupInstancesResponse, error) {
		if err := withinBatch("nodes", request.Nodes, (*contract.NodeView).GetName); err != nil {
			return nil, err
		}
		state, err := p.cloud.Read(ctx, request.MaxAge.AsDuration())
		if err != nil {
			return nil, err
		}
		metadata := slices.Contains(request.Facets, contract.InstanceFacet_INSTANCE_FACET_METADATA)
		response := &contract.LookupInstancesResponse{}
		for _, node := range request.Nodes {
			result := &contract.LookupInstanceResult{NodeName: node.Name, NodeUid: node.Uid}
			if found, err := p.found(state, node, metadata); err != nil { // One Node's trouble is not the others' (INST-4).
				result.Outcome = &contract.LookupInstanceResult_Failed{Failed: failureOf("LookupInstances", err)}
			} else {
				result.Outcome = &contract.LookupInstanceResult_Found{Found: found}
			}
			response.Results = append(response.Results, result)
		}
		return response, nil
	})
}

// ListInstances gives all that the cloud shows.
func (p *Provider) ListInstances(request *contract.ListInstancesRequest, stream grpc.ServerStreamingServer[contract.ListInstancesResponse]) error {
	type response = contract.ListInstancesResponse
	list := func(*Owner) (list []*contract.Instance, err error) {
		state, err := p.cloud.Read(stream.Context(), 0)
		if err != nil {
			return nil, err
		}
		metadata := slices.Contains(request.Facets, contract.InstanceFacet_INSTANCE_FACET_METADATA)
		for i := range state.Instances {
			if shown := shown(&state.Instances[i], metadata); shown.ProviderId != nil {
				list = append(list, shown)
			}
		}
		return list, nil
	}
	return listing(stream, p, "ListInstances", request.Cluster, list,
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

// LookupZones says where Nodes are; what is not known is left out.
func (p *Provider) LookupZones(ctx context.Context, request *contract.LookupZonesRequest) (*contract.LookupZonesResponse, error) {
	failed := func(failure *contract.Failure) *contract.LookupZonesResponse {
		return &contract.LookupZonesResponse{Failed: failure}
	}
	return answer(ctx, p, "LookupZones", request.Cluster, failed, func(*Owner) (*contract.LookupZonesResponse, error) {
		if err := withinBatch("nodes", request.Nodes, (*contract.NodeView).GetName); err != nil {
			return nil, err
		}
		state, err := p.cloud.Read(ctx, 0)
		if err != nil {
			return nil, err
		}
		response := &contract.LookupZonesResponse{}
		for _, node := range request.Nodes {
			result := &contract.LookupZoneResult{NodeName: node.Name, NodeUid: node.Uid}
			if found, err := p.found(state, node, true); err != nil {
				result.Outcome = &contract.LookupZoneResult_Failed{Failed: failureOf("LookupZones", err)}
			} else {
				result.Outcome = &contract.LookupZoneResult_Zone{Zone: &contract.Zone{Zone: found.Zone, Region: found.Region}}
			}
			response.Results = append(response.Results, result)
		}
		return response, nil
	})
}

// What the cloud says of a Node: by its provider ID where it has one, else by its name (INST-3).
func (p *Provider) found(state *State, node *contract.NodeView, metadata bool) (*contract.Instance, error) {
	instance := state.ByName[node.Name]
	if node.ProviderId != nil {
		id := *node.ProviderId
		if !strings.HasPrefix(id, p.settings.Prefix) {
			return &contract.Instance{State: contract.InstanceState_INSTANCE_STATE_UNMANAGED}, nil
		}
		if len(id) == len(p.settings.Prefix) || len(id) > idBytes {
			return nil, invalid("the provider ID %.64q has %d bytes and is none of this cloud", id, len(id))
		}
		instance = state.ByProviderID[id]
	}
	if instance == nil {
		return &contract.Instance{State: contract.InstanceState_INSTANCE_STATE_ABSENT}, nil
	}
	return shown(instance, metadata), nil
}

func shown(instance *Instance, metadata bool) *contract.Instance {
	shown := &contract.Instance{State: states[instance.Power]}
	switch shown.State {
	case contract.InstanceState_INSTANCE_STATE_PENDING:
		shown.RetryAfter = durationpb.New(time.Second)
		return shown
	case contract.InstanceState_INSTANCE_STATE_UNMANAGED:
		return shown
	}
	shown.ProviderId = &instance.ProviderID
	if metadata {
		shown.InstanceType, shown.Zone, shown.Region, shown.Labels = instance.Type, instance.Zone, instance.Region, instance.Labels
		shown.Addresses = addressesTo(instance.Addresses)
	}
	return shown
}

func addressesTo(addresses []map[string]string) (shown []*contract.NodeAddress) {
	for _, address := range addresses {
		for _, kind := range slices.Sorted(maps.Keys(address)) {
			shown = append(shown, &contract.NodeAddress{Type: addressTypes[kind], Address: address[kind]})
		}
	}
	return shown
}

func addressesFrom(addresses []*contract.NodeAddress) (stored []map[string]string) {
	for _, address := range addresses {
		for kind, number := range addressTypes {
			if number == address.Type {
				stored = append(stored, map[string]string{kind: address.Address})
			}
		}
	}
	return stored
}
