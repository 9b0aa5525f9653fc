package provider

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/grpc-ccm/grpc-ccm/providers/go/contract"
	"github.com/grpc-ccm/grpc-ccm/providers/go/sdk"
	"github.com/grpc-ccm/grpc-ccm/providers/hetzner/testapi"
	api "github.com/grpc-ccm/grpc-ccm/providers/testapi"
)

func TestAServerIsShownAsHetznersControllerShowsIt(t *testing.T) {
	h := initialized(t)
	found := h.found(node("node-0", ""))
	if *found.ProviderId != fmt.Sprintf("hcloud://%d", h.servers[0]) || *found.InstanceType != "cx22" || *found.Region != "fsn1" || *found.Zone != "fsn1-dc14" || found.Labels["instance.hetzner.cloud/provided-by"] != "cloud" {
		t.Errorf("%v", found)
	}
	kinds := []contract.NodeAddressType{}
	for _, address := range found.Addresses {
		kinds = append(kinds, address.Type)
	}
	if fmt.Sprint(kinds) != "[NODE_ADDRESS_TYPE_HOSTNAME NODE_ADDRESS_TYPE_EXTERNAL_IP NODE_ADDRESS_TYPE_EXTERNAL_IP NODE_ADDRESS_TYPE_INTERNAL_IP]" || found.Addresses[2].Address != "2001:db8:2::1" {
		t.Errorf("%v", found.Addresses)
	}
}

func TestDedicatedServersAreUnmanagedNeverAbsent(t *testing.T) {
	h := initialized(t)
	for _, id := range []string{"hrobot://321", "hcloud://bm-321"} {
		if state := h.found(node("robot", id)).State; state != contract.InstanceState_INSTANCE_STATE_UNMANAGED {
			t.Errorf("%s is %s", id, state)
		}
	}
	h.must(h.lookup(node("odd", "hcloud://012")).Results[0].GetFailed(), sdk.CodeInvalid, "ProviderIDMalformed", "hcloud://012")
}

// INST-1: a list that lacks a server is no proof.
func TestOnlyTheAPIsOwnNotFoundMeansGone(t *testing.T) {
	h := initialized(t)
	gone := node("gone", "hcloud://99999")
	if state := h.found(gone).State; state != contract.InstanceState_INSTANCE_STATE_ABSENT {
		t.Errorf("a server that is not there is %s", state)
	}
	h.plan(api.Plan{Match: "GET /v1/servers/", Status: 404, Body: "<html>not found</html>", Header: map[string]string{"Content-Type": "text/html"}})
	h.must(h.lookup(gone).Results[0].GetFailed(), sdk.CodeUnavailable, "APIUnreachable")
	h.plan(api.Plan{Match: "GET /v1/servers", Body: `{"servers":[],"meta":{"pagination":{"page":1,"per_page":50,"previous_page":null,"next_page":null,"last_page":1,"total_entries":0}}}`})
	nodes := []*contract.NodeView{}
	for i, id := range h.servers {
		nodes = append(nodes, node(fmt.Sprintf("node-%d", i), fmt.Sprintf("hcloud://%d", id)))
	}
	for _, result := range h.lookup(nodes...).Results {
		if state := result.GetFound().GetState(); state != contract.InstanceState_INSTANCE_STATE_RUNNING {
			t.Errorf("%s is %s after a list without it", result.NodeName, state)
		}
	}
}

// `make bench SCENARIOS=clouds` measures the time.
func TestThousandNodesTakeAtMostThreeLists(t *testing.T) {
	h := initialized(t)
	for i := 3; i < 1000; i++ {
		h.cloud.AddServer(testapi.NewServer{Name: fmt.Sprintf("node-%d", i)})
	}
	h.cloud.Latency(100 * time.Millisecond)
	calls, routes := h.calls(func() {
		var all sync.WaitGroup
		for from := 0; from < 1000; from += 100 { // Batches that arrive together share the list.
			all.Go(func() {
				nodes := []*contract.NodeView{}
				for i := from; i < from+100; i++ {
					nodes = append(nodes, node(fmt.Sprintf("node-%d", i), ""))
				}
				for _, result := range h.lookup(nodes...).Results {
					if result.GetFound().GetProviderId() == "" {
						t.Errorf("%v", result)
					}
				}
			})
		}
		all.Wait()
	})
	t.Logf("1,000 Nodes: %d calls of the API: %v", calls, routes)
	// A list is 20 pages. On a busy machine the batches come in more than one wave.
	if calls > 60 {
		t.Errorf("%d calls: %v", calls, routes)
	}
}

func TestAPageThatFailsInTheMiddleFailsTheWhole(t *testing.T) {
	h := initialized(t)
	for i := range 60 {
		h.cloud.AddServer(testapi.NewServer{Name: fmt.Sprintf("more-%d", i)})
	}
	h.plan(api.Plan{Match: "GET /v1/servers.*page=2", Status: 502})
	h.must(h.lookup(node("node-0", ""), node("node-1", "")).Failed, sdk.CodeUnavailable, "APIFails", "listing servers")
}

func TestFailuresOfTheAPIAreSaid(t *testing.T) {
	for name, row := range map[string]struct {
		plan   api.Plan
		code   sdk.Code
		reason string
	}{
		"401":                   {api.Plan{Status: 401}, sdk.CodeCredentials, "TokenRefused"},
		"429":                   {api.Plan{Status: 429, Header: map[string]string{"RateLimit-Reset": fmt.Sprint(time.Now().Add(100 * time.Second).Unix())}}, sdk.CodeThrottled, "Throttled"},
		"429 that says no time": {api.Plan{Status: 429}, sdk.CodeThrottled, "Throttled"},
		"503":                   {api.Plan{Status: 503}, sdk.CodeUnavailable, "APIFails"}, "cut": {api.Plan{Break: true, Times: -1}, sdk.CodeUnavailable, "APIUnreachable"},
		"nonsense": {api.Plan{Status: 200, Body: `{"server":[1]}`}, sdk.CodeInternal, "AnswerNotUnderstood"},
	} {
		t.Run(name, func(t *testing.T) {
			h := initialized(t)
			h.plan(row.plan)
			failed := h.lookup(node("node-0", fmt.Sprintf("hcloud://%d", h.servers[0]))).Results[0].GetFailed()
			h.must(failed, row.code, row.reason)
			if wait := failed.RetryAfter.AsDuration(); row.plan.Header != nil && (wait < 60*time.Second || wait > 101*time.Second) {
				t.Errorf("it asks to wait for %s and not until RateLimit-Reset", wait)
			}
		})
	}
}

func TestTokensThatDoNotWorkAreRefusedAtInitialize(t *testing.T) {
	h := serve(t)
	h.cloud.Token("read-only", &api.Token{ReadOnly: true})
	h.cloud.Token("expired", &api.Token{Expired: true})
	h.token("wrong")
	h.must(h.tryInitialize(us).GetFailed(), sdk.CodeCredentials, "TokenRefused")
	h.token("expired")
	h.must(h.tryInitialize(us).GetFailed(), sdk.CodeCredentials, "TokenRefused")
	h.token("read-only")
	h.must(h.tryInitialize(us).GetFailed(), sdk.CodeCredentials, "TokenLacksRight", "Read & Write")
	h.token("")
	h.must(h.tryInitialize(us).GetFailed(), sdk.CodeCredentials, "TokenMissing")
	h.token(testapi.Token)
	h.initialize(us)
}

// PROV-17: an Initialize that fails changes nothing, so the operator can put right a token of another project.
func TestAnInitializeThatFailsLeavesTheProjectOpen(t *testing.T) {
	for name, network := range map[string]string{"with a network": "cluster", "without a network": ""} {
		t.Run(name, func(t *testing.T) {
			h := serve(t, func(s *Settings) { s.Network = network })
			h.cloud.Token("elsewhere", &api.Token{Elsewhere: true})
			h.cloud.Token("read-only", &api.Token{ReadOnly: true})
			h.token("read-only")
			h.must(h.tryInitialize(us).GetFailed(), sdk.CodeCredentials, "TokenLacksRight")
			h.token("elsewhere")
			h.initialize(us)
		})
	}
}

func TestWrongLocationAndNetworkAreNamed(t *testing.T) {
	h := serve(t, func(s *Settings) { s.Location = "mars1" })
	h.must(h.tryInitialize(us).GetFailed(), sdk.CodePrecondition, "LocationUnknown", "mars1")
}

func TestAWrongNetworkIsNamed(t *testing.T) {
	h := serve(t, func(s *Settings) { s.Network = "4712" })
	h.must(h.tryInitialize(us).GetFailed(), sdk.CodePrecondition, "NetworkUnknown", "4712")
}

func TestARotatedTokenCountsAtOnceUnlessItIsOfAnotherProject(t *testing.T) {
	h := initialized(t)
	h.cloud.Token("new", &api.Token{})
	h.cloud.Token(testapi.Token, nil)
	h.token("new")
	h.found(node("node-0", ""))
	h.cloud.Token("elsewhere", &api.Token{Elsewhere: true})
	h.token("elsewhere")
	h.must(h.lookup(node("node-0", fmt.Sprintf("hcloud://%d", h.servers[0]))).Results[0].GetFailed(), sdk.CodeCredentials, "AnotherProject", "4711")
}
