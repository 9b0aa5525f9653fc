// A provider of the cloud provider contract in Go, on the SDK (../sdk). It serves all services of the contract.
//
//	go run ./sample --state /tmp/cloud.json --endpoint unix:///tmp/cloud/provider.sock
//	go run ./sample probe --endpoint unix:///tmp/cloud/provider.sock
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"strings"
	"time"

	"github.com/grpc-ccm/grpc-ccm/providers/go/sdk"
)

// The most Nodes in one lookup, and the most routes in one call.
const maxBatch = 500

// Settings describe the provider and its cloud. All providers of one cloud must have the same.
type Settings struct {
	Name, Prefix, CloudScope string
	Pools                    []string
	// The served values of spec.loadBalancerClass. The provider also serves Services without a class.
	Classes     []string
	SourceTypes []string
	// How long the cloud takes to make a load balancer, and to delete one.
	Provisioning time.Duration
}

// Provider is a provider of this cloud.
type Provider struct {
	cloud    *Cloud
	settings Settings
	feed     *sdk.Feed
}

// NewProvider returns a provider of this cloud.
func NewProvider(cloud *Cloud, settings Settings) *Provider {
	p := &Provider{cloud, settings, sdk.NewFeed(1024)}
	cloud.OnForeignChange = p.note
	return p
}

// Info describes the provider. The SDK finds the offered services by the provider's methods.
func (p *Provider) Info() sdk.Info {
	return sdk.Info{
		Name:               p.settings.Name,
		Version:            "1.0.0",
		ProviderIDPrefixes: []string{p.settings.Prefix},
		Instances:          sdk.InstanceOptions{MaxBatch: maxBatch, PowerState: true},
		LoadBalancers: sdk.LoadBalancerOptions{
			Classes: p.settings.Classes,
			InSync:  true,
			Features: []sdk.ServiceFeature{
				sdk.FeatureSourceRanges, sdk.FeatureSessionAffinity, sdk.FeatureExternalTrafficPolicyLocal, sdk.FeatureUDP, sdk.FeatureSCTP, sdk.FeatureDualStack, sdk.FeatureIPMode,
				sdk.FeatureLoadBalancerIP, sdk.FeatureAppProtocol,
			},
			MaxInFlight: 16,
		},
		Routes:  sdk.RouteOptions{MaxBatch: maxBatch, MaxInFlight: 4},
		Volumes: sdk.VolumeOptions{SourceTypes: p.settings.SourceTypes},
	}
}

// Initialize reads the cloud once, which shows whether the credentials work (PROV-3).
func (p *Provider) Initialize(ctx context.Context, _ *sdk.Call, _ sdk.InitializeRequest) (sdk.Initialized, error) {
	_, err := p.cloud.Read(ctx, 0)
	return sdk.Initialized{CloudScope: p.settings.CloudScope}, err
}

// Health reports from memory (PROV-4) how the last operation ended. An operation that failed after
// the end of its call does not count.
func (p *Provider) Health() sdk.Health {
	lastSuccess, trouble := p.cloud.Health()
	health := sdk.Health{LastCloudSuccess: lastSuccess}
	if trouble != "" {
		health.State, health.Message = sdk.HealthDegraded, trouble
	}
	return health
}

func main() {
	sdk.HandleProbe()
	log.SetFlags(log.LstdFlags | log.Lmicroseconds)
	state := flag.String("state", "", "the cloud: a state file (see providers/README.md); created if it does not exist")
	endpoint := flag.String("endpoint", sdk.DefaultEndpoint, "where to serve")
	name := flag.String("name", "mock", "the provider's name")
	prefix := flag.String("prefix", "mock://", "the prefix of provider IDs")
	scope := flag.String("cloud-scope", "mock account, mock region", "account, project and region")
	pools := flag.String("pools", "192.0.2.0/24,2001:db8::/112", "addresses of load balancers: CIDRs, separated by commas")
	provisioning := flag.Int("provisioning-ms", 0, "how long the cloud takes to create and to delete a load balancer")
	peerUID := flag.Int("peer-uid", -1, "accept only connections of this user and of our own; if negative, of everybody whom the socket's mode admits")
	flag.Parse()
	if *state == "" || flag.NArg() > 0 {
		fmt.Fprintln(os.Stderr, "--state is missing, or there is an argument that is no flag; give the cloud's state file, such as --state cloud.json")
		os.Exit(2)
	}
	cloud, err := Open(*state)
	if err != nil {
		log.Fatal(err)
	}
	settings := Settings{
		Name: *name, Prefix: *prefix, CloudScope: *scope, Pools: strings.Split(*pools, ","),
		Classes: []string{"mock.grpc-ccm.io/lb"}, SourceTypes: []string{"csi/disk.mock.grpc-ccm.io"}, Provisioning: time.Duration(*provisioning) * time.Millisecond,
	}
	server := sdk.Server{Provider: NewProvider(cloud, settings), Endpoint: *endpoint}
	if *peerUID >= 0 {
		server.PeerUID = peerUID
	}
	if err := server.Run(); err != nil {
		log.Fatal(err)
	}
}
