package sdk_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/grpc-ccm/grpc-ccm/providers/go/sdk"
)

// A cloud with a machine for every Node. It implements Provider and Instances, and so offers
// instances.
type cloud struct{}

func (cloud) Info() sdk.Info {
	return sdk.Info{Name: "mycloud", Version: "1.2.3", ProviderIDPrefixes: []string{"mycloud://"}}
}

func (cloud) Initialize(context.Context, *sdk.Call, sdk.InitializeRequest) (sdk.Initialized, error) {
	return sdk.Initialized{CloudScope: "account 1234, region eu-1"}, nil
}

func (cloud) LookupInstance(_ context.Context, _ *sdk.Call, node sdk.Node, _ sdk.InstanceQuery) (sdk.Instance, error) {
	return sdk.Instance{State: sdk.InstanceRunning, ProviderID: "mycloud://" + node.Name}, nil
}

func Example() {
	sdk.HandleProbe()
	server := sdk.Server{Provider: cloud{}}
	if err := server.Run(); err != nil {
		log.Fatal(err)
	}
}

// Failures are errors: they wrap others, and errors.As finds wrapped ones.
func ExampleFailure() {
	answered := errors.New("429 Too Many Requests")
	err := fmt.Errorf("listing servers: %w", sdk.Throttled(30*time.Second, "the cloud says slow down: %w", answered))
	var failure *sdk.Failure
	fmt.Println(err)
	fmt.Println(errors.As(err, &failure), failure.Code, failure.RetryAfter, errors.Is(err, answered))
	// Output:
	// listing servers: the cloud says slow down: 429 Too Many Requests
	// true THROTTLED 30s true
}

// The mark in a cloud's tag, and the owner of an object with it.
func ExampleCall_Ownership() {
	call := &sdk.Call{Cluster: sdk.Cluster{Name: "prod", OwnerID: "8f7c"}, PreviousOwnerIDs: []string{"11aa"}}
	mark := call.Mark("service-uid", sdk.LabelValue)
	fmt.Println(mark, call.Ownership(mark, "service-uid", sdk.LabelValue) == sdk.Ours)
	fmt.Println(call.Ownership(sdk.Mark{Owner: "11aa", Service: "service-uid"}, "service-uid", sdk.LabelValue) == sdk.Ours)
	fmt.Println(call.Ownership(mark, "another-uid", sdk.LabelValue) == sdk.Foreign, call.Ownership(sdk.Mark{}, "service-uid", sdk.LabelValue) == sdk.Unmarked)
	// Output:
	// {8f7c service-uid} true
	// true
	// true true
}

// The provider writes nothing if the actual state equals the wanted one.
func ExampleSame() {
	type balancer struct {
		Ports []int
		Tags  map[string]string
	}
	fmt.Println(sdk.Same(balancer{Ports: []int{80}}, balancer{Ports: []int{80}, Tags: map[string]string{}}))
	fmt.Println(sdk.Same(balancer{Ports: []int{80}}, balancer{Ports: []int{443}}))
	// Output:
	// true
	// false
}
