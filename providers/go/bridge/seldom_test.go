package bridge

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	v1 "k8s.io/api/core/v1"
	cloudprovider "k8s.io/cloud-provider"

	"github.com/grpc-ccm/grpc-ccm/providers/go/contract"
)

// counted is a cloud with the older interfaces that counts its calls.
type counted struct {
	*olderInstances
	mu    sync.Mutex
	calls map[string]int
}

func (c *counted) note(what string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls[what]++
}

func (c *counted) Instances() (cloudprovider.Instances, bool) { return c, true }
func (c *counted) Zones() (cloudprovider.Zones, bool)         { return &countedZones{counted: c}, true }

func (c *counted) NodeAddressesByProviderID(context.Context, string) ([]v1.NodeAddress, error) {
	c.note("addresses")
	return []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: "10.0.0.1"}}, nil
}

func (c *counted) InstanceTypeByProviderID(context.Context, string) (string, error) {
	c.note("type")
	return "big", nil
}

type countedZones struct {
	cloudprovider.Zones
	counted *counted
}

func (z *countedZones) GetZoneByProviderID(context.Context, string) (cloudprovider.Zone, error) {
	z.counted.note("zone")
	return cloudprovider.Zone{FailureDomain: "a", Region: "b"}, nil
}

func TestARefreshOfTheOlderInterfacesIsOneCallUntilTypeAndZoneAreDue(t *testing.T) {
	plain := node("a")
	shown := node("a")
	shown.Labels = map[string]string{v1.LabelInstanceTypeStable: "big", v1.LabelTopologyZone: "a"}
	tainted := node("a")
	tainted.Labels = shown.Labels
	tainted.Taints = []*contract.Taint{{Key: "node.cloudprovider.kubernetes.io/uninitialized", Effect: "NoSchedule"}}
	for name, row := range map[string]struct {
		node     *contract.NodeView
		maxAge   time.Duration
		expected map[string]int
	}{
		"a refresh":                           {shown, time.Minute, map[string]int{"addresses": 2}},
		"what must be new":                    {shown, 0, map[string]int{"addresses": 2, "type": 2}},
		"a Node that shows nothing":           {plain, time.Minute, map[string]int{"addresses": 2, "type": 2, "zone": 2}},
		"a Node whose kubelet has labels set": {tainted, time.Minute, map[string]int{"addresses": 2, "type": 2, "zone": 2}},
	} {
		cloud := &counted{olderInstances: &olderInstances{scripted: &scripted{tagged: true}}, calls: map[string]int{}}
		bridge := serve(t, cloud, Options{})
		bridge.initialise()
		for range 2 {
			answer, err := bridge.instances.LookupInstances(bridge.context(patience), &contract.LookupInstancesRequest{
				Cluster: cluster(), Nodes: []*contract.NodeView{row.node}, MaxAge: durationpb.New(row.maxAge), Facets: []contract.InstanceFacet{contract.InstanceFacet_INSTANCE_FACET_METADATA},
			})
			must(t, err)
			if found := answer.GetResults()[0].GetFound(); len(found.GetAddresses()) != 1 {
				t.Errorf("%s: %v", name, answer)
			}
			zones, err := bridge.zones.LookupZones(bridge.context(patience), &contract.LookupZonesRequest{Cluster: cluster(), Nodes: []*contract.NodeView{row.node}})
			must(t, err)
			if zones.GetResults()[0].GetZone() == nil {
				t.Errorf("%s: %v", name, zones)
			}
		}
		if !maps.Equal(cloud.calls, row.expected) {
			t.Errorf("%s: %v", name, cloud.calls)
		}
	}
}

func TestTypeAndZoneAreDueWithinTheHour(t *testing.T) {
	facts := seldom{labels: typeLabels}
	shown := &v1.Node{}
	shown.Spec.ProviderID, shown.Labels = "scripted://a", map[string]string{v1.LabelInstanceTypeStable: "big"}
	if !facts.rests(shown) {
		t.Error("it is due at once")
	}
	first := time.Until(facts.next["scripted://a"])
	facts.next["scripted://a"] = time.Now().Add(-time.Second)
	if facts.rests(shown) || first > seldomEvery {
		t.Errorf("it is never due: %v", first)
	}
	facts.told(shown)
	if again := time.Until(facts.next["scripted://a"]); !facts.rests(shown) || again < seldomEvery-time.Minute {
		t.Errorf("again after %v", again)
	}
	// The entries of deleted Nodes are removed.
	for i := range 1000 {
		facts.next[fmt.Sprint("gone-", i)] = time.Now().Add(-2 * seldomEvery)
	}
	for i := range 300 {
		facts.told(&v1.Node{Spec: v1.NodeSpec{ProviderID: fmt.Sprint("here-", i)}})
	}
	if many := len(slices.Collect(maps.Keys(facts.next))); many != 301 {
		t.Errorf("%d are kept", many)
	}
}
