package sdk

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/grpc-ccm/grpc-ccm/providers/go/contract"
)

// MaxTextBytes is the longest message or reason (CORE-11). The SDK cuts longer ones between characters.
const MaxTextBytes = 1024

// Code is the kind of a [Failure]; it decides what the controller does next (CORE-15).
type Code int32

// The codes of the contract. NOT_INITIALIZED is not among them: the server answers it by itself.
const (
	CodeInvalid      = Code(contract.FailureCode_FAILURE_CODE_INVALID)
	CodePrecondition = Code(contract.FailureCode_FAILURE_CODE_PRECONDITION)
	CodeNotFound     = Code(contract.FailureCode_FAILURE_CODE_NOT_FOUND)
	CodeConflict     = Code(contract.FailureCode_FAILURE_CODE_CONFLICT)
	CodeBusy         = Code(contract.FailureCode_FAILURE_CODE_BUSY)
	CodeThrottled    = Code(contract.FailureCode_FAILURE_CODE_THROTTLED)
	CodeCredentials  = Code(contract.FailureCode_FAILURE_CODE_CREDENTIALS)
	CodeUnavailable  = Code(contract.FailureCode_FAILURE_CODE_UNAVAILABLE)
	CodeInternal     = Code(contract.FailureCode_FAILURE_CODE_INTERNAL)

	codeNotInitialized = Code(contract.FailureCode_FAILURE_CODE_NOT_INITIALIZED)
)

// String is the code's name in the contract, for example THROTTLED.
func (c Code) String() string {
	return strings.TrimPrefix(contract.FailureCode(c).String(), "FAILURE_CODE_")
}

// The reasons if the vendor gives none.
var defaultReasons = map[Code]string{
	CodeInvalid:        "Invalid",
	CodePrecondition:   "PreconditionMissing",
	CodeNotFound:       "NotFound",
	CodeConflict:       "Conflict",
	CodeBusy:           "Busy",
	CodeThrottled:      "Throttled",
	CodeCredentials:    "CredentialsRefused",
	CodeUnavailable:    "CloudUnavailable",
	codeNotInitialized: "NotInitialized",
	CodeInternal:       "InternalError",
}

// Failure is an error as the controller will read it. It never means that an instance is gone: only [InstanceAbsent] does.
//
// Its message is one sentence for the operator who reads the event: which value is wrong, and what would be right. It has no secrets (CORE-12). If a
// failure is wrapped, the text of the outermost error is the message.
type Failure struct {
	// Code is the kind.
	Code Code
	// Reason is one word in CamelCase, for example SubnetMissing. The ccm shows it in the text of an event, with the message. Each code has a default.
	Reason string
	// RetryAfter is how long the controller should wait before it repeats the call; the controller clamps it to 1 s..10 min.
	RetryAfter time.Duration

	err error
}

// Error is the message.
func (f *Failure) Error() string {
	switch {
	case f == nil:
		return "a nil *sdk.Failure was returned as an error; right would be a nil error"
	case f.err == nil:
		return "a failure with the code " + f.Code.String() + " and without a text"
	default:
		return f.err.Error()
	}
}

// Unwrap returns the text as an error, so that errors.Is and errors.As find each error that the text wraps with %w.
func (f *Failure) Unwrap() error {
	if f == nil {
		return nil
	}
	return f.err
}

// Because sets the reason and returns the failure.
func (f *Failure) Because(reason string) *Failure {
	f.Reason = reason
	return f
}

// After sets how long the controller should wait and returns the failure.
func (f *Failure) After(delay time.Duration) *Failure {
	f.RetryAfter = delay
	return f
}

// Fail is a failure with a code that is chosen at run time. The text is that of [fmt.Errorf], so that %w works.
func Fail(code Code, text string, arguments ...any) *Failure {
	return &Failure{Code: code, err: fmt.Errorf(text, arguments...)}
}

// Invalid says that the object itself is wrong or unsupported. Only a change of the object helps.
func Invalid(text string, arguments ...any) *Failure { return Fail(CodeInvalid, text, arguments...) }

// Precondition says that something is missing which the object needs: a subnet, a tag, a setting, quota.
func Precondition(text string, arguments ...any) *Failure {
	return Fail(CodePrecondition, text, arguments...)
}

// NotFound says that the load balancer to update, the disk or the cluster does not exist. It never means that an instance is gone.
func NotFound(text string, arguments ...any) *Failure { return Fail(CodeNotFound, text, arguments...) }

// Conflict says that the object, or a part of it, belongs to another owner, has no mark, or collides with another object.
func Conflict(text string, arguments ...any) *Failure { return Fail(CodeConflict, text, arguments...) }

// Busy says that another operation holds the same object.
func Busy(text string, arguments ...any) *Failure { return Fail(CodeBusy, text, arguments...) }

// Throttled says that the cloud asks for fewer calls. retryAfter is the time that the cloud states, if it states one.
func Throttled(retryAfter time.Duration, text string, arguments ...any) *Failure {
	return Fail(CodeThrottled, text, arguments...).After(retryAfter)
}

// Credentials says that the cloud refuses the provider's credentials.
func Credentials(text string, arguments ...any) *Failure {
	return Fail(CodeCredentials, text, arguments...)
}

// Unavailable says that the cloud's API is down or unreachable.
func Unavailable(text string, arguments ...any) *Failure {
	return Fail(CodeUnavailable, text, arguments...)
}

// Internal says that the provider has a fault. Operators read its text. The text of an error that
// this package does not know goes only to the log.
func Internal(text string, arguments ...any) *Failure { return Fail(CodeInternal, text, arguments...) }

// PendingError says that the work is not finished. It is no failure: see [Pending].
type PendingError struct {
	// Message names the reason for the wait, for people.
	Message string
	// RetryAfter is when to ask again; 5 s if zero. The controller clamps it to 1 s..10 min. It waits at least 30 s if the call before was unfinished
	// too, and this answer changes the handle or the annotations.
	RetryAfter time.Duration
}

// Error is the message.
func (p *PendingError) Error() string { return p.Message }

// Pending is what EnsureLoadBalancer, UpdateLoadBalancer and DeleteLoadBalancer return while the cloud works: the controller asks again after the
// delay and counts no failure. From any other method it becomes UNAVAILABLE.
func Pending(retryAfter time.Duration, text string, arguments ...any) error {
	return &PendingError{fmt.Sprintf(text, arguments...), retryAfter}
}

// RetainedError says that a load balancer is kept on purpose: see [Retained].
type RetainedError struct {
	// Reason says why, for people.
	Reason string
}

// Error is the reason.
func (r *RetainedError) Error() string { return r.Reason }

// Retained is what DeleteLoadBalancer returns if the load balancer is kept on purpose. The controller then records a Warning event and removes its
// finalizer. From any other method it becomes INTERNAL.
func Retained(text string, arguments ...any) error {
	return &RetainedError{fmt.Sprintf(text, arguments...)}
}

// ErrHandledElsewhere is what EnsureLoadBalancer, UpdateLoadBalancer and DeleteLoadBalancer return if another component manages the Service. From any
// other method it becomes INTERNAL.
var ErrHandledElsewhere = errors.New("another component takes care of this Service")

// only reports whether every branch of an error ends in an error of one kind. If one of several joined errors is another error, the others do not say
// what became of the call.
func only(err error, kind func(error) bool) bool {
	var branches []error
	switch wrapper := err.(type) {
	case interface{ Unwrap() error }:
		if inner := wrapper.Unwrap(); inner != nil {
			return only(inner, kind)
		}
	case interface{ Unwrap() []error }:
		branches = wrapper.Unwrap()
	// utilerrors.Aggregate, which is older than joined errors.
	case interface{ Errors() []error }:
		branches = wrapper.Errors()
	}
	if len(branches) == 0 {
		return kind(err)
	}
	return !slices.ContainsFunc(branches, func(branch error) bool { return !only(branch, kind) })
}

// BeforeWrite belongs before each write to the cloud. If the context has ended, the provider must not write any more, and BeforeWrite returns an
// error (CORE-8, CORE-19).
func BeforeWrite(ctx context.Context) error {
	if ctx.Err() == nil {
		return nil
	}
	return Unavailable("the call has ended, and nothing more is written to the cloud: %w", context.Cause(ctx)).Because("CallEnded")
}

func contractBroken(text string, arguments ...any) *Failure {
	return Internal("the provider's answer breaks the contract: "+text, arguments...).Because("ContractBroken")
}

// At most MaxTextBytes, cut between characters.
func cut(text string) string { return cutTo(text, MaxTextBytes) }

func cutTo(text string, most int) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	if len(text) <= most {
		return text
	}
	end := most
	for !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end]
}

func durationTo(duration time.Duration) *durationpb.Duration {
	if duration <= 0 {
		return nil
	}
	return durationpb.New(duration)
}

// Turns every error into a failure of the contract, also one whose methods panic.
func (s *session) failed(ctx context.Context, rpc, item string, err error) *contract.Failure {
	log := ofCall(ctx, s.log)
	said, panicked := Guarded(log, rpc, func() (*contract.Failure, error) { return failureOf(log, rpc, item, err), nil })
	if panicked != nil {
		return failureOf(log, rpc, item, panicked)
	}
	return said
}

func failureOf(log *slog.Logger, rpc, item string, err error) *contract.Failure {
	var failure *Failure
	var pending *PendingError
	var panicked *PanicError
	isPending := func(err error) bool { return errors.As(err, &pending) && pending != nil }
	switch {
	// The text of a panic goes only to the log, because it may have secrets.
	case errors.As(err, &panicked):
		failure = Internal("the provider's code panicked in %s; its log says more", rpc).Because("ProviderPanicked")
		err = failure
	case errors.As(err, &failure) && failure != nil:
		if failure.Code == CodeInternal {
			log.Error("the provider failed", "rpc", rpc, "item", item, "error", err)
		}
	case only(err, isPending):
		failure = Unavailable("%s", pending.Message).After(pending.RetryAfter)
		err = failure
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		failure = Unavailable("the cloud has not answered within the time of %s", rpc).Because("CallEnded")
		err = failure
	default:
		log.Error("the provider failed", "rpc", rpc, "item", item, "error", err)
		failure = Internal("a fault of the provider in %s; its log says more", rpc)
		err = failure
	}
	code, reason, message := failure.Code, failure.Reason, err.Error()
	if !listed(rpc, item, code) {
		log.Error("the provider answered a code that is not listed for this call (CORE-21)", "rpc", rpc, "item", item, "code", code, "error", err)
		message = fmt.Sprintf("%s has no failure %s (CORE-21): %s", rpc, code, message)
		code = CodeInternal
	}
	if reason == "" {
		reason = defaultReasons[code]
	}
	return &contract.Failure{Code: contract.FailureCode(code), Reason: cut(reason), Message: cut(message), RetryAfter: durationTo(failure.RetryAfter)}
}

// listed reports whether the contract allows this code for an RPC; item is empty for the call as a whole (CORE-21).
func listed(rpc, item string, code Code) bool {
	switch code {
	case CodeNotFound:
		return rpc == "UpdateLoadBalancer" || rpc == "GetControlPlaneAddress" || rpc == "GetVolumeLabels"
	case CodeConflict:
		return rpc == "LookupInstances" && item != "" || rpc == "GetLoadBalancer" || slices.Contains(writing, rpc)
	default:
		return defaultReasons[code] != ""
	}
}
