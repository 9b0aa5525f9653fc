package main

import (
	"errors"
	"regexp"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/smithy-go"

	"github.com/grpc-ccm/grpc-ccm/providers/go/contract"
)

// The cloud wraps some errors of AWS's SDK only as text.
var (
	apiError    = regexp.MustCompile(`\bapi error ([\w.]+):`)
	serverError = regexp.MustCompile(`\bStatusCode: 5\d\d\b`)
	// The errors of the cloud's own code for a Service that it refuses.
	refused = regexp.MustCompile(`(?i)^(unsupported|invalid) (load balancer affinity|backend protocol|health check|ClusterServiceLoadBalancerHealthProbeMode)|cannot be specified for AWS ELB|the only value supported|error parsing service annotation|failed to parse annotation|failed parsing health check annotation|health check parameters are invalid|not supported (for|by) (LoadBalancer|NLB)|only supported for NLB|^cannot update Load Balancer Type annotation|^error validating target group attributes`)
	// A Service that needs other subnets than those that the cloud finds.
	subnets = regexp.MustCompile(`could not find any suitable subnets|Must have same number of [\w ]+ \(\d+\) and SubnetIDs|^expected to find \d+, but found \d+ subnets`)
)

// classify returns the contract's code for AWS's error codes, for errors of the cloud's own code, and for the SDK's errors without an answer of AWS.
func classify(err error) contract.FailureCode {
	var said smithy.APIError
	var code string
	if errors.As(err, &said) {
		code = said.ErrorCode()
	} else if found := apiError.FindStringSubmatch(err.Error()); found != nil {
		code = found[1]
	}
	if _, throttled := retry.DefaultThrottleErrorCodes[code]; throttled {
		return contract.FailureCode_FAILURE_CODE_THROTTLED
	}
	switch code {
	case "AccessDenied", "AccessDeniedException", "AuthFailure", "ExpiredToken", "InvalidClientTokenId", "OptInRequired", "SignatureDoesNotMatch",
		"UnauthorizedOperation", "UnrecognizedClientException":
		return contract.FailureCode_FAILURE_CODE_CREDENTIALS
	case "ServiceUnavailable", "Unavailable", "InternalError", "InternalFailure":
		return contract.FailureCode_FAILURE_CODE_UNAVAILABLE
	case "CertificateNotFound", "InsufficientFreeAddressesInSubnet", "SubnetNotFound":
		return contract.FailureCode_FAILURE_CODE_PRECONDITION
	case "RouteAlreadyExists":
		return contract.FailureCode_FAILURE_CODE_CONFLICT
	case "ValidationError", "InvalidConfigurationRequest":
		return contract.FailureCode_FAILURE_CODE_INVALID
	}
	text := err.Error()
	switch {
	// Quotas: TooManyLoadBalancers, RulesPerSecurityGroupLimitExceeded.
	case strings.HasPrefix(code, "TooMany"), strings.HasSuffix(code, "LimitExceeded"):
		return contract.FailureCode_FAILURE_CODE_PRECONDITION
	// A named object does not exist: InvalidInstanceID.NotFound.
	case strings.HasSuffix(code, ".NotFound"):
		return contract.FailureCode_FAILURE_CODE_PRECONDITION
	case strings.HasPrefix(code, "InvalidParameter"), code == "" && refused.MatchString(text):
		return contract.FailureCode_FAILURE_CODE_INVALID
	case code == "" && subnets.MatchString(text):
		return contract.FailureCode_FAILURE_CODE_PRECONDITION
	case strings.Contains(text, "failed to refresh cached credentials"), strings.Contains(text, "failed to retrieve credentials"):
		return contract.FailureCode_FAILURE_CODE_CREDENTIALS
	case strings.Contains(text, "request send failed"), serverError.MatchString(text):
		return contract.FailureCode_FAILURE_CODE_UNAVAILABLE
	}
	return contract.FailureCode_FAILURE_CODE_UNSPECIFIED
}
