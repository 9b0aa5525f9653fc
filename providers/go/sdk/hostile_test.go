package sdk

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/grpc-ccm/grpc-ccm/providers/go/contract"
)

// An error that a cloud may return as a nil pointer: its methods panic then.
type careless struct{ text *string }

func (c *careless) Error() string { return *c.text }

// An error that panics at the second inspection.
type sudden struct{ looked atomic.Int32 }

func (s *sudden) Error() string { return "sudden" }

func (s *sudden) Unwrap() error {
	if s.looked.Add(1) > 2 {
		panic("again")
	}
	return nil
}

// Errors whose methods panic, or that hold a nil pointer, and a Failure without a text.
func hostileErrors() map[string]error {
	return map[string]error{
		"nil failure":             (*Failure)(nil),
		"nil pending":             (*PendingError)(nil),
		"nil retained":            (*RetainedError)(nil),
		"nil pointer":             (*careless)(nil),
		"failure without a text":  &Failure{Code: CodeConflict},
		"wrapped nil failure":     fmt.Errorf("asking: %w", (*Failure)(nil)),
		"wrapped nil pending":     fmt.Errorf("asking: %w", (*PendingError)(nil)),
		"wrapped nil retained":    fmt.Errorf("asking: %w", (*RetainedError)(nil)),
		"joined with a nil error": errors.Join(errors.New("one"), (*careless)(nil)),
	}
}

// INST-4: an error that panics when it is inspected fails only its Node.
func TestAnErrorThatPanicsIsOneNodesTrouble(t *testing.T) {
	hostile := hostileErrors()
	hostile["panics later"] = &sudden{}
	s := serveScripted(t, scriptedCloud{lookup: func(_ context.Context, node Node) (Instance, error) {
		return Instance{State: InstanceAbsent}, hostile[node.Name]
	}})
	nodes := []*contract.NodeView{{Name: "works"}}
	for name := range hostile {
		nodes = append(nodes, &contract.NodeView{Name: name})
	}
	for i, said := range s.lookUp(t.Context(), nodes...) {
		switch name := nodes[i].Name; {
		case name == "works" && said != "ABSENT",
			name == "failure without a text" && !strings.HasPrefix(said, "CONFLICT "),
			name != "works" && name != "failure without a text" && !strings.HasPrefix(said, "INTERNAL "):
			t.Errorf("%s: %s", name, said)
		}
	}
}

func TestAnErrorThatPanicsIsAFailureOfItsCall(t *testing.T) {
	for name, hostile := range hostileErrors() {
		s := serveScripted(t, scriptedCloud{ensure: func(_ context.Context, request EnsureLoadBalancer) (LoadBalancerStatus, error) {
			request.Notes.TargetError("node", hostileErrors()[name])
			return LoadBalancerStatus{}, hostile
		}, watch: func(context.Context, *Hints) error { return hostileErrors()[name] }})
		said, err := s.ensure(t.Context(), "uid")
		if err != nil || said.GetFailed() == nil || len(said.TargetErrors) != 1 {
			t.Errorf("%s: %v %v", name, said, err)
		}
		stream, err := contract.NewProviderServiceClient(s.connection).WatchChanges(t.Context(), &contract.WatchChangesRequest{Cluster: us})
		if err != nil {
			t.Fatal(err)
		}
		if hint, err := stream.Recv(); err != nil || hint.GetFailed() == nil {
			t.Errorf("%s: %v %v", name, hint, err)
		}
	}
}

// Other code inspects the error that Attempt or Guarded returns. The inspection must not panic, because a panic would end the process.
func TestAttemptAndGuardedGiveNoErrorThatPanics(t *testing.T) {
	quiet := slog.New(slog.DiscardHandler)
	var panicked *PanicError
	_, err := Guarded(quiet, "Method", func() (int, error) { return 0, (*careless)(nil) })
	if !errors.As(err, &panicked) || panicked.Method != "Method" {
		t.Error(err)
	}
	budget := Budget{time.Now().Add(time.Minute), time.Second}
	told := ""
	answer, err := Attempt(t.Context(), budget, quiet, "Method", func(_ context.Context, err error) {
		told = err.Error()
		panic("the caller's own fault")
	}, func(context.Context) (int, error) { return 1, errors.Join((*careless)(nil)) })
	if panicked = nil; answer != 1 || !errors.As(err, &panicked) || !strings.Contains(told, "Method panicked") {
		t.Error(answer, err, told)
	}
}

func TestAPanicOfObserveChangesNoCall(t *testing.T) {
	var seen atomic.Int32
	s := serveScripted(t, scriptedCloud{}, func(server *Server) {
		server.Observe = func(Observation) {
			seen.Add(1)
			panic("boom")
		}
	})
	if said, err := contract.NewProviderServiceClient(s.connection).Probe(t.Context(), &contract.ProbeRequest{}); err != nil || said.BootId == "" || seen.Load() < 2 {
		t.Error(said, err, seen.Load())
	}
	hints, err := contract.NewProviderServiceClient(s.connection).WatchChanges(t.Context(), &contract.WatchChangesRequest{})
	if err == nil {
		_, err = hints.Recv()
	}
	if err != nil {
		t.Error(err)
	}
}

const noUTF8 = "a\xffb"

// A cloud whose answers about load balancers, volumes and clusters have a text that is not UTF-8.
type garbledCloud struct{ scriptedCloud }

func (garbledCloud) GetLoadBalancer(context.Context, *Call, GetLoadBalancer) (LoadBalancer, error) {
	status := LoadBalancerStatus{Ingress: []Ingress{{Hostname: "a.example", Ports: []PortStatus{{80, "TCP", noUTF8}}}}}
	return LoadBalancer{Presence: LoadBalancerPresent, Ownership: Ours, Name: "lb", Status: status}, nil
}

func (garbledCloud) ListLoadBalancers(context.Context, *Call) ([]ListedLoadBalancer, error) {
	return []ListedLoadBalancer{{Name: "lb", Owners: []ServiceRef{{Namespace: "n", Name: noUTF8}}}}, nil
}

func (garbledCloud) VolumeLabels(context.Context, *Call, Volume) (map[string]string, error) {
	return map[string]string{"zone": noUTF8}, nil
}

func (garbledCloud) ListClusters(context.Context, *Call) ([]string, error) {
	return []string{noUTF8}, nil
}

func (garbledCloud) ControlPlaneAddress(context.Context, *Call, string) (string, error) {
	return noUTF8, nil
}

// INST-4 and CORE-4: gRPC sends no answer that has a text that is not UTF-8, so such a text would fail all Nodes of the answer.
func TestATextThatIsNoUTF8IsItsItemsTrouble(t *testing.T) {
	instances := map[string]Instance{
		"works":   {State: InstanceRunning, ProviderID: "s://works"},
		"id":      {State: InstanceRunning, ProviderID: "s://" + noUTF8},
		"address": {State: InstanceRunning, ProviderID: "s://x", Addresses: []NodeAddress{{Hostname, noUTF8}, {Hostname, "x"}}},
		"facts":   {State: InstanceRunning, ProviderID: "s://x", Addresses: []NodeAddress{{AddressType(99), "n"}, {Hostname, "x"}}, Type: noUTF8, Labels: map[string]string{"good": "kept", "bad": noUTF8, noUTF8: "bad"}},
	}
	s := serveScripted(t, garbledCloud{scriptedCloud{lookup: func(_ context.Context, node Node) (Instance, error) { return instances[node.Name], nil }}})
	said, err := contract.NewInstanceServiceClient(s.connection).LookupInstances(t.Context(),
		&contract.LookupInstancesRequest{Cluster: us, Nodes: []*contract.NodeView{{Name: "works"}, {Name: "id"}, {Name: "address"}, {Name: "facts"}}})
	if err != nil {
		t.Fatal(err)
	}
	for _, result := range said.Results {
		if failed := result.GetFailed(); (failed != nil) != (result.NodeName == "id") || failed != nil && !strings.Contains(failed.Message, "not UTF-8") {
			t.Error(result)
		}
	}
	// INST-15: the answer lacks the facts that the contract cannot express, and has the others.
	if found := said.Results[2].GetFound(); len(found.GetAddresses()) != 1 {
		t.Error(found)
	}
	if facts := said.Results[3].GetFound(); facts.InstanceType != nil || len(facts.Labels) != 1 || facts.Labels["good"] != "kept" || len(facts.Addresses) != 1 {
		t.Error(facts)
	}
}

func TestATextThatIsNoUTF8FailsItsCallInTheBody(t *testing.T) {
	notes := map[string]func(*Notes){
		"handle": func(n *Notes) { n.Handle(noUTF8) }, "annotation": func(n *Notes) { n.SetAnnotation("a", noUTF8) },
		"removed": func(n *Notes) { n.RemoveAnnotation(noUTF8) }, "target": func(n *Notes) { n.TargetError(noUTF8, errors.New("no")) }, "hostname": nil,
	}
	s := serveScripted(t, garbledCloud{scriptedCloud{ensure: func(_ context.Context, request EnsureLoadBalancer) (LoadBalancerStatus, error) {
		if note := notes[request.Service.UID]; note != nil {
			note(request.Notes)
			return LoadBalancerStatus{Ingress: []Ingress{{Hostname: "a.example"}}}, nil
		}
		return LoadBalancerStatus{Ingress: []Ingress{{Hostname: noUTF8}}}, nil
	}}})
	refused := func(what string, failed *contract.Failure, err error) {
		t.Helper()
		if err != nil || !strings.Contains(failed.GetMessage(), "not UTF-8") {
			t.Errorf("%s: %v %v", what, failed, err)
		}
	}
	for uid := range notes {
		said, err := s.ensure(t.Context(), uid)
		refused(uid, said.GetFailed(), err)
	}
	balancers, clusters := contract.NewLoadBalancerServiceClient(s.connection), contract.NewClusterServiceClient(s.connection)
	found, err := balancers.GetLoadBalancer(t.Context(), &contract.GetLoadBalancerRequest{Cluster: us, Service: &contract.ServiceView{Namespace: "n", Name: "s", Uid: "u"}})
	refused("port", found.GetFailed(), err)
	listing, _ := balancers.ListLoadBalancers(t.Context(), &contract.ListLoadBalancersRequest{Cluster: us})
	part, err := listing.Recv()
	refused("owner", part.GetFailed(), err)
	names, _ := clusters.ListClusters(t.Context(), &contract.ListClustersRequest{Cluster: us})
	name, err := names.Recv()
	refused("cluster", name.GetFailed(), err)
	address, err := clusters.GetControlPlaneAddress(t.Context(), &contract.GetControlPlaneAddressRequest{Cluster: us, ClusterName: "c"})
	refused("control plane", address.GetFailed(), err)
	labels, err := contract.NewVolumeServiceClient(s.connection).GetVolumeLabels(t.Context(), &contract.GetVolumeLabelsRequest{Cluster: us, Volume: &contract.VolumeView{Name: "v"}})
	refused("volume", labels.GetFailed(), err)
}

func TestAHintThatIsNoUTF8IsAResync(t *testing.T) {
	s := serveScripted(t, scriptedCloud{watch: func(ctx context.Context, hints *Hints) error {
		return errors.Join(hints.Send(Change{Instance: &InstanceChange{NodeName: noUTF8}}, "1"), hints.Send(Change{Routes: true}, noUTF8))
	}})
	stream, err := contract.NewProviderServiceClient(s.connection).WatchChanges(t.Context(), &contract.WatchChangesRequest{Cluster: us})
	if err != nil {
		t.Fatal(err)
	}
	if hint, err := stream.Recv(); err != nil || hint.GetResync() == nil || hint.ResumeToken != "1" {
		t.Error(hint, err)
	}
	if hint, err := stream.Recv(); err != nil || hint.GetRoutes() == nil || hint.ResumeToken != "" {
		t.Error(hint, err)
	}
}
