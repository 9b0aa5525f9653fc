// Command aws serves k8s.io/cloud-provider-aws, unchanged, as a provider of the cloud provider contract. See README.md.
package main

import (
	"os"

	"github.com/grpc-ccm/grpc-ccm/providers/go/bridge"
	"github.com/grpc-ccm/grpc-ccm/providers/go/contract"

	aws "k8s.io/cloud-provider-aws/pkg/providers/v1"
)

func main() {
	os.Exit(bridge.Main(aws.ProviderName, bridge.Options{
		Version: "0.1.0",
		Features: []contract.ServiceFeature{
			contract.ServiceFeature_SERVICE_FEATURE_SOURCE_RANGES,
			contract.ServiceFeature_SERVICE_FEATURE_EXTERNAL_TRAFFIC_POLICY_LOCAL,
			contract.ServiceFeature_SERVICE_FEATURE_UDP,
		},
		ConcurrentServices: 8,
		Classify:           classify,
	}))
}
