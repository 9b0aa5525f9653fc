// Command clouds serves, over the bridge, the clouds by which it is proven: k8s.io/cloud-provider/fake, k8s.io/cloud-provider-aws as it is, and two of the shapes that
// are in use. One binary for all: a build of AWS's SDK is large. `clouds file` changes the cloud of the shapes from outside.
package main

import (
	"errors"
	"os"
	"regexp"
	"strings"

	"github.com/aws/smithy-go"

	"github.com/grpc-ccm/grpc-ccm/providers/go/bridge"
	"github.com/grpc-ccm/grpc-ccm/providers/go/contract"

	aws "k8s.io/cloud-provider-aws/pkg/providers/v1"

	"github.com/grpc-ccm/grpc-ccm/providers/go/bridge/shapes/annotated"
	"github.com/grpc-ccm/grpc-ccm/providers/go/bridge/shapes/instancesv1"
	"github.com/grpc-ccm/grpc-ccm/providers/go/bridge/shapes/store"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == "file" {
		os.Exit(file(os.Args[2:]))
	}
	os.Exit(bridge.Main(cloud(), optionsOf(cloud())))
}

// cloud is the one that --cloud-provider=NAME asks for: what it offers must be known before the flags are read.
func cloud() string {
	for _, argument := range os.Args[1:] {
		if name, ok := strings.CutPrefix(argument, "--cloud-provider="); ok {
			return name
		}
	}
	return ""
}

func optionsOf(cloud string) bridge.Options {
	options := bridge.Options{Version: "0.0.1"}
	switch cloud {
	case aws.ProviderName:
		options.Features = []contract.ServiceFeature{
			contract.ServiceFeature_SERVICE_FEATURE_SOURCE_RANGES,
			contract.ServiceFeature_SERVICE_FEATURE_EXTERNAL_TRAFFIC_POLICY_LOCAL,
			contract.ServiceFeature_SERVICE_FEATURE_UDP,
		}
		options.ConcurrentServices = 8
		options.Classify = classifyAWS
	case "fake":
		options.VolumeSources = []string{"csi/" + fakeDriver}
		options.Classify = classifyShapes
	case instancesv1.Name, annotated.Name:
		options.Features = []contract.ServiceFeature{contract.ServiceFeature_SERVICE_FEATURE_SOURCE_RANGES}
		options.ConcurrentServices = 8
		options.Classify = classifyShapes
	}
	if cloud == annotated.Name {
		// As DigitalOcean's, it never says that it has a cluster ID.
		options.AllowUntagged = true
	}
	return options
}

// apiError finds the code in the text of an error of AWS's SDK: the cloud wraps some by their text alone.
var apiError = regexp.MustCompile(`\bapi error (\w+):`)

// classifyAWS reads the codes of AWS's errors.
func classifyAWS(err error) contract.FailureCode {
	var said smithy.APIError
	var code string
	if errors.As(err, &said) {
		code = said.ErrorCode()
	} else if found := apiError.FindStringSubmatch(err.Error()); found != nil {
		code = found[1]
	}
	switch code {
	case "Throttling", "ThrottlingException", "RequestLimitExceeded", "TooManyRequestsException":
		return contract.FailureCode_FAILURE_CODE_THROTTLED
	case "AuthFailure", "InvalidClientTokenId", "ExpiredToken", "SignatureDoesNotMatch", "UnrecognizedClientException":
		return contract.FailureCode_FAILURE_CODE_CREDENTIALS
	case "ServiceUnavailable", "Unavailable", "InternalError", "InternalFailure":
		return contract.FailureCode_FAILURE_CODE_UNAVAILABLE
	case "ResourceLimitExceeded", "TooManyLoadBalancers", "InsufficientFreeAddressesInSubnet", "SubnetNotFound", "RulesPerSecurityGroupLimitExceeded":
		return contract.FailureCode_FAILURE_CODE_PRECONDITION
	default:
		return contract.FailureCode_FAILURE_CODE_UNSPECIFIED
	}
}

func classifyShapes(err error) contract.FailureCode {
	switch {
	case errors.Is(err, store.ErrThrottled):
		return contract.FailureCode_FAILURE_CODE_THROTTLED
	case errors.Is(err, store.ErrCredentials):
		return contract.FailureCode_FAILURE_CODE_CREDENTIALS
	case errors.Is(err, store.ErrUnavailable):
		return contract.FailureCode_FAILURE_CODE_UNAVAILABLE
	case errors.Is(err, store.ErrQuota):
		return contract.FailureCode_FAILURE_CODE_PRECONDITION
	default:
		return contract.FailureCode_FAILURE_CODE_UNSPECIFIED
	}
}
