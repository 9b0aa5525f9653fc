package bridge

import (
	"context"
	"os"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/grpc-ccm/grpc-ccm/providers/go/contract"
)

func TestACallInFlightFinishesWhenTheProviderShutsDown(t *testing.T) {
	began, release := make(chan struct{}), make(chan struct{})
	cloud := &scripted{ensure: func(context.Context, *v1.Service, []*v1.Node) (*v1.LoadBalancerStatus, error) {
		close(began)
		<-release
		return ready("203.0.113.1"), nil
	}}
	bridge := initialised(t, cloud, Options{})
	answers := make(chan *contract.EnsureLoadBalancerResponse, 1)
	go func() { answers <- bridge.ensure(patience, service("a")) }()
	<-began
	bridge.stop()
	eventually(t, "nobody else can connect", func() bool {
		_, err := os.Lstat(bridge.path)
		return os.IsNotExist(err)
	})
	close(release)
	if answer := <-answers; answer.GetReady() == nil {
		t.Errorf("%v", answer)
	}
	must(t, <-bridge.ended)
}

func TestACallThatDoesNotEndIsCutAtTheEndOfTheDrain(t *testing.T) {
	began := make(chan struct{})
	cloud := &scripted{tagged: true, ensure: func(ctx context.Context, _ *v1.Service, _ []*v1.Node) (*v1.LoadBalancerStatus, error) {
		close(began)
		<-ctx.Done()
		return nil, ctx.Err()
	}}
	bridge := serveDraining(t, cloud, Options{}, time.Second)
	bridge.initialise()
	failed := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
		defer cancel()
		_, err := bridge.balancers.EnsureLoadBalancer(ctx, &contract.EnsureLoadBalancerRequest{Cluster: cluster(), Service: service("a"), Targets: targets()})
		failed <- err
	}()
	<-began
	bridge.stop()
	select {
	case err := <-bridge.ended:
		must(t, err)
	case <-time.After(2 * patience):
		t.Fatal("it serves for ever")
	}
	if err := <-failed; err == nil {
		t.Error("the call was answered")
	}
}
