package bridge

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	listersv1 "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	cloudprovider "k8s.io/cloud-provider"

	"github.com/grpc-ccm/grpc-ccm/providers/go/contract"
)

// apiError is an error type. A vendor may return a nil pointer of it as an error.
type apiError struct{ status string }

func (a *apiError) Error() string { return a.status }

// Error panics on a nil pointer, as a vendor's method may.
func TestATypedNilErrorIsAFailure(t *testing.T) {
	var none *apiError
	cloud := &scripted{
		ensure: func(context.Context, *v1.Service, []*v1.Node) (*v1.LoadBalancerStatus, error) { return nil, none },
	}
	bridge := initialised(t, cloud, Options{})
	for range 2 {
		answer := bridge.ensure(patience, service("a"))
		if code := answer.GetFailed().GetCode(); code != contract.FailureCode_FAILURE_CODE_INTERNAL {
			t.Fatalf("the answer is %v", answer)
		}
	}
}

func probed(t *testing.T, bridge *served) contract.ProbeState {
	t.Helper()
	answer, err := bridge.provider.Probe(bridge.context(patience), &contract.ProbeRequest{})
	if err != nil {
		t.Fatal(err)
	}
	return answer.GetState()
}

// PROV-16: a refusal of one object shows that the cloud works.
func TestARefusalOfOneObjectEndsDegraded(t *testing.T) {
	status := 503
	cloud := &scripted{ensure: func(context.Context, *v1.Service, []*v1.Node) (*v1.LoadBalancerStatus, error) {
		return nil, fmt.Errorf("POST https://cloud.example: %d", status)
	}}
	bridge := initialised(t, cloud, Options{Classify: ClassifyHTTPStatus})
	for range manyFailures {
		bridge.ensure(patience, service("a"))
	}
	if state := probed(t, bridge); state != contract.ProbeState_PROBE_STATE_DEGRADED {
		t.Fatalf("after five times 503 Probe says %v", state)
	}
	status = 422
	bridge.ensure(patience, service("a"))
	if state := probed(t, bridge); state != contract.ProbeState_PROBE_STATE_READY {
		t.Errorf("after 422 Probe says %v", state)
	}
}

// A deadline of the cloud's own, such as that of its HTTP client, is a failure and not "pending".
func TestATimeoutOfTheCloudsOwnIsAFailure(t *testing.T) {
	cloud := &scripted{ensure: func(context.Context, *v1.Service, []*v1.Node) (*v1.LoadBalancerStatus, error) {
		return nil, fmt.Errorf("POST https://cloud.example: %w", context.DeadlineExceeded)
	}}
	bridge := initialised(t, cloud, Options{})
	answer := bridge.ensure(patience, service("a"))
	if code := answer.GetFailed().GetCode(); code != contract.FailureCode_FAILURE_CODE_UNAVAILABLE {
		t.Errorf("the answer is %v", answer)
	}
}

// INST-15, INST-8.
func TestAFactWithoutAFormIsLeftOut(t *testing.T) {
	cloud := &scripted{
		metadata: func(context.Context, *v1.Node) (*cloudprovider.InstanceMetadata, error) {
			return &cloudprovider.InstanceMetadata{
				ProviderID: "scripted://a", InstanceType: "very large machine!", Zone: "zone-a", Region: string(make([]byte, 300)),
				NodeAddresses:    []v1.NodeAddress{{Type: "Other", Address: "x"}, {Type: v1.NodeInternalIP, Address: "10.0.0.1"}, {Type: v1.NodeExternalIP, Address: "host"}, {Type: v1.NodeHostName, Address: "a_b"}},
				AdditionalLabels: map[string]string{"good": "yes", "bad": "\xff", "dropped": "by the controller!"},
			}, nil
		},
		exists:   func(context.Context, *v1.Node) (bool, error) { return true, nil },
		shutdown: func(context.Context, *v1.Node) (bool, error) { return false, nil },
	}
	bridge := initialised(t, cloud, Options{})
	found := bridge.lookup(patience, node("a"))["a"].GetFound()
	if found == nil || found.InstanceType != nil || found.Region != nil || found.GetZone() != "zone-a" {
		t.Errorf("found is %v", found)
	}
	if len(found.GetAddresses()) != 1 || len(found.GetLabels()) != 2 {
		t.Errorf("addresses %v, labels %v", found.GetAddresses(), found.GetLabels())
	}
}

type zoned struct {
	cloudprovider.Zones
	found cloudprovider.Zone
}

func (z *zoned) GetZoneByProviderID(context.Context, string) (cloudprovider.Zone, error) {
	return z.found, nil
}

// ZONE-2.
func TestAZoneThatIsNoLabelValueIsLeftOut(t *testing.T) {
	zones := &zoned{}
	bridge := serve(t, newLate(func(l *late) { makesAll(l); l.zones = zones }), Options{Offers: []string{"instances", "zones", "load-balancers"}})
	bridge.initialise()
	for _, row := range []struct {
		found        cloudprovider.Zone
		zone, region *string
	}{
		{cloudprovider.Zone{FailureDomain: "zone_1.a", Region: "eu-west"}, new("zone_1.a"), new("eu-west")},
		{cloudprovider.Zone{FailureDomain: "Rack 1, left", Region: "eu-west"}, nil, new("eu-west")},
		{cloudprovider.Zone{FailureDomain: "zone-a", Region: strings.Repeat("r", 300)}, new("zone-a"), nil},
		{cloudprovider.Zone{FailureDomain: "z\xff"}, nil, nil},
	} {
		zones.found = row.found
		said, err := bridge.zones.LookupZones(bridge.context(patience), &contract.LookupZonesRequest{Cluster: cluster(), Nodes: []*contract.NodeView{node("one")}})
		must(t, err)
		if is, expected := said.GetResults()[0].GetZone(), (&contract.Zone{Zone: row.zone, Region: row.region}); !proto.Equal(is, expected) {
			t.Errorf("%q: %v", row.found, said)
		}
	}
}

// CORE-20.
func TestAServiceWithoutANameIsInvalid(t *testing.T) {
	bridge := initialised(t, &scripted{}, Options{})
	unnamed := service("a")
	unnamed.Name = ""
	answer := bridge.ensure(patience, unnamed)
	if code := answer.GetFailed().GetCode(); code != contract.FailureCode_FAILURE_CODE_INVALID {
		t.Errorf("the answer is %v", answer)
	}
}

type owned struct {
	*scripted
	is contract.Ownership
}

func (o *owned) LoadBalancerOwnership(context.Context, string, *v1.Service) (contract.Ownership, error) {
	return o.is, nil
}

func (o *owned) LoadBalancer() (cloudprovider.LoadBalancer, bool) { return o, true }

// Rows of LB-24 for Update and Delete without a handle, for a cloud with OwnerChecker.
func TestOwnersAreTreatedAsTheTableSays(t *testing.T) {
	const (
		done     = "done"
		conflict = "FAILURE_CODE_CONFLICT"
		notFound = "FAILURE_CODE_NOT_FOUND"
	)
	code := func(failure *contract.Failure) string {
		if failure == nil {
			return done
		}
		return failure.GetCode().String()
	}
	for _, row := range []struct {
		is                            contract.Ownership
		update, remove, removeGranted string
		calls                         int
	}{
		{contract.Ownership_OWNERSHIP_OURS, done, done, done, 2},
		{contract.Ownership_OWNERSHIP_UNMARKED, notFound, conflict, done, 1},
		{contract.Ownership_OWNERSHIP_FOREIGN, notFound, done, done, 0},
	} {
		var removed int
		cloud := &owned{&scripted{
			tagged: true,
			update: func(context.Context, *v1.Service, []*v1.Node) error { return nil },
			remove: func(context.Context, *v1.Service) error { removed++; return nil },
		}, row.is}
		bridge := serve(t, cloud, Options{})
		bridge.initialise()
		update, err := bridge.balancers.UpdateLoadBalancer(bridge.context(patience), &contract.UpdateLoadBalancerRequest{Cluster: cluster(), Service: service("a"), Targets: targets("one")})
		if got := code(update.GetFailed()); err != nil || got != row.update {
			t.Errorf("%v: Update is %s, %v", row.is, got, err)
		}
		for granted, want := range map[bool]string{false: row.remove, true: row.removeGranted} {
			answer, err := bridge.balancers.DeleteLoadBalancer(bridge.context(patience), &contract.DeleteLoadBalancerRequest{Cluster: cluster(), Service: service("a"), AdoptUnmarked: granted})
			if got := code(answer.GetFailed()); err != nil || got != want {
				t.Errorf("%v: Delete with adopt_unmarked %v is %s, %v", row.is, granted, got, err)
			}
		}
		if removed != row.calls {
			t.Errorf("%v: the cloud was asked %d times to remove it", row.is, removed)
		}
	}
}

// Several errors of which one says "elsewhere" are a failure.
func TestElsewhereBesideAnotherErrorIsAFailure(t *testing.T) {
	cloud := &scripted{remove: func(context.Context, *v1.Service) error {
		return errors.Join(cloudprovider.ImplementedElsewhere, errors.New("the API is down"))
	}}
	cloud.get = func(ctx context.Context, service *v1.Service) (*v1.LoadBalancerStatus, bool, error) {
		return nil, false, cloud.remove(ctx, service)
	}
	bridge := initialised(t, cloud, Options{})
	answer, err := bridge.balancers.DeleteLoadBalancer(bridge.context(patience), &contract.DeleteLoadBalancerRequest{Cluster: cluster(), Service: service("a")})
	if err != nil || answer.GetFailed() == nil {
		t.Errorf("the answer is %v, %v", answer, err)
	}
	found, err := bridge.balancers.GetLoadBalancer(bridge.context(patience), &contract.GetLoadBalancerRequest{Cluster: cluster(), Service: service("a")})
	if err != nil || found.GetFailed() == nil {
		t.Errorf("Get answers %v, %v", found, err)
	}
}

// PROV-9: an operator pastes the scope into a command.
func TestAScopeWithOtherCharactersIsRefused(t *testing.T) {
	options := Options{Name: "scripted", ProviderIDPrefixes: []string{"scripted://"}, CloudScope: "acct $(x)"}
	if err := options.complete("scripted"); err == nil {
		t.Error("it is taken")
	}
}

// PROV-8.
func TestAPrefixOfAnotherFormIsRefused(t *testing.T) {
	for prefix, allowed := range map[string]bool{
		"scripted://": true, "aws:///eu-1a/i-": true, "": false, "scripted": false, "scripted:": false, "scr ipted://": false, "scripted://\n": false,
		"scripted://" + strings.Repeat("a", 253): false,
	} {
		options := Options{ProviderIDPrefixes: []string{prefix}}
		if err := options.complete("scripted"); (err == nil) != allowed {
			t.Errorf("%q: %v", prefix, err)
		}
	}
}

// PROV-8 states the form of a prefix; the comment of its field forbids the same prefix twice.
func TestAPrefixThatIsThereTwiceIsRefused(t *testing.T) {
	options := Options{ProviderIDPrefixes: []string{"scripted://", "other://", "scripted://"}}
	err := options.complete("scripted")
	for _, word := range []string{"provider-id-prefix", `"scripted://"`, "twice", "write each prefix once"} {
		if err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("%s: %v", word, err)
		}
	}
}

type otherScope struct{ marked }

func (o *otherScope) CloudScope(context.Context) (string, error) { return "acct $(x)", nil }

// PROV-9.
func TestAScopeOfTheCloudsOwnWithOtherCharactersFailsInitialize(t *testing.T) {
	failed := serve(t, &otherScope{}, Options{}).startWithin(patience).GetFailed()
	code(t, failed, contract.FailureCode_FAILURE_CODE_INTERNAL)
	if !strings.Contains(failed.GetMessage(), "acct $(x)") || !strings.Contains(failed.GetMessage(), "write letters") {
		t.Error(failed)
	}
}

type endingScope struct {
	marked
	end func()
}

func (e *endingScope) CloudScope(context.Context) (string, error) {
	e.end()
	return "account 1", nil
}

// PROV-17.
func TestAnInitializeWhoseCallerIsGoneChangesNothing(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	bridge, err := New(&endingScope{end: cancel}, Options{})
	must(t, err)
	defer bridge.Close()
	answer, err := bridge.Initialize(ctx, &contract.InitializeRequest{Cluster: cluster()})
	must(t, err)
	if answer.GetFailed() == nil {
		t.Errorf("the answer is %v", answer)
	}
	_, failed := bridge.admit(cluster())
	code(t, failed, contract.FailureCode_FAILURE_CODE_NOT_INITIALIZED)
}

// CORE-4: the bridge replaces invalid UTF-8 in annotations, port errors and volume labels, because
// gRPC would not send the answer.
func TestATextOfTheCloudThatIsNoUTF8IsMadeReadable(t *testing.T) {
	bad := "a\xffb"
	cloud := &scripted{
		ensure: func(_ context.Context, service *v1.Service, _ []*v1.Node) (*v1.LoadBalancerStatus, error) {
			service.Annotations["cloud.example/id"] = bad
			status := ready("203.0.113.1")
			status.Ingress[0].Ports = []v1.PortStatus{{Port: 80, Protocol: v1.ProtocolTCP, Error: &bad}}
			return status, nil
		},
		labels: func(context.Context, *v1.PersistentVolume) (map[string]string, error) {
			return map[string]string{"zone": bad}, nil
		},
	}
	bridge := initialised(t, cloud, Options{})
	answer, err := bridge.balancers.EnsureLoadBalancer(bridge.context(patience), &contract.EnsureLoadBalancerRequest{Cluster: cluster(), Service: service("a"), Targets: targets()})
	must(t, err)
	labels, err := bridge.volumes.GetVolumeLabels(bridge.context(patience), &contract.GetVolumeLabelsRequest{Cluster: cluster(), Volume: &contract.VolumeView{Name: "v", SourceType: "awsElasticBlockStore", Source: map[string]string{"volumeID": "v"}}})
	must(t, err)
	for _, text := range []string{
		answer.GetAnnotations().GetSet()["cloud.example/id"], answer.GetReady().GetStatus().GetIngress()[0].GetPorts()[0].GetError(), labels.GetLabels().GetLabels()["zone"],
	} {
		if text != "a\uFFFDb" {
			t.Errorf("%q in %v %v", text, answer, labels)
		}
	}
}

// A cloud takes 404 for a deletion, so the stand-in answers 403 for an object that no call has named.
func TestAnObjectThatNoCallHasNamedIsNoDeletedOne(t *testing.T) {
	client, err := kubernetes.NewForConfig(newStandIn().cloudConfig())
	must(t, err)
	_, ofNode := client.CoreV1().Nodes().Get(t.Context(), "one", metav1.GetOptions{})
	_, ofService := client.CoreV1().Services("default").Get(t.Context(), "web", metav1.GetOptions{})
	for _, err := range []error{ofNode, ofService} {
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "no call has named it") {
			t.Error(err)
		}
	}
}

// An index has only the Services that calls have named. So a search for Services by an index fails, and the stand-in records the request.
func TestServicesAreNotFoundByAnIndex(t *testing.T) {
	factory := informers.NewSharedInformerFactory(fake.NewClientset(&v1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}}), 0)
	inner := factory.Core().V1().Services().Informer()
	if err := inner.AddIndexers(cache.Indexers{}); err != nil {
		t.Fatal(err)
	}
	lacks := &lacks{noted: make(chan struct{})}
	indexer := &fedIndexer{inner.GetIndexer(), serviceKind, lacks}
	if _, err := indexer.ByIndex(cache.NamespaceIndex, "default"); err == nil {
		t.Error("ByIndex has no error")
	}
	found, _ := listersv1.NewServiceLister(indexer).Services("default").List(labels.Everything())
	if len(found) > 0 || lacks.now() == "" {
		t.Errorf("found %v, and the provider says %q", found, lacks.now())
	}
}

func TestAClassThatTheControllerRefusesIsRefusedAtTheStart(t *testing.T) {
	many := make([]string, 65)
	for number := range many {
		many[number] = fmt.Sprintf("scripted/%d", number)
	}
	for name, row := range map[string]struct {
		options Options
		allowed bool
	}{
		"the most classes": {Options{Classes: many[:64], OnlyClasses: true}, true},
		"too many":         {Options{Classes: many}, false},
		"none":             {Options{OnlyClasses: true}, false},
		"the name default": {Options{Classes: []string{"default"}}, false},
		"empty":            {Options{Classes: []string{""}}, false},
		"a space":          {Options{Classes: []string{"scripted lb"}}, false},
		"too long":         {Options{Classes: []string{strings.Repeat("a", 254)}}, false},
		"twice":            {Options{Classes: []string{"scripted/lb", "scripted/lb"}}, false},
	} {
		if err := row.options.complete("scripted"); (err == nil) != row.allowed {
			t.Errorf("%s: %v", name, err)
		}
	}
}
