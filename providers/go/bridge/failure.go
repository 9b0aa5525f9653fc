package bridge

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/protobuf/types/known/durationpb"
	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/cloud-provider/api"

	"github.com/grpc-ccm/grpc-ccm/providers/go/contract"
	"github.com/grpc-ccm/grpc-ccm/providers/go/sdk"
)

// errNoPlace is the error of a call that could not begin: methods that have not returned hold all places of its group.
var errNoPlace = errors.New("all places for such calls are taken by methods of the cloud that have not returned yet")

// fail is a failure that the bridge itself finds.
func fail(code contract.FailureCode, reason, format string, arguments ...any) *contract.Failure {
	return &contract.Failure{Code: code, Reason: reason, Message: shorten(fmt.Sprintf(format, arguments...))}
}

func invalid(format string, arguments ...any) *contract.Failure {
	return fail(contract.FailureCode_FAILURE_CODE_INVALID, "InvalidRequest", format, arguments...)
}

// fault is the failure for an answer of the cloud that the contract cannot express.
func fault(format string, arguments ...any) *contract.Failure {
	return fail(contract.FailureCode_FAILURE_CODE_INTERNAL, "InvalidAnswer", format, arguments...)
}

func busy(object string) *contract.Failure {
	return fail(contract.FailureCode_FAILURE_CODE_BUSY, "Busy", "another call is in progress for %s, or a method of the cloud that ignores its context still is; ask again in a second", object)
}

// failure returns the contract's failure for an error of the cloud. A vendor's Classify decides, except for panics, overruns and missing places. If
// Classify gives no code, the end of a context is UNAVAILABLE, and any other error is INTERNAL.
func (b *Bridge) failure(err error) *contract.Failure {
	failed := &contract.Failure{Code: contract.FailureCode_FAILURE_CODE_INTERNAL, Reason: "CloudError", Message: shorten(err.Error())}
	var ran *sdk.OverrunError
	var panic *sdk.PanicError
	classified := false
	switch {
	case errors.As(err, &panic):
		failed.Reason = "Panic"
		return failed
	case errors.As(err, &ran):
		failed.Reason = "ContextIgnored"
		return failed
	case errors.Is(err, errNoPlace):
		failed.Code, failed.Reason = contract.FailureCode_FAILURE_CODE_UNAVAILABLE, "NoPlace"
		return failed
	case b.options.Classify != nil:
		// A panic of Classify counts as UNSPECIFIED.
		if code, _ := guarded("Classify", func() contract.FailureCode { return b.options.Classify(err) }); code != contract.FailureCode_FAILURE_CODE_UNSPECIFIED {
			failed.Code, classified = code, true
		}
	}
	retry := retryOf(err)
	switch {
	case retry != nil:
		failed.RetryAfter = durationpb.New(retry.RetryAfter())
	case classified:
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		failed.Code, failed.Reason = contract.FailureCode_FAILURE_CODE_UNAVAILABLE, "Cancelled"
	case errors.Is(err, cloudprovider.NotImplemented):
		failed.Reason = "NotImplemented"
	}
	return failed
}

// absent reports whether an error means for certain that the instance does not exist (INST-1). Errors may be wrapped or joined. If one of them is
// another error, or the end of a context, the existence is in doubt.
func absent(err error) bool {
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return false
	}
	return retryOf(err) == nil && only(err, cloudprovider.InstanceNotFound)
}

// only reports whether every branch of an error ends in the wanted error.
func only(err, wanted error) bool {
	for err != nil {
		if err == wanted {
			return true
		}
		switch wrapper := err.(type) {
		case interface{ Unwrap() error }:
			err = wrapper.Unwrap()
		case interface{ Unwrap() []error }:
			return every(wrapper.Unwrap(), wanted)
		// utilerrors.Aggregate, which is older than joined errors.
		case interface{ Errors() []error }:
			return every(wrapper.Errors(), wanted)
		default:
			is, ok := err.(interface{ Is(error) bool })
			return ok && is.Is(wanted)
		}
	}
	return false
}

func every(branches []error, wanted error) bool {
	for _, branch := range branches {
		if !only(branch, wanted) {
			return false
		}
	}
	return len(branches) > 0
}

// retryOf returns the retry error that an error is or wraps, or nil. errors.As does not search a utilerrors.Aggregate. An Aggregate counts as a retry error if all
// its errors are retry errors.
func retryOf(err error) *api.RetryError {
	var retry *api.RetryError
	if errors.As(err, &retry) {
		return retry
	}
	var several interface {
		error
		Errors() []error
	}
	if !errors.As(err, &several) {
		return nil
	}
	for _, one := range several.Errors() {
		found := retryOf(one)
		if found == nil {
			return nil
		}
		if retry == nil || found.RetryAfter() > retry.RetryAfter() {
			retry = found
		}
	}
	return retry
}

// pendingOf returns the pending answer for Go's retry error, and nil for any other error.
func pendingOf(err error) *contract.Pending {
	retry := retryOf(err)
	if retry == nil {
		return nil
	}
	return &contract.Pending{RetryAfter: durationpb.New(retry.RetryAfter()), Message: shorten(err.Error())}
}
