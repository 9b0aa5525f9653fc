package bridge

import (
	"errors"
	"fmt"
	"testing"

	utilerrors "k8s.io/apimachinery/pkg/util/errors"

	"github.com/grpc-ccm/grpc-ccm/providers/go/contract"
)

const (
	unspecified = contract.FailureCode_FAILURE_CODE_UNSPECIFIED
	throttled   = contract.FailureCode_FAILURE_CODE_THROTTLED
	credentials = contract.FailureCode_FAILURE_CODE_CREDENTIALS
	unavailable = contract.FailureCode_FAILURE_CODE_UNAVAILABLE
	invalidCode = contract.FailureCode_FAILURE_CODE_INVALID
)

func TestTheStatusOfAnHTTPAnswerIsFoundInTheTextOfAnError(t *testing.T) {
	for text, wanted := range map[string]contract.FailureCode{
		`checking if the machine exists: GET https://api.example/v2/machines/3164444: 429 (request "9f1c4a07") API Rate limit exceeded.`:                  throttled,
		`failed to update load-balancer with ID 4de7ac8b: PUT https://api.example/v2/load_balancers/4de7ac8b: 422 (request "a1") droplets must be unique`: invalidCode,
		`getting droplet by ID: GET https://api.example/v2/droplets/500: 401 Unable to authenticate you`:                                                  credentials,
		`operation error EC2: DescribeInstances, https response error StatusCode: 403, RequestID: 0a1b, api error UnauthorizedOperation: not authorized`:  credentials,
		`googleapi: Error 403: Quota exceeded for quota metric, rateLimitExceeded`:                                                                        credentials,
		`Expected HTTP response code [200 204 300] when accessing [GET https://compute.example/v2.1/servers], but got 503 instead`:                        unavailable,
		`server responded with status code 503`:                               unavailable,
		`unexpected status: 429 Too Many Requests`:                            throttled,
		`[POST /network/lbs][502] Bad Gateway: upstream says 502 Bad Gateway`: unavailable,
		`{"status":500,"message":"boom"}`:                                     unavailable,
		`HTTP 504`:                                                            unavailable,
		`HTTP error: 400`:                                                     invalidCode,
		`request failed: HTTP/1.1 401 Unauthorized`:                           credentials,
		`POST https://api.example/v2/load_balancers: 402 (request "a1") the account's quota is used up`: contract.FailureCode_FAILURE_CODE_PRECONDITION,
		// None of these has a status that gives a code.
		`droplet 503 for node a-429 does not exist`:                            unspecified,
		`no ready nodes available for load balancer`:                           unspecified,
		`dial tcp 10.0.0.5:443: connect: connection refused`:                   unspecified,
		`the quota of 500 droplets is used up`:                                 unspecified,
		`port 500: 422 rules are too many`:                                     unspecified,
		`getting load balancer lb-401: not found`:                              unspecified,
		`GET https://api.example/v2/droplets/429: 404 (request "x") not found`: unspecified,
		`retried after 503 Seconds`:                                            unspecified,
		`error 500 nodes are too many`:                                         unspecified,
		`the health check wants status code 200`:                               unspecified,
		// Two statuses that contradict each other.
		`[GET https://api.example/a: 429 slow down, GET https://api.example/b: 401 no]`: unspecified,
		`[GET https://api.example/a: 404 no, GET https://api.example/b: 429 slow down]`: unspecified,
	} {
		for how, err := range map[string]error{
			"as it is": errors.New(text), "as text": fmt.Errorf("node a: %s", text), "wrapped": fmt.Errorf("node a: %w", errors.New(text)), "in an aggregate": utilerrors.NewAggregate([]error{errors.New(text)}),
		} {
			if got := ClassifyHTTPStatus(err); got != wanted {
				t.Errorf("%s, %s: %s, not %s", text, how, got, wanted)
			}
		}
	}
	if got := ClassifyHTTPStatus(nil); got != unspecified {
		t.Errorf("nil is %s", got)
	}
	// The status of an error takes precedence over its text.
	if got := ClassifyHTTPStatus(fmt.Errorf("status code 500: %w", answeredWith(429))); got != throttled {
		t.Errorf("an error with a status: %s", got)
	}
}

type answeredWith int

func (a answeredWith) Error() string       { return "no" }
func (a answeredWith) HTTPStatusCode() int { return int(a) }
