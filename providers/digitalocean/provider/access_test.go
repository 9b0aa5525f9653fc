package provider

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/grpc-ccm/grpc-ccm/providers/digitalocean/testapi"
	"github.com/grpc-ccm/grpc-ccm/providers/go/contract"
	"github.com/grpc-ccm/grpc-ccm/providers/go/sdk"
	api "github.com/grpc-ccm/grpc-ccm/providers/testapi"
)

// The rights that docs/digitalocean.md names.
var leastRights = []string{
	"account:read", "regions:read", "vpc:read", "droplet:read", "load_balancer:read", "load_balancer:create", "load_balancer:update", "load_balancer:delete", "certificate:read",
}

func TestTheLeastRightsAreEnoughAndNoneOfThemIsTooMuch(t *testing.T) {
	h := serve(t, func(s *Settings) { s.VPC = testapi.VPC })
	h.cloud.Token("least", &api.Token{Rights: leastRights})
	h.token("least")
	everything := func(uid string) *contract.Failure {
		if failed := h.tryInitialize(us).GetFailed(); failed != nil {
			return failed
		}
		if result := h.lookup(node("node-0", 0)).Results[0]; result.GetFailed() != nil {
			return result.GetFailed()
		}
		b := h.service(uid, "type", "REGIONAL", "certificate-name", "web", "protocol", "https")
		if failed := b.ensure().GetFailed(); failed != nil {
			return failed
		}
		b.service.Ports[0].Port = 8443
		if failed := b.ensure().GetFailed(); failed != nil {
			return failed
		}
		return b.remove().GetFailed()
	}
	h.cloud.AddCertificate("web", "custom")
	if failed := everything("all"); failed != nil {
		t.Fatalf("with all rights: %v", failed)
	}
	for i, right := range leastRights {
		less := append(append([]string{}, leastRights[:i]...), leastRights[i+1:]...)
		h.cloud.Token("least", &api.Token{Rights: less})
		t.Log("without", right)
		h.must(everything(strings.ReplaceAll(right, ":", "-")), sdk.CodeCredentials, "TokenLacksRight", "not authorized", "docs/digitalocean.md")
		h.cloud.Token("least", &api.Token{Rights: leastRights})
		h.initialize(us)
		b := h.service(strings.ReplaceAll(right, ":", "-"))
		b.removed()
	}
}

func TestTokensThatAreRefused(t *testing.T) {
	h := serve(t)
	h.cloud.Token("expired", &api.Token{Expired: true})
	h.cloud.Token("reads", &api.Token{ReadOnly: true})
	for _, token := range []string{"expired", "unknown"} {
		h.token(token)
		h.must(h.tryInitialize(us).GetFailed(), sdk.CodeCredentials, "TokenRefused", "Unable to authenticate you")
	}
	h.token("")
	h.must(h.tryInitialize(us).GetFailed(), sdk.CodeCredentials, "TokenMissing", "holds no token")
	h.settings.TokenFile += ".missing"
	h.start()
	h.must(h.tryInitialize(us).GetFailed(), sdk.CodeCredentials, "TokenMissing", "cannot be read")

	h.settings.TokenFile = strings.TrimSuffix(h.settings.TokenFile, ".missing")
	h.token("reads")
	h.start()
	h.initialize(us)
	h.must(h.service("reads").ensure().GetFailed(), sdk.CodeCredentials, "TokenLacksRight", "making a load balancer")
	if probe, err := h.info.Probe(h.ctx, &contract.ProbeRequest{}); err != nil || probe.State != contract.ProbeState_PROBE_STATE_DEGRADED {
		t.Errorf("%v %v; wanted DEGRADED: no Node is deleted then", probe, err)
	}
}

func TestATokenThatIsRotatedCountsAtOnce(t *testing.T) {
	h := initialized(t)
	h.cloud.Token("next", &api.Token{})
	h.token("next")
	h.cloud.Token(testapi.Token, nil)
	if found := h.found(node("node-0", h.droplets[0])); found.State != running {
		t.Errorf("%v", found)
	}
	if calls, routes := h.calls(func() { h.found(node("node-0", h.droplets[0])) }); calls != 1 {
		t.Errorf("a token that is known took %v", routes)
	}
}

// In another account no droplet of this cluster exists: every Node would seem to be gone.
func TestATokenOfAnotherAccountIsRefusedBeforeAnythingIsAskedWithIt(t *testing.T) {
	h := initialized(t)
	h.cloud.Token("other", &api.Token{Elsewhere: true})
	h.token("other")
	_, routes := h.calls(func() {
		h.must(h.lookup(node("node-0", h.droplets[0])).Results[0].GetFailed(), sdk.CodeCredentials, "AnotherAccount", testapi.AccountElsewhere, testapi.Account)
		h.must(h.service("other").ensure().GetFailed(), sdk.CodeCredentials, "AnotherAccount")
	})
	if len(routes) != 1 || routes["GET /v2/account"] != 2 {
		t.Errorf("%v; wanted nothing but the question whose account it is", routes)
	}
	// A check that fails says nothing of the droplet either, whatever its status.
	h.plan(api.Plan{Match: "GET /v2/account", Status: 404, Times: -1})
	if answer := h.lookup(node("node-0", h.droplets[0])); answer.Results[0].GetFailed() == nil {
		t.Errorf("%v", answer)
	}
}

func TestAWrongRegionOrNetworkFailsInitialize(t *testing.T) {
	for _, row := range []struct{ region, vpc, reason, word string }{
		{"nyc9", "", "RegionUnknown", "fra1, nyc1"}, {"nyc1", "00000000-0000-4000-8000-000000000000", "VPCUnknown", "--vpc"}, {"nyc1", testapi.VPCElsewhere, "VPCElsewhere", "fra1"},
	} {
		t.Run(row.reason, func(t *testing.T) {
			h := serve(t, func(s *Settings) { s.Region, s.VPC = row.region, row.vpc })
			h.must(h.tryInitialize(us).GetFailed(), sdk.CodePrecondition, row.reason, row.word)
		})
	}
}

func TestTheScopeNamesAccountRegionAndNetwork(t *testing.T) { // PROV-9
	h := serve(t, func(s *Settings) { s.VPC = testapi.VPC })
	if scope := h.tryInitialize(us).GetInitialized().GetCloudScope(); scope != "account "+testapi.Account+", region nyc1, VPC "+testapi.VPC {
		t.Errorf("%q", scope)
	}
}

func TestFailuresOfTheAPIAreThoseOfTheContract(t *testing.T) {
	h := initialized(t)
	unixIn := func(wait time.Duration) string { return strconv.FormatInt(time.Now().Add(wait).Unix(), 10) }
	for name, row := range map[string]struct {
		plan   api.Plan
		code   sdk.Code
		reason string
		word   string
		wait   time.Duration
	}{
		"429 without a time":                {api.Plan{Status: 429, Header: map[string]string{"Ratelimit-Reset": ""}}, sdk.CodeThrottled, "Throttled", "slow down", throttledFor},
		"429 of a minute":                   {api.Plan{Status: 429, Header: map[string]string{"Retry-After": "29"}}, sdk.CodeThrottled, "Throttled", "slow down", 29 * time.Second},
		"429 of an hour":                    {api.Plan{Status: 429, Header: map[string]string{"Ratelimit-Reset": unixIn(90 * time.Second)}}, sdk.CodeThrottled, "Throttled", "slow down", 90 * time.Second},
		"422 with the API's text":           {api.Plan{Status: 422, Body: `{"id":"unprocessable_entity","message":"forwarding rule is odd"}`}, sdk.CodeInvalid, "RefusedByDigitalOcean", "forwarding rule is odd", 0},
		"422 of a quota":                    {api.Plan{Status: 422, Body: `{"id":"unprocessable_entity","message":"will exceed your load balancer limit"}`}, sdk.CodePrecondition, "QuotaReached", "load balancer limit", 0},
		"500":                               {api.Plan{Status: 500}, sdk.CodeUnavailable, "APIFails", "500", 0},
		"503 of a proxy":                    {api.Plan{Status: 503, Body: `"<html>"`}, sdk.CodeUnavailable, "APIFails", "503", 0},
		"a connection that breaks":          {api.Plan{Break: true}, sdk.CodeUnavailable, "APIUnreachable", "does not answer", 0},
		"401":                               {api.Plan{Status: 401}, sdk.CodeCredentials, "TokenRefused", "Unable to authenticate", 0},
		"a status that nobody has heard of": {api.Plan{Status: 418}, sdk.CodeInternal, "AnswerNotUnderstood", "418", 0},
	} {
		row.plan.Match = "POST /v2/load_balancers"
		h.plan(row.plan)
		failed := h.service("failures").ensure().GetFailed()
		t.Log(name, failed)
		h.must(failed, row.code, row.reason, row.word)
		late := time.Duration(0)
		if row.wait > time.Minute { // This wait ends at a fixed time, so it becomes shorter while the test runs.
			late = 30 * time.Second
		}
		if wait := failed.RetryAfter.AsDuration(); wait > row.wait || wait < row.wait-late {
			t.Errorf("%s: asked again after %s; wanted %s", name, wait, row.wait)
		}
		if all := h.cloud.LoadBalancers(); len(all) != 0 {
			t.Errorf("%s left %+v", name, all)
		}
	}
}
