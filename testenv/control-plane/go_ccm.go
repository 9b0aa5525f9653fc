package main

import (
	"fmt"
	"os"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/cloud-provider/app"
	"k8s.io/cloud-provider/app/config"
	"k8s.io/cloud-provider/names"
	"k8s.io/cloud-provider/options"
	"k8s.io/component-base/cli"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/klog/v2"

	"example.invalid/testenv/control-plane/adapter"

	// Logging and metrics as every upstream cloud-controller-manager links them.
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
)

// runGoCCM runs upstream's cloud-controller-manager as any Go vendor builds it. With
// --cloud-provider=bench its cloud is the one in bench_cloud.go. With --cloud-provider=grpc-ccm its
// cloud is a provider of the contract (package adapter).
//
// GO_CCM_LATENCY is how long each call of the bench cloud takes (default 50ms); GO_CCM_CALLS names
// a file that receives the number of calls by method, as JSON, once a second and at the end;
// GO_CCM_MACHINES names a file with the states of its machines (type machines).
func runGoCCM() int {
	latency := 50 * time.Millisecond
	if text := os.Getenv("GO_CCM_LATENCY"); text != "" {
		parsed, err := time.ParseDuration(text)
		if err != nil {
			fmt.Fprintln(os.Stderr, "go-ccm: GO_CCM_LATENCY:", err)
			return 2
		}
		latency = parsed
	}
	calls := newCallCounter(latency)
	if path := os.Getenv("GO_CCM_CALLS"); path != "" {
		stop := calls.writeTo(path)
		defer stop()
	}
	registerBenchCloud(calls, machinesFile(os.Getenv("GO_CCM_MACHINES")))
	adapter.Register()

	ccmOptions, err := options.NewCloudControllerManagerOptions()
	if err != nil {
		fmt.Fprintln(os.Stderr, "go-ccm:", err)
		return 1
	}
	ccmOptions.KubeCloudShared.CloudProvider.Name = cloudName
	command := app.NewCloudControllerManagerCommand(
		ccmOptions,
		initCloud,
		app.DefaultInitFuncConstructors,
		names.CCMControllerAliases(),
		cliflag.NamedFlagSets{},
		wait.NeverStop,
	)
	return cli.Run(command)
}

// initCloud makes the cloud that --cloud-provider and --cloud-config name.
func initCloud(completed *config.CompletedConfig) cloudprovider.Interface {
	wanted := completed.ComponentConfig.KubeCloudShared.CloudProvider
	cloud, err := cloudprovider.InitCloudProvider(wanted.Name, wanted.CloudConfigFile)
	if err != nil {
		klog.Fatalf("the cloud cannot be used: %v", err)
	}
	return cloud
}
