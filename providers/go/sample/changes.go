package main

import (
	"context"
	"reflect"
	"time"

	"github.com/grpc-ccm/grpc-ccm/providers/go/sdk"
)

// sdk.Changes: what others changed in the cloud.

// The period at which the cloud is read while a caller watches. A cloud with a feed of events does not need it.
const every = 250 * time.Millisecond

// WatchChanges sends hints of what others change while somebody watches.
func (p *Provider) WatchChanges(ctx context.Context, _ *sdk.Call, resumeToken string, hints *sdk.Hints) error {
	looking, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		for {
			select {
			case <-looking.Done():
				return
			case <-time.After(every):
				// If the cloud cannot be read, changes are unknown; the callers of other RPCs get the error.
				_, _ = p.cloud.Look()
			}
		}
	}()
	return p.feed.Watch(ctx, resumeToken, hints)
}

// note receives the changes of others.
func (p *Provider) note(before, after *State) {
	for _, instance := range differing(byID(before), byID(after)) {
		p.feed.Add(sdk.Change{Instance: &sdk.InstanceChange{ProviderID: instance.ProviderID, NodeName: instance.Name}})
	}
	for _, lb := range differing(before.LoadBalancers, after.LoadBalancers) {
		if mark := lb.Owner; mark != nil {
			p.feed.Add(sdk.Change{LoadBalancer: &sdk.LoadBalancerChange{Namespace: mark.Namespace, Name: mark.Name}})
		}
	}
	if len(differing(before.Routes, after.Routes)) > 0 {
		p.feed.Add(sdk.Change{Routes: true})
	}
}

func byID(state *State) map[string]Instance {
	instances := make(map[string]Instance, len(state.Instances))
	for _, instance := range state.Instances {
		instances[instance.ID] = instance
	}
	return instances
}

func differing[T any](before, after map[string]T) (differing []T) {
	for key, was := range before {
		if is, there := after[key]; !there {
			differing = append(differing, was)
		} else if !reflect.DeepEqual(was, is) {
			differing = append(differing, is)
		}
	}
	for key, is := range after {
		if _, was := before[key]; !was {
			differing = append(differing, is)
		}
	}
	return differing
}
