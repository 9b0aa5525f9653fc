package bridge

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	v1 "k8s.io/api/core/v1"
	cloudprovider "k8s.io/cloud-provider"

	"github.com/grpc-ccm/grpc-ccm/providers/go/contract"
)

// late is a cloud that makes its parts in Initialize, as cloud-provider-equinix-metal does. Before Initialize InstancesV2 is a typed nil pointer, and
// no load balancer exists.
type late struct {
	*scripted
	makes     func(*late)
	balancer  cloudprovider.LoadBalancer
	instances *lateInstances
	zones     cloudprovider.Zones
}

type lateInstances struct{ *scripted }

type lateZones struct{ cloudprovider.Zones }

func (l *lateZones) GetZoneByProviderID(context.Context, string) (cloudprovider.Zone, error) {
	return cloudprovider.Zone{FailureDomain: "one-a"}, nil
}

func (l *late) Initialize(cloudprovider.ControllerClientBuilder, <-chan struct{}) { l.makes(l) }
func (l *late) LoadBalancer() (cloudprovider.LoadBalancer, bool) {
	return l.balancer, l.balancer != nil
}
func (l *late) InstancesV2() (cloudprovider.InstancesV2, bool) { return l.instances, true }
func (l *late) Zones() (cloudprovider.Zones, bool)             { return l.zones, l.zones != nil }
func (l *late) Routes() (cloudprovider.Routes, bool)           { return nil, false }

func newLate(makes func(*late)) *late {
	return &late{
		scripted: &scripted{
			tagged: true,
			exists: func(context.Context, *v1.Node) (bool, error) { return true, nil },
			ensure: func(context.Context, *v1.Service, []*v1.Node) (*v1.LoadBalancerStatus, error) {
				return ready("203.0.113.1"), nil
			},
		},
		makes: makes,
	}
}

func makesAll(l *late) {
	l.instances, l.zones = &lateInstances{l.scripted}, &lateZones{}
	l.balancer = &marked{scripted: *l.scripted, ownership: contract.Ownership_OWNERSHIP_OURS, same: true}
}

func (s *served) capabilities() *contract.Capabilities {
	s.t.Helper()
	info, err := s.provider.GetProviderInfo(s.context(patience), &contract.GetProviderInfoRequest{})
	must(s.t, err)
	return info.GetCapabilities()
}

func (s *served) exists(name string) contract.InstanceState {
	s.t.Helper()
	answer, err := s.instances.LookupInstances(s.context(patience), &contract.LookupInstancesRequest{
		Cluster: cluster(), Nodes: []*contract.NodeView{node(name)}, Facets: []contract.InstanceFacet{contract.InstanceFacet_INSTANCE_FACET_EXISTENCE},
	})
	must(s.t, err)
	return answer.GetResults()[0].GetFound().GetState()
}

func TestACloudThatMakesItsPartsInInitializeServesThem(t *testing.T) {
	bridge := serve(t, newLate(makesAll), Options{Offers: []string{"instances", "zones", "load-balancers", "in-sync"}})
	offered := bridge.capabilities()
	if offered.Instances == nil || offered.Zones == nil || !offered.GetLoadBalancers().GetInSync() || offered.GetLoadBalancers().GetListing() || offered.Routes != nil || offered.Volumes != nil {
		t.Errorf("%v is offered", offered)
	}
	code(t, bridge.ensure(patience, service("a")).GetFailed(), contract.FailureCode_FAILURE_CODE_NOT_INITIALIZED)
	bridge.initialise()
	if answer := bridge.ensure(patience, service("a")); answer.GetReady() == nil {
		t.Errorf("%v", answer)
	}
	found, err := bridge.balancers.GetLoadBalancer(bridge.context(patience), &contract.GetLoadBalancerRequest{Cluster: cluster(), Service: service("a"), Targets: targets()})
	must(t, err)
	if !found.GetFound().GetInSync() {
		t.Errorf("%v", found)
	}
	if state := bridge.exists("one"); state != contract.InstanceState_INSTANCE_STATE_PRESENT {
		t.Errorf("the instance is %s", state)
	}
	zones, err := bridge.zones.LookupZones(bridge.context(patience), &contract.LookupZonesRequest{Cluster: cluster(), Nodes: []*contract.NodeView{node("one")}})
	must(t, err)
	if zones.GetResults()[0].GetZone().GetZone() != "one-a" {
		t.Errorf("%v", zones)
	}
	// The bridge does not offer the listing that Initialize added: the offer does not change (PROV-10).
	stream, err := bridge.balancers.ListLoadBalancers(bridge.context(patience), &contract.ListLoadBalancersRequest{Cluster: cluster()})
	must(t, err)
	part, err := stream.Recv()
	must(t, err)
	if part.GetFailed().GetReason() != "NotOffered" || bridge.capabilities().String() != offered.String() {
		t.Errorf("%v; %v is offered", part, bridge.capabilities())
	}
}

func TestANilPointerBeforeInitializeIsAPromiseAndWhatIsMadeIsUsed(t *testing.T) {
	bridge := serve(t, newLate(makesAll), Options{})
	if offered := bridge.capabilities(); offered.Instances == nil || offered.LoadBalancers != nil || offered.Zones != nil {
		t.Errorf("%v is offered", offered)
	}
	bridge.initialise()
	if state := bridge.exists("one"); state != contract.InstanceState_INSTANCE_STATE_PRESENT {
		t.Errorf("the instance is %s", state)
	}
}

func TestInitializeFailsNamingThePartThatDidNotTurnUp(t *testing.T) {
	for name, row := range map[string]struct {
		options Options
		makes   func(*late)
		texts   []string
	}{
		"promised by the vendor": {
			Options{Offers: []string{"instances", "load-balancers"}},
			func(l *late) { l.instances = &lateInstances{l.scripted} },
			[]string{"lacks load-balancers (no LoadBalancer())", "--offer names them", "--offer=instances,volumes"},
		},
		"promised by the cloud": {
			Options{}, func(*late) {},
			[]string{"lacks instances (InstancesV2() or Instances() gives a nil pointer)", "it offered them before"},
		},
		"no such thing": {
			Options{Offers: []string{"instances", "clusters", "routes"}}, makesAll,
			[]string{"lacks clusters (no Clusters()), routes (no Routes())"},
		},
	} {
		var runs atomic.Int64
		bridge := serve(t, newLate(func(l *late) { runs.Add(1); row.makes(l) }), row.options)
		for range 2 {
			failed := bridge.startWithin(patience).GetFailed()
			code(t, failed, contract.FailureCode_FAILURE_CODE_PRECONDITION)
			for _, text := range row.texts {
				if !strings.Contains(failed.GetMessage(), text) {
					t.Errorf("%s: no %q in %v", name, text, failed)
				}
			}
		}
		if runs.Load() != 1 {
			t.Errorf("%s: the cloud's own Initialize ran %d times", name, runs.Load())
		}
		answer, err := bridge.instances.LookupInstances(bridge.context(patience), &contract.LookupInstancesRequest{Cluster: cluster()})
		must(t, err)
		code(t, answer.GetFailed(), contract.FailureCode_FAILURE_CODE_NOT_INITIALIZED)
	}
}

// takenBack is a cloud that has load balancers before its Initialize, and may have none after it.
type takenBack struct {
	*scripted
	gone atomic.Bool
}

func (c *takenBack) LoadBalancer() (cloudprovider.LoadBalancer, bool) {
	return c.scripted, !c.gone.Load()
}

func TestInitializeFailsNamingThePartThatWasOfferedAndIsGoneUntilItIsThere(t *testing.T) {
	cloud := &takenBack{scripted: &scripted{tagged: true}}
	cloud.initialize = func(cloudprovider.ControllerClientBuilder, <-chan struct{}) { cloud.gone.Store(true) }
	bridge := serve(t, cloud, Options{})
	failed := bridge.startWithin(patience).GetFailed()
	code(t, failed, contract.FailureCode_FAILURE_CODE_PRECONDITION)
	if !strings.Contains(failed.GetMessage(), "lacks load-balancers") || !strings.Contains(failed.GetMessage(), "--offer=instances,routes,volumes") {
		t.Errorf("%v", failed)
	}
	cloud.gone.Store(false)
	bridge.initialise()
}

func TestACloudThatPanicsBeforeItsInitializeOrForEverIsAskedForWhatItOffersOnly(t *testing.T) {
	for _, ever := range []bool{true, false} {
		cloud := &unready{scripted: &scripted{exists: func(context.Context, *v1.Node) (bool, error) { return true, nil }}}
		cloud.tagged = true
		cloud.initialize = func(cloudprovider.ControllerClientBuilder, <-chan struct{}) { cloud.ready.Store(ever) }
		if _, err := New(cloud, Options{}); err == nil || !strings.Contains(err.Error(), "--offer") {
			t.Errorf("%v", err)
		}
		bridge := serve(t, cloud, Options{Offers: []string{"instances"}})
		bridge.initialise()
		if state := bridge.exists("one"); state != contract.InstanceState_INSTANCE_STATE_PRESENT {
			t.Errorf("the instance is %s", state)
		}
	}
}

type unready struct {
	*scripted
	ready atomic.Bool
}

func (u *unready) Routes() (cloudprovider.Routes, bool) {
	if !u.ready.Load() {
		panic("no session")
	}
	return u.scripted, true
}

func TestPartsThatTurnUpBesideTheOffersAreNamed(t *testing.T) {
	offers, has := partSet{partInstances: true}, partSet{partInstances: true, partRoutes: true, partBalancers: true, partZones: false}
	if more, flag := beyond(offers, has); !slices.Equal(more, []string{"load-balancers", "routes"}) || flag != "--offer=instances,load-balancers,routes" {
		t.Errorf("%v %s", more, flag)
	}
	if text := broken(offers, has, has, false); text != "" {
		t.Errorf("%s", text)
	}
	if more, _ := beyond(has, has); len(more) != 0 {
		t.Errorf("%v", more)
	}
}

func TestAnOfferThatIsNoneIsRefused(t *testing.T) {
	for offer, text := range map[string]string{"loadbalancers": "load-balancers", "in-sync": "load-balancers", "": "instances"} {
		if _, err := New(&scripted{}, Options{Offers: []string{offer}}); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%q: %v", offer, err)
		}
	}
	// has() has an entry for each known name.
	found, _ := partsOf(&scripted{}, nil)
	if has := slices.Sorted(maps.Keys(found.has())); !slices.Equal(has, partNames()) {
		t.Errorf("%v", has)
	}
}
