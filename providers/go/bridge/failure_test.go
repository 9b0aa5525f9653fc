package bridge

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/cloud-provider/api"

	"github.com/grpc-ccm/grpc-ccm/providers/go/contract"
	"github.com/grpc-ccm/grpc-ccm/providers/go/sdk"
)

func TestOnlyAnErrorThatSaysNothingElseMeansAbsent(t *testing.T) {
	gone, other := cloudprovider.InstanceNotFound, errors.New("too many requests")
	for name, row := range map[string]struct {
		err    error
		absent bool
	}{
		"itself":                         {gone, true},
		"wrapped":                        {fmt.Errorf("node a: %w", fmt.Errorf("lookup: %w", gone)), true},
		"joined with itself":             {errors.Join(gone, fmt.Errorf("again: %w", gone)), true},
		"an aggregate of it":             {utilerrors.NewAggregate([]error{gone}), true},
		"joined with another":            {errors.Join(other, gone), false},
		"an aggregate with another":      {utilerrors.NewAggregate([]error{gone, other}), false},
		"two wrapped, one is another":    {fmt.Errorf("%w: %w", gone, other), false},
		"a deadline beside it":           {fmt.Errorf("%w: %w", gone, context.DeadlineExceeded), false},
		"another with the same text":     {errors.New(gone.Error()), false},
		"not implemented":                {cloudprovider.NotImplemented, false},
		"a retry error":                  {api.NewRetryError("instance not found", time.Second), false},
		"an error of its own that is it": {likeNotFound{}, true},
	} {
		if got := absent(row.err); got != row.absent {
			t.Errorf("%s: absent is %v", name, got)
		}
	}
}

type likeNotFound struct{}

func (likeNotFound) Error() string        { return "404" }
func (likeNotFound) Is(target error) bool { return target == cloudprovider.InstanceNotFound }

func TestEachErrorHasItsFailure(t *testing.T) {
	throttled := errors.New("slow down")
	b := &Bridge{options: Options{Classify: func(err error) contract.FailureCode {
		if errors.Is(err, throttled) {
			return contract.FailureCode_FAILURE_CODE_THROTTLED
		}
		return contract.FailureCode_FAILURE_CODE_UNSPECIFIED
	}}}
	for name, row := range map[string]struct {
		err    error
		code   contract.FailureCode
		reason string
	}{
		"any other error":   {errors.New("boom"), contract.FailureCode_FAILURE_CODE_INTERNAL, "CloudError"},
		"not implemented":   {fmt.Errorf("x: %w", cloudprovider.NotImplemented), contract.FailureCode_FAILURE_CODE_INTERNAL, "NotImplemented"},
		"a panic":           {&sdk.PanicError{Method: "M", Value: "boom"}, contract.FailureCode_FAILURE_CODE_INTERNAL, "Panic"},
		"an ignored ctx":    {&sdk.OverrunError{Method: "M", After: time.Second}, contract.FailureCode_FAILURE_CODE_INTERNAL, "ContextIgnored"},
		"no place":          {fmt.Errorf("M: %w", errNoPlace), contract.FailureCode_FAILURE_CODE_UNAVAILABLE, "NoPlace"},
		"a deadline":        {fmt.Errorf("get: %w", context.DeadlineExceeded), contract.FailureCode_FAILURE_CODE_UNAVAILABLE, "Cancelled"},
		"what vendors know": {fmt.Errorf("get: %w", throttled), contract.FailureCode_FAILURE_CODE_THROTTLED, "CloudError"},
	} {
		failed := b.failure(row.err)
		if failed.GetCode() != row.code || failed.GetReason() != row.reason || failed.GetMessage() == "" {
			t.Errorf("%s: %v", name, failed)
		}
	}
	failed := b.failure(fmt.Errorf("wrapped: %w", api.NewRetryError("later", 7*time.Second)))
	if failed.GetRetryAfter().AsDuration() != 7*time.Second {
		t.Errorf("retry_after of a wrapped retry error: %v", failed)
	}
}

func TestTextsAreCutToWhatTheContractAllows(t *testing.T) {
	long := shorten(strings.Repeat("ü", 2000))
	if len(long) > textBytes || !utf8.ValidString(long) || !strings.HasSuffix(long, "…") {
		t.Errorf("%d bytes: %q", len(long), long)
	}
	if got := shorten("bad \xff"); !utf8.ValidString(got) {
		t.Errorf("%q is not valid UTF-8", got)
	}
}
