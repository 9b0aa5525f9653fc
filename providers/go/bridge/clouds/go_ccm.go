package main

import (
	"context"
	"fmt"
	"os"
	"strings"

	"k8s.io/apimachinery/pkg/util/wait"
	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/cloud-provider/app"
	"k8s.io/cloud-provider/app/config"
	"k8s.io/cloud-provider/names"
	"k8s.io/cloud-provider/options"
	"k8s.io/component-base/cli"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/klog/v2"

	"github.com/grpc-ccm/grpc-ccm/providers/go/bridge"
	"github.com/grpc-ccm/grpc-ccm/providers/go/bridge/shapes/lister"

	// Logging and metrics as upstream's cloud-controller-manager links them.
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
)

// goCCM runs upstream's cloud-controller-manager with the same clouds, as their vendors build it. Tests compare the calls that a cloud gets from it with
// those that it gets from the bridge.
func goCCM() int {
	made, err := options.NewCloudControllerManagerOptions()
	if err != nil {
		fmt.Fprintln(os.Stderr, "clouds go-ccm:", err)
		return 1
	}
	return cli.Run(app.NewCloudControllerManagerCommand(
		made, registered, app.DefaultInitFuncConstructors, names.CCMControllerAliases(), cliflag.NamedFlagSets{}, wait.NeverStop,
	))
}

// registered returns the cloud that --cloud-provider and --cloud-config name. It runs without a cluster ID if the operator allows that, as in upstream's
// example of a main.
func registered(completed *config.CompletedConfig) cloudprovider.Interface {
	shared := completed.ComponentConfig.KubeCloudShared
	wanted := shared.CloudProvider
	var cloud cloudprovider.Interface
	var err error
	if wanted.Name == lister.Name {
		cloud, err = newLister(context.Background(), bridge.Deps{
			CloudConfig: wanted.CloudConfigFile, ClusterCIDRs: strings.Split(shared.ClusterCIDR, ","), Nodes: completed.SharedInformers.Core().V1().Nodes().Lister(),
		})
	} else {
		cloud, err = cloudprovider.InitCloudProvider(wanted.Name, wanted.CloudConfigFile)
	}
	switch {
	case err != nil:
		klog.Fatalf("the cloud cannot be used: %v", err)
	case cloud == nil:
		klog.Fatalf("no cloud is named: set --cloud-provider")
	case !cloud.HasClusterID() && !shared.AllowUntaggedCloud:
		klog.Fatalf("the cloud has no cluster ID: set --allow-untagged-cloud")
	}
	return cloud
}
