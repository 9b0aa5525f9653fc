package bridge

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/grpc-ccm/grpc-ccm/providers/go/sdk"
)

func TestACallThatIsOverAtOnceAccusesNoMethod(t *testing.T) {
	bridge, err := New(&scripted{tagged: true}, Options{Version: "1"})
	must(t, err)
	for range 500 {
		ctx, cancel := context.WithTimeout(context.Background(), 50*time.Microsecond)
		within := sdk.BudgetOf(ctx)
		if within.Grace < 10*time.Millisecond {
			t.Fatalf("a method may take only %s to end", within.Grace)
		}
		within.Grace = patience // A busy machine may keep a method from its end for longer than the grace.
		_, err := ask(ctx, bridge, bridge.general, "Method", within, nil, func(ctx context.Context) (struct{}, error) {
			<-ctx.Done()
			return struct{}{}, ctx.Err()
		})
		cancel()
		var ran *sdk.OverrunError
		if errors.As(err, &ran) {
			t.Fatalf("a method that minds its context is accused: %v", err)
		}
	}
}

func TestACancelledCallBeginsNoMethod(t *testing.T) {
	bridge, err := New(&scripted{tagged: true}, Options{Version: "1"})
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for range 200 {
		ended := 0
		_, err := ask(ctx, bridge, bridge.general, "Method", sdk.BudgetOf(ctx), func() { ended++ }, func(context.Context) (struct{}, error) {
			t.Error("a method began after its call was cancelled (CORE-8)")
			return struct{}{}, nil
		})
		if !errors.Is(err, context.Canceled) || ended != 1 || len(bridge.general.free) != 0 {
			t.Fatalf("%v, ended %d times, %d places taken", err, ended, len(bridge.general.free))
		}
	}
}
