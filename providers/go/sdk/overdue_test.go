package sdk

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/grpc-ccm/grpc-ccm/providers/go/contract"
)

// CORE-18: methods that hang do not add up, and the other Nodes are still looked up.
func TestLookupsThatHangDoNotAddUp(t *testing.T) {
	t.Parallel()
	var hang atomic.Int32
	release := make(chan struct{})
	s := serveScripted(t, scriptedCloud{lookup: func(_ context.Context, node Node) (Instance, error) {
		if node.Name == "hangs" {
			hang.Add(1)
			defer hang.Add(-1)
			<-release
		}
		return Instance{State: InstanceAbsent}, nil
	}})
	lookUp := func() []string {
		ctx, stop := context.WithTimeout(t.Context(), shortDeadline)
		defer stop()
		return s.lookUp(ctx, &contract.NodeView{Name: "hangs"}, &contract.NodeView{Name: "works"})
	}
	for range 5 {
		if said := lookUp(); !strings.HasPrefix(said[0], "UNAVAILABLE ") || said[1] != "ABSENT" {
			t.Error(said)
		}
	}
	if many := hang.Load(); many != mostOverdueOfItem {
		t.Errorf("%d lookups hang", many)
	}
	if said := lookUp(); !strings.Contains(said[0], "2 earlier calls of LookupInstances about hangs have ended") {
		t.Error(said)
	}
	close(release)
	for deadline := time.Now().Add(20 * time.Second); ; {
		if said := lookUp(); said[0] == "ABSENT" {
			break
		} else if time.Now().After(deadline) {
			t.Fatal(said)
		}
	}
}

// CORE-18: a method that ignores its context does not add up with each reconnect.
func TestStreamsOfHintsThatHangDoNotAddUp(t *testing.T) {
	var running atomic.Int32
	release := make(chan struct{})
	s := serveScripted(t, scriptedCloud{watch: func(_ context.Context, hints *Hints) error {
		running.Add(1)
		defer running.Add(-1)
		if err := hints.Bookmark("1"); err != nil {
			return err
		}
		<-release
		return nil
	}})
	reconnect := func() *contract.WatchChangesResponse {
		ctx, stop := context.WithTimeout(t.Context(), 20*time.Second)
		defer stop()
		stream, err := contract.NewProviderServiceClient(s.connection).WatchChanges(ctx, &contract.WatchChangesRequest{Cluster: us})
		if err != nil {
			t.Fatal(err)
		}
		hint, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		return hint
	}
	var refused *contract.Failure
	// The server counts a stream as over shortly after its client, so some more may begin.
	for range 2 * mostOverdue {
		if refused = reconnect().GetFailed(); refused != nil {
			break
		}
	}
	if many := running.Load(); refused.GetReason() != "CallsHang" || refused.GetCode() != contract.FailureCode_FAILURE_CODE_UNAVAILABLE {
		t.Errorf("%d methods run: %v", many, refused)
	}
	close(release)
	for deadline := time.Now().Add(20 * time.Second); reconnect().GetFailed() != nil; {
		if time.Now().After(deadline) {
			t.Fatal("no stream begins although the methods have returned")
		}
	}
}

func TestWhatIsOverdueIsBoundedForEachRPC(t *testing.T) {
	var methods overdue
	begin := func(rpc, item string) *attempt {
		begun, err := methods.begin(rpc, item)
		if err != nil {
			t.Fatal(err)
		}
		return begun
	}
	inTime := begin("Get", "a")
	methods.end(inTime)
	methods.late(inTime)
	if len(methods.counts) > 0 {
		t.Error("one that has ended counts", methods.counts)
	}
	var hanging []*attempt
	for i := range mostOverdue {
		hanging = append(hanging, begin("Get", fmt.Sprint(i)))
		methods.late(hanging[i])
	}
	if _, err := methods.begin("Get", "another"); err == nil || !strings.Contains(err.Error(), "256 earlier calls of Get ") {
		t.Error(err)
	}
	begin("List", "")
	methods.end(hanging[0])
	begin("Get", "another")
	for _, one := range hanging[1:] {
		methods.end(one)
	}
	if len(methods.counts) > 0 {
		t.Error("it keeps what has ended", methods.counts)
	}
}
