package provider

import (
	"context"
	"fmt"
	"strconv"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/grpc-ccm/grpc-ccm/providers/go/sdk"
	"github.com/grpc-ccm/grpc-ccm/providers/hetzner/plan"
)

// sdk.InstanceBatches and sdk.InstanceLister.

// listCalls returns how many calls a list of all servers takes.
func (p *Provider) listCalls() int { return max(1, (int(p.serverCount.Load())+pageSize-1)/pageSize) }

// LookupInstances reads few servers one by one, and lists them for many. A list without a server does not prove that it is gone, so LookupInstances
// reads a server that the list lacks by its ID, if the ID is known (INST-1).
func (p *Provider) LookupInstances(ctx context.Context, call *sdk.Call, nodes []sdk.Node, query sdk.InstanceQuery) (sdk.Answers[sdk.Instance], error) {
	answers := sdk.Answers[sdk.Instance]{}
	asked := []sdk.Node{}
	for _, node := range nodes {
		if node.ProviderID == "" {
			asked = append(asked, node)
			continue
		}
		switch _, robot, err := plan.ServerID(node.ProviderID); {
		case err != nil:
			answers.Set(node.Name, sdk.Instance{}, err)
		case robot:
			answers.Set(node.Name, sdk.Instance{State: sdk.InstanceUnmanaged}, nil)
		default:
			asked = append(asked, node)
		}
	}
	if len(asked) > p.listCalls() {
		servers, err := p.servers.List(ctx, call, query.MaxAge)
		if err != nil {
			return nil, err
		}
		asked = p.fromList(asked, servers, answers)
	}
	p.oneByOne(ctx, call, asked, answers)
	return answers, nil
}

// fromList answers for the Nodes whose servers the list has and for those without an ID, and returns the Nodes with an ID that the list lacks.
func (p *Provider) fromList(nodes []sdk.Node, servers []*hcloud.Server, answers sdk.Answers[sdk.Instance]) (missing []sdk.Node) {
	byID, byName := map[string]*hcloud.Server{}, map[string]*hcloud.Server{}
	for _, server := range servers {
		byID[plan.CloudPrefix+strconv.FormatInt(server.ID, 10)], byName[server.Name] = server, server
	}
	settings := p.planned()
	for _, node := range nodes {
		server := byName[node.Name]
		if node.ProviderID != "" {
			if server = byID[node.ProviderID]; server == nil {
				missing = append(missing, node)
				continue
			}
		}
		answers.Set(node.Name, plan.Instance(server, &settings.InstanceSettings), nil)
	}
	return missing
}

// oneByOne reads each server by a separate call.
func (p *Provider) oneByOne(ctx context.Context, call *sdk.Call, nodes []sdk.Node, answers sdk.Answers[sdk.Instance]) {
	settings := p.planned()
	sdk.Each(nodes, answers, func(node sdk.Node) (sdk.Instance, error) {
		server, err := p.one(ctx, call, node)
		return plan.Instance(server, &settings.InstanceSettings), err
	})
}

// one reads a Node's server; nil if the API says that the server does not exist.
func (p *Provider) one(ctx context.Context, call *sdk.Call, node sdk.Node) (*hcloud.Server, error) {
	if node.ProviderID != "" {
		id, _, err := plan.ServerID(node.ProviderID)
		if err != nil {
			return nil, err
		}
		server, _, err := p.api.Server.GetByID(ctx, id)
		return server, p.api.done(ctx, call, fmt.Sprintf("asking for server %d", id), err)
	}
	// Names are unique in a project.
	servers, _, err := p.api.Server.List(ctx, hcloud.ServerListOpts{Name: node.Name})
	if err := p.api.done(ctx, call, "looking for server "+node.Name, err); err != nil {
		return nil, err
	}
	for _, server := range servers {
		if server.Name == node.Name {
			return server, nil
		}
	}
	return nil, nil
}

// ListInstances returns all servers of the project: Hetzner's API does not show to which cluster a server belongs (INST-16).
func (p *Provider) ListInstances(ctx context.Context, call *sdk.Call, _ sdk.InstanceQuery) (list []sdk.Instance, err error) {
	servers, err := p.servers.List(ctx, call, 0)
	settings := p.planned()
	for _, server := range servers {
		list = append(list, plan.Instance(server, &settings.InstanceSettings))
	}
	return list, err
}
