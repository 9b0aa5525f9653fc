package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"runtime/debug"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/grpc-ccm/grpc-ccm/providers/go/contract"
)

// What all services share: for whom the provider works, how a failure is said, who works on what.

const (
	nameBytes = 253
	idBytes   = 1024
	textBytes = 1024
	maxBatch  = 500
	// How many items stand in one message of a listing.
	chunk = 500
)

// Settings say who the provider is. All providers of one cloud must agree on them.
type Settings struct {
	Name, Prefix, CloudScope string
	Pools                    []string
	// The values of spec.loadBalancerClass that are served, beside Services without a class.
	Classes     []string
	SourceTypes []string
	// How long a load balancer takes to be made and to go.
	Provisioning time.Duration
}

// Owner is the cluster that a call is for.
type Owner struct {
	ClusterName, OwnerID string
	Previous             []string
}

// Owns says whether this mark is ours.
func (o *Owner) Owns(ownerID string) bool {
	owns := ownerID == o.OwnerID
	for _, previous := range o.Previous {
		owns = owns || ownerID == previous
	}
	return owns
}

// Provider is one provider process.
type Provider struct {
	contract.UnimplementedProviderServiceServer
	contract.UnimplementedInstanceServiceServer
	contract.UnimplementedZoneServiceServer
	contract.UnimplementedLoadBalancerServiceServer
	contract.UnimplementedRouteServiceServer
	contract.UnimplementedClusterServiceServer
	contract.UnimplementedVolumeServiceServer

	cloud    *Cloud
	settings Settings
	// New for every process (PROV-7).
	bootID  string
	changes *Changes

	mutex sync.Mutex
	// For whom it works, once Initialize has succeeded.
	owner *Owner
	held  map[string]bool
}

func failf(code contract.FailureCode, text string, arguments ...any) *Failure {
	return &Failure{Code: code, Message: fmt.Sprintf(text, arguments...)}
}

func invalid(text string, arguments ...any) *Failure {
	return failf(contract.FailureCode_FAILURE_CODE_INVALID, text, arguments...)
}

func (f *Failure) because(reason string) *Failure {
	f.Reason = reason
	return f
}

func checkOwnerID(cluster *contract.ClusterRef) error {
	if n := len(cluster.GetOwnerId()); n == 0 || n > nameBytes {
		return invalid("cluster.owner_id has %d bytes; right would be 1 to %d", n, nameBytes)
	}
	return nil
}

// Who asks, if they may (CORE-10).
func (p *Provider) admit(cluster *contract.ClusterRef) (*Owner, error) {
	if err := checkOwnerID(cluster); err != nil {
		return nil, err
	}
	p.mutex.Lock()
	owner := p.owner
	p.mutex.Unlock()
	if owner == nil {
		return nil, failf(contract.FailureCode_FAILURE_CODE_NOT_INITIALIZED, "this provider process has not seen a successful Initialize")
	}
	if owner.OwnerID != cluster.GetOwnerId() {
		return nil, failf(contract.FailureCode_FAILURE_CODE_NOT_INITIALIZED, "this provider is initialised for %q, not for %q", owner.OwnerID, cluster.GetOwnerId())
	}
	return &Owner{ClusterName: cluster.GetName(), OwnerID: owner.OwnerID, Previous: owner.Previous}, nil
}

// One mutating call at a time for each object; the other one is BUSY (CORE-7).
func (p *Provider) hold(owner *Owner, what string) (release func(), err error) {
	key := owner.OwnerID + "\x00" + what
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if p.held[key] {
		busy := failf(contract.FailureCode_FAILURE_CODE_BUSY, "another call is working on %s; ask again in a second", what)
		busy.RetryAfter = time.Second
		return nil, busy
	}
	p.held[key] = true
	return func() {
		p.mutex.Lock()
		defer p.mutex.Unlock()
		delete(p.held, key)
	}, nil
}

// Every error as the contract says it; a bug of ours is INTERNAL, and its details go to the log only (CORE-12).
func failureOf(rpc string, err error) *contract.Failure {
	var failure *Failure
	if !errors.As(err, &failure) {
		log.Printf("%s failed: %v", rpc, err)
		failure = failf(contract.FailureCode_FAILURE_CODE_INTERNAL, "a fault of the provider in %s; its log says more", rpc)
	}
	reason := failure.Reason
	if reason == "" {
		for _, word := range strings.Split(strings.TrimPrefix(failure.Code.String(), "FAILURE_CODE_"), "_") {
			reason += word[:1] + strings.ToLower(word[1:])
		}
	}
	said := &contract.Failure{Code: failure.Code, Reason: reason, Message: shortened(failure.Message)}
	if failure.RetryAfter > 0 {
		said.RetryAfter = durationpb.New(failure.RetryAfter)
	}
	return said
}

// At most 1,024 bytes (CORE-11), cut between characters.
func shortened(text string) string {
	if len(text) <= textBytes {
		return text
	}
	text = text[:textBytes]
	for !utf8.ValidString(text) {
		text = text[:len(text)-1]
	}
	return text
}

// Runs one call: admitted, its errors and panics said by failed. Only a call that was cancelled is a gRPC status: nobody reads it.
func answer[T any](ctx context.Context, p *Provider, rpc string, cluster *contract.ClusterRef, failed func(*contract.Failure) T, work func(*Owner) (T, error)) (T, error) {
	response, err := func() (response T, err error) {
		defer caught(rpc, &err)
		owner, err := p.admit(cluster)
		if err != nil {
			return response, err
		}
		return work(owner)
	}()
	switch {
	case err == nil:
		return response, nil
	case ctx.Err() != nil:
		return response, status.FromContextError(ctx.Err()).Err()
	default:
		return failed(failureOf(rpc, err)), nil
	}
}

func caught(rpc string, err *error) {
	if panicked := recover(); panicked != nil {
		*err = fmt.Errorf("panic in %s: %v\n%s", rpc, panicked, debug.Stack())
	}
}

// Sends a listing in parts, then the end with the number of items (CORE-16). All items are there before the first is sent: a failure in the middle is then never a listing
// that looks complete.
func listing[T, R any](stream grpc.ServerStreamingServer[R], p *Provider, rpc string, cluster *contract.ClusterRef, list func(*Owner) ([]T, error), part func([]T) *R, end func(*contract.ListEnd) *R, failed func(*contract.Failure) *R) error {
	var items []T
	failure, err := answer(stream.Context(), p, rpc, cluster, failed, func(owner *Owner) (_ *R, err error) {
		items, err = list(owner)
		return nil, err
	})
	if err != nil {
		return err
	}
	if failure != nil {
		return stream.Send(failure)
	}
	for begin := 0; begin < len(items); begin += chunk {
		if err := stream.Send(part(items[begin:min(begin+chunk, len(items))])); err != nil {
			return err
		}
	}
	return stream.Send(end(&contract.ListEnd{Total: uint64(len(items))}))
}

func withinBatch[T any](what string, items []T, key func(T) string) error {
	if len(items) > maxBatch {
		return invalid("the request has %d %s, more than max_batch %d", len(items), what, maxBatch)
	}
	seen := map[string]bool{}
	for _, item := range items {
		if seen[key(item)] {
			return invalid("the request has %q twice among its %s; each may stand there once", key(item), what)
		}
		seen[key(item)] = true
	}
	return nil
}

func pending(message string, leftMs int64) *contract.Pending {
	left := max(time.Duration(leftMs)*time.Millisecond, time.Second)
	return &contract.Pending{Message: message, RetryAfter: durationpb.New(left)}
}
