package provider

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/digitalocean/godo"

	"github.com/grpc-ccm/grpc-ccm/providers/digitalocean/plan"
	"github.com/grpc-ccm/grpc-ccm/providers/go/sdk"
)

// Version is the provider's; the build may set another.
var Version = "0.1.0"

// The most Nodes in one lookup. A thousand Nodes at once are then two lookups, which can share a
// list.
const maxBatch = 500

// Settings are the operator's.
type Settings struct {
	plan.Settings
	// APIURL is the address of DigitalOcean's API.
	APIURL string
	// TokenFile holds the token, and the provider reads it for each call. Token is the token if no file is set.
	TokenFile, Token string
	// WriteID says that Services get the annotation by which DigitalOcean's own controller finds their load balancers.
	WriteID bool
}

// Provider is DigitalOcean.
type Provider struct {
	api      *client
	settings Settings
	now      func() time.Time
	droplets sdk.Shared[[]godo.Droplet]
	gpus     sdk.Shared[[]godo.Droplet]
	lists    sdk.Shared[[]godo.LoadBalancer]
	size     knownSize
	leaving  leaving
}

// New returns the provider with these settings.
func New(settings Settings) (*Provider, error) {
	api, err := newClient(settings.APIURL, settings.TokenFile, settings.Token, Version)
	if err != nil {
		return nil, err
	}
	p := &Provider{api: api, settings: settings, now: time.Now, leaving: leaving{ids: map[string]time.Time{}}}
	p.droplets.Get = func(ctx context.Context, call *sdk.Call) ([]godo.Droplet, error) {
		all, err := pages(ctx, api, call, "listing droplets", dropletKey, api.Droplets.List)
		if err == nil {
			p.size.set(len(all))
		}
		return all, err
	}
	p.gpus.Get = func(ctx context.Context, call *sdk.Call) ([]godo.Droplet, error) {
		return pages(ctx, api, call, "listing droplets with GPUs", dropletKey, api.Droplets.ListWithGPUs)
	}
	p.lists.Get = func(ctx context.Context, call *sdk.Call) ([]godo.LoadBalancer, error) {
		return pages(ctx, api, call, "listing load balancers", func(lb godo.LoadBalancer) string { return lb.ID }, api.LoadBalancers.List)
	}
	return p, nil
}

// Info describes the provider.
func (p *Provider) Info() sdk.Info {
	return sdk.Info{
		Name: "digitalocean", Version: Version, ProviderIDPrefixes: []string{plan.ProviderIDPrefix},
		Instances: sdk.InstanceOptions{MaxBatch: maxBatch, PowerState: true},
		LoadBalancers: sdk.LoadBalancerOptions{
			InSync: true, IgnoresNodes: p.settings.TargetTag != "",
			Features: []sdk.ServiceFeature{sdk.FeatureSourceRanges, sdk.FeatureExternalTrafficPolicyLocal, sdk.FeatureUDP, sdk.FeatureIPMode},
		},
	}
}

// Initialize finds the account of the token, and checks that the region and, with --vpc, the network exist (PROV-3).
func (p *Provider) Initialize(ctx context.Context, call *sdk.Call, _ sdk.InitializeRequest) (sdk.Initialized, error) {
	token, err := p.api.tokens.secret.Read()
	if err != nil {
		return sdk.Initialized{}, p.api.done(ctx, call, "reading the token", err)
	}
	account, err := p.api.tokens.account(ctx, token)
	if err := p.api.done(ctx, call, "asking for the account", err); err != nil {
		return sdk.Initialized{}, err
	}
	scope := "account " + account + ", region " + p.settings.Region
	if p.settings.VPC != "" {
		scope += ", VPC " + p.settings.VPC
	}
	// The checks below run with this token. If they fail, Initialize restores the former account and token.
	p.api.tokens.mutex.Lock()
	expected, checked := p.api.tokens.expected, p.api.tokens.checked
	p.api.tokens.mutex.Unlock()
	p.api.tokens.expect(account, token)
	if err := p.checkPlace(ctx, call); err != nil {
		p.api.tokens.expect(expected, checked)
		return sdk.Initialized{}, err
	}
	return sdk.Initialized{CloudScope: scope}, nil
}

func (p *Provider) checkPlace(ctx context.Context, call *sdk.Call) error {
	regions, err := pages(ctx, p.api, call, "listing regions", func(region godo.Region) string { return region.Slug }, p.api.Regions.List)
	if err != nil {
		return err
	}
	slugs := []string{}
	for _, region := range regions {
		slugs = append(slugs, region.Slug)
	}
	slices.Sort(slugs)
	if !slices.Contains(slugs, p.settings.Region) {
		return sdk.Precondition("--region: DigitalOcean has no region %q; right would be one of %s", p.settings.Region, strings.Join(slugs, ", ")).Because("RegionUnknown")
	}
	if p.settings.VPC == "" {
		return nil
	}
	vpc, _, err := p.api.VPCs.Get(ctx, p.settings.VPC)
	if isNotFound(err) {
		return sdk.Precondition("--vpc: the account has no VPC %q", p.settings.VPC).Because("VPCUnknown")
	}
	if err := p.api.done(ctx, call, "asking for the VPC", err); err != nil {
		return err
	}
	if vpc.RegionSlug != p.settings.Region {
		return sdk.Precondition("--vpc: the VPC %q is in the region %s, and --region is %s", p.settings.VPC, vpc.RegionSlug, p.settings.Region).Because("VPCElsewhere")
	}
	return nil
}

// Health reports the API's last error from memory (PROV-4), until a call shows that the API works.
func (p *Provider) Health() sdk.Health { return p.api.Health() }
