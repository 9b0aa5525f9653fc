package bridge

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"
	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/cloud-provider/api"

	"github.com/grpc-ccm/grpc-ccm/providers/go/contract"
)

func TestOneNodesTroubleIsNotTheOthers(t *testing.T) {
	cloud := &scripted{
		exists: func(_ context.Context, node *v1.Node) (bool, error) {
			switch node.Name {
			case "gone":
				return false, nil
			case "gone-by-error":
				return false, fmt.Errorf("no instance: %w", cloudprovider.InstanceNotFound)
			case "fails", "fails-and-gone", "in-doubt":
				return false, errors.Join(errors.New("too many requests"), cloudprovider.InstanceNotFound)
			}
			return true, nil
		},
		metadata: func(_ context.Context, node *v1.Node) (*cloudprovider.InstanceMetadata, error) {
			metadata := metadataOf(node)
			switch node.Name {
			case "gone":
				return nil, errors.New("404, as text")
			case "gone-by-error", "contradicts", "in-doubt":
				return nil, cloudprovider.InstanceNotFound
			case "panics":
				panic("nil pointer, or worse")
			case "later":
				return nil, api.NewRetryError("wait", 9*time.Second)
			case "fails":
				return nil, errors.New("too many requests")
			case "fails-and-gone":
				return nil, errors.Join(errors.New("too many requests"), cloudprovider.InstanceNotFound)
			case "foreign-by-metadata":
				return nil, nil
			case "wrong-prefix":
				metadata.ProviderID = "other://1"
			case "no-id", "no-id-said":
				metadata.ProviderID = ""
			}
			return metadata, nil
		},
		shutdown: func(_ context.Context, node *v1.Node) (bool, error) {
			if node.Name == "power-unknown" {
				return false, cloudprovider.NotImplemented
			}
			return node.Name == "off", nil
		},
	}
	bridge := initialised(t, cloud, Options{})
	other := node("others")
	other.ProviderId = new("other://1")
	names := []string{"fine", "off", "gone", "gone-by-error", "panics", "later", "fails", "fails-and-gone", "foreign-by-metadata", "contradicts", "in-doubt", "wrong-prefix", "no-id-said",
		"power-unknown"}
	nameless := node("no-id")
	nameless.ProviderId = nil
	nodes := []*contract.NodeView{other, nameless}
	for _, name := range names {
		nodes = append(nodes, node(name))
	}
	results := bridge.lookup(patience, nodes...)
	for name, state := range map[string]contract.InstanceState{
		"fine":                contract.InstanceState_INSTANCE_STATE_RUNNING,
		"off":                 contract.InstanceState_INSTANCE_STATE_STOPPED,
		"gone":                contract.InstanceState_INSTANCE_STATE_ABSENT,
		"gone-by-error":       contract.InstanceState_INSTANCE_STATE_ABSENT,
		"foreign-by-metadata": contract.InstanceState_INSTANCE_STATE_UNMANAGED,
		"others":              contract.InstanceState_INSTANCE_STATE_UNMANAGED,
		"power-unknown":       contract.InstanceState_INSTANCE_STATE_PRESENT,
		// As upstream, the provider ID is that of the Node.
		"no-id-said": contract.InstanceState_INSTANCE_STATE_RUNNING,
	} {
		if got := results[name].GetFound().GetState(); got != state {
			t.Errorf("%s: expected %s, came %v", name, state, results[name])
		}
	}
	for name, text := range map[string]string{
		"panics": "nil pointer, or worse", "later": "wait", "fails": "too many", "fails-and-gone": "too many", "contradicts": "answered with yes", "in-doubt": "could not be asked",
		"wrong-prefix": "scripted://", "no-id": "INST-7",
	} {
		failed := results[name].GetFailed()
		if failed.GetCode() != contract.FailureCode_FAILURE_CODE_INTERNAL || !strings.Contains(failed.GetMessage(), text) {
			t.Errorf("%s: expected INTERNAL with %q, came %v", name, text, results[name])
		}
	}
	if results["later"].GetFailed().GetRetryAfter().AsDuration() != 9*time.Second {
		t.Errorf("later: %v", results["later"])
	}
	if fine := results["fine"].GetFound(); fine.GetProviderId() != "scripted://fine" || fine.GetZone() != "a" || len(fine.GetAddresses()) != 1 || results["fine"].GetNodeUid() != "uid-fine" {
		t.Errorf("fine: %v", fine)
	}
	// The process continues: the panic failed only one call.
	if again := bridge.lookup(patience, node("fine"))["fine"].GetFound(); again == nil {
		t.Error("nothing is answered after a panic")
	}
}

func TestPowerAloneTellsThatAnInstanceIsGone(t *testing.T) {
	there := func(name string) bool { return name != "gone" }
	newer := &scripted{
		exists: func(_ context.Context, node *v1.Node) (bool, error) { return there(node.Name), nil },
		// As in AWS's cloud, an instance that does not exist is not shut down.
		shutdown: func(context.Context, *v1.Node) (bool, error) { return false, nil },
	}
	older := &olderInstances{scripted: &scripted{}, exists: func(id string) bool { return there(strings.TrimPrefix(id, "scripted://")) }}
	newer.tagged, older.tagged = true, true
	for name, cloud := range map[string]cloudprovider.Interface{"InstancesV2": newer, "Instances": older} {
		bridge := serve(t, cloud, Options{})
		bridge.initialise()
		answer, err := bridge.instances.LookupInstances(bridge.context(patience), &contract.LookupInstancesRequest{
			Cluster: cluster(), Nodes: []*contract.NodeView{node("gone"), node("runs")}, Facets: []contract.InstanceFacet{contract.InstanceFacet_INSTANCE_FACET_POWER},
		})
		must(t, err)
		gone, runs := answer.GetResults()[0].GetFound().GetState(), answer.GetResults()[1].GetFound().GetState()
		if gone != contract.InstanceState_INSTANCE_STATE_ABSENT || runs != contract.InstanceState_INSTANCE_STATE_RUNNING {
			t.Errorf("%s: %v", name, answer)
		}
	}
}

// AWS's cloud is such a cloud: DescribeInstances returns a terminated instance for about an hour.
func TestAnInstanceThatIsDescribedAfterItsEndIsAbsentWherePowerIsAsked(t *testing.T) {
	cloud := &scripted{
		metadata: func(_ context.Context, node *v1.Node) (*cloudprovider.InstanceMetadata, error) {
			return metadataOf(node), nil
		},
		exists: func(context.Context, *v1.Node) (bool, error) { return false, nil },
	}
	bridge := initialised(t, cloud, Options{})
	if got := bridge.lookup(patience, node("terminated"))["terminated"].GetFound().GetState(); got != contract.InstanceState_INSTANCE_STATE_ABSENT {
		t.Errorf("INST-14: expected ABSENT, came %s", got)
	}
}

// olderInstances is a cloud without InstancesV2 that knows which provider IDs exist, and reports no machine as shut down.
type olderInstances struct {
	*scripted
	unasked
	exists func(id string) bool
}

// unasked are the methods that no test calls.
type unasked interface{ cloudprovider.Instances }

func (o *olderInstances) InstancesV2() (cloudprovider.InstancesV2, bool) { return nil, false }
func (o *olderInstances) Instances() (cloudprovider.Instances, bool)     { return o, true }

func (o *olderInstances) InstanceExistsByProviderID(_ context.Context, id string) (bool, error) {
	return o.exists(id), nil
}

func (o *olderInstances) InstanceShutdownByProviderID(context.Context, string) (bool, error) {
	return false, nil
}

func TestABatchFansOutIntoABoundedNumberOfCalls(t *testing.T) {
	var now, most, calls atomic.Int64
	cloud := &scripted{
		exists: func(context.Context, *v1.Node) (bool, error) {
			calls.Add(1)
			running := now.Add(1)
			for seen := most.Load(); running > seen && !most.CompareAndSwap(seen, running); seen = most.Load() {
			}
			time.Sleep(time.Millisecond)
			now.Add(-1)
			return true, nil
		},
	}
	bridge := initialised(t, cloud, Options{ConcurrentCalls: 3, NoPowerState: true})
	request := &contract.LookupInstancesRequest{Cluster: cluster(), Facets: []contract.InstanceFacet{contract.InstanceFacet_INSTANCE_FACET_EXISTENCE}}
	for number := range 100 {
		request.Nodes = append(request.Nodes, node(numbered(number)))
	}
	answer, err := bridge.instances.LookupInstances(bridge.context(patience), request)
	must(t, err)
	if len(answer.GetResults()) != 100 || calls.Load() != 100 {
		t.Errorf("%d results of %d calls", len(answer.GetResults()), calls.Load())
	}
	if most.Load() != 3 {
		t.Errorf("%d calls at once; 3 are allowed and wanted", most.Load())
	}
	request.Nodes = append(request.Nodes, node("one-too-many"))
	answer, err = bridge.instances.LookupInstances(bridge.context(patience), request)
	must(t, err)
	code(t, answer.GetFailed(), contract.FailureCode_FAILURE_CODE_INVALID)
}

func TestAMethodThatIgnoresItsContextKeepsNobodyWaiting(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	cloud := &scripted{
		metadata: func(_ context.Context, node *v1.Node) (*cloudprovider.InstanceMetadata, error) {
			if strings.HasPrefix(node.Name, "hangs") {
				<-release
			}
			return metadataOf(node), nil
		},
		exists:   func(context.Context, *v1.Node) (bool, error) { return true, nil },
		shutdown: func(context.Context, *v1.Node) (bool, error) { return false, nil },
	}
	bridge := initialised(t, cloud, Options{ConcurrentCalls: 2})
	began := time.Now()
	results := bridge.lookup(shortDeadline, node("hangs-1"), node("fine"))
	if took := time.Since(began); took >= shortDeadline {
		t.Errorf("answered after %s, at its deadline or later", took)
	}
	if failed := results["hangs-1"].GetFailed(); failed.GetReason() != "ContextIgnored" || !strings.Contains(failed.GetMessage(), "context") {
		t.Errorf("hangs-1: %v", failed)
	}
	if results["fine"].GetFound() == nil {
		t.Errorf("fine: %v", results["fine"])
	}
	// Methods hold both places now, so no further method begins, and the next call gives the reason.
	bridge.lookup(shortDeadline, node("hangs-2"))
	if failed := bridge.lookup(shortDeadline, node("fine"))["fine"].GetFailed(); failed.GetReason() != "NoPlace" {
		t.Errorf("expected no place, came %v", failed)
	}
	probe, err := bridge.provider.Probe(bridge.context(patience), &contract.ProbeRequest{})
	must(t, err)
	if probe.GetState() != contract.ProbeState_PROBE_STATE_DEGRADED || !strings.Contains(probe.GetMessage(), "2 of 2 places") {
		t.Errorf("the probe says %v", probe)
	}
	close(release)
	eventually(t, "both places are free again, and the probe says so", func() bool {
		bridge.lookup(patience, node("fine"))
		probe, err = bridge.provider.Probe(bridge.context(patience), &contract.ProbeRequest{})
		must(t, err)
		return probe.GetState() == contract.ProbeState_PROBE_STATE_READY && probe.GetLastCloudSuccess() != nil
	})
}

func TestCallsThatAllFailAreSeenInTheProbe(t *testing.T) {
	var fails atomic.Bool
	fails.Store(true)
	cloud := &scripted{metadata: func(_ context.Context, node *v1.Node) (*cloudprovider.InstanceMetadata, error) {
		if fails.Load() {
			return nil, errors.New("the cloud is on fire")
		}
		return nil, cloudprovider.InstanceNotFound
	}}
	cloud.exists = func(ctx context.Context, node *v1.Node) (bool, error) {
		_, err := cloud.metadata(ctx, node)
		return false, err
	}
	bridge := initialised(t, cloud, Options{})
	probe := func() *contract.ProbeResponse {
		answer, err := bridge.provider.Probe(bridge.context(patience), &contract.ProbeRequest{})
		must(t, err)
		return answer
	}
	for number := range manyFailures {
		if state := probe().GetState(); state != contract.ProbeState_PROBE_STATE_READY {
			t.Errorf("%s after %d failures", state, number)
		}
		bridge.lookup(patience, node("a"))
	}
	if answer := probe(); answer.GetState() != contract.ProbeState_PROBE_STATE_DEGRADED || !strings.Contains(answer.GetMessage(), "on fire") {
		t.Errorf("the probe says %v", answer)
	}
	fails.Store(false)
	bridge.lookup(patience, node("a"))
	if answer := probe(); answer.GetState() != contract.ProbeState_PROBE_STATE_READY {
		t.Errorf("the probe says %v", answer)
	}
}

func TestTheCloudSeesTheNodeAsTheControllerShowsIt(t *testing.T) {
	var seen *v1.Node
	cloud := &scripted{exists: func(_ context.Context, node *v1.Node) (bool, error) {
		seen = node.DeepCopy()
		// A cloud that writes to its arguments does no harm.
		node.Labels["role"] = "changed"
		return true, nil
	}}
	bridge := initialised(t, cloud, Options{NodeAnnotations: []string{"note"}})
	view := node("full")
	view.Labels = map[string]string{"role": "worker"}
	view.Annotations = map[string]string{"note": "x"}
	view.PodCidrs = []string{"10.1.0.0/24", "fd00::/64"}
	view.Taints = []*contract.Taint{{Key: "k", Effect: "NoSchedule"}}
	view.NodeInfo = &contract.NodeInfo{SystemUuid: "uuid", Architecture: "arm64"}
	view.Ready = new(true)
	view.Addresses = []*contract.NodeAddress{{Type: contract.NodeAddressType_NODE_ADDRESS_TYPE_INTERNAL_IP, Address: "10.0.0.9"}}
	sent := proto.Clone(view)
	answer, err := bridge.instances.LookupInstances(bridge.context(patience), &contract.LookupInstancesRequest{Cluster: cluster(), Nodes: []*contract.NodeView{view}})
	must(t, err)
	if answer.GetResults()[0].GetFound().GetState() != contract.InstanceState_INSTANCE_STATE_PRESENT || !proto.Equal(sent, view) {
		t.Errorf("%v", answer)
	}
	if seen.Labels["role"] != "worker" || seen.Annotations["note"] != "x" || seen.Spec.PodCIDR != "10.1.0.0/24" || len(seen.Spec.PodCIDRs) != 2 || seen.Spec.Taints[0].Effect != v1.TaintEffectNoSchedule ||
		seen.Status.NodeInfo.SystemUUID != "uuid" || seen.Status.Conditions[0].Status != v1.ConditionTrue || seen.Status.Addresses[0].Address != "10.0.0.9" || seen.Spec.ProviderID != "scripted://full" {
		t.Errorf("%+v", seen)
	}
	info, err := bridge.provider.GetProviderInfo(bridge.context(patience), &contract.GetProviderInfoRequest{})
	must(t, err)
	if projection := info.GetNodeProjection(); !projection.GetAllLabels() || projection.GetAnnotationKeys()[0] != "note" || len(projection.GetFieldGroups()) != 5 {
		t.Errorf("the projection is %v", projection)
	}
}
