package provider

import (
	"context"
	"log/slog"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/digitalocean/godo"

	"github.com/grpc-ccm/grpc-ccm/providers/digitalocean/plan"
	"github.com/grpc-ccm/grpc-ccm/providers/go/sdk"
)

// sdk.InstanceBatches and sdk.InstanceLister.

// knownSize has the number of droplets in the last list. It only decides whether single reads or a list take fewer calls.
type knownSize struct {
	mutex    sync.Mutex
	droplets int
}

func (k *knownSize) set(droplets int) {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	k.droplets = droplets
}

// listCalls returns how many calls a list takes, with one for droplets with GPUs.
func (k *knownSize) listCalls() int {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	return max(1, (k.droplets+pageSize-1)/pageSize) + 1
}

// LookupInstances reads few droplets one by one, and lists them for many. A list without a droplet does not prove that it is gone. So
// LookupInstances reads a droplet that the list lacks by its ID, if the ID is known (INST-1). If many are missing, it first looks in the list of droplets with GPUs.
func (p *Provider) LookupInstances(ctx context.Context, call *sdk.Call, nodes []sdk.Node, query sdk.InstanceQuery) (sdk.Answers[sdk.Instance], error) {
	l := &lookup{p: p, call: call, maxAge: query.MaxAge, one: len(nodes) <= p.size.listCalls()}
	answers := sdk.Answers[sdk.Instance]{}
	missing := []sdk.Node{}
	for _, node := range nodes {
		id, err := idOf(node)
		if err != nil {
			answers.Set(node.Name, sdk.Instance{}, err)
			continue
		}
		droplet, known, err := l.find(ctx, node.Name, id)
		switch {
		case err != nil && l.failed:
			return nil, err
		case err != nil:
			answers.Set(node.Name, sdk.Instance{}, err)
		case droplet == nil && !known:
			missing = append(missing, node)
		default:
			answers.Set(node.Name, shown(droplet), nil)
		}
	}
	if !l.one && len(missing) > p.size.listCalls() {
		missing = l.withoutGPUs(ctx, missing, answers)
	}
	p.byID(ctx, call, missing, answers)
	return answers, nil
}

// withoutGPUs answers for the Nodes whose droplets are in the list of droplets with GPUs, and returns the other Nodes.
func (l *lookup) withoutGPUs(ctx context.Context, nodes []sdk.Node, answers sdk.Answers[sdk.Instance]) (left []sdk.Node) {
	list, err := l.list(ctx, 1)
	if err != nil {
		return nodes // The reads by ID do without the list.
	}
	for _, node := range nodes {
		id, _ := idOf(node)
		if droplet := dropletOfID(list, id); droplet != nil {
			answers.Set(node.Name, shown(droplet), nil)
		} else {
			left = append(left, node)
		}
	}
	return left
}

func idOf(node sdk.Node) (int, error) {
	if node.ProviderID == "" {
		return 0, nil
	}
	return plan.DropletID(node.ProviderID)
}

// lookup is one call of LookupInstances. It gets each list once, when it is first needed.
type lookup struct {
	p    *Provider
	call *sdk.Call
	// one says that the call reads droplets one by one. failed says that an error concerns all Nodes.
	one, failed bool
	maxAge      time.Duration
	lists       [][]godo.Droplet
}

// find returns the droplet, or nil. known says that nil is certain.
func (l *lookup) find(ctx context.Context, name string, id int) (droplet *godo.Droplet, known bool, err error) {
	if id != 0 && l.one {
		return nil, false, nil
	}
	sources := []func(context.Context, *godo.ListOptions) ([]godo.Droplet, *godo.Response, error){
		func(ctx context.Context, o *godo.ListOptions) ([]godo.Droplet, *godo.Response, error) {
			return l.p.api.Droplets.ListByName(ctx, name, o)
		},
		l.p.api.Droplets.ListWithGPUs,
	}
	_, isAddress := addressOf(name)
	both := [][]godo.Droplet{}
	for i := range sources {
		var list []godo.Droplet
		if l.one && i == 0 && !isAddress {
			if list, err = pages(ctx, l.p.api, l.call, "looking for droplet "+name, dropletKey, sources[0]); err != nil {
				return nil, false, err
			}
		} else if list, err = l.list(ctx, i); err != nil {
			l.failed = true
			return nil, false, err
		}
		if id != 0 { // The next step reads a droplet that the list lacks by its ID, which also finds droplets with GPUs.
			droplet = dropletOfID(list, id)
			return droplet, droplet != nil, nil
		}
		both = append(both, list)
	}
	// A droplet and one with GPUs may have the same name, so no list decides alone.
	droplet, err = l.p.dropletOfName(name, both...)
	return droplet, err == nil, err
}

// list returns the list of droplets (0), or that of droplets with GPUs (1), which the API leaves out of the first.
func (l *lookup) list(ctx context.Context, which int) (list []godo.Droplet, err error) {
	if l.lists == nil {
		l.lists = make([][]godo.Droplet, 2)
	}
	if l.lists[which] == nil {
		source := []*sdk.Shared[[]godo.Droplet]{&l.p.droplets, &l.p.gpus}[which]
		if list, err = source.List(ctx, l.call, l.maxAge); err != nil {
			return nil, err
		}
		l.lists[which] = append([]godo.Droplet{}, list...)
	}
	return l.lists[which], nil
}

// byID reads each droplet by its ID. For a Node with a provider ID, only the API's 404 to such a read shows that the droplet is gone.
func (p *Provider) byID(ctx context.Context, call *sdk.Call, nodes []sdk.Node, answers sdk.Answers[sdk.Instance]) {
	sdk.Each(nodes, answers, func(node sdk.Node) (sdk.Instance, error) {
		id, _ := idOf(node)
		droplet, _, err := p.api.Droplets.Get(ctx, id)
		if isNotFound(err) {
			droplet, err = nil, nil
		}
		return shown(droplet), p.api.done(ctx, call, "asking for droplet "+strconv.Itoa(id), err)
	})
}

// ListInstances returns all droplets of the account: DigitalOcean's API does not show to which cluster a droplet belongs (INST-16).
func (p *Provider) ListInstances(ctx context.Context, call *sdk.Call, _ sdk.InstanceQuery) (list []sdk.Instance, err error) {
	for _, source := range []*sdk.Shared[[]godo.Droplet]{&p.droplets, &p.gpus} {
		droplets, err := source.List(ctx, call, 0)
		if err != nil {
			return nil, err
		}
		for i := range droplets {
			list = append(list, shown(&droplets[i]))
		}
	}
	return list, nil
}

func dropletKey(droplet godo.Droplet) int { return droplet.ID }

func dropletOfID(list []godo.Droplet, id int) *godo.Droplet {
	at := slices.IndexFunc(list, func(droplet godo.Droplet) bool { return droplet.ID == id })
	if at < 0 {
		return nil
	}
	return &list[at]
}

// dropletOfName finds a droplet by the Node's name: the droplet's name, or one of its addresses. Names are not unique in an account, so it skips droplets of
// other regions and, with --vpc, of other networks.
func (p *Provider) dropletOfName(name string, lists ...[]godo.Droplet) (found *godo.Droplet, err error) {
	address, isAddress := addressOf(name)
	for _, list := range lists {
		for i := range list {
			droplet := &list[i]
			if droplet.Region != nil && droplet.Region.Slug != p.settings.Region || p.settings.VPC != "" && droplet.VPCUUID != p.settings.VPC {
				continue
			}
			if droplet.Name != name && !(isAddress && hasAddress(droplet, address)) {
				continue
			}
			if found != nil && found.ID != droplet.ID {
				return nil, sdk.Conflict("droplets %d and %d have the name %s; rename one, or set --vpc where they are in different networks", found.ID, droplet.ID, name).Because("NameNotUnique")
			}
			found = droplet
		}
	}
	return found, nil
}

func addressOf(name string) (netip.Addr, bool) {
	address, err := netip.ParseAddr(name)
	return address, err == nil
}

func hasAddress(droplet *godo.Droplet, address netip.Addr) bool {
	return slices.ContainsFunc(addresses(droplet), func(a sdk.NodeAddress) bool {
		other, err := netip.ParseAddr(a.Address)
		return err == nil && other == address
	})
}

// shown returns the instance for a droplet; nil is a droplet that does not exist.
func shown(droplet *godo.Droplet) sdk.Instance {
	if droplet == nil {
		return sdk.Instance{State: sdk.InstanceAbsent}
	}
	instance := sdk.Instance{ProviderID: plan.ProviderIDPrefix + strconv.Itoa(droplet.ID), Type: labelValue(droplet, "size", droplet.SizeSlug), Addresses: addresses(droplet)}
	if droplet.Region != nil {
		instance.Region = labelValue(droplet, "region", droplet.Region.Slug)
	}
	switch droplet.Status {
	case "new":
		if instance.State = sdk.InstanceRunning; len(instance.Addresses) < 2 {
			instance.State, instance.RetryAfter = sdk.InstancePending, 3*time.Second
		}
	case "active":
		instance.State = sdk.InstanceRunning
	case "off", "archive":
		instance.State = sdk.InstanceStopped
	default:
		instance.State = sdk.InstancePresent
	}
	return instance
}

var label = regexp.MustCompile(`^[A-Za-z0-9]([-_.A-Za-z0-9]{0,61}[A-Za-z0-9])?$`)

// labelValue returns an empty text for a value that is not valid in a label (INST-15).
func labelValue(droplet *godo.Droplet, what, value string) string {
	if label.MatchString(value) {
		return value
	}
	if value == "" {
		return ""
	}
	slog.Warn("left out a value that is not a valid label value", "droplet", droplet.ID, "what", what, "value", value)
	return ""
}

// The addresses in the order in which DigitalOcean's own controller shows them.
func addresses(droplet *godo.Droplet) []sdk.NodeAddress {
	all := []sdk.NodeAddress{}
	if name := droplet.Name; name != "" {
		all = append(all, sdk.NodeAddress{Type: sdk.Hostname, Address: name})
	}
	if droplet.Networks == nil {
		return all
	}
	add := func(kind sdk.AddressType, address string) {
		if _, err := netip.ParseAddr(address); err == nil {
			all = append(all, sdk.NodeAddress{Type: kind, Address: address})
		}
	}
	for _, network := range droplet.Networks.V4 {
		if network.Type == "private" {
			add(sdk.InternalIP, network.IPAddress)
		}
	}
	for _, network := range droplet.Networks.V4 {
		if network.Type == "public" {
			add(sdk.ExternalIP, network.IPAddress)
		}
	}
	for _, network := range droplet.Networks.V6 {
		if network.Type == "public" {
			add(sdk.ExternalIP, network.IPAddress)
		}
	}
	return all
}
