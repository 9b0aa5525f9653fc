package sdk

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"github.com/grpc-ccm/grpc-ccm/providers/go/contract"
)

// session is the common state of all services: the cluster of the provider, and the objects that calls work on.
type session struct {
	contract.UnimplementedProviderServiceServer
	contract.UnimplementedInstanceServiceServer
	contract.UnimplementedZoneServiceServer
	contract.UnimplementedLoadBalancerServiceServer
	contract.UnimplementedRouteServiceServer
	contract.UnimplementedClusterServiceServer
	contract.UnimplementedVolumeServiceServer

	provider Provider
	info     Info
	offers   offers
	log      *slog.Logger
	// New for every process (PROV-7).
	bootID          string
	maxMessageBytes int
	contact         contact
	// One Initialize at a time.
	initializing chan struct{}
	// Closed when the server shuts down.
	closing chan struct{}

	mutex sync.Mutex
	// The call of the last Initialize that succeeded, with its cluster; nil before.
	ready *Call
	// Whether the server refuses the RPCs that write (PROV-20).
	readOnly bool
	holds    Holds
	overdue  overdue
}

// offers are the parts that the provider offers; a part that it does not offer is nil.
type offers struct {
	instances       Instances
	instanceBatches InstanceBatches
	instanceLister  InstanceLister
	zones           Zones
	zoneBatches     ZoneBatches
	loadBalancers   LoadBalancers
	balancerLister  LoadBalancerLister
	routes          Routes
	routeBatches    RouteBatches
	clusters        Clusters
	volumes         Volumes
	changes         Changes
	health          HealthReporter
}

// The provider offers the interfaces that it implements, except those of the services in without.
func offersOf(provider Provider, without []ServiceName) (o offers) {
	with := func(service ServiceName) bool { return !slices.Contains(without, service) }
	if with(ServiceInstances) {
		o.instances, _ = provider.(Instances)
		o.instanceBatches, _ = provider.(InstanceBatches)
		o.instanceLister, _ = provider.(InstanceLister)
	}
	if with(ServiceZones) {
		o.zones, _ = provider.(Zones)
		o.zoneBatches, _ = provider.(ZoneBatches)
	}
	if with(ServiceLoadBalancers) {
		o.loadBalancers, _ = provider.(LoadBalancers)
		o.balancerLister, _ = provider.(LoadBalancerLister)
	}
	if with(ServiceRoutes) {
		o.routes, _ = provider.(Routes)
		o.routeBatches, _ = provider.(RouteBatches)
	}
	if with(ServiceClusters) {
		o.clusters, _ = provider.(Clusters)
	}
	if with(ServiceVolumes) {
		o.volumes, _ = provider.(Volumes)
	}
	if with(ServiceChanges) {
		o.changes, _ = provider.(Changes)
	}
	o.health, _ = provider.(HealthReporter)
	return o
}

func (o *offers) lookups() bool     { return o.instances != nil || o.instanceBatches != nil }
func (o *offers) zoneLookups() bool { return o.zones != nil || o.zoneBatches != nil }
func (o *offers) routing() bool     { return o.routes != nil || o.routeBatches != nil }
func (o *offers) nothing() bool {
	return !o.lookups() && !o.zoneLookups() && o.loadBalancers == nil && !o.routing() && o.clusters == nil && o.volumes == nil && o.changes == nil
}

// contact is when the cloud last answered with success.
type contact struct {
	mutex sync.Mutex
	last  time.Time
}

func (c *contact) record() {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.last = time.Now()
}

func (c *contact) at() time.Time {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	return c.last
}

func checkCluster(cluster *contract.ClusterRef) error {
	if n := len(cluster.GetOwnerId()); n == 0 || n > nameBytes {
		return Invalid("cluster.owner_id has %d bytes; right would be 1 to %d, such as the UID of kube-system", n, nameBytes)
	}
	return nil
}

// The RPCs that write to the cloud.
var writing = []string{"EnsureLoadBalancer", "UpdateLoadBalancer", "DeleteLoadBalancer", "CreateRoutes", "DeleteRoutes"}

// admit returns the call, or an error if its cluster is not the initialised one (CORE-10), or if it must not write (PROV-20).
func (s *session) admit(rpc string, cluster *contract.ClusterRef) (*Call, error) {
	if err := checkCluster(cluster); err != nil {
		return nil, err
	}
	s.mutex.Lock()
	ready, readOnly := s.ready, s.readOnly
	s.mutex.Unlock()
	if ready == nil {
		return nil, Fail(codeNotInitialized, "this provider process has not seen a successful Initialize")
	}
	if ready.Cluster.OwnerID != cluster.GetOwnerId() {
		return nil, Fail(codeNotInitialized, "this provider is initialised for the owner ID %q, not for %q", ready.Cluster.OwnerID, cluster.GetOwnerId())
	}
	if readOnly && slices.Contains(writing, rpc) {
		return nil, Precondition("this provider was initialised with read_only and writes nothing").Because("ReadOnly")
	}
	// The name is for people and may differ from the name in Initialize.
	return &Call{RPC: rpc, Cluster: Cluster{cluster.GetName(), ready.Cluster.OwnerID}, PreviousOwnerIDs: ready.PreviousOwnerIDs, contact: &s.contact}, nil
}

// hold gives an object to one mutating call at a time; further calls are BUSY (CORE-7). The owner ID does not count: after Initialize with another one, a
// call of the former owner may still work on the object (PROV-18).
func (s *session) hold(what string) (release func(), err error) {
	release, free := s.holds.Take(what)
	if !free {
		return nil, Busy("another call is in progress for %s; ask again in a second", what).After(time.Second)
	}
	return release, nil
}

// ask runs the vendor's code within the budget. It calls ended when the code has really ended, or at once if it does not start the code.
func ask[T any](ctx context.Context, s *session, rpc, item string, budget Budget, ended func(), work func(context.Context) (T, error)) (answer T, err error) {
	if ended == nil {
		ended = func() {}
	}
	attempt, err := s.overdue.begin(rpc, item)
	if err != nil {
		ended()
		return answer, err
	}
	answer, err = Attempt(ctx, budget, s.log.With("item", item), rpc, func(context.Context, error) {
		s.overdue.end(attempt)
		ended()
	}, work)
	if _, overran := err.(*OverrunError); overran {
		s.overdue.late(attempt)
	}
	return answer, err
}

// answer admits a call and runs it. The argument failed turns an error or a panic into an answer. Only a call that its caller cancelled, or whose
// deadline has passed, ends with a gRPC status.
func answer[T, R any](ctx context.Context, s *session, rpc, item string, cluster *contract.ClusterRef, failed func(*contract.Failure) R, work func(context.Context, *Call) (T, error), said func(T) (R, error)) (R, error) {
	call, err := s.admit(rpc, cluster)
	if err != nil {
		return failed(s.failed(ctx, rpc, item, err)), nil
	}
	var value T
	var response R
	value, err = ask(ctx, s, rpc, item, BudgetOf(ctx), nil, func(ctx context.Context) (T, error) { return work(ctx, call) })
	if err == nil {
		response, err = said(value)
	}
	switch {
	case err == nil:
		return response, nil
	case ctx.Err() != nil:
		return response, status.FromContextError(ctx.Err()).Err()
	default:
		return failed(s.failed(ctx, rpc, item, err)), nil
	}
}

// oneByOne calls the method for each item separately, atOnce at a time, so that one item's error does not fail the others. A method that ignores its
// context fails only its item. begin, if not nil, holds the object of an item until the method has really ended.
func oneByOne[I, T any](ctx context.Context, s *session, call *Call, items []I, atOnce int, key func(I) string, begin func(I) (func(), error), each func(context.Context, I) (T, error)) Answers[T] {
	var mutex sync.Mutex
	answers := Answers[T]{}
	set := func(item I, value T, err error) {
		mutex.Lock()
		defer mutex.Unlock()
		answers.Set(key(item), value, err)
	}
	// ctx already ends at the budget of the call, so the items need no budget of their own.
	budget := Budget{time.Now().Add(noDeadline), leastGrace}
	turns := make(chan struct{}, atOnce)
	var all sync.WaitGroup
	for _, item := range items {
		var none T
		select {
		case turns <- struct{}{}:
		case <-ctx.Done():
			set(item, none, ctx.Err())
			continue
		}
		all.Go(func() {
			defer func() { <-turns }()
			ended := func() {}
			if begin != nil {
				release, err := begin(item)
				if err != nil {
					set(item, none, err)
					return
				}
				ended = release
			}
			value, err := ask(ctx, s, call.RPC, key(item), budget, ended, func(ctx context.Context) (T, error) { return each(ctx, item) })
			set(item, value, err)
		})
	}
	all.Wait()
	return answers
}

// logStrangers logs the results whose items are not in the request.
func logStrangers[T any](ctx context.Context, s *session, rpc string, answers Answers[T], asked map[string]bool) {
	for key := range answers {
		if !asked[key] {
			ofCall(ctx, s.log).Warn("the provider answered for an item that is not in the request", "rpc", rpc, "item", key)
		}
	}
}

const (
	// The most items in one part of a listing, and the most bytes. A larger item is a part of its own.
	partItems = 500
	partBytes = 1024 * 1024
)

// listing sends the items in parts, then the end with their number (CORE-16). It has all items before it sends the first part, so it sends no items of
// a list that fails.
func listing[T, M, R any](stream grpc.ServerStreamingServer[R], s *session, rpc string, cluster *contract.ClusterRef, list func(context.Context, *Call) ([]T, error), to func(T) (M, error), size func(M) int, part func([]M) *R, end func(*contract.ListEnd) *R, failed func(*contract.Failure) *R) error {
	var items []M
	failure, err := answer(stream.Context(), s, rpc, "", cluster, failed, list, func(found []T) (*R, error) {
		for _, item := range found {
			message, err := to(item)
			if err != nil {
				return nil, err
			}
			items = append(items, message)
		}
		return nil, nil
	})
	if err != nil {
		return err
	}
	if failure != nil {
		return stream.Send(failure)
	}
	for begin := 0; begin < len(items); {
		next, bytes := begin, 0
		for next < len(items) && next-begin < partItems && (next == begin || bytes+size(items[next]) <= partBytes) {
			bytes += size(items[next])
			next++
		}
		if err := stream.Send(part(items[begin:next])); err != nil {
			return err
		}
		begin = next
	}
	return stream.Send(end(&contract.ListEnd{Total: uint64(len(items))}))
}

// nameOf returns the last part of an RPC's full name.
func nameOf(method string) string { return method[strings.LastIndexByte(method, '/')+1:] }
