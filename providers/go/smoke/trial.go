package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/grpc-ccm/grpc-ccm/providers/go/contract"
)

// Each run uses the same cluster and Service. So the next run finds, by its mark, the load balancer that a killed run has left, and removes it.
const (
	owner = "grpc-ccm-smoke"
	uid   = "6d6f6b65-0000-4000-8000-000000000001"
)

const (
	callTimeout = time.Minute
	// How long a load balancer or a route may take to be made or removed, and how long clean may take.
	patience = 10 * time.Minute
	// How long the provider may take to start.
	startTimeout = 30 * time.Second
)

// trial is one run.
type trial struct {
	config *config
	output io.Writer

	directory  string
	process    *exec.Cmd
	ended      chan struct{}
	connection *grpc.ClientConn
	can        *contract.Capabilities
	service    *contract.ServiceView
	steps      int

	mutex sync.Mutex
	// The objects that exist, or may exist, in the cloud.
	handle   *string
	balancer bool
	route    *contract.Route
}

var cluster = &contract.ClusterRef{Name: "smoke", OwnerId: owner}

func (t *trial) step(text string, arguments ...any) {
	t.steps++
	fmt.Fprintf(t.output, "step %d: %s\n", t.steps, fmt.Sprintf(text, arguments...))
}

func (t *trial) say(text string, arguments ...any) {
	fmt.Fprintf(t.output, "  "+text+"\n", arguments...)
}

// play runs all steps, and returns at the first error. clean removes its objects.
func (t *trial) play(ctx context.Context, command []string) error {
	t.step("start the provider")
	if err := t.start(command); err != nil {
		return err
	}
	if err := t.initialize(ctx); err != nil {
		return err
	}
	machine, err := t.machines(ctx)
	if err != nil {
		return err
	}
	if t.can.LoadBalancers != nil {
		if err := t.loadBalancer(ctx); err != nil {
			return err
		}
	}
	if t.can.Routes != nil && t.config.Route != "" {
		if err := t.aRoute(ctx, machine); err != nil {
			return err
		}
	}
	t.step("remove what the run made")
	if err := t.clean(); err != nil {
		return err
	}
	return t.gone(ctx)
}

// start runs the provider in a separate process group, so that a terminal's Ctrl-C does not reach it: the clean-up needs the provider.
func (t *trial) start(command []string) (err error) {
	if t.directory, err = os.MkdirTemp("", "smoke"); err != nil {
		return err
	}
	endpoint := "unix://" + t.directory + "/s/provider.sock"
	t.process = exec.Command(command[0], append(command[1:], "--endpoint", endpoint)...)
	t.process.Stderr, t.process.SysProcAttr = os.Stderr, &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := t.process.Start(); err != nil {
		t.process = nil
		return fmt.Errorf("the provider does not start: %w", err)
	}
	t.ended = make(chan struct{})
	go func() {
		t.process.Wait()
		close(t.ended)
	}()
	t.connection, err = grpc.NewClient(endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithAuthority("localhost"), grpc.WithDefaultCallOptions(grpc.WaitForReady(true)))
	return err
}

// kill ends the provider.
func (t *trial) kill() {
	if t.process != nil {
		t.process.Process.Signal(syscall.SIGTERM)
		select {
		case <-t.ended:
		case <-time.After(5 * time.Second):
			t.process.Process.Kill()
		}
	}
	os.RemoveAll(t.directory)
}

func (t *trial) initialize(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	go func() {
		select {
		case <-t.ended:
			cancel()
		case <-ctx.Done():
		}
	}()
	client := contract.NewProviderServiceClient(t.connection)
	info, err := client.GetProviderInfo(ctx, &contract.GetProviderInfoRequest{})
	if err != nil {
		return fmt.Errorf("the provider does not answer: %w", err)
	}
	t.can = info.Capabilities
	answer, err := client.Initialize(ctx, &contract.InitializeRequest{Cluster: cluster})
	if err := errors.Join(err, failed("Initialize", answer.GetFailed())); err != nil {
		return err
	}
	t.say("provider %s %s, cloud scope %q", info.ProviderName, info.ProviderVersion, answer.GetInitialized().GetCloudScope())
	return nil
}

// machines lists the machines, and looks up one that runs, as the controller does.
func (t *trial) machines(ctx context.Context) (*contract.Instance, error) {
	t.step("read machines")
	client := contract.NewInstanceServiceClient(t.connection)
	if t.can.Instances == nil || !t.can.Instances.Listing {
		t.say("the provider lists none")
		return nil, nil
	}
	all, err := collect(ctx, func(ctx context.Context) (stream[*contract.ListInstancesResponse], error) {
		return client.ListInstances(ctx, &contract.ListInstancesRequest{Cluster: cluster, Facets: facets})
	}, func(part *contract.ListInstancesResponse) []*contract.Instance {
		return part.GetInstances().GetInstances()
	})
	if err != nil {
		return nil, fmt.Errorf("ListInstances: %w", err)
	}
	t.say("there are %d", len(all))
	at := slices.IndexFunc(all, func(machine *contract.Instance) bool {
		return machine.State == contract.InstanceState_INSTANCE_STATE_RUNNING
	})
	if at < 0 {
		t.say("none of them runs")
		return nil, nil
	}
	name := "smoke"
	for _, address := range all[at].Addresses {
		if address.Type == contract.NodeAddressType_NODE_ADDRESS_TYPE_HOSTNAME {
			name = address.Address
		}
	}
	answer, err := client.LookupInstances(ctx, &contract.LookupInstancesRequest{
		Cluster: cluster, Facets: facets, Nodes: []*contract.NodeView{{Name: name, Uid: uid, ProviderId: all[at].ProviderId}},
	})
	if err := errors.Join(err, failed("LookupInstances", answer.GetFailed())); err != nil {
		return nil, err
	}
	if len(answer.Results) != 1 || answer.Results[0].GetFound().GetState() != contract.InstanceState_INSTANCE_STATE_RUNNING || len(answer.Results[0].GetFound().Addresses) == 0 {
		return nil, fmt.Errorf("LookupInstances of %s (%s): %v", name, all[at].GetProviderId(), answer.Results)
	}
	found := answer.Results[0].GetFound()
	t.say("%s is %s, a %s in %s, with %d addresses", name, found.GetProviderId(), found.GetInstanceType(), found.GetRegion(), len(found.Addresses))
	return found, nil
}

var facets = []contract.InstanceFacet{contract.InstanceFacet_INSTANCE_FACET_EXISTENCE, contract.InstanceFacet_INSTANCE_FACET_POWER, contract.InstanceFacet_INSTANCE_FACET_METADATA}

// loadBalancer removes what an earlier run has left, makes a load balancer without targets, and changes its port. It checks both results with Get.
func (t *trial) loadBalancer(ctx context.Context) error {
	nodePort := int32(30080)
	t.service = &contract.ServiceView{
		Namespace: "default", Name: "smoke", Uid: uid, Type: "LoadBalancer", Annotations: maps.Clone(t.config.Annotations), ExternalTrafficPolicy: "Cluster", SessionAffinity: "None",
		Ports: []*contract.ServicePort{{Name: "http", Protocol: "TCP", Port: 80, NodePort: &nodePort}},
	}
	t.mayExist()
	t.step("remove what a killed run left")
	if err := t.deleteBalancer(ctx); err != nil {
		return err
	}
	t.step("make a load balancer")
	t.mayExist()
	if err := t.ensure(ctx); err != nil {
		return err
	}
	t.step("change it")
	t.service.Ports[0].Port = 8080
	return t.ensure(ctx)
}

// mayExist records that a load balancer may exist from now on, whatever the cloud answers.
func (t *trial) mayExist() {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	t.balancer = true
}

func (t *trial) ensure(ctx context.Context) error {
	client := contract.NewLoadBalancerServiceClient(t.connection)
	err := again(ctx, t, "EnsureLoadBalancer", func(ctx context.Context) (bool, *contract.Pending, *contract.Failure, error) {
		answer, err := client.EnsureLoadBalancer(ctx, &contract.EnsureLoadBalancerRequest{Cluster: cluster, Service: t.service, Handle: t.handle, Targets: nobody})
		t.keep(answer.GetHandle())
		if ready := answer.GetReady(); ready != nil {
			t.service.Status = ready.Status
		}
		return answer.GetReady() != nil, answer.GetPending(), answer.GetFailed(), err
	})
	if err != nil {
		return err
	}
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	answer, err := client.GetLoadBalancer(call, &contract.GetLoadBalancerRequest{Cluster: cluster, Service: t.service, Handle: t.handle, Targets: nobody})
	if err := errors.Join(err, failed("GetLoadBalancer", answer.GetFailed())); err != nil {
		return err
	}
	found := answer.GetFound()
	if found.GetOwnership() != contract.Ownership_OWNERSHIP_OURS || found.InSync != nil && !found.GetInSync() || len(found.GetStatus().GetIngress()) == 0 {
		return fmt.Errorf("GetLoadBalancer: it is not as it was just made: %v", found)
	}
	addresses := []string{}
	for _, point := range found.Status.Ingress {
		addresses = append(addresses, point.GetIp()+point.GetHostname())
	}
	t.say("%s at %s listens on port %d", found.LoadBalancerName, strings.Join(addresses, ", "), t.service.Ports[0].Port)
	return nil
}

var nobody = &contract.TargetSet{Set: &contract.TargetSet_Inline{Inline: &contract.TargetList{}}}

func (t *trial) keep(handle string) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	if handle != "" && t.handle == nil {
		t.say("load balancer %s", handle)
	}
	if handle != "" {
		t.handle = &handle
	}
}

// clean removes the objects that may exist. It has its own time limit, because the run's context may have ended.
func (t *trial) clean() error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var wrong error
	t.mutex.Lock()
	route, balancer := t.route, t.balancer
	t.mutex.Unlock()
	if route != nil {
		wrong = t.deleteRoute(ctx, route)
	}
	if balancer {
		wrong = errors.Join(wrong, t.deleteBalancer(ctx))
	}
	return wrong
}

func (t *trial) deleteBalancer(ctx context.Context) error {
	client := contract.NewLoadBalancerServiceClient(t.connection)
	err := again(ctx, t, "DeleteLoadBalancer", func(ctx context.Context) (bool, *contract.Pending, *contract.Failure, error) {
		answer, err := client.DeleteLoadBalancer(ctx, &contract.DeleteLoadBalancerRequest{Cluster: cluster, Service: t.service, Handle: t.handle})
		return answer.GetDone() != nil, answer.GetPending(), answer.GetFailed(), err
	})
	if err == nil {
		t.mutex.Lock()
		t.balancer, t.handle = false, nil
		t.mutex.Unlock()
	}
	return err
}

// gone checks that no load balancer of the trial is listed, if the provider can list load balancers.
func (t *trial) gone(ctx context.Context) error {
	if t.can.LoadBalancers == nil || !t.can.LoadBalancers.Listing {
		return nil
	}
	client := contract.NewLoadBalancerServiceClient(t.connection)
	left, err := collect(ctx, func(ctx context.Context) (stream[*contract.ListLoadBalancersResponse], error) {
		return client.ListLoadBalancers(ctx, &contract.ListLoadBalancersRequest{Cluster: cluster})
	}, func(part *contract.ListLoadBalancersResponse) []*contract.ListedLoadBalancer {
		if listed := part.GetLoadBalancer(); listed != nil {
			return []*contract.ListedLoadBalancer{listed}
		}
		return nil
	})
	if err == nil && len(left) > 0 {
		err = fmt.Errorf("there still is %v", left)
	}
	return err
}

// left names the objects that may still be in the cloud, and says who removes them.
func (t *trial) left() string {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	all := []string{}
	if t.balancer {
		balancer := "a load balancer of the Service default/smoke"
		if t.handle != nil {
			balancer = "load balancer " + *t.handle
		}
		all = append(all, balancer+" (the next run removes it first)")
	}
	if t.route != nil {
		all = append(all, "the route to "+t.route.DestinationCidr+" (no run removes it: remove it yourself)")
	}
	if len(all) == 0 {
		return "nothing"
	}
	return strings.Join(all, ", ")
}

// again repeats a call until it is done, while the answer is pending, BUSY or THROTTLED, for 10 minutes at most.
func again(ctx context.Context, t *trial, what string, ask func(context.Context) (bool, *contract.Pending, *contract.Failure, error)) error {
	deadline := time.Now().Add(patience)
	for {
		call, cancel := context.WithTimeout(ctx, callTimeout)
		done, pending, failure, err := ask(call)
		cancel()
		wait := time.Second
		switch {
		case err != nil:
			return fmt.Errorf("%s: %w", what, err)
		case done:
			return nil
		case pending != nil:
			wait = max(wait, pending.RetryAfter.AsDuration())
			t.say("%s: %s", what, pending.Message)
		case failure != nil && (failure.Code == contract.FailureCode_FAILURE_CODE_BUSY || failure.Code == contract.FailureCode_FAILURE_CODE_THROTTLED):
			wait = max(wait, failure.RetryAfter.AsDuration())
			t.say("%s: %s", what, failure.Message)
		default:
			return errors.Join(failed(what, failure), otherwise(failure == nil, what+": an answer without an outcome"))
		}
		if time.Now().Add(wait).After(deadline) {
			return fmt.Errorf("%s is not done after %s", what, patience)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait):
		}
	}
}

func failed(what string, failure *contract.Failure) error {
	if failure == nil {
		return nil
	}
	return fmt.Errorf("%s: %s: %s", what, strings.TrimPrefix(failure.Code.String(), "FAILURE_CODE_"), failure.Message)
}

func otherwise(is bool, text string) error {
	if is {
		return errors.New(text)
	}
	return nil
}

type stream[P any] interface{ Recv() (P, error) }

type part interface {
	GetFailed() *contract.Failure
	GetEnd() *contract.ListEnd
}

// collect reads a listing to its end.
func collect[P part, T any](ctx context.Context, open func(context.Context) (stream[P], error), items func(P) []T) (all []T, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	parts, err := open(ctx)
	if err != nil {
		return nil, err
	}
	for {
		got, err := parts.Recv()
		if err != nil {
			return nil, err
		}
		if err := failed("the listing", got.GetFailed()); err != nil {
			return nil, err
		}
		if got.GetEnd() != nil {
			return all, nil
		}
		all = append(all, items(got)...)
	}
}
