// Command clouds serves, over the bridge, the clouds of tests: k8s.io/cloud-provider/fake, the shapes, and the adapter of the contract. `clouds file`
// changes the state of a cloud from outside, and `clouds go-ccm` is upstream's cloud-controller-manager with one of them.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/grpc-ccm/grpc-ccm/providers/go/bridge"
	"github.com/grpc-ccm/grpc-ccm/providers/go/contract"

	cloudprovider "k8s.io/cloud-provider"

	"example.invalid/testenv/control-plane/adapter"
	"example.invalid/testenv/control-plane/lifeline"

	"github.com/grpc-ccm/grpc-ccm/providers/go/bridge/shapes/annotated"
	"github.com/grpc-ccm/grpc-ccm/providers/go/bridge/shapes/byid"
	"github.com/grpc-ccm/grpc-ccm/providers/go/bridge/shapes/careless"
	"github.com/grpc-ccm/grpc-ccm/providers/go/bridge/shapes/instancesv1"
	"github.com/grpc-ccm/grpc-ccm/providers/go/bridge/shapes/lister"
	"github.com/grpc-ccm/grpc-ccm/providers/go/bridge/shapes/marked"
	"github.com/grpc-ccm/grpc-ccm/providers/go/bridge/shapes/store"
)

func main() {
	lifeline.DieWithStdin()
	if len(os.Args) > 1 && os.Args[1] == "file" {
		os.Exit(file(os.Args[2:]))
	}
	byid.Register()
	careless.Register()
	adapter.Register()
	if len(os.Args) > 1 && os.Args[1] == "go-ccm" {
		os.Args = os.Args[1:]
		os.Exit(goCCM())
	}
	os.Exit(bridge.Main(cloud(), optionsOf(cloud())))
}

// cloud returns the name in --cloud-provider=NAME. It is needed before the flags are parsed, because the options depend on it.
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
	case "fake":
		options.VolumeSources = []string{"csi/" + fakeDriver}
		options.Classify = classifyShapes
	case instancesv1.Name, annotated.Name, byid.Name, careless.Name, marked.Name:
		options.Features = []contract.ServiceFeature{contract.ServiceFeature_SERVICE_FEATURE_SOURCE_RANGES}
		options.ConcurrentServices = 8
		options.Classify = classifyShapes
	}
	switch cloud {
	case annotated.Name:
		// Like DigitalOcean's cloud, this one never reports a cluster ID.
		options.AllowUntagged = true
	case byid.Name:
		options.Classify = bridge.ClassifyHTTPStatus
	case careless.Name:
		options.GetBeforeUpdate = true
	case lister.Name:
		options.New = newLister
		options.Offers = []string{"instances", "load-balancers", "routes"}
		options.Classify = classifyLister
	}
	return options
}

// newLister makes the cloud lister, as the cloud's own main would.
func newLister(_ context.Context, deps bridge.Deps) (cloudprovider.Interface, error) {
	text, err := os.ReadFile(deps.CloudConfig)
	if err != nil {
		return nil, err
	}
	state, ok := strings.CutPrefix(strings.TrimSpace(string(text)), "state: ")
	if !ok {
		return nil, fmt.Errorf("%s does not say state: FILE", deps.CloudConfig)
	}
	return lister.NewCloud(state, strings.Join(deps.ClusterCIDRs, ","), deps.Nodes)
}

// classifyLister reads the code, a word at the end of the API's texts.
func classifyLister(err error) contract.FailureCode {
	for words, code := range map[string]contract.FailureCode{
		"(too_many_requests)":    contract.FailureCode_FAILURE_CODE_THROTTLED,
		"(unauthorized)":         contract.FailureCode_FAILURE_CODE_CREDENTIALS,
		"(service_unavailable)":  contract.FailureCode_FAILURE_CODE_UNAVAILABLE,
		"(payment_required)":     contract.FailureCode_FAILURE_CODE_PRECONDITION,
		"(unprocessable_entity)": contract.FailureCode_FAILURE_CODE_INVALID,
	} {
		if strings.HasSuffix(err.Error(), words) {
			return code
		}
	}
	return contract.FailureCode_FAILURE_CODE_UNSPECIFIED
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
	case errors.Is(err, store.ErrInvalid):
		return contract.FailureCode_FAILURE_CODE_INVALID
	default:
		return contract.FailureCode_FAILURE_CODE_UNSPECIFIED
	}
}
