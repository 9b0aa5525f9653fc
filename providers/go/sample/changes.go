package main

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/grpc-ccm/grpc-ccm/providers/go/contract"
)

// The hints of WatchChanges: what others changed in the cloud, numbered, the last ones kept for a controller that comes back.

const (
	// How often the cloud is looked at while somebody watches. A cloud with a feed of events needs no such thing.
	every = 250 * time.Millisecond
	kept  = 1024
)

// Changes are the hints of one process.
type Changes struct {
	bootID string
	// Closed when the provider shuts down.
	closing chan struct{}

	mutex sync.Mutex
	hints []*contract.WatchChangesResponse
	// The number of the last one.
	last int
}

// Note is told of what somebody else changed.
func (c *Changes) Note(before, after *State) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	for _, instance := range differing(byID(before), byID(after)) {
		change := &contract.InstanceChange{ProviderId: instance.ProviderID, NodeName: instance.Name}
		c.add(&contract.WatchChangesResponse{Change: &contract.WatchChangesResponse_Instance{Instance: change}})
	}
	for _, lb := range differing(before.LoadBalancers, after.LoadBalancers) {
		if mark := lb.Owner; mark != nil {
			change := &contract.LoadBalancerChange{Namespace: mark.Namespace, Name: mark.Name}
			c.add(&contract.WatchChangesResponse{Change: &contract.WatchChangesResponse_LoadBalancer{LoadBalancer: change}})
		}
	}
	if len(differing(before.Routes, after.Routes)) > 0 {
		c.add(&contract.WatchChangesResponse{Change: &contract.WatchChangesResponse_Routes{Routes: &contract.RoutesChange{}}})
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

func (c *Changes) add(hint *contract.WatchChangesResponse) {
	c.last++
	hint.ResumeToken = c.token(c.last)
	c.hints = append(c.hints, hint)
	c.hints = c.hints[max(0, len(c.hints)-kept):]
}

func (c *Changes) token(number int) string { return fmt.Sprintf("%s/%d", c.bootID, number) }

// The hints after that number, and the number of the last one. Where some are no longer known, or the number is none, it is a resync (PROV-5).
func (c *Changes) after(number int) ([]*contract.WatchChangesResponse, int) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	oldest := c.last - len(c.hints) + 1
	if number+1 < oldest || number > c.last {
		resync := &contract.WatchChangesResponse_Resync{Resync: &contract.Resync{}}
		return []*contract.WatchChangesResponse{{ResumeToken: c.token(c.last), Change: resync}}, c.last
	}
	return append([]*contract.WatchChangesResponse(nil), c.hints[number+1-oldest:]...), c.last
}

// The number that a token names: the last one where it is empty, -2 where it is not known.
func (c *Changes) number(token string) int {
	if token == "" {
		c.mutex.Lock()
		defer c.mutex.Unlock()
		return c.last
	}
	bootID, text, _ := strings.Cut(token, "/")
	if number, err := strconv.Atoi(text); err == nil && number >= 0 && bootID == c.bootID {
		return number
	}
	return -2
}

// WatchChanges sends hints until the controller goes or the provider shuts down: then the stream ends with status OK (PROV-6).
func (p *Provider) WatchChanges(request *contract.WatchChangesRequest, stream grpc.ServerStreamingServer[contract.WatchChangesResponse]) error {
	if _, err := p.admit(request.Cluster); err != nil {
		failed := &contract.WatchChangesResponse_Failed{Failed: failureOf("WatchChanges", err)}
		return stream.Send(&contract.WatchChangesResponse{Change: failed})
	}
	last := p.changes.number(request.ResumeToken)
	// The stream is open, even while there is nothing to say.
	if err := stream.SendHeader(nil); err != nil {
		return err
	}
	for {
		var hints []*contract.WatchChangesResponse
		hints, last = p.changes.after(last)
		for _, hint := range hints {
			if err := stream.Send(hint); err != nil {
				return err
			}
		}
		select {
		case <-p.changes.closing:
			return nil
		case <-stream.Context().Done():
			return stream.Context().Err()
		case <-time.After(every):
			// Where the cloud cannot be read nothing is known of changes; whoever calls learns of the trouble.
			_, _ = p.cloud.Look()
		}
	}
}
