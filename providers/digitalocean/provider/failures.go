package provider

import (
	"encoding/json"
	"errors"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/digitalocean/godo"

	"github.com/grpc-ccm/grpc-ccm/providers/go/sdk"
)

// The wait after a 429 that states no time. In this time about a quarter of the 250 calls a minute
// becomes free.
const throttledFor = 15 * time.Second

// Parts of DigitalOcean's messages for errors that its status alone does not distinguish.
const (
	nameTaken = "name is not unique"
	busy      = "while it processes previous actions"
)

var quota = regexp.MustCompile(`(?i)\b(limit|quota|exceed(s|ed)?)\b`)

// answered returns the status and message of the API's answer, if err has one.
func answered(err error) (status int, message string) {
	var response *godo.ErrorResponse
	if errors.As(err, &response) && response.Response != nil {
		return response.Response.StatusCode, response.Message
	}
	return 0, ""
}

// refused wraps the API's answer in a failure without repeating its text.
type refused struct{ err error }

func (r *refused) Error() string { return "" }

func (r *refused) Unwrap() error { return r.err }

func isNotFound(err error) bool {
	status, _ := answered(err)
	return status == http.StatusNotFound
}

// isBusy reports whether the API refuses a write because it works on the load balancer. It can answer 403 for that, the status for missing rights.
func isBusy(err error) bool {
	status, message := answered(err)
	return (status == http.StatusForbidden || status == http.StatusConflict || status == http.StatusUnprocessableEntity) && strings.Contains(message, busy)
}

func isNameTaken(err error) bool {
	status, message := answered(err)
	return status == http.StatusUnprocessableEntity && strings.Contains(message, nameTaken)
}

// failureOf returns the failure of the contract for an error of the API (CORE-15). The argument `what` describes the attempt.
func failureOf(what string, err error) *sdk.Failure {
	var failure *sdk.Failure
	if errors.As(err, &failure) {
		return failure
	}
	var response *godo.ErrorResponse
	if !errors.As(err, &response) || response.Response == nil {
		var syntax *json.SyntaxError
		var kind *json.UnmarshalTypeError
		if errors.As(err, &syntax) || errors.As(err, &kind) {
			return sdk.Internal("%s: the answer of DigitalOcean's API cannot be read: %w", what, err).Because("AnswerNotUnderstood")
		}
		return sdk.Unavailable("%s: DigitalOcean's API does not answer: %w", what, err).Because("APIUnreachable")
	}
	status, message := response.Response.StatusCode, response.Message
	if response.RequestID != "" {
		message += " (request " + response.RequestID + ")"
	}
	switch {
	case status == http.StatusUnauthorized:
		return sdk.Credentials("%s: DigitalOcean refuses the token: %s", what, message).Because("TokenRefused")
	case isBusy(err):
		return sdk.Busy("%s: %s", what, message)
	case status == http.StatusForbidden:
		return sdk.Credentials("%s: the token lacks a right: %s; docs/digitalocean.md says which it needs", what, message).Because("TokenLacksRight")
	case status == http.StatusPaymentRequired:
		return sdk.Precondition("%s: %s", what, message).Because("PaymentRequired")
	case status == http.StatusTooManyRequests:
		return sdk.Throttled(waitOf(response.Response.Header, time.Now()), "%s: DigitalOcean asks to slow down: %s", what, message)
	case (status == http.StatusUnprocessableEntity || status == http.StatusBadRequest || status == http.StatusConflict) && quota.MatchString(message):
		return sdk.Precondition("%s: %s", what, message).Because("QuotaReached")
	case status == http.StatusUnprocessableEntity || status == http.StatusBadRequest || status == http.StatusConflict:
		return sdk.Invalid("%s: DigitalOcean refuses it: %s%w", what, message, &refused{err}).Because("RefusedByDigitalOcean")
	case status >= 500:
		return sdk.Unavailable("%s: DigitalOcean's API fails with %d: %s", what, status, message).Because("APIFails")
	default:
		return sdk.Internal("%s: DigitalOcean's API answers %d, which this provider does not know: %s", what, status, message).Because("AnswerNotUnderstood")
	}
}

// waitOf returns the wait that a 429 asks for. If the calls of a minute are used up, the answer has Retry-After. Otherwise ratelimit-reset has the time at which a call
// of the hour becomes free.
func waitOf(header http.Header, now time.Time) time.Duration {
	if seconds, err := strconv.Atoi(header.Get("Retry-After")); err == nil && seconds > 0 {
		return time.Duration(seconds) * time.Second
	}
	if reset, err := strconv.ParseInt(header.Get("Ratelimit-Reset"), 10, 64); err == nil {
		if wait := time.Unix(reset, 0).Sub(now); wait > 0 {
			return wait
		}
	}
	return throttledFor
}
