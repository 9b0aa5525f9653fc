package bridge

import (
	"errors"
	"net/http"
	"regexp"
	"strconv"
	"strings"

	"github.com/grpc-ccm/grpc-ccm/providers/go/contract"
)

// ClassifyHTTPStatus is an [Options.Classify] for clouds behind an HTTP API. It takes the status from an error that has one (StatusCode or
// HTTPStatusCode), else from the text, because some clouds wrap errors as text. 401 and 403 are CREDENTIALS, 402 is PRECONDITION, 429 is THROTTLED, 400
// and 422 are INVALID, and 408 and 500 to 599 are UNAVAILABLE. It returns UNSPECIFIED for others, and for texts with contradicting statuses. A vendor
// can check the codes of its own API first:
//
//	Classify: func(err error) contract.FailureCode {
//		if errors.Is(err, errQuota) {
//			return contract.FailureCode_FAILURE_CODE_PRECONDITION
//		}
//		return bridge.ClassifyHTTPStatus(err)
//	}
func ClassifyHTTPStatus(err error) contract.FailureCode {
	var long interface{ HTTPStatusCode() int }
	var short interface{ StatusCode() int }
	switch {
	case err == nil:
		return contract.FailureCode_FAILURE_CODE_UNSPECIFIED
	case errors.As(err, &long):
		return codeOf(long.HTTPStatusCode())
	case errors.As(err, &short):
		return codeOf(short.StatusCode())
	}
	code := contract.FailureCode_FAILURE_CODE_UNSPECIFIED
	for i, status := range statusesIn(err.Error()) {
		next := codeOf(status)
		if i > 0 && next != code {
			return contract.FailureCode_FAILURE_CODE_UNSPECIFIED
		}
		code = next
	}
	return code
}

func codeOf(status int) contract.FailureCode {
	switch {
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		return contract.FailureCode_FAILURE_CODE_CREDENTIALS
	case status == http.StatusTooManyRequests:
		return contract.FailureCode_FAILURE_CODE_THROTTLED
	case status == http.StatusPaymentRequired:
		return contract.FailureCode_FAILURE_CODE_PRECONDITION
	case status == http.StatusBadRequest, status == http.StatusUnprocessableEntity:
		return contract.FailureCode_FAILURE_CODE_INVALID
	case status == http.StatusRequestTimeout, status >= http.StatusInternalServerError && status < 600:
		return contract.FailureCode_FAILURE_CODE_UNAVAILABLE
	default:
		return contract.FailureCode_FAILURE_CODE_UNSPECIFIED
	}
}

// The forms in which the texts of SDKs have a status. A number alone does not count: it may be a port, a count or an ID.
var statusTexts = []*regexp.Regexp{
	// GET https://api.example/v2/things/1: 429 (request "x") slow down
	regexp.MustCompile(`\b(?:GET|HEAD|POST|PUT|PATCH|DELETE) \S+: ([45]\d\d)\b`),
	// StatusCode: 503, status code 429, HTTP 429, HTTP status: 503, "status":503, http/1.1 401
	regexp.MustCompile(`(?i)(?:\bstatus[ _-]?code|\bhttp(?:/\d(?:\.\d)?)?(?: (?:response |error )?(?:status|code|error)(?: code)?)?|\bresponse code|"(?:status|code)")["']?\s*(?:of|was|is|[:=])?\s*["'(\[]*([45]\d\d)\b`),
	// googleapi: Error 403: quota
	regexp.MustCompile(`\bError (?:code )?([45]\d\d):`),
	// Expected HTTP response code [200] when accessing [GET https://x], but got 503 instead
	regexp.MustCompile(`\bbut got ([45]\d\d) instead\b`),
}

// reasons matches statuses with their standard texts: 429 Too Many Requests.
var reasons = regexp.MustCompile(`\b([45]\d\d):? ([A-Z][A-Za-z'-]+(?: [A-Z][A-Za-z'-]+)*)`)

// statusesIn returns the statuses of failures in a text.
func statusesIn(text string) []int {
	var found []int
	add := func(digits string) {
		if status, err := strconv.Atoi(digits); err == nil {
			found = append(found, status)
		}
	}
	for _, form := range statusTexts {
		for _, match := range form.FindAllStringSubmatch(text, -1) {
			add(match[1])
		}
	}
	for _, match := range reasons.FindAllStringSubmatch(text, -1) {
		if status, err := strconv.Atoi(match[1]); err == nil && http.StatusText(status) != "" && strings.HasPrefix(match[2], http.StatusText(status)) {
			add(match[1])
		}
	}
	return found
}
