package main

import (
	"errors"
	"fmt"
	"testing"

	"github.com/aws/smithy-go"

	"github.com/grpc-ccm/grpc-ccm/providers/go/contract"
)

func TestErrorsOfAWSMeanWhatTheContractSays(t *testing.T) {
	for code, wanted := range map[string]contract.FailureCode{
		"RequestLimitExceeded":               contract.FailureCode_FAILURE_CODE_THROTTLED,
		"Throttling":                         contract.FailureCode_FAILURE_CODE_THROTTLED,
		"EC2ThrottledException":              contract.FailureCode_FAILURE_CODE_THROTTLED,
		"UnauthorizedOperation":              contract.FailureCode_FAILURE_CODE_CREDENTIALS,
		"AccessDenied":                       contract.FailureCode_FAILURE_CODE_CREDENTIALS,
		"ExpiredToken":                       contract.FailureCode_FAILURE_CODE_CREDENTIALS,
		"InternalError":                      contract.FailureCode_FAILURE_CODE_UNAVAILABLE,
		"TooManyLoadBalancers":               contract.FailureCode_FAILURE_CODE_PRECONDITION,
		"RulesPerSecurityGroupLimitExceeded": contract.FailureCode_FAILURE_CODE_PRECONDITION,
		"InsufficientFreeAddressesInSubnet":  contract.FailureCode_FAILURE_CODE_PRECONDITION,
		"InvalidInstanceID.NotFound":         contract.FailureCode_FAILURE_CODE_PRECONDITION,
		"InvalidParameterValue":              contract.FailureCode_FAILURE_CODE_INVALID,
		"RouteAlreadyExists":                 contract.FailureCode_FAILURE_CODE_CONFLICT,
		"DependencyViolation":                contract.FailureCode_FAILURE_CODE_UNSPECIFIED,
	} {
		api := &smithy.GenericAPIError{Code: code, Message: "played by the test"}
		// Some errors are wrapped, some are text: "error creating load balancer: %q".
		for _, err := range []error{api, fmt.Errorf("describing: %w", api), fmt.Errorf("describing: %q", api)} {
			if got := classify(err); got != wanted {
				t.Errorf("%v is %v; right would be %v", err, got, wanted)
			}
		}
	}
}

func TestAServiceThatTheCodeDoesNotServeIsInvalid(t *testing.T) {
	for _, text := range []string{
		"unsupported load balancer affinity: ClientIP", "LoadBalancerIP cannot be specified for AWS ELB", "mixed protocol is not supported for LoadBalancer",
		"Protocol SCTP not supported by LoadBalancer", "Invalid health check port 'http'",
		`annotation "service.beta.kubernetes.io/aws-load-balancer-proxy-protocol"="tcp" detected, but the only value supported currently is '*'`,
		"error parsing service annotation: service.beta.kubernetes.io/aws-load-balancer-connection-idle-timeout=abc",
		"failed parsing health check annotation value: strconv.ParseInt: parsing \"abc\": invalid syntax", "some of the load balancer health check parameters are invalid: x",
		"failed to parse annotation service.beta.kubernetes.io/aws-load-balancer-healthcheck-interval=abc",
		`cannot update Load Balancer Type annotation "service.beta.kubernetes.io/aws-load-balancer-type" after creation for NLB`,
		`BYO security group annotation "service.beta.kubernetes.io/aws-load-balancer-security-groups" is not supported by NLB`,
		"target group attributes annotation is only supported for NLB",
		`error validating target group attributes: invalid attribute value for "preserve_client_ip.enabled": maybe`,
	} {
		if got := classify(errors.New(text)); got != contract.FailureCode_FAILURE_CODE_INVALID {
			t.Errorf("%q is %v; right would be INVALID", text, got)
		}
	}
}

func TestAServiceThatNeedsOtherSubnetsHasAPrecondition(t *testing.T) {
	for _, text := range []string{
		"could not find any suitable subnets for creating the ELB", "expected to find 2, but found 1 subnets",
		"error creating load balancer: Must have same number of EIP AllocationIDs (1) and SubnetIDs (2)",
		"error creating load balancer: Must have same number of Private IPv4Addresses (1) and SubnetIDs (2)",
	} {
		if got := classify(errors.New(text)); got != contract.FailureCode_FAILURE_CODE_PRECONDITION {
			t.Errorf("%q is %v; right would be PRECONDITION", text, got)
		}
	}
}

func TestWhereNoAnswerCameItIsTheCredentialsOrTheNetwork(t *testing.T) {
	for text, wanted := range map[string]contract.FailureCode{
		"operation error EC2: DescribeInstances, get identity: get credentials: failed to refresh cached credentials, no EC2 IMDS role found":          contract.FailureCode_FAILURE_CODE_CREDENTIALS,
		"operation error EC2: DescribeInstances, https response error StatusCode: 0, RequestID: , request send failed, Post \"https://ec2\": dial tcp": contract.FailureCode_FAILURE_CODE_UNAVAILABLE,
		"operation error Elastic Load Balancing: CreateLoadBalancer, https response error StatusCode: 502, RequestID: x, deserialization failed":       contract.FailureCode_FAILURE_CODE_UNAVAILABLE,
		"unable to find route table for AWS cluster: one": contract.FailureCode_FAILURE_CODE_UNSPECIFIED,
	} {
		if got := classify(errors.New(text)); got != wanted {
			t.Errorf("%q is %v; right would be %v", text, got, wanted)
		}
	}
}
