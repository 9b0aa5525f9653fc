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

// An error that panics when it is looked at again.
type sudden struct{ looked atomic.Int32 }

func (s *sudden) Error() string { return "sudden" }

func (s *sudden) Unwrap() error {
	if s.looked.Add(1) > 2 {
		panic("again")
	}
	return nil
}

// Errors whose methods panic, or that hold a nil pointer.
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

// INST-4: an error that panics when it is looked at is that Node's trouble alone.
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

// What looks into an error beside Attempt, such as the bridge's count of failures, may not end the process either.
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
