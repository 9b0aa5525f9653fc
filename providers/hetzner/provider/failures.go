package provider

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/grpc-ccm/grpc-ccm/providers/go/sdk"
)

// The wait after a 429 that states no time: one call becomes free each second.
const throttledFor = 10 * time.Second

func isCode(err error, codes ...hcloud.ErrorCode) bool { return hcloud.IsError(err, codes...) }

// isBusy reports whether the API refuses a call because another operation works on the object.
func isBusy(err error) bool {
	return ofCallOrAction(err, hcloud.ErrorCodeLocked) || ofCallOrAction(err, hcloud.ErrorCodeConflict)
}

// ofCallOrAction reports whether the API refused a call with this code, or its action failed with it.
func ofCallOrAction(err error, code hcloud.ErrorCode) bool {
	var action hcloud.ActionError
	return errors.As(err, &action) && action.Code == string(code) || isCode(err, code)
}

// ofTargetAlone reports whether an error of a call that adds a target says nothing about other targets: the action failed, or the API cannot ask about a dedicated server.
func ofTargetAlone(err error) bool {
	var action hcloud.ActionError
	return errors.As(err, &action) || isCode(err, hcloud.ErrorCodeRobotUnavailable)
}

// details returns the message of an error, with the API's errors of fields and with the code.
func details(err hcloud.Error) string {
	text := err.Message
	if invalid, is := err.Details.(hcloud.ErrorDetailsInvalidInput); is {
		for _, field := range invalid.Fields {
			text += "; " + field.Name + ": " + strings.Join(field.Messages, ", ")
		}
	}
	return text + " (" + string(err.Code) + ")"
}

// failureOf returns the failure of the contract for an error of the API (CORE-15). `what` describes the attempt.
func failureOf(what string, err error) *sdk.Failure {
	var failure *sdk.Failure
	if errors.As(err, &failure) {
		return failure
	}
	var action hcloud.ActionError
	if errors.As(err, &action) {
		if failure = ofCode(what, hcloud.ErrorCode(action.Code), action.Message+" ("+action.Code+")", http.Header{}); failure.Code == sdk.CodeInternal {
			return sdk.Unavailable("%s: Hetzner could not carry it out: %s (%s)", what, action.Message, action.Code).Because("ActionFailed")
		}
		return failure
	}
	var answered hcloud.Error
	if !errors.As(err, &answered) {
		var syntax *json.SyntaxError
		var kind *json.UnmarshalTypeError
		if errors.As(err, &syntax) || errors.As(err, &kind) {
			return sdk.Internal("%s: the answer of Hetzner's API cannot be read: %w", what, err).Because("AnswerNotUnderstood")
		}
		return sdk.Unavailable("%s: Hetzner's API does not answer: %w", what, err).Because("APIUnreachable")
	}
	header, status := http.Header{}, 0
	if response := answered.Response(); response != nil && response.Response != nil {
		header, status = response.Header, response.StatusCode
	}
	failure = ofCode(what, answered.Code, details(answered), header)
	if failure.Code == sdk.CodeInternal && status >= 500 {
		return sdk.Unavailable("%s: Hetzner's API fails: %s", what, details(answered)).Because("APIFails")
	}
	return failure
}

func ofCode(what string, code hcloud.ErrorCode, message string, header http.Header) *sdk.Failure {
	switch code {
	case hcloud.ErrorCodeUnauthorized:
		return sdk.Credentials("%s: Hetzner refuses the token: %s", what, message).Because("TokenRefused")
	case hcloud.ErrorCodeForbidden, "token_readonly":
		return sdk.Credentials("%s: the token lacks a right: %s; right would be a token with the permission Read & Write", what, message).Because("TokenLacksRight")
	case hcloud.ErrorCodeRateLimitExceeded:
		return sdk.Throttled(waitOf(header, time.Now()), "%s: Hetzner asks to slow down: %s", what, message)
	case hcloud.ErrorCodeLocked, hcloud.ErrorCodeConflict:
		return sdk.Busy("%s: another operation is running: %s", what, message)
	case hcloud.ErrorCodeResourceLimitExceeded:
		return sdk.Precondition("%s: a limit of the project or of the load balancer's type is reached: %s", what, message).Because("QuotaReached")
	case hcloud.ErrorCodeUniquenessError:
		return sdk.Conflict("%s: %s", what, message).Because("NameTaken")
	case hcloud.ErrorCodeProtected:
		return sdk.Precondition("%s: it is protected: %s; take its protection away in the project", what, message).Because("DeleteProtected")
	case hcloud.ErrorCodeMaintenance, hcloud.ErrorCodeServerError, hcloud.ErrorCodeServiceError, hcloud.ErrorCodeUnknownError, hcloud.ErrorCodeBadGateway, hcloud.ErrorCodeTimeout, hcloud.ErrorCodeRobotUnavailable:
		return sdk.Unavailable("%s: Hetzner's API fails: %s", what, message).Because("APIFails")
	case hcloud.ErrorCodeInvalidInput, hcloud.ErrorCodeJSONError, hcloud.ErrorCodeInvalidLoadBalancerType, hcloud.ErrorCodeSourcePortAlreadyUsed, hcloud.ErrorUnsupportedError:
		return sdk.Invalid("%s: Hetzner refuses it: %s", what, message).Because("RefusedByHetzner")
	case hcloud.ErrorCodeNotFound, hcloud.ErrorCodeResourceUnavailable, hcloud.ErrorCodeResourceLocked, hcloud.ErrorCodeNoSubnetAvailable, hcloud.ErrorCodeIPNotAvailable,
		hcloud.ErrorCodeServerNotAttachedToNetwork, hcloud.ErrorCodeLoadBalancerNotAttachedToNetwork, hcloud.ErrorCodeMissingIPv4, hcloud.ErrorCodeIPNotOwned, hcloud.ErrorCodeCloudResourceIPNotAllowed,
		hcloud.ErrorCodeTargetsWithoutUsePrivateIP, "load_balancer_public_interface_disabled":
		return sdk.Precondition("%s: %s", what, message).Because("RefusedByHetzner")
	default:
		return sdk.Internal("%s: this provider does not understand the answer of Hetzner's API: %s", what, message).Because("AnswerNotUnderstood")
	}
}

// waitOf returns the wait that a 429 asks for.
func waitOf(header http.Header, now time.Time) time.Duration {
	for _, name := range []string{"RateLimit-Reset", "Retry-After"} {
		var seconds int64
		if json.Unmarshal([]byte(header.Get(name)), &seconds) != nil || seconds <= 0 {
			continue
		}
		if name == "Retry-After" {
			return time.Duration(seconds) * time.Second
		}
		if wait := time.Unix(seconds, 0).Sub(now); wait > 0 {
			return wait
		}
	}
	return throttledFor
}
