package provider

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"sync/atomic"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/grpc-ccm/grpc-ccm/providers/go/sdk"
	"github.com/grpc-ccm/grpc-ccm/providers/hetzner/plan"
)

// Version is the provider's; the build may set another.
var Version = "0.1.0"

const (
	// The most Nodes in one lookup: a thousand share one list.
	maxBatch = 1000
	// The most routes in one call: each takes a call of the API or two, and an action. They run one
	// after the other.
	maxRoutes = 20
)

// Settings are the operator's.
type Settings struct {
	plan.Settings
	// APIURL is the address of Hetzner Cloud's API.
	APIURL string
	// TokenFile holds the token, and the provider reads it for each call. Token is the token if no file is set.
	TokenFile, Token string
	// Network is the name or the ID of the cluster's network; Routes says whether the provider offers routes in it.
	Network string
	Routes  bool
	// LoadBalancers says whether the provider offers load balancers.
	LoadBalancers bool
}

// Provider is Hetzner Cloud.
type Provider struct {
	api      *client
	settings Settings
	// The network's ID, which Initialize finds.
	network atomic.Int64
	servers sdk.Shared[[]*hcloud.Server]
	lists   sdk.Shared[[]*hcloud.LoadBalancer]
	// The numbers of servers and load balancers in the last lists. They only decide whether single reads or a list take fewer calls.
	serverCount, balancerCount atomic.Int64
	types                      typeCache
}

// New returns the provider with these settings.
func New(settings Settings) *Provider {
	p := &Provider{api: newClient(settings.APIURL, settings.TokenFile, settings.Token, Version), settings: settings}
	p.servers.Get = func(ctx context.Context, call *sdk.Call) ([]*hcloud.Server, error) {
		all, err := pages(ctx, p.api, call, "listing servers", func(s *hcloud.Server) int64 { return s.ID }, func(ctx context.Context, o hcloud.ListOpts) ([]*hcloud.Server, *hcloud.Response, error) {
			return p.api.Server.List(ctx, hcloud.ServerListOpts{ListOpts: o, Sort: []string{"id:asc"}})
		})
		if err == nil {
			p.serverCount.Store(int64(len(all)))
			p.sawServers(all)
		}
		return all, err
	}
	p.lists.Get = func(ctx context.Context, call *sdk.Call) ([]*hcloud.LoadBalancer, error) {
		all, err := pages(ctx, p.api, call, "listing load balancers", func(lb *hcloud.LoadBalancer) int64 { return lb.ID }, func(ctx context.Context, o hcloud.ListOpts) ([]*hcloud.LoadBalancer, *hcloud.Response, error) {
			return p.api.LoadBalancer.List(ctx, hcloud.LoadBalancerListOpts{ListOpts: o, Sort: []string{"id:asc"}})
		})
		if err == nil {
			p.balancerCount.Store(int64(len(all)))
		}
		return all, err
	}
	return p
}

// sawServers makes witnesses of the first servers of a list, unless the network is known: the network identifies the project better.
func (p *Provider) sawServers(servers []*hcloud.Server) {
	if p.network.Load() != 0 {
		return
	}
	paths := []string{}
	for _, server := range servers[:min(3, len(servers))] {
		paths = append(paths, "/servers/"+strconv.FormatInt(server.ID, 10))
	}
	p.api.tokens.witness(paths...)
}

// Info describes the provider.
func (p *Provider) Info() sdk.Info {
	info := sdk.Info{
		Name: "hetzner", Version: Version, ProviderIDPrefixes: []string{plan.CloudPrefix},
		// The annotation that selects Nodes needs their labels.
		NodeProjection: sdk.NodeProjection{AllLabels: true},
		Instances:      sdk.InstanceOptions{MaxBatch: maxBatch, PowerState: true},
		LoadBalancers: sdk.LoadBalancerOptions{
			InSync: true, IgnoresNodes: p.settings.TargetSelector != "", AllTargets: p.settings.Robot,
			Features: []sdk.ServiceFeature{sdk.FeatureExternalTrafficPolicyLocal, sdk.FeatureIPMode},
		},
		Routes: sdk.RouteOptions{MaxBatch: maxRoutes, MaxInFlight: 1},
	}
	if p.settings.Network == "" || !p.settings.Routes {
		info.Without = append(info.Without, sdk.ServiceRoutes)
	}
	if !p.settings.LoadBalancers {
		info.Without = append(info.Without, sdk.ServiceLoadBalancers)
	}
	return info
}

// Initialize checks that the API accepts the token, that the configured network and location exist, and, unless the call is read-only, that the token may
// write (PROV-3).
func (p *Provider) Initialize(ctx context.Context, call *sdk.Call, request sdk.InitializeRequest) (sdk.Initialized, error) {
	network, servers, err := p.checkPlace(ctx, call)
	if err != nil {
		return sdk.Initialized{}, err
	}
	if !request.ReadOnly {
		if err := p.checkWrites(ctx, call); err != nil {
			return sdk.Initialized{}, err
		}
	}
	// An Initialize that fails changes nothing (PROV-17).
	if err := ctx.Err(); err != nil {
		return sdk.Initialized{}, err
	}
	if network == nil {
		p.sawServers(servers)
		return sdk.Initialized{CloudScope: "Hetzner Cloud"}, nil
	}
	p.network.Store(network.ID)
	p.api.tokens.witness("/networks/" + strconv.FormatInt(network.ID, 10))
	return sdk.Initialized{CloudScope: fmt.Sprintf("Hetzner Cloud, project of network %d", network.ID)}, nil
}

// checkPlace returns the configured network; if none is configured, the first servers of the project.
func (p *Provider) checkPlace(ctx context.Context, call *sdk.Call) (*hcloud.Network, []*hcloud.Server, error) {
	if name := p.settings.Location; name != "" {
		location, _, err := p.api.Location.GetByName(ctx, name)
		if err := p.api.done(ctx, call, "asking for the location "+name, err); err != nil {
			return nil, nil, err
		}
		if location == nil {
			return nil, nil, sdk.Precondition("--load-balancer-location: Hetzner Cloud has no location %q; right would be one such as fsn1", name).Because("LocationUnknown")
		}
	}
	if p.settings.Network == "" {
		// Any call shows whether the API accepts the token.
		servers, _, err := p.api.Server.List(ctx, hcloud.ServerListOpts{ListOpts: hcloud.ListOpts{Page: 1, PerPage: 3}, Sort: []string{"id:asc"}})
		return nil, servers, p.api.done(ctx, call, "listing servers", err)
	}
	network, _, err := p.api.Network.Get(ctx, p.settings.Network)
	if err := p.api.done(ctx, call, "asking for the network "+p.settings.Network, err); err != nil {
		return nil, nil, err
	}
	if network == nil {
		return nil, nil, sdk.Precondition("--network: the project of this token has no network %q", p.settings.Network).Because("NetworkUnknown")
	}
	return network, nil, nil
}

// checkWrites asks for a load balancer without a name, which the API refuses. An error of rights shows that the token may not write. Nothing is written.
func (p *Provider) checkWrites(ctx context.Context, call *sdk.Call) error {
	request, err := p.api.NewRequest(ctx, http.MethodPost, "/load_balancers", nil)
	if err != nil {
		return p.api.done(ctx, call, "trying whether the token may write", err)
	}
	_, err = p.api.Do(request, nil)
	if isCode(err, hcloud.ErrorCodeForbidden, hcloud.ErrorCodeUnauthorized, "token_readonly") {
		return p.api.done(ctx, call, "trying whether the token may write", err)
	}
	return nil
}

// Health reports the API's last error from memory (PROV-4), until a call shows that the API works.
func (p *Provider) Health() sdk.Health { return p.api.Health() }

// planned returns the settings for package plan, with the network that Initialize found.
func (p *Provider) planned() *plan.Settings {
	settings := p.settings.Settings
	settings.NetworkID = p.network.Load()
	return &settings
}
