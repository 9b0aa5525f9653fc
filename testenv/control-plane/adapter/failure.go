package adapter

import (
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"k8s.io/cloud-provider/api"

	"github.com/grpc-ccm/grpc-ccm/providers/go/contract"
)

// The limits of a provider's retry_after, and the delays without one.
const (
	shortestDelay = time.Second
	longestDelay  = 10 * time.Minute
	pendingDelay  = 5 * time.Second
	busyDelay     = time.Second
)

// errUnset is the error for an answer that breaks the contract, and so proves nothing.
var errUnset = errors.New("the provider's answer has no outcome that is known here")

// failure returns the provider's failure as an error, or nil if there is none. With retry_after,
// and for BUSY, the error is an api.RetryError.
func failure(failed *contract.Failure) error {
	if failed == nil {
		return nil
	}
	text := failed.GetMessage()
	switch {
	case text == "" && failed.GetReason() == "":
		text = failed.GetCode().String()
	case text == "":
		text = failed.GetReason()
	case failed.GetReason() != "":
		text = fmt.Sprintf("%s (%s)", text, failed.GetReason())
	}
	if failed.GetRetryAfter() != nil {
		return api.NewRetryError(text, delay(failed.GetRetryAfter(), pendingDelay))
	}
	if failed.GetCode() == contract.FailureCode_FAILURE_CODE_BUSY {
		return api.NewRetryError(text, busyDelay)
	}
	return errors.New(text)
}

// pending returns a pending answer as an api.RetryError.
func pending(answer *contract.Pending) error {
	text := answer.GetMessage()
	if text == "" {
		text = "the load balancer is not ready yet"
	}
	return api.NewRetryError(text, delay(answer.GetRetryAfter(), pendingDelay))
}

func delay(stated *durationpb.Duration, otherwise time.Duration) time.Duration {
	if stated == nil {
		return otherwise
	}
	return min(max(stated.AsDuration(), shortestDelay), longestDelay)
}
