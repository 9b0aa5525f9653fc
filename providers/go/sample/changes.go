package main

import (
	"context"
	"reflect"
	"time"

	"github.com/grpc-ccm/grpc-ccm/providers/go/sdk"
)

// sdk.Changes: hints about changes that other processes made in the cloud.

// How often the provider reads the cloud while a controller watches. A cloud with a feed of events does not need such reads.
const every = 250 * time.Millisecond

// WatchChanges sends hints of what other processes change. It reads the cloud only while a controller watches.
func (p *Provider) WatchChanges(ctx context.Context, _ *sdk.Call, resumeToken string, hints *sdk.Hints) error {
	looking, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		for {
			select {
			case <-looking.Done():
				return
			case <-time.After(every):
				// If another process has changed the state, Look calls note. An error of Look needs no hint: other RPCs report it.
				_, _ = p.cloud.Look()
			}
		}
	}()
	return p.feed.Watch(ctx, resumeToken, hints)
}

// note adds hints for what another process changed.
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
