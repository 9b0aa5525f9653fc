package adapter

import (
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"k8s.io/cloud-provider/api"

	"github.com/grpc-ccm/grpc-ccm/providers/go/contract"
)

// The limits of a provider's delay, and its default.
const (
	shortestDelay = time.Second
	longestDelay  = 10 * time.Minute
	pendingDelay  = 5 * time.Second
	busyDelay     = time.Second
)

// errUnset is an answer that breaks the contract: nothing may be concluded from it.
var errUnset = errors.New("the provider's answer has no outcome that is known here")

// failure is the provider's failure as an error, nil for none. One that says when to come again, and BUSY, is an api.RetryError.
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

// pending is what is not finished yet.
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
