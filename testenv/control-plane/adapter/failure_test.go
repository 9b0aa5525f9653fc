package adapter

import (
	"errors"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"k8s.io/cloud-provider/api"

	"github.com/grpc-ccm/grpc-ccm/providers/go/contract"
)

// A failure of the provider becomes an error. The framework takes the event's text and the time of
// the next try from it.
func TestFailuresAreErrorsWithTheProvidersTextAndDelay(t *testing.T) {
	in := func(wait time.Duration) *durationpb.Duration { return durationpb.New(wait) }
	rows := []struct {
		name   string
		failed *contract.Failure
		text   string
		// Zero: the framework's own backoff.
		delay time.Duration
	}{
		{"message", &contract.Failure{Code: contract.FailureCode_FAILURE_CODE_INVALID, Message: "port 80 is taken"}, "port 80 is taken", 0},
		{"message and reason", &contract.Failure{Code: contract.FailureCode_FAILURE_CODE_PRECONDITION, Message: "no subnet", Reason: "SubnetMissing"}, "no subnet (SubnetMissing)", 0},
		{"reason", &contract.Failure{Code: contract.FailureCode_FAILURE_CODE_CONFLICT, Reason: "Taken"}, "Taken", 0},
		{"code alone", &contract.Failure{Code: contract.FailureCode_FAILURE_CODE_CREDENTIALS}, "FAILURE_CODE_CREDENTIALS", 0},
		{"a code of a newer contract", &contract.Failure{Code: 99}, "99", 0},
		{"not found is a failure as any other", failed(contract.FailureCode_FAILURE_CODE_NOT_FOUND, "gone"), "gone", 0},
		{"throttled", &contract.Failure{Code: contract.FailureCode_FAILURE_CODE_THROTTLED, Message: "slowly", RetryAfter: in(30 * time.Second)}, "slowly", 30 * time.Second},
		{"a delay at any code", &contract.Failure{Code: contract.FailureCode_FAILURE_CODE_INTERNAL, Message: "oops", RetryAfter: in(7 * time.Second)}, "oops", 7 * time.Second},
		{"a delay that is too short", &contract.Failure{Message: "now", RetryAfter: in(time.Millisecond)}, "now", shortestDelay},
		{"a delay that is negative", &contract.Failure{Message: "before", RetryAfter: in(-time.Hour)}, "before", shortestDelay},
		{"a delay that is too long", &contract.Failure{Message: "tomorrow", RetryAfter: in(24 * time.Hour)}, "tomorrow", longestDelay},
		{"busy", failed(contract.FailureCode_FAILURE_CODE_BUSY, "one at a time"), "one at a time", busyDelay},
		{"busy with a delay", &contract.Failure{Code: contract.FailureCode_FAILURE_CODE_BUSY, Message: "later", RetryAfter: in(5 * time.Second)}, "later", 5 * time.Second},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			isDelayed(t, failure(row.failed), row.text, row.delay)
		})
	}
	if err := failure(nil); err != nil {
		t.Errorf("no failure became %v", err)
	}
}

func TestWhatIsPendingIsAskedAboutAgain(t *testing.T) {
	isDelayed(t, pending(&contract.Pending{}), "the load balancer is not ready yet", pendingDelay)
	wait := durationpb.New(20 * time.Second)
	isDelayed(t, pending(&contract.Pending{Message: "being made", RetryAfter: wait}), "being made", 20*time.Second)
}

func isDelayed(t *testing.T, err error, text string, delay time.Duration) {
	t.Helper()
	if err == nil || err.Error() != text {
		t.Fatalf("the text is %v instead of %q", err, text)
	}
	var retry *api.RetryError
	if delayed := errors.As(err, &retry); delayed != (delay != 0) {
		t.Fatalf("whether a delay is stated: %v", delayed)
	}
	if retry != nil && retry.RetryAfter() != delay {
		t.Errorf("the delay is %s instead of %s", retry.RetryAfter(), delay)
	}
}
