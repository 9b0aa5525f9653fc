package provider

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/digitalocean/godo"
	"github.com/grpc-ccm/grpc-ccm/providers/digitalocean/testapi"
	"github.com/grpc-ccm/grpc-ccm/providers/go/contract"
	"github.com/grpc-ccm/grpc-ccm/providers/go/sdk"
	api "github.com/grpc-ccm/grpc-ccm/providers/testapi"
)

const (
	running = contract.InstanceState_INSTANCE_STATE_RUNNING
	stopped = contract.InstanceState_INSTANCE_STATE_STOPPED
	absent  = contract.InstanceState_INSTANCE_STATE_ABSENT
)

// The figures of docs/digitalocean.md: pages of 200, and 100 ms for each call. `make bench SCENARIOS=clouds` measures the time.
func TestAThousandNodesAreInitialisedWithinEighteenCalls(t *testing.T) {
	h := initialized(t)
	nodes := []*contract.NodeView{node("node-0", 0), node("node-1", 0), node("node-2", 0)}
	for i := len(nodes); i < 1_000; i++ {
		name := fmt.Sprintf("node-%d", i)
		h.cloud.AddDroplet(testapi.NewDroplet{Name: name})
		nodes = append(nodes, node(name, 0))
	}
	h.cloud.Latency(100 * time.Millisecond)
	for _, batch := range []int{500, 125} {
		calls, routes := h.calls(func() {
			var all sync.WaitGroup
			for part := range slices.Chunk(nodes, batch) {
				all.Go(func() {
					answer := h.lookup(part...)
					for _, result := range answer.Results {
						if result.GetFound().GetState() != running {
							h.Errorf("%v", result)
						}
					}
					if answer.Failed != nil || len(answer.Results) != len(part) {
						h.Errorf("%d results for %d Nodes: %v", len(answer.Results), len(part), answer.Failed)
					}
				})
			}
			all.Wait()
		})
		t.Logf("1,000 Nodes in batches of %d: %d calls %v", batch, calls, routes)
		if calls > 18 {
			t.Errorf("%d calls %v are more than 18", calls, routes)
		}
	}
	if state := h.found(node("node-7", 0)).State; state != running {
		t.Errorf("%s", state)
	}
	// One Node takes two calls, also in an account of this size: one for droplets, and one for those with GPUs.
	if calls, routes := h.calls(func() { h.found(node("node-7", 0)) }); calls != 2 {
		t.Errorf("one Node took %v", routes)
	}
}

func TestARefreshOfManyDropletsWithGPUsListsThem(t *testing.T) {
	h := initialized(t)
	nodes := []*contract.NodeView{node("gone", 77)}
	for i := range 100 {
		name := fmt.Sprintf("gpu-%d", i)
		nodes = append(nodes, node(name, h.cloud.AddDroplet(testapi.NewDroplet{Name: name, GPU: true})))
	}
	calls, routes := h.calls(func() {
		for i, result := range h.lookup(nodes...).Results {
			if state := result.GetFound().GetState(); (state == absent) != (i == 0) {
				t.Errorf("%v", result)
			}
		}
	})
	if calls != 3 { // Two lists, and the one that is gone.
		t.Errorf("%d calls: %v", calls, routes)
	}
	h.plan(api.Plan{Match: "GET /v2/droplets[?].*gpus", Status: 500})
	for i, result := range h.lookup(nodes...).Results {
		if state := result.GetFound().GetState(); (state == absent) != (i == 0) {
			t.Errorf("without the second list: %v", result)
		}
	}
	if h.cloud.Planned() > 0 {
		t.Error("the second list was not asked for")
	}
}

func TestDropletsAreFoundByNameAddressAndID(t *testing.T) {
	h := initialized(t)
	gpu := h.cloud.AddDroplet(testapi.NewDroplet{Name: "gpu-0", GPU: true, IPv6: true})
	h.cloud.AddDroplet(testapi.NewDroplet{Name: "node-0", Region: "fra1"})
	twins := []int{h.cloud.AddDroplet(testapi.NewDroplet{Name: "twin"}), h.cloud.AddDroplet(testapi.NewDroplet{Name: "twin"})}
	found := h.found(node("node-0", 0))
	if found.GetProviderId() != fmt.Sprintf("digitalocean://%d", h.droplets[0]) || found.GetRegion() != "nyc1" || found.Zone != nil || found.GetInstanceType() != "s-2vcpu-4gb" {
		t.Errorf("%v", found)
	}
	kinds := []contract.NodeAddressType{}
	for _, address := range h.found(node("gpu-0", gpu)).Addresses {
		kinds = append(kinds, address.Type)
	}
	if fmt.Sprint(kinds) != "[NODE_ADDRESS_TYPE_HOSTNAME NODE_ADDRESS_TYPE_INTERNAL_IP NODE_ADDRESS_TYPE_EXTERNAL_IP NODE_ADDRESS_TYPE_EXTERNAL_IP]" {
		t.Errorf("%v", kinds)
	}
	for _, name := range []string{"gpu-0", found.Addresses[1].Address} {
		if state := h.found(node(name, 0)).State; state != running {
			t.Errorf("%s is %s", name, state)
		}
	}
	h.must(h.lookup(node("twin", 0)).Results[0].GetFailed(), sdk.CodeConflict, "NameNotUnique", fmt.Sprint(twins[0]), fmt.Sprint(twins[1]), "--vpc")
	mixed := []int{h.cloud.AddDroplet(testapi.NewDroplet{Name: "mixed"}), h.cloud.AddDroplet(testapi.NewDroplet{Name: "mixed", GPU: true})}
	for _, others := range [][]*contract.NodeView{nil, {node("node-0", 0), node("node-1", 0), node("node-2", 0)}} { // By single reads, and by a list.
		h.must(h.lookup(append(others, node("mixed", 0))...).Results[len(others)].GetFailed(), sdk.CodeConflict, "NameNotUnique", fmt.Sprint(mixed[0]), fmt.Sprint(mixed[1]))
	}
	for _, id := range []string{"digitalocean://", "digitalocean://x", "digitalocean://007", "digitalocean://-1"} {
		view := node("node-0", 0)
		view.ProviderId = &id
		h.must(h.lookup(view).Results[0].GetFailed(), sdk.CodeInvalid, "Invalid", id)
	}
	// One lookup for all of these droplets, for one that is gone, and for one that never existed.
	answer := h.lookup(node("node-0", 0), node("node-1", h.droplets[1]), node("gpu-0", gpu), node("gpu-0b", gpu), node("gone", 77), node("never", 0))
	want := []contract.InstanceState{running, running, running, running, absent, absent}
	for i, result := range answer.Results {
		if state := result.GetFound().GetState(); state != want[i] {
			t.Errorf("%s is %s; wanted %s", result.NodeName, state, want[i])
		}
	}
}

func TestStatesAreThoseOfTheDroplet(t *testing.T) { // INST-14
	h := initialized(t)
	for status, state := range map[string]contract.InstanceState{"off": stopped, "archive": stopped, "active": running} {
		if err := h.cloud.SetDroplet("node-0", status); err != nil {
			t.Fatal(err)
		}
		if found := h.found(node("node-0", h.droplets[0])); found.State != state {
			t.Errorf("%s is %s; wanted %s", status, found.State, state)
		}
	}
	// A status that the description does not have, and a droplet that has no address yet.
	if state := shown(&godo.Droplet{ID: 1, Status: "rescue"}).State; state != sdk.InstancePresent {
		t.Errorf("an unknown status is %v", state)
	}
	if fresh := shown(&godo.Droplet{ID: 1, Name: "fresh", Status: "new"}); fresh.State != sdk.InstancePending || fresh.RetryAfter == 0 {
		t.Errorf("%+v", fresh)
	}
}

func TestNobodyIsAbsentUnlessDigitalOceanSaysSo(t *testing.T) { // INST-1
	h := initialized(t)
	many := []*contract.NodeView{}
	for i := range 450 {
		name := fmt.Sprintf("many-%d", i)
		many = append(many, node(name, h.cloud.AddDroplet(testapi.NewDroplet{Name: name})))
	}
	none := func(what string, answer *contract.LookupInstancesResponse) {
		t.Helper()
		for _, result := range answer.Results {
			if result.GetFound().GetState() == absent {
				t.Fatalf("%s: %s is ABSENT", what, result.NodeName)
			}
		}
	}
	h.plan(api.Plan{Match: `GET /v2/droplets[?].*\bpage=2\b`, Status: 500})
	answer := h.lookup(many...)
	none("a page that fails in the middle", answer)
	h.must(answer.Failed, sdk.CodeUnavailable, "APIFails", "listing droplets")

	h.plan(api.Plan{Match: `GET /v2/droplets[?].*\bpage=2\b`, Body: `{"droplets":[],"links":{},"meta":{"total":453}}`})
	byName := []*contract.NodeView{}
	for _, view := range many {
		byName = append(byName, node(view.Name, 0))
	}
	none("an empty page in the middle", h.lookup(byName...))
	if lists := h.cloud.Counts()["GET /v2/droplets"]; lists == 0 {
		t.Error("nothing was listed")
	}

	h.cloud.Set(testapi.Settings{ListLagMS: 3_600_000})
	none("a list that is late", h.lookup(many...))
	h.cloud.Set(testapi.Settings{})

	for _, body := range []string{`"<html>404</html>"`, `<html>404</html>`, `{"message":"no route"}`} {
		h.plan(api.Plan{Match: "GET /v2/droplets/", Status: 404, Body: body})
		answer = h.lookup(node("many-0", h.droplets[0]))
		none("a proxy's 404", answer)
		h.must(answer.Results[0].GetFailed(), sdk.CodeUnavailable, "NotTheAPI", "404")
	}

	h.plan(api.Plan{Match: "GET /v2/droplets", Times: -1, Body: `{"droplets":"none"}`})
	answer = h.lookup(many...)
	none("an answer that cannot be read", answer)
	h.must(answer.Failed, sdk.CodeInternal, "AnswerNotUnderstood")
}

func TestManyDropletsThatAreGoneDoNotBreakTheRateLimit(t *testing.T) {
	h := initialized(t)
	gone := []*contract.NodeView{}
	for i := range 400 {
		gone = append(gone, node(fmt.Sprintf("gone-%d", i), 900_000+i))
	}
	calls, _ := h.calls(func() {
		throttled := 0
		for _, result := range h.lookup(gone...).Results {
			if failed := result.GetFailed(); failed != nil {
				h.must(failed, sdk.CodeThrottled, "Throttled", "slow down")
				throttled++
			} else if result.GetFound().GetState() != absent {
				t.Errorf("%v", result)
			}
		}
		if throttled == 0 {
			t.Error("400 calls were within the limit of 250")
		}
	})
	if calls > 270 {
		t.Errorf("%d calls; they should end soon after the first that was refused", calls)
	}
}
