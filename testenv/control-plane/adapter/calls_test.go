package adapter

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	listersv1 "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	cloudprovider "k8s.io/cloud-provider"

	"github.com/grpc-ccm/grpc-ccm/providers/go/contract"
)

func clusterNamed(name string) *contract.ListClustersResponse {
	names := &contract.ClusterNames{Names: []string{name}}
	return &contract.ListClustersResponse{Part: &contract.ListClustersResponse_Clusters{Clusters: names}}
}

func TestClustersAreListedToTheEndOrNotAtAll(t *testing.T) {
	end := func(total uint64) *contract.ListClustersResponse {
		return &contract.ListClustersResponse{Part: &contract.ListClustersResponse_End{End: &contract.ListEnd{Total: total}}}
	}
	broken := &contract.ListClustersResponse{Part: &contract.ListClustersResponse_Failed{Failed: failed(contract.FailureCode_FAILURE_CODE_UNAVAILABLE, "the cloud is down")}}
	rows := []struct {
		name  string
		parts []*contract.ListClustersResponse
		found []string
		wrong string
	}{
		{"all", []*contract.ListClustersResponse{clusterNamed("a"), clusterNamed("b"), end(2)}, []string{"a", "b"}, ""},
		{"none", []*contract.ListClustersResponse{end(0)}, nil, ""},
		{"without an end", []*contract.ListClustersResponse{clusterNamed("a")}, nil, "the listing has no end"},
		{"too few", []*contract.ListClustersResponse{clusterNamed("a"), end(2)}, nil, "has 1 items and says that it has 2"},
		{"broken off", []*contract.ListClustersResponse{clusterNamed("a"), broken}, nil, "the cloud is down"},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			p := offering(&contract.Capabilities{Clusters: &contract.ClusterCapability{}})
			p.clusters = row.parts
			clusters, offered := connected(t, p).Clusters()
			if !offered {
				t.Fatal("clusters are not offered")
			}
			found, err := clusters.ListClusters(t.Context())
			isError(t, err, row.wrong)
			if row.wrong == "" && !slices.Equal(found, row.found) {
				t.Errorf("found %v instead of %v", found, row.found)
			}
		})
	}
}

func TestTheControlPlaneOfAClusterHasAnAddress(t *testing.T) {
	p := offering(&contract.Capabilities{Clusters: &contract.ClusterCapability{}})
	p.master = func(request *contract.GetControlPlaneAddressRequest) *contract.GetControlPlaneAddressResponse {
		switch request.GetClusterName() {
		case "a":
			return &contract.GetControlPlaneAddressResponse{Outcome: &contract.GetControlPlaneAddressResponse_Address{Address: "192.0.2.1"}}
		case "empty":
			return &contract.GetControlPlaneAddressResponse{}
		default:
			gone := failed(contract.FailureCode_FAILURE_CODE_NOT_FOUND, "no such cluster")
			return &contract.GetControlPlaneAddressResponse{Outcome: &contract.GetControlPlaneAddressResponse_Failed{Failed: gone}}
		}
	}
	cloud := connected(t, p)
	address, err := cloud.Master(t.Context(), "a")
	if err != nil || address != "192.0.2.1" {
		t.Errorf("%q, %v", address, err)
	}
	_, err = cloud.Master(t.Context(), "empty")
	isError(t, err, "without an address")
	_, err = cloud.Master(t.Context(), "b")
	isError(t, err, "no such cluster")
	if len(p.initialized) != 1 || p.initialized[0].GetCluster().GetOwnerId() != "owner-1" {
		t.Errorf("initialised with %v", p.initialized)
	}
	for _, left := range p.deadlines {
		if left <= lookupDeadline-10*time.Second || left > lookupDeadline {
			t.Errorf("the deadline is %s away", left)
		}
	}
}

func TestWhoWasRestartedIsInitialisedAndAskedOnceMore(t *testing.T) {
	p := offering(&contract.Capabilities{Clusters: &contract.ClusterCapability{}})
	again := failed(contract.FailureCode_FAILURE_CODE_NOT_INITIALIZED, "who are you?")
	asked := 0
	p.master = func(*contract.GetControlPlaneAddressRequest) *contract.GetControlPlaneAddressResponse {
		if asked++; asked == 1 {
			return &contract.GetControlPlaneAddressResponse{Outcome: &contract.GetControlPlaneAddressResponse_Failed{Failed: again}}
		}
		return &contract.GetControlPlaneAddressResponse{Outcome: &contract.GetControlPlaneAddressResponse_Address{Address: "192.0.2.1"}}
	}
	cloud := connected(t, p)
	if _, err := cloud.Master(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	if asked != 2 || len(p.initialized) != 2 {
		t.Errorf("asked %d times, initialised %d times", asked, len(p.initialized))
	}

	// If the provider answers NOT_INITIALIZED again, the call fails.
	p.master = func(*contract.GetControlPlaneAddressRequest) *contract.GetControlPlaneAddressResponse {
		asked++
		return &contract.GetControlPlaneAddressResponse{Outcome: &contract.GetControlPlaneAddressResponse_Failed{Failed: again}}
	}
	_, err := cloud.Master(t.Context(), "a")
	isError(t, err, "who are you?")
	if asked != 4 {
		t.Errorf("asked %d times", asked)
	}

	// The adapter refuses a cloud scope other than the first one.
	p.scopes = []string{"another-account"}
	_, err = cloud.Master(t.Context(), "a")
	isError(t, err, `reaches "another-account" now`)
}

func TestNobodyIsAskedBeforeThisProcessLeads(t *testing.T) {
	p := offering(&contract.Capabilities{Clusters: &contract.ClusterCapability{}})
	cloud := connected(t, p)
	cloud.session.setRequest(nil)
	_, err := cloud.Master(t.Context(), "a")
	isError(t, err, "does not lead yet")
}

// instances answers with the state of each Node's name, and with one region for all. A name without
// a state gets no result.
func instances(states map[string]contract.InstanceState) func(*contract.LookupInstancesRequest) *contract.LookupInstancesResponse {
	return func(request *contract.LookupInstancesRequest) *contract.LookupInstancesResponse {
		answer := &contract.LookupInstancesResponse{}
		for _, node := range request.GetNodes() {
			if state, ok := states[node.GetName()]; ok {
				found := &contract.Instance{State: state, ProviderId: new("test://" + node.GetName()), Region: new("region-1")}
				answer.Results = append(answer.Results, &contract.LookupInstanceResult{
					NodeName: node.GetName(), NodeUid: node.GetUid(), Outcome: &contract.LookupInstanceResult_Found{Found: found},
				})
			}
		}
		return answer
	}
}

func node(name, id string) *v1.Node {
	return &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: "u"}, Spec: v1.NodeSpec{ProviderID: id}}
}

func TestWhereTheMetadataSayNoZoneItIsAskedFor(t *testing.T) {
	p := offering(&contract.Capabilities{Instances: &contract.InstanceCapability{}, Zones: &contract.ZoneCapability{}})
	p.lookup = instances(map[string]contract.InstanceState{"a": contract.InstanceState_INSTANCE_STATE_RUNNING, "b": contract.InstanceState_INSTANCE_STATE_RUNNING})
	asked := 0
	p.zones = func(request *contract.LookupZonesRequest) *contract.LookupZonesResponse {
		asked++
		view := request.GetNodes()[0]
		result := &contract.LookupZoneResult{NodeName: view.GetName(), NodeUid: view.GetUid()}
		if view.GetName() == "a" {
			result.Outcome = &contract.LookupZoneResult_Zone{Zone: &contract.Zone{Zone: new("zone-7"), Region: new("region-7")}}
		} else {
			result.Outcome = &contract.LookupZoneResult_Failed{Failed: failed(contract.FailureCode_FAILURE_CODE_UNAVAILABLE, "nobody knows")}
		}
		return &contract.LookupZonesResponse{Results: []*contract.LookupZoneResult{result}}
	}
	cloud := connected(t, p)
	metadata, err := cloud.InstanceMetadata(t.Context(), node("a", ""))
	if err != nil {
		t.Fatal(err)
	}
	// The metadata already had the region.
	if metadata.Zone != "zone-7" || metadata.Region != "region-1" || asked != 1 {
		t.Errorf("%+v, asked %d times", metadata, asked)
	}
	_, err = cloud.InstanceMetadata(t.Context(), node("b", ""))
	isError(t, err, "nobody knows")
}

// The framework deletes the Node of an instance that does not exist.
func TestOnlyAbsentIsGone(t *testing.T) {
	p := offering(&contract.Capabilities{Instances: &contract.InstanceCapability{PowerState: true}})
	p.lookup = instances(map[string]contract.InstanceState{
		"running": contract.InstanceState_INSTANCE_STATE_RUNNING, "present": contract.InstanceState_INSTANCE_STATE_PRESENT,
		"stopped": contract.InstanceState_INSTANCE_STATE_STOPPED, "pending": contract.InstanceState_INSTANCE_STATE_PENDING,
		"absent": contract.InstanceState_INSTANCE_STATE_ABSENT, "unmanaged": contract.InstanceState_INSTANCE_STATE_UNMANAGED,
		"unset": contract.InstanceState_INSTANCE_STATE_UNSPECIFIED, "newer": 42,
	})
	cloud := connected(t, p)
	rows := []struct {
		name         string
		exists, down bool
		wrong        string
	}{
		{"running", true, false, ""}, {"present", true, false, ""}, {"stopped", true, true, ""}, {"pending", true, false, ""},
		{"absent", false, false, ""}, {"unmanaged", true, false, ""},
		{"unset", false, false, "no outcome"}, {"newer", false, false, "no outcome"}, {"not-answered", false, false, "no outcome"},
	}
	for _, row := range rows {
		exists, err := cloud.InstanceExists(t.Context(), node(row.name, "test://"+row.name))
		isError(t, err, row.wrong)
		if exists != row.exists {
			t.Errorf("%s exists: %v", row.name, exists)
		}
		down, err := cloud.InstanceShutdown(t.Context(), node(row.name, "test://"+row.name))
		isError(t, err, row.wrong)
		if down != row.down {
			t.Errorf("%s is shut down: %v", row.name, down)
		}
	}
	// The adapter does not ask about a Node of another cloud.
	p.lookup = nil
	if exists, err := cloud.InstanceExists(t.Context(), node("a", "other://a")); !exists || err != nil {
		t.Errorf("%v, %v", exists, err)
	}
	if metadata, err := cloud.InstanceMetadata(t.Context(), node("a", "other://a")); metadata != nil || err != nil {
		t.Errorf("%v, %v", metadata, err)
	}
	p.lookup = instances(map[string]contract.InstanceState{"absent": contract.InstanceState_INSTANCE_STATE_ABSENT})
	if _, err := cloud.InstanceMetadata(t.Context(), node("absent", "")); !errors.Is(err, cloudprovider.InstanceNotFound) {
		t.Errorf("%v", err)
	}
}

func TestRoutesAreMadeWithTheirNodesAddressesAndRemovedAsListed(t *testing.T) {
	for _, tracks := range []bool{false, true} {
		p := offering(&contract.Capabilities{Routes: &contract.RouteCapability{TracksNodeAddresses: tracks}})
		theirs := &contract.Route{Name: "r-0", DestinationCidr: "10.0.0.0/24", NodeName: new("x"), Ownership: contract.Ownership_OWNERSHIP_FOREIGN}
		ours := &contract.Route{Name: "r-1", DestinationCidr: "10.0.1.0/24", ProviderId: new("test://a"), Ownership: contract.Ownership_OWNERSHIP_OURS}
		p.listed = []*contract.ListRoutesResponse{
			{Part: &contract.ListRoutesResponse_Routes{Routes: &contract.RouteList{Routes: []*contract.Route{theirs, ours}}}},
			{Part: &contract.ListRoutesResponse_End{End: &contract.ListEnd{Total: 2}}},
		}
		outcome := &contract.RouteResult_Done{Done: &contract.Done{}}
		done := func(key string) *contract.RouteResult { return &contract.RouteResult{RouteKey: key, Outcome: outcome} }
		p.onRoutes = func(key string) []*contract.RouteResult { return []*contract.RouteResult{done(key)} }
		cloud := connected(t, p)
		known := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
		_ = known.Add(node("a", "test://a"))
		cloud.nodes = listersv1.NewNodeLister(known)

		routes, err := cloud.ListRoutes(t.Context(), "")
		if err != nil || len(routes) != 1 || routes[0].TargetNode != "a" || routes[0].EnableNodeAddresses != tracks {
			t.Fatalf("%v, %v", routes, err)
		}
		wanted := &cloudprovider.Route{
			TargetNode: "a", DestinationCIDR: "10.0.2.0/24",
			TargetNodeAddresses: []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: "10.1.0.1"}},
		}
		if err := cloud.CreateRoute(t.Context(), "", "uid-a", wanted); err != nil {
			t.Fatal(err)
		}
		made := p.created[0].GetRoutes()[0]
		if made.GetProviderId() != "test://a" || made.GetNameHint() != "uid-a" || len(made.GetNodeAddresses()) != 1 {
			t.Errorf("asked for %v", made)
		}
		if err := cloud.DeleteRoute(t.Context(), "", routes[0]); err != nil {
			t.Fatal(err)
		}
		if removed := p.deleted[0].GetRoutes()[0]; removed.GetName() != "r-1" || removed.GetOwnership() != contract.Ownership_OWNERSHIP_OURS {
			t.Errorf("removed %v", removed)
		}
		// The adapter removes no route that it has not listed, such as another owner's.
		err = cloud.DeleteRoute(t.Context(), "", &cloudprovider.Route{Name: "r-0", DestinationCIDR: "10.0.0.0/24"})
		isError(t, err, "was not in the last listing")

		key := wanted.DestinationCIDR
		for _, wrong := range [][]*contract.RouteResult{nil, {done(key), done(key)}, {done("another")}, {{RouteKey: key}}} {
			p.onRoutes = func(string) []*contract.RouteResult { return wrong }
			isError(t, cloud.CreateRoute(t.Context(), "", "uid-a", wanted), "no outcome")
		}
		refused := &contract.RouteResult_Failed{Failed: failed(contract.FailureCode_FAILURE_CODE_CONFLICT, "it is another's")}
		p.onRoutes = func(string) []*contract.RouteResult {
			return []*contract.RouteResult{{RouteKey: key, Outcome: refused}}
		}
		isError(t, cloud.CreateRoute(t.Context(), "", "uid-a", wanted), "it is another's")
	}
}

// A call frees its place when it ends. A call that finds no place gives up when its context ends.
func TestWhoFindsNoPlaceGivesUpWithItsContext(t *testing.T) {
	places := inFlight(1)
	done, err := limited(t.Context(), places)
	if err != nil {
		t.Fatal(err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := limited(ended, places); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	done()
	if _, err := limited(t.Context(), places); err != nil {
		t.Error(err)
	}
}

func TestConfigurationsThatAreWrongAreNamed(t *testing.T) {
	rows := map[string]string{
		"":                             "",
		"endpoint: unix:///run/p.sock": "",
		"endpoint: tcp://host:1":       `endpoint: "tcp://host:1" is no Unix socket`,
		"endpoint: unix://relative":    "is no Unix socket",
		"clusterCIDRs: [10.244.0.0]":   `clusterCIDRs: "10.244.0.0" is no CIDR`,
		"connectTimeout: -1s":          "connectTimeout: -1s is negative",
		"endpiont: unix:///run/p.sock": `unknown field "endpiont"`,
		"endpoint: unix:///" + strings.Repeat("x", 120): "has at most 107",
	}
	for text, wrong := range rows {
		_, err := ReadConfig(strings.NewReader(text))
		isError(t, err, wrong)
	}
	config, _ := ReadConfig(nil)
	if config.Endpoint != defaultEndpoint || config.ClusterName != "kubernetes" || config.ConnectTimeout.Duration != time.Minute {
		t.Errorf("%+v", config)
	}
}

func isError(t *testing.T, err error, wanted string) {
	t.Helper()
	switch {
	case wanted == "" && err != nil:
		t.Errorf("it failed: %v", err)
	case wanted != "" && (err == nil || !strings.Contains(err.Error(), wanted)):
		t.Errorf("the error is %v instead of %q", err, wanted)
	}
}
