package main

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/grpc-ccm/grpc-ccm/providers/go/sdk"
)

// sdk.InstanceBatches, sdk.InstanceLister and sdk.ZoneBatches.

var addressTypes = map[string]sdk.AddressType{
	"Hostname": sdk.Hostname, "InternalIP": sdk.InternalIP, "ExternalIP": sdk.ExternalIP, "InternalDNS": sdk.InternalDNS, "ExternalDNS": sdk.ExternalDNS,
}

var states = map[string]sdk.InstanceState{
	"": sdk.InstanceRunning, "running": sdk.InstanceRunning, "stopped": sdk.InstanceStopped, "unknown": sdk.InstancePresent, "pending": sdk.InstancePending,
	"unmanaged": sdk.InstanceUnmanaged,
}

// LookupInstances reads the cloud at most once for all Nodes. The state is complete, so an instance that it lacks does not exist (INST-1).
func (p *Provider) LookupInstances(ctx context.Context, _ *sdk.Call, nodes []sdk.Node, query sdk.InstanceQuery) (sdk.Answers[sdk.Instance], error) {
	state, err := p.cloud.Read(ctx, query.MaxAge)
	if err != nil {
		return nil, err
	}
	answers := sdk.Answers[sdk.Instance]{}
	for _, node := range nodes {
		found, err := p.found(state, node, query.Metadata)
		answers.Set(node.Name, found, err)
	}
	return answers, nil
}

// ListInstances returns all instances that the cloud shows with a provider ID.
func (p *Provider) ListInstances(ctx context.Context, _ *sdk.Call, query sdk.InstanceQuery) (list []sdk.Instance, err error) {
	state, err := p.cloud.Read(ctx, 0)
	if err != nil {
		return nil, err
	}
	for i := range state.Instances {
		if shown := shown(&state.Instances[i], query.Metadata); shown.ProviderID != "" {
			list = append(list, shown)
		}
	}
	return list, nil
}

// LookupZones returns the zones of Nodes; unknown values are empty.
func (p *Provider) LookupZones(ctx context.Context, _ *sdk.Call, nodes []sdk.Node) (sdk.Answers[sdk.Zone], error) {
	state, err := p.cloud.Read(ctx, 0)
	if err != nil {
		return nil, err
	}
	answers := sdk.Answers[sdk.Zone]{}
	for _, node := range nodes {
		found, err := p.found(state, node, true)
		answers.Set(node.Name, sdk.Zone{Zone: found.Zone, Region: found.Region}, err)
	}
	return answers, nil
}

// found returns the instance of a Node, by the provider ID if the Node has one, else by its name (INST-3).
func (p *Provider) found(state *State, node sdk.Node, metadata bool) (sdk.Instance, error) {
	instance := state.ByName[node.Name]
	if id := node.ProviderID; id != "" {
		if id == p.settings.Prefix {
			return sdk.Instance{}, sdk.Invalid("the provider ID %q names no instance", id)
		}
		instance = state.ByProviderID[id]
	}
	if instance == nil {
		return sdk.Instance{State: sdk.InstanceAbsent}, nil
	}
	return shown(instance, metadata), nil
}

func shown(instance *Instance, metadata bool) sdk.Instance {
	shown := sdk.Instance{State: states[instance.Power]}
	switch shown.State {
	case sdk.InstancePending:
		shown.RetryAfter = time.Second
		return shown
	case sdk.InstanceUnmanaged:
		return shown
	}
	shown.ProviderID = instance.ProviderID
	if metadata {
		shown.Type, shown.Zone, shown.Region, shown.Labels = text(instance.Type), text(instance.Zone), text(instance.Region), instance.Labels
		shown.Addresses = addressesTo(instance.Addresses)
	}
	return shown
}

func addressesTo(addresses []map[string]string) (shown []sdk.NodeAddress) {
	for _, address := range addresses {
		for _, kind := range slices.Sorted(maps.Keys(address)) {
			shown = append(shown, sdk.NodeAddress{Type: addressTypes[kind], Address: address[kind]})
		}
	}
	return shown
}

func addressesFrom(addresses []sdk.NodeAddress) (stored []map[string]string) {
	for _, address := range addresses {
		for kind, number := range addressTypes {
			if number == address.Type {
				stored = append(stored, map[string]string{kind: address.Address})
			}
		}
	}
	return stored
}
