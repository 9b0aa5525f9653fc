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

// The wait after a 429 without a time: it refills a quarter of the limit of 250 calls a minute.
const throttledFor = 15 * time.Second

// DigitalOcean's words for what its status alone does not tell.
const (
	nameTaken = "name is not unique"
	busy      = "while it processes previous actions"
)

var quota = regexp.MustCompile(`(?i)\b(limit|quota|exceed(s|ed)?)\b`)

// The answer of the API, if err is one.
func answered(err error) (status int, message string) {
	var response *godo.ErrorResponse
	if errors.As(err, &response) && response.Response != nil {
		return response.Response.StatusCode, response.Message
	}
	return 0, ""
}

// refused keeps the API's answer behind a failure that has said it.
type refused struct{ err error }

func (r *refused) Error() string { return "" }

func (r *refused) Unwrap() error { return r.err }

func isNotFound(err error) bool {
	status, _ := answered(err)
	return status == http.StatusNotFound
}

// The API refuses a write while it works on the load balancer. It says so with 403, which else is a lack of rights.
func isBusy(err error) bool {
	status, message := answered(err)
	return (status == http.StatusForbidden || status == http.StatusConflict || status == http.StatusUnprocessableEntity) && strings.Contains(message, busy)
}

func isNameTaken(err error) bool {
	status, message := answered(err)
	return status == http.StatusUnprocessableEntity && strings.Contains(message, nameTaken)
}

// failureOf says an error of the API as the contract does (CORE-15). what is what was tried.
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

// The wait that a 429 asks for. It has Retry-After if the limit of a minute is reached. ratelimit-reset is the time at which a call of the hour
// becomes free.
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
