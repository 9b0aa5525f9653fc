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
		_, err := ask(ctx, bridge, bridge.general, "Method", sdk.BudgetOf(ctx), nil, func(ctx context.Context) (struct{}, error) {
			<-ctx.Done()
			return struct{}{}, ctx.Err()
		})
		cancel()
		var ran *sdk.OverrunError
		if errors.As(err, &ran) {
			t.Fatalf("it minds its context: %v", err)
		}
	}
}
