// Command aws serves k8s.io/cloud-provider-aws, unchanged, as a provider of the cloud provider contract. See README.md.
package main

import (
	"os"
	"time"

	"github.com/grpc-ccm/grpc-ccm/providers/go/bridge"
	"github.com/grpc-ccm/grpc-ccm/providers/go/contract"

	aws "k8s.io/cloud-provider-aws/pkg/providers/v1"
)

func main() { os.Exit(bridge.Main(aws.ProviderName, options)) }

var options = bridge.Options{
	Version: "0.1.0",
	Features: []contract.ServiceFeature{
		contract.ServiceFeature_SERVICE_FEATURE_SOURCE_RANGES,
		contract.ServiceFeature_SERVICE_FEATURE_EXTERNAL_TRAFFIC_POLICY_LOCAL,
		contract.ServiceFeature_SERVICE_FEATURE_UDP,
	},
	// Two Services with network load balancers read and write the rules of the same security groups without a lock.
	ConcurrentServices: 1,
	// A Delete waits up to 10 min for its security groups. If it is cut, the next one finds no load balancer and leaves them. The bridge cuts at 70 %.
	Deadlines: bridge.DeadlineHints{LoadBalancer: 15 * time.Minute},
	Classify:  classify,
}
